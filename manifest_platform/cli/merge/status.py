"""`merge status` and `merge explain`: the state of merging, and the reason why a partition waits."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from manifest_platform.cli.app import Command, as_json, examples
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import DateText, TableName, date_of, merge, open_merging
from manifest_platform.cli.output import print_json, print_lines, say, wrapped
from manifest_platform.cli.remedies import Typed, document, typed
from manifest_platform.manifest import Refused
from manifest_platform.merging.state import Partition
from manifest_platform.operations.merge_asked import table_named
from manifest_platform.operations.merge_standing import (
    Busy,
    MergeStatus,
    PartitionStanding,
    TableStanding,
    explain_partition,
    merge_status,
    state_of,
)
from manifest_platform.quantities import count_of, moment, size_of
from manifest_platform.remedies import Action, Remedy


@merge.command(cls=Command)
def status(context: typer.Context) -> int:
    """Shows the state of merging: the partitions that wait, and for what.

    Partitions whose objects are all merged and published are not listed: see `merge show partitions`. Exit code 3 if a
    partition was set aside after failures.
    """
    with open_merging(context) as merging:
        found = merge_status(merging)
    as_typed = typed(context, found.dataset)
    if as_json(context):
        tables = [_table_document(table, as_typed) for table in found.tables]
        print_json({**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)}, "tables": tables})
    else:
        _print_status(found, as_typed)
    aside = any(one.set_aside for table in found.tables for one in table.partitions)
    return Exit.BLOCKED if aside else Exit.DONE


def _table_document(table: TableStanding, as_typed: Typed) -> dict[str, Any]:
    counts = {state: table.count(state) for state in ("open", "closed", "switched")}
    backlog = {**dataclasses.asdict(table.backlog), "oldest": table.oldest}
    partitions = [document(one, as_typed) for one in table.partitions]
    return {"table": table.table, "enabled": table.enabled, **counts, "backlog": backlog, "partitions": partitions}


def _print_status(found: MergeStatus, as_typed: Typed) -> None:
    behind = found.completed - found.registered
    say(f"dataset {found.dataset}, profile {found.profile}, catalog {found.catalog}, output {found.output}")
    more = f"; the next run registers {behind:,} more" if behind else ""
    print_lines({"registered": f"{count_of(found.registered, 'commit')}{more}"})
    for table in found.tables:
        if table.partitions:
            _print_table_status(table, as_typed)
    for busy in found.busy:
        say(wrapped(_busy_words(busy), "", "      "))
    resting = sum(1 for table in found.tables if not table.partitions)
    of = f"{resting:,} of {count_of(len(found.tables), 'table')} at rest" if found.tables else "no tables yet"
    say(f"{of}; {count_of(found.requests, 'request')} to the manifest")


def _print_table_status(table: TableStanding, as_typed: Typed) -> None:
    counts = [f"{table.count(state):,} {state}" for state in ("open", "closed", "switched") if table.count(state)]
    say(f"{table.table}{'' if table.enabled else ' (not enabled)'}: {', '.join(counts)}")
    backlog = table.backlog
    if backlog.objects:
        since = f", the oldest registered at {moment(table.oldest)}" if table.oldest else ""
        print_lines({"backlog": f"{count_of(backlog.objects, 'object')}, {size_of(backlog.bytes)}{since}"})
    for one in table.partitions:
        print_lines({str(one.date): _partition_words(one)})
        if one.set_aside and one.remedy:
            print_lines({"next": as_typed(one.remedy)})


def _partition_words(one: PartitionStanding) -> str:
    version = {-1: "not shown yet", 0: "shown as small objects"}.get(one.current, f"version {one.current}")
    wanted = f", {one.desired} is merged" if one.desired > max(one.current, 0) else ""
    waiting = (
        f"{count_of(one.waiting.objects, 'object')} ({size_of(one.waiting.bytes)}) to merge; " if one.waiting.objects else ""
    )
    return f"{one.state}, {version}{wanted}; {waiting}{one.waits_for}"


def _busy_words(busy: Busy) -> str:
    failed = f", {busy.failed:,} of them failed" if busy.failed else ""
    return (
        f"{busy.table} {busy.date} is merged very often: {busy.jobs:,} jobs within a day{failed}, {size_of(busy.bytes)} of"
        " small objects. Each job merged objects that arrived after the job before; `merge log` shows the jobs"
    )


@merge.command(cls=Command, epilog=examples("merge explain events 2026-01-31"))
def explain(context: typer.Context, table: TableName, day: DateText) -> int:
    """Explains the state of a partition, what a merge would do now, and why it is not merged, closed, switched or published."""
    with open_merging(context) as merging:
        known = table_named(merging, table)
        partition = merging.inventory.partition(known.key, date_of(day))
        if partition is None:
            raise Refused(
                f"{known.key} of {day}: no object of this partition is registered; a merge run registers shredded objects",
                Remedy(Action.MERGE),
            )
        told = explain_partition(merging, partition, known)
    command = typed(context, merging.pipeline.name)(told.remedy) if told.remedy else ""
    text = f"{told.text} Next: {command}" if command else told.text
    if as_json(context):
        ranges = [{"lower": one.lower, "upper": one.upper, "objects": len(one.objects)} for one in told.plan.ranges]
        plan = {"ranges": ranges, "leftover": told.plan.leftover, "reason": told.plan.reason}
        print_json({**partition_document(partition), "text": text, "plan": plan, "command": command})
    else:
        say(wrapped(text))
    return Exit.DONE


def partition_document(of: Partition) -> dict[str, Any]:
    """Returns the JSON document of a partition, without its text."""
    return {
        "table": of.table,
        "date": of.date,
        "state": state_of(of),
        "current": of.current,
        "desired": of.desired,
        "last_live": of.last_live,
        "generation": of.generation,
        "published": of.published,
        "small": of.live + of.delayed,
        "merged": of.merged,
        "waiting": of.waiting,
        "set_aside": of.set_aside,
    }
