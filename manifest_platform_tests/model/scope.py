"""The compact form of a configuration's manifest, and the conversion between it and the product's own objects.

Belongs here: the parts of the manifest's rows that can make a difference later (no clocks, ids, names), a number for each
distinct value, and the evaluation of writes by the Store contract. What workers do with it is in `program`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from manifest_platform.manifest import Application, Item, ItemKey, Lease, Manifest, Payload, Record, State, Step, StepState
from manifest_platform.manifest.dataset import FeedState
from manifest_platform.manifest.keys import DELETIONS, pending_key, records_prefix, state_key
from manifest_platform.manifest.records import ACCEPTED, LANDED, REASON, Stamp
from manifest_platform.manifest.store import ABSENT, PAGE, Check, Delete, Put, Write
from manifest_platform_tests.model.configurations import LOAD, Configuration

RESTORED = "'"
TOGETHER = 100
"""More than the items of a scope."""
START = datetime(2026, 1, 1, tzinfo=UTC)
READ = 7
"""The version of every row in the product's hands: the version that was read."""

T = TypeVar("T", bound=Hashable)


class Numbers(Generic[T]):
    """A number for each distinct value, so that worlds are short tuples of numbers."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def of(self, value: T) -> int:
        """The value's number; a new value gets the next number."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


class Event(NamedTuple):
    """A record of the model, without its writer, time and id: the sequence number names it. `previous`: 0 for none.

    `version`: the content's version, for a directory that was rewritten and accepted; 0 for other records. `together`: the
    number of items that were claimed together; 0 for other records. `replayed`: bad lines of the item went to another.
    """

    state: State
    application: str
    epoch: int | None = None
    previous: int = 0
    late: tuple[tuple[str, int], ...] = ()
    set_aside: tuple[str, ...] = ()
    keeps_skips: bool = False
    automatic: bool = False
    kind: str = ""
    reopens: tuple[str, ...] = ()
    version: int = 0
    life: int = 0
    together: int = 0
    reloads: bool = False
    replayed: bool = False


Log = tuple[Event, ...]


class Rows(NamedTuple):
    """A manifest: its logs and its state by number, its waiting rows, and the lease's token and current item by job.

    If items were claimed together, the first and the last of them stand for the current item (see `through`).

    `life`: the number of times that it was set back, which distinguishes attempts with the same number in an item's log.
    `archived`: by item, the sequence number up to which its records are archived, if any are.
    """

    logs: tuple[int, ...]
    pending: frozenset[tuple[str, int]]
    state: int
    leases: tuple[tuple[int, int], ...]
    life: int = 0
    archived: tuple[int, ...] = ()


def through(first: int, last: int) -> int:
    """The number of items that were claimed together, in place of the current item's."""
    return first + TOGETHER * (last + 1) if last != first else first


class Job(NamedTuple):
    """The subject of a lease: a step on a feed. `feed` is the feed's number."""

    step: Step
    feed: int
    name: str


class RecordPut(NamedTuple):
    """The append of a record to an item's log."""

    item: int
    sequence: int
    event: Event


class StatePut(NamedTuple):
    """A new state over the state that was read."""

    state: int


class StateCheck(NamedTuple):
    """The condition that the state has not changed since it was read."""


class PendingChange(NamedTuple):
    """The addition of a waiting row (which must be absent), or its removal (which must be present)."""

    row: tuple[str, int]
    comes: bool


class Archiving(NamedTuple):
    """The removal of an item's records from the log, except the first. No record beyond number `upto` may exist."""

    item: int
    upto: int


CompactWrite = RecordPut | StatePut | StateCheck | PendingChange | Archiving
Writes = tuple[CompactWrite, ...]


class Rejected(NamedTuple):
    """A condition that did not hold; `lease`: the condition on the lease's row."""

    lease: bool


class Written(NamedTuple):
    """The manifest after a transaction, whether its state was put, and the invariant that the write itself broke."""

    rows: int
    put_state: bool
    broken: str | None = None


class Scope:
    """A configuration with guards switched off, its numbers, and a cache of computed results."""

    def __init__(self, configuration: Configuration, off: frozenset[str] = frozenset()):
        self.configuration, self.off = configuration, off
        self.landed = configuration.landed
        self.keys = [one.key for one in self.landed]
        self.feeds = [feed.name for feed in configuration.feeds]
        self.feed_of = [self.feeds.index(key.feed) for key in self.keys]
        self.steps = {feed.name: configuration.steps(feed) for feed in configuration.feeds}
        self.jobs = [
            Job(step, self.feeds.index(feed), f"{step.application.key} {feed}")
            for feed, steps in self.steps.items()
            for step in steps
        ]
        self.logs: Numbers[Log] = Numbers()
        self.states: Numbers[tuple] = Numbers()
        self.rows: Numbers[Rows] = Numbers()
        self.view = View(self)
        self._index = {key: i for i, key in enumerate(self.keys)}
        self._names = {key.id: i for i, key in enumerate(self.keys)}
        self._record_prefixes = {f"{records_prefix(key.feed, key.position)}": i for i, key in enumerate(self.keys)}
        self._pending_rows = {
            pending_key(job.step.application, key): (job.step.application.key, i)
            for job in self.jobs
            for i, key in enumerate(self.keys)
        }
        self._items: dict[tuple[int, int], Item] = {}
        self._states: dict[int, StepState] = {}
        self._written: dict[tuple, Written | Rejected] = {}

    def on(self, guard: str) -> bool:
        """True if a guard is in force."""
        return guard not in self.off

    @cached_property
    def start(self) -> int:
        """An empty manifest."""
        logs = (self.logs.of(()),) * len(self.keys)
        return self.rows.of(Rows(logs, frozenset(), self.state_number(StepState()), ((0, -1),) * len(self.jobs)))

    def set_back(self, rows: int) -> int:
        """A backup, as the current manifest again."""
        held = self.rows.values[rows]
        return self.rows.of(held._replace(life=held.life + 1))

    def alone(self, i: int, log: int, state: int) -> int:
        """A manifest with only an item's log and a state, as they were read."""
        logs = tuple(log if n == i else self.logs.of(()) for n in range(len(self.keys)))
        return self.rows.of(self.rows.values[self.start]._replace(logs=logs, state=state))

    def number(self, key: ItemKey) -> int:
        """An item's number."""
        return self._index[key]

    def named(self, item: str) -> int:
        """The number of the item with a name."""
        return self._names[item]

    # Items

    def log(self, rows: int, i: int, length: int | None = None) -> int:
        """The number of an item's log, or of its first `length` records as they were read."""
        log = self.rows.values[rows].logs[i]
        if length is None or length == len(self.logs.values[log]):
            return log
        return self.logs.of(self.logs.values[log][:length])

    def length(self, rows: int, i: int) -> int:
        """The number of an item's records."""
        return len(self.logs.values[self.log(rows, i)])

    def item(self, i: int, log: int) -> Item:
        """The product's item of a log."""
        found = self._items.get((i, log))
        if found is None:
            events = self.logs.values[log]
            records = tuple(self._record(i, n, events) for n in range(1, len(events) + 1))
            found = self._items[i, log] = Item(self.keys[i], records)
        return found

    def record_id(self, i: int, sequence: int, life: int) -> str:
        """The id of a record. Ids are unique, even if a manifest that was set back repeats a sequence number."""
        return f"{self.keys[i].id}@{sequence}{RESTORED * life}"

    def _record(self, i: int, sequence: int, log: Log) -> Record:
        event = log[sequence - 1]
        data: dict[str, Any] = {
            "late": dict(event.late),
            "set_aside": list(event.set_aside),
            "keeps_skips": event.keeps_skips,
            "automatic": event.automatic,
            "kind": event.kind,
            "reopens": list(event.reopens),
            "reloads": event.reloads,
            **({"replayed": {"item": "new", "lines": 1, "file": "lines"}} if event.replayed else {}),
            "bytes": 1,
            **({"batch": event.together} if event.together else {}),
        }
        payload = Payload(REASON, data)
        previous = self.record_id(i, event.previous, log[event.previous - 1].life) if event.previous else None
        if event.version:
            accepted = dataclasses.replace(self.landed[i], checksum=content(event.version))
            payload = accepted.accepted(event.version, "", event.reopens)
        elif sequence == 1 and event.state is State.NEW:
            payload = Payload(LANDED, {**self.landed[i].payload().data, **data})
        return Record(
            item=self.keys[i].id,
            sequence=sequence,
            record_id=self.record_id(i, sequence, event.life),
            state=event.state,
            application=_application(event.application),
            author="model",
            timestamp=START,
            previous=previous,
            epoch=event.epoch,
            token=1 if event.state is State.PROCESSED else None,
            payload=payload,
        )

    # The state

    def state_number(self, state: StepState) -> int:
        """The number of a step's state, whatever its version."""
        feeds = tuple(state.feed(name) for name in self.feeds)
        return self.states.of((state.mode, state.epoch, state.boundary, state.full, feeds))

    def state(self, number: int) -> StepState:
        """The product's state of a number, at the version that was read."""
        found = self._states.get(number)
        if found is None:
            mode, epoch, boundary, full, feeds = self.states.values[number]
            known = {name: feed for name, feed in zip(self.feeds, feeds, strict=True) if feed != FeedState()}
            found = self._states[number] = StepState(mode, epoch, boundary, full, known, READ)
        return found

    def outline(self, number: int, feed: int) -> int:
        """The number of the part of a state that loading depends on. Counters and other feeds would multiply the worlds."""
        state, name = self.state(number), self.feeds[feed]
        known = dataclasses.replace(
            state.feed(name), swept="", stop=None, applied=0, skipped=0, quarantined=0, late=0, reloads=0
        )
        return self.state_number(dataclasses.replace(state, feeds={name: known}))

    # Writes

    def compact(self, writes: Sequence[Write]) -> Writes:
        """Converts the product's writes to compact form. Raises AssertionError for a write whose condition nobody read."""
        first = writes[0]
        if isinstance(first, Put) and first.sort.startswith("RECORD#") and first.expected != ABSENT:
            return (self._archiving(writes),)
        records = [write.data for write in writes if isinstance(write, Put) and write.sort.startswith("RECORD#")]
        sequences = {record["record_id"]: record["sequence"] for record in records}
        for write in writes:
            if write.sort.startswith("ATTENTION#"):  # no choice or write depends on it, and the log implies it
                assert isinstance(write, Delete | Put) and write.expected == int(isinstance(write, Delete)), write
            if write.sort.startswith(DELETIONS):  # retention is not modeled: no deletion is ever under way here
                assert isinstance(write, Check) and write.expected == ABSENT, write
        found = [self._compact(write, sequences) for write in writes if not write.sort.startswith(("ATTENTION#", DELETIONS))]
        return tuple(sorted(found, key=lambda one: one.sequence if isinstance(one, RecordPut) else 0))

    def _archiving(self, writes: Sequence[Write]) -> Archiving:
        """An item's archiving. Its first record's row is put again, all others are deleted, and none may have been added."""
        first, *gone, after = writes
        numbers = [int(write.sort.rpartition("#")[2]) for write in writes]
        assert isinstance(first, Put) and all(isinstance(write, Delete) for write in gone) and isinstance(after, Check)
        assert numbers == list(range(1, len(writes) + 1)) and [one.expected for one in writes] == [1] * (len(writes) - 1) + [
            ABSENT
        ]
        return Archiving(self._record_prefixes[f"{first.sort.rpartition('#')[0]}#"], numbers[-2])

    def _compact(self, write: Write, sequences: dict[str, int]) -> CompactWrite:
        if write.sort == state_key(LOAD):
            assert write.expected == READ, f"{write} does not rest on the version that was read"
            if isinstance(write, Check):
                return StateCheck()
            assert isinstance(write, Put)
            return StatePut(self.state_number(StepState.from_dict(write.data, READ)))
        if row := self._pending_rows.get(write.sort):
            assert isinstance(write, Delete | Put) and write.expected == int(isinstance(write, Delete)), write
            return PendingChange(row, isinstance(write, Put))
        prefix, _, number = write.sort.rpartition("#")
        i = self._record_prefixes[f"{prefix}#"]
        assert isinstance(write, Put) and write.expected == ABSENT and int(number) == write.data["sequence"], write
        return RecordPut(i, int(number), _event(write.data, sequences))

    def transact(
        self, rows: int, writes: Writes, what: str, fresh: bool, lease: tuple[int, bool, int] | None = None
    ) -> Written | Rejected:
        """All writes or none, by the Store contract.

        `what` names the operation, whose conditions may be switched off. `fresh`: the state has not changed since it was read.
        `lease`: the job whose lease row is written with them, whether the writer still holds it, and its new current item.
        """
        given = (rows, writes, what, fresh, lease)
        found = self._written.get(given)
        if found is None:
            found = self._written[given] = self._transact(*given)
        return found

    def _transact(
        self, rows: int, writes: Writes, what: str, fresh: bool, lease: tuple[int, bool, int] | None
    ) -> Written | Rejected:
        before = self.rows.values[rows]
        if lease and not lease[1] and self.on(f"lease_in_{what}"):
            return Rejected(lease=True)
        if any(not self._holds(before, write, what, fresh) for write in writes):
            return Rejected(lease=False)
        logs, pending, state, archived = list(before.logs), before.pending, before.state, before.archived
        broken = None
        for write in writes:
            match write:
                case RecordPut(i, sequence, event):
                    log = self.logs.values[logs[i]]
                    if event.state is State.PROCESSING:
                        event = event._replace(life=before.life)
                    if len(log) >= sequence:
                        broken = f"(6) record {sequence} of {self.keys[i].id} was overwritten"
                    logs[i] = self.logs.of((*log[: sequence - 1], event, *log[sequence:]))
                case StatePut(number):
                    state = number
                case Archiving(i, upto):
                    archived = tuple(upto if n == i else self.archived(before, n) for n in range(len(self.keys)))
                case PendingChange(row, comes):
                    pending = pending | {row} if comes else pending - {row}
        leases = before.leases
        if lease and lease[2] >= 0:
            job, _, current = lease
            leases = (*leases[:job], (leases[job][0], current), *leases[job + 1 :])
        put_state = any(isinstance(write, StatePut) for write in writes)
        return Written(self.rows.of(Rows(tuple(logs), pending, state, leases, before.life, archived)), put_state, broken)

    def archived(self, rows: Rows, i: int) -> int:
        """The number of the last record of an item that is archived; 0 for none."""
        return rows.archived[i] if rows.archived else 0

    def _holds(self, before: Rows, write: CompactWrite, what: str, fresh: bool) -> bool:
        match write:
            case Archiving(i, upto):
                return len(self.logs.values[before.logs[i]]) == upto and not self.archived(before, i)
            case RecordPut(i, sequence, _):
                free = len(self.logs.values[before.logs[i]]) < sequence or 1 < sequence <= self.archived(before, i)
                return free or not self.on(f"record_in_{what}")
            case StatePut():
                return fresh or not self.on(f"state_in_{what}")
            case StateCheck():
                return fresh or not self.on(f"check_in_{what}")
            case PendingChange(row, comes):
                return (row in before.pending) != comes or not self.on("pending_row")


def _application(key: str) -> Application:
    name, _, instance = key.partition(":")
    return Application(name, instance=instance or None)


def _event(stored: dict[str, Any], sequences: dict[str, int]) -> Event:
    previous = stored["previous"]
    if previous is not None:
        previous = sequences[previous] if previous in sequences else int(previous.rpartition("@")[2].rstrip(RESTORED))
    data = stored["payload"]["data"] if stored["payload"] else {}
    return Event(
        State(stored["state"]),
        _key(stored["application"]),
        stored["epoch"],
        previous or 0,
        tuple(sorted(data.get("late", {}).items())),
        tuple(sorted(data.get("set_aside", ()))),
        bool(data.get("keeps_skips")),
        bool(data.get("automatic")),
        data.get("kind", ""),
        tuple(sorted(data.get("reopens", ()))),
        data["version"] if stored["payload"] and stored["payload"]["schema"] == ACCEPTED else 0,
        together=data.get("batch", 0),
        reloads=bool(data.get("reloads")),
        replayed=bool(data.get("replayed")),
    )


def content(version: int) -> str:
    """The checksum of a directory's content, by its version."""
    return f"c{version}" if version > 1 else "c"


def rewritten(checksum: str) -> str:
    """The checksum of a directory's next content."""
    return content(int(checksum[1:] or 1) + 1)


def _key(application: dict[str, Any]) -> str:
    return Application(**application).key


def stamp() -> Stamp:
    """The author and time of a write: no rule depends on them."""
    return Stamp("model", "run", START, record_id="own")


class HeldLease(Lease):
    """The part of a lease that the product's reading methods use: no row, no heartbeat."""

    def __init__(self, application: Application, feed: str, current: str, through: str | None):
        self.application, self.feed, self.settled = application, feed, False
        self._current, self._through = current, through

    @property
    def current(self) -> str:
        return self._current

    @property
    def through(self) -> str | None:
        return self._through


class View(Manifest):
    """The product's manifest over a compact manifest: its reading methods, and no store."""

    def __init__(self, scope: Scope):
        self._scope, self._rows, self._again = scope, 0, 0
        self._decision: Sequence[Write] = []
        super().__init__(_NO_STORE, "model", scope.steps, "model", clock=lambda: START)

    def at(self, rows: int) -> View:
        """The view of a manifest, valid until the next call."""
        self._rows = rows
        return self

    def decided(self, verb: Callable[[View], object], read: int, again: int) -> Sequence[Write]:
        """The writes of an operator's verb that read the manifest before, and reads it again when it writes. Raises Refused."""
        self._rows, self._again, self._decision = read, again, []
        verb(self)
        return self._decision

    def _operate(self, key: ItemKey, writes_of: Callable[[Item], list[Write]]) -> Record:
        self._rows = self._again
        self._decision = writes_of(self.item(key))
        return self.item(key).records[-1]

    def _states(self, feed: str) -> dict[str, StepState]:
        return {LOAD.key: self.state(LOAD)}

    def item(self, key: ItemKey) -> Item:
        i = self._scope.number(key)
        return self._scope.item(i, self._scope.log(self._rows, i))

    def state(self, application: Application) -> StepState:
        scope = self._scope
        return scope.state(scope.rows.values[self._rows].state) if application == LOAD else StepState()

    def items(
        self, feed: str, after: str = "", page: int = PAGE, reverse: bool = False, archived: bool = True
    ) -> Iterator[Item]:
        for i, key in enumerate(self._scope.keys):
            if not archived and self._scope.archived(self._scope.rows.values[self._rows], i):
                continue
            if key.feed == feed and key.position > after and self._scope.length(self._rows, i):
                yield self.item(key)

    def read(self, feed: str, keys: Iterable[ItemKey]) -> Iterator[Item]:
        return (self.item(key) for key in keys)

    def is_being_deleted(self, key: ItemKey) -> bool:
        return False  # retention is not modeled

    def pending(self, feed: str, application: str, page: int = PAGE) -> Iterator[ItemKey]:
        waiting = sorted(i for name, i in self._scope.rows.values[self._rows].pending if name == application)
        return (self._scope.keys[i] for i in waiting if self._scope.keys[i].feed == feed)


_NO_STORE: Any = None
