"""Loading: applies a shredded item to the warehouse, and settles the unfinished work of dead workers.

Claim, apply, complete: the manifest is written before and after, and the warehouse's fence and ledger show what happened in
between.

The programs `loading` and `settling` decide which request comes next: they are generators that yield requests and receive the
answers. `load` and `settle` run them against manifest and warehouse. The model checker runs the same programs, and lets any
event happen between two requests. It explores many continuations from each place, and a generator cannot be copied. So a
program depends only on its arguments and its answers, and the checker replays it with the answers given so far.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from manifest_platform.listing import Listing, Table
from manifest_platform.manifest import (
    OUTPUT,
    Abandoned,
    Application,
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
from manifest_platform.manifest.dataset import BEYOND_IDS, FeedState
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
from manifest_platform.sources.source import LOAD, SHRED
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Full, LedgerEntry, Load, other_content
from manifest_platform.warehouse.checks import Checked, CheckSettings
from manifest_platform.warehouse.errors import (
    Behind,
    CannotLoad,
    CheckInvalid,
    Fenced,
    ManifestBehind,
    NeedsConsent,
    NewerControlTables,
    NotTakenOver,
    Unavailable,
    Unbelieved,
    Unclear,
    ViewRefused,
)
from manifest_platform.warehouse.load import EMPTY, MISSING, About, Limits, Origin, Reload
from manifest_platform.warehouse.repeats import Repeats
from manifest_platform.warehouse.rules import counts, is_same_content


class GivenUp(Refused):
    """A full load was given up before it changed anything, because it needs an operator's consent. `remedy`: how to consent."""


@dataclass(frozen=True)
class Declared:
    """The declarations of a dataset that loading uses.

    `feeds`: the steps of each feed. `keeps`: tables that no snapshot empties. `splits_types`: feeds in which values of another
    type go to a second column. `limits`: what a snapshot may do without consent. `load`: the key of the application that loads.
    `checks`: assertions on every load. `origins`: the ways to rows that older releases loaded without a load time.
    `repeats`: the rule by which rows that earlier loads brought are left out. `cuts_texts`: a text that is longer than its
    column is cut. `main_table`: the table whose times the ledger keeps. `about`: returns the source's own
    facts about an item for the ledger. `joins_names`: as of Source.
    """

    feeds: Mapping[str, tuple[Step, ...]]
    keeps: tuple[str, ...] = ()
    splits_types: frozenset[str] = frozenset()
    limits: Limits | None = None
    load: str = LOAD
    checks: tuple[CheckSettings, ...] = ()
    origins: tuple[Origin, ...] = ()
    repeats: Repeats | None = None
    cuts_texts: bool = False
    main_table: str | None = None
    about: Callable[[Listing], About] = lambda _: About()
    joins_names: bool = False

    @classmethod
    def by(cls, pipeline: Pipeline) -> Declared:
        """Returns the declarations of a pipeline's dataset."""
        return cls(
            pipeline.manifest.feeds,
            pipeline.source.keeps,
            pipeline.source.splits_types,
            pipeline.source.limits,
            pipeline.load.key,
            pipeline.dataset.load.checks,
            pipeline.source.origins,
            pipeline.repeats,
            pipeline.dataset.load.text == "cut",
            pipeline.source.main_table,
            pipeline.source.about,
            pipeline.source.joins_names,
        )

    def step(self, feed: str) -> Step:
        """Returns the step that loads a feed."""
        return next(step for step in self.feeds[feed] if step.application.key == self.load)

    def checks_of(self, feed: str) -> tuple[CheckSettings, ...]:
        """Returns the checks of a feed's loads."""
        return tuple(check for check in self.checks if check.feed in (None, feed))

    def snapshots_of(self, feed: str) -> str | None:
        """Returns the feed whose snapshots contain a feed's items; None if there is none."""
        return next((other for other in self.feeds if feed in self.step(other).covers), None)


def load(pipeline: Pipeline, lease: Lease, ready: Ready) -> Loaded | ItemFailed | ShreddedAgain:
    """Loads the next item: claim, apply, complete.

    Raises ConditionFailed if it is no longer next; Fenced (nothing is recorded, and the lease's next holder settles the claim);
    Unavailable and Unbelieved (the claim is put back); ClaimLost; GivenUp for a snapshot that needs an operator's consent.
    """
    started, requests = time.monotonic(), pipeline.manifest.store.requests
    listing: Listing | OutputGone
    with lease.within(limit_of(pipeline, lease), f"loading {ready.item.key.name}"):
        try:
            listing = listing_of(ready.item)
        except OutputGone as error:
            listing = error
        try:
            done = run(loading(Declared.by(pipeline), ready, listing), pipeline, lease)
        except NeedsConsent as error:
            # Given up instead of failed, so that incremental loads continue while the operator decides.
            remedy = consenting(error.consent, ready.item.key.name)
            pipeline.manifest.cancel_full_load(lease, f"given up by itself: {error}")
            raise GivenUp(f"{error}. The full load was given up", remedy) from error
    if not isinstance(done, Loaded):
        return done
    seconds, used = time.monotonic() - started, pipeline.manifest.store.requests - requests
    return dataclasses.replace(done, seconds=seconds, requests=used, target=pipeline.target)


def settle(pipeline: Pipeline, lease: Lease, abandoned: Abandoned) -> Loaded | None:
    """Settles the interrupted load of a dead worker: completes it if the ledger has it, else fails it. Raises Unavailable."""
    with lease.within(limit_of(pipeline, lease), f"settling {abandoned.item.key.name}"):
        settled = run(settling(Declared.by(pipeline), abandoned), pipeline, lease)
    return settled and dataclasses.replace(settled, target=pipeline.target)


def limit_of(pipeline: Pipeline, lease: Lease) -> timedelta:
    """The time limit of a load of the lease's feed."""
    return pipeline.config.limits.of(
        "full" if pipeline.manifest.step(lease.feed, pipeline.load.key).order == "full" else "load"
    )


def loading(declared: Declared, ready: Ready, listing: Listing | OutputGone) -> Program[Loaded | ItemFailed | ShreddedAgain]:
    """The program of a load: claim, apply, complete.

    `listing`: the listing of the item's shredded output; or OutputGone if that is lost or damaged. The item is then shredded
    again.
    """
    claim = yield from ask(ClaimNext(ready))
    if isinstance(listing, OutputGone):
        return (yield from ask(SendBack(claim, listing)))
    order = order_of(declared, ready, claim, listing)
    try:
        applied = yield from _applied(order)
    except Unclear:
        settled = yield from settling(declared, Abandoned(claim.item, claim.processing))
        unknown = Failure(FailureKind.LEASE_EXPIRED, "COMMIT failed; the ledger lacks the item")
        return settled or ItemFailed(ready.item.key, declared.load, unknown)
    except Behind as error:
        yield from ask(Defer(claim, str(error)))
        return ItemFailed(ready.item.key, declared.load, Failure(FailureKind.BEHIND, str(error), type(error).__name__))
    except OutputGone as gone:
        return (yield from ask(SendBack(claim, gone)))
    except NeedsConsent as error:
        yield from ask(PutBack(claim, str(error)))
        raise
    except CannotLoad as error:
        return (yield from _failed(claim, Failure.of(error, traceback.format_exc())))
    except (CheckInvalid, NewerControlTables, NotTakenOver, Unavailable, Unbelieved, ViewRefused) as error:
        # Not the item's fault: the configuration or the whole warehouse is wrong, or it cannot be used now. COMMIT was not
        # sent, or it was answered, and then the ledger tells it to the next attempt.
        yield from ask(PutBack(claim, str(error)))
        raise
    told, checks = ((), ()) if isinstance(applied, AlreadyApplied) else (applied.told, applied.checks)
    yield from ask(Complete(claim, loaded_payload(applied.entry, listing.bytes, told, checks), applied.entry.record_id))
    already = isinstance(applied, AlreadyApplied)
    return loaded(ready.item, applied.entry, listing.bytes, already, listing.tables, told, checks)


def settling(declared: Declared, abandoned: Abandoned) -> Program[Loaded | None]:
    """The program that settles an interrupted load: of a dead worker, or one whose COMMIT got no answer.

    It first raises the fence to the lease's token, so that the ledger's answer is final.
    """
    key, landed = abandoned.item.key, abandoned.item.landed
    state, step = (yield from ask(ReadState())), declared.step(key.feed)
    # A snapshot replaces everything that a warehouse lacks after it was set back, so it depends on no earlier record.
    believed = None if step.order == "full" else state.feed(key.feed).believed
    yield from above_fence(RaiseFence(state.epoch, believed), state.epoch)
    entry = yield from ask(AskLedger(key.id, _counts_from(state, step, key.feed), believed))
    if entry is None or not is_applied(abandoned.item, step.application, entry):
        yield from ask(Abandon(abandoned))
        return None
    if landed and not is_same_content(landed.checksum, entry):
        yield from ask(Abandon(abandoned, Failure.of(other_content(key.id, landed.checksum, entry))))
        return None
    bytes_loaded = shredded_bytes(abandoned.item)
    yield from ask(Adopt(abandoned, entry.epoch, loaded_payload(entry, bytes_loaded), entry.record_id))
    return loaded(abandoned.item, entry, bytes_loaded, already=True)


def _applied(order: Load) -> Program[Applied | AlreadyApplied]:
    """Applies a load. If the manifest was set back, and believes an older record than the fence's, it is corrected first."""
    while True:
        try:
            return (yield from above_fence(Apply(order), order.epoch))
        except ManifestBehind as behind:
            yield from ask(Believe(behind.record, order.believed or ""))
            order = dataclasses.replace(order, believed=behind.record)


def above_fence(request: Request[Answer], epoch: int) -> Program[Answer]:
    """Asks under the lease's token, and again above the fence's if that is newer: its holder outlived the manifest's backup."""
    try:
        return (yield from ask(request))
    except Fenced as fenced:
        if fenced.epoch > epoch:
            raise
        yield from ask(RaiseToken(fenced.token))
    return (yield from ask(request))


def _counts_from(state: StepState, step: Step, feed: str) -> int:
    """The epoch from which the ledger's entries of a feed's items count."""
    return state.seen_by(step, feed).serving_epoch


def _failed(claim: Claim, failure: Failure) -> Program[ItemFailed]:
    yield from ask(Fail(claim, failure))
    return ItemFailed(claim.item.key, claim.step.application.key, failure)


def order_of(declared: Declared, ready: Ready, claim: Claim, listing: Listing) -> Load:
    """Returns the order for the warehouse to load a claimed item."""
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
        overlaps=overlap(ready.item, claim.step, state.seen_by(claim.step, key.feed)),
        splits_types=key.feed in declared.splits_types,
        checks=declared.checks_of(key.feed),
        reload=reload_of(declared, claim.item, claim.step),
        repeats=declared.repeats,
        cuts_texts=declared.cuts_texts,
        joins_names=declared.joins_names,
        about=about_of(declared, claim.item, listing),
    )


def about_of(declared: Declared, item: Item, listing: Listing) -> About:
    """Returns what the ledger says about an item's shredding, from its records and its listing."""
    shredded = item.processed_by(Application(SHRED))
    began = next((one for one in item.records if shredded and one.record_id == shredded.previous), None)
    times = listing.times_of(declared.main_table) if declared.main_table else None
    return dataclasses.replace(
        declared.about(listing),
        started=began.timestamp if began else None,
        completed=shredded.timestamp if shredded else None,
        release=shredded.application.version if shredded else None,
        first_time=times and times[0],
        last_time=times and times[1],
        good=listing.good,
    )


def reload_of(declared: Declared, item: Item, step: Step) -> Reload | None:
    """Returns the order to replace an item's rows, if an operator asked for that, now or earlier; None if never."""
    asked = item.reload_asked(step.application)
    if asked is None:
        return None
    allows_missing = MISSING in asked.data.get("allows", ())
    return Reload(item.attempts_since(asked, step.application), declared.origins, allows_missing)


def is_applied(item: Item, application: Application, entry: LedgerEntry | None) -> bool:
    """True if the ledger's newest entry of an item says that it is loaded. An entry from before a reload does not."""
    asked = item.reload_asked(application)
    return counts(Reload(item.attempts_since(asked, application)) if asked else None, entry)


def overlap(item: Item, step: Step, feed: FeedState) -> str:
    """Describes the overlap of an item's time with earlier loads; empty if there is none, or the order of windows forbids it.

    Windows of logs may overlap: the vault's clock was set back, or a day was published again with another stop time.
    """
    landed = item.landed
    if step.order != "strict" or step.gap == "contiguous" or landed is None or landed.start is None:
        return ""
    if item.is_late_for(step.application, feed.serving_epoch):
        return "it came late, after later items were loaded"
    if feed.stop and landed.start < feed.stop:
        return f"it starts at {landed.start}, and earlier loads go up to {feed.stop}"
    return ""


def _full(declared: Declared, claim: Claim) -> Full | None:
    """Returns a snapshot's order for a full load; None for other items."""
    landed = claim.item.landed
    if claim.step.order != "full" or landed is None or landed.stop is None:
        return None  # a snapshot without a stop time is refused before it can be claimed
    boundary = f"{landed.stop}#{BEYOND_IDS}"
    begun = [record for record in claim.item.full_loads(claim.step.application) if record.data["full_load"] == "begun"]
    allows = frozenset(begun[-1].data.get("allows", ())) if begun else frozenset()
    return Full(boundary, claim.step.covers, tuple(declared.feeds), declared.keeps, declared.limits, allows)


def consenting(consent: str, item: str) -> Remedy:
    """Returns the remedy by which an operator allows a full load that needs consent."""
    return Remedy(Action.ALLOW_EMPTY if consent == EMPTY else Action.ALLOW_SHRINK, item=item)


def loaded_payload(
    entry: LedgerEntry, bytes_loaded: int, told: Sequence[str] = (), checks: Sequence[Checked] = (), batch: int = 1
) -> Payload:
    """Returns the payload of a load's Processed record, from the ledger's entry.

    `told`: notes on the load. `batch`: the number of items in its transaction.
    """
    applied_at = entry.applied_at.isoformat()
    data: dict[str, Any] = {"rows": entry.rows, "bytes": bytes_loaded, "late": entry.late, "applied_at": applied_at}
    data |= {"told": list(told)} if told else {}
    data |= {"checks": [one.document() for one in checks]} if checks else {}
    return Payload(OUTPUT, data | ({"batch": batch} if batch > 1 else {}))


def loaded(
    item: Item,
    entry: LedgerEntry,
    bytes_loaded: int,
    already: bool,
    tables: tuple[Table, ...] = (),
    told: tuple[str, ...] = (),
    checks: tuple[Checked, ...] = (),
) -> Loaded:
    """Returns the event of a loaded item, without seconds and requests."""
    lag = max(0.0, (entry.applied_at - item.records[0].timestamp).total_seconds())
    return Loaded(item.key, entry.rows, bytes_loaded, 0.0, lag, 0, entry.late, already, tables, entry.epoch, told, checks)
