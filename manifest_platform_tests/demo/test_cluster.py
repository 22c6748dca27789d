"""The demo on a cluster: all data are in servers, and Spark computes on two workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.config import VARIABLE
from manifest_platform.demo import shop
from manifest_platform.demo.cluster import Deployment
from manifest_platform.demo.dynamodb import jars
from manifest_platform.demo.run import configure
from manifest_platform.demo.s3 import S3Server, versitygw
from manifest_platform.demo.stage import HOME_VARIABLE
from manifest_platform.spark.jars import S3A
from manifest_platform_tests.demo.test_run import DAY, ROWS, check_story


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The demo's directory, outside of pytest's, which are shut to PostgreSQL if root runs the tests."""
    with tempfile.TemporaryDirectory(prefix="manifest-platform-demo-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv(VARIABLE, "")
        monkeypatch.setenv(HOME_VARIABLE, f"{folder}/demo")
        yield Path(folder) / "demo"


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_demo_tells_its_story_on_a_cluster_that_fetches_no_jar(home: Path, tmp_path: Path) -> None:
    """Arrow reads and writes S3 itself, so the jars with which Spark would do it are not fetched, and no worker gets any."""
    cache = tmp_path / "manifest-platform"
    cache.mkdir()
    for program in (versitygw(), jars()):
        (cache / program.name).symlink_to(program)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "manifest_platform", "demo", "--cluster", "--day", str(DAY)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    check_story(done.stdout)
    rows = dict(re.findall(r"acme\.(\w+) +([\d,]+) rows", done.stdout))
    counted = {name: int(count.replace(",", "")) for name, count in rows.items()}
    assert counted["events"] + counted["bad"] == ROWS
    assert not (cache / S3A).exists()
    executors = [file for file in (home / "servers").glob("worker-*/app-*/*") if file.is_dir()]
    assert len(executors) >= 2, "each worker ran one"
    assert [*home.rglob("*.jar"), *tmp_path.rglob(".ivy2*")] == []
    assert not (home / "landing").exists(), "it is in S3"
    assert not (home / "manifest.db").exists(), "it is in DynamoDB"


def test_the_demo_s_configuration_says_that_spark_computes_behind_a_connect_server(home: Path, tmp_path: Path) -> None:
    servers = Deployment(
        S3Server("http://127.0.0.1:1"),
        "dynamodb://demo?region=eu-west-1&endpoint=http://127.0.0.1:2",
        "postgresql://demo@127.0.0.1:3/demo",
        "sc://127.0.0.1:4",
        tmp_path,
    )
    home.mkdir()
    spark = config.load(configure(shop, home, **servers.configuration(shop.DATASET))).spark
    assert (spark.where, spark.problem()) == ("connect", "")


def test_the_demo_on_a_cluster_has_its_own_store_and_warehouse(capsys: pytest.CaptureFixture[str]) -> None:
    for other in (["--store", "dynamodb"], ["--warehouse", "postgresql"], ["--pipeline", "veeva"]):
        assert main(["demo", "--cluster", *other]) == 1
        assert "leave out --pipeline, --store and --warehouse" in capsys.readouterr().err


def test_a_run_lands_on_a_cluster_only_while_its_servers_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--cluster", "--land"]) == 1
    assert "demo --cluster --serve first" in capsys.readouterr().err
