"""`merge run`: registers small objects, merges partitions, closes, switches and publishes them."""

from __future__ import annotations

import dataclasses
from calendar import monthrange
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Recording, WrongUse, as_json, examples
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import date_of, merge, open_merging
from manifest_platform.cli.merge.publish import changed, print_published, published_part, published_words
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.cli.remedies import Typed, typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.merging.state import FinishedJob
from manifest_platform.operations.merge_asked import PassedOver, Wanted, merge_wanted
from manifest_platform.pipeline import Stop
from manifest_platform.pipeline.merge import MergeBudget, MergeEvent, MergeReport, MergeStarted
from manifest_platform.quantities import count_of, moment, size_of
from manifest_platform.remedies import Action, Remedy


@merge.command(cls=Recording, epilog=examples("merge run", "merge run --table events --date 2026-01-31"))
def run(
    context: typer.Context,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Merge this table now. Repeatable.")
    ] = None,
    day: Annotated[str | None, typer.Option("--date", metavar="DATE", help="Merge this date now: YYYY-MM-DD.")] = None,
    month: Annotated[str | None, typer.Option(metavar="MONTH", help="Merge all dates of this month now: YYYY-MM.")] = None,
    max_partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Merge at most this number of partitions.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=1, metavar="S", help="Start nothing new after this number of seconds.")
    ] = None,
    clock: Annotated[
        str | None, typer.Option(metavar="TIME", help="Use this later time instead of the clock's, for tests.")
    ] = None,
) -> int:
    """Registers shredded objects, merges the partitions that are due, then closes, switches and publishes them.

    With --table, --date or --month, it merges only those partitions: immediately and completely, even before the day is over.
    Exit code 0 if work was done or another run is working, 1 if a merge failed, 4 if there was nothing to do. With --json: one
    line for each event, then the summary.
    """
    now = datetime.now(UTC)
    ahead = _ahead(clock, now)
    wanted = Wanted(tuple(table or ()), *_dates(day, month))
    documents = as_json(context)
    report = MergeReport()
    with open_merging(context, ahead=ahead) as merging, ending_well("the next merge run repeats unfinished merges"):
        if ahead:
            warn(f"warning: --clock sets the time of this run, and of everything that it records, to {moment(now + ahead)}")
        as_typed, spark = typed(context, merging.pipeline.name), merging.pipeline.config.spark
        budget = MergeBudget(max_partitions, max_seconds)
        with closing(merge_wanted(merging, spark.session, budget, wanted)) as events:
            for event in events:
                if isinstance(event, MergeReport):
                    report = event
                elif isinstance(event, PassedOver):
                    warn(f"warning: {_passed_over(event, as_typed)}")
                elif documents:
                    print_json(_event_document(event))
                else:
                    say(_progress(event))
        if documents:
            print_json({"event": "ended", **_report_document(report)})
        else:
            _print_report(report, as_typed)
    return _exit(report)


def _exit(report: MergeReport) -> Exit:
    published = report.published
    if report.failed or report.stop in (Stop.UNAVAILABLE, Stop.FENCED) or (published and published.failed):
        return Exit.FAILED
    did = report.commits or report.merged or (published and changed(published)) or report.stop is Stop.BUSY
    return Exit.DONE if did else Exit.NOTHING


def _ahead(clock: str | None, now: datetime) -> timedelta:
    if clock is None:
        return timedelta()
    try:
        time = datetime.fromisoformat(clock)
    except ValueError as error:
        raise WrongUse(f"--clock {clock}: write a time such as 2026-01-31T12:00 (UTC) or 2026-01-31T12:00+09:00") from error
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    if time < now:
        raise WrongUse(f"--clock {clock} is in the past: it is {moment(now)}; records must not be older than earlier records")
    return time - now


def _dates(day: str | None, month: str | None) -> tuple[date | None, date | None]:
    """Returns the first and the last date to merge; None for all dates."""
    if day and month:
        raise WrongUse("--date and --month exclude each other: give one of them")
    if day:
        return date_of(day), date_of(day)
    if month is None:
        return None, None
    try:
        first = datetime.strptime(month, "%Y-%m").date()
    except ValueError as error:
        raise WrongUse(f"--month {month}: write a month such as 2026-01") from error
    return first, first.replace(day=monthrange(first.year, first.month)[1])


def _passed_over(event: PassedOver, as_typed: Typed) -> str:
    told = as_typed(Remedy(Action.RETRY_MERGE, table=event.table, day=event.date))
    return f"{event.table} of {event.date} was set aside and is not merged: {event.error}. Correct the cause, then run {told}"


def _progress(event: MergeEvent) -> str:
    """An event of a run as a line."""
    if isinstance(event, FinishedJob):
        return _job_line(event)
    if isinstance(event, MergeStarted):
        what = f"{count_of(event.ranges, 'range')} of {count_of(event.partitions, 'partition')}"
        return f"  merging {what}, {count_of(event.objects, 'object')}, {size_of(event.bytes)}, in one Spark job"
    outside = f"; {event.outside:,} left, their dates are not accepted" if event.outside else ""
    passed = f"; {event.passed_over:,} of tables that are not merged" if event.passed_over else ""
    what = f"{count_of(event.objects, 'object')} of {count_of(event.partitions, 'partition')}"
    return f"· commit {event.commit}  registered  {what}{outside}{passed}"


def _job_line(job: FinishedJob) -> str:
    name = f"{job.table} {job.date}"
    if job.outcome.is_failure:
        return wrapped(f"{name}  {job.outcome}, attempt {job.attempts + 1}: {job.error}", "✗ ", "    ")
    if not job.ranges:
        return f"· {name}  nothing to merge"
    took = (job.finished - job.started).total_seconds()
    sizes = f"{size_of(job.bytes_in)} in, {size_of(job.bytes_out)} out"
    return f"✓ {name}  merged  {count_of(len(job.ranges), 'range')}  {job.rows:,} rows  {sizes}  {took:.2f} s"


def _event_document(event: MergeEvent) -> dict[str, Any]:
    kind = (
        "finished" if isinstance(event, FinishedJob) else "merge_started" if isinstance(event, MergeStarted) else "registered"
    )
    return {"event": kind, **dataclasses.asdict(event)}


def _report_document(report: MergeReport) -> dict[str, Any]:
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report) if field.name != "published"}
    return fields | published_part(report.published)


def _print_report(report: MergeReport, as_typed: Typed) -> None:
    """Prints what a run did, and why it stopped."""
    if report.published:
        print_published(report.published)
    parts = [
        f"{count_of(report.commits, 'commit')} registered" if report.commits else "",
        f"{report.closed:,} closed" if report.closed else "",
        f"{count_of(report.merged, 'partition')} merged" if report.merged or not report.failed else "",
        f"{report.failed:,} failed" if report.failed else "",
        published_words(report.published) if report.published else "",
    ]
    said = ", ".join(part for part in parts if part)
    say(wrapped(f"{said} in {report.seconds:.1f} s, {count_of(report.requests, 'request')}; stopped: {report.stop}"))
    if report.reason:
        say(wrapped(report.reason))
    if report.failed:
        say(f"next: {as_typed(Remedy(Action.SHOW_MERGING))}")
