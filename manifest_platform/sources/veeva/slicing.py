"""Cuts the large files of windows into slices before they are shredded, by a Spark job that scans their chunks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from manifest_platform import storage
from manifest_platform.shred.batch import open_landed
from manifest_platform.shred.csv_slices import NotCut, Outcome, Scan, Slice, scan, slices

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Large:
    """A large file: its URI, its size in bytes, and the landing root."""

    uri: str
    size: int
    root: str


def sliced(spark: SparkSession, files: Sequence[Large], chunk: int) -> Mapping[str, list[Slice]]:
    """Returns the slices of files by URI, each of about `chunk` bytes; none for a file that cannot be cut or read.

    They depend on the bytes of the file and on `chunk` alone. Without files, no job runs. Why a file cannot be cut is logged.
    """
    files = list(dict.fromkeys(files))
    chunks = [(file, start) for file in files for start in range(0, file.size, chunk)]
    if not chunks:
        return {}
    here = storage.surroundings()

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        here.adopt()
        for number in (one for ids in batches for one in ids.column(0).to_pylist()):
            file, start = chunks[number]
            try:
                found = orjson.dumps(_scanned(file, start, chunk))
            except Exception:  # shredding meets it again, and then says whose fault it is
                found = None
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array([number]), pyarrow.array([found], pyarrow.binary())], ["chunk", "found"]
            )

    rows = spark.range(0, len(chunks), 1, len(chunks)).mapInArrow(work, "chunk bigint, found binary").collect()
    found = {number: orjson.loads(bytes(data)) for number, data in rows if data is not None}
    result: dict[str, list[Slice]] = {}
    for file in files:
        numbers = [number for number, (one, _) in enumerate(chunks) if one == file]
        if found.keys() >= set(numbers):
            mine = [found[number] for number in numbers]
            starts = [chunks[number][1] for number in numbers]
            try:
                result[file.uri] = slices([_scan(one["scan"]) for one in mine], starts, file.size, mine[-1]["ends_line"])
            except NotCut as why:
                log.warning("%s, %s bytes, is shredded by one task: %s", file.uri, f"{file.size:,}", why)
    return result


def _scanned(file: Large, start: int, chunk: int) -> dict[str, object]:
    """Returns the scan of a chunk as JSON-compatible data, and whether it ends with a newline."""
    size = min(chunk, file.size - start)
    with open_landed(file.uri, file.size, file.root) as stream:
        stream.seek(start + size - 1)
        ends_line, after = stream.read(1) == b"\n", stream.read(1)
        stream.seek(max(0, start - 2))
        before = stream.read(min(2, start))
        return {"scan": asdict(scan(stream, size, before, after)), "ends_line": ends_line}


def _scan(data: Mapping[str, object]) -> Scan:
    return Scan(bool(data["is_odd"]), *(Outcome(**data[name]) for name in ("outside", "within")))  # ty: ignore[invalid-argument-type]
