"""The content of the warehouse's tables according to the log alone, compared with the warehouse.

Belongs here: the sums of the loads that count, by table. An item counts once, by its newest load. An item of a superseded epoch
does not count, and of snapshots only the newest counts. Writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from manifest_platform import progress
from manifest_platform.manifest import Application, Item, ItemKey, Record
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.chain import broken_at
from manifest_platform.pipeline.shredding import kept_types
from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from manifest_platform.warehouse.apply import Warehouse


@dataclass
class TableState:
    """A table: the rows that the counted items loaded, the number of these items, and the first and last of them.

    `types`: the types of the rows with their versions, as far as the items' records list them. `ledger`: the rows loaded
    according to the warehouse's ledger; `warehouse`: the rows in the table. Both are None if the warehouse was not asked;
    `warehouse` is also None if it has no such table. `removed`: the old rows that upkeep removed from it.
    """

    table: str
    rows: int = 0
    items: int = 0
    first: ItemKey | None = None
    last: ItemKey | None = None
    types: set[str] = field(default_factory=set)
    ledger: int | None = None
    warehouse: int | None = None
    removed: int = 0


@dataclass(frozen=True)
class Difference:
    """A difference, and its remedy if that is known. `table` is None for a difference of a feed."""

    table: str | None
    text: str
    remedy: Remedy | None = None


@dataclass
class TableStates:
    """All tables by name. `items`: the number that count. `uncounted`: those whose records have no rows, such as imported ones.

    `accepted`: items loaded before the warehouse was accepted as it is, which its ledger therefore lacks.
    """

    tables: list[TableState]
    items: int = 0
    uncounted: int = 0
    accepted: int = 0
    differences: list[Difference] = field(default_factory=list)


def states_of_tables(pipeline: Pipeline, with_warehouse: bool = True) -> TableStates:
    """Reads the whole log, item by item, and asks the warehouse. Raises WarehouseError if it is unreachable."""
    found: dict[str, TableState] = {}
    states = TableStates([])
    expected: Counter[str] = Counter()
    epochs: dict[str, int] = {}
    for feed in pipeline.feeds:
        standing = pipeline.manifest.state(pipeline.load).feed(feed)
        epochs[feed] = standing.serving_epoch
        for item, record in _counting(pipeline, feed, standing.serving_epoch):
            if pipeline.source.load_step(feed).order == "full":
                epochs[feed] = record.epoch or 0
            states.items += 1
            rows = _rows(record)
            if rows is None:
                states.uncounted += 1
                continue
            accepted = was_accepted(record, standing.accepted)
            states.accepted += accepted
            for table, count in rows.items():
                one = found.setdefault(table, TableState(table))
                one.rows, one.items = one.rows + count, one.items + 1
                one.first, one.last = one.first or item.key, item.key
                expected[table] += 0 if accepted else count
            _add_types(found, item)
    states.tables = [found[name] for name in sorted(found)]
    if with_warehouse:
        _compare(pipeline, states, found, expected, epochs)
    return states


def was_accepted(record: Record, accepted: int) -> bool:
    """True if the ledger need not have a load, because it came before the warehouse was accepted as it is, or was imported.

    `accepted`: the token of the newest load before that, 0 if there was none. A load that was taken over from a former loader
    has no token, as an imported one, but it was entered in the ledger.
    """
    if record.token is None:
        return not was_taken_over(record) or accepted > 0
    return record.token <= accepted


def was_taken_over(record: Record) -> bool:
    """True if a load of a former loader was entered in our ledger."""
    return record.token is None and "applied_at" in record.data


def _counting(pipeline: Pipeline, feed: str, serving: int) -> Iterator[tuple[Item, Record]]:
    """The items whose load counts, and that load: of snapshots the newest."""
    newest: tuple[Item, Record] | None = None
    for item in progress.each(pipeline.manifest.items(feed), f"reading the log of {feed}"):
        record = item.processed_by(pipeline.load, serving)
        if record is None:
            continue
        if pipeline.source.load_step(feed).order != "full":
            yield item, record
        elif newest is None or (record.epoch or 0) >= (newest[1].epoch or 0):
            newest = item, record
    if newest:
        yield newest


def _rows(record: Record) -> dict[str, int] | None:
    """The rows of a load by table; None if its record does not list them by table."""
    rows = record.data.get("rows")
    return _counted(rows) if isinstance(rows, dict) else None


def _counted(rows: Mapping[str, int]) -> dict[str, int]:
    """Returns the tables that have rows."""
    return {name: count for name, count in rows.items() if count}


def _add_types(found: dict[str, TableState], item: Item) -> None:
    shredding = item.processed_by(Application(SHRED))
    for one in kept_types(shredding) if shredding else ():
        if one.table in found:
            found[one.table].types.add(one.type)


def _compare(
    pipeline: Pipeline, states: TableStates, found: dict[str, TableState], expected: Counter[str], epochs: dict[str, int]
) -> None:
    """Asks the warehouse, and adds every difference from the log."""
    from manifest_platform.warehouse.apply import open_warehouse

    ledger: Counter[str] = Counter()
    with closing(open_warehouse(pipeline.engine_settings, pipeline.name, pipeline.schema, read_only=True)) as reader:
        for feed, epoch in epochs.items():
            if broken := broken_at(pipeline, reader, feed):
                states.differences.append(Difference(None, f"feed {feed}: {broken.reason}", broken.remedy))
            ledger.update(reader.applied_rows(feed, epoch))
        with progress.work("counting the rows of the warehouse's tables"):
            held = reader.row_counts()
        removed = reader.removed_rows()
        if +expected != +ledger and not states.differences:
            states.differences += _unlike(pipeline, reader, epochs)
    known = bool(states.differences)
    for name in sorted({*found, *(table for table, rows in ledger.items() if rows)}):
        one = found.get(name)
        if one is None:
            one = TableState(name)
            states.tables.append(one)
        one.ledger, one.warehouse, one.removed = ledger[name], held.get(name), removed.get(name, 0)
        if one.ledger != expected[name]:
            said = f"{name}: the log has {expected[name]:,} rows, and the warehouse's ledger has {one.ledger:,}"
            states.differences.append(Difference(name, said, None if known else Remedy(Action.EXAMINE)))
        elif (
            pipeline.source.appends
            and not states.accepted
            and not states.uncounted
            and ((one.warehouse or 0) + one.removed != one.ledger)
        ):
            old = f", {one.removed:,} of them were removed as old" if one.removed else ""
            said = (
                f"{name}: {one.ledger:,} rows were loaded{old}, and the table has {one.warehouse or 0:,}. Another program added"
                " or deleted rows: restore the warehouse from a backup, or correct the table by hand"
            )
            states.differences.append(Difference(name, said))
    states.tables.sort(key=lambda one: one.table)


def _unlike(pipeline: Pipeline, reader: Warehouse, epochs: dict[str, int]) -> Iterator[Difference]:
    """Yields the first item of each feed on which the log and the ledger differ. Reads both side by side."""
    for feed, epoch in epochs.items():
        accepted = pipeline.manifest.state(pipeline.load).feed(feed).accepted
        entries = reader.ledger(feed, epoch)
        entry = next(entries, None)
        for item, record in _counting(pipeline, feed, epoch):
            if entry and entry.position < item.key.position:
                break
            own, applied = None, entry
            if record.token is not None and record.token > accepted:
                own = _rows(record)
            if entry and entry.position == item.key.position:
                entry = next(entries, None)
            else:
                applied = None
            if own is not None and own != (_counted(applied.rows) if applied else None):
                there = "has other numbers" if applied else "does not have it"
                text = f"{item.key.name}: the log has {sum(own.values()):,} rows, and the warehouse's ledger {there}"
                yield Difference(
                    None, text, Remedy(Action.READ_RECORDS, item=item.key.name) if applied else Remedy(Action.EXAMINE)
                )
                entry = None
                break
        if entry:
            name = ItemKey.at(feed, entry.position).name
            yield Difference(
                None, f"{name}: the warehouse's ledger has it, and the log has no record of its load", Remedy(Action.EXAMINE)
            )
