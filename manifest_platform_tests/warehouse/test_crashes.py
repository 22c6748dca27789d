"""Real processes, killed or stopped where a load is most vulnerable, on every engine."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from manifest_platform.testing.loads import (
    FEED,
    INCR,
    PRODUCT,
    SITE,
    content,
    events,
    fences,
    gone,
    ledger,
    load,
    products,
    rows_of,
    snapshot,
    window,
)
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse
from manifest_platform.warehouse.errors import Unavailable
from manifest_platform_tests.servers.warehouses import Place
from manifest_platform_tests.warehouse.shop import process


def killed(directory: Path, place: Place, wanted: Load, point: str) -> None:
    """Applies a load in another process, which kills itself at a point."""
    one = process(directory, place, wanted, f"{point}:kill")
    output, told = one.communicate(timeout=60)
    assert one.returncode == -signal.SIGKILL, output + told


def stopped(one: subprocess.Popen[str]) -> None:
    os.waitid(os.P_PID, one.pid, os.WSTOPPED | os.WNOWAIT)


def resumed(one: subprocess.Popen[str]) -> str:
    """The outcome of a stopped process."""
    one.send_signal(signal.SIGCONT)
    output, told = one.communicate(timeout=60)
    assert one.returncode == 0, told
    return output.strip()


@pytest.mark.parametrize(
    ("point", "applied"), [("load.before_transaction", False), ("load.in_transaction", False), ("load.committed", True)]
)
def test_after_a_kill_the_ledger_tells_and_the_item_is_there_once(
    tmp_path: Path, place: Place, point: str, applied: bool
) -> None:
    wanted = load(events(place.objects, "a"))
    killed(tmp_path, place, wanted, point)
    engine = place.open()
    successor = Warehouse(engine, "shop")
    successor.raise_fence(FEED, token=2, epoch=1)
    assert (successor.ledger_entry(FEED, "a", 1) is not None) == applied
    result = successor.apply(load(wanted.listing, token=2))
    assert isinstance(result, AlreadyApplied if applied else Applied)
    assert (successor.row_counts(), fences(engine), ledger(engine)) == ({"events": 3}, {FEED: (2, 1, "a")}, [("a", 1)])
    successor.close()


POINTS = [
    ("load.before_transaction", False),
    ("load.in_transaction", False),
    ("load.committed", True),
    ("full.shadows_built", False),
    ("full.in_transaction", False),
    ("full.committed", True),
]


@pytest.mark.parametrize(("point", "applied"), POINTS)
def test_A5_A6_F15_after_a_kill_deletes_upserts_and_snapshots_are_there_once(
    tmp_path: Path, place: Place, point: str, applied: bool
) -> None:
    engine = place.open()
    warehouse = Warehouse(engine, "shop")
    warehouse.apply(window(place.objects, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}])))
    before = content(engine)
    warehouse.close()
    if point.startswith("full"):
        wanted, after = snapshot(place.objects, "0015", products(a="1")), {PRODUCT.name: [("a", "1")], SITE.name: []}
    else:
        wanted = window(place.objects, "0030", gone(PRODUCT, "a"), products(b="2", c="2"))
        after = {**before, PRODUCT.name: [("b", "2"), ("c", "2")]}
    killed(tmp_path, place, wanted, point)

    def data() -> dict[str, list[tuple[object, ...]]]:
        return {table: rows for table, rows in content(engine).items() if "__mp_" not in table}

    warehouse.raise_fence(wanted.feed, token=2, epoch=wanted.epoch)
    assert data() == (after if applied else before)
    assert (warehouse.ledger_entry(wanted.feed, wanted.item, wanted.serving_epoch) is not None) == applied
    again = warehouse.apply(replace(wanted, token=2))
    assert isinstance(again, AlreadyApplied if applied else Applied)
    assert data() == after
    # What a dead worker left is dropped by the next full load, and nobody counts it until then.
    assert sorted(warehouse.row_counts()) == sorted(after)
    warehouse.apply(snapshot(place.objects, "0030", products(a="2"), epoch=3, token=2))
    assert sorted(engine.columns("shop")) == sorted(after)
    warehouse.close()


def test_a_process_that_stops_in_its_transaction_is_waited_for_and_goes_on_when_resumed(tmp_path: Path, place: Place) -> None:
    one = process(tmp_path, place, load(events(place.objects, "a")), "load.in_transaction:stop")
    try:
        stopped(one)
        told = rf"warehouse.duckdb is locked by another process.*PID {one.pid}" if place.kind == "duckdb" else None
        with pytest.raises(Unavailable, match=told):
            Warehouse(place.open(patience=0.2), "shop").raise_fence(FEED, token=2, epoch=1)
        assert resumed(one) == "Applied"
    finally:
        one.kill()
    assert ledger(place.open()) == [("a", 1)]


def test_a_lock_that_is_released_in_time_is_waited_for(tmp_path: Path, place: Place) -> None:
    one = process(tmp_path, place, load(events(place.objects, "a")), "load.in_transaction:stop")
    try:
        stopped(one)
        threading.Timer(0.3, one.send_signal, (signal.SIGCONT,)).start()
        waiting = Warehouse(place.open(patience=30), "shop")
        waiting.raise_fence(FEED, token=2, epoch=1)
        assert waiting.ledger_entry(FEED, "a", 1) is not None
        waiting.close()
    finally:
        one.kill()
        one.communicate()


@pytest.mark.engines("postgresql", "redshift")
@pytest.mark.everyday("postgresql")
@pytest.mark.parametrize(
    "kind", [pytest.param("append", marks=pytest.mark.long), "merge", pytest.param("full", marks=pytest.mark.long)]
)
def test_A8_a_worker_that_is_resumed_after_its_successor_finished_changes_nothing(
    tmp_path: Path, place: Place, kind: str
) -> None:
    """On a server, nothing but the fence keeps the resumed worker out: its connection and its staged rows are whole."""
    engine = place.open()
    warehouse = Warehouse(engine, "shop")
    warehouse.apply(window(place.objects, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}])))
    wanted = {
        "append": load(events(place.objects, "a")),
        "merge": window(place.objects, "0030", gone(PRODUCT, "a"), products(b="2")),
        "full": snapshot(place.objects, "0015", products(a="1")),
    }[kind]
    one = process(tmp_path, place, wanted, "full.shadows_built:stop" if kind == "full" else "load.before_transaction:stop")
    try:
        stopped(one)
        warehouse.raise_fence(wanted.feed, token=2, epoch=wanted.epoch)
        assert isinstance(warehouse.apply(replace(wanted, token=2)), Applied)
        if kind == "merge":
            warehouse.apply(window(place.objects, "0045", products(b="3"), token=2))
        before = content(engine), fences(engine), ledger(engine)
        warehouse.close()
        assert resumed(one) == "Fenced"
    finally:
        one.kill()
    assert (content(engine), fences(engine), ledger(engine)) == before
    warehouse.close()


@pytest.mark.engines("postgresql", "redshift")
@pytest.mark.everyday("postgresql")
@pytest.mark.parametrize("kind", ["merge", pytest.param("full", marks=pytest.mark.long)])
def test_readers_are_not_kept_waiting_by_a_load_and_see_the_old_rows(tmp_path: Path, place: Place, kind: str) -> None:
    engine = place.open(patience=0.5)
    warehouse = Warehouse(engine, "shop")
    warehouse.apply(window(place.objects, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}])))
    before = content(engine)
    wanted = (
        snapshot(place.objects, "0015", products(a="2"))
        if kind == "full"
        else window(place.objects, "0030", gone(PRODUCT, "a"), products(b="2"))
    )
    one = process(tmp_path, place, wanted, f"{'full' if kind == 'full' else 'load'}.in_transaction:stop")
    try:
        stopped(one)
        assert {name: rows for name, rows in content(engine).items() if "__mp_" not in name} == before
        assert warehouse.ledger_entry(INCR, "incr-0015", 1) is not None
        assert resumed(one) == "Applied"
    finally:
        one.kill()
    assert rows_of(engine, PRODUCT) == ([("a", "2")] if kind == "full" else [("b", "2")])
    warehouse.close()
