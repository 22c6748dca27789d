"""What a worker does, request by request; and what discovery and operators do.

Belongs here: the order of requests to manifest and sink, as the pipeline has it. Every request is a step of its own, so that
all others may come between. What a request writes is computed by the product's transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from manifest_platform.manifest import Payload, Refused, State, Step, StepState, transitions
from manifest_platform.manifest.claims import Claim, Failure
from manifest_platform.manifest.dataset import (
    BEYOND_IDS,
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
from manifest_platform.manifest.manifest import DISCOVERY, OPERATOR
from manifest_platform.manifest.records import EVERYONE, OUTPUT, Application, FailureKind
from manifest_platform.manifest.store import Write
from manifest_platform_tests.model import sink as warehouse
from manifest_platform_tests.model.configurations import LOAD, SHRED, Budget
from manifest_platform_tests.model.invariants import not_next
from manifest_platform_tests.model.scope import HeldLease, Numbers, Rejected, Scope, Writes, stamp
from manifest_platform_tests.model.sink import Sink

OUTPUTS = Payload(OUTPUT, {"rows": 1})
FREE = -1
CRASH, EXPIRY, LOSS, UNCLEAR, FAILURE, RESOLVE, SKIP, UNSKIP, BEGIN, CANCEL, RESTORE = range(len(Budget._fields))
UNREAD, FRESH = -2, -1
"""What a worker remembers of the state: nothing; what it still is; or else the number of what it was."""


class Worker(NamedTuple):
    """A worker between two requests: what it will do next (`at`), its grant, and what it remembers.

    `current`: the item that the lease's former holder may have left open. `length`: of the item's log as it was read;
    `opened`: sequence of the Processing record; `under`: the watermark that the claim rested on; `ledger`: the epoch of the
    ledger's entry; `then`: what follows a step in between.
    """

    at: str = "idle"
    job: int = -1
    token: int = 0
    holds: bool = False
    current: int = -1
    cancels: bool = False
    memory: int = UNREAD
    item: int = -1
    length: int = 0
    opened: int = 0
    epoch: int = 0
    serving: int = 0
    late: bool = False
    under: str = ""
    ledger: int = 0
    then: str = ""


IDLE = Worker()


class Clerk(NamedTuple):
    """Discovery or an operator, between reading and writing."""

    does: str = ""
    item: int = -1
    length: int = 0
    memory: int = UNREAD

    @property
    def who(self) -> str:
        """Who does it, for people."""
        return "discovery" if self.does == "discover" else "operator"


AWAY = Clerk()


class Effect(NamedTuple):
    """What a step makes of the world. `took`: the job whose lease it took; `cost`: the budget's field that it spends."""

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
        feeds = len(scope.feeds)
        self.start = self.sinks.of(Sink((warehouse.Fence(),) * feeds, (warehouse.Content(),) * feeds))
        self.rules = warehouse.Rules(*(scope.on(name) for name in warehouse.Rules._fields))
        self._computed: dict[tuple, Writes | str] = {}
        self._verdicts: dict[tuple, tuple] = {}

    # What the product computes

    def _writes(self, key: tuple, compute: Callable[[], Sequence[Write]]) -> Writes | str:
        """The writes of a transition; `lost` or `refused` where it raises that."""
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
        """What a step does next by the state it remembers: (what, item, its open Processing, what is wrong with that)."""
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
        """Whether a look from outside, without the lease, says that there is something to do."""
        what = self._verdict(rows, job, FRESH, False)[0]
        return what in ("claim", "sweep", f"blocked: {Standing.PROCESSING}")

    def rests(self, rows: int) -> bool:
        """Whether no step has anything to do, without a person or a new directory.

        A mode that holds a feed is no rest by itself: it ends by the snapshot's own step.
        """
        restless = ("claim", "sweep", f"blocked: {Standing.PROCESSING}", f"blocked: {Standing.READY}")
        return all(self._verdict(rows, job, FRESH, False)[0] not in restless for job in range(len(self.scope.jobs)))

    def _name(self, i: int) -> str:
        return self.scope.keys[i].id

    # Workers

    def steps(self, rows: int, sink: int, worker: Worker) -> list[Effect]:
        """What a worker may do next; a crash is one of it."""
        if worker.at == "idle":
            return list(self._acquire(rows, sink))
        found = list(getattr(self, f"_at_{worker.at}")(rows, sink, worker))
        return [*found, Effect("crashes", rows, sink, IDLE, cost=CRASH)]

    def _acquire(self, rows: int, sink: int) -> Iterator[Effect]:
        scope = self.scope
        for job, (step, _, name) in enumerate(scope.jobs):
            for cancels in (False, True) if step.order == "full" else (False,):
                mode = scope.state(scope.rows.values[rows].state).mode
                if not (mode == Mode.FULL_LOAD if cancels else self.has_work(rows, job)):
                    continue
                token, current = scope.rows.values[rows].leases[job]
                leases = scope.rows.values[rows].leases
                after = scope.rows.of(
                    scope.rows.values[rows]._replace(leases=(*leases[:job], (token + 1, current), *leases[job + 1 :]))
                )
                at = "cancel" if cancels else "look" if step.order == "any" else "unsettled"
                if not scope.on("lease_in_acquire"):
                    reader = Worker("taking", job, token, False, current, cancels)
                    yield Effect(f"reads the lease of {name}", rows, sink, reader, cost=CANCEL if cancels else FREE)
                    continue
                unsettled = current if scope.on("current") else -1
                worker = Worker(at, job, token + 1, True, unsettled, cancels)
                label = f"takes the lease of {name}{' to cancel' * cancels}"
                cost = CANCEL if cancels else FREE
                yield Effect(label, after, sink, worker, took=job, cost=cost)

    def _at_taking(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """Takes a lease in two requests, as it would be if the write did not rest on the version that was read."""
        scope, (step, _, name) = self.scope, self.scope.jobs[worker.job]
        held, row = scope.rows.values[rows], (worker.token + 1, worker.current)
        after = scope.rows.of(held._replace(leases=(*held.leases[: worker.job], row, *held.leases[worker.job + 1 :])))
        at = "cancel" if worker.cancels else "look" if step.order == "any" else "unsettled"
        taken = worker._replace(at=at, token=row[0], holds=True)
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
        """A transaction; with `current` (-1: as it is) it is written under the lease, whose row recognises it."""
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
        """The worker, about to look for what is next."""
        at = "cancel" if worker.cancels else "look" if self.scope.jobs[worker.job].step.order == "any" else "state"
        return Worker(at, worker.job, worker.token, worker.holds, worker.current, worker.cancels)

    def _at_unsettled(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """The lease row's current item, if it is still open; what the sink says of it is asked before anything else."""
        if found := self._unsettled(rows, worker):
            i, opened = found
            after = worker._replace(at="settle", item=i, length=self.scope.length(rows, i), opened=opened)
            yield Effect(f"finds {self._name(i)} unsettled", rows, sink, after)
        else:
            yield Effect("finds nothing unsettled", rows, sink, worker._replace(at="state", current=-1))

    def _unsettled(self, rows: int, worker: Worker) -> tuple[int, int] | None:
        if worker.current < 0:
            return None
        scope, (step, feed, _) = self.scope, self.scope.jobs[worker.job]
        lease = HeldLease(step.application, scope.feeds[feed], scope.keys[worker.current].position)
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
        step, feed, _ = scope.jobs[worker.job]
        state = scope.state(self._state(rows, worker.memory))
        seen = self._seen(state, worker)
        log = scope.item(i, scope.log(rows, i))
        after = worker._replace(
            at=what,
            item=i,
            length=scope.length(rows, i),
            opened=opened,
            epoch=state.epoch,
            serving=seen,
            late=step.order == "strict" and log.is_late_for(LOAD, seen if scope.on("serving_in_load") else 0),
            under=state.feed(scope.feeds[feed]).watermark,
        )
        yield Effect(f"next is to {what} {self._name(i)}", rows, sink, after, broken=broken)

    def _seen(self, state: StepState, worker: Worker) -> int:
        step, feed, _ = self.scope.jobs[worker.job]
        if not self.scope.on("seen_in_marker"):
            return state.feed(self.scope.feeds[feed]).serving_epoch
        return state.seen_by(step, self.scope.feeds[feed]).serving_epoch

    def _at_sweep(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        scope, i = self.scope, worker.item
        log, state = scope.log(rows, i, worker.length), self._state(rows, worker.memory)
        writes = self._writes(
            ("sweep", i, log, state),
            lambda: transitions.sweep(scope.item(i, log), scope.jobs[worker.job].step, scope.state(state), DISCOVERY, stamp()),
        )
        assert not isinstance(writes, str)
        again = self._next(worker)
        yield from self._write("sweep", rows, sink, worker, writes, again, again)

    def _at_claim(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        scope, i, step = self.scope, worker.item, self.scope.jobs[worker.job].step
        if self._unsettled(rows, worker):
            yield Effect("may not claim: something is unsettled", rows, sink, IDLE)
            return
        log = scope.log(rows, i, worker.length)
        state = self._state(rows, worker.memory) if step.ordered else scope.state_number(StepState())
        writes = self._writes(
            ("claim", worker.job, i, log, state),
            lambda: transitions.claim([scope.item(i, log)], step, scope.state(state), worker.token, stamp())[1],
        )
        if isinstance(writes, str):
            yield Effect(f"claim {self._name(i)}: {writes}", rows, sink, IDLE, broken=f"(8) its own choice is {writes}")
            return
        at = "apply" if step.ordered else "complete"
        opened = worker.length + 1
        claimed = worker._replace(at=at, current=-1, length=opened, opened=opened)
        yield from self._write("claim", rows, sink, worker, writes, claimed, self._next(worker), i if step.ordered else -1)

    # The sink

    def _load(self, rows: int, worker: Worker) -> warehouse.Load:
        scope, (step, feed, _) = self.scope, self.scope.jobs[worker.job]
        since = worker.serving if scope.on("serving_in_marker") else worker.epoch
        position = scope.keys[worker.item].position
        covers = frozenset(scope.feeds.index(name) for name in step.covers)
        snapshot = step.order == "full"
        return warehouse.Load(worker.item, feed, position, worker.token, worker.epoch, since, worker.late, snapshot, covers)

    def _at_apply(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """One transaction of the sink; staging, before it, touches nothing that others see."""
        name = self._name(worker.item)
        load, before = self._load(rows, worker), self.sinks.values[sink]
        yield Effect(f"cannot read {name}", rows, sink, worker._replace(at="fail"), cost=FAILURE)
        refused = warehouse.refusal(before, load, self.rules)
        unclear = "settle" if self.scope.on("ask_when_unclear") else "abandon"
        if refused:
            yield Effect(f"COMMIT {name} is refused", rows, sink, worker._replace(at="why"))
            return
        after = self.sinks.of(self._commit(before, load))
        yield Effect(f"COMMIT {name}", rows, after, worker._replace(at="complete"))
        yield Effect(f"COMMIT {name}, answer lost", rows, after, worker._replace(at=unclear), cost=UNCLEAR)
        yield Effect(f"COMMIT {name} fails, answer lost", rows, sink, worker._replace(at=unclear), cost=UNCLEAR)

    def _commit(self, sink: Sink, load: warehouse.Load) -> Sink:
        if not load.snapshot:
            return warehouse.commit(sink, load, self.rules)
        boundary = f"{self.scope.landed[load.item].stop}#{BEYOND_IDS}"
        return warehouse.commit_snapshot(sink, load, self.rules, boundary)

    def _at_adrift(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """A transaction whose worker was stopped: the sink commits it, or rolls it back."""
        load, before = self._load(rows, worker), self.sinks.values[sink]
        if warehouse.refusal(before, load, self.rules) is None:
            yield Effect(
                f"COMMIT {self._name(worker.item)}, heard by nobody", rows, self.sinks.of(self._commit(before, load)), IDLE
            )
        yield Effect(f"{self._name(worker.item)} is rolled back, heard by nobody", rows, sink, IDLE)

    def _at_why(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        """Looks why the sink refused, after its transaction was rolled back."""
        name, load, held = self._name(worker.item), self._load(rows, worker), self.sinks.values[sink]
        match warehouse.refusal(held, load, self.rules):
            case "epoch":
                yield Effect("is fenced by a newer epoch", rows, sink, IDLE)
            case "token":
                yield self._fenced(rows, sink, worker, "apply")
            case "known":
                yield Effect(f"the ledger has {name}", rows, sink, worker._replace(at="complete"))
            case "in use":
                yield Effect(f"the epoch of {name} is in use", rows, sink, worker._replace(at="fail"))
            case "behind" if self.scope.on("defer"):
                yield Effect(f"{name} is behind", rows, sink, worker._replace(at="defer"))
            case "behind":
                broken = f"(8) {name} fails for ever, and nothing is wrong with it"
                yield Effect(f"{name} is behind, and fails", rows, sink, worker._replace(at="fail"), broken=broken)
            case None:
                yield Effect("tries again", rows, sink, worker._replace(at="apply"))

    def _fenced(self, rows: int, sink: int, worker: Worker, then: str) -> Effect:
        """A newer token in the fence: taken over, or the manifest was set back; only the lease's row can tell."""
        if not self.scope.on("raise_token"):
            return Effect("is fenced", rows, sink, IDLE)
        return Effect("is fenced by a newer token", rows, sink, worker._replace(at="retoken", then=then))

    def _at_retoken(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        scope, held = self.scope, self.scope.rows.values[rows]
        feed = scope.jobs[worker.job].feed
        if not worker.holds:
            yield Effect("raise token: the lease is lost", rows, sink, IDLE)
            return
        token = max(worker.token, self.sinks.values[sink].fences[feed].token) + 1
        current = held.leases[worker.job][1]
        leases = (*held.leases[: worker.job], (token, current), *held.leases[worker.job + 1 :])
        after = worker._replace(at=worker.then, then="", token=token)
        yield Effect("takes the lease again, above the fence", scope.rows.of(held._replace(leases=leases)), sink, after)

    # Settling what a dead worker, or an unclear COMMIT, left behind

    def _at_settle(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        state = self.scope.state(self.scope.rows.values[rows].state)
        at = "raise" if self.scope.on("raise_fence") else "ask"
        after = worker._replace(at=at, epoch=state.epoch, serving=self._seen(state, worker))
        yield Effect(f"reads the state, to settle {self._name(worker.item)}", rows, sink, after)

    def _at_raise(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        feed = self.scope.jobs[worker.job].feed
        fence = self.sinks.values[sink].fences[feed]
        if fence.epoch > worker.epoch:
            yield Effect("is fenced by a newer epoch", rows, sink, IDLE)
        elif fence.token > worker.token:
            yield self._fenced(rows, sink, worker, "raise")
        else:
            after = warehouse.raise_fence(self.sinks.values[sink], feed, worker.token, worker.epoch)
            yield Effect("raises the fence", rows, self.sinks.of(after), worker._replace(at="ask"))

    def _at_ask(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        since = worker.serving if self.scope.on("serving_in_marker") else worker.epoch
        found = warehouse.entry(self.sinks.values[sink], worker.item, since)
        name = self._name(worker.item)
        if found is None:
            yield Effect(f"the ledger lacks {name}", rows, sink, worker._replace(at="abandon"))
        else:
            yield Effect(f"the ledger has {name}", rows, sink, worker._replace(at="inherit", ledger=found))

    def _at_inherit(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        state = self.scope.state(self.scope.rows.values[rows].state)
        under = state.feed(self.scope.feeds[self.scope.jobs[worker.job].feed]).watermark
        yield Effect("reads the state", rows, sink, worker._replace(at="adopt", memory=FRESH, under=under))

    # Ending a claim

    def _claim(self, worker: Worker, log: int) -> Claim:
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
        lease: bool,
    ) -> Iterator[Effect]:
        scope, i = self.scope, worker.item
        log, state = scope.log(rows, i, worker.length), self._state(rows, worker.memory)
        key = (what, worker.job, i, log, state, worker.opened, worker.under, worker.ledger)
        writes = self._writes(key, lambda: compute(self._claim(worker, log), scope.state(max(state, 0))))
        if isinstance(writes, str):
            yield Effect(f"{what} {self._name(i)}: the claim is {writes}", rows, sink, IDLE)
            return
        done = self._next(worker)
        if what == "complete" and self.scope.jobs[worker.job].step.order == "any":
            done = IDLE
        again = worker._replace(at="again", then=worker.at)
        yield from self._write(what, rows, sink, worker, writes, done, again, -1 if lease else None)

    def _at_again(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        length = self.scope.length(rows, worker.item)
        after = worker._replace(at=worker.then, then="", memory=FRESH, length=length)
        yield Effect(f"reads {self._name(worker.item)} and the state again", rows, sink, after)

    def _at_complete(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        steps = self._steps(worker.item)

        def writes(claim: Claim, state: StepState) -> Sequence[Write]:
            return transitions.complete(claim.item, claim, state, OUTPUTS, steps, stamp())

        yield from self._end("complete", rows, sink, worker, writes, lease=False)

    def _at_adopt(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        steps = self._steps(worker.item)

        def writes(claim: Claim, state: StepState) -> Sequence[Write]:
            return transitions.complete(claim.item, claim, state, OUTPUTS, steps, stamp(), worker.ledger)

        yield from self._end("adopt", rows, sink, worker, writes, lease=True)

    def _at_fail(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        def writes(claim: Claim, _: StepState) -> Sequence[Write]:
            return transitions.fail(
                claim.item, claim, Failure(FailureKind.PERMANENT, "unreadable"), self._steps(worker.item), stamp()
            )

        yield from self._end("fail", rows, sink, worker, writes, lease=False)

    def _at_abandon(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        def writes(claim: Claim, _: StepState) -> Sequence[Write]:
            return transitions.fail(
                claim.item, claim, Failure(FailureKind.LEASE_EXPIRED, "gone"), self._steps(worker.item), stamp()
            )

        yield from self._end("abandon", rows, sink, worker, writes, lease=True)

    def _at_defer(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        def writes(claim: Claim, state: StepState) -> Sequence[Write]:
            return transitions.defer(claim.item, claim, state, "behind", stamp())

        yield from self._end("defer", rows, sink, worker, writes, lease=False)

    def _steps(self, i: int) -> Sequence[Step]:
        return self.scope.steps[self.scope.keys[i].feed]

    # An unordered step: no state, no sink

    def _at_look(self, rows: int, sink: int, worker: Worker) -> Iterator[Effect]:
        what, i, opened, _ = self._verdict(rows, worker.job, FRESH, True)
        if what not in ("claim", "free"):
            yield Effect(f"{what}, gives the lease back", rows, sink, IDLE)
            return
        at = "abandon" if what == "free" else "claim"
        after = worker._replace(at=at, item=i, length=self.scope.length(rows, i), opened=opened)
        yield Effect(f"next is to {at} {self._name(i)}", rows, sink, after)

    # Operators: a full load is cancelled under the lease of its feed

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
        yield Effect(
            f"may not cancel: {self._name(i)} is open", rows, sink, after._replace(at="settle", opened=opened.sequence)
        )

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
        """What discovery or an operator may begin, as far as it would not be refused at once."""
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
                if not isinstance(self._errand(rows, clerk), str):
                    found.append(Effect(f"{clerk.who} reads, to {does} {landed.key.id}", rows, 0, clerk, cost=cost))
        return found

    def finish(self, rows: int, clerk: Clerk) -> Effect:
        """The write of discovery or an operator; a conflict is dropped: the errand may be begun again."""
        writes = self._errand(rows, clerk)
        assert not isinstance(writes, str)
        label = f"{clerk.who}: {clerk.does} {self._name(clerk.item)}"
        written = self.scope.transact(rows, writes, clerk.does, clerk.memory == FRESH)
        if isinstance(written, Rejected):
            return Effect(f"{label}: conflict", rows, 0, AWAY)
        cost = ERRANDS[clerk.does]
        return Effect(label, written.rows, 0, AWAY, written.put_state, cost=cost, broken=written.broken)

    def _errand(self, rows: int, clerk: Clerk) -> Writes | str:
        scope, i = self.scope, clerk.item
        log, number = scope.log(rows, i, clerk.length), self._state(rows, clerk.memory)
        return self._writes((clerk.does, i, log, number), lambda: self._errand_writes(clerk.does, i, log, number))

    def _errand_writes(self, does: str, i: int, log: int, number: int) -> Sequence[Write]:
        scope, state = self.scope, self.scope.state(number)
        item, steps, states = scope.item(i, log), self._steps(i), {LOAD.key: state}
        match does:
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
            case _:
                load = next(step for step in steps if step.application == LOAD)
                return transitions.begin_full_load(item, load, state, "", OPERATOR, stamp())


ERRANDS = {
    "discover": FREE,
    "resolve": RESOLVE,
    "skip": SKIP,
    "skip shred": SKIP,
    "unskip": UNSKIP,
    "begin": BEGIN,
}
