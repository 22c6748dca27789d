"""Times at which nothing is loaded: `load.blackout`, by the minute, in a time zone.

The cron fields are read here. Dagster carries a library for them, but the core works without Dagster; and the only question is
whether a window is open, which every minute answers by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from manifest_platform.settings import Settings

WEEK = 7 * 24 * 60
"""The longest window, in minutes."""
_FARTHEST = timedelta(days=31)  # windows that join each other without end count as open until then
_JOINED = 1_000  # or until this many joined: `* * * * *` begins 44,640 windows in 31 days, which took four seconds to look at
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(\*|[0-9]+|[a-z]{3})(?:-([0-9]+|[a-z]{3}))?(?:/([1-9][0-9]*))?")


@dataclass(frozen=True)
class Cron:
    """Five fields of cron. If neither field of days is `*`, a day that fits one of them fits, as everywhere."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    @classmethod
    def of(cls, text: str) -> Self:
        """Parses five fields. Raises ValueError, which says what is allowed."""
        fields = text.lower().split()
        if len(fields) != 5:
            raise ValueError(f"{text!r}: allowed: five fields of cron, such as '0 2 * * sun'")
        minutes, hours, days, months, weekdays = fields
        return cls(
            _field(minutes, 0, 59),
            _field(hours, 0, 23),
            _field(days, 1, 31),
            _field(months, 1, 12, _MONTHS),
            frozenset(day % 7 for day in _field(weekdays, 0, 7, _DAYS)),
            not days.startswith("*") and not weekdays.startswith("*"),
        )

    def starts_at(self, local: datetime) -> bool:
        """True if a window begins in this minute of local time."""
        if local.minute not in self.minutes or local.hour not in self.hours or local.month not in self.months:
            return False
        day, weekday = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return day or weekday if self.either_day else day and weekday


def _field(text: str, least: int, most: int, names: Sequence[str] = ()) -> frozenset[int]:
    """Returns the values of a field: `*`, values, ranges and steps, separated by commas. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        parsed = _PART.fullmatch(part)
        if parsed is None:
            raise ValueError(f"{part!r}: allowed in a field of cron: *, a value, a range such as 1-5, a step such as */15")
        first, last, step = parsed.groups()
        begin = least if first == "*" else _value(first, least, most, names)
        end = most if first == "*" or (step and not last) else begin
        end = _value(last, least, most, names) if last else end
        if end < begin or (first == "*" and last):
            raise ValueError(f"{part!r}: allowed: a range from a smaller to a larger value")
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def _value(text: str, least: int, most: int, names: Sequence[str]) -> int:
    """Returns a value of a field. Raises ValueError."""
    value = names.index(text) + (1 if least else 0) if text in names else int(text) if text.isdigit() else -1
    if not least <= value <= most:
        raise ValueError(f"{text!r}: allowed in this field of cron: {least} to {most}")
    return value


class BlackoutSettings(Settings):
    """A window in which nothing is loaded."""

    cron: str = Field(description="when the window begins: five fields of cron, such as `0 2 * * sun`")
    minutes: int = Field(ge=1, le=WEEK, description="how long the window is open")
    timezone: str = Field("UTC", description="the time zone of `cron`, such as `Europe/Berlin`")

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, cron: str) -> str:
        Cron.of(cron)
        return cron

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"{timezone!r} is no time zone known here; allowed: UTC, or a name such as Europe/Berlin"
            ) from error
        return timezone

    def end_of(self, now: datetime) -> datetime | None:
        """Returns the end of the window that is open at a time in UTC, the latest if several are; None if none is.

        A local time that a change of clocks leaves out begins no window.
        """
        return _end(self.cron, self.minutes, self.timezone, now.astimezone(UTC).replace(second=0, microsecond=0))


@lru_cache(maxsize=256)
def _end(cron: str, minutes: int, timezone: str, minute: datetime) -> datetime | None:
    parsed, zone = Cron.of(cron), ZoneInfo(timezone)
    for before in range(minutes):
        start = minute - timedelta(minutes=before)
        if parsed.starts_at(start.astimezone(zone)):
            return start + timedelta(minutes=minutes)
    return None


def closed_until(blackouts: Sequence[BlackoutSettings], now: datetime) -> datetime | None:
    """Returns the time from which something is loaded again; None if nothing prevents it now.

    A window that begins before another ends prolongs it.
    """
    end: datetime | None = None
    for later in islice(_ends(blackouts, now), _JOINED):
        end = later
        if later - now > _FARTHEST:
            break
    return end


def _ends(blackouts: Sequence[BlackoutSettings], now: datetime) -> Iterator[datetime]:
    while found := max(filter(None, (one.end_of(now) for one in blackouts)), default=None):
        yield found
        now = found
