"""Full loads: a new epoch by one conditional write, and the items that count as done, late or blocking afterward."""

from __future__ import annotations

import pytest

from manifest_platform.manifest import (
    Abandoned,
    Application,
    Blocked,
    ClaimLost,
    Failure,
    FailureKind,
    Idle,
    LeaseLost,
    Manifest,
    Ready,
    Refused,
    Standing,
    State,
    Step,
    Store,
)
from manifest_platform.manifest.dataset import Mode
from manifest_platform_tests.manifest.given import DONE, Clock, LossyStore, kill
from manifest_platform_tests.manifest.vault import (
    FULL,
    HOUR,
    INCR,
    LOAD,
    LOG,
    acquire,
    begin,
    claim,
    counters,
    is_full_load,
    key,
    land,
    load,
    load_in_full,
    refolded,
    standings,
    state,
    vault,
)


def next_of(of: Manifest, feed: str) -> int | Standing | None:
    """The number of the ready item, or the standing of the item that blocks, or None if there is nothing to do."""
    verdict = of.next(feed, "load")
    if isinstance(verdict, Blocked):
        return verdict.standing
    return int(verdict.item.key.sort) if isinstance(verdict, Ready) else None


# Beginning


def test_a_full_load_that_is_begun_holds_the_other_feeds(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    land(of, LOG, 1)
    land(of, FULL, 1)
    assert (next_of(of, INCR), next_of(of, LOG), next_of(of, FULL)) == (1, 1, None)
    begin(of, 1)
    assert (next_of(of, INCR), next_of(of, LOG), next_of(of, FULL)) == (Standing.MODE, Standing.MODE, 1)
    assert state(of).epoch == 2


def test_held_feeds_still_land_and_shred(store: Store) -> None:
    of = vault(store)
    land(of, FULL, 1)
    begin(of, 1)
    assert land(of, INCR, 1) == ["new"]
    assert isinstance(of.next(INCR, "shred"), Idle)


def test_beginning_is_one_request_to_write_and_leaves_a_record(store: Store) -> None:
    of = vault(store)
    land(of, FULL, 1)
    record = of.begin_full_load(key(FULL, 1), "load", "the source was rebuilt")
    assert (record.state, record.epoch) == (State.NEW, 2)
    assert record.data == {"reason": "the source was rebuilt", "full_load": "begun", "keeps_skips": True}


def test_a_snapshot_that_is_not_shredded_cannot_be_begun(store: Store) -> None:
    of = vault(store)
    land(of, FULL, 1, shredded=False)
    with pytest.raises(Refused, match="stoptime=0001 cannot be loaded in full: waiting"):
        begin(of, 1)
    assert not is_full_load(of)


def test_only_one_full_load_can_be_in_progress(store: Store) -> None:
    of = vault(store)
    land(of, FULL, 1, 2)
    begin(of, 1)
    with pytest.raises(Refused, match=r"loading stoptime=0001 in full: wait for it, or cancel it first"):
        begin(of, 2)


def test_an_item_that_is_no_snapshot_cannot_be_begun(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    with pytest.raises(Refused, match="feed incr holds no snapshots"):
        of.begin_full_load(key(INCR, 1), "load", "needed")


def test_a_snapshot_without_a_stop_time_cannot_be_begun(store: Store) -> None:
    of = vault(store)
    directory = land_without_stop(of)
    with pytest.raises(Refused, match="does not say when its snapshot was taken"):
        of.begin_full_load(directory, "load", "needed")


def land_without_stop(of: Manifest):
    from manifest_platform.manifest import Landed

    of.discover(FULL, [Landed(key(FULL, 1), 1, 10, "as-landed")])
    with of.acquire(FULL, "shred", "shredder", HOUR) as held:
        [claimed] = of.claim(held, [of.item(key(FULL, 1))])
        of.complete(claimed, DONE)
    return key(FULL, 1)


def test_a_worker_of_the_old_epoch_can_no_longer_complete(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    land(of, FULL, 1)
    with acquire(of, INCR) as held:
        claimed = claim(of, held)
        begin(of, 1)
        with pytest.raises(ClaimLost, match="in epoch 2, mode FULL_LOAD"):
            of.complete(claimed, DONE)
    assert counters(of, INCR)["applied"] == 0


def test_a_held_feed_is_not_claimed_even_on_an_earlier_verdict(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    land(of, FULL, 1)
    with acquire(of, INCR) as held:
        verdict = of.next(INCR, "load")
        assert isinstance(verdict, Ready)
        begin(of, 1)
        with pytest.raises(Refused, match="in mode FULL_LOAD"):
            of.claim(held, [verdict.item], state(of))


def test_a_snapshot_is_claimed_only_once_it_is_begun(store: Store) -> None:
    of = vault(store)
    land(of, FULL, 1, 2)
    with acquire(of, FULL) as held:
        with pytest.raises(Refused, match="no full load was begun for it"):
            of.claim(held, [of.item(key(FULL, 1))], state(of))
        begin(of, 1)
        with pytest.raises(Refused, match="no full load was begun for it"):
            of.claim(held, [of.item(key(FULL, 2))], state(of))


# Completing


def test_a_full_load_rewinds_what_it_covers_and_nothing_else(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2, 3, 4)
    land(of, LOG, 1, 2)
    land(of, FULL, 2)
    load(of, INCR, 1, 2, 3)
    load(of, LOG, 1)
    load_in_full(of, 2)
    after = state(of)
    assert (after.mode, after.epoch, after.boundary, after.full) == (Mode.INCREMENTAL, 2, "0002", None)
    assert standings(of, INCR) == {1: "superseded", 2: "superseded", 3: "ready", 4: "ready"}
    assert standings(of, LOG) == {1: "done", 2: "ready"}
    load(of, INCR, 3, 4)
    load(of, LOG, 2)
    assert counters(of, INCR) == refolded(of, INCR) == {"applied": 2, "skipped": 0, "late": 0, "quarantined": 0}
    assert counters(of, LOG)["applied"] == 2 and counters(of, FULL)["applied"] == 1


def test_failed_and_abandoned_items_of_the_old_epoch_no_longer_block(store: Store) -> None:
    clock = Clock()
    of = vault(store, clock=clock)
    land(of, INCR, 1, 2)
    land(of, FULL, 1)
    with acquire(of, INCR) as held:
        of.complete(claim(of, held), DONE)
        of.fail(claim(of, held), Failure(FailureKind.PERMANENT, "no such column"))
    assert next_of(of, INCR) is Standing.FAILED
    load_in_full(of, 1)
    load(of, INCR, 2)

    land(of, INCR, 3)
    land(of, FULL, 2)
    dead = acquire(of, INCR, "dead")
    claim(of, dead)
    kill(dead)
    clock.turn(2 * HOUR)
    load_in_full(of, 2)
    with acquire(of, INCR) as held:
        assert of.unsettled(held) is None
    load(of, INCR, 3)


def test_a_failure_to_shred_blocks_in_every_epoch(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, shredded=False)
    with of.acquire(INCR, "shred", "shredder", HOUR) as held:
        [claimed] = of.claim(held, [of.item(key(INCR, 1))])
        of.fail(claimed, Failure(FailureKind.PERMANENT, "not Parquet"))
    land(of, FULL, 0)
    load_in_full(of, 0)
    assert next_of(of, INCR) is Standing.FAILED


def test_late_items_are_in_order_or_contained_after_a_full_load(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 4)
    land(of, FULL, 2)
    load(of, INCR, 1, 4)
    assert land(of, INCR, 2, 3) == ["quarantined", "quarantined"]
    assert counters(of, INCR)["quarantined"] == 2
    load_in_full(of, 2)
    assert standings(of, INCR) == {1: "superseded", 2: "superseded", 3: "ready", 4: "ready"}
    assert counters(of, INCR) == refolded(of, INCR) == {"applied": 0, "skipped": 0, "late": 0, "quarantined": 0}
    load(of, INCR, 3, 4)


def test_an_item_that_arrives_during_the_full_load_that_contains_it_is_superseded(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 3)
    load(of, INCR, 3)
    land(of, FULL, 2)
    begin(of, 2)
    assert land(of, INCR, 1) == ["quarantined"]
    load(of, FULL, 2)
    assert standings(of, INCR) == {1: "superseded", 3: "ready"}
    assert counters(of, INCR) == refolded(of, INCR)


@pytest.mark.parametrize("late", ["quarantine", "append"])
def test_a_later_arrival_up_to_the_boundary_is_superseded_and_beyond_it_is_late(store: Store, late) -> None:
    of = vault(store, late=late)
    land(of, FULL, 2)
    load_in_full(of, 2)
    assert land(of, INCR, 1, 2, 4) == ["new"] * 3
    load(of, INCR, 4)
    outcome, standing = ("late", "ready") if late == "append" else ("quarantined", "late")
    assert land(of, INCR, 0, 3) == ["new", outcome]
    assert standings(of, INCR) == {0: "superseded", 1: "superseded", 2: "superseded", 3: standing, 4: "done"}
    waiting = {"late": 1, "quarantined": 0} if late == "append" else {"late": 0, "quarantined": 1}
    assert counters(of, INCR) == refolded(of, INCR) == {"applied": 1, "skipped": 0, **waiting}


def test_an_unskipped_item_up_to_the_boundary_is_superseded(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    of.skip(key(INCR, 1), "test data", "load")
    land(of, FULL, 2)
    load_in_full(of, 2)
    of.unskip(key(INCR, 1), "wanted after all")
    assert standings(of, INCR) == {1: "superseded"}
    assert counters(of, INCR) == refolded(of, INCR) == {"applied": 0, "skipped": 0, "late": 0, "quarantined": 0}


def test_a_skip_outlives_a_full_load(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2, 3)
    land(of, FULL, 1)
    load(of, INCR, 1)
    of.skip(key(INCR, 2), "test data", "load")
    load(of, INCR, 3)
    load_in_full(of, 1)
    assert standings(of, INCR)[2] is Standing.SKIPPED
    load(of, INCR, 3)
    assert counters(of, INCR) == refolded(of, INCR) == {"applied": 1, "skipped": 1, "late": 0, "quarantined": 0}


def test_late_items_of_an_appending_feed_are_appended_by_the_epoch_they_are_late_in(store: Store) -> None:
    of = vault(store, late="append")
    land(of, INCR, 1, 4, 5)
    land(of, FULL, 2)
    load(of, INCR, 1, 4)
    assert land(of, INCR, 2, 3) == ["late", "late"]
    load_in_full(of, 2)
    assert counters(of, INCR) == refolded(of, INCR)
    load(of, INCR, 3, 4)
    assert land(of, INCR, 1, 2, shredded=False) == ["known", "known"]
    assert land(of, INCR, 0) == ["new"]
    load(of, INCR, 5)
    assert standings(of, INCR) == {0: "superseded", 1: "superseded", 2: "superseded", 3: "done", 4: "done", 5: "done"}
    assert counters(of, INCR) == refolded(of, INCR)


def test_an_item_done_in_an_earlier_epoch_is_appended_once_it_is_late_in_this_one(store: Store) -> None:
    of = vault(store, late="append")
    land(of, INCR, 2, 3)
    land(of, FULL, 1)
    load(of, INCR, 2, 3)
    load_in_full(of, 1)
    of.skip(key(INCR, 2), "test data", "load")
    load(of, INCR, 3)
    of.unskip(key(INCR, 2), "wanted after all")
    load(of, INCR, 2)
    assert counters(of, INCR) == refolded(of, INCR) == {"applied": 2, "skipped": 0, "late": 0, "quarantined": 0}


def test_a_full_load_closes_a_gap_and_the_chain_continues_from_its_boundary(store: Store) -> None:
    of = vault(store, gap="contiguous")
    land(of, INCR, 1, 3)
    load(of, INCR, 1)
    assert next_of(of, INCR) is Standing.GAP
    land(of, FULL, 2)
    load_in_full(of, 2)
    assert next_of(of, INCR) == 3
    load(of, INCR, 3)
    land(of, INCR, 5)
    assert next_of(of, INCR) is Standing.GAP


def test_a_snapshot_may_be_loaded_again_in_a_new_epoch(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2)
    land(of, FULL, 1)
    load_in_full(of, 1)
    load(of, INCR, 2)
    load_in_full(of, 1)
    assert state(of).epoch == 3 and standings(of, INCR) == {1: "superseded", 2: "ready"}
    assert counters(of, FULL) == refolded(of, FULL) == {"applied": 1, "skipped": 0, "late": 0, "quarantined": 0}


def test_a_full_load_costs_the_same_requests_however_many_windows_it_rewinds(store: Store) -> None:
    costs = []
    for windows in (5, 60):
        of = vault(store)
        of.dataset = f"vault-{windows}"
        land(of, INCR, *range(1, windows))
        land(of, FULL, 1)
        load(of, INCR, *range(1, windows))
        before = store.requests
        begin(of, 1)
        with acquire(of, FULL) as held:
            of.complete(claim(of, held), DONE)
        costs.append(store.requests - before)
        assert next_of(of, INCR) == 2
    assert costs[0] == costs[1]


def test_a_full_load_that_failed_is_resolved_and_loaded(store: Store) -> None:
    of = vault(store)
    land(of, FULL, 1)
    begin(of, 1)
    with acquire(of, FULL) as held:
        of.fail(claim(of, held), Failure(FailureKind.PERMANENT, "disk full"))
    assert next_of(of, FULL) is Standing.FAILED
    of.resolve(key(FULL, 1), "more disk")
    load(of, FULL, 1)
    assert not is_full_load(of)


def test_the_snapshot_in_progress_is_not_skipped_but_canceled(store: Store) -> None:
    of = vault(store)
    land(of, FULL, 1)
    begin(of, 1)
    with pytest.raises(Refused, match="cancel the full load instead"):
        of.skip(key(FULL, 1), "wrong one")


# Crashes and canceling


def test_a_full_load_that_the_sink_has_is_adopted_by_the_next_worker(store: Store) -> None:
    clock = Clock()
    of = vault(store, clock=clock)
    land(of, INCR, 1, 2)
    land(of, FULL, 1)
    begin(of, 1)
    dead = acquire(of, FULL, "dead")
    claim(of, dead)
    kill(dead)
    clock.turn(2 * HOUR)
    with acquire(of, FULL) as held:
        left = of.unsettled(held)
        assert isinstance(left, Abandoned)
        of.adopt(held, left, 2, DONE)
    assert standings(of, INCR) == {1: "superseded", 2: "ready"}


def test_an_entry_of_an_older_epoch_completes_no_full_load(store: Store) -> None:
    clock = Clock()
    of = vault(store, clock=clock)
    land(of, FULL, 1)
    load_in_full(of, 1)
    begin(of, 1)
    dead = acquire(of, FULL, "dead")
    claim(of, dead)
    kill(dead)
    clock.turn(2 * HOUR)
    with acquire(of, FULL) as held:
        left = of.unsettled(held)
        assert isinstance(left, Abandoned)
        with pytest.raises(ClaimLost, match="done in epoch 2"):
            of.adopt(held, left, 2, DONE)
    assert is_full_load(of)


def test_a_canceled_full_load_leaves_everything_unchanged(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2)
    land(of, FULL, 1)
    load(of, INCR, 1)
    before = state(of)
    begin(of, 1)
    with acquire(of, FULL) as held:
        record = of.cancel_full_load(held, "wrong snapshot")
    assert record.data["full_load"] == "cancelled"
    after = state(of)
    assert (after.mode, after.full, after.epoch, after.feeds) == (Mode.INCREMENTAL, None, 2, before.feeds)
    load(of, INCR, 2)
    assert isinstance(of.next(FULL, "load"), Idle)


def test_a_commit_before_a_canceled_full_load_is_still_adopted_by_a_takeover(store: Store) -> None:
    clock = Clock()
    of = vault(store, clock=clock)
    land(of, INCR, 1, 2)
    land(of, FULL, 1)
    dead = acquire(of, INCR, "dead")
    claim(of, dead)
    kill(dead)
    clock.turn(2 * HOUR)
    begin(of, 1)
    with acquire(of, FULL) as held:
        of.cancel_full_load(held, "wrong snapshot")
    with acquire(of, INCR) as held:
        left = of.unsettled(held)
        assert isinstance(left, Abandoned)
        of.adopt(held, left, 1, DONE)
    load(of, INCR, 2)
    assert counters(of, INCR) == refolded(of, INCR)


def test_canceling_waits_until_it_is_known_whether_the_snapshot_was_committed(store: Store) -> None:
    clock = Clock()
    of = vault(store, clock=clock)
    land(of, FULL, 1)
    begin(of, 1)
    dead = acquire(of, FULL, "dead")
    claim(of, dead)
    kill(dead)
    clock.turn(2 * HOUR)
    with acquire(of, FULL) as held:
        with pytest.raises(Refused, match="settle it with the sink first"):
            of.cancel_full_load(held, "too slow")
        left = of.unsettled(held)
        assert isinstance(left, Abandoned)
        of.abandon(held, left)
        of.cancel_full_load(held, "too slow")
    assert not is_full_load(of)


def test_a_worker_that_lost_its_lease_neither_cancels_nor_claims_a_canceled_snapshot(store: Store) -> None:
    clock = Clock()
    of = vault(store, clock=clock)
    land(of, FULL, 1)
    begin(of, 1)
    slow = acquire(of, FULL, "slow")
    kill(slow)
    asked = of.next(FULL, "load", holding=True)
    assert isinstance(asked, Ready)
    clock.turn(2 * HOUR)
    with acquire(of, FULL) as held:
        of.cancel_full_load(held, "too slow")
    begin(of, 1)
    with pytest.raises(LeaseLost):
        of.claim(slow, [asked.item], asked.state)
    other = acquire(of, FULL, "other")
    kill(other)
    clock.turn(2 * HOUR)
    with acquire(of, FULL), pytest.raises(LeaseLost):
        of.cancel_full_load(other, "too slow")
    assert is_full_load(of)


def test_there_is_nothing_to_cancel_without_a_full_load(store: Store) -> None:
    of = vault(store)
    with acquire(of, FULL) as held, pytest.raises(Refused, match="nothing to cancel"):
        of.cancel_full_load(held, "by mistake")


@pytest.mark.parametrize("fault", ["answer lost", "repeat refused", "request lost"])
def test_a_lost_answer_begins_and_cancels_once(store: Store, fault: str) -> None:
    of = vault(store)
    land(of, FULL, 1)
    of.store = LossyStore(store, fault, at=1)
    try:
        begin(of, 1)
    except Exception:
        begin(of, 1)
    of.store = store
    assert (state(of).epoch, is_full_load(of)) == (2, True)
    held = acquire(of, FULL)
    held._store = LossyStore(store, fault, at=1)
    try:
        of.cancel_full_load(held, "wrong")
    except Exception:
        of.cancel_full_load(held, "wrong")
    held._store = store
    held.release()
    assert (state(of).epoch, is_full_load(of)) == (2, False)
    assert [record.data.get("full_load") for record in of.history(key(FULL, 1))].count("cancelled") == 1


# Declaring


@pytest.mark.parametrize(
    ("feeds", "problem"),
    [
        ({"a": [Step(LOAD, order="strict", covers=("b",))], "b": []}, "only a step of order 'full' covers feeds"),
        (
            {"a": [Step(LOAD, order="full", covers=("b",))], "b": [Step(LOAD)]},
            "covers b, which load does not work on in strict",
        ),
        ({"a": [Step(LOAD, order="full", covers=("c",))]}, "covers c, which load does not work on in strict order"),
        ({"a": [Step(LOAD, order="full")], "b": [Step(LOAD, order="full")]}, "loads snapshots of several feeds"),
    ],
)
def test_a_snapshot_step_covers_only_strict_feeds_of_its_application(store: Store, feeds: dict, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Manifest(store, "vault", feeds, "test")


def test_each_instance_of_an_application_has_its_own_epochs(store: Store) -> None:
    a, b = Application("load", instance="a"), Application("load", instance="b")
    feeds = {
        INCR: [Step(a, order="strict"), Step(b, order="strict")],
        FULL: [Step(a, order="full", covers=(INCR,)), Step(b, order="full", covers=(INCR,))],
    }
    of = Manifest(store, "vault", feeds, "test", clock=Clock())
    land(of, FULL, 1, shredded=False)
    of.begin_full_load(key(FULL, 1), "load:a", "needed")
    assert (of.state(a).epoch, of.state(b).epoch) == (2, 1)


def test_a_failure_superseded_for_its_own_step_can_be_resolved_for_a_step_that_it_blocks(store: Store) -> None:
    report = Application("report")
    feeds = {
        INCR: [Step(Application("shred")), Step(LOAD, upstream=("shred",), order="strict"), Step(report, upstream=("shred",))],
        FULL: [Step(Application("shred")), Step(LOAD, upstream=("shred",), order="full", covers=(INCR,))],
    }
    of = Manifest(store, "vault", feeds, "test", clock=Clock())
    land(of, INCR, 1)
    with acquire(of, INCR) as held:
        of.fail(claim(of, held), Failure(FailureKind.PERMANENT, "no such column"))
    land(of, FULL, 1)
    load_in_full(of, 1)
    assert isinstance(of.next(INCR, "report"), Blocked)
    of.resolve(key(INCR, 1), "superseded")
    assert isinstance(of.next(INCR, "report"), Ready)
