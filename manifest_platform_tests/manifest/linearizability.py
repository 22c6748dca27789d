"""Whether a recorded history of concurrent calls on a store is one that the store's contract allows: linearizability.

Belongs here: what is recorded of a call, the contract as a sequential machine, and the search for an order of the calls in
which every answer is right and no call comes before one that had returned when it began (Wing and Gong, in Lowe's
just-in-time form). Rows are taken in groups, and no call touches two groups: a history is linearizable if and only if
each group's part of it is, so each is checked by itself.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random

from manifest_platform.manifest import ConditionFailed, OutcomeUnknown, Store, StoreUnavailable
from manifest_platform.manifest.store import ABSENT, Check, Delete, Put, Write

PARTITION = "history"
ROWS = ("a", "b", "c")
LASTING = ROWS.index("c")
"""The row that nobody ever deletes, so that a store may tell a repeat of a single write to it by the row itself."""
NEVER = 1 << 63
"""When a call returns whose outcome nobody knows: it may happen at any time after its beginning, or not at all."""


# What was called, and what it answered


@dataclass(frozen=True)
class Seen:
    """One row in an answer: its version and the number that was put."""

    version: int
    value: int

    def __str__(self) -> str:
        return f"{self.value} (version {self.version})"


Rows = tuple[Seen | None, ...]
"""The rows of a group, in the order of ROWS; None where there is none."""


@dataclass(frozen=True)
class Get:
    """A row was read."""

    row: int
    answer: Seen | None

    def __str__(self) -> str:
        return f"get {ROWS[self.row]} -> {self.answer or 'absent'}"


@dataclass(frozen=True)
class Query:
    """All rows of the group were read with one call."""

    answer: Rows

    def __str__(self) -> str:
        return f"query -> {_told(self.answer)}"


@dataclass(frozen=True)
class Wrote:
    """One write of a transaction: `put` is the number put, None for a delete, and for a check with `checks`."""

    row: int
    expected: int
    put: int | None = None
    checks: bool = False

    def __str__(self) -> str:
        what = "check" if self.checks else "delete" if self.put is None else f"put {self.put} in"
        return f"{what} {ROWS[self.row]} at version {self.expected}"


@dataclass(frozen=True)
class Transact:
    """All or none. `failed`: the writes that did not hold; None where it was not answered whether they did.

    `token`: None where no other call has the same, so that nothing need be remembered of it.
    """

    writes: tuple[Wrote, ...]
    token: int | None
    failed: tuple[Wrote, ...] | None = ()

    def __str__(self) -> str:
        wrong = ", ".join(ROWS[write.row] for write in self.failed or ())
        answer = f"refused for {wrong}" if wrong else "unknown" if self.failed is None else "done"
        token = "" if self.token is None else f" under token {self.token}"
        return f"{', '.join(map(str, self.writes))}{token} -> {answer}"


@dataclass(frozen=True)
class Call:
    """A call between its beginning and its return, in nanoseconds of one monotonic clock."""

    thread: int
    begin: int
    end: int
    did: Get | Query | Transact

    def __str__(self) -> str:
        until = "" if self.end == NEVER else self.end
        return f"{self.begin:>10} .. {until:<10} thread {self.thread}: {self.did}"


def _told(rows: Rows) -> str:
    return ", ".join(f"{name} = {row or 'absent'}" for name, row in zip(ROWS, rows, strict=True))


# The contract, one call after the other


@dataclass(frozen=True)
class Group:
    """The rows of a group, and the tokens of the transactions that succeeded."""

    rows: Rows = (None,) * len(ROWS)
    tokens: frozenset[int | None] = frozenset()


EMPTY = Group()


def after(group: Group, did: Get | Query | Transact) -> Group | None:
    """The group after a call with this answer; None if the contract does not allow the answer."""
    match did:
        case Get(row, answer):
            return group if group.rows[row] == answer else None
        case Query(answer):
            return group if group.rows == answer else None
        case Transact(writes, token, failed):
            if token in group.tokens and not (failed and _is_overwritten(group, writes)):
                return None if failed else group
            remembered = group.tokens if token is None else group.tokens | {token}
            wrong = tuple(write for write in writes if _version(group.rows[write.row]) != write.expected)
            if wrong:
                return group if wrong == failed else None
            return None if failed else Group(_written(group.rows, writes), remembered)


def _is_overwritten(group: Group, writes: Sequence[Wrote]) -> bool:
    """Whether these are a single write to the lasting row, and another has written it since: its repeat may fail then."""
    [first, *others] = writes
    return first.row == LASTING and not others and group.rows[LASTING] != Seen(first.expected + 1, first.put or 0)


def _version(row: Seen | None) -> int:
    return row.version if row else ABSENT


def _written(rows: Rows, writes: Sequence[Wrote]) -> Rows:
    changed = list(rows)
    for write in writes:
        if not write.checks:
            changed[write.row] = None if write.put is None else Seen(write.expected + 1, write.put)
    return tuple(changed)


# The search


@dataclass(frozen=True)
class Violation:
    """A history that no order explains: calls on rows that were `start` when the first of them could take effect."""

    group: int
    start: Group
    calls: tuple[Call, ...]

    def __str__(self) -> str:
        origin = min(call.begin for call in self.calls)
        shown = [
            dataclasses.replace(one, begin=one.begin - origin, end=one.end - (0 if one.end == NEVER else origin))
            for one in self.calls
        ]
        return "\n  ".join([f"group {self.group}: no order explains these calls on {_told(self.start.rows)}", *map(str, shown)])


Configuration = tuple[Group, frozenset[int]]
"""The rows, and which of the open calls, by their number, have taken effect."""


def check(history: Sequence[Call], group: int = 0, start: Group = EMPTY) -> Violation | None:
    """The violation in one group's history, as small as it can soundly be made; None if there is none."""
    found = _Search(history).violation(start)
    return _smaller(dataclasses.replace(found, group=group)) if found else None


class _Search:
    """Goes through the returns in the order of time, with every configuration that the answers so far leave possible.

    A call that writes takes effect only when a return calls for it: its own, or that of a call which it explains. One that
    only reads takes effect as soon as its answer is right. So there are few configurations, however long the history is.
    """

    def __init__(self, history: Sequence[Call]):
        self.calls = _with_repeated_tokens_only(sorted(history, key=attrgetter("begin")))
        self.open: set[int] = set()

    def violation(self, start: Group) -> Violation | None:
        possible: set[Configuration] = {(start, frozenset())}
        begun, since, known = 0, list[int](), start
        for number in sorted(range(len(self.calls)), key=lambda at: self.calls[at].end):
            returning = self.calls[number]
            if returning.end == NEVER:
                break
            while begun < len(self.calls) and self.calls[begun].begin <= returning.end:
                self.open.add(begun)
                since.append(begun)
                begun += 1
            possible = self._returned(possible, number)
            if not possible:
                return Violation(0, known, tuple(self.calls[at] for at in since))
            self.open.remove(number)
            if len(possible) == 1:  # what came before matters no more
                [(known, effective)] = possible
                self.open -= {at for at in effective if self.calls[at].end == NEVER}
                possible = {(known, effective & self.open)}
                since = sorted(self.open - effective)
        return None

    def _returned(self, possible: set[Configuration], number: int) -> set[Configuration]:
        """The configurations in which a call has taken effect: by itself, or after others that are open."""
        into: set[Configuration] = set()
        seen: set[Configuration] = set()
        stack = [self._read(*configuration) for configuration in possible]
        while stack:
            group, effective = stack.pop()
            if (group, effective) in seen:
                continue
            seen.add((group, effective))
            if number in effective:
                into.add((group, effective - {number}))
                continue
            for at in self.open - effective:
                if changed := after(group, self.calls[at].did):
                    stack.append(self._read(changed, effective | {at}))
        return into

    def _read(self, group: Group, effective: frozenset[int]) -> Configuration:
        """The configuration in which all open calls whose answer is right, and that change nothing, have taken effect."""
        return group, effective | {at for at in self.open - effective if after(group, self.calls[at].did) == group}


def _with_repeated_tokens_only(calls: Sequence[Call]) -> list[Call]:
    used = Counter(call.did.token for call in calls if isinstance(call.did, Transact))
    return [
        dataclasses.replace(call, did=dataclasses.replace(call.did, token=None))
        if isinstance(call.did, Transact) and used[call.did.token] == 1
        else call
        for call in calls
    ]


def _smaller(violation: Violation) -> Violation:
    """The violation without the calls that changed nothing and that it does without.

    A call that wrote nothing may be left out of any history that has an order; a write may not, for others rest on it.
    """
    for call in reversed(violation.calls):
        wrote = isinstance(call.did, Transact) and not call.did.failed
        fewer = tuple(other for other in violation.calls if other is not call)
        if not wrote and _Search(fewer).violation(violation.start):
            violation = dataclasses.replace(violation, calls=fewer)
    return violation


# Recording


class Recorder:
    """Calls a store from several threads, and writes down what it answered.

    `atomic_queries`: whether a query reads all its rows at one moment. Where it does not (DynamoDB promises that much of
    one row only), each of its rows counts as read by itself. `repeats`: whether transactions are repeated now and then.
    """

    def __init__(self, store: Store, seed: int, *, atomic_queries: bool = True, repeats: bool = True):
        self.store, self.seed, self.atomic_queries, self.repeats = store, seed, atomic_queries, repeats
        self.unavailable = 0

    def record(self, operations: int, *, groups: int, threads: int = 8) -> dict[int, list[Call]]:
        """The histories of the groups: all threads work on one group at a time, and then on the next."""
        share = operations // groups // threads
        told: list[list[tuple[int, Call]]] = [[] for _ in range(threads)]
        start = threading.Barrier(threads)
        errors: list[BaseException] = []

        def work(thread: int) -> None:
            random = Random(f"{self.seed} {thread}")
            try:
                for group in range(groups):
                    start.wait()
                    for call in self._calls(random, group, thread, share):
                        told[thread].append((group, call))
            except BaseException as error:  # the others must not wait for ever
                errors.append(error)
                start.abort()

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        histories: dict[int, list[Call]] = {group: [] for group in range(groups)}
        for one in told:
            for group, call in one:
                histories[group].append(call)
        return histories

    def _calls(self, random: Random, group: int, thread: int, count: int) -> Iterator[Call]:
        """What one thread does: it reads, and writes on the versions that it saw last, mostly."""
        known = [ABSENT] * len(ROWS)
        last: Transact | None = None
        for number in range(count):
            what = random.random()
            if what < 0.2:
                yield from self._query(group, thread, known)
            elif what < 0.25:
                yield from self._get_many(group, thread, known)
            elif what < 0.45:
                yield from self._get(group, thread, random.randrange(len(ROWS)), known)
            elif what < 0.5 and last is not None and self.repeats:
                yield from self._transact(group, thread, last, known)
            else:
                token = thread * 1_000_000 + number
                last = Transact(tuple(_writes(random, known, token)), token)
                yield from self._transact(group, thread, last, known)

    def _get(self, group: int, thread: int, row: int, known: list[int]) -> list[Call]:
        begin = time.monotonic_ns()
        found = self.store.get(PARTITION, _sort(group, row))
        end = time.monotonic_ns()
        answer = Seen(found.version, found.data["value"]) if found else None
        known[row] = _version(answer)
        return [Call(thread, begin, end, Get(row, answer))]

    def _get_many(self, group: int, thread: int, known: list[int]) -> list[Call]:
        """All rows, each by itself: the contract does not say that they are read at one moment."""
        begin = time.monotonic_ns()
        found = self.store.get_many(PARTITION, [_sort(group, row) for row in range(len(ROWS))])
        end = time.monotonic_ns()
        rows = [found.get(_sort(group, row)) for row in range(len(ROWS))]
        answer = [Seen(row.version, row.data["value"]) if row else None for row in rows]
        known[:] = map(_version, answer)
        return [Call(thread, begin, end, Get(row, seen)) for row, seen in enumerate(answer)]

    def _query(self, group: int, thread: int, known: list[int]) -> list[Call]:
        begin = time.monotonic_ns()
        found = {row.sort: Seen(row.version, row.data["value"]) for row in self.store.query(PARTITION, _prefix(group))}
        end = time.monotonic_ns()
        answer = tuple(found.get(_sort(group, row)) for row in range(len(ROWS)))
        known[:] = map(_version, answer)
        if self.atomic_queries:
            return [Call(thread, begin, end, Query(answer))]
        return [Call(thread, begin, end, Get(row, seen)) for row, seen in enumerate(answer)]

    def _transact(self, group: int, thread: int, wanted: Transact, known: list[int]) -> list[Call]:
        writes = [_write(group, one) for one in wanted.writes]
        failed: tuple[Wrote, ...] | None = ()
        begin = time.monotonic_ns()
        try:
            self.store.transact(PARTITION, writes, f"{PARTITION} {group} {wanted.token}")
        except ConditionFailed as error:
            named = {write.sort for write in error.failed}
            failed = tuple(one for one in wanted.writes if _sort(group, one.row) in named)
        except OutcomeUnknown:
            failed = None
        except StoreUnavailable:
            self.unavailable += 1
            return []  # the contract: nothing was written. If something was, no order explains who read it
        end = NEVER if failed is None else time.monotonic_ns()
        if failed == ():
            for one in wanted.writes:
                known[one.row] = one.expected if one.checks else _version(_written((None,) * len(ROWS), [one])[one.row])
        return [Call(thread, begin, end, dataclasses.replace(wanted, failed=failed))]


def _prefix(group: int) -> str:
    return f"{group}#"


def _sort(group: int, row: int) -> str:
    return f"{_prefix(group)}{ROWS[row]}"


def _writes(random: Random, known: Sequence[int], put: int) -> Iterator[Wrote]:
    """Writes to some rows, each on the version seen last or, now and then, on another."""
    for row in random.sample(range(len(ROWS)), random.choice((1, 1, 2, 3))):
        expected = known[row] if random.random() < 0.9 else random.randrange(3)
        what = random.random()
        if what < 0.2:
            yield Wrote(row, expected, checks=True)
        elif what < 0.35 and expected != ABSENT and row != LASTING:
            yield Wrote(row, expected)
        else:
            yield Wrote(row, expected, put)


def _write(group: int, one: Wrote) -> Write:
    sort = _sort(group, one.row)
    if one.checks:
        return Check(sort, one.expected)
    if one.put is None:
        return Delete(sort, one.expected)
    return Put(sort, {"value": one.put}, one.expected, lasting=one.row == LASTING)
