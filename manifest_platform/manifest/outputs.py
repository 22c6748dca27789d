"""Outputs: what was made of an item, from which records, and whether it is current.

Belongs here: the one rule of what may be read, the same for the declared steps and for applications outside of them. An output
is current while its record counts, in the epoch that serves, and while every record that it was made from is still current.
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
"""Where an output's payload names the records that it was made from."""


class NotCurrent(Refused):
    """There is no output that may be read: nothing was committed, or what was is superseded; the message says by what."""


@dataclass(frozen=True)
class Made:
    """A record that an output was made from: its id, by which application, on which item, and in which epoch."""

    application: str
    record: str
    key: ItemKey
    epoch: int | None = None

    @classmethod
    def by(cls, key: ItemKey, record: Record) -> Self:
        """The reference to a Processed record of an item."""
        return cls(record.application.key, record.record_id, key, record.epoch)

    def to_dict(self, of: ItemKey) -> dict[str, Any]:
        """The form in which an output of the item `of` names it: its own item is not named."""
        where = {"feed": self.key.feed, "position": self.key.position} if self.key != of else {}
        return {
            "application": self.application,
            "record": self.record,
            **where,
            **({"epoch": self.epoch} if self.epoch else {}),
        }

    @classmethod
    def of(cls, key: ItemKey, record: Record) -> tuple[Self, ...]:
        """What the output of an item was made from; nothing for one of a release or an application that does not say."""
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
    """The payload of an item's output, with what the output was made from."""
    named = [one.to_dict(key) for one in dict.fromkeys(made_from)]
    return Payload(payload.schema, {**payload.data, **({MADE_FROM: named} if named else {})})


def epoch_of(made_from: Iterable[Made]) -> int | None:
    """The epoch of an output: the newest of what it was made from; None where no part of that belongs to an epoch."""
    return max((one.epoch for one in made_from if one.epoch is not None), default=None)


class Outputs:
    """The outputs of a dataset's items as they stand at one moment: each item and each feed's epochs are read once.

    `item` reads an item, `serving` the serving epochs of a feed by application key.
    """

    def __init__(self, item: Callable[[ItemKey], Item], serving: Callable[[str], Mapping[str, int]]):
        self._read_item, self._read_serving = item, serving
        self._items: dict[ItemKey, Item] = {}
        self._serving: dict[str, Mapping[str, int]] = {}

    def item(self, key: ItemKey) -> Item:
        """The item of a key, as it was when it was read first. Raises UnknownItem."""
        if key not in self._items:
            self._items[key] = self._read_item(key)
        return self._items[key]

    def keep(self, item: Item) -> None:
        """Keeps an item that was read just now, so that it is not read again."""
        self._items.setdefault(item.key, item)

    def current(self, key: ItemKey, application: Application) -> Record:
        """The record of what an application made of an item. Raises NotCurrent where that is not done, or superseded."""
        item, serving = self.item(key), self._epochs(key.feed).get(application.key, 0)
        record = item.processed_by(application, serving)
        if record is None:
            raise NotCurrent(_not_done(item, application, serving))
        if why := self._why_superseded(key, record):
            raise NotCurrent(f"what {application.key} made of {key.name} is superseded: {why}. It must be made anew")
        return record

    def require_current(self, made_from: Iterable[Made]) -> None:
        """Raises NotCurrent where one of these records was superseded since it was read."""
        for made in made_from:
            if why := self._superseded(made):
                raise NotCurrent(f"superseded while this was made: {why}. It must be made anew")

    def _epochs(self, feed: str) -> Mapping[str, int]:
        if feed not in self._serving:
            self._serving[feed] = self._read_serving(feed)
        return self._serving[feed]

    def _why_superseded(self, key: ItemKey, record: Record) -> str:
        return next((why for made in Made.of(key, record) if (why := self._superseded(made))), "")

    def _superseded(self, made: Made) -> str:
        """Why a record counts no more that something was made from; empty where it does."""
        application, name = Application.parse(made.application), made.key.name
        serving = self._epochs(made.key.feed).get(made.application, 0)
        if made.epoch is not None and made.epoch < serving:
            return (
                f"it was made from what {made.application} did of {name} in epoch {made.epoch}, and epoch {serving} serves now"
            )
        try:
            now = self.current(made.key, application)
        except NotCurrent as error:
            return str(error)
        if now.record_id != made.record:
            return f"{made.application} did {name} anew at {now.timestamp:%Y-%m-%d %H:%M:%S %Z}"
        return ""


def _not_done(item: Item, application: Application, serving: int) -> str:
    """Why nothing counts of what an application did of an item."""
    name = item.key.name
    for record in reversed(item.records):
        if application.key in record.data.get("reopens", ()):
            return f"{name} is to be done again by {application.key} ({record.data.get('reason', 'no reason')}), and is not yet"
        if record.state is State.PROCESSED and application.is_done_by(record.application):
            return (
                f"what {application.key} did of {name} in epoch {record.epoch} is superseded:"
                f" since a full load, epoch {serving} serves"
            )
    return f"{name} is not done by {application.key}: nothing is committed to read"


# Full loads, for steps that wait for a step in order


def following(step: Step, feed: str, steps: Sequence[Step], states: Mapping[str, StepState]) -> list[Write]:
    """The writes by which an ordered step begins anew where a full load of what it waits for left off; none where it has.

    One change of one row: what it did before that epoch counts no more, what lies before the boundary is contained.
    `steps`: all of the feed; `states`: of the ordered ones.
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
    """The state of the ordered step with the newest serving epoch, of those that a step waits for, near or far."""
    named = {one.application.key: one for one in steps}
    upstream = [named[name] for name in step.upstream if name in named]
    found = [states[one.application.key] for one in upstream if one.ordered]
    found += [state for one in upstream if (state := leader(one, feed, steps, states))]
    return max(found, key=lambda state: state.feed(feed).serving_epoch, default=None)
