"""The layout of a table in Redshift: how its rows are distributed and sorted, and how columns are compressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from manifest_platform.column_names import matched
from manifest_platform.listing import Table

_MOST_SORTED = 4
"""Columns of a key by which rows are sorted. More cost time in VACUUM and help no query of a load."""


@dataclass(frozen=True)
class Layout:
    """A layout that a person chose. None for what the rules decide."""

    diststyle: str | None = None
    distkey: str | None = None
    sortkey: tuple[str, ...] | None = None
    encode: Mapping[str, str] = field(default_factory=dict)


def layout_of(table: Table, layouts: Mapping[str, Layout]) -> Layout:
    """Returns the layout of a new table: a person's, and the rules for what that leaves open.

    Rows that are loaded by key are distributed by the first column of the key and sorted by the key: DELETE and INSERT then
    join on each node, and read few blocks. Appended rows are sorted by their first time: queries mostly ask for a recent time.
    Everything else is AUTO: Redshift chooses, and changes it later. A column that the table lacks is left out.
    """
    chosen = next((one for pattern, one in layouts.items() if fnmatchcase(table.name, pattern)), Layout())
    columns = {column.name: column.type for column in table.columns}
    by_key = table.mode != "append" and bool(table.key)
    times = [name for name, type_ in columns.items() if type_ == "timestamp"]
    sortkey = chosen.sortkey
    if sortkey is None:
        sortkey = table.key[:_MOST_SORTED] if by_key else tuple(times[:1])
    distkey = chosen.distkey or (table.key[0] if by_key and chosen.diststyle is None else None)
    fitting = [name for one in sortkey if (name := matched(columns, one)) and columns[name] != "json"]
    distkey = matched(columns, distkey) if distkey else None
    return Layout(chosen.diststyle if distkey is None else "key", distkey, tuple(fitting), chosen.encode)


def attributes(layout: Layout, quote: Callable[[str], str]) -> str:
    """Returns the text to write after the columns of CREATE TABLE."""
    parts = []
    if layout.distkey:
        parts.append(f"DISTKEY ({quote(layout.distkey)})")
    elif layout.diststyle not in (None, "key"):
        parts.append(f"DISTSTYLE {str(layout.diststyle).upper()}")
    if layout.sortkey:
        parts.append(f"COMPOUND SORTKEY ({', '.join(map(quote, layout.sortkey))})")
    return "".join(f" {part}" for part in parts)


def encoding(layout: Layout, column: str) -> str:
    """Returns the text to write after a column's type: a compression that a person chose, otherwise none, which is AUTO."""
    chosen = matched(layout.encode, column)
    return f" ENCODE {layout.encode[chosen]}" if chosen else ""
