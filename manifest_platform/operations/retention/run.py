"""A run of retention over a dataset: what may be deleted and what is kept, and the deletion itself.

Each portion of items is recorded as deleted before anything is deleted, in a transaction that fails if an item or a step's
state has changed since it was judged. Interrupted deletions are finished first by the next run. One run works on a dataset at a
time, under the lease that also keeps rebuilds of merged objects away.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain

from manifest_platform import failpoints, progress
from manifest_platform.manifest import Application, ConditionFailed, Holding, Item, Lease
from manifest_platform.manifest.deletion import Deletion
from manifest_platform.merging import garbage
from manifest_platform.merging.errors import MergeError
from manifest_platform.merging.garbage import PLACE, UPKEEP
from manifest_platform.merging.settling import settle_rows
from manifest_platform.operations.retention.facts import (
    FactsOfFeed,
    folders_of,
    local_root,
    merging_needs,
    newest_snapshot,
)
from manifest_platform.operations.retention.merged import MergingNeeds
from manifest_platform.operations.retention.removal import NOTHING, Measured, WrittenSince, measure, remove
from manifest_platform.operations.retention.rule import Facts, Verdict, Why, judged
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.merge import Merging

PORTION = 40
"""The most items whose deletion begins in one transaction; each needs two writes."""
MERGED = "merged"
"""The name of superseded merged objects, beside those of the data of items."""


@dataclass(frozen=True)
class Kept:
    """Data of items that is kept for a reason: the number of items, and the first with the reason in words."""

    items: int
    example: str
    detail: str


@dataclass
class Tally:
    """The items whose data of a kind is deleted, and those whose data is kept, by reason.

    `costs`: what is no longer possible afterward.
    """

    kind: str
    items: int = 0
    found: Measured = NOTHING
    kept: dict[Why, Kept] = field(default_factory=dict)
    costs: Counter[str] = field(default_factory=Counter)

    def keep(self, item: Item, why: Why, detail: str) -> None:
        """Counts an item whose data is kept."""
        before = self.kept.get(why)
        self.kept[why] = dataclasses.replace(before, items=before.items + 1) if before else Kept(1, item.key.name, detail)


@dataclass
class Collected:
    """The result of a run, or of its dry run, by kind of data. `finished`: interrupted deletions that were finished.

    `failed`: what could not be removed now; it remains recorded as deleted, and the next run tries again. Also what was
    rewritten after it was recorded as deleted; it stays, and no run tries again.
    """

    dataset: str
    tallies: dict[str, Tally] = field(default_factory=dict)
    finished: int = 0
    failed: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """True if anything was deleted, or would be."""
        return bool(self.finished) or any(one.found.objects for one in self.tallies.values())


def plan(pipeline: Pipeline) -> Collected:
    """Returns what a run would delete, and why it keeps the rest. Writes and deletes nothing. Raises OSError, StoreError."""
    done = Collected(pipeline.name, finished=sum(1 for _ in pipeline.manifest.deletions()))
    if not pipeline.dataset.retention.is_on:
        return done
    now = pipeline.clock()
    shredded = pipeline.dataset.retention.shredded_days
    needs = merging_needs(pipeline, now, now - timedelta(days=shredded) if shredded else None)
    for portion in _portions(pipeline, done, needs, now):
        for item, deletion in portion:
            _count(pipeline, done, item, deletion)
    _of_merging(pipeline, done, dry_run=True)
    return done


def finish(pipeline: Pipeline) -> Collected:
    """Finishes the deletions that were interrupted, and begins none. Raises LeaseBusy, LeaseLost, StoreError."""
    done = Collected(pipeline.name)
    if next(pipeline.manifest.deletions(), None):
        with _lease(pipeline) as lease:
            _finish(pipeline, lease, done)
    return done


def collect(pipeline: Pipeline) -> Collected:
    """Deletes what retention no longer keeps. May be interrupted at any time: the next run continues.

    Raises LeaseBusy while another process deletes or rebuilds objects, LeaseLost, OSError, MergeError, StoreError.
    """
    if not pipeline.dataset.retention.is_on:
        return finish(pipeline)
    done, now = Collected(pipeline.name), pipeline.clock()
    _settle(pipeline, now)
    portions = _portions(pipeline, done, merging_needs(pipeline, now, None), now)
    if (first := next(portions, None)) or next(pipeline.manifest.deletions(), None):
        with _lease(pipeline) as lease:
            _finish(pipeline, lease, done)
            for portion in chain([first] if first else [], portions):
                _delete(pipeline, lease, done, portion)
    _of_merging(pipeline, done, dry_run=False)
    return done


def _lease(pipeline: Pipeline) -> Lease:
    """Takes the lease under which objects are removed. Raises LeaseBusy."""
    duration = timedelta(seconds=pipeline.config.lease.seconds)
    return pipeline.manifest.hold(UPKEEP, PLACE, pipeline.holder, duration)


def _settle(pipeline: Pipeline, now: datetime) -> None:
    """Deletes the rows of small objects that merged objects contain, so that no rebuild reads these objects any more."""
    days = pipeline.dataset.retention.shredded_days
    if pipeline.dataset.merge is not None and days is not None:
        settle_rows(Merging(pipeline).inventory, now - timedelta(days=days))


# Judging

Decided = list[tuple[Item, Deletion]]


@dataclass
class _Portion:
    """Items that may be deleted, with the facts reader by whose states they were judged."""

    facts: FactsOfFeed
    decided: Decided

    def __iter__(self) -> Iterator[tuple[Item, Deletion]]:
        return iter(self.decided)


def _portions(pipeline: Pipeline, done: Collected, needs: MergingNeeds | None, now: datetime) -> Iterator[_Portion]:
    """Judges the items of all feeds, and yields those that may be deleted, in portions. Counts what is kept."""
    for holding in pipeline.dataset.retention.deletes:
        done.tallies[holding] = Tally(holding)
    base = newest_snapshot(pipeline)
    for feed in pipeline.feeds if done.tallies else ():
        facts, decided = FactsOfFeed(pipeline, feed, needs, base), Decided()
        for item in progress.each(pipeline.manifest.items(feed), f"judging the items of {feed}"):
            if deletion := _judge(facts, item, done, now):
                decided.append((item, deletion))
            if len(decided) == PORTION:
                yield _Portion(facts, decided)
                facts, decided = FactsOfFeed(pipeline, feed, needs, base), Decided()
        if decided:
            yield _Portion(facts, decided)


def _judge(facts: FactsOfFeed, item: Item, done: Collected, now: datetime) -> Deletion | None:
    """Returns the deletion of the data of an item that may be deleted; None if all is kept. Counts what is kept."""
    settings, pipeline = facts.pipeline.dataset.retention, facts.pipeline
    chosen: list[Holding] = []
    for holding in settings.deletes:
        if item.deletion_of(holding) or (holding is Holding.BAD and Holding.SHREDDED in chosen):
            continue
        verdict = _verdict(facts, item, holding, chosen, now)
        if verdict.may_delete:
            chosen.append(holding)
        elif verdict.why:
            done.tallies[holding].keep(item, verdict.why, verdict.detail)
    if not chosen:
        return None
    folders = tuple(folder for holding in chosen for folder in folders_of(pipeline, item, holding))
    newest = measure(item.place).newest if Holding.LANDING in chosen else None
    return Deletion(item.key, tuple(chosen), folders, newest)


def _verdict(facts: FactsOfFeed, item: Item, holding: Holding, chosen: Sequence[Holding], now: datetime) -> Verdict:
    """Returns the verdict on an item's data. The storage is asked only if nothing in the manifest forbids the deletion."""
    settings = facts.pipeline.dataset.retention
    known = _beside(facts.known(item), chosen)
    verdict = judged(holding, known, settings, now)
    return judged(holding, _beside(facts.seen(known, holding), chosen), settings, now) if verdict.may_delete else verdict


def _beside(facts: Facts, chosen: Sequence[Holding]) -> Facts:
    """Returns the facts about an item if its shredded output is deleted, too, together with the landed directory."""
    if not chosen:
        return facts
    return dataclasses.replace(facts, copies={**(facts.copies or {}), Holding.LANDING: f"deleted now: {', '.join(chosen)}"})


# Deleting


def _delete(pipeline: Pipeline, lease: Lease, done: Collected, portion: _Portion) -> None:
    """Deletes the data of a portion of items."""
    lease.check()
    failpoints.reach("retention.judged")
    begun = _begin(portion.facts, portion.decided)
    failpoints.reach("retention.begun")
    for item, deletion in begun:
        _count(pipeline, done, item, deletion)
    _remove(pipeline, lease, done, [deletion for _, deletion in begun])


def _begin(facts: FactsOfFeed, decided: Decided) -> Decided:
    """Records deletions that are still right, together or, if that fails, each by itself. Returns those that were recorded.

    The storage is asked again, because a directory may have been rewritten since, or the other copy lost. Then the states are
    read again, so that a drain at work is no hindrance. An item that has changed is left to the next run.
    """
    there = [(item, deletion) for item, deletion in decided if _is_as_judged(facts, item, deletion)]
    fresh = facts.again()
    still = [(item, deletion) for item, deletion in there if _is_still_right(fresh, item, deletion)]
    if not still:
        return []
    pipeline, relied = facts.pipeline, [facts.base.snapshot] if facts.base else []
    try:
        pipeline.manifest.begin_deletions(facts.feed, still, fresh.states, relied, _reason(pipeline))
    except ConditionFailed:
        return [] if len(still) == 1 else [one for each in still for one in _begin(facts, [each])]
    return still


def _is_as_judged(facts: FactsOfFeed, item: Item, deletion: Deletion) -> bool:
    """True if what the storage holds now still allows a deletion."""
    now, holdings = facts.pipeline.clock(), deletion.holdings
    return all(_verdict(facts, item, one, holdings[:number], now).may_delete for number, one in enumerate(holdings))


def _is_still_right(fresh: FactsOfFeed, item: Item, deletion: Deletion) -> bool:
    """True if what the manifest says now still allows a deletion."""
    settings, now = fresh.pipeline.dataset.retention, fresh.pipeline.clock()
    return all(judged(holding, fresh.known(item), settings, now).may_delete for holding in deletion.holdings)


def _reason(pipeline: Pipeline) -> str:
    days = {name: days for name, days in pipeline.dataset.retention if days is not None}
    return f"datasets.{pipeline.name}.retention: {', '.join(f'{name} {days}' for name, days in days.items())}"


def _finish(pipeline: Pipeline, lease: Lease, done: Collected) -> None:
    left = list(pipeline.manifest.deletions())
    done.finished = _remove(pipeline, lease, done, left)


def _remove(pipeline: Pipeline, lease: Lease, done: Collected, deletions: Sequence[Deletion]) -> int:
    """Removes what recorded deletions name, and then their rows. Returns how many are done; the others remain recorded.

    A landed directory that was rewritten since it was judged stays, and its deletion is over: a person decides about it.
    """
    ended = 0
    for one in deletions:
        try:
            for folder in one.folders:
                lease.check()
                _remove_folder(pipeline, one, folder, done)
        except (OSError, ValueError, MergeError) as error:
            done.failed.append(f"{one.key.name}: {error}")
            continue
        failpoints.reach("retention.deleted")
        pipeline.manifest.end_deletions([one])
        ended += 1
    return ended


def _remove_folder(pipeline: Pipeline, deletion: Deletion, folder: str, done: Collected) -> None:
    if not pipeline.source.holds(folder):
        remove(folder, local_root(pipeline, Holding.SHREDDED))
        return
    try:
        remove(folder, local_root(pipeline, Holding.LANDING), deletion.newest)
    except WrittenSince as error:
        done.failed.append(f"{deletion.key.name}: {error}")


# Counting


def _count(pipeline: Pipeline, done: Collected, item: Item, deletion: Deletion) -> None:
    """Counts the data of an item, which is still there, and what is no longer possible without it."""
    for holding in deletion.holdings:
        tally = done.tallies[holding]
        found = sum((measure(folder) for folder in folders_of(pipeline, item, holding)), NOTHING)
        tally.items, tally.found = tally.items + 1, tally.found + found
        for cost in _costs(item, holding, deletion.holdings):
            tally.costs[cost] += 1


def _costs(item: Item, holding: Holding, deleted: Sequence[Holding]) -> Iterator[str]:
    """Yields what is no longer possible with an item, or costs more."""
    if holding is Holding.LANDING:
        yield "could not be shredded again"
    elif Holding.LANDING in deleted:
        yield "could not be loaded again"
    else:
        yield "would be shredded again before they are reloaded"
    shredded = item.processed_by(Application(SHRED))
    if holding is not Holding.LANDING and shredded and shredded.data.get("bad"):
        yield "have bad rows that could not be listed or replayed"


# Merged objects


def _of_merging(pipeline: Pipeline, done: Collected, dry_run: bool) -> None:
    """Deletes superseded merged objects by the rules of `merge gc`."""
    days = pipeline.dataset.retention.merged_days
    if pipeline.dataset.merge is None or days is None:
        return
    merging = Merging(pipeline)
    look = garbage.find if dry_run else garbage.remove
    tally = done.tallies[MERGED] = Tally(MERGED)
    for one in look(merging.inventory, merging.output, pipeline.clock(), timedelta(days=days)):
        files = [*one.objects, *one.manifests]
        oldest = min((file.written for file in files), default=None)
        tally.found += Measured(len(files), one.bytes, oldest)
