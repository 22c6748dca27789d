"""Follows docs/start/own-data.md from the wheel to a green asset: in an empty folder, and in a Dagster project."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform_tests.cli.test_own_data_page import PAGE
from manifest_platform_tests.installed.environments import OURS, REPOSITORY, Environment

pytestmark = [pytest.mark.installed, pytest.mark.timeout(900)]

FIRST = datetime(2026, 11, 1, 10, tzinfo=UTC)
GREEN = {"numMaterialized": 3, "numPartitions": 3, "numFailed": 0}
OWN = """
import dagster as dg


class Mine(dg.IOManager):
    def handle_output(self, context, obj):
        pass

    def load_input(self, context):
        return 1


@dg.asset
def mine_alone():
    return 1


@dg.definitions
def own():
    return dg.Definitions(assets=[mine_alone], resources={"io_manager": Mine()})
"""
"""A project's own asset, kept by an IO manager under the key that Dagster takes where none is named."""


def typed() -> list[list[str]]:
    """The commands of the page's first block."""
    [block, *_] = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [shlex.split(line) for line in block.splitlines()]


def land(folder: Path) -> None:
    for number in range(3):
        write_run(folder / "landing" / "enriched", FIRST + number * timedelta(minutes=10), 20, seed=number)
    (folder / "schemas").symlink_to(SCHEMAS)


@contextmanager
def dagster_dev(environment: Environment, folder: Path, *command: str) -> Generator[str]:
    """Dagster's pages and daemon on a free port, ended with all that they started; the URL of its GraphQL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shell = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    shell["PATH"] = f"{environment.folder / 'bin'}{os.pathsep}{shell['PATH']}"
    with (folder / "dev.log").open("w") as log:
        program = [environment.program(command[0]), *command[1:], "--host", "127.0.0.1", "--port", str(port)]
        started = subprocess.Popen(program, cwd=folder, env=shell, stdout=log, stderr=log, start_new_session=True)
        try:
            yield f"http://127.0.0.1:{port}/graphql"
        finally:
            os.killpg(started.pid, signal.SIGINT)
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)


def materialized(url: str, asset: str, patience: float = 240) -> dict[str, Any]:
    """The partitions of an asset, once all are there and materialized; else as they are when patience ends."""
    query = "{assetNodes{assetKey{path} partitionStats{numMaterialized numPartitions numFailed}}}"
    found: dict[str, Any] = {}
    until = time.monotonic() + patience
    while time.monotonic() < until:
        time.sleep(1)
        try:
            nodes = httpx.post(url, json={"query": query}, timeout=30).json()["data"]["assetNodes"]
        except (httpx.HTTPError, KeyError, TypeError, ValueError):
            continue
        found = next((one["partitionStats"] for one in nodes if "/".join(one["assetKey"]["path"]) == asset), {})
        if found and found["numPartitions"] and found["numMaterialized"] == found["numPartitions"]:
            break
    return found


def test_from_an_empty_folder_to_a_green_asset_in_as_many_commands_as_the_page_has(
    everything: Environment, tmp_path: Path
) -> None:
    land(tmp_path)
    install, preview, init, drain, dev = typed()  # no more than these
    assert install == ["pip", "install", "manifest-platform[all]"]
    for command in (preview, init, drain):
        done = everything.run(*command, folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    with dagster_dev(everything, tmp_path, *dev) as url:
        [dataset] = json.loads(everything.run("manifest-platform", "config", "check", "--json", folder=tmp_path).stdout)[
            "datasets"
        ]
        stats = materialized(url, f"{dataset}/warehouse")
    assert stats == GREEN, (tmp_path / "dev.log").read_text()[-3000:]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".tmp_dagster", "history"))]


def test_into_a_project_of_dagsters_with_an_io_manager_of_its_own(everything: Environment, tmp_path: Path) -> None:
    locked = tomllib.loads((REPOSITORY / "uv.lock").read_text())["package"]
    [version] = [one["version"] for one in locked if one["name"] == "dagster-dg-cli"]
    everything.install(f"create-dagster=={version}", f"dagster-dg-cli=={version}")
    made = everything.run("create-dagster", "project", "mine", "--no-uv-sync", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    project = tmp_path / "mine"
    (project / "src" / "mine" / "defs" / "own.py").write_text(OWN)
    everything.install("--no-deps", "--editable", str(project))
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    land(project)
    for command in (
        ["manifest-platform", "init", "--landing", "landing/enriched", "--dataset", "web", "--yes"],
        ["dg", "check", "defs"],
        ["manifest-platform", "drain"],
    ):
        done = everything.run(*command, folder=project)
        assert done.returncode == 0, done.stdout + done.stderr
    assert {path: path.read_bytes() for path in before if path.exists()} == before
    with dagster_dev(everything, project, "dg", "dev") as url:
        stats = materialized(url, "web/warehouse")
    assert stats == GREEN, (project / "dev.log").read_text()[-3000:]
