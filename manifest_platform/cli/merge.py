"""The commands about merging: small objects to merged ones, and what an operator wants to know and decide about them."""

from __future__ import annotations

import dataclasses
import re
from calendar import monthrange
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from manifest_platform import spark
from manifest_platform.cli.app import Command, Exit, WrongUse, app, as_json, open_pipeline, operator, options
from manifest_platform.cli.commands import ending_well
from manifest_platform.cli.merge_standing import (
    Busy,
    MergeStatus,
    PartitionStanding,
    TableStanding,
    explain_partition,
    merge_status,
    partition_document,
)
from manifest_platform.cli.output import (
    WIDTH,
    duration,
    moment,
    print_json,
    print_lines,
    print_table,
    say,
    size_of,
    warn,
    wrapped,
)
from manifest_platform.cli.standing import as_typed
from manifest_platform.manifest import Refused
from manifest_platform.merging import garbage, views
from manifest_platform.merging.garbage import Garbage
from manifest_platform.merging.ledger import Registration
from manifest_platform.merging.publish import PublishReport
from manifest_platform.merging.readers import FilesUnknown, NotPublished, Reader
from manifest_platform.merging.state import FinishedJob, Partition, Table
from manifest_platform.pipeline import Stop
from manifest_platform.pipeline import rebuild as upkeep
from manifest_platform.pipeline.merge import MergeBudget, MergeEvent, MergeReport, MergeStarted, Merging, Place, register
from manifest_platform.pipeline.merge import merge as merging_now

merge = typer.Typer(
    help="Merges small objects into well-sized ones, and publishes them.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(merge, name="merge")

_AGE = re.compile(r"(0|[1-9][0-9]{0,4})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A table, as shredding or as readers call it.")]
DateText = Annotated[str, typer.Argument(metavar="DATE", help="YYYY-MM-DD")]
TableOption = Annotated[str | None, typer.Option("--table", metavar="TABLE", help="Of this table only.")]
DateOption = Annotated[str | None, typer.Option("--date", metavar="DATE", help="Of this date only: YYYY-MM-DD.")]
Sure = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@contextmanager
def _open(context: typer.Context, author: str | None = None, ahead: timedelta = timedelta()) -> Generator[Merging]:
    """Merging of the dataset meant, by a clock that is `ahead` of the real one. Raises Refused if it is not merged."""
    with open_pipeline(context, author=author) as pipeline:
        yield Merging(pipeline, lambda: datetime.now(UTC) + ahead)


def _typed(merging: Merging, context: typer.Context, command: str) -> str:
    return as_typed(merging.pipeline, command, options(context))


# Working


@dataclass(frozen=True)
class _Wanted:
    """Which partitions a run is asked to merge: those of these tables, all if none is named, from one date to another."""

    tables: tuple[str, ...]
    first: date | None
    last: date | None

    def __bool__(self) -> bool:
        return bool(self.tables or self.first)

    def partitions(self, merging: Merging) -> list[Partition]:
        """Those that have something to merge. Raises Refused for a table that is not known."""
        keys = {_table(merging, name).key for name in self.tables}
        return [
            found
            for found in merging.ledger.open_partitions()
            if found.waiting.objects
            and (not keys or found.table in keys)
            and (self.first is None or self.last is None or self.first <= found.date <= self.last)
        ]


@merge.command(cls=Command)
def run(
    context: typer.Context,
    table: Annotated[list[str] | None, typer.Option("--table", metavar="TABLE", help="Merge this one now; repeatable.")] = None,
    day: Annotated[str | None, typer.Option("--date", metavar="DATE", help="Merge this date now: YYYY-MM-DD.")] = None,
    month: Annotated[str | None, typer.Option(metavar="MONTH", help="Merge all dates of this month now: YYYY-MM.")] = None,
    max_partitions: Annotated[int | None, typer.Option(min=1, metavar="N", help="Merge at most so many partitions.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=1, metavar="S", help="Begin nothing after so many seconds.")] = None,
    clock: Annotated[str | None, typer.Option(metavar="TIME", help="Pretend that it is later, to try it.")] = None,
) -> int:
    """Registers what was shredded, merges what is due, closes, switches and publishes.

    With --table, --date or --month, those are merged now and to their last object, be their days over or not, and nothing
    else. Exit 0 something was done, 1 failed or busy, 4 nothing to do. With --json: one line an event, then the summary.
    """
    now = datetime.now(UTC)
    ahead = _ahead(clock, now)
    wanted = _Wanted(tuple(table or ()), *_dates(day, month))
    documents = as_json(context)
    report = MergeReport()
    with _open(context, ahead=ahead) as merging, ending_well("the next merge run takes back what was in work"):
        if ahead:
            warn(f"warning: by --clock it is {moment(now + ahead)} for this run, and what it registers, merges and publishes")
        budget = MergeBudget(max_partitions, max_seconds)
        with closing(_events(merging, budget, wanted, options(context))) as events:
            for event in events:
                if isinstance(event, MergeReport):
                    report = event
                elif documents:
                    print_json(_event_document(event))
                else:
                    say(_progress(event))
        if documents:
            print_json({"event": "ended", **_report_document(report)})
        else:
            _print_report(report, lambda text: _typed(merging, context, text))
    return _exit(report)


def _events(merging: Merging, budget: MergeBudget, wanted: _Wanted, given: str) -> Generator[MergeEvent | MergeReport]:
    conf = merging.pipeline.config.spark.conf
    registered: list[Registration] = []
    asked: list[Place] = []
    if wanted:  # what is to be merged now may only just have been shredded
        for event in register(merging):
            registered.append(event)
            yield event
        found = wanted.partitions(merging)
        for one in found:
            if one.set_aside:
                told = as_typed(merging.pipeline, f"manifest-platform merge retry {one.table} {one.date}", given)
                warn(f"warning: {one.table} of {one.date} is set aside, and not merged: {one.set_aside.error}; then {told}")
        asked = [(one.table, one.date) for one in found if not one.set_aside]
        if not asked:
            nothing = MergeReport(reason="nothing waits to be merged there")
            for event in registered:
                nothing.count(event)
            yield nothing
            return
    for event in merging_now(merging, lambda: spark.session(conf), budget, asked):
        if isinstance(event, MergeReport):
            for one in registered:
                event.count(one)
        yield event


def _exit(report: MergeReport) -> Exit:
    published = report.published
    if report.failed or report.stop in (Stop.BUSY, Stop.UNAVAILABLE, Stop.FENCED) or (published and published.failed):
        return Exit.FAILED
    did = report.commits or report.merged or (published and _changed(published))
    return Exit.DONE if did else Exit.NOTHING


def _changed(report: PublishReport) -> bool:
    return bool(report.closed or report.switched or report.entered or report.shown or report.published or report.put_back)


def _ahead(clock: str | None, now: datetime) -> timedelta:
    if clock is None:
        return timedelta()
    try:
        time = datetime.fromisoformat(clock)
    except ValueError as error:
        raise WrongUse(f"--clock {clock}: a time as 2026-01-31T12:00 (UTC) or 2026-01-31T12:00+09:00") from error
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    if time < now:
        raise WrongUse(f"--clock {clock} is past: it is {moment(now)}, and what is written must not lie before what is there")
    return time - now


def _dates(day: str | None, month: str | None) -> tuple[date | None, date | None]:
    """The first and the last date that are meant; None for all."""
    if day and month:
        raise WrongUse("--date and --month: name one of them")
    if day:
        return _date(day), _date(day)
    if month is None:
        return None, None
    try:
        first = datetime.strptime(month, "%Y-%m").date()
    except ValueError as error:
        raise WrongUse(f"--month {month}: a month as 2026-01") from error
    return first, first.replace(day=monthrange(first.year, first.month)[1])


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise WrongUse(f"{text!r} is no date: write it as 2026-01-31") from error


def _table(merging: Merging, name: str) -> Table:
    """A table by the name that shredding or readers give it. Raises Refused."""
    found = merging.ledger.table(name)
    if found:
        return found
    tables = merging.ledger.tables()
    named = [table for table in tables if table.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        keys = " and ".join(table.key for table in named)
        raise Refused(f"dataset {merging.ledger.dataset} has several tables called {name}: name one as shredding does, {keys}")
    known = ", ".join(table.key for table in tables) or "none: nothing was registered yet"
    raise Refused(f"dataset {merging.ledger.dataset} has no table {name!r}; it has {known}")


@merge.command(cls=Command)
def publish(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every entry of the catalog, and mend it.")] = False,
) -> int:
    """Closes, switches and publishes what is due, without merging. Exit 1 if something failed, 4 if nothing was to do."""
    with _open(context) as merging:
        report = merging.publish(verify)
    if as_json(context):
        print_json(_published_document(report))
    else:
        _print_published(report)
        requests = f"{report.store_requests:,} requests to the manifest, {report.catalog_requests:,} to the catalog"
        say(f"{_published_words(report) or 'nothing to publish'}; {requests}")
    if not report.succeeded:
        return Exit.FAILED
    return Exit.DONE if _changed(report) else Exit.NOTHING


@merge.command(cls=Command)
def rebuild(context: typer.Context, table: TableName, day: DateText) -> int:
    """Writes all merged objects of a partition anew from its small ones, and publishes them.

    New files, the same version in a new generation: readers see the old or the new ones. A partition that is not switched yet
    is rebuilt too, and published when it is switched.
    """
    with _open(context, author=operator()) as merging, ending_well("readers see what they saw before"):
        conf = merging.pipeline.config.spark.conf
        key, when = _table(merging, table).key, _date(day)
        done = upkeep.rebuild(merging, lambda: spark.session(conf), key, when)
    if as_json(context):
        counts = {name: getattr(done, name) for name in ("ranges", "objects", "rows", "bytes_in", "bytes_out")}
        generation = done.partition.generation
        print_json({"table": key, "date": when, "generation": generation, **counts} | _published_part(done.published))
    else:
        what = f"{_count(done.ranges, 'range')} from {_count(done.objects, 'small object')}, {done.rows:,} rows"
        sizes = f"{size_of(done.bytes_in)} in, {size_of(done.bytes_out)} out"
        say(wrapped(f"{key} {when}  rebuilt  {what}, {sizes}; generation {done.partition.generation}", "✓ ", "    "))
        _print_published(done.published)
        if not done.partition.switched:
            say("it is not switched yet, so nobody reads its merged objects; it is published when it is")
    return Exit.DONE if done.published.succeeded else Exit.FAILED


@merge.command(cls=Command)
def retry(context: typer.Context, table: TableName, day: DateText) -> int:
    """Lets a partition that was set aside be merged again, by the next run."""
    with _open(context, author=operator()) as merging:
        partition = merging.ledger.retry(_table(merging, table).key, _date(day))
        command = _typed(merging, context, "manifest-platform merge run")
    if as_json(context):
        print_json(partition_document(partition))
    else:
        say(f"{partition.table} {partition.date} is to be merged again, now; next: {command}")
    return Exit.DONE


# Removing


@merge.command(cls=Command)
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    grace: Annotated[str, typer.Option(metavar="AGE", help="Keep what was needed or written since: 12h, 7d or 2w.")] = "7d",
) -> int:
    """Removes what nothing needs any more: superseded merged objects, what dead attempts left, old versions.

    Never small objects, what a committed range or a version within the grace time names, or what a running job wrote. Exit 4 if
    there is nothing to remove.
    """
    age = _age(grace)
    found: list[Garbage] = []
    with _open(context, author=operator()) as merging:
        look = garbage.find if dry_run else garbage.remove
        found += look(merging.ledger, merging.output, datetime.now(UTC), age)
    if as_json(context):
        print_json({"dry_run": dry_run, "tables": [_garbage_document(one) for one in found]})
    elif found:
        heads = ("table", "merged objects", "manifest files", "versions", "size")
        rows = [(one.table, *map(str, _counts(one)), size_of(one.bytes)) for one in found]
        print_table(heads, rows)
        say(f"{size_of(sum(one.bytes for one in found))} {'would be' if dry_run else 'were'} removed")
    else:
        say(f"nothing to remove that was not needed for {grace}")
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
        raise WrongUse(f"--grace {text}: a number and m, h, d or w, as 7d")
    return timedelta(**{_UNITS[parts[2]]: int(parts[1])})


@merge.command(cls=Command)
def drop(context: typer.Context, table: TableName, yes: Sure = False) -> int:
    """Removes a table with everything: its entry in the catalog, its rows, its merged objects.

    What shredding wrote stays. The table comes again with the next objects that shredding writes of it, unless it is disabled.
    """
    if as_json(context) and not yes:
        raise WrongUse("drop asks before it removes anything; with --json give it --yes")
    with _open(context, author=operator()) as merging:
        # Of a drop that ended early the rest goes, and not another table that readers call so.
        known = table if upkeep.was_known(merging, table) else _table(merging, table).key
        there = upkeep.stock(merging, known)
        what = {
            "partitions": f"{there.partitions:,}, with {there.small_objects:,} small objects of {there.rows:,} rows",
            "files": f"{there.files:,} ({size_of(there.bytes)}) in {there.location}",
            "catalog": there.table.catalog_name or merging.config.catalog.kind,
        }
        if not as_json(context):
            say(f"table {known}")
            print_lines(what)
        if not yes and not typer.confirm("Remove all of it?"):
            say("nothing was removed")
            return Exit.NOTHING
        dropped = upkeep.drop(merging, known)
    if as_json(context):
        numbers = {name: getattr(dropped, name) for name in ("partitions", "small_objects", "rows", "files", "bytes")}
        print_json({"table": known, "location": dropped.location, **numbers})
    else:
        again = f"it comes again with its next objects, unless merge.tables.{known}.enabled is false"
        say(wrapped(f"{known} is removed; {again}"))
    return Exit.DONE


# Looking


@merge.command(cls=Command)
def status(context: typer.Context) -> int:
    """Shows how merging stands: what waits, and for what. Exit 3 if a partition was set aside.

    Partitions that are at rest, merged and published to their last object, are not looked at: see `merge show partitions`.
    """
    with _open(context) as merging:
        found = merge_status(merging, lambda text: _typed(merging, context, text))
    if as_json(context):
        tables = [_table_document(table) for table in found.tables]
        print_json({**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)}, "tables": tables})
    else:
        _print_status(found)
    aside = any(one.set_aside for table in found.tables for one in table.partitions)
    return Exit.BLOCKED if aside else Exit.DONE


def _table_document(table: TableStanding) -> dict[str, Any]:
    counts = {state: table.count(state) for state in ("open", "closed", "switched")}
    backlog = {**dataclasses.asdict(table.backlog), "oldest": table.oldest}
    partitions = [dataclasses.asdict(one) for one in table.partitions]
    return {"table": table.table, "enabled": table.enabled, **counts, "backlog": backlog, "partitions": partitions}


def _print_status(found: MergeStatus) -> None:
    behind = found.completed - found.registered
    say(f"dataset {found.dataset}, profile {found.profile}, catalog {found.catalog}, output {found.output}")
    more = f"; the next run registers {behind:,} more" if behind else ""
    print_lines({"registered": f"{_count(found.registered, 'commit')}{more}"})
    for table in found.tables:
        if table.partitions:
            _print_table_status(table)
    for busy in found.busy:
        say(wrapped(_busy_words(busy), "", "      "))
    resting = sum(1 for table in found.tables if not table.partitions)
    of = f"{resting:,} of {_count(len(found.tables), 'table')} at rest" if found.tables else "no tables yet"
    say(f"{of}; asked in {_count(found.requests, 'request')}")


def _print_table_status(table: TableStanding) -> None:
    counts = [f"{table.count(state):,} {state}" for state in ("open", "closed", "switched") if table.count(state)]
    say(f"{table.table}{'' if table.enabled else ' (not enabled)'}: {', '.join(counts)}")
    backlog = table.backlog
    if backlog.objects:
        since = f", the oldest registered at {moment(table.oldest)}" if table.oldest else ""
        print_lines({"backlog": f"{_count(backlog.objects, 'object')}, {size_of(backlog.bytes)}{since}"})
    for one in table.partitions:
        print_lines({str(one.date): _partition_words(one)})
        if one.set_aside:
            print_lines({"next": one.command})


def _partition_words(one: PartitionStanding) -> str:
    version = {-1: "not shown yet", 0: "shown as small objects"}.get(one.current, f"version {one.current}")
    wanted = f", {one.desired} is merged" if one.desired > max(one.current, 0) else ""
    waiting = (
        f"{_count(one.waiting.objects, 'object')} ({size_of(one.waiting.bytes)}) to merge; " if one.waiting.objects else ""
    )
    return f"{one.state}, {version}{wanted}; {waiting}{one.waits_for}"


def _busy_words(busy: Busy) -> str:
    failed = f", {busy.failed:,} of them failed" if busy.failed else ""
    return (
        f"{busy.table} {busy.date} is merged again and again: {busy.jobs:,} jobs within a day{failed}, {size_of(busy.bytes)} of"
        " small objects. Each was another job, for objects that came meanwhile; merge log shows them"
    )


@merge.command(cls=Command)
def explain(context: typer.Context, table: TableName, day: DateText) -> int:
    """Says how a partition stands, what a merge of it would do now, and why it is not merged, closed, switched or published."""
    with _open(context) as merging:
        known = _table(merging, table)
        partition = merging.ledger.partition(known.key, _date(day))
        if partition is None:
            raise Refused(
                f"{known.key} of {day}: no object of it is registered;"
                f" {_typed(merging, context, 'manifest-platform merge run')} registers what was shredded"
            )
        told = explain_partition(merging, partition, known, lambda text: _typed(merging, context, text))
    if as_json(context):
        ranges = [{"lower": one.lower, "upper": one.upper, "objects": len(one.objects)} for one in told.plan.ranges]
        plan = {"ranges": ranges, "leftover": told.plan.leftover, "reason": told.plan.reason}
        print_json({**partition_document(partition), "text": told.text, "plan": plan, "command": told.command})
    else:
        say(wrapped(told.text))
    return Exit.DONE


@merge.command(cls=Command)
def files(context: typer.Context, table: TableName, day: DateText) -> int:
    """Lists the files that readers of a partition get now."""
    with _open(context) as merging:
        key = _table(merging, table).key
        try:
            found = Reader(merging.ledger, merging.config.delayed == "at_once").files(key, _date(day))
        except NotPublished as error:
            raise Refused(str(error)) from error
    if as_json(context):
        print_json(dataclasses.asdict(found))
        return Exit.DONE
    for file in found.files:
        kind = "small" if file.lower is None else f"({file.lower}, {file.upper}]"
        say(f"{file.rows:>10,} rows  {size_of(file.bytes):>9}  {kind}\n  {file.uri}")
    served = f"version {found.version}, generation {found.generation}" if found.version else "small objects, as they came"
    rows, size = sum(file.rows for file in found.files), sum(file.bytes for file in found.files)
    say(f"{key} {found.date}: {served}; {_count(len(found.files), 'file')}, {rows:,} rows, {size_of(size)}")
    return Exit.DONE


@merge.command(cls=Command)
def query(context: typer.Context, sql: Annotated[str, typer.Argument(metavar="SQL", help="One query.")]) -> int:
    """Asks the published partitions, in a DuckDB that is gone afterwards.

    Each table is a view over the files that readers get now; its column dt is the partition's date.
    """
    import duckdb

    with _open(context) as merging, closing(duckdb.connect()) as connection:
        try:
            Reader(merging.ledger, merging.config.delayed == "at_once").views(connection)
            schemas = sorted({table.schema for table in merging.ledger.tables()})
            if schemas:
                connection.execute(f"SET search_path = '{','.join(schemas)}'")
            if as_json(context):
                found = connection.execute(sql)
                columns = [column[0] for column in found.description or ()]
                print_json({"rows": [dict(zip(columns, row, strict=True)) for row in found.fetchall()]})
            elif (relation := connection.sql(sql)) is not None:
                relation.show(max_width=WIDTH, max_rows=100)
        except (duckdb.Error, FilesUnknown) as error:
            raise Refused(str(error)) from error
    return Exit.DONE


@merge.command(cls=Command)
def log(
    context: typer.Context,
    table: TableOption = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Show at most so many.")] = 20,
) -> int:
    """Shows the merges that ended last, the latest first. Exit 4 if there is none."""
    with _open(context) as merging:
        key = _table(merging, table).key if table else None
        jobs = [job for job in merging.ledger.log(limit if key is None else 50 * limit) if key in (None, job.table)][:limit]
    if as_json(context):
        print_json({"jobs": [dataclasses.asdict(job) for job in jobs]})
    elif jobs:
        heads = ("finished (UTC)", "partition", "outcome", "rows", "in", "out", "took")
        print_table(heads, [_log_row(job) for job in jobs])
        for job in jobs:
            if job.error:
                say(wrapped(f"{job.table} {job.date}, {job.finished:%H:%M:%S}: {job.error}", "✗ ", "    "))
    else:
        say("no merge has ended yet")
    return Exit.DONE if jobs else Exit.NOTHING


def _log_row(job: FinishedJob) -> tuple[str, ...]:
    ranges = f" ({len(job.ranges)})" if len(job.ranges) > 1 else ""
    outcome = f"{job.outcome}{ranges}{f', try {job.attempts + 1}' if job.attempts else ''}"
    sizes = (size_of(job.bytes_in), size_of(job.bytes_out)) if job.ranges else ("-", "-")
    took = duration((job.finished - job.started).total_seconds())
    return (f"{job.finished:%m-%d %H:%M:%S}", f"{job.table} {job.date}", outcome, f"{job.rows:,}", *sizes, took)


class View(StrEnum):
    """The tables of Prism's metadata."""

    TABLES = "tables"
    PARTITIONS = "partitions"
    OBJECTS = "objects"
    RANGES = "ranges"
    JOBS = "jobs"


_SHORT = {
    View.TABLES: {
        "table_name": "table_name",
        "schema_name": "schema_name",
        "create_time": "create_time",
        "merge_interval": "merge_interval",
        "physical_table_name": "physical_table_name",
    },
    View.PARTITIONS: {
        "prism_table_id": "table",
        "partition_date": "partition_date",
        "current_manifest_version": "current",
        "desired_manifest_version": "desired",
        "last_live_object_id": "last_live_object_id",
        "switched": "switched",
    },
    View.OBJECTS: {
        "prism_small_object_id": "id",
        "prism_staging_object_id": "staging_object",
        "delayed": "delayed",
        "content_length": "content_length",
        "upload_start_time": "upload_start_time",
    },
    View.RANGES: {
        "lower_bound": "lower_bound",
        "upper_bound": "upper_bound",
        "content_length": "content_length",
        "create_time": "create_time",
        "update_time": "update_time",
    },
    View.JOBS: {
        "prism_partition_id": "partition",
        "schedule_time": "schedule_time",
        "ongoing_mark": "ongoing_mark",
        "heartbeat_time": "heartbeat_time",
    },
}
"""The columns that fit a screen, and their heads; JSON has all of them under their whole names."""


@merge.command(cls=Command)
def show(
    context: typer.Context,
    view: Annotated[View, typer.Argument(metavar="|".join(View), help="Which table of Prism's metadata.")],
    table: TableOption = None,
    day: DateOption = None,
) -> int:
    """Shows the ledger of merging as the tables of Prism's metadata; with --json under all of their columns.

    Exit 4 if there is nothing to show.
    """
    when = _date(day) if day else None
    with _open(context) as merging:
        key = _table(merging, table).key if table else None
        groups = [(name, rows) for name, found in _view(merging, view, key, when) if (rows := list(found))]
    if as_json(context):
        print_json({view.value: [row for _, rows in groups for row in rows]})
        return Exit.DONE if groups else Exit.NOTHING
    for name, rows in groups:
        if name:
            say(name)
        heads = _SHORT[view]
        print_table(tuple(heads.values()), [tuple(_cell(row[column]) for column in heads) for row in rows])
    if not groups:
        say("nothing to show")
    return Exit.DONE if groups else Exit.NOTHING


Rows = Iterable[dict[str, Any]]


def _view(merging: Merging, view: View, table: str | None, day: date | None) -> Iterator[tuple[str, Rows]]:
    """The rows of a view, by what they are of."""
    ledger = merging.ledger
    if view is View.TABLES:
        yield "", (row for row in views.prism_tables(ledger) if table in (None, row["prism_table_id"]))
    elif view is View.JOBS:
        lease = timedelta(seconds=merging.pipeline.config.lease.seconds)
        wanted = (table, str(day) if day else None)
        yield "", (row for row in views.prism_merge_jobs(ledger, lease) if _is_of(row["prism_partition_id"], *wanted))
    elif view is View.PARTITIONS:
        yield "", (row for row in views.prism_partitions(ledger, table) if day in (None, row["partition_date"]))
    else:
        of = views.prism_small_objects if view is View.OBJECTS else views.prism_merge_ranges
        places = [(table, day)] if table and day else [(one.table, one.date) for one in ledger.partitions(table)]
        for key, date_ in places:
            if day in (None, date_):
                yield f"{key} {date_}", of(ledger, key, date_)


def _is_of(partition: str, table: str | None, day: str | None) -> bool:
    of_table, _, of_day = partition.rpartition("/")
    return table in (None, of_table) and day in (None, of_day)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    text = str(value).rstrip("/")
    return text.rpartition("/")[2] if "://" in text else text


# Words


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _progress(event: MergeEvent) -> str:
    """An event of a run as a line."""
    if isinstance(event, FinishedJob):
        return _job_line(event)
    if isinstance(event, MergeStarted):
        what = f"{_count(event.ranges, 'range')} of {_count(event.partitions, 'partition')}"
        return f"  merging {what}, {_count(event.objects, 'object')}, {size_of(event.bytes)}, in one Spark job"
    outside = f"; {event.outside:,} left, their dates are not accepted" if event.outside else ""
    passed = f"; {event.passed_over:,} of tables that are not merged" if event.passed_over else ""
    what = f"{_count(event.objects, 'object')} of {_count(event.partitions, 'partition')}"
    return f"· commit {event.commit}  registered  {what}{outside}{passed}"


def _job_line(job: FinishedJob) -> str:
    name = f"{job.table} {job.date}"
    if job.outcome in ("failed", "died"):
        return wrapped(f"{name}  {job.outcome}, attempt {job.attempts + 1}: {job.error}", "✗ ", "    ")
    if not job.ranges:
        return f"· {name}  nothing to merge"
    took = (job.finished - job.started).total_seconds()
    sizes = f"{size_of(job.bytes_in)} in, {size_of(job.bytes_out)} out"
    return f"✓ {name}  merged  {_count(len(job.ranges), 'range')}  {job.rows:,} rows  {sizes}  {took:.2f} s"


def _event_document(event: MergeEvent) -> dict[str, Any]:
    kind = (
        "finished" if isinstance(event, FinishedJob) else "merge_started" if isinstance(event, MergeStarted) else "registered"
    )
    return {"event": kind, **dataclasses.asdict(event)}


def _report_document(report: MergeReport) -> dict[str, Any]:
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report) if field.name != "published"}
    return fields | _published_part(report.published)


def _published_part(report: PublishReport | None) -> dict[str, Any]:
    return {"published": _published_document(report) if report else None}


def _published_document(report: PublishReport) -> dict[str, Any]:
    places = ("closed", "switched", "entered", "shown", "put_back")
    return {
        **{name: [str(place) for place in getattr(report, name)] for name in places},
        "published": [{"partition": str(place), "version": version} for place, version in report.published],
        "waiting": [{"partition": str(place), "reason": reason} for place, reason in report.waiting],
        "failed": [{"place": str(one.place), "error": one.error, "passing": one.passing} for one in report.failed],
        "busy": report.busy,
        "store_requests": report.store_requests,
        "catalog_requests": report.catalog_requests,
    }


def _print_report(report: MergeReport, typed: Callable[[str], str]) -> None:
    """What a run did, and why it stopped."""
    if report.published:
        _print_published(report.published)
    parts = [
        f"{_count(report.commits, 'commit')} registered" if report.commits else "",
        f"{report.closed:,} closed" if report.closed else "",
        f"{_count(report.merged, 'partition')} merged" if report.merged or not report.failed else "",
        f"{report.failed:,} failed" if report.failed else "",
        _published_words(report.published) if report.published else "",
    ]
    said = ", ".join(part for part in parts if part)
    say(wrapped(f"{said} in {report.seconds:.1f} s, {_count(report.requests, 'request')}; stopped: {report.stop}"))
    if report.reason:
        say(wrapped(report.reason))
    if report.failed:
        say(f"next: {typed('manifest-platform merge status')}")


def _published_words(report: PublishReport) -> str:
    counts = {
        "closed": len(report.closed),
        "switched": len(report.switched),
        "shown": len(report.shown),
        "published": len(report.published),
        "put back": len(report.put_back),
        "not published": len(report.failed),
    }
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


def _print_published(report: PublishReport) -> None:
    for place, version in report.published:
        say(f"✓ {place.table} {place.day}  published as version {version}")
    for place, reason in report.waiting:
        say(wrapped(f"{place}  waits: {reason}", "· ", "    "))
    for failed in report.failed:
        kind = "passing" if failed.passing else "for a person"
        say(wrapped(f"{failed.place}  not published ({kind}): {failed.error}", "✗ ", "    "))
    if report.busy:
        say(f"· {report.busy} publishes just now, and goes on with what is closed and switched")
