"""The contents of a Direct Data archive, by its manifest and metadata, and the tables that follow from them.

This module knows manifest.csv, the metadata files, names, keys, types and modes of tables. It does not read the rows of data
files.

`manifest.csv` names every data file of a window, with its number of records. `metadata_full.csv`, or in snapshots
`Metadata/metadata.csv`, gives the columns of every extract with their types. In an increment, `Metadata/metadata.csv` and
`metadata_deletes` give the changes of columns. All files are read by their headers, because Veeva may move columns and add
others.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal

from manifest_platform.column_names import Spellings, matched, spelled
from manifest_platform.listing import BAD_TABLE, Column, Retired, Table, description
from manifest_platform.shred.batch import Unusable

Feed = Literal["incr", "log", "full"]
Read = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Returns the contents of files by their relative paths."""

MANIFEST, METADATA_FULL = "manifest.csv", "metadata_full.csv"
METADATA_TABLE = "metadata"
_METADATA = "Metadata/metadata.csv"

TYPES: Mapping[str, str] = {
    "String": "string",  # without a length: those in the metadata are sometimes too short
    "LongText": "string",
    "Number": "decimal(38,10)",
    "Date": "date",
    "DateTime": "timestamp",
    "Boolean": "boolean",
    "Relationship": "string",
    "MultiRelationship": "string",
    "Picklist": "string",
    "MultiPicklist": "string",
}
"""The column type for each of Vault's types."""

CORRECTIONS: Mapping[str, str] = {"document_version__sys.document_number__v": "String"}
"""Vault's type by `table.column`, where the metadata is known to be wrong."""

_KEY = ("id",)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "picklist__sys": ("object", "object_field", "picklist_value_name"),
    "metadata": ("extract", "column_name"),
}
_OWNERS: Mapping[str, str] = {"picklist__sys": "Picklist.picklist__sys", "metadata": "Metadata.metadata"}
"""The only extracts that may have these tables, because the tables have special keys."""
_DELETES = "_deletes"
_DELETES_OF = {"document_relationships_deleted__sys": "document_relationships__sys"}
_TABLE = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class Extract:
    """A line of manifest.csv: rows of a table, or keys of rows that were deleted from it.

    `name`: the name in the manifest. `table`: the extract's own name in lower case, or the configured table. `file`: the path
    in the archive; None for an extract without records.
    """

    name: str
    component: str
    table: str
    deletes: bool
    records: int
    file: str | None

    @property
    def is_metadata(self) -> bool:
        """True if its rows are the columns of all extracts."""
        return self.component == "Metadata" and self.table == METADATA_TABLE


@dataclass(frozen=True)
class Contents:
    """The contents of an archive, and the tables of its files.

    `extracts`: those that become tables. `columns`: by table and column, Vault's type, for everything in the metadata.
    `changed`: the columns that an increment's metadata adds or changes. `retired`: the columns and tables that it deletes.
    `partial`: patterns of workflow tables that a snapshot holds only in part. `labels`: by table and column, the label on
    Vault's pages, if it differs from the name.
    """

    feed: Feed
    extracts: tuple[Extract, ...]
    columns: Mapping[str, Mapping[str, str]]
    changed: Mapping[str, tuple[str, ...]]
    retired: tuple[Retired, ...]
    corrections: Mapping[str, str]
    partial: tuple[str, ...]
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def extract(self, path: str) -> Extract | None:
        """Returns the extract of a file; None if the file does not become a table."""
        return self._by_file.get(path)

    @functools.cached_property
    def _by_file(self) -> dict[str, Extract]:
        return {extract.file: extract for extract in self.extracts if extract.file}

    @functools.cached_property
    def _workflows(self) -> set[str]:
        """The tables of extracts of component Workflow, whatever customers name their objects."""
        return {extract.table for extract in self.extracts if extract.component == "Workflow"}

    @functools.cached_property
    def _corrected(self) -> Spellings:
        return Spellings(self.corrections)

    def table(self, extract: Extract, header: Sequence[str]) -> Table:
        """Returns the table of an extract whose file has this header.

        It has the header's columns in their order, and then, empty, the columns that the metadata announces and the file lacks.
        Raises Unusable if a key column is missing or a type is unknown.
        """
        key = self._key(extract, header)
        if extract.deletes:
            # In a file of deletes, all columns but the key are text, so that no value in them can prevent the deletion.
            known = Spellings(self.columns.get(extract.table, ()))
            columns = [Column(name, self._type(extract.table, name, known) if name in key else "string") for name in header]
            return Table(f"{extract.table}{_DELETES}", tuple(columns), "delete", key, extract.table)
        there = Spellings(header)
        names = [*header, *(name for name in self.changed.get(extract.table, ()) if there.find(name) is None)]
        return replace(self._define(extract.table, names, key), family=_family(extract.name))

    def columns_alone(self) -> Iterator[Table]:
        """Yields tables that get no rows, but possibly new columns. Raises Unusable if a type is unknown.

        These are the tables in an increment's metadata, and the tables that are empty in a snapshot.
        """
        brought = {extract.table for extract in self.extracts if extract.file and not extract.deletes}
        empty = [extract.table for extract in self.extracts if not extract.file and not extract.deletes]
        for table in sorted({*self.changed, *(empty if self.feed == "full" else ())} - brought):
            known, key = self.columns.get(table, {}), _KEYS.get(table, _KEY)
            if known and (own := _own(key, known)):
                yield self._define(table, known, own)

    def _key(self, extract: Extract, header: Sequence[str]) -> tuple[str, ...]:
        key = _KEYS.get(extract.table, _KEY)
        missing = [name for name in key if matched(header, name) is None]
        if own := _own(key, header):
            return own
        if self.feed == "log":
            return ()
        if (
            self.feed == "full"
            and not self._is_partial(extract.table)
            and not any(matched(self.columns.get(extract.table, ()), name) for name in key)
        ):
            return ()  # the whole table is replaced, so that no row is looked up by key
        raise Unusable(
            f"{extract.file}: {extract.name} has no column {', '.join(missing)}, which is part of its key; its header is "
            f"{', '.join(header)}; capture or land the window again, or report the file to Veeva"
        )

    def _define(self, table: str, names: Collection[str], key: tuple[str, ...]) -> Table:
        known = Spellings(self.columns.get(table, ()))
        columns = tuple(Column(name, self._type(table, name, known)) for name in names)
        labels = self.labels.get(table, {})
        said = {name: text for name in names if (text := description(labels.get(known.find(name) or "")))}
        if self.feed == "log":
            return Table(table, columns, "append", key, load_time=True, descriptions=said)
        mode = "merge" if self.feed == "incr" or self._is_partial(table) else "replace"
        return Table(table, columns, mode, key, descriptions=said)

    def _is_partial(self, table: str) -> bool:
        """True if a snapshot holds a table only in part. Only workflow tables can be partial."""
        return table in self._workflows and any(fnmatchcase(table, pattern) for pattern in self.partial)

    def _type(self, table: str, column: str, known: Spellings) -> str:
        """Returns the type of a column: text if the metadata does not know it, and text for the metadata table itself.

        `known`: the table's columns in the metadata.
        """
        name, types = f"{table}.{column}", self.columns.get(table, {})
        said = self.corrections.get(self._corrected.find(name) or "") or types.get(known.find(column) or "")
        if table == METADATA_TABLE or not said:
            return "string"
        if said not in TYPES:
            raise Unusable(
                f"the metadata gives {name} the type {said!r}, which is unknown; known are {', '.join(TYPES)}; "
                f"set its type in the configuration, as shred.types: {{{name}: String}}",
                None,
            )
        return TYPES[said]


def read_contents(
    feed: Feed,
    paths: Collection[str],
    read: Read,
    corrections: Mapping[str, str],
    partial: tuple[str, ...],
    keep_unnamed: bool = False,
    tables: Mapping[str, str] | None = None,
) -> Contents:
    """Reads what an archive holds, given its files' relative paths and a function that reads them.

    `keep_unnamed`: ignores files that the manifest does not name. `tables`: the tables of extracts whose default table name is
    not used, by `Component.name`.

    Raises Unusable if there is no metadata, or if the manifest is missing or unreadable, names a file that does not exist, does
    not name a file that exists, or has an extract that its feed cannot have.
    """
    if MANIFEST not in paths:
        raise Unusable(f"there is no {MANIFEST} among {len(paths)} files; land the complete window in its own folder")
    names = Names(tables or {})
    named = list(_manifest(read([MANIFEST])[MANIFEST], names))
    _check_files(named, paths, keep_unnamed)
    extracts = [extract for extract in named if _is_table(extract, feed)]
    _check_files_once(extracts)
    whole = (
        (METADATA_FULL, _METADATA) if feed == "full" else (METADATA_FULL,)
    )  # in other feeds, the second file holds only changes
    metadata = next((path for path in whole if path in paths), None)
    if metadata is None:
        raise Unusable(f"there is no {' and no '.join(whole)}, so not every column has a type; land the complete window")
    news = {extract.deletes: extract.file for extract in extracts if extract.is_metadata and extract.file and feed == "incr"}
    found = read(sorted({metadata, *news.values()}))
    known = dict.fromkeys(name for _, (name,) in _rows(metadata, found[metadata], ("extract",)))
    _check_tables(extracts, known, names)
    columns, labels = _columns(metadata, found[metadata], names)
    changed = _news(news[False], found[news[False]], names, typed=True) if False in news else {}
    gone = _news(news[True], found[news[True]], names, typed=False) if True in news else {}
    retired = _retired(columns, changed, gone)
    for table, types in changed.items():
        known = columns.setdefault(table, {})
        spellings = spelled(known, types)
        known.update({spellings[column]: type_ for column, type_ in types.items()})
    return Contents(
        feed,
        tuple(extracts),
        columns,
        {table: tuple(types) for table, types in changed.items()},
        retired,
        {**CORRECTIONS, **corrections},
        partial,
        labels,
    )


def _manifest(data: bytes, names: Names) -> Iterator[Extract]:
    for line, (name, records, file, kind) in _rows(MANIFEST, data, ("extract", "records", "file"), ("type",)):
        where = f"{MANIFEST}, line {line}"
        component, table, deletes = names.parse(name)
        _check_table(component, table, f"{where}: extract {name!r}")
        if kind not in ("", "updates", "deletes"):
            raise Unusable(f"{where}: type {kind!r} is neither updates nor deletes; this version does not support it")
        if not re.fullmatch("[0-9]+", records):
            raise Unusable(f"{where}: records is {records!r}, which is not a number; capture or land the window again")
        if not file and int(records):
            raise Unusable(f"{where}: {name} has {records} records but no file; capture or land the window again")
        yield Extract(name, component, table, deletes or kind == "deletes", int(records), file.removeprefix("./") or None)


class Names:
    """The table names of extracts: the extract's own name, unless `tables` names another, by `Component.name`."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = {name.lower(): table for name, table in tables.items()}

    def parse(self, name: str) -> tuple[str, str, bool]:
        """Returns the component and the table of an extract's name, and True if the name marks deletes."""
        component, own, deletes = _parse(name)
        return component, self._tables.get(f"{component}.{own}".lower(), own), deletes


def _parse(name: str) -> tuple[str, str, bool]:
    """Returns the component and the extract's own name in lower case, and True if the name marks deletes."""
    component, _, own = name.partition(".")
    own = own.lower()
    if own in _DELETES_OF:
        return component, _DELETES_OF[own], True
    return component, own.removesuffix(_DELETES), own.endswith(_DELETES)


def _check_table(component: str, table: str, what: str) -> None:
    if not component or not _TABLE.fullmatch(table) or table == BAD_TABLE:
        raise Unusable(
            f"{what} cannot be a table; a name is Component.name, of letters, digits and underscores, but not {BAD_TABLE}"
        )


def _check_files(named: Sequence[Extract], paths: Collection[str], keep_unnamed: bool) -> None:
    files = Counter(extract.file for extract in named if extract.file)
    twice = sorted(file for file, times in files.items() if times > 1)
    if twice:
        raise Unusable(
            f"{MANIFEST} names {_some(twice)} more than once; capture or land the window again, or report it to Veeva"
        )
    lacking = sorted(files.keys() - set(paths))
    if lacking:
        raise Unusable(f"{MANIFEST} names {_some(lacking)}, which does not exist; capture or land the complete window again")
    unnamed = sorted(set(paths) - files.keys() - {MANIFEST, METADATA_FULL})
    if unnamed and not keep_unnamed:
        raise Unusable(
            f"{_some(unnamed)} exists, but {MANIFEST} does not name it; capture or land the window again, or set"
            " archive.unnamed: keep in the configuration, to keep such files without making tables of them"
        )


def _is_table(extract: Extract, feed: Feed) -> bool:
    """True if an extract becomes a table of its feed. Raises Unusable for an extract that would do harm there."""
    if extract.component == "Metadata" and (feed == "log" or not extract.is_metadata):
        return False
    if extract.component == "Log" and feed != "log":
        raise Unusable(
            f"{MANIFEST} names {extract.name}, a log, which only log windows may hold: it would replace the logged rows"
        )
    if extract.deletes and feed != "incr":
        if extract.records:
            raise Unusable(f"{MANIFEST} names deletes of {extract.name}, which only increments may hold")
        return False
    return True


def _check_files_once(extracts: Sequence[Extract]) -> None:
    """Raises Unusable if two files hold the rows of one extract."""
    seen: dict[tuple[str, bool], Extract] = {}
    for extract in extracts:
        if extract.file:
            other = seen.setdefault((_identity(extract.name), extract.deletes), extract)
            if other is not extract:
                raise Unusable(
                    f"{MANIFEST} names {extract.name} twice, with the files {other.file} and {extract.file}; capture or land"
                    " the window again, or report it to Veeva"
                )


def _family(name: str) -> str:
    """Returns an extract's name in one spelling, as `Object.visit__c`, for all spellings that differ only in case."""
    component, own, _ = _parse(name)
    return f"{component}.{own.lower()}"


def _identity(name: str) -> str:
    component, own, _ = _parse(name)
    return f"{component}.{own}".lower()


def _check_tables(extracts: Sequence[Extract], known: Collection[str], names: Names) -> None:
    """Raises Unusable if a table would hold the rows of two extracts, as of Object.x and Workflow.x.

    An increment may have rows of only one of them, and the next increment rows of the other. So each extract is also compared
    with the extracts that the metadata names (`known`), if it is among them; logs are not always.
    """
    told, everywhere = _by_table(known, names), _by_table((extract.name for extract in extracts), names)
    for extract in extracts:
        found = everywhere[extract.table]
        if extract.component == "Log" or _identity(extract.name) in told[extract.table]:
            found = {**told[extract.table], **found}
        owner = _OWNERS.get(extract.table, extract.name)
        found = {_identity(owner): owner, **found}
        if len(found) > 1:
            in_order = sorted(
                found.values(), key=lambda name: (name not in _OWNERS.values(), not name.startswith("Object."), name)
            )
            first, other, *_ = in_order
            raise Unusable(
                f"{first} and {other} would share the table {extract.table}, and their rows could not be told apart; set"
                " another table for the newer extract in the configuration, as"
                f" shred.tables: {{{other}: {other.replace('.', '_').lower()}}}; then resolve the item",
                remedy=None,
            )


def _by_table(extracts: Iterable[str], names: Names) -> defaultdict[str, dict[str, str]]:
    """Returns the names of extracts by table, and there by the spelling that identifies them."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in extracts:
        found[names.parse(name)[1]].setdefault(_identity(name), name)
    return found


def _columns(path: str, data: bytes, names: Names) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Returns the type of each column by table, from a file that has all columns, and the labels of columns that have one."""
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    for _, (extract, column, type_, label) in _rows(path, data, ("extract", "column_name", "type"), ("column_label",)):
        _, table, deletes = names.parse(extract)
        if not deletes:
            columns[table][column] = type_
            if label not in ("", column):
                labels[table][column] = label
    return dict(columns), dict(labels)


def _news(path: str, data: bytes, names: Names, typed: bool) -> dict[str, dict[str, str]]:
    """Returns the columns by table in an increment's metadata file, without those of logs. Files of deletes have no types."""
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    spellings: dict[str, Spellings] = defaultdict(Spellings)
    for line, (extract, column, *type_) in _rows(path, data, ("extract", "column_name", *(["type"] if typed else []))):
        component, table, deletes = names.parse(extract)
        if component not in ("Log", "Metadata") and not deletes:
            _check_table(component, table, f"{path}, line {line}: extract {extract!r}")
            known = spellings[table].find(column)
            if known is None:
                spellings[table].add(column)
            columns[table][known or column] = "".join(type_)
    return dict(columns)


def _retired(
    columns: Mapping[str, Mapping[str, str]],
    changed: Mapping[str, Mapping[str, str]],
    gone: Mapping[str, Mapping[str, str]],
) -> tuple[Retired, ...]:
    """Returns the columns and tables that are gone. A table is gone with its `id` or with its last column.

    Columns that came back in the same window are not gone.
    """
    retired = []
    for table, dropped in gone.items():
        back = Spellings(changed.get(table, ()))
        lost = sorted(name for name in dropped if back.find(name) is None)
        gone_now = Spellings(lost)
        left = [name for name in columns.get(table, ()) if gone_now.find(name) is None]
        if gone_now.find("id") or (lost and not left):
            retired.append(Retired(table))
        else:
            retired += [Retired(table, column) for column in lost]
    return tuple(retired)


def _rows(path: str, data: bytes, needed: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields the lines of a small CSV file with their numbers, as the values of the needed and optional columns.

    An optional column that the file lacks gives "".
    """
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline=""), strict=True)
    try:
        header = next(reader, [])
        missing = [name for name in needed if name not in header]
        if missing:
            raise Unusable(f"{path} has no column {', '.join(missing)}; its header is {', '.join(header)!r}")
        places = [header.index(name) if name in header else None for name in (*needed, *optional)]
        for row in reader:
            if row and len(row) != len(header):
                raise Unusable(f"{path}, line {reader.line_num}: {len(row)} fields, but the header has {len(header)}")
            if row:
                yield reader.line_num, tuple("" if place is None else row[place] for place in places)
    except UnicodeDecodeError as error:
        raise Unusable(f"{path} is not UTF-8: {error.reason} after line {reader.line_num}") from error
    except csv.Error as error:
        raise Unusable(f"{path}, line {reader.line_num} is not valid CSV: {error}") from error


def _own(key: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """Returns a key as it is spelled among some names; empty if they lack a part of it."""
    found = [matched(names, name) for name in key]
    return tuple(name for name in found if name is not None) if None not in found else ()


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
