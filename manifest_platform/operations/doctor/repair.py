"""Repairs that are safe: each uses the manifest's own operation for its case, and reports a line.

Belongs here: repairs of the manifest from its log, its leases and the warehouse's ledger. The warehouse's tables are never
written. Only its fence is raised when the claim of a dead worker is settled, as a drain does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from uuid import uuid4

from manifest_platform.manifest import (
    Abandoned,
    Application,
    Blocked,
    ConditionFailed,
    Idle,
    Item,
    ItemKey,
    Lease,
    LeaseBusy,
    Manifest,
    Ready,
    Standing,
    State,
    Step,
)
from manifest_platform.manifest.beside import prefixes, rows_of
from manifest_platform.manifest.keys import PENDING, record_key
from manifest_platform.manifest.store import ABSENT, Check, Delete, Put, Write
from manifest_platform.manifest.transitions import put_state
from manifest_platform.operations.doctor.findings import Finding, Kind
from manifest_platform.operations.doctor.log import States, read_item, rows_there
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.pipeline.loading import is_applied, loaded_payload, settle
from manifest_platform.pipeline.shredding import shredded_bytes
from manifest_platform.warehouse.apply import LedgerEntry, Warehouse, other_content
from manifest_platform.warehouse.errors import OtherContent
from manifest_platform.warehouse.rules import is_same_content


def end_dead_claims(
    manifest: Manifest,
    findings: Sequence[Finding],
    acquire: Callable[[str, str], AbstractContextManager[Lease]],
    settle_load: Callable[[Lease, Abandoned], object] | None = None,
) -> Iterator[str]:
    """Ends dead claims, each under the lease of its step. `settle_load`: asks the warehouse about claims of the load first."""
    claims = [one for one in findings if one.kind is Kind.DEAD_CLAIM and one.repairable and one.key]
    for feed, name in sorted({(one.key.feed, one.step) for one in claims if one.key}):
        try:
            with acquire(feed, name) as lease:
                for finding in claims:
                    if finding.key and (finding.key.feed, finding.step) == (feed, name):
                        yield from _settle(
                            manifest, lease, finding.key, settle_load if Application.parse(name).name == LOAD else None
                        )
        except LeaseBusy as busy:
            yield f"not settled, because somebody works on the feed now: {busy}"


def _settle(
    manifest: Manifest, lease: Lease, key: ItemKey, settle_load: Callable[[Lease, Abandoned], object] | None
) -> Iterator[str]:
    item = manifest.item(key)
    name = lease.application.key
    mine = (one for one in item.open_records() if one.state is State.PROCESSING and one.application.key == name)
    dead = next(mine, None)
    if dead is None:
        return
    if settle_load:
        settle_load(lease, Abandoned(item, dead))
    else:
        manifest.abandon(lease, Abandoned(item, dead))
    ended = [record.state for record in manifest.history(key)[item.sequence :]]
    yield f"{key.name}: the claim of {name} by {dead.author} is ended ({', '.join(ended)})"


def restate(manifest: Manifest, states: States) -> Iterator[str]:
    """Writes the states of ordered steps as derived from the log, unless they changed after the comparison."""
    for name, folded in states.folded.items():
        stored = states.stored[name]
        if not states.settled or (folded == stored):
            continue
        try:
            manifest.store.transact(manifest.dataset, [put_state(Application(name), folded)], str(uuid4()))
        except ConditionFailed:
            yield f"state of {name}: not written, because the step worked meanwhile. Repair again"
            continue
        yield f"state of {name}: counters, watermarks and epochs were written as the log has them"


def rewrite_rows_beside(manifest: Manifest, findings: Sequence[Finding]) -> Iterator[str]:
    """Writes or removes rows beside the log, on condition that the item has not changed since it was read."""
    for finding in findings:
        if finding.kind is not Kind.WAITING_ROW or finding.key is None:
            continue
        key, step = finding.key, manifest.step(finding.key.feed, finding.step)
        try:
            yield from _rewrite(manifest, key, step)
        except ConditionFailed:
            yield f"{key.name}: its rows beside the log were not written, because it changed meanwhile. Repair again"


def _rewrite(manifest: Manifest, key: ItemKey, step: Step) -> Iterator[str]:
    item, name = read_item(manifest, key), step.application.key
    there = {row: version for prefix in prefixes(step, key.feed) for row, version in rows_there(manifest, prefix, key).items()}
    due = rows_of(item, step)
    writes: list[Write] = [Put(row, {}, ABSENT) for row in sorted(due - there.keys())]
    writes += [Delete(row, there[row]) for row in sorted(there.keys() - due)]
    if not writes:
        return
    unchanged = Check(record_key(key, item.sequence + 1), ABSENT)
    manifest.store.transact(manifest.dataset, [*writes, unchanged], str(uuid4()))
    for write in writes:
        yield f"{key.name}: {_said(write, name)}"


def _said(write: Write, name: str) -> str:
    """Describes the effect of a row that was written or removed."""
    if write.sort.startswith(PENDING):
        return f"it waits for {name} again" if isinstance(write, Put) else f"it does not wait for {name} any more"
    return f"status {'reports it' if isinstance(write, Put) else 'no longer reports it'} for {name}"


def adopt(pipeline: Pipeline, feed: str, ledger: Mapping[str, LedgerEntry]) -> Iterator[str]:
    """Records the loads that the ledger has and the manifest lacks, in order. Stops at an item that must be worked on first.

    An item that precedes the newest loaded item and was not loaded is marked late, because the warehouse would refuse it.
    """
    manifest = pipeline.manifest
    newest = max(ledger, default="")
    with pipeline.lease(feed, pipeline.load.key) as lease:
        for verdict in manifest.verdicts(lease):
            if isinstance(verdict, Abandoned):
                settle(pipeline, lease, verdict)
                yield f"{verdict.item.key.name}: the claim of {pipeline.load.key} by {verdict.processing.author} is ended"
            elif isinstance(verdict, Ready | Blocked) and _waits_for_reload(pipeline.load, verdict.item, ledger):
                yield _stopped(verdict)
                return
            elif isinstance(verdict, Ready | Blocked) and (differs := _other_content(verdict, ledger)):
                yield f"{verdict.item.key.name} is not recorded as loaded: {differs}"
                return
            elif isinstance(verdict, Ready) and (entry := ledger.get(verdict.item.key.position)):
                yield from _adopt(pipeline, lease, verdict, entry)
            elif isinstance(verdict, Ready) and verdict.item.key.position < newest and not _is_late(pipeline.load, verdict):
                yield from _defer(manifest, lease, verdict, newest)
            elif isinstance(verdict, Blocked) and verdict.standing is Standing.FAILED and verdict.item.key.position in ledger:
                reason = "the warehouse has it: a later attempt succeeded"
                manifest.resolve(verdict.item.key, reason)
                yield f"{verdict.item.key.name}: resolved, because {reason}"
            else:
                left = not isinstance(verdict, Idle) and any(verdict.item.key.position < position for position in ledger)
                if left:
                    yield _stopped(verdict)
                return


def _waits_for_reload(load: Application, item: Item, ledger: Mapping[str, LedgerEntry]) -> bool:
    """True if an item waits to be reloaded, and the ledger has only the rows that will be replaced."""
    return item.is_reload_asked(load) and not is_applied(item, load, ledger.get(item.key.position))


def _other_content(verdict: Ready | Blocked, ledger: Mapping[str, LedgerEntry]) -> OtherContent | None:
    """Returns the difference if the ledger has an item with other content than what has landed. No repair may ignore this."""
    entry, landed = ledger.get(verdict.item.key.position), verdict.item.landed
    if entry is None or landed is None or is_same_content(landed.checksum, entry):
        return None
    return other_content(verdict.item.key.name, landed.checksum, entry)


def _stopped(verdict: Ready | Blocked) -> str:
    """Describes what must be done before more can be recorded."""
    name = verdict.item.key.name
    if isinstance(verdict, Ready):
        return f"{name} comes next and must be loaded: drain, which then records the following items as loaded"
    return f"{name} comes next and is blocked: {verdict.reason}. Do this first: {verdict.remedy}"


def _is_late(load: Application, ready: Ready) -> bool:
    return ready.item.is_late_for(load, ready.state.feed(ready.item.key.feed).serving_epoch)


def _adopt(pipeline: Pipeline, lease: Lease, ready: Ready, entry: LedgerEntry) -> Iterator[str]:
    with suppress(ConditionFailed):  # the item or the state changed: it is read again
        [claim] = pipeline.manifest.claim(lease, [ready.item], ready.state)
        payload = loaded_payload(entry, shredded_bytes(ready.item))
        pipeline.manifest.adopt(lease, Abandoned(claim.item, claim.processing), entry.epoch, payload, entry.record_id)
        yield f"{ready.item.key.name}: recorded as loaded at {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}, according to the ledger"


def _defer(manifest: Manifest, lease: Lease, ready: Ready, newest: str) -> Iterator[str]:
    with suppress(ConditionFailed):
        [claim] = manifest.claim(lease, [ready.item], ready.state)
        manifest.defer(claim, f"the warehouse is at {ItemKey.at(ready.item.key.feed, newest).name} already, and lacks it")
        yield f"{ready.item.key.name}: marked late, because the warehouse has passed it and lacks it"


def missing_entries(pipeline: Pipeline, feed: str, warehouse: Warehouse, findings: Sequence[Finding]) -> dict[str, LedgerEntry]:
    """Returns a feed's ledger entries by position: those beyond the watermark, and those of items found unrecorded."""
    standing = pipeline.manifest.state(pipeline.load).feed(feed)
    if standing.believed and warehouse.entry_of(standing.believed) is None:
        return {}  # a ledger counts only if it has the record that the manifest believes
    mine = (one for one in findings if one.kind is Kind.UNRECORDED and one.key and one.key.feed == feed)
    unrecorded = {one.key.position for one in mine if one.key}
    entries = warehouse.ledger(feed, standing.serving_epoch)
    return {one.position: one for one in entries if one.position > standing.watermark or one.position in unrecorded}
