"""All of Dagster's definitions, from the one configuration: the same function for the code location and for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg

from manifest_platform import outward
from manifest_platform.config import ConfigError
from manifest_platform.orchestration.capture import build_capture
from manifest_platform.orchestration.dead_runs import build_dead_run_sensors
from manifest_platform.orchestration.drain import build_drain_jobs
from manifest_platform.orchestration.feed_checks import build_checks
from manifest_platform.orchestration.feeds import build_assets
from manifest_platform.orchestration.full import build_full_jobs
from manifest_platform.orchestration.housekeeping import build_housekeeping_job, build_housekeeping_schedules
from manifest_platform.orchestration.io_manager import ManifestIOManager
from manifest_platform.orchestration.listing import build_listing_sensor
from manifest_platform.orchestration.lost_runs import build_lost_run_sensor
from manifest_platform.orchestration.merge_checks import build_merge_checks
from manifest_platform.orchestration.merge_runs import build_merge_job, build_merge_sensor
from manifest_platform.orchestration.merged import build_merged
from manifest_platform.orchestration.own_assets import build_own_checks, own_assets
from manifest_platform.orchestration.resources import ManifestResource, SparkResource, WarehouseResource
from manifest_platform.sources.source import open_source


def build_resources(manifest: ManifestResource | None = None) -> dict[str, Any]:
    """The resources of a code location, by name: those of the platform's, and of another one with assets of a user's own."""
    manifest = manifest or ManifestResource()
    spark = SparkResource(config_file=manifest.config_file)
    return {
        "manifest": manifest,
        "spark": spark,
        "warehouse": WarehouseResource(config_file=manifest.config_file),
        "io_manager": ManifestIOManager(manifest=manifest, spark=spark),
    }


def build_defs(
    config_file: str | Path | None = None,
    manifest: ManifestResource | None = None,
    assets: Iterable[dg.AssetsDefinition] = (),
) -> dg.Definitions:
    """The definitions of every configured dataset, of a file, or of the file of a ManifestResource. Raises ConfigError.

    `assets`: of a user's own, each with the check of its outputs. One whose metadata does not fit is an error.
    What the process writes from then on is as private as the configuration's `files` say, also what assets of one's own write.
    """
    outward.guard()
    if config_file and manifest:
        raise ConfigError("build_defs: a ManifestResource has its own config_file; give one of the two")
    manifest = manifest or ManifestResource(config_file=str(config_file) if config_file else None)
    config = manifest.configuration()
    config.files.apply()
    every = {dataset: open_source(dataset, settings) for dataset, settings in config.datasets.items()}
    sources = {dataset: source for dataset, source in every.items() if source.feeds}  # of the others, programs do the work
    drain_jobs = {dataset: build_drain_jobs(config, source) for dataset, source in sources.items()}
    captured = [build_capture(source, source.captures) for source in sources.values() if source.captures]
    merged = [source for source in sources.values() if source.settings.merge]
    merge_jobs = {source.dataset: build_merge_job(config, source) for source in merged}
    housekeeping, seconds = build_housekeeping_job(config, sources), config.dagster.sensor_seconds
    assets = list(assets)
    own = own_assets(sources, assets)
    return dg.Definitions(
        assets=[
            *assets,
            *(asset for source in sources.values() for asset in build_assets(config, source)),
            *(asset for source in merged for asset in build_merged(config, source)),
        ],
        asset_checks=[
            *(check for source in sources.values() for check in build_checks(source)),
            *(check for source in merged for check in build_merge_checks(config, source)),
            *build_own_checks(own),
        ],
        jobs=[
            *(job for jobs in drain_jobs.values() for job in jobs),
            *merge_jobs.values(),
            *(capture.job for capture in captured),
            *(job for source in sources.values() if source.snapshots for job in build_full_jobs(config, source)),
            housekeeping,
        ],
        schedules=[
            *(schedule for capture in captured for schedule in capture.schedules),
            *build_housekeeping_schedules(config, housekeeping),
        ],
        sensors=[
            *(build_listing_sensor(source, drain_jobs[dataset], seconds, own) for dataset, source in sources.items()),
            *(build_merge_sensor(dataset, job, seconds) for dataset, job in merge_jobs.items()),
            *build_dead_run_sensors(sources, seconds),
            build_lost_run_sensor(seconds),
        ],
        resources=build_resources(manifest),
        executor=dg.in_process_executor,
    )
