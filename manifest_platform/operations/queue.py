"""A dataset as a control table: one row for the dataset, and one for each item with its status, attempts, last error and epoch.

Belongs here: the translation of records to the columns of such tables, which operators of many loaders know. The rows are
derived on each call. Nothing is stored, so nothing can differ from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice

from manifest_platform.manifest import Application, Item, ItemKey, Standing, State, Step, StepState
from manifest_platform.manifest.dataset import judge, position_name
from manifest_platform.operations.standing import Answer, Outlook, outlook
from manifest_platform.pipeline import LOAD, SHRED, Pipeline


class Status(StrEnum):
    """The status of an item. Control tables of other loaders lack the last three."""

    NEW = "NEW"
    READY = "READY"
    PROCESSING = "PROCESSING"
    APPLIED = "APPLIED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    SKIPPED = "SKIPPED"
    QUARANTINED = "QUARANTINED"


_STATUS = {
    Standing.DONE: Status.APPLIED,
    Standing.WAITING: Status.NEW,
    Standing.PROCESSING: Status.PROCESSING,
    Standing.FAILED: Status.FAILED,
    Standing.INVALID: Status.FAILED,
    Standing.SUPERSEDED: Status.SUPERSEDED,
    Standing.SKIPPED: Status.SKIPPED,
    Standing.CUT_OFF: Status.SKIPPED,
    Standing.LATE: Status.QUARANTINED,
}


@dataclass(frozen=True)
class QueueRow:
    """An item as a row. `filetype`: its feed. `start_time`, `stop_time`: of its window; without one, `stop_time` is its time.

    `attempt_count`: attempts of `load`, and failed ones of `shred`, without those that an outage ended. `last_error`: of the
    newest failure, even if a later attempt succeeded. `epoch`: in which the item was or will be loaded. `full_load_started_at`:
    for a snapshot, when its newest full load began. `detail`: the reason why the item waits.
    """

    item: ItemKey
    filetype: str
    start_time: str | None
    stop_time: str
    status: Status
    attempt_count: int
    last_error: str | None
    epoch: int
    full_load_started_at: datetime | None
    detail: str


@dataclass(frozen=True)
class ControlRow:
    """A dataset as a row. `watermarks`: by feed, the name of the newest item such that it and all items before it are loaded.

    `locks`: by feed, the holder of the lease and its expiry. `blocked_by`: by feed, the item that blocks it, and why.
    """

    dataset: str
    origin: str | None
    mode: str
    current_epoch: int
    base_boundary: str | None
    watermarks: dict[str, str | None]
    full_load: str | None
    full_load_started_at: datetime | None
    locks: dict[str, str]
    blocked_by: dict[str, str]


def queue(pipeline: Pipeline, limit: int, filetype: str | None = None) -> tuple[ControlRow, list[QueueRow]]:
    """Returns a dataset's control row, and each feed's newest `limit` items, newest first. Raises Refused for unknown feeds."""
    manifest = pipeline.manifest
    feeds = [filetype] if filetype else [*pipeline.feeds]
    steps = {feed: manifest.step(feed, pipeline.load.key) for feed in feeds}
    kept = manifest.kept()
    state = kept.state(pipeline.load.key)
    outlooks = {feed: outlook(pipeline, feed, pipeline.load.key) for feed in feeds}
    begun = _begun(pipeline, state)
    rows: list[QueueRow] = []
    for feed in feeds:
        newest = islice(manifest.items(feed, page=max(2 * limit, 40), reverse=True), limit)
        rows += [_row(item, steps[feed], state, outlooks[feed], feed in pipeline.source.on_demand) for item in newest]
    now = pipeline.clock()
    leases = {feed: lease for (name, feed), lease in kept.leases.items() if name == pipeline.load.key and lease.is_live(now)}
    blocked = {feed: one for feed, one in outlooks.items() if one.answer is Answer.BLOCKED}
    control = ControlRow(
        dataset=pipeline.name,
        origin=pipeline.source.origin,
        mode=str(state.mode),
        current_epoch=state.epoch,
        base_boundary=state.boundary,
        watermarks={
            feed: _watermark(feed, state) for feed in pipeline.feeds if manifest.step(feed, pipeline.load.key).order == "strict"
        },
        full_load=position_name(pipeline.source.snapshots or "", state.full) if state.full else None,
        full_load_started_at=full_load_started_at(begun, pipeline.load) if begun else None,
        locks={
            feed: f"{held.holder}, token {held.token}, until {held.expires_at:%H:%M:%S} UTC" for feed, held in leases.items()
        },
        blocked_by={feed: f"{one.item}: {one.reason}" for feed, one in blocked.items()},
    )
    return control, rows


def _watermark(feed: str, state: StepState) -> str | None:
    return position_name(feed, state.feed(feed).watermark) or None


def _begun(pipeline: Pipeline, state: StepState) -> Item | None:
    """The snapshot whose full load is in progress."""
    feed = pipeline.source.snapshots
    return pipeline.manifest.item(ItemKey.at(feed, state.full)) if feed and state.full else None


def full_load_started_at(snapshot: Item, load: Application) -> datetime | None:
    """The time of the newest full load of a snapshot; None if none was begun."""
    begun = [one.timestamp for one in snapshot.full_loads(load) if one.data["full_load"] == "begun"]
    return begun[-1] if begun else None


def _row(item: Item, step: Step, state: StepState, next_: Outlook, on_demand: bool) -> QueueRow:
    feed = item.key.feed
    # A gap is judged only for the next item: those behind it are ready once it is done.
    judged = judge(item, replace(step, gap="none"), state.seen_by(step, feed))
    status, detail = _STATUS.get(judged.standing, Status.READY), judged.reason
    working = judged.record is not None and judged.record.application.name == SHRED
    if judged.standing is Standing.PROCESSING and working:
        status = Status.NEW
    if on_demand and status is Status.NEW and not working:
        status, detail = Status.READY, "a full load may be begun with it"
    if status is Status.READY and next_.item == item.key.name and next_.answer is Answer.BLOCKED:
        detail = next_.reason
    landed = item.landed
    loads = [one for one in item.records if one.application.key == step.application.key and one.epoch is not None]
    return QueueRow(
        item=item.key,
        filetype=feed.upper(),
        start_time=landed.start if landed else None,
        stop_time=landed.stop if landed and landed.stop else item.key.sort,
        status=status,
        attempt_count=sum(1 for _ in attempts(item, step.application.key)),
        last_error=next((one.data.get("message") for one in reversed(item.records) if one.state is State.FAILED), None),
        epoch=loads[-1].epoch or state.epoch if loads and status not in (Status.NEW, Status.READY) else state.epoch,
        full_load_started_at=full_load_started_at(item, step.application),
        detail="" if status is Status.APPLIED else detail,
    )


def attempts(item: Item, load: str = LOAD) -> Iterator[str]:
    """Yields the record ids of the attempts that count: attempts of a load, and failed attempts of shred.

    Attempts that were resolved do not count: they ended in an outage, or before they wrote anything.
    """
    ends = {record.previous: record for record in item.records if record.previous and record.state is not State.SKIPPED}
    for record in item.records:
        if record.state is not State.PROCESSING:
            continue
        end = ends.get(record.record_id)
        put_back = end is not None and end.state is State.RESOLVED
        failed = end is not None and end.state is State.FAILED
        if (record.application.key == load and not put_back) or (record.application.name == SHRED and failed):
            yield record.record_id
