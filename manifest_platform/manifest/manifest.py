"""The manifest of one dataset: what may happen next, who may do it, and what has happened.

Belongs here: the operations, each a read of what it needs, a pure transition and one transaction. The rules are in
`dataset` and `transitions`, storage behind `store`.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, islice
from os.path import commonprefix
from typing import Any, Literal
from uuid import uuid4

from manifest_platform import __version__
from manifest_platform.manifest import skip_rules, transitions
from manifest_platform.manifest.beside import STANDINGS, Attention, Need
from manifest_platform.manifest.claims import Claim, Failure
from manifest_platform.manifest.dataset import (
    PASSED,
    Abandoned,
    Blocked,
    FeedState,
    Idle,
    Judgement,
    Jumped,
    LeaseState,
    Ready,
    SinkState,
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
from manifest_platform.manifest.errors import Refused, UnknownItem
from manifest_platform.manifest.item import ArchivedRecords, Item, ItemKey, Landed, Move, check_key_text
from manifest_platform.manifest.keys import (
    COMMITS,
    ID,
    LEASES,
    SKIP_RULE_CHANGES,
    SKIP_RULES,
    attention_prefix,
    commit_key,
    commit_number,
    item_key,
    lease_key,
    lease_of,
    listed_key,
    look_key,
    look_prefix,
    looked_at,
    old_looks_key,
    pending_prefix,
    record_key,
    records_prefix,
    state_key,
)
from manifest_platform.manifest.lease import Lease, write_lease
from manifest_platform.manifest.outputs import Made, Outputs, epoch_of, following, made_of
from manifest_platform.manifest.records import (
    EVERYONE,
    LANDED,
    Application,
    FailureKind,
    Payload,
    Record,
    Stamp,
    State,
    format_time,
    parse_time,
)
from manifest_platform.manifest.skip_rules import RuleChange, SkipRule, SkipRules
from manifest_platform.manifest.store import (
    ABSENT,
    MAX_WRITES,
    PAGE,
    TRIES,
    Check,
    ConditionFailed,
    Delete,
    Put,
    Row,
    Store,
    Write,
    optimistically,
    stored_rows,
    transact_once,
)
from manifest_platform.manifest.takeover import NOTE, Identity, note
from manifest_platform.remedies import Action, Remedy

FIRST_PAGE = 40
"""Rows that hold the watermark's item and the next, mostly: a step needs no more of a long backlog."""
NEIGHBORS = 4
"""Rows that hold an item and show whether the next one is wanted too."""
SURVEYED, ATTENDED = 200, 1000
"""How many of the items that wait, and of those that need a person or a retry, are looked at for people."""
KNOWN = 50_000
"""Items that an object remembers as confirmed; twice as many as it is asked for at once, where that is more."""
NEEDS = frozenset({Standing.INVALID, Standing.LATE, Standing.CUT_OFF, Standing.FAILED})
DISCOVERY, OPERATOR = Application("discover", __version__), Application("operator", __version__)


@dataclass(frozen=True)
class Discovered:
    """What became of a landed directory.

    `new`: registered. `late`: registered behind the watermark, to be appended. `quarantined`: registered behind the watermark
    and set aside. `known`: registered before. `changed`: known with another checksum; refused, the first one stands.
    `moved`: refused, for an item with its sort key is registered under another URI, `known_as`; it would be done twice.
    `skipped_by`: the ids of the rules by which it was skipped as it was registered now.
    """

    landed: Landed
    outcome: Literal["new", "late", "quarantined", "known", "changed", "moved"]
    known_as: str | None = None
    skipped_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kept:
    """The states of steps that are stored, by application key, and their leases, by application key and feed."""

    states: dict[str, StepState]
    leases: dict[tuple[str, str], LeaseState]

    def state(self, application: str) -> StepState:
        """The state of a step; a fresh one where none is stored."""
        return self.states.get(application, StepState())


@dataclass(frozen=True)
class Survey:
    """A feed for people: its state, what is next, and how many items of its backlog stand how with the step.

    `counts` are exact unless there are `more`: then of the first SURVEYED items that wait and the first ATTENDED that need
    somebody. `needed`: those, in order; `late`: the late items that wait to be appended.
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


@dataclass(frozen=True, order=True)
class Witness:
    """A record that was read or written: when it was made, the sort key of its row, and its id."""

    time: str
    sort: str
    record_id: str


@dataclass(frozen=True)
class Memory:
    """By what it is known whether what was once read of a manifest still stands in it.

    `id`: the manifest's own, None where that is not known. `witnesses`: the newest of the records that were read or written.
    """

    id: str | None = None
    witnesses: tuple[Witness, ...] = ()

    def with_newest(self, other: Memory) -> Memory:
        """This memory with the newest of all witnesses alone, its own and another's of the same store."""
        return Memory(self.id, tuple(sorted({*self.witnesses, *other.witnesses})[-1:]))

    def stands(self, rows: Mapping[str, Row]) -> bool:
        """Whether rows that were read just now, that of the identity among them, are of the same manifest and not older."""
        found = Identity.of(rows.get(ID))
        same = self.id is None or (found is not None and found.id == self.id)
        return same and all(one.sort in rows and rows[one.sort].data["record_id"] == one.record_id for one in self.witnesses)


@dataclass(frozen=True)
class Commit:
    """The completion of an item by a numbered step, with its number: 1 for the first, then without holes."""

    number: int
    key: ItemKey
    record_id: str


@dataclass(frozen=True)
class FullListing:
    """How far the listing of all of a feed's directories has come, a part at a time: `beyond`, empty at the beginning.

    `done_at`: when one was last at its end. `version` is the row's.
    """

    beyond: str = ""
    done_at: datetime | None = None
    version: int = ABSENT


class Manifest:
    """The manifest of one dataset over a store. Safe to share between threads.

    `feeds` declares the steps of each feed; `author` names the program (and its version) in every record it writes, and
    `run_id` its run, a new one where none is named; `read_archived` reads the records of an item that were archived, so that
    they are as if still there. `time_of` tells the logical time of a directory, by which skip rules may mean it. Raises
    InvalidKey for a feed or application that keys cannot hold, ValueError for a step declared twice.
    """

    def __init__(
        self,
        store: Store,
        dataset: str,
        feeds: Mapping[str, Sequence[Step]],
        author: str,
        run_id: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        read_archived: Callable[[ItemKey, ArchivedRecords], Sequence[Record]] | None = None,
        time_of: Callable[[Landed], datetime | None] | None = None,
    ):
        self.store, self.dataset, self.author, self.run_id = store, dataset, author, run_id or str(uuid4())
        self._read_archived, self._time_of = read_archived, time_of
        self.feeds = {feed: tuple(steps) for feed, steps in feeds.items()}
        self._clock = clock
        self._confirmed: dict[ItemKey, str | None] = {}
        self._uris: dict[tuple[str, str], str] = {}
        self._aliases: dict[ItemKey, ItemKey] = {}  # keys of the places that items were moved to
        self._asked: set[tuple[str, str]] = set()  # sort keys that no item had when they were asked for
        self._taken_over: set[str] = set()  # feeds without notes of a release before
        self._nothing_noted: set[str] = set()  # feeds of which discovery found no notes when it looked last, and made none
        self._full_listings: dict[str, FullListing] = {}
        self._leases: dict[tuple[str, str], Lease] = {}
        self._rehearsing = False
        self._last_commit: int | None = None  # or a number before it, never one beyond
        self._id: str | None = None
        self._read: Witness | None = None
        self._written: Witness | None = None
        for feed, steps in self.feeds.items():
            check_key_text("feed", feed)
            names = [step.application.key for step in steps]
            for name in names:
                check_key_text("application", name)
            if len(set(names)) < len(names):
                raise ValueError(f"feed {feed} declares a step twice: {', '.join(names)}")
        for feed, steps in self.feeds.items():
            for step in steps:
                self._check_full(feed, step)

    def _check_full(self, feed: str, step: Step) -> None:
        """Raises ValueError for a step of snapshots that is not its application's only one, or covers what is not in order."""
        name = step.application.key
        orders = {other: one.order for other, steps in self.feeds.items() for one in steps if one.application.key == name}
        if step.order == "full" and list(orders.values()).count("full") > 1:
            raise ValueError(f"{name} loads snapshots of several feeds: one is allowed")
        if step.covers and step.order != "full":
            raise ValueError(f"feed {feed}: only a step of order 'full' covers feeds, and {name} is {step.order!r}")
        for other in step.covers:
            if orders.get(other) != "strict":
                raise ValueError(f"feed {feed} covers {other}, which {name} does not work on in strict order")

    def step(self, feed: str, application: str) -> Step:
        """The declared step of an application on a feed. Raises Refused for one that is not declared."""
        for step in self.feeds.get(feed, ()):
            if step.application.key == application:
                return step
        raise Refused(f"dataset {self.dataset} declares no step {application!r} on a feed {feed!r}")

    def steps(self, feed: str) -> tuple[Step, ...]:
        """The declared steps of a feed. Raises Refused for a feed that is not declared."""
        if feed not in self.feeds:
            raise Refused(f"dataset {self.dataset} declares no feed {feed!r}; there are: {', '.join(self.feeds)}")
        return self.feeds[feed]

    # Looking

    def item(self, key: ItemKey) -> Item:
        """The item of a key. Raises UnknownItem if the manifest does not have it."""
        rows = self.store.query(self.dataset, records_prefix(key.feed, key.position))
        if not rows:
            raise UnknownItem(f"dataset {self.dataset} has no item {key.id} in feed {key.feed}; is it discovered yet?")
        return self._whole(key, rows)

    def history(self, key: ItemKey) -> tuple[Record, ...]:
        """All records of an item, oldest first. Raises UnknownItem."""
        return self.item(key).records

    def state(self, application: Application) -> StepState:
        """The stored state of a step: mode, epoch, watermarks."""
        return _state(self.store.get(self.dataset, state_key(application)))

    def lease(self, application: Application, feed: str) -> LeaseState | None:
        """The stored lease of a step on a feed."""
        row = self.store.get(self.dataset, lease_key(application, feed))
        return LeaseState.from_dict(row.data, row.version) if row else None

    def items(
        self, feed: str, after: str = "", page: int = PAGE, reverse: bool = False, archived: bool = True
    ) -> Iterator[Item]:
        """The items of a feed in order, from beyond a position on, read page by page; `page`: rows of the first.

        With `reverse` the newest come first, and `after` bounds from above. Without `archived`, items with archived
        records are left out, and cost no more than their row.
        """
        prefix = records_prefix(feed)
        bound = f"{prefix}{after}#" if reverse else f"{prefix}{after}#~"
        pages = self._pages(prefix, bound if after else None, page, reverse)
        for position, rows in groupby(pages, key=lambda row: _position(row, prefix)):
            found = list(rows)[:: -1 if reverse else 1]
            if archived or ArchivedRecords.of(found[0]) is None:
                yield self._whole(ItemKey.at(feed, position), found)

    def _pages(self, prefix: str, after: str | None, page: int = PAGE, reverse: bool = False) -> Iterator[Row]:
        return stored_rows(self.store, self.dataset, prefix, after, page, reverse)

    def _whole(self, key: ItemKey, rows: Sequence[Row]) -> Item:
        """The item of its rows, with those of its records that were archived."""
        self._saw(rows[-1])
        records = tuple(Record.from_dict(row.data) for row in rows)
        place = ArchivedRecords.of(rows[0])
        if place is None:
            return Item(key, records)
        if self._read_archived is None:
            raise Refused(
                f"{key.name}: its records are archived in {place.uri}, and this program was given no way to read them"
            )
        return Item(key, (*self._read_archived(key, place), *records[1:]))

    def newest(self, feed: str, limit: int, state: State) -> list[Record]:
        """The records in a state among the `limit` newest of a feed's items, newest first: one query.

        The others are not checked for their form, which costs most: `status` of 100 datasets took 2 s, half of it here.
        """
        rows = self.store.query(self.dataset, records_prefix(feed), limit=limit, reverse=True)
        return [Record.from_dict(row.data) for row in rows if row.data.get("state") == state]

    def find(self, feed: str, sort: str) -> ItemKey:
        """The key of the item with a sort key. Raises UnknownItem if there is none, Refused if it is not the only one."""
        rows = self.store.query(self.dataset, f"{records_prefix(feed)}{sort}#")
        prefix = records_prefix(feed)
        positions = sorted({_position(row, prefix) for row in rows})
        if not positions:
            raise UnknownItem(f"dataset {self.dataset} has no item {sort} in feed {feed}; is it discovered yet?")
        if len(positions) > 1:
            uris = ", ".join(ItemKey.at(feed, position).id for position in positions)
            raise Refused(f"{sort} names {len(positions)} items; give the URI: {uris}")
        return ItemKey.at(feed, positions[0])

    def commits(self, after: int = 0) -> Iterator[Commit]:
        """The completions of numbered steps, in the order in which they were committed, from beyond a number on."""
        for row in self._pages(COMMITS, commit_key(after)):
            number = commit_number(row.sort)
            yield Commit(number, ItemKey.at(row.data["feed"], row.data["position"]), row.data["record_id"])

    def last_commit(self) -> int:
        """The number of the newest completion of a numbered step; 0 before the first."""
        rows = self.store.query(self.dataset, COMMITS, limit=1, reverse=True)
        return commit_number(rows[0].sort) if rows else 0

    def serving_epochs(self, feed: str) -> dict[str, int]:
        """The epoch from which on work counts on a feed, by application key of its ordered steps."""
        return transitions.serving_epochs(feed, self.steps(feed), self._states(feed))

    # What is next

    def next(self, feed: str, application: str, holding: bool = False, state: StepState | None = None) -> Verdict:
        """What a step may do next on a feed: Ready(item), Blocked(item, reason), Abandoned(item) or Idle.

        A strict step gets the earliest item that is not done, or nothing: one query from its swept watermark on. A step that
        loads snapshots gets the one that a full load was begun for. An unordered one gets its earliest waiting item that
        nothing blocks. `holding`: the caller holds the lease and has no claim of its own open, so an open Processing of the
        step is a dead worker's and comes back as Abandoned. `state`: the step's, where it was read just now.
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
        """The snapshot that a full load was begun for."""
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
        """The earliest item of an unordered step that is blocked: one that somebody works on, or one that needs a person."""
        for one in needed:
            if one.need is Need.RETRY:
                continue
            judged = judge(item := self.item(one.key), step, FeedState())
            if judged.standing in NEEDS:
                stuck = [*stuck, blocked(item, judged)]
                break
        return min(stuck, key=lambda one: one.item.key, default=Idle())

    def _next_strict(self, step: Step, state: StepState, feed: str, holding: bool) -> Verdict | Jumped:
        """The verdict under one reading of the state; or an item that the watermark jumped, to be marked late first."""
        standing = state.feed(feed)
        late = self._pending(step, feed, FIRST_PAGE) if standing.late else ()
        return choose(step, state, feed, late, self.items(feed, after=standing.swept, page=FIRST_PAGE), holding)

    def _pending(self, step: Step, feed: str, page: int = PAGE) -> Iterator[Item]:
        return self.read(feed, self.pending(feed, step.application.key, page))

    def pending(self, feed: str, application: str, page: int = PAGE) -> Iterator[ItemKey]:
        """The keys of the items that have a waiting row of a step, in order: those that an unordered step may work on or works
        on, or late ones for a strict step; read page by page, of which the first has so many rows."""
        prefix = pending_prefix(self.step(feed, application).application, feed)
        for row in self._pages(prefix, None, page):
            yield ItemKey.at(feed, row.sort.removeprefix(prefix))

    def attention(self, feed: str, application: str, page: int = PAGE) -> Iterator[Attention]:
        """What needs a person or a retry for a step, in order, as the feed's state has it now; read page by page.

        What a full load made up for is left out. An item that is not done, has no such row and waits nowhere is one upstream.
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
        """The items of keys in order, neighbors by the page: a batch of new items costs a few requests, not one an item.

        Raises UnknownItem for one that the manifest does not have.
        """
        prefix = records_prefix(feed)
        found: dict[str, list[Row]] = {}
        page, hits = NEIGHBORS, 0
        for key in keys:
            if key.position not in found:
                page = min(PAGE, 2 * page) if hits > 1 else NEIGHBORS
                rows = self.store.query(self.dataset, prefix, after=f"{prefix}{key.position}#", limit=page)
                groups = [(at, list(some)) for at, some in groupby(rows, key=lambda row: _position(row, prefix))]
                found, hits = dict(groups if len(rows) < page else groups[:-1]), 0  # the last may go on behind the page
            hits += 1
            mine = found.pop(key.position, None)
            yield self._whole(key, mine) if mine else self.item(key)

    def any_pending(self, feed: str, application: str) -> bool:
        """Whether an unordered step may work on any item, or works on one: one query."""
        prefix = pending_prefix(self.step(feed, application).application, feed)
        return bool(self.store.query(self.dataset, prefix, limit=1))

    def waiting(self, feed: str, application: str, limit: int) -> tuple[list[Item], list[Blocked]]:
        """The oldest items that an unordered step may claim, at most `limit`; and those before them that somebody works on.

        What needs a person is not among them: `attention` has it.
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
        """The items that a step has not done, in the order in which it will: late ones to append first, then the feed's.

        Each stands as if those before it were done. Quarantined items are among them, with their standing; skipped ones are
        not.
        """
        step = self.step(feed, application)
        state = self.state(step.application)
        if step.order == "full":
            if begun := self._begun(state, feed):
                yield begun, judge(begun, step, state.seen_by(step, feed))
            return
        standing, seen = state.feed(feed), set()
        if step.order == "any" or standing.late:
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
        """The keys of all that an unordered step has left to do, in order: what waits, and what needs a person or a retry."""
        needed = (one.key for one in self.attention(feed, application))
        for key, _ in groupby(heapq.merge(self.pending(feed, application), needed)):
            yield key

    def kept(self, rows: Mapping[str, Row] | None = None) -> Kept:
        """The stored states and leases of all steps of all feeds, by as few requests as the store allows.

        `rows`: these and others, where they were read just now.
        """
        states, leases = self._kept_at()
        rows = rows or self.store.get_many(self.dataset, [*states.values(), *leases.values()])
        return Kept(
            {name: StepState.from_dict(row.data, row.version) for name, sort in states.items() if (row := rows.get(sort))},
            {place: LeaseState.from_dict(row.data, row.version) for place, sort in leases.items() if (row := rows.get(sort))},
        )

    def _kept_at(self) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
        """Where the states and the leases of all steps are stored."""
        every = [(step.application, feed) for feed, steps in self.feeds.items() for step in steps]
        states = {application.key: state_key(application) for application, _ in every}
        return states, {(application.key, feed): lease_key(application, feed) for application, feed in every}

    def survey(self, feed: str, application: str, kept: Kept | None = None) -> Survey:
        """A feed's state for people. It reads so much of a backlog and no more, however long that is.

        `kept`: the states and leases, where they were read just now.
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
        standing = state.feed(feed)
        late_keys = list(islice(self.pending(feed, application, FIRST_PAGE), SURVEYED)) if standing.late else []
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
        more = len(head) > SURVEYED or len(late) < state.feed(feed).late
        return _surveyed(feed, step, state, verdict, judged, needed, lease, more, tuple(late_keys))

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

    # What this object knows

    @property
    def memory(self) -> Memory:
        """By what it can be told later, by another process too, whether what was read and written here still stands."""
        return Memory(self._id, tuple(dict.fromkeys(one for one in (self._read, self._written) if one)))

    def recall(self, other: Memory | None = None) -> bool:
        """Looks whether the store is still the one that this object knows; forgets all if it is not. Says whether it is.

        A store is replaced, or put back in place to an earlier moment, under whoever has it open. The identity tells another
        store. One that was put back has the same identity, and lacks what was written last. One request; none where nothing is
        known. `other`: what another process knew, which must stand as well.
        """
        if not (self.memory.witnesses or self._leases or (other and (other.id or other.witnesses))):
            return True
        return self._recall(other or Memory(), ())[0]

    def recall_kept(self, other: Memory) -> tuple[bool, Kept]:
        """What `recall` says, and the `kept` states and leases: by one request."""
        states, leases = self._kept_at()
        stands, rows = self._recall(other, (*states.values(), *leases.values()))
        return stands, self.kept(rows) if rows else Kept({}, {})

    def _recall(self, other: Memory, more: Sequence[str]) -> tuple[bool, dict[str, Row]]:
        """Whether the store is the one that is known, and the rows that were read: those that tell, and `more`."""
        held = {lease_key(Application.parse(name), place): (name, place) for name, place in self._leases}
        own = self.memory
        known = [one.sort for one in (*own.witnesses, *other.witnesses)]
        rows = self.store.get_many(self.dataset, list(dict.fromkeys([ID, *known, *held, *more])))
        stands = own.stands(rows)
        if not stands:
            self._forget()
        for sort, name in held.items():
            lease = self._leases.get(name)
            if lease and (lease.given_back is None or sort not in rows or rows[sort].data["nonce"] != lease.given_back.nonce):
                del self._leases[name]
        found = Identity.of(rows.get(ID))
        self._id = found.id if found else None
        return stands and other.stands(rows), rows

    def _forget(self) -> None:
        self._confirmed.clear()
        self._uris.clear()
        self._aliases.clear()
        self._asked.clear()
        self._leases.clear()
        self._full_listings.clear()
        self._taken_over.clear()
        self._nothing_noted.clear()
        self._last_commit = self._read = self._written = None

    def _saw(self, row: Row) -> None:
        """Notes a record's row that was read, if it is the newest."""
        seen = Witness(row.data["timestamp"], row.sort, row.data["record_id"])
        self._read = max(self._read or seen, seen)

    def _wrote(self, writes: Sequence[Write]) -> None:
        """Notes what was written last."""
        if isinstance(writes[0], Put):
            self._written = Witness(writes[0].data["timestamp"], writes[0].sort, writes[0].data["record_id"])

    # Discovery

    def known(self, feed: str, keys: Sequence[ItemKey]) -> dict[str, str | None]:
        """Which of the items the manifest has: their checksums by id, None where it knows none.

        What it has once confirmed costs no request. What was asked for before in vain, as a directory that is never
        completed, is asked for by itself: nobody reads what lies between it and the newest. The oldest items are forgotten once
        there are many, for a process may live for years.
        """
        self._forget_the_oldest(feed, len(keys))
        unheard = [key for key in keys if (feed, key.sort) not in self._uris]
        again = [key for key in unheard if (feed, key.sort) in self._asked]
        self._learn(feed, [key.sort for key in unheard if (feed, key.sort) not in self._asked])
        if again:
            rows = self.store.get_many(self.dataset, [record_key(key, 1) for key in again])
            for key in again:
                if row := rows.get(record_key(key, 1)):
                    self._remember(key, _landed_checksum(row))
        self._asked.update((feed, key.sort) for key in unheard if (feed, key.sort) not in self._uris)
        items = {key.id: self._aliases.get(key, key) for key in keys}
        return {id_: self._confirmed[key] for id_, key in items.items() if key in self._confirmed}

    def _forget_the_oldest(self, feed: str, asked: int) -> None:
        """Forgets a feed's oldest items where too many are known: as many as are `asked` for at once are kept."""
        most = max(KNOWN, 2 * asked)
        if len(self._uris) + len(self._asked) <= most:
            return
        heard = sorted({sort for of_feed, sort in (*self._uris, *self._asked) if of_feed == feed}, reverse=True)
        if len(heard) <= most // 2:
            return
        oldest = heard[most // 2 - 1]
        self._uris = {place: id_ for place, id_ in self._uris.items() if place[0] != feed or place[1] >= oldest}
        self._asked = {place for place in self._asked if place[0] != feed or place[1] >= oldest}
        self._confirmed = {key: sum_ for key, sum_ in self._confirmed.items() if key.feed != feed or key.sort >= oldest}
        self._aliases = {place: key for place, key in self._aliases.items() if key.feed != feed or key.sort >= oldest}

    def has_heard_beyond(self, feed: str, position: str) -> bool:
        """Whether this object has heard of an item beyond a position: of all that discovery saw. Asks the store nothing."""
        return any(of_feed == feed and sort > position.partition("#")[0] for of_feed, sort in self._uris)

    def registered(self, feed: str, keys: Sequence[ItemKey]) -> dict[str, str]:
        """Which of the sort keys the manifest has, under whatever id: that id, by sort key. Asks as `known` does."""
        self.known(feed, keys)
        return {key.sort: self._uris[feed, key.sort] for key in keys if (feed, key.sort) in self._uris}

    def looks(self, feed: str, all_known: bool = False) -> dict[str, Row]:
        """What discovery noted of directories that are not complete yet: a row a directory, by its name.

        `all_known`: every directory there is registered. Then nothing is read where nothing was noted before: whoever notes
        a directory sees one that is not registered.
        """
        if all_known and feed in self._nothing_noted:
            return {}
        self._take_over_looks(feed)
        return {looked_at(row.sort, feed): row for row in self._pages(look_prefix(feed), None)}

    def keep_looks(self, feed: str, before: Mapping[str, Row], looks: Mapping[str, Mapping[str, str]]) -> None:
        """Notes what discovery saw of directories, in place of what `looks` read before.

        A directory that `looks` lacks is forgotten. Only what changed is written. Another process's newer note stays.
        """
        if before or looks:
            self._nothing_noted.discard(feed)
        else:
            self._nothing_noted.add(feed)
        writes: list[Write] = [
            Put(look_key(feed, name), dict(look), before[name].version if name in before else ABSENT)
            for name, look in looks.items()
            if name not in before or before[name].data != look
        ]
        writes += [Delete(row.sort, row.version) for name, row in before.items() if name not in looks]
        self._write_notes(writes)

    def _write_notes(self, writes: Sequence[Write]) -> None:
        """Makes writes that do not rest on each other; those whose row changed meanwhile are left out."""
        for start in range(0, len(writes), MAX_WRITES):
            left = list(writes[start : start + MAX_WRITES])
            while left:
                try:
                    self.store.transact(self.dataset, left, str(uuid4()))
                    break
                except ConditionFailed as error:
                    changed = {write.sort for write in error.failed}
                    left = [write for write in left if write.sort not in changed] if changed else []

    def _take_over_looks(self, feed: str) -> None:
        """Turns the one row that a release before kept into a row a directory, once; what is noted already stays."""
        if feed in self._taken_over:
            return
        old = self.store.get(self.dataset, old_looks_key(feed))
        if old and (noted := {name: look for name, look in old.data.items() if name != NOTE}):
            self._write_notes([Put(look_key(feed, name), look, ABSENT) for name, look in noted.items()])
            kept = Put(old.sort, note(), old.version) if NOTE in old.data else Delete(old.sort, old.version)
            self._write_notes([kept])
        self._taken_over.add(feed)

    def discover(self, feed: str, landed: Sequence[Landed]) -> list[Discovered]:
        """Registers landed directories of a feed, in any order, as often as one likes.

        Of several directories with one sort key, one is registered: the one that the manifest has, or else the first by URI.
        What this object has once confirmed costs no request again. One transaction registers up to some forty. Raises Refused
        for a feed that is not declared, ValueError for a directory of another feed.
        """
        steps = self.steps(feed)
        strangers = [found.key.id for found in landed if found.key.feed != feed]
        if strangers:
            raise ValueError(f"{strangers[0]} is not of feed {feed}: discover each feed's directories by themselves")
        unheard = sorted({found.key.sort for found in landed if (feed, found.key.sort) not in self._uris})
        registered: dict[ItemKey, Discovered] = {}
        if unheard:
            self._learn(feed, unheard)
            by_sort: dict[str, Landed] = {}
            for found in sorted(landed, key=lambda one: one.key):
                by_sort.setdefault(found.key.sort, found)
            fresh = [by_sort[sort] for sort in unheard if (feed, sort) not in self._uris]
            size = (MAX_WRITES - len(steps)) // (1 + len(steps))
            for start in range(0, len(fresh), size):
                registered.update(self._register(feed, fresh[start : start + size]))
        self._hear_of_moves(feed, landed)
        return [registered.pop(found.key, None) or self._compare(found) for found in landed]

    def _compare(self, found: Landed) -> Discovered:
        key = self._aliases.get(found.key)
        if key:
            found = replace(found, key=key, content=found.key.id)
        if found.key not in self._confirmed:
            return Discovered(found, "moved", self._uris[found.key.feed, found.key.sort])
        return Discovered(found, "known" if self.knows(found.key, found.checksum) else "changed")

    def knows(self, key: ItemKey, checksum: str) -> bool:
        """Whether a content is a known item's, or was acknowledged. Only for other content than the first is the log asked."""
        return self._confirmed.get(key) in (None, checksum) or self.item(key).knows(checksum)

    def _hear_of_moves(self, feed: str, landed: Sequence[Landed]) -> None:
        """Learns anew where items are, once the first that is at another place is known to be there.

        Somebody may have said so since this object asked: until then that costs a query a look.
        """
        moved = [one.key for one in landed if one.key not in self._confirmed and one.key not in self._aliases]
        moved = [key for key in moved if (feed, key.sort) in self._uris]
        if moved:
            self._learn(feed, [moved[0].sort])
            if moved[0] in self._aliases:
                self._learn(feed, [key.sort for key in moved])

    def _learn(self, feed: str, sorts: Sequence[str]) -> None:
        """Remembers the items of sort keys, every id of each, and those between: an item never goes away.

        Between which it knows of others already, it does not read.
        """
        if not sorts:
            return
        prefix = records_prefix(feed)
        heard = sorted(sort for of_feed, sort in self._uris if of_feed == feed)
        for _, stretch in groupby(sorted(sorts), key=lambda sort: bisect(heard, sort)):
            wanted = list(stretch)
            first, last = f"{wanted[0]}#", f"{wanted[-1]}#"
            for row in self._pages(prefix + commonprefix([first, last]), prefix + first):  # noqa: RUF071 - no paths
                key = ItemKey.at(feed, _position(row, prefix))
                if key.sort > wanted[-1]:
                    break
                if self._confirmed.get(key) is None:
                    self._remember(key, _landed_checksum(row))
                if data := _move(row):
                    self._aliases[ItemKey(feed, key.sort, data["place"])] = key
                    self._confirmed[key] = data.get("checksum") or self._confirmed[key]
                self._saw(row)

    def unregistered(self, feed: str, sorts: Iterable[str]) -> set[str]:
        """Which of some sort keys no item has. For items of long ago, which are many: what is read of them is not kept."""
        left = {sort for sort in sorts if (feed, sort) not in self._uris}
        if left:
            prefix, last = records_prefix(feed), max(left)
            for row in self._pages(prefix, f"{prefix}{min(left)}#"):
                sort = _position(row, prefix).partition("#")[0]
                if sort > last:
                    break
                left.discard(sort)
        return left

    def full_listing(self, feed: str) -> FullListing:
        """How far the listing of all of a feed's directories has come. Read once, and kept."""
        if feed not in self._full_listings:
            row = self.store.get(self.dataset, listed_key(feed))
            done_at = parse_time(row.data["done_at"]) if row and row.data["done_at"] else None
            self._full_listings[feed] = FullListing(row.data["beyond"], done_at, row.version) if row else FullListing()
        return self._full_listings[feed]

    def keep_full_listing(self, feed: str, beyond: str, done_at: datetime | None) -> None:
        """Notes how far the listing has come since `full_listing` was read. Another process's newer note stays."""
        before = self._full_listings.pop(feed, FullListing())
        data = {"beyond": beyond, "done_at": format_time(done_at) if done_at else None}
        try:
            self.store.transact(self.dataset, [Put(listed_key(feed), data, before.version, lasting=True)], str(uuid4()))
        except ConditionFailed:
            return
        self._full_listings[feed] = FullListing(beyond, done_at, before.version + 1)

    def _remember(self, key: ItemKey, checksum: str | None) -> None:
        self._confirmed[key] = checksum
        self._uris.setdefault((key.feed, key.sort), key.id)

    def _register(self, feed: str, landed: Sequence[Landed]) -> dict[ItemKey, Discovered]:
        """Registers directories in one transaction, and says what became of those that nobody else registered meanwhile."""
        steps = self.feeds[feed]

        def register() -> dict[ItemKey, Discovered]:
            left = [found for found in landed if (feed, found.key.sort) not in self._uris]
            if not left:
                return {}
            states, rules = self._states_and_skip_rules(feed)
            skips = self._skips(left, rules, steps)
            writes = transitions.discover(left, steps, states, DISCOVERY, self._stamp(), skips)
            writes.append(Check(SKIP_RULES, rules.version))
            if len(writes) > MAX_WRITES and len(left) > 1:
                half = len(left) // 2
                return self._register(feed, left[:half]) | self._register(feed, left[half:])
            try:
                self._write(writes)
            except ConditionFailed:
                self._learn(feed, [found.key.sort for found in left])
                raise
            for found in left:
                self._remember(found.key, found.checksum)
            by = {key: tuple(rule.id for rule in found) for key, found in skips.items()}
            return {
                found.key: Discovered(found, _lateness(found.key, steps, states), skipped_by=by.get(found.key, ()))
                for found in left
            }

        return optimistically(
            register, lambda: Refused(f"feed {feed}: its watermark or items changed {TRIES} times during discovery; try again")
        )

    def register(self, landed: Landed) -> Discovered:
        """Registers an item by its id, whatever it is, as often as one likes; its id alone tells it, and not its sort key.

        For items that are no directories, which nobody finds by looking: a row says where the item stands, by its id. Checksums
        are compared where both have one. `known`: it stands where it stood, whatever sort key is given now. Raises Refused.
        """
        key = landed.key
        index = item_key(key.feed, key.id)

        def attempt() -> Discovered:
            row = self.store.get(self.dataset, index)
            if row:
                item = self.item(ItemKey(key.feed, row.data["sort"], key.id))
                there = item.landed
                same = not landed.checksum or not (there and there.checksum) or item.knows(landed.checksum)
                return Discovered(replace(landed, key=item.key), "known" if same else "changed")
            steps = self.steps(key.feed)
            states, rules = self._states_and_skip_rules(key.feed)
            skips = self._skips([landed], rules, steps)
            writes = transitions.discover([landed], steps, states, DISCOVERY, self._stamp(), skips)
            self._write([*writes, Put(index, {"sort": key.sort}, ABSENT, lasting=True), Check(SKIP_RULES, rules.version)])
            by = tuple(rule.id for found in skips.values() for rule in found)
            return Discovered(landed, _lateness(key, steps, states), skipped_by=by)

        return optimistically(
            attempt, lambda: Refused(f"{key.id}: the watermark of feed {key.feed} moved {TRIES} times meanwhile; try again")
        )

    def registered_as(self, feed: str, id_: str) -> ItemKey | None:
        """The key of an item that a program registered, by its id; None where none did."""
        row = self.store.get(self.dataset, item_key(feed, id_))
        return ItemKey(feed, row.data["sort"], id_) if row else None

    def _skips(self, landed: Sequence[Landed], rules: SkipRules, steps: Sequence[Step]) -> dict[ItemKey, list[SkipRule]]:
        """By which rules directories that are to be registered are skipped."""
        rules.require_writable()
        if rules.have_periods and self._time_of is None:
            raise Refused("a skip rule is in force for a period, and this program was given no way to tell the time of items")
        now, time_of = self._clock(), self._time_of or (lambda _: None)
        applying = {found.key: rules.applying(found.key, time_of(found), steps, now) for found in landed if rules.rules}
        return {key: found for key, found in applying.items() if found}

    # Rules by which items are skipped as they are registered

    def skip_rules(self) -> SkipRules:
        """The rules in force, and how many changes there were."""
        return SkipRules.of(self.store.get(self.dataset, SKIP_RULES))

    def skip_rule_changes(self) -> Iterator[RuleChange]:
        """All changes of the skip rules, oldest first."""
        return (RuleChange.of(row) for row in self._pages(SKIP_RULE_CHANGES, None))

    def add_skip_rule(self, wanted: SkipRule) -> SkipRule:
        """Adds a rule: what is registered from now on and meant by it is skipped, whoever registers it.

        What is registered already stays as it is. Raises Refused where there are too many, where it is over already, and for a
        feed or application that is not declared.
        """
        who = Application.parse(wanted.application)
        feeds = [wanted.feed] if wanted.feed else [*self.feeds]
        named = [step for feed in feeds for step in self.steps(feed)]
        if not any(step.application.is_stopped_by(who) for step in named):
            known = ", ".join(dict.fromkeys(step.application.key for step in named))
            raise Refused(f"no step is called {wanted.application}; there are: {known}, {EVERYONE}")
        return self._change_skip_rules(lambda rules: skip_rules.add(rules, wanted, self._stamp()))

    def remove_skip_rule(self, id_: str, reason: str) -> SkipRule:
        """Ends a rule; what it had skipped stays so. Raises Refused for an id that no rule has."""
        return self._change_skip_rules(lambda rules: skip_rules.remove(rules, id_, reason, self._stamp()))

    def _change_skip_rules(self, change: Callable[[SkipRules], tuple[SkipRule, list[Write]]]) -> SkipRule:
        def attempt() -> SkipRule:
            rule, writes = change(self.skip_rules())
            if not self._rehearsing:
                transact_once(self.store, self.dataset, writes, mark="record_id")
            return rule

        return optimistically(attempt, lambda: Refused(f"the skip rules changed {TRIES} times while they were read; try again"))

    # Working

    def acquire(self, feed: str, application: str, holder: str, duration: timedelta) -> Lease:
        """Takes the lease of a step on a feed, with a heartbeat. Raises LeaseBusy while another's is live."""
        return self.hold(self.step(feed, application).application, feed, holder, duration)

    def hold(self, application: Application, place: str, holder: str, duration: timedelta) -> Lease:
        """Takes the lease of any work at a place, a feed or whatever it is about. Raises LeaseBusy while another's is live.

        One that this object gave back is taken again without a look at it first: mostly nobody else had it meanwhile.
        """

        def take() -> LeaseState:
            former = self._leases.pop((application.key, place), None)
            given_back = former.given_back if former else None
            before = given_back or self.lease(application, place)
            after = transitions.acquire(application, place, before, holder, self._stamp(), duration)
            return write_lease(self.store, self.dataset, application, place, after)

        held = optimistically(
            take, lambda: Refused(f"{application.key} on {place}: lost the race for the lease {TRIES} times; try again")
        )
        lease = Lease(self.store, self.dataset, application, place, held, duration, self._clock)
        self._leases[application.key, place] = lease
        return lease

    def end_leases(self, run_id: str) -> int:
        """Ends the leases that a run holds which is known to be dead, so that nobody waits for them. Returns how many."""
        ended = 0
        for row in self._pages(LEASES, None):
            application, place = lease_of(row.sort)
            lease = LeaseState.from_dict(row.data, row.version)
            if lease.run_id == run_id and lease.is_live(self._clock()):
                after = transitions.expire(lease)
                try:
                    write_lease(self.store, self.dataset, application, place, after)
                except ConditionFailed:
                    continue  # it lives, or another has it
                ended += 1
        return ended

    def unsettled(self, lease: Lease) -> Abandoned | None:
        """The item that the lease's row names and that is still Processing: a new holder settles it before anything else."""
        if lease.current is None:
            return None
        step = self.step(lease.feed, lease.application.key)
        item = self.item(ItemKey.at(lease.feed, lease.current))
        serving = self.state(step.application).seen_by(step, lease.feed).serving_epoch
        blocker = item.blocker({step.application.key: serving})
        if blocker and blocker.state is State.PROCESSING and blocker.application.key == step.application.key:
            return Abandoned(item, blocker)
        lease.settled = True
        return None

    def verdicts(self, lease: Lease) -> Iterator[Verdict]:
        """What comes next under a lease, asked anew each time and without end; first what its last holder left unfinished."""
        if left := self.unsettled(lease):
            yield left
        while True:
            yield self.next(lease.feed, lease.application.key, holding=True)

    def claim(self, lease: Lease, items: Sequence[Item], state: StepState | None = None) -> list[Claim]:
        """Claims items under a lease, all or none, in one transaction. `state`: the Ready verdict's, for an ordered step.

        Raises LeaseLost; ConditionFailed if an item or the state changed since it was read: ask what is next again; Refused
        for an item that is not ready, and while the item that the lease's former holder worked on is not settled.
        """
        step = self.step(lease.feed, lease.application.key)
        self._require_own(lease.dataset)
        strangers = [item.key.name for item in items if item.key.feed != lease.feed]
        if strangers:
            raise Refused(f"{strangers[0]} is not of feed {lease.feed}, which the lease is for")
        unsettled = None if lease.settled else self.unsettled(lease)
        if unsettled:
            raise Refused(f"{unsettled.item.key.name} is unsettled: adopt or abandon it before the next claim")
        state = state or StepState()
        claimed, writes = transitions.claim(items, step, state, lease.token, self._stamp())
        lease.transact(writes, claimed[0].key.position if step.ordered else None)
        self._wrote(writes)
        return [Claim(item, item.records[-1], step, state, self.dataset) for item in claimed]

    def complete(self, held: Claim, payload: Payload, believed: str | None = None) -> Record:
        """Ends a claim well: record, watermark and waiting rows in one transaction. Raises ClaimLost.

        `believed`: the record by which the sink's ledger names what it applied, for steps with a sink.
        """
        return self._end(held, lambda item, state, stamp: self._completion(item, held, state, payload, stamp, None, believed))

    def fail(self, held: Claim, failure: Failure) -> Record:
        """Ends a claim badly. A passing fault is resolved by the step's policy in the same transaction. Raises ClaimLost."""
        return self._end(
            held, lambda item, _state, stamp: transitions.fail(item, held, failure, self.steps(item.key.feed), stamp)
        )

    def defer(self, held: Claim, reason: str) -> Record:
        """Ends a claim on an item that the sink is past: it is late from now on, by the step's policy. Raises ClaimLost."""
        return self._end(held, lambda item, state, stamp: transitions.defer(item, held, state, reason, stamp))

    def put_back(self, held: Claim, reason: str, died: bool = False) -> Record:
        """Ends a claim without a failure, for what is not the item's fault. Raises ClaimLost.

        `died`: what the worker works with went down while it did, so that the item is tried with fewer others.
        """
        return self._end(held, lambda item, _state, stamp: transitions.put_back(item, held, reason, stamp, died))

    def send_back(self, held: Claim, applications: Sequence[str], reason: str) -> Record:
        """Ends a claim without a failure and has applications before it do the item again. Raises ClaimLost."""
        steps = self.feeds[held.item.key.feed]
        return self._end(
            held, lambda item, _state, stamp: transitions.send_back(item, held, applications, reason, steps, stamp)
        )

    def adopt(self, lease: Lease, abandoned: Abandoned, epoch: int, payload: Payload, believed: str | None = None) -> Record:
        """Completes what a dead worker had committed, in the ledger's epoch, while this worker holds the lease."""
        held = self._inherit(lease, abandoned)
        ended = self._end(
            held,
            lambda item, state, stamp: self._completion(item, held, state, payload, stamp, epoch, believed),
            lease,
        )
        lease.settled = True
        return ended

    def believe(self, lease: Lease, record: str, instead_of: str) -> None:
        """Believes, under the lease, that the sink applied a record last. Raises LeaseLost, Refused if another is by now."""
        step = self.step(lease.feed, lease.application.key)
        self._change_state(lease, instead_of, lambda state: transitions.believe(step, lease.feed, state, record))

    def free(self, lease: Lease, key: ItemKey, reason: str) -> Record:
        """Reopens an item for the lease's step, under the lease: its sink lacks what was done. Raises Refused, LeaseLost."""
        steps, application = self.steps(key.feed), lease.application.key

        def attempt() -> Record:
            states = self._states(key.feed)
            writes = transitions.reopen(self.item(key), [application], reason, steps, states, OPERATOR, self._stamp())
            lease.transact(writes)
            return _record(writes[0])

        return optimistically(
            attempt, lambda: Refused(f"{key.name}: it changed {TRIES} times while it was reopened; try again")
        )

    def believe_sink(self, lease: Lease, sink: SinkState, instead_of: str, accepts: bool = False) -> None:
        """Believes a sink that was set back, under the lease, once every item that it lacks is reopened: one last write.

        `accepts`: the sink is taken as it is, so what it lacks of all that was done so far stays out. Raises LeaseLost; Refused
        if another record is believed by now, and while a full load is in progress.
        """
        step = self.step(lease.feed, lease.application.key)
        accepted = lease.token if accepts else 0
        self._change_state(lease, instead_of, lambda state: transitions.believe_sink(step, lease.feed, state, sink, accepted))

    def _change_state(self, lease: Lease, believed: str, writes_of: Callable[[StepState], list[Write]]) -> None:
        """Writes a changed state under the lease, as long as the record is believed that it rests on."""

        def attempt() -> None:
            state = self.state(lease.application)
            if state.feed(lease.feed).believed != believed:
                raise Refused(f"{lease.application.key} on feed {lease.feed} believes another record by now: ask what is next")
            lease.transact(writes_of(state))

        optimistically(
            attempt,
            lambda: Refused(f"the state of {lease.application.key} changed {TRIES} times while it was written; try again"),
        )

    def abandon(self, lease: Lease, abandoned: Abandoned, failure: Failure | None = None) -> Record:
        """Fails what a dead worker had not committed, as `lease_expired`, retried by the step's policy; or as given."""
        held = self._inherit(lease, abandoned)
        dead = abandoned.processing
        message = f"lease expired: {dead.author} (run {dead.run_id}, token {dead.token}) did not finish"
        failure = failure or Failure(FailureKind.LEASE_EXPIRED, message)
        ended = self._end(
            held, lambda item, _state, stamp: transitions.fail(item, held, failure, self.steps(item.key.feed), stamp), lease
        )
        lease.settled = True
        return ended

    def _inherit(self, lease: Lease, abandoned: Abandoned) -> Claim:
        """A dead worker's claim. The watermark is still the one it claimed under: nothing passes an open claim."""
        step = self.step(lease.feed, lease.application.key)
        worker = abandoned.processing.application
        if worker.key != step.application.key or abandoned.item.key.feed != lease.feed:
            raise Refused(f"{abandoned.item.key.name} is in the hands of {worker.key}: the lease is {step.application.key}'s")
        self._require_own(lease.dataset)
        return Claim(abandoned.item, abandoned.processing, step, self.state(step.application), self.dataset)

    def _require_own(self, dataset: str) -> None:
        if dataset != self.dataset:
            raise Refused(f"that is of dataset {dataset}, and this manifest is of {self.dataset}: use the one it came from")

    def _completion(
        self, item: Item, held: Claim, state: StepState, payload: Payload, stamp: Stamp, epoch: int | None, believed: str | None
    ) -> list[Write]:
        writes = transitions.complete(item, held, state, payload, self.feeds[item.key.feed], stamp, epoch, believed)
        if held.step.numbered:
            if self._last_commit is None:
                self._last_commit = self.last_commit()
            writes.append(transitions.put_commit(self._last_commit + 1, _record(writes[0]), item.key))
        return writes

    def _end(
        self,
        held: Claim,
        writes_of: Callable[[Item, StepState, Stamp], list[Write]],
        lease: Lease | None = None,
    ) -> Record:
        """Ends a claim by the item's next sequence number, whichever that is while the claim stands.

        It is tried with the item and state that the claim holds: mostly both are still those.
        """
        self._require_own(held.dataset)
        key, application = held.item.key, held.step.application
        known: tuple[Item, StepState] | None = held.item, held.state

        def end() -> Record:
            nonlocal known
            (item, state), known = known or (self.item(key), self.state(application)), None
            writes = writes_of(item, state, self._stamp())
            try:
                if lease:
                    lease.transact(writes)
                else:
                    self._write(writes)
            except ConditionFailed:
                self._last_commit = None
                raise
            self._wrote(writes)
            if writes[-1].sort.startswith(COMMITS):
                self._last_commit = commit_number(writes[-1].sort)
            return _record(writes[0])

        return optimistically(
            end,
            lambda: Refused(
                f"{key.name}: its records changed {TRIES} times while ending the claim, or its waiting rows are amiss;"
                " try again",
                Remedy(Action.REPAIR),
            ),
        )

    # Outputs

    def outputs(self) -> Outputs:
        """What the applications have made of items, as it stands from now on: what may be read, and why not."""
        return Outputs(self.item, self.serving_epochs)

    def commit_output(self, key: ItemKey, application: Application, payload: Payload, made_from: Iterable[Made] = ()) -> Record:
        """Records what an application made of an item, and from which records: Processing and Processed, at once.

        For one outside the declared steps; and for a step's whose item is done already: what it made anew takes its place.
        Raises Refused while the item is blocked, and where the step has not done it; NotCurrent where a record is superseded
        that it was made from.
        """
        steps, made = self.steps(key.feed), tuple(made_from)
        declared = next((step for step in steps if step.application.key == application.key), None)

        def writes(item: Item) -> list[Write]:
            states = self._states(key.feed)
            serving = transitions.serving_epochs(key.feed, steps, states)
            if declared and not item.processed_by(application, serving.get(application.key, 0)):
                raise Refused(f"{application.key} is a step of feed {key.feed}: it works by claims, under its lease")
            if blocker := item.blocker(serving):
                raise Refused(f"{key.name} is blocked: {blocker.application.key} is {blocker.state}")
            self.outputs().require_current(made)
            epoch = states[application.key].epoch if declared and declared.ordered else epoch_of(made)
            return transitions.output(item, application, made_of(key, payload, made), steps, self._stamp(), epoch)

        return self._operate(key, writes)

    def follow(self, lease: Lease) -> None:
        """Has a strict step begin anew, under its lease, where a full load of what it waits for left off; mostly it has.

        Raises LeaseLost.
        """
        step = self.step(lease.feed, lease.application.key)
        if step.order != "strict":
            return

        def attempt() -> None:
            writes = following(step, lease.feed, self.steps(lease.feed), self._states(lease.feed))
            if writes:
                lease.transact(writes)

        optimistically(
            attempt,
            lambda: Refused(f"the state of {step.application.key} changed {TRIES} times while it was written; try again"),
        )

    # Operators

    @contextmanager
    def rehearsing(self) -> Generator[None]:
        """While it runs, operators' decisions are checked by all their rules, and not written."""
        self._rehearsing = True
        try:
            yield
        finally:
            self._rehearsing = False

    @property
    def is_rehearsing(self) -> bool:
        """Whether operators' decisions are only checked."""
        return self._rehearsing

    def resolve(self, key: ItemKey, reason: str) -> Record:
        """Frees a failed item for another attempt. Raises Refused if it is not blocked or is being worked on."""

        steps = self.steps(key.feed)
        return self._operate(key, lambda item: transitions.resolve(item, reason, steps, self._states(key.feed), self._stamp()))

    def skip(self, key: ItemKey, reason: str, application: str = EVERYONE) -> Record:
        """Tells an application to pass over an item. Raises Refused if it is done or being worked on."""
        who = Application.parse(application)
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.skip(item, who, reason, steps, self._states(key.feed), self._stamp())
        )

    def unskip(self, key: ItemKey, reason: str) -> Record:
        """Lifts every skip of an item, or lets in one that is set aside.

        Raises Refused if it is neither, or if its place in a strict order is gone and late items are not appended.
        """
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.unskip(item, reason, steps, self._states(key.feed), DISCOVERY, self._stamp())
        )

    def reopen(
        self,
        key: ItemKey,
        applications: Sequence[str],
        reason: str,
        landed: Landed | None = None,
        automatic: bool = False,
        read: Item | None = None,
    ) -> Record:
        """Has applications, by their keys, do an item again, and frees what failed of it.

        `landed`: the directory as it lies there now, where it was rewritten on purpose. `read`: the item as it was read by who
        decided this. Raises Refused while somebody works on the item, and where it is not as it was read any more.
        """
        steps = self.steps(key.feed)

        def writes(item: Item) -> list[Write]:
            if read and item.sequence != read.sequence:
                what = f"{item.records[-1].application.key} {item.records[-1].state}"
                raise Refused(
                    f"{key.name} changed while it was looked at ({what}): look again", Remedy(Action.EXPLAIN, key.name)
                )
            states, stamp = self._states(key.feed), self._stamp()
            return transitions.reopen(item, applications, reason, steps, states, OPERATOR, stamp, landed, automatic)

        return self._operate(key, writes)

    def acknowledge(self, key: ItemKey, checksum: str, reason: str, automatic: bool = False) -> Record:
        """Notes that other content of an item's directory is known, and stays out. Raises Refused where it is known already."""
        return self._operate(
            key, lambda item: transitions.acknowledge(item, checksum, reason, OPERATOR, self._stamp(), automatic)
        )

    def note(self, key: ItemKey, reason: str) -> Record:
        """Keeps what an operator decided as a record of an item, which changes nothing about it."""
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.reopen(item, [], reason, steps, self._states(key.feed), OPERATOR, self._stamp())
        )

    def move(self, items: Sequence[tuple[Item, Move]], reason: str) -> None:
        """Records where the files of items, at most MAX_WRITES, are now."""

        def moved(item: Item, to: Move) -> Put:
            return transitions.move(item, to, reason, OPERATOR, self._stamp())

        try:
            self._write([moved(item, to) for item, to in items])
        except ConditionFailed:
            for one, to in items:
                if self.item(one.key).move != to:
                    self._operate(one.key, lambda item, to=to: [moved(item, to)])

    # Full loads

    def begin_full_load(
        self, key: ItemKey, application: str, reason: str, above: int = 0, allows: Sequence[str] = ()
    ) -> Record:
        """Begins a full load of a snapshot: a new epoch. All other feeds of the application are held until it is loaded.

        `above`: the newest epoch that the sink has seen, where that is asked: a manifest that was put back knows an older one.
        One conditional write, whatever the number of items. Raises Refused while another is in progress, and for a snapshot
        that is not ready or names no stop time.
        """
        step = self.step(key.feed, application)

        def writes(item: Item) -> list[Write]:
            state = self.state(step.application)
            return transitions.begin_full_load(item, step, state, reason, OPERATOR, self._stamp(), above, allows)

        return self._operate(key, writes)

    def cancel_full_load(self, lease: Lease, reason: str) -> Record:
        """Ends the full load in progress, under the lease of its feed: what was done before counts on.

        What a former holder began must be settled with the sink before. Raises Refused if nothing is in progress or somebody
        works on the snapshot, LeaseLost.
        """
        step = self.step(lease.feed, lease.application.key)

        def cancel() -> Record:
            state = self.state(step.application)
            item = self._begun(state, lease.feed)
            if item is None:
                raise Refused(f"{step.application.key} is loading nothing in full: there is nothing to cancel")
            writes = transitions.cancel_full_load(item, step, state, reason, OPERATOR, self._stamp())
            lease.transact(writes)
            return _record(writes[0])

        return optimistically(
            cancel, lambda: Refused(f"the state of {step.application.key} changed {TRIES} times while cancelling; try again")
        )

    def _operate(self, key: ItemKey, writes_of: Callable[[Item], list[Write]]) -> Record:
        def operate() -> Record:
            writes = writes_of(self.item(key))
            if not self._rehearsing:
                self._write(writes)
            return _record(writes[0])

        return optimistically(
            operate,
            lambda: Refused(f"{key.name}: it changed {TRIES} times, or a row beside it is wrong", Remedy(Action.EXAMINE)),
        )

    # Writing

    def _states(self, feed: str) -> dict[str, StepState]:
        """The states of a feed's ordered steps, each as it is by itself: one request."""
        ordered = {step.application.key: state_key(step.application) for step in self.steps(feed) if step.ordered}
        rows = self.store.get_many(self.dataset, ordered.values())
        return {name: _state(rows.get(sort)) for name, sort in ordered.items()}

    def _states_and_skip_rules(self, feed: str) -> tuple[dict[str, StepState], SkipRules]:
        """The states of a feed's ordered steps and the rules in force, each as it is by itself: one request."""
        ordered = {step.application.key: state_key(step.application) for step in self.steps(feed) if step.ordered}
        rows = self.store.get_many(self.dataset, [*ordered.values(), SKIP_RULES])
        return {name: _state(rows.get(sort)) for name, sort in ordered.items()}, SkipRules.of(rows.get(SKIP_RULES))

    def _stamp(self) -> Stamp:
        return Stamp(self.author, self.run_id, self._clock())

    def _write(self, writes: list[Write]) -> None:
        """Transacts writes that begin with a record, which is recognised where the answer was unclear."""
        transact_once(self.store, self.dataset, writes, mark="record_id")
        self._wrote(writes)


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
    """The survey of the items that were looked at, and of those that need somebody wherever they are."""
    waiting = {item.key: (item, how.standing) for item, how in judged if how.standing not in PASSED}
    counts = Counter(standing for _, standing in waiting.values())
    counts += Counter(STANDINGS[one.need] for one in needed[:ATTENDED] if one.need in STANDINGS and one.key not in waiting)
    stopping = [verdict.item] if isinstance(verdict, Blocked) else []
    items = [*(item for item, standing in waiting.values() if standing is not Standing.LATE), *stopping]
    oldest = min((item.records[0].timestamp for item in items), default=None)
    more = more or len(needed) > ATTENDED
    return Survey(feed, step, state, verdict, dict(counts), more, oldest, tuple(needed[:ATTENDED]), late, lease)


def _landed_checksum(row: Row) -> str | None:
    """The checksum in a record that registered a directory; None for any other, and so for items of other manifests."""
    payload = row.data["payload"]
    return payload["data"]["checksum"] if payload and payload["schema"] == LANDED else None


def _state(row: Row | None) -> StepState:
    return StepState.from_dict(row.data, row.version) if row else StepState()


def _move(row: Row) -> dict[str, Any] | None:
    """The data of a record that says where an item's files were moved to; None for any other."""
    payload = row.data["payload"]
    return payload["data"] if payload and payload["data"].get("place") else None


def _position(row: Row, prefix: str) -> str:
    return row.sort.removeprefix(prefix).rpartition("#")[0]


def _record(write: Write) -> Record:
    if not isinstance(write, Put):
        raise TypeError(f"the first write of a transition is its record, not {write}")
    return Record.from_dict(write.data)


def _lateness(key: ItemKey, steps: Sequence[Step], states: Mapping[str, StepState]) -> Literal["new", "late", "quarantined"]:
    late = [step for step in steps if step.order == "strict" and transitions.comes_late(key, states[step.application.key])]
    if not late:
        return "new"
    return "late" if all(step.late == "append" for step in late) else "quarantined"
