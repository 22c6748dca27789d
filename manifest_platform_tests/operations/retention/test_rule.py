"""The rule of retention: what each guard protects. Items and states come from the manifest's own operations."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import Application, ConditionFailed, Failure, FailureKind, Holding, Item, Manifest, Refused
from manifest_platform.manifest.deletion import Deletion
from manifest_platform.manifest.stores import open_store
from manifest_platform.operations.retention.rule import Base, Facts, Verdict, Why, judged
from manifest_platform.sources.settings import DataRetention
from manifest_platform_tests.manifest import vault
from manifest_platform_tests.manifest.given import Clock
from manifest_platform_tests.manifest.vault import FULL, INCR, LOG

EVERYTHING = DataRetention(landing_days=7, shredded_days=7, bad_days=7)
WEEK = timedelta(days=7)


class Ward:
    """A vault's manifest and its clock. `base`: the number of the newest snapshot."""

    def __init__(self, home: Path) -> None:
        self.clock = Clock()
        self.of = vault.vault(open_store(f"sqlite:///{home}/manifest.db"), clock=self.clock)
        self.base: int | None = None

    def facts(self, feed: str, number: int, **more: Any) -> Facts:
        base = Base.of(self.of.item(vault.key(FULL, self.base))) if self.base else None
        item = self.of.item(vault.key(feed, number))
        return Facts(item, self.of.steps(feed), self.of.states(feed), feed != LOG, base, **more)

    def why(self, feed: str, number: int, holding: Holding = Holding.SHREDDED, **more: Any) -> Why | None:
        return judged(holding, self.facts(feed, number, **more), EVERYTHING, self.clock()).why


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    """Snapshots 2 and 6, windows 1 to 8, and a log, all loaded more than a week ago."""
    made = Ward(tmp_path)
    vault.land(made.of, FULL, 2, 6)
    vault.land(made.of, INCR, *range(1, 9))
    vault.land(made.of, LOG, 1)
    vault.load_in_full(made.of, 2)
    vault.load(made.of, INCR, *range(3, 9))
    vault.load(made.of, LOG, 1)
    made.base = 6
    made.clock.turn(WEEK)
    return made


def test_what_nothing_needs_may_be_deleted(ward: Ward) -> None:
    for holding in Holding:
        assert judged(holding, ward.facts(INCR, 4), EVERYTHING, ward.clock()) == Verdict()
        assert ward.why(LOG, 1, holding) is None
        assert ward.why(FULL, 2, holding) is None


@pytest.mark.parametrize("holding", Holding)
def test_data_is_kept_for_its_days(ward: Ward, holding: Holding) -> None:
    for days, why in ((8, Why.YOUNG), (7, None)):
        settings = DataRetention(**{f"{holding}_days": days})
        assert judged(holding, ward.facts(LOG, 1), settings, ward.clock()).why is why


def test_data_that_no_days_are_set_for_is_kept(ward: Ward) -> None:
    ward.clock.turn(1000 * WEEK)
    assert judged(Holding.LANDING, ward.facts(LOG, 1), DataRetention(), ward.clock()).why is Why.YOUNG


def test_a_landed_directory_that_was_rewritten_is_kept_however_old_the_last_copies_may_be(ward: Ward) -> None:
    ward.clock.turn(1000 * WEEK)
    facts, settings = ward.facts(LOG, 1, rewritten="run=1 was rewritten since"), DataRetention(landing_days=7, last_copy_days=7)
    assert judged(Holding.LANDING, facts, settings, ward.clock()).why is Why.REWRITTEN
    assert ward.why(LOG, 1, Holding.SHREDDED, rewritten="run=1 was rewritten since") is None, "this says its other copy"


def test_days_count_from_the_last_work_on_an_item(ward: Ward) -> None:
    ward.of.note(vault.key(LOG, 1), "looked at")
    assert ward.why(LOG, 1) is Why.YOUNG


def test_the_records_of_retention_itself_start_no_new_days(ward: Ward) -> None:
    item = ward.of.item(vault.key(LOG, 1))
    deletion = Deletion(item.key, (Holding.BAD,), ())
    ward.of.begin_deletions(LOG, [(item, deletion)], ward.of.states(LOG), [], "old")
    assert ward.why(LOG, 1) is None


def test_the_newest_snapshot_and_all_behind_it_are_kept(ward: Ward) -> None:
    assert [ward.why(INCR, number) for number in (5, 6, 7, 8)] == [None, None, Why.NEWEST_FULL, Why.NEWEST_FULL]
    assert ward.why(FULL, 6) is Why.NEWEST_FULL
    assert ward.why(LOG, 1) is None, "snapshots do not cover the log"


def test_without_a_snapshot_everything_that_one_covers_is_kept(ward: Ward) -> None:
    ward.base = None
    assert (ward.why(INCR, 1), ward.why(FULL, 2), ward.why(LOG, 1)) == (Why.NEWEST_FULL, Why.NEWEST_FULL, None)


def test_during_a_full_load_everything_that_it_covers_is_kept(ward: Ward) -> None:
    vault.begin(ward.of, 6)
    assert (ward.why(INCR, 1), ward.why(FULL, 2), ward.why(LOG, 1)) == (Why.FULL_LOAD, Why.FULL_LOAD, None)


def _failed(of: Manifest, number: int) -> None:
    with vault.acquire(of, LOG) as held:
        of.fail(vault.claim(of, held), Failure(FailureKind.PERMANENT, "no"))


def _claimed(of: Manifest, number: int) -> None:
    vault.claim(of, vault.acquire(of, LOG))


def _retried(of: Manifest, number: int) -> None:
    with vault.acquire(of, LOG) as held:
        of.fail(vault.claim(of, held), Failure(FailureKind.TRANSIENT, "no"))


def _nothing(of: Manifest, number: int) -> None:
    """The item only waits."""


@pytest.mark.parametrize("happens", [_failed, _claimed, _retried, _nothing])
def test_an_item_that_is_not_loaded_is_kept_however_old_it_is(ward: Ward, happens: Any) -> None:
    vault.land(ward.of, LOG, 2)
    happens(ward.of, 2)
    ward.clock.turn(100 * WEEK)
    assert ward.why(LOG, 2) is Why.UNFINISHED


def test_a_quarantined_item_is_kept(ward: Ward) -> None:
    vault.load(ward.of, LOG)
    vault.land(ward.of, LOG, 3)
    vault.load(ward.of, LOG, 3)
    vault.land(ward.of, LOG, 2)
    ward.clock.turn(100 * WEEK)
    assert ward.why(LOG, 2) is Why.UNFINISHED


def test_an_item_that_waits_for_a_reload_or_for_shredding_is_kept(ward: Ward) -> None:
    ward.of.reload(vault.key(LOG, 1), vault.LOAD, "wrong rows")
    ward.clock.turn(WEEK)
    assert ward.why(LOG, 1) is Why.UNFINISHED
    ward.of.reopen(vault.key(INCR, 4), ["shred"], "lost")
    ward.clock.turn(WEEK)
    assert ward.why(INCR, 4) is Why.UNFINISHED


def test_an_item_that_one_of_several_targets_lacks_is_kept(ward: Ward) -> None:
    lab = Application("load", instance="lab", exact=True)
    more = dataclasses.replace(ward.of.step(LOG, "load"), application=lab)
    steps = [dataclasses.replace(one, targeted="load") for one in (*ward.of.steps(LOG), more)]
    states = {**ward.of.states(LOG), lab.key: ward.of.state(lab)}
    facts = dataclasses.replace(ward.facts(LOG, 1), steps=steps, states=states)
    assert judged(Holding.SHREDDED, facts, EVERYTHING, ward.clock()).why is Why.UNFINISHED


def test_an_item_whose_records_break_the_rules_is_kept(ward: Ward) -> None:
    item = ward.of.item(vault.key(LOG, 1))
    broken = Item(item.key, (*item.records, dataclasses.replace(item.records[-1], sequence=99)))
    facts = dataclasses.replace(ward.facts(LOG, 1), item=broken)
    assert judged(Holding.SHREDDED, facts, EVERYTHING, ward.clock()).why is Why.UNFINISHED


def test_an_older_snapshot_that_was_never_loaded_is_not_kept_for_ever(ward: Ward) -> None:
    vault.land(ward.of, FULL, 4)
    assert ward.why(FULL, 4) is Why.YOUNG
    ward.clock.turn(WEEK)
    assert ward.why(FULL, 4) is None
    ward.base = 4
    assert ward.why(FULL, 4) is Why.NEWEST_FULL


def test_merging_and_its_readers_keep_the_shredded_output(ward: Ward) -> None:
    assert ward.why(LOG, 1, merging="not merged yet") is Why.MERGING
    assert ward.why(LOG, 1, Holding.LANDING, merging="not merged yet") is None


def test_the_last_copy_is_kept_unless_its_own_days_are_over(ward: Ward) -> None:
    facts = ward.facts(LOG, 1, copies={Holding.LANDING: "its output is gone"})
    assert judged(Holding.LANDING, facts, EVERYTHING, ward.clock()).why is Why.LAST_COPY
    for days, why in ((8, Why.LAST_COPY), (7, None)):
        settings = EVERYTHING.model_copy(update={"last_copy_days": days})
        assert judged(Holding.LANDING, facts, settings, ward.clock()).why is why


def test_what_cannot_be_deleted_by_itself_or_whose_state_is_unknown_is_kept(ward: Ward) -> None:
    assert ward.why(LOG, 1, bound={Holding.SHREDDED: "elsewhere"}) is Why.BOUND
    assert ward.why(LOG, 1, Holding.LANDING, bound={Holding.SHREDDED: "elsewhere"}) is None
    assert ward.why(LOG, 1, unreadable="the storage does not answer") is Why.UNREADABLE


def test_settings_keep_last_copies_longest_and_name_the_key() -> None:
    with pytest.raises(ValueError, match="last_copy_days: 5: allowed: 7 or more"):
        DataRetention(landing_days=7, last_copy_days=5)
    assert DataRetention(landing_days=7, last_copy_days=7).is_on
    assert not DataRetention().is_on


# What changes between the verdict and the record of the deletion


def _deleted(ward: Ward, facts: Facts, *relied: Item) -> None:
    deletion = Deletion(facts.item.key, (Holding.SHREDDED,), ("s3://lake/attempt",))
    ward.of.begin_deletions(facts.item.key.feed, [(facts.item, deletion)], facts.states, relied, "old")


def test_a_deletion_is_recorded_together_with_the_row_that_lasts_until_it_is_done(ward: Ward) -> None:
    facts = ward.facts(LOG, 1)
    _deleted(ward, facts)
    item = ward.of.item(facts.item.key)
    assert item.problems == [] and item.deletion_of(Holding.SHREDDED) and item.deletion_of(Holding.BAD)
    assert item.deletion_of(Holding.LANDING) is None
    [begun] = ward.of.deletions()
    assert (begun.key, begun.folders) == (item.key, ("s3://lake/attempt",))
    ward.of.end_deletions([begun])
    assert not ward.of.is_being_deleted(item.key)
    ward.of.end_deletions([begun])


def test_a_full_load_that_begins_after_the_verdict_prevents_the_deletion(ward: Ward) -> None:
    facts = ward.facts(INCR, 4)
    vault.begin(ward.of, 6)
    with pytest.raises(ConditionFailed):
        _deleted(ward, facts)
    assert not ward.of.is_being_deleted(facts.item.key)


def test_a_decision_after_the_verdict_prevents_the_deletion(ward: Ward) -> None:
    facts = ward.facts(LOG, 1)
    ward.of.reload(facts.item.key, vault.LOAD, "wrong rows")
    with pytest.raises(ConditionFailed):
        _deleted(ward, facts)


def test_a_snapshot_that_is_skipped_after_the_verdict_prevents_the_deletion(ward: Ward) -> None:
    facts = ward.facts(INCR, 4)
    assert facts.base
    ward.of.skip(facts.base.snapshot.key, "damaged")
    with pytest.raises(ConditionFailed):
        _deleted(ward, facts, facts.base.snapshot)


@pytest.mark.parametrize("decides", ["reload", "reopen", "free"])
def test_nobody_can_have_an_item_done_again_while_its_data_is_being_deleted(ward: Ward, decides: str) -> None:
    facts = ward.facts(LOG, 1)
    key = facts.item.key

    def decide() -> None:
        if decides == "reload":
            ward.of.reload(key, vault.LOAD, "wrong rows")
        elif decides == "reopen":
            ward.of.reopen(key, ["shred"], "lost")
        else:
            with vault.acquire(ward.of, LOG) as held:
                ward.of.free(held, key, "the warehouse lacks it")

    _deleted(ward, facts)
    with pytest.raises(Refused, match="retention has begun to delete its data"):
        decide()
    ward.of.end_deletions(list(ward.of.deletions()))
    decide()
    assert ward.of.item(key).records[-1].data["reopens"]


def test_what_is_left_of_a_directory_that_is_being_deleted_is_no_other_content(ward: Ward) -> None:
    facts = ward.facts(LOG, 1)
    landed = facts.item.landed
    assert landed
    rest = dataclasses.replace(landed, files=0, checksum="of the rest")
    deletion = Deletion(landed.key, (Holding.LANDING,), (landed.place,))
    ward.of.begin_deletions(LOG, [(facts.item, deletion)], facts.states, (), "old")
    assert [one.outcome for one in ward.of.discover(LOG, [rest])] == ["known"]
    ward.of.end_deletions([deletion])
    assert [one.outcome for one in ward.of.discover(LOG, [rest])] == ["changed"], "somebody landed it anew"
