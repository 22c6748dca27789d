from __future__ import annotations

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from manifest_platform.manifest import Manifest, Store
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Put, StoreRejected
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    LOAD,
    LossyStore,
    assert_kept,
    claim_next,
    discover,
    history,
    key,
    land,
    landed,
    lease,
    load_next,
    manifest,
    register_by_hand,
    shred,
    steps,
    twin,
)


class CountingStore(LossyStore):
    """Counts the requests to a store, and calls `before` ahead of each transaction."""

    def __init__(self, store: Store):
        super().__init__(store, "none", at=0)
        self.reads = 0
        self.before: Callable[[], object] = lambda: None

    def get(self, *args, **kwargs):
        self.reads += 1
        return super().get(*args, **kwargs)

    def get_many(self, *args, **kwargs):
        self.reads += 1
        return super().get_many(*args, **kwargs)

    def query(self, *args, **kwargs):
        self.reads += 1
        return super().query(*args, **kwargs)

    def transact(self, *args, **kwargs):
        self.before()
        return super().transact(*args, **kwargs)


def test_a_directory_is_registered_once_however_often_it_is_seen(store: Store) -> None:
    of = manifest(store)
    assert discover(of, 2, 1) == ["new", "new"]
    assert discover(of, 1, 3, 2) == ["known", "new", "known"]
    assert discover(manifest(store), 3, 1, 2) == ["known"] * 3
    assert [history(of, number) for number in (1, 2, 3)] == [["discover New"]] * 3
    assert [item.landed for item in of.items(FEED)] == [landed(1), landed(2), landed(3)]
    assert_kept(of, "quarantine")


def test_discovering_nothing_writes_nothing(store: Store) -> None:
    counting = CountingStore(store)
    assert discover(manifest(counting)) == []
    assert (counting.reads, counting.transactions) == (0, 0)


def test_a_directory_listed_twice_is_registered_once(store: Store) -> None:
    of = manifest(store)
    found = of.discover(FEED, [landed(1), landed(1), landed(1, "rewritten")])
    assert [one.outcome for one in found] == ["new", "known", "changed"]
    assert [one.landed.checksum for one in found] == ["as-landed", "as-landed", "rewritten"]
    assert history(of, 1) == ["discover New"]


@pytest.mark.parametrize("remembers", [True, False])
def test_a_known_directory_with_another_checksum_is_refused_and_reported(store: Store, remembers: bool) -> None:
    of = manifest(store)
    discover(of, 1)
    of = of if remembers else manifest(store)
    [found] = of.discover(FEED, [landed(1, "rewritten")])
    assert found.outcome == "changed"
    first = of.item(key(1)).landed
    assert first and first.checksum == "as-landed" and len(of.history(key(1))) == 1


def test_a_change_is_still_reported_after_an_operators_new_record(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    of.skip(key(1), "wait")
    of.unskip(key(1), "now")
    assert [one.outcome for one in manifest(store).discover(FEED, [landed(1), landed(1, "other")])] == ["known", "changed"]


def test_hundreds_are_registered_in_few_transactions_and_known_ones_cost_nothing(store: Store) -> None:
    counting = CountingStore(store)
    of = manifest(counting)
    assert Counter(discover(of, *range(300))) == {"new": 300}
    assert counting.transactions <= 12 and counting.reads <= 15
    before = (counting.reads, counting.transactions)
    assert Counter(discover(of, *range(300))) == {"known": 300}
    assert of.known(FEED, [key(number) for number in range(300)]) == {key(number).id: "as-landed" for number in range(300)}
    assert (counting.reads, counting.transactions) == before
    fresh = manifest(counting)
    assert Counter(discover(fresh, *range(300))) == {"known": 300}
    assert counting.reads == before[0] + 1 and counting.transactions == before[1]


def test_batches_stay_within_a_transaction_even_if_all_items_are_late(store: Store) -> None:
    sizes: list[int] = []

    class Measuring(CountingStore):
        def transact(self, partition, writes, token):
            sizes.append(len(writes))
            return super().transact(partition, writes, token)

    of = manifest(Measuring(store), late="append")
    land(of, 500)
    load_next(of)
    assert Counter(discover(of, *range(120))) == {"late": 120}
    assert MAX_WRITES - 3 <= max(sizes) <= MAX_WRITES
    assert of.state(LOAD).feed(FEED).late == 120
    assert_kept(of, "append")


@pytest.mark.every_store
def test_threads_that_find_overlapping_sets_register_each_item_once(store: Store) -> None:
    threads, start = 8, threading.Barrier(8)

    def look(seed: int) -> list[str]:
        of = manifest(store, author=f"thread {seed}")
        numbers = random.Random(seed).sample(range(60), 40)
        start.wait()
        return [f"{number} {outcome}" for number, outcome in zip(numbers, discover(of, *numbers), strict=True)]

    with ThreadPoolExecutor(threads) as pool:
        told = Counter(line for looked in [pool.submit(look, seed) for seed in range(threads)] for line in looked.result())
    of = manifest(store)
    items = list(of.items(FEED))
    assert all(len(item.records) == 1 for item in items)
    assert {line: count for line, count in told.items() if line.endswith("new")} == {
        f"{int(item.key.sort[-3:])} new": 1 for item in items
    }
    assert_kept(of, "quarantine")


def test_a_rival_that_registers_the_same_directories_first_is_noticed(store: Store) -> None:
    counting = CountingStore(store)
    of, rival = manifest(counting), manifest(store)

    def interfere() -> None:
        counting.before = lambda: None
        rival.discover(FEED, [landed(1), landed(2, "theirs")])

    counting.before = interfere
    assert discover(of, 1, 2, 3) == ["known", "changed", "new"]
    counting.before = lambda: rival.discover(FEED, [landed(7)])
    assert discover(of, 7) == ["known"]


@pytest.mark.parametrize("late", ["quarantine", "append"])
def test_the_watermark_may_not_pass_an_item_while_it_is_being_registered(store: Store, late) -> None:
    counting = CountingStore(store)
    of, other = manifest(counting, late=late), manifest(store, late=late)
    land(other, 5)

    def interfere() -> None:
        counting.before = lambda: None
        load_next(other)

    counting.before = interfere
    assert discover(of, 3, 8) == ["late" if late == "append" else "quarantined", "new"]
    assert of.item(key(3)).is_late_for(LOAD) and not of.item(key(8)).is_late_for(LOAD)
    assert_kept(of, late)


@pytest.mark.parametrize("late", ["quarantine", "append"])
def test_a_completion_keeps_the_counters_of_a_concurrent_late_discovery(store: Store, late) -> None:
    counting = CountingStore(store)
    of, other = manifest(counting, late=late), manifest(store, late=late)
    land(of, 2, 4)
    load_next(of)
    with lease(of) as held:
        claim = claim_next(of, held)

        def interfere() -> None:
            counting.before = lambda: None
            discover(other, 1, 3)

        counting.before = interfere
        of.complete(claim, DONE)
    of.next(FEED, "load")
    feed = of.state(LOAD).feed(FEED)
    assert (feed.watermark, feed.late + feed.quarantined) == (key(4).position, 2)
    assert_kept(of, late)


def test_items_of_one_sort_key_are_in_order_of_their_ids(store: Store) -> None:
    of = manifest(store)
    for name in ("b", "a", "a$"):
        register_by_hand(of, twin(1, f"s3://{name}/"))
    with_ids = [item.key.id for item in of.items(FEED)]
    assert with_ids == ["s3://a$/", "s3://a/", "s3://b/"]
    with lease(of, steps()[0].application) as held:
        for claim in of.claim(held, list(of.items(FEED))):
            of.complete(claim, DONE)
    loaded = []
    while len(loaded) < 3:
        with lease(of) as held:
            claim = claim_next(of, held)
            of.complete(claim, DONE)
            loaded.append(claim.item.key.id)
    assert loaded == with_ids


ELSEWHERE = "s3://elsewhere/run=002/"


@pytest.mark.parametrize("elsewhere", [ELSEWHERE, "s3://a/run=002/"])  # sorts after and before the known URI
@pytest.mark.parametrize("remembers", [True, False])
def test_a_run_that_is_known_under_another_uri_is_reported_and_not_registered(
    store: Store, elsewhere: str, remembers: bool
) -> None:
    of = manifest(store)
    land(of, 1, 2, 3)
    of = of if remembers else manifest(store)
    found = of.discover(FEED, [landed(1), twin(2, elsewhere), landed(3), landed(4)])
    assert [one.outcome for one in found] == ["known", "moved", "known", "new"]
    assert [one.known_as for one in found] == [None, key(2).id, None, None]
    assert found[1].landed == twin(2, elsewhere)
    [alone] = manifest(store).discover(FEED, [twin(2, elsewhere)])
    assert (alone.outcome, alone.known_as) == ("moved", key(2).id)
    assert [item.key for item in of.items(FEED)] == [key(number) for number in (1, 2, 3, 4)]
    assert manifest(store).known(FEED, [twin(2, elsewhere).key, key(3)]) == {key(3).id: "as-landed"}
    assert_kept(of, "quarantine")


def test_a_look_asks_only_once_for_recorded_moves_however_many_directories_were_moved(store: Store) -> None:
    counting = CountingStore(store)
    discover(manifest(store), 1, 2)
    of = manifest(counting)
    moved = [twin(1, "s3://elsewhere/run=001/"), twin(2, ELSEWHERE)]
    for _ in range(2):
        of.known(FEED, [one.key for one in moved])
        assert [one.outcome for one in of.discover(FEED, moved)] == ["moved"] * 2
    assert (counting.reads, counting.transactions) == (1 + 2, 0)


def test_only_one_of_several_new_directories_with_the_same_sort_key_is_registered(store: Store) -> None:
    of = manifest(store)
    found = of.discover(FEED, [twin(2, ELSEWHERE), landed(2), landed(2)])
    assert [one.outcome for one in found] == ["moved", "new", "known"]
    assert found[0].known_as == key(2).id


def test_items_of_one_sort_key_that_are_in_the_log_already_are_known(store: Store) -> None:
    of = manifest(store)
    discover(of, 2)
    register_by_hand(of, twin(2, ELSEWHERE))
    found = manifest(store).discover(FEED, [twin(2, ELSEWHERE), landed(2), twin(2, "s3://a/")])
    assert [one.outcome for one in found] == ["known", "known", "moved"]


def test_a_rival_that_registers_the_same_run_under_another_uri_first_is_noticed(store: Store) -> None:
    counting = CountingStore(store)
    of, rival = manifest(counting), manifest(store)

    def interfere() -> None:
        counting.before = lambda: None
        rival.discover(FEED, [landed(1), twin(2, ELSEWHERE)])

    counting.before = interfere
    assert discover(of, 1, 2, 3) == ["known", "moved", "new"]  # the transaction fails on item 1 and reveals the move


def test_the_same_directory_in_two_feeds_makes_two_items(store: Store) -> None:
    of = Manifest(store, "shop", {"a": steps(), "b": steps()}, "test")
    for feed in ("a", "b"):
        [found] = of.discover(feed, [dataclasses.replace(landed(1), key=dataclasses.replace(key(1), feed=feed))])
        assert found.outcome == "new"
    with pytest.raises(ValueError, match="not of feed a"):
        of.discover("a", [landed(1)])


def test_two_datasets_in_one_store_know_nothing_of_each_other(store: Store) -> None:
    here, there = manifest(store), Manifest(store, "other", {FEED: steps()}, "test")
    discover(here, 1)
    assert discover(there, 1) == ["new"]
    load = [land(there, 2), shred(there, 1), load_next(there)]
    assert load[-1] == 1 and here.state(LOAD).version == 0


def noted(of: Manifest) -> dict[str, str]:
    return {name: row.data["checksum"] for name, row in of.looks(FEED).items()}


def note(of: Manifest, **looks: str) -> None:
    """Replaces all notes of the feed by these checksums."""
    of.keep_looks(FEED, of.looks(FEED), {name: {"checksum": checksum} for name, checksum in looks.items()})


def test_notes_of_incomplete_directories_are_kept_and_another_process_newer_note_stays(store: Store) -> None:
    counting = CountingStore(store)
    of, other = manifest(counting), manifest(store)
    assert of.looks(FEED) == {}
    note(of, first="a", second="a")
    before = of.looks(FEED)
    note(other, first="b", second="a")
    of.keep_looks(FEED, before, {"second": {"checksum": "c"}, "third": {"checksum": "c"}})
    assert noted(other) == noted(of) == {"first": "b", "second": "c", "third": "c"}
    assert list(of.items(FEED)) == []


def test_only_changed_notes_are_written(store: Store) -> None:
    counting = CountingStore(store)
    of = manifest(counting)
    note(of, first="a", second="a")
    written: list[str] = []
    counting.before = lambda: written.append("")
    note(of, first="a", second="a")
    assert written == []
    note(of, first="a", second="b")
    assert {name: row.version for name, row in of.looks(FEED).items()} == {"first": 1, "second": 2}
    note(of)
    assert of.looks(FEED) == {}


def test_a_note_accepts_any_directory_name(store: Store) -> None:
    of = manifest(store)
    names = ["run=2024-05-14-12-00-00", "incr/stoptime=202601010015", "a#b", "naïve name", "100%25"]
    note(of, **dict.fromkeys(names, "a"))
    assert sorted(of.looks(FEED)) == sorted(names)


def test_an_older_releases_single_row_of_notes_is_converted_once(store: Store) -> None:
    of = manifest(store)
    old = {"run=1": {"checksum": "a"}, "run=2": {"checksum": "b"}}
    store.transact(of.dataset, [Put(f"LOOKS#{FEED}", old, ABSENT, lasting=True)], "first")
    assert noted(of) == {"run=1": "a", "run=2": "b"}
    assert store.get(of.dataset, f"LOOKS#{FEED}") is None
    before = store.requests
    assert len(of.looks(FEED)) == 2
    assert store.requests == before + 1


@pytest.mark.stores("dynamodb")
def test_a_store_with_a_largest_row_holds_notes_of_any_number_of_directories(store: Store) -> None:
    """An older release kept all notes in one row, which exceeded DynamoDB's 400 KB at some 3,500 notes. Discovery stopped."""
    of = manifest(store)
    look = {"checksum": "0" * 32, "first_seen": "2024-05-14T12:00:00.000000Z"}
    looks = {f"run=2024-05-14-12-00-{number:05d}": look for number in range(3600)}
    with pytest.raises(StoreRejected):
        store.transact(of.dataset, [Put(f"LOOKS#{FEED}", looks, ABSENT)], "as one row")
    of.keep_looks(FEED, {}, looks)
    assert {name: row.data for name, row in of.looks(FEED).items()} == looks


def test_the_memory_of_a_process_that_runs_for_years_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensor's process asks for the directories of its look-back, which moves forward as long as the process runs."""
    monkeypatch.setattr("manifest_platform.manifest.registration.KNOWN", 20)
    of = manifest(store)
    for start in range(1, 60, 3):
        window = [key(number) for number in range(max(1, start - 8), start + 3)]
        land(of, *range(start, start + 3))
        assert set(of.known(FEED, window)) == {one.id for one in window}
        before = of.store.requests
        assert set(of.known(FEED, window)) == {one.id for one in window}
        assert of.store.requests == before, "what is asked for at every look costs nothing"
        assert max(len(of._uris), len(of._confirmed), len(of._asked)) <= 20 + 3
    early = [key(1), key(2)]
    assert set(of.known(FEED, early)) == {one.id for one in early}, "what was forgotten is asked for again"
    assert of.registered(FEED, early) == {one.sort: one.id for one in early}
    assert discover(of, 1, 2, 61) == ["known", "known", "new"]


def test_a_look_at_more_than_is_remembered_costs_nothing_the_second_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.manifest.registration.KNOWN", 10)
    of = manifest(store)
    land(of, *range(1, 31))
    window = [key(number) for number in range(1, 31)]
    of.known(FEED, window)
    before = of.store.requests
    assert len(of.known(FEED, window)) == 30
    assert of.store.requests == before
