"""The values of a simulated vault's history: changes that a script requests, events that happened, and the resulting state.

`writer` invents events, and `simulation` keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random

from manifest_platform.fake_vault.extracts import METADATA, Extract, Field, an_object

WINDOW = timedelta(minutes=15)
"""The time that an increment covers."""
DAY = timedelta(days=1)

Value = str | Decimal | date | datetime | bool | None
Row = dict[str, Value]
Key = tuple[str, ...]


# Changes that a test requests, in addition to those of the seed. `window` counts from 0, which begins at `Simulation.begin`.


@dataclass(frozen=True)
class AddField:
    """Adds a column, which is empty in existing rows."""

    window: int
    extract: str
    field: Field


@dataclass(frozen=True)
class DropField:
    """Drops a column with its values."""

    window: int
    extract: str
    column: str


@dataclass(frozen=True)
class AddObject:
    """Adds an extract, which the seed fills from then on."""

    window: int
    extract: Extract


@dataclass(frozen=True)
class DropObject:
    """Drops an extract with all its rows."""

    window: int
    extract: str


@dataclass(frozen=True)
class Put:
    """Creates or replaces a row. Columns that are not given are empty."""

    window: int
    extract: str
    row: Mapping[str, Value] = field(hash=False)


@dataclass(frozen=True)
class Delete:
    """Deletes a row."""

    window: int
    extract: str
    key: Key


Wish = AddField | DropField | AddObject | DropObject | Put | Delete


# Events


@dataclass(frozen=True)
class Written:
    """A row was written, with these values."""

    time: datetime
    extract: str
    key: Key
    row: Row = field(hash=False)


@dataclass(frozen=True)
class Deleted:
    """A row was deleted."""

    time: datetime
    extract: str
    key: Key


@dataclass(frozen=True)
class Reshaped:
    """An extract has a new shape, or None: it was dropped."""

    time: datetime
    extract: str
    shape: Extract | None


Event = Written | Deleted | Reshaped


@dataclass(frozen=True)
class Changes:
    """The changes of a window, by extract: the changed rows, as they are at its end, and the deleted rows.

    Each row has its last event, with the time. A row that was deleted and created again is in both.
    """

    written: dict[str, dict[Key, Written]]
    deleted: dict[str, dict[Key, Deleted]]


class State:
    """The vault at a time: its extracts by name, their rows by key."""

    def __init__(self) -> None:
        self.extracts: dict[str, Extract] = {METADATA.name: METADATA}
        self.rows: dict[str, dict[Key, Row]] = {METADATA.name: {}}

    def apply(self, event: Event) -> None:
        """Applies an event."""
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
    """Returns a schema change of each kind in the given windows: a column and an object are added, a column and an object
    dropped.
    """
    return (
        AddField(add_field, "Object.product__v", Field("batch_code__c")),
        AddObject(
            add_object, an_object("device__v", "calibrated__c Date, product__v Relationship:product__v, ratio__c Number")
        ),
        DropField(drop_field, "Object.study__v", "phase__c"),
        DropObject(drop_object, "Object.3d_model__c"),
    )


def dice(seed: str) -> Random:
    """Returns a random generator that always gives the same numbers for a seed."""
    return Random(seed)  # noqa: S311
