"""Unpacking and verifying a Direct Data archive against tar and md5sum, which verify nothing.

    python benchmarks/archive.py [--repeats 3] [--mib 2048]

The same archive in parts, by turns, from the page cache:

    ours    manifest_platform.sources.veeva.archive: every part by size and MD5, every file written with its SHA-256, its CSV
            records counted and compared with manifest.csv
    tar     cat parts | tar -xzO | md5sum: nothing is written

The peak of the process's memory must not grow with the archive: it is printed with what it was before the first turn.
"""

from __future__ import annotations

import csv
import hashlib
import io
import random
import resource
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path

from pairs import arguments, interleaved, print_figure, print_medians, print_ratio

from manifest_platform import storage
from manifest_platform.sources.veeva.archive import unpack
from manifest_platform.sources.veeva.files import Part

GOAL = 0.8
MEMORY_GOAL = 96  # MiB beyond what the imports take: a part in memory, a few blocks, Arrow's own
PART = 128 << 20
FILES = 8
BLOCK_ROWS = 40_000
DOWNLOAD_BLOCK = 1 << 16


def make_archive(folder: Path, mib: int) -> list[Part]:
    """Writes an archive with `mib` MiB of CSV, cut into parts. Fast compression keeps this below a minute."""
    header, block = _block()
    blocks = max(1, (mib << 20) // FILES // len(block))
    whole = folder / "whole.tar.gz"
    with tarfile.open(whole, "w:gz", compresslevel=1) as tar:
        rows = "".join(f"Object.o{n}__v,O{n},updates,{blocks * BLOCK_ROWS},Object/o{n}__v.csv\r\n" for n in range(FILES))
        _add(tar, "manifest.csv", [f"extract,extract_label,type,records,file\r\n{rows}".encode()])
        for number in range(FILES):
            _add(tar, f"Object/o{number}__v.csv", [header, *[block] * blocks])
    subprocess.run(["split", "-b", str(PART), "-a", "3", "--numeric-suffixes=1", whole, f"{whole}."], check=True)
    whole.unlink()
    return [_part(number, path) for number, path in enumerate(sorted(folder.iterdir()), start=1)]


def _part(number: int, path: Path) -> Part:
    with path.open("rb") as file:
        return Part(path.name, number, path.stat().st_size, hashlib.file_digest(file, "md5").hexdigest())


def _block() -> tuple[bytes, bytes]:
    """A header, and some megabytes of records as objects have them, one in ten with quotes and a line end inside."""
    chance = random.Random(1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    columns = ["id", "modified_date__v", "name__v", "status__v", "amount__c", "owner__c", "note__c"]
    header = (",".join(columns) + "\r\n").encode()
    for number in range(BLOCK_ROWS):
        note = 'a "quoted" note,\nof two lines' if number % 10 == 0 else f"note {chance.randrange(10**6)}"
        stamp = f"2026-01-01T{chance.randrange(24):02d}:{chance.randrange(60):02d}:00.000Z"
        amount = f"{chance.random() * 1e6:.2f}"
        owner = f"V0D{chance.getrandbits(48):012X}"
        writer.writerow([f"V{number:014d}", stamp, f"Product {chance.randrange(10**5)}", "active__v", amount, owner, note])
    return header, text.getvalue().encode()


def _add(tar: tarfile.TarFile, name: str, pieces: list[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = sum(len(piece) for piece in pieces)
    tar.addfile(member, _Pieces(pieces))


class _Pieces(io.RawIOBase):
    """Pieces of bytes, as one file."""

    def __init__(self, pieces: list[bytes]):
        self._pieces, self._at, self._offset = pieces, 0, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        taken = bytearray()
        while len(taken) < size and self._at < len(self._pieces):
            piece = self._pieces[self._at]
            wanted = piece[self._offset : self._offset + size - len(taken)]
            taken += wanted
            self._offset += len(wanted)
            if self._offset == len(piece):
                self._at, self._offset = self._at + 1, 0
        return bytes(taken)


def ours(folder: Path, parts: list[Part]) -> float:
    """Seconds to unpack and verify."""

    def download(part: Part) -> Generator[bytes]:
        with (folder / part.name).open("rb") as file:
            while block := file.read(DOWNLOAD_BLOCK):
                yield block

    target = folder / "unpacked"
    began = time.perf_counter()
    files = unpack(parts, download, storage.as_uri(target))
    seconds = time.perf_counter() - began
    assert len(files) == FILES + 1
    shutil.rmtree(target)
    return seconds


def tar(folder: Path, parts: list[Part]) -> float:
    """Seconds of tar and md5sum."""
    names = " ".join(shlex.quote(str(folder / part.name)) for part in parts)
    began = time.perf_counter()
    subprocess.run(f"cat {names} | tar -xzO | md5sum", shell=True, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = arguments(__doc__, 3, "as --mib says")
    parser.add_argument("--mib", type=int, default=512, help="MiB of CSV in the archive (512)")
    options = parser.parse_args()
    mib = int(options.mib * options.scale)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        parts = make_archive(folder, mib)
        size = sum(part.size for part in parts) / 2**20
        storage.filesystem(storage.as_uri(folder))
        before = _peak_mib()
        print(f"{mib} MiB of CSV in {FILES} files, {size:.0f} MiB in {len(parts)} parts")
        ways = {"ours": partial(ours, folder, parts), "tar": partial(tar, folder, parts)}
        seconds = interleaved(ways, options.repeats)
    print_medians(seconds)
    for way, taken in seconds.items():
        print(f"{way:10} {mib / sorted(taken)[len(taken) // 2]:8.1f} MiB/s of CSV")
    print(f"peak memory {_peak_mib():.0f} MiB, of which {before:.0f} MiB before the first archive was unpacked")
    print_ratio("throughput", seconds, "ours", "tar", GOAL, throughput=True)
    print_figure("memory beyond the imports", _peak_mib() - before, MEMORY_GOAL, " MiB")


if __name__ == "__main__":
    main()
