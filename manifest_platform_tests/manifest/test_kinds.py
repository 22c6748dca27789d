"""Kinds and modes have types in the program, and are plain text where they are stored."""

import json

from manifest_platform.manifest import Failure, FailureKind, Mode, StepState

NEEDS = "needs manifest-platform 0.2.0 or later"
STORED = {
    "version": 2,
    "release": "0.2.0",
    "mode": ["FULL_LOAD", NEEDS],
    "epoch": 3,
    "boundary": "0002",
    "full": "0002#x",
    "feeds": {},
}


def test_a_stored_mode_reads_back_as_it_was_written() -> None:
    state = StepState.from_dict(json.loads(json.dumps(STORED)), 1)
    assert state.mode is Mode.FULL_LOAD
    assert state.to_dict() == STORED
    assert [type(text) for text in state.to_dict()["mode"]] == [str, str]


def test_a_mode_as_the_first_release_wrote_it_is_read() -> None:
    first = {"mode": "FULL_LOAD", "epoch": 3, "boundary": "0002", "full": "0002#x", "feeds": {}}
    assert StepState.from_dict(first, 1).mode is Mode.FULL_LOAD


def test_a_mode_of_a_later_release_is_kept_and_equals_no_known_mode() -> None:
    later = {**STORED, "mode": ["PAUSED", NEEDS]}
    state = StepState.from_dict(later, 1)
    assert state.to_dict() == later
    assert (str(state.mode), repr(state.mode)) == ("PAUSED", "<Mode.PAUSED: 'PAUSED'>")
    assert state.mode not in (Mode.INCREMENTAL, Mode.FULL_LOAD)


def test_a_failure_is_stored_as_plain_text() -> None:
    for kind in FailureKind:
        assert type(Failure(kind, "broken").payload().data["kind"]) is str
