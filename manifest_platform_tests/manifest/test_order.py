from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from manifest_platform.manifest import (
    Abandoned,
    Application,
    Blocked,
    ClaimLost,
    Failure,
    FailureKind,
    Idle,
    InvalidKey,
    Manifest,
    Mode,
    Ready,
    Refused,
    Standing,
    State,
    Step,
    Store,
    UnknownItem,
)
from manifest_platform.manifest.beside import Need
from manifest_platform.manifest.dataset import judge
from manifest_platform.remedies import Action
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    Clock,
    Late,
    assert_kept,
    claim_next,
    discover,
    history,
    is_blocked,
    key,
    kill,
    land,
    landed,
    lease,
    load_next,
    manifest,
    number_of,
    ready,
    register_by_hand,
    set_state,
    shred,
    steps,
    twin,
)

PERMANENT = Failure(FailureKind.PERMANENT, "no such column")


def next_number(of: Manifest, application: Application = LOAD) -> int:
    return number_of(ready(of, application).item.key)


def fail_next(of: Manifest, application: Application = LOAD, failure: Failure = PERMANENT) -> None:
    with lease(of, application) as held:
        of.fail(claim_next(of, held), failure)


# A strict step


def test_an_empty_feed_is_idle(store: Store) -> None:
    of = manifest(store)
    assert of.next(FEED, "load") == of.next(FEED, "shred") == Idle()


def test_items_are_loaded_in_order_whatever_the_order_they_came_in(store: Store) -> None:
    of = manifest(store)
    for number in (3, 1, 2):
        land(of, number)
    assert [load_next(of) for _ in range(3)] == [1, 2, 3]
    assert of.next(FEED, "load") == Idle()
    assert_kept(of, "quarantine")


def test_a_failed_item_stops_the_feed_with_the_reason_and_the_remedy(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2, 3)
    load_next(of)
    fail_next(of)
    stopped = is_blocked(of, 2, Standing.FAILED)
    assert stopped.reason == "load failed: no such column"
    assert stopped.remedy.action is Action.RESOLVE
    assert stopped.since == of.history(key(2))[-1].timestamp
    assert isinstance(of.next(FEED, "load", holding=True), Blocked)


def test_an_item_behind_a_blocked_item_cannot_be_claimed(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    with lease(of) as held:
        claim = claim_next(of, held)
        assert is_blocked(of, 1, Standing.PROCESSING).reason == "load is working on it (test)"
        of.fail(claim, PERMANENT)
        with pytest.raises(Refused, match="cannot be claimed by load: failed"):
            of.claim(held, [of.item(key(1))], of.state(LOAD))


def test_an_item_that_is_not_shredded_yet_stops_the_feed(store: Store) -> None:
    of = manifest(store)
    discover(of, 1, 2)
    shred(of, 2)
    assert "shred has not processed it yet" in is_blocked(of, 1, Standing.WAITING).reason
    with lease(of) as held, pytest.raises(Refused, match="cannot be claimed"):
        of.claim(held, [of.item(key(1))], of.state(LOAD))
    shred(of, 1)
    assert next_number(of) == 1


def test_a_loader_never_treats_a_live_shredders_item_as_abandoned(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    with lease(of, SHRED) as shredding, lease(of) as loading:
        claim = claim_next(of, shredding)
        verdict = of.next(FEED, "load", holding=True)
        assert isinstance(verdict, Blocked) and verdict.standing is Standing.PROCESSING
        with pytest.raises(Refused, match="in the hands of shred"):
            of.abandon(loading, Abandoned(claim.item, claim.processing))
        of.complete(claim, DONE)
    assert history(of, 1) == ["discover New", "shred Processing", "shred Processed"]


def test_a_failed_shred_stops_the_load_too(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    fail_next(of, SHRED)
    assert is_blocked(of, 1, Standing.FAILED).reason == "shred failed: no such column"


def test_a_resolved_item_is_tried_again(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    fail_next(of)
    resolved = of.resolve(key(1), "column added")
    assert (resolved.data, resolved.application.name) == ({"reason": "column added"}, "load")
    assert [load_next(of), load_next(of)] == [1, 2]


def test_resolve_refuses_an_item_that_is_not_blocked_or_is_being_processed(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with pytest.raises(Refused, match="not blocked"):
        of.resolve(key(1), "?")
    with lease(of) as held:
        claim_next(of, held)
        with pytest.raises(Refused, match="is being processed by load"):
            of.resolve(key(1), "?")
        with pytest.raises(Refused, match="cannot be skipped now"):
            of.skip(key(1), "?")
    with pytest.raises(UnknownItem):
        of.resolve(key(9), "?")
    assert history(of, 1)[-1] == "load Processing"


def test_a_strict_step_claims_items_only_in_their_order_and_of_its_own_feed(store: Store) -> None:
    of = Manifest(store, "shop", {FEED: steps(), "incr": steps()}, "test")
    land(of, 1, 2)
    one, two = of.item(key(1)), of.item(key(2))
    of.discover("incr", [dataclasses.replace(landed(1), key=key(1, "incr"))])
    with lease(of) as held:
        for items in ([], [two, one], [one, one]):
            with pytest.raises(Refused, match="do not follow each other"):
                of.claim(held, items, of.state(LOAD))
        with pytest.raises(Refused, match="not of feed"):
            of.claim(held, [of.item(key(1, "incr"))], of.state(LOAD))


# Skips


def test_a_skipped_item_is_passed_over_and_the_watermark_follows_with_the_next_load(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2, 3)
    of.skip(key(1), "test data")
    assert of.state(LOAD).feed(FEED).watermark == ""
    assert load_next(of) == 2
    assert of.state(LOAD).feed(FEED).watermark == key(2).position
    assert of.state(LOAD).feed(FEED).skipped == 1
    assert_kept(of, "quarantine")


def test_a_failed_item_may_be_skipped(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    fail_next(of)
    of.skip(key(1), "lost for ever", "load")
    assert next_number(of) == 2


def test_a_skip_for_the_shredder_alone_cuts_the_loader_off_and_is_reported(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    of.skip(key(1), "test data", "shred")
    assert of.next(FEED, "shred") == Idle()
    stopped = is_blocked(of, 1, Standing.CUT_OFF)
    assert "it is skipped for shred" in stopped.reason
    assert stopped.remedy.action is Action.UNSKIP
    assert stopped.since == of.history(key(1))[-1].timestamp
    of.skip(key(1), "test data", "load")
    assert of.next(FEED, "load") == Idle()
    assert_kept(of, "quarantine")


def test_an_item_that_a_skip_cut_off_continues_after_unskip_or_a_skip_for_all(store: Store) -> None:
    of = manifest(store)
    discover(of, 1, 2)
    fail_next(of, SHRED)
    for number in (1, 2):
        of.skip(key(number), "test data", "shred")
    is_blocked(of, 1, Standing.CUT_OFF)  # resolving the failure of shred would change nothing
    assert of.survey(FEED, "load").counts == {Standing.CUT_OFF: 2}
    of.skip(key(1), "never mind")
    is_blocked(of, 2, Standing.CUT_OFF)
    of.unskip(key(2), "after all")
    shred(of, 2)
    assert load_next(of) == 2
    assert_kept(of, "quarantine")


def test_a_skip_that_changes_nothing_is_refused(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    load_next(of)
    discover(of, 2)
    of.skip(key(2), "once")
    for number in (1, 2):
        with pytest.raises(Refused, match="done or skipped already"):
            of.skip(key(number), "again")
    with pytest.raises(Refused, match="no step of feed enriched is called lod; there are: shred, load, \\*"):
        of.skip(key(1), "typo", "lod")
    assert_kept(of, "quarantine")


def test_an_unskipped_item_takes_its_place_again(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    land(of, 2)
    of.skip(key(1), "wait")
    of.unskip(key(1), "now")
    assert next_number(of, SHRED) == 1
    assert_kept(of, "quarantine")
    shred(of, 1)
    assert [load_next(of), load_next(of)] == [1, 2]
    with pytest.raises(Refused, match="neither skipped nor set aside"):
        of.unskip(key(1), "again")


def test_an_unskipped_item_behind_the_watermark_is_refused_or_late(store: Store) -> None:
    for late in ("quarantine", "append"):
        of = Manifest(store, late, {FEED: steps(late)}, "test")
        land(of, 1, 2)
        of.skip(key(1), "wait")
        load_next(of)
        if late == "quarantine":
            with pytest.raises(Refused, match="behind the watermark of load"):
                of.unskip(key(1), "now")
        else:
            of.unskip(key(1), "now")
            assert (ready(of).item.is_late_for(LOAD), next_number(of)) == (True, 1)
            assert load_next(of) == 1
        assert_kept(of, late)


def test_an_item_unskipped_while_a_later_one_is_loaded_is_found_again(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 1, 2)
    of.skip(key(1), "wait")
    with lease(of) as held:
        claim = claim_next(of, held)
        of.unskip(key(1), "now")
        of.complete(claim, DONE)
    assert load_next(of) == 1
    assert_kept(of, "append")


def test_marking_an_item_late_does_not_lift_the_skip_of_another_step(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 2)
    with lease(of) as held:
        claim = claim_next(of, held)
        discover(of, 1)
        of.skip(key(1), "test data", "shred")
        of.complete(claim, DONE)
    assert "it is skipped for shred" in is_blocked(of, 1, Standing.CUT_OFF).reason
    assert of.item(key(1)).skipped_for(SHRED)
    assert_kept(of, "append")


# An unordered step


def test_an_unordered_step_takes_the_oldest_items_first_and_several_together(store: Store) -> None:
    of = manifest(store)
    discover(of, 3, 1, 2)
    assert next_number(of, SHRED) == 1
    items, stuck = of.waiting(FEED, "shred", limit=2)
    assert ([number_of(item.key) for item in items], stuck) == ([1, 2], [])
    with lease(of, SHRED) as held:
        for claim in reversed(of.claim(held, items)):
            of.complete(claim, DONE)
    assert next_number(of, SHRED) == 3
    assert_kept(of, "quarantine")


def test_a_failure_of_an_unordered_step_blocks_only_its_item(store: Store) -> None:
    of = manifest(store)
    discover(of, 1, 2)
    fail_next(of, SHRED)
    assert next_number(of, SHRED) == 2
    items, stuck = of.waiting(FEED, "shred", limit=9)
    assert ([number_of(item.key) for item in items], stuck) == ([2], []), "what needs a person does not stand in the way"
    assert [(one.key, one.need) for one in of.attention(FEED, "shred")] == [(key(1), Need.FAILED)]
    shred(of, 2)
    is_blocked(of, 1, Standing.FAILED, SHRED)
    assert not of.any_pending(FEED, "shred")


def test_a_lease_holder_finds_the_items_that_a_dead_shredder_left_open(store: Store) -> None:
    clock = Clock()
    of = manifest(store, clock=clock)
    discover(of, 1, 2, 3)
    dead = lease(of, SHRED)
    of.claim(dead, [of.item(key(1)), of.item(key(3))])
    kill(dead)
    clock.turn(2 * HOUR)
    with lease(of, SHRED) as held:
        abandoned = of.next(FEED, "shred", holding=True)
        assert isinstance(abandoned, Abandoned) and number_of(abandoned.item.key) == 1
        of.abandon(held, abandoned)
        assert next_number(of, SHRED) == 1
        for claim in of.claim(held, [of.item(key(1)), of.item(key(2))]):
            of.complete(claim, DONE)
        assert isinstance(of.next(FEED, "shred", holding=True), Abandoned)
    is_blocked(of, 3, Standing.PROCESSING, SHRED)  # without the lease, a process only reads the verdict


def three_steps(late: Late = "quarantine") -> dict[str, list[Step]]:
    return {FEED: [*steps(late), Step(Application("merge"), upstream=("shred",))]}


def test_an_unordered_step_behind_another_gets_an_item_when_that_is_done(store: Store) -> None:
    of = Manifest(store, "shop", three_steps(), "test")
    merge = Application("merge")
    discover(of, 1)
    assert of.next(FEED, "merge") == Idle()
    shred(of, 1)
    assert next_number(of, merge) == 1
    with lease(of, merge) as held:
        of.complete(claim_next(of, held), DONE)
    assert (of.next(FEED, "merge"), next_number(of)) == (Idle(), 1)


def test_skips_of_a_step_behind_another_keep_its_waiting_rows_right(store: Store) -> None:
    of = Manifest(store, "shop", three_steps(), "test")
    merge = Application("merge")
    discover(of, 1)
    of.skip(key(1), "wait")
    of.unskip(key(1), "now")
    assert of.next(FEED, "merge") == Idle()
    shred(of, 1)
    assert next_number(of, merge) == 1
    of.skip(key(1), "wait", "merge")
    assert of.next(FEED, "merge") == Idle()
    of.unskip(key(1), "now")
    assert next_number(of, merge) == 1


def test_lateness_is_judged_by_each_strict_instances_own_watermark(store: Store) -> None:
    a, b = (Application("load", instance=name) for name in "ab")
    of = Manifest(store, "shop", {FEED: [steps()[0], *(Step(one, ("shred",), "strict") for one in (a, b))]}, "test")
    land(of, 2)
    with lease(of, a) as held:
        of.complete(claim_next(of, held), DONE)
    assert discover(of, 1) == ["quarantined"]
    shred(of, 1)
    assert of.next(FEED, a.key) == Idle()
    assert next_number(of, b) == 1
    assert (of.state(a).feed(FEED).quarantined, of.state(b).feed(FEED).quarantined) == (1, 0)


def test_an_output_of_a_users_application_wakes_the_step_that_waits_for_it(store: Store) -> None:
    of = Manifest(store, "shop", {FEED: [*steps(), Step(Application("mail"), upstream=("report",))]}, "test")
    land(of, 1)
    done = of.commit_output(key(1), Application("report"), DONE)
    assert (done.state, done.payload) == ("Processed", DONE)
    assert history(of, 1)[-2:] == ["report Processing", "report Processed"]
    assert next_number(of, Application("mail")) == 1
    with pytest.raises(Refused, match="load is a step"):
        of.commit_output(key(1), LOAD, DONE)


def test_no_output_is_recorded_on_an_item_that_is_blocked(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    fail_next(of)
    with pytest.raises(Refused, match="load is Failed"):
        of.commit_output(key(1), Application("report"), DONE)


# The gap rule


def windows(of: Manifest, *spans: tuple[int, str, str]) -> None:
    of.discover(FEED, [landed(number, start=start, stop=stop) for number, start, stop in spans])
    shred(of, *(number for number, _, _ in spans))


def test_a_window_behind_a_gap_waits_for_the_missing_window(store: Store) -> None:
    of = manifest(store, gap="contiguous")
    windows(of, (1, "00:00", "00:15"), (3, "00:30", "00:45"))
    assert load_next(of) == 1
    stopped = is_blocked(of, 3, Standing.GAP)
    assert stopped.reason == "gap: it starts at 00:30, but the item before it stopped at 00:15"
    windows(of, (2, "00:15", "00:30"))
    assert [load_next(of), load_next(of)] == [2, 3]


def test_without_the_gap_rule_nothing_waits(store: Store) -> None:
    of = manifest(store)
    windows(of, (1, "00:00", "00:15"), (3, "00:30", "00:45"))
    assert [load_next(of), load_next(of)] == [1, 3]


def test_a_skipped_window_is_no_gap(store: Store) -> None:
    of = manifest(store, gap="contiguous")
    windows(of, (1, "00:00", "00:15"), (2, "00:15", "00:30"), (3, "00:30", "00:45"), (5, "01:00", "01:15"))
    load_next(of)
    of.skip(key(2), "empty")
    assert next(judged.standing for _, judged in of.backlog(FEED, "load")) is Standing.READY
    assert load_next(of) == 3
    is_blocked(of, 5, Standing.GAP)


def test_a_late_window_is_no_gap(store: Store) -> None:
    of = manifest(store, late="append", gap="contiguous")
    windows(of, (2, "00:15", "00:30"))
    load_next(of)
    windows(of, (1, "00:00", "00:15"))
    assert load_next(of) == 1
    windows(of, (3, "00:30", "00:45"))
    assert load_next(of) == 3


# Late items


def test_a_late_item_of_a_feed_that_appends_is_loaded_next_and_the_watermark_stays(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 2, 3)
    load_next(of)
    assert discover(of, 1) == ["late"]
    is_blocked(of, 1, Standing.WAITING)
    assert of.state(LOAD).feed(FEED).late == 1
    shred(of, 1)
    assert_kept(of, "append")
    assert load_next(of) == 1
    feed = of.state(LOAD).feed(FEED)
    assert (feed.watermark, feed.applied, feed.late) == (key(2).position, 2, 0)
    assert of.item(key(1)).is_late_for(LOAD)
    assert load_next(of) == 3
    assert_kept(of, "append")


def test_a_late_item_that_failed_stops_a_feed_that_appends(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 2, 3)
    load_next(of)
    land(of, 1)
    fail_next(of)
    is_blocked(of, 1, Standing.FAILED)
    of.skip(key(1), "never mind")
    assert of.state(LOAD).feed(FEED).late == 0
    assert load_next(of) == 3
    assert_kept(of, "append")


def test_a_late_item_of_a_strict_feed_is_set_aside_reported_and_never_applied(store: Store) -> None:
    of = manifest(store)
    land(of, 2, 3)
    load_next(of)
    assert discover(of, 1) == ["quarantined"]
    shred(of, 1)
    assert of.state(LOAD).feed(FEED).quarantined == 1
    assert (Standing.LATE, 1) in [(judged.standing, number_of(item.key)) for item, judged in of.backlog(FEED, "load")]
    assert of.survey(FEED, "load").counts == {Standing.LATE: 1, Standing.READY: 1}
    with lease(of) as held, pytest.raises(Refused, match="cannot be claimed by load: late"):
        of.claim(held, [of.item(key(1))], of.state(LOAD))
    with pytest.raises(Refused, match="only come in with a full load"):
        of.unskip(key(1), "please")
    assert load_next(of) == 3
    assert of.next(FEED, "load") == Idle()
    of.skip(key(1), "seen")
    assert_kept(of, "quarantine")


def set_aside(store: Store) -> None:
    """Creates two late items that are set aside: 1 by its discovery, 0 by the watermark. Item 2 is loaded, and 3 is ready."""
    of = manifest(store)
    land(of, 2, 3)
    with lease(of) as held:
        claim = claim_next(of, held)
        land(of, 0)
        of.complete(claim, DONE)
    land(of, 1)
    assert number_of(ready(of).item.key) == 3
    assert of.state(LOAD).feed(FEED).quarantined == 2


def test_changing_the_policy_to_append_leaves_quarantined_items_until_they_are_unskipped(store: Store) -> None:
    set_aside(store)
    of = manifest(store, late="append")
    assert of.survey(FEED, "load").counts == {Standing.READY: 1, Standing.LATE: 2}
    assert number_of(ready(of).item.key) == 3
    for number in (0, 1):
        of.unskip(key(number), "late is fine now")
        assert of.item(key(number)).is_late_for(LOAD)
        assert_kept(of)
    feed = of.state(LOAD).feed(FEED)
    assert (feed.late, feed.quarantined) == (2, 0)
    assert [load_next(of) for _ in range(3)] == [0, 1, 3]
    assert of.next(FEED, "load") == Idle()
    assert_kept(of)


def test_a_quarantined_item_can_be_skipped_and_unskipped_after_the_policy_changed(store: Store) -> None:
    set_aside(store)
    of = manifest(store, late="append")
    of.skip(key(0), "seen")
    of.skip(key(1), "seen")
    feed = of.state(LOAD).feed(FEED)
    assert (feed.late, feed.quarantined, feed.skipped) == (0, 0, 2)
    assert_kept(of)
    of.unskip(key(1), "after all")
    assert_kept(of)
    assert [load_next(of), load_next(of)] == [1, 3]
    assert_kept(of)


def test_changing_the_policy_to_quarantine_still_loads_late_items_that_waited(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 4, 5)
    load_next(of)
    land(of, 1, 2)
    of = manifest(store)
    assert discover(of, 3) == ["quarantined"]
    assert_kept(of)
    assert number_of(ready(of).item.key) == 1
    of.skip(key(1), "seen")
    assert_kept(of)
    assert [load_next(of), load_next(of)] == [2, 5]
    assert of.next(FEED, "load") == Idle()
    for number in (1, 3):
        with pytest.raises(Refused, match="only come in with a full load"):
            of.unskip(key(number), "please")
    feed = of.state(LOAD).feed(FEED)
    assert (feed.applied, feed.skipped, feed.late, feed.quarantined) == (3, 1, 0, 1)
    assert_kept(of)


@pytest.mark.parametrize("late", ["append", "quarantine"])
def test_an_item_registered_while_a_later_item_was_loaded_is_found_first(store: Store, late: Late) -> None:
    of = manifest(store, late=late)
    land(of, 30, 40)
    with lease(of) as held:
        claim = claim_next(of, held)
        assert discover(of, *range(1, 26)) == ["new"] * 25  # more conflicts than the manifest has tries
        of.complete(claim, DONE)
    feed = of.state(LOAD).feed(FEED)
    assert (feed.watermark, feed.swept) == (key(30).position, "")
    if late == "append":
        is_blocked(of, 1, Standing.WAITING)
        assert of.state(LOAD).feed(FEED).late == 25
        shred(of, *range(1, 26))
        assert [load_next(of) for _ in range(26)] == [*range(1, 26), 40]
    else:
        assert load_next(of) == 40
        assert of.state(LOAD).feed(FEED).quarantined == 25
    assert all(of.item(key(number)).is_late_for(LOAD) for number in range(1, 26))
    assert_kept(of, late)


def test_an_item_that_the_watermark_passed_comes_before_a_known_late_item(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 5)
    load_next(of)
    land(of, 3, 8)
    assert number_of(ready(of).item.key) == 3
    shred_late = manifest(store, late="append")
    with lease(of) as held:
        of.complete(claim_next(of, held), DONE)
        claim = claim_next(of, held)  # item 8
        land(shred_late, 2, 6)
        assert of.state(LOAD).feed(FEED).late == 1  # item 2; the watermark has not passed item 6 yet
        of.complete(claim, DONE)
    assert next_number(of) == 2
    assert of.item(key(6)).is_late_for(LOAD)
    assert [load_next(of), load_next(of)] == [2, 6]


def test_an_item_that_the_watermark_passed_cannot_be_claimed_before_it_is_marked_late(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 2)
    with lease(of) as held:
        claim = claim_next(of, held)
        land(of, 1)
        of.complete(claim, DONE)
        with pytest.raises(Refused, match="is behind the watermark of load: ask what is next"):
            of.claim(held, [of.item(key(1))], of.state(LOAD))
        of.complete(claim_next(of, held), DONE)
    assert_kept(of, "append")


def test_swept_is_the_watermark_at_the_time_of_the_claim(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2, 3)
    sweeps = []
    for _ in range(3):
        load_next(of)
        sweeps.append(of.state(LOAD).feed(FEED).swept)
    assert sweeps == ["", key(1).position, key(2).position]


# Modes and epochs


def full_load(of: Manifest) -> None:
    state = of.state(LOAD)
    set_state(of, dataclasses.replace(state, mode=Mode.FULL_LOAD, epoch=state.epoch + 1))


def cancel(of: Manifest) -> None:
    set_state(of, dataclasses.replace(of.state(LOAD), mode=Mode.INCREMENTAL))


def test_a_full_load_holds_the_feed_while_shredding_continues(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    before = ready(of)
    full_load(of)
    is_blocked(of, 1, Standing.MODE)
    with lease(of) as held, pytest.raises(Refused, match="mode FULL_LOAD"):
        of.claim(held, [before.item], of.state(LOAD))
    land(of, 2)
    cancel(of)
    assert load_next(of) == 1


def test_an_idle_feed_stays_idle_in_a_full_load(store: Store) -> None:
    of = manifest(store)
    full_load(of)
    assert of.next(FEED, "load") == Idle()


def test_a_claim_cannot_be_completed_across_the_beginning_of_a_full_load(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with lease(of) as held:
        claim = claim_next(of, held)
        full_load(of)
        for change in (lambda: None, lambda: cancel(of)):
            change()
            with pytest.raises(ClaimLost, match="epoch 1"):
                of.complete(claim, DONE)
    assert history(of, 1)[-1] == "load Processing"


def test_a_commit_before_a_canceled_full_load_is_adopted_afterward(store: Store) -> None:
    clock = Clock()
    of = manifest(store, clock=clock)
    land(of, 1, 2)
    with lease(of) as dead:
        claim_next(of, dead)
    full_load(of)
    with lease(of) as held:
        abandoned = of.unsettled(held)
        assert abandoned
        with pytest.raises(ClaimLost, match="mode FULL_LOAD"):
            of.adopt(held, abandoned, 1, DONE)
        cancel(of)
        assert of.adopt(held, abandoned, 1, DONE).epoch == 1
    assert of.state(LOAD).feed(FEED).watermark == key(1).position
    assert load_next(of) == 2
    assert of.history(key(2))[-1].epoch == 2


def serve(of: Manifest, epoch: int, boundary: str) -> None:
    """Simulates a full load: items up to the boundary are superseded, and later items are pending again."""
    state = of.state(LOAD).with_feed(FEED, serving_epoch=epoch, watermark=boundary, swept=boundary)
    set_state(of, dataclasses.replace(state, mode=Mode.INCREMENTAL, epoch=epoch))


def test_a_ledger_entry_of_a_superseded_epoch_is_not_adopted(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    with lease(of) as dead:
        claim = claim_next(of, dead)
    serve(of, 2, "")
    with lease(of) as held:
        assert of.unsettled(held) is None
        with pytest.raises(ClaimLost):
            of.adopt(held, Abandoned(claim.item, claim.processing), 1, DONE)
        assert load_next_under(of, held) == 1


def load_next_under(of: Manifest, held) -> int:
    claim = claim_next(of, held)
    of.complete(claim, DONE)
    return number_of(claim.item.key)


def test_a_full_load_makes_later_items_ready_and_supersedes_earlier_items(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2, 3, 4)
    load_next(of)
    load_next(of)
    land(of, 0)  # quarantined
    fail_next(of)  # item 3 fails
    serve(of, 2, key(1).position)
    assert [load_next(of) for _ in range(3)] == [2, 3, 4]
    serve(of, 3, "")  # a snapshot older than the quarantined item, which is in order again
    assert [load_next(of) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_stale_attempt_of_a_superseded_epoch_does_not_keep_an_item_from_being_skipped(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with lease(of) as dead:
        claim_next(of, dead)
    serve(of, 2, "")
    of.skip(key(1), "not wanted")
    assert of.next(FEED, "load") == Idle()


# Declarations and look-ups


def test_only_declared_feeds_and_steps_are_known(store: Store) -> None:
    of = manifest(store)
    with pytest.raises(Refused, match="declares no step 'lod'"):
        of.next(FEED, "lod")
    with pytest.raises(Refused, match="declares no feed 'incr'"):
        of.discover("incr", [])
    with pytest.raises(InvalidKey, match="application 'a#b'"):
        Manifest(store, "shop", {FEED: [Step(Application("a#b"))]}, "test")
    with pytest.raises(InvalidKey, match="feed"):
        Manifest(store, "shop", {"a feed": []}, "test")
    with pytest.raises(ValueError, match="declares a step twice: shred, shred"):
        Manifest(store, "shop", {FEED: [Step(SHRED), Step(SHRED)]}, "test")


def test_an_item_is_found_by_its_sort_key_if_that_is_unique(store: Store) -> None:
    of = manifest(store)
    discover(of, 1, 2)
    assert of.find(FEED, key(2).sort) == key(2)
    with pytest.raises(UnknownItem):
        of.find(FEED, key(2).sort[:-1])
    register_by_hand(of, twin(2, "s3://elsewhere/"))
    with pytest.raises(Refused, match=f"names 2 items; give the URI: {key(2).id}, s3://elsewhere/$"):
        of.find(FEED, key(2).sort)


def test_items_are_read_page_by_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.manifest.store.PAGE", 2)
    of = manifest(store)
    land(of, *range(1, 6))
    before = store.requests
    assert [number_of(item.key) for item in of.items(FEED, page=2)] == [1, 2, 3, 4, 5]
    assert store.requests - before == 8, "15 rows, two at a time"
    assert all(len(item.records) == 3 for item in of.items(FEED, page=2))
    assert [number_of(item.key) for item in of.items(FEED, after=key(3).position, page=2)] == [4, 5]
    assert [number_of(item.key) for item in of.waiting(FEED, "shred", 9)[0]] == []


def test_a_survey_counts_the_backlog_by_the_standing_of_its_items(store: Store) -> None:
    clock = Clock()
    of = manifest(store, clock=clock, late="append")
    land(of, 5, 6, 7)
    clock.turn(timedelta(minutes=1))
    discover(of, 8)
    load_next(of)
    land(of, 1)
    discover(of, 2)
    survey = of.survey(FEED, "load")
    assert survey.counts == {Standing.READY: 3, Standing.WAITING: 2}
    assert isinstance(survey.verdict, Ready) and number_of(survey.verdict.item.key) == 1
    assert survey.oldest_waiting == of.history(key(6))[0].timestamp
    assert of.survey(FEED, "shred").counts == {Standing.READY: 2}


def test_an_item_costs_few_requests(store: Store) -> None:
    of = manifest(store)
    before = store.requests
    discover(of, *range(10))
    with lease(of, SHRED) as held:
        for claim in of.claim(held, of.waiting(FEED, "shred", 10)[0]):
            of.complete(claim, DONE)
    with lease(of) as held:
        for _ in range(10):
            of.complete(claim_next(of, held), DONE)
        cost = (store.requests - before) / 10
    assert cost <= 8


# A sink that has passed an item, while the manifest does not know that the item is late


def deferred(of: Manifest, number: int) -> None:
    with lease(of) as held:
        claim = claim_next(of, held)
        assert number_of(claim.item.key) == number
        of.defer(claim, "the sink is past it")


def test_an_item_that_the_sink_has_passed_is_set_aside_and_the_next_is_loaded(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    deferred(of, 1)
    assert history(of, 1)[-2:] == ["load Resolved", "load New"]
    assert of.state(LOAD).feed(FEED).quarantined == 1
    assert load_next(of) == 2
    assert isinstance(of.next(FEED, "load"), Idle)
    assert_kept(of, late="quarantine")


def test_an_item_that_the_sink_has_passed_is_appended_if_the_feed_appends(store: Store) -> None:
    of = manifest(store, late="append")
    land(of, 1, 2, 3)
    deferred(of, 2) if load_next(of) == 1 else None
    before = of.state(LOAD).feed(FEED).watermark
    assert load_next(of) == 2
    assert of.state(LOAD).feed(FEED).watermark == before  # a late item that is appended does not move the watermark
    assert load_next(of) == 3
    assert_kept(of, late="append")


def test_an_item_that_was_set_aside_leaves_no_gap(store: Store) -> None:
    of = manifest(store, gap="contiguous")
    of.discover(FEED, [landed(1, start="0", stop="1"), landed(2, start="1", stop="2"), landed(3, start="2", stop="3")])
    shred(of, 1, 2, 3)
    assert load_next(of) == 1
    deferred(of, 2)
    assert load_next(of) == 3


def test_a_claim_that_was_ended_is_not_deferred(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with lease(of) as held:
        claim = claim_next(of, held)
        of.complete(claim, DONE)
        with pytest.raises(ClaimLost):
            of.defer(claim, "the sink is past it")


def test_a_step_may_wait_for_one_instance_of_another(store: Store) -> None:
    instance = Application("load", instance="prod")
    feeds = {FEED: [Step(instance), Step(Application("report"), upstream=("load:prod",))]}
    of = Manifest(store, "shop", feeds, "test", clock=Clock())
    discover(of, 1)
    assert isinstance(of.next(FEED, "report"), Idle)
    with lease(of, instance) as held:
        of.complete(claim_next(of, held), DONE)
    assert isinstance(of.next(FEED, "report"), Ready)


# Deferred work, and work that is done again


def test_a_claim_that_is_put_back_is_no_failure_and_uses_up_no_attempt(store: Store) -> None:
    of = manifest(store, max_attempts=1)
    land(of, 1)
    for _ in range(3):
        with lease(of) as held:
            of.put_back(claim_next(of, held), "the warehouse is another one")
    assert history(of, 1)[-2:] == ["load Processing", "load Resolved"]
    assert load_next(of) == 1
    assert_kept(of)


def test_the_death_of_a_worker_with_several_items_fails_none_of_them_permanently(store: Store) -> None:
    """Three deaths in batches do not count as three failures of each item: the last attempt is made with a single item."""
    clock = Clock()
    of = manifest(store, clock=clock, max_attempts=2)
    discover(of, 1, 2, 3, 4)
    for batch in ([1, 2, 3, 4], [1, 2], [1]):
        dead = lease(of, SHRED)
        of.claim(dead, [of.item(key(number)) for number in batch])
        kill(dead)
        clock.turn(2 * HOUR)
        with lease(of, SHRED) as heir:
            for number in batch:
                item = of.item(key(number))
                blocker = item.blocker()
                assert blocker
                of.abandon(heir, Abandoned(item, blocker))
        assert {of.item(key(number)).died_with(SHRED) for number in batch} == {len(batch)}
        ended = of.item(key(1)).records[-1]
        assert ended.state is (State.FAILED if batch == [1] else State.RESOLVED)
    assert [of.item(key(number)).died_with(SHRED) for number in (2, 3, 4)] == [2, 4, 4]
    assert "died, and 3 other items with it" in of.item(key(4)).records[-1].data["reason"]
    shred(of, 2)
    assert of.item(key(2)).died_with(SHRED) is None


def test_is_repeated_holds_after_a_put_back_or_retry_and_not_after_a_persons_resolve(store: Store) -> None:
    of = manifest(store, max_attempts=2)
    discover(of, 1)
    assert not of.item(key(1)).is_repeated(SHRED)
    with lease(of, SHRED) as held:
        [claim] = of.claim(held, [of.item(key(1))])
        of.put_back(claim, "the registry is down")
        assert of.item(key(1)).is_repeated(SHRED)
        assert of.item(key(1)).died_with(SHRED) is None
        [claim] = of.claim(held, [of.item(key(1))])
        of.put_back(claim, "the cluster went down", died=True)
        assert of.item(key(1)).died_with(SHRED) == 1
        [claim] = of.claim(held, [of.item(key(1))])
        of.fail(claim, Failure(FailureKind.PERMANENT, "a bad schema"))
    of.resolve(key(1), "mended")
    assert not of.item(key(1)).is_repeated(SHRED)


def test_a_claim_that_was_ended_is_not_put_back(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with lease(of) as held:
        claim = claim_next(of, held)
        of.complete(claim, DONE)
        with pytest.raises(ClaimLost):
            of.put_back(claim, "too late")


def test_an_item_that_is_reopened_is_shredded_again_and_what_was_loaded_stays_loaded(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    assert load_next(of) == 1
    of.reopen(key(1), ["shred"], "its output is gone")
    assert not of.item(key(1)).processed_by(SHRED)
    assert of.item(key(1)).processed_by(LOAD)
    assert list(of.pending(FEED, "shred")) == [key(1)]
    assert_kept(of)
    shred(of, 1)
    assert of.item(key(1)).processed_by(SHRED)
    assert load_next(of) == 2
    assert_kept(of)


def test_an_item_that_is_reopened_for_load_no_longer_counts_as_applied(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2)
    assert [load_next(of), load_next(of)] == [1, 2]
    of.reopen(key(2), ["load"], "the warehouse lacks it")
    assert of.state(LOAD).feed(FEED).applied == 1
    assert judge(of.item(key(2)), of.step(FEED, "load"), of.state(LOAD).feed(FEED)).standing is Standing.READY


def test_an_item_that_is_being_processed_is_not_reopened(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with lease(of) as held:
        claim_next(of, held)
        with pytest.raises(Refused, match="is being processed by load"):
            of.reopen(key(1), ["shred"], "its output is gone")
