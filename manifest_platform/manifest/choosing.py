"""What is next for a step, what waits, and what needs a person: the judgements over a feed.

The rules for one item are in `dataset`; this module reads as few items as they need.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, groupby, islice

from manifest_platform.manifest import transitions
from manifest_platform.manifest.beside import STANDINGS, Attention, Need
from manifest_platform.manifest.dataset import (
    PASSED,
    Blocked,
    FeedState,
    Idle,
    Judgement,
    Jumped,
    LeaseState,
    Ready,
    Standing,
    Step,
    StepState,
    Verdict,
    blocked,
    choose,
    choose_full,
    judge,
    supposing_done,
    verdict_on,
)
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.keys import attention_prefix, lease_key, pending_prefix, records_prefix, state_key
from manifest_platform.manifest.reading import DISCOVERY, Kept, Memory, Reading
from manifest_platform.manifest.rows import position_of
from manifest_platform.manifest.store import PAGE, TRIES, Row, optimistically

FIRST_PAGE = 40
"""The rows of the first page.

Mostly they hold the watermark's item and the next item: a step needs no more of a long backlog.
"""
RECORDS_OF_READY = 4
"""The records that an item mostly has before it is loaded: those of its registration and of its shredding, and one more."""
NEIGHBORS = 4
"""The rows of a small page: enough to hold one item and to show if the next item is needed too."""
SURVEYED, ATTENDED = 200, 1000
"""The number of waiting items, and of items that need a person or a retry, that a survey reads."""
NEEDS = frozenset({Standing.INVALID, Standing.LATE, Standing.CUT_OFF, Standing.FAILED})


@dataclass(frozen=True)
class Survey:
    """A feed's state for people: the next item, and the number of items of its backlog by their standing.

    `counts` are exact unless `more` is True. Then they count the first SURVEYED waiting items and the first ATTENDED items that
    need a person or a retry. `needed`: those items that need a person or a retry, in order. `late`: the late items that wait to
    be appended. `reloads`: the items that wait to be reloaded.
    """

    feed: str
    step: Step
    state: StepState
    verdict: Verdict
    counts: dict[Standing, int]
    more: bool
    oldest_waiting: datetime | None
    needed: tuple[Attention, ...]
    late: tuple[ItemKey, ...]
    lease: LeaseState | None
    reloads: tuple[ItemKey, ...] = ()


class Choosing(Reading):
    """The next item of a step, and the items that wait or need a person. Nothing here writes."""

    def next(self, feed: str, application: str, holding: bool = False, state: StepState | None = None) -> Verdict:
        """The next verdict for a step on a feed: Ready(item), Blocked(item, reason), Abandoned(item) or Idle.

        A strict step gets the earliest item that is not done, or nothing: one query from its swept watermark. A step that loads
        snapshots gets the snapshot whose full load was begun. An unordered step gets its earliest waiting item that is not
        blocked.

        `holding`: the caller holds the lease and has no open claim of its own, so an open Processing of the step is a dead
        worker's and is returned as Abandoned. `state`: the step's state, if the caller has just read it.
        """
        step = self.step(feed, application)
        if step.order == "any":
            return self._next_any(step, feed, holding)
        if step.order == "full":
            state = state or self.state(step.application)
            return choose_full(step, state, self._begun(state, feed), holding)
        given = state

        def look() -> Verdict:
            nonlocal given
            while True:
                state, given = given or self.state(step.application), None
                found = self._next_strict(step, state, feed, holding)
                if not isinstance(found, Jumped):
                    return found
                self._write(transitions.sweep(found.item, step, state, DISCOVERY, self._stamp()))

        return optimistically(
            look, lambda: Refused(f"{application} on feed {feed}: the watermark moved {TRIES} times while looking; try again")
        )

    def _begun(self, state: StepState, feed: str) -> Item | None:
        """The snapshot whose full load was begun."""
        return self.item(ItemKey.at(feed, state.full)) if state.full else None

    def _next_any(self, step: Step, feed: str, holding: bool) -> Verdict:
        stuck: list[Blocked] = []
        for item in self._pending(step, feed, FIRST_PAGE):
            judged = judge(item, step, FeedState())
            if judged.standing in PASSED:
                continue
            verdict = verdict_on(item, judged, step, StepState(), holding)
            if not isinstance(verdict, Blocked):
                return verdict
            stuck.append(verdict)
        return self._first_stuck(step, feed, stuck[:1], self.attention(feed, step.application.key))

    def _first_stuck(self, step: Step, feed: str, stuck: Sequence[Blocked], needed: Iterable[Attention]) -> Blocked | Idle:
        """The earliest blocked item of an unordered step: an item that is being processed, or needs a person."""
        for one in needed:
            if one.need is Need.RETRY:
                continue
            judged = judge(item := self.item(one.key), step, FeedState())
            if judged.standing in NEEDS:
                stuck = [*stuck, blocked(item, judged)]
                break
        return min(stuck, key=lambda one: one.item.key, default=Idle())

    def _next_strict(self, step: Step, state: StepState, feed: str, holding: bool) -> Verdict | Jumped:
        """The verdict by one reading of the state; or an item that the watermark jumped over, to mark late first."""
        standing = state.feed(feed)
        late = self._pending(step, feed, FIRST_PAGE) if standing.has_waiting else ()
        return choose(step, state, feed, late, self.items(feed, after=standing.swept, page=FIRST_PAGE), holding)

    def _pending(self, step: Step, feed: str, page: int = PAGE) -> Iterator[Item]:
        return self.read(feed, self.pending(feed, step.application.key, page))

    def pending(self, feed: str, application: str, page: int = PAGE) -> Iterator[ItemKey]:
        """Yields the keys of the items that have a waiting row of a step, in order, read page by page.

        For an unordered step: items that are ready or being processed. For a strict step: late items that wait to be appended,
        and items that wait to be reloaded.
        `page`: the rows of the first page.
        """
        prefix = pending_prefix(self.step(feed, application).application, feed)
        for row in self._pages(prefix, None, page):
            yield ItemKey.at(feed, row.sort.removeprefix(prefix))

    def attention(self, feed: str, application: str, page: int = PAGE) -> Iterator[Attention]:
        """Yields the items that need a person or a retry for a step, in order, by the feed's current state; read page by page.

        Needs that a full load resolved are left out. An item that is not done, has no such row and no waiting row, waits for an
        upstream step.
        """
        step = self.step(feed, application)
        return self._attention(step, feed, self.state(step.application) if step.ordered else StepState(), page)

    def _attention(self, step: Step, feed: str, state: StepState, page: int = PAGE) -> Iterator[Attention]:
        prefix, standing = attention_prefix(step.application, feed), state.seen_by(step, feed)
        beyond = f"{prefix}{standing.boundary}" if step.order == "strict" and standing.boundary else None
        for row in self._pages(prefix, beyond, page):
            one = Attention.of(row.sort, step.application, feed)
            if one.holds(step, standing):
                yield one

    def read(self, feed: str, keys: Iterable[ItemKey]) -> Iterator[Item]:
        """Yields the items with these keys in order.

        Neighbors are read by the page: a batch of new items costs a few requests. Raises UnknownItem for a key that the
        manifest does not have.
        """
        prefix = records_prefix(feed)
        found: dict[str, list[Row]] = {}
        page, hits = NEIGHBORS, 0
        for key in keys:
            if key.position not in found:
                page = min(PAGE, 2 * page) if hits > 1 else NEIGHBORS
                rows = self.store.query(self.dataset, prefix, after=f"{prefix}{key.position}#", limit=page)
                groups = [(at, list(some)) for at, some in groupby(rows, key=lambda row: position_of(row, prefix))]
                found, hits = (
                    dict(groups if len(rows) < page else groups[:-1]),
                    0,
                )  # the last item may continue on the next page
            hits += 1
            mine = found.pop(key.position, None)
            yield self._whole(key, mine) if mine else self.item(key)

    def any_pending(self, feed: str, application: str) -> bool:
        """True if any item is ready for an unordered step, or being processed by it: one query."""
        prefix = pending_prefix(self.step(feed, application).application, feed)
        return bool(self.store.query(self.dataset, prefix, limit=1))

    def waiting(self, feed: str, application: str, limit: int) -> tuple[list[Item], list[Blocked]]:
        """The oldest items that an unordered step may claim, at most `limit`; and the earlier items that are being processed.

        Items that need a person are not among them: see `attention`.
        """
        step = self.step(feed, application)
        ready: list[Item] = []
        stuck: list[Blocked] = []
        for item in self._pending(step, feed, max(FIRST_PAGE, min(PAGE, limit))):
            judged = judge(item, step, FeedState())
            if judged.standing is Standing.READY:
                ready.append(item)
            elif judged.standing not in PASSED:
                stuck.append(blocked(item, judged))
            if len(ready) == limit:
                break
        return ready, stuck

    def backlog(self, feed: str, application: str) -> Iterator[tuple[Item, Judgement]]:
        """Yields the items that a step has not done, in the order of its work: late items to append first, then the feed's.

        Each is judged as if the items before it were done. Quarantined items are included, with their standing; skipped items
        are not.
        """
        step = self.step(feed, application)
        state = self.state(step.application)
        if step.order == "full":
            if begun := self._begun(state, feed):
                yield begun, judge(begun, step, state.seen_by(step, feed))
            return
        standing, seen = state.feed(feed), set()
        if step.order == "any" or standing.has_waiting:
            keys = self.open_keys(feed, application) if step.order == "any" else self.pending(feed, application)
            for item in self.read(feed, keys):
                seen.add(item.key)
                judged = judge(item, step, standing)
                if judged.standing not in PASSED:
                    yield item, judged
        if step.order == "strict":
            for item in self.items(feed, after=standing.swept):
                judged = judge(item, step, standing)
                if judged.standing not in PASSED and item.key not in seen:
                    yield item, judged
                standing = supposing_done(standing, item)

    def open_keys(self, feed: str, application: str) -> Iterator[ItemKey]:
        """Yields the keys of the items that an unordered step has left to do, in order: `pending` and `attention` together."""
        needed = (one.key for one in self.attention(feed, application))
        for key, _ in groupby(heapq.merge(self.pending(feed, application), needed)):
            yield key

    def kept(self, rows: Mapping[str, Row] | None = None) -> Kept:
        """The stored states and leases of all steps of all feeds, in as few requests as the store allows.

        `rows`: these rows and others, if the caller has just read them.
        """
        states, leases = self._kept_at()
        rows = rows or self.store.get_many(self.dataset, [*states.values(), *leases.values()])
        return Kept(
            {name: StepState.from_dict(row.data, row.version) for name, sort in states.items() if (row := rows.get(sort))},
            {place: LeaseState.from_dict(row.data, row.version) for place, sort in leases.items() if (row := rows.get(sort))},
        )

    def _kept_at(self) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
        """The sort keys of the states and the leases of all steps."""
        every = [(step.application, feed) for feed, steps in self.feeds.items() for step in steps]
        states = {application.key: state_key(application) for application, _ in every}
        return states, {(application.key, feed): lease_key(application, feed) for application, feed in every}

    def survey(self, feed: str, application: str, kept: Kept | None = None) -> Survey:
        """A feed's state for people. It reads a bounded part of the backlog, however long the backlog is.

        `kept`: the states and leases, if the caller has just read them.
        """
        step, kept = self.step(feed, application), kept or self.kept()
        state, lease = kept.state(application), kept.leases.get((application, feed))
        if step.order == "full":
            begun = self._begun(state, feed)
            verdict, first = choose_full(step, state, begun), []
            if begun:
                first = [(begun, judge(begun, step, state.seen_by(step, feed)))]
            return _surveyed(feed, step, state, verdict, first, (), lease)
        needed = tuple(islice(self._attention(step, feed, state, ATTENDED + 1), ATTENDED + 1))
        if step.order == "any":
            return self._survey_any(feed, step, state, needed, lease)
        standing = waiting = state.feed(feed)
        late_keys = list(islice(self.pending(feed, application, FIRST_PAGE), SURVEYED)) if standing.has_waiting else []
        late = list(self.read(feed, late_keys))
        coming = self.items(feed, after=standing.swept, page=FIRST_PAGE)
        head = list(islice(coming, SURVEYED + 1))
        verdict = choose(step, state, feed, late, chain(head, coming))
        if isinstance(verdict, Jumped):
            verdict = self.next(feed, application)
            return self.survey(feed, application)
        judged = [(item, judge(item, step, standing)) for item in late]
        for item in head[:SURVEYED]:
            if item.key not in late_keys:
                judged.append((item, judge(item, step, standing)))
            standing = supposing_done(standing, item)
        more = len(head) > SURVEYED or len(late) < waiting.late + waiting.reloads
        reloads = {item.key for item in late if item.is_reload_asked(step.application)}
        appended = tuple(key for key in late_keys if key not in reloads)
        found = _surveyed(feed, step, state, verdict, judged, needed, lease, more, appended)
        return replace(found, reloads=tuple(sorted(reloads)))

    def _survey_any(
        self, feed: str, step: Step, state: StepState, needed: Sequence[Attention], lease: LeaseState | None
    ) -> Survey:
        keys = list(islice(self.pending(feed, step.application.key, SURVEYED + 1), SURVEYED + 1))
        judged = [(item, judge(item, step, FeedState())) for item in self.read(feed, keys[:SURVEYED])]
        verdicts = [verdict_on(item, how, step, StepState(), False) for item, how in judged if how.standing not in PASSED]
        verdict = next((one for one in verdicts if isinstance(one, Ready)), None)
        if verdict is None:
            stuck = [one for one in verdicts if isinstance(one, Blocked)]
            found = self._first_stuck(step, feed, stuck[:1], needed)
            verdict = self.next(feed, step.application.key) if len(keys) > SURVEYED else found
        return _surveyed(feed, step, state, verdict, judged, needed, lease, len(keys) > SURVEYED)

    def recall_kept(self, other: Memory) -> tuple[bool, Kept]:
        """The results of `recall` and of `kept`, in one request."""
        states, leases = self._kept_at()
        stands, rows = self._recall(other, (*states.values(), *leases.values()))
        return stands, self.kept(rows) if rows else Kept({}, {})


def _surveyed(
    feed: str,
    step: Step,
    state: StepState,
    verdict: Verdict,
    judged: Sequence[tuple[Item, Judgement]],
    needed: Sequence[Attention],
    lease: LeaseState | None,
    more: bool = False,
    late: tuple[ItemKey, ...] = (),
) -> Survey:
    """The survey of the items that were read, and of the items that need attention."""
    waiting = {item.key: (item, how.standing) for item, how in judged if how.standing not in PASSED}
    counts = Counter(standing for _, standing in waiting.values())
    counts += Counter(STANDINGS[one.need] for one in needed[:ATTENDED] if one.need in STANDINGS and one.key not in waiting)
    stopping = [verdict.item] if isinstance(verdict, Blocked) else []
    items = [*(item for item, standing in waiting.values() if standing is not Standing.LATE), *stopping]
    oldest = min((item.records[0].timestamp for item in items), default=None)
    more = more or len(needed) > ATTENDED
    return Survey(feed, step, state, verdict, dict(counts), more, oldest, tuple(needed[:ATTENDED]), late, lease)


def is_in_order(item: Item, step: Step, feed: FeedState) -> bool:
    """True if an item is ahead of the watermark and not late, so that the step takes it in its place."""
    return item.key.position > feed.watermark and not item.is_late_for(step.application, feed.serving_epoch)
