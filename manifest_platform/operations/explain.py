"""`explain`: one paragraph on what happens next with an item, and why not sooner, for a reader new to the manifest.

Belongs here: the sentences. The manifest alone decides the standing of an item.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from manifest_platform.manifest import Blocked, Holding, Item, ItemKey, LeaseState, Manifest, Ready, Record, Standing, Step
from manifest_platform.manifest.dataset import PASSED, Judgement, judge, position_name
from manifest_platform.manifest.item import ITEMS
from manifest_platform.manifest.transitions import BEHIND_THE_WATERMARK
from manifest_platform.operations.bad_rows import clause_of
from manifest_platform.operations.standing import helping, working
from manifest_platform.operations.told import some_of
from manifest_platform.pipeline.chain import Broken
from manifest_platform.quantities import moment, size_of
from manifest_platform.remedies import Action, Remedy, after_failure
from manifest_platform.warehouse.errors import IncompatibleChange


@dataclass(frozen=True)
class StepView:
    """The standing of an item for one step. `before`: how many items an ordered step takes before it; `first`: the first."""

    step: Step
    judged: Judgement
    before: int = 0
    first: Blocked | Ready | None = None

    @property
    def name(self) -> str:
        """The step's name for people."""
        return self.step.application.key


@dataclass(frozen=True)
class Explanation:
    """The paragraph, and the standings by step from which it was made."""

    text: str
    views: tuple[StepView, ...]


def explanation(
    manifest: Manifest,
    key: ItemKey,
    told: Callable[[Remedy], str],
    now: datetime,
    chain: Iterable[Broken] = (),
    without: Collection[str] = (),
    blackout: str = "",
) -> Explanation:
    """Explains what happens next with an item. `told`: formats a remedy for the reader. Raises UnknownItem.

    `chain`: the feeds whose warehouse differs from what the manifest believes. For them, loading is stopped.
    `blackout`: the reason why nothing is loaded now. `without`: steps that the reader did not ask for.
    """
    item = manifest.item(key)
    views = tuple(_views(manifest, item, without))
    words = _Words(manifest, item, told, now)
    held = [
        f"However, {one.step} is stopped, and rows that the manifest has as loaded may be missing: {one.reason}:"
        f" `{told(one.remedy)}`."
        for one in chain
        if one.feed == key.feed
    ]
    if blackout and any(view.step.ordered and view.judged.standing not in PASSED for view in views):
        held.append(f"However, {blackout}.")
    return Explanation(" ".join([*words.sentences(views), *held]), views)


def _views(manifest: Manifest, item: Item, without: Collection[str]) -> Iterator[StepView]:
    feed = item.key.feed
    for step in manifest.steps(feed):
        if step.application.key in without:
            continue
        state = manifest.state(step.application)
        judged = judge(item, step, state.seen_by(step, feed))
        if step.order != "strict" or judged.standing in PASSED or judged.standing is Standing.LATE:
            yield StepView(step, judged)
            continue
        verdict = manifest.next(feed, step.application.key)
        first = verdict if isinstance(verdict, Ready | Blocked) and verdict.item.key != item.key else None
        before, judged = _in_turn(manifest, item, step, judged) if first else (0, judged)
        if isinstance(verdict, Blocked) and (not first or verdict.standing is Standing.MODE):
            # For the item itself the verdict knows more: whether the feed is held, and the stop time of the item before it.
            judged = Judgement(verdict.standing, verdict.reason, judged.record)
        yield StepView(step, judged, before, first)


def _in_turn(manifest: Manifest, item: Item, step: Step, judged: Judgement) -> tuple[int, Judgement]:
    """Returns the number of items that a strict step takes before an item, and the item's standing once they are done.

    Compared with the present watermark instead, every item behind the next window would appear to follow a gap.
    """
    before = 0
    for one, supposed in manifest.backlog(item.key.feed, step.application.key):
        if one.key == item.key:
            return before, supposed
        before += supposed.standing is not Standing.LATE
    return 0, judged  # it was done meanwhile


class _Words:
    """Builds the sentences on one item."""

    def __init__(self, manifest: Manifest, item: Item, told: Callable[[Remedy], str], now: datetime):
        self.manifest, self.item, self.now = manifest, item, now
        self.name = item.key.name
        self._told = told

    def sentences(self, views: tuple[StepView, ...]) -> Iterator[str]:
        """Yields how the item was registered, then some sentences on each step. Steps stopped by the same record share them."""
        yield self._arrival()
        for (standing, record), group in groupby(views, key=lambda view: (view.judged.standing, view.judged.record)):
            same = list(group)
            if standing is Standing.INVALID:
                yield self._invalid(same[0].judged)
            elif standing in (Standing.SKIPPED, Standing.FAILED, Standing.PROCESSING) and record:
                yield self._of_record(standing, record, same)
            else:
                for view in same:
                    yield self._of_step(view)
            for view in same:
                if view.first and standing is not Standing.MODE:
                    yield self._order(view, view.first)
        yield from self._deleted()

    def _deleted(self) -> Iterator[str]:
        """Yields what retention has deleted of the item, and what that means."""
        landing, shredded = map(self.item.deletion_of, (Holding.LANDING, Holding.SHREDDED))
        bad = None if shredded else self.item.deletion_of(Holding.BAD)
        if landing:
            yield (
                f"Its landed directory was deleted by retention on {landing.timestamp:%Y-%m-%d}: it can only be shredded again"
                " after the directory was restored from a backup."
            )
        if made := shredded or bad:
            what = "shredded output was" if shredded else "bad rows were"
            again = "It can no longer be loaded again." if landing else f"{self._do(Action.RESHRED)} makes them again."
            yield f"Its {what} deleted by retention on {made.timestamp:%Y-%m-%d}. {again}"

    def _arrival(self) -> str:
        registered = moment(self.item.records[0].timestamp)
        landed = self.item.landed
        told = landed and self.item.key.feed != ITEMS  # the numbers of an item that a program registered are not measured here
        what = f" ({landed.files:,} files, {size_of(landed.bytes)})" if landed and told else ""
        return f"{self.name} was registered in feed {self.item.key.feed} at {registered}{what}."

    def _invalid(self, judged: Judgement) -> str:
        look = self._do(Action.READ_RECORDS)
        return (
            f"No step takes it, because {judged.reason}. Another program has changed the log. {look} shows its records;"
            " restore them from a backup or a dump."
        )

    def _of_record(self, standing: Standing, record: Record, views: list[StepView]) -> str:
        if standing is Standing.SKIPPED:
            return self._skipped(record, views)
        waits = [view.name for view in views if view.name != record.application.key]
        others = f" {_and(waits)} cannot take it before this is settled." if waits else ""
        return (self._failed(record) if standing is Standing.FAILED else self._processing(record)) + others

    def _skipped(self, record: Record, views: list[StepView]) -> str:
        passes = "passes" if len(views) == 1 else "pass"
        said = f"{record.author} decided so at {moment(record.timestamp)} ({record.data.get('reason') or 'no reason given'})"
        lift = self._do(Action.UNSKIP)
        return f"{_and([view.name for view in views])} {passes} over it: {said}. {lift} admits it again."

    def _failed(self, record: Record) -> str:
        kind, message = record.data.get("kind", "failed"), str(record.data.get("message", "no message")).rstrip(".")
        over, helps = self._do(Action.SKIP), after_failure(record.data.get("remedy"), self.name)
        command = f"`{self._told(helps)}`"
        if helps.action is Action.RESOLVE:
            command = f"{command} frees it for another attempt once the cause is fixed"
        if helps.action is Action.BEGIN_FULL_LOAD and record.data.get("exception") == IncompatibleChange.__name__:
            command = f"{command}, or, if its type was wrong, correct shred.types and then {self._do(Action.RESHRED)}"
        return (
            f"{record.application.key} failed on it at {moment(record.timestamp)} ({kind}): {message}. It waits for a person:"
            f" {command}; {over} passes over it permanently."
        )

    def _processing(self, record: Record) -> str:
        who = record.application.key
        lease = self.manifest.lease(record.application, self.item.key.feed)
        if lease and lease.is_live(self.now) and lease.token == (record.token or lease.token):
            return (
                f"{who} has been working on it since {moment(record.timestamp)}: {lease.holder} holds the lease until"
                f" {moment(lease.expires_at)} and extends it while the worker lives."
            )
        ended = f"its lease ended at {moment(lease.expires_at)}" if lease else "it holds no lease"
        ended = "its lease was given back" if lease and lease.given_back else ended
        if lease and lease.is_live(self.now):
            ended = f"{lease.holder} holds the lease now"
        return (
            f"{who} began to work on it at {moment(record.timestamp)}, and that worker is gone ({ended})."
            f" {self._drain(who)} settles the unfinished work."
        )

    def _of_step(self, view: StepView) -> str:
        judged, who = view.judged, view.name
        match judged.standing:
            case Standing.DONE:
                return self._done(view)
            case Standing.SUPERSEDED:
                return f"{who} passes over it, because {judged.reason}. There is nothing to do."
            case Standing.LATE:
                return self._set_aside(view)
            case Standing.READY:
                return self._ready(view)
            case Standing.WAITING:
                return f"{who} waits, because {judged.reason}."
            case Standing.CUT_OFF:
                lift = self._do(Action.UNSKIP)
                over = self._do(Action.SKIP)
                skipping = judged.reason.partition(",")[0]
                return (
                    f"{who} never gets it, because {skipping}: {lift} admits it for all steps, {over} skips it for all steps."
                )
            case Standing.GAP:
                capture, full = self._do(Action.CAPTURE), self._do(Action.BEGIN_FULL_LOAD)
                return (
                    f"{who} stops before it ({judged.reason}): the windows between have not landed. {capture} fetches them; if"
                    f" another program lands them, it must do so. If they never come, only a full load closes the gap: {full}."
                )
            case Standing.OVERLAP:
                over, full = self._do(Action.SKIP), self._do(Action.BEGIN_FULL_LOAD)
                return (
                    f"{who} stops before it ({judged.reason}): part of its content is already loaded. Check at the source which"
                    f" of the two windows is right. Then {over} passes over it, or {full} starts again from a snapshot."
                )
            case Standing.NEEDS_FULL:
                full = self._do(Action.BEGIN_FULL_LOAD)
                return f"{who} waits, because {judged.reason}: {full} loads the newest."
            case Standing.MODE:
                return f"{who} is held: {judged.reason}. It continues once that is loaded or canceled."
        raise ValueError(f"{self.name}: no words for {judged.standing} with {who}")

    def _done(self, view: StepView) -> str:
        record = view.judged.record or self.item.records[-1]
        late = ", late" if self._is_late(view.step) else ""
        if view.step.ordered:
            told = "".join(f" Note of the load: {line}." for line in some_of(record.data.get("told", ())))
            return f"{view.name} applied it in epoch {record.epoch} at {moment(record.timestamp)}{late}: it is done.{told}"
        return f"{view.name} processed it at {moment(record.timestamp)}{_bad(record)}."

    def _set_aside(self, view: StepView) -> str:
        watermark = self.manifest.state(view.step.application).feed(self.item.key.feed).watermark
        past = position_name(self.item.key.feed, watermark)
        if view.step.late == "append":
            helps = f"{self._do(Action.UNSKIP)} admits it, marked late."
        else:
            helps = f"its place in the order has passed. {BEHIND_THE_WATERMARK}."
        return f"{view.name} has quarantined it, because it arrived behind the watermark, which is at {past}: {helps}"

    def _ready(self, view: StepView) -> str:
        if view.step.order == "full" and self.manifest.state(view.step.application).full != self.item.key.position:
            note = self.item.records[-1]
            gave_up = note.data.get("full_load") == "cancelled"
            before = f"The full load with it was ended at {moment(note.timestamp)}: {note.data['reason']}. " if gave_up else ""
            return f"{before}{view.name} takes it once a full load is begun for it: {self._do(Action.LOAD_SNAPSHOT)}."
        if any(view.name in step.upstream for step in self.manifest.steps(self.item.key.feed) if step.order == "full"):
            return f"{view.name} takes it when a full load begins with it: {self._do(Action.LOAD_SNAPSHOT)}."
        if view.first:
            return f"{view.name} may take it once it is next."
        lease = self.manifest.lease(view.step.application, self.item.key.feed)
        late = " It is late, and is appended." if self._is_late(view.step) else ""
        late = " The rows that it has loaded are replaced." if self.item.is_reload_asked(view.step.application) else late
        why = ", because nothing comes before it" if view.step.order == "strict" else ""
        if lease and lease.is_live(self.now):
            return (
                f"{view.name} may take it now{why}: {_holder(lease)} and takes it in its turn. If that worker is gone,"
                f" {self._drain(view.name)} takes it afterward.{late}"
            )
        return f"{view.name} may take it now{why}: {self._drain(view.name)} does so.{late}"

    def _is_late(self, step: Step) -> bool:
        feed = self.manifest.state(step.application).feed(self.item.key.feed)
        return self.item.is_late_for(step.application, feed.serving_epoch)

    def _order(self, view: StepView, first: Ready | Blocked) -> str:
        """Returns the sentence on the items that an ordered step takes before this item."""
        several = view.before > 1
        others = f"the first of {view.before:,} items" if several else "the one item"
        name = first.item.key.name
        if isinstance(first, Ready):
            come = f"that {'come' if several else 'comes'} first: {self._drain(view.name)} takes them in order."
            return f"Before it {view.name} takes {name}, {others} {come}"
        helps = self._told(helping(view.step, first))
        return f"Before it comes {name}, {others} that {view.name} must do first, and it cannot: {first.reason}: {helps}."

    def _drain(self, application: str) -> str:
        """The command that makes a step work, in backquotes."""
        return f"`{self._told(working(application))}`"

    def _do(self, action: Action) -> str:
        """The command of an action on this item, in backquotes."""
        return f"`{self._told(Remedy(action, item=self.name))}`"


def _bad(record: Record) -> str:
    """Returns the counts of an item's bad lines and of its duplicates as clauses; empty if it has none."""
    bad, lines = record.data.get("bad"), record.data.get("lines")
    said = f", and set {bad:,} of its {lines:,} lines ({bad / lines:.1%}) aside as bad" if bad and lines else ""
    return said + clause_of(record.data.get("duplicates"))


def _holder(lease: LeaseState) -> str:
    return f"{lease.holder} holds the lease until {moment(lease.expires_at)}"


def _and(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
