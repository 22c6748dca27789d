"""Dagster as users run it: a webserver, a daemon and run workers in processes of their own, driven through GraphQL."""

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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from manifest_platform.config import VARIABLE
from manifest_platform_tests.pipeline.shop import REPOSITORY

PATIENCE_S = 300
"""The seconds within which anything happens, the start of a Spark included, on a machine with much else to do."""
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
ASSETS = "query { assetsOrError { ... on AssetConnection { nodes { key { path } } } } }"
RUNS = "query { runsOrError { ... on Runs { results { runId status jobName } } } }"
STOP_SENSOR = """mutation($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }"""
START_SENSOR = """mutation($selector: SensorSelector!) { startSensor(sensorSelector: $selector) { __typename } }"""
SENSOR = """query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) { ... on Sensor { id
  sensorState { id status } } } }"""


class Server:
    """A webserver and a daemon for one dataset, in sessions of their own, so that all their processes end with them.

    `workspace`: the file of the code location; by default the repository's. `environment`: variables for the processes, beside
    those that Dagster and the code location need; by default this process's.
    """

    def __init__(
        self,
        config_file: Path,
        dataset: str,
        home: Path,
        workspace: Path = REPOSITORY / "workspace.yaml",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home, self.dataset = home, dataset
        home.mkdir()
        shutil.copy(REPOSITORY / "dagster.yaml", home)
        shutil.copy(workspace, home / "workspace.yaml")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._environment = {
            **(os.environ if environment is None else environment),
            "DAGSTER_HOME": str(home),
            VARIABLE: str(config_file),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONWARNINGS": "ignore",
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Starts both processes one after the other, because the first creates the instance's database."""
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
        """Returns the single field of a GraphQL query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/graphql", body, headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        [field] = answer["data"].values()
        return field

    def until(self, what: str, found: Callable[[], Any]) -> Any:
        """Waits until a function finds something, and returns it."""
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
        return self.ask(SENSOR, selector={**SELECTOR, "sensorName": f"{self.dataset}_listing_sensor"})

    def stop_sensor(self) -> None:
        answer = self.ask(STOP_SENSOR, id=self.sensor()["sensorState"]["id"])
        assert answer["__typename"] == "StopSensorMutationResult", answer

    def start_sensor(self) -> None:
        self.ask(START_SENSOR, selector={**SELECTOR, "sensorName": f"{self.dataset}_listing_sensor"})

    def partitions(self, asset: str = "warehouse") -> list[str]:
        """Returns the partitions of an asset, by its path below the dataset."""
        return self.ask(PARTITIONS, key=self._key(asset))["partitionKeys"]

    def loaded(self, asset: str = "warehouse") -> list[str]:
        """Returns the partitions of an asset that Dagster shows as materialized."""
        node = self.ask(PARTITIONS, key=self._key(asset))
        return sorted(node["assetPartitionStatuses"]["materializedPartitions"])

    def table(self, name: str) -> set[str]:
        """Returns the metadata of a warehouse table's newest materialization, by label; empty without one."""
        found = self.ask(TABLE, key=self._key(f"warehouse/{name}"))["assetMaterializations"]
        return {entry["label"] for entry in found[0]["metadataEntries"]} if found else set()

    def tables(self) -> list[str]:
        """Returns the warehouse tables that Dagster lists as assets."""
        paths = [node["key"]["path"] for node in self.ask(ASSETS)["nodes"]]
        return [path[-1] for path in paths if path[:-1] == [self.dataset, "warehouse"]]

    def _key(self, asset: str) -> dict[str, list[str]]:
        return {"path": [self.dataset, *asset.split("/")]}

    def add_partition(self, feed: str, name: str) -> None:
        query = """mutation($selector: RepositorySelector!, $name: String!, $key: String!) { addDynamicPartition(
          repositorySelector: $selector, partitionsDefName: $name, partitionKey: $key) { __typename } }"""
        answer = self.ask(query, selector=SELECTOR, name=f"{self.dataset}_{feed}", key=name)
        assert answer["__typename"] == "AddDynamicPartitionSuccess"

    def materialize(self, asset: str, *names: str) -> list[dict[str, Any]]:
        """Launches runs of one partition each, all at the same time; returns their statuses and failure messages."""
        launched = [
            self._launch(
                {"pipelineName": "__ASSET_JOB", "assetSelection": [self._key(asset)]},
                tags=[{"key": "dagster/partition", "value": name}],
            )
            for name in names
        ]
        return [
            self.until(f"{asset} of {name}", lambda run=run: self._finished(run))
            for name, run in zip(names, launched, strict=True)
        ]

    def run_job(self, name: str, **config: Any) -> dict[str, Any]:
        """Runs a job of one op, as the launchpad launches it."""
        run = self._launch({"pipelineName": name}, config={"ops": {f"{name}_op": {"config": config}}})
        return self.until(name, lambda: self._finished(run))

    def _launch(self, selector: dict[str, Any], tags: Sequence[dict[str, str]] = (), config: Any = None) -> str:
        params = {
            "selector": {**SELECTOR, **selector},
            "mode": "default",
            "executionMetadata": {"tags": list(tags)},
            "runConfigData": config or {},
        }
        launched = self.ask(LAUNCH, params=params)
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return launched["run"]["runId"]

    def _finished(self, run_id: str) -> dict[str, Any] | None:
        run = self.ask(RUN, id=run_id)
        return run if run["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

    def backfill(self, assets: Sequence[str], *names: str) -> list[dict[str, Any]]:
        """Returns the runs of a backfill of some assets."""
        selection = [self._key(asset) for asset in assets]
        launched = self.ask(BACKFILL, params={"assetSelection": selection, "partitionNames": list(names)})
        assert launched["__typename"] == "LaunchBackfillSuccess", launched

        def finished() -> dict[str, Any] | None:
            backfill = self.ask(BACKFILL_RUNS, id=launched["backfillId"])
            return backfill if backfill["status"] not in ("REQUESTED", "CANCELING") else None

        return self.until("the backfill", finished)["runs"]

    def runs(self) -> list[dict[str, Any]]:
        """Returns the names of the jobs of all runs, with their statuses."""
        return self.ask(RUNS)["results"]


def message(run: dict[str, Any]) -> str:
    """Returns the reason why a run's one step failed."""
    assert run["status"] == "FAILURE"
    [event] = [event for event in run["eventConnection"]["events"] if "error" in event]
    return f"{event['error']['message']} {(event['failureMetadata'] or {}).get('description')}"
