"""The guards of the protocol, each with a way to switch it off.

Belongs here: what each guard prevents, and the scope in which its absence shows. Conditions of writes, and rules of sink and
workers, are switched off by name in `scope`, `sink` and `program`. Rules of the product are replaced by mocks while a scope is
explored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from manifest_platform.manifest import (
    Item,
    ItemKey,
    Manifest,
    Payload,
    Record,
    State,
    Step,
    StepState,
    choosing,
    dataset,
    manifest,
    reading,
    registration,
    transitions,
    working,
)
from manifest_platform.manifest.claims import Claim
from manifest_platform.manifest.dataset import FeedState, Judgement, Jumped, Mode, Ready, Standing, Verdict
from manifest_platform.manifest.records import REASON, Application, Stamp
from manifest_platform.manifest.store import Put, Write
from manifest_platform.operations import accept, reconcile
from manifest_platform.pipeline import catching_up, loading
from manifest_platform.pipeline.requests import Abandon, Program, ask
from manifest_platform.warehouse import rules

Patch = tuple[object, str, Any]
_OPERATIONS = (reading, choosing, registration, working, manifest)


@dataclass(frozen=True)
class Guard:
    """A guard: the rule that it enforces, a scope in which its absence shows, and the way to switch it off.

    `conditions`: names that `Scope.on` knows, by default the guard's own name. `rest`: without the guard, rest cannot be
    reached. `needless`: the reason why the guard is redundant; its scope was explored completely without it.
    """

    name: str
    demands: str
    configuration: str
    conditions: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    rest: bool = False
    needless: str = ""

    @property
    def off(self) -> frozenset[str]:
        """The conditions that are off without the guard."""
        return frozenset(self.conditions or (self.name,))

    @contextmanager
    def switched_off(self) -> Generator[None]:
        """Replaces the product's rules while the block runs."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                stack.enter_context(mock.patch.object(owner, name, replacement))
            yield


class Blind(Item):
    """An item whose open work is hidden."""

    def blocker(self, serving: object = None, counts: object = None) -> None:
        return None

    def open_records(self, serving: object = None) -> Iterator[Record]:
        return iter(())


def _blind(item: Item) -> Item:
    return Blind(item.key, item.records)


def _reloads_open(item: Item, *given: Any, **more: Any) -> list[Write]:
    return _reload(_blind(item), *given, **more)


def _chooses_reloads_first(step: Step, state: StepState, feed: str, late: Iterable[Item], holding: bool) -> Verdict | None:
    for item in late:
        judged = dataset.judge(item, step, state.feed(feed))
        if judged.standing not in dataset.PASSED:
            return dataset.verdict_on(item, judged, step, state, holding)
    return None


_reload = transitions.reload
_complete, _discover = transitions.complete, transitions.discover
_begin, _cancel = transitions.begin_full_load, transitions.cancel_full_load
_skip, _unskip, _resolve, _claim = transitions.skip, transitions.unskip, transitions.resolve, transitions.claim
_reopen, _decide_to_reopen = transitions.reopen, Manifest.reopen
_advance, _after, _parts = transitions._advance, transitions._after, catching_up._parts
_judge, _choose = dataset.judge, dataset.choose


def _with_state(writes: Sequence[Write], **changes: Any) -> list[Write]:
    """Returns the writes with other values in the state that they put."""
    return [
        dataclasses.replace(one, data={**one.data, **changes})
        if isinstance(one, Put) and one.sort.startswith("STATE#")
        else one
        for one in writes
    ]


def _completes_in_any_epoch(
    item: Item,
    held: Claim,
    state: StepState,
    payload: Payload,
    steps: Sequence[Step],
    stamp: Stamp,
    epoch: int | None = None,
    believed: str | None = None,
) -> list[Write]:
    assert held.processing.epoch is not None
    pretended = dataclasses.replace(state, epoch=held.processing.epoch)
    return _with_state(_complete(item, held, pretended, payload, steps, stamp, epoch, believed), epoch=state.epoch)


def _completes_in_any_mode(
    item: Item,
    held: Claim,
    state: StepState,
    payload: Payload,
    steps: Sequence[Step],
    stamp: Stamp,
    epoch: int | None = None,
    believed: str | None = None,
) -> list[Write]:
    if held.step.order != "strict":
        return _complete(item, held, state, payload, steps, stamp, epoch, believed)
    pretended = dataclasses.replace(state, mode=Mode.INCREMENTAL)
    return _with_state(_complete(item, held, pretended, payload, steps, stamp, epoch, believed), mode=state.mode)


def _adopts_in_its_own_epoch(
    item: Item,
    held: Claim,
    state: StepState,
    payload: Payload,
    steps: Sequence[Step],
    stamp: Stamp,
    epoch: int | None = None,
    believed: str | None = None,
) -> list[Write]:
    return _complete(item, held, state, payload, steps, stamp, None, believed)


def _begins_no_epoch(
    item: Item, step: Step, state: StepState, reason: str, application: Application, stamp: Stamp
) -> list[Write]:
    return _with_state(_begin(item, step, state, reason, application, stamp), epoch=state.epoch)


def _begins_twice(item: Item, step: Step, state: StepState, reason: str, application: Application, stamp: Stamp) -> list[Write]:
    return _begin(item, step, dataclasses.replace(state, mode=Mode.INCREMENTAL), reason, application, stamp)


def _cancels_open(item: Item, step: Step, state: StepState, reason: str, application: Application, stamp: Stamp) -> list[Write]:
    return _cancel(_blind(item), step, state, reason, application, stamp)


def _skips_open(item: Item, *others: Any) -> list[Write]:
    return _skip(_blind(item), *others)


def _resolves_open(item: Item, reason: str, steps: Sequence[Step], states: dict[str, StepState], stamp: Stamp) -> list[Write]:
    blocker = item.blocker(transitions.serving_epochs(item.key.feed, steps, states))
    if blocker is None or blocker.state is not State.PROCESSING:
        return _resolve(item, reason, steps, states, stamp)
    payload = Payload(REASON, {"reason": reason})
    freed = transitions.append(
        item, State.RESOLVED, blocker.application, stamp, previous=blocker.record_id, epoch=blocker.epoch, payload=payload
    )
    return [transitions.put_record(item.key, freed.records[-1])]


def _skips_the_snapshot(
    item: Item, who: Application, reason: str, steps: Sequence[Step], states: dict[str, StepState], stamp: Stamp
) -> list[Write]:
    pretended = {name: dataclasses.replace(state, full=None) for name, state in states.items()}
    full = {name: state.full for name, state in states.items()}
    writes = _skip(item, who, reason, steps, pretended, stamp)
    return _with_state(writes, full=next(iter(full.values())))


def _unskips_as_new(item: Item, *others: Any) -> list[Write]:
    with mock.patch.object(transitions, "_is_behind", lambda *_: False):
        return _unskip(item, *others)


def _unskips_in_quarantine(item: Item, reason: str, steps: Sequence[Step], *others: Any) -> list[Write]:
    return _unskip(item, reason, [dataclasses.replace(step, late="append") for step in steps], *others)


def _begins_with_anything(*given: Any) -> list[Write]:
    with mock.patch.object(transitions, "judge", lambda *_: Judgement(Standing.READY)):
        return _begin(*given)


def _reopens_open(item: Item, *others: Any) -> list[Write]:
    return _reopen(_blind(item), *others)


def _reopens_what_came_to_be(self: Manifest, *given: Any, read: Item | None = None) -> Record:
    return _decide_to_reopen(self, *given)


def _reopens_nothing(self: Manifest, key: ItemKey, _: Sequence[str], *others: Any, read: Item | None = None) -> Record:
    return _decide_to_reopen(self, key, [], *others, read=read)


def _discovers_as_new(*given: Any) -> list[Write]:
    with mock.patch.object(transitions, "_is_behind", lambda *_: False):
        return _discover(*given)


def _advances_without_sweep(item: Item, state: StepState, under: StepState) -> StepState:
    return _advance(item, state, under).with_feed(item.key.feed, swept=item.key.position)


def _chooses_any(
    step: Step, state: StepState, feed: str, late: Iterable[Item], items: Iterable[Item], holding: bool = False
) -> Verdict | Jumped:
    kept = list(items)
    first = _choose(step, state, feed, late, kept, holding)
    standing = state.feed(feed)
    for item in kept:
        ready = _judge(item, step, standing).standing is Standing.READY
        if isinstance(first, dataset.Blocked) and ready and item.key.position > standing.watermark:
            return Ready(item, state)
    return first


def _chooses_in_any_mode(step: Step, state: StepState, *others: Any) -> Verdict | Jumped:
    return _choose(step, dataclasses.replace(state, mode=Mode.INCREMENTAL), *others)


def _claims_in_any_mode(
    items: Sequence[Item], step: Step, state: StepState, token: int, stamp: Stamp, together: int = 0
) -> Any:
    pretended = dataclasses.replace(state, mode=Mode.INCREMENTAL) if step.order == "strict" else state
    return _claim(items, step, pretended, token, stamp, together)


def _chooses_over_gaps(step: Step, *others: Any) -> Verdict | Jumped:
    return _choose(dataclasses.replace(step, gap="none"), *others)


def _judges_without_upstream(item: Item, step: Step, feed: FeedState) -> Judgement:
    return _judge(item, dataclasses.replace(step, upstream=()), feed)


def _judges_without_boundary(item: Item, step: Step, feed: FeedState) -> Judgement:
    return _judge(item, step, dataclasses.replace(feed, boundary=""))


def _parts_reversed(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return iter([*_parts(values, size)][:: -1 if values and isinstance(values[0], tuple) else 1])


def _adopts_as_examined(*given: Any) -> StepState:
    return _after(*given[:-1], False)


def _follows_anything(self: Manifest, ready: Ready, application: str, most: int) -> list[Item]:
    step, feed = self.step(ready.item.key.feed, application), ready.state.feed(ready.item.key.feed)
    behind = self.items(ready.item.key.feed, after=ready.item.key.position)
    return [item for item in behind if _judge(item, step, feed).standing is Standing.READY][:most]


def _abandons_unasked(_declared: loading.Declared, abandoned: dataset.Abandoned) -> Program[None]:
    yield from ask(Abandon(abandoned))


def _everywhere(name: str, replacement: Callable) -> tuple[Patch, ...]:
    """The patches of a rule in all modules of the product that name it."""
    return tuple((module, name, replacement) for module in (dataset, transitions, *_OPERATIONS) if hasattr(module, name))


def _processed_in_any_epoch(self: Item, application: Application, serving_epoch: int = 0) -> Record | None:
    return PROCESSED_BY(self, application, 0)


def _late_in_any_epoch(self: Item, application: Application, serving_epoch: int = 0) -> bool:
    return self.late_epoch(application) is not None


def _blocked_in_any_epoch(
    self: Item, serving: object = None, counts: Callable[[Application], bool] = lambda _: True
) -> Record | None:
    return BLOCKER(self, counts=counts)


PROCESSED_BY, BLOCKER = Item.processed_by, Item.blocker
OPERATIONS = (
    "claim",
    "complete",
    "fail",
    "abandon",
    "adopt",
    "defer",
    "sweep",
    "resolve",
    "skip",
    "unskip",
    "begin",
    "cancel",
    "discover",
    "free",
    "send back",
    "reshred",
    "accept",
)

GUARDS = [
    # The sink
    Guard("fence_token", "a commit requires a token that is not older than the fence's", "two"),
    Guard(
        "fence_epoch",
        "a commit requires an epoch that is not older than the fence's",
        "full-two",
        needless="a commit of an older epoch would apply to a snapshot that it does not know, which is refused too",
    ),
    Guard(
        "snapshot_ahead",
        "a commit requires that the ledger has no snapshot of a later epoch than the load's",
        "restore-full",
        needless="the snapshot's commit has raised the fence's epoch",
    ),
    Guard(
        "older_epochs",
        "a commit applies to the snapshot that its manifest knows: at least one of the two guards before must hold",
        "full-two",
        conditions=("fence_epoch", "snapshot_ahead"),
    ),
    Guard(
        "fence_moves",
        "a commit moves the fence to its own token and epoch",
        "two",
        needless="a takeover raises the fence itself, and nobody else can have a commit in flight",
    ),
    Guard(
        "snapshot_fences",
        "a snapshot's commit moves the fences of all feeds to its epoch",
        "full-two",
        needless="the snapshot's entry in the ledger also refuses an older epoch",
    ),
    Guard(
        "epoch_unused",
        "a snapshot's commit requires an epoch in which nothing was applied to the feeds that it covers",
        "restore-epoch",
    ),
    Guard("applied", "a commit requires a position beyond the newest applied position", "restore-skip"),
    Guard("marker", "an item that is in the ledger is not applied again", "restore-append"),
    Guard(
        "applied_first",
        "the commit of items that are loaded together requires a position beyond the applied position for the first of them",
        "together-restore",
        needless="the believed record and the ledger refuse the same loads",
    ),
    # The chain
    Guard(
        "chain", "a commit requires that the fence names the record that the manifest believes was applied last", "rewind-crash"
    ),
    Guard(
        "chain_in_settle",
        "the ledger's answer on an item counts only if the ledger has the record that the manifest believes",
        "rewind-settle",
    ),
    Guard("believe_with_complete", "complete stores the ledger's record as believed, in its own transaction", "rewind-crash"),
    Guard("free_first", "reconcile frees every item that the ledger lacks before it believes the sink again", "rewind-crash"),
    Guard("sweep_freed", "items that reconcile freed behind the watermark are examined again before the next claim", "rewind"),
    Guard(
        "reopened_in_place",
        "an item reopened behind the watermark is loaded in its place, if the sink is not past it",
        "rewind",
        patches=((Item, "is_reopened_for", lambda *_: False),),
    ),
    Guard(
        "adopt_in_reconcile",
        "reconcile reopens items that are in the ledger and not done in the manifest",
        "rewind",
        patches=((reconcile, "_is_free", lambda *_: False),),
    ),
    Guard("lease_in_free", "freeing an item requires the newest lease", "rewind"),
    Guard(
        "lease_in_believe_sink",
        "believing a sink requires the newest lease",
        "rewind",
        needless="the write is conditional on the believed record, which another reconcile or load has changed",
    ),
    Guard(
        "lease_in_believe",
        "believing a later record requires the newest lease",
        "rewind-restore",
        needless="the fence names the same record to everybody, and the write is conditional on the believed record",
    ),
    Guard("instead_of", "a change of the believed record requires that the record read before is still believed", "rewind"),
    # What a worker does, and in which order
    Guard(
        "serving_in_marker",
        "the ledger is asked for every epoch that still serves, not only for the load's own epoch",
        "full-one",
        patches=((loading, "_counts_from", lambda state, _step, _feed: state.epoch),),
    ),
    Guard(
        "seen_in_marker",
        "for a snapshot, the ledger is asked from the epoch that was begun for it",
        "full-one",
        patches=((loading, "_counts_from", lambda state, _step, feed: state.feed(feed).serving_epoch),),
    ),
    Guard("serving_in_load", "a load counts as late only by a late mark of an epoch that still serves", "full-late"),
    Guard("raise_fence", "the fence is raised before the ledger is asked", "two"),
    Guard(
        "ask_when_unclear",
        "after a COMMIT without an answer the ledger is asked before anything is recorded",
        "order",
        patches=((loading, "settling", _abandons_unasked),),
    ),
    Guard("current", "a new holder settles the current item of the lease's row before anything else", "two"),
    Guard(
        "through",
        "a new holder settles all items that were claimed together before anything else",
        "together",
        needless="an open item stops the feed in its place, where it is settled, and its worker is fenced by then",
    ),
    Guard(
        "complete_in_order",
        "items that were loaded together are completed in their order",
        "together",
        patches=((catching_up, "_parts", _parts_reversed),),
    ),
    Guard(
        "adopt_unexamined",
        "adopting an item that was claimed together with others counts nothing more as examined",
        "together-three",
        patches=((transitions, "_after", _adopts_as_examined),),
    ),
    Guard(
        "follow",
        "an item is loaded together with the next item only if nothing between them is left to do",
        "together-shred",
        patches=((Manifest, "following", _follows_anything),),
    ),
    Guard(
        "raise_token",
        "the holder of the newest lease takes it again, above a fence with a newer token",
        "restore-skip",
        needless="each lease has a higher token than the lease before, so a later lease passes the fence by itself",
        rest=True,
    ),
    Guard("defer", "an item that the sink is past becomes late, and does not fail", "restore-skip"),
    Guard("read_back", "after an unclear answer the writer looks for its own record", "answers"),
    # Conditions of the manifest's writes
    Guard("lease_in_acquire", "a lease is taken over the version that was read", "two"),
    Guard("lease_in_claim", "a claim requires the newest lease", "two"),
    Guard(
        "lease_in_adopt",
        "adopt requires the newest lease",
        "two",
        needless="an item in the ledger is done, whoever records it; the order rests on record and state",
    ),
    Guard("lease_in_abandon", "abandon requires the newest lease", "two"),
    Guard(
        "lease_in_cancel",
        "canceling a full load requires the newest lease of its feed",
        "full-one",
        needless="a newer holder's work on the snapshot takes the snapshot's next record number",
    ),
    Guard("check_in_discover", "a directory is in order only if the watermark is still the watermark that was read", "three"),
    Guard("check_in_claim", "a claim is conditional on the state that was read", "rewind"),
    *(
        Guard(f"state_in_{one}", f"{one} is conditional on the state that was read", configuration)
        for one, configuration in (
            ("discover", "three"),
            ("complete", "two-append"),
            ("adopt", "two-append"),
            ("defer", "restore-skip"),
            ("sweep", "full-two"),
            ("skip", "two-append"),
            ("unskip", "two-append"),
            ("begin", "full-one"),
            ("cancel", "full-skip"),
        )
    ),
    Guard(
        "next_record",
        "a record is put only under the item's next number, where no record exists",
        "shred",
        conditions=tuple(f"record_in_{one}" for one in OPERATIONS),
    ),
    Guard(
        "pending_row",
        "a waiting row is added only if absent, and removed only if present",
        "two-append",
        needless="the rows follow from the log, whose next number the same transaction takes",
    ),
    # Rules of the product
    Guard("open_claim", "a claim ends once", "two", patches=((transitions, "_require_open", lambda *_: None),)),
    Guard(
        "epoch_in_complete",
        "complete requires the epoch of the claim",
        "full-two",
        patches=((transitions, "complete", _completes_in_any_epoch),),
    ),
    Guard(
        "mode_in_complete",
        "complete requires the mode of the claim",
        "full-one",
        needless="every full load has its own epoch, which complete checks too; an adopted load is true in any mode",
        patches=((transitions, "complete", _completes_in_any_mode),),
    ),
    Guard(
        "epoch_in_adopt",
        "adopt uses the ledger's epoch, not the newest epoch",
        "full-skip",
        patches=((transitions, "complete", _adopts_in_its_own_epoch),),
        rest=True,
    ),
    Guard(
        "order",
        "a strict step takes the earliest item that is not done, or nothing",
        "two",
        patches=_everywhere("choose", _chooses_any),
    ),
    Guard("gap", "an item starts where the item before it stopped", "gap", patches=_everywhere("choose", _chooses_over_gaps)),
    Guard(
        "upstream",
        "an item is loaded only after it is shredded",
        "shred",
        patches=_everywhere("judge", _judges_without_upstream),
    ),
    Guard(
        "mode_in_choice",
        "while a full load is in progress nothing else is claimed",
        "full-one",
        patches=(*_everywhere("choose", _chooses_in_any_mode), (transitions, "claim", _claims_in_any_mode)),
    ),
    Guard(
        "sweep",
        "the positions that the watermark jumped over are examined again",
        "two",
        patches=((transitions, "_advance", _advances_without_sweep),),
    ),
    Guard(
        "serving_in_done",
        "work of an epoch that ended does not count",
        "full-two",
        patches=((Item, "processed_by", _processed_in_any_epoch),),
    ),
    Guard(
        "serving_in_blocker",
        "work of an epoch that ended does not block",
        "full-two",
        patches=((Item, "blocker", _blocked_in_any_epoch),),
    ),
    Guard(
        "serving_in_late",
        "a late mark of an epoch that ended does not count",
        "full-late",
        patches=((Item, "is_late_for", _late_in_any_epoch),),
    ),
    Guard(
        "seen_by",
        "for a snapshot, only work since it was begun counts",
        "full-one",
        needless="without it, a loaded or failed snapshot is refused when it is begun again, and nothing worse happens",
        patches=((StepState, "seen_by", lambda self, _, name: self.feed(name)),),
    ),
    Guard(
        "boundary",
        "items that the snapshot contains are not loaded",
        "full-three",
        patches=_everywhere("judge", _judges_without_boundary),
    ),
    Guard(
        "begin_epoch",
        "a full load begins a new epoch",
        "full-one",
        patches=((transitions, "begin_full_load", _begins_no_epoch),),
    ),
    Guard(
        "begin_ready",
        "only a snapshot that can be loaded is begun",
        "full-skip",
        patches=((transitions, "begin_full_load", _begins_with_anything),),
    ),
    Guard(
        "late_mark",
        "an item registered behind the watermark is marked late",
        "three",
        patches=((transitions, "discover", _discovers_as_new),),
    ),
    Guard(
        "late_beyond_boundary",
        "an item that a snapshot contains is not late",
        "full-one",
        patches=((transitions, "comes_late", transitions._is_behind),),
    ),
    Guard(
        "begin_once",
        "only one full load is in progress at a time",
        "full-one",
        patches=((transitions, "begin_full_load", _begins_twice),),
    ),
    Guard(
        "cancel_settled",
        "a full load is canceled only when the outcome of its commit is known",
        "full-one",
        patches=((transitions, "cancel_full_load", _cancels_open),),
    ),
    Guard(
        "skip_settled",
        "an item that is being processed is not skipped",
        "shred-skip",
        patches=((transitions, "skip", _skips_open),),
    ),
    Guard(
        "skip_snapshot",
        "a snapshot whose full load is in progress is not skipped",
        "full-skip",
        patches=((transitions, "skip", _skips_the_snapshot),),
        rest=True,
    ),
    Guard(
        "resolve_settled",
        "an item that is being processed is not resolved",
        "answers",
        patches=((transitions, "resolve", _resolves_open),),
    ),
    Guard(
        "reopen_settled",
        "an item that is being processed is not reopened",
        "accept-item",
        patches=((transitions, "reopen", _reopens_open),),
    ),
    Guard(
        "accept_as_read",
        "a rewritten directory is accepted only while its item is unchanged since it was read",
        "accept-item",
        patches=((Manifest, "reopen", _reopens_what_came_to_be),),
    ),
    Guard(
        "accept_not_loaded",
        "other content is not accepted for a loaded item",
        "accept-item",
        patches=((accept, "is_loaded", lambda *_: False),),
    ),
    Guard(
        "accept_reshreds",
        "an accepted directory is shredded again",
        "accept-item",
        patches=((Manifest, "reopen", _reopens_nothing),),
    ),
    Guard(
        "reload_settled",
        "an item that is being processed is not reloaded",
        "reload",
        needless="an item that is done is not being processed, and an item that waits to be reloaded is not reloaded again",
        patches=((transitions, "reload", _reloads_open),),
    ),
    Guard("reload_removes", "a reload removes the rows that it replaces", "reload"),
    Guard(
        "reload_keeps_place",
        "a reload goes behind the sink's position, and leaves it",
        "reload",
        patches=((rules, "replacing", lambda load, _: load),),
    ),
    Guard(
        "reload_counts",
        "an entry of the ledger from before a reload was asked for does not count",
        "reload",
        patches=((rules, "counts", lambda _, entry: entry is not None),),
    ),
    Guard(
        "reload_in_settle",
        "nor does it when a dead worker's reload is settled",
        "reload-twice",
        patches=((loading, "is_applied", lambda *given: given[-1] is not None),),
    ),
    Guard(
        "reload_in_reconcile",
        "nor does it when a sink that was set back is reconciled",
        "reload-rewind",
        patches=((reconcile, "is_applied", lambda *given: given[-1] is not None),),
    ),
    Guard(
        "reload_waits",
        "an item that waits to be reloaded has a waiting row, because no step looks behind the watermark",
        "reload",
        patches=((FeedState, "has_waiting", property(lambda self: bool(self.late))),),
    ),
    Guard(
        "reload_in_order",
        "an item that the sink lacks is not loaded before its turn because it waits to be reloaded",
        "reload-rewind",
        patches=((dataset, "_choose_late", _chooses_reloads_first),),
    ),
    Guard("replay_unchanged", "lines are replayed only while their item is unchanged since they were chosen", "replay"),
    Guard(
        "archive_age",
        "only items older than the longest possible step are archived, so that nobody still works from their records",
        "archive",
    ),
    Guard(
        "unskip_late",
        "an item unskipped behind the watermark is late",
        "three",
        patches=((transitions, "unskip", _unskips_as_new),),
    ),
    Guard(
        "unskip_order",
        "a feed that quarantines accepts no item behind its watermark",
        "three",
        patches=((transitions, "unskip", _unskips_in_quarantine),),
    ),
]
"""Every guard of the protocol, the redundant guards included."""
