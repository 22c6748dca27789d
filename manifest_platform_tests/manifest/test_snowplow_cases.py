"""The acceptance cases of Snowplow's processing manifest, by their numbers, and the decisions that differ from it.

The notation is that of the cases: N, P, D, F, R, S for New, Processing, Processed, Failed, Resolved, Skipped; `P#1<-0` is the
record 1, whose previous record is 0; `(ld/id1)` its application and instance. If a case is about stored records, the test
stores them first and reads them back.
"""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import NAMESPACE_URL, uuid4, uuid5

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as given_

from manifest_platform import cli, config
from manifest_platform.manifest import (
    EVERYONE,
    Application,
    Blocked,
    CouplingViolation,
    Failure,
    FailureKind,
    Idle,
    Item,
    Landed,
    Lease,
    LeaseBusy,
    Manifest,
    Payload,
    Ready,
    Record,
    Refused,
    Standing,
    State,
    Step,
    Store,
    UnknownItem,
)
from manifest_platform.manifest.keys import record_key
from manifest_platform.manifest.payloads import APPLICATION_ERROR, LOCKED, PROCESSED_TYPES, InvalidPayload, problems
from manifest_platform.manifest.queries import Locked, prepared, processed_by, unprocessed
from manifest_platform.manifest.records import FAILURE, InvalidRecord, Stamp, coupling_problem
from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform.manifest.transitions import append, put_record
from manifest_platform_tests.manifest import given
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    Clock,
    claim_next,
    discover,
    is_blocked,
    key,
    land,
    load_next,
    manifest,
    ready,
    shred,
)
from manifest_platform_tests.manifest.test_records import records

STATES = dict(zip("NPDFRS", (*list(State)[:4], State.RESOLVED, State.SKIPPED), strict=True))
NOTATION = re.compile(r"(?P<state>[NPDFRS])(?:#(?P<id>\w+))?(?:<-(?P<previous>\w+))?(?:\((?P<application>[^)]*)\))?")


def uid(name: str) -> str:
    """The record id for a name in a case."""
    return str(uuid5(NAMESPACE_URL, name))


def app(text: str) -> Application:
    name, _, instance = text.partition("/")
    return Application(name, "1.0", instance or None)


def written(text: str, number: int = 1) -> list[Record]:
    """The records in the notation of a case: `N#0, P#1<-0`."""
    found = []
    for at, one in enumerate(text.split(", "), start=1):
        part = NOTATION.fullmatch(one)
        assert part, one
        previous = uid(part["previous"]) if part["previous"] else None
        name = uid(part["id"] or f"unnamed {at}")
        application = app(part["application"] or "sh")
        found.append(given.record(STATES[part["state"]], name, previous, application, item=key(number).id, sequence=at))
    return found


def stored(store: Store, text: str, number: int = 1) -> Item:
    """An item of records written by hand, as the manifest reads it back."""
    return stored_records(store, written(text, number), number)


def stored_records(store: Store, found: list[Record], number: int = 1) -> Item:
    writes = [Put(record_key(key(number), one.sequence), one.to_dict(), ABSENT) for one in found]
    store.transact("shop", writes, f"by hand {number}")
    return manifest(store).item(key(number))


def blocker(item: Item) -> str | None:
    found = item.blocker()
    return found.record_id if found else None


def states(of: Manifest, number: int = 1) -> list[State]:
    return [record.state for record in of.history(key(number))]


def loaders(store: Store, *instances: str) -> Manifest:
    """A feed with a shredder and several unordered instances of the loader."""
    loads = [Step(Application("load", instance=instance), upstream=("shred",)) for instance in instances]
    return Manifest(store, "shop", {FEED: [Step(SHRED), *loads]}, "test", clock=Clock())


def work(of: Manifest, number: int, application: Application) -> None:
    with given.lease(of, application) as held:
        [claim] = of.claim(held, [of.item(key(number))])
        of.complete(claim, DONE)


def numbers(items) -> list[int]:
    return [given.number_of(item.key) for item in items]


# State


def test_case_01_an_item_that_is_only_new_is_not_blocked(store: Store) -> None:
    assert blocker(stored(store, "N#0")) is None


def test_case_02_an_open_processing_blocks(store: Store) -> None:
    assert blocker(stored(store, "N#0, P#1<-0")) == uid("1")


def test_case_03_work_on_something_else_frees_nothing(store: Store) -> None:
    assert blocker(stored(store, "N#0, P#1<-0, D#2<-unrelated")) == uid("1")


def test_case_04_a_processed_frees_its_processing(store: Store) -> None:
    assert blocker(stored(store, "N#0, P#1<-0, D#2<-1")) is None


def test_case_05_a_failure_blocks(store: Store) -> None:
    assert blocker(stored(store, "N#0, P#1<-0, F#2<-1")) == uid("2")


def test_case_06_a_resolved_frees_a_failure(store: Store) -> None:
    assert blocker(stored(store, "N#0, P#1<-0, F#2<-1, R#3<-2")) is None


def test_case_07_a_failure_of_another_application_blocks_too(store: Store) -> None:
    assert blocker(stored(store, "N#0, P#1<-0(app1), F#2<-1(app1), R#3<-2(app1), F#5(app2)")) == uid("5")


def test_case_08_a_skip_lifts_the_block_for_the_applications_it_names(store: Store) -> None:
    """Decided otherwise: upstream leaves the item blocked, so that no worker can ever pass it.

    The failure remains in the log. But an operator skips an item because it cannot be repaired: if the feed still stopped at
    the item, the skip would have no effect. The failure still blocks applications that the skip does not name.
    """
    of = manifest(store)
    discover(of, 1, 2)
    with given.lease(of, SHRED) as held:
        of.fail(of.claim(held, [of.item(key(1))])[0], Failure(FailureKind.PERMANENT, "broken"))
    is_blocked(of, 1, Standing.FAILED)
    of.skip(key(1), "beyond repair", EVERYONE)
    item = of.item(key(1))
    assert (item.blocker() or item.records[0]).state is State.FAILED
    is_blocked(of, 2, Standing.WAITING)
    assert numbers([ready(of, SHRED).item]) == [2]


def test_case_08_a_skip_of_one_application_leaves_the_others_blocked(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with given.lease(of) as held:
        of.fail(claim_next(of, held), Failure(FailureKind.PERMANENT, "broken"))
    with pytest.raises(Refused, match="load is Failed"):
        of.commit_output(key(1), Application("report"), DONE)
    of.skip(key(1), "beyond repair", "load")
    assert of.next(FEED, "load") == Idle()
    with pytest.raises(Refused, match="load is Failed"):
        of.commit_output(key(1), Application("report"), DONE)


def test_case_09_a_resolved_frees_a_dead_processing(store: Store) -> None:
    """Decided otherwise: upstream accepts the records and keeps the item locked, so a crashed worker's lock never ends."""
    item = stored(store, "N#0, P#1<-0, R#2<-1")
    assert (problems(item), blocker(item)) == ([], None)


def test_case_10_the_earliest_of_two_blockers_is_reported(store: Store) -> None:
    item = stored(store, "N#0, F#9<-8(app2), P#1<-0, F#2<-1")
    assert blocker(item) == uid("9")
    assert [record.record_id for record in item.open_records()] == [uid("9"), uid("2")]


# Validity


def test_case_11_a_failure_and_a_second_attempt_are_valid(store: Store) -> None:
    assert problems(stored(store, "N#1, P#2<-1, F#3<-2, P#4, D#5<-4")) == []


def test_case_12_every_link_to_a_missing_record_is_reported_in_record_order(store: Store) -> None:
    first, second = problems(stored(store, "N#1, P#2<-1, F#3<-2, P#4, D#5<-4, D#6<-gone, P#7<-lost"))
    assert [part in first for part in (uid("6"), "Processed", uid("gone"))] == [True] * 3
    assert [part in second for part in (uid("7"), "Processing", uid("lost"))] == [True] * 3


def test_case_13_a_record_among_another_items_is_reported_with_both_names(store: Store) -> None:
    mine, [other] = written("N#1"), written("S#2", number=2)
    item = stored_records(store, [*mine, given.record(State.SKIPPED, uid("2"), item=other.item, sequence=2)])
    [problem] = problems(item)
    assert key(1).id in problem and key(2).id in problem


BAD_LOCK = Payload(LOCKED, {"recordId": "none"})
BAD_TYPES = Payload(PROCESSED_TYPES, {"shreddedTypes": "iglu:com.acme/a/jsonschema/1-0-0"})


def test_case_14_two_payloads_that_break_their_schemas_are_two_errors(store: Store) -> None:
    """Upstream checks on reading. Here the write is refused, and reading reports faults that another program wrote."""
    new, work = written("N#1, P#2<-1")
    bad = [with_payload(new, BAD_TYPES), with_payload(work, BAD_LOCK)]
    for one in bad:
        with pytest.raises(InvalidPayload, match=re.escape(one.payload.schema) if one.payload else ""):
            store.transact("shop", [put_record(key(1), one)], "refused")
    assert store.query("shop", "") == []
    first, second = problems(stored_records(store, bad))
    assert "$.shreddedTypes" in first and "$.recordId" in second


def test_case_15_a_bad_payload_and_a_missing_link_are_reported_together(store: Store) -> None:
    new, work, failed = written("N#1, P#2<-1, F#3")
    link, payload = problems(stored_records(store, [new, with_payload(work, BAD_LOCK), failed]))
    assert uid("3") in link and "points at nothing" in link
    assert uid("2") in payload and "recordId" in payload


def with_payload(record: Record, payload: Payload) -> Record:
    return Record.from_dict({**record.to_dict(), "payload": {"schema": payload.schema, "data": payload.data}})


LINKS = {
    "invalid": ["N<-N", "N<-P", "N<-D", "N<-F", "N<-S", "P<-P", "D<-N", "D<-F", "F<-D", "R<-N", "R<-D"],
    "valid": ["P<-N", "P", "R<-F", "R<-P", "S<-N", "S<-P", "S<-D", "S<-F", "S<-gone"],
}


def test_case_16_only_certain_records_may_follow_a_record(store: Store) -> None:
    for number, (link, valid) in enumerate([(link, kind == "valid") for kind, links in LINKS.items() for link in links]):
        state, _, target = link.partition("<-")
        target = target if target in STATES else ""
        item = stored(store, f"{target}#1, {link.replace('<-' + target, '<-1')}" if target else link, number)
        told = coupling_problem(item.records[-1], item.records)
        assert (told is None) == valid, link
        before = Item(item.key, item.records[:-1])
        stamp = Stamp("test")
        if valid:
            append(before, STATES[state], app("sh"), stamp, previous=item.records[-1].previous)
        else:
            with pytest.raises(CouplingViolation):
                append(before, STATES[state], app("sh"), stamp, previous=item.records[-1].previous)


def test_case_17_an_unknown_item_is_none_and_a_broken_item_is_reported(store: Store) -> None:
    of = manifest(store)
    with pytest.raises(UnknownItem, match="is it discovered yet"):
        of.item(key(1))
    assert len(problems(stored(store, "N#0, D#1<-0"))) == 1
    verdict = of.next(FEED, "load")
    assert isinstance(verdict, Blocked)
    assert verdict.standing is Standing.INVALID and uid("1") in verdict.reason


# Skip and identity


def skipped(store: Store, text: str) -> Callable[[Application], bool]:
    item = stored(store, text)
    return lambda application: item.skipped_for(application) is not None


def test_case_18_a_skip_of_all_stops_everyone(store: Store) -> None:
    stops = skipped(store, "N#0, S#1(*)")
    assert all(stops(one) for one in (Application("ld", "9.9"), app("other"), app("other/id1"), app("ld/id1")))


def test_case_19_a_skip_of_another_application_stops_nobody_else(store: Store) -> None:
    assert not skipped(store, "N#0, S#1(any-app)")(app("ld"))


def test_case_20_a_skip_of_one_instance_leaves_the_others(store: Store) -> None:
    assert not skipped(store, "N#0, S#1(ld/id1)")(app("ld/id2"))


def test_case_21_the_same_instance_name_of_another_application_is_another_instance(store: Store) -> None:
    assert not skipped(store, "N#0, S#1(any-app/id1)")(app("ld/id1"))


def test_case_22_a_skip_without_an_instance_stops_all_instances_and_with_an_instance_only_that(store: Store) -> None:
    assert skipped(store, "N#0, S#1(ld)")(app("ld/x"))
    with_instance = stored(store, "N#0, S#1(ld/id1)", number=2)
    assert with_instance.skipped_for(Application("ld", "another version", "id1"))
    assert not with_instance.skipped_for(app("ld"))


def test_case_23_work_counts_for_matching_names_and_instances(store: Store) -> None:
    item = stored(store, "N#0, P#1<-0(transformer), D#2<-1(transformer), P#3<-0(loader/target-1), D#4<-3(loader/target-1)")
    done = {text: item.processed_by(app(text)) is not None for text in ("transformer", "transformer/args")}
    assert done == {"transformer": True, "transformer/args": True}
    assert item.processed_by(app("transformer/target-1"))
    assert not item.processed_by(app("loader/target-2"))
    assert item.processed_by(app("loader"))


# Query


def test_case_24_an_item_is_unprocessed_for_applications_that_have_not_done_it(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    assert numbers(unprocessed(of, FEED, LOAD)) == [1]
    assert numbers(unprocessed(of, FEED, SHRED)) == []


def in_work(of: Manifest) -> Lease:
    """An item that is being shredded."""
    discover(of, 1)
    held = given.lease(of, SHRED)
    of.claim(held, [of.item(key(1))])
    return held


def test_case_25_a_loader_that_meets_work_in_progress_gets_an_error_and_no_items(store: Store) -> None:
    of = manifest(store)
    with in_work(of):
        with pytest.raises(Locked, match=r"run=001 by shred \(Processing\)") as told:
            prepared(of, FEED, LOAD, SHRED)
        assert told.value.records == of.history(key(1))[-1:]
        is_blocked(of, 1, Standing.PROCESSING)
        assert len(of.history(key(1))) == 2


def test_case_26_unprepared_items_are_no_error_if_only_prepared_items_are_queried(store: Store) -> None:
    of = manifest(store)
    with in_work(of):
        assert numbers(unprocessed(of, FEED, LOAD, prepared_by=SHRED)) == []


def test_case_27_a_skipped_item_is_not_unprocessed(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    of.skip(key(1), "not wanted", "load")
    assert of.history(key(1))[-1].previous == of.history(key(1))[-2].record_id
    assert numbers(unprocessed(of, FEED, LOAD, prepared_by=SHRED)) == []


def test_case_28_an_item_done_by_one_instance_is_unprocessed_for_another(store: Store) -> None:
    of = loaders(store, "id1", "id2")
    land(of, 1)
    work(of, 1, Application("load", instance="id1"))
    assert numbers(unprocessed(of, FEED, Application("load", instance="id1"), prepared_by=SHRED)) == []
    assert numbers(unprocessed(of, FEED, Application("load", instance="id2"), prepared_by=SHRED)) == [1]


def test_case_29_items_prepared_by_one_application_and_not_done_by_another(store: Store) -> None:
    of = loaders(store, "id1")
    land(of, 1, 2)
    assert numbers(processed_by(of, FEED, SHRED)) == [2, 1]
    assert numbers(unprocessed(of, FEED, Application("load", instance="id1"))) == [1, 2]


def test_case_30_an_upstream_failure_is_in_a_query_for_all_items_and_not_for_prepared_items(store: Store) -> None:
    """The queries answer as upstream does. But a strict step stops at the item: no later item passes a failure."""
    of = manifest(store)
    discover(of, 1)
    with given.lease(of, SHRED) as held:
        of.fail(of.claim(held, [of.item(key(1))])[0], Failure(FailureKind.PERMANENT, "broken"))
    with pytest.raises(Locked, match=r"shred \(Failed\)"):
        prepared(of, FEED, LOAD, SHRED)
    assert numbers(unprocessed(of, FEED, LOAD, prepared_by=SHRED)) == []
    land(of, 2)
    is_blocked(of, 1, Standing.FAILED)
    assert numbers(unprocessed(of, FEED, LOAD, prepared_by=SHRED)) == [2]


# Processing


def test_case_31_an_item_with_finished_work_has_three_records(store: Store) -> None:
    """Here the Processing refers to the New, as the Snowplow rules allow, so that an audit can follow one chain."""
    of = manifest(store, author="loader 1.0")
    land(of, 1)
    new, opened, done = of.history(key(1))
    assert [one.state for one in (new, opened, done)] == [State.NEW, State.PROCESSING, State.PROCESSED]
    assert (new.previous, opened.previous, done.previous) == (None, new.record_id, opened.record_id)
    assert done.payload == DONE and {new.author, opened.author, done.author} == {"loader 1.0"}


def test_case_32_only_the_work_is_added_to_a_known_item(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    assert discover(of, 1) == ["known"]
    shred(of, 1)
    assert states(of) == [State.NEW, State.PROCESSING, State.PROCESSED]


def test_case_33_failed_work_has_a_record_with_the_reason(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    with given.lease(of, SHRED) as held:
        [claim] = of.claim(held, [of.item(key(1))])
        failed = of.fail(claim, Failure(FailureKind.PERMANENT, "no such table", "LookupError"))
    assert states(of) == [State.NEW, State.PROCESSING, State.FAILED]
    assert failed.previous == claim.processing.record_id
    assert failed.payload == Payload(FAILURE, {"kind": "permanent", "message": "no such table", "exception": "LookupError"})
    assert is_blocked(of, 1, Standing.FAILED).reason == "shred failed: no such table"


def test_case_33_the_errors_of_snowplow_applications_are_taken_as_they_are(store: Store) -> None:
    error = Payload(APPLICATION_ERROR, {"programmingLanguage": "SCALA", "message": "no such table"})
    new, opened, failed = written("N#0, P#1<-0, F#2<-1")
    writes = [put_record(key(1), one) for one in (new, opened, with_payload(failed, error))]
    store.transact("shop", writes, "as imported")
    item = manifest(store).item(key(1))
    assert (problems(item), item.records[-1].payload) == ([], error)
    is_blocked(manifest(store), 1, Standing.FAILED)


def test_case_34_a_failed_item_stops_no_other_item_of_an_unordered_step(store: Store) -> None:
    of = manifest(store)
    discover(of, 1, 2)
    with given.lease(of, SHRED) as held:
        of.fail(of.claim(held, [of.item(key(1))])[0], Failure(FailureKind.PERMANENT, "broken"))
    shred(of, 2)
    assert states(of, 2) == [State.NEW, State.PROCESSING, State.PROCESSED]


def test_case_34_a_failed_item_stops_the_feed_of_a_strict_step(store: Store) -> None:
    """Decided otherwise: upstream has no order. A strict step applies no item behind a failure."""
    of = manifest(store)
    land(of, 1, 2)
    with given.lease(of) as held:
        of.fail(claim_next(of, held), Failure(FailureKind.PERMANENT, "broken"))
        is_blocked(of, 1, Standing.FAILED)
        with pytest.raises(Refused):
            of.claim(held, [of.item(key(1))], of.state(LOAD))
    assert len(of.history(key(2))) == 3


def test_case_35_only_prepared_items_are_processed(store: Store) -> None:
    of = loaders(store, "id1")
    discover(of, 1, 2, 3)
    shred(of, 3)
    application = Application("load", instance="id1")
    while isinstance(verdict := of.next(FEED, application.key), Ready):
        work(of, given.number_of(verdict.item.key), application)
    assert [states(of, number) for number in (1, 2)] == [[State.NEW]] * 2
    assert states(of, 3)[3:] == [State.PROCESSING, State.PROCESSED]


def test_case_36_a_second_worker_learns_who_holds_the_lease_and_writes_nothing(reopen: Callable[[], Store]) -> None:
    clock = Clock()
    one, other = (manifest(reopen(), clock=clock, author=author) for author in ("one", "other"))
    land(one, 1)
    with given.lease(one, holder="the first") as held:
        claim = claim_next(one, held)
        clock.turn(HOUR / 2)
        before = other.store.query("shop", "")
        with pytest.raises(LeaseBusy, match="held by the first"):
            given.lease(other, holder="the second")
        assert other.store.query("shop", "") == before
        one.complete(claim, DONE)
    assert states(other)[-3:] == [State.PROCESSED, State.PROCESSING, State.PROCESSED]
    one.store.close()
    other.store.close()


@pytest.mark.every_store
def test_case_37_exactly_one_of_two_concurrent_workers_wins_and_the_other_learns_which(reopen: Callable[[], Store]) -> None:
    """Decided otherwise: upstream intends that both lose, and leaves records behind that make the item invalid."""
    given_store = reopen()
    land(manifest(given_store), 1)
    clock, start = Clock(), threading.Barrier(2)
    won: dict[str, Lease] = {}
    lost: dict[str, LeaseBusy] = {}

    def race(name: str) -> None:
        own = manifest(reopen(), clock=clock, author=name)
        start.wait()
        try:
            won[name] = given.lease(own, holder=name)
        except LeaseBusy as busy:
            lost[name] = busy

    threads = [threading.Thread(target=race, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [(winner, held)], [(loser, busy)] = won.items(), lost.items()
    assert winner != loser and busy.lease.holder == winner
    of = manifest(given_store, clock=clock, author=winner)
    with held:
        of.complete(claim_next(of, held), DONE)
    assert [record.author for record in of.history(key(1))][3:] == [winner, winner]
    assert problems(of.item(key(1))) == []
    given_store.close()


def test_case_38_an_item_that_is_done_skipped_or_blocked_cannot_be_claimed(store: Store) -> None:
    of = manifest(store)
    land(of, 1, 2, 3)
    assert load_next(of) == 1
    of.skip(key(2), "not wanted", "load")
    with given.lease(of) as held:
        for number, why in ((1, Standing.DONE), (2, Standing.SKIPPED)):
            with pytest.raises(Refused, match=f"cannot be claimed by load: {why}"):
                of.claim(held, [of.item(key(number))], of.state(LOAD))
        claim_next(of, held)
        with pytest.raises(Refused, match=f"cannot be claimed by load: {Standing.PROCESSING}"):
            of.claim(held, [of.item(key(3))], of.state(LOAD))


def test_case_39_two_thousand_records_are_read_page_by_page(store: Store) -> None:
    found = [one for number in range(667) for one in written("N#0, P#1<-0, D#2<-1", number)]
    writes = [put_record(key(number), one) for number in range(667) for one in found[3 * number : 3 * number + 3]]
    for at in range(0, len(writes), 99):
        store.transact("shop", writes[at : at + 99], f"records from {at}")
    items = list(manifest(store).items(FEED))
    assert (len(items), {len(item.records) for item in items}) == (667, {3})
    assert numbers(items) == list(range(667))


# Serialization and command line


def test_case_40_attributes_that_may_be_null_may_be_absent(store: Store) -> None:
    full = written("N#0")[0].to_dict()
    bare = {name: value for name, value in full.items() if value is not None}
    bare["application"] = {"name": full["application"]["name"], "version": full["application"]["version"]}
    assert set(full) - set(bare) == {"previous", "run_id", "epoch", "token", "payload"}
    store.transact("shop", [Put("full", full, ABSENT), Put("bare", bare, ABSENT)], "both")
    rows = store.query("shop", "")
    assert Record.from_dict(rows[0].data) == Record.from_dict(rows[1].data)


def test_case_41_nulls_and_values_come_back_as_they_were(store: Store) -> None:
    without = written("N#0(ld)")
    [within] = written("S#1<-0(ld/id1)", number=2)
    writes = [Put(f"{at}", one.to_dict(), ABSENT) for at, one in enumerate([*without, within])]
    store.transact("shop", writes, "both")
    assert [Record.from_dict(row.data) for row in store.query("shop", "")] == [*without, within]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given_(one=records)
def test_case_42_any_record_comes_back_as_it_was(store: Store, one: Record) -> None:
    row = store.get("shop", "record")
    store.transact("shop", [Put("record", one.to_dict(), row.version if row else ABSENT)], str(uuid4()))
    row = store.get("shop", "record")
    assert row and Record.from_dict(row.data) == one


def test_case_43_all_faults_of_a_stored_record_are_reported_together(store: Store) -> None:
    wrong = {
        "item": 7,
        "record_id": "not-a-uuid",
        "previous": "neither",
        "state": "Done",
        "application": {"name": "", "version": 1},
        "timestamp": "yesterday",
        "epoch": "1",
        "payload": {"data": []},
    }
    store.transact("shop", [Put("record", wrong, ABSENT)], "by hand")
    row = store.get("shop", "record")
    assert row
    with pytest.raises(InvalidRecord) as told:
        Record.from_dict(row.data)
    assert str(told.value).split(": ", 1)[1].split("; ") == [
        "item 7 is not of type str",
        "sequence is missing",
        "author is missing",
        "epoch '1' is not of type int",
        "application.version 1 is not of type str",
        "payload.schema is missing",
        "payload.data [] is not of type dict",
        "record_id 'not-a-uuid' is not a UUID",
        "previous 'neither' is not a UUID",
        "state 'Done' is not one of New, Processing, Processed, Failed, Resolved, Skipped",
        "timestamp 'yesterday' is not a time with a time zone, such as 2026-01-31T12:00:00.000000Z",
    ]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("author", ["a", "b"]), ("timestamp", "2026-01-01T00:00:00"), ("state", "new"), ("token", 1.5), ("sequence", True)],
)
def test_case_43_each_attribute_has_its_type(attribute: str, value: object) -> None:
    with pytest.raises(InvalidRecord, match=attribute):
        Record.from_dict({**written("N#0")[0].to_dict(), attribute: value})


RUN = "run=2026-01-01-00-00-00"


@pytest.fixture
def shop(tmp_path: Path, store_url: str) -> Path:
    """A configuration whose feed has one item."""
    file = tmp_path / "platform.yaml"
    text = f"""
        manifest: {{store: "{store_url}"}}
        datasets:
          shop:
            landing: {{root: landing}}
            shred: {{output: shredded, schemas: [schemas]}}
        """
    file.write_text(textwrap.dedent(text))
    return file


def operated(store: Store, file: Path) -> Manifest:
    """The manifest of a configuration, with its only run discovered."""
    of = Manifest(store, "shop", {FEED: given.steps()}, "test")
    uri = f"file://{file.parent}/landing/{RUN}"
    of.discover(FEED, [Landed(given.ItemKey(FEED, "2026-01-01-00-00-00", uri), 1, 1, "as-landed")])
    return of


def the_run(of: Manifest) -> Item:
    [item] = of.items(FEED)
    return item


@pytest.mark.parametrize("form", ["before", "behind", "environment"])
def test_case_44_resolve_takes_its_configuration_from_an_option_or_the_environment(
    store: Store, shop: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = operated(store, shop)
    with given.lease(of, SHRED) as held:
        of.fail(of.claim(held, [the_run(of)])[0], Failure(FailureKind.PERMANENT, "broken"))
    monkeypatch.setenv(config.VARIABLE, str(shop) if form == "environment" else "")
    option = ["--config", str(shop)]
    arguments = [*(option if form == "before" else []), "resolve", RUN, *(option if form == "behind" else [])]
    assert cli.main(arguments) == cli.Exit.DONE
    assert the_run(of).records[-1].state is State.RESOLVED
    assert "manifest-platform" in the_run(of).records[-1].author


def test_case_45_resolve_refuses_an_item_that_is_unknown_unblocked_or_being_processed(
    store: Store, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Upstream's command requires a stated state. Here the command finds the blocking record and decides if it may be freed."""
    of = operated(store, shop)
    before = the_run(of)

    def refused(name: str, why: str) -> None:
        assert cli.main(["resolve", name, "--config", str(shop)]) == cli.Exit.FAILED
        assert why in capsys.readouterr().err

    refused("run=2020-01-01-00-00-00", "dataset shop has no item run=2020-01-01-00-00-00")
    refused(RUN, "is not blocked: there is nothing to resolve")
    with given.lease(of, SHRED) as held:
        of.claim(held, [before])
        refused(RUN, "is being processed by shred")
    assert [record.state for record in the_run(of).records] == [State.NEW, State.PROCESSING]


# A loader on top of the manifest


def prepared_run(of: Manifest, number: int, *types: str) -> None:
    """Discovers a run and shreds it, with the payload of Snowplow's shredder."""
    discover(of, number)
    with given.lease(of, SHRED) as held:
        [claim] = of.claim(held, [of.item(key(number))])
        of.complete(claim, Payload(PROCESSED_TYPES, {"shreddedTypes": list(types)}) if types else DONE)


def test_case_46_a_loader_finds_nothing_in_an_empty_manifest(store: Store) -> None:
    assert prepared(manifest(store), FEED, LOAD, SHRED) == []


def test_case_47_a_run_without_types_is_one_folder(store: Store) -> None:
    of = manifest(store)
    prepared_run(of, 1)
    [found] = prepared(of, FEED, LOAD, SHRED)
    assert (found.item.key, found.tables) == (key(1), ())


def test_case_48_an_invalid_folder_and_an_invalid_type_are_reported_together(store: Store) -> None:
    of = manifest(store)
    no_folder = given.twin(1, "not-a-folder")
    of.discover(FEED, [no_folder])
    with given.lease(of, SHRED) as held:
        [claim] = of.claim(held, [of.item(no_folder.key)])
        of.complete(claim, Payload(PROCESSED_TYPES, {"shreddedTypes": ["iglu:com.acme/a/jsonschema/0-0-0"]}))
    with pytest.raises(InvalidPayload) as told:
        prepared(of, FEED, LOAD, SHRED)
    assert "'not-a-folder' is not the URI of a folder" in str(told.value)
    assert "'iglu:com.acme/a/jsonschema/0-0-0' is not a schema URI" in str(told.value)


def test_case_49_loaded_items_are_left_out_and_versions_of_one_model_share_a_table(store: Store) -> None:
    of = manifest(store)
    prepared_run(of, 1, "iglu:com.acme/a/jsonschema/1-0-0")
    prepared_run(of, 2, "iglu:com.acme/a/jsonschema/1-0-0", "iglu:com.acme/a/jsonschema/1-0-1")
    load_next(of)
    [found] = prepared(of, FEED, LOAD, SHRED)
    assert (found.item.key, found.tables) == (key(2), ("iglu:com.acme/a/jsonschema/1",))


def test_case_50_three_prepared_runs_are_three_discoveries_in_order(store: Store) -> None:
    of = manifest(store)
    for number in (3, 1, 2):
        prepared_run(of, number, f"iglu:com.acme/a/jsonschema/{number}-0-0")
    found = prepared(of, FEED, LOAD, SHRED)
    assert numbers(one.item for one in found) == [1, 2, 3]
    assert [one.tables for one in found] == [(f"iglu:com.acme/a/jsonschema/{number}",) for number in (1, 2, 3)]


def test_case_51_a_failed_run_blocks_the_loader(store: Store) -> None:
    of = manifest(store)
    prepared_run(of, 1)
    discover(of, 2)
    with given.lease(of, SHRED) as held:
        of.fail(of.claim(held, [of.item(key(2))])[0], Failure(FailureKind.PERMANENT, "broken"))
    with pytest.raises(Locked, match=r"run=002 by shred \(Failed\)"):
        prepared(of, FEED, LOAD, SHRED)
