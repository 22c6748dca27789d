"""The Parquet files that are merged, brought to where they can be read at will.

Belongs here: opening inputs, and whether each is the file that is known. What becomes of its rows does not.
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
from manifest_platform.merging.inputs import Input, hold_size, missing


@dataclass(frozen=True)
class File:
    """An input whose bytes are at hand. `place`: which of the inputs it is, from 0."""

    place: int
    input: Input
    data: pa.Buffer
    metadata: pq.FileMetaData
    schema: pa.Schema

    def reader(self, encoded: Sequence[str] = ()) -> pq.ParquetFile:
        """A reader of its own, for one thread; texts of the columns `encoded` stay encoded by a dictionary."""
        return pq.ParquetFile(self.data, metadata=self.metadata, read_dictionary=list(encoded))


def opened(inputs: Sequence[Input], spool: Path, pool: Executor) -> list[File]:
    """The inputs as files, in their order; those in S3 are copied to the directory `spool` first.

    Raises MissingInput, ChangedInput where one is not what the inventory says, TransientMergeError and PermanentMergeError.
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
        raise ChangedInput(f"{input_.uri} cannot be read as Parquet: {error}; bring it back as it was") from error
    if reader.metadata.num_rows != input_.rows:
        raise ChangedInput(
            f"{input_.uri} has {reader.metadata.num_rows} rows, and {input_.rows} are known of it; bring it back as it was"
        )
    return File(place, input_, data, reader.metadata, reader.schema_arrow)


def _mapped(input_: Input) -> pa.Buffer:
    """A local file's bytes, read from the disk as they are needed."""
    path = storage.local_path(input_.uri)
    try:
        size = path.stat().st_size
        hold_size(input_, size)
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except FileNotFoundError as error:
        raise missing(input_) from error
    except PermissionError as error:
        raise TransientMergeError(f"{input_.uri} may not be read: {error}; allow it") from error
    except OSError as error:
        raise TransientMergeError(f"{input_.uri} could not be read: {error}") from error
