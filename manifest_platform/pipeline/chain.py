"""The chain between manifest and warehouse: the warehouse must have the record that the manifest believes was applied last.

This is not the glossary's chain of windows. A load passes only if the fence's record is the believed record, so a warehouse
that was restored or replaced is noticed before anything is loaded into it.

Belongs here: the meaning of a broken chain, in sentences that name what was set back and the remedy. The rule itself is in
`warehouse.rules`; the repair of a broken chain is in `operations.reconcile`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manifest_platform.manifest import ItemKey, StepState, UnknownItem
from manifest_platform.manifest.dataset import Mode, position_name
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD
from manifest_platform.warehouse.errors import Unavailable, Unbelieved

if TYPE_CHECKING:
    from manifest_platform.warehouse.apply import Warehouse
    from manifest_platform.warehouse.engines.engine import Engine


@dataclass(frozen=True)
class Broken:
    """A feed whose warehouse lacks the record that the manifest believes was applied last, with the reason and the remedy.

    `step`: the key of the application that loads the warehouse.
    """

    feed: str
    reason: str
    remedy: Remedy
    step: str = LOAD


class Look:
    """A look at one warehouse for many datasets: the fences are read once, and an unavailable warehouse is asked once."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self._records: dict[str, dict[str, str]] | None = None
        self._unavailable: Unavailable | None = None

    def fences(self, warehouse: Warehouse) -> dict[str, str]:
        """Returns the record that the fence names, by feed of a dataset. Raises Unavailable."""
        if self._unavailable:
            raise self._unavailable
        if self._records is None:
            try:
                self._records = warehouse.fence_records_of_all()
            except Unavailable as error:
                self._unavailable = error
                raise
        return self._records.get(warehouse.dataset, {})


def explained(pipeline: Pipeline, error: Unbelieved) -> Broken:
    """Explains a refusal: the warehouse was set back, or belongs to another manifest. Asks manifest and warehouse."""
    return _explained(pipeline, pipeline.warehouse, error.feed, error.record)


def broken(
    pipeline: Pipeline,
    patient: bool = False,
    look: Look | None = None,
    state: StepState | None = None,
    snapshots: bool = False,
) -> list[Broken]:
    """Returns the feeds whose warehouse lacks the record that the manifest believes was applied last. Writes nothing.

    If the warehouse cannot be read, for example because a drain has it open or its library is not installed, the result is
    empty, and the next load finds the fault. With `patient`, this waits for the warehouse, and raises Unavailable or
    ImportError if it stays unreadable.

    - `look`: a shared reading of the warehouse for many datasets.
    - `state`: the state of loading, if the caller has just read it.
    - `snapshots`: also reports feeds of snapshots, and reports during a full load. By default neither is reported, because the
      next snapshot replaces what is missing, and the feeds that follow it report that they need a snapshot.
    """
    state = state or pipeline.manifest.state(pipeline.load)
    if state.mode is Mode.FULL_LOAD and not snapshots:
        return []
    believed = {
        feed: state.feed(feed).believed
        for feed in pipeline.feeds
        if state.feed(feed).believed and (snapshots or pipeline.manifest.step(feed, pipeline.load.key).order != "full")
    }
    if not believed:
        return []
    with contextlib.suppress(*(() if patient else (Unavailable, ImportError))), _reader(pipeline, patient, look) as warehouse:
        fences = look.fences(warehouse) if look else warehouse.fence_records()
        lacking = [
            feed for feed, record in believed.items() if fences.get(feed) != record and warehouse.entry_of(record) is None
        ]
        return [_explained(pipeline, warehouse, feed, fences.get(feed, "")) for feed in lacking]
    return []


def broken_at(pipeline: Pipeline, warehouse: Warehouse, feed: str) -> Broken | None:
    """Returns the fault of one feed, asking a warehouse that is already open; None if there is none."""
    believed = pipeline.manifest.state(pipeline.load).feed(feed).believed
    if not believed or warehouse.entry_of(believed):
        return None
    return _explained(pipeline, warehouse, feed, warehouse.fence_records().get(feed, ""))


@contextlib.contextmanager
def _reader(pipeline: Pipeline, patient: bool, look: Look | None) -> Generator[Warehouse]:
    from manifest_platform.warehouse.apply import Warehouse, open_warehouse  # late: asking for the state must be cheap

    if patient or pipeline.has_warehouse_at_hand:
        yield pipeline.warehouse
        return
    if look:
        yield Warehouse(look.engine, pipeline.name, pipeline.schema)
        return
    with contextlib.closing(
        open_warehouse(pipeline.engine_settings, pipeline.name, pipeline.schema, read_only=True, patience=0.1)
    ) as reader:
        yield reader


def _explained(pipeline: Pipeline, warehouse: Warehouse, feed: str, record: str) -> Broken:
    reason, action = _reason(pipeline, warehouse, feed, record)
    return Broken(feed, reason, Remedy(action, target=pipeline.load.instance or ""), pipeline.load.key)


def _reason(pipeline: Pipeline, warehouse: Warehouse, feed: str, record: str) -> tuple[str, Action]:
    """Returns the fault of a warehouse whose fence names this record, or none, and the remedy."""
    state = pipeline.manifest.state(pipeline.load).feed(feed)
    loaded = f"the manifest has loaded {position_name(feed, state.watermark)}" if state.watermark else "the manifest has loads"
    place = pipeline.engine_settings.place
    entry = warehouse.entry_of(record) if record else None
    if entry is None:
        reason = (
            f"the warehouse at {place} has no load of feed {feed}, and {loaded}: it was emptied or is a different"
            " warehouse. If the place is wrong, correct `warehouse` in the configuration. If it was emptied,"
            " load again what it lacks"
        )
        return reason, Action.RECONCILE
    applied = f"{entry.applied_at:%Y-%m-%d %H:%M:%S %Z}"
    key = ItemKey.at(entry.feed, entry.position)
    try:
        records = pipeline.manifest.item(key).records
    except UnknownItem:
        if not pipeline.source.holds(key.id):
            reason = (
                f"the warehouse at {place} is a different warehouse: its newest load of feed {feed}, {entry.item} of {applied},"
                " was never made by this manifest. Correct `warehouse` in the configuration, or accept this warehouse"
                " on purpose"
            )
            return reason, Action.ACCEPT_WAREHOUSE
        reason = (
            f"the warehouse at {place} lacks {position_name(feed, state.watermark)}, which the manifest has loaded, and has"
            f" {key.name}, of {applied}, which the manifest does not know: both were set back. Discover that directory first"
        )
        return reason, Action.DISCOVER_ALL
    name = key.name
    if any(one.record_id == record for one in records):
        reason = (
            f"the warehouse at {place} was set back: its newest load of feed {feed} is {name}, of {applied}, and {loaded}."
            " Load again what it lacks"
        )
        return reason, Action.RECONCILE
    # The directory is ours, and the attempt is unknown. Reconcile asks the ledger about each item, so it fits both cases.
    reason = (
        f"the warehouse at {place} lacks the newest load of feed {feed} that the manifest knows, and {loaded}. Its own newest"
        f" load is {name}, of {applied}, by an attempt that the manifest does not know. Both were set back, or another manifest"
        " loads the same directories. If the place is wrong, correct `warehouse` in the configuration."
        " Otherwise load again what it lacks"
    )
    return reason, Action.RECONCILE
