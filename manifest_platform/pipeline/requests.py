"""What loading asks of manifest and warehouse: each request as data, and how it is done.

Belongs here: the requests, and `run`, which does what a program asks for. A program is a generator of `loading`: it yields
requests and gets their answers, decides what comes next, and does nothing by itself. So whoever runs it may let anything
happen between two requests, as it may happen to a worker: the model checker does.
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
from manifest_platform.manifest import Abandoned, Claim, Failure, Lease, Payload, Ready, Record, StepState
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
    """One request of a worker that holds a lease: to call it is to do it."""

    @abstractmethod
    def __call__(self, pipeline: Pipeline, lease: Lease) -> Answer:
        """Does it. Raises what manifest, lease and warehouse raise for it."""


Program = Generator[Request[Any], Any, Result]
"""Work that asks request by request. It is told of a request's error too, and may go on from there."""


def ask(request: Request[Answer]) -> Program[Answer]:
    """The answer to a request, for a program: `answer = yield from ask(request)`."""
    return (yield request)


def run(program: Program[Result], pipeline: Pipeline, lease: Lease) -> Result:
    """Does what a program asks for until it ends, and returns its result. Raises what the program does not foresee."""
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
    """Claims the item that is next, under the lease. Raises ConditionFailed if it is not next any more, LeaseLost."""

    ready: Ready

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Claim:
        [claim] = pipeline.manifest.claim(lease, [self.ready.item], self.ready.state)
        failpoints.reach("load.claimed")
        return claim


@dataclass(frozen=True)
class Apply(Request["Applied | AlreadyApplied"]):
    """Applies a load under the lease's token; stopped once the lease is lost. Raises as `Warehouse.apply`, LeaseLost.

    OutputGone where that is why: an engine's own words for a missing file differ, and help nobody.
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
class RaiseToken(Request[None]):
    """Takes the lease again above a token that the warehouse has seen. Raises LeaseLost."""

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
    """Lets nobody older commit to the lease's feed any more. Raises Fenced, Unavailable, Unbelieved where there is no fence."""

    epoch: int
    believed: str | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> None:
        pipeline.warehouse.raise_fence(lease.feed, lease.token, self.epoch, self.believed)


@dataclass(frozen=True)
class AskLedger(Request["LedgerEntry | None"]):
    """The ledger's newest entry of an item, of an epoch or a later one. Raises Unavailable, Unbelieved."""

    item: str
    since_epoch: int
    believed: str | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> LedgerEntry | None:
        return pipeline.warehouse.ledger_entry(lease.feed, self.item, self.since_epoch, self.believed)


@dataclass(frozen=True)
class Believe(Request[None]):
    """Has the manifest believe what the fence names. Raises LeaseLost, Refused."""

    record: str
    instead_of: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> None:
        pipeline.manifest.believe(lease, self.record, self.instead_of)


@dataclass(frozen=True)
class Complete(Request[Record]):
    """Ends a claim well; `believed`: the record that the ledger has for it. Raises ClaimLost."""

    claim: Claim
    payload: Payload
    believed: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        record = pipeline.manifest.complete(self.claim, self.payload, self.believed)
        failpoints.reach("load.completed")
        return record


@dataclass(frozen=True)
class Fail(Request[Record]):
    """Ends a claim badly. Raises ClaimLost."""

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
    """Ends a claim on an item whose output is lost: shredded again, or failed. Raises ClaimLost."""

    claim: Claim
    gone: OutputGone

    def __call__(self, pipeline: Pipeline, lease: Lease) -> ShreddedAgain | ItemFailed:
        return send_back(pipeline, self.claim, self.gone)


@dataclass(frozen=True)
class Defer(Request[Record]):
    """Ends a claim on an item that the warehouse is past. Raises ClaimLost."""

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
    """Fails what a dead worker had not committed, under the lease: as `lease_expired`, or as given.

    Raises ClaimLost, LeaseLost.
    """

    abandoned: Abandoned
    failure: Failure | None = None

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        record = pipeline.manifest.abandon(lease, self.abandoned, self.failure)
        what = self.failure.message if self.failure else "is not in the ledger"
        log.warning("%s was left unfinished and %s", self.abandoned.item.key.name, what)
        return record
