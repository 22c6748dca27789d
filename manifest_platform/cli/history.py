"""`history`: all records of an item, each with a line of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, WrongUse, app, as_json, completed_items, examples
from manifest_platform.cli.context import item_key, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import aligned, print_json, say, warn, wrapped
from manifest_platform.manifest import Application, Item, Record, State
from manifest_platform.operations.bad_rows import clause_of
from manifest_platform.operations.search import Run, of_run, search_run, short_run
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.quantities import size_of
from manifest_platform.sources.source import Words


@app.command(cls=Command, epilog=examples("history run=2026-01-31-12-00-00", "history --run-id 4f1c2a9e"))
def history(
    context: typer.Context,
    item: Annotated[
        str | None,
        typer.Argument(
            metavar="[ITEM]", help="Item name, such as run=YYYY-MM-DD-HH-MM-SS, or its URI.", autocompletion=completed_items
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Show only the records of this run. The first characters of an id suffice.")
    ] = None,
    look: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of the newest items of each feed to search, without ITEM.")
    ] = 10_000,
) -> int:
    """Shows all records of an item.

    With --run-id, shows only the records of that run; without ITEM, it searches the newest items for them. Exit code 4 if there
    are no records.
    """
    if item is None and run_id is None:
        raise WrongUse("name an item, or a run with --run-id")
    with open_pipeline(context) as pipeline:
        words = pipeline.source.words
        if item is None:
            return _of_run(context, search_run(pipeline.manifest, [*pipeline.manifest.feeds], run_id or "", look), words)
        found = pipeline.manifest.item(item_key(pipeline, item))
    records = found.records if run_id is None else of_run(found.records, run_id)
    if as_json(context):
        print_json({"item": found.key, "problems": found.problems, "records": [one.to_dict() for one in records]})
    elif records:
        print_history(found, words, records)
    else:
        say(f"{found.key.name}: run {run_id} recorded nothing")
    for problem in () if as_json(context) else found.problems:
        warn(f"warning: {problem}")
    return Exit.DONE if records else Exit.NOTHING


def _of_run(context: typer.Context, run: Run, words: Words) -> int:
    if as_json(context):
        items = [{"item": item.key, "records": [one.to_dict() for one in records]} for item, records in run.done]
        print_json({"items": items, "looked_at": run.looked_at, "cut": run.cut})
    else:
        for item, records in run.done:
            print_history(item, words, records)
        how = "to search more, use --look" if run.cut else "these are all"
        say(f"{len(run.done):,} items; searched {run.looked_at:,}, {how}")
    return Exit.DONE if run.done else Exit.NOTHING


def print_history(item: Item, words: Words, records: Sequence[Record]) -> None:
    """Prints records of an item: a line each, with the text of `words_of` below it."""
    say(f"{item.key.name}  {item.key.id}")
    heads = ("#", "time (UTC)", "state", "application", "author", "run", "token", "epoch")
    rows = [_record_row(record) for record in records]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    say(aligned(heads, widths))
    for row, record in zip(rows, records, strict=True):
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
        short_run(record.run_id),
        str(record.token or "-"),
        str(record.epoch or "-"),
    )


def words_of(record: Record, words: Words) -> str:
    """Returns the content of a record's payload as text: its reason, its failure or its counts. `words`: the source's words."""
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
    """Returns the payload of a `Processed` as text. Unknown fields, of programs of users, are ignored."""
    data, application = record.data, record.application.key
    if application == SHRED and "lines" in data:
        counts = (
            f"{data['lines']:,} lines: {data['good']:,} {words.rows}, {data['bad']:,} bad{clause_of(data.get('duplicates'))}"
        )
        return f"{counts}; {size_of(data['bytes'])} of Parquet"
    rows, size, prefix = data.get("rows"), data.get("bytes"), data.get("prefix")
    count = sum(rows.values()) if Application.parse(application).name == LOAD and isinstance(rows, dict) else rows
    parts = [
        f"{count:,} rows" if isinstance(count, int) else "",
        size_of(size) if isinstance(size, int) else "",
        f"in {prefix}" if prefix else "",
        "late" if Application.parse(application).name == LOAD and data.get("late") else "",
    ]
    text = ", ".join(part for part in parts if part)
    return f"{text} (APPLIED)" if Application.parse(application).name == LOAD else text
