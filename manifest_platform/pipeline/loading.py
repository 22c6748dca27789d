"""Loading: a shredded item goes into the warehouse, and what a dead worker left on its way there is settled.

Claim, apply, complete: the manifest is told before and after, and the warehouse's fence and ledger say what happened between.

Which request comes next is said by programs, `loading` and `settling`: generators that yield requests and get the answers.
`load` and `settle` run them against manifest and warehouse; the model checker runs the same programs, with anything between
two requests that may happen there. A generator cannot be copied, and the checker goes on from each place in many ways: so a
program rests on nothing but its arguments and its answers, and the checker begins it anew with the answers given so far.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from manifest_platform.listing import Listing, Table
from manifest_platform.manifest import (
    OUTPUT,
    Abandoned,
    Claim,
    Failure,
    FailureKind,
    Item,
    Lease,
    Payload,
    Ready,
    Refused,
    Step,
    StepState,
)
from manifest_platform.manifest.dataset import BEYOND_IDS
from manifest_platform.pipeline.events import ItemFailed, Loaded, ShreddedAgain
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.requests import (
    Abandon,
    Adopt,
    Answer,
    Apply,
    AskLedger,
    Believe,
    ClaimNext,
    Complete,
    Defer,
    Fail,
    Program,
    PutBack,
    RaiseFence,
    RaiseToken,
    ReadState,
    Request,
    SendBack,
    ask,
    run,
)
from manifest_platform.pipeline.shredding import OutputGone, listing_of, shredded_bytes
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Full, LedgerEntry, Load, other_content
from manifest_platform.warehouse.errors import (
    Behind,
    CannotLoad,
    Fenced,
    ManifestBehind,
    NeedsConsent,
    NewerControlTables,
    Unbelieved,
    Unclear,
)
from manifest_platform.warehouse.load import EMPTY, Limits
from manifest_platform.warehouse.rules import is_same_content


class GivenUp(Refused):
    """A full load was given up before it changed anything: it needs an operator's consent. `remedy`: how that is given."""


@dataclass(frozen=True)
class Declared:
    """What a dataset declares, as far as loading goes by it: the steps of each feed, tables that no snapshot empties, and the
    feeds of which a column's changed type goes to a column beside it; what a snapshot may do without consent.
    """

    feeds: Mapping[str, tuple[Step, ...]]
    keeps: tuple[str, ...] = ()
    splits_types: frozenset[str] = frozenset()
    limits: Limits | None = None

    @classmethod
    def by(cls, pipeline: Pipeline) -> Declared:
        """What the dataset of a pipeline declares."""
        return cls(pipeline.manifest.feeds, pipeline.source.keeps, pipeline.source.splits_types, pipeline.source.limits)

    def step(self, feed: str) -> Step:
        """The step that loads a feed."""
        return next(step for step in self.feeds[feed] if step.application.key == LOAD)

    def snapshots_of(self, feed: str) -> str | None:
        """The feed whose snapshots contain a feed's items, if there is such a feed."""
        return next((other for other in self.feeds if feed in self.step(other).covers), None)


def load(pipeline: Pipeline, lease: Lease, ready: Ready) -> Loaded | ItemFailed | ShreddedAgain:
    """Loads the item that is next: claim, apply, complete.

    Raises ConditionFailed if it is not next any more, Fenced and Unavailable (nothing is recorded then: the next
    holder of the lease settles what was claimed), Unbelieved (the claim is put back), ClaimLost; GivenUp for a snapshot that
    needs an operator's consent.
    """
    started, requests = time.monotonic(), pipeline.manifest.store.requests
    listing: Listing | OutputGone
    with lease.within(_limit(pipeline, lease), f"loading {ready.item.key.name}"):
        try:
            listing = listing_of(ready.item)
        except OutputGone as error:
            listing = error
        try:
            done = run(loading(Declared.by(pipeline), ready, listing), pipeline, lease)
        except NeedsConsent as error:
            # Given up, and not failed: the changes go on, and nothing waits for the operator's consent.
            remedy = consenting(error.consent, ready.item.key.name)
            pipeline.manifest.cancel_full_load(lease, f"given up by itself: {error}")
            raise GivenUp(f"{error}. The full load was given up", remedy) from error
    if not isinstance(done, Loaded):
        return done
    seconds, used = time.monotonic() - started, pipeline.manifest.store.requests - requests
    return dataclasses.replace(done, seconds=seconds, requests=used)


def settle(pipeline: Pipeline, lease: Lease, abandoned: Abandoned) -> Loaded | None:
    """Ends what a dead worker had begun to load: completes what the ledger has, fails what it lacks. Raises Unavailable."""
    with lease.within(_limit(pipeline, lease), f"settling {abandoned.item.key.name}"):
        return run(settling(Declared.by(pipeline), abandoned), pipeline, lease)


def _limit(pipeline: Pipeline, lease: Lease) -> timedelta:
    """How long a load of the lease's feed may take."""
    return pipeline.config.limits.of("full" if pipeline.manifest.step(lease.feed, LOAD).order == "full" else "load")


def loading(declared: Declared, ready: Ready, listing: Listing | OutputGone) -> Program[Loaded | ItemFailed | ShreddedAgain]:
    """The program of a load: claim, apply, complete. `listing`: of the item; or that it is gone, so that it is made again."""
    claim = yield from ask(ClaimNext(ready))
    if isinstance(listing, OutputGone):
        return (yield from ask(SendBack(claim, listing)))
    order = _order(declared, ready, claim, listing)
    try:
        applied = yield from _applied(order)
    except Unclear:
        settled = yield from settling(declared, Abandoned(claim.item, claim.processing))
        unknown = Failure(FailureKind.LEASE_EXPIRED, "COMMIT failed; the ledger lacks the item")
        return settled or ItemFailed(ready.item.key, LOAD, unknown)
    except Behind as error:
        yield from ask(Defer(claim, str(error)))
        return ItemFailed(ready.item.key, LOAD, Failure(FailureKind.BEHIND, str(error), type(error).__name__))
    except OutputGone as gone:
        return (yield from ask(SendBack(claim, gone)))
    except NeedsConsent as error:
        yield from ask(PutBack(claim, str(error)))
        raise
    except CannotLoad as error:
        return (yield from _failed(claim, Failure.of(error, traceback.format_exc())))
    except (Unbelieved, NewerControlTables) as error:
        yield from ask(PutBack(claim, str(error)))  # no item's fault: the whole warehouse is not what it was
        raise
    told = () if isinstance(applied, AlreadyApplied) else applied.told
    yield from ask(Complete(claim, loaded_payload(applied.entry, listing.bytes, told), applied.entry.record_id))
    already = isinstance(applied, AlreadyApplied)
    return _loaded(ready.item, applied.entry, listing.bytes, already, listing.tables, told)


def settling(declared: Declared, abandoned: Abandoned) -> Program[Loaded | None]:
    """The program that ends what a dead worker had begun to load, or what got no answer to its COMMIT.

    The fence is raised to the lease's token first, so that the ledger's answer is final.
    """
    key, landed = abandoned.item.key, abandoned.item.landed
    state, step = (yield from ask(ReadState())), declared.step(key.feed)
    # A snapshot replaces what a warehouse that was set back lacks, so it rests on nothing that came before.
    believed = None if step.order == "full" else state.feed(key.feed).believed
    yield from above_fence(RaiseFence(state.epoch, believed), state.epoch)
    entry = yield from ask(AskLedger(key.id, _counts_from(state, step, key.feed), believed))
    if entry is None:
        yield from ask(Abandon(abandoned))
        return None
    if landed and not is_same_content(landed.checksum, entry):
        yield from ask(Abandon(abandoned, Failure.of(other_content(key.id, landed.checksum, entry))))
        return None
    bytes_loaded = shredded_bytes(abandoned.item)
    yield from ask(Adopt(abandoned, entry.epoch, loaded_payload(entry, bytes_loaded), entry.record_id))
    return _loaded(abandoned.item, entry, bytes_loaded, already=True)


def _applied(order: Load) -> Program[Applied | AlreadyApplied]:
    """Applies a load. A manifest that was set back believes an older record than the fence names: it learns it, and goes on."""
    while True:
        try:
            return (yield from above_fence(Apply(order), order.epoch))
        except ManifestBehind as behind:
            yield from ask(Believe(behind.record, order.believed or ""))
            order = dataclasses.replace(order, believed=behind.record)


def above_fence(request: Request[Answer], epoch: int) -> Program[Answer]:
    """Asks under the lease's token, or above the fence's: one with a newer token has outlived the manifest's backup."""
    try:
        return (yield from ask(request))
    except Fenced as fenced:
        if fenced.epoch > epoch:
            raise
        yield from ask(RaiseToken(fenced.token))
    return (yield from ask(request))


def _counts_from(state: StepState, step: Step, feed: str) -> int:
    """The epoch from which on what the ledger has of a feed's items counts."""
    return state.seen_by(step, feed).serving_epoch


def _failed(claim: Claim, failure: Failure) -> Program[ItemFailed]:
    yield from ask(Fail(claim, failure))
    return ItemFailed(claim.item.key, claim.step.application.key, failure)


def _order(declared: Declared, ready: Ready, claim: Claim, listing: Listing) -> Load:
    """What the warehouse is to apply for a claimed item."""
    state, key, landed = ready.state, ready.item.key, ready.item.landed
    serving_epoch = _counts_from(state, claim.step, key.feed)
    return Load(
        item=key.id,
        feed=key.feed,
        position=key.position,
        epoch=state.epoch,
        serving_epoch=serving_epoch,
        token=claim.processing.token or 0,
        record_id=claim.processing.record_id,
        checksum=landed.checksum if landed else "",
        listing=listing,
        late=ready.item.is_late_for(claim.step.application, serving_epoch),
        believed=state.feed(key.feed).believed,
        full=_full(declared, claim),
        snapshots=declared.snapshots_of(key.feed),
        overlaps=_overlap(ready, claim.step),
        splits_types=key.feed in declared.splits_types,
    )


def _overlap(ready: Ready, step: Step) -> str:
    """With what an item's time overlaps, in words; empty where with nothing, or where the order of windows forbids it.

    Windows of logs do: the vault's clock is set back, or a day is published again under another stop time.
    """
    landed, feed = ready.item.landed, ready.state.seen_by(step, ready.item.key.feed)
    if step.order != "strict" or step.gap == "contiguous" or landed is None or landed.start is None:
        return ""
    if ready.item.is_late_for(step.application, feed.serving_epoch):
        return "it came late, behind what was loaded before"
    if feed.stop and landed.start < feed.stop:
        return f"it starts at {landed.start}, and what was loaded before it goes up to {feed.stop}"
    return ""


def _full(declared: Declared, claim: Claim) -> Full | None:
    """What a snapshot is to the warehouse; None for a directory that is none."""
    landed = claim.item.landed
    if claim.step.order != "full" or landed is None or landed.stop is None:
        return None  # a snapshot without a stop time is refused before it can be claimed
    boundary = f"{landed.stop}#{BEYOND_IDS}"
    begun = [record for record in claim.item.records if record.data.get("full_load") == "begun"]
    allows = frozenset(begun[-1].data.get("allows", ())) if begun else frozenset()
    return Full(boundary, claim.step.covers, tuple(declared.feeds), declared.keeps, declared.limits, allows)


def consenting(consent: str, item: str) -> Remedy:
    """How an operator lets a full load do what it may not by itself."""
    return Remedy(Action.ALLOW_EMPTY if consent == EMPTY else Action.ALLOW_SHRINK, item=item)


def loaded_payload(entry: LedgerEntry, bytes_loaded: int, told: Sequence[str] = ()) -> Payload:
    """What a load's Processed says, from the ledger's entry. `told`: what is out of the ordinary about it."""
    applied_at = entry.applied_at.isoformat()
    data = {"rows": entry.rows, "bytes": bytes_loaded, "late": entry.late, "applied_at": applied_at}
    return Payload(OUTPUT, {**data, "told": list(told)} if told else data)


def _loaded(
    item: Item, entry: LedgerEntry, bytes_loaded: int, already: bool, tables: tuple[Table, ...] = (), told: tuple[str, ...] = ()
) -> Loaded:
    """That an item is loaded, without what it took."""
    lag = max(0.0, (entry.applied_at - item.records[0].timestamp).total_seconds())
    return Loaded(item.key, entry.rows, bytes_loaded, 0.0, lag, 0, entry.late, already, tables, entry.epoch, told)
