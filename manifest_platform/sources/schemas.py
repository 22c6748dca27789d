"""The schemas that a source's rows are made by: the part of a source's contract that shows them to people.

A source whose rows are described by schemas offers a `Schemas`; `cli` renders it the same way for every source. The texts here
are names of a source's own schemas, such as `iglu:com.acme/click/jsonschema/1-0-0`: a source parses them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from manifest_platform.listing import Table


@dataclass(frozen=True)
class Model:
    """The schemas that make one table. `versions`: oldest first. `place`: the registry that was asked."""

    name: str
    table: str
    versions: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class Known:
    """The models that were found, by name. `unlisted`: the registries that give no list of what they have, and why."""

    models: tuple[Model, ...]
    unlisted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """A model with its tables: more than one where a version breaks with earlier versions. `notes`: what a person should know.

    `documents`: the schema of each version, by the version's name.
    """

    model: Model
    tables: tuple[Table, ...]
    documents: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """A difference between two versions. `place`: a column, or a path in the schema; None stands for absence."""

    place: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Differences:
    """The differences between two versions of a model: in the table's columns, and in the schema itself.

    `problem`: the reason why the later version's rows do not fit the earlier table; empty if they fit.
    """

    before: str
    after: str
    columns: tuple[Difference, ...]
    schema: tuple[Difference, ...]
    problem: str = ""


@dataclass(frozen=True)
class Fetched:
    """The schemas that were copied to a folder. `missing`: names that no registry has."""

    folder: str
    written: tuple[str, ...]
    same: int = 0
    missing: tuple[str, ...] = ()


class Schemas(ABC):
    """The schemas of a dataset. Every method raises Refused for a name that is not a schema's, or that no registry has."""

    @abstractmethod
    def known(self, seen: Collection[str] = ()) -> Known:
        """Returns the models of the registries. `seen`: names of schemas that rows had, for registries that give no list."""

    @abstractmethod
    def show(self, name: str) -> Shown:
        """Returns a model with all its versions. `name`: the model's, or that of one of its versions."""

    @abstractmethod
    def compare(self, before: str, after: str | None = None) -> Differences:
        """Returns what differs between two versions. `after`: by default the newest of the model; of another model if named."""

    @abstractmethod
    def fetch(self, folder: str, names: Sequence[str]) -> Fetched:
        """Copies the schemas of these models to a folder that can be a registry itself. Leaves other files there alone."""

    @abstractmethod
    def close(self) -> None:
        """Closes the registries."""
