"""Takes over the tables of a former loader as they are: what it has loaded is entered in the ledger and in the log.

The ledger comes first. If a crash prevents the log's part, a drain finds the runs in the ledger, and loads none of them again.
Both parts may be repeated, as long as the former loader runs. Loads begin after its newest run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from manifest_platform.manifest import Application, Item, ItemKey, Payload, Record, Refused, State
from manifest_platform.operations.cutover.look import Cutover, former_loader, look
from manifest_platform.operations.migration import Histories, Place, Report, import_items
from manifest_platform.operations.migration.histories import derived_id, in_order
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.pipeline.loading import loaded_payload
from manifest_platform.sources.cutover import FormerRun
from manifest_platform.warehouse.control import LedgerEntry


@dataclass(frozen=True)
class Adopted:
    """The result of a takeover, or of its dry run. `entered`: new entries of the ledger. `imported`: the part of the log."""

    found: Cutover
    entered: int
    imported: Report


def adopt(
    pipeline: Pipeline, schema: str | None = None, source_root: str = "", *, load_missing: bool = False, dry_run: bool = False
) -> Adopted:
    """Enters the former loader's runs in ledger and log, so that loads continue in its tables, after its newest run.

    `load_missing`: runs that it never loaded, before its newest, are loaded as late ones; else there must be none. Raises
    Refused if the tables cannot be taken over, or if this platform has loaded already; LeaseBusy, WarehouseError, StoreError.
    """
    found = look(pipeline, schema, source_root)
    _check(found, load_missing)
    feed, source = pipeline.source.main, f"{found.schema}.{pipeline.source.main}"
    runs = sorted(((_key(pipeline, run), run) for run in found.runs.values()), key=lambda pair: pair[0])
    there = _entered(pipeline, feed)
    planned = import_items(pipeline.manifest, feed, _histories(pipeline, runs, there), source, dry_run=True)
    entries = [_entry(pipeline, key, run) for key, run in runs]
    new = sum(entry.item not in there for entry in entries)
    if dry_run:
        return Adopted(found, new, planned)
    if new:  # else an interrupted import may hold the lease
        with pipeline.lease(feed, LOAD):
            rows = pipeline.warehouse.row_counts()
            rows.pop(former_loader(pipeline.source).table, None)
            pipeline.warehouse.take_over(feed, entries, rows)
        there = _entered(pipeline, feed)
    return Adopted(found, new, import_items(pipeline.manifest, feed, _histories(pipeline, runs, there), source))


def _entered(pipeline: Pipeline, feed: str) -> dict[str, LedgerEntry]:
    """Returns the ledger's entries by item."""
    return {entry.item: entry for entry in pipeline.warehouse.ledger(feed, 0)}


def _check(found: Cutover, load_missing: bool) -> None:
    if hindrances := found.hindrances:
        more = f" ({len(hindrances) - 1:,} more)" if len(hindrances) > 1 else ""
        raise Refused(f"the tables of {found.loader} cannot be taken over: {hindrances[0]}{more}")
    if found.never_loaded and not load_missing:
        raise Refused(
            f"{len(found.never_loaded):,} runs have landed that {found.loader} never loaded, such as {found.never_loaded[0]}."
            " Load them with it first, or give --load-missing to load them as late runs"
        )


def _key(pipeline: Pipeline, run: FormerRun) -> ItemKey:
    return Place(pipeline.source, run.place.rpartition("/")[0]).key(run.place)


def _histories(pipeline: Pipeline, runs: Sequence[tuple[ItemKey, FormerRun]], entered: Mapping[str, LedgerEntry]) -> Histories:
    """Returns the runs as items that were loaded. `entered`: their entries in the ledger, as far as they have any."""
    items = tuple(_item(pipeline, key, run, entered.get(key.id)) for key, run in runs)
    return Histories(items, (), (), len(items))


def _item(pipeline: Pipeline, key: ItemKey, run: FormerRun, entry: LedgerEntry | None) -> Item:
    author = former_loader(pipeline.source).author
    loader = Application(pipeline.load.name, "", pipeline.load.instance)

    def record(
        event: str, state: State, by: Application, previous: str | None = None, payload: Payload | None = None
    ) -> Record:
        before = previous and _record_id(key, previous)
        return Record(key.id, 0, _record_id(key, event), state, by, author, run.loaded_at, before, payload=payload)

    told = (
        record("landed", State.NEW, Application(author)),
        record("loading", State.PROCESSING, loader, "landed"),
        record("loaded", State.PROCESSED, loader, "loading", loaded_payload(entry, 0) if entry else None),
    )
    return Item(key, tuple(in_order(told)))


def _record_id(key: ItemKey, event: str) -> str:
    """Returns a record id that is the same in every takeover."""
    return derived_id(key.id, event)


def _entry(pipeline: Pipeline, key: ItemKey, run: FormerRun) -> LedgerEntry:
    return LedgerEntry(
        item=key.id,
        feed=key.feed,
        position=key.position,
        epoch=1,
        token=0,
        record_id=_record_id(key, "loading"),
        late=False,
        rows={} if run.rows is None else {former_loader(pipeline.source).main_table.name: run.rows},
        checksum="",
        applied_at=run.loaded_at,
        about=run.about,
    )
