"""The queue limits runs by their duties, tested with Dagster's own queue daemon and this repository's `dagster.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
import yaml
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import instance_for_test
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from manifest_platform.orchestration.build import build_defs
from manifest_platform.warehouse.engines.duckdb.settings import DuckDBSettings
from manifest_platform_tests.pipeline.shop import REPOSITORY

INSTANCE = REPOSITORY / "dagster.yaml"
VAULTS = tuple(f"vault{number}" for number in range(3))


@dg.op
def work() -> None:
    """A user's work, without tags."""


@dg.job
def of_a_user() -> None:
    """A user's job."""
    work()


class Queue:
    """Dagster's queue for the jobs of many datasets: tests queue runs, and the daemon decides which it launches."""

    def __init__(self, instance: dg.DagsterInstance, defs: dg.Definitions) -> None:
        self.instance, self.defs = instance, defs
        self._daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)

    def put(self, name: str, **tags: str) -> str:
        """Queues a run of a job, as a sensor, a schedule or a person does; returns its id."""
        return self.put_job(self.defs.resolve_job_def(name), **tags)

    def put_assets(self, *paths: str, **tags: str) -> str:
        """Queues a run of assets, as the button and backfills do."""
        job = self.defs.resolve_implicit_global_asset_job_def()
        keys = {dg.AssetKey(path.split("/")) for path in paths}
        return self.put_job(job.get_subset(asset_selection=keys), **tags)

    def put_job(self, job: dg.JobDefinition, **tags: str) -> str:
        location = GrpcServerCodeLocationOrigin(host="localhost", port=1)  # ty: ignore[abstract-class-instantiation]
        origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job.name)
        status = dg.DagsterRunStatus.QUEUED
        config = {"ops": {f"{job.name}_op": {"config": {"reason": "a test"}}}} if job.name.endswith("full_begin") else {}
        stored = self.instance.create_run_for_job(
            job, run_config=config, status=status, tags={**job.tags, **tags}, remote_job_origin=origin
        )
        return stored.run_id

    def turn(self) -> set[str]:
        """Runs one iteration of the daemon; returns the runs that it launched."""
        before = self.at_work()
        context = cast(Any, SimpleNamespace(instance=self.instance, create_request_context=lambda: None))
        with self._daemon:
            list(self._daemon.run_iteration(context))
        return self.at_work() - before

    def at_work(self) -> set[str]:
        return {run.run_id for run in self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))}

    def end(self, run_id: str) -> None:
        run = self.instance.get_run_by_id(run_id)
        assert run
        self.instance.report_run_failed(run)


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three vaults, which are captured and have a drain of their own for logs, and a shop, which is merged."""
    home = tmp_path_factory.mktemp("queue")
    whole = yaml.safe_load((REPOSITORY / "manifest_platform_veeva.yaml").read_text())
    vault = whole["datasets"].pop("vault")
    for number, name in enumerate(VAULTS):
        landing = {**vault["landing"], "root": f"landing/{name}"}
        whole["datasets"][name] = {
            **vault,
            "vault": {**vault["vault"], "id": str(number + 1)},
            "landing": landing,
            "shred": {**vault["shred"], "output": f"shredded/{name}"},
            "load": {**vault["load"], "logs": "own"},
        }
    whole["datasets"]["shop"] = {
        "landing": {"root": "landing/shop"},
        "owner": "team:data",
        "shred": {"output": "shredded/shop", "schemas": ["schemas"]},
        "merge": {"output": "merged", "first_day": "2026-01-01"},
    }
    whole |= {"manifest": {"store": "sqlite:///manifest.db"}, "warehouse": {"kind": "duckdb", "path": "warehouse.duckdb"}}
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump(whole))
    (home / "spark_conf").symlink_to(REPOSITORY / "spark_conf")
    return file


@pytest.fixture(scope="module")
def embedded(configured: Path) -> dg.Definitions:
    """The code location with the embedded warehouse, which has a single writer."""
    return build_defs(configured)


@pytest.fixture(scope="module")
def shared(configured: Path) -> dg.Definitions:
    """The code location with a warehouse of many writers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBSettings, "one_writer", False)
        return build_defs(configured)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    settings = yaml.safe_load(INSTANCE.read_text())
    settings["run_launcher"] = {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"}
    with instance_for_test(settings) as instance:
        yield instance


def test_captures_never_wait_behind_any_number_of_drains(instance: dg.DagsterInstance, shared: dg.Definitions) -> None:
    queue = Queue(instance, shared)
    for name in VAULTS:
        queue.put(f"{name}_drain")
        queue.put(f"{name}_log_drain")
        queue.put(f"{name}_full_begin")
    queue.put("shop_drain")
    queue.put("shop_merge")
    assert len(queue.turn()) == 6, "4 drains, 1 merge, 1 full load; the rest waits"
    captures = {queue.put(f"{name}_capture") for name in VAULTS}
    assert queue.turn() == captures


def test_captures_find_slots_beside_all_limited_runs() -> None:
    settings = yaml.safe_load(INSTANCE.read_text())["concurrency"]["runs"]
    bounded = {one["value"]: one["limit"] for one in settings["tag_concurrency_limits"] if "duty" in one["key"]}
    assert set(bounded) == {"drain", "merge", "full", "housekeeping"}
    assert settings["max_concurrent_runs"] - sum(bounded.values()) >= 4


def test_waiting_captures_start_next(instance: dg.DagsterInstance, shared: dg.Definitions) -> None:
    """A user's own runs may take all slots. Captures get the next free slots."""
    queue = Queue(instance, shared)
    own = [queue.put_job(of_a_user) for _ in range(14)]
    assert queue.turn() == set(own[:12])
    capture = queue.put("vault0_capture")
    assert queue.turn() == set()
    queue.end(own[0])
    assert queue.turn() == {capture}


def test_runs_of_a_drain_work_one_at_a_time(instance: dg.DagsterInstance, shared: dg.Definitions) -> None:
    queue = Queue(instance, shared)
    first, second = queue.put("vault0_drain"), queue.put("vault0_drain")
    assert queue.turn() == {first}
    assert queue.turn() == set()
    queue.end(first)
    assert queue.turn() == {second}


def test_runs_that_wait_for_their_turn_do_not_delay_other_datasets(
    instance: dg.DagsterInstance, shared: dg.Definitions
) -> None:
    queue = Queue(instance, shared)
    first = queue.put("vault0_drain")
    assert queue.turn() == {first}
    for _ in range(5):
        queue.put("vault0_drain")
    other = queue.put("vault1_drain")
    assert queue.turn() == {other}


def test_logs_drain_beside_changes_and_merges_beside_both(instance: dg.DagsterInstance, shared: dg.Definitions) -> None:
    queue = Queue(instance, shared)
    all_of_them = {
        queue.put(name) for name in ("vault0_drain", "vault0_log_drain", "vault0_full_begin", "shop_drain", "shop_merge")
    }
    assert queue.turn() == all_of_them


def test_all_drains_take_turns_on_a_single_writer_warehouse(instance: dg.DagsterInstance, embedded: dg.Definitions) -> None:
    queue = Queue(instance, embedded)
    drains = [queue.put(name) for name in ("vault0_drain", "vault0_log_drain", "vault1_drain", "shop_drain")]
    merge = queue.put("shop_merge")
    assert queue.turn() == {drains[0], merge}
    queue.end(drains[0])
    assert queue.turn() == {drains[1]}


def test_a_manual_run_waits_only_for_the_drain_of_its_feed(instance: dg.DagsterInstance, shared: dg.Definitions) -> None:
    queue = Queue(instance, shared)
    drain = queue.put("vault0_drain")
    assert queue.turn() == {drain}
    queue.put_assets("vault0/incr/shredded", "vault0/incr/warehouse")
    logs = queue.put_assets("vault0/log/shredded", "vault0/log/warehouse")
    windows = queue.put_assets("vault0/incr/windows")
    assert queue.turn() == {logs, windows}


def test_a_backfill_of_many_runs_leaves_slots(instance: dg.DagsterInstance, shared: dg.Definitions) -> None:
    queue = Queue(instance, shared)
    backfilled = [queue.put_job(of_a_user, **{"dagster/backfill": "b1"}) for _ in range(20)]
    capture = queue.put("vault0_capture")
    assert queue.turn() == {*backfilled[:2], capture}
