from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from uuid import uuid4

import pytest

from manifest_platform.manifest import Application, Failure, FailureKind, Item, ItemKey, Manifest, Refused, State, Step, Store
from manifest_platform.manifest.choosing import FIRST_PAGE
from manifest_platform.manifest.dataset import StepState
from manifest_platform.manifest.keys import pending_key
from manifest_platform.manifest.queries import failed_by, locked_by, prepared, processed_by, unprocessed
from manifest_platform.manifest.store import ABSENT, Put, Write
from manifest_platform.manifest.transitions import put_record, put_state
from manifest_platform_tests.manifest import given
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    LOAD,
    SHRED,
    Clock,
    discover,
    key,
    land,
    landed,
    load_next,
    manifest,
    number_of,
    shred,
)
from manifest_platform_tests.manifest.test_snowplow_cases import uid


def numbers(items: Iterable[Item]) -> list[int]:
    return [number_of(item.key) for item in items]


def fail(of: Manifest, application: Application, number: int) -> None:
    with given.lease(of, application) as held:
        state = of.state(application) if application == LOAD else None
        [claim] = of.claim(held, [of.item(key(number))], state)
        of.fail(claim, Failure(FailureKind.PERMANENT, "broken"))


def a_bit_of_everything(store: Store) -> Manifest:
    """Item 1 is loaded, 2 skipped for load, 3 failed to load, 4 failed to shred, 5 is new, 6 is being shredded."""
    of = manifest(store)
    land(of, 1, 2, 3)
    assert load_next(of) == 1
    of.skip(key(2), "not wanted", "load")
    fail(of, LOAD, 3)
    discover(of, 4, 5, 6)
    fail(of, SHRED, 4)
    given.kill(held := given.lease(of, SHRED))
    of.claim(held, [of.item(key(6))])
    return of


def test_each_query_finds_its_items(store: Store) -> None:
    of = a_bit_of_everything(store)
    assert numbers(unprocessed(of, FEED, LOAD)) == [3, 4, 5, 6]
    assert numbers(unprocessed(of, FEED, LOAD, prepared_by=SHRED)) == [3]
    assert numbers(unprocessed(of, FEED, SHRED)) == [4, 5, 6]
    assert numbers(processed_by(of, FEED, SHRED)) == [3, 2, 1]
    assert numbers(processed_by(of, FEED, LOAD)) == [1]
    assert numbers(failed_by(of, FEED, LOAD)) == [3]
    assert numbers(failed_by(of, FEED, SHRED)) == [4]
    assert numbers(locked_by(of, FEED, SHRED)) == [6]
    assert numbers(locked_by(of, FEED, LOAD)) == []


def test_a_resolved_item_is_not_failed_and_an_abandoned_item_is_not_locked(store: Store) -> None:
    of = a_bit_of_everything(store)
    of.resolve(key(3), "mended")
    of.resolve(key(4), "mended")
    assert numbers(failed_by(of, FEED, LOAD)) == numbers(failed_by(of, FEED, SHRED)) == []


# Names and instances


def two_loaders(store: Store) -> Manifest:
    loads = [Step(Application("load", instance=instance), upstream=("shred",)) for instance in ("a", "b")]
    return Manifest(store, "shop", {FEED: [Step(SHRED), *loads]}, "test", clock=Clock())


@pytest.mark.parametrize(
    ("asking", "processed", "failed", "locked"),
    [
        ("load", [2, 1], [3], [4]),
        ("load:a", [2, 1], [], [4]),
        ("load:b", [2], [3], []),
        ("load:c", [], [], []),
        ("shred", [5, 4, 3, 2, 1], [], []),
        ("shred:any", [5, 4, 3, 2, 1], [], []),
        ("other", [], [], []),
    ],
)
def test_a_query_is_for_one_instance_or_all_instances(
    store: Store, asking: str, processed: list[int], failed: list[int], locked: list[int]
) -> None:
    of = two_loaders(store)
    land(of, 1, 2, 3, 4, 5)
    a, b = (Application("load", instance=instance) for instance in ("a", "b"))
    for application, number in ((a, 1), (a, 2), (b, 2)):
        with given.lease(of, application) as held:
            of.complete(of.claim(held, [of.item(key(number))])[0], DONE)
    fail(of, b, 3)
    given.kill(held := given.lease(of, a))
    of.claim(held, [of.item(key(4))])
    name, _, instance = asking.partition(":")
    application = Application(name, "any version", instance or None)
    found = [numbers(query(of, FEED, application)) for query in (processed_by, failed_by, locked_by)]
    assert found == [processed, failed, locked]


def test_an_item_that_waits_upstream_of_an_unordered_step_is_unprocessed_too(store: Store) -> None:
    of = two_loaders(store)
    land(of, 1)
    discover(of, 2, 3)
    of.skip(key(3), "not wanted", "load:a")
    a, b = (Application("load", instance=instance) for instance in ("a", "b"))
    assert numbers(unprocessed(of, FEED, a)) == [1, 2]
    assert numbers(unprocessed(of, FEED, b)) == [1, 2, 3]
    assert numbers(unprocessed(of, FEED, a, prepared_by=SHRED)) == [1]
    assert numbers(one.item for one in prepared(of, FEED, b, SHRED)) == [1]


def test_an_item_that_several_ordered_steps_wait_for_is_found_once(store: Store) -> None:
    loads = [Step(Application("load", instance=instance), upstream=("shred",), order="strict") for instance in ("a", "b")]
    of = Manifest(store, "shop", {FEED: [Step(SHRED), *loads]}, "test", clock=Clock())
    discover(of, 1)
    fail(of, SHRED, 1)
    assert numbers(failed_by(of, FEED, SHRED)) == [1]


# Undeclared applications


def test_an_undeclared_application_has_processed_items_but_no_unprocessed_ones(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2, 3)
    of.commit_output(key(2), Application("report"), DONE)
    assert numbers(processed_by(of, FEED, Application("report"))) == [2]
    assert numbers(failed_by(of, FEED, Application("report"))) == []
    with pytest.raises(Refused, match="declares no step 'report'"):
        list(unprocessed(of, FEED, Application("report")))


def test_an_unknown_feed_is_refused(store: Store) -> None:
    for query in (processed_by, failed_by, locked_by, unprocessed):
        with pytest.raises(Refused, match="feed"):
            list(query(manifest(store), "elsewhere", LOAD))


# Late items, skips, epochs


def test_a_waiting_late_item_is_unprocessed_and_a_quarantined_item_is_not(store: Store) -> None:
    for late, waiting in (("append", [2]), ("quarantine", [])):
        of = Manifest(store, late, {FEED: given.steps(late)}, "test", clock=Clock())
        land(of, 1, 3)
        assert [load_next(of), load_next(of)] == [1, 3]
        land(of, 2)
        assert numbers(unprocessed(of, FEED, LOAD)) == waiting
        assert numbers(processed_by(of, FEED, LOAD)) == [3, 1]


def test_a_late_item_that_was_appended_is_among_the_processed(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 1, 3)
    assert [load_next(of), load_next(of)] == [1, 3]
    land(of, 2)
    assert load_next(of) == 2
    assert numbers(processed_by(of, FEED, LOAD)) == [3, 2, 1]


def test_a_failure_of_a_late_item_set_aside_is_found_where_it_waits(store: Store) -> None:
    of = manifest(store, late="quarantine")
    land(of, 1, 3)
    assert [load_next(of), load_next(of)] == [1, 3]
    discover(of, 2)
    fail(of, SHRED, 2)
    assert numbers(failed_by(of, FEED, SHRED)) == [2]


def test_work_of_an_epoch_that_no_longer_serves_does_not_count(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    assert load_next(of) == 1
    fail(of, LOAD, 2)
    state = of.state(LOAD)
    rewound = StepState(epoch=2, feeds=state.feeds, version=state.version).with_feed(
        FEED, serving_epoch=2, watermark="", swept=""
    )
    given.set_state(of, rewound)
    assert numbers(processed_by(of, FEED, LOAD)) == []
    assert numbers(failed_by(of, FEED, LOAD)) == []
    assert numbers(unprocessed(of, FEED, LOAD)) == [1, 2]


# Cost


def wide(number: int) -> ItemKey:
    """The key of an item among thousands."""
    return ItemKey(FEED, f"2026-01-01-{number:06d}", f"s3://bucket/{FEED}/run={number:06d}/")


def fill(of: Manifest, count: int, loaded: int) -> None:
    """Writes `count` shredded items by hand; the first `loaded` of them are loaded, as the operations would have left them."""
    writes: list[Write] = []
    for number in range(1, count + 1):
        found = replace(landed(number), key=wide(number))
        new = given.record(State.NEW, uid(f"{number} new"), application=Application("discover"), payload=found.payload())
        history = [new]
        for application, epoch in [(SHRED, None), (LOAD, 1)][: 2 if number <= loaded else 1]:
            begun, done = (uid(f"{number} {application.key} {end}") for end in ("begun", "done"))
            history.append(given.record(State.PROCESSING, begun, new.record_id, application, epoch=epoch))
            history.append(given.record(State.PROCESSED, done, begun, application, epoch=epoch, payload=DONE))
        writes += [
            put_record(wide(number), replace(one, item=wide(number).id, sequence=at)) for at, one in enumerate(history, start=1)
        ]
    standing = {"watermark": wide(loaded).position, "swept": wide(loaded - 1).position, "applied": loaded}
    writes.append(put_state(LOAD, of.state(LOAD).with_feed(FEED, **standing)))
    for at in range(0, len(writes), 25):
        of.store.transact(of.dataset, writes[at : at + 25], str(uuid4()))


def requests(store: Store, ask: Callable[[], object]) -> int:
    before = store.requests
    ask()
    return store.requests - before


@pytest.fixture
def filled(store: Store) -> Callable[[int], Manifest]:
    """Creates a manifest of `count` items, of which the last two are not loaded."""

    def _filled(count: int) -> Manifest:
        of = Manifest(store, f"items{count}", {FEED: given.steps()}, "test", clock=Clock())
        fill(of, count, count - 2)
        return of

    return _filled


def test_no_query_costs_more_with_many_items_than_with_ten(
    filled: Callable[[int], Manifest], store: Store, store_url: str
) -> None:
    count = 300 if store_url.startswith("dynamodb:") else 2000  # filling the local server of DynamoDB takes minutes
    few, many = filled(10), filled(count)
    for application in (SHRED, LOAD):
        for query in (unprocessed, failed_by, locked_by):
            cost = requests(store, lambda query=query, app=application: list(query(few, FEED, app)))
            assert requests(store, lambda query=query, app=application: list(query(many, FEED, app))) == cost <= 5, query
        for of in (few, many):
            assert requests(store, lambda of=of, app=application: list(processed_by(of, FEED, app, limit=3))) <= 3
    assert requests(store, lambda: prepared(many, FEED, LOAD, SHRED)) <= 4
    assert numbers(processed_by(many, FEED, LOAD, limit=2)) == [count - 2, count - 3]
    assert numbers(processed_by(many, FEED, SHRED, limit=2)) == [count, count - 1]
    assert numbers(islice(processed_by(many, FEED, LOAD), 2)) == [count - 2, count - 3]
    whole = list(processed_by(many, FEED, SHRED))  # pages of 500 records end between the five records of an item
    assert numbers(whole) == list(range(count, 0, -1))
    assert {len(item.records) for item in whole} == {3, 5}
    assert not [item for item in whole if item.problems]


def test_items_done_by_a_strict_step_are_read_from_its_watermark_down(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    of = manifest(store)
    fill(of, 60, 15)
    read: list[int] = []
    query = store.query
    monkeypatch.setattr(store, "query", lambda *given_, **more: (rows := query(*given_, **more), read.append(len(rows)))[0])
    assert numbers(processed_by(of, FEED, LOAD, limit=1)) == [15]
    assert sum(read) == FIRST_PAGE


def test_a_walk_continues_where_it_ended(filled: Callable[[int], Manifest]) -> None:
    of = filled(40)
    page = list(processed_by(of, FEED, LOAD, limit=15))
    seen = numbers(page)
    while page:
        page = list(processed_by(of, FEED, LOAD, before=page[-1].key.position, limit=15))
        seen += numbers(page)
    assert seen == list(range(38, 0, -1))


def test_neighbors_that_wait_are_read_by_the_page(store: Store) -> None:
    of = manifest(store)
    discover(of, *range(1, 31))
    shred(of, *range(1, 11))
    assert requests(store, lambda: list(unprocessed(of, FEED, SHRED))) <= 6
    assert requests(store, lambda: next(unprocessed(of, FEED, SHRED))) <= 3
    assert requests(store, lambda: list(failed_by(of, FEED, SHRED))) <= 5


def test_a_query_reads_nothing_before_its_first_item_is_requested(filled: Callable[[int], Manifest], store: Store) -> None:
    of = filled(10)
    assert requests(store, lambda: [query(of, FEED, LOAD) for query in (unprocessed, failed_by, locked_by)]) == 0


def test_a_waiting_row_without_a_purpose_does_no_harm(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    of.store.transact(of.dataset, [Put(pending_key(SHRED, key(1)), {}, ABSENT)], "by hand")
    assert numbers(unprocessed(of, FEED, SHRED)) == []
