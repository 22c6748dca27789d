"""Checks of a feed: rows are accounted for, everything shredded is in the warehouse, and the feed is neither late nor blocked.

The checks of every feed, and those that its source declares. Drains and the listing sensor evaluate them too.
"""

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from manifest_platform.manifest import Application, Blocked, FeedState, Ready, Record, State, Survey, Verdict
from manifest_platform.manifest.dataset import PASSED, judge, position_name
from manifest_platform.operations.bad_rows import NEWEST as BAD_ROWS
from manifest_platform.operations.bad_rows import bad_rows
from manifest_platform.operations.load_checks import newest_outcome
from manifest_platform.operations.standing import behind
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.blocks import Block
from manifest_platform.orchestration.events import check_result
from manifest_platform.orchestration.full import NO_FULL_LOAD, build_full_check, no_full_load
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.landed import build_landing_check
from manifest_platform.orchestration.remark_checks import FIT, FIT_WORDS, tables_fit
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import SHRED, Loaded, Pipeline
from manifest_platform.pipeline.chain import Broken, broken
from manifest_platform.quantities import duration
from manifest_platform.sources.source import CheckResult, Source, SourceCheck, Stage
from manifest_platform.warehouse.apply import Warehouse, open_warehouse
from manifest_platform.warehouse.checks import CheckSettings
from manifest_platform.warehouse.errors import Unavailable

log = logging.getLogger(__name__)

NOT_BLOCKED = "feed_not_blocked"
NOT_STOPPED = "producer_not_stopped"
LAG = "lag"
BEHIND = "nothing_behind_watermark"
APPLIED = "applied"
NEWEST = 2000
"""The number of newest items that a check looks at, for checks whose cost would grow without limit."""
AT_A_DRAIN = 200
"""The number of newest items that a check looks at when a drain evaluates it."""
COUNTED_EVERY = timedelta(minutes=10)
"""The pause between two counts of a warehouse's rows by drains, and between two drains that only evaluate checks."""


def _feed_evaluation(pipeline: Pipeline, names: Names, feed: str) -> dg.AssetCheckEvaluation:
    return evaluation(names.warehouse(feed), NOT_BLOCKED, _not_blocked(pipeline, feed))


def _lag_evaluation(pipeline: Pipeline, names: Names, feed: str) -> dg.AssetCheckEvaluation:
    return evaluation(names.warehouse(feed), LAG, _lag(pipeline, feed))


Evaluation = tuple[str, str | None, Callable[[], dg.AssetCheckEvaluation]]
"""The check's name with its asset; its current finding as text; a function that makes the evaluation."""


def evaluations(
    pipeline: Pipeline, names: Names, now: datetime, verdict: Callable[[str], Verdict], refused: Mapping[str, Broken]
) -> Iterator[Evaluation]:
    """Yields the checks that the listing sensor evaluates: blocked feeds, lag, the source's checks, needed full loads."""
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
        if names.target == names.targets[0]
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
    """Returns a check's result as an event of its asset."""
    return dg.AssetCheckEvaluation(
        check_name=check,
        asset_key=asset,
        passed=result.passed,
        metadata=dict(result.metadata),
        severity=result.severity,
        description=result.description,
    )


def _lag_seconds(survey: Survey) -> float:
    """The age in seconds of the oldest item that waits."""
    return (datetime.now(UTC) - survey.oldest_waiting).total_seconds() if survey.oldest_waiting else 0.0


NOT_BLOCKED_WORDS = "The feed is not blocked."


def _not_blocked(pipeline: Pipeline, feed: str, _newest: int = NEWEST) -> dg.AssetCheckResult:
    survey = pipeline.manifest.survey(feed, pipeline.load.key)
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
    """Checks that directories arrive as often as configured.

    The description contains no age, because the sensor reports each description that changes.
    """
    state = pipeline.manifest.state(pipeline.load)
    full = pipeline.manifest.step(feed, pipeline.load.key).order == "full"
    found = behind(pipeline, feed, state.boundary if full else position_name(feed, state.feed(feed).watermark) or None)
    if found is None:
        return check_result(passed=True, description="Nothing is loaded yet.")
    every = duration(found.expected_seconds)
    stopped = f"Nothing arrived after {found.watermark}; a directory is expected every {every}. The producer may have stopped."
    return check_result(
        passed=not found.stopped,
        severity=dg.AssetCheckSeverity.WARN,
        description=stopped if found.stopped else f"A directory arrived within {every}.",
        metadata={
            "watermark": found.watermark,
            "behind_seconds": round(found.seconds, 1),
            "expected_every_seconds": found.expected_seconds,
        },
    )


@dataclass(frozen=True)
class FeedCheck:
    """A check that every feed has. `find`: evaluates it for a feed, limited to a number of its newest items."""

    name: str
    stage: Stage
    description: str
    find: Callable[[Pipeline, str, int], dg.AssetCheckResult]
    reads_warehouse: bool = False


def checks_of(source: Source, feed: str) -> list[FeedCheck]:
    """Returns the checks of a feed."""
    most = source.settings.shred.bad_rows.max_share
    watched = FeedCheck(NOT_STOPPED, Stage.WAREHOUSE, "A directory arrives as often as configured.", _not_stopped)
    return [
        FeedCheck(NOT_BLOCKED, Stage.WAREHOUSE, "No directory blocks the feed's order.", _not_blocked),
        FeedCheck(LAG, Stage.WAREHOUSE, "No directory has waited longer than the configuration allows.", _lag),
        FeedCheck(
            "rows_accounted_for",
            Stage.SHREDDED,
            "Lines landed = good events + bad rows + natural duplicates, in the newest shredded directories.",
            _rows_accounted_for,
        ),
        FeedCheck(
            "few_bad_rows",
            Stage.SHREDDED,
            f"None of the newest directories has more than {most:.1%} bad rows.",
            _few_bad_rows,
        ),
        FeedCheck(FIT, Stage.SHREDDED, FIT_WORDS, tables_fit),
        FeedCheck(
            BEHIND,
            Stage.WAREHOUSE,
            "The newest directories up to the watermark are loaded, skipped or known to be late. `doctor` checks all.",
            _nothing_behind_watermark,
        ),
        *([watched] if feed in source.settings.landing.expected_every_seconds else []),
        *(_load_check(check) for check in source.settings.load.checks if check.feed in (None, feed)),
        _COUNTS[source.appends],
    ]


def checks_of_target(names: Names, source: Source, feed: str, target: str) -> list[FeedCheck]:
    """Returns the checks of a feed for a target. Those of shredding are only among the first target's."""
    first = target == names.targets[0]
    return [check for check in checks_of(source, feed) if first or check.stage is Stage.WAREHOUSE]


def _load_check(check: CheckSettings) -> FeedCheck:
    """Returns the check that shows the newest outcome of a check of the feed's loads."""
    said = f"Check {check.name} of load.checks ({check.kind}, {check.severity}) passed in the newest load that it applies to."
    return FeedCheck(f"check_{check.name}", Stage.WAREHOUSE, said, partial(_load_checked, check))


def _load_checked(check: CheckSettings, pipeline: Pipeline, feed: str, _newest: int) -> dg.AssetCheckResult:
    outcome = newest_outcome(pipeline, feed, check)
    if outcome is None:
        return check_result(passed=True, description="No load was checked yet.")
    shown: dict[str, Any] = {"item": outcome.item}
    for one in outcome.tables:
        name = f" of {one.table}" if len(outcome.tables) > 1 else ""
        values = {"table": one.table, "value": one.value, "found": one.found, "limit": one.limit}
        shown |= {f"{key}{name}": value for key, value in values.items() if value not in (None, "")}
    return check_result(
        passed=outcome.passed,
        severity=dg.AssetCheckSeverity.ERROR if check.severity == "error" else dg.AssetCheckSeverity.WARN,
        description=outcome.text,
        metadata=shown,
    )


def build_checks(wiring: Wiring) -> list[dg.AssetChecksDefinition]:
    """Returns the checks of a dataset: those of every feed, those that its source declares, and that of its full loads."""
    source = wiring.source
    checks = [
        _check(wiring, feed, check, target)
        for target in wiring.names.targets
        for feed in source.feeds
        for check in checks_of_target(wiring.names, source, feed, target)
    ]
    checks += [build_landing_check(wiring)]
    checks += [_declared(wiring, check) for check in source.checks]
    targets = wiring.names.targets if source.snapshots else ()
    return [*checks, *(build_full_check(wiring, target) for target in targets)]


def _check(wiring: Wiring, feed: str, check: FeedCheck, target: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=wiring.names.at(target).stage(feed, check.stage),
        name=check.name,
        description=check.description,
        pool=f"{wiring.dataset}_checks" if check.reads_warehouse else None,
    )
    def evaluated() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return check.find(pipeline.at(target), feed, NEWEST)

    return evaluated


def _declared(wiring: Wiring, check: SourceCheck) -> dg.AssetChecksDefinition:
    """Returns a check that the source declares."""

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


# Evaluation by drains


def evaluated_by_a_drain(
    pipeline: Pipeline, names: Names, feed: str, instance: dg.DagsterInstance
) -> Iterator[dg.AssetCheckEvaluation]:
    """Evaluates the checks of a feed at the end of a drain, limited to the newest items so that it takes a moment.

    A check that counts the rows of a warehouse may take long. It is skipped if it was evaluated within the last ten minutes, or
    if another process has the warehouse open.
    """
    for check in checks_of_target(names, pipeline.source, feed, names.target):
        asset = names.stage(feed, check.stage)
        if check.reads_warehouse and _is_recent(_evaluated_last(instance, asset, check.name)):
            continue
        try:
            yield evaluation(asset, check.name, check.find(pipeline, feed, AT_A_DRAIN))
        except Unavailable as error:
            log.info("%s of %s is not evaluated now: %s", check.name, asset.to_user_string(), error)


def rows_held(pipeline: Pipeline, names: Names, loaded: Collection[Loaded], instance: dg.DagsterInstance) -> dict[str, int]:
    """Returns the row counts of the tables that loads reached; empty if they cannot be counted now. An error fails no load.

    On a warehouse where counting takes longer for larger tables, counts are skipped if the last were made within ten minutes.
    """
    feeds = {one.key.feed for one in loaded}
    reached = {table.name for one in loaded for table in one.tables}
    if not reached:
        return {}
    try:
        if not pipeline.engine_settings.counts_at_once:
            counting = [(feed, check) for feed in feeds for check in checks_of(pipeline.source, feed) if check.reads_warehouse]
            if any(_is_recent(_evaluated_last(instance, names.stage(feed, one.stage), one.name)) for feed, one in counting):
                return {}
        with _reading(pipeline) as reader:
            return reader.row_counts(reached)
    except Exception as error:  # the load is committed and must not fail because counting does
        log.warning("the rows of %s are not counted now: %s", ", ".join(sorted(reached)), error)
        return {}


def unchecked(names: Names, feed: str, standing: FeedState, instance: dg.DagsterInstance) -> str | None:
    """Returns a text if a feed was loaded outside Dagster since its checks were last evaluated, else None.

    The text changes with what was loaded. Returns None within ten minutes of the last evaluation.
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
    """The loaded state of a feed, as text: the number of applied items and the watermark."""
    return f"{standing.applied} as of {standing.watermark.partition('#')[0]}"


def _evaluated_last(instance: dg.DagsterInstance, asset: dg.AssetKey, check: str) -> AssetCheckExecutionRecord | None:
    key = dg.AssetCheckKey(asset, check)
    return instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)


def _is_recent(last: AssetCheckExecutionRecord | None) -> bool:
    return last is not None and datetime.now(UTC).timestamp() - last.create_timestamp < COUNTED_EVERY.total_seconds()


# Evaluations


def _lag(pipeline: Pipeline, feed: str, _newest: int = NEWEST) -> dg.AssetCheckResult:
    survey = pipeline.manifest.survey(feed, pipeline.load.key)
    most, seconds = pipeline.dataset.load.max_lag_seconds, _lag_seconds(survey)
    return check_result(
        passed=seconds <= most,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"The oldest directory has waited for {seconds:,.0f} s; {most:,.0f} s are allowed.",
        metadata={"lag_seconds": round(seconds, 1), "backlog": sum(survey.counts.values()), "more": survey.more},
    )


def _lags(pipeline: Pipeline, verdict: Verdict, now: datetime) -> str | None:
    """Returns a text if the next item has waited too long, for the sensor to report; None otherwise."""
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
        left_out = record.data.get("duplicates", {}).get("natural", 0)
        if record.data["lines"] != record.data["good"] + record.data["bad"] + left_out:
            wrong.append(item.key.name)
    return check_result(passed=not wrong, metadata={"runs": items, "lines": lines, "wrong": ", ".join(sorted(wrong))})


def _few_bad_rows(pipeline: Pipeline, feed: str, _newest: int) -> dg.AssetCheckResult:
    found = bad_rows(feed, pipeline.manifest.newest(feed, BAD_ROWS, State.PROCESSED))
    above = found.above(pipeline.dataset.shred.bad_rows.max_share)
    named = "".join(f"; {item.name}: {item.bad:,} of {item.lines:,}" for item in above[:5])
    return check_result(
        passed=not above,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{found.bad:,} of {found.lines:,} lines in the newest {found.items:,} directories are bad{named}.",
        metadata={"runs": found.items, "lines": found.lines, "bad": found.bad, "above": len(above)},
    )


def _nothing_behind_watermark(pipeline: Pipeline, feed: str, newest: int) -> dg.AssetCheckResult:
    behind, late = [], []
    step = pipeline.manifest.step(feed, pipeline.load.key)
    standing = pipeline.manifest.state(step.application).feed(feed)
    passed = pipeline.manifest.items(feed, after=f"{standing.watermark}#~", reverse=True) if standing.watermark else ()
    for item in islice(passed, newest):
        if judge(item, step, standing).standing not in PASSED:
            (late if item.is_late_for(step.application) else behind).append(item.key.name)
    shown = {"behind": ", ".join(sorted(behind)), "late": ", ".join(sorted(late)), APPLIED: _stands(standing)}
    return check_result(passed=not behind, metadata=shown)


@contextmanager
def _reading(pipeline: Pipeline) -> Generator[Warehouse]:
    """Yields a warehouse to read from: the pipeline's, if it is open, else a new connection. Raises Unavailable."""
    if "warehouse" in pipeline.__dict__:
        yield pipeline.warehouse
        return
    with closing(open_warehouse(pipeline.engine_settings, pipeline.name, pipeline.schema, read_only=True)) as reader:
        yield reader


def _rows_in_warehouse(pipeline: Pipeline, feed: str, newest: int) -> dg.AssetCheckResult:
    """Compares the row counts of append-only tables with the sums of the loads in the ledger."""
    expected: dict[str, int] = {}
    found: dict[str, int] = {}
    removed: dict[str, int] = {}
    unlike: list[str] = []
    standing = pipeline.manifest.state(pipeline.load).feed(feed)
    if standing.applied:
        items = islice(pipeline.manifest.items(feed, reverse=True), newest)
        records = {item.key: item.processed_by(pipeline.load, standing.serving_epoch) for item in items}
        told = {key: record for key, record in records.items() if record and record.token is not None}
        since = min(told).sort if told else ""
        with _reading(pipeline) as reader:
            found, expected = reader.row_counts(), reader.applied_rows(feed, standing.serving_epoch)
            removed = reader.removed_rows()
            newer = reader.ledger(feed, standing.serving_epoch, after=since) if told else ()
            applied = {entry.position: entry.rows for entry in newer}
        unlike = sorted(key.name for key, record in told.items() if applied.get(key.position) != record.data["rows"])
    wrong = sorted(  # other tables are the user's
        table for table, rows in expected.items() if found.get(table, 0) + removed.get(table, 0) != rows
    )
    counted = {"ledger": expected, "warehouse": found, **({"removed as old": removed} if removed else {})}
    shown = metadata.counts("table", counted)
    return check_result(
        passed=not wrong and not unlike,
        metadata={"tables": shown, "wrong": ", ".join(wrong), "unlike": ", ".join(unlike)},
    )


def _counts_agree(pipeline: Pipeline, feed: str, newest: int) -> dg.AssetCheckResult:
    """Compares rows directory by directory, because rows that are loaded by key cannot be summed."""
    serving = pipeline.manifest.serving_epochs(feed).get(pipeline.load.key, 1)
    items = list(islice(pipeline.manifest.items(feed, reverse=True), newest))
    records = {item.key: item.processed_by(pipeline.load, serving) for item in items}
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
    """True if every record of the source became a row of the load: of a table, of its deletes, or a bad row."""
    return shredded is None or shredded.data["good"] + shredded.data["bad"] == sum(loaded.data["rows"].values())


_COUNTS = {
    True: FeedCheck(
        "rows_in_warehouse",
        Stage.WAREHOUSE,
        "Rows in the ledger = rows in the tables + old rows removed; and the manifest agrees for the newest directories.",
        _rows_in_warehouse,
        reads_warehouse=True,
    ),
    False: FeedCheck(
        "counts_agree",
        Stage.WAREHOUSE,
        "Rows shredded = rows loaded = rows in the ledger, for each of the newest directories.",
        _counts_agree,
        reads_warehouse=True,
    ),
}
"""The check that compares rows, by whether the source's tables are append-only."""
