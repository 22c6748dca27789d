"""Dagster as users run it: a webserver, a daemon and run workers, processes of their own, driven through GraphQL."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.config import VARIABLE
from manifest_platform_tests.orchestration.conftest import STRICT
from manifest_platform_tests.pipeline.shop import NAME, REPOSITORY, Shop, run_name, run_names

pytestmark = pytest.mark.long

PATIENCE_S = 150
SELECTOR = {"repositoryLocationName": "manifest_platform", "repositoryName": "__repository__"}

LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } ... on RunConfigValidationInvalid {
  errors { message } } } }"""
RUN = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status eventConnection { events { __typename
  ... on ExecutionStepFailureEvent { error { message } failureMetadata { description } } } } } } }"""
BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) { __typename
  ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL_RUNS = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status
  runs(limit: 20) { runId status } } } }"""
PARTITIONS = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionKeys
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions } } } } }"""
TABLE = """query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(limit: 1) {
  metadataEntries { label } } } } }"""
RUNS = "query { runsOrError { ... on Runs { results { runId status jobName } } } }"
STOP_SENSOR = """mutation($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }"""
START_SENSOR = """mutation($selector: SensorSelector!) { startSensor(sensorSelector: $selector) { __typename } }"""
SENSOR = """query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) { ... on Sensor { id
  sensorState { id status } } } }"""


class Server:
    """A webserver and a daemon over one shop, in a session of their own, so that all their processes end with them."""

    def __init__(self, shop: Shop, home: Path) -> None:
        self.home = home
        home.mkdir()
        shutil.copy(REPOSITORY / "dagster.yaml", home)
        shutil.copy(REPOSITORY / "workspace.yaml", home)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._environment = {
            **os.environ,
            "DAGSTER_HOME": str(home),
            VARIABLE: str(shop.config_file),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONWARNINGS": "ignore",
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Starts one after the other: the first makes the instance's database."""
        self._run("dagster_webserver", "-h", "127.0.0.1", "-p", str(self.port))
        self.until("the code location", lambda: self.sensor().get("sensorState"))
        self._run("dagster._daemon", "run")

    def _run(self, module: str, *arguments: str) -> None:
        with (self.home / f"{module}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments, "-w", str(self.home / "workspace.yaml")],
                cwd=self.home,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The one field that a GraphQL query asks for."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/graphql", body, headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        [field] = answer["data"].values()
        return field

    def until(self, what: str, found: Callable[[], Any]) -> Any:
        """What is found as soon as it is there."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for process in self._processes:
                assert process.poll() is None, self._logs()
            try:
                if answer := found():
                    return answer
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.5)
        raise AssertionError(f"{what}: not within {PATIENCE_S} s\n{self._logs()}")

    def _logs(self) -> str:
        return "\n".join(file.read_text()[-3000:] for file in self.home.glob("*.log"))

    def sensor(self) -> dict[str, Any]:
        return self.ask(SENSOR, selector={**SELECTOR, "sensorName": f"{NAME}_listing_sensor"})

    def stop_sensor(self) -> None:
        answer = self.ask(STOP_SENSOR, id=self.sensor()["sensorState"]["id"])
        assert answer["__typename"] == "StopSensorMutationResult", answer

    def start_sensor(self) -> None:
        self.ask(START_SENSOR, selector={**SELECTOR, "sensorName": f"{NAME}_listing_sensor"})

    def partitions(self) -> list[str]:
        return self.ask(PARTITIONS, key={"path": [NAME, "warehouse"]})["partitionKeys"]

    def loaded(self) -> list[str]:
        """The partitions that Dagster shows as loaded."""
        node = self.ask(PARTITIONS, key={"path": [NAME, "warehouse"]})
        return sorted(node["assetPartitionStatuses"]["materializedPartitions"])

    def add_partition(self, name: str) -> None:
        query = """mutation($selector: RepositorySelector!, $name: String!, $key: String!) { addDynamicPartition(
          repositorySelector: $selector, partitionsDefName: $name, partitionKey: $key) { __typename } }"""
        answer = self.ask(query, selector=SELECTOR, name=f"{NAME}_enriched", key=name)
        assert answer["__typename"] == "AddDynamicPartitionSuccess"

    def materialize(self, asset: str, name: str) -> dict[str, Any]:
        """A run of one partition as the button launches it: its status, and its failures' messages."""
        params = {
            "selector": {**SELECTOR, "pipelineName": "__ASSET_JOB", "assetSelection": [{"path": [NAME, asset]}]},
            "mode": "default",
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": name}]},
        }
        launched = self.ask(LAUNCH, params=params)
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return self.until(f"{asset} of {name}", lambda: self._finished(launched["run"]["runId"]))

    def _finished(self, run_id: str) -> dict[str, Any] | None:
        run = self.ask(RUN, id=run_id)
        return run if run["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

    def backfill(self, *names: str) -> list[dict[str, Any]]:
        """The runs of a backfill of both assets."""
        assets = [{"path": [NAME, asset]} for asset in ("shredded", "warehouse")]
        launched = self.ask(BACKFILL, params={"assetSelection": assets, "partitionNames": list(names)})
        assert launched["__typename"] == "LaunchBackfillSuccess", launched

        def finished() -> dict[str, Any] | None:
            backfill = self.ask(BACKFILL_RUNS, id=launched["backfillId"])
            return backfill if backfill["status"] not in ("REQUESTED", "CANCELING") else None

        return self.until("the backfill", finished)["runs"]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop", shred=STRICT)


@pytest.fixture
def server(shop: Shop, tmp_path: Path) -> Iterator[Server]:
    started = Server(shop, tmp_path / "dagster")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.mark.timeout(400)
def test_dagster_discovers_drains_refuses_and_backfills(server: Server, shop: Shop) -> None:
    # What lands is discovered, shredded and loaded by itself.
    shop.write(0, 1)
    server.until("the drain", lambda: server.loaded() == run_names(0, 1))
    assert shop.seen.runs == run_names(0, 1)
    server.until("the end of the drain", lambda: _all_succeeded(server))

    # The tables that it made are there, with their columns, though the code was loaded before they were.
    events = server.until(
        "the table", lambda: server.ask(TABLE, key={"path": [NAME, "tables", "events"]})["assetMaterializations"]
    )
    assert {"rows_loaded", "dagster/table_name", "dagster/column_schema"} < {
        one["label"] for one in events[0]["metadataEntries"]
    }
    listed = server.ask("query { assetsOrError { ... on AssetConnection { nodes { key { path } } } } }")["nodes"]
    assert {one["key"]["path"][-1] for one in listed if "tables" in one["key"]["path"]} >= {
        name for name, rows in shop.seen.rows.items() if rows
    }

    # From here on people do it, and Dagster learns of the partitions in an order that is not theirs.
    server.stop_sensor()
    with shop.open() as pipeline:
        shop.land(pipeline, 2, 3, 4)
    for number in (4, 2, 3):
        server.add_partition(run_name(number))
    refused = server.materialize("warehouse", run_name(3))
    assert refused["status"] == "FAILURE"
    [message] = [_message(event) for event in refused["eventConnection"]["events"] if "error" in event]
    assert f"{run_name(3)} is out of order: {run_name(2)} comes first" in message
    assert "shred has not processed it yet" in message
    assert "Do this first: manifest-platform drain" in message
    assert server.materialize("warehouse", run_name(1))["status"] == "SUCCESS", "it is loaded: nothing to do"

    # A backfill in a single run.
    [run] = server.backfill(*run_names(2, 3, 4))
    assert run["status"] == "SUCCESS"
    assert shop.seen.runs == run_names(0, 1, 2, 3, 4)
    assert server.loaded() == run_names(0, 1, 2, 3, 4)


def _message(event: dict[str, Any]) -> str:
    return f"{event['error']['message']} {(event['failureMetadata'] or {}).get('description')}"


def _all_succeeded(server: Server) -> bool:
    runs = server.ask(RUNS)["results"]
    assert {run["jobName"] for run in runs} == {f"{NAME}_drain"}
    return {run["status"] for run in runs} == {"SUCCESS"}
