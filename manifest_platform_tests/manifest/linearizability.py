"""Checks if a recorded history of concurrent calls on a store is linearizable under the store's contract.

This module has the records of calls, the contract as a sequential machine, and the search for a valid order of the calls. In a
valid order every answer is right, and no call comes before a call that had returned when it began. The search is that of Wing
and Gong in Lowe's just-in-time form. Rows are in groups, and no call touches two groups. So a history is linearizable if and
only if the history of each group is, and each group is checked separately.
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


# The calls and their answers


@dataclass(frozen=True)
class Seen:
    """A row in an answer: its version and the number that was put."""

    version: int
    value: int

    def __str__(self) -> str:
        return f"{self.value} (version {self.version})"


Rows = tuple[Seen | None, ...]
"""The rows of a group, in the order of ROWS; None where there is none."""


@dataclass(frozen=True)
class Get:
    """A read of a single row."""

    row: int
    answer: Seen | None

    def __str__(self) -> str:
        return f"get {ROWS[self.row]} -> {self.answer or 'absent'}"


@dataclass(frozen=True)
class Query:
    """A read of all rows of the group in one call."""

    answer: Rows

    def __str__(self) -> str:
        return f"query -> {_told(self.answer)}"


@dataclass(frozen=True)
class Wrote:
    """A write of a transaction. `put` is the number put, or None for a delete. With `checks` it is a check of the version."""

    row: int
    expected: int
    put: int | None = None
    checks: bool = False

    def __str__(self) -> str:
        what = "check" if self.checks else "delete" if self.put is None else f"put {self.put} in"
        return f"{what} {ROWS[self.row]} at version {self.expected}"


@dataclass(frozen=True)
class Transact:
    """A transaction. `failed`: the writes whose conditions did not hold; None if the outcome is unknown.

    `token`: None if no other call has the same token, because the checker then does not have to remember it.
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
    """A call with its begin and end, in nanoseconds of one monotonic clock."""

    thread: int
    begin: int
    end: int
    did: Get | Query | Transact

    def __str__(self) -> str:
        until = "" if self.end == NEVER else self.end
        return f"{self.begin:>10} .. {until:<10} thread {self.thread}: {self.did}"


def _told(rows: Rows) -> str:
    return ", ".join(f"{name} = {row or 'absent'}" for name, row in zip(ROWS, rows, strict=True))


# The contract as a sequential machine


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
    """True if this is a single write to the lasting row that was overwritten since. Its repeat may then fail."""
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
    """A history that no order explains: calls on rows that were `start` when the first of these calls could take effect."""

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
    """The violation in the history of one group, reduced as far as is sound; None if there is none."""
    found = _Search(history).violation(start)
    return _smaller(dataclasses.replace(found, group=group)) if found else None


class _Search:
    """Visits the returns in the order of time, with every configuration that the answers up to there leave possible.

    A call that writes takes effect only when a return requires it: its own, or that of a call that it explains. A call that
    only reads takes effect as soon as its answer is right. This keeps the number of configurations small in a long history.
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
            if len(possible) == 1:  # the history before this point no longer matters
                [(known, effective)] = possible
                self.open -= {at for at in effective if self.calls[at].end == NEVER}
                possible = {(known, effective & self.open)}
                since = sorted(self.open - effective)
        return None

    def _returned(self, possible: set[Configuration], number: int) -> set[Configuration]:
        """The configurations in which a call has taken effect, alone or after other open calls."""
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
        """The configuration in which all open calls with a right answer and without a change have taken effect."""
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
    """The violation without the calls that changed nothing and are not necessary for it.

    A call that wrote nothing may be left out of any history that has an order. A write may not: other calls depend on it.
    """
    for call in reversed(violation.calls):
        wrote = isinstance(call.did, Transact) and not call.did.failed
        fewer = tuple(other for other in violation.calls if other is not call)
        if not wrote and _Search(fewer).violation(violation.start):
            violation = dataclasses.replace(violation, calls=fewer)
    return violation


# Recording


class Recorder:
    """Calls a store from several threads, and records its answers.

    `atomic_queries`: True if a query reads all its rows at one moment. If False, each row of a query counts as a read of its
    own: DynamoDB promises consistency only for a single row. `repeats`: True if some transactions are repeated.
    """

    def __init__(self, store: Store, seed: int, *, atomic_queries: bool = True, repeats: bool = True):
        self.store, self.seed, self.atomic_queries, self.repeats = store, seed, atomic_queries, repeats
        self.unavailable = 0

    def record(self, operations: int, *, groups: int, threads: int = 8) -> dict[int, list[Call]]:
        """Returns the histories of the groups. All threads work on one group, and then on the next."""
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
            except BaseException as error:  # the other threads must not wait forever
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
        """The calls of one thread: reads, and writes that mostly expect the versions that the thread read last."""
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
        """Reads all rows as separate reads: the contract does not promise that they are read at one moment."""
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
            return []  # by the contract nothing was written; if something was, no order explains a call that read it
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
    """Writes to some rows, each on the version that was read last or, sometimes, on another version."""
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
