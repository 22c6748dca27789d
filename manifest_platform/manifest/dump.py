"""A dump: a whole manifest as text, lines of JSON that are read from one store and put into another.

Belongs here: the format, and the checks before anything is put. A dump has a first line that names its content, a line for each
row in the order of the store's keys, and a last line with their number. Versions of rows are left out: they only distinguish
the writes in one store, and start at 1 when a row is first put. Records and waiting rows never have another version.

Nobody may work on a dataset while it is put into a store. A dataset that is worked on while it is dumped is dumped as of
several moments. Differences from its log are then repaired by the doctor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import uuid4

from manifest_platform.manifest.dataset import LeaseState, StepState
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.keys import record_key, records_prefix
from manifest_platform.manifest.payloads import problems
from manifest_platform.manifest.records import Record
from manifest_platform.manifest.skip_rules import SkipRules
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, ConditionFailed, Put, Row, Store, stored_rows
from manifest_platform.releases import Form

FORMAT = 1
MOST_BYTES = 1 << 20
"""The maximum text of one transaction's rows, in bytes: below the limit of any store."""


class NotImportable(Refused):
    """A dump that cannot be put into the store: damaged, against the rules, or different from existing rows. Names the line."""


@dataclass(frozen=True)
class Imported:
    """The number of rows that were put, and of rows that existed already."""

    written: int
    there: int


@dataclass(frozen=True)
class Line:
    """A row of a dump, and the number of its line."""

    number: int
    sort: str
    data: dict[str, Any]


def dump(store: Store, dataset: str, feed: str | None = None) -> Iterator[str]:
    """Yields the lines of a dataset. For one feed only the log, from which the doctor makes all other rows.

    Raises StoreError.
    """
    yield _text({"kind": "dump", "format": FORMAT, "dataset": dataset, "feed": feed})
    count = 0
    for row in stored_rows(store, dataset, _prefix(feed)):
        count += 1
        kind = row.sort.partition("#")[0].lower()
        yield _text({"kind": kind, "sort": row.sort, "data": row.data})
    yield _text({"kind": "end", "rows": count})


def put_dump(store: Store, dataset: str, lines: Callable[[], Iterable[str]]) -> Imported:
    """Puts a dump into a store; each call of `lines` returns its text from the beginning.

    Rows that exist already, and are equal, are passed over. Everything is checked before anything is put, so an interrupted
    import continues when it is repeated. Raises NotImportable, without any change, for a dump that is damaged or breaks the
    manifest's rules, and if the store has a row that differs or that the dump lacks; NewerRelease; StoreError.
    """
    _check_items(_parsed(lines(), dataset))
    total = sum(1 for _ in _missing(store, dataset, lines))  # and every difference is met
    written = 0
    for batch in _batches(_missing(store, dataset, lines)):
        try:
            store.transact(dataset, [Put(line.sort, line.data, ABSENT) for line in batch], str(uuid4()))
        except ConditionFailed as error:
            raise NotImportable(
                f"dataset {dataset}: {error.failed[0].sort} was written meanwhile. Stop the programs that work on"
                " the dataset, and repeat the import to see the differences"
            ) from error
        written += len(batch)
    there = sum(1 for _ in _parsed(lines(), dataset)) - total
    return Imported(written, there)


def _prefix(feed: str | None) -> str:
    return records_prefix(feed) if feed else ""


def _text(data: dict[str, Any]) -> str:
    """A line of JSON. ASCII holds any text.

    Keys are sorted, because their order has no meaning and not every store keeps it.
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


# Reading a dump


def _header(text: str, dataset: str) -> dict[str, Any]:
    header = _object(text, 1)
    if header.get("kind") != "dump" or header.get("format") != FORMAT:
        raise NotImportable(f"line 1: a dump of format {FORMAT} begins with a line of kind 'dump', not with {text[:80]!r}")
    if header.get("dataset") != dataset:
        raise NotImportable(
            f"line 1: a dump of dataset {header.get('dataset')!r}, but the import is into {dataset!r}: give the"
            " dump's dataset with --dataset"
        )
    return header


def _object(text: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise NotImportable(f"line {number}: not JSON ({error}): the file is damaged, dump again") from error
    if not isinstance(found, dict):
        raise NotImportable(f"line {number}: not a JSON object: the file is damaged, dump again")
    return found


def _parsed(lines: Iterable[str], dataset: str) -> Iterator[Line]:
    """The rows of a complete dump, in order."""
    numbered = enumerate(lines, start=1)
    prefix = _prefix(_header(next(numbered, (1, ""))[1], dataset)["feed"])
    before, count, last = "", 0, {}
    for number, text in numbered:
        if last:
            raise NotImportable(f"line {number}: the dump continues after its last line: the file is damaged, dump again")
        found = _object(text, number)
        if found.get("kind") == "end":
            last = found
            continue
        sort, data = found.get("sort"), found.get("data")
        if not isinstance(sort, str) or not isinstance(data, dict) or not sort.startswith(prefix):
            raise NotImportable(f"line {number}: not a row of this dump: {text[:80]!r}")
        if sort <= before:
            raise NotImportable(
                f"line {number}: {sort} is not after {before}: the lines of a dump are in order, without repeats"
            )
        before, count = sort, count + 1
        yield Line(number, sort, data)
    if last.get("rows") != count:
        raise NotImportable(f"the dump ends after {count:,} rows without its last line: dump again")


def _check_items(lines: Iterator[Line]) -> None:
    """Raises NotImportable for rows that the manifest could not have written itself."""
    for item, group in groupby(lines, key=_item_prefix):
        rows = list(group)
        if item is None:
            for line in rows:
                _check_other(line)
        else:
            _check_records(rows)


def _item_prefix(line: Line) -> str | None:
    return line.sort.rpartition("#")[0] if line.sort.startswith("RECORD#") else None


def _check_records(rows: list[Line]) -> None:
    first = rows[0]
    try:
        _, feed, position = first.sort.rpartition("#")[0].split("#", 2)
        key = ItemKey.at(feed, position)
        records = tuple(Record.from_dict(line.data) for line in rows)
    except (ValueError, KeyError, TypeError) as error:
        raise NotImportable(f"line {first.number}: {first.sort} does not hold a record: {error}") from error
    for line, record in zip(rows, records, strict=True):
        Form.of(line.data).require_writable(f"line {line.number}: record {record.sequence} of {key.name}, by {record.author},")
        if line.sort != record_key(key, record.sequence):
            raise NotImportable(f"line {line.number}: {line.sort} holds record {record.sequence} of {record.item}")
    if "archived" in first.data:
        return  # the records before these are archived
    if wrong := problems(Item(key, records)):
        raise NotImportable(f"line {first.number}: {key.id} breaks the rules: {'; '.join(wrong)}")


def _check_other(line: Line) -> None:
    kinds: dict[str, Callable[[dict[str, Any]], object]] = {
        "STATE": lambda data: StepState.from_dict(data, 1),
        "LEASE": lambda data: LeaseState.from_dict(data, 1),
        "SKIPRULES": lambda data: SkipRules.of(Row("", line.sort, 1, data)),
    }
    kind = line.sort.partition("#")[0]
    if kind in ("ID", "STATE", "SKIPRULES"):
        Form.of(line.data).require_writable(f"line {line.number}: {line.sort}")
    check = kinds.get(kind)
    try:
        if check:
            check(line.data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotImportable(f"line {line.number}: {line.sort} cannot be read: {error!r}") from error


# Comparing with the store


def _missing(store: Store, dataset: str, lines: Callable[[], Iterable[str]]) -> Iterator[Line]:
    """The rows of a dump that the store lacks. Raises NotImportable if the store has a different row, or an additional row."""
    prefix = _prefix(_header(next(iter(lines()), ""), dataset)["feed"])
    stored = stored_rows(store, dataset, prefix)
    row = next(stored, None)
    for line in _parsed(lines(), dataset):
        if row and row.sort < line.sort:
            break
        if row is None or row.sort > line.sort:
            yield line
            continue
        if _text(row.data) != _text(line.data):
            raise NotImportable(
                f"line {line.number}: dataset {dataset} has another {line.sort} already. Nothing is overwritten: import into a"
                " store that does not have this dataset"
            )
        row = next(stored, None)
    if row:
        raise NotImportable(
            f"dataset {dataset} has {row.sort}, which the dump lacks: import into a store that does not have this dataset"
        )


def _batches(lines: Iterator[Line]) -> Iterator[list[Line]]:
    batch: list[Line] = []
    size = 0
    for line in lines:
        length = len(_text(line.data))
        if batch and (len(batch) == MAX_WRITES or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += length
    if batch:
        yield batch
