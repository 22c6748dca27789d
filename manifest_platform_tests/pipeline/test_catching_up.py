"""Catching up: runs that follow each other are loaded in one transaction, and a worker may be killed at any point of it."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import Application, Ready, Refused
from manifest_platform.pipeline import LOAD, Budget, Pipeline, Stop
from manifest_platform.pipeline.catching_up import FIRST, Pace
from manifest_platform.pipeline.chosen import load_chosen
from manifest_platform.pipeline.events import ItemFailed, Loaded, ShreddedAgain
from manifest_platform.sources.settings import BatchSettings
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.batch import Rows
from manifest_platform.warehouse.errors import LoadFailed, Unclear
from manifest_platform_tests.pipeline.shop import Seen, Shop, drained, history, keys, loaded_record, run_names, watermark
from manifest_platform_tests.pipeline.test_crashes import drained_after_lease, killed
from manifest_platform_tests.servers.warehouses import Place

RUNS = 6
LOADED = ["New", "shred Processing", "shred Processed", "load Processing", "load Processed"]


def catching_up(home: Path, spark: Any, items: int = 100, place: Place | None = None, **settings: Any) -> Shop:
    """A shop with shredded runs, whose loads go together."""
    shop = Shop(home, place, load={"batch": {"items": items}}, **settings)
    shop.shredded(spark, RUNS)
    return shop


def without_tokens(seen: Seen) -> tuple[Any, ...]:
    return seen.rows, seen.ledger, seen.applied


@pytest.fixture(scope="module")
def one_by_one(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """The warehouse after a drain that loads each run by itself."""
    shop = catching_up(tmp_path_factory.mktemp("one"), spark, items=1)
    with shop.open() as pipeline:
        drained(pipeline)
    return without_tokens(shop.seen)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that warehouses were asked to apply."""
    sizes: list[int] = []
    apply_all = Warehouse.apply_all

    def counted(self: Warehouse, loads: Any) -> Any:
        sizes.append(len(loads))
        return apply_all(self, loads)

    monkeypatch.setattr(Warehouse, "apply_all", counted)
    return sizes


def test_ready_runs_are_loaded_in_one_transaction_with_an_event_and_a_record_each(
    tmp_path: Path, spark: Any, one_by_one: tuple[Any, ...], batches: list[int]
) -> None:
    shop = catching_up(tmp_path, spark)
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        assert (report.stop, report.loaded, batches) == (Stop.IDLE, RUNS, [RUNS])
        done = [event for event in events if isinstance(event, Loaded)]
        assert [(event.key.name, event.batch) for event in done] == [(name, RUNS) for name in run_names(*range(RUNS))]
        for number in range(RUNS):
            record = loaded_record(pipeline, number)
            assert history(pipeline, number) == LOADED and record.data["batch"] == RUNS
            assert record.data["rows"] == done[number].rows
        assert sum(event.requests for event in done) <= report.requests
        assert watermark(pipeline) == keys(pipeline, RUNS - 1)[0].sort
        state = pipeline.manifest.state(Application(LOAD)).feed(FEED)
        assert (state.applied, state.believed) == (RUNS, pipeline.warehouse.fence_row(FEED).record)
        drained(pipeline)
    assert without_tokens(shop.seen) == one_by_one and not shop.doubled_events


@pytest.mark.parametrize(
    ("settings", "budget", "expected"),
    [
        ({"items": 4}, Budget(), [4, 2]),
        ({"items": 4}, Budget(items=3), [3]),
        ({"items": 100, "seconds": 1e-6}, Budget(), [RUNS]),  # the first batch is not measured yet
        ({"items": 1}, Budget(), []),
    ],
    ids=str,
)
def test_a_batch_is_bounded(
    tmp_path: Path, spark: Any, batches: list[int], settings: dict[str, Any], budget: Budget, expected: list[int]
) -> None:
    shop = Shop(tmp_path, load={"batch": settings})
    shop.shredded(spark, RUNS)
    with shop.open() as pipeline:
        assert drained(pipeline, budget=budget)[1].loaded == (budget.items or RUNS)
    assert batches == expected


def test_a_batch_is_bounded_by_its_bytes(
    tmp_path: Path, spark: Any, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = catching_up(tmp_path, spark)
    monkeypatch.setattr("manifest_platform.pipeline.catching_up.shredded_bytes", lambda _: 100 * 2**20)
    with shop.open() as pipeline:
        drained(pipeline)
    assert batches == [2, 2, 2]  # of 256 MiB


def test_the_pace_of_the_items_before_bounds_the_next_batch() -> None:
    pace = Pace(BatchSettings(items=1000, seconds=60))
    assert pace.most == FIRST
    pace.took(10, 5)
    assert pace.most == 120
    pace.took(120, 2400)
    assert pace.most == 3
    pace.took(3, 600)
    assert pace.most == 1
    pace.took(1, 0)
    assert pace.most == 1000
    pace.fell_apart(2)
    assert pace.most == 1
    pace.took(1, 0.1)
    assert pace.most == 1
    pace.took(1, 0.1)
    assert pace.most == 600


@pytest.mark.parametrize("fitting", [None, 0, 1, 73, 99])
@pytest.mark.parametrize("guilty", [0, 1, 50, 73, 99])
def test_the_guilty_item_of_a_batch_is_alone_after_some_halves(guilty: int, fitting: int | None) -> None:
    """A wrong number of items that fit costs transactions, and never ends in a circle."""
    pace, loaded, tried = Pace(BatchSettings(items=100, seconds=60)), 0, 1
    pace.fell_apart(100, fitting)
    while True:
        most, tried = pace.most, tried + 1
        assert tried < 100
        if loaded + most <= guilty:
            loaded += most
            pace.took(most, 0.1)
        elif most > 1:
            pace.fell_apart(most)
        else:
            break
    assert loaded == guilty
    assert tried <= 2 + 2 * math.log2(100) if fitting is None else True
    if fitting == guilty:
        assert tried <= 3


def test_a_batch_that_cannot_be_loaded_is_tried_by_halves_and_only_the_guilty_run_is_charged(
    tmp_path: Path, spark: Any, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = catching_up(tmp_path, spark)
    guilty = run_names(3)[0]
    stage = Warehouse._staged

    def staged(self: Warehouse, load: Any) -> Any:
        if load.item.endswith(guilty):
            raise LoadFailed("a column is too long")
        return stage(self, load)

    stage_all = Rows.staged

    def staged_together(self: Rows) -> Any:
        if any(load.item.endswith(guilty) for load in self._loads):
            raise LoadFailed("a column is too long")
        return stage_all(self)

    monkeypatch.setattr(Warehouse, "_staged", staged)
    monkeypatch.setattr(Rows, "staged", staged_together)
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        assert (report.stop, report.loaded, report.failed, batches) == (Stop.BLOCKED, 3, 1, [RUNS, 3])
        assert [event.failure.message for event in events if isinstance(event, ItemFailed)] == ["a column is too long"]
        assert history(pipeline, 0) == [*LOADED[:4], "load Resolved automatic", *LOADED[3:]]
        assert history(pipeline, 3) == [*LOADED[:4], "load Resolved automatic", "load Processing", "load Failed permanent"]
        assert history(pipeline, 5) == [*LOADED[:4], "load Resolved automatic"]
        monkeypatch.undo()
        pipeline.manifest.resolve(keys(pipeline, 3)[0], "mended")
        assert drained(pipeline)[1].loaded == 3
    assert shop.seen.runs == run_names(*range(RUNS)) and not shop.doubled_events


def test_a_run_whose_output_is_lost_ends_the_batch_before_it(tmp_path: Path, spark: Any, batches: list[int]) -> None:
    shop = catching_up(tmp_path, spark)
    with shop.open() as pipeline:
        record = pipeline.manifest.item(keys(pipeline, 2)[0]).processed_by(Application("shred"))
        assert record is not None
        Path(record.data["listing"].removeprefix("file://")).unlink()
        events, _ = drained(pipeline, spark)
        assert [event.key.name for event in events if isinstance(event, ShreddedAgain)] == run_names(2)
    assert batches == [2, 4] and shop.seen.runs == run_names(*range(RUNS))


def test_a_late_run_is_loaded_alone(tmp_path: Path, spark: Any, batches: list[int]) -> None:
    shop = Shop(tmp_path, load={"batch": {"items": 100}})
    with shop.open() as pipeline:
        shop.land(pipeline, 2)
        drained(pipeline, spark)
        shop.land(pipeline, 0, 1, 3, 4)
        drained(pipeline, spark)
    assert batches == [2] and shop.seen.ledger == [(name, name in run_names(0, 1)) for name in run_names(2, 0, 1, 3, 4)]


def test_a_skipped_run_is_passed_over_and_an_unshredded_run_ends_the_batch(
    tmp_path: Path, spark: Any, batches: list[int]
) -> None:
    shop = catching_up(tmp_path, spark)
    with shop.open() as pipeline:
        pipeline.manifest.skip(keys(pipeline, 1)[0], "not wanted")
        pipeline.manifest.reopen(keys(pipeline, 4)[0], ["shred"], "shred it again")
        assert drained(pipeline, budget=Budget(items=0))[1].stop is Stop.BUDGET_ITEMS
        verdict = pipeline.manifest.next(FEED, LOAD)
        assert isinstance(verdict, Ready)
        assert [item.key.name for item in pipeline.manifest.following(verdict, LOAD, 10)] == run_names(2, 3)
        drained(pipeline, spark)
    assert batches == [5] and shop.seen.runs == run_names(0, 2, 3, 4, 5)


def test_chosen_runs_are_loaded_together_and_no_others(tmp_path: Path, spark: Any, batches: list[int]) -> None:
    shop = catching_up(tmp_path, spark)
    with shop.open() as pipeline:
        events = list(load_chosen(pipeline, keys(pipeline, 0, 1, 2)))
        assert [event.key.name for event in events if isinstance(event, Loaded)] == run_names(0, 1, 2)
    assert batches == [3] and shop.seen.runs == run_names(0, 1, 2)


def test_many_runs_are_claimed_and_completed_in_parts(
    tmp_path: Path, spark: Any, batches: list[int], monkeypatch: pytest.MonkeyPatch, one_by_one: tuple[Any, ...]
) -> None:
    shop = catching_up(tmp_path, spark)
    monkeypatch.setattr("manifest_platform.pipeline.catching_up.MAX_WRITES", 9)  # two items
    with shop.open() as pipeline:
        drained(pipeline)
        assert all(history(pipeline, number) == LOADED for number in range(RUNS))
    assert batches == [RUNS] and without_tokens(shop.seen) == one_by_one


@pytest.mark.parametrize(
    ("point", "committed", "completed"),
    [
        pytest.param("batch.claimed", False, 0, marks=pytest.mark.long),
        pytest.param("batch.before_transaction", False, 0, marks=pytest.mark.long),
        pytest.param("batch.in_transaction", False, 0, marks=pytest.mark.long),
        ("batch.committed", True, 0),
        ("batch.completed", True, 4),
    ],
)
def test_a_worker_killed_in_a_batch_loses_and_doubles_nothing(
    tmp_path: Path, place: Place, spark: Any, one_by_one: tuple[Any, ...], point: str, committed: bool, completed: int
) -> None:
    shop = catching_up(tmp_path, spark, place=place, lease={"seconds": 1, "max_attempts": 3})
    killed(process_in_parts(shop, f"{point}:kill"))
    with shop.open() as pipeline:
        open_ = [history(pipeline, number) for number in range(RUNS)]
        claimed = 4 if point == "batch.claimed" else RUNS
        assert open_ == [LOADED] * completed + [LOADED[:4]] * (claimed - completed) + [LOADED[:3]] * (RUNS - claimed)
        report = drained_after_lease(pipeline)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
        again = [] if committed else ["load Failed lease_expired", "load Resolved automatic", "load Processing"]
        assert history(pipeline, 1) == [*LOADED[:4], *again, "load Processed"]
    assert without_tokens(shop.seen) == one_by_one and not shop.doubled_events


def process_in_parts(shop: Shop, failpoint: str) -> subprocess.Popen[str]:
    """A process that drains the shop, and claims and completes four runs at a time."""
    return shop.process(failpoint, "--parts", "4")


def test_runs_that_a_worker_died_with_are_tried_with_fewer(tmp_path: Path, spark: Any, batches: list[int]) -> None:
    shop = catching_up(tmp_path, spark, lease={"seconds": 1, "max_attempts": 3})
    killed(shop.process("batch.in_transaction:kill"))
    with shop.open() as pipeline:
        drained_after_lease(pipeline)
    assert batches == [3, 3] and shop.seen.runs == run_names(*range(RUNS))


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_an_answer_is_settled_by_the_ledger(
    tmp_path: Path, spark: Any, batches: list[int], committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from manifest_platform.warehouse.engines.engine import Transaction

    shop = catching_up(tmp_path, spark)
    commit = Transaction.commit
    left = [1]

    def unclear(self: Transaction) -> None:
        if not left or not batches:
            return commit(self)
        left.pop()
        if committed:
            commit(self)
        raise Unclear("no answer")

    monkeypatch.setattr(Transaction, "commit", unclear)
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
        assert [event.key.name for event in events if isinstance(event, Loaded)] == run_names(*range(RUNS))
    assert batches == ([RUNS] if committed else [RUNS, 3, 3]) and not shop.doubled_events


def test_nothing_is_claimed_before_every_run_of_a_dead_worker_is_settled(tmp_path: Path, spark: Any) -> None:
    shop = catching_up(tmp_path, spark)
    with shop.open() as pipeline:
        manifest = pipeline.manifest
        verdict = manifest.next(FEED, LOAD)
        assert isinstance(verdict, Ready)
        items = [verdict.item, *manifest.following(verdict, LOAD, 2)]
        with pipeline.lease(FEED, LOAD) as lease:
            manifest.claim(lease, items, verdict.state)
        with pipeline.lease(FEED, LOAD) as lease:
            for item in items:
                with pytest.raises(Refused, match=f"{item.key.name} is unsettled"):
                    manifest.claim(lease, items, verdict.state)
                left = manifest.unsettled(lease)
                assert left and left.item.key == item.key
                manifest.abandon(lease, left)
            assert manifest.unsettled(lease) is None
            assert drained_ready(pipeline)[0] == items[0].key


def drained_ready(pipeline: Pipeline) -> list[Any]:
    verdict = pipeline.manifest.next(FEED, LOAD, holding=True)
    return [verdict.item.key] if isinstance(verdict, Ready) else []
