"""`merge gc` and `merge drop`: remove unneeded merged objects, or a whole table."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Recording, WrongUse, as_json
from manifest_platform.cli.context import operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import TableName, merge, open_merging
from manifest_platform.cli.output import print_json, print_lines, print_table, say, wrapped
from manifest_platform.merging import garbage
from manifest_platform.merging.garbage import Garbage
from manifest_platform.operations.merge_asked import table_named
from manifest_platform.pipeline import rebuild as upkeep
from manifest_platform.quantities import size_of

_AGE = re.compile(r"(0|[1-9][0-9]{0,4})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Sure = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@merge.command(cls=Recording)
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    grace: Annotated[
        str, typer.Option(metavar="AGE", help="Keep files that were needed or written within this time: 12h, 7d or 2w.")
    ] = "7d",
) -> int:
    """Removes superseded merged objects, files of dead attempts, and old versions.

    Never removes small objects, files that a committed range or a version within the grace time names, or files of a running
    job. Exit code 4 if there is nothing to remove.
    """
    age = _age(grace)
    found: list[Garbage] = []
    with open_merging(context, author=operator()) as merging:
        look = garbage.find if dry_run else garbage.remove
        found += look(merging.inventory, merging.output, datetime.now(UTC), age)
    if as_json(context):
        print_json({"dry_run": dry_run, "tables": [_garbage_document(one) for one in found]})
    elif found:
        heads = ("table", "merged objects", "manifest files", "versions", "size")
        rows = [(one.table, *map(str, _counts(one)), size_of(one.bytes)) for one in found]
        print_table(heads, rows)
        say(f"{size_of(sum(one.bytes for one in found))} {'would be' if dry_run else 'were'} removed")
    else:
        say(f"nothing to remove: everything was needed or written within {grace}")
    return Exit.DONE if found else Exit.NOTHING


def _counts(of: Garbage) -> tuple[int, int, int]:
    return len(of.objects), len(of.manifests), len(of.versions)


def _garbage_document(of: Garbage) -> dict[str, Any]:
    objects, manifests, versions = _counts(of)
    files = [{"uri": f"{of.location}/{one.name}", "bytes": one.bytes} for one in (*of.objects, *of.manifests)]
    counts = {"objects": objects, "manifests": manifests, "versions": versions, "bytes": of.bytes}
    return {"table": of.table, "location": of.location, **counts, "files": files}


def _age(text: str) -> timedelta:
    parts = _AGE.fullmatch(text)
    if not parts:
        raise WrongUse(f"--grace {text}: write a number and m, h, d or w, such as 7d")
    return timedelta(**{_UNITS[parts[2]]: int(parts[1])})


@merge.command(cls=Recording)
def drop(context: typer.Context, table: TableName, yes: Sure = False) -> int:
    """Removes a merged table: its entry in the catalog, its rows in the manifest, and its merged objects.

    Small objects stay. The table is created again with the next objects that shredding writes for it, unless it is disabled.
    """
    if as_json(context) and not yes:
        raise WrongUse("drop asks for confirmation; with --json, add --yes")
    with open_merging(context, author=operator()) as merging:
        # After an interrupted drop, the exact name wins, so that no other table with this name in the catalog is removed.
        known = table if upkeep.was_known(merging, table) else table_named(merging, table).key
        there = upkeep.stock(merging, known)
        what = {
            "partitions": f"{there.partitions:,}, with {there.small_objects:,} small objects of {there.rows:,} rows",
            "files": f"{there.files:,} ({size_of(there.bytes)}) in {there.location}",
            "catalog": there.table.catalog_name or merging.config.catalog.kind,
        }
        if not as_json(context):
            say(f"table {known}")
            print_lines(what)
        if not yes and not typer.confirm("Remove all of this?"):
            say("nothing was removed")
            return Exit.NOTHING
        dropped = upkeep.drop(merging, known)
    if as_json(context):
        numbers = {name: getattr(dropped, name) for name in ("partitions", "small_objects", "rows", "files", "bytes")}
        print_json({"table": known, "location": dropped.location, **numbers})
    else:
        again = f"the next objects create it again, unless merge.tables.{known}.enabled is false"
        say(wrapped(f"{known} is removed; {again}"))
    return Exit.DONE
