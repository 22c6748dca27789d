"""What is blocked, and the command that a person is told."""

from __future__ import annotations

import pytest

from manifest_platform.manifest import Item, ItemKey, Remedy, Standing
from manifest_platform.manifest.dataset import Judgement, blocked
from manifest_platform.pipeline.remedies import command_of, remedy_command
from manifest_platform_tests.manifest.test_item import NEW

ITEM = Item(ItemKey("enriched", "1", "/landing/run=1"), (NEW,))


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
    assert remedy_command(blocked(ITEM, Judgement(standing))) == f"manifest-platform {command}"


def test_every_remedy_is_put_into_a_command() -> None:
    commands = {command_of(remedy, item="run=1", feed="full") for remedy in Remedy}
    assert len(commands) == len(Remedy)
    assert "manifest-platform capture --feed full" in commands
