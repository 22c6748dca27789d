"""Checks of a feed: what landed is accounted for, what was shredded is in the warehouse, nothing is behind or blocked.

Belongs here: the checks that every feed has, and those that its source declares.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import islice

import dagster as dg

from manifest_platform.manifest import Application, Blocked, Record, State, Survey, Verdict
from manifest_platform.manifest.dataset import PASSED, judge, position_name
from manifest_platform.operations.bad_rows import NEWEST as BAD_ROWS
from manifest_platform.operations.bad_rows import bad_rows
from manifest_platform.operations.standing import behind
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.blocks import Block
from manifest_platform.orchestration.events import check_result
from manifest_platform.orchestration.full import NO_FULL_LOAD, build_full_check, no_full_load
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.chain import Broken, broken
from manifest_platform.quantities import duration
from manifest_platform.sources.source import CheckResult, SourceCheck
from manifest_platform.warehouse.apply import open_warehouse

NOT_BLOCKED = "feed_not_blocked"
NOT_STOPPED = "producer_not_stopped"
NEWEST = 2000
"""How many of the newest items a check looks at that would cost ever more otherwise."""


def feed_evaluation(pipeline: Pipeline, names: Names, feed: str) -> dg.AssetCheckEvaluation:
    """Whether a feed is blocked, as an evaluation of its check: by which item, why, since when, what helps."""
    return evaluation(names.warehouse(feed), NOT_BLOCKED, _not_blocked(pipeline, feed))


Evaluation = tuple[str, str, Callable[[], dg.AssetCheckEvaluation]]
"""A check's name with its asset, what it says, and what makes its evaluation."""


def evaluations(
    pipeline: Pipeline, names: Names, now: datetime, verdict: Callable[[str], Verdict], refused: Mapping[str, Broken]
) -> Iterator[Evaluation]:
    """What people must hear of without asking: blocked feeds, the source's own checks, and whether a full load is needed.

    `verdict`: what comes next to be loaded of a feed; `refused`: feeds whose warehouse is not the one that is known.
    Of a feed that says what it said before, nothing more is read.
    """
    source = pipeline.source
    for feed in pipeline.feeds:
        block = Block.of(pipeline, feed, verdict(feed), refused.get(feed))
        described = block.words if block else NOT_BLOCKED_WORDS
        evaluate = partial(feed_evaluation, pipeline, names, feed)
        yield f"{names.warehouse(feed).to_user_string()} {NOT_BLOCKED}", described, evaluate
    found = [
        evaluation(names.stage(check.feed, check.stage), check.name, _result(check.find(pipeline.manifest)))
        for check in source.checks
    ]
    found += [
        evaluation(names.warehouse(feed), NOT_STOPPED, _not_stopped(pipeline, feed))
        for feed in pipeline.feeds
        if feed in source.settings.landing.expected_every_seconds
    ]
    if source.snapshots:
        found.append(evaluation(names.warehouse(source.main), NO_FULL_LOAD, no_full_load(pipeline, now)))
    for one in found:
        yield f"{one.asset_key.to_user_string()} {one.check_name}", str(one.description), partial(_same, one)


def _same(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckEvaluation:
    return evaluation


def evaluation(asset: dg.AssetKey, check: str, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """What a check has found, as an event of its asset."""
    return dg.AssetCheckEvaluation(
        check_name=check,
        asset_key=asset,
        passed=result.passed,
        metadata=dict(result.metadata),
        severity=result.severity,
        description=result.description,
    )


def _lag(survey: Survey) -> float:
    """For how many seconds the oldest waiting item has been known."""
    return (datetime.now(UTC) - survey.oldest_waiting).total_seconds() if survey.oldest_waiting else 0.0


NOT_BLOCKED_WORDS = "The feed is not blocked."


def _not_blocked(pipeline: Pipeline, feed: str) -> dg.AssetCheckResult:
    survey = pipeline.manifest.survey(feed, LOAD)
    shown = metadata.backlog_metadata(survey, _lag(survey))
    refused = next((one for one in broken(pipeline) if one.feed == feed), None)
    block = Block.of(pipeline, feed, survey.verdict, refused)
    if block is None:
        return check_result(passed=True, metadata=shown, description=NOT_BLOCKED_WORDS)
    if refused:
        shown |= {"reason": refused.reason, "command": command_of(refused.remedy, pipeline)}
    elif isinstance(survey.verdict, Blocked):
        verdict = survey.verdict
        shown |= {
            "item": verdict.item.key.name,
            "reason": verdict.reason,
            "since": dg.MetadataValue.timestamp(verdict.since),
            "command": command_of(verdict.remedy, pipeline),
        }
    return check_result(passed=False, severity=dg.AssetCheckSeverity.ERROR, description=block.words, metadata=shown)


def _not_stopped(pipeline: Pipeline, feed: str) -> dg.AssetCheckResult:
    """Whether the feed goes on as its producer promises. The sensor tells descriptions that change: there are no ages in it."""
    state = pipeline.manifest.state(Application(LOAD))
    full = pipeline.manifest.step(feed, LOAD).order == "full"
    found = behind(pipeline, feed, state.boundary if full else position_name(feed, state.feed(feed).watermark) or None)
    if found is None:
        return check_result(passed=True, description="Nothing is loaded yet.")
    every = duration(found.expected_seconds)
    stopped = f"Nothing came after {found.watermark}, and a directory is expected every {every}: its producer may have stopped."
    return check_result(
        passed=not found.stopped,
        severity=dg.AssetCheckSeverity.WARN,
        description=stopped if found.stopped else f"A directory came within {every}.",
        metadata={
            "watermark": found.watermark,
            "behind_seconds": round(found.seconds, 1),
            "expected_every_seconds": found.expected_seconds,
        },
    )


def build_checks(wiring: Wiring) -> list[dg.AssetChecksDefinition]:
    """The checks of a dataset: those of every feed, those that its source declares, and of its rows and snapshots."""
    source = wiring.source
    checks = [check for feed in source.feeds for check in _feed_checks(wiring, feed)]
    checks += [_declared(wiring, check) for check in source.checks]
    if source.snapshots:
        checks.append(build_full_check(wiring))
    if source.appends:
        return [*checks, *(_rows_in_warehouse(wiring, feed) for feed in source.feeds)]
    return [*checks, *(_counts_agree(wiring, feed) for feed in source.feeds)]


def _declared(wiring: Wiring, check: SourceCheck) -> dg.AssetChecksDefinition:
    """A check that the source declares."""

    @dg.asset_check(asset=wiring.names.stage(check.feed, check.stage), name=check.name, description=check.description)
    def declared() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return _result(check.find(pipeline.manifest))

    return declared


def _result(finding: CheckResult) -> dg.AssetCheckResult:
    return check_result(
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=finding.description,
        metadata=dict(finding.shown),
    )


def _feed_checks(wiring: Wiring, feed: str) -> list[dg.AssetChecksDefinition]:
    names, settings = wiring.names, wiring.source.settings
    shredded, warehouse = names.shredded(feed), names.warehouse(feed)

    @dg.asset_check(asset=warehouse, name=NOT_BLOCKED, description="No directory blocks the feed's order.")
    def feed_not_blocked() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return _not_blocked(pipeline, feed)

    @dg.asset_check(asset=warehouse, description="No directory has waited for longer than the configuration allows.")
    def lag() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            survey = pipeline.manifest.survey(feed, LOAD)
        most, seconds = settings.load.max_lag_seconds, _lag(survey)
        return check_result(
            passed=seconds <= most,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"The oldest has waited for {seconds:,.0f} s; allowed are {most:,.0f} s.",
            metadata={"lag_seconds": round(seconds, 1), "backlog": sum(survey.counts.values()), "more": survey.more},
        )

    @dg.asset_check(asset=shredded, description="Lines landed = good events + bad rows, in the newest that were shredded.")
    def rows_accounted_for() -> dg.AssetCheckResult:
        wrong, items, lines = [], 0, 0
        with wiring.pipeline() as pipeline:
            for item in islice(pipeline.manifest.items(feed, reverse=True), NEWEST):
                record = item.processed_by(Application(SHRED))
                if record is None:
                    continue
                items, lines = items + 1, lines + record.data["lines"]
                if record.data["lines"] != record.data["good"] + record.data["bad"]:
                    wrong.append(item.key.name)
        return check_result(passed=not wrong, metadata={"runs": items, "lines": lines, "wrong": ", ".join(sorted(wrong))})

    most = settings.shred.bad_rows.max_share

    @dg.asset_check(asset=shredded, description=f"None of the newest directories has more than {most:.1%} bad rows.")
    def few_bad_rows() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            found = bad_rows(feed, pipeline.manifest.newest(feed, BAD_ROWS, State.PROCESSED))
        above = found.above(most)
        named = "".join(f"; {item.name}: {item.bad:,} of {item.lines:,}" for item in above[:5])
        return check_result(
            passed=not above,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"Bad are {found.bad:,} of {found.lines:,} lines of the newest {found.items:,}{named}.",
            metadata={"runs": found.items, "lines": found.lines, "bad": found.bad, "above": len(above)},
        )

    @dg.asset_check(
        asset=warehouse, description="The newest up to the watermark are loaded, skipped, or known to be late; doctor sees all."
    )
    def nothing_behind_watermark() -> dg.AssetCheckResult:
        behind, late = [], []
        with wiring.pipeline() as pipeline:
            step = pipeline.manifest.step(feed, LOAD)
            standing = pipeline.manifest.state(step.application).feed(feed)
            passed = pipeline.manifest.items(feed, after=f"{standing.watermark}#~", reverse=True) if standing.watermark else ()
            for item in islice(passed, NEWEST):
                if judge(item, step, standing).standing not in PASSED:
                    (late if item.is_late_for(step.application) else behind).append(item.key.name)
        shown = {"behind": ", ".join(sorted(behind)), "late": ", ".join(sorted(late))}
        return check_result(passed=not behind, metadata=shown)

    @dg.asset_check(asset=warehouse, name=NOT_STOPPED, description="A directory comes as often as the configuration expects.")
    def producer_not_stopped() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return _not_stopped(pipeline, feed)

    watched = [producer_not_stopped] if feed in settings.landing.expected_every_seconds else []
    return [feed_not_blocked, lag, rows_accounted_for, few_bad_rows, nothing_behind_watermark, *watched]


def _rows_in_warehouse(wiring: Wiring, feed: str) -> dg.AssetChecksDefinition:
    """For tables that only append: what they hold is the sum of what was loaded."""
    dataset = wiring.dataset

    @dg.asset_check(
        asset=wiring.names.warehouse(feed),
        description="Rows by the warehouse's ledger = rows in its tables; and the manifest says the same of the newest.",
        pool=dataset,
    )
    def rows_in_warehouse() -> dg.AssetCheckResult:
        expected: dict[str, int] = {}
        found: dict[str, int] = {}
        with wiring.pipeline() as pipeline:
            standing = pipeline.manifest.state(Application(LOAD)).feed(feed)
            newest = list(islice(pipeline.manifest.items(feed, reverse=True), NEWEST)) if standing.applied else []
            records = {item.key: item.processed_by(Application(LOAD), standing.serving_epoch) for item in newest}
            settings = pipeline.config.warehouse
        unlike: list[str] = []
        if standing.applied:
            told = {key: record for key, record in records.items() if record and record.token is not None}
            since = min(told).sort if told else ""
            with closing(open_warehouse(settings, dataset, read_only=True)) as reader:
                found, expected = reader.row_counts(), reader.applied_rows(feed, standing.serving_epoch)
                newer = reader.ledger(feed, standing.serving_epoch, after=since) if told else ()
                applied = {entry.position: entry.rows for entry in newer}
            unlike = sorted(key.name for key, record in told.items() if applied.get(key.position) != record.data["rows"])
        wrong = sorted(table for table, rows in expected.items() if found.get(table, 0) != rows)  # others are the user's
        shown = metadata.counts("table", {"ledger": expected, "warehouse": found})
        return check_result(
            passed=not wrong and not unlike,
            metadata={"tables": shown, "wrong": ", ".join(wrong), "unlike": ", ".join(unlike)},
        )

    return rows_in_warehouse


def _counts_agree(wiring: Wiring, feed: str) -> dg.AssetChecksDefinition:
    """What is loaded by key cannot be summed, so it is compared directory by directory."""
    dataset = wiring.dataset

    @dg.asset_check(
        asset=wiring.names.warehouse(feed),
        description="Rows shredded = rows loaded = rows in the warehouse's ledger, directory by directory, among the newest.",
        pool=dataset,
    )
    def counts_agree() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            serving = pipeline.manifest.serving_epochs(feed).get(LOAD, 1)
            newest = list(islice(pipeline.manifest.items(feed, reverse=True), NEWEST))
            records = {item.key: item.processed_by(Application(LOAD), serving) for item in newest}
            recorded = {key: record for key, record in records.items() if record and record.token is not None}
            shredded = {item.key: item.processed_by(Application(SHRED)) for item in newest}
            settings = pipeline.config.warehouse
        wrong = []
        if recorded:
            with closing(open_warehouse(settings, dataset, read_only=True)) as reader:
                applied = {entry.position: entry.rows for entry in reader.ledger(feed, serving, after=min(recorded).sort)}
            wrong = [
                key.name
                for key, record in recorded.items()
                if applied.get(key.position) != record.data["rows"] or not _all_loaded(shredded[key], record)
            ]
        rows = sum(sum(record.data["rows"].values()) for record in recorded.values())
        return check_result(
            passed=not wrong, metadata={"windows": len(recorded), "rows": rows, "wrong": ", ".join(sorted(wrong))}
        )

    return counts_agree


def _all_loaded(shredded: Record | None, loaded: Record) -> bool:
    """Whether every record of the source is a row of a load: of a table, of its deletes, or of the bad ones."""
    return shredded is None or shredded.data["good"] + shredded.data["bad"] == sum(loaded.data["rows"].values())
