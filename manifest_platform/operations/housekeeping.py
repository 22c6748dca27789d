"""Housekeeping: removes data that grows with every run and that nothing needs, once it is older than configured.

Belongs here: the list of chores, their order, and the result of each. Each chore is an operation of its own and idempotent;
a chore that cannot run now does not stop the others. Dagster's own storage is pruned by `orchestration.housekeeping`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from manifest_platform.manifest import ClaimLost, LeaseBusy, Refused, StoreError
from manifest_platform.merging import garbage
from manifest_platform.merging.errors import MergeError
from manifest_platform.merging.settling import settle_rows
from manifest_platform.operations.archive import archive_dataset
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.doctor.findings import Kind
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.events import Tidied
from manifest_platform.pipeline.merge import Merging
from manifest_platform.pipeline.upkeep import tidied, without_old_rows
from manifest_platform.warehouse.errors import WarehouseError

PATIENCE_S = 60.0
"""The time to wait for a warehouse that others have locked, in seconds. Without its ledger no attempt is removed."""

HINDERS = (ClaimLost, LeaseBusy, MergeError, OSError, Refused, StoreError, WarehouseError)
"""Errors that prevent a chore for now. The next housekeeping tries it again."""


_REMOVABLE = (Kind.ORPHAN, Kind.SPOOL, Kind.SHADOW, Kind.OUTSIDE)


@dataclass(frozen=True)
class Chore:
    """The result of a chore, or of its dry run: numbers of removed things by name.

    `off`: the reason why the chore is disabled here. `hindered`: the reason why it could not run now, or not completely.
    `wrong`: findings that housekeeping does not repair.
    """

    name: str
    removed: dict[str, int] = field(default_factory=dict)
    off: str = ""
    hindered: str = ""
    wrong: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if there was anything to remove."""
        return any(self.removed.values())


def keep_house(pipeline: Pipeline, dry_run: bool = False) -> Iterator[Chore]:
    """Runs every chore of a dataset and yields each result. `dry_run`: reports what would be removed, and removes nothing.

    Idempotent, and safe to interrupt at any time. If nothing is old enough, nothing is written.
    """
    for name, chore in _CHORES.items():
        try:
            yield chore(name, pipeline, dry_run)
        except HINDERS as error:
            yield Chore(name, hindered=str(error))


def _attempts(name: str, pipeline: Pipeline, dry_run: bool) -> Chore:
    """Removes objects of attempts that no record names, tables of ended full loads, and folders of dead processes."""
    hours = pipeline.config.housekeeping.attempts_hours
    if hours is None:
        return Chore(name, off="housekeeping.attempts_hours is null")
    doctor = Doctor(pipeline, grace=timedelta(hours=hours), patience=PATIENCE_S)
    found = doctor.examine()
    found.findings = [one for one in found.findings if one.kind is not Kind.SUPERSEDED]  # these have their own chore
    removable = [one for one in found.findings if one.kind in _REMOVABLE and (one.key or one.kind is not Kind.ORPHAN)]
    left = [one for one in found.findings if one not in removable] if dry_run else doctor.clean(found).findings
    kept = [one.cause for one in left if one.kind is Kind.KEPT]
    wrong = tuple(f"{one.subject}: {one.kind}" for one in left if one.kind is not Kind.KEPT)
    return Chore(name, {"places": len(removable) if dry_run else len(doctor.done)}, hindered="; ".join(kept), wrong=wrong)


def _superseded(name: str, pipeline: Pipeline, dry_run: bool) -> Chore:
    """Removes merged objects that were replaced, and the versions that named them."""
    days = pipeline.dataset.retention.merged_days
    hours = pipeline.config.housekeeping.merged_hours if days is None else 24 * days
    if pipeline.dataset.merge is None or hours is None:
        return Chore(name, off=_off(pipeline, "merged_hours"))
    merging = Merging(pipeline)
    where = merging.inventory, merging.output, merging.clock(), timedelta(hours=hours)
    found = garbage.find(*where)
    if found and not dry_run:
        found = list(garbage.remove(*where))
    counts = {
        "objects": sum(len(one.objects) for one in found),
        "manifest files": sum(len(one.manifests) for one in found),
        "versions": sum(len(one.versions) for one in found),
        "bytes": sum(one.bytes for one in found),
    }
    return Chore(name, counts)


def _merge_rows(name: str, pipeline: Pipeline, dry_run: bool) -> Chore:
    """Removes rows of small objects that merged objects contain, and rows of finished merge jobs."""
    days = pipeline.config.housekeeping.merge_rows_days
    if pipeline.dataset.merge is None or days is None:
        return Chore(name, off=_off(pipeline, "merge_rows_days"))
    merging = Merging(pipeline)
    found = settle_rows(merging.inventory, merging.clock() - timedelta(days=days), dry_run)
    return Chore(name, {"rows of small objects": found.batches, "rows of jobs": found.jobs})


def _archive(name: str, pipeline: Pipeline, dry_run: bool) -> Chore:
    """Moves the records of finished items to Parquet files."""
    days = pipeline.config.housekeeping.archive_days
    if days is None:
        return Chore(name, off="housekeeping.archive_days is null")
    if pipeline.config.manifest.archive is None:
        return Chore(name, off="manifest.archive is not set")
    found = archive_dataset(pipeline, timedelta(days=days), dry_run)
    return Chore(name, {"items": found.items, "records": found.records})


def _old_rows(name: str, pipeline: Pipeline, dry_run: bool) -> Chore:
    """Removes old rows of the warehouses' tables."""
    if not pipeline.dataset.load.retention:
        return Chore(name, off="load.retention has no table")
    return _chore(name, "rows", without_old_rows, pipeline, dry_run)


def _tidied(name: str, pipeline: Pipeline, dry_run: bool) -> Chore:
    """Does what tables of the warehouses need that no drain had the time for."""
    if not any(target.engine_settings.upkeep.actions for target in pipeline.each_target()):
        return Chore(name, off="no warehouse has upkeep.actions")
    return _chore(name, "actions", tidied, pipeline, dry_run)


def _chore(name: str, what: str, does: Callable[[Pipeline, bool], list[Tidied]], pipeline: Pipeline, dry_run: bool) -> Chore:
    removed: dict[str, int] = {}
    hindered: list[str] = []
    for target in pipeline.each_target():
        for one in does(target, dry_run):
            key = f"{what} of {one.table}" + (f" in {target.target}" if len(pipeline.targets) > 1 else "")
            if one.why_not:
                hindered.append(f"{one.action} of table {one.table or '(any)'}: {one.why_not}")
            else:
                removed[key] = removed.get(key, 0) + (one.rows if what == "rows" else 1)
        target.let_go()
    return Chore(name, removed, hindered="; ".join(hindered))


def _off(pipeline: Pipeline, key: str) -> str:
    return "the dataset is not merged" if pipeline.dataset.merge is None else f"housekeeping.{key} is null"


_CHORES: dict[str, Callable[[str, Pipeline, bool], Chore]] = {
    "attempts": _attempts,
    "superseded merged objects": _superseded,
    "rows of merging": _merge_rows,
    "archive": _archive,
    "old rows": _old_rows,
    "upkeep": _tidied,
}
