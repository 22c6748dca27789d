"""The listing of a shredded directory: its tables, their columns, the objects written, and counts.

The listing is the contract between the writer of typed Parquet (shred) and its readers (warehouse, merging, IO manager). It is
written as `listing.json` beside the objects of an attempt and named by the manifest's completion record. Objects that no
completion record names do not exist for readers.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from manifest_platform import outward, storage
from manifest_platform.nested_types import SCALAR, is_column_type

BAD_TABLE = "bad"
BAD_ROWS = "bad_rows"
"""The folder of an attempt with bad rows in the form that the source's own tools read."""
LISTING_FILE = "listing.json"
ABOUT_TABLE = ""
LONGEST_DESCRIPTION = 300
"""Largest number of characters in the description of a column."""

# In a listing's JSON, each object is a line, which begins so. In listings of older releases an object has several lines.
_OBJECT = b'    {"'
_NO_OBJECTS = b'\n  "objects": []'


@dataclass(frozen=True)
class Column:
    """A column: snake-case name and logical type.

    Types and their Parquet form: `boolean`, `integer` (int32), `bigint` (int64), `double`, `decimal(p,s)`,
    `string` or `string(n)` (UTF-8, at most n characters), `timestamp` (microseconds, UTC, without a zone), `date`,
    `json` (UTF-8 text of one JSON value), and `struct<name:type,...>` and `array<type>` of these and of themselves.
    """

    name: str
    type: str
    nullable: bool = True

    def __post_init__(self) -> None:
        if not is_column_type(self.type):
            raise ValueError(
                f"column {self.name!r}: unknown type {self.type!r}; allowed: {SCALAR.pattern}, array<type>, struct<name:type>"
            )


@dataclass(frozen=True)
class Table:
    """A table of shredded data, and how its rows are loaded.

    `mode`: `append` (events, logs) adds rows; `merge` replaces rows with the same key; `delete` deletes the rows with these
    keys from the table `target`; `replace` replaces all rows of the table (a snapshot). `key`: names of the columns that
    identify a row. In an `append` table, the key (or all columns, without a key) identifies rows that two overlapping
    directories both contain. `load_time`: True to add the time of the load to each row, as `load_tstamp`. `family`: the
    source's own name for the rows, if the table name is derived from it; a table never holds rows of two families.
    `descriptions`: the source's texts about columns, by name, as made by `description`; they are ignored by equality. That
    under ABOUT_TABLE is about the table itself: people should know it.
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
        """Parses the table's JSON form."""
        # Listings of release 0.1.0 and before lack this key. There it was true for Snowplow's events, which are appended.
        data = {"load_time": (data["name"], data["mode"]) == ("events", "append"), **data}
        columns = tuple(Column(**column) for column in data["columns"])
        fields: dict[str, Any] = {**data, "columns": columns, "key": tuple(data["key"])}
        return cls(**fields)


def description(text: object) -> str:
    """Cleans a source's text about a column: one line of bounded length, "" if it is not a text."""
    if not isinstance(text, str):
        return ""
    # Cut before cleaning, too, because the text of a schema may have megabytes.
    said = outward.clean(" ".join(text[: 10 * LONGEST_DESCRIPTION].split()))
    return said if len(said) <= LONGEST_DESCRIPTION else f"{said[: LONGEST_DESCRIPTION - 1].rstrip()}…"


def families(tables: Iterable[Table]) -> dict[str, str]:
    """The family of each table that has one, by the table's name in lower case."""
    return {table.name.lower(): table.family for table in tables if table.family}


def other_family(item: str, table: str, family: str, other: str) -> str:
    """The message for a table whose rows belong to another family than the rows of an item."""
    return (
        f"{item}: table {table} has the rows of {other}, and would get those of {family}: nobody could tell them apart. Give "
        f"these a table of their own in the dataset's configuration, as shred.tables: {{{family}: {table}_2}}"
    )


@dataclass(frozen=True)
class Retired:
    """A table or a column that the source has dropped. The warehouse keeps it and reports it."""

    table: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Consecutive row groups of a Parquet file: the number of the first (from 0), and their count.

    `start`, `end`: the bytes of the file that hold their data, `end` not included. `footer`: the position of the file's footer,
    which describes them. `size`: the size of the file in bytes.
    """

    first: int
    count: int
    start: int
    end: int
    footer: int
    size: int


@dataclass(frozen=True, slots=True)
class DateRows:
    """The rows of one date in a file of several dates, with the first and the last time of these rows."""

    date: str
    rows: int
    groups: RowGroups
    min_time: str | None = None
    max_time: str | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> DateRows:
        """Parses the JSON form."""
        fields: dict[str, Any] = {**data, "groups": RowGroups(**data["groups"])}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class ShreddedObject:
    """A Parquet file of one table. Times are the collector or modification times of its rows (ISO 8601, UTC).

    `checksum`: the file's BLAKE2b digest of 16 bytes, in hex; None in listings of older releases. `dates`: of a file of several
    dates, the rows of each, dates ascending; `date` is the first. Empty for a file of a single date. `pack`: the pack that
    holds the file, by its URI; there is no file at `uri` then. Empty for a file by itself.
    """

    table: str
    date: str
    uri: str
    rows: int
    bytes: int
    min_time: str | None = None
    max_time: str | None = None
    checksum: str | None = None
    dates: tuple[DateRows, ...] = ()
    pack: str = ""

    @property
    def all_dates(self) -> tuple[str, ...]:
        """The dates of its rows, ascending."""
        return tuple(one.date for one in self.dates) or (self.date,)

    def as_dict(self) -> dict[str, Any]:
        """Returns the object's JSON form."""
        data = dataclasses.asdict(self)
        for name in ("dates", "pack"):
            if not data[name]:
                del data[name]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ShreddedObject:
        """Parses the JSON form."""
        fields: dict[str, Any] = {**data, "dates": tuple(map(DateRows.from_dict, data.get("dates", ())))}
        return cls(**fields)


@dataclass(frozen=True)
class Pack:
    """A file that holds the Parquet files of several small objects. `checksum`: as that of an object."""

    uri: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class ShreddedType:
    """Number of rows of a type in a table. `type`: a schema with its version (`iglu:…`), or a vault's object."""

    type: str
    table: str
    rows: int


@dataclass(frozen=True)
class Duplicates:
    """Numbers of lines that repeat a line of the same directory.

    `natural`: lines left out, because another line is the same event. `synthetic`: events of different lines that had the same
    id, each kept under a new id; these are also counted as good.
    """

    natural: int = 0
    synthetic: int = 0

    def __bool__(self) -> bool:
        return bool(self.natural or self.synthetic)

    def __add__(self, other: Duplicates) -> Duplicates:
        return Duplicates(self.natural + other.natural, self.synthetic + other.synthetic)


NO_DUPLICATES = Duplicates()


@dataclass(frozen=True)
class BadRowsFile:
    """A file of bad rows in the form that the source's own tools read. No table has its lines; they stand beside `bad`."""

    uri: str
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Listing:
    """Everything that an attempt to shred a directory wrote.

    `lines`: the lines read (for CSV, the records). `good`, `bad`: the events in them, so that
    lines = good + bad + duplicates.natural. `tables`: all tables in `objects`, including `bad`, and tables of which only the
    columns are known. `types`: types of the rows without bad rows and deletions; empty in listings of older releases.
    `duplicates`: the copies of events that were found, by kind; zero in listings of older releases. `bad_rows`: files that
    repeat the bad rows in the form that the source's own tools read. `counts`: further numbers that the source counts, by name.
    `packs`: the files of the objects that have no file of their own.

    In JSON, column descriptions are stored beside the tables, and only those that exist. A reader ignores unknown keys of the
    listing, which a newer release may write. It refuses unknown keys of a table, column or object, because they may affect the
    rows. The keys `dates` and `pack` of an object are written only where needed: release 0.2 reads all other listings.
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
    duplicates: Duplicates = NO_DUPLICATES
    bad_rows: tuple[BadRowsFile, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    packs: tuple[Pack, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """Remarks about tables that people should know, a line each."""
        about = ((table.name, table.descriptions.get(ABOUT_TABLE)) for table in self.tables)
        return [f"table {name}: {text}" for name, text in about if text]

    def rows(self, table: str) -> int:
        """Number of rows in the objects of a table."""
        return sum(found.rows for found in self.objects if found.table == table)

    def times_of(self, table: str) -> tuple[datetime, datetime] | None:
        """The first and the last time of a table's rows, in UTC; None without times."""
        mine = [found for found in self.objects if found.table == table]
        times = [datetime.fromisoformat(time) for one in mine for time in (one.min_time, one.max_time) if time]
        known = [time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC) for time in times]
        return (min(known), max(known)) if known else None

    def uris(self, table: str) -> list[str]:
        """The URIs of a table's files, sorted by their first date."""
        mine = [found for found in self.objects if found.table == table]
        return [found.uri for found in sorted(mine, key=lambda found: (found.date, found.uri))]

    @property
    def stored(self) -> tuple[ShreddedObject | Pack, ...]:
        """The files with the rows of its tables: packs, and objects that are files by themselves."""
        return (*(found for found in self.objects if not found.pack), *self.packs)

    @property
    def bytes(self) -> int:
        """The size of all objects in bytes."""
        return sum(found.bytes for found in self.objects)

    def write(self, uri: str) -> None:
        """Writes the listing as JSON, each object on a line: of a large directory there are too many to copy."""
        # orjson writes data classes, many times as fast as `asdict` copies them.
        data = _fields_of(self) | {"objects": (), "tables": [_fields_of(table) for table in self.tables]}
        for table in data["tables"]:
            del table["descriptions"]
        if said := {table.name: table.descriptions for table in self.tables if table.descriptions}:
            data["descriptions"] = said
        for name in ("counts", "packs"):
            if not data[name]:
                del data[name]
        before, mark, after = orjson.dumps(data, option=orjson.OPT_INDENT_2).partition(_NO_OBJECTS)
        with storage.open_output(uri) as stream:
            stream.write(before + mark[:-1])
            for number, found in enumerate(self.objects):
                stream.write(b",\n    " if number else b"\n    ")
                stream.write(orjson.dumps(found.as_dict()))
            stream.write(b"\n  ]" + after)

    @classmethod
    def read(cls, uri: str) -> Listing:
        """Reads a listing that `write` wrote, object by object. Raises FileNotFoundError if it does not exist."""
        rest, objects = bytearray(), list[ShreddedObject]()
        for line in io.BytesIO(storage.read_bytes(uri)):
            if line.startswith(_OBJECT):
                objects.append(ShreddedObject.from_dict(orjson.loads(line.rstrip(b",\n"))))
            else:
                rest += line
        listing = cls.from_dict(orjson.loads(rest))
        return dataclasses.replace(listing, objects=tuple(objects)) if objects else listing

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Listing:
        """Parses the listing's JSON form."""
        known = {one.name for one in dataclasses.fields(cls)}
        said = data.get("descriptions", {})
        tables = [{"descriptions": said.get(table["name"], {}), **table} for table in data["tables"]]
        fields: dict[str, Any] = {
            **{name: value for name, value in data.items() if name in known},
            "tables": tuple(map(Table.from_dict, tables)),
            "objects": tuple(map(ShreddedObject.from_dict, data["objects"])),
            "retired": tuple(Retired(**found) for found in data.get("retired", ())),
            "types": tuple(ShreddedType(**found) for found in data.get("types", ())),
            "duplicates": Duplicates(**data.get("duplicates", {})),
            "bad_rows": tuple(BadRowsFile(**found) for found in data.get("bad_rows", ())),
            "packs": tuple(Pack(**found) for found in data.get("packs", ())),
        }
        return cls(**fields)


def _fields_of(one: Listing | Table) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
