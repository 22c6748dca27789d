"""What a Direct Data archive of Veeva Vault says about itself, and the tables that follow from it.

Belongs here: manifest.csv, the metadata files, names, keys, types and modes. The rows of the data files do not.

`manifest.csv` names every data file of a window, with its number of records. `metadata_full.csv`, or in snapshots
`Metadata/metadata.csv`, gives the columns of every extract with their types; an increment's `Metadata/metadata.csv` and
`metadata_deletes` say what changed of them. All are read by their headers: columns may move, and new ones come.
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
"""Gives the contents of files by their relative paths."""

MANIFEST, METADATA_FULL = "manifest.csv", "metadata_full.csv"
METADATA_TABLE = "metadata"
_METADATA = "Metadata/metadata.csv"

TYPES: Mapping[str, str] = {
    "String": "string",  # without a length: those that the metadata gives are too short at times
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
"""The column type of each of Vault's types."""

CORRECTIONS: Mapping[str, str] = {"document_version__sys.document_number__v": "String"}
"""Vault's type by `table.column`, where the metadata is known to be wrong."""

_KEY = ("id",)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "picklist__sys": ("object", "object_field", "picklist_value_name"),
    "metadata": ("extract", "column_name"),
}
_OWNERS: Mapping[str, str] = {"picklist__sys": "Picklist.picklist__sys", "metadata": "Metadata.metadata"}
"""The extracts that alone may have these tables, for they have keys of their own."""
_DELETES = "_deletes"
_DELETES_OF = {"document_relationships_deleted__sys": "document_relationships__sys"}
_TABLE = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class Extract:
    """A line of manifest.csv: rows of one table, or keys of rows that were deleted from it.

    `name` is as the manifest has it, `table` the extract's own name in lower case, or the one configured. `file`: the
    path in the archive; None for an extract without records.
    """

    name: str
    component: str
    table: str
    deletes: bool
    records: int
    file: str | None

    @property
    def is_metadata(self) -> bool:
        """Whether its rows are the columns of all extracts."""
        return self.component == "Metadata" and self.table == METADATA_TABLE


@dataclass(frozen=True)
class Contents:
    """What is in an archive, and the tables that its files become.

    `extracts`: those that become tables. `columns`: the type in Vault's words by column, by table, of all that the
    metadata knows. `changed`: the columns that an increment's metadata says anew. `retired`: what it says is gone. `partial`:
    patterns of the workflows' tables that a snapshot holds only in part. `labels`: what Vault's pages call columns, by
    table and column, where that is another word.
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
        """The extract of a file; None for a file that becomes no table."""
        return self._by_file.get(path)

    @functools.cached_property
    def _by_file(self) -> dict[str, Extract]:
        return {extract.file: extract for extract in self.extracts if extract.file}

    @functools.cached_property
    def _workflows(self) -> set[str]:
        """The tables of workflows, whatever customers call their objects."""
        return {extract.table for extract in self.extracts if extract.component == "Workflow"}

    @functools.cached_property
    def _corrected(self) -> Spellings:
        return Spellings(self.corrections)

    def table(self, extract: Extract, header: Sequence[str]) -> Table:
        """The table of an extract whose file has this header.

        It has the header's columns in their order; after them, empty, those that the metadata announces and the file lacks.
        Raises Unusable where the key is not among them, or where a type is unknown.
        """
        key = self._key(extract, header)
        if extract.deletes:
            # What is said about a deleted row beside its key is text: no form of it may stand in the way of the deletion.
            known = Spellings(self.columns.get(extract.table, ()))
            columns = [Column(name, self._type(extract.table, name, known) if name in key else "string") for name in header]
            return Table(f"{extract.table}{_DELETES}", tuple(columns), "delete", key, extract.table)
        there = Spellings(header)
        names = [*header, *(name for name in self.changed.get(extract.table, ()) if there.find(name) is None)]
        return replace(self._define(extract.table, names, key), family=_family(extract.name))

    def columns_alone(self) -> Iterator[Table]:
        """The tables of which there are no rows, but perhaps new columns: those of an increment's metadata, and those that a
        snapshot holds empty. Raises Unusable where a type is unknown.
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
            return ()  # the whole table is replaced, so that no row has to be found again
        raise Unusable(
            f"{extract.file}: {extract.name} has no column {', '.join(missing)}, by which its rows are known; its header is "
            f"{', '.join(header)}; ask for the window again, or report the file to Veeva"
        )

    def _define(self, table: str, names: Collection[str], key: tuple[str, ...]) -> Table:
        known = Spellings(self.columns.get(table, ()))
        columns = tuple(Column(name, self._type(table, name, known)) for name in names)
        labels = self.labels.get(table, {})
        said = {name: text for name in names if (text := description(labels.get(known.find(name) or "")))}
        if self.feed == "log":
            return Table(table, columns, "append", key, descriptions=said)
        mode = "merge" if self.feed == "incr" or self._is_partial(table) else "replace"
        return Table(table, columns, mode, key, descriptions=said)

    def _is_partial(self, table: str) -> bool:
        """Whether a snapshot holds a table in part; none but workflows'."""
        return table in self._workflows and any(fnmatchcase(table, pattern) for pattern in self.partial)

    def _type(self, table: str, column: str, known: Spellings) -> str:
        """The type of a column; text for one that the metadata does not know, and for the metadata themselves.

        `known`: the table's columns in the metadata.
        """
        name, types = f"{table}.{column}", self.columns.get(table, {})
        said = self.corrections.get(self._corrected.find(name) or "") or types.get(known.find(column) or "")
        if table == METADATA_TABLE or not said:
            return "string"
        if said not in TYPES:
            raise Unusable(
                f"the metadata give {name} the type {said!r}; known are {', '.join(TYPES)}; "
                f"say in the configuration what it is, as shred.types: {{{name}: String}}",
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
    """What an archive holds, from its files' relative paths and a way to read them.

    `keep_unnamed`: files that the manifest does not name are passed over. `tables`: the tables of extracts that are not to be
    called as the extract is, by `Component.name`. Raises Unusable where the manifest is missing or
    unreadable, names a file that is not there, does not name one that is, or has what its feed cannot have; and where there is
    no metadata.
    """
    if MANIFEST not in paths:
        raise Unusable(f"there is no {MANIFEST} among {len(paths)} files; land the window whole, under its own folder")
    names = Names(tables or {})
    named = list(_manifest(read([MANIFEST])[MANIFEST], names))
    _check_files(named, paths, keep_unnamed)
    extracts = [extract for extract in named if _is_table(extract, feed)]
    _check_files_once(extracts)
    whole = (METADATA_FULL, _METADATA) if feed == "full" else (METADATA_FULL,)  # elsewhere the other has the changes alone
    metadata = next((path for path in whole if path in paths), None)
    if metadata is None:
        raise Unusable(f"there is no {' and no '.join(whole)}, so not every column has a type; land the window whole")
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
            raise Unusable(f"{where}: type {kind!r} is neither updates nor deletes; the platform must learn what it means")
        if not re.fullmatch("[0-9]+", records):
            raise Unusable(f"{where}: records is {records!r}, which is no number; ask for the window again")
        if not file and int(records):
            raise Unusable(f"{where}: {name} has {records} records but no file; ask for the window again")
        yield Extract(name, component, table, deletes or kind == "deletes", int(records), file.removeprefix("./") or None)


class Names:
    """The tables of extracts: each called as its extract is, but for those configured, `tables` by `Component.name`."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = {name.lower(): table for name, table in tables.items()}

    def parse(self, name: str) -> tuple[str, str, bool]:
        """Component and table of an extract's name, and whether the name says that these are deletes."""
        component, own, deletes = _parse(name)
        return component, self._tables.get(f"{component}.{own}".lower(), own), deletes


def _parse(name: str) -> tuple[str, str, bool]:
    """Component and own name of an extract, in lower case, and whether the name says that these are deletes."""
    component, _, own = name.partition(".")
    own = own.lower()
    if own in _DELETES_OF:
        return component, _DELETES_OF[own], True
    return component, own.removesuffix(_DELETES), own.endswith(_DELETES)


def _check_table(component: str, table: str, what: str) -> None:
    if not component or not _TABLE.fullmatch(table) or table == BAD_TABLE:
        raise Unusable(
            f"{what} gives no table; a name is Component.name, of letters, digits and underscores, but not {BAD_TABLE}"
        )


def _check_files(named: Sequence[Extract], paths: Collection[str], keep_unnamed: bool) -> None:
    files = Counter(extract.file for extract in named if extract.file)
    twice = sorted(file for file, times in files.items() if times > 1)
    if twice:
        raise Unusable(f"{MANIFEST} names {_some(twice)} more than once; ask for the window again, or report it to Veeva")
    lacking = sorted(files.keys() - set(paths))
    if lacking:
        raise Unusable(f"{MANIFEST} names {_some(lacking)}, which is not there; land the window whole, or ask for it again")
    unnamed = sorted(set(paths) - files.keys() - {MANIFEST, METADATA_FULL})
    if unnamed and not keep_unnamed:
        raise Unusable(
            f"{_some(unnamed)} is there, but {MANIFEST} does not name it; ask for the window again, or say in the configuration"
            " archive.unnamed: keep, and no table is made of such files"
        )


def _is_table(extract: Extract, feed: Feed) -> bool:
    """Whether an extract becomes a table of its feed. Raises Unusable for one that would do harm there."""
    if extract.component == "Metadata" and (feed == "log" or not extract.is_metadata):
        return False
    if extract.component == "Log" and feed != "log":
        raise Unusable(
            f"{MANIFEST} names {extract.name}, a log, which only log windows may hold: it would replace what was logged"
        )
    if extract.deletes and feed != "incr":
        if extract.records:
            raise Unusable(f"{MANIFEST} names deletes of {extract.name}, which only increments may hold")
        return False
    return True


def _check_files_once(extracts: Sequence[Extract]) -> None:
    """Raises Unusable where two files hold the rows of one extract."""
    seen: dict[tuple[str, bool], Extract] = {}
    for extract in extracts:
        if extract.file:
            other = seen.setdefault((_identity(extract.name), extract.deletes), extract)
            if other is not extract:
                raise Unusable(
                    f"{MANIFEST} names {extract.name} twice, with the files {other.file} and {extract.file}; ask for the window"
                    " again, or report it to Veeva"
                )


def _family(name: str) -> str:
    """An extract's name, in the case in which all of its spellings are one: `Object.visit__c`."""
    component, own, _ = _parse(name)
    return f"{component}.{own.lower()}"


def _identity(name: str) -> str:
    component, own, _ = _parse(name)
    return f"{component}.{own}".lower()


def _check_tables(extracts: Sequence[Extract], known: Collection[str], names: Names) -> None:
    """Raises Unusable where a table would hold the rows of two extracts, as of Object.x and Workflow.x.

    An increment may have rows of only one of them, and the next increment rows of the other one. So an extract is also held
    against the `known` ones, all that the metadata name, if these name it too; logs are not always among them.
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
                f"{first} and {other} would be one table, {extract.table}, and nobody could tell their rows apart; say in the"
                " configuration where those of the newer one go, as"
                f" shred.tables: {{{other}: {other.replace('.', '_').lower()}}}; then resolve the item",
                remedy=None,
            )


def _by_table(extracts: Iterable[str], names: Names) -> defaultdict[str, dict[str, str]]:
    """The names of extracts, by what they are known by, by their tables."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in extracts:
        found[names.parse(name)[1]].setdefault(_identity(name), name)
    return found


def _columns(path: str, data: bytes, names: Names) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """The type of each column of each table, by a file that has them all; and the labels of those that have one."""
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
    """The columns that an increment's metadata file has, but for those of logs; with their types, which deletes lack."""
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
    """What is gone: a column, or the table where that is its `id` or all it had. What came back in the same window is not."""
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
    """The lines of a small CSV file with their numbers, as the values of the columns asked for; "" for one that is optional."""
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
        raise Unusable(f"{path}, line {reader.line_num} is no CSV: {error}") from error


def _own(key: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """A key as it is spelled among names; nothing where they lack a part of it."""
    found = [matched(names, name) for name in key]
    return tuple(name for name in found if name is not None) if None not in found else ()


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
