"""The doctor: what is wrong with a dataset, by its log, its warehouse and its objects; and mending what is safe.

Of its parts, `findings` is the vocabulary, `fold` what the log adds up to (pure); `log`, `sink` and `objects` look, and
`merged` is about what merging wrote, `outside` about the store's own objects, `repair` mends by the manifest's own operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from manifest_platform.operations.doctor import log, merged, outside, repair, sink, spooled
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
"""What must be settled before objects are removed: records that name them may be missing."""

__all__ = ["GRACE", "Diagnosis", "Doctor", "Finding", "Kind"]


@dataclass
class Doctor:
    """Examines and mends one pipeline.

    `warehouse`, `objects`: whether to look there. `grace`: how old objects must be that nothing names; None: GRACE for shredded
    ones, `merging.garbage.GRACE` for merged ones. `patience`: for how many seconds a locked warehouse is waited for. `done`:
    what was mended. `read`: of so many bytes of shredded objects the checksums are compared. `told`: is told how far it is.
    """

    pipeline: Pipeline
    warehouse: bool = True
    objects: bool = True
    grace: timedelta | None = None
    patience: float = 5.0
    read: int = 0
    told: Callable[[str], None] | None = None
    done: list[str] = field(default_factory=list)

    def examine(self) -> Diagnosis:
        """All that is wrong; changes nothing. What cannot be reached is a finding. Raises StoreError."""
        diagnosis, _ = self._examine()
        return self._with_merged(diagnosis)

    def _with_merged(self, diagnosis: Diagnosis) -> Diagnosis:
        if not (self.objects and self.pipeline.feeds):
            return diagnosis
        found = chain(unmerged(self.pipeline), merged.examine(self.pipeline, datetime.now(UTC), self.grace))
        return Diagnosis(diagnosis.items, [*diagnosis.findings, *found, *spooled.examine(), *outside.examine(self.pipeline)])

    def _examine(self) -> tuple[Diagnosis, States]:
        now = datetime.now(UTC)
        pipeline, manifest = self.pipeline, self.pipeline.manifest
        own = timedelta(seconds=pipeline.config.lease.seconds)
        grace = GRACE if self.grace is None else self.grace
        watchers: list[Watcher] = []
        if self.objects and pipeline.feeds:
            watchers = [ObjectsWatcher(pipeline, now, grace), CapturesWatcher(pipeline, now, grace)]
            watchers.append(OutputWatcher(pipeline, self.read, self.told))
        if not (self.warehouse and pipeline.feeds):
            return log.examine(manifest, now, {SHRED: own, LOAD: own}, tuple(watchers))
        try:
            with self._reader() as warehouse:
                watchers.append(LedgerWatcher(pipeline, warehouse, now))
                diagnosis, states = log.examine(manifest, now, {SHRED: own, LOAD: own}, tuple(watchers))
                diagnosis.findings += sink.shadows(pipeline, warehouse, now)
                return diagnosis, states
        except WarehouseError as error:
            diagnosis, states = log.examine(manifest, now, {SHRED: own, LOAD: own}, tuple(watchers[:-1]))
            place = pipeline.config.warehouse.place
            diagnosis.findings.append(Finding(Kind.UNCHECKED, str(error), EXAMINE, step=LOAD, place=place))
            return diagnosis, states

    def _reader(self) -> closing[Warehouse]:
        """The dataset's warehouse, only for reading; somebody else's lock is waited for, as long as our patience lasts."""
        from manifest_platform.warehouse.apply import open_warehouse

        config, dataset = self.pipeline.config, self.pipeline.name
        return closing(open_warehouse(config.warehouse, dataset, read_only=True, patience=self.patience))

    def repair(self) -> Diagnosis:
        """Mends what is safe to mend; what it returns is wrong still. Raises StoreError, WarehouseError, LandingError.

        Rows of an older release are taken over first: what is mended rests on rows as they are read.
        """
        upgrade(self.pipeline)
        for pass_ in (self._settle, self._rewrite, self._adopt):
            diagnosis, states = self._examine()
            if diagnosis.healthy:
                return self._with_merged(diagnosis)
            self.done += pass_(diagnosis, states)
        return self.examine()

    def _settle(self, diagnosis: Diagnosis, _states: States) -> Iterator[str]:
        """Dead claims come first: what they end as is counted afterwards."""
        pipeline = self.pipeline
        try:
            yield from repair.end_dead_claims(pipeline.manifest, diagnosis.findings, pipeline.lease, partial(settle, pipeline))
        finally:
            pipeline.warehouse.close()

    def _rewrite(self, diagnosis: Diagnosis, states: States) -> Iterator[str]:
        yield from repair.restate(self.pipeline.manifest, states)
        yield from repair.rewrite_rows_beside(self.pipeline.manifest, diagnosis.findings)

    def _adopt(self, diagnosis: Diagnosis, _states: States) -> Iterator[str]:
        kinds = {finding.kind for finding in diagnosis.findings}
        if Kind.UNKNOWN in kinds:
            found = discover(self.pipeline, everything=True)
            yield f"discovered {len(found.registered)} directories that the manifest did not know"
        if kinds & {Kind.UNKNOWN, Kind.UNRECORDED}:
            # A snapshot that nobody recorded is no matter of order: its full load is begun again.
            in_order = [feed for feed in self.pipeline.feeds if self.pipeline.manifest.step(feed, LOAD).order == "strict"]
            with self._reader() as warehouse:
                missing = {
                    feed: repair.missing_entries(self.pipeline, feed, warehouse, diagnosis.findings) for feed in in_order
                }
            try:
                for feed, entries in missing.items():
                    yield from repair.adopt(self.pipeline, feed, entries)
            finally:
                self.pipeline.warehouse.close()

    def clean(self, diagnosis: Diagnosis) -> Diagnosis:
        """Removes what an examination found that nothing names, and folders of dead processes; what it returns is wrong still.

        Removes none where the examination does not show the whole manifest, and none of runs that it does not know.
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
        """Drops the tables that full loads left behind, under the lease of snapshots: nobody makes any meanwhile."""
        if not any(one.kind is Kind.SHADOW for one in diagnosis.findings):
            return diagnosis
        try:
            with self.pipeline.lease(self.pipeline.source.snapshots or "", LOAD):
                self.done += [f"dropped table {name}" for name in self.pipeline.warehouse.drop_leftovers()]
        finally:
            self.pipeline.warehouse.close()
        return Diagnosis(diagnosis.items, [one for one in diagnosis.findings if one.kind is not Kind.SHADOW])

    def _without_outside(self, diagnosis: Diagnosis) -> Diagnosis:
        """Notes objects outside the store that no row names, and removes those that were noted long enough ago."""
        if self.objects:
            self.done += outside.clean(self.pipeline)
        return Diagnosis(diagnosis.items, [one for one in diagnosis.findings if one.kind is not Kind.OUTSIDE])

    def _without_spool(self, diagnosis: Diagnosis) -> Diagnosis:
        """Removes the folders of dead processes, which no manifest has to do with."""
        results = list(spooled.clean(one for one in diagnosis.findings if one.kind is Kind.SPOOL))
        self.done += [result for result in results if isinstance(result, str)]
        left = [one for one in diagnosis.findings if one.kind is not Kind.SPOOL]
        return Diagnosis(diagnosis.items, [*left, *(result for result in results if isinstance(result, Finding))])


def _kept(diagnosis: Diagnosis) -> Finding | None:
    """Why no objects may be removed, and what is to be done first; None where they may."""
    if not diagnosis.items:
        cause = "the manifest has no items: see first that the configuration names the right store, and put its rows back"
        return Finding(Kind.KEPT, cause, Remedy(Action.SHOW_STATUS), place="--clean")
    for one in diagnosis.findings:
        if one.kind in HINDRANCES:
            cause = f"records may be missing that name objects ({one.subject}: {one.kind}). Settle that first"
            return Finding(Kind.KEPT, cause, one.remedy, place="--clean")
    return None
