"""The Snowflake Loader's manifest: rows of its DynamoDB table as histories of items.

Belongs here: the table's published layout (hash key `RunId`, one row for each run, overwritten on every change), and the events
that a row implies. Pure: rows in, histories out.

A row has less information than a history. NEW says that a run was added, and not whether a transformer works on it. So it
becomes a New without a Processing: our shredder takes the run, and no lock of a dead transformer remains.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from manifest_platform.manifest import EVERYONE, Application, Item, ItemKey, Payload, Record, State
from manifest_platform.manifest.records import REASON
from manifest_platform.operations.migration.attributes import Attributes, Row, shown
from manifest_platform.operations.migration.histories import Collector, Histories, Layout, Place, derived_id, in_order

PROCESSED = "iglu:com.manifest_platform/snowflake_processed/jsonschema/1-0-0"
"""Processed of the Snowflake Transformer: {shredTypes, savedTo}."""
TRANSFORMER = "snowflake-transformer"
NOBODY = "unknown"
"""The author of events whose author the table does not keep."""

_SECOND = timedelta(seconds=1)
_PROCESSED = ("ProcessedAt", "ShredTypes", "SavedTo")
_LOADED = ("LoadedAt", "LoadedBy")


@dataclass(frozen=True)
class Run:
    """A row of the table. Times are UTC. The fields after `to_skip` are None until the run is processed, and then loaded.

    `failed_by`: the application whose failure is open. The table has no such state, so no attribute carries it.
    """

    run_id: str
    added_at: datetime
    added_by: str
    to_skip: bool
    processed_at: datetime | None = None
    shred_types: tuple[str, ...] | None = None
    saved_to: str | None = None
    loaded_at: datetime | None = None
    loaded_by: str | None = None
    failed_by: str | None = None

    @property
    def state(self) -> str:
        """The state that the attributes imply: NEW, PROCESSED or LOADED; FAILED if an application failed."""
        if self.failed_by:
            return "FAILED"
        return "LOADED" if self.loaded_at else "PROCESSED" if self.processed_at else "NEW"

    def attributes(self) -> dict[str, Any]:
        """Returns the row under the table's own names, with times in whole seconds since 1970, without absent attributes."""
        named = {
            "RunId": self.run_id,
            "AddedAt": _seconds(self.added_at),
            "AddedBy": self.added_by,
            "ToSkip": self.to_skip,
            "ProcessedAt": _seconds(self.processed_at),
            "ShredTypes": None if self.shred_types is None else list(self.shred_types),
            "SavedTo": self.saved_to,
            "LoadedAt": _seconds(self.loaded_at),
            "LoadedBy": self.loaded_by,
        }
        return {name: value for name, value in named.items() if value is not None}


def _seconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp())


def read_snowflake(rows: Iterable[Row], place: Place, load: Application) -> Histories:
    """Returns the histories of a table's rows. `load`: our step for the loader. Wrong rows are left out with a note."""
    found, count = Collector(place), 0
    for row in rows:
        count += 1
        run, wrong = read_row(row)
        if run is None:
            found.leave_out(shown(row, "RunId"), *wrong)
        elif key := found.key(run.run_id):
            found.keep(Item(key, tuple(in_order(_records(key, run, load)))))
    return found.histories(count, Layout.LOADER)


def read_row(row: Row) -> tuple[Run | None, list[str]]:
    """Returns the run of a row, or None and all problems of the row. Attributes outside the layout are ignored.

    NEW has only the attributes of the first group, PROCESSED also those of the second, and LOADED all of them and no ToSkip.
    Any other combination is an invalid state.
    """
    read = Attributes(row)
    run_id, at, by, to_skip = read.text("RunId"), read.time("AddedAt", _SECOND), read.text("AddedBy"), read.flag("ToSkip")
    later = read.has(*_PROCESSED, *_LOADED)
    loaded = not later.isdisjoint(_LOADED)
    processed_at = read.time("ProcessedAt", _SECOND) if later else None
    shred_types = read.texts("ShredTypes") if later else None
    saved_to = read.text("SavedTo") if later else None
    loaded_at = read.time("LoadedAt", _SECOND) if loaded else None
    loaded_by = read.text("LoadedBy") if loaded else None
    problems = list(read.problems)
    if later not in (set(), {*_PROCESSED}, {*_PROCESSED, *_LOADED}) or (loaded and to_skip):
        has = ", ".join(name for name in (*_PROCESSED, *_LOADED) if name in later)
        skipped = " and ToSkip" if to_skip else ""
        problems.append(f"invalid state: it has {has}{skipped}, which is not NEW, PROCESSED or LOADED")
    if problems or run_id is None or at is None or by is None or to_skip is None:
        return None, problems
    types = None if shred_types is None else tuple(shred_types)
    return Run(run_id, at, by, to_skip, processed_at, types, saved_to, loaded_at, loaded_by), []


def _records(key: ItemKey, run: Run, load: Application) -> list[Record]:
    """Returns the events that a row implies. Their ids are derived from the run, so that every import gives the same ids."""

    def record(
        event: str,
        state: State,
        by: Application,
        author: str,
        at: datetime,
        previous: str | None = None,
        payload: Payload | None = None,
    ) -> Record:
        id_ = derived_id(run.run_id, event)
        return Record(key.id, 0, id_, state, by, author, at, previous and derived_id(run.run_id, previous), payload=payload)

    transformer = Application(TRANSFORMER, run.added_by)
    told = [record("added", State.NEW, transformer, run.added_by, run.added_at)]
    if run.processed_at:
        made = Payload(PROCESSED, {"shredTypes": list(run.shred_types or ()), "savedTo": run.saved_to})
        told += [
            record("transforming", State.PROCESSING, transformer, run.added_by, run.added_at, "added"),
            record("transformed", State.PROCESSED, transformer, run.added_by, run.processed_at, "transforming", made),
        ]
    if run.loaded_at and run.loaded_by:
        loader = Application(load.name, run.loaded_by, load.instance)
        told += [
            record("loading", State.PROCESSING, loader, run.loaded_by, run.loaded_at, "added"),
            record("loaded", State.PROCESSED, loader, run.loaded_by, run.loaded_at, "loading"),
        ]
    if run.to_skip:
        reason = Payload(REASON, {"reason": "ToSkip in the Snowflake Loader's manifest"})
        told.append(record("to skip", State.SKIPPED, Application(EVERYONE), NOBODY, run.added_at, "added", reason))
    return told
