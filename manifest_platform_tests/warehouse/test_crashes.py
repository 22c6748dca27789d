"""Real processes, killed or stopped where a load is most vulnerable."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from manifest_platform.testing.loads import FEED, PRODUCT, SITE, content, events, gone, load, products, snapshot, window
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import Unavailable
from manifest_platform_tests.warehouse.shop import process, seen


@pytest.mark.parametrize(
    ("point", "applied"), [("load.before_transaction", False), ("load.in_transaction", False), ("load.committed", True)]
)
def test_after_a_kill_the_ledger_tells_and_the_item_is_there_once(tmp_path: Path, point: str, applied: bool) -> None:
    path = tmp_path / "shop.duckdb"
    wanted = load(events(tmp_path, "a"))
    killed = process(tmp_path, path, wanted, f"{point}:kill")
    output, _ = killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL, output

    successor = Warehouse(DuckDB(path), "shop")
    successor.raise_fence(FEED, token=2, epoch=1)
    assert (successor.ledger_entry(FEED, "a", 1) is not None) == applied
    result = successor.apply(load(wanted.listing, token=2))
    successor.close()
    assert isinstance(result, AlreadyApplied if applied else Applied)
    assert seen(path) == {"events": 3, "fence": (2, 1, "a"), "ledger": [("a", 1, False)]}


@pytest.mark.parametrize(
    ("point", "applied"),
    [
        ("load.before_transaction", False),
        ("load.in_transaction", False),
        ("load.committed", True),
        ("full.shadows_built", False),
        ("full.in_transaction", False),
        ("full.committed", True),
    ],
)
def test_A5_A6_F15_after_a_kill_deletes_upserts_and_snapshots_are_there_once(
    tmp_path: Path, path: Path, point: str, applied: bool
) -> None:
    engine = DuckDB(path)
    warehouse = Warehouse(engine, "shop")
    warehouse.apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}])))
    before = content(engine)
    warehouse.close()
    if point.startswith("full"):
        wanted, after = snapshot(tmp_path, "0015", products(a="1")), {PRODUCT.name: [("a", "1")], SITE.name: []}
    else:
        wanted = window(tmp_path, "0030", gone(PRODUCT, "a"), products(b="2", c="2"))
        after = {**before, PRODUCT.name: [("b", "2"), ("c", "2")]}
    killed = process(tmp_path, path, wanted, f"{point}:kill")
    output, _ = killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL, output

    def data() -> dict[str, list[tuple[object, ...]]]:
        return {table: rows for table, rows in content(engine).items() if "__mp_" not in table}

    assert data() == (after if applied else before)
    warehouse.raise_fence(wanted.feed, token=2, epoch=wanted.epoch)
    assert (warehouse.ledger_entry(wanted.feed, wanted.item, wanted.serving_epoch) is not None) == applied
    again = warehouse.apply(replace(wanted, token=2))
    assert isinstance(again, AlreadyApplied if applied else Applied)
    assert data() == after
    # What a dead worker left is dropped by the next full load, and nobody counts it until then.
    assert sorted(warehouse.row_counts()) == sorted(after)
    warehouse.apply(snapshot(tmp_path, "0030", products(a="2"), epoch=3, token=2))
    assert sorted(engine.columns("shop")) == sorted(after)
    warehouse.close()


def test_a_stopped_process_keeps_the_file_locked_and_goes_on_when_resumed(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    stopped = process(tmp_path, path, load(events(tmp_path, "a")), "load.in_transaction:stop")
    try:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(Unavailable, match=rf"shop.duckdb is locked by another process.*PID {stopped.pid}"):
            Warehouse(DuckDB(path, patience=0.2), "shop").raise_fence(FEED, token=2, epoch=1)
        os.kill(stopped.pid, signal.SIGCONT)
        output, _ = stopped.communicate(timeout=60)
    finally:
        stopped.kill()
    assert output == "Applied\n"
    assert seen(path)["ledger"] == [("a", 1, False)]


def test_a_file_that_is_released_in_time_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    stopped = process(tmp_path, path, load(events(tmp_path, "a")), "load.in_transaction:stop")
    try:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        threading.Timer(0.3, stopped.send_signal, (signal.SIGCONT,)).start()
        waiting = Warehouse(DuckDB(path, patience=30), "shop")
        assert waiting.ledger_entry(FEED, "a", 1) is not None
        waiting.close()
    finally:
        stopped.kill()
        stopped.communicate()
