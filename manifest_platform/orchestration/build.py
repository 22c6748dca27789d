"""All of Dagster's definitions, from the one configuration: the same function for the code location and for tests."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from manifest_platform.config import load
from manifest_platform.orchestration.assets import build_assets
from manifest_platform.orchestration.capture import build_capture
from manifest_platform.orchestration.checks import build_checks
from manifest_platform.orchestration.full import build_full_jobs
from manifest_platform.orchestration.io_manager import ManifestIOManager
from manifest_platform.orchestration.jobs import build_drain_job
from manifest_platform.orchestration.keys import drains, is_captured
from manifest_platform.orchestration.merged import build_merge_checks, build_merge_job, build_merge_sensor, build_merged
from manifest_platform.orchestration.resources import ManifestResource, SparkResource, WarehouseResource
from manifest_platform.orchestration.sensors import build_dead_run_sensors, build_listing_sensor


def build_defs(config_file: str | Path | None = None) -> dg.Definitions:
    """The definitions of every configured dataset. Raises ConfigError."""
    config = load(config_file)
    file = str(config_file) if config_file else None
    jobs = {
        dataset: [build_drain_job(config, dataset, one) for one in drains(dataset, settings)]
        for dataset, settings in config.datasets.items()
    }
    vaults = [dataset for dataset, settings in config.datasets.items() if settings.source == "veeva"]
    captured = [build_capture(config.datasets[dataset], dataset) for dataset in vaults if is_captured(config.datasets[dataset])]
    merged = [dataset for dataset, settings in config.datasets.items() if settings.merge]
    merge_jobs = {dataset: build_merge_job(config, dataset) for dataset in merged}
    manifest, spark = ManifestResource(config_file=file), SparkResource(config_file=file)
    return dg.Definitions(
        assets=[
            *(asset for dataset in config.datasets for asset in build_assets(config, dataset)),
            *(asset for dataset in merged for asset in build_merged(config, dataset)),
        ],
        asset_checks=[
            *(check for dataset, settings in config.datasets.items() for check in build_checks(settings, dataset)),
            *(check for dataset in merged for check in build_merge_checks(config, dataset)),
        ],
        jobs=[
            *(job for dataset in config.datasets for job in jobs[dataset]),
            *merge_jobs.values(),
            *(capture.job for capture in captured),
            *(job for dataset in vaults for job in build_full_jobs(dataset)),
        ],
        schedules=[schedule for capture in captured for schedule in capture.schedules],
        sensors=[
            *(build_listing_sensor(dataset, settings, jobs[dataset]) for dataset, settings in config.datasets.items()),
            *(build_merge_sensor(dataset, job) for dataset, job in merge_jobs.items()),
            *build_dead_run_sensors(config.datasets),
        ],
        resources={
            "manifest": manifest,
            "spark": spark,
            "warehouse": WarehouseResource(config_file=file),
            "io_manager": ManifestIOManager(manifest=manifest, spark=spark),
        },
        executor=dg.in_process_executor,
    )
