"""Formats times, durations, sizes and counts for people."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(time: datetime) -> str:
    """Formats a time in UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Formats a duration in its largest sensible unit: 12 s, 3 min, 5 h, 9 days."""
    for unit, length in (("days", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= length:
            return f"{seconds / {'days': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def size_of(bytes_: float) -> str:
    """Formats a size in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if bytes_ < 1000:
            return f"{bytes_:.0f} {unit}" if unit == "B" else f"{bytes_:.1f} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.1f} TB"


def count_of(number: int, what: str, many: str = "") -> str:
    """Formats a number with its noun: 1 range, 2 ranges. `many`: the plural, if it is not formed with `s`."""
    return f"{number:,} {what if number == 1 else many or f'{what}s'}"
