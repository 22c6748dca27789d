"""Windows in which nothing is loaded: fields of cron, time zones, and windows that join each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from manifest_platform.sources.blackout import BlackoutSettings, Cron, closed_until


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def closed(now: str, *windows: tuple[str, int] | tuple[str, int, str]) -> str | None:
    settings = [BlackoutSettings(cron=cron, minutes=minutes, timezone=[*zone, "UTC"][0]) for cron, minutes, *zone in windows]
    until = closed_until(settings, at(now))
    return until.strftime("%m-%dT%H:%M") if until else None


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-01-31T01:59:59", None),
        ("2026-01-31T02:00", "01-31T03:30"),
        ("2026-01-31T03:29:59", "01-31T03:30"),
        ("2026-01-31T03:30", None),
    ],
)
def test_a_window_is_open_from_its_minute_until_its_minutes_are_over(now: str, until: str | None) -> None:
    assert closed(now, ("0 2 * * *", 90)) == until


@pytest.mark.parametrize(
    ("cron", "fits", "other"),
    [
        ("*/15 * * * *", "2026-01-31T10:45", "2026-01-31T10:46"),
        ("5/20 * * * *", "2026-01-31T10:25", "2026-01-31T10:20"),
        ("0 8-10,22 * * *", "2026-01-31T09:00", "2026-01-31T11:00"),
        ("0 8-18/4 * * *", "2026-01-31T16:00", "2026-01-31T18:00"),
        ("0 0 * feb-mar sat", "2026-02-07T00:00", "2026-01-31T00:00"),
        ("0 0 * * 7", "2026-02-01T00:00", "2026-02-02T00:00"),
        ("0 0 * * SUN", "2026-02-01T00:00", "2026-01-31T00:00"),
        ("0 0 1 * sat", "2026-02-01T00:00", "2026-02-02T00:00"),
        ("0 0 1 * sat", "2026-02-07T00:00", "2026-02-06T00:00"),
        ("0 0 1-7 * *", "2026-02-07T00:00", "2026-02-08T00:00"),
    ],
)
def test_fields_of_cron(cron: str, fits: str, other: str) -> None:
    parsed = Cron.of(cron)
    assert (parsed.starts_at(at(fits)), parsed.starts_at(at(other))) == (True, False)


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*-5 * * * *",
        "*/0 * * * *",
        "x * * * *",
    ],
)
def test_other_texts_are_refused_with_what_is_allowed(cron: str) -> None:
    with pytest.raises(ValidationError, match="allowed"):
        BlackoutSettings(cron=cron, minutes=1)


def test_a_time_zone_that_nobody_knows_is_refused() -> None:
    for zone in ("Europe/Nowhere", "../etc/passwd", ""):
        with pytest.raises(ValidationError, match="no time zone known here"):
            BlackoutSettings(cron="* * * * *", minutes=1, timezone=zone)


def test_a_window_follows_the_clocks_of_its_time_zone() -> None:
    window = ("0 2 * * *", 60, "America/New_York")
    assert closed("2026-01-31T07:30", window) == "01-31T08:00"
    assert closed("2026-07-31T06:30", window) == "07-31T07:00"
    assert closed("2026-03-08T07:30", window) is None, "that night has no two o'clock"


def test_windows_that_join_each_other_end_with_the_last() -> None:
    assert closed("2026-01-31T02:10", ("0 2 * * *", 60), ("30 2 * * *", 60), ("0 4 * * *", 60)) == "01-31T03:30"
    assert closed("2026-01-31T02:10", ("0 2 * * *", 60), ("0 3 * * *", 60)) == "01-31T04:00"


def test_windows_without_an_end_have_a_far_one() -> None:
    until = closed_until([BlackoutSettings(cron="* * * * *", minutes=7 * 24 * 60)], at("2026-01-31T02:10"))
    assert until and until - at("2026-01-31T02:10") > timedelta(days=31)


def test_windows_without_end_are_looked_at_for_a_while_only() -> None:
    assert closed("2026-01-31T02:00", ("* * * * *", 1)) == "01-31T18:40"
