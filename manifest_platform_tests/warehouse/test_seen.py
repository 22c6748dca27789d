"""Rows that earlier loads have brought are left out: remembered in a store beside the manifest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from manifest_platform import failpoints
from manifest_platform.manifest.store import Store, StoreUnavailable
from manifest_platform.warehouse.apply import Applied, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import Unavailable
from manifest_platform.warehouse.repeats import Repeats, Rule
from manifest_platform.warehouse.scratch import scratch
from manifest_platform.warehouse.seen import Seen
from manifest_platform_tests.warehouse.shop import Recording
from manifest_platform_tests.warehouse.test_repeats import IDENTITY, applied, clicks, ids, run

RULE = Rule(IDENTITY, days=180, remembered=True)
pytestmark = [pytest.mark.engines("duckdb")]


class Crash(Exception):
    pass


def rule(store: Store, place: str = "shop~load", now: datetime | None = None) -> Repeats:
    clock = (lambda: now) if now else (lambda: datetime.now(UTC))
    return Repeats(RULE, Seen(place, RULE, lambda: store, clock))


def claims(store: Store, place: str = "shop~load") -> dict[str, str]:
    """The claims of a target: items by id. The ids of these tests are claimed with one fingerprint each."""
    rows = [row for digit in "0123456789abcdef" for row in store.query(f"{place}~{digit}", digit)]
    return {f"{row.data['id']}{row.sort}": row.data["item"] for row in rows}


def crashing(name: str, patch: pytest.MonkeyPatch) -> None:
    def reach(reached: str) -> None:
        if reached == name:
            raise Crash

    patch.setattr(failpoints, "reach", reach)


@pytest.mark.every_store
def test_case_c_of_five_events_two_are_loaded(
    shop: Warehouse, engine: Recording, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has A of two fingerprints and X of an applied run, and U of this run, whose first attempt has crashed.

    The second copy of B never comes here: shredding leaves it out. From landing on, the case is in `pipeline/test_duplicates`.
    """
    seen = rule(store)
    applied(shop, run(tmp_path, "1", ("A", "fpA"), ("X", "fpA"), ("A", "fpOther"), repeats=seen))
    with monkeypatch.context() as patch:
        crashing("load.before_transaction", patch)
        with pytest.raises(Crash):
            shop.apply(run(tmp_path / "first", "2", ("U", "fpU"), repeats=seen, believed="record-1"))
    assert len(claims(store)) == 4
    done = applied(shop, run(tmp_path, "2", ("A", "fpA"), ("B", "fpB"), ("U", "fpU"), repeats=seen, believed="record-1"))
    assert done.entry.rows == {"events": 2, "clicks": 4, "other": 1}
    assert ("B", "fpB") in ids(engine) and ("U", "fpU") in ids(engine) and len(ids(engine)) == 5
    assert clicks(engine).count("2-0") == 2
    assert len(claims(store)) == 5
    assert "1 rows of table events were left out" in done.told[0]


@pytest.mark.parametrize(
    ("again", "loaded"),
    [(("1", "A", "fp"), True), (("2", "A", "fp"), False), (("2", "A", "other"), True), (("2", "B", "fp"), True)],
)
@pytest.mark.every_store
def test_case_d_which_events_are_accepted(
    shop: Warehouse, store: Store, tmp_path: Path, again: tuple[str, str, str], loaded: bool
) -> None:
    """The same event of the same run is accepted again, of another run not; another id or fingerprint always is."""
    seen = rule(store)
    first = run(tmp_path, "1", ("A", "fp"), repeats=seen)
    applied(shop, first)
    item, *identity = again
    second = run(tmp_path / "again", item, (identity[0], identity[1]))
    memory = seen.memory
    assert memory
    with scratch(second.listing) as place:
        copies = memory.copies(item, second.listing, lambda one: one == "1", place)
        assert bool(copies) is not loaded
    assert not any(Path(uri.removeprefix("file://")).exists() for uri in copies)


@pytest.mark.every_store
@pytest.mark.parametrize("point", ["load.before_transaction", "load.in_transaction"])
def test_a_crash_between_claims_and_commit_loses_no_event(
    shop: Warehouse, engine: Recording, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    seen = rule(store)
    applied(shop, run(tmp_path, "1", ("a", "x"), repeats=seen))
    second = run(tmp_path, "2", ("a", "x"), ("b", "x"), repeats=seen, believed="record-1")
    for _ in range(2):
        with monkeypatch.context() as patch:
            crashing(point, patch)
            with pytest.raises(Crash):
                shop.apply(second)
    assert len(claims(store)) == 2
    assert applied(shop, second).entry.rows["events"] == 1
    assert ids(engine) == [("a", "x"), ("b", "x")]


def test_a_claim_of_an_item_that_was_never_applied_is_taken_over(
    shop: Warehouse, engine: Recording, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skipped run, or a warehouse that was set back: its claims must not hide the events of another run."""
    seen = rule(store)
    with monkeypatch.context() as patch:
        crashing("load.before_transaction", patch)
        with pytest.raises(Crash):
            shop.apply(run(tmp_path, "1", ("a", "x"), repeats=seen))
    assert applied(shop, run(tmp_path, "2", ("a", "x"), repeats=seen)).entry.rows["events"] == 1
    third = applied(shop, run(tmp_path, "3", ("a", "x"), repeats=seen, believed="record-2"))
    assert third.entry.rows["events"] == 0
    assert ids(engine) == [("a", "x")]
    assert list(claims(store).values()) == ["2"]


def test_each_target_has_a_memory_of_its_own(shop: Warehouse, store: Store, tmp_path: Path) -> None:
    other = Warehouse(DuckDB(tmp_path / "other.duckdb"), "shop")
    for target, place in ((shop, "shop~load"), (other, "shop~load/other")):
        seen = rule(store, place)
        assert applied(target, run(tmp_path, "1", ("a", "x"), repeats=seen)).entry.rows["events"] == 1
        second = run(tmp_path, "2", ("a", "x"), repeats=seen, believed="record-1")
        assert applied(target, second).entry.rows["events"] == 0
    other.close()


def test_a_claim_expires_and_is_removed_later(shop: Warehouse, store: Store, tmp_path: Path) -> None:
    now = datetime(2024, 5, 1, tzinfo=UTC)
    several = [(f"e{number}", "x") for number in range(40)]
    applied(shop, run(tmp_path, "1", *several, repeats=rule(store, now=now)))
    soon = rule(store, now=now + timedelta(days=179))
    late = rule(store, now=now + timedelta(days=181))
    assert applied(shop, run(tmp_path, "2", ("e1", "x"), repeats=soon, believed="record-1")).entry.rows["events"] == 0
    assert applied(shop, run(tmp_path, "3", ("e1", "x"), repeats=late, believed="record-2")).entry.rows["events"] == 1
    assert len(claims(store)) >= 40 - 15  # those of one of sixteen parts, chosen at random
    left = len(claims(store))
    memory = late.memory
    assert isinstance(memory, Seen)
    for _ in range(400):
        memory._forget(1)
        left = min(left, len(claims(store)))
        if left == 1:
            break
    assert set(claims(store).values()) == {"3"}


@pytest.mark.every_store
def test_claims_are_batched(shop: Warehouse, store: Store, tmp_path: Path) -> None:
    """A request for each event is what the claims of Snowplow's transformer cost."""
    seen = rule(store)
    before = store.requests
    applied(shop, run(tmp_path, "1", *((f"event-{number}", "x") for number in range(1_000)), repeats=seen))
    assert store.requests - before <= 40


@pytest.mark.stores("dynamodb")
def test_a_store_that_removes_expired_rows_is_not_searched_for_them(
    shop: Warehouse, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    monkeypatch.setattr(Seen, "_forget", lambda _seen, made: searched.append(made))
    applied(shop, run(tmp_path, "1", ("a", "x"), repeats=rule(store)))
    assert searched == []


def test_an_event_without_a_fingerprint_is_not_claimed(shop: Warehouse, store: Store, tmp_path: Path) -> None:
    seen = rule(store)
    for position in ("1", "2"):
        believed = "record-1" if position == "2" else None
        done = applied(shop, run(tmp_path, position, ("a", None), repeats=seen, believed=believed))
        assert done.entry.rows["events"] == 1
    assert claims(store) == {}


def test_a_store_that_cannot_be_used_is_an_outage_and_nothing_is_loaded(
    shop: Warehouse, engine: Recording, store: Store, tmp_path: Path
) -> None:
    def down() -> Store:
        raise StoreUnavailable("no answer")

    wanted = run(tmp_path, "1", ("a", "x"), repeats=Repeats(RULE, Seen("shop~load", RULE, down)))
    with pytest.raises(Unavailable, match="no answer"):
        shop.apply(wanted)
    assert isinstance(shop.apply(replace(wanted, repeats=rule(store))), Applied)
