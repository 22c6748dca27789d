"""`bad`: lists, counts, shows and replays bad rows. Values of rows may be confidential, so they are printed only with --raw."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, Recording, WrongUse, as_json, completed_items, examples, group
from manifest_platform.cli.app import Reason as Why
from manifest_platform.cli.context import item_key, open_pipeline, operator, point_in_time
from manifest_platform.cli.decide import DryRun, ItemNames
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_table, say, some, warn, wrapped
from manifest_platform.cli.remedies import typed
from manifest_platform.manifest import ItemKey
from manifest_platform.operations import decide
from manifest_platform.operations.bad_lines import BadLine, Looked, Wanted, bad_groups, bad_lines
from manifest_platform.operations.bad_replay import Replayed, replay, replays_of, with_bad_rows
from manifest_platform.pipeline import Pipeline
from manifest_platform.quantities import count_of
from manifest_platform.remedies import Action, Remedy

ORIGINS_SHOWN = 10
"""The number of items that `bad replay` prints a line for. More are counted together; JSON has all."""

bad = group("bad", "Lists, counts, shows and replays bad rows: lines that could not be shredded.")

ItemName = Annotated[
    str | None,
    typer.Argument(metavar="[ITEM]", help="Look only at this item.", autocompletion=completed_items),
]
Reason = Annotated[str | None, typer.Option(metavar="TYPE", help="Only rows with a reason of this type, such as field.")]
Schema = Annotated[
    str | None, typer.Option(metavar="SCHEMA", help="Only rows with a reason about this schema. The beginning suffices.")
]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Look only at items of this logical time or later.")]
Feed = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Look at this feed only. Repeatable.")]


def _wanted(
    pipeline: Pipeline, item: str | None, reason: str | None, schema: str | None, since: str | None, feed: list[str] | None
) -> Wanted:
    for name in feed or ():
        pipeline.manifest.steps(name)
    key = item_key(pipeline, item) if item else None
    return Wanted(key, feed or (), point_in_time("--since", since), reason, schema)


@bad.command("list", cls=Command, epilog=examples("bad list --reason unknown_schema", "bad list run=2026-01-31-12-00-00"))
def list_(
    context: typer.Context,
    item: ItemName = None,
    reason: Reason = None,
    schema: Schema = None,
    since: Since = None,
    feed: Feed = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Largest number of rows to list.")] = 50,
) -> int:
    """Lists bad rows with their place and first reason, newest item first.

    Values are not shown. The rows are read from the files of shredded items. An item that failed has none: its failure names
    the file. Exit code 4 if there are no bad rows.
    """
    looked = Looked()
    with open_pipeline(context) as pipeline:
        found = bad_lines(pipeline, _wanted(pipeline, item, reason, schema, since, feed), looked)
        rows = list(itertools.islice(found, limit + 1))
    is_cut, rows = len(rows) > limit, rows[:limit]
    if as_json(context):
        print_json({"rows": [_document(one) for one in rows], "cut": is_cut, **_looked(looked)})
    elif rows:
        places = [(one.key.name, _name(one.row["file"]), f"{one.row['line']:,}", _words(one)[0]) for one in rows]
        print_table(("ITEM", "FILE", "LINE", "REASON"), places)
        if is_cut:
            say(f"there are more than {limit:,}; to see more, use --limit")
    _warn(looked)
    return Exit.DONE if rows else Exit.NOTHING


@bad.command(cls=Command, epilog=examples("bad count", "bad count --since 2026-01-31"))
def count(
    context: typer.Context,
    item: ItemName = None,
    reason: Reason = None,
    schema: Schema = None,
    since: Since = None,
    feed: Feed = None,
) -> int:
    """Counts bad rows by their first reason and its schema or field, the most frequent first.

    Rows that were replayed do not count. Exit code 4 if there are no bad rows.
    """
    looked = Looked()
    with open_pipeline(context) as pipeline:
        wanted = _wanted(pipeline, item, reason, schema, since, feed)
        groups = bad_groups(bad_lines(pipeline, wanted, looked, is_open=True))
    if as_json(context):
        print_json({"groups": [asdict(one) | {"newest": one.newest} for one in groups], **_looked(looked)})
    else:
        if groups:
            lines = [(one.reason, one.subject or "-", f"{one.rows:,}", f"{one.items:,}", one.newest.name) for one in groups]
            print_table(("REASON", "SCHEMA OR FIELD", "ROWS", "ITEMS", "NEWEST"), lines)
        say(f"{sum(one.rows for one in groups):,} bad rows in {count_of(looked.items, 'item')}")
    _warn(looked)
    return Exit.DONE if groups else Exit.NOTHING


@bad.command(
    cls=Command, epilog=examples("bad show run=2026-01-31-12-00-00 17", "bad show run=2026-01-31-12-00-00 17 --raw --json")
)
def show(
    context: typer.Context,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Item name or URI.", autocompletion=completed_items)],
    line: Annotated[int, typer.Argument(metavar="LINE", help="Number of the line in its file.", min=1)],
    file: Annotated[str | None, typer.Option(metavar="NAME", help="Only the line of this file; its end suffices.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Show the line itself, and the values in its reasons.")] = False,
) -> int:
    """Shows all reasons of a bad row, and its place in the landed file.

    With --raw, the line itself too: it may be confidential. The JSON answer then has its exact bytes, in base64, if its text is
    not exact. Exit code 4 if the item has no such bad row.
    """
    looked = Looked()
    with open_pipeline(context) as pipeline:
        wanted = Wanted(item_key(pipeline, item))
        found = [
            one
            for one in bad_lines(pipeline, wanted, looked, content=raw)
            if one.row["line"] == line and one.row["file"].endswith(file or "")
        ]
    if as_json(context):
        print_json({"rows": [_document(one, raw) for one in found], **_looked(looked)})
    else:
        for one in found:
            _print(one, raw)
    _warn(looked)
    return Exit.DONE if found else Exit.NOTHING


def _print(found: BadLine, raw: bool) -> None:
    row = found.row
    offset = row.get("byte_offset")
    place = "" if offset is None else f", byte {offset:,}, {row['byte_length']:,} bytes"
    say(wrapped(f"line {row['line']:,} of {row['file']}{place}", "", "  "))
    for reason, words in zip(found.reasons, _words(found), strict=True):
        say(wrapped(words, "  ", "    "))
        if raw and "value" in reason:
            say(f"    value: {reason['value']}")
    if raw:
        from manifest_platform.shred.rows import exact_text  # it needs an extra, and the help does not

        say(exact_text(row))


def _words(found: BadLine) -> list[str]:
    """Returns the reasons of a row as text, without values."""
    from manifest_platform.shred.rows import in_words

    return [in_words(reason) for reason in found.reasons]


def _document(found: BadLine, raw: bool = False) -> dict[str, Any]:
    """Returns a row as JSON. Without `raw`, it has no values of the row."""
    reasons = found.reasons if raw else [{key: one[key] for key in one if key != "value"} for one in found.reasons]
    row = {"byte_offset": None, "byte_length": None, **found.row}
    content = {"raw": row["raw"], "raw_base64": row.get("raw_base64")} if raw else {}
    return {
        "item": found.key,
        "reasons": reasons,
        **{name: row[name] for name in ("file", "line", "byte_offset", "byte_length")},
        **content,
    }


def _looked(looked: Looked) -> dict[str, Any]:
    return {"looked_at": looked.items, "unread": looked.unread or []}


def _warn(looked: Looked) -> None:
    for one in looked.unread or ():
        warn(f"warning: the bad rows of {one}")


def _name(file: str) -> str:
    return file.rpartition("/")[2]


@bad.command(
    "replay",
    cls=Recording,
    epilog=examples(
        "bad replay run=2026-01-31-12-00-00 --dry-run",
        "bad replay --about com.acme/click --reason 'published'",
    ),
)
def replay_(
    context: typer.Context,
    items: ItemNames = None,
    about: Annotated[str, typer.Option(metavar="TEXT", help="Only bad rows whose reasons contain this text.")] = "",
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only items of this time or later, such as 2026-01-31T12:00 (UTC).")
    ] = None,
    reason: Why = "the cause of bad rows is gone",
    dry_run: DryRun = False,
) -> int:
    """Reads bad rows of loaded items again, and loads those that are good now.

    Use it after a schema was published or corrected. The good lines become a new item, the newest of the feed, which the
    next drain shreds and loads; a record of each item names where its lines went. No line is replayed twice. Lines that
    are still bad stay where they are. Without ITEM, all items with bad rows are read, but for archived ones. Exit code 4
    if no line is good now.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        replays_of(pipeline)
        done = replay(pipeline, _chosen(pipeline, items, since), reason, about, dry_run)
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json({"dry_run": dry_run, **asdict(done)})
    else:
        _say_replayed(done, dry_run)
        if done.items:
            say(f"next: {as_typed(Remedy(Action.DRAIN))}")
    return Exit.DONE if sum(done.good.values()) else Exit.NOTHING


def _chosen(pipeline: Pipeline, names: list[str] | None, since: str | None) -> list[ItemKey]:
    """Returns the items that the command line names; without names, those with bad rows. Raises WrongUse, UnknownItem."""
    after = point_in_time("--since", since)
    if not names:
        return [item.key for feed in pipeline.feeds for item in with_bad_rows(pipeline, feed, after)]
    if since:
        raise WrongUse("--since chooses among all items with bad rows: name no ITEM beside it")
    for name in names:
        if not decide.is_pattern(pipeline, name):
            item_key(pipeline, name)
    return decide.chosen(pipeline, names, with_bad_rows)


def _say_replayed(done: Replayed, dry_run: bool) -> None:
    """Prints a line for each of the first items, and one for all together if there are more."""
    are = "would be replayed" if dry_run else "are replayed"
    counts = [(name, done.good[name], done.bad[name], done.lost[name]) for name in done.good]
    if len(counts) > ORIGINS_SHOWN:
        all_ = f"{len(counts):,} items", done.good.total(), done.bad.total(), done.lost.total()
        counts = [*counts[:ORIGINS_SHOWN], all_]
    for name, good, still, gone in counts:
        lost = f", {gone:,} cannot be replayed because their bytes were not kept" if gone else ""
        say(wrapped(f"{name}: {good:,} lines {are}, {still:,} are still bad{lost}"))
    if done.items:
        say(f"registered: {some(done.items)}")
    elif not done.good:
        say("no loaded item has bad rows that were not replayed")
