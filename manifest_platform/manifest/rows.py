"""What the rows of a store mean: a step's state, an item's position, the data of a record."""

from __future__ import annotations

from typing import Any

from manifest_platform.manifest.dataset import StepState
from manifest_platform.manifest.records import LANDED, Record
from manifest_platform.manifest.store import Put, Row, Write


def state_of(row: Row | None) -> StepState:
    """The state of a step in its row; a fresh state without a row."""
    return StepState.from_dict(row.data, row.version) if row else StepState()


def position_of(row: Row, prefix: str) -> str:
    """The position of the item in whose record the row is."""
    return row.sort.removeprefix(prefix).rpartition("#")[0]


def move_of(row: Row) -> dict[str, Any] | None:
    """The data of a record that moved an item's files; None for any other record."""
    payload = row.data["payload"]
    return payload["data"] if payload and payload["data"].get("place") else None


def landed_checksum(row: Row) -> str | None:
    """The checksum in a record that registered a directory; None for any other, such as a record of another system."""
    payload = row.data["payload"]
    return payload["data"]["checksum"] if payload and payload["schema"] == LANDED else None


def record_of(write: Write) -> Record:
    """The record that a transition begins with. Raises TypeError if it begins with anything else."""
    if not isinstance(write, Put):
        raise TypeError(f"the first write of a transition is its record, not {write}")
    return Record.from_dict(write.data)
