"""What a look at a landing root found, told in Dagster: by the sensor that lists it, and by a drain that looks first."""

import logging
from collections.abc import Iterator, Sequence

import dagster as dg

from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.keys import Names
from manifest_platform.pipeline import DiscoveryReport, Pipeline
from manifest_platform.pipeline.discovery import discover

SHOWN_AT_ONCE = 1000
"""New directories that a drain shows itself; the sensor shows the others."""


def log_findings(log: logging.Logger, pipeline: Pipeline, report: DiscoveryReport) -> None:
    """Says in a log what was left alone or passed over, and why."""
    for problem, names in (
        ("rewritten after discovery", report.changed),
        ("known under another URI", report.moved),
        ("landed under another name too", report.doubled),
        ("dated in the future", report.future),
        ("could not be listed", report.unreadable),
        (f"not {pipeline.source.words.form}", report.unparseable),
    ):
        if names:
            log.warning(f"{problem}, left alone: {', '.join(names)}")
    if report.linked:
        log.warning(f"will fail, for what is not followed: {', '.join(report.linked)}")
    if report.skipped:
        log.info(f"skipped by a rule: {', '.join(report.skipped)}")


def register(
    context: dg.OpExecutionContext, pipeline: Pipeline, names: Names, feeds: Sequence[str]
) -> Iterator[dg.AssetMaterialization]:
    """Registers what has landed of some feeds, and shows it: a partition and a materialization each. Raises LandingError."""
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
