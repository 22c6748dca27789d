"""What is known of an object that is merged, and what is raised where it is not as it is known.

Belongs here: an input before it is read. How its bytes are brought near is in `files`, and for S3 in `fetching`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from manifest_platform.merging.errors import ChangedInput, MissingInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Input:
    """An object to be merged, as the inventory knows it. Times are ISO 8601 in UTC; None where it knows none."""

    uri: str
    rows: int
    bytes: int
    min_time: str | None = None
    max_time: str | None = None

    def times(self) -> tuple[int, int] | None:
        """The first and the last time in microseconds since 1970."""
        if self.min_time is None or self.max_time is None:
            return None
        return _microseconds(self.min_time), _microseconds(self.max_time)


def hold_size(input_: Input, size: int) -> None:
    """Raises ChangedInput where an input's size is not what is known of it."""
    if size != input_.bytes:
        raise ChangedInput(f"{input_.uri} has {size} bytes, and {input_.bytes} are known of it; shred its directory again")


def missing(input_: Input) -> MissingInput:
    """What to raise where an input is not there."""
    return MissingInput(f"{input_.uri} is not there; shred its directory again")


def _microseconds(time: str) -> int:
    return (datetime.fromisoformat(time).astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
