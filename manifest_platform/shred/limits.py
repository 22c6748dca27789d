"""Limits of what shredding may spend on a landed directory, and the error when a directory exceeds one.

Belongs here: bounds of memory, disk and time for any input. How many bad rows are acceptable is in `batch.Options`.
"""

from __future__ import annotations

from dataclasses import dataclass

from manifest_platform.faults import Permanent
from manifest_platform.remedies import LAND_ANEW

UNMEASURED = 64 << 20
"""Bytes of text up to which the inflation of a compressed file is not checked, because repeated events compress well."""

KEPT_OF_LINE = 64 << 10
"""Number of bytes kept of a line that is too long."""

LINES_AT_ONCE = 8192
"""Number of lines shredded at a time. The reasons for a bad line take far more memory than a short line."""

REASONS_OF_LINE = 20
"""Largest number of reasons recorded for a bad line. The rest of the line is not checked."""


@dataclass(frozen=True)
class InputLimits:
    """The limits of a directory, as configured under `shred.limits`.

    `line` and `inflation` apply to a file: the bytes of its longest line or record, and the ratio of its text to its compressed
    bytes. The other limits apply to the whole directory.
    """

    line: int = 4 << 20
    inflation: float = 200
    files: int = 50_000
    dates: int = 400
    bad_rows: int = 1_000_000
    duplicates: int = 5_000_000


class LimitExceeded(ValueError, Permanent):
    """A directory exceeds a limit. The message names the limit, the value found, the place, and what to do."""

    remedy = LAND_ANEW

    def __init__(self, key: str, where: str, met: str, allowed: str) -> None:
        """`key`: the limit's key under `shred.limits`. `met`: what was found, beginning with a verb."""
        super().__init__(
            f"{where} {met}; shred.limits.{key} allows {allowed}. If the directory is at fault, land it again; otherwise raise"
            " the limit, and resolve the item"
        )
