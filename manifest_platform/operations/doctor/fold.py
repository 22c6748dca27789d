"""The state of each ordered step, derived from the records of all items alone.

Belongs here: the fold over items, pure. The rules for a single item are the manifest's own.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from manifest_platform.manifest import Application, FeedState, Item, ItemKey, State, Step, StepState
from manifest_platform.manifest.dataset import BEYOND_IDS, PASSED, Mode, judge
from manifest_platform.manifest.transitions import counted_as

COUNTERS = ("applied", "skipped", "quarantined", "late", "reloads")


@dataclass(frozen=True)
class Loads:
    """The sums of an application's snapshots: its newest epoch, and the snapshot loaded last.

    `full`: the position of the snapshot whose full load is in progress. `serving`, `boundary`: epoch and stop time of the
    snapshot loaded last; 1 and None if none was loaded.
    """

    epoch: int = 1
    full: str | None = None
    serving: int = 1
    boundary: str | None = None


def fold_loads(application: Application, snapshots: Iterable[Item]) -> Loads:
    """Derives the full loads from the snapshots' records."""
    loads, newest = Loads(), 0
    for item in snapshots:
        events = [*item.full_loads(application)]
        for record in item.records:
            if record not in events and record.application.key != application.key:
                continue  # another target's
            event, epoch = record.data.get("full_load"), record.epoch or 0
            loads = dataclasses.replace(loads, epoch=max(loads.epoch, epoch))
            if event == "begun" and epoch > newest:
                newest, loads = epoch, dataclasses.replace(loads, full=item.key.position)
            elif event == "cancelled" and epoch >= newest:
                newest, loads = epoch, dataclasses.replace(loads, full=None)
            elif record.state is State.PROCESSED and record.application.key == application.key and epoch > loads.serving:
                stop = item.landed.stop if item.landed else None
                full = None if epoch >= newest else loads.full
                newest, loads = max(newest, epoch), dataclasses.replace(loads, serving=epoch, boundary=stop, full=full)
    return loads


@dataclass
class Fold:
    """The state of an ordered step on a feed, derived item by item in order.

    `covered`: true if the snapshots of `loads` cover the feed. `looked`: the position up to which the stored state claims that
    no item was missed; `lost`: the items that contradict this claim.
    """

    step: Step
    feed: str
    loads: Loads = Loads()
    covered: bool = False
    looked: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    watermark: str = ""
    stop: str | None = None
    seen: str = ""
    epoch: int = 1
    lost: list[ItemKey] = field(default_factory=list)
    swept: str | None = None

    def __post_init__(self) -> None:
        if self.covered and self.loads.boundary is not None:
            self.watermark = self.boundary = f"{self.loads.boundary}#{BEYOND_IDS}"
            self.stop = self.loads.boundary
        else:
            self.boundary = ""

    @property
    def serving(self) -> int:
        """The epoch from which work on the feed counts."""
        return self.loads.serving if self.covered else 1

    def add(self, item: Item) -> None:
        """Counts one more item."""
        application, position = self.step.application, item.key.position
        if (behind := item.starts_behind(application)) and behind > self.boundary:
            self.watermark = self.boundary = behind  # the step began again with this item
            self.stop, self.swept, self.lost = None, None, []
        state = StepState().with_feed(self.feed, serving_epoch=self.serving, boundary=self.boundary)
        if counted := counted_as(item, self.step, state):
            self.counts[counted] += 1
        own = (record.epoch or 1 for record in item.records if record.application.key == application.key)
        self.epoch = max(self.epoch, max(own, default=1))
        if self.step.order != "strict":
            return
        late = item.is_late_for(application, self.serving)
        reloads = item.is_reload_asked(application)
        done = reloads or item.processed_by(application, self.serving)
        if done and not late and position > self.watermark:
            self.watermark, self.stop = position, item.landed.stop if item.landed else None
        if not late and not reloads and judge(item, self.step, state.feed(self.feed)).standing not in PASSED:
            self.swept = self.seen if self.swept is None else self.swept
            if position <= self.looked:
                self.lost.append(item.key)
        self.seen = position

    def feed_state(self, stored: FeedState) -> FeedState:
        """Returns the feed's state as it should be. `swept` is never raised beyond the stored one."""
        counters = {name: self.counts[name] for name in COUNTERS}
        if self.step.order != "strict":
            return dataclasses.replace(stored, **counters)
        passed = max(self.seen, self.boundary) if self.swept is None else self.swept
        # Discovery relies on the stored watermark while this runs. Items beyond it must be looked for again.
        swept = min(stored.swept, passed, self.watermark)
        return dataclasses.replace(
            stored,
            watermark=self.watermark,
            swept=max(swept, self.boundary),
            stop=self.stop,
            serving_epoch=self.serving,
            boundary=self.boundary,
            **counters,
        )


def fold_state(stored: StepState, loads: Loads, folds: Sequence[Fold]) -> StepState:
    """Returns an ordered step's state as it should be: mode and epoch from its snapshots, the rest from its feeds."""
    feeds = {fold.feed: fold.feed_state(stored.feed(fold.feed)) for fold in folds}
    kept = {name: feed for name, feed in feeds.items() if name in stored.feeds or feed != FeedState()}
    return dataclasses.replace(
        stored,
        mode=Mode.FULL_LOAD if loads.full else Mode.INCREMENTAL,
        epoch=max(loads.epoch, *(fold.epoch for fold in folds)) if folds else loads.epoch,
        boundary=loads.boundary,
        full=loads.full,
        feeds={**stored.feeds, **kept},
    )
