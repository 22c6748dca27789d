"""An object to be merged as the inventory knows it, and the errors if the stored object differs.

Belongs here: an input before it is read. `files` opens it, and `fetching` copies it from S3.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from manifest_platform.listing import RowGroups
from manifest_platform.merging.errors import ChangedInput, MissingInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Input:
    """An object to be merged. Times are ISO 8601 in UTC; None if the inventory has none.

    `groups`: the row groups to be merged, if the file has others, too; `bytes` is then their size. None for a whole file.
    """

    uri: str
    rows: int
    bytes: int
    min_time: str | None = None
    max_time: str | None = None
    groups: RowGroups | None = None

    @property
    def file_bytes(self) -> int:
        """The size of the whole file."""
        return self.groups.size if self.groups else self.bytes

    def times(self) -> tuple[int, int] | None:
        """The first and the last time in microseconds since 1970; None if the inventory has none."""
        if self.min_time is None or self.max_time is None:
            return None
        return _microseconds(self.min_time), _microseconds(self.max_time)


def check_size(input_: Input, size: int) -> None:
    """Raises ChangedInput if the size of the stored object differs from the inventory."""
    if size != input_.file_bytes:
        expected = input_.file_bytes
        raise ChangedInput(f"{input_.uri} has {size} bytes instead of the expected {expected}; shred its directory again")


def missing(input_: Input) -> MissingInput:
    """The exception for an input that does not exist."""
    return MissingInput(f"{input_.uri} does not exist; shred its directory again")


def _microseconds(time: str) -> int:
    return (datetime.fromisoformat(time).astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
