"""Outputs: the records that they are made from, when they are current, and how an ordered step follows a full load."""

from __future__ import annotations

import pytest

from manifest_platform.manifest import OUTPUT, Application, Blocked, Manifest, Payload, Ready, Refused, Standing, Step, Store
from manifest_platform.manifest.outputs import Made, NotCurrent, epoch_of
from manifest_platform.operations.doctor.log import examine
from manifest_platform_tests.manifest.given import DONE, Clock
from manifest_platform_tests.manifest.vault import (
    FULL,
    HOUR,
    INCR,
    LOAD,
    LOG,
    SHRED,
    key,
    land,
    load,
    load_in_full,
    vault,
)

ON_DYNAMODB_TOO = pytest.mark.stores("sqlite", "dynamodb")
VIEWS, PATHS, REPORT = Application("views"), Application("paths"), Application("report")


def with_report(store: Store, late: str = "quarantine") -> Manifest:
    """A vault with a user's own step behind the load of changes, in strict order."""
    feeds = dict(vault(store).feeds)
    feeds[INCR] = (*feeds[INCR], Step(REPORT, upstream=("load",), order="strict", late=late))  # ty: ignore[invalid-argument-type]
    return Manifest(store, "vault", feeds, "test", clock=Clock())


def made(of: Manifest, number: int, *applications: Application, feed: str = INCR) -> list[Made]:
    outputs = of.outputs()
    return [Made.by(key(feed, number), outputs.current(key(feed, number), one)) for one in applications]


def commit(of: Manifest, number: int, application: Application, *made_from: Application, feed: str = INCR) -> None:
    of.commit_output(key(feed, number), application, DONE, made(of, number, *made_from, feed=feed))


def why_not(of: Manifest, number: int, application: Application, feed: str = INCR) -> str:
    with pytest.raises(NotCurrent) as refused:
        of.outputs().current(key(feed, number), application)
    return str(refused.value)


def reshred(of: Manifest, number: int) -> None:
    of.reopen(key(INCR, number), ["shred"], "mended")


def shred(of: Manifest, number: int) -> None:
    with of.acquire(INCR, "shred", "shredder", HOUR) as held:
        [claim] = of.claim(held, [of.item(key(INCR, number))])
        of.complete(claim, DONE)


def report(of: Manifest, *numbers: int) -> None:
    """Commits outputs of the ordered step for the next items, and asserts that these are the given numbers."""
    with of.acquire(INCR, "report", "worker", HOUR) as held:
        of.follow(held)
        for number in numbers:
            verdict = of.next(INCR, "report", holding=True)
            assert isinstance(verdict, Ready), verdict
            assert verdict.item.key == key(INCR, number)
            [claim] = of.claim(held, [verdict.item], verdict.state)
            of.complete(claim, DONE)


def next_report(of: Manifest) -> int | Standing | None:
    with of.acquire(INCR, "report", "worker", HOUR) as held:
        of.follow(held)
    verdict = of.next(INCR, "report")
    if isinstance(verdict, Blocked):
        return verdict.standing
    return int(verdict.item.key.sort) if isinstance(verdict, Ready) else None


# Outputs of shredded items


def test_an_output_names_the_records_that_it_was_made_from(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    commit(of, 1, VIEWS, SHRED)
    record = of.outputs().current(key(INCR, 1), VIEWS)
    shredded = of.item(key(INCR, 1)).processed_by(SHRED)
    assert shredded is not None
    assert Made.of(key(INCR, 1), record) == (Made("shred", shredded.record_id, key(INCR, 1)),)
    assert record.epoch is None
    assert record.data["rows"] == DONE.data["rows"]


def test_a_full_load_does_not_supersede_outputs_of_shredding(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2)
    land(of, FULL, 1)
    load(of, INCR, 1, 2)
    commit(of, 1, VIEWS, SHRED)
    commit(of, 2, VIEWS, SHRED)
    load_in_full(of, 1)
    assert of.outputs().current(key(INCR, 1), VIEWS)
    assert of.outputs().current(key(INCR, 2), VIEWS)


def test_shredding_again_supersedes_the_outputs_made_from_it_directly_and_indirectly(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    commit(of, 1, VIEWS, SHRED)
    commit(of, 1, PATHS, VIEWS)
    reshred(of, 1)
    assert "shred must do stoptime=0001 again (mended), and has not yet" in why_not(of, 1, VIEWS)
    assert "what paths made of stoptime=0001 is superseded: what views made of" in why_not(of, 1, PATHS)
    shred(of, 1)
    assert "what views made of stoptime=0001 is superseded: shred did stoptime=0001 again at 2026" in why_not(of, 1, VIEWS)
    commit(of, 1, VIEWS, SHRED)
    assert "superseded: views did stoptime=0001 again" in why_not(of, 1, PATHS)
    commit(of, 1, PATHS, VIEWS)
    assert of.outputs().current(key(INCR, 1), PATHS)


def test_an_output_that_does_not_name_its_inputs_counts_as_before(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    of.commit_output(key(INCR, 1), VIEWS, Payload(OUTPUT, {"rows": 1}))
    reshred(of, 1)
    assert of.outputs().current(key(INCR, 1), VIEWS)


def test_an_item_that_was_never_done_has_no_output(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    assert why_not(of, 1, VIEWS) == "stoptime=0001 is not done by views: nothing is committed to read"


# Outputs of loaded items


@ON_DYNAMODB_TOO
def test_a_full_load_supersedes_outputs_made_from_the_feeds_it_covers(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2)
    land(of, LOG, 1)
    land(of, FULL, 1)
    load(of, INCR, 1, 2)
    load(of, LOG, 1)
    for number in (1, 2):
        commit(of, number, VIEWS, LOAD, SHRED)
    commit(of, 2, PATHS, VIEWS)
    commit(of, 1, VIEWS, LOAD, feed=LOG)
    assert of.outputs().current(key(INCR, 2), PATHS).epoch == 1
    load_in_full(of, 1)
    for number in (1, 2):
        assert why_not(of, number, LOAD) == (
            f"what load did of stoptime=000{number} in epoch 1 is superseded: since a full load, epoch 2 serves"
        )
        assert f"made from what load did of stoptime=000{number} in epoch 1, but epoch 2 serves now" in why_not(
            of, number, VIEWS
        )
    assert "what views made of stoptime=0002 is superseded" in why_not(of, 2, PATHS)
    assert of.outputs().current(key(LOG, 1), VIEWS), "a snapshot does not cover logs"
    load(of, INCR, 2)
    assert "in epoch 1, but epoch 2 serves now" in why_not(of, 2, VIEWS), "what was loaded anew is another record"
    commit(of, 2, VIEWS, LOAD, SHRED)
    assert of.outputs().current(key(INCR, 2), VIEWS).epoch == 2


def test_a_full_load_that_is_only_begun_or_canceled_supersedes_nothing(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1)
    land(of, FULL, 1)
    load(of, INCR, 1)
    commit(of, 1, VIEWS, LOAD)
    of.begin_full_load(key(FULL, 1), "load", "needed")
    assert of.outputs().current(key(INCR, 1), VIEWS)
    with of.acquire(FULL, "load", "worker", HOUR) as held:
        of.cancel_full_load(held, "not needed")
    assert of.outputs().current(key(INCR, 1), VIEWS)


@ON_DYNAMODB_TOO
def test_an_output_superseded_by_a_full_load_between_reading_and_writing_is_not_committed(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2)
    land(of, FULL, 1)
    load(of, INCR, 1, 2)
    read = made(of, 2, LOAD, SHRED)
    load_in_full(of, 1)
    load(of, INCR, 2)
    before = len(of.history(key(INCR, 2)))
    with pytest.raises(NotCurrent, match=r"superseded while this was made: .* in epoch 1, but epoch 2 serves now"):
        of.commit_output(key(INCR, 2), VIEWS, DONE, read)
    assert len(of.history(key(INCR, 2))) == before
    assert epoch_of(read) == 1


def test_an_output_of_several_items_is_current_only_while_each_is(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2)
    of.commit_output(key(INCR, 2), VIEWS, DONE, [*made(of, 1, SHRED), *made(of, 2, SHRED)])
    assert of.outputs().current(key(INCR, 2), VIEWS)
    reshred(of, 1)
    assert "shred must do stoptime=0001 again" in why_not(of, 2, VIEWS)


# A strict step behind the load


@ON_DYNAMODB_TOO
def test_an_ordered_step_begins_again_at_the_full_loads_boundary(store: Store) -> None:
    of = with_report(store)
    land(of, INCR, 1, 2, 3)
    land(of, FULL, 1)
    load(of, INCR, 1, 2, 3)
    report(of, 1, 2, 3)
    assert next_report(of) is None
    load_in_full(of, 1)
    assert next_report(of) == Standing.WAITING, "what was loaded before the full load counts no more"
    load(of, INCR, 2)
    report(of, 2)
    assert next_report(of) == Standing.WAITING
    load(of, INCR, 3)
    report(of, 3)
    state = of.state(REPORT)
    assert (state.epoch, state.feed(INCR).serving_epoch, state.feed(INCR).applied) == (2, 2, 2)
    assert of.outputs().current(key(INCR, 3), REPORT).epoch == 2
    assert "in epoch 1 is superseded" in why_not(of, 1, REPORT)


def test_the_log_adds_up_to_the_state_of_a_step_that_followed_a_full_load(store: Store) -> None:
    of = with_report(store)
    land(of, INCR, 1, 2, 3)
    land(of, FULL, 1)
    load(of, INCR, 1, 2, 3)
    report(of, 1, 2)
    for done in ([], [2], [3]):
        if not done:
            load_in_full(of, 1)
        else:
            load(of, INCR, *done)
            report(of, *done)
        for _ in ("before it follows", "after"):
            diagnosis, _ = examine(of, of._clock(), {})
            assert diagnosis.findings == []
            next_report(of)


def test_a_new_output_of_a_done_step_replaces_the_old_one(store: Store) -> None:
    of = with_report(store)
    land(of, INCR, 1, 2)
    load(of, INCR, 1, 2)
    with pytest.raises(Refused, match="report is a step of feed incr: it works by claims"):
        commit(of, 1, REPORT, LOAD)
    report(of, 1, 2)
    before = of.state(REPORT)
    commit(of, 1, REPORT, LOAD)
    assert of.state(REPORT) == before
    record = of.outputs().current(key(INCR, 1), REPORT)
    assert (record.epoch, len(Made.of(key(INCR, 1), record))) == (1, 1)
    assert next_report(of) is None
