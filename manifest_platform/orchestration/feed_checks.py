"""Checks of a feed: what landed is accounted for, what was shredded is in the warehouse, nothing is behind or blocked.

Belongs here: the checks that every feed has, and those that its source declares.
"""

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from manifest_platform.manifest import Application, Blocked, FeedState, Ready, Record, State, Survey, Verdict
from manifest_platform.manifest.dataset import PASSED, judge, position_name
from manifest_platform.operations.bad_rows import NEWEST as BAD_ROWS
from manifest_platform.operations.bad_rows import bad_rows
from manifest_platform.operations.standing import behind
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.blocks import Block
from manifest_platform.orchestration.events import check_result
from manifest_platform.orchestration.full import NO_FULL_LOAD, build_full_check, no_full_load
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.landed import build_landing_check
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import LOAD, SHRED, Loaded, Pipeline
from manifest_platform.pipeline.chain import Broken, broken
from manifest_platform.quantities import duration
from manifest_platform.sources.source import CheckResult, Source, SourceCheck, Stage
from manifest_platform.warehouse.apply import Warehouse, open_warehouse
from manifest_platform.warehouse.errors import Unavailable

log = logging.getLogger(__name__)

NOT_BLOCKED = "feed_not_blocked"
NOT_STOPPED = "producer_not_stopped"
LAG = "lag"
BEHIND = "nothing_behind_watermark"
APPLIED = "applied"
NEWEST = 2000
"""How many of the newest items a check looks at that would cost ever more otherwise."""
AT_A_DRAIN = 200
"""How many when a drain evaluates it."""
COUNTED_EVERY = timedelta(minutes=10)
"""How often drains have the rows of a warehouse counted, and how often one is asked for to evaluate checks alone."""


def _feed_evaluation(pipeline: Pipeline, names: Names, feed: str) -> dg.AssetCheckEvaluation:
    return evaluation(names.warehouse(feed), NOT_BLOCKED, _not_blocked(pipeline, feed))


def _lag_evaluation(pipeline: Pipeline, names: Names, feed: str) -> dg.AssetCheckEvaluation:
    return evaluation(names.warehouse(feed), LAG, _lag(pipeline, feed))


Evaluation = tuple[str, str | None, Callable[[], dg.AssetCheckEvaluation]]
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
        yield (
            f"{names.warehouse(feed).to_user_string()} {NOT_BLOCKED}",
            described,
            partial(_feed_evaluation, pipeline, names, feed),
        )
        yield (
            f"{names.warehouse(feed).to_user_string()} {LAG}",
            _lags(pipeline, verdict(feed), now),
            partial(_lag_evaluation, pipeline, names, feed),
        )
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


def _lag_seconds(survey: Survey) -> float:
    """For how many seconds the oldest waiting item has been known."""
    return (datetime.now(UTC) - survey.oldest_waiting).total_seconds() if survey.oldest_waiting else 0.0


NOT_BLOCKED_WORDS = "The feed is not blocked."


def _not_blocked(pipeline: Pipeline, feed: str, _newest: int = NEWEST) -> dg.AssetCheckResult:
    survey = pipeline.manifest.survey(feed, LOAD)
    shown = metadata.backlog_metadata(survey, _lag_seconds(survey))
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


def _not_stopped(pipeline: Pipeline, feed: str, _newest: int = NEWEST) -> dg.AssetCheckResult:
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


@dataclass(frozen=True)
class FeedCheck:
    """A check that every feed has. `find`: what it finds of a feed, looking at so many of its newest items."""

    name: str
    stage: Stage
    description: str
    find: Callable[[Pipeline, str, int], dg.AssetCheckResult]
    reads_warehouse: bool = False


def checks_of(source: Source, feed: str) -> list[FeedCheck]:
    """The checks of a feed."""
    most = source.settings.shred.bad_rows.max_share
    watched = FeedCheck(NOT_STOPPED, Stage.WAREHOUSE, "A directory comes as often as the configuration expects.", _not_stopped)
    return [
        FeedCheck(NOT_BLOCKED, Stage.WAREHOUSE, "No directory blocks the feed's order.", _not_blocked),
        FeedCheck(LAG, Stage.WAREHOUSE, "No directory has waited for longer than the configuration allows.", _lag),
        FeedCheck(
            "rows_accounted_for",
            Stage.SHREDDED,
            "Lines landed = good events + bad rows, in the newest that were shredded.",
            _rows_accounted_for,
        ),
        FeedCheck(
            "few_bad_rows",
            Stage.SHREDDED,
            f"None of the newest directories has more than {most:.1%} bad rows.",
            _few_bad_rows,
        ),
        FeedCheck(
            BEHIND,
            Stage.WAREHOUSE,
            "The newest up to the watermark are loaded, skipped, or known to be late; doctor sees all.",
            _nothing_behind_watermark,
        ),
        *([watched] if feed in source.settings.landing.expected_every_seconds else []),
        _COUNTS[source.appends],
    ]


def build_checks(wiring: Wiring) -> list[dg.AssetChecksDefinition]:
    """The checks of a dataset: those of every feed, those that its source declares, and of its snapshots."""
    source = wiring.source
    checks = [_check(wiring, feed, check) for feed in source.feeds for check in checks_of(source, feed)]
    checks += [build_landing_check(wiring)]
    checks += [_declared(wiring, check) for check in source.checks]
    return [*checks, build_full_check(wiring)] if source.snapshots else checks


def _check(wiring: Wiring, feed: str, check: FeedCheck) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=wiring.names.stage(feed, check.stage),
        name=check.name,
        description=check.description,
        pool=f"{wiring.dataset}_checks" if check.reads_warehouse else None,
    )
    def evaluated() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return check.find(pipeline, feed, NEWEST)

    return evaluated


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


# Unattended


def evaluated_by_a_drain(
    pipeline: Pipeline, names: Names, feed: str, instance: dg.DagsterInstance
) -> Iterator[dg.AssetCheckEvaluation]:
    """The checks of a feed, as a drain evaluates them when it has done its work: of the newest, in a moment.

    What counts the rows of a warehouse may take long: it is left out within ten minutes of the last time, and where another
    process has the warehouse open.
    """
    for check in checks_of(pipeline.source, feed):
        asset = names.stage(feed, check.stage)
        if check.reads_warehouse and _is_recent(_evaluated_last(instance, asset, check.name)):
            continue
        try:
            yield evaluation(asset, check.name, check.find(pipeline, feed, AT_A_DRAIN))
        except Unavailable as error:
            log.info("%s of %s is not evaluated now: %s", check.name, asset.to_user_string(), error)


def rows_held(pipeline: Pipeline, names: Names, loaded: Collection[Loaded], instance: dg.DagsterInstance) -> dict[str, int]:
    """The row counts of the tables that loads reached; empty where they cannot be counted now, which fails no load.

    Where counting takes as long as a table is large, it is left out within ten minutes of the last count, as that check is.
    """
    feeds = {one.key.feed for one in loaded}
    reached = {table.name for one in loaded for table in one.tables}
    if not reached:
        return {}
    try:
        if not pipeline.config.warehouse.counts_at_once:
            counting = [(feed, check) for feed in feeds for check in checks_of(pipeline.source, feed) if check.reads_warehouse]
            if any(_is_recent(_evaluated_last(instance, names.stage(feed, one.stage), one.name)) for feed, one in counting):
                return {}
        with _reading(pipeline) as reader:
            return reader.row_counts(reached)
    except Exception as error:  # the rows are loaded, whatever is wrong with counting them
        log.warning("the rows of %s are not counted now: %s", ", ".join(sorted(reached)), error)
        return {}


def unchecked(names: Names, feed: str, standing: FeedState, instance: dg.DagsterInstance) -> str | None:
    """What was loaded since the checks of a feed were evaluated last, as by the command line: text that changes with it.

    None within ten minutes of the last time.
    """
    if not standing.applied:
        return None
    last = _evaluated_last(instance, names.warehouse(feed), BEHIND)
    if _is_recent(last):
        return None
    told = last.evaluation.metadata.get(APPLIED) if last and last.evaluation else None
    stands = _stands(standing)
    return None if told is not None and told.value == stands else f"check {feed}: {stands}"


def _stands(standing: FeedState) -> str:
    """How far a feed is loaded."""
    return f"{standing.applied} as of {standing.watermark.partition('#')[0]}"


def _evaluated_last(instance: dg.DagsterInstance, asset: dg.AssetKey, check: str) -> AssetCheckExecutionRecord | None:
    key = dg.AssetCheckKey(asset, check)
    return instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)


def _is_recent(last: AssetCheckExecutionRecord | None) -> bool:
    return last is not None and datetime.now(UTC).timestamp() - last.create_timestamp < COUNTED_EVERY.total_seconds()


# What they find


def _lag(pipeline: Pipeline, feed: str, _newest: int = NEWEST) -> dg.AssetCheckResult:
    survey = pipeline.manifest.survey(feed, LOAD)
    most, seconds = pipeline.dataset.load.max_lag_seconds, _lag_seconds(survey)
    return check_result(
        passed=seconds <= most,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"The oldest has waited for {seconds:,.0f} s; allowed are {most:,.0f} s.",
        metadata={"lag_seconds": round(seconds, 1), "backlog": sum(survey.counts.values()), "more": survey.more},
    )


def _lags(pipeline: Pipeline, verdict: Verdict, now: datetime) -> str | None:
    """Text where what comes next has waited for too long, for the sensor to tell of it; None where it has not."""
    if not isinstance(verdict, Blocked | Ready):
        return None
    seconds = (now - verdict.item.records[0].timestamp).total_seconds()
    return "too long" if seconds > pipeline.dataset.load.max_lag_seconds else None


def _rows_accounted_for(pipeline: Pipeline, feed: str, newest: int) -> dg.AssetCheckResult:
    wrong, items, lines = [], 0, 0
    for item in islice(pipeline.manifest.items(feed, reverse=True), newest):
        record = item.processed_by(Application(SHRED))
        if record is None:
            continue
        items, lines = items + 1, lines + record.data["lines"]
        if record.data["lines"] != record.data["good"] + record.data["bad"]:
            wrong.append(item.key.name)
    return check_result(passed=not wrong, metadata={"runs": items, "lines": lines, "wrong": ", ".join(sorted(wrong))})


def _few_bad_rows(pipeline: Pipeline, feed: str, _newest: int) -> dg.AssetCheckResult:
    found = bad_rows(feed, pipeline.manifest.newest(feed, BAD_ROWS, State.PROCESSED))
    above = found.above(pipeline.dataset.shred.bad_rows.max_share)
    named = "".join(f"; {item.name}: {item.bad:,} of {item.lines:,}" for item in above[:5])
    return check_result(
        passed=not above,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"Bad are {found.bad:,} of {found.lines:,} lines of the newest {found.items:,}{named}.",
        metadata={"runs": found.items, "lines": found.lines, "bad": found.bad, "above": len(above)},
    )


def _nothing_behind_watermark(pipeline: Pipeline, feed: str, newest: int) -> dg.AssetCheckResult:
    behind, late = [], []
    step = pipeline.manifest.step(feed, LOAD)
    standing = pipeline.manifest.state(step.application).feed(feed)
    passed = pipeline.manifest.items(feed, after=f"{standing.watermark}#~", reverse=True) if standing.watermark else ()
    for item in islice(passed, newest):
        if judge(item, step, standing).standing not in PASSED:
            (late if item.is_late_for(step.application) else behind).append(item.key.name)
    shown = {"behind": ", ".join(sorted(behind)), "late": ", ".join(sorted(late)), APPLIED: _stands(standing)}
    return check_result(passed=not behind, metadata=shown)


@contextmanager
def _reading(pipeline: Pipeline) -> Generator[Warehouse]:
    """The warehouse to read in: the one that this process has open, else one of its own. Raises Unavailable."""
    if "warehouse" in pipeline.__dict__:
        yield pipeline.warehouse
        return
    with closing(open_warehouse(pipeline.config.warehouse, pipeline.name, read_only=True)) as reader:
        yield reader


def _rows_in_warehouse(pipeline: Pipeline, feed: str, newest: int) -> dg.AssetCheckResult:
    """For tables that only append: what they hold is the sum of what was loaded."""
    expected: dict[str, int] = {}
    found: dict[str, int] = {}
    unlike: list[str] = []
    standing = pipeline.manifest.state(Application(LOAD)).feed(feed)
    if standing.applied:
        items = islice(pipeline.manifest.items(feed, reverse=True), newest)
        records = {item.key: item.processed_by(Application(LOAD), standing.serving_epoch) for item in items}
        told = {key: record for key, record in records.items() if record and record.token is not None}
        since = min(told).sort if told else ""
        with _reading(pipeline) as reader:
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


def _counts_agree(pipeline: Pipeline, feed: str, newest: int) -> dg.AssetCheckResult:
    """What is loaded by key cannot be summed, so it is compared directory by directory."""
    serving = pipeline.manifest.serving_epochs(feed).get(LOAD, 1)
    items = list(islice(pipeline.manifest.items(feed, reverse=True), newest))
    records = {item.key: item.processed_by(Application(LOAD), serving) for item in items}
    recorded = {key: record for key, record in records.items() if record and record.token is not None}
    shredded = {item.key: item.processed_by(Application(SHRED)) for item in items}
    wrong = []
    if recorded:
        with _reading(pipeline) as reader:
            applied = {entry.position: entry.rows for entry in reader.ledger(feed, serving, after=min(recorded).sort)}
        wrong = [
            key.name
            for key, record in recorded.items()
            if applied.get(key.position) != record.data["rows"] or not _all_loaded(shredded[key], record)
        ]
    rows = sum(sum(record.data["rows"].values()) for record in recorded.values())
    return check_result(passed=not wrong, metadata={"windows": len(recorded), "rows": rows, "wrong": ", ".join(sorted(wrong))})


def _all_loaded(shredded: Record | None, loaded: Record) -> bool:
    """Whether every record of the source is a row of a load: of a table, of its deletes, or of the bad ones."""
    return shredded is None or shredded.data["good"] + shredded.data["bad"] == sum(loaded.data["rows"].values())


_COUNTS = {
    True: FeedCheck(
        "rows_in_warehouse",
        Stage.WAREHOUSE,
        "Rows by the warehouse's ledger = rows in its tables; and the manifest says the same of the newest.",
        _rows_in_warehouse,
        reads_warehouse=True,
    ),
    False: FeedCheck(
        "counts_agree",
        Stage.WAREHOUSE,
        "Rows shredded = rows loaded = rows in the warehouse's ledger, directory by directory, among the newest.",
        _counts_agree,
        reads_warehouse=True,
    ),
}
"""What compares rows: by whether the source's tables only append."""
