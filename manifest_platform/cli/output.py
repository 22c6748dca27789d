"""What the commands print: text for people, 96 columns wide, and JSON.

Belongs here: how values look. Which values, and on which occasion, is the commands' matter.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import typer

from manifest_platform.cli.standing import Answer, Outlook, StepStatus
from manifest_platform.manifest import Item, ItemKey, Record, State
from manifest_platform.manifest.records import format_time
from manifest_platform.pipeline import LOAD, SHRED, DrainReport, Event, ItemFailed, Shredded, ShredStarted

WIDTH = 96
ROWS_SHOWN = 100
CELL_WIDTH = 48
NAMES_SHOWN = 5


def print_history(item: Item) -> None:
    """The records of an item, a line each, and below it what the record says."""
    say(f"{item.key.name}  {item.key.id}")
    heads = ("#", "time (UTC)", "state", "application", "author", "run", "token", "epoch")
    rows = [_record_row(record) for record in item.records]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    say(_aligned(heads, widths))
    for row, record in zip(rows, item.records, strict=True):
        say(_aligned(row, widths))
        if note := words_of(record):
            say(wrapped(note, "   ", "   "))


def print_status(status: StepStatus, same_reason: bool = False) -> None:
    """A step's status, some eight lines."""
    print_outlook(dataclasses.replace(status.outlook, reason="as above") if same_reason else status.outlook)
    lines: dict[str, str] = {}
    if status.watermark or status.outlook.step == LOAD:
        time = f" ({moment(status.watermark_time)})" if status.watermark_time else ""
        lines["watermark"] = f"{status.watermark}{time}" if status.watermark else "none: nothing is loaded yet"
    if status.oldest_waiting and status.lag_seconds is not None:
        lines["lag"] = f"{duration(status.lag_seconds)}; the oldest was discovered at {moment(status.oldest_waiting)}"
    lines["items"] = ", ".join(f"{word} {count:,}" for word, count in status.counts.items()) or "none wait"
    for kind in ("failed", "late", "quarantined"):
        if names := getattr(status, kind):
            lines[kind] = f"{some(names)}: {status.commands[kind]}"
    lease = status.lease
    lines["lease"] = f"held by {lease['holder']} until {moment(lease['until'])}, token {lease['token']}" if lease else "free"
    print_lines(lines)


def print_outlook(outlook: Outlook) -> None:
    """What a step may do next; why, since when and what to do."""
    words = {
        Answer.READY: f"READY: {outlook.item} may be claimed now",
        Answer.WAITING: f"WAITING: {outlook.item} comes next",
        Answer.PROCESSING: f"PROCESSING: {outlook.item}",
        Answer.BLOCKED: f"BLOCKED by {outlook.item}",
        Answer.IDLE: "IDLE: nothing to do",
    }
    say(f"{outlook.step:<5} {words[outlook.answer]}")
    lines = {"reason": outlook.reason, "command": outlook.command}
    if outlook.since:
        age = duration((datetime.now(UTC) - outlook.since).total_seconds())
        lines = {"reason": outlook.reason, "since": f"{moment(outlook.since)} ({age})", "command": outlook.command}
    print_lines(lines)


def wrapped(text: str, first: str = "", others: str = "") -> str:
    """The text in lines of the screen's width; URIs stay whole, so that they can be copied."""
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False, break_long_words=False
    )


def print_lines(lines: dict[str, str]) -> None:
    """Labelled lines below a heading; empty ones are left out."""
    for label, text in lines.items():
        if text:
            say(wrapped(text, f"      {label:<12}", " " * 18))


def _record_row(record: Record) -> tuple[str, ...]:
    return (
        str(record.sequence),
        f"{record.timestamp:%Y-%m-%d %H:%M:%S}",
        str(record.state),
        record.application.key,
        record.author,
        (record.run_id or "-")[:8],
        str(record.token or "-"),
        str(record.epoch or "-"),
    )


def words_of(record: Record) -> str:
    """What a record says beyond its columns, in words."""
    data = record.data
    if record.state is State.FAILED:
        return f"{data.get('kind')}: {data.get('message')}"
    if record.state is State.PROCESSED:
        return _output_note(record)
    late = f", late for {', '.join(data['late'])}" if data.get("late") else ""
    if "files" in data:
        return f"{data['files']:,} files, {size_of(data['bytes'])}{late}"
    return f"{data.get('reason', '')}{late}"


def _output_note(record: Record) -> str:
    """What an application has made of an item. Those that are no step of the feed record what they like."""
    data, application = record.data, record.application.key
    if application == SHRED and "lines" in data:
        return f"{data['lines']:,} lines: {data['good']:,} events, {data['bad']:,} bad; {size_of(data['bytes'])} of Parquet"
    rows, size, prefix = data.get("rows"), data.get("bytes"), data.get("prefix")
    count = sum(rows.values()) if application == LOAD and isinstance(rows, dict) else rows
    parts = [
        f"{count:,} rows" if isinstance(count, int) else "",
        size_of(size) if isinstance(size, int) else "",
        f"in {prefix}" if prefix else "",
        "late" if application == LOAD and data.get("late") else "",
    ]
    text = ", ".join(part for part in parts if part)
    return f"{text} (APPLIED)" if application == LOAD else text


def event_document(event: Event) -> dict[str, Any]:
    """An event of a drain as JSON has it."""
    if isinstance(event, ShredStarted):
        return {"event": "shred_started", "items": event.items, "bytes": event.bytes}
    if isinstance(event, Shredded):
        listing = event.listing
        counts = {"lines": listing.lines, "good": listing.good, "bad": listing.bad, "bytes": listing.bytes}
        return {"event": "shredded", "item": event.key.name, **counts, "seconds": event.seconds, "batch": event.batch}
    if isinstance(event, ItemFailed):
        failure = {"kind": event.failure.kind, "message": event.failure.message}
        return {"event": "failed", "item": event.key.name, "application": event.application, **failure}
    return {
        "event": "loaded",
        "item": event.key.name,
        **{name: getattr(event, name) for name in ("rows", "bytes", "seconds", "lag_seconds", "late", "already")},
    }


def progress(event: Event) -> str:
    """An event of a drain as a line."""
    if isinstance(event, ShredStarted):
        return f"  shredding {event.items:,} directories, {size_of(event.bytes)}, in one Spark job"
    if isinstance(event, Shredded):
        listing = event.listing
        return f"· {event.key.name}  shredded  {listing.good:>7,} events  {listing.bad:>5,} bad  {size_of(listing.bytes):>9}"
    if isinstance(event, ItemFailed):
        text = f"{event.key.name}  {event.application} failed ({event.failure.kind}): {event.failure.message}"
        return wrapped(text, "✗ ", "    ")
    marks = f"{'  late' if event.late else ''}{'  was applied before' if event.already else ''}"
    counts = f"{event.row_count:>7,} rows  {size_of(event.bytes):>16}  {event.seconds:5.2f} s"
    return f"✓ {event.key.name}  loaded    {counts}{marks}"


def print_summary(report: DrainReport, options: str) -> None:
    """What a drain did, and why it stopped; `options` are those that commands must be given here."""
    say(
        f"{report.shredded:,} shredded, {report.loaded:,} loaded ({report.rows:,} rows), {report.failed:,} failed"
        f" in {report.seconds:.1f} s; stopped: {report.stop}"
    )
    for end in report.ends:
        feed = f"{end.feed} " if len(report.ends) > 1 else ""
        item = f"{feed}blocked by {end.item}: " if end.item else feed
        if end.reason:
            say(wrapped(f"{item}{end.reason}"))
        if end.command:
            say(f"next: {end.command}{options}")


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows below their heads, each column as wide as its widest cell; what is too long for the screen is cut at its end."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        line = _aligned(row, widths)
        say(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…")


def print_answer(ask: Callable[[int | None], tuple[Sequence[str], Sequence[Sequence[Any]]]], as_json: bool) -> None:
    """Prints what a query finds: all of it as JSON, or what a screen holds.

    `ask`: the names of its columns, and its rows, the first so many or all.
    """
    columns, rows = ask(None if as_json else ROWS_SHOWN + 1)
    if as_json:
        print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif columns:
        _print_rows(columns, rows)


def _print_rows(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """The first rows below their heads, numbers to the right; columns that the screen has no room for are left out."""
    shown = rows[:ROWS_SHOWN]
    columns = [_column(head, [row[index] for row in shown]) for index, head in enumerate(heads)]
    fitting = _fitting([len(column[0]) for column in columns])
    for line in zip(*(columns[index] for index in fitting), strict=True):
        say("  ".join(line).rstrip())
    said = [f"the first {ROWS_SHOWN} rows" if len(rows) > ROWS_SHOWN else f"{len(rows)} row{'' if len(rows) == 1 else 's'}"]
    if len(fitting) < len(columns):
        said.append(f"{len(fitting)} of {len(columns)} columns")
    is_all = len(rows) <= ROWS_SHOWN and len(fitting) == len(columns)
    say(f"({', '.join(said)}{'' if is_all else '; --json has all'})")


def _column(head: str, values: Sequence[Any]) -> list[str]:
    """A column's lines, all equally wide: its head, a rule and its cells."""
    cells = ["NULL" if value is None else _cell(str(value)) for value in values]
    width = max(map(len, (_cell(head), *cells)))
    side = ">" if all(isinstance(value, int | float | Decimal) for value in values if value is not None) else "<"
    return [f"{_cell(head):{side}{width}}", "─" * width, *(f"{cell:{side}{width}}" for cell in cells)]


def _cell(text: str) -> str:
    line = text.replace("\n", "\\n")
    return line if len(line) <= CELL_WIDTH else f"{line[: CELL_WIDTH - 1]}…"


def _fitting(widths: Sequence[int]) -> list[int]:
    """The columns that fit side by side, by their numbers: as many of the first and of the last as there is room for."""
    in_turn = [index for pair in zip(range(len(widths)), reversed(range(len(widths))), strict=True) for index in pair]
    taken: list[int] = []
    room = WIDTH + 2
    for index in dict.fromkeys(in_turn):
        room -= widths[index] + 2
        if room < 0:
            break
        taken.append(index)
    return sorted(taken)


def some(names: Sequence[str]) -> str:
    """The first few names."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(name for name in names[:NAMES_SHOWN]) + more


def moment(time: datetime) -> str:
    """A time, to the second, in UTC."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """A duration in its largest sensible unit: 12 s, 3 min, 5 h, 9 days."""
    for unit, length in (("days", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= length:
            return f"{seconds / {'days': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def size_of(bytes_: float) -> str:
    """A size in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if bytes_ < 1000:
            return f"{bytes_:.0f} {unit}" if unit == "B" else f"{bytes_:.1f} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.1f} TB"


def say(text: str) -> None:
    """A line of the answer, on stdout."""
    typer.echo(text)


def print_json(document: Any) -> None:
    """A document on stdout, on one line."""
    typer.echo(json.dumps(document, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, ItemKey):
        return {"feed": value.feed, "name": value.name, "uri": value.id}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, datetime) and value.tzinfo:
        return format_time(value)
    return str(value)


def warn(text: str) -> None:
    """A line on stderr."""
    typer.echo(text, err=True)
