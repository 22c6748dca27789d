"""`preview`: shows the directories at a place and the tables that they would become, before anything is configured."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, Exit, WrongUse, app, as_json, examples
from manifest_platform.cli.output import print_json, say, some, wrapped
from manifest_platform.operations import preview as looking
from manifest_platform.outward import line
from manifest_platform.quantities import duration, moment, size_of
from manifest_platform.sources.preview import Bounds, Sample
from manifest_platform.storage import UnsupportedLocation

_HOLES = 3
_COLUMNS = 8
_LEAST_SHARED = 3  # columns that at least this number of tables share are printed once
_BAD_LINES = 8
_NAME = 16


@app.command(cls=Command, epilog=examples("preview landing/", "preview s3://bucket/enriched --schemas ./iglu"))
def preview(
    context: typer.Context,
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="Folder, directory in it, file, or s3://bucket/prefix to look at.")
    ],
    schemas: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER|URL", help="Place of JSON Schemas (Iglu registry). Repeatable."),
    ] = None,
    mib: Annotated[int, typer.Option("--sample", min=1, max=1024, metavar="MIB", help="Most MiB to shred as a sample.")] = 8,
    columns: Annotated[bool, typer.Option("--columns", help="Show every column of every table.")] = False,
) -> int:
    """Shows which directories a place holds, and the tables that their rows would become.

    Shreds a small sample. Writes nothing and needs no configuration. Exit code 4 if no source recognizes the directories.
    """
    check_schemas(schemas or ())
    try:
        found = looking.recognize(place, schemas or ())
    except (looking.NotThere, UnsupportedLocation) as error:
        raise WrongUse(str(error)) from error
    if isinstance(found, looking.Unknown):
        if as_json(context):
            print_json({"recognized": False, **_plain(found)})
        else:
            print_unknown(place, found)
        return Exit.NOTHING
    bounds = Bounds(mib << 20, max(1.5, mib / 8))
    if len(found) > 1:
        if as_json(context):
            print_json({"recognized": True, "roots": [{"source": one.plugin, "root": one.uri} for one in found]})
        else:
            _print_roots(found)
        return Exit.DONE
    seen = looking.preview(found[0], bounds)
    if as_json(context):
        print_json(document(seen))
    else:
        print_preview(place, seen, columns, schemas or ())
    return Exit.DONE


def check_schemas(schemas: Sequence[str]) -> None:
    """Raises WrongUse if a place of schemas is neither a URL nor an existing folder."""
    for one in schemas:
        if "://" not in one and not Path(one).expanduser().is_dir():
            raise WrongUse(f"--schemas {one}: there is no such folder; name a folder with schemas/VENDOR/NAME/…, or a URL")


def _plain(unknown: looking.Unknown) -> dict[str, Any]:
    return {"place": unknown.uri, "holds": unknown.holds, "hints": unknown.hints, "known": unknown.known}


def print_unknown(place: str, found: looking.Unknown) -> None:
    """Prints what a place holds that no source recognizes, and what to do."""
    say(wrapped(f"{place} holds {found.holds}: no source recognizes it."))
    for hint in found.hints:
        say(wrapped(hint, "  → ", "    "))
    if not found.hints:
        say("Sources recognize:")
        for known in found.known:
            say(wrapped(known, "  · ", "    "))
        say("Name a folder that holds such directories, or one of them. If nothing has landed yet, try again later.")


def _print_roots(found: Sequence[looking.Root]) -> None:
    say(f"found {len(found)} landing roots; choose one:")
    for one in found:
        say(f"  manifest-platform preview {shlex.quote(_shown(one.uri))}   # {one.plugin}: {one.guess.layout}")


def document(seen: looking.Preview) -> dict[str, Any]:
    """Returns the JSON document of a preview."""
    return {
        "recognized": True,
        "source": seen.source,
        "root": seen.root,
        "part": seen.part,
        "layout": seen.layout,
        "schemas": seen.schemas,
        "settings": seen.told,
        "marker": seen.marker,
        "compressions": seen.compressions,
        "feeds": [_feed_document(feed) for feed in seen.feeds],
        "sample": _sample_document(seen.sample) if seen.sample else None,
        "advice": seen.advice,
        "seconds": round(seen.seconds, 3),
    }


def _feed_document(feed: looking.FeedSeen) -> dict[str, Any]:
    sequence = feed.sequence
    return {
        "name": feed.name,
        "directories": sequence.count,
        "is_all": sequence.is_all,
        "first": sequence.first.name if sequence.first else None,
        "last": sequence.last.name if sequence.last else None,
        "first_time": sequence.first.time if sequence.first else None,
        "last_time": sequence.last.time if sequence.last else None,
        "every_seconds": sequence.every.total_seconds() if sequence.every else None,
        "holes": [{"after": one.after, "before": one.before, "missing": one.missing} for one in sequence.holes],
        "looked_into": feed.looked_into,
        "marked": feed.marked,
        "unmarked": feed.unmarked,
        "files": feed.files,
        "bytes": feed.bytes,
        "strangers": feed.strangers,
        "broken": [{"name": name, "reason": reason} for name, reason in feed.broken],
        "empty": feed.empty,
    }


def _sample_document(sample: Sample) -> dict[str, Any]:
    return {
        "directories": sample.directories,
        "is_all": sample.is_all,
        "bytes": sample.bytes,
        "lines": sample.lines,
        "good": sample.good,
        "waiting_for_schemas": sample.waiting,
        "bad": sample.bad,
        "tables": [
            {
                "name": one.table.name,
                "mode": one.table.mode,
                "key": one.table.key,
                "rows": one.rows,
                "columns": [{"name": each.name, "type": each.type, "nullable": each.nullable} for each in one.table.columns],
            }
            for one in sample.tables
        ],
        "reasons": sample.reasons,
        "bad_lines": [{"file": one.file, "line": one.line, "reason": one.reason} for one in sample.bad_rows],
        "missing_schemas": [{"schema": one.schema, "table": one.table, "lines": one.lines} for one in sample.missing],
        "failures": [{"directory": one.directory, "message": one.message} for one in sample.failures],
        "notes": sample.notes,
    }


def print_preview(place: str, seen: looking.Preview, all_columns: bool, schemas: Sequence[str]) -> None:
    """Prints a preview as text. `place`: as it was typed."""
    _labelled("source", f"{seen.source}: {seen.layout}")
    _labelled("root", _shown(seen.root) + (f" (you named {line(place)}, which is in it)" if seen.part else ""))
    for feed in seen.feeds:
        _print_feed(feed, many=len(seen.feeds) > 1)
    _labelled("complete", _completeness(seen))
    if seen.compressions:
        _labelled("files", ", ".join(f"{name} ({count} of those examined)" for name, count in seen.compressions.items()))
    if seen.schemas:
        _labelled("schemas", ", ".join(seen.schemas))
    if seen.sample:
        _print_sample(seen.sample, all_columns, bool(seen.schemas))
    for advice in seen.advice:
        say(wrapped(advice, "note: ", "      "))
    named = "".join(f" --schemas {shlex.quote(one)}" for one in schemas)
    say("")
    say(f"nothing was written. Next: manifest-platform init --landing {shlex.quote(_shown(seen.root))}{named}")


def _labelled(label: str, text: str) -> None:
    say(wrapped(text, f"{label:<{_NAME}}", " " * _NAME))


def _print_feed(feed: looking.FeedSeen, many: bool) -> None:
    sequence = feed.sequence
    label = f"feed {feed.name}" if many else "directories"
    least = "" if sequence.is_all else "at least "
    if sequence.first and sequence.last:
        every = f", every {duration(sequence.every.total_seconds())}" if sequence.every else ""
        last = "last" if sequence.is_all else "last seen"
        first, newest = sequence.first, sequence.last
        _labelled(label, f"{least}{sequence.count:,}{every}")
        _labelled("  first", f"{first.name}, {moment(first.time)}")
        if sequence.count > 1:
            _labelled(f"  {last}", f"{newest.name}, {moment(newest.time)}")
    else:
        _labelled(label, "none")
    if sequence.holes:
        missing = sum(hole.missing for hole in sequence.holes)
        _labelled("  missing", f"{missing:,}, judging by the usual interval:")
        for hole in sequence.holes[:_HOLES]:
            _labelled("", f"{hole.missing:,} between {hole.after} and {hole.before}")
        if len(sequence.holes) > _HOLES:
            _labelled("", f"and {len(sequence.holes) - _HOLES:,} more gaps; --json has all")
    if feed.looked_into:
        _labelled("  examined", f"{feed.looked_into:,}: {counted(feed.files, 'file')}, {size_of(feed.bytes)}")
    if feed.empty:
        _labelled(
            "  empty", f"{feed.empty:,} of those have neither files nor a marker: captured by the platform, or being written"
        )
    if feed.strangers:
        _labelled("  ignored", f"{len(feed.strangers):,} with other names: {some(feed.strangers)}")
    for name, reason in feed.broken[:_HOLES]:
        _labelled("  not read", f"{name}: {reason}")


def _completeness(seen: looking.Preview) -> str:
    looked = sum(feed.looked_into for feed in seen.feeds)
    marked = sum(feed.marked for feed in seen.feeds)
    unmarked = [name for feed in seen.feeds for name in feed.unmarked]
    if not looked:
        return "unknown: no directory was examined"
    if seen.marker and not marked:
        return f"by the marker {seen.marker}, which all examined directories have"
    if not seen.marker:
        return f"no marker in the {looked:,} examined directories: complete once they are settled (complete: settle)"
    text = f"by the marker {seen.marker}, in {marked:,} of {looked:,} examined directories"
    return text if not unmarked else f"{text}; not in {some(unmarked)}: being written, or never finished"


def _print_sample(sample: Sample, all_columns: bool, asked: bool) -> None:
    say("")
    whole = "whole" if sample.is_all else "the beginning of each"
    count = len(sample.directories)
    if not sample.lines and not sample.tables and not sample.failures:
        say("no sample: the examined directories have no lines")
        return
    waiting = f", {sample.waiting:,} of them bad until their schemas are available" if sample.waiting else ""
    say(
        wrapped(
            f"sample of {count:,} director{'y' if count == 1 else 'ies'} ({whole}), {size_of(sample.bytes)}:"
            f" {counted(sample.lines, 'line')}, {sample.good:,} good, {sample.bad:,} bad{waiting}"
        )
    )
    _print_tables(sample, all_columns)
    _print_bad(sample)
    if sample.missing:
        say("")
        where = "in none of the given places" if asked else "no place of schemas was given"
        say(wrapped(f"missing schemas ({where}); lines that name one of them are bad:"))
        for one in sample.missing[:_BAD_LINES]:
            say(f"  {line(one.schema)}: {counted(one.lines, 'line')}, table {one.table}")
        if len(sample.missing) > _BAD_LINES:
            say(f"  and {len(sample.missing) - _BAD_LINES:,} more; --json has all")
        say("  name their place: --schemas FOLDER, --schemas s3://… or --schemas http(s)://REGISTRY")
    for failure in sample.failures:
        say(wrapped(f"{failure.directory}: {failure.message}", "✗ ", "  "))
    for note in sample.notes:
        say(wrapped(note, "note: ", "      "))


def _print_tables(sample: Sample, all_columns: bool) -> None:
    """Prints each table with its own columns. Columns that most tables share are printed once, at the end."""
    tables = sorted(sample.tables, key=lambda one: (one.rows == 0, -len(one.table.columns), one.table.name))
    counts = Counter((column.name, column.type) for one in tables for column in one.table.columns)
    most = max(_LEAST_SHARED, len(tables) // 2 + 1)
    shared = [] if all_columns else [f"{name} {type_}" for (name, type_), count in counts.items() if count >= most]
    for one in tables:
        columns = [f"{column.name} {column.type}" for column in one.table.columns]
        key = f" by {', '.join(one.table.key)}" if one.table.key else ""
        say("")
        say(f"{line(one.table.name)}: {counted(one.rows, 'row')}, {one.table.mode}{key}, {counted(len(columns), 'column')}")
        own = [column for column in columns if column not in shared]
        cut = own if all_columns else own[:_COLUMNS]
        more = f", … {len(own) - len(cut):,} more" if len(own) > len(cut) else ""
        if cut:
            say(wrapped(", ".join(cut) + more, "  ", "  "))
    if shared:
        say("")
        say(wrapped(f"most tables also have {', '.join(shared)}", "  ", "  "))
    if not all_columns and any(len(one.table.columns) > _COLUMNS for one in tables):
        say("  --columns shows all columns")


def counted(count: int, what: str) -> str:
    """Returns a number with its noun, in the plural if it is not 1."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _print_bad(sample: Sample) -> None:
    if not sample.bad:
        return
    say("")
    say("bad lines:")
    for reason, count in list(sample.reasons.items())[:_BAD_LINES]:
        first = next((one for one in sample.bad_rows if one.reason == reason), None)
        where = f" (first {_shown(first.file).rpartition('/')[2]}, line {first.line:,})" if first else ""
        say(wrapped(f"{count:,}  {reason}{where}", "  ", "     "))
    if len(sample.reasons) > _BAD_LINES:
        say(f"  and {len(sample.reasons) - _BAD_LINES:,} more reasons; --json has all")


def _shown(uri: str) -> str:
    """Returns a URI as people write it: a path, if it is on the local disk."""
    from manifest_platform import storage

    return line(str(storage.local_path(uri))) if storage.is_local(uri) else line(uri)
