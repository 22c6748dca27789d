"""What a shredded directory consists of: tables, their columns, the objects written, the counts.

The listing is the contract between those who write typed Parquet (shred) and those who read it (warehouse, merge, IO
manager). It is written as `listing.json` beside the objects of one attempt; the manifest's completion record names it,
and what no completed record names does not exist for readers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from manifest_platform import outward, storage

BAD_TABLE = "bad"
LISTING_FILE = "listing.json"
LONGEST_DESCRIPTION = 300
"""Characters of a column's description, at most."""

_TYPE = re.compile(r"boolean|integer|bigint|double|timestamp|date|json|string(\([1-9]\d*\))?|decimal\([1-9]\d?,\d\d?\)")


@dataclass(frozen=True)
class Column:
    """A column: snake-case name and logical type.

    Types and their Parquet form: `boolean`, `integer` (int32), `bigint` (int64), `double`, `decimal(p,s)`,
    `string` or `string(n)` (UTF-8, at most n characters), `timestamp` (microseconds, UTC, without a zone), `date`,
    `json` (UTF-8 text of one JSON value).
    """

    name: str
    type: str
    nullable: bool = True

    def __post_init__(self) -> None:
        if not _TYPE.fullmatch(self.type):
            raise ValueError(f"column {self.name!r}: unknown type {self.type!r}; allowed: {_TYPE.pattern}")


@dataclass(frozen=True)
class Table:
    """A table of shredded data, and what loading does with its rows.

    Mode: `append` (events, logs); `merge`: rows replace those with their key; `delete`: of the table `target`, the rows with
    these keys go; `replace`: they are all that the table holds from now on (a snapshot). `key`: the names of the columns that
    identify a row. Of an `append` table, rows that two overlapping directories both have are known by it, without one by all
    columns. `load_time`: whether the load adds to each row when it was loaded, as `load_tstamp`. `family`: the source's own
    name of what the rows are, where the table's is made of it: rows of two families are never in one table. `descriptions`:
    what the source says of columns, by name, as `description` makes it; tables that differ in nothing else are equal.
    """

    name: str
    columns: tuple[Column, ...]
    mode: Literal["append", "merge", "delete", "replace"] = "append"
    key: tuple[str, ...] = ()
    target: str | None = None
    load_time: bool = False
    family: str | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Table:
        """The table of its JSON form."""
        # Listings of release 0.1.0 and before do not say it: there, it was so for Snowplow's events, which are appended.
        data = {"load_time": (data["name"], data["mode"]) == ("events", "append"), **data}
        columns = tuple(Column(**column) for column in data["columns"])
        fields: dict[str, Any] = {**data, "columns": columns, "key": tuple(data["key"])}
        return cls(**fields)


def description(text: object) -> str:
    """What a source says of a column, as one clean line of bounded length; "" for what is no text."""
    if not isinstance(text, str):
        return ""
    # Cut before it is cleaned, too: whoever writes a schema may write megabytes.
    said = outward.clean(" ".join(text[: 10 * LONGEST_DESCRIPTION].split()))
    return said if len(said) <= LONGEST_DESCRIPTION else f"{said[: LONGEST_DESCRIPTION - 1].rstrip()}…"


def families(tables: Iterable[Table]) -> dict[str, str]:
    """The families of tables that have one, by the tables' names in lower case, as warehouses match them."""
    return {table.name.lower(): table.family for table in tables if table.family}


def other_family(item: str, table: str, family: str, other: str) -> str:
    """What to say where a table has the rows of another family than those that an item brings."""
    return (
        f"{item}: table {table} has the rows of {other}, and would get those of {family}: nobody could tell them apart. Give "
        f"these a table of their own in the dataset's configuration, as shred.tables: {{{family}: {table}_2}}"
    )


@dataclass(frozen=True)
class Retired:
    """A table, or a column of one, that the source has dropped. The warehouse keeps it, and says so."""

    table: str
    column: str | None = None


@dataclass(frozen=True)
class ShreddedObject:
    """One Parquet file of one (table, date). Times are those of the rows' collector or modification time (ISO 8601, UTC).

    `checksum`: BLAKE2b of the file's bytes, 16 bytes as hex; None in listings of releases before it.
    """

    table: str
    date: str
    uri: str
    rows: int
    bytes: int
    min_time: str | None = None
    max_time: str | None = None
    checksum: str | None = None


@dataclass(frozen=True)
class ShreddedType:
    """Rows of a type in a table. `type`: a schema with its version, `iglu:com.acme/context/jsonschema/1-0-0`, or an object."""

    type: str
    table: str
    rows: int


@dataclass(frozen=True)
class Listing:
    """All that one attempt at shredding one directory wrote.

    `lines` counts the lines (of CSV: the records) read; `good` and `bad` the events among them, so lines = good + bad.
    `tables` has every table that occurs in `objects`, the `bad` table included, and those whose columns alone are news.
    `types`: what the rows are, bad ones and deletions apart; empty in listings of releases before it.

    In JSON the descriptions of columns stand beside the tables, by table, and only those that there are. Who reads passes over
    keys that a newer release may write there; keys within a table or a column it refuses, as its rows may hang on them.
    """

    item: str
    attempt: str
    lines: int
    good: int
    bad: int
    tables: tuple[Table, ...]
    objects: tuple[ShreddedObject, ...]
    retired: tuple[Retired, ...] = ()
    types: tuple[ShreddedType, ...] = ()

    def rows(self, table: str) -> int:
        """How many rows the objects of a table hold."""
        return sum(found.rows for found in self.objects if found.table == table)

    def uris(self, table: str) -> list[str]:
        """The objects of a table, oldest date first."""
        mine = [found for found in self.objects if found.table == table]
        return [found.uri for found in sorted(mine, key=lambda found: (found.date, found.uri))]

    @property
    def bytes(self) -> int:
        """The size of all objects, in bytes."""
        return sum(found.bytes for found in self.objects)

    def write(self, uri: str) -> None:
        """Writes the listing as JSON."""
        data = dataclasses.asdict(self)
        said = {table["name"]: table.pop("descriptions") for table in data["tables"]}
        if said := {name: descriptions for name, descriptions in said.items() if descriptions}:
            data["descriptions"] = said
        storage.write_bytes(uri, orjson.dumps(data, option=orjson.OPT_INDENT_2))

    @classmethod
    def read(cls, uri: str) -> Listing:
        """Reads a listing that `write` wrote. Raises FileNotFoundError where there is none."""
        return cls.from_dict(orjson.loads(storage.read_bytes(uri)))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Listing:
        """The listing of its JSON form."""
        known = {one.name for one in dataclasses.fields(cls)}
        said = data.get("descriptions", {})
        tables = [{"descriptions": said.get(table["name"], {}), **table} for table in data["tables"]]
        fields: dict[str, Any] = {
            **{name: value for name, value in data.items() if name in known},
            "tables": tuple(map(Table.from_dict, tables)),
            "objects": tuple(ShreddedObject(**found) for found in data["objects"]),
            "retired": tuple(Retired(**found) for found in data.get("retired", ())),
            "types": tuple(ShreddedType(**found) for found in data.get("types", ())),
        }
        return cls(**fields)
