"""Prints what a drain did: its events, its totals, and why it stopped, as text and as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from manifest_platform.cli.output import say, wrapped
from manifest_platform.cli.remedies import Typed, document
from manifest_platform.manifest.records import FIRST_TARGET
from manifest_platform.operations.bad_rows import clause_of
from manifest_platform.pipeline import (
    DrainReport,
    Event,
    FeedEnd,
    ItemFailed,
    PutBack,
    Shredded,
    ShreddedAgain,
    ShredStarted,
)
from manifest_platform.quantities import count_of, size_of
from manifest_platform.sources.source import Words


def end_document(end: FeedEnd, as_typed: Typed) -> dict[str, Any]:
    """Returns the JSON document of a feed's end."""
    said = document(end, as_typed)
    return said if end.target else {name: value for name, value in said.items() if name != "target"}


def event_document(event: Event) -> dict[str, Any]:
    """Returns the JSON document of a drain's event."""
    if isinstance(event, ShredStarted):
        return {"event": "shred_started", "items": event.items, "bytes": event.bytes}
    if isinstance(event, Shredded):
        listing = event.listing
        counts: dict[str, Any] = {"lines": listing.lines, "good": listing.good, "bad": listing.bad, "bytes": listing.bytes}
        counts |= {"duplicates": asdict(listing.duplicates)} if listing.duplicates else {}
        counts |= {"remarks": listing.remarks} if listing.remarks else {}
        return {"event": "shredded", "item": event.key.name, **counts, "seconds": event.seconds, "batch": event.batch}
    if isinstance(event, ItemFailed):
        failure = {"kind": event.failure.kind, "message": event.failure.message}
        return {"event": "failed", "item": event.key.name, "application": event.application, **failure}
    if isinstance(event, PutBack):
        return {"event": "put_back", "item": event.key.name, "application": event.application, "reason": event.reason}
    if isinstance(event, ShreddedAgain):
        return {"event": "shredded_again", "item": event.key.name, "reason": event.reason}
    return {
        "event": "loaded",
        "item": event.key.name,
        **({"target": event.target} if event.target != FIRST_TARGET else {}),
        **{name: getattr(event, name) for name in ("rows", "bytes", "seconds", "lag_seconds", "late", "already", "told")},
    }


def progress(event: Event, words: Words, several: bool = False) -> str:
    """Returns an event of a drain as a line of text.

    `words`: the source's words, such as `events` for rows. `several`: the dataset has several targets, so each load names its.
    """
    if isinstance(event, ShredStarted):
        return f"  shredding {count_of(event.items, 'directory', 'directories')}, {size_of(event.bytes)}, in one Spark job"
    if isinstance(event, Shredded):
        listing = event.listing
        counts = f"{listing.good:>7,} {words.rows}  {listing.bad:>5,} bad  {size_of(listing.bytes):>9}"
        counts += clause_of(asdict(listing.duplicates))
        remarks = [wrapped(line, "    ! ", "      ") for line in listing.remarks]
        return "\n".join((f"· {event.key.name}  shredded  {counts}", *remarks))
    if isinstance(event, ItemFailed):
        text = f"{event.key.name}  {event.application} failed ({event.failure.kind}): {event.failure.message}"
        return wrapped(text, "✗ ", "    ")
    if isinstance(event, PutBack):
        text = f"{event.key.name}  {event.application} put it back, without counting an attempt: {event.reason}"
        return wrapped(text, "… ", "    ")
    if isinstance(event, ShreddedAgain):
        return wrapped(f"{event.key.name}  is shredded again automatically: {event.reason}", "↺ ", "    ")
    marks = f"{'  late' if event.late else ''}{'  already in the warehouse' if event.already else ''}"
    counts = f"{event.row_count:>7,} rows  {size_of(event.bytes):>16}  {event.seconds:5.2f} s"
    told = [wrapped(line, "    ! ", "      ") for line in event.told]
    into = f"  into {event.target}" if several else ""
    return "\n".join((f"✓ {event.key.name}  loaded    {counts}{marks}{into}", *told))


def print_summary(report: DrainReport, as_typed: Typed) -> None:
    """Prints what a drain did, why it stopped, and the remedy."""
    print_totals(report)
    print_ends(report.ends, as_typed, len(report.ends) > 1)


def print_totals(report: DrainReport) -> None:
    """Prints what a drain did."""
    say(
        f"{report.shredded:,} shredded, {report.loaded:,} loaded ({report.rows:,} rows), {report.failed:,} failed"
        f"{f', {report.put_back:,} put back' if report.put_back else ''}"
        f" in {report.seconds:.1f} s; stopped: {report.stop}"
    )
    for done in report.upkeep:
        if done.why_not:
            table = f"table {done.table or '(any)'}{f' of {done.target}' if done.target else ''}"
            say(wrapped(f"upkeep: {done.action} of {table} was not done: {done.why_not}", "! ", "  "))


def print_ends(ends: Sequence[FeedEnd], as_typed: Typed, several: bool) -> None:
    """Prints why a drain stopped on each feed, and the remedy. `several`: names the feeds."""
    for end in ends:
        feed = f"{end.feed}{f', {end.target}' if end.target else ''}: " if several else ""
        item = f"{feed}blocked by {end.item}: " if end.item else feed
        if end.reason:
            say(wrapped(f"{item}{end.reason}"))
        if end.remedy:
            say(f"next: {as_typed(end.remedy)}")
