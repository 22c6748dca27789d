"""`reload`: replaces the rows that a target has of an item, by loading the item again from its current output.

Use it if loaded rows are wrong: rows were changed by hand, or the item was shredded again with a corrected shredder or schema.
Only for tables whose rows are appended. Changes by key need a full load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from manifest_platform.manifest import Holding, Item, ItemKey, Record, Refused
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.shredding import OutputGone, by_retention, landing_problem, listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform.warehouse.load import MISSING


@dataclass(frozen=True)
class Replacing:
    """The effect of a reload on a target: the rows by table that it removes, and those that it loads instead.

    `loaded_at`: the time of the load whose rows go; None, with no rows to remove, if the warehouse cannot be asked now.
    """

    target: str
    loaded_at: datetime | None
    removes: dict[str, int]
    loads: dict[str, int]


def reload(pipeline: Pipeline, key: ItemKey, reason: str, missing_rows: bool = False) -> Record:
    """Writes the New record that makes the pipeline's target replace an item's rows. The next drain does it.

    `missing_rows`: rows of the item that are gone from the warehouse come back. Raises Refused for an item that is not loaded,
    or that a former loader has loaded, for tables whose rows change by key, and while somebody works on it.
    """
    if key.feed not in pipeline.feeds:
        raise Refused(f"{key.name} was registered by a program, and only programs process its feed")
    step = pipeline.manifest.step(key.feed, pipeline.load.key)
    name = key.name
    by_key = _by_key(pipeline, key)
    if step.order != "strict" or step.needs_full or by_key:
        tables = f" of {', '.join(by_key)}" if by_key else ""
        raise Refused(
            f"{name} cannot be reloaded: its rows{tables} change by key, and later items were loaded on top of them. "
            "A full load replaces them",
            Remedy(Action.BEGIN_FULL_LOAD, target=pipeline.load.instance or ""),
        )
    item = pipeline.manifest.item(key)
    if is_of_former_loader(pipeline, item):
        raise Refused(_of_former_loader(name), Remedy(Action.EXPLAIN, item=name))
    if gone := _gone(pipeline, item):
        raise Refused(f"{name} cannot be reloaded: {gone}", Remedy(Action.EXPLAIN, item=name))
    return pipeline.manifest.reload(key, pipeline.load, reason, [MISSING] if missing_rows else [], item)


def is_of_former_loader(pipeline: Pipeline, item: Item) -> bool:
    """True if another loader has loaded an item's rows: its load was imported, or the ledger's entry was taken over.

    Such rows have no load time that names the item, so they cannot be removed. If the warehouse cannot be asked now, the
    records alone decide, and the load itself refuses the rest.
    """
    serving = pipeline.manifest.serving_epochs(item.key.feed).get(pipeline.load.key, 1)
    loaded = item.processed_by(pipeline.load, serving)
    if loaded is None:
        return False
    if loaded.token is None:  # a load of our own has the token of its lease
        return True
    try:
        entry = pipeline.ledger_entry(item.key, serving)
    except WarehouseError:
        return False
    return entry is not None and entry.was_taken_over


def _of_former_loader(name: str) -> str:
    return (
        f"{name} was loaded by a former loader, so its rows cannot be told from those of other items, and loading it again"
        " would double them. They stay as they are"
    )


def _gone(pipeline: Pipeline, item: Item) -> str:
    """Returns why the rows of an item cannot be made again after retention deleted its output; empty if they can."""
    deleted = item.deletion_of(Holding.BAD)
    problem = landing_problem(pipeline, item) if deleted else None
    if deleted is None or problem is None:
        return ""
    what = "shredded output was" if item.deletion_of(Holding.SHREDDED) else "bad rows were"
    return f"its {what} {by_retention(deleted)}, and {problem}"


def reload_all(pipelines: Sequence[Pipeline], key: ItemKey, reason: str, missing_rows: bool = False) -> Record:
    """Makes each of these targets replace an item's rows. Returns the last record.

    Raises Refused, before anything is written, if it is refused for any of them.
    """
    manifest = pipelines[0].manifest
    if len(pipelines) > 1 and not manifest.is_rehearsing:
        with manifest.rehearsing():
            for one in pipelines:
                reload(one, key, reason, missing_rows)
    return [reload(one, key, reason, missing_rows) for one in pipelines][-1]


def replacing(pipeline: Pipeline, key: ItemKey) -> Replacing:
    """Returns the effect that a reload of an item has on the pipeline's target. Writes nothing. Raises Refused."""
    item = pipeline.manifest.item(key)
    if is_of_former_loader(pipeline, item):
        raise Refused(_of_former_loader(key.name), Remedy(Action.EXPLAIN, item=key.name))
    try:
        listing = listing_of(item)
    except OutputGone as gone:
        raise Refused(f"{key.name}: {gone}", Remedy(Action.RESHRED, item=key.name)) from gone
    loads = {table.name: rows for table in listing.tables if (rows := listing.rows(table.name))}
    serving = pipeline.manifest.serving_epochs(key.feed).get(pipeline.load.key, 1)
    try:
        entry = pipeline.warehouse.ledger_entry(key.feed, key.id, serving)
    except WarehouseError:
        entry = None
    removes = {table: rows for table, rows in entry.rows.items() if rows} if entry else {}
    return Replacing(pipeline.target, entry.applied_at if entry else None, removes, loads)


def _by_key(pipeline: Pipeline, key: ItemKey) -> list[str]:
    """Returns the tables of an item whose rows change by key. Output that is gone is found and made again by the load."""
    try:
        listing = listing_of(pipeline.manifest.item(key))
    except (OutputGone, Refused):
        return []
    return sorted(table.name for table in listing.tables if table.mode != "append")
