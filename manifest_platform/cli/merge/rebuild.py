"""`merge rebuild` and `merge retry`: repair a damaged partition, and free a partition that was set aside."""

from __future__ import annotations

import typer

from manifest_platform.cli.app import Recording, as_json
from manifest_platform.cli.context import operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import DateText, TableName, date_of, merge, open_merging
from manifest_platform.cli.merge.publish import print_published, published_part
from manifest_platform.cli.merge.status import partition_document
from manifest_platform.cli.output import print_json, say, wrapped
from manifest_platform.cli.remedies import typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.operations.merge_asked import table_named
from manifest_platform.pipeline import rebuild as upkeep
from manifest_platform.quantities import count_of, size_of
from manifest_platform.remedies import Action, Remedy


@merge.command(cls=Recording)
def rebuild(context: typer.Context, table: TableName, day: DateText) -> int:
    """Rewrites all merged objects of a partition from its small objects, and publishes them.

    It writes new files and publishes them in one step, as the same version in a new generation: readers see either the old or
    the new files. A partition that is not switched yet is published when it is switched.
    """
    with open_merging(context, author=operator()) as merging, ending_well("readers still see the old files"):
        key, when = table_named(merging, table).key, date_of(day)
        done = upkeep.rebuild(merging, merging.pipeline.config.spark.session, key, when)
    if as_json(context):
        counts = {name: getattr(done, name) for name in ("ranges", "objects", "rows", "bytes_in", "bytes_out")}
        generation = done.partition.generation
        print_json({"table": key, "date": when, "generation": generation, **counts} | published_part(done.published))
    else:
        what = f"{count_of(done.ranges, 'range')} from {count_of(done.objects, 'small object')}, {done.rows:,} rows"
        sizes = f"{size_of(done.bytes_in)} in, {size_of(done.bytes_out)} out"
        say(wrapped(f"{key} {when}  rebuilt  {what}, {sizes}; generation {done.partition.generation}", "✓ ", "    "))
        print_published(done.published)
        if not done.partition.switched:
            say("the partition is not switched yet: readers read its small objects until then")
    return Exit.DONE if done.published.succeeded else Exit.FAILED


@merge.command(cls=Recording)
def retry(context: typer.Context, table: TableName, day: DateText) -> int:
    """Frees a partition that was set aside after failures, so that the next run merges it again."""
    with open_merging(context, author=operator()) as merging:
        partition = merging.inventory.retry(table_named(merging, table).key, date_of(day))
        command = typed(context, merging.pipeline.name)(Remedy(Action.MERGE))
    if as_json(context):
        print_json(partition_document(partition))
    else:
        say(f"{partition.table} {partition.date} is free to be merged again; next: {command}")
    return Exit.DONE
