"""Deletions by retention: the record that an item's stored data is deleted, and the row that exists until it is.

Belongs here: both as pure functions. The record and the row are one transaction, before anything is deleted, so that a deletion
that was interrupted is found and finished. While the row exists, nobody can ask for the item to be done again. Which data may
be deleted is decided in `operations.retention`; the storage is not accessed here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import uuid4

from manifest_platform.manifest.dataset import Step, StepState
from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.keys import deletion_key, deletion_of, record_key
from manifest_platform.manifest.records import (
    RETENTION_REASON,
    Application,
    Holding,
    Payload,
    Stamp,
    State,
    format_time,
    parse_time,
)
from manifest_platform.manifest.store import ABSENT, Check, Delete, Put, Row, Write
from manifest_platform.manifest.transitions import append, check_state, put_record


@dataclass(frozen=True)
class Deletion:
    """A deletion of an item's data: what is deleted, and the URIs of the folders that hold it.

    `newest`: the time of the newest file in the landed directory that is deleted, by the storage's clock. `version`: of its
    row, which is written once.
    """

    key: ItemKey
    holdings: tuple[Holding, ...]
    folders: tuple[str, ...]
    newest: datetime | None = None
    version: int = 1

    @classmethod
    def of(cls, row: Row) -> Self:
        """Parses a row."""
        holdings = tuple(map(Holding, row.data["holdings"]))
        newest = parse_time(text) if (text := row.data.get("newest")) else None
        return cls(deletion_of(row.sort), holdings, tuple(row.data["folders"]), newest, row.version)


def begin(
    decided: Sequence[tuple[Item, Deletion]],
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    application: Application,
    stamp: Stamp,
) -> list[Write]:
    """Begins deletions of items of a feed: a record and a row each.

    Conditional: no item has changed since it was read, and no step's state, because a full load that began meanwhile may need
    the data.
    """
    writes: list[Write] = []
    for item, deletion in decided:
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        data = {"reason": reason, "deletes": [str(one) for one in deletion.holdings], "keeps_skips": True}
        noted = append(item, State.NEW, application, own, payload=Payload(RETENTION_REASON, data))
        row: dict[str, Any] = {"holdings": data["deletes"], "folders": list(deletion.folders)}
        row |= {"newest": format_time(deletion.newest)} if deletion.newest else {}
        writes += [put_record(item.key, noted.records[-1]), Put(deletion_key(item.key), row, ABSENT)]
    ordered = [step for step in steps if step.ordered]
    return [*writes, *(check_state(step.application, states[step.application.key]) for step in ordered)]


def end(deletions: Sequence[Deletion]) -> list[Write]:
    """Ends deletions whose data is gone."""
    return [Delete(deletion_key(one.key), one.version) for one in deletions]


def unchanged(item: Item) -> Check:
    """The condition that an item has not changed since it was read."""
    return Check(record_key(item.key, item.sequence + 1), ABSENT)
