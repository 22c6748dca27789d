"""What may happen in a simulated vault: wishes that a script makes, events that come true, and the state that they lead to.

Belongs here: the words of a vault's history. Who makes it up is `writer`, who knows it is `simulation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random

from manifest_platform.fake_vault.extracts import METADATA, Extract, Field, an_object

WINDOW = timedelta(minutes=15)
"""The time that one increment covers."""
DAY = timedelta(days=1)

Value = str | Decimal | date | datetime | bool | None
Row = dict[str, Value]
Key = tuple[str, ...]


# What a test may ask to happen, besides what the seed brings. `window` counts from 0, which begins at `Simulation.begin`.


@dataclass(frozen=True)
class AddField:
    """A column is new; rows that are there already have nothing in it."""

    window: int
    extract: str
    field: Field


@dataclass(frozen=True)
class DropField:
    """A column is gone, and what was in it."""

    window: int
    extract: str
    column: str


@dataclass(frozen=True)
class AddObject:
    """An extract is new; the seed fills it from then on."""

    window: int
    extract: Extract


@dataclass(frozen=True)
class DropObject:
    """An extract is gone, with all its rows."""

    window: int
    extract: str


@dataclass(frozen=True)
class Put:
    """A row is made, or replaced. Columns that are not given are empty."""

    window: int
    extract: str
    row: Mapping[str, Value] = field(hash=False)


@dataclass(frozen=True)
class Delete:
    """A row is deleted."""

    window: int
    extract: str
    key: Key


Wish = AddField | DropField | AddObject | DropObject | Put | Delete


# What happened


@dataclass(frozen=True)
class Written:
    """A row as it is since then."""

    time: datetime
    extract: str
    key: Key
    row: Row = field(hash=False)


@dataclass(frozen=True)
class Deleted:
    """A row that was deleted then."""

    time: datetime
    extract: str
    key: Key


@dataclass(frozen=True)
class Reshaped:
    """An extract as it is since then, or `shape` None: it is gone."""

    time: datetime
    extract: str
    shape: Extract | None


Event = Written | Deleted | Reshaped


@dataclass(frozen=True)
class Changes:
    """What a window changed, many changes of one row being one: by extract the rows as they are at its end, and the deletions.

    A row that was deleted and made anew is in both. With each is the time of the last change.
    """

    written: dict[str, dict[Key, Written]]
    deleted: dict[str, dict[Key, Deleted]]


class State:
    """The vault at a time: its extracts by name, their rows by key."""

    def __init__(self) -> None:
        self.extracts: dict[str, Extract] = {METADATA.name: METADATA}
        self.rows: dict[str, dict[Key, Row]] = {METADATA.name: {}}

    def apply(self, event: Event) -> None:
        """Makes one event true."""
        match event:
            case Written():
                self.rows[event.extract][event.key] = event.row
            case Deleted():
                self.rows[event.extract].pop(event.key, None)
            case Reshaped(shape=None):
                del self.extracts[event.extract], self.rows[event.extract]
            case Reshaped(shape=shape):
                assert shape is not None
                self.extracts[event.extract] = shape
                there = self.rows.get(event.extract, {})
                self.rows[event.extract] = {
                    key: {column: row.get(column) for column in shape.columns} for key, row in there.items()
                }


def schema_changes(add_field: int = 12, add_object: int = 24, drop_field: int = 36, drop_object: int = 60) -> tuple[Wish, ...]:
    """A change of the schema of each kind, in the windows given: a column and an object come, a column and an object go."""
    return (
        AddField(add_field, "Object.product__v", Field("batch_code__c")),
        AddObject(
            add_object, an_object("device__v", "calibrated__c Date, product__v Relationship:product__v, ratio__c Number")
        ),
        DropField(drop_field, "Object.study__v", "phase__c"),
        DropObject(drop_object, "Object.3d_model__c"),
    )


def dice(seed: str) -> Random:
    """What follows from a seed, however often it is asked."""
    return Random(seed)  # noqa: S311
