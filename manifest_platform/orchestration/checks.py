"""Asset checks: rows landed = good + bad; rows shredded = rows in the warehouse; nothing behind the watermark; not blocked."""

from contextlib import closing
from datetime import UTC, datetime

import dagster as dg

from manifest_platform.manifest import Application, Blocked, Standing
from manifest_platform.manifest.dataset import PASSED, judge
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import FEED, LOAD, SHRED, Pipeline
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.duckdb import DuckDB

NOT_BLOCKED = "feed_not_blocked"


def feed_evaluation(pipeline: Pipeline) -> dg.AssetCheckEvaluation:
    """Whether a dataset's feed is blocked, as an evaluation of its check: by which run, why, since when, what helps."""
    result = _not_blocked(pipeline)
    return dg.AssetCheckEvaluation(
        check_name=NOT_BLOCKED,
        asset_key=dg.AssetKey([pipeline.name, "warehouse"]),
        passed=result.passed,
        metadata=dict(result.metadata),
        severity=result.severity,
        description=result.description,
    )


def _not_blocked(pipeline: Pipeline) -> dg.AssetCheckResult:
    survey = pipeline.manifest.survey(FEED, LOAD)
    lag = (datetime.now(UTC) - survey.oldest_waiting).total_seconds() if survey.oldest_waiting else 0.0
    shown = metadata.backlog_metadata(survey, lag)
    verdict = survey.verdict
    if not isinstance(verdict, Blocked) or verdict.standing in (Standing.WAITING, Standing.PROCESSING):
        return dg.AssetCheckResult(passed=True, metadata=shown, description="The feed is not blocked.")
    name, command = verdict.item.key.name, pipeline.command(verdict.command)
    return dg.AssetCheckResult(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"Blocked by {name}: {verdict.reason}. Do: {command}",
        metadata={
            **shown,
            "item": name,
            "reason": verdict.reason,
            "since": dg.MetadataValue.timestamp(verdict.since),
            "command": command,
        },
    )


def build_checks(dataset: str) -> list[dg.AssetChecksDefinition]:
    """The checks of one dataset."""
    shredded, warehouse = dg.AssetKey([dataset, "shredded"]), dg.AssetKey([dataset, "warehouse"])

    @dg.asset_check(asset=warehouse, name=NOT_BLOCKED, description="No run blocks the feed's order.")
    def feed_not_blocked(manifest: ManifestResource) -> dg.AssetCheckResult:
        with manifest.pipeline(dataset) as pipeline:
            return _not_blocked(pipeline)

    @dg.asset_check(asset=shredded, description="Lines landed = good events + bad rows, in every shredded run.")
    def rows_accounted_for(manifest: ManifestResource) -> dg.AssetCheckResult:
        wrong, runs, lines = [], 0, 0
        with manifest.pipeline(dataset) as pipeline:
            for item in pipeline.manifest.items(FEED):
                record = item.processed_by(Application(SHRED))
                if record is None:
                    continue
                runs, lines = runs + 1, lines + record.data["lines"]
                if record.data["lines"] != record.data["good"] + record.data["bad"]:
                    wrong.append(item.key.name)
        return dg.AssetCheckResult(passed=not wrong, metadata={"runs": runs, "lines": lines, "wrong": ", ".join(wrong)})

    @dg.asset_check(asset=warehouse, description="Rows shredded = rows in the warehouse, table by table.", pool=dataset)
    def rows_in_warehouse(manifest: ManifestResource) -> dg.AssetCheckResult:
        expected: dict[str, int] = {}
        with manifest.pipeline(dataset) as pipeline:
            serving = pipeline.manifest.state(Application(LOAD)).feed(FEED).serving_epoch
            for item in pipeline.manifest.items(FEED):
                record = item.processed_by(Application(LOAD), serving)
                for table, rows in (record.data["rows"] if record else {}).items():
                    expected[table] = expected.get(table, 0) + rows
            path = pipeline.config.warehouse.path
        found: dict[str, int] = {}
        if expected:
            with closing(Warehouse(DuckDB(path, read_only=True), dataset)) as reader:
                found = reader.row_counts()
        wrong = sorted(table for table, rows in expected.items() if found.get(table, 0) != rows)  # others are the user's
        shown = metadata.counts("table", {"shredded": expected, "warehouse": found})
        return dg.AssetCheckResult(passed=not wrong, metadata={"tables": shown, "wrong": ", ".join(wrong)})

    @dg.asset_check(asset=warehouse, description="Every run up to the watermark is loaded, skipped, or known to be late.")
    def nothing_behind_watermark(manifest: ManifestResource) -> dg.AssetCheckResult:
        behind, late = [], []
        with manifest.pipeline(dataset) as pipeline:
            step = pipeline.manifest.step(FEED, LOAD)
            feed = pipeline.manifest.state(step.application).feed(FEED)
            for item in pipeline.manifest.items(FEED):
                if item.key.position > feed.watermark:
                    break
                if judge(item, step, feed).standing not in PASSED:
                    (late if item.is_late_for(step.application) else behind).append(item.key.name)
        return dg.AssetCheckResult(passed=not behind, metadata={"behind": ", ".join(behind), "late": ", ".join(late)})

    return [feed_not_blocked, rows_accounted_for, rows_in_warehouse, nothing_behind_watermark]
