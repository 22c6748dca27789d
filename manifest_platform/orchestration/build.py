"""All of Dagster's definitions, built from one configuration by the same functions for the code location and for tests."""

from __future__ import annotations

import warnings
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
from manifest_platform.orchestration.folder_checks import build_folder_check
from manifest_platform.orchestration.full import build_full_jobs
from manifest_platform.orchestration.housekeeping import build_housekeeping_job, build_housekeeping_schedules
from manifest_platform.orchestration.io_manager import ManifestIOManager
from manifest_platform.orchestration.listing import build_listing_sensor
from manifest_platform.orchestration.lost_runs import build_lost_run_sensor
from manifest_platform.orchestration.merge_checks import build_merge_checks
from manifest_platform.orchestration.merge_runs import build_merge_job, build_merge_sensor
from manifest_platform.orchestration.merged import build_merged
from manifest_platform.orchestration.own_assets import IO_MANAGER, build_own_checks, own_assets
from manifest_platform.orchestration.resources import ManifestResource, SparkResource, WarehouseResource
from manifest_platform.orchestration.retention import build_retention_job, build_retention_schedule
from manifest_platform.orchestration.translator import DatasetTranslator
from manifest_platform.orchestration.wiring import wirings_of


def build_resources(manifest: ManifestResource | None = None, translator: DatasetTranslator | None = None) -> dict[str, Any]:
    """Returns the resources for a user's own assets in a code location other than the platform's. Raises ConfigError.

    `manifest_io_manager` stores the outputs of assets and loads their inputs. `manifest_spark` and `manifest_warehouse` are
    for code inside an asset. `translator`: the translator of the platform's own code location.
    """
    manifest = manifest or ManifestResource()
    return {IO_MANAGER: ManifestIOManager(wirings_of(manifest, translator)), **_tools(manifest)}


def _tools(manifest: ManifestResource) -> dict[str, Any]:
    return {
        "manifest_spark": SparkResource(config_file=manifest.config_file),
        "manifest_warehouse": WarehouseResource(config_file=manifest.config_file),
    }


def build_defs(
    config_file: str | Path | None = None,
    manifest: ManifestResource | None = None,
    assets: Iterable[dg.AssetsDefinition] = (),
    translator: DatasetTranslator | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    name: str | None = None,
    io_manager: ManifestIOManager | None = None,
) -> dg.Definitions:
    """Returns the definitions of every dataset of a configuration file or of a ManifestResource. Raises ConfigError.

    `assets`: a user's own assets, each of which gets a check of its outputs. Metadata that do not fit are an error.
    `translator`: changes the specs of the platform's assets. `executor`: for runs that people start; in-process by default, so
    that a run has one Spark session; None in a code location with an executor of its own. `name` and `io_manager`: for a code
    location with several configurations. Names of jobs and sensors that serve several datasets then begin with `name`
    (`<name>_housekeeping`) and are limited to the datasets of this configuration; all configurations share the IO manager. From
    this call on, files that this process writes have the modes of the configuration's `files`, also those of a user's assets.
    """
    outward.guard()
    if config_file and manifest:
        raise ConfigError("build_defs: a ManifestResource has its own config_file; give one of the two")
    manifest = manifest or ManifestResource(config_file=str(config_file) if config_file else None)
    config = manifest.configuration()
    config.files.apply()
    wirings, assets = wirings_of(manifest, translator), list(assets)
    every, seconds = list(wirings.values()), config.dagster.sensor_seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # the beta features are the platform's choice, not the user's
        merged = [wiring for wiring in every if wiring.source.settings.merge]
        drain_jobs = {wiring.dataset: build_drain_jobs(wiring) for wiring in every}
        merge_jobs = {wiring.dataset: build_merge_job(wiring) for wiring in merged}
        captured = [build_capture(wiring, plan) for wiring in every if (plan := wiring.source.captures)]
        housekeeping = build_housekeeping_job(config, wirings, name)
        retention = build_retention_job(wirings, name)
        retained = build_retention_schedule(config, retention) if retention else None
        if io_manager:
            io_manager.wirings.update(wirings)
        own = own_assets(wirings, assets)
        return dg.Definitions(
            assets=[
                *assets,
                *(asset for wiring in every for asset in build_assets(wiring)),
                *(asset for wiring in merged for asset in build_merged(wiring)),
            ],
            asset_checks=[
                *(check for wiring in every for check in build_checks(wiring)),
                *map(build_folder_check, every),
                *(check for wiring in merged for check in build_merge_checks(wiring)),
                *build_own_checks(wirings, own),
            ],
            jobs=[
                *(job for jobs in drain_jobs.values() for job in jobs),
                *merge_jobs.values(),
                *(capture.job for capture in captured),
                *(job for wiring in every if wiring.source.snapshots for job in build_full_jobs(wiring)),
                housekeeping,
                *([retention] if retention else []),
            ],
            schedules=[
                *(schedule for capture in captured for schedule in capture.schedules),
                *build_housekeeping_schedules(config, housekeeping),
                *([retained] if retained else []),
            ],
            sensors=[
                *(
                    build_listing_sensor(wiring, drain_jobs[wiring.dataset], config.dagster.listing_seconds, own)
                    for wiring in every
                ),
                *(build_merge_sensor(wiring, merge_jobs[wiring.dataset], seconds) for wiring in merged),
                *build_dead_run_sensors(wirings, seconds, name or "manifest"),
                build_lost_run_sensor(seconds, wirings, name),
            ],
            resources={IO_MANAGER: io_manager} if io_manager else {IO_MANAGER: ManifestIOManager(wirings), **_tools(manifest)},
            executor=executor,
        )
