"""The requests of loading to manifest and warehouse: each as data, with the function that does it.

Belongs here: the requests, and `run`, which does what a program asks for. A program is a generator of `loading`: it yields
requests, receives their answers, decides the next request, and does nothing itself. So the model checker can run it and let
anything happen between two requests, as it may happen to a worker.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from manifest_platform import failpoints
from manifest_platform.manifest import Abandoned, Claim, Failure, Item, Lease, Payload, Ready, Record, StepState
from manifest_platform.pipeline.events import ItemFailed, ShreddedAgain
from manifest_platform.pipeline.shredding import OutputGone, check_objects, send_back
from manifest_platform.warehouse.errors import CannotLoad
from manifest_platform.warehouse.load import Load

if TYPE_CHECKING:
    from manifest_platform.pipeline.pipeline import Pipeline
    from manifest_platform.warehouse.apply import AlreadyApplied, Applied, LedgerEntry

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Result = TypeVar("Result")


class Request(ABC, Generic[Answer]):
    """A request of a worker that holds a lease. Calling it does it."""

    @abstractmethod
    def __call__(self, pipeline: Pipeline, lease: Lease) -> Answer:
        """Does the request. Raises the errors of manifest, lease and warehouse."""


Program = Generator[Request[Any], Any, Result]
"""Work that asks request by request. A request's error is raised inside the program, which may handle it."""


def ask(request: Request[Answer]) -> Program[Answer]:
    """Asks a request within a program, and returns the answer: `answer = yield from ask(request)`."""
    return (yield request)


def run(program: Program[Result], pipeline: Pipeline, lease: Lease) -> Result:
    """Runs a program to its end and returns its result. Raises errors that the program does not handle."""
    resume: Callable[[], Request[Any]] = functools.partial(next, program)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return end.value
        try:
            resume = functools.partial(program.send, request(pipeline, lease))
        except Exception as error:
            resume = functools.partial(program.throw, error)


@dataclass(frozen=True)
class ClaimNext(Request[Claim]):
    """Claims the next item under the lease. Raises ConditionFailed if it is no longer next, LeaseLost."""

    ready: Ready

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Claim:
        [claim] = pipeline.manifest.claim(lease, [self.ready.item], self.ready.state)
        failpoints.reach("load.claimed")
        return claim


@dataclass(frozen=True)
class ClaimTogether(Request[list[Claim]]):
    """Claims items of `together` items that follow each other, in one transaction. Raises ConditionFailed, LeaseLost.

    `behind`: the first claim of the items before these, if there are any.
    """

    items: tuple[Item, ...]
    state: StepState
    together: int
    behind: Claim | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> list[Claim]:
        claims = pipeline.manifest.claim(lease, self.items, self.state, self.together, self.behind)
        failpoints.reach("batch.claimed")
        return claims


@dataclass(frozen=True)
class Apply(Request["Applied | AlreadyApplied"]):
    """Applies a load under the lease's token. It is interrupted if the lease is lost. Raises as `Warehouse.apply`, LeaseLost.

    Raises OutputGone if a missing or damaged file is the cause, because the engines' own messages on this differ.
    """

    order: Load

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Applied | AlreadyApplied:
        with lease.canceling(pipeline.warehouse.interrupt):
            try:
                return pipeline.warehouse.apply(dataclasses.replace(self.order, token=lease.token))
            except CannotLoad:
                check_objects(self.order.listing, content=True)
                raise


@dataclass(frozen=True)
class ApplyAll(Request["list[Applied]"]):
    """Applies consecutive loads in one transaction, under the lease's token. Raises as `Warehouse.apply_all`, LeaseLost."""

    orders: tuple[Load, ...]

    def __call__(self, pipeline: Pipeline, lease: Lease) -> list[Applied]:
        with lease.canceling(pipeline.warehouse.interrupt):
            return pipeline.warehouse.apply_all([dataclasses.replace(one, token=lease.token) for one in self.orders])


@dataclass(frozen=True)
class RaiseToken(Request[None]):
    """Acquires the lease again with a token above a token that the warehouse has seen. Raises LeaseLost."""

    above: int

    def __call__(self, pipeline: Pipeline, lease: Lease) -> None:
        lease.raise_token(self.above)


@dataclass(frozen=True)
class ReadState(Request[StepState]):
    """Reads the state of the lease's step."""

    def __call__(self, pipeline: Pipeline, lease: Lease) -> StepState:
        return pipeline.manifest.state(lease.application)


@dataclass(frozen=True)
class RaiseFence(Request[None]):
    """Prevents commits to the lease's feed with older tokens. Raises Fenced, Unavailable; Unbelieved without a fence."""

    epoch: int
    believed: str | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> None:
        pipeline.warehouse.raise_fence(lease.feed, lease.token, self.epoch, self.believed)


@dataclass(frozen=True)
class AskLedger(Request["LedgerEntry | None"]):
    """Reads the ledger's newest entry of an item since an epoch. Raises Unavailable, Unbelieved."""

    item: str
    since_epoch: int
    believed: str | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> LedgerEntry | None:
        return pipeline.warehouse.ledger_entry(lease.feed, self.item, self.since_epoch, self.believed)


@dataclass(frozen=True)
class Believe(Request[None]):
    """Makes the manifest believe the fence's record. Raises LeaseLost, Refused."""

    record: str
    instead_of: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> None:
        pipeline.manifest.believe(lease, self.record, self.instead_of)


@dataclass(frozen=True)
class Complete(Request[Record]):
    """Completes a claim. `believed`: the record that the ledger has for it. Raises ClaimLost."""

    claim: Claim
    payload: Payload
    believed: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        record = pipeline.manifest.complete(self.claim, self.payload, self.believed)
        failpoints.reach("load.completed")
        return record


@dataclass(frozen=True)
class CompleteAll(Request[StepState]):
    """Completes claims in their order, in one transaction; answers with the state that it wrote. Raises ClaimLost.

    `done`: each claim, its payload, and the record that the ledger has for it. `state`: the state that the worker wrote last.
    """

    done: tuple[tuple[Claim, Payload, str], ...]
    state: StepState | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> StepState:
        _, state = pipeline.manifest.complete_all(self.done, self.state)
        failpoints.reach("batch.completed")
        return state


@dataclass(frozen=True)
class PutBackAll(Request[None]):
    """Ends claims without a failure, in one transaction. Raises ClaimLost."""

    claims: tuple[Claim, ...]
    reason: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> None:
        pipeline.manifest.put_back_all(self.claims, self.reason)


@dataclass(frozen=True)
class Fail(Request[Record]):
    """Fails a claim. Raises ClaimLost."""

    claim: Claim
    failure: Failure

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        return pipeline.manifest.fail(self.claim, self.failure)


@dataclass(frozen=True)
class PutBack(Request[Record]):
    """Ends a claim without a failure. Raises ClaimLost."""

    claim: Claim
    reason: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        return pipeline.manifest.put_back(self.claim, self.reason)


@dataclass(frozen=True)
class SendBack(Request["ShreddedAgain | ItemFailed"]):
    """Ends a claim on an item whose output is lost, by shredding it again or failing it. Raises ClaimLost."""

    claim: Claim
    gone: OutputGone

    def __call__(self, pipeline: Pipeline, lease: Lease) -> ShreddedAgain | ItemFailed:
        return send_back(pipeline, self.claim, self.gone)


@dataclass(frozen=True)
class Defer(Request[Record]):
    """Ends a claim on an item that the warehouse has passed, by marking it late. Raises ClaimLost."""

    claim: Claim
    reason: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        return pipeline.manifest.defer(self.claim, self.reason)


@dataclass(frozen=True)
class Adopt(Request[Record]):
    """Completes what a dead worker had committed, in the ledger's epoch, under the lease. Raises ClaimLost, LeaseLost."""

    abandoned: Abandoned
    epoch: int
    payload: Payload
    believed: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        return pipeline.manifest.adopt(lease, self.abandoned, self.epoch, self.payload, self.believed)


@dataclass(frozen=True)
class Abandon(Request[Record]):
    """Fails what a dead worker had not committed, under the lease. `failure`: None means `lease_expired`.

    Raises ClaimLost, LeaseLost.
    """

    abandoned: Abandoned
    failure: Failure | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        record = pipeline.manifest.abandon(lease, self.abandoned, self.failure)
        what = self.failure.message if self.failure else "is not in the ledger"
        log.warning("%s was left unfinished and %s", self.abandoned.item.key.name, what)
        return record
