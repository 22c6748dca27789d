"""The doctor: finds faults of a dataset in its log, its warehouse and its objects, and repairs those that are safe to repair.

`findings` is the vocabulary, and `fold` derives states from the log (pure). `log`, `sink`, `objects`, `output` and `captures`
examine items; `merged`, `memory`, `outside` and `spooled` examine other data. `repair` uses the manifest's own operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from manifest_platform.manifest import Abandoned, Lease, State
from manifest_platform.operations import bad_replay
from manifest_platform.operations.bad_rows import NEWEST
from manifest_platform.operations.doctor import log, memory, merged, outside, repair, sink, spooled
from manifest_platform.operations.doctor.captures import CapturesWatcher
from manifest_platform.operations.doctor.findings import EXAMINE, Diagnosis, Finding, Kind
from manifest_platform.operations.doctor.log import States, Watcher
from manifest_platform.operations.doctor.objects import GRACE, ObjectsWatcher, clean
from manifest_platform.operations.doctor.output import OutputWatcher, unmerged
from manifest_platform.operations.doctor.sink import LedgerWatcher
from manifest_platform.operations.upgrade import upgrade
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.loading import settle
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.errors import WarehouseError

if TYPE_CHECKING:
    from manifest_platform.warehouse.apply import Warehouse

HINDRANCES = (Kind.UNREADABLE, Kind.UNCHECKED, Kind.UNKNOWN, Kind.UNRECORDED)
"""Findings that must be settled before objects are removed, because records that name these objects may be missing."""

__all__ = ["GRACE", "Diagnosis", "Doctor", "Finding", "Kind"]


@dataclass
class Doctor:
    """Examines and repairs one pipeline.

    `warehouse`, `objects`: whether to examine these. `grace`: the minimum age of unnamed objects; None means GRACE for shredded
    objects and `merging.garbage.GRACE` for merged ones. `patience`: the seconds to wait for a locked warehouse. `read`: the
    bytes of shredded objects whose checksums are compared. `told`: is called with the progress. `done`: a line for each repair.
    `target`: the only target to examine; by default all of them.
    """

    pipeline: Pipeline
    warehouse: bool = True
    objects: bool = True
    grace: timedelta | None = None
    patience: float = 5.0
    read: int = 0
    told: Callable[[str], None] | None = None
    done: list[str] = field(default_factory=list)
    target: str | None = None

    @property
    def targets(self) -> list[Pipeline]:
        """The targets to examine."""
        return [one for one in self.pipeline.each_target() if self.target in (None, one.target)]

    def notes(self) -> list[str]:
        """Returns what is worth knowing and not wrong: removed targets, and remarks on tables of the newest items."""
        pipeline = self.pipeline
        kept = pipeline.manifest.states_of(LOAD)
        records = chain.from_iterable(pipeline.manifest.newest(feed, NEWEST, State.PROCESSED) for feed in pipeline.feeds)
        remarks = dict.fromkeys(remark for record in records for remark in record.data.get("remarks", ()))
        removed = [
            f"the state of {name} remains of a target that is not configured any more; it is not loaded, and items do not wait"
            " for it"
            for name in kept
            if name not in {one.load.key for one in pipeline.each_target()} and pipeline.feeds
        ]
        deleting = sum(1 for _ in pipeline.manifest.deletions())
        unfinished = (
            [f"retention has begun to delete data of {deleting:,} items: the next `gc` finishes that"] if deleting else []
        )
        return [*removed, *unfinished, *sorted(remarks)]

    def examine(self) -> Diagnosis:
        """Returns everything that is wrong, and changes nothing. An unreachable system is a finding. Raises StoreError."""
        diagnosis, _ = self._examine()
        return self._with_merged(diagnosis)

    def _with_merged(self, diagnosis: Diagnosis) -> Diagnosis:
        if not (self.objects and self.pipeline.feeds):
            return diagnosis
        found = chain(
            memory.examine(self.pipeline),
            unmerged(self.pipeline),
            merged.examine(self.pipeline, datetime.now(UTC), self.grace),
        )
        return Diagnosis(diagnosis.items, [*diagnosis.findings, *found, *spooled.examine(), *outside.examine(self.pipeline)])

    def _examine(self) -> tuple[Diagnosis, States]:
        now = datetime.now(UTC)
        pipeline, manifest = self.pipeline, self.pipeline.manifest
        own = timedelta(seconds=pipeline.config.lease.seconds)
        leases = dict.fromkeys((SHRED, *(one.load.key for one in pipeline.each_target())), own)
        grace = GRACE if self.grace is None else self.grace
        watchers: list[Watcher] = []
        if self.objects and pipeline.feeds:
            watchers = [ObjectsWatcher(pipeline, now, grace), CapturesWatcher(pipeline, now, grace)]
            watchers.append(OutputWatcher(pipeline, self.read, self.told))
        unchecked: list[Finding] = []
        with ExitStack() as opened:
            readers: list[tuple[Pipeline, Warehouse]] = []
            for one in self.targets if self.warehouse and pipeline.feeds else ():
                try:
                    reader = opened.enter_context(self._reader(one))
                    reader.fence_records()
                except WarehouseError as error:
                    unchecked.append(_unchecked(one, error))
                    continue
                watchers.append(LedgerWatcher(one, reader, now))
                readers.append((one, reader))
            try:
                diagnosis, states = log.examine(manifest, now, leases, tuple(watchers))
                for one, reader in readers:
                    diagnosis.findings += sink.shadows(one, reader, now)
            except WarehouseError as error:
                others = tuple(watcher for watcher in watchers if not isinstance(watcher, LedgerWatcher))
                diagnosis, states = log.examine(manifest, now, leases, others)
                unchecked += [_unchecked(one, error) for one, _ in readers]
        diagnosis.findings += unchecked
        return diagnosis, states

    def _reader(self, target: Pipeline) -> closing[Warehouse]:
        """Opens a target for reading. Waits up to `patience` seconds for a lock of another process."""
        from manifest_platform.warehouse.apply import open_warehouse

        return closing(
            open_warehouse(target.engine_settings, target.name, target.schema, read_only=True, patience=self.patience)
        )

    def repair(self) -> Diagnosis:
        """Repairs what is safe to repair, and returns what is still wrong. Raises StoreError, WarehouseError, LandingError.

        Rows of an older release are upgraded first, because repairs depend on rows in the present form.
        """
        upgrade(self.pipeline)
        for pass_ in (self._settle, self._rewrite, self._adopt):
            diagnosis, states = self._examine()
            if diagnosis.healthy:
                return self._with_merged(diagnosis)
            self.done += pass_(diagnosis, states)
        return self.examine()

    def _settle(self, diagnosis: Diagnosis, _states: States) -> Iterator[str]:
        """Ends dead claims. This comes first, because their outcome is counted by the following repairs."""
        pipeline = self.pipeline
        by_step = {one.load.key: one for one in pipeline.each_target()}

        def settle_load(lease: Lease, abandoned: Abandoned) -> object:
            return settle(by_step[lease.application.key], lease, abandoned)

        try:
            yield from repair.end_dead_claims(pipeline.manifest, diagnosis.findings, pipeline.lease, settle_load)
        finally:
            self._close()

    def _close(self) -> None:
        """Closes the targets that were opened."""
        for one in self.targets:
            if "warehouse" in one.__dict__:
                one.warehouse.close()

    def _rewrite(self, diagnosis: Diagnosis, states: States) -> Iterator[str]:
        yield from repair.restate(self.pipeline.manifest, states)
        yield from repair.rewrite_rows_beside(self.pipeline.manifest, diagnosis.findings)

    def _adopt(self, diagnosis: Diagnosis, _states: States) -> Iterator[str]:
        kinds = {finding.kind for finding in diagnosis.findings}
        if Kind.UNKNOWN in kinds:
            found = discover(self.pipeline, everything=True)
            yield f"discovered {len(found.registered)} directories that the manifest did not know"
            yield from self._register_replays(diagnosis)
        if kinds & {Kind.UNKNOWN, Kind.UNRECORDED}:
            for one in self.targets:
                yield from self._adopt_of(one, diagnosis)

    def _register_replays(self, diagnosis: Diagnosis) -> Iterator[str]:
        """Registers the replays that the ledger has. Their lines are in no directory of the landing."""
        loaded = {one.key.name for one in diagnosis.findings if one.kind is Kind.UNKNOWN and one.key}
        for name in bad_replay.unregistered(self.pipeline) if loaded else ():
            if name in loaded:
                bad_replay.register_loaded(
                    self.pipeline, name, "the warehouse has this replay, and the manifest did not know it"
                )
                yield f"registered {name}, a replay that the manifest did not know"

    def _adopt_of(self, target: Pipeline, diagnosis: Diagnosis) -> Iterator[str]:
        # An unrecorded snapshot cannot be recorded in order: its full load must begin again.
        name, manifest = target.load.key, target.manifest
        mine = [one for one in diagnosis.findings if one.step == name]
        in_order = [feed for feed in target.feeds if manifest.step(feed, name).order == "strict"]
        with self._reader(target) as warehouse:
            missing = {feed: repair.missing_entries(target, feed, warehouse, mine) for feed in in_order}
        try:
            for feed, entries in missing.items():
                yield from repair.adopt(target, feed, entries)
        finally:
            self._close()

    def clean(self, diagnosis: Diagnosis) -> Diagnosis:
        """Removes objects that nothing names and folders of dead processes. Returns what is still wrong.

        Removes no objects if the examination could not read the whole manifest, and none of runs that the manifest lacks.
        """
        diagnosis = self._without_outside(self._without_shadows(self._without_spool(diagnosis)))
        orphans = [finding for finding in diagnosis.findings if finding.kind in (Kind.ORPHAN, Kind.SUPERSEDED)]
        if orphans and (kept := _kept(diagnosis)):
            return Diagnosis(diagnosis.items, [*diagnosis.findings, kept])
        left = [one for one in diagnosis.findings if one not in orphans]
        shredded = [finding for finding in orphans if finding.kind is Kind.ORPHAN]
        superseded = [finding for finding in orphans if finding.kind is Kind.SUPERSEDED]
        for result in chain(clean(self.pipeline, shredded), merged.clean(self.pipeline, self.grace, superseded)):
            if isinstance(result, Finding):
                left.append(result)
            else:
                self.done.append(result)
        return Diagnosis(diagnosis.items, left)

    def _without_shadows(self, diagnosis: Diagnosis) -> Diagnosis:
        """Drops the tables that full loads left behind, under the lease of snapshots, so that no full load runs meanwhile."""
        if not any(one.kind is Kind.SHADOW for one in diagnosis.findings):
            return diagnosis
        try:
            for target in self.targets:
                if any(one.kind is Kind.SHADOW and one.step == target.load.key for one in diagnosis.findings):
                    with target.lease(target.source.snapshots or "", target.load.key):
                        self.done += [f"dropped table {name}" for name in target.warehouse.drop_leftovers()]
        finally:
            self._close()
        return Diagnosis(diagnosis.items, [one for one in diagnosis.findings if one.kind is not Kind.SHADOW])

    def _without_outside(self, diagnosis: Diagnosis) -> Diagnosis:
        """Notes objects outside the store that no row names, and removes those that were noted long enough ago."""
        if self.objects:
            self.done += outside.clean(self.pipeline)
        return Diagnosis(diagnosis.items, [one for one in diagnosis.findings if one.kind is not Kind.OUTSIDE])

    def _without_spool(self, diagnosis: Diagnosis) -> Diagnosis:
        """Removes the folders of dead processes, which do not depend on the manifest."""
        results = list(spooled.clean(one for one in diagnosis.findings if one.kind is Kind.SPOOL))
        self.done += [result for result in results if isinstance(result, str)]
        left = [one for one in diagnosis.findings if one.kind is not Kind.SPOOL]
        return Diagnosis(diagnosis.items, [*left, *(result for result in results if isinstance(result, Finding))])


def _unchecked(target: Pipeline, error: WarehouseError) -> Finding:
    return Finding(Kind.UNCHECKED, str(error), EXAMINE, step=target.load.key, place=target.engine_settings.place)


def _kept(diagnosis: Diagnosis) -> Finding | None:
    """Returns the reason why no objects may be removed, and the first remedy; None if they may be removed."""
    if not diagnosis.items:
        cause = "the manifest has no items. Check that the configuration names the right store, and restore its rows if not"
        return Finding(Kind.KEPT, cause, Remedy(Action.SHOW_STATUS), place="--clean")
    for one in diagnosis.findings:
        if one.kind in HINDRANCES:
            cause = f"records that name objects may be missing ({one.subject}: {one.kind}). Settle this finding first"
            return Finding(Kind.KEPT, cause, one.remedy, place="--clean")
    return None
