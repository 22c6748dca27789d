"""The work on items: leases, claims, their ends, the takeover from a dead worker, and outputs of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from uuid import uuid4

from manifest_platform.manifest import transitions
from manifest_platform.manifest.choosing import RECORDS_OF_READY, is_in_order
from manifest_platform.manifest.claims import Claim, Failure
from manifest_platform.manifest.dataset import (
    PASSED,
    Abandoned,
    LeaseState,
    Ready,
    SinkState,
    Standing,
    StepState,
    Verdict,
    judge,
    passed,
    supposing_done,
)
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.keys import COMMITS, LEASES, commit_number, lease_of
from manifest_platform.manifest.lease import Lease, write_lease
from manifest_platform.manifest.outputs import Made, Outputs, epoch_of, following, made_of
from manifest_platform.manifest.reading import OPERATOR
from manifest_platform.manifest.records import Application, FailureKind, Payload, Record, Stamp, State
from manifest_platform.manifest.registration import Registering
from manifest_platform.manifest.rows import record_of
from manifest_platform.manifest.store import PAGE, TRIES, ConditionFailed, Put, Write, optimistically
from manifest_platform.remedies import Action, Remedy


class Working(Registering):
    """Work on items under a lease. Each claim ends once: completed, failed, put back, or taken over."""

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
        if step.order != "strict" or most < 1 or not is_in_order(first, step, standing):
            return found
        standing = supposing_done(standing, first)
        for item in self.items(feed, after=first.key.position, page=min(PAGE, RECORDS_OF_READY * most)):
            judged = judge(item, step, standing)
            if judged.standing is Standing.READY and is_in_order(item, step, standing):
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
            held, lambda item, state, stamp: self._completion(item, held, state, payload, stamp, epoch, believed), lease
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
            unhindered = self._check_not_being_deleted(key)
            writes = transitions.reopen(self.item(key), [application], reason, steps, states, OPERATOR, self._stamp())
            lease.transact([*writes, unhindered])
            return record_of(writes[0])

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
            writes.append(transitions.put_commit(self._last_commit + 1, record_of(writes[0]), item.key))
        return writes

    def _end(
        self, held: Claim, writes_of: Callable[[Item, StepState, Stamp], list[Write]], lease: Lease | None = None
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
            return record_of(writes[0])

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
