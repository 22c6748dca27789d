"""Archives made by hand, with any tree, any tar and any fault, for tests of unpacking."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Generator, Iterable, Mapping, Sequence

from manifest_platform.sources.veeva.files import Part

PRODUCT = "Object/product__v.csv"
ROWS = b'id,name__v\r\nV1,plain\r\nV2,"with, comma"\r\nV3,"two\r\nlines and ""quotes"""\r\n'


def manifest_of(**records: int) -> bytes:
    """Returns a manifest.csv that names a file for each object, with its number of records."""
    return manifest_rows(f"Object.{name},{name},updates,{count},Object/{name}.csv" for name, count in records.items())


def manifest_rows(rows: Iterable[str]) -> bytes:
    return "".join(f"{row}\r\n" for row in ["extract,extract_label,type,records,file", *rows]).encode()


TREE: Mapping[str, bytes] = {
    "manifest.csv": manifest_of(product__v=3),
    "metadata_full.csv": b"extract,column_name\r\nObject.product__v,id\r\n",
    PRODUCT: ROWS,
}
"""Returns the files of a small valid window."""


def member(name: str, data: bytes = b"", type: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:  # noqa: A002
    found = tarfile.TarInfo(name)
    found.size, found.type, found.linkname = len(data), type, link
    return found, data


def tar_of(members: Iterable[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.PAX_FORMAT) -> bytes:  # noqa: A002
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format) as tar:
        for found, data in members:
            tar.addfile(found, io.BytesIO(data))
    return target.getvalue()


def packed(tree: Mapping[str, bytes]) -> bytes:
    """Returns the tar.gz of a tree."""
    return gzip.compress(tar_of(member(name, data) for name, data in tree.items()), compresslevel=1, mtime=0)


def split(archive: bytes, size: int = 1 << 30) -> list[tuple[Part, bytes]]:
    """Returns the parts of an archive, as Vault would announce them."""
    slices = [archive[start : start + size] for start in range(0, len(archive), size)]
    return [
        (Part(f"archive.{number:03}", number, len(data), hashlib.md5(data).hexdigest()), data)
        for number, data in enumerate(slices, start=1)
    ]


class Source:
    """A source of parts in blocks. `spoilt`: the contents that it returns instead, one for each request."""

    def __init__(self, slices: Sequence[tuple[Part, bytes]], block: int = 1000, **spoilt: list[bytes]):
        self.parts = [part for part, _ in slices]
        self.asked: list[str] = []
        self._data = {part.name: data for part, data in slices}
        self._block = block
        self._spoilt = {f"archive.{name.removeprefix('p'):>03}": answers for name, answers in spoilt.items()}

    def __call__(self, part: Part) -> Generator[bytes]:
        self.asked.append(part.name)
        instead = self._spoilt.get(part.name)
        data = instead.pop(0) if instead else self._data[part.name]
        for start in range(0, len(data), self._block):
            yield data[start : start + self._block]
