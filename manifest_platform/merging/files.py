"""Opens the Parquet files to be merged.

Belongs here: local and copied inputs, and the check that each file matches the inventory. Sorting and writing rows does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """An input whose bytes are available in memory or by a memory map. `place`: its index among the inputs, from 0.

    Of a file of which only some row groups are merged, `data` may lack the bytes of the others.
    """

    place: int
    input: Input
    data: pa.Buffer
    metadata: pq.FileMetaData
    schema: pa.Schema

    @property
    def groups(self) -> range:
        """The numbers of the row groups to be merged."""
        groups = self.input.groups
        return range(groups.first, groups.first + groups.count) if groups else range(self.metadata.num_row_groups)

    def reader(self, encoded: Sequence[str] = ()) -> pq.ParquetFile:
        """Returns a new reader, for use by one thread. String columns in `encoded` stay dictionary-encoded."""
        return pq.ParquetFile(self.data, metadata=self.metadata, read_dictionary=list(encoded))


def opened(inputs: Sequence[Input], spool: Path, pool: Executor) -> list[File]:
    """Opens the inputs and returns the files in the same order. Inputs in S3 are first copied to the directory `spool`.

    Raises ChangedInput if a file differs from the inventory, and MissingInput, PermanentMergeError or TransientMergeError.
    """
    far = [found for found in inputs if not storage.is_local(found.uri)]
    fetched: Iterator[pa.Buffer] = iter(())
    if far:
        from manifest_platform.merging import fetching  # loads boto3

        fetched = iter(fetching.fetched(far, spool))
    near = [_mapped(found) if storage.is_local(found.uri) else next(fetched) for found in inputs]
    return list(pool.map(_file, range(len(inputs)), inputs, near))


def _file(place: int, input_: Input, data: pa.Buffer) -> File:
    try:
        reader = pq.ParquetFile(data)
    except (pa.ArrowException, OSError) as error:
        raise ChangedInput(f"{input_.uri} cannot be read as Parquet: {error}; restore the original file") from error
    file = File(place, input_, data, reader.metadata, reader.schema_arrow)
    there = [number for number in file.groups if number < reader.metadata.num_row_groups]
    rows = sum(reader.metadata.row_group(number).num_rows for number in there)
    if rows != input_.rows:
        where = f"{input_.uri}, row groups {file.groups.start} to {file.groups.stop - 1}," if input_.groups else input_.uri
        raise ChangedInput(f"{where} has {rows} rows instead of the expected {input_.rows}; restore the original file")
    return file


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
