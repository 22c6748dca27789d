"""The protocol holds in every world of the small scopes, and fails in some world if one of its guards is switched off."""

from __future__ import annotations

import pytest

from manifest_platform.manifest import State, StepState, transitions
from manifest_platform.manifest.dataset import Mode
from manifest_platform.manifest.keys import state_key
from manifest_platform.manifest.store import Check, Put
from manifest_platform_tests.effort import IS_WHOLE, cases
from manifest_platform_tests.model import document, runs
from manifest_platform_tests.model.checker import BUDGET, WORKERS, Checker
from manifest_platform_tests.model.configurations import CONFIGURATIONS, LOAD
from manifest_platform_tests.model.guards import GUARDS, Guard
from manifest_platform_tests.model.invariants import Past, violation
from manifest_platform_tests.model.scope import READ, Event, RecordPut, Rejected, Scope, Writes, Written, stamp
from manifest_platform_tests.model.sink import Sink

SMALL = (
    "two",
    "two-append",
    "three",
    "three-append",
    "full-one",
    "full-two",
    "full-late",
    "full-skip",
    "order",
    "restore-skip",
    "rewind-append",
    "rewind-restore",
    "accept-restore",
    "reload",
    "reload-rewind",
    "archive",
    "rewind-archive",
    "two-operators-full",
    "together-three",
    "together-shred",
    "together-restore",
    "together-rewind",
)
LARGER = ("full-feeds", "answers", "restore-epoch", "replay")
"""Scopes of tens of thousands of states, which `make test-long` explores too."""
RESTING = ("two", "three-append", "together-three", "full-two", "full-late", "full-skip", "restore-skip", "rewind-append")
STATES = cases(150_000, 400_000)
NEEDED = [one for one in GUARDS if not one.needless]
NEEDLESS = [one for one in GUARDS if one.needless]


def by_name(guard: Guard) -> str:
    return guard.name


@pytest.mark.thorough
def test_no_invariant_breaks_in_any_state_of_the_small_scopes() -> None:
    states = 0
    for name in SMALL + LARGER if IS_WHOLE else SMALL:
        found = runs.explored(name)
        assert found.complete and found.violation is None, f"{name}: {found.violation} {found.trace}"
        assert document.scope_row(runs.configuration(name), found) in document.written(), stale(name)
        states += found.states
    assert states >= STATES


@pytest.mark.parametrize("name", RESTING)
def test_rest_can_be_reached_from_every_state_without_a_person(name: str) -> None:
    found = runs.rested(name)
    assert found.violation is None, found.trace


@pytest.mark.parametrize("name", ["restore-full", "restore-epoch"])
def test_a_manifest_set_back_to_before_a_full_load_rests_only_once_that_is_begun_again(name: str) -> None:
    alone, helped = runs.rested(name), runs.rested(name, helped=True)
    assert alone.trace[-3:] == (
        "restore the backup",
        "w1 COMMIT full/1, heard by nobody",
        "discovery reads, to discover incr/1",
    )
    assert helped.violation is None, helped.trace


def test_a_snapshot_whose_epoch_is_in_use_fails_and_loads_in_a_higher_epoch_when_begun_again() -> None:
    checker = Checker(Scope(runs.configuration("restore-epoch")))
    scope, program = checker.scope, checker.program
    incr, snapshot = scope.keys
    reached, failed, loaded = {checker.start}, False, False
    level = [checker.start]
    while level and not loaded:
        level = list(dict.fromkeys(step.after for world in level for step in checker.steps(world) if step.after not in reached))
        reached.update(level)
        for rows, sink in {world[:BUDGET] for world in level}:
            state = scope.state(scope.rows.values[rows].state)
            log = scope.logs.values[scope.log(rows, scope.number(snapshot))]
            refused = any((one.state, one.kind, one.epoch) == (State.FAILED, "permanent", 2) for one in log)
            failed = failed or (refused and state.mode == Mode.FULL_LOAD and program.rests(rows, sink))
            serves = state.mode == Mode.INCREMENTAL and state.feed(incr.feed).serving_epoch == 3
            loaded = loaded or (refused and serves and program.sinks.values[sink].content[0].epoch == 3)
    assert failed and loaded


@pytest.mark.parametrize("guard", NEEDED, ids=by_name)
def test_without_the_guard_an_invariant_breaks(guard: Guard) -> None:
    found = runs.without(guard.name)
    assert found.violation and len(found.trace) == found.depth > 0
    assert document.guard_row(guard, found) in document.written(), stale(guard.name)
    assert document.trace(guard, found) in document.written(), stale(guard.name)


@pytest.mark.parametrize("guard", NEEDLESS, ids=by_name)
def test_without_a_redundant_guard_nothing_breaks(guard: Guard) -> None:
    found = runs.without(guard.name)
    assert found.complete and found.violation is None, f"{guard.name} is needed: {found.violation} {found.trace}"
    assert document.needless_row(guard) in document.written(), stale(guard.name)


def test_the_document_names_every_scope_and_guard() -> None:
    text = document.written()
    assert [one.name for one in CONFIGURATIONS if f"| `{one.name}` |" not in text] == []
    assert [one.name for one in GUARDS if f"| `{one.name}` |" not in text] == []


def test_the_guards_are_in_force_again_once_a_run_without_one_has_ended() -> None:
    before = transitions.complete, transitions.judge, StepState.seen_by
    for guard in GUARDS:
        with guard.switched_off():
            pass
    assert (transitions.complete, transitions.judge, StepState.seen_by) == before


def test_a_run_is_the_same_each_time() -> None:
    once, again = (runs.without("sweep") for _ in range(2))
    assert once._replace(seconds=0) == again._replace(seconds=0)


def test_a_limit_cuts_a_run_short() -> None:
    found = runs.explored("two", limit=1000)
    assert not found.complete and 1000 <= found.states < runs.explored("two").states


def registration(scope: Scope) -> Writes:
    """The writes that register the first item of an empty manifest."""
    states = {LOAD.key: scope.state(scope.state_number(StepState()))}
    return scope.compact(transitions.discover([scope.landed[0]], scope.steps["incr"], states, LOAD, stamp()))


def small_scope() -> tuple[Scope, int]:
    """A scope in which one item is registered."""
    scope = Scope(runs.configuration("two"))
    written = scope.transact(scope.start, registration(scope), "discover", fresh=True)
    assert not isinstance(written, Rejected)
    return scope, written.rows


def test_a_record_is_refused_if_its_number_is_taken() -> None:
    scope, rows = small_scope()
    assert scope.transact(rows, registration(scope), "discover", fresh=True) == Rejected(lease=False)


def test_a_write_over_a_state_that_changed_since_it_was_read_is_refused() -> None:
    scope, rows = small_scope()
    check = scope.compact([Check(state_key(LOAD), READ)])
    assert scope.transact(rows, check, "claim", fresh=False) == Rejected(lease=False)
    assert scope.transact(rows, check, "claim", fresh=False, lease=(0, False, -1)) == Rejected(lease=True)


def test_a_write_without_a_condition_on_a_version_that_was_read_is_an_error() -> None:
    scope, _ = small_scope()
    unread = Put(state_key(LOAD), StepState().to_dict(), READ + 1)
    with pytest.raises(AssertionError, match="does not rest on the version that was read"):
        scope.compact([unread])


def test_items_survive_the_compact_form() -> None:
    scope, rows = small_scope()
    item = scope.item(0, scope.log(rows, 0))
    assert (item.landed, item.problems, item.sequence) == (scope.landed[0], [], 1)


def test_worlds_that_differ_only_by_the_names_of_workers_count_as_one() -> None:
    checker = Checker(Scope(runs.configuration("two")))
    worlds = [checker.start]
    for world in worlds:
        if len(worlds) < 2000:
            worlds += [step.after for step in checker.steps(world)]
    assert [world for world in worlds if list(world[WORKERS:]) != sorted(world[WORKERS:])] == []
    assert any(len(set(world[WORKERS:])) == 2 for world in worlds)


def test_an_item_that_is_open_twice_is_found() -> None:
    scope, rows = small_scope()
    opened = [RecordPut(0, sequence, Event(State.PROCESSING, LOAD.key, 1, 1)) for sequence in (2, 3)]
    once = scope.transact(rows, (opened[0],), "claim", fresh=True)
    assert isinstance(once, Written)
    twice = scope.transact(once.rows, (opened[1],), "claim", fresh=True)
    assert isinstance(twice, Written)
    sink, past = Sink.empty(scope.feeds), Past(restored=False, blamed=False)
    assert violation(scope, once.rows, sink, past) is None
    assert violation(scope, twice.rows, sink, past) == "(5) incr/1 is open twice for load"


def stale(name: str) -> str:
    return f"{name} has changed: run `python -m manifest_platform_tests.model --write-docs`"
