"""`history`: all that happened to an item, and a record in words."""

from __future__ import annotations

import typer

from manifest_platform.cli.app import Command, Exit, ItemName, app, as_json
from manifest_platform.cli.context import item_key, open_pipeline
from manifest_platform.cli.output import aligned, print_json, say, warn, wrapped
from manifest_platform.manifest import Item, Record, State
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.quantities import size_of
from manifest_platform.sources.source import Words


@app.command(cls=Command)
def history(context: typer.Context, item: ItemName) -> int:
    """Shows all that happened to an item."""
    with open_pipeline(context) as pipeline:
        found, words = pipeline.manifest.item(item_key(pipeline, item)), pipeline.source.words
    if as_json(context):
        print_json({"item": found.key, "problems": found.problems, "records": [one.to_dict() for one in found.records]})
        return Exit.DONE
    print_history(found, words)
    for problem in found.problems:
        warn(f"warning: {problem}")
    return Exit.DONE


def print_history(item: Item, words: Words) -> None:
    """The records of an item, a line each, and below it what the record says, in its source's words."""
    say(f"{item.key.name}  {item.key.id}")
    heads = ("#", "time (UTC)", "state", "application", "author", "run", "token", "epoch")
    rows = [_record_row(record) for record in item.records]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    say(aligned(heads, widths))
    for row, record in zip(rows, item.records, strict=True):
        say(aligned(row, widths))
        if note := words_of(record, words):
            say(wrapped(note, "   ", "   "))


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


def words_of(record: Record, words: Words) -> str:
    """What a record says beyond its columns, in its source's words."""
    data = record.data
    if record.state is State.FAILED:
        return f"{data.get('kind')}: {data.get('message')}"
    if record.state is State.PROCESSED:
        return _output_note(record, words)
    late = f", late for {', '.join(data['late'])}" if data.get("late") else ""
    if "files" in data:
        return f"{data['files']:,} files, {size_of(data['bytes'])}{late}"
    return f"{data.get('reason', '')}{late}"


def _output_note(record: Record, words: Words) -> str:
    """What an application has made of an item. Those that are no step of the feed record what they like."""
    data, application = record.data, record.application.key
    if application == SHRED and "lines" in data:
        counts = f"{data['lines']:,} lines: {data['good']:,} {words.rows}, {data['bad']:,} bad"
        return f"{counts}; {size_of(data['bytes'])} of Parquet"
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
