"""The rules of a dataset by which lines become rows: all that shredding needs of the settings, in one picklable value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Validation = Literal["full", "types", "off"]
"""The check of entities: against their JSON Schemas, only against the types of their columns, or not at all."""


@dataclass(frozen=True)
class Rules:
    """The rules of shredding events.

    `validate`: `full`, entities must be valid by their JSON Schemas; `types`, their values must fit the columns; `off`, a value
    that does not fit its column is left out.
    """

    validate: Validation = "full"
