"""Opens the Parquet files to be merged.

Belongs here: local and copied inputs, and the check that each file matches the inventory. Sorting and writing rows does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from manifest_platform import storage
from manifest_platform.merging.errors import ChangedInput, TransientMergeError
from manifest_platform.merging.inputs import Input, check_size, missing


@dataclass(frozen=True)
class File:
    """An input whose bytes are available in memory or by a memory map. `place`: its index among the inputs, from 0."""

    place: int
    input: Input
    data: pa.Buffer
    metadata: pq.FileMetaData
    schema: pa.Schema

    def reader(self, encoded: Sequence[str] = ()) -> pq.ParquetFile:
        """Returns a new reader, for use by one thread. String columns in `encoded` stay dictionary-encoded."""
        return pq.ParquetFile(self.data, metadata=self.metadata, read_dictionary=list(encoded))


def opened(inputs: Sequence[Input], spool: Path, pool: Executor) -> list[File]:
    """Opens the inputs and returns the files in the same order. Inputs in S3 are first copied to the directory `spool`.

    Raises ChangedInput if a file differs from the inventory, and MissingInput, PermanentMergeError or TransientMergeError.
    """
    far = [found for found in inputs if not storage.is_local(found.uri)]
    fetched: dict[str, pa.Buffer] = {}
    if far:
        from manifest_platform.merging import fetching  # loads boto3

        fetched = dict(zip((found.uri for found in far), fetching.fetched(far, spool), strict=True))
    near = [fetched[found.uri] if found.uri in fetched else _mapped(found) for found in inputs]
    return list(pool.map(_file, range(len(inputs)), inputs, near))


def _file(place: int, input_: Input, data: pa.Buffer) -> File:
    try:
        reader = pq.ParquetFile(data)
    except (pa.ArrowException, OSError) as error:
        raise ChangedInput(f"{input_.uri} cannot be read as Parquet: {error}; restore the original file") from error
    if reader.metadata.num_rows != input_.rows:
        raise ChangedInput(
            f"{input_.uri} has {reader.metadata.num_rows} rows instead of the expected {input_.rows}; restore the original file"
        )
    return File(place, input_, data, reader.metadata, reader.schema_arrow)


def _mapped(input_: Input) -> pa.Buffer:
    """Maps a local file into memory; its bytes are read from disk when they are used."""
    path = storage.local_path(input_.uri)
    try:
        size = path.stat().st_size
        check_size(input_, size)
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except FileNotFoundError as error:
        raise missing(input_) from error
    except PermissionError as error:
        raise TransientMergeError(f"{input_.uri} cannot be read: {error}; allow access") from error
    except OSError as error:
        raise TransientMergeError(f"{input_.uri} could not be read: {error}") from error
