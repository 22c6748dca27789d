"""Reports of landing roots in Dagster, shared by the listing sensor, the drain that looks first, and a check."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import dagster as dg

from manifest_platform.operations.landing import abandoned, incomplete, left_alone
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.events import check_result
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import DiscoveryReport, Pipeline
from manifest_platform.pipeline.discovery import discover, glance
from manifest_platform.sources.errors import LandingError

SHOWN_AT_ONCE = 1000
"""The number of new directories that a drain reports itself; the sensor reports the rest."""


def log_findings(log: logging.Logger, pipeline: Pipeline, report: DiscoveryReport) -> None:
    """Logs the directories that were left alone or skipped, and the reasons."""
    for problem, names in (
        ("rewritten after discovery", report.changed),
        ("known under another URI", report.moved),
        ("landed under another name too", report.doubled),
        ("dated in the future", report.future),
        ("could not be listed", report.unreadable),
    ):
        if names:
            log.warning(f"{problem}, left alone: {', '.join(names)}")
    if report.unparseable:
        log.warning(f"left alone: {left_alone(pipeline, report.unparseable)}")
    if waiting := abandoned(report.waiting, pipeline.clock()):
        log.warning(incomplete(pipeline, waiting))
    if report.linked:
        log.warning(f"will fail, because links are not followed: {', '.join(report.linked)}")
    if report.skipped:
        log.info(f"skipped by a rule: {', '.join(report.skipped)}")


def register(
    context: dg.OpExecutionContext, pipeline: Pipeline, names: Names, feeds: Sequence[str]
) -> Iterator[dg.AssetMaterialization]:
    """Registers the new directories of some feeds, and yields a materialization for each. Raises LandingError."""
    report = discover(pipeline, feeds=feeds)
    log_findings(context.log, pipeline, report)
    registered = set(report.registered)
    new = sorted((one for one in report.landed if one.key.name in registered), key=lambda one: one.key)
    waits = f", {len(report.incomplete):,} not complete yet" if report.incomplete else ""
    context.log.info(f"{len(new):,} new directories{waits}")
    for feed in feeds:
        if shown := [one for one in new if one.key.feed == feed][:SHOWN_AT_ONCE]:
            partitions = names.partitions(feed).name or ""
            context.instance.add_dynamic_partitions(partitions, [one.key.name for one in shown])
            yield from (metadata.landed_event(names, one) for one in shown)


REGISTERED = "what_landed_is_registered"
REGISTERED_WORDS = "Everything that has landed is registered, or is still being written."


def left_out(pipeline: Pipeline, reports: Iterable[DiscoveryReport]) -> dg.AssetCheckResult:
    """Evaluates the check: warns of entries in the landing root that will not become items by themselves, with the remedy."""
    told: list[str] = []
    counts = {"incomplete": 0, "unparseable": 0, "unreadable": 0}
    for report in reports:
        waiting = abandoned(report.waiting, pipeline.clock())
        told += [incomplete(pipeline, waiting)] if waiting else []
        told += [f"left alone: {left_alone(pipeline, report.unparseable)}"] if report.unparseable else []
        told += [f"could not be listed: {'; '.join(report.unreadable[:3])}"] if report.unreadable else []
        counts["incomplete"] += len(waiting)
        counts["unparseable"] += len(report.unparseable)
        counts["unreadable"] += len(report.unreadable)
    return check_result(
        passed=not told,
        severity=dg.AssetCheckSeverity.WARN,
        description=". ".join(told) or REGISTERED_WORDS,
        metadata=counts,
    )


def build_landing_check(wiring: Wiring) -> dg.AssetChecksDefinition:
    """Returns the check of a dataset's landing root. The sensor evaluates it at each look without another listing."""

    @dg.asset_check(asset=wiring.names.landed(wiring.source.main), name=REGISTERED, description=REGISTERED_WORDS)
    def what_landed_is_registered() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            try:
                return left_out(pipeline, [glance(pipeline, feed) for feed in pipeline.feeds])
            except LandingError as error:
                return check_result(passed=False, severity=dg.AssetCheckSeverity.WARN, description=str(error))

    return what_landed_is_registered
