"""Reads of a manifest: items, records, states and commits, and the memory of what was read; and the end of every write.

Belongs here: what all operations need. They build on each other, a class each: `choosing`, `registration`,
`working`, `manifest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from uuid import uuid4

from manifest_platform import __version__
from manifest_platform.manifest import transitions
from manifest_platform.manifest.dataset import LeaseState, Step, StepState
from manifest_platform.manifest.deletion import Deletion
from manifest_platform.manifest.errors import Refused, UnknownItem
from manifest_platform.manifest.item import ArchivedRecords, Item, ItemKey, Landed, check_key_text
from manifest_platform.manifest.keys import (
    COMMITS,
    DELETIONS,
    ID,
    SKIP_RULES,
    STATES,
    commit_key,
    commit_number,
    deletion_key,
    lease_key,
    lease_of,
    records_prefix,
    state_key,
)
from manifest_platform.manifest.lease import Lease
from manifest_platform.manifest.records import Application, Record, Stamp, State
from manifest_platform.manifest.rows import position_of, record_of, state_of
from manifest_platform.manifest.skip_rules import SkipRules
from manifest_platform.manifest.store import (
    ABSENT,
    PAGE,
    TRIES,
    Check,
    Put,
    Row,
    Store,
    Write,
    optimistically,
    stored_rows,
    transact_once,
)
from manifest_platform.manifest.takeover import Identity
from manifest_platform.remedies import Action, Remedy

DISCOVERY, OPERATOR = Application("discover", __version__), Application("operator", __version__)
RETENTION = Application("retention", __version__)


@dataclass(frozen=True)
class Commit:
    """The completion of an item by a numbered step, and its number: 1 for the first, without gaps."""

    number: int
    key: ItemKey
    record_id: str


@dataclass(frozen=True)
class FullListing:
    """The progress of the listings of a feed's directories, which are read in parts.

    `beyond`: the last name that the listing of all directories has listed, empty at the beginning. `done_at`: the time at which
    such a listing last reached its end. `reached`: the logical time up to which looks have listed everything once, so that the
    next begins there; None if none has ended. `place`: the landing root and its layout, for which this holds; empty in rows of
    older releases. `version`: the row's version.
    """

    beyond: str = ""
    done_at: datetime | None = None
    reached: datetime | None = None
    place: str = ""
    version: int = ABSENT


@dataclass(frozen=True)
class Kept:
    """The stored states of steps, by application key, and their leases, by application key and feed."""

    states: dict[str, StepState]
    leases: dict[tuple[str, str], LeaseState]

    def state(self, application: str) -> StepState:
        """The state of a step; a fresh state if none is stored."""
        return self.states.get(application, StepState())


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


class Reading:
    """Reads of the manifest of one dataset. Its arguments and errors are those of `Manifest`."""

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
        self._sorts: dict[str, set[str]] = {}  # by feed, sort keys that have items, for looks at the many items of the past
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
        return state_of(self.store.get(self.dataset, state_key(application)))

    def states_of(self, name: str) -> list[str]:
        """The keys of the applications with this name that have a state, whether declared now or earlier."""
        found = (row.sort.removeprefix(STATES) for row in self._pages(STATES, None))
        return [key for key in found if Application.parse(key).name == name]

    def states(self, feed: str) -> dict[str, StepState]:
        """The stored states of a feed's ordered steps, by application key: one request."""
        return self._states(feed)

    def lease(self, application: Application, feed: str) -> LeaseState | None:
        """The stored lease of a step on a feed; None if it was never taken."""
        row = self.store.get(self.dataset, lease_key(application, feed))
        return LeaseState.from_dict(row.data, row.version) if row else None

    def leases(self, application: Application) -> dict[str, LeaseState]:
        """The stored leases of an application, by feed or other place."""
        rows = self._pages(lease_key(application, ""), None)
        return {lease_of(row.sort)[1]: LeaseState.from_dict(row.data, row.version) for row in rows}

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
        for position, rows in groupby(pages, key=lambda row: position_of(row, prefix)):
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
        positions = sorted({position_of(row, prefix) for row in rows})
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

    # Deletions by retention

    def deletions(self) -> Iterator[Deletion]:
        """The deletions by retention that have begun and are not finished."""
        return (Deletion.of(row) for row in self._pages(DELETIONS, None))

    def is_being_deleted(self, key: ItemKey) -> bool:
        """True if retention has begun to delete data of an item, and has not finished."""
        return self.store.get(self.dataset, deletion_key(key)) is not None

    def _check_not_being_deleted(self, key: ItemKey) -> Check:
        """The condition that retention deletes nothing of an item just now. Raises Refused if it does."""
        if self.is_being_deleted(key):
            raise Refused(
                f"{key.name}: retention has begun to delete its data. The next `gc` finishes that; then decide again",
                Remedy(Action.COLLECT),
            )
        return Check(deletion_key(key), ABSENT)

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
        self._sorts.clear()
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

    # Writing

    def _states(self, feed: str) -> dict[str, StepState]:
        """The stored states of a feed's ordered steps, each strongly consistent by itself: one request."""
        ordered = {step.application.key: state_key(step.application) for step in self.steps(feed) if step.ordered}
        rows = self.store.get_many(self.dataset, ordered.values())
        return {name: state_of(rows.get(sort)) for name, sort in ordered.items()}

    def _states_and_skip_rules(self, feed: str) -> tuple[dict[str, StepState], SkipRules]:
        """The states of a feed's ordered steps and the skip rules in force: one request, each strongly consistent by itself."""
        ordered = {step.application.key: state_key(step.application) for step in self.steps(feed) if step.ordered}
        rows = self.store.get_many(self.dataset, [*ordered.values(), SKIP_RULES])
        return {name: state_of(rows.get(sort)) for name, sort in ordered.items()}, SkipRules.of(rows.get(SKIP_RULES))

    def _stamp(self) -> Stamp:
        return Stamp(self.author, self.run_id, self._clock())

    def _write(self, writes: list[Write]) -> None:
        """Transacts writes that begin with a record. The record identifies the write after an unclear answer."""
        transact_once(self.store, self.dataset, writes, mark="record_id")
        self._wrote(writes)

    def _operate(self, key: ItemKey, writes_of: Callable[[Item], list[Write]]) -> Record:
        def operate() -> Record:
            writes = writes_of(self.item(key))
            if not self._rehearsing:
                self._write(writes)
            return record_of(writes[0])

        return optimistically(
            operate,
            lambda: Refused(f"{key.name}: it changed {TRIES} times, or a row beside it is wrong", Remedy(Action.EXAMINE)),
        )
