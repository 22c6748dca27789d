"""Real processes, killed at the most vulnerable points between a vault and the warehouse.

After each, the test does what a scheduler does: capture and drain. The system recovers by itself, and the tables equal the
vault's own history. All tests share a vault and a warehouse; each begins half an hour later.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.fake_vault import FakeVault, Simulation, VaultSettings, schema_changes
from manifest_platform.manifest import ItemKey
from manifest_platform.manifest.dataset import Mode
from manifest_platform.operations.doctor import Doctor, Kind
from manifest_platform.pipeline import LOAD, SHRED, DrainReport, Pipeline, Stop
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.sources.veeva.layout import FEEDS, window_name
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform_tests.sources.veeva.ward.ward import FULL, INCR, NAME, QUARTER, Ward, at, begun, drained, state

HALF_HOUR = 2 * QUARTER
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = {"seconds": 1, "max_attempts": 3}
PASSING = "__mp_"
"""The prefixes and suffixes of tables that exist only during a full load."""


class Stage:
    """A vault, its ward, and Spark. A snapshot is published every half hour, a quarter of an hour before the newest window."""

    def __init__(self, home: Path, vault: FakeVault, spark: Any) -> None:
        self.vault, self.spark = vault, spark
        self.ward = Ward(home, vault=vault, lease=LEASE)

    def later(self) -> None:
        """Advances the clock by half an hour: Vault publishes two more windows and a snapshot."""
        self.vault.now += HALF_HOUR

    def killed_at(self, point: str, *command: str) -> None:
        """Runs a command in a process that is killed at a failpoint."""
        process = self.ward.process(*command, failpoint=f"{point}:kill")
        output, _ = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, output

    def shredded(self, pipeline: Pipeline) -> list[ItemKey]:
        """Captures and shreds all windows without loading them; returns the keys of those that were not known before."""
        self.ward.captured(pipeline)
        new = {feed: list(pipeline.manifest.pending(feed, SHRED)) for feed in FEEDS}
        for keys in new.values():
            list(shred_chosen(pipeline, lambda: self.spark, keys))
        return [key for keys in new.values() for key in keys]

    def at_rest(self, pipeline: Pipeline) -> DrainReport:
        """Captures and drains like a scheduler until nothing is left; meanwhile a dead worker's lease expires."""
        self.ward.captured(pipeline)
        for _ in range(100):
            report = drained(pipeline, self.spark)[1]
            if Stop.BUSY not in {end.stop for end in report.ends}:
                assert [end.stop for end in report.ends] == [Stop.IDLE] * 3, report
                return report
            time.sleep(0.1)
        raise AssertionError("the lease does not run out")

    @property
    def loaded(self) -> list[tuple[str, int]]:
        """Returns the ledger: windows, and the epochs that they were loaded in."""
        return self.ward.seen.ledger

    @property
    def passing_tables(self) -> list[str]:
        warehouse = DuckDB(self.ward.home / "warehouse.duckdb")
        try:
            return sorted(name for name in warehouse.columns(NAME) if PASSING in name)
        finally:
            warehouse.close()

    def check(self, pipeline: Pipeline) -> None:
        """Checks that the tables equal the vault's history, nothing was loaded twice, and nothing orphaned is left."""
        pipeline.warehouse.close()
        newest = self.vault.windows("incr")[-1].stop
        snapshots = [at(window.removeprefix("full ")) for window, _ in self.loaded if window.startswith("full ")]
        differences = self.ward.differences(self.vault.simulation, newest, snapshots, logs=BEGIN)
        assert differences == {}, f"after {self.loaded}"
        assert [entry for entry, times in Counter(self.loaded).items() if times > 1] == []
        assert state(pipeline).mode == Mode.INCREMENTAL
        doctor = Doctor(pipeline, grace=timedelta(0))
        diagnosis = doctor.examine()
        assert {finding.kind for finding in diagnosis.findings} <= {Kind.ORPHAN}
        assert doctor.clean(diagnosis).healthy
        assert doctor.examine().healthy


@pytest.fixture(scope="module")
def shared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Returns the stage after its first snapshot."""
    stops = [BEGIN, *(BEGIN + QUARTER + number * HALF_HOUR for number in range(100))]
    simulation = Simulation(seed=3, begin=BEGIN, rows=5, changes=(3, 8), script=schema_changes(2, 3, 4, 5))
    now = BEGIN + HALF_HOUR + QUARTER
    with FakeVault(
        simulation, now, VaultSettings(full_stops=stops, log_stops=[BEGIN], full_delay=QUARTER, part_bytes=4096)
    ) as vault:
        stage = Stage(tmp_path_factory.mktemp("crashes"), vault, spark)
        with stage.ward.open() as pipeline:
            stage.ward.captured(pipeline)
            begun(pipeline, "latest", spark)
            stage.at_rest(pipeline)
            stage.check(pipeline)
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Stage:
    shared.later()
    return shared


def _names(stage: Stage) -> list[str]:
    """Returns the windows of changes that Vault has published."""
    return [window_name("incr", window.stop) for window in stage.vault.windows("incr")]


def test_P11_killed_after_landing(stage: Stage) -> None:
    stage.killed_at("capture.landed", "capture")
    with stage.ward.open() as pipeline:
        known = [item.key.name for item in pipeline.manifest.items(INCR)]
        assert known == _names(stage)[:-2], "nothing was registered"
        folder = stage.ward.home / "landing" / f"vault={stage.ward.vault_id}" / _names(stage)[-2]
        [garbage] = folder.iterdir()
        stage.at_rest(pipeline)
        landed = pipeline.manifest.item(pipeline.key(_names(stage)[-2])).landed
        assert landed is not None and landed.content
        assert not landed.content.endswith(garbage.name), "what was written before is read by nobody"
        stage.check(pipeline)


def test_killed_after_registering(stage: Stage) -> None:
    stage.killed_at("capture.registered", "capture")
    with stage.ward.open() as pipeline:
        assert [item.key.name for item in pipeline.manifest.items(INCR)] == _names(stage)[:-1]
        stage.at_rest(pipeline)
        assert [item.key.name for item in pipeline.manifest.items(INCR)] == _names(stage)
        stage.check(pipeline)


@pytest.mark.long
@pytest.mark.parametrize("point", ["shred.job_done", "shred.completed"])
def test_killed_while_shredding(stage: Stage, point: str) -> None:
    with stage.ward.open() as pipeline:
        stage.ward.captured(pipeline)
        before = stage.loaded
        stage.killed_at(point, "drain")
        assert stage.loaded == before
        stage.at_rest(pipeline)
        stage.check(pipeline)
        assert len(stage.loaded) == len(before) + 2


@pytest.mark.parametrize(
    ("point", "committed"),
    [
        ("load.claimed", False),
        ("load.before_transaction", False),
        ("load.in_transaction", False),
        ("load.committed", True),
        ("load.completed", True),
    ],
)
def test_killed_while_loading(stage: Stage, point: str, committed: bool) -> None:
    with stage.ward.open() as pipeline:
        first, second = sorted(key for key in stage.shredded(pipeline) if key.feed == INCR)
        before = stage.loaded
        stage.killed_at(point, "drain")
        assert len(stage.loaded) - len(before) == int(committed)
        report = stage.at_rest(pipeline)
        assert report.failed == 0
        attempts = {key: _attempts(pipeline, key) for key in (first, second)}
        assert attempts == {first: 1 if committed else 2, second: 1}, "what is committed is not loaded again"
        stage.check(pipeline)


@pytest.mark.parametrize(
    ("point", "committed"),
    [("load.claimed", False), ("full.shadows_built", False), ("full.in_transaction", False), ("full.committed", True)],
)
def test_killed_while_loading_a_snapshot(stage: Stage, point: str, committed: bool) -> None:
    with stage.ward.open() as pipeline:
        [snapshot] = [key for key in stage.shredded(pipeline) if key.feed == FULL]
        before, epoch = stage.loaded, state(pipeline).epoch
        begun(pipeline, "latest")
        stage.killed_at(point, "drain")
        assert state(pipeline).mode == Mode.FULL_LOAD, "the manifest does not know yet"
        assert len(stage.loaded) - len(before) == int(committed)
        assert bool(stage.passing_tables) == (point != "load.claimed")
        stage.at_rest(pipeline)
        assert _attempts(pipeline, snapshot) == (1 if committed else 2)
        assert state(pipeline).epoch == epoch + 1
        assert [entry for entry in stage.loaded if entry[1] == epoch + 1 and entry[0].startswith("full")] == stage.loaded[-2:-1]
        assert bool(stage.passing_tables) == committed
        if committed:  # the replaced tables are removed by the next full load
            begun(pipeline, "latest")
            stage.at_rest(pipeline)
            assert stage.passing_tables == []
        stage.check(pipeline)


def test_F14_killed_after_a_full_load_was_begun(stage: Stage) -> None:
    with stage.ward.open() as pipeline:
        stage.shredded(pipeline)
        before, epoch = stage.ward.seen, state(pipeline).epoch
        stage.killed_at("full.begun", "begin", "latest")
        assert (state(pipeline).mode, state(pipeline).epoch) == (Mode.FULL_LOAD, epoch + 1)
        assert stage.ward.seen == before
        stage.at_rest(pipeline)
        stage.check(pipeline)


def _attempts(pipeline: Pipeline, key: ItemKey) -> int:
    """Returns how often a load of an item was begun."""
    records = pipeline.manifest.history(key)
    return sum(record.application.name == LOAD and str(record.state) == "Processing" for record in records)
