"""What a person can do, as the command that is told: each of them, and for each way to be blocked the right one."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import date

import click
import pytest

from manifest_platform.cli.app import load
from manifest_platform.cli.remedies import command_of, with_remedy
from manifest_platform.manifest import Failure, Item, ItemKey, Payload, Refused, Standing, State, payloads
from manifest_platform.manifest.dataset import Judgement, blocked
from manifest_platform.manifest.records import FAILURE
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.manifest.test_item import NEW

ITEM = Item(ItemKey("enriched", "1", "/landing/run=1"), (NEW,))


def full(action: Action) -> Remedy:
    """A remedy with every name that a remedy may need."""
    return Remedy(action, "run=1", "full", "count", "events", date(2024, 5, 14), "runs")


@pytest.mark.parametrize(
    ("standing", "command"),
    [
        (Standing.FAILED, "resolve run=1"),
        (Standing.CUT_OFF, "unskip run=1"),
        (Standing.GAP, "capture"),
        (Standing.NEEDS_FULL, "full begin latest"),
        (Standing.INVALID, "history run=1"),
        (Standing.WAITING, "drain"),
        (Standing.READY, "drain"),
        (Standing.MODE, "explain run=1"),
        (Standing.OVERLAP, "explain run=1"),
        (Standing.PROCESSING, "explain run=1"),
    ],
)
def test_each_way_to_be_blocked_has_its_command(standing: Standing, command: str) -> None:
    assert command_of(blocked(ITEM, Judgement(standing)).remedy) == f"manifest-platform {command}"


def test_each_action_has_a_command_of_its_own() -> None:
    assert len({command_of(full(action)) for action in Action}) == len(Action)


@pytest.mark.parametrize("action", [one for one in Action if one is not Action.CHECK_CLOCK])
def test_each_command_is_one_that_there_is(action: Action) -> None:
    _, name, *words = command_of(full(action)).split()
    command = load(name)
    while isinstance(command, click.Group):
        name = words.pop(0) if words[0] in command.commands else "items"  # `skip ITEM`
        command = command.commands[name]
    command.make_context(name, words)  # refuses options and arguments that are none of its own, and lacking ones


@pytest.mark.parametrize("item", ["https://example.com/?a=1&b=2", "run=2024-05-14-12-00-00-$(reboot)", "a;b", "it's"])
def test_a_name_is_a_word_of_the_shell_whoever_chose_it(item: str) -> None:
    assert shlex.split(command_of(Remedy(Action.RESOLVE, item=item))) == ["manifest-platform", "resolve", item]


def test_options_stand_before_the_program() -> None:
    told = command_of(Remedy(Action.RUN_PROGRAM, step="count"), " --dataset acme")
    assert told == "manifest-platform run --application count --dataset acme -- COMMAND"


def test_another_program_knows_none_of_our_options() -> None:
    assert command_of(Remedy(Action.CHECK_CLOCK), " --dataset acme") == "timedatectl status"


def test_what_helps_is_told_behind_what_is_wrong() -> None:
    assert with_remedy("It waits", Remedy(Action.DRAIN), command_of) == "It waits. Do this first: manifest-platform drain"
    assert with_remedy("It is held.", Remedy(Action.SHOW_STATUS), command_of) == "It is held. See manifest-platform status"


@pytest.mark.parametrize(
    ("remedy", "command"),
    [({}, "resolve run=1"), ({"remedy": "BEGIN_FULL_LOAD"}, "full begin latest"), ({"remedy": "OF_ANOTHER"}, "explain run=1")],
)
def test_a_failed_item_names_the_remedy(remedy: dict[str, str], command: str) -> None:
    """A full load helps where a type changed: advice to resolve it failed again for ever. A newer release knows more."""
    failed = replace(NEW, state=State.FAILED, payload=Payload(FAILURE, {"kind": "permanent", "message": "no", **remedy}))
    assert command_of(blocked(ITEM, Judgement(Standing.FAILED, "no", failed)).remedy) == f"manifest-platform {command}"


def test_an_error_that_knows_what_helps_says_so_in_its_failure() -> None:
    error = Refused("its types changed", Remedy(Action.BEGIN_FULL_LOAD))
    failure = Failure.of(error)
    payloads.check(replace(NEW, state=State.FAILED, payload=failure.payload()))
    assert failure.payload().data["remedy"] == "BEGIN_FULL_LOAD"
    assert failure.remedy_for("run=1").action is Action.BEGIN_FULL_LOAD
    assert "remedy" not in Failure.of(ValueError("no")).payload().data
