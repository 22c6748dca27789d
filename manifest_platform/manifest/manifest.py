"""The manifest of one dataset: what may happen next, who may do it, and what has happened.

Belongs here: the operations, each a read of what it needs, a pure transition and one transaction. The rules are in
`dataset` and `transitions`, storage behind `store`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Literal
from uuid import uuid4

from manifest_platform.manifest import transitions
from manifest_platform.manifest.dataset import (
    INCREMENTAL,
    PASSED,
    Abandoned,
    Blocked,
    FeedState,
    Idle,
    Judgement,
    LeaseState,
    Ready,
    Standing,
    Step,
    StepState,
    Verdict,
    blocked,
    judge,
)
from manifest_platform.manifest.item import Item, ItemKey, Landed, check_key_text
from manifest_platform.manifest.lease import Lease, write_lease
from manifest_platform.manifest.records import EVERYONE, Application, Payload, Record, Stamp, State
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, ConditionFailed, Put, Row, Store, Write, transact_once
from manifest_platform.manifest.transitions import Claim, Failure, Refused

PAGE = 500
FIRST_PAGE = 40
"""Rows that hold the watermark's item and the next, mostly: a step needs no more of a long backlog."""
RETRIES = 20
DISCOVERY = Application("discover")


class UnknownItem(Refused):
    """An item that the manifest does not have."""


@dataclass(frozen=True)
class Discovered:
    """What became of a landed directory.

    `new`: registered. `late`: registered behind the watermark, to be appended. `quarantined`: registered behind the watermark
    and set aside. `known`: registered before. `changed`: known with another checksum; refused, the first one stands.
    `moved`: refused, for an item with its sort key is registered under another URI, `known_as`; it would be done twice.
    """

    landed: Landed
    outcome: Literal["new", "late", "quarantined", "known", "changed", "moved"]
    known_as: str | None = None


@dataclass(frozen=True)
class Survey:
    """A feed for people: its state, what is next, and how many items of its backlog stand how with the step."""

    feed: str
    step: Step
    state: StepState
    verdict: Verdict
    counts: dict[Standing, int]
    oldest_waiting: datetime | None
    lease: LeaseState | None


class Manifest:
    """The manifest of one dataset over a store. Safe to share between threads.

    `feeds` declares the steps of each feed; `author` names the program (and its version) in every record it writes. Raises
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
    ):
        self.store, self.dataset, self.author, self.run_id = store, dataset, author, run_id
        self.feeds = {feed: tuple(steps) for feed, steps in feeds.items()}
        self._clock = clock
        self._confirmed: dict[ItemKey, str] = {}
        self._uris: dict[tuple[str, str], str] = {}
        for feed, steps in self.feeds.items():
            check_key_text("feed", feed)
            names = [step.application.key for step in steps]
            for name in names:
                check_key_text("application", name)
            if len(set(names)) < len(names):
                raise ValueError(f"feed {feed} declares a step twice: {', '.join(names)}")

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
        rows = self.store.query(self.dataset, transitions.records_prefix(key.feed, key.position))
        if not rows:
            raise UnknownItem(f"dataset {self.dataset} has no item {key.id} in feed {key.feed}; is it discovered yet?")
        return Item(key, tuple(Record.from_dict(row.data) for row in rows))

    def history(self, key: ItemKey) -> tuple[Record, ...]:
        """All records of an item, oldest first. Raises UnknownItem."""
        return self.item(key).records

    def state(self, application: Application) -> StepState:
        """The stored state of a step: mode, epoch, watermarks."""
        row = self.store.get(self.dataset, transitions.state_key(application))
        return StepState.from_dict(row.data, row.version) if row else StepState()

    def lease(self, application: Application, feed: str) -> LeaseState | None:
        """The stored lease of a step on a feed."""
        row = self.store.get(self.dataset, transitions.lease_key(application, feed))
        return LeaseState.from_dict(row.data, row.version) if row else None

    def items(self, feed: str, after: str = "", page: int = PAGE) -> Iterator[Item]:
        """The items of a feed in order, from beyond a position on, read page by page; `page`: rows of the first."""
        prefix = transitions.records_prefix(feed)
        last = f"{prefix}{after}#~" if after else None
        for position, rows in groupby(self._pages(prefix, last, page), key=lambda row: _position(row, prefix)):
            yield Item(ItemKey.at(feed, position), tuple(Record.from_dict(row.data) for row in rows))

    def _pages(self, prefix: str, after: str | None, page: int = PAGE) -> Iterator[Row]:
        while True:
            rows = self.store.query(self.dataset, prefix, after=after, limit=page)
            yield from rows
            if len(rows) < page:
                return
            after, page = rows[-1].sort, PAGE

    def newest(self, feed: str, limit: int) -> list[Record]:
        """The records of the newest items of a feed, newest first, at most `limit`: one query."""
        rows = self.store.query(self.dataset, transitions.records_prefix(feed), limit=limit, reverse=True)
        return [Record.from_dict(row.data) for row in rows]

    def find(self, feed: str, sort: str) -> ItemKey:
        """The key of the item with a sort key. Raises UnknownItem if there is none, Refused if it is not the only one."""
        rows = self.store.query(self.dataset, f"{transitions.records_prefix(feed)}{sort}#")
        prefix = transitions.records_prefix(feed)
        positions = sorted({_position(row, prefix) for row in rows})
        if not positions:
            raise UnknownItem(f"dataset {self.dataset} has no item {sort} in feed {feed}; is it discovered yet?")
        if len(positions) > 1:
            uris = ", ".join(ItemKey.at(feed, position).id for position in positions)
            raise Refused(f"{sort} names {len(positions)} items; give the URI: {uris}")
        return ItemKey.at(feed, positions[0])

    # What is next

    def next(self, feed: str, application: str, holding: bool = False) -> Verdict:
        """What a step may do next on a feed: Ready(item), Blocked(item, reason), Abandoned(item) or Idle.

        An ordered step gets the earliest item that is not done, or nothing: one query from its swept watermark on. An
        unordered one gets its earliest waiting item that nothing blocks. `holding`: the caller holds the lease and has no
        claim of its own open, so an open Processing of the step is a dead worker's and comes back as Abandoned.
        """
        step = self.step(feed, application)
        if step.order == "any":
            return self._next_any(step, feed, holding)
        lost = 0
        while lost < RETRIES:
            state = self.state(step.application)
            found = self._next_strict(step, state, feed, holding)
            if not isinstance(found, Item):
                return found
            lost += not self._sweep(found, step, state)
        raise Refused(f"{application} on feed {feed}: the watermark moved {RETRIES} times while looking; try again")

    def _next_any(self, step: Step, feed: str, holding: bool) -> Verdict:
        stuck: Blocked | None = None
        for item in self._pending(step, feed):
            judged = judge(item, step, StepState().feed(feed))
            if judged.standing in PASSED:
                continue
            verdict = _verdict(item, judged, step, StepState(), holding)
            if not isinstance(verdict, Blocked):
                return verdict
            stuck = stuck or verdict
        return stuck or Idle()

    def _next_strict(self, step: Step, state: StepState, feed: str, holding: bool) -> Verdict | Item:
        """The verdict under one reading of the state; or an item that the watermark jumped, to be marked late first."""
        if state.mode != INCREMENTAL:
            item = next(self.items(feed, after=state.feed(feed).watermark), None)
            judged = Judgement(Standing.MODE, f"{step.application.key} is in mode {state.mode}: other feeds wait")
            return blocked(item, judged) if item else Idle()
        standing = state.feed(feed)
        late = self._next_late(step, state, feed, holding) if standing.late else None
        for item in self.items(feed, after=standing.swept, page=FIRST_PAGE):
            judged = judge(item, step, standing)
            if item.key.position <= standing.watermark:
                if judged.standing not in PASSED and not item.is_late_for(step.application):
                    return item
            elif late:
                return late
            elif judged.standing not in PASSED:
                return _verdict(item, judged, step, state, holding)
            standing = _passed(standing, item, judged)
        return late or Idle()

    def _next_late(self, step: Step, state: StepState, feed: str, holding: bool) -> Verdict | None:
        for item in self._pending(step, feed):
            judged = judge(item, step, state.feed(feed))
            if judged.standing not in PASSED:
                return _verdict(item, judged, step, state, holding)
        return None

    def _sweep(self, item: Item, step: Step, state: StepState) -> bool:
        """Marks an item late; False if the state or the item changed meanwhile, so that one looks again."""
        try:
            self._write(transitions.sweep(item, step, state, DISCOVERY, self._stamp()))
        except ConditionFailed:
            return False
        return True

    def _pending(self, step: Step, feed: str) -> Iterator[Item]:
        prefix = transitions.pending_prefix(step.application, feed)
        for row in self._pages(prefix, None):
            yield self.item(ItemKey.at(feed, row.sort.removeprefix(prefix)))

    def any_pending(self, feed: str, application: str) -> bool:
        """Whether any item waits for an unordered step, blocked or not: one query."""
        prefix = transitions.pending_prefix(self.step(feed, application).application, feed)
        return bool(self.store.query(self.dataset, prefix, limit=1))

    def waiting(self, feed: str, application: str, limit: int) -> tuple[list[Item], list[Blocked]]:
        """The oldest items that an unordered step may claim, at most `limit`; and those before them that are blocked."""
        step = self.step(feed, application)
        ready: list[Item] = []
        stuck: list[Blocked] = []
        for item in self._pending(step, feed):
            judged = judge(item, step, StepState().feed(feed))
            if judged.standing is Standing.READY:
                ready.append(item)
            elif judged.standing not in PASSED:
                stuck.append(blocked(item, judged))
            if len(ready) == limit:
                break
        return ready, stuck

    def backlog(self, feed: str, application: str) -> Iterator[tuple[Item, Judgement]]:
        """The items that a step has not done, in the order in which it will: late ones to append first, then the feed's.

        Quarantined items are among them, with their standing; skipped ones are not.
        """
        step = self.step(feed, application)
        state = self.state(step.application).feed(feed)
        strict = step.order == "strict"
        seen: set[ItemKey] = set()
        if not strict or state.late:
            for item in self._pending(step, feed):
                seen.add(item.key)
                judged = judge(item, step, state)
                if judged.standing not in PASSED:
                    yield item, judged
        if strict:
            for item in self.items(feed, after=state.swept):
                judged = judge(item, step, state)
                if judged.standing not in PASSED and item.key not in seen:
                    yield item, judged
                state = _passed(state, item, judged)

    def survey(self, feed: str, application: str) -> Survey:
        """A feed's state for people, folded from its backlog."""
        step = self.step(feed, application)
        verdict = self.next(feed, application)
        counts: dict[Standing, int] = {}
        oldest: datetime | None = None
        for item, judged in self.backlog(feed, application):
            counts[judged.standing] = counts.get(judged.standing, 0) + 1
            if judged.standing is not Standing.LATE:
                landed = item.records[0].timestamp
                oldest = min(oldest, landed) if oldest else landed
        state, lease = self.state(step.application), self.lease(step.application, feed)
        return Survey(feed, step, state, verdict, counts, oldest, lease)

    # Discovery

    def known(self, feed: str, keys: Sequence[ItemKey]) -> dict[str, str]:
        """Which of the items the manifest has: their checksums by id. What it has once confirmed costs no request."""
        unheard = [key.sort for key in keys if (feed, key.sort) not in self._uris]
        if unheard:
            self._learn(feed, min(unheard), max(unheard))
        return {key.id: self._confirmed[key] for key in keys if key in self._confirmed}

    def looks(self, feed: str) -> dict[str, dict[str, str]]:
        """What discovery noted of directories that are not complete yet, by name."""
        row = self.store.get(self.dataset, transitions.looks_key(feed))
        return row.data if row else {}

    def keep_looks(self, feed: str, looks: Mapping[str, Mapping[str, str]]) -> None:
        """Notes what discovery saw of directories that are not complete yet. Another process's newer note stays."""
        row = self.store.get(self.dataset, transitions.looks_key(feed))
        version = row.version if row else ABSENT
        try:
            write = Put(transitions.looks_key(feed), {name: dict(look) for name, look in looks.items()}, version)
            self.store.transact(self.dataset, [write], str(uuid4()))
        except ConditionFailed:
            return

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
            self._learn(feed, unheard[0], unheard[-1])
            by_sort: dict[str, Landed] = {}
            for found in sorted(landed, key=lambda one: one.key):
                by_sort.setdefault(found.key.sort, found)
            fresh = [by_sort[sort] for sort in unheard if (feed, sort) not in self._uris]
            size = (MAX_WRITES - len(steps)) // (1 + len(steps))
            for start in range(0, len(fresh), size):
                registered.update(self._register(feed, fresh[start : start + size]))
        return [registered.pop(found.key, None) or self._compare(found) for found in landed]

    def _compare(self, found: Landed) -> Discovered:
        if found.key not in self._confirmed:
            return Discovered(found, "moved", self._uris[found.key.feed, found.key.sort])
        return Discovered(found, "known" if self._confirmed[found.key] == found.checksum else "changed")

    def _learn(self, feed: str, first: str, last: str) -> None:
        """Remembers the items from one sort key to another, every id of each: an item never goes away."""
        prefix = transitions.records_prefix(feed)
        for row in self._pages(prefix, f"{prefix}{first}#"):
            key = ItemKey.at(feed, _position(row, prefix))
            if key.sort > last:
                break
            if row.data["state"] == State.NEW and key not in self._confirmed:
                self._remember(key, row.data["payload"]["data"]["checksum"])

    def _remember(self, key: ItemKey, checksum: str) -> None:
        self._confirmed[key] = checksum
        self._uris.setdefault((key.feed, key.sort), key.id)

    def _register(self, feed: str, landed: Sequence[Landed]) -> dict[ItemKey, Discovered]:
        """Registers directories in one transaction, and says what became of those that nobody else registered meanwhile."""
        steps = self.feeds[feed]
        lost = 0
        while landed and lost < RETRIES:
            states = self._states(feed)
            writes = transitions.discover(landed, steps, states, DISCOVERY, self._stamp())
            try:
                self._write(writes)
            except ConditionFailed:
                self._learn(feed, landed[0].key.sort, landed[-1].key.sort)
                left = [found for found in landed if (feed, found.key.sort) not in self._uris]
                lost += len(left) == len(landed)
                landed = left
                continue
            for found in landed:
                self._remember(found.key, found.checksum)
            return {found.key: Discovered(found, _lateness(found.key, steps, states)) for found in landed}
        if landed:
            raise Refused(f"feed {feed}: the watermark moved {RETRIES} times during discovery; try again")
        return {}

    # Working

    def acquire(self, feed: str, application: str, holder: str, duration: timedelta) -> Lease:
        """Takes the lease of a step on a feed, with a heartbeat. Raises LeaseBusy while another's is live."""
        step = self.step(feed, application)
        for _ in range(RETRIES):
            stamp = self._stamp()
            before = self.lease(step.application, feed)
            after = transitions.acquire(step.application, feed, before, holder, stamp, duration)
            try:
                held = write_lease(self.store, self.dataset, step.application, feed, after)
            except ConditionFailed:
                continue
            return Lease(self.store, self.dataset, step.application, feed, held, duration, self._clock)
        raise Refused(f"{application} on feed {feed}: lost the race for the lease {RETRIES} times; try again")

    def end_leases(self, run_id: str) -> int:
        """Ends the leases that a run holds which is known to be dead, so that nobody waits for them. Returns how many."""
        ended = 0
        for feed, steps in self.feeds.items():
            for step in steps:
                lease = self.lease(step.application, feed)
                if lease and lease.run_id == run_id and lease.is_live(self._clock()):
                    after = transitions.expire(lease, self._clock())
                    try:
                        write_lease(self.store, self.dataset, step.application, feed, after)
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
        blocker = item.blocker(self.state(step.application).feed(lease.feed).serving_epoch)
        if blocker and blocker.state is State.PROCESSING and blocker.application.key == step.application.key:
            return Abandoned(item, blocker)
        lease.settled = True
        return None

    def claim(self, lease: Lease, items: Sequence[Item], state: StepState | None = None) -> list[Claim]:
        """Claims items under a lease, all or none, in one transaction. `state`: the Ready verdict's, for an ordered step.

        Raises LeaseLost; ConditionFailed if an item or the state changed since it was read: ask what is next again; Refused
        for an item that is not ready, and while the item that the lease's former holder worked on is not settled.
        """
        step = self.step(lease.feed, lease.application.key)
        strangers = [item.key.name for item in items if item.key.feed != lease.feed]
        if strangers:
            raise Refused(f"{strangers[0]} is not of feed {lease.feed}, which the lease is for")
        unsettled = None if lease.settled else self.unsettled(lease)
        if unsettled:
            raise Refused(f"{unsettled.item.key.name} is unsettled: adopt or abandon it before the next claim")
        claims, writes = transitions.claim(items, step, state or StepState(), lease.token, self._stamp())
        current = claims[0].item.key.position if step.order == "strict" else None
        lease.transact(writes, current)
        return claims

    def complete(self, held: Claim, payload: Payload) -> Record:
        """Ends a claim well: record, watermark and waiting rows in one transaction. Raises ClaimLost."""
        return self._end(held, lambda item, state, stamp: self._completion(item, held, state, payload, stamp))

    def fail(self, held: Claim, failure: Failure) -> Record:
        """Ends a claim badly. A passing fault is resolved by the step's policy in the same transaction. Raises ClaimLost."""
        return self._end(held, lambda item, _state, stamp: transitions.fail(item, held, failure, stamp))

    def adopt(self, lease: Lease, abandoned: Abandoned, epoch: int, payload: Payload) -> Record:
        """Completes what a dead worker had committed, in the ledger's epoch, while this worker holds the lease."""
        held = self._inherit(lease, abandoned)
        return self._end(held, lambda item, state, stamp: self._completion(item, held, state, payload, stamp, epoch), lease)

    def abandon(self, lease: Lease, abandoned: Abandoned) -> Record:
        """Fails what a dead worker had not committed, as `lease_expired`; retried by the step's policy."""
        held = self._inherit(lease, abandoned)
        dead = abandoned.processing
        message = f"lease expired: {dead.author} (run {dead.run_id}, token {dead.token}) did not finish"
        failure = Failure("lease_expired", message)
        return self._end(held, lambda item, _state, stamp: transitions.fail(item, held, failure, stamp), lease)

    def _inherit(self, lease: Lease, abandoned: Abandoned) -> Claim:
        """A dead worker's claim. The watermark is still the one it claimed under: nothing passes an open claim."""
        step = self.step(lease.feed, lease.application.key)
        worker = abandoned.processing.application
        if worker.key != step.application.key or abandoned.item.key.feed != lease.feed:
            raise Refused(f"{abandoned.item.key.name} is in the hands of {worker.key}: the lease is {step.application.key}'s")
        return Claim(abandoned.item, abandoned.processing, step, self.state(step.application))

    def _completion(
        self, item: Item, held: Claim, state: StepState, payload: Payload, stamp: Stamp, epoch: int | None = None
    ) -> list[Write]:
        return transitions.complete(item, held, state, payload, self.feeds[item.key.feed], stamp, epoch)

    def _end(
        self,
        held: Claim,
        writes_of: Callable[[Item, StepState, Stamp], list[Write]],
        lease: Lease | None = None,
    ) -> Record:
        """Ends a claim by the item's next sequence number, whichever that is while the claim stands.

        It is tried with the item and state that the claim holds: mostly both are still those.
        """
        item, state = held.item, held.state
        for _ in range(RETRIES):
            writes = writes_of(item, state, self._stamp())
            try:
                if lease:
                    lease.transact(writes)
                else:
                    self._write(writes)
            except ConditionFailed:
                item, state = self.item(item.key), self.state(held.step.application)
                continue
            return _record(writes[0])
        raise Refused(f"{item.key.name}: its records changed {RETRIES} times while ending the claim; try again")

    # Outputs of applications outside the declared steps

    def commit_output(self, key: ItemKey, application: Application, payload: Payload) -> Record:
        """Records that an application outside the declared steps processed an item: Processing and Processed, at once.

        Raises Refused while the item is blocked, and for an application that a step declares.
        """
        steps = self.steps(key.feed)
        if any(step.application.key == application.key for step in steps):
            raise Refused(f"{application.key} is a step of feed {key.feed}: it works by claims, under its lease")

        def writes(item: Item) -> list[Write]:
            blocker = item.blocker(self._serving_epoch(key.feed))
            if blocker:
                raise Refused(f"{key.name} is blocked: {blocker.application.key} is {blocker.state}")
            return transitions.output(item, application, payload, steps, self._stamp())

        return self._operate(key, writes)

    # Operators

    def resolve(self, key: ItemKey, reason: str) -> Record:
        """Frees a failed item for another attempt. Raises Refused if it is not blocked or is being worked on."""

        def writes(item: Item) -> list[Write]:
            return transitions.resolve(item, reason, self._stamp(), self._serving_epoch(key.feed))

        return self._operate(key, writes)

    def skip(self, key: ItemKey, reason: str, application: str = EVERYONE) -> Record:
        """Tells an application to pass over an item. Raises Refused if it is done or being worked on."""
        name, _, instance = application.partition(":")
        who = Application(name, instance=instance or None)
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

    def _operate(self, key: ItemKey, writes_of: Callable[[Item], list[Write]]) -> Record:
        for _ in range(RETRIES):
            writes = writes_of(self.item(key))
            try:
                self._write(writes)
            except ConditionFailed:
                continue
            return _record(writes[0])
        raise Refused(f"{key.name}: its records changed {RETRIES} times; try again")

    # Writing

    def _states(self, feed: str) -> dict[str, StepState]:
        """The states of a feed's ordered steps."""
        return {step.application.key: self.state(step.application) for step in self.steps(feed) if step.order == "strict"}

    def _serving_epoch(self, feed: str) -> int:
        return max((state.feed(feed).serving_epoch for state in self._states(feed).values()), default=0)

    def _stamp(self) -> Stamp:
        return Stamp(self.author, self.run_id, self._clock())

    def _write(self, writes: list[Write]) -> None:
        """Transacts writes that begin with a record, which is recognised where the answer was unclear."""
        transact_once(self.store, self.dataset, writes, mark="record_id")


def _position(row: Row, prefix: str) -> str:
    return row.sort.removeprefix(prefix).rpartition("#")[0]


def _record(write: Write) -> Record:
    if not isinstance(write, Put):
        raise TypeError(f"the first write of a transition is its record, not {write}")
    return Record.from_dict(write.data)


def _passed(feed: FeedState, item: Item, judged: Judgement) -> FeedState:
    """The feed as the item after this one meets it: where a passed item's window stops, the next may start."""
    if judged.standing in PASSED and item.landed and item.key.position > feed.watermark:
        return dataclasses.replace(feed, stop=item.landed.stop)
    return feed


def _verdict(item: Item, judged: Judgement, step: Step, state: StepState, holding: bool) -> Verdict:
    if judged.standing is Standing.READY:
        return Ready(item, state)
    record = judged.record
    own = record is not None and record.application.key == step.application.key
    if holding and own and judged.standing is Standing.PROCESSING:
        return Abandoned(item, record)
    return blocked(item, judged)


def _lateness(key: ItemKey, steps: Sequence[Step], states: Mapping[str, StepState]) -> Literal["new", "late", "quarantined"]:
    behind = [
        step
        for step in steps
        if step.order == "strict" and key.position <= states[step.application.key].feed(key.feed).watermark
    ]
    if not behind:
        return "new"
    return "late" if all(step.late == "append" for step in behind) else "quarantined"
