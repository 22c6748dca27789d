"""How much a landed directory may make shredding take, and the error of one that wants more.

Belongs here: what bounds memory, disk and time whatever lands. How many bad rows a sound directory may have is `Options`'.
"""

from __future__ import annotations

from dataclasses import dataclass

from manifest_platform.faults import Permanent
from manifest_platform.remedies import LAND_ANEW

UNMEASURED = 64 << 20
"""How many bytes of text a compressed file may become whatever its ratio: one event over and over is no attack."""

KEPT_OF_LINE = 64 << 10
"""How many bytes are kept of a line that is too long."""

LINES_AT_ONCE = 8192
"""How many lines are shredded at a time: what is wrong with a line takes far more memory than a short line."""

REASONS_OF_LINE = 20
"""How many reasons of a bad line are noted; then it is not looked at any further."""


@dataclass(frozen=True)
class InputLimits:
    """How much a directory may hold and become, as the keys of these names below `shred.limits` have it.

    `line` and `inflation` are of a file: the bytes of its longest line or record, and how many times as large its text may be
    as its compressed bytes. The others are of the whole directory.
    """

    line: int = 4 << 20
    inflation: float = 200
    files: int = 50_000
    dates: int = 400
    bad_rows: int = 1_000_000


class LimitExceeded(ValueError, Permanent):
    """A directory holds or becomes more than a limit allows. The message names the limit, what was met, where, what to do."""

    remedy = LAND_ANEW

    def __init__(self, key: str, where: str, met: str, allowed: str) -> None:
        """`key`: the limit's, below `shred.limits`. `met` begins with a verb."""
        super().__init__(
            f"{where} {met}; shred.limits.{key} allows {allowed}. Land the directory anew where it is at fault; else raise"
            " the limit, and resolve the item"
        )
