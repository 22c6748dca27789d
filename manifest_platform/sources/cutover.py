"""The loader that a dataset's tables come from: the part of a source's contract that a cutover asks.

A source whose rows another loader may have loaded offers a `FormerLoader`. It says where that loader noted what it loaded, and
how its rows are told apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from manifest_platform.listing import Table
from manifest_platform.warehouse.load import About


@dataclass(frozen=True)
class FormerRun:
    """A directory that the former loader has loaded.

    `place`: its folder, as noted. `loaded_at`: in UTC. `rows`: of the main table; None if it was not noted. `types`: the types
    of its rows, named as by `Schemas`. `about`: further facts, for our ledger.
    """

    place: str
    loaded_at: datetime
    rows: int | None
    types: tuple[str, ...]
    about: About | None = None


@dataclass(frozen=True)
class FormerRuns:
    """The directories that the former loader has noted, by time, and the notes that cannot be read, each with the reason."""

    runs: tuple[FormerRun, ...]
    problems: tuple[str, ...] = ()


class FormerLoader(ABC):
    """Another loader, which loads the same kind of directories into tables of the same names.

    `name`: for messages. `author`: the author of its records in our log. `schema`: the schema that it uses unless it is told
    otherwise. `table`: its table of what it loaded. `order`: the column of that table by which rows are ordered.
    """

    name: ClassVar[str]
    author: ClassVar[str]
    schema: ClassVar[str]
    table: ClassVar[str]
    order: ClassVar[str]

    @property
    @abstractmethod
    def main_table(self) -> Table:
        """The main table, as this platform makes it."""

    @abstractmethod
    def runs(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> FormerRuns:
        """Reads the rows of its table. `columns`: their names. Raises ValueError if needed columns are missing."""

    @abstractmethod
    def identity(self, table: str) -> str:
        """Returns the column of a table that names the row of the main table that its rows belong to."""
