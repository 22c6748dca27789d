"""The actions of a worker, request by request, and the actions of discovery and operators.

Belongs here: the execution of the requests of the product's programs (`pipeline.loading`) in a compact world. Each is a step of
its own, so that all others may come between. The programs decide which request comes next: each is begun again with its
arguments and the answers so far. The product's transitions compute what a request writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

from manifest_platform.manifest import Item, ItemKey, Landed, Manifest, Payload, Refused, State, Step, StepState, transitions
from manifest_platform.manifest.archive import move
from manifest_platform.manifest.claims import Claim, Failure
from manifest_platform.manifest.dataset import (
    Abandoned,
    Blocked,
    Jumped,
    Mode,
    Ready,
    Standing,
    Verdict,
    choose_full,
)
from manifest_platform.manifest.errors import ClaimLost
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.reading import DISCOVERY, OPERATOR
from manifest_platform.manifest.records import EVERYONE, OUTPUT, Application, FailureKind
from manifest_platform.manifest.store import ConditionFailed, Write
from manifest_platform.operations import accept, archive, reconcile, reshred
from manifest_platform.operations.reconcile import (
    AskRecord,
    AskSnapshot,
    AskStop,
    BelieveSink,
    FindLacking,
    Free,
    ReadFence,
)
from manifest_platform.pipeline import shredding
from manifest_platform.pipeline.requests import (
    Abandon,
    Adopt,
    Apply,
    ApplyAll,
    AskLedger,
    Believe,
    ClaimNext,
    ClaimTogether,
    Complete,
    CompleteAll,
    Defer,
    Fail,
    PutBack,
    PutBackAll,
    RaiseFence,
    RaiseToken,
    ReadState,
    Request,
    SendBack,
)
from manifest_platform.warehouse.errors import CannotLoad
from manifest_platform.warehouse.load import Load
from manifest_platform.warehouse.rules import Held, Refusal, Why, knows
from manifest_platform_tests.model import sink as warehouse
from manifest_platform_tests.model.configurations import LOAD, SHRED, Budget
from manifest_platform_tests.model.invariants import not_next
from manifest_platform_tests.model.replay import (
    ACCEPTING,
    CANCELLING,
    DONE,
    LOADING,
    LOADING_TOGETHER,
    RECONCILING,
    SETTLING,
    Answer,
    Begun,
    Replay,
)
from manifest_platform_tests.model.scope import (
    TOGETHER,
    HeldLease,
    Numbers,
    Rejected,
    Scope,
    View,
    Writes,
    rewritten,
    stamp,
    through,
)
from manifest_platform_tests.model.sink import Sink

OUTPUTS = Payload(OUTPUT, {"rows": 1})
FREE = -1
CRASH, EXPIRY, LOSS, UNCLEAR, FAILURE, RESOLVE, SKIP, UNSKIP, BEGIN, CANCEL = range(10)
RESTORE, REWIND, REFUSAL, ACCEPT, RESHRED, REWRITE, LOST, ARCHIVE, RELOAD, REPLAY = range(10, len(Budget._fields))
CANCEL_ERRAND = "cancel"
LABELS = {"believe": "believe the fence", "believe_sink": "believe the sink", "free": "free"}
UNREAD, FRESH = -2, -1
"""A worker's memory of the state: none, the current state, or else the number of an older state."""


class Worker(NamedTuple):
    """A worker between two requests: its next action (`at`), its grant, and what it remembers.

    `current`: the item that the lease's former holder may have left open. `errand`: the operator's command that it executes
    under the lease. `begun`: the program that it runs, once it has found something to do; `at` is then `asks`, or the position
    within a request. `length`: the length of the item's log when it was read last; `opened`: sequence of the Processing record;
    `under`: the watermark that the claim is conditional on; `then`: the action after an intermediate step.
    """

    at: str = "idle"
    job: int = -1
    token: int = 0
    holds: bool = False
    current: int = -1
    errand: str = ""
    memory: int = UNREAD
    begun: Begun | None = None
    item: int = -1
    length: int = 0
    opened: int = 0
    under: str = ""
    then: str = ""


IDLE = Worker()


class Clerk(NamedTuple):
    """Discovery or an operator, between reading and writing.

    `decided`: the item's log and the state that the decision of a verb is based on, if the verb reads both again when it
    writes; `looked`: it has read them again.
    """

    does: str = ""
    item: int = -1
    length: int = 0
    memory: int = UNREAD
    decided: tuple[int, ...] = ()
    looked: bool = False

    @property
    def who(self) -> str:
        """The name of the actor in a trace."""
        return "discovery" if self.does == "discover" else "operator"


AWAY = Clerk()


class Effect(NamedTuple):
    """The effect of a step on the world. `took`: the job whose lease it took; `cost`: the budget's field that it spends."""

    label: str
    rows: int
    sink: int
    actor: Worker | Clerk
    put_state: bool = False
    took: int = -1
    cost: int = FREE
    broken: str | None = None


class Program:
    """The steps of workers and clerks in a scope."""

    def __init__(self, scope: Scope):
        self.scope = scope
        self.sinks: Numbers[Sink] = Numbers()
        self.start = self.sinks.of(Sink.empty(scope.feeds))
        self.rules = warehouse.Rules(scope.off)
        self._computed: dict[tuple, Writes | str] = {}
        self._verdicts: dict[tuple, tuple] = {}
        self._commits: dict[tuple, int | None] = {}
        self.replay = Replay(scope)

    # Computed by the product

    def _writes(self, key: tuple, compute: Callable[[], Sequence[Write]]) -> Writes | str:
        """The writes of a transition; `lost` or `refused` if it raises that."""
        found = self._computed.get(key)
        if found is None:
            try:
                found = self.scope.compact(compute())
            except ClaimLost:
                found = "lost"
            except Refused:
                found = "refused"
            self._computed[key] = found
        return found

    def _state(self, rows: int, memory: int) -> int:
        return self.scope.rows.values[rows].state if memory == FRESH else memory

    def _verdict(self, rows: int, job: int, memory: int, holding: bool) -> tuple[str, int, int, str | None]:
        """The step's next action by the state that it remembers: (action, item, its open Processing, the violation or None)."""
        key = (rows, job, self._state(rows, memory), holding)
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdicts[key] = self._look(*key)
        return found

    def _look(self, rows: int, job: int, number: int, holding: bool) -> tuple[str, int, int, str | None]:
        scope, step = self.scope, self.scope.jobs[job].step
        feed, state = scope.feeds[scope.jobs[job].feed], scope.state(number)
        view = scope.view.at(rows)
        if step.order == "any":
            return self._look_any(rows, job, holding)
        found: Verdict | Jumped
        if step.order == "full":
            found = choose_full(step, state, view._begun(state, feed), holding)
        else:
            found = view._next_strict(step, state, feed, holding)
        match found:
            case Ready(item):
                i = scope.number(item.key)
                return "claim", i, 0, not_next(scope, rows, i, state)
            case Jumped(item):
                return "sweep", scope.number(item.key), 0, None
            case Abandoned(item, processing):
                return "settle", scope.number(item.key), processing.sequence, None
            case Blocked(item, standing):
                return f"blocked: {standing}", scope.number(item.key), 0, None
        return "idle", -1, 0, None

    def _look_any(self, rows: int, job: int, holding: bool) -> tuple[str, int, int, str | None]:
        scope, step = self.scope, self.scope.jobs[job].step
        feed = scope.feeds[scope.jobs[job].feed]
        ready, stuck = scope.view.at(rows).waiting(feed, step.application.key, 100)
        for one in stuck:
            blocker = one.item.blocker()
            if one.standing is Standing.PROCESSING and blocker and blocker.application.key == step.application.key:
                found = "free" if holding else f"blocked: {Standing.PROCESSING}"
                return found, scope.number(one.item.key), blocker.sequence, None
        if ready:
            return "claim", scope.number(ready[0].key), 0, None
        return (f"blocked: {stuck[0].standing}", scope.number(stuck[0].item.key), 0, None) if stuck else ("idle", -1, 0, None)

    def has_work(self, rows: int, job: int) -> bool:
        """True if a reading without the lease shows that there is something to do."""
        what = self._verdict(rows, job, FRESH, False)[0]
        return what in ("claim", "sweep", f"blocked: {Standing.PROCESSING}")

    def rests(self, rows: int, sink: int) -> bool:
        """True if no step has anything to do without a person or a new directory.

        A mode that holds a feed is not rest: the snapshot's own step ends it. A sink that lacks the believed record is not
        rest: it is reported and reconciled.
        """
        if not all(self.knows(rows, sink, feed) for feed in self.scope.feeds):
            return False
        restless = ("claim", "sweep", f"blocked: {Standing.PROCESSING}", f"blocked: {Standing.READY}")
        return all(self._verdict(rows, job, FRESH, False)[0] not in restless for job in range(len(self.scope.jobs)))

    def _name(self, i: int) -> str:
        return self.scope.keys[i].id

    # Workers

    def steps(self, rows: int, sink: int, worker: Worker) -> list[Effect]:
        """Yields the next steps of a worker, including a crash."""
        if worker.at == "idle":
            return list(self._acquire(rows, sink))
        found = list(getattr(self, f"_at_{worker.at}")(rows, sink, worker))
        return [*found, Effect("crashes", rows, sink, IDLE, cost=CRASH)]

    def _acquire(self, rows: int, sink: int) -> Iterator[Effect]:
        for job in range(len(self.scope.jobs)):
            for errand, cost in self._reasons(rows, sink, job):
                yield self._taken(rows, sink, job, errand, cost)

    def _reasons(self, rows: int, sink: int, job: int) -> Iterator[tuple[str, int]]:
        """The purposes for which the lease of a job may be taken, and their costs."""
        step, name = self.scope.jobs[job].step, self.scope.feeds[self.scope.jobs[job].feed]
        state = self.scope.state(self.scope.rows.values[rows].state)
        broken = step.order == "strict" and not self.knows(rows, sink, name)
        if self.has_work(rows, job):
            yield "", REFUSAL if broken else FREE
        if step.order == "full" and state.mode == Mode.FULL_LOAD:
            yield CANCEL_ERRAND, CANCEL
        if broken and state.mode == Mode.INCREMENTAL:
            yield RECONCILING, FREE
            yield ACCEPTING, ACCEPT

    def knows(self, rows: int, sink: int, feed: str) -> bool:
        """True if the ledger has the record that the manifest believes was applied last."""
        believed = self.scope.state(self.scope.rows.values[rows].state).feed(feed).believed
        return knows(believed, self.sinks.values[sink])

    def _taken(self, rows: int, sink: int, job: int, errand: str, cost: int) -> Effect:
        scope, name = self.scope, self.scope.jobs[job].name
        held = scope.rows.values[rows]
        token, current = held.leases[job]
        if not scope.on("lease_in_acquire"):
            reader = Worker("taking", job, token, False, current, errand)
            return Effect(f"reads the lease of {name}", rows, sink, reader, cost=cost)
        after = scope.rows.of(held._replace(leases=(*held.leases[:job], (token + 1, current), *held.leases[job + 1 :])))
        unsettled = current if scope.on("current") else -1
        worker = self._set_out(Worker("", job, token + 1, True, unsettled, errand))
        label = f"takes the lease of {name}{f' to {errand}' if errand else ''}"
        return Effect(label, after, sink, worker, took=job, cost=cost)

    def _set_out(self, worker: Worker) -> Worker:
        """The worker, once it has the lease."""
        if worker.errand in (RECONCILING, ACCEPTING):
            return worker._replace(at="asks", begun=Begun(worker.errand, worker.job, -1, 0))
        any_order = self.scope.jobs[worker.job].step.order == "any"
        return worker._replace(at="cancel" if worker.errand else "look" if any_order else "unsettled")

    def _at_taking(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """Takes a lease in two requests, as if the write were not conditional on the version that was read."""
        scope, name = self.scope, self.scope.jobs[worker.job].name
        held, row = scope.rows.values[rows], (worker.token + 1, worker.current)
        after = scope.rows.of(held._replace(leases=(*held.leases[: worker.job], row, *held.leases[worker.job + 1 :])))
        taken = self._set_out(worker._replace(token=row[0], holds=True))
        yield Effect(f"takes the lease of {name}", after, sink, taken, took=worker.job)

    def _write(
        self,
        what: str,
        rows: int,
        sink: int,
        worker: Worker,
        writes: Writes,
        then: Worker,
        conflict: Worker,
        current: int | None = None,
    ) -> Iterator[Effect]:
        """A transaction. A `current` that is given is written with the lease's row, which identifies it; -1 keeps the item."""
        lease = None if current is None else (worker.job, worker.holds, current)
        fresh = worker.memory == FRESH
        written = self.scope.transact(rows, writes, what, fresh, lease)
        label = f"{what} {self._name(worker.item)}"
        if isinstance(written, Rejected):
            if written.lease:
                yield Effect(f"{label}: the lease is lost", rows, sink, IDLE)
            else:
                yield Effect(f"{label}: conflict", rows, sink, conflict)
            return
        yield Effect(label, written.rows, sink, then, written.put_state, broken=written.broken)
        unheard = conflict
        if self.scope.on("read_back"):
            unheard = then if then is IDLE else then._replace(at="read_back_lease" if lease else "read_back", then=then.at)
        yield Effect(f"{label}, answer lost", written.rows, sink, unheard, written.put_state, cost=LOSS, broken=written.broken)

    def _at_read_back(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        yield Effect(f"finds its own record of {self._name(worker.item)}", rows, sink, worker._replace(at=worker.then, then=""))

    def _at_read_back_lease(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        if worker.holds:
            yield Effect("finds its own lease", rows, sink, worker._replace(at=worker.then, then=""))
        else:
            yield Effect("finds another's lease", rows, sink, IDLE)

    def _next(self, worker: Worker) -> Worker:
        """The worker before it looks for the next item."""
        at = "cancel" if worker.errand else "look" if self.scope.jobs[worker.job].step.order == "any" else "state"
        if at == "state" and worker.current >= TOGETHER:
            at = "unsettled"  # of the items that were claimed together, others may be left
        return Worker(at, worker.job, worker.token, worker.holds, worker.current, worker.errand)

    def _at_unsettled(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """Finds the current item of the lease's row, if it is still open; the sink is asked about it before anything else."""
        if found := self._unsettled(rows, worker):
            i, opened = found
            yield Effect(f"finds {self._name(i)} unsettled", rows, sink, self._settling(rows, worker, i, opened))
        else:
            yield Effect("finds nothing unsettled", rows, sink, worker._replace(at="state", current=-1))

    def _unsettled(self, rows: int, worker: Worker) -> tuple[int, int] | None:
        if worker.current < 0:
            return None
        scope, (step, feed, _) = self.scope, self.scope.jobs[worker.job]
        last, first = divmod(worker.current, TOGETHER)
        through = scope.keys[last - 1].position if last and scope.on("through") else None
        lease = HeldLease(step.application, scope.feeds[feed], scope.keys[first].position, through)
        found = scope.view.at(rows).unsettled(lease)
        return (scope.number(found.item.key), found.processing.sequence) if found else None

    def _at_state(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        yield Effect("reads the state", rows, sink, worker._replace(at="items", memory=FRESH))

    def _at_items(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """Chooses by the state that was read before and the items as they are now."""
        scope = self.scope
        what, i, opened, broken = self._verdict(rows, worker.job, worker.memory, True)
        if i < 0 or what.startswith("blocked"):
            yield Effect(f"{what}{f' ({self._name(i)})' if i >= 0 else ''}, gives the lease back", rows, sink, IDLE)
            return
        if what == "settle":
            after = self._settling(rows, worker, i, opened)
        else:
            state = self._state(rows, worker.memory)
            after = worker._replace(at=what, item=i, length=scope.length(rows, i), under=self._watermark(state, worker))
            if what == "claim":
                outline = scope.outline(state, scope.jobs[worker.job].feed)
                begun = Begun(LOADING, worker.job, i, scope.log(rows, i), outline, life=scope.rows.values[rows].life)
                after = after._replace(at="asks", begun=begun)
        refused = worker.memory != FRESH and scope.on("check_in_claim")  # the state has changed, so the claim is refused
        if refused or not self.knows(rows, sink, scope.feeds[scope.jobs[worker.job].feed]):
            broken = None  # while the sink lacks the believed record, every load is refused
        if after.begun and after.begun.name == LOADING:
            gone = after._replace(begun=after.begun._replace(gone=True))
            yield Effect(f"the output of {self._name(i)} is gone", rows, sink, gone, cost=LOST, broken=broken)
        yield Effect(f"next is to {what} {self._name(i)}", rows, sink, after, broken=broken)
        if after.begun and after.begun.name == LOADING:
            yield from self._together(rows, sink, worker, after, refused)

    def _together(self, rows: int, sink: int, worker: Worker, alone: Worker, refused: bool) -> Iterator[Effect]:
        """Chooses the items behind the next item that may be loaded together with it."""
        scope, state = self.scope, self._state(rows, worker.memory)
        step = scope.jobs[worker.job].step
        if scope.configuration.together < 2 or step.order != "strict" or not alone.begun:
            return
        ready = Ready(scope.item(alone.item, scope.log(rows, alone.item)), scope.state(state))
        found = scope.view.at(rows).following(ready, step.application.key, scope.configuration.together - 1)
        numbers = [scope.number(item.key) for item in found]
        logs = [scope.logs.values[scope.log(rows, i)] for i in (alone.item, *numbers)]
        if any(event.together for log in logs for event in log):
            return  # once an item: a batch that is always refused would be tried and put back for ever
        for count in range(1, len(numbers) + 1):
            more = numbers[:count]
            broken = not_next(scope, rows, more[-1], scope.state(state), (alone.item, *more))
            if refused or not self.knows(rows, sink, scope.feeds[scope.jobs[worker.job].feed]):
                broken = None
            begun = alone.begun._replace(name=LOADING_TOGETHER, more=tuple((i, scope.log(rows, i)) for i in more))
            names = " and ".join(map(self._name, more))
            label = f"next is to claim {self._name(alone.item)} together with {names}"
            yield Effect(label, rows, sink, alone._replace(begun=begun), broken=broken)

    def _settling(self, rows: int, worker: Worker, i: int, opened: int) -> Worker:
        """The worker before it settles an open item."""
        name = CANCELLING if worker.errand else SETTLING
        begun = Begun(name, worker.job, i, self.scope.log(rows, i), 0, opened)
        return worker._replace(at="asks", begun=begun, item=i, length=self.scope.length(rows, i), opened=opened)

    def _watermark(self, state: int, worker: Worker) -> str:
        return self.scope.state(state).feed(self.scope.feeds[self.scope.jobs[worker.job].feed]).watermark

    def _at_sweep(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        scope, i = self.scope, worker.item
        log, state = scope.log(rows, i, worker.length), self._state(rows, worker.memory)
        writes = self._sweeping(rows, i, scope.jobs[worker.job].step, log, state)
        again = self._next(worker)
        yield from self._write("sweep", rows, sink, worker, writes, again, again)

    # The requests of the programs

    def _at_asks(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        assert worker.begun
        request = self.replay.place(worker.begun).request
        assert request
        yield from getattr(self, f"_{type(request).__name__.lower()}")(rows, sink, worker, request)

    def _answered(self, worker: Worker, answer: Answer = DONE) -> Worker:
        """The worker once its request is answered: before the next request, or before it looks for the next item."""
        assert worker.begun
        begun = worker.begun.answered(answer)
        while True:
            place = self.replay.place(begun)
            if place.request is None:
                if worker.errand in (RECONCILING, ACCEPTING):
                    return IDLE
                again = isinstance(place.error, ConditionFailed | CannotLoad)
                gives_up = (place.error and not again) or (worker.errand and place.result)
                return IDLE if gives_up else self._next(worker)
            if not isinstance(place.request, RaiseFence) or self.scope.on("raise_fence"):
                return self._focused(worker._replace(at="asks", begun=begun), place.request)
            begun = begun.answered(DONE)

    def _focused(self, worker: Worker, request: Request[Any]) -> Worker:
        """The worker with the item that its next request is about, if it works on several."""
        match request:
            case ClaimTogether((item,)):
                return worker._replace(item=self.scope.number(item.key), length=item.sequence)
            case CompleteAll(((claim, _, _),)) | PutBackAll((claim,)):
                item, opened = claim.item, claim.processing.sequence
            case Adopt(abandoned) | Abandon(abandoned) if worker.begun and worker.begun.name == LOADING_TOGETHER:
                item, opened = abandoned.item, abandoned.processing.sequence
            case _:
                return worker
        return worker._replace(item=self.scope.number(item.key), length=item.sequence, opened=opened)

    def _claimtogether(self, rows: int, sink: int, worker: Worker, request: ClaimTogether) -> Iterator[Effect]:
        return self._claim(rows, sink, worker, request.behind, request.together)

    def _claimnext(self, rows: int, sink: int, worker: Worker, _request: ClaimNext) -> Iterator[Effect]:
        return self._claim(rows, sink, worker)

    def _claim(self, rows: int, sink: int, worker: Worker, behind: Claim | None = None, together: int = 0) -> Iterator[Effect]:
        scope, i, step = self.scope, worker.item, self.scope.jobs[worker.job].step
        if self._unsettled(rows, worker):
            yield Effect("may not claim: something is unsettled", rows, sink, IDLE)
            return
        log = scope.log(rows, i, worker.length)
        state = self._state(rows, worker.memory) if step.ordered else scope.state_number(StepState())
        writes = self._writes(
            ("claim", worker.job, i, log, state, together),
            lambda: transitions.claim([scope.item(i, log)], step, scope.state(state), worker.token, stamp(), together)[1],
        )
        if isinstance(writes, str):
            yield Effect(
                f"claim {self._name(i)}: {writes}", rows, sink, IDLE, broken=f"(8) the claim of its own choice is {writes}"
            )
            return
        opened = worker.length + 1
        claimed = worker._replace(at="complete", current=-1, length=opened, opened=opened)
        if step.ordered:
            claimed = self._answered(claimed)
        if not step.ordered:
            current, conflict = -1, self._next(worker)
        elif behind is None:
            current, conflict = i, self._next(worker)
        else:  # the items that are claimed already are loaded without this item
            current, conflict = through(scope.number(behind.item.key), i), self._answered(worker, ("conflict",))
        yield from self._write("claim", rows, sink, worker, writes, claimed, conflict, current)

    def _load(self, worker: Worker) -> Load:
        """The load that the worker has applied, under its token."""
        assert worker.begun
        request = self.replay.place(worker.begun).request
        assert isinstance(request, Apply)
        order = dataclasses.replace(request.order, token=worker.token)
        if self.scope.on("serving_in_load") or order.full:
            return order
        return dataclasses.replace(order, late=self.scope.item(worker.item, worker.begun.log).is_late_for(LOAD, 0))

    def _commit(self, sink: int, load: Load) -> int | None:
        """The sink after a load's transaction; None if it is rolled back."""
        key = (sink, load.item, load.record_id, load.token, load.epoch, load.serving_epoch, load.late, load.believed)
        key = (*key, load.checksum, load.reload)
        if key not in self._commits:
            after = self.rules.commit(self.sinks.values[sink], load)
            self._commits[key] = None if after is None else self.sinks.of(after)
        return self._commits[key]

    def _applyall(self, rows: int, sink: int, worker: Worker, request: ApplyAll) -> Iterator[Effect]:
        """A transaction of the sink with several items: all or none."""
        names = " and ".join(self._name(self.scope.named(one.item)) for one in request.orders)
        yield Effect(f"cannot read {names}", rows, sink, self._answered(worker, ("unreadable",)), cost=FAILURE)
        after = self._commit_all(sink, worker, request)
        if after is None:
            yield Effect(f"COMMIT {names} is refused", rows, sink, self._answered(worker, ("not together",)))
            return
        unclear = self._answered(worker, ("unclear",))
        yield Effect(f"COMMIT {names}", rows, after, self._answered(worker, ("applied all", request.orders[0].epoch)))
        yield Effect(f"COMMIT {names}, answer lost", rows, after, unclear, cost=UNCLEAR)
        yield Effect(f"COMMIT {names} fails, answer lost", rows, sink, unclear, cost=UNCLEAR)

    def _commit_all(self, sink: int, worker: Worker, request: ApplyAll) -> int | None:
        """The sink after a transaction of several loads, under the worker's token; None if it is rolled back."""
        key = (sink, worker.token, tuple((one.item, one.record_id, one.epoch, one.believed) for one in request.orders))
        if key not in self._commits:
            loads = [dataclasses.replace(one, token=worker.token) for one in request.orders]
            after = self.rules.commit_all(self.sinks.values[sink], loads)
            self._commits[key] = None if after is None else self.sinks.of(after)
        return self._commits[key]

    def _apply(self, rows: int, sink: int, worker: Worker, _request: Apply) -> Iterator[Effect]:
        """A transaction of the sink. Its staging is invisible to others; for a snapshot, the ledger is asked first."""
        name, load = self._name(worker.item), self._load(worker)
        yield Effect(f"cannot read {name}", rows, sink, self._answered(worker, ("unreadable",)), cost=FAILURE)
        yield Effect(f"the output of {name} is gone", rows, sink, self._answered(worker, ("gone",)), cost=LOST)
        if not load.full:
            yield from self._at_commit(rows, sink, worker)
        elif self.rules.refusal(self.sinks.values[sink], load):
            yield Effect(f"{name} is refused", rows, sink, worker._replace(at="why"))
        else:
            yield Effect(f"builds {name}", rows, sink, worker._replace(at="commit"))

    def _at_commit(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        name, load = self._name(worker.item), self._load(worker)
        after = self._commit(sink, load)
        if after is None:
            yield Effect(f"COMMIT {name} is refused", rows, sink, worker._replace(at="why"))
            return
        unclear = self._answered(worker, ("unclear",))
        yield Effect(f"COMMIT {name}", rows, after, self._answered(worker, ("applied", load.epoch, load.record_id)))
        yield Effect(f"COMMIT {name}, answer lost", rows, after, unclear, cost=UNCLEAR)
        yield Effect(f"COMMIT {name} fails, answer lost", rows, sink, unclear, cost=UNCLEAR)

    def _at_adrift(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """A transaction whose worker was stopped: the sink commits it, or rolls it back."""
        assert worker.begun
        request, name = self.replay.place(worker.begun).request, self._name(worker.item)
        together = isinstance(request, ApplyAll)
        after = self._commit_all(sink, worker, request) if together else self._commit(sink, self._load(worker))
        if after is not None:
            yield Effect(f"COMMIT {name}, heard by nobody", rows, after, IDLE)
        yield Effect(f"{name} is rolled back, heard by nobody", rows, sink, IDLE)

    def commits(self, worker: Worker) -> bool:
        """True if a worker is in a transaction of the sink."""
        return (
            worker.at in ("asks", "commit")
            and bool(worker.begun)
            and isinstance(self.replay.place(worker.begun).request, Apply | ApplyAll)
        )

    def _at_why(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """Reads the reason for a refusal, after the sink rolled its transaction back."""
        name, load = self._name(worker.item), self._load(worker)
        refusal = self.rules.refusal(self.sinks.values[sink], load)
        if refusal is None:
            yield Effect("tries again", rows, sink, worker._replace(at="asks"))
            return
        label, answer = self._refused(refusal, name, load)
        yield Effect(label, rows, sink, self._answered(worker, answer))

    def _refused(self, refusal: Refusal, name: str, load: Load) -> tuple[str, Answer]:
        """The label of a refusal, and the answer to the program."""
        held, entry = refusal.held, refusal.entry
        match refusal.why:
            case Why.FENCED:
                newer = "epoch" if held.epoch > load.epoch and self.scope.on("fence_epoch") else "token"
                return f"is fenced by a newer {newer}", ("fenced", held.token, held.epoch)
            case Why.KNOWN:
                assert isinstance(entry, warehouse.Entry)
                return f"the ledger has {name}", ("already", entry.epoch, entry.record_id)
            case Why.OTHER_CONTENT:
                return f"the ledger has {name} with other content", ("other content",)
            case Why.EPOCH_IN_USE:
                return f"the epoch of {name} is in use", ("in use",)
            case Why.SNAPSHOT_AHEAD:
                return f"{name} is based on an older snapshot than the sink's", ("ahead",)
            case Why.UNBELIEVED:
                return f"the sink lacks what is believed, to apply {name}", ("unbelieved",)
            case Why.MANIFEST_BEHIND:
                return f"the fence names a later record, to apply {name}", ("manifest behind", held.record)
            case Why.BEHIND:
                return f"{name} is behind", ("behind",)
        raise AssertionError(refusal)

    def _raisetoken(self, rows: int, sink: int, worker: Worker, request: RaiseToken) -> Iterator[Effect]:
        scope, held = self.scope, self.scope.rows.values[rows]
        if not worker.holds or not scope.on("raise_token"):
            yield Effect("raise token: the lease is lost", rows, sink, IDLE)
            return
        assert worker.begun
        token = max(worker.token, request.above) + 1
        leases = (*held.leases[: worker.job], (token, held.leases[worker.job][1]), *held.leases[worker.job + 1 :])
        *before, (_, _, epoch) = worker.begun.answers
        begun = worker.begun._replace(answers=(*before, ("fenced", 0, epoch)))  # its token does not matter any more
        after = self._answered(worker._replace(token=token, begun=begun))
        yield Effect("takes the lease again, above the fence", scope.rows.of(held._replace(leases=leases)), sink, after)

    def _readstate(self, rows: int, sink: int, worker: Worker, _request: ReadState) -> Iterator[Effect]:
        state = self.scope.rows.values[rows].state
        if worker.errand not in (RECONCILING, ACCEPTING):
            state = self.scope.outline(state, self.scope.jobs[worker.job].feed)
        after = self._answered(worker, ("state", state))
        yield Effect("reads the state", rows, sink, after)

    def _raisefence(self, rows: int, sink: int, worker: Worker, request: RaiseFence) -> Iterator[Effect]:
        feed = self.scope.jobs[worker.job].feed
        name, held = self.scope.feeds[feed], self.sinks.values[sink]
        if request.believed and held.fence(name) == Held() and self.scope.on("chain_in_settle"):
            yield Effect("finds no fence, but a record is believed", rows, sink, self._answered(worker, ("unbelieved",)))
            return
        after = warehouse.raise_fence(held, name, worker.token, request.epoch)
        if after is None:
            fence = held.fence(name)
            newer = "epoch" if fence.epoch > request.epoch else "token"
            answer = ("fenced", fence.token, fence.epoch)
            yield Effect(f"is fenced by a newer {newer}", rows, sink, self._answered(worker, answer))
        else:
            yield Effect("raises the fence", rows, self.sinks.of(after), self._answered(worker))

    def _askledger(self, rows: int, sink: int, worker: Worker, request: AskLedger) -> Iterator[Effect]:
        feed = self.scope.feeds[self.scope.jobs[worker.job].feed]
        if not knows(request.believed, self.sinks.values[sink]) and self.scope.on("chain_in_settle"):
            name = self._name(worker.item)
            yield Effect(
                f"the sink lacks what is believed, to settle {name}", rows, sink, self._answered(worker, ("unbelieved",))
            )
            return
        found = self.sinks.values[sink].entry(feed, request.item, request.since_epoch)
        answer = DONE if found is None else ("found", found.epoch, found.record_id, found.checksum)
        verb = "lacks" if found is None else "has"
        yield Effect(f"the ledger {verb} {self._name(worker.item)}", rows, sink, self._answered(worker, answer))

    # Ending a claim

    def _held(self, worker: Worker, log: int) -> Claim:
        """The claim as its holder remembers it."""
        scope, (step, feed, _) = self.scope, self.scope.jobs[worker.job]
        item = scope.item(worker.item, log)
        under = StepState().with_feed(scope.feeds[feed], watermark=worker.under)
        return Claim(item, item.records[worker.opened - 1], step, under, "model")

    def _end(
        self,
        what: str,
        rows: int,
        sink: int,
        worker: Worker,
        compute: Callable[[Claim, StepState], Sequence[Write]],
        lease: bool = False,
        rest: object = None,
    ) -> Iterator[Effect]:
        """A claim's last write. `rest`: the conditions of the writes, besides the claim and the state."""
        scope, i = self.scope, worker.item
        log, state = scope.log(rows, i, worker.length), self._state(rows, worker.memory)
        key = (what, worker.job, i, log, state, worker.opened, worker.under, rest)
        writes = self._writes(key, lambda: compute(self._held(worker, log), scope.state(max(state, 0))))
        if isinstance(writes, str):
            yield Effect(f"{what} {self._name(i)}: the claim is {writes}", rows, sink, IDLE)
            return
        done = self._answered(worker) if worker.begun else IDLE if what == "complete" else self._next(worker)
        again = worker._replace(at="again", then=worker.at)
        yield from self._write(what, rows, sink, worker, writes, done, again, -1 if lease else None)

    def _at_again(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        length = self.scope.length(rows, worker.item)
        after = worker._replace(at=worker.then, then="", memory=FRESH, length=length)
        yield Effect(f"reads {self._name(worker.item)} and the state again", rows, sink, after)

    def _complete(self, rows: int, sink: int, worker: Worker, request: Complete | None) -> Iterator[Effect]:
        steps, believed = self._steps(worker.item), self._believed(request.believed) if request else None

        def writes(claim: Claim, state: StepState) -> Sequence[Write]:
            return transitions.complete(claim.item, claim, state, OUTPUTS, steps, stamp(), None, believed)

        yield from self._end("complete", rows, sink, worker, writes, rest=believed)

    def _completeall(self, rows: int, sink: int, worker: Worker, request: CompleteAll) -> Iterator[Effect]:
        [(claim, payload, record)] = request.done
        return self._complete(rows, sink, worker, Complete(claim, payload, record))

    def _putbackall(self, rows: int, sink: int, worker: Worker, request: PutBackAll) -> Iterator[Effect]:
        return self._putback(rows, sink, worker, PutBack(request.claims[0], request.reason))

    def _believed(self, record: str) -> str | None:
        return record if self.scope.on("believe_with_complete") else None

    def _adopt(self, rows: int, sink: int, worker: Worker, _request: Adopt) -> Iterator[Effect]:
        """Adopting reads the state first."""
        under = self._watermark(self.scope.rows.values[rows].state, worker)
        yield Effect("reads the state", rows, sink, worker._replace(at="adopt", memory=FRESH, under=under))

    def _at_adopt(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        assert worker.begun
        request = self.replay.place(worker.begun).request
        assert isinstance(request, Adopt)
        steps, epoch, believed = self._steps(worker.item), request.epoch, self._believed(request.believed)

        def writes(claim: Claim, state: StepState) -> Sequence[Write]:
            return transitions.complete(claim.item, claim, state, OUTPUTS, steps, stamp(), epoch, believed)

        yield from self._end("adopt", rows, sink, worker, writes, lease=True, rest=(epoch, believed))

    def _putback(self, rows: int, sink: int, worker: Worker, request: PutBack) -> Iterator[Effect]:
        def writes(claim: Claim, _: StepState) -> Sequence[Write]:
            return transitions.put_back(claim.item, claim, request.reason, stamp())

        yield from self._end("put back", rows, sink, worker, writes)

    def _fail(self, rows: int, sink: int, worker: Worker, request: Fail) -> Iterator[Effect]:
        def writes(claim: Claim, _: StepState) -> Sequence[Write]:
            return transitions.fail(claim.item, claim, request.failure, self._steps(worker.item), stamp())

        yield from self._end("fail", rows, sink, worker, writes, rest=request.failure.kind)

    def _abandon(self, rows: int, sink: int, worker: Worker, request: Abandon | None) -> Iterator[Effect]:
        failure = (request.failure if request else None) or Failure(FailureKind.LEASE_EXPIRED, "gone")

        def writes(claim: Claim, _: StepState) -> Sequence[Write]:
            return transitions.fail(claim.item, claim, failure, self._steps(worker.item), stamp())

        yield from self._end("abandon", rows, sink, worker, writes, lease=True, rest=failure.kind)

    def _sendback(self, rows: int, sink: int, worker: Worker, request: SendBack) -> Iterator[Effect]:
        """The product decides, by the claim, what becomes of an item whose output is lost. Its directory is intact."""
        decided: list[Callable[[Claim], Sequence[Write]]] = []
        steps, name = self._steps(worker.item), "fail"

        def send_back(_: Claim, applications: Sequence[str], reason: str) -> None:
            nonlocal name
            name = "send back"
            decided.append(lambda claim: transitions.send_back(claim.item, claim, applications, reason, steps, stamp()))

        def fail(_: Claim, failure: Failure) -> None:
            decided.append(lambda claim: transitions.fail(claim.item, claim, failure, steps, stamp()))

        pipeline: Any = SimpleNamespace(manifest=SimpleNamespace(send_back=send_back), fail=fail, source=Intact())
        shredding.send_back(pipeline, request.claim, request.gone)
        yield from self._end(name, rows, sink, worker, lambda claim, _: decided[0](claim), rest="gone")

    def _defer(self, rows: int, sink: int, worker: Worker, request: Defer) -> Iterator[Effect]:
        if not self.scope.on("defer"):
            name = self._name(worker.item)
            broken = f"(8) {name} always fails, but nothing is wrong with it"
            yield Effect(f"{name} is behind the sink, and fails", rows, sink, IDLE, broken=broken)
            return

        def writes(claim: Claim, state: StepState) -> Sequence[Write]:
            return transitions.defer(claim.item, claim, state, request.reason, stamp())

        yield from self._end("defer", rows, sink, worker, writes)

    def _steps(self, i: int) -> Sequence[Step]:
        return self.scope.steps[self.scope.keys[i].feed]

    # The believed record, and reconciling

    def _of_state(
        self, what: str, rows: int, sink: int, worker: Worker, key: object, compute: Callable[[StepState], Sequence[Write]]
    ) -> Iterator[Effect]:
        """Writes the state under the lease.

        A changed state is read again until the write succeeds, so it is modeled as read now.
        """
        number, label = self.scope.rows.values[rows].state, LABELS[what]
        if what == "free":
            label = f"{label} {self._name(worker.item)}"
        writes = self._writes((what, worker.job, worker.item, number, key), lambda: compute(self.scope.state(number)))
        if isinstance(writes, str):
            yield Effect(f"{label}: {writes}", rows, sink, IDLE)
            return
        written = self.scope.transact(rows, writes, what, True, (worker.job, worker.holds, -1))
        if isinstance(written, Rejected):
            yield Effect(f"{label}: the lease is lost", rows, sink, IDLE)
        else:
            yield Effect(label, written.rows, sink, self._answered(worker), written.put_state, broken=written.broken)

    def _believe(self, rows: int, sink: int, worker: Worker, request: Believe) -> Iterator[Effect]:
        step, name = self.scope.jobs[worker.job].step, self.scope.feeds[self.scope.jobs[worker.job].feed]

        def writes(state: StepState) -> Sequence[Write]:
            self._require_believed(state, name, request.instead_of)
            return transitions.believe(step, name, state, request.record)

        yield from self._of_state("believe", rows, sink, worker, request, writes)

    def _believesink(self, rows: int, sink: int, worker: Worker, request: BelieveSink) -> Iterator[Effect]:
        step, name = self.scope.jobs[worker.job].step, self.scope.feeds[self.scope.jobs[worker.job].feed]
        found = request.sink
        if not self.scope.on("sweep_freed"):
            found = dataclasses.replace(found, swept=found.applied)

        def writes(state: StepState) -> Sequence[Write]:
            self._require_believed(state, name, request.instead_of)
            return transitions.believe_sink(step, name, state, found, worker.token if request.accepts else 0)

        yield from self._of_state("believe_sink", rows, sink, worker, found, writes)

    def _require_believed(self, state: StepState, feed: str, instead_of: str) -> None:
        if state.feed(feed).believed != instead_of and self.scope.on("instead_of"):
            raise Refused("another record is believed by now")

    def _sweeping(self, rows: int, i: int, step: Step, log: int, state: int) -> Writes:
        scope = self.scope
        writes = self._writes(
            ("sweep", i, log, state),
            lambda: transitions.sweep(scope.item(i, log), step, scope.state(state), DISCOVERY, stamp()),
        )
        assert not isinstance(writes, str)
        return writes

    def _free(self, rows: int, sink: int, worker: Worker, request: Free) -> Iterator[Effect]:
        i = self.scope.number(request.key)
        item, steps = self.scope.item(i, self.scope.log(rows, i)), self._steps(i)

        def writes(state: StepState) -> Sequence[Write]:
            return transitions.reopen(item, [LOAD.key], "", steps, {LOAD.key: state}, OPERATOR, stamp())

        yield from self._of_state("free", rows, sink, worker._replace(item=i), self.scope.log(rows, i), writes)

    def _findlacking(self, rows: int, sink: int, worker: Worker, request: FindLacking) -> Iterator[Effect]:
        found: list[tuple] = []
        if self.scope.on("free_first"):
            feed = self.scope.feeds[self.scope.jobs[worker.job].feed]
            lacking = reconcile.lacking(self._dataset(rows), self._asked(sink), feed, request.after)
            found = [(self.scope.number(one.key), *dataclasses.astuple(one)[1:]) for one in lacking]
        names = ", ".join(self._name(i) for i, *_ in found) or "nothing more"
        yield Effect(f"the ledger lacks {names}", rows, sink, self._answered(worker, ("lacking", tuple(found))))

    def _askrecord(self, rows: int, sink: int, worker: Worker, request: AskRecord) -> Iterator[Effect]:
        has = self.sinks.values[sink].has_record(request.record)
        answer = ("found", 0, request.record) if has else DONE
        yield Effect(f"the ledger {'has' if has else 'lacks'} what is believed", rows, sink, self._answered(worker, answer))

    def _asksnapshot(self, rows: int, sink: int, worker: Worker, request: AskSnapshot) -> Iterator[Effect]:
        has = reconcile.has_snapshot(self._asked(sink), request.feed, request.since_epoch)
        yield Effect(
            f"the ledger {'has' if has else 'lacks'} the snapshot", rows, sink, self._answered(worker, ("snapshot", has))
        )

    def _readfence(self, rows: int, sink: int, worker: Worker, _request: ReadFence) -> Iterator[Effect]:
        held = self.sinks.values[sink].fence(self.scope.feeds[self.scope.jobs[worker.job].feed])
        yield Effect("reads the fence", rows, sink, self._answered(worker, ("held", 0, held.epoch, held.applied, held.record)))

    def _askstop(self, rows: int, sink: int, worker: Worker, request: AskStop) -> Iterator[Effect]:
        feed = self.scope.feeds[self.scope.jobs[worker.job].feed]
        try:
            stop = reconcile.stop_at(self._dataset(rows), feed, request.position)
        except Refused:
            yield Effect("the sink has what the manifest does not know", rows, sink, IDLE)
            return
        yield Effect("reads the stop time of that item", rows, sink, self._answered(worker, ("stop", stop)))

    def _dataset(self, rows: int) -> Any:
        """The part of a pipeline that comparing manifest and ledger uses."""
        return SimpleNamespace(manifest=self.scope.view.at(rows), source=SimpleNamespace(root=""), load=LOAD)

    def _asked(self, sink: int) -> Any:
        """The part of a warehouse that comparing manifest and ledger uses."""
        positions = {key.id: key.position for key in self.scope.keys}

        def ledger(feed: str, since_epoch: int, after: str = "") -> Iterator[Any]:
            held = self.sinks.values[sink]
            items = {one.item for one in held.ledger if one.feed == feed and one.epoch >= since_epoch}
            newest = ((positions[item], held.entry(feed, item, since_epoch)) for item in items)
            found = sorted((at, entry.record_id) for at, entry in newest if entry and at > after)
            return (SimpleNamespace(position=at, record_id=record) for at, record in found)

        return SimpleNamespace(ledger=ledger)

    # An unordered step: no state, no sink

    def _at_claim(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        return self._claim(rows, sink, worker)

    def _at_complete(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        return self._complete(rows, sink, worker, None)

    def _at_abandon(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        return self._abandon(rows, sink, worker, None)

    def _at_look(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        what, i, opened, _ = self._verdict(rows, worker.job, FRESH, True)
        if what not in ("claim", "free"):
            yield Effect(f"{what}, gives the lease back", rows, sink, IDLE)
            return
        at = "abandon" if what == "free" else "claim"
        after = worker._replace(at=at, item=i, length=self.scope.length(rows, i), opened=opened)
        yield Effect(f"next is to {at} {self._name(i)}", rows, sink, after)

    # Operators: a full load is canceled under the lease of its feed

    def _at_cancel(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        scope, step = self.scope, self.scope.jobs[worker.job].step
        number = scope.rows.values[rows].state
        state = scope.state(number)
        item = scope.view.at(rows)._begun(state, scope.feeds[scope.jobs[worker.job].feed])
        if item is None:
            yield Effect("has nothing to cancel", rows, sink, IDLE)
            return
        i = scope.number(item.key)
        after = worker._replace(memory=FRESH, item=i, length=item.sequence)
        if not isinstance(self._cancelling(step, after, scope.log(rows, i), number), str):
            yield Effect("reads state and snapshot, to cancel", rows, sink, after._replace(at="cancel_now"))
            return
        opened = item.blocker({LOAD.key: state.epoch})
        assert opened and opened.state is State.PROCESSING
        settling = self._settling(rows, after, i, opened.sequence)
        yield Effect(f"may not cancel: {self._name(i)} is open", rows, sink, settling)

    def _cancelling(self, step: Step, worker: Worker, log: int, state: int) -> Writes | str:
        item = self.scope.item(worker.item, log)
        return self._writes(
            ("cancel", log, state),
            lambda: transitions.cancel_full_load(item, step, self.scope.state(state), "", OPERATOR, stamp()),
        )

    def _at_cancel_now(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        step = self.scope.jobs[worker.job].step
        log = self.scope.log(rows, worker.item, worker.length)
        writes = self._cancelling(step, worker, log, self._state(rows, worker.memory))
        assert not isinstance(writes, str)
        yield from self._write("cancel", rows, sink, worker, writes, IDLE, self._next(worker), -1)

    # Discovery and operators

    def errands(self, rows: int) -> list[Effect]:
        """The actions that discovery or an operator may begin, except those that would be refused immediately."""
        scope = self.scope
        found = []
        for i, landed in enumerate(scope.landed):
            length = scope.length(rows, i)
            for does, cost in ERRANDS.items():
                if (does == "discover") != (length == 0) or (cost >= 0 and not scope.configuration.budget[cost]):
                    continue
                if does == "skip shred" and not scope.configuration.shred:
                    continue
                clerk = Clerk(does, i, length, FRESH)
                if does == "replay" and self._new(rows, i) is None:
                    continue
                if does in VERBS or does == "replay":
                    clerk = clerk._replace(memory=UNREAD, decided=(scope.log(rows, i), scope.rows.values[rows].state))
                if does == "archive" and landed.key not in self._finished(rows, landed.key.feed):
                    continue
                if not isinstance(self._errand(rows, clerk), str):
                    found.append(Effect(f"{clerk.who} reads, to {does} {landed.key.id}", rows, 0, clerk, cost=cost))
        return found

    def finish(self, rows: int, clerk: Clerk) -> Effect:
        """The write of discovery or an operator. A conflict is dropped: the errand may be begun again.

        A verb that has decided reads once more before it writes.
        """
        label = f"{clerk.who}: {clerk.does} {self._name(clerk.item)}"
        if clerk.decided and not clerk.looked:
            again = clerk._replace(length=self.scope.length(rows, clerk.item), memory=FRESH, looked=True)
            return Effect(f"{clerk.who} reads {self._name(clerk.item)} again, to {clerk.does} it", rows, 0, again)
        writes = self._errand(rows, clerk)
        if isinstance(writes, str):
            assert clerk.decided
            return Effect(f"{label}: {writes}", rows, 0, AWAY)
        written = self.scope.transact(rows, writes, clerk.does, clerk.memory == FRESH)
        if isinstance(written, Rejected):
            return Effect(f"{label}: conflict", rows, 0, AWAY)
        cost = ERRANDS[clerk.does]
        return Effect(label, written.rows, 0, AWAY, written.put_state, cost=cost, broken=written.broken)

    def _errand(self, rows: int, clerk: Clerk) -> Writes | str:
        scope, i = self.scope, clerk.item
        if clerk.decided and not clerk.looked:
            log, number = clerk.decided
        else:
            log, number = scope.log(rows, i, clerk.length), self._state(rows, clerk.memory)
        key = (clerk.does, i, log, number, clerk.decided)
        return self._writes(key, lambda: self._errand_writes(clerk, log, number))

    def _new(self, rows: int, i: int) -> int | None:
        """The number of the item that replayed lines of an item become: the next of its feed that is not registered."""
        scope = self.scope
        later = (j for j in range(i + 1, len(scope.keys)) if scope.feed_of[j] == scope.feed_of[i])
        return next((j for j in later if not scope.length(rows, j)), None)

    def _replayed(self, clerk: Clerk, item: Item, steps: Sequence[Step], states: dict[str, StepState]) -> Sequence[Write]:
        """The writes of a replay of lines that are bad in the output of the item as it was when they were chosen."""
        scope = self.scope
        chosen = scope.item(clerk.item, clerk.decided[0])
        if not (chosen.processed_by(LOAD) and chosen.processed_by(SHRED)):
            raise Refused("only rows of loaded items are replayed")
        if scope.on("replay_unchanged") and len(item.records) != len(chosen.records):
            raise Refused("the item changed meanwhile")
        new = clerk.item + 1
        return transitions.replay(scope.landed[new], [(item, 1)], "lines", "", steps, states, OPERATOR, stamp())

    def _finished(self, rows: int, feed: str) -> set[ItemKey]:
        """The items of a feed that may be archived, whatever their age."""
        found: Any = self.scope.view.at(rows)
        return {item.key for item in archive.finished(found, feed, datetime.max.replace(tzinfo=UTC))}

    def _errand_writes(self, clerk: Clerk, log: int, number: int) -> Sequence[Write]:
        scope, state, i = self.scope, self.scope.state(number), clerk.item
        item, steps, states = scope.item(i, log), self._steps(i), {LOAD.key: state}
        if verb := VERBS.get(clerk.does):
            read, again = (scope.alone(i, *one) for one in (clerk.decided, (log, number)))
            return scope.view.decided(lambda view: verb(view, item.key), read, again)
        match clerk.does:
            case "discover":
                return transitions.discover([scope.landed[i]], steps, states, DISCOVERY, stamp())
            case "resolve":
                return transitions.resolve(item, "", steps, states, stamp())
            case "skip":
                return transitions.skip(item, Application(EVERYONE), "", steps, states, stamp())
            case "skip shred":
                return transitions.skip(item, SHRED, "", steps, states, stamp())
            case "unskip":
                return transitions.unskip(item, "", steps, states, DISCOVERY, stamp())
            case "reload":
                return transitions.reload(item, LOAD, "", [], steps, states, OPERATOR, stamp())
            case "replay":
                return self._replayed(clerk, item, steps, states)
            case "archive":
                return move(item, ArchivedRecords("", "", item.sequence))
            case _:
                load = next(step for step in steps if step.application == LOAD)
                return transitions.begin_full_load(item, load, state, "", OPERATOR, stamp())


class Intact:
    """A landing place where every directory is as it was registered."""

    def reread(self, landed: Landed) -> Landed:
        """The directory's current content."""
        return landed

    def offered_instead(self, _manifest: Manifest, _landed: Landed) -> str | None:
        """The origin's replacement for a directory: none."""
        return None


class Rewritten(Intact):
    """A landing place where every directory was rewritten."""

    def as_it_is(self, manifest: object, landed: Landed) -> Landed:
        """The directory's current content."""
        return dataclasses.replace(landed, checksum=rewritten(landed.checksum))


def _pipeline(view: View, key: ItemKey, source: Intact) -> Any:
    """The part of a pipeline with one target that operators' verbs on an item use."""
    pipeline = SimpleNamespace(manifest=view, source=source, feeds=(key.feed,), dataset=SimpleNamespace(merge=None), load=LOAD)
    pipeline.each_target = lambda: (pipeline,)
    return pipeline


VERBS: dict[str, Callable[[View, ItemKey], object]] = {
    "reshred": lambda view, key: reshred.reshred(_pipeline(view, key, Intact()), key, ""),
    "accept": lambda view, key: accept.accept(_pipeline(view, key, Rewritten()), key, ""),
}
"""The verbs of the product that decide by an item as they read it, and read it again when they write."""
ERRANDS = {
    "discover": FREE,
    "resolve": RESOLVE,
    "skip": SKIP,
    "skip shred": SKIP,
    "unskip": UNSKIP,
    "begin": BEGIN,
    "reshred": RESHRED,
    "accept": REWRITE,
    "archive": ARCHIVE,
    "reload": RELOAD,
    "replay": REPLAY,
}
