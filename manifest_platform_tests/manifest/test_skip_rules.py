"""Rules that skip items as they are registered."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from manifest_platform.manifest import ConditionFailed, Idle, Landed, Manifest, Refused, Standing, State, Store
from manifest_platform.manifest.dump import dump, put_dump
from manifest_platform.manifest.keys import SKIP_RULES
from manifest_platform.manifest.skip_rules import LONGEST_PATTERN, MOST_RULES, InvalidRule, SkipRule
from manifest_platform.manifest.store import MAX_WRITES, Put
from manifest_platform.releases import FORM, NewerRelease
from manifest_platform_tests.manifest.given import (
    FEED,
    HOUR,
    LOAD,
    START,
    Clock,
    LossyStore,
    assert_kept,
    discover,
    history,
    is_blocked,
    key,
    land,
    landed,
    load_next,
    manifest,
    shred,
    steps,
)
from manifest_platform_tests.manifest.test_discovery import CountingStore
from manifest_platform_tests.manifest.test_order import windows

WRONG = SkipRule("wrong collector", "s3://*/run=00[2-4]/")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def told(of: Manifest, *numbers: int) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.outcome, one.skipped_by) for one in of.discover(FEED, [landed(number) for number in numbers])]


def timed(store: Store, **options: Any) -> Manifest:
    """A manifest of items whose number is the hour of their logical time."""

    def time_of(found: Landed) -> datetime:
        return START + timedelta(hours=int(found.key.sort[-3:]))

    return Manifest(store, "shop", {FEED: steps(**options)}, "test", clock=Clock(), time_of=time_of)


@pytest.mark.every_store
def test_a_matching_item_is_skipped_in_the_transaction_that_registers_it(store: Store) -> None:
    manifest(store, author="anna").add_skip_rule(WRONG)
    counting = CountingStore(store)
    of = manifest(counting, author="sensor")
    assert told(of, 1, 2, 5) == [("new", ()), ("new", ("r1",)), ("new", ())]
    assert counting.transactions == 1
    skipped = of.history(key(2))[1]
    assert [record.state for record in of.history(key(2))] == [State.NEW, State.SKIPPED]
    assert (skipped.author, skipped.run_id, skipped.application.key) == ("anna", "run-sensor", "*")
    assert skipped.data == {"reason": "wrong collector (skip rule r1)", "rule": "r1"}
    assert [item.key for item in of.waiting(FEED, "shred", 9)[0]] == [key(1), key(5)]
    shred(of, 1, 5)
    assert [load_next(of), load_next(of)] == [1, 5]
    assert of.next(FEED, "load") == Idle()
    assert_kept(of, "quarantine")


@pytest.mark.every_store
def test_a_rule_added_during_a_registration_applies_to_it(store: Store) -> None:
    counting = CountingStore(store)
    of, other = manifest(counting), manifest(store)

    def interfere() -> None:
        counting.before = lambda: None
        other.add_skip_rule(WRONG)

    counting.before = interfere
    assert told(of, 2) == [("new", ("r1",))]
    assert history(of, 2) == ["discover New", "* Skipped"]

    def lift() -> None:
        counting.before = lambda: None
        other.remove_skip_rule("r1", "mended")

    counting.before = lift
    assert told(of, 3) == [("new", ())]


@pytest.mark.parametrize("fault", ["answer lost", "repeat refused", "deaf", "request lost", "vanished"])
def test_no_fault_leaves_an_item_registered_that_should_be_skipped(store: Store, fault: str) -> None:
    manifest(store).add_skip_rule(WRONG)
    of = manifest(LossyStore(store, fault, at=1))
    for _ in range(2):
        try:
            discover(of, 2)
        except Exception as error:
            assert not isinstance(error, ConditionFailed)
    again = manifest(store)
    discover(again, 2)
    assert history(again, 2) == ["discover New", "* Skipped"]
    assert_kept(again, "quarantine")


@pytest.mark.parametrize("late", ["quarantine", "append"])
def test_a_late_item_that_a_rule_matches_is_skipped_and_neither_waits_nor_needs_a_person(store: Store, late) -> None:
    of = manifest(store, late=late)
    land(of, 9)
    load_next(of)
    of.add_skip_rule(WRONG)
    assert [skipped for _, skipped in told(of, 2, 3)] == [("r1",), ("r1",)]
    feed = of.state(LOAD).feed(FEED)
    assert (feed.skipped, feed.late, feed.quarantined) == (2, 0, 0)
    assert of.next(FEED, "load") == Idle()
    assert_kept(of, late)


def test_a_skipped_window_leaves_no_gap(store: Store) -> None:
    of = manifest(store, gap="contiguous")
    windows(of, (1, "00:00", "00:15"))
    load_next(of)
    of.add_skip_rule(WRONG)
    of.discover(FEED, [landed(2, start="00:15", stop="00:30")])
    windows(of, (5, "00:30", "00:45"))
    assert load_next(of) == 5
    windows(of, (7, "01:00", "01:15"))
    is_blocked(of, 7, Standing.GAP)


def test_hundreds_of_skipped_items_are_registered_in_few_transactions(store: Store) -> None:
    of = manifest(counting := CountingStore(store))
    of.add_skip_rule(SkipRule("all", "*"))
    of.add_skip_rule(SkipRule("these", "*", application="load"))
    before = counting.transactions
    assert {skipped for _, skipped in told(of, *range(200))} == {("r1",)}
    assert counting.transactions - before <= 12 < 200 * 3 / MAX_WRITES * 3
    assert_kept(of, "quarantine")


def test_a_rule_for_one_application_skips_the_item_for_it_alone(store: Store) -> None:
    of = manifest(store)
    of.add_skip_rule(SkipRule("not needed", "*", application="load"))
    of.add_skip_rule(SkipRule("nor these", "*", application="load"))
    assert told(of, 1) == [("new", ("r1",))]
    shred(of, 1)
    assert of.next(FEED, "load") == Idle()
    with pytest.raises(Refused, match=r"no step is called mail; there are: shred, load, \*"):
        of.add_skip_rule(SkipRule("?", "*", application="mail"))
    with pytest.raises(Refused, match="declares no feed 'logs'"):
        of.add_skip_rule(SkipRule("?", "*", feed="logs"))
    assert_kept(of, "quarantine")


@pytest.mark.parametrize(
    ("rule", "means"),
    [
        (SkipRule("", "run=012"), {12}),
        (SkipRule("", "run=01?"), set(range(10, 20))),
        (SkipRule("", "run=00[!0-7]"), {8, 9}),
        (SkipRule("", "RUN=*"), set()),
        (SkipRule("", "s3://bucket/*"), set(range(24))),
        (SkipRule("", "bucket"), set()),
        (SkipRule("", since=NOON), set(range(12, 24))),
        (SkipRule("", before=NOON), set(range(12))),
        (SkipRule("", since=NOON, before=NOON + HOUR), {12}),
        (SkipRule("", "run=*5", since=NOON), {15}),
        (SkipRule("", "*", feed="logs"), set()),
        (SkipRule("", "*", feed=FEED, since=NOON + 11 * HOUR), {23}),
    ],
    ids=lambda value: value.describe() if isinstance(value, SkipRule) else "",
)
def test_a_rule_matches_items_by_all_its_conditions(rule: SkipRule, means: set[int]) -> None:
    keys = {number: dataclasses.replace(key(number), id=key(number).id.rstrip("/")) for number in range(24)}
    assert {number for number, one in keys.items() if rule.means(one, START + timedelta(hours=number))} == means
    assert not rule.has_period or not rule.means(keys[12], None)


def test_a_period_matches_items_by_their_logical_time(store: Store) -> None:
    of = timed(store)
    of.add_skip_rule(SkipRule("an outage", since=START + 2 * HOUR, before=START + 4 * HOUR))
    assert [skipped for _, skipped in told(of, 1, 2, 3, 4)] == [(), ("r1",), ("r1",), ()]
    with pytest.raises(Refused, match="given no way to tell the time"):
        discover(manifest(store), 5)


def test_a_rule_ends_at_its_time(store: Store) -> None:
    clock = Clock()
    of = manifest(store, clock=clock)
    of.add_skip_rule(dataclasses.replace(WRONG, until=START + HOUR))
    assert told(of, 2) == [("new", ("r1",))]
    clock.turn(HOUR)
    assert told(of, 3) == [("new", ())]
    with pytest.raises(Refused, match="would be over"):
        of.add_skip_rule(dataclasses.replace(WRONG, until=START))


def test_an_unskipped_item_is_not_skipped_again(store: Store) -> None:
    of = manifest(store)
    of.add_skip_rule(WRONG)
    discover(of, 2)
    of.unskip(key(2), "this one is good")
    assert told(manifest(store), 2) == [("known", ())]
    shred(of, 2)
    assert load_next(of) == 2
    assert_kept(of, "quarantine")


def test_every_change_of_the_rules_is_kept_with_who_when_and_why(store: Store) -> None:
    anna, ben = manifest(store, author="anna"), manifest(store, author="ben")
    anna.add_skip_rule(WRONG)
    ben.add_skip_rule(SkipRule("tests", "test-*"))
    assert ben.remove_skip_rule("r1", "mended").author == "anna"
    assert ben.add_skip_rule(WRONG).id == "r4"
    assert [(one.change, one.rule.id, one.author, one.reason, one.at) for one in anna.skip_rule_changes()] == [
        ("added", "r1", "anna", "wrong collector", START),
        ("added", "r2", "ben", "tests", START),
        ("removed", "r1", "ben", "mended", START),
        ("added", "r4", "ben", "wrong collector", START),
    ]
    assert [rule.id for rule in anna.skip_rules().rules] == ["r2", "r4"]
    with pytest.raises(Refused, match="no skip rule 'r1'; in force: r2, r4"):
        anna.remove_skip_rule("r1", "again")


@pytest.mark.every_store
def test_two_concurrent_additions_both_succeed(store: Store) -> None:
    counting = CountingStore(store)
    of, other = manifest(counting), manifest(store)

    def interfere() -> None:
        counting.before = lambda: None
        other.add_skip_rule(SkipRule("theirs", "a*"))

    counting.before = interfere
    assert of.add_skip_rule(SkipRule("mine", "b*")).id == "r2"
    assert [rule.pattern for rule in of.skip_rules().rules] == ["a*", "b*"]


@pytest.mark.parametrize("fault", ["answer lost", "repeat refused"])
def test_a_rule_whose_answer_was_lost_is_added_once(store: Store, fault: str) -> None:
    of = manifest(LossyStore(store, fault, at=1))
    assert of.add_skip_rule(WRONG).id == "r1"
    assert len(of.skip_rules().rules) == 1


def test_a_dry_run_adds_nothing(store: Store) -> None:
    of = manifest(store)
    with of.rehearsing():
        assert of.add_skip_rule(WRONG).id == "r1"
    assert (of.skip_rules().rules, list(of.skip_rule_changes())) == ((), [])


def test_rules_are_bounded_in_number_and_length(store: Store) -> None:
    of = manifest(store)
    for number in range(MOST_RULES):
        of.add_skip_rule(SkipRule("x" * 256, f"run={number}" + "*" * (LONGEST_PATTERN - 10)))
    with pytest.raises(Refused, match="100 skip rules"):
        of.add_skip_rule(WRONG)
    row = store.get("shop", SKIP_RULES)
    assert row and len(str(row.data)) < 100_000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs a pattern"),
        ({"pattern": ""}, "allowed are 1 to 256"),
        ({"pattern": "a" * 257}, "257 characters"),
        ({"pattern": "ü*"}, "printable ASCII"),
        ({"pattern": "a\n"}, "printable ASCII"),
        ({"pattern": "*", "reason": "x" * 257}, "at most 256"),
        ({"since": NOON, "before": NOON}, "ends before it begins"),
    ],
)
def test_a_rule_without_meaning_is_refused(fields: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"reason": "", **fields}
    with pytest.raises(InvalidRule, match=message):
        SkipRule(**given)


def test_no_pattern_takes_long_to_match() -> None:
    hostile = [SkipRule("", pattern) for pattern in ("*a" * 128, "*[a-z]" * 42 + "!", "[" * 256, "*" * 256, "?*" * 100 + "b")]
    longest = dataclasses.replace(key(1), id="s3://bucket/" + "a" * 1000)
    began = time.perf_counter()
    for rule in hostile:
        rule.means(longest, None)
    assert time.perf_counter() - began < 1


def test_rules_of_a_newer_release_stop_registration(store: Store) -> None:
    of = manifest(store)
    of.add_skip_rule(WRONG)
    row = store.get("shop", SKIP_RULES)
    assert row
    newer = {**row.data, "version": FORM + 1, "release": "9.0.0"}
    store.transact("shop", [Put(SKIP_RULES, newer, row.version)], "by hand")
    for attempt in (lambda: discover(of, 2), lambda: of.add_skip_rule(WRONG), lambda: of.remove_skip_rule("r1", "")):
        with pytest.raises(NewerRelease, match=r"9\.0\.0"):
            attempt()
    assert of.skip_rules().rules


def test_unknown_attributes_of_a_rule_are_written_back(store: Store) -> None:
    of = manifest(store)
    of.add_skip_rule(WRONG)
    row = store.get("shop", SKIP_RULES)
    assert row
    rules = [{**rule, "color": "red"} for rule in row.data["rules"]]
    store.transact("shop", [Put(SKIP_RULES, {**row.data, "rules": rules, "more": 1}, row.version)], "by hand")
    of.add_skip_rule(SkipRule("other", "x*"))
    after = store.get("shop", SKIP_RULES)
    assert after and after.data["rules"][0]["color"] == "red" and after.data["more"] == 1


def test_rules_and_their_changes_are_dumped_and_restored(store: Store, tmp_path) -> None:
    from manifest_platform.manifest.stores.sql import SqlStore

    of = manifest(store)
    of.add_skip_rule(WRONG)
    discover(of, 2)
    lines = list(dump(store, "shop"))
    other = SqlStore(f"sqlite:///{tmp_path}/other.db")
    put_dump(other, "shop", lambda: lines)
    again = manifest(other)
    assert (again.skip_rules().rules, list(again.skip_rule_changes())) == (of.skip_rules().rules, list(of.skip_rule_changes()))
    assert history(again, 2) == ["discover New", "* Skipped"]
    other.close()
