"""All of Dagster's definitions, from the one configuration: the same function for the code location and for tests."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from manifest_platform.config import load
from manifest_platform.orchestration.assets import build_assets
from manifest_platform.orchestration.checks import build_checks
from manifest_platform.orchestration.io_manager import ManifestIOManager
from manifest_platform.orchestration.jobs import build_drain_job
from manifest_platform.orchestration.merged import build_merge_checks, build_merge_job, build_merge_sensor, build_merged
from manifest_platform.orchestration.resources import ManifestResource, SparkResource, WarehouseResource
from manifest_platform.orchestration.sensors import build_dead_run_sensors, build_listing_sensor


def build_defs(config_file: str | Path | None = None) -> dg.Definitions:
    """The definitions of every configured dataset. Raises ConfigError."""
    config = load(config_file)
    file = str(config_file) if config_file else None
    jobs = {dataset: build_drain_job(config, dataset) for dataset in config.datasets}
    merged = [dataset for dataset, settings in config.datasets.items() if settings.merge]
    merge_jobs = {dataset: build_merge_job(config, dataset) for dataset in merged}
    manifest, spark = ManifestResource(config_file=file), SparkResource(config_file=file)
    return dg.Definitions(
        assets=[
            *(asset for dataset in config.datasets for asset in build_assets(config, dataset)),
            *(asset for dataset in merged for asset in build_merged(config, dataset)),
        ],
        asset_checks=[
            *(check for dataset in config.datasets for check in build_checks(dataset)),
            *(check for dataset in merged for check in build_merge_checks(config, dataset)),
        ],
        jobs=[*jobs.values(), *merge_jobs.values()],
        sensors=[
            *(build_listing_sensor(dataset, job) for dataset, job in jobs.items()),
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
