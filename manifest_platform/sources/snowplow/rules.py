"""The rules of a dataset by which lines become rows: all that shredding needs of the settings, in one picklable value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from manifest_platform.sources.snowplow.criteria import Form
from manifest_platform.sources.snowplow.private import Private

Validation = Literal["full", "types", "off"]
"""The check of entities: against their JSON Schemas, only against the types of their columns, or not at all."""


Names = Literal["underscored", "dotted"]
"""The word between the names of nested properties in a column's name: an underscore, or a dot."""
Rows = Literal["tables", "events", "lake"]
"""The layout of rows: a table for each model of entities, or one row an event with its entities as JSON, or as structs."""
OtherProperties = Literal["leave_out", "keep"]
"""Properties that a schema allows and does not name: they are left out, or go to a column of JSON."""


@dataclass(frozen=True)
class Kinds:
    """The kinds of duplicates that are treated."""

    natural: bool = False
    synthetic: bool = False

    def __bool__(self) -> bool:
        return self.natural or self.synthetic


NO_KINDS = Kinds()


@dataclass(frozen=True)
class Rules:
    """The rules of shredding events.

    `validate`: `full`, entities must be valid by their JSON Schemas; `types`, their values must fit the columns; `off`, a value
    that does not fit its column is left out. `names`: how columns of nested properties are named. `rows`: the layout.
    `duplicates`: the kinds of duplicates that are looked for within each directory. `oldest`: the earliest time that an event
    may have. `other_properties`: what becomes of those that a schema does not name. `entities`: by patterns of schemas, the
    form of their rows. `private`: the columns that are dropped or hashed.
    """

    validate: Validation = "full"
    names: Names = "underscored"
    rows: Rows = "tables"
    duplicates: Kinds = NO_KINDS
    oldest: datetime | None = None
    other_properties: OtherProperties = "leave_out"
    entities: tuple[tuple[str, Form], ...] = ()
    private: Private | None = None
