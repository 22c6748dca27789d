"""The inventor of a simulated vault's history: rows that are created, changed and deleted, some with unusual values.

This module draws events and values at random. `simulation` decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from random import Random
from typing import cast

from manifest_platform.fake_vault.events import (
    DAY,
    AddField,
    AddObject,
    Delete,
    Deleted,
    DropField,
    DropObject,
    Event,
    Key,
    Put,
    Reshaped,
    Row,
    State,
    Value,
    Wish,
    Written,
    dice,
)
from manifest_platform.fake_vault.extracts import (
    CHANGING,
    LEGACY,
    LOGS,
    METADATA,
    PICKLIST,
    RELATIONSHIP,
    TRICKY_NUMBERS,
    TRICKY_TEXTS,
    USER,
    VERSION,
    Extract,
    Field,
    label_of,
)

CONFUSABLE = (("ab", "c", "one__c"), ("a", "bc", "one__c"))
"""Two keys of picklist values that are equal when joined without a separator. Window 1 deletes the first."""


class Writer:
    """Invents events and applies them immediately, so that later events can build on them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[Event] = []
        self._rng = dice("")
        self._time = datetime(2000, 1, 1, tzinfo=UTC)
        self._tick = timedelta(milliseconds=1)
        self._numbers: dict[str, Iterator[int]] = {}
        self._order: dict[str, list[Key]] = {}
        self._weights: dict[str, int] = {}

    def begin(self, rng: Random, at: datetime, rows: int) -> list[Event]:
        """Returns the events that lead to the initial state, all of them before it."""
        self.start(rng, at - 400 * DAY, timedelta(minutes=1))
        for extract, weight in {USER: 0, **CHANGING}.items():
            self.reshape(extract.name, extract)
            self._weights[extract.name] = weight
            for _ in range(5 if extract is USER else rows):
                self.create(extract.name)
        for extract in (LEGACY, *LOGS):  # described in the metadata, though the state does not hold their rows
            self._tell_fields(extract.name, (), extract.fields)
        for key in CONFUSABLE:
            self.write(PICKLIST.name, dict(zip(PICKLIST.key, key, strict=True)) | {"picklist_value_label": "One"})
        return self.events

    def start(self, rng: Random, time: datetime, tick: timedelta) -> None:
        """Begins a new list of events."""
        self.events, self._rng, self._time, self._tick = [], rng, time, tick

    def grant(self, wish: Wish) -> None:
        """Makes a change that the script requests. Raises KeyError for an extract that does not exist."""
        match wish:
            case AddField():
                there = self.state.extracts[wish.extract]
                self.reshape(wish.extract, Extract(there.name, (*there.fields, wish.field), there.key))
            case DropField():
                there = self.state.extracts[wish.extract]
                left = tuple(field for field in there.fields if field.name != wish.column)
                self.reshape(wish.extract, Extract(there.name, left, there.key))
            case AddObject():
                self.reshape(wish.extract.name, wish.extract)
                self._weights[wish.extract.name] = 2
                for _ in range(3):
                    self.create(wish.extract.name)
            case DropObject():
                self.reshape(wish.extract, None)
                del self._weights[wish.extract]
            case Put():
                self.write(wish.extract, wish.row)
            case Delete():
                self.delete(wish.extract, wish.key)

    def reshape(self, name: str, shape: Extract | None) -> None:
        """Changes the columns of an extract, creates it or drops it, and describes that in the metadata."""
        before = self.state.extracts.get(name)
        self._happen(Reshaped(self._now(), name, shape))
        self._tell_fields(name, before.fields if before else (), shape.fields if shape else ())

    def write(self, name: str, row: Mapping[str, Value]) -> None:
        """Writes a row."""
        extract = self.state.extracts[name]
        whole: Row = {column: row.get(column) for column in extract.columns if column != "modified_date"}
        whole = {column: None if value == "" else value for column, value in whole.items()}
        key = tuple(str(whole[column]) for column in extract.key)
        if key not in self.state.rows[name]:
            self._order.setdefault(name, []).append(key)
        self._happen(Written(self._now(), name, key, whole))

    def delete(self, name: str, key: Key) -> None:
        """Deletes a row."""
        self._happen(Deleted(self._now(), name, key))

    def delete_any(self, name: str) -> None:
        """Deletes a random row, if there is one."""
        if key := self._any(name):
            self.delete(name, key)

    def change(self) -> None:
        """Makes a random change of a random extract."""
        names = list(self._weights)
        name = self._rng.choices(names, [self._weights[name] for name in names])[0]
        kind, key = self._rng.random(), self._any(name)
        if key is None or kind < 0.3:
            self.create(name)
        elif kind < 0.85:
            self.update(name, key)
        else:
            self.delete(name, key)

    def create(self, name: str) -> None:
        """Creates a row."""
        number = next(self._numbers.setdefault(name, count(1)))
        self.write(name, self._values(self.state.extracts[name]) | self._identifying(name, number) | self._times(created=True))

    def update(self, name: str, key: Key) -> None:
        """Changes some columns of a row; for a document, it may create a new version instead."""
        extract, row = self.state.extracts[name], self.state.rows[name][key]
        if name == VERSION.name and self._rng.random() < 0.4:
            self._new_version(row)
            return
        own = [field for field in extract.fields if not field.standard and field.name not in FIXED]
        changed = self._rng.sample(own, min(len(own), self._rng.randint(1, 4)))
        self.write(name, row | {field.name: self._value(field) for field in changed} | self._times(created=False))

    def log_in(self) -> None:
        """Changes a user's row without changing its modified date."""
        name, key = USER.name, self._any(USER.name)
        if key:
            self.write(name, self.state.rows[name][key] | {"last_login__sys": self._time})

    def change_twice(self) -> None:
        """Changes a row twice; a window holds only the last change."""
        name, key = self._one_of_objects()
        if key:
            self.update(name, key)
            self.update(name, key)

    def delete_and_make_anew(self) -> None:
        """Deletes a row and creates it again with other values in the same window."""
        name, key = self._one_of_objects()
        if key:
            row = self.state.rows[name][key]
            self.delete(name, key)
            self.write(name, row | {"name__v": "came back"} | self._times(created=False))

    def _one_of_objects(self) -> tuple[str, Key | None]:
        name = next(name for name, weight in self._weights.items() if weight and name.startswith("Object."))
        return name, self._any(name)

    def _new_version(self, row: Row) -> None:
        document, major = str(row["doc_id"]), cast(Decimal, row["major_version_number__v"])
        versions = [found for found in self.state.rows[VERSION.name].values() if found["doc_id"] == document]
        minor = 1 + max(cast(Decimal, found["minor_version_number__v"]) for found in versions)
        identity = f"{document}_{major}_{minor}"
        for found in versions:
            if found["latest_version__v"]:
                self.write(VERSION.name, found | {"latest_version__v": False})
        newer: Row = {"id": identity, "version_id": identity, "minor_version_number__v": minor, "latest_version__v": True}
        self.write(VERSION.name, row | newer | self._times(created=False) | _calls(document, major, minor))

    def _tell_fields(self, name: str, before: Sequence[Field], after: Sequence[Field]) -> None:
        left = {field.name for field in after}
        there = {field.name for field in before}
        for gone in before:
            if gone.name not in left:
                self.delete(METADATA.name, (name, gone.name))
        for new in after:
            if new.name not in there:
                self.write(METADATA.name, _described(name, new))

    def _values(self, extract: Extract) -> Row:
        return {field.name: self._value(field) for field in extract.fields}

    def _identifying(self, name: str, number: int) -> Row:
        """Returns the values that identify a new row."""
        if name == PICKLIST.name:
            table, column = self._rng.choice(_PICKLISTS)
            return {"object": table, "object_field": column, "picklist_value_name": f"value_{number}__c"}
        if name == VERSION.name:
            document = str(number)
            identity = f"{document}_0_1"
            numbers: Row = {"major_version_number__v": Decimal(0), "minor_version_number__v": Decimal(1)}
            told: Row = {"doc_id": document, "document_number__v": f"VV-{number:05}", "latest_version__v": True}
            return {"id": identity, "version_id": identity} | numbers | told | _calls(document, Decimal(0), Decimal(1))
        if name == RELATIONSHIP.name:
            bound = self._rng.random() < 0.5  # else it is of no version in particular
            major, minor = (Decimal(0), Decimal(1)) if bound else (None, None)
            told = {"source_major_version__v": major, "source_minor_version__v": minor}
            return {"id": record_id(name, number)} | told
        return {"id": record_id(name, number)}

    def _times(self, created: bool) -> Row:
        """Returns the modified date. Sometimes it is hours before the change, so that it cannot serve as an order."""
        early = timedelta(minutes=self._rng.randint(1, 300)) if self._rng.random() < 0.1 else timedelta(0)
        modified = self._time - early
        return {"modified_date__v": modified, **({"created_date__v": modified} if created else {})}

    def _value(self, field: Field) -> Value:
        if not field.standard and self._rng.random() < 0.12:
            return None
        return self._MAKERS[field.type](self, field)

    def _text(self, _field: Field) -> str:
        if self._rng.random() < 0.25:
            return self._rng.choice(TRICKY_TEXTS)
        return f"{self._rng.choice(_WORDS)} {self._rng.randint(0, 99_999):05}"

    def _long_text(self, field: Field) -> str:
        return "\n".join(self._text(field) for _ in range(self._rng.randint(1, 12)))

    def _number(self, _field: Field) -> Decimal:
        if self._rng.random() < 0.25:
            return self._rng.choice(TRICKY_NUMBERS)
        return Decimal(self._rng.randint(-1_000_000, 10_000_000)).scaleb(-self._rng.randint(0, 4))

    def _date(self, _field: Field) -> date:
        return self._rng.choice(_DATES) if self._rng.random() < 0.1 else _FIRST + timedelta(days=self._rng.randint(0, 20_000))

    def _datetime(self, _field: Field) -> datetime:
        if self._rng.random() < 0.1:
            return self._rng.choice(_TIMES)
        return _TIMES[0] + timedelta(milliseconds=self._rng.randint(0, 1_800_000_000_000))

    def _boolean(self, _field: Field) -> bool:
        return self._rng.random() < 0.5

    def _picked(self, _field: Field) -> str:
        return self._rng.choice(_PICKED)

    def _several_picked(self, _field: Field) -> str:
        return ",".join(sorted(self._rng.sample(_PICKED, self._rng.randint(1, 3))))

    def _related(self, field: Field) -> str | None:
        for component in ("Object", "Document", "Workflow"):
            if f"{component}.{field.related}" in self.state.extracts:
                key = self._any(f"{component}.{field.related}")
                return key[0] if key else None
        return None

    def _several_related(self, field: Field) -> str | None:
        found = {identity for _ in range(self._rng.randint(1, 3)) if (identity := self._related(field))}
        return ",".join(sorted(found)) or None

    _MAKERS: Mapping[str, Callable[[Writer, Field], Value]] = {
        "String": _text,
        "LongText": _long_text,
        "Number": _number,
        "Date": _date,
        "DateTime": _datetime,
        "Boolean": _boolean,
        "Picklist": _picked,
        "MultiPicklist": _several_picked,
        "Relationship": _related,
        "MultiRelationship": _several_related,
    }

    def _any(self, name: str) -> Key | None:
        """Returns the key of a random row, if there is one."""
        order, rows = self._order.get(name, []), self.state.rows.get(name, {})
        while order:
            at = self._rng.randrange(len(order))
            if order[at] in rows:
                return order[at]
            order[at] = order[-1]
            order.pop()
        return None

    def _now(self) -> datetime:
        time = self._time + self._tick
        self._time = time.replace(microsecond=time.microsecond // 1000 * 1000)
        return self._time

    def _happen(self, event: Event) -> None:
        self.state.apply(event)
        self.events.append(event)


FIXED = {"document_number__v", "latest_version__v", "source_file", "rendition_file"}
"""Columns that identify a document: they do not change at random."""

_WORDS = ("Anvilin", "Ropexa", "Magnetol", "Birdsedine", "Desertil", "Coyotan", "Rocketol", "Placebo")
_PICKED = ("active__v", "inactive__v", "planned__c", "phase_1__c", "phase_2__c", "oncology__c", "de__c", "fr__c")
_PICKLISTS = (
    ("product__v", "therapeutic_area__c"),
    ("product__v", "markets__c"),
    ("study__v", "phase__c"),
    ("documents", "status__v"),
)
_FIRST = date(1980, 1, 1)
_DATES = (date(1970, 1, 1), date(1969, 12, 31), date(1900, 1, 1), date(2024, 2, 29), date(9999, 12, 31))
_TIMES = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 59, 59, 1000, tzinfo=UTC),
    datetime(2100, 12, 31, 12, 0, tzinfo=UTC),
)


def record_id(name: str, number: int) -> str:
    """Returns a record id; some begin with zeros."""
    prefix = "00" if name == USER.name else f"V{sum(map(ord, name)) % 1000:03}"
    return f"{prefix}{number:012}"


def _calls(document: str, major: Decimal, minor: Decimal) -> Row:
    """Returns the columns of a document version that hold the API calls for its file."""
    call = f"/api/v25.3/objects/documents/{document}/versions/{major}/{minor}"
    return {"source_file": f"{call}/file", "rendition_file": f"{call}/renditions/viewable_rendition__v"}


def _described(extract: str, field: Field) -> Row:
    """Returns a column's row in the metadata: all values are text."""
    length = {"String": "128", "LongText": "32000"}.get(field.says or field.type)
    table = extract.partition(".")[2]
    told: Row = {"extract": extract, "extract_label": label_of(table), "column_name": field.name}
    told |= {"column_label": label_of(field.name), "type": field.says or field.type, "length": length}
    related = field.related or ("picklist__sys" if "icklist" in field.type else None)
    return told | {"related_extract": related, "is_formula": "false"}
