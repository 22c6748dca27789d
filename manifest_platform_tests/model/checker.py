"""Breadth-first search over every world that a scope can reach.

It checks the invariants in each world, and finds the shortest trace to a violation. It also checks that the workers alone can
reach rest from every world.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from manifest_platform_tests.model.configurations import Budget
from manifest_platform_tests.model.invariants import Past, unfinished, violation
from manifest_platform_tests.model.program import (
    ACCEPT,
    AWAY,
    BEGIN,
    CRASH,
    ERRANDS,
    EXPIRY,
    FREE,
    FRESH,
    IDLE,
    RESTORE,
    REWIND,
    UNCLEAR,
    Clerk,
    Effect,
    Program,
    Worker,
)
from manifest_platform_tests.model.scope import Numbers, Scope
from manifest_platform_tests.model.sink import Sink, put

World = tuple[int, ...]
"""The numbers of the manifest, the sink, the budget, the backup and the sink's copy (or none), the clerk, and the workers in
order.
"""
NO_BACKUP, USED_BACKUP = -1, -2
ROWS, SINK, BUDGET, BACKUP, COPY, CLERK, WORKERS = range(7)


class Step(NamedTuple):
    """A step of a world: the worker that took it (its place, or nobody) and its label.

    `own`: workers take it without an operator. `workers`: the workers of the next world, in the places that they had before.
    """

    who: int
    label: str
    after: World
    own: bool
    broken: str | None
    workers: tuple[int, ...] | list[int]


class Result(NamedTuple):
    """The result of an exploration. `depth`: steps to the farthest world. `complete`: every world was explored."""

    states: int
    depth: int
    seconds: float
    complete: bool
    violation: str | None = None
    trace: tuple[str, ...] = ()


class Checker:
    """The worlds of a scope."""

    def __init__(self, scope: Scope):
        self.scope, self.program = scope, Program(scope)
        self.workers: Numbers[Worker] = Numbers()
        self.clerks: Numbers[tuple[Clerk, ...]] = Numbers()
        self.budgets: Numbers[Budget] = Numbers()
        self.idle, self.away = self.workers.of(IDLE), self.clerks.of((AWAY,) * scope.configuration.clerks)
        budget = scope.configuration.budget
        self.start: World = (
            scope.start,
            self.program.start,
            self.budgets.of(budget),
            NO_BACKUP,
            NO_BACKUP,
            self.away,
            *[self.idle] * scope.configuration.workers,
        )
        self._steps: dict[tuple[int, int, int], list[tuple]] = {}
        self._errands: dict[tuple[int, int], list[tuple]] = {}
        self._judged: dict[tuple, str | None] = {}
        self._stale: dict[tuple[int, int], int] = {}
        self._spent: dict[tuple[int, int], int] = {}

    # Steps

    def steps(self, world: World) -> Iterator[Step]:
        """Yields every step that a world can take."""
        rows, sink, budget, backup, copy, clerk = world[:WORKERS]
        workers = world[WORKERS:]
        for place, worker in enumerate(workers):
            if place and worker == self.idle and workers[place - 1] == self.idle:
                continue  # two idle workers are interchangeable
            for label, after_rows, after_sink, after, put_state, took, cost, broken in self._of_worker(rows, sink, worker):
                if took >= 0 and any(
                    self.workers.values[one].holds and self.workers.values[one].job == took for one in workers
                ):
                    after_budget = self._spend(self._spend(budget, cost), EXPIRY)
                else:
                    after_budget = self._spend(budget, cost)
                if after_budget < 0:
                    continue
                others = list(workers)
                if took >= 0:
                    others = [self._without_lease(one, took) for one in others]
                after_clerk = clerk
                if put_state:
                    state = self.scope.rows.values[rows].state
                    others = [self._with_stale(one, state) for one in others]
                    after_clerk = self._clerks_with_stale(clerk, state)
                others[place] = after
                own = after_budget == budget
                token = self.workers.values[worker].token or self.workers.values[after].token
                ranks = token and backup < 0 and (took >= 0 or after == self.idle or after_sink != sink)
                after_copy = copy
                if ranks:
                    after_rows, after_sink, after_copy, others = self._ranked(after_rows, after_sink, copy, others)
                after_world = (after_rows, after_sink, after_budget, backup, after_copy, after_clerk, *sorted(others))
                yield Step(place, label, after_world, own, broken, others)
        yield from self._others(world)

    def _others(self, world: World) -> Iterator[Step]:
        """Yields the steps of discovery and operators, and the backup."""
        rows, sink, budget, backup, copy, clerk = world[:WORKERS]
        workers = world[WORKERS:]
        for label, after_rows, after, put_state, cost, broken, begun in self._of_clerk(rows, clerk):
            after_budget = self._spend(budget, cost)
            if after_budget < 0:
                continue
            if begun:
                if self._is_taken(clerk, budget, cost) or not self._may_begin(begun, world):
                    continue
                after_budget = budget  # the budget is spent when the clerk finishes
            after_workers = workers
            if put_state:
                state = self.scope.rows.values[rows].state
                after_workers = tuple(self._with_stale(one, state) for one in workers)
                after = self._clerks_with_stale(after, state)
            after_world = (after_rows, sink, after_budget, backup, copy, after, *sorted(after_workers))
            yield Step(-1, label, after_world, begun is None, broken, after_workers)
        if backup == NO_BACKUP and self.budgets.values[budget][RESTORE]:
            yield Step(-1, "backup", (rows, sink, budget, rows, *world[COPY:]), False, None, workers)
        elif backup >= 0:
            left = [self._adrift(one) for one in workers]
            restored = self.scope.set_back(backup)
            after_world = (restored, sink, self._spend(budget, RESTORE), USED_BACKUP, copy, self.away, *sorted(left))
            yield Step(-1, "restore the backup", after_world, False, None, left)
        if self.budgets.values[budget][REWIND]:
            yield from self._rewinds(world)

    def _rewinds(self, world: World) -> Iterator[Step]:
        """Yields the steps that copy the sink, set it back to its copy, or empty it. Its workers do not notice and continue."""
        rows, sink, budget, backup, copy, clerk = world[:WORKERS]
        workers, spent = world[WORKERS:], self._spend(budget, REWIND)
        if copy == NO_BACKUP and sink != self.program.start:
            yield Step(-1, "copy the sink", (rows, sink, budget, backup, sink, clerk, *workers), False, None, workers)
        for label, before in (("set the sink back to its copy", copy), ("empty the sink", self.program.start)):
            if before >= 0 and before != sink:
                yield Step(-1, label, (rows, before, spent, backup, NO_BACKUP, clerk, *workers), False, None, workers)

    def _adrift(self, worker: int) -> int:
        """The remainder of a worker after a restore stopped all workers: a transaction that the sink may still commit."""
        held = self.workers.values[worker]
        return self.workers.of(held._replace(at="adrift", holds=False)) if self.program.commits(held) else self.idle

    def _of_worker(self, rows: int, sink: int, worker: int) -> list[tuple]:
        key = (rows, sink, worker)
        found = self._steps.get(key)
        if found is None:
            effects = self.program.steps(rows, sink, self.workers.values[worker])
            found = self._steps[key] = [
                (one.label, one.rows, one.sink, self._worker(one), one.put_state, one.took, one.cost, one.broken)
                for one in effects
            ]
        return found

    def _worker(self, effect: Effect) -> int:
        assert isinstance(effect.actor, Worker)
        return self.workers.of(effect.actor)

    def _of_clerk(self, rows: int, clerk: int) -> list[tuple]:
        key = (rows, clerk)
        found = self._errands.get(key)
        if found is None:
            found = self._errands[key] = list(self._by_clerks(rows, self.clerks.values[clerk]))
        return found

    def _by_clerks(self, rows: int, clerks: tuple[Clerk, ...]) -> Iterator[tuple]:
        """The steps of each clerk. If a clerk begins something, it is the last."""
        for place, acts in enumerate(clerks):
            if acts in clerks[:place]:
                continue  # two clerks with the same errand are interchangeable
            for one in self.program.errands(rows) if acts == AWAY else [self.program.finish(rows, acts)]:
                assert isinstance(one.actor, Clerk)
                after = self.clerks.of(tuple(sorted((*clerks[:place], one.actor, *clerks[place + 1 :]))))
                yield one.label, one.rows, after, one.put_state, one.cost, one.broken, one.actor if acts == AWAY else None

    def _is_taken(self, clerk: int, budget: int, cost: int) -> bool:
        """True if the other clerks will spend the whole budget of an errand."""
        spend = [ERRANDS[one.does] for one in self.clerks.values[clerk] if one != AWAY]
        return cost != FREE and spend.count(cost) >= self.budgets.values[budget][cost]

    def _may_begin(self, clerk: Clerk, world: World) -> bool:
        """True if an item is old enough to be archived: nobody works from an earlier reading of it."""
        if clerk.does != "archive" or not self.scope.on("archive_age"):
            return True
        known = [*map(self.workers.values.__getitem__, world[WORKERS:]), *self.clerks.values[world[CLERK]]]
        return not any(one.item == clerk.item and one.length < clerk.length for one in known)

    def _spend(self, budget: int, cost: int) -> int:
        """The budget after a cost; negative if it is exhausted."""
        if cost == FREE or budget < 0:
            return budget
        found = self._spent.get((budget, cost))
        if found is None:
            left = self.budgets.values[budget]
            after = list(left)
            after[cost] -= 1
            found = self._spent[budget, cost] = self.budgets.of(Budget(*after)) if left[cost] else -1
        return found

    def _without_lease(self, worker: int, job: int) -> int:
        held = self.workers.values[worker]
        return self.workers.of(held._replace(holds=False)) if held.holds and held.job == job else worker

    def _with_stale(self, worker: int, state: int) -> int:
        key = (worker, state)
        found = self._stale.get(key)
        if found is None:
            held = self.workers.values[worker]
            found = self.workers.of(held._replace(memory=state)) if held.memory == FRESH else worker
            self._stale[key] = found
        return found

    def _clerks_with_stale(self, clerk: int, state: int) -> int:
        held = self.clerks.values[clerk]
        if all(one.memory != FRESH for one in held):
            return clerk
        return self.clerks.of(tuple(sorted(one._replace(memory=state) if one.memory == FRESH else one for one in held)))

    def _ranked(self, rows: int, sink: int, copy: int, workers: list[int]) -> tuple[int, int, int, list[int]]:
        """The same world with each token replaced by its rank: only the order of tokens matters.

        This requires that the lease's row has the newest token. It has, except in a manifest that was set back; a backup keeps
        its tokens.
        """
        scope, program = self.scope, self.program
        for job, (step, feed, _) in enumerate(scope.jobs):
            held, sinks = scope.rows.values[rows], [program.sinks.values[one] for one in (sink, copy) if one >= 0]
            tokens = {held.leases[job][0]}
            tokens.update(
                seen for one in map(self.workers.values.__getitem__, workers) if one.job == job for seen in _tokens(one)
            )
            if step.ordered:
                tokens.update(known.fences[feed].token for known in sinks)
            if max(tokens) < len(tokens) or held.leases[job][0] < max(tokens):
                continue
            rank = {token: n for n, token in enumerate(sorted(tokens))}
            leases = list(held.leases)
            leases[job] = (rank[leases[job][0]], leases[job][1])
            rows = scope.rows.of(held._replace(leases=tuple(leases)))
            if step.ordered:
                renamed = [program.sinks.of(_renamed(known, feed, rank)) for known in sinks]
                sink, copy = renamed[0], renamed[1] if copy >= 0 else copy
            for place, number in enumerate(workers):
                worker = self.workers.values[number]
                if worker.job == job:
                    workers[place] = self.workers.of(_with_tokens(worker, rank))
        return rows, sink, copy, workers

    # Judgement

    def broken(self, world: World) -> str | None:
        """The invariant that a world breaks; None if there is none."""
        left, had = self.budgets.values[world[BUDGET]], self.scope.configuration.budget
        blamed = any(left[one] < had[one] for one in (CRASH, EXPIRY, UNCLEAR, BEGIN))
        restored = world[BACKUP] == USED_BACKUP
        rewound = left[REWIND] < had[REWIND]
        past = Past(restored, blamed or restored, rewound, left[ACCEPT] < had[ACCEPT])
        key = (world[ROWS], world[SINK], past)
        if key not in self._judged:
            self._judged[key] = violation(self.scope, world[ROWS], self.program.sinks.values[world[SINK]], past)
        broken = self._judged[key]
        if broken is None and self._rests(world):
            broken = unfinished(self.scope, world[ROWS], self.program.sinks.values[world[SINK]], past)
        return broken

    def explore(self, limit: int | None = None) -> Result:
        """Explores all worlds, nearest first, until a world breaks an invariant or `limit` worlds are seen."""
        begun = time.monotonic()
        came_from: dict[World, World | None] = {self.start: None}
        depth, level = 0, [self.start]
        while level:
            following: list[World] = []
            for world in level:
                for step in self.steps(world):
                    if step.broken:
                        trace = (*self._trace(came_from, world), step.label)
                        return Result(len(came_from), depth + 1, time.monotonic() - begun, False, step.broken, trace)
                    if step.after in came_from:
                        continue
                    came_from[step.after] = world
                    following.append(step.after)
                    if broken := self.broken(step.after):
                        trace = self._trace(came_from, step.after)
                        return Result(len(came_from), depth + 1, time.monotonic() - begun, False, broken, trace)
                if limit and len(came_from) >= limit:
                    return Result(len(came_from), depth, time.monotonic() - begun, False)
            depth, level = depth + bool(following), following
        return Result(len(came_from), depth, time.monotonic() - begun, True)

    def _trace(self, came_from: dict[World, World | None], world: World) -> tuple[str, ...]:
        """The steps from the start to a world. Each worker keeps one name."""
        worlds = [world]
        while before := came_from[worlds[-1]]:
            worlds.append(before)
        worlds.reverse()
        names, labels = [f"w{n + 1}" for n in range(len(world) - WORKERS)], []
        for before, after in pairwise(worlds):
            step = next(step for step in self.steps(before) if step.after == after)
            labels.append(f"{names[step.who]} {step.label}" if step.who >= 0 else step.label)
            names = [name for _, name in sorted(zip(step.workers, names, strict=True), key=lambda one: one[0])]
        return tuple(labels)

    # Rest

    def unrested(self, helped: bool = False) -> Result:
        """The nearest world from which the workers alone cannot come to rest; the trace leads to it.

        `helped`: discovery and operators may act too; worlds in which no full load is left to begin do not count.
        """
        begun = time.monotonic()
        came_from: dict[World, World | None] = {self.start: None}
        numbers: dict[World, int] = {self.start: 0}
        worlds, earlier, resting = [self.start], [[]], []
        queue = deque([self.start])
        while queue:
            world = queue.popleft()
            here = numbers[world]
            if self._rests(world):
                resting.append(here)
            for step in self.steps(world):
                there = numbers.get(step.after)
                if there is None:
                    there = numbers[step.after] = len(worlds)
                    worlds.append(step.after)
                    earlier.append([])
                    came_from[step.after] = world
                    queue.append(step.after)
                if step.own or (helped and step.who < 0):
                    earlier[there].append(here)
        reached = bytearray(len(worlds))
        stack = resting
        for one in stack:
            reached[one] = 1
        while stack:
            for one in earlier[stack.pop()]:
                if not reached[one]:
                    reached[one] = 1
                    stack.append(one)
        seconds = time.monotonic() - begun
        unreached = (world for world, rested in zip(worlds, reached, strict=True) if not rested)
        stuck = next((world for world in unreached if not helped or self._begins(world)), None)
        if stuck is None:
            return Result(len(worlds), 0, seconds, True)
        trace = self._trace(came_from, stuck)
        return Result(len(worlds), len(trace), seconds, True, "(8) rest cannot be reached", trace)

    def _begins(self, world: World) -> int:
        return self.budgets.values[world[BUDGET]].begins

    def _rests(self, world: World) -> bool:
        idle = world[CLERK] == self.away and all(worker == self.idle for worker in world[WORKERS:])
        return idle and self.program.rests(world[ROWS], world[SINK])


def _renamed(sink: Sink, feed: int, rank: dict[int, int]) -> Sink:
    fence = sink.fences[feed]
    return sink._replace(fences=put(sink.fences, feed, fence._replace(token=rank[fence.token])))


def _tokens(worker: Worker) -> tuple[int, ...]:
    """The tokens that a worker knows: its own, and the token of a fence above which it will take the lease."""
    fence = _above(worker)
    return (worker.token,) if fence is None else (worker.token, fence[1])


def _above(worker: Worker) -> tuple | None:
    answer = worker.begun.answers[-1] if worker.begun and worker.begun.answers else None
    return answer if answer and answer[0] == "fenced" else None


def _with_tokens(worker: Worker, rank: dict[int, int]) -> Worker:
    after = worker._replace(token=rank[worker.token])
    fence = _above(worker)
    if fence is None or worker.begun is None:
        return after
    answers = (*worker.begun.answers[:-1], ("fenced", rank[fence[1]], fence[2]))
    return after._replace(begun=worker.begun._replace(answers=answers))
