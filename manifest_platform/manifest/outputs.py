"""Outputs: what an application made of an item, from which records, and if it is current.

Belongs here: the one rule that decides which output may be read, for declared steps and for other applications alike. An output
is current while its record counts in the serving epoch, and every record that it was made from is current.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from manifest_platform.manifest.dataset import Step, StepState, position_name
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.records import Application, Payload, Record, State
from manifest_platform.manifest.store import Write
from manifest_platform.manifest.transitions import put_state

MADE_FROM = "made_from"
"""The key of an output's payload that names the records it was made from."""


class NotCurrent(Refused):
    """An output that may not be read: nothing was committed, or it is superseded. The message says by what."""


@dataclass(frozen=True)
class Made:
    """A record that an output was made from: its id, its application, its item, and its epoch."""

    application: str
    record: str
    key: ItemKey
    epoch: int | None = None

    @classmethod
    def by(cls, key: ItemKey, record: Record) -> Self:
        """The reference to a Processed record of an item."""
        return cls(record.application.key, record.record_id, key, record.epoch)

    def to_dict(self, of: ItemKey) -> dict[str, Any]:
        """The form in which an output of the item `of` names the record. An output's own item is left out."""
        where = {"feed": self.key.feed, "position": self.key.position} if self.key != of else {}
        return {
            "application": self.application,
            "record": self.record,
            **where,
            **({"epoch": self.epoch} if self.epoch else {}),
        }

    @classmethod
    def of(cls, key: ItemKey, record: Record) -> tuple[Self, ...]:
        """The records that the output of an item was made from. Empty for an application or a release that does not say."""
        return tuple(
            cls(
                one["application"],
                one["record"],
                ItemKey.at(one["feed"], one["position"]) if "feed" in one else key,
                one.get("epoch"),
            )
            for one in record.data.get(MADE_FROM, ())
        )


def made_of(key: ItemKey, payload: Payload, made_from: Iterable[Made]) -> Payload:
    """The payload of an item's output, with the records that it was made from."""
    named = [one.to_dict(key) for one in dict.fromkeys(made_from)]
    return Payload(payload.schema, {**payload.data, **({MADE_FROM: named} if named else {})})


def epoch_of(made_from: Iterable[Made]) -> int | None:
    """The epoch of an output: the newest epoch of the records it was made from; None if none of them has an epoch."""
    return max((one.epoch for one in made_from if one.epoch is not None), default=None)


class Outputs:
    """The outputs of a dataset's items at one moment: each item and each feed's epochs are read once.

    `item` reads an item; `serving` reads the serving epochs of a feed by application key.
    """

    def __init__(self, item: Callable[[ItemKey], Item], serving: Callable[[str], Mapping[str, int]]):
        self._read_item, self._read_serving = item, serving
        self._items: dict[ItemKey, Item] = {}
        self._serving: dict[str, Mapping[str, int]] = {}

    def item(self, key: ItemKey) -> Item:
        """The item with a key, as it was when it was first read. Raises UnknownItem."""
        if key not in self._items:
            self._items[key] = self._read_item(key)
        return self._items[key]

    def keep(self, item: Item) -> None:
        """Keeps an item that the caller has just read, so that it is not read again."""
        self._items.setdefault(item.key, item)

    def current(self, key: ItemKey, application: Application) -> Record:
        """The record of an application's current output of an item. Raises NotCurrent if it is not done, or superseded."""
        item, serving = self.item(key), self._epochs(key.feed).get(application.key, 0)
        record = item.processed_by(application, serving)
        if record is None:
            raise NotCurrent(_not_done(item, application, serving))
        if why := self._why_superseded(key, record):
            raise NotCurrent(f"what {application.key} made of {key.name} is superseded: {why}. It must be made again")
        return record

    def require_current(self, made_from: Iterable[Made]) -> None:
        """Raises NotCurrent if one of these records was superseded since it was read."""
        for made in made_from:
            if why := self._superseded(made):
                raise NotCurrent(f"superseded while this was made: {why}. It must be made again")

    def _epochs(self, feed: str) -> Mapping[str, int]:
        if feed not in self._serving:
            self._serving[feed] = self._read_serving(feed)
        return self._serving[feed]

    def _why_superseded(self, key: ItemKey, record: Record) -> str:
        return next((why for made in Made.of(key, record) if (why := self._superseded(made))), "")

    def _superseded(self, made: Made) -> str:
        """The reason why a record that an output was made from does not count; empty if it counts."""
        application, name = dataclasses.replace(Application.parse(made.application), exact=True), made.key.name
        serving = self._epochs(made.key.feed).get(made.application, 0)
        if made.epoch is not None and made.epoch < serving:
            return (
                f"it was made from what {made.application} did of {name} in epoch {made.epoch}, but epoch {serving} serves now"
            )
        try:
            now = self.current(made.key, application)
        except NotCurrent as error:
            return str(error)
        if now.record_id != made.record:
            return f"{made.application} did {name} again at {now.timestamp:%Y-%m-%d %H:%M:%S %Z}"
        return ""


def _not_done(item: Item, application: Application, serving: int) -> str:
    """The reason why an application has no current output of an item."""
    name = item.key.name
    for record in reversed(item.records):
        if application.key in record.data.get("reopens", ()):
            return f"{application.key} must do {name} again ({record.data.get('reason', 'no reason')}), and has not yet"
        if record.state is State.PROCESSED and application.is_done_by(record.application):
            return (
                f"what {application.key} did of {name} in epoch {record.epoch} is superseded:"
                f" since a full load, epoch {serving} serves"
            )
    return f"{name} is not done by {application.key}: nothing is committed to read"


# Full loads, for steps downstream of an ordered step


def following(step: Step, feed: str, steps: Sequence[Step], states: Mapping[str, StepState]) -> list[Write]:
    """The writes by which an ordered step begins again after a full load of its upstream; empty if it has done so.

    One change of one row: the step's work before that epoch does not count any more, and items before the boundary are
    contained in the snapshot. `steps`: all steps of the feed; `states`: the states of the ordered steps.
    """
    ahead_of = leader(step, feed, steps, states)
    own = states[step.application.key]
    if ahead_of is None or ahead_of.feed(feed).serving_epoch <= own.feed(feed).serving_epoch:
        return []
    ahead = ahead_of.feed(feed)
    boundary = ahead.boundary
    begun = own.with_feed(
        feed,
        watermark=boundary,
        swept=boundary,
        boundary=boundary,
        stop=position_name(feed, boundary) or None,
        serving_epoch=ahead.serving_epoch,
        applied=0,
        late=0,
        quarantined=0,
    )
    return [put_state(step.application, dataclasses.replace(begun, epoch=max(own.epoch, ahead.serving_epoch)))]


def leader(step: Step, feed: str, steps: Sequence[Step], states: Mapping[str, StepState]) -> StepState | None:
    """The state with the newest serving epoch, of the ordered steps that a step waits for, directly or indirectly."""
    named = {one.application.key: one for one in steps}
    upstream = [named[name] for name in step.upstream if name in named]
    found = [states[one.application.key] for one in upstream if one.ordered]
    found += [state for one in upstream if (state := leader(one, feed, steps, states))]
    return max(found, key=lambda state: state.feed(feed).serving_epoch, default=None)
