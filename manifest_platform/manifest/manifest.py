"""The manifest of one dataset: what may happen next, who may do it, and what has happened.

Belongs here: the operations. Each reads what it needs, calls a pure transition, and writes one transaction. The rules are in
`dataset` and `transitions`, storage is behind `store`. Programs that combine several operations are in `pipeline` and
`operations`.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, islice, takewhile
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
    passed,
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
    STATES,
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
"""The rows of the first page.

Mostly they hold the watermark's item and the next item: a step needs no more of a long backlog.
"""
RECORDS_OF_READY = 4
"""The records that an item mostly has before it is loaded: those of its registration and of its shredding, and one more."""
NEIGHBORS = 4
"""The rows of a small page: enough to hold one item and to show if the next item is needed too."""
SURVEYED, ATTENDED = 200, 1000
"""The number of waiting items, and of items that need a person or a retry, that a survey reads."""
KNOWN = 50_000
"""The number of confirmed items that a Manifest object remembers.

It remembers twice the number of keys in one call if that is more.
"""
NEEDS = frozenset({Standing.INVALID, Standing.LATE, Standing.CUT_OFF, Standing.FAILED})
DISCOVERY, OPERATOR = Application("discover", __version__), Application("operator", __version__)


@dataclass(frozen=True)
class Discovered:
    """The outcome of the registration of a landed directory.

    - `new`: registered. `late`: registered behind the watermark, and will be appended. `quarantined`: registered behind the
      watermark and set aside.
    - `known`: registered before. `changed`: known with another checksum; refused, the registered content remains valid.
    - `moved`: refused, because an item with its sort key is registered under another URI, `known_as`; it would be loaded twice.

    `skipped_by`: the ids of the skip rules that skipped it now.
    """

    landed: Landed
    outcome: Literal["new", "late", "quarantined", "known", "changed", "moved"]
    known_as: str | None = None
    skipped_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kept:
    """The stored states of steps, by application key, and their leases, by application key and feed."""

    states: dict[str, StepState]
    leases: dict[tuple[str, str], LeaseState]

    def state(self, application: str) -> StepState:
        """The state of a step; a fresh state if none is stored."""
        return self.states.get(application, StepState())


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


@dataclass(frozen=True, order=True)
class Witness:
    """A record that was read or written: its timestamp, the sort key of its row, and its id."""

    time: str
    sort: str
    record_id: str


@dataclass(frozen=True)
class Memory:
    """Evidence by which a later reading shows that the store is still the same, and not older than when it was read before.

    `id`: the manifest's identity, None if not known. `witnesses`: the newest of the records that were read or written.
    """

    id: str | None = None
    witnesses: tuple[Witness, ...] = ()

    def with_newest(self, other: Memory) -> Memory:
        """This memory with only the newest of all witnesses: its own and those of another memory of the same store."""
        return Memory(self.id, tuple(sorted({*self.witnesses, *other.witnesses})[-1:]))

    def stands(self, rows: Mapping[str, Row]) -> bool:
        """True if these rows, read just now and including the identity's row, are of the same manifest and not older."""
        found = Identity.of(rows.get(ID))
        same = self.id is None or (found is not None and found.id == self.id)
        return same and all(one.sort in rows and rows[one.sort].data["record_id"] == one.record_id for one in self.witnesses)


@dataclass(frozen=True)
class Commit:
    """The completion of an item by a numbered step, and its number: 1 for the first, without gaps."""

    number: int
    key: ItemKey
    record_id: str


@dataclass(frozen=True)
class FullListing:
    """The progress of the listing of all of a feed's directories, which is read in parts.

    `beyond`: the last name that was listed, empty at the beginning. `done_at`: the time at which a listing last reached its
    end. `version`: the row's version.
    """

    beyond: str = ""
    done_at: datetime | None = None
    version: int = ABSENT


class Manifest:
    """The manifest of one dataset over a store. Safe to share between threads.

    - `feeds`: the declared steps of each feed.
    - `author`: the program and its version, written in every record. `run_id`: the program's run; a new id by default.
    - `read_archived`: reads the archived records of an item, so that they appear with its other records.
    - `time_of`: the logical time of a directory, for skip rules with a period.

    Raises InvalidKey for a feed or application that keys cannot hold, ValueError for a step declared twice.
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
        self._asked: set[tuple[str, str]] = set()  # (feed, sort key) pairs that no item had when they were asked for
        self._taken_over: set[str] = set()  # feeds whose notes of an older release were converted
        self._nothing_noted: set[str] = set()  # feeds for which discovery last found no notes, and wrote none
        self._full_listings: dict[str, FullListing] = {}
        self._leases: dict[tuple[str, str], Lease] = {}
        self._rehearsing = False
        self._last_commit: int | None = None  # or an older number, never a newer
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
        """Raises ValueError if an application has several snapshot steps, or snapshots cover a feed that is not strict."""
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
        """The declared step of an application on a feed. Raises Refused if it is not declared."""
        for step in self.feeds.get(feed, ()):
            if step.application.key == application:
                return step
        raise Refused(f"dataset {self.dataset} declares no step {application!r} on a feed {feed!r}")

    def steps(self, feed: str) -> tuple[Step, ...]:
        """The declared steps of a feed. Raises Refused if the feed is not declared."""
        if feed not in self.feeds:
            raise Refused(f"dataset {self.dataset} declares no feed {feed!r}; there are: {', '.join(self.feeds)}")
        return self.feeds[feed]

    # Reading

    def item(self, key: ItemKey) -> Item:
        """The item with a key. Raises UnknownItem if the manifest does not have it."""
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

    def states_of(self, name: str) -> list[str]:
        """The keys of the applications with this name that have a state, whether declared now or earlier."""
        found = (row.sort.removeprefix(STATES) for row in self._pages(STATES, None))
        return [key for key in found if Application.parse(key).name == name]

    def lease(self, application: Application, feed: str) -> LeaseState | None:
        """The stored lease of a step on a feed; None if it was never taken."""
        row = self.store.get(self.dataset, lease_key(application, feed))
        return LeaseState.from_dict(row.data, row.version) if row else None

    def items(
        self, feed: str, after: str = "", page: int = PAGE, reverse: bool = False, archived: bool = True
    ) -> Iterator[Item]:
        """Yields the items of a feed in order, from beyond a position, read page by page.

        `page`: the rows of the first page. With `reverse` the newest come first, and `after` bounds from above. Without
        `archived`, items with archived records are left out, and cost no more than their row.
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
        """The item of its rows, together with its archived records."""
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
        """The records in a state among the `limit` newest records of a feed, newest item first: one query.

        Only the matching records are parsed. Parsing all took half of the 2 s that `status` of 100 datasets took.
        """
        rows = self.store.query(self.dataset, records_prefix(feed), limit=limit, reverse=True)
        return [Record.from_dict(row.data) for row in rows if row.data.get("state") == state]

    def find(self, feed: str, sort: str) -> ItemKey:
        """The key of the item with a sort key. Raises UnknownItem if there is none, Refused if there are several."""
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
        """The completions of numbered steps, in the order of their commits, from beyond a number."""
        for row in self._pages(COMMITS, commit_key(after)):
            number = commit_number(row.sort)
            yield Commit(number, ItemKey.at(row.data["feed"], row.data["position"]), row.data["record_id"])

    def last_commit(self) -> int:
        """The number of the newest completion of a numbered step; 0 before the first."""
        rows = self.store.query(self.dataset, COMMITS, limit=1, reverse=True)
        return commit_number(rows[0].sort) if rows else 0

    def serving_epochs(self, feed: str) -> dict[str, int]:
        """The serving epochs of a feed: the first epoch whose work counts, by application key of its ordered steps."""
        return transitions.serving_epochs(feed, self.steps(feed), self._states(feed))

    # What is next

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
                groups = [(at, list(some)) for at, some in groupby(rows, key=lambda row: _position(row, prefix))]
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

    # The memory of this object

    @property
    def memory(self) -> Memory:
        """The evidence of what was read and written here.

        Later it shows, also to another process, if the store was set back.
        """
        return Memory(self._id, tuple(dict.fromkeys(one for one in (self._read, self._written) if one)))

    def recall(self, other: Memory | None = None) -> bool:
        """Checks that the store is still the store that this object knows.

        If it is not, forgets everything and returns False. A store may be replaced, or set back to an earlier moment, while
        programs have it open. Another store has another identity. A store that was set back has the same identity, and lacks
        what was written last. Costs one request; none if nothing is known. `other`: the memory of another process, which must
        hold as well.
        """
        if not (self.memory.witnesses or self._leases or (other and (other.id or other.witnesses))):
            return True
        return self._recall(other or Memory(), ())[0]

    def recall_kept(self, other: Memory) -> tuple[bool, Kept]:
        """The results of `recall` and of `kept`, in one request."""
        states, leases = self._kept_at()
        stands, rows = self._recall(other, (*states.values(), *leases.values()))
        return stands, self.kept(rows) if rows else Kept({}, {})

    def _recall(self, other: Memory, more: Sequence[str]) -> tuple[bool, dict[str, Row]]:
        """Checks that the store is the known store.

        Returns the answer, and the rows read: the evidence, and those in `more`.
        """
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
        """Remembers a record's row that was read, if it is the newest."""
        seen = Witness(row.data["timestamp"], row.sort, row.data["record_id"])
        self._read = max(self._read or seen, seen)

    def _wrote(self, writes: Sequence[Write]) -> None:
        """Remembers the record that was written last."""
        if isinstance(writes[0], Put):
            self._written = Witness(writes[0].data["timestamp"], writes[0].sort, writes[0].data["record_id"])

    # Discovery

    def known(self, feed: str, keys: Sequence[ItemKey]) -> dict[str, str | None]:
        """The checksums of the items that the manifest has, by id; None for an item whose checksum it does not know.

        An item that was confirmed once costs no request. A key that was not found before, such as a directory that is never
        completed, is asked for alone, so that the items between it and the newest are not read. The oldest items are forgotten
        if there are many, because a process may live for years.
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
        """Forgets a feed's oldest items if too many are known. It keeps at least the number that is `asked` for in one call."""
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
        """True if this object remembers an item of the feed beyond a position. Sends no request."""
        return any(of_feed == feed and sort > position.partition("#")[0] for of_feed, sort in self._uris)

    def registered(self, feed: str, keys: Sequence[ItemKey]) -> dict[str, str]:
        """The ids under which the manifest has these sort keys, by sort key. Costs what `known` costs."""
        self.known(feed, keys)
        return {key.sort: self._uris[feed, key.sort] for key in keys if (feed, key.sort) in self._uris}

    def looks(self, feed: str, all_known: bool = False) -> dict[str, Row]:
        """The notes of discovery on directories that are not complete yet: a row for each directory, by its name.

        `all_known`: every directory that was listed is registered. Nothing is then read for a feed that had no notes before,
        because a process writes a note only for a directory that is not registered.
        """
        if all_known and feed in self._nothing_noted:
            return {}
        self._take_over_looks(feed)
        return {looked_at(row.sort, feed): row for row in self._pages(look_prefix(feed), None)}

    def keep_looks(self, feed: str, before: Mapping[str, Row], looks: Mapping[str, Mapping[str, str]]) -> None:
        """Stores discovery's notes on directories, in place of the notes that `looks` read before.

        A directory that is missing in `looks` is forgotten. Only changes are written. Another process's newer note stays.
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
        """Carries out writes that do not depend on each other. Writes whose row changed meanwhile are left out."""
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
        """Converts the single row of an older release to a row for each directory, once. Existing notes stay."""
        if feed in self._taken_over:
            return
        old = self.store.get(self.dataset, old_looks_key(feed))
        if old and (noted := {name: look for name, look in old.data.items() if name != NOTE}):
            self._write_notes([Put(look_key(feed, name), look, ABSENT) for name, look in noted.items()])
            kept = Put(old.sort, note(), old.version) if NOTE in old.data else Delete(old.sort, old.version)
            self._write_notes([kept])
        self._taken_over.add(feed)

    def discover(self, feed: str, landed: Sequence[Landed]) -> list[Discovered]:
        """Registers landed directories of a feed, in any order; idempotent.

        Of several directories with one sort key, only one is registered: the directory that the manifest has, or else the first
        by URI. A directory that this object has confirmed once costs no request again. A transaction registers up to about
        forty. Raises Refused for a feed that is not declared, ValueError for a directory of another feed.
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
        """True if the content is a known item's, or was acknowledged.

        The log is read only if it is not the registered content.
        """
        return self._confirmed.get(key) in (None, checksum) or self.item(key).knows(checksum)

    def _hear_of_moves(self, feed: str, landed: Sequence[Landed]) -> None:
        """Learns the current locations of items again, once the first item is found at another location.

        Another process may have recorded a move since this object read the items. Until it has, this costs a query for each
        look.
        """
        moved = [one.key for one in landed if one.key not in self._confirmed and one.key not in self._aliases]
        moved = [key for key in moved if (feed, key.sort) in self._uris]
        if moved:
            self._learn(feed, [moved[0].sort])
            if moved[0] in self._aliases:
                self._learn(feed, [key.sort for key in moved])

    def _learn(self, feed: str, sorts: Sequence[str]) -> None:
        """Remembers the items with these sort keys, every id of each, and the items between them. Items never disappear.

        It does not read between sort keys if it knows items between them already.
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
        """The sort keys among these that no item has.

        For the many items of the past: what is read of them is not remembered.
        """
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
        """The progress of the listing of all of a feed's directories. Read once, then remembered."""
        if feed not in self._full_listings:
            row = self.store.get(self.dataset, listed_key(feed))
            done_at = parse_time(row.data["done_at"]) if row and row.data["done_at"] else None
            self._full_listings[feed] = FullListing(row.data["beyond"], done_at, row.version) if row else FullListing()
        return self._full_listings[feed]

    def keep_full_listing(self, feed: str, beyond: str, done_at: datetime | None) -> None:
        """Stores the progress of the listing since `full_listing` was read. Another process's newer progress stays."""
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
        """Registers directories in one transaction. Returns the outcome of those that nobody else registered meanwhile."""
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
        """Registers any item by its id; idempotent. Only the id identifies it, not the sort key.

        For items that are not directories, which no listing finds: a row gives the item's sort key by its id. Checksums are
        compared if both are given. `known`: the item keeps its place, whatever sort key is given now. Raises Refused.
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
        """The key of an item that a program registered, by its id; None if none was."""
        row = self.store.get(self.dataset, item_key(feed, id_))
        return ItemKey(feed, row.data["sort"], id_) if row else None

    def _skips(self, landed: Sequence[Landed], rules: SkipRules, steps: Sequence[Step]) -> dict[ItemKey, list[SkipRule]]:
        """The rules that skip directories when they are registered, by item."""
        rules.require_writable()
        if rules.have_periods and self._time_of is None:
            raise Refused("a skip rule is in force for a period, and this program was given no way to tell the time of items")
        now, time_of = self._clock(), self._time_of or (lambda _: None)
        applying = {found.key: rules.applying(found.key, time_of(found), steps, now) for found in landed if rules.rules}
        return {key: found for key, found in applying.items() if found}

    # Rules that skip items when they are registered

    def skip_rules(self) -> SkipRules:
        """The rules in force, and the number of changes so far."""
        return SkipRules.of(self.store.get(self.dataset, SKIP_RULES))

    def skip_rule_changes(self) -> Iterator[RuleChange]:
        """All changes of the skip rules, oldest first."""
        return (RuleChange.of(row) for row in self._pages(SKIP_RULE_CHANGES, None))

    def add_skip_rule(self, wanted: SkipRule) -> SkipRule:
        """Adds a rule: matching items that are registered from now on are skipped, whoever registers them.

        Registered items stay unchanged. Raises Refused if there are too many rules, if the rule has ended already, and for a
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
        """Ends a rule; items that it has skipped stay skipped. Raises Refused if no rule has this id."""
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
        """Takes the lease of a step on a feed, with a heartbeat. Raises LeaseBusy while another worker's lease is live."""
        return self.hold(self.step(feed, application).application, feed, holder, duration)

    def hold(self, application: Application, place: str, holder: str, duration: timedelta) -> Lease:
        """Takes a lease of an application at a place: a feed, or any other subject.

        Raises LeaseBusy while another worker's is live. A lease that this object gave back is taken again without reading it
        first: mostly nobody else has had it meanwhile.
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
        """Ends the leases of a run that is known to be dead, so that nobody waits for them. Returns their number."""
        ended = 0
        for row in self._pages(LEASES, None):
            application, place = lease_of(row.sort)
            lease = LeaseState.from_dict(row.data, row.version)
            if lease.run_id == run_id and lease.is_live(self._clock()):
                after = transitions.expire(lease)
                try:
                    write_lease(self.store, self.dataset, application, place, after)
                except ConditionFailed:
                    continue  # its holder lives, or another has taken it
                ended += 1
        return ended

    def unsettled(self, lease: Lease) -> Abandoned | None:
        """The first item that is still Processing of those that the lease's row names: a new holder settles them first."""
        if lease.current is None:
            return None
        step = self.step(lease.feed, lease.application.key)
        serving = self.state(step.application).seen_by(step, lease.feed).serving_epoch
        for item in self._claimed_last(lease):
            blocker = item.blocker({step.application.key: serving})
            if blocker and blocker.state is State.PROCESSING and blocker.application.key == step.application.key:
                return Abandoned(item, blocker)
        lease.settled = True
        return None

    def _claimed_last(self, lease: Lease) -> Iterator[Item]:
        """Yields the item that the lease's row names, and the items up to the last that was claimed together with it."""
        first, last = ItemKey.at(lease.feed, lease.current or ""), lease.through
        yield self.item(first)
        if last:
            coming = self.items(lease.feed, after=first.position)
            yield from takewhile(lambda item: item.key.position <= last, coming)

    def verdicts(self, lease: Lease) -> Iterator[Verdict]:
        """Yields verdicts under a lease without end: first the items that its last holder left open, then each next verdict."""
        while left := self.unsettled(lease):
            yield left
        while True:
            yield self.next(lease.feed, lease.application.key, holding=True)

    def following(self, ready: Ready, application: str, most: int) -> list[Item]:
        """The items that may be claimed together with a strict step's next item: ready, and directly behind it in the order.

        At most `most`, read with one query. Empty for an item that is late or reopened, which is claimed alone.
        """
        first, state = ready.item, ready.state
        feed, step = first.key.feed, self.step(first.key.feed, application)
        standing, found = state.feed(feed), list[Item]()
        if step.order != "strict" or most < 1 or not _is_in_order(first, step, standing):
            return found
        standing = supposing_done(standing, first)
        for item in self.items(feed, after=first.key.position, page=min(PAGE, RECORDS_OF_READY * most)):
            judged = judge(item, step, standing)
            if judged.standing is Standing.READY and _is_in_order(item, step, standing):
                found.append(item)
                standing = supposing_done(standing, item)
            elif judged.standing in PASSED or judged.standing is Standing.LATE:
                standing = passed(standing, item, judged)
            else:
                break
            if len(found) == most:
                break
        return found

    def claim(
        self,
        lease: Lease,
        items: Sequence[Item],
        state: StepState | None = None,
        together: int = 0,
        behind: Claim | None = None,
    ) -> list[Claim]:
        """Claims items under a lease, all or none, in one transaction. `state`: the Ready verdict's, for an ordered step.

        Items that are too many for a transaction are claimed in parts. `together`: the number of items of all parts. `behind`:
        the first claim of the parts before.

        Raises LeaseLost; ConditionFailed if an item or the state changed since it was read: call `next` again; Refused for an
        item that is not ready, and while the items of the lease's former holder are not settled.
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
        claimed, writes = transitions.claim(items, step, state, lease.token, self._stamp(), together)
        first = behind.item if behind else claimed[0]
        through = claimed[-1].key.position if claimed[-1].key != first.key else None
        lease.transact(writes, first.key.position if step.ordered else None, through)
        self._wrote(writes)
        return [Claim(item, item.records[-1], step, state, self.dataset) for item in claimed]

    def complete(self, held: Claim, payload: Payload, believed: str | None = None) -> Record:
        """Ends a claim with success: record, watermark and waiting rows in one transaction. Raises ClaimLost.

        `believed`: the record that the sink's ledger names for the load, for steps with a sink.
        """
        return self._end(held, lambda item, state, stamp: self._completion(item, held, state, payload, stamp, None, believed))

    def complete_all(
        self, done: Sequence[tuple[Claim, Payload, str]], state: StepState | None = None
    ) -> tuple[list[Record], StepState]:
        """Ends claims of a strict step with success, in their order, in one transaction: `complete` of each. Raises ClaimLost.

        `done`: each claim, its payload, and the record that the sink's ledger names for it. `state`: the step's state, if the
        caller has written it since the claims. Returns the records, and the state that was written.
        """
        claims = [held for held, _, _ in done]
        first, feed = claims[0], claims[0].item.key.feed
        self._require_own(first.dataset)
        known: tuple[list[Item], StepState] | None = [held.item for held in claims], state or first.state

        def end() -> tuple[list[Record], StepState]:
            nonlocal known
            if known is None:
                known = [self.item(held.item.key) for held in claims], self.state(first.step.application)
            (items, before), known = known, None
            ends = [(item, held, payload, believed) for item, (held, payload, believed) in zip(items, done, strict=True)]
            writes, after = transitions.complete_all(ends, before, self.feeds[feed], self._stamp())
            self._write(writes)
            records = [Record.from_dict(write.data) for write in writes if isinstance(write, Put) and "record_id" in write.data]
            return records, replace(after, version=before.version + 1)

        return optimistically(
            end,
            lambda: Refused(
                f"{first.item.key.name} and {len(claims) - 1} more: their records changed {TRIES} times while their claims were"
                " ended, or their waiting rows are wrong. Try again",
                Remedy(Action.REPAIR),
            ),
        )

    def fail(self, held: Claim, failure: Failure) -> Record:
        """Ends a claim with a failure. A transient fault is resolved by the step's policy in the same transaction.

        Raises ClaimLost.
        """
        return self._end(
            held, lambda item, _state, stamp: transitions.fail(item, held, failure, self.steps(item.key.feed), stamp)
        )

    def defer(self, held: Claim, reason: str) -> Record:
        """Ends a claim on an item that the sink is past: it becomes late, by the step's policy. Raises ClaimLost."""
        return self._end(held, lambda item, state, stamp: transitions.defer(item, held, state, reason, stamp))

    def put_back(self, held: Claim, reason: str, died: bool = False) -> Record:
        """Ends a claim without a failure, for causes that are not the item's fault. Raises ClaimLost.

        `died`: the worker's cluster or server went down during the work, so the item is tried with fewer others.
        """
        return self._end(held, lambda item, _state, stamp: transitions.put_back(item, held, reason, stamp, died))

    def put_back_all(self, claims: Sequence[Claim], reason: str) -> None:
        """Ends claims of a step without a failure, as `put_back` of each, in one transaction. Raises ClaimLost."""
        self._require_own(claims[0].dataset)
        known: list[Item] | None = [held.item for held in claims]

        def end() -> None:
            nonlocal known
            items, known = known or [self.item(held.item.key) for held in claims], None
            self._write(
                [
                    write
                    for item, held in zip(items, claims, strict=True)
                    for write in transitions.put_back(item, held, reason, replace(self._stamp(), record_id=str(uuid4())))
                ]
            )

        optimistically(
            end, lambda: Refused(f"{claims[0].item.key.name} and the items behind it changed {TRIES} times; try again")
        )

    def send_back(self, held: Claim, applications: Sequence[str], reason: str) -> Record:
        """Ends a claim without a failure and reopens the item for upstream applications. Raises ClaimLost."""
        steps = self.feeds[held.item.key.feed]
        return self._end(
            held, lambda item, _state, stamp: transitions.send_back(item, held, applications, reason, steps, stamp)
        )

    def adopt(self, lease: Lease, abandoned: Abandoned, epoch: int, payload: Payload, believed: str | None = None) -> Record:
        """Completes an item that a dead worker had committed, in the ledger's epoch, under this worker's lease."""
        held = self._inherit(lease, abandoned)
        ended = self._end(
            held,
            lambda item, state, stamp: self._completion(item, held, state, payload, stamp, epoch, believed),
            lease,
        )
        lease.settled = lease.settled or lease.through is None  # others may be left of those that were claimed together
        return ended

    def believe(self, lease: Lease, record: str, instead_of: str) -> None:
        """Stores, under the lease, which record the sink applied last.

        Raises LeaseLost; Refused if another is believed by now.
        """
        step = self.step(lease.feed, lease.application.key)
        self._change_state(lease, instead_of, lambda state: transitions.believe(step, lease.feed, state, record))

    def free(self, lease: Lease, key: ItemKey, reason: str) -> Record:
        """Reopens an item for the lease's step, under the lease, because its sink lacks it. Raises Refused, LeaseLost."""
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
        """Believes a sink that was set back, under the lease, after every item that it lacks was reopened: one last write.

        `accepts`: the sink is accepted as it is, so the items that it lacks so far stay out. Raises LeaseLost; Refused if
        another record is believed by now, and while a full load is in progress.
        """
        step = self.step(lease.feed, lease.application.key)
        accepted = lease.token if accepts else 0
        self._change_state(lease, instead_of, lambda state: transitions.believe_sink(step, lease.feed, state, sink, accepted))

    def _change_state(self, lease: Lease, believed: str, writes_of: Callable[[StepState], list[Write]]) -> None:
        """Writes a changed state under the lease, on condition that the believed record has not changed."""

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
        """Fails an item that a dead worker had not committed: as `lease_expired`, retried by the step's policy, or as given."""
        held = self._inherit(lease, abandoned)
        dead = abandoned.processing
        message = f"lease expired: {dead.author} (run {dead.run_id}, token {dead.token}) did not finish"
        failure = failure or Failure(FailureKind.LEASE_EXPIRED, message)
        ended = self._end(
            held, lambda item, _state, stamp: transitions.fail(item, held, failure, self.steps(item.key.feed), stamp), lease
        )
        lease.settled = lease.settled or lease.through is None  # others may be left of those that were claimed together
        return ended

    def _inherit(self, lease: Lease, abandoned: Abandoned) -> Claim:
        """A dead worker's claim, with the state as it is now."""
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
        """Ends a claim under the item's next sequence number, as long as the claim is open.

        The first try uses the item and state in the claim: mostly both are current.
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
                f"{key.name}: its records changed {TRIES} times while the claim was ended, or its waiting rows are wrong."
                " Try again",
                Remedy(Action.REPAIR),
            ),
        )

    # Outputs

    def outputs(self) -> Outputs:
        """The outputs of items as of now: which may be read, and why others may not."""
        return Outputs(self.item, self.serving_epochs)

    def commit_output(self, key: ItemKey, application: Application, payload: Payload, made_from: Iterable[Made] = ()) -> Record:
        """Records an application's output of an item, and the records it was made from: Processing and Processed, together.

        For an application that is no declared step, or for a declared step that has done the item already: its new output
        replaces the old. Raises Refused while the item is blocked, and if the declared step has not done it; NotCurrent if a
        record that it was made from is superseded.
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
        """Lets a strict step begin again, under its lease, after a full load of its upstream.

        Usually it has nothing to write. Raises LeaseLost.
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
        """A dry run: inside the block, operators' decisions are checked by all rules and not written."""
        self._rehearsing = True
        try:
            yield
        finally:
            self._rehearsing = False

    @property
    def is_rehearsing(self) -> bool:
        """True if operators' decisions are only checked."""
        return self._rehearsing

    def resolve(self, key: ItemKey, reason: str, of: Application | None = None) -> Record:
        """Frees a failed item for another attempt. Raises Refused if it is not blocked or is being processed.

        `of`: only from the failure of this application, if several have failed.
        """

        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.resolve(item, reason, steps, self._states(key.feed), self._stamp(), of)
        )

    def skip(self, key: ItemKey, reason: str, application: str = EVERYONE) -> Record:
        """Makes an application pass over an item. Raises Refused if the item is done or being processed."""
        who = Application.parse(application)
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.skip(item, who, reason, steps, self._states(key.feed), self._stamp())
        )

    def unskip(self, key: ItemKey, reason: str) -> Record:
        """Lifts every skip of an item, or lets in an item that is set aside.

        Raises Refused if it is neither, or if its place in a strict order has passed and late items are not appended.
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
        """Makes applications, by their keys, do an item again, and resolves their failures.

        `landed`: the directory's current content, if it was rewritten on purpose. `read`: the item on which the decision is
        based. Raises Refused while the item is being processed, and if it has changed since it was read.
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

    def reload(self, key: ItemKey, application: Application, reason: str, allows: Sequence[str] = ()) -> Record:
        """Makes a strict step replace the rows that it has of an item. The item keeps its place in the order.

        Raises Refused for an item that the step has not done, or that waits to be reloaded already, and while somebody works on
        it.
        """
        steps = self.steps(key.feed)

        def writes(item: Item) -> list[Write]:
            states, stamp = self._states(key.feed), self._stamp()
            return transitions.reload(item, application, reason, allows, steps, states, OPERATOR, stamp)

        return self._operate(key, writes)

    def replay(self, landed: Landed, origins: Mapping[ItemKey, tuple[int, int]], file: str, reason: str) -> Discovered:
        """Registers an item that consists of bad lines of other items, and records at each of these that its lines went there.

        `origins`: the number of lines of each item, and the number of its records when these lines were chosen. `file`: names
        the lines. Raises Refused if an item has changed since, as when it was replayed or shredded again: then choose again.
        """
        key, steps = landed.key, self.steps(landed.key.feed)

        def attempt() -> Discovered:
            items: list[tuple[Item, int]] = []
            for origin, (lines, before) in origins.items():
                item = self.item(origin)
                if len(item.records) != before:
                    raise Refused(f"{origin.name} changed meanwhile, as by another replay; try again")
                items.append((item, lines))
            states, rules = self._states_and_skip_rules(key.feed)
            skips = self._skips([landed], rules, steps)
            writes = transitions.replay(landed, items, file, reason, steps, states, OPERATOR, self._stamp(), skips)
            if not self._rehearsing:
                self._write([*writes, Check(SKIP_RULES, rules.version)])
            return Discovered(landed, _lateness(key, steps, states))

        return optimistically(
            attempt, lambda: Refused(f"{key.name}: the items that it replays changed {TRIES} times meanwhile; try again")
        )

    def acknowledge(self, key: ItemKey, checksum: str, reason: str, automatic: bool = False) -> Record:
        """Records that other content of an item's directory is known, and will not be loaded.

        Raises Refused if it is known already.
        """
        return self._operate(
            key, lambda item: transitions.acknowledge(item, checksum, reason, OPERATOR, self._stamp(), automatic)
        )

    def note(self, key: ItemKey, reason: str) -> Record:
        """Keeps an operator's decision as a record of an item, with no effect on the item."""
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.reopen(item, [], reason, steps, self._states(key.feed), OPERATOR, self._stamp())
        )

    def move(self, items: Sequence[tuple[Item, Move]], reason: str) -> None:
        """Records the current location of the files of items, at most MAX_WRITES."""

        def moved(item: Item, to: Move) -> Put:
            return transitions.move(item, to, reason, OPERATOR, self._stamp())

        try:
            self._write([moved(item, to) for item, to in items])
        except ConditionFailed:
            for one, to in items:
                if self.item(one.key).move != to:
                    self._operate(one.key, lambda item, to=to: [moved(item, to)])

    # The start of a target

    def start(self, application: Application, key: ItemKey, reason: str) -> None:
        """Lets an ordered step that has done nothing yet start with an item, and pass over the items before it.

        Nothing is written for a step that has begun, and for the first item.
        """
        step = self.step(key.feed, application.key)

        def attempt() -> None:
            state, item = self.state(application), self.item(key)
            before = next(self.items(key.feed, after=key.position, page=FIRST_PAGE, reverse=True), None)
            if before and not state.has_begun:
                self._write(transitions.start(step, state, item, before, reason, OPERATOR, self._stamp()))

        optimistically(
            attempt, lambda: Refused(f"the state of {application.key} changed {TRIES} times while it was begun; try again")
        )

    # Full loads

    def begin_full_load(
        self, key: ItemKey, application: str, reason: str, above: int = 0, allows: Sequence[str] = ()
    ) -> Record:
        """Begins a full load of a snapshot: a new epoch. All other feeds of the application are held until it is loaded.

        `above`: the newest epoch that the sink has seen, if it was asked: a manifest that was set back knows an older epoch.
        One conditional write, whatever the number of items. Raises Refused while another full load is in progress, and for a
        snapshot that is not ready or has no stop time.
        """
        step = self.step(key.feed, application)

        def writes(item: Item) -> list[Write]:
            state = self.state(step.application)
            return transitions.begin_full_load(item, step, state, reason, OPERATOR, self._stamp(), above, allows)

        return self._operate(key, writes)

    def cancel_full_load(self, lease: Lease, reason: str) -> Record:
        """Ends the full load in progress, under the lease of its feed. Earlier work counts again.

        An item of a former holder must be settled with the sink before. Raises Refused if no full load is in progress or the
        snapshot is being processed; LeaseLost.
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
            cancel,
            lambda: Refused(
                f"the state of {step.application.key} changed {TRIES} times while the full load was canceled; try again"
            ),
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
        """The stored states of a feed's ordered steps, each strongly consistent by itself: one request."""
        ordered = {step.application.key: state_key(step.application) for step in self.steps(feed) if step.ordered}
        rows = self.store.get_many(self.dataset, ordered.values())
        return {name: _state(rows.get(sort)) for name, sort in ordered.items()}

    def _states_and_skip_rules(self, feed: str) -> tuple[dict[str, StepState], SkipRules]:
        """The states of a feed's ordered steps and the skip rules in force: one request, each strongly consistent by itself."""
        ordered = {step.application.key: state_key(step.application) for step in self.steps(feed) if step.ordered}
        rows = self.store.get_many(self.dataset, [*ordered.values(), SKIP_RULES])
        return {name: _state(rows.get(sort)) for name, sort in ordered.items()}, SkipRules.of(rows.get(SKIP_RULES))

    def _stamp(self) -> Stamp:
        return Stamp(self.author, self.run_id, self._clock())

    def _write(self, writes: list[Write]) -> None:
        """Transacts writes that begin with a record. The record identifies the write after an unclear answer."""
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
    """The survey of the items that were read, and of the items that need attention."""
    waiting = {item.key: (item, how.standing) for item, how in judged if how.standing not in PASSED}
    counts = Counter(standing for _, standing in waiting.values())
    counts += Counter(STANDINGS[one.need] for one in needed[:ATTENDED] if one.need in STANDINGS and one.key not in waiting)
    stopping = [verdict.item] if isinstance(verdict, Blocked) else []
    items = [*(item for item, standing in waiting.values() if standing is not Standing.LATE), *stopping]
    oldest = min((item.records[0].timestamp for item in items), default=None)
    more = more or len(needed) > ATTENDED
    return Survey(feed, step, state, verdict, dict(counts), more, oldest, tuple(needed[:ATTENDED]), late, lease)


def _is_in_order(item: Item, step: Step, feed: FeedState) -> bool:
    """True if an item is ahead of the watermark and not late, so that the step takes it in its place."""
    return item.key.position > feed.watermark and not item.is_late_for(step.application, feed.serving_epoch)


def _landed_checksum(row: Row) -> str | None:
    """The checksum in a record that registered a directory; None for any other, such as a record of another system."""
    payload = row.data["payload"]
    return payload["data"]["checksum"] if payload and payload["schema"] == LANDED else None


def _state(row: Row | None) -> StepState:
    return StepState.from_dict(row.data, row.version) if row else StepState()


def _move(row: Row) -> dict[str, Any] | None:
    """The data of a record that moved an item's files; None for any other record."""
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
