"""`merge files` and `merge query`: read the published partitions."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, as_json
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import DateText, TableName, date_of, merge, open_merging
from manifest_platform.cli.output import print_answer, print_json, say
from manifest_platform.manifest import Refused
from manifest_platform.merging.readers import FilesUnknown, NotPublished, QueryFailed, Reader
from manifest_platform.operations.merge_asked import table_named
from manifest_platform.quantities import count_of, size_of


@merge.command(cls=Command)
def files(context: typer.Context, table: TableName, day: DateText) -> int:
    """Lists the files of a partition that readers read now."""
    with open_merging(context) as merging:
        key = table_named(merging, table).key
        try:
            found = Reader(merging.inventory, merging.config.delayed == "at_once").files(key, date_of(day))
        except NotPublished as error:
            raise Refused(str(error)) from error
    if as_json(context):
        print_json(dataclasses.asdict(found))
        return Exit.DONE
    for file in found.files:
        kind = "small" if file.lower is None else f"({file.lower}, {file.upper}]"
        say(f"{file.rows:>10,} rows  {size_of(file.bytes):>9}  {kind}\n  {file.uri}")
    served = f"version {found.version}, generation {found.generation}" if found.version else "small objects, not merged yet"
    rows, size = sum(file.rows for file in found.files), sum(file.bytes for file in found.files)
    say(f"{key} {found.date}: {served}; {count_of(len(found.files), 'file')}, {rows:,} rows, {size_of(size)}")
    return Exit.DONE


@merge.command(cls=Command)
def query(context: typer.Context, sql: Annotated[str, typer.Argument(metavar="SQL", help="One SQL query.")]) -> int:
    """Runs a query over the published partitions, in a temporary DuckDB database.

    Each table is a view over the files that readers read now. Its column dt is the date of the partition.
    """
    with open_merging(context) as merging:
        reader = Reader(merging.inventory, merging.config.delayed == "at_once")
        try:
            print_answer(lambda most: reader.query(sql, most), as_json(context))
        except (QueryFailed, FilesUnknown) as error:
            raise Refused(str(error)) from error
    return Exit.DONE
