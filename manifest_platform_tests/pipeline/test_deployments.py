"""Two deployments of one configuration over one landing root do not affect each other."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from manifest_platform.config import load
from manifest_platform.operations.doctor import Doctor
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, drained, run_name, run_names


def landed(shop: Shop) -> dict[str, int]:
    """The files in the landing, with the times of their last change."""
    return {str(file): file.stat().st_mtime_ns for file in sorted((shop.home / "landing").rglob("*"))}


def test_a_branch_deployment_reads_the_landing_and_writes_beside_production(tmp_path: Path, spark: Any) -> None:
    production = Shop(tmp_path)
    production.write(0, 1)
    before = landed(production)
    branch = Shop(tmp_path, deployment="pr-7")  # the same file, with one more line
    with branch.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
    assert landed(branch) == before
    assert {place.name for place in tmp_path.iterdir()} == {
        "landing",
        "manifest_platform.yaml",
        "manifest-pr-7.db",
        "shredded-pr-7",
        "warehouse-pr-7.duckdb",
    }
    settings = load(branch.config_file)
    assert settings.warehouse.file == str(tmp_path / "warehouse-pr-7.duckdb")

    production = Shop(tmp_path)
    with production.open() as pipeline:
        assert not list(pipeline.manifest.items(FEED)), "production knows nothing of what the branch did"
        production.land(pipeline, 2)
        drained(pipeline, spark)
    with production.open() as pipeline:
        diagnosis = Doctor(pipeline, grace=timedelta()).examine()
        assert not diagnosis.findings, "nothing of the branch's is taken for production's garbage"
    assert production.seen.runs == run_names(0, 1, 2)
    with Shop(tmp_path, deployment="pr-7").open() as pipeline:
        assert [item.key.name for item in pipeline.manifest.items(FEED)] == run_names(0, 1)
        assert pipeline.manifest.find(FEED, pipeline.key(run_name(0)).sort)
