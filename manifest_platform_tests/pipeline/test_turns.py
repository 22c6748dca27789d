"""Drains that share a warehouse in a file, as real processes: they take turns, and hold it only while they load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import config
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.manifest import Application, ItemKey
from manifest_platform.pipeline import SHRED, Loaded, Pipeline, Stop, batches
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.discovery import discover
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import Held
from manifest_platform_tests.pipeline.shop import EVENTS, FIRST, REPOSITORY, STEP, drained, launched

OPENING = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print(1, flush=True); sys.stdin.read()"


class Street:
    """Shops of one configuration: they share the manifest and the warehouse. Each has shredded runs."""

    def __init__(self, home: Path, spark: Any, shops: int, runs: int, **shred: Any) -> None:
        self.home, self.names = home, [f"shop{number}" for number in range(shops)]
        self.warehouse = home / "warehouse.duckdb"
        datasets = {
            name: {
                "landing": {"root": str(home / name)},
                "shred": {"output": str(home / f"{name}_shredded"), "schemas": [str(SCHEMAS)], **shred},
            }
            for name in self.names
        }
        whole = {
            "datasets": datasets,
            "manifest": {"store": "sqlite:///manifest.db"},
            "warehouse": {"path": str(self.warehouse)},
            "spark": {"conf": str(REPOSITORY / "spark_conf" / "local.conf")},
        }
        self.config_file = home / "manifest_platform.yaml"
        self.config_file.write_text(yaml.safe_dump(whole))
        for name in self.names:
            (home / name).mkdir()
            for number in range(runs):
                write_run((home / name).as_uri(), FIRST + number * STEP, EVENTS, seed=1)
            with self.open(name) as pipeline:
                discover(pipeline, everything=True)
                if spark:
                    items: list[ItemKey] = [item.key for item, _ in pipeline.manifest.backlog("enriched", "shred")]
                    list(shred_chosen(pipeline, lambda: spark, items))

    def open(self, name: str) -> Pipeline:
        return Pipeline(config.load(self.config_file), name)

    def process(self, name: str, failpoint: str | None = None, wait: bool = False) -> subprocess.Popen[str]:
        module = ["manifest_platform_tests.pipeline.shop", str(self.config_file), "--dataset", name]
        return launched(module, self.home, {}, failpoint, wait)


def test_a_drain_waits_while_another_loads_and_neither_fails(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain gave up after ten seconds, as a failed run, however long the other's transaction took."""
    street = Street(tmp_path, spark, shops=2, runs=2)
    monkeypatch.setattr(DuckDB, "patience", 0.1)
    other = street.process("shop0", "load.in_transaction:stop")
    try:
        os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
        threading.Timer(1.5, other.send_signal, (signal.SIGCONT,)).start()
        with street.open("shop1") as pipeline:
            _, report = drained(pipeline)
        assert (report.stop, report.loaded, report.failed) == (Stop.IDLE, 2, 0)
        output, _ = other.communicate(timeout=60)
        assert '"loaded": 2' in output
    finally:
        other.kill()


@pytest.mark.parametrize("ahead", [False, True])
def test_the_file_is_free_while_a_drain_shreds(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """Another process was refused for as long as a drain shredded after its first load."""
    street = Street(tmp_path, None, shops=1, runs=2, batch=1, ahead=ahead)
    real, found = batches.shred_with, list[bool]()

    def opens() -> bool:
        command = [sys.executable, "-c", OPENING, str(street.warehouse)]
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0

    def shredding(pipeline: Pipeline, *given: Any) -> Any:
        if next(pipeline.manifest.items("enriched")).processed_by(Application(SHRED)):  # this is the second batch
            until = time.monotonic() + 60
            while not pipeline.manifest.state(pipeline.load).feed("enriched").watermark and time.monotonic() < until:
                threading.Event().wait(0.05)  # for the load of the first
            found.append(any(opens() for _ in range(20)))
        return real(pipeline, *given)

    monkeypatch.setattr(batches, "shred_with", shredding)
    with street.open("shop0") as pipeline:
        assert drained(pipeline, spark)[1].loaded == 2
    assert found == [True], "the second batch is shredded, and the file is free after the first load"
    assert opens()


def test_a_persons_program_is_told_of_and_fails_nothing(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    street = Street(tmp_path, spark, shops=1, runs=1)
    monkeypatch.setattr(DuckDB, "patience", 0.1)
    program = subprocess.Popen(
        [sys.executable, "-c", OPENING, str(street.warehouse)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout and program.stdout.readline() == "1\n"
        with street.open("shop0") as pipeline:
            events, report = drained(pipeline)
            assert (events, report.stop, report.failed) == ([], Stop.HELD, 0)
            assert f"PID {program.pid}" in report.reason and "End that process" in report.reason
            program.communicate("")
            assert drained(pipeline)[1].loaded == 1
    finally:
        program.kill()


def test_a_load_that_finds_the_file_taken_is_put_back_and_goes_on(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first drains find no file, so neither waits before its claim; then one of them makes it."""
    street = Street(tmp_path, spark, shops=1, runs=1)
    apply, refused = Warehouse.apply, []

    def taken_once(self: Warehouse, load: Any) -> Any:
        if not refused:
            refused.append(load)
            raise Held("the other was first")
        return apply(self, load)

    monkeypatch.setattr(Warehouse, "apply", taken_once)
    with street.open("shop0") as pipeline:
        _, report = drained(pipeline)
        [key] = [event.key for event in drained(pipeline)[0] if isinstance(event, Loaded)] or [pipeline.key(refused[0].item)]
        assert (report.stop, report.loaded, report.failed) == (Stop.IDLE, 1, 0)
        assert [str(record.state) for record in pipeline.manifest.history(key)].count("Failed") == 0


def test_a_drain_without_company_opens_the_file_once(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening and closing the file costs as much as a small load."""
    street = Street(tmp_path, spark, shops=1, runs=3)
    opened, open_ = [], DuckDB._open
    monkeypatch.setattr(DuckDB, "_open", lambda self: opened.append(1) or open_(self))
    with street.open("shop0") as pipeline:
        assert drained(pipeline)[1].loaded == 3
        assert len(opened) == 1


@pytest.mark.long
def test_four_drains_on_one_file_take_turns(tmp_path: Path, spark: Any) -> None:
    shops, runs = 4, 8
    street = Street(tmp_path, spark, shops, runs)
    drains = [street.process(name, wait=True) for name in street.names]
    try:
        for one in drains:
            assert one.stdout and one.stdout.readline() == "ready\n"
        for one in drains:
            assert one.stdin
            one.stdin.write("\n")
            one.stdin.flush()
        for one in drains:
            output, _ = one.communicate(timeout=120)
            assert '"stop": "idle"' in output and f'"loaded": {runs}' in output, output
    finally:
        for one in drains:
            one.kill()
    with closing(DuckDB(street.warehouse)) as warehouse:
        ledger = warehouse.execute(
            f"SELECT dataset FROM {warehouse.qualified('manifest_platform', 'ledger')} ORDER BY applied_at"
        )
    assert len(ledger) == shops * runs
    assert len(list(groupby(ledger))) > 2 * shops, "nobody waited until another had done all its work"
