"""The output of merging: objects and versions that nothing needs, and differences between catalog and manifest.

Belongs here: both as findings. `merging.garbage` decides what is needed and removes the rest; `merging.publish` decides what
the catalog should say, and repairs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from manifest_platform.manifest import LeaseBusy
from manifest_platform.merging import garbage
from manifest_platform.merging.catalogs.catalog import CatalogError
from manifest_platform.merging.errors import MergeError
from manifest_platform.merging.garbage import Garbage
from manifest_platform.merging.publish import PublishSettings, differences
from manifest_platform.operations.doctor.findings import CLEAN, EXAMINE, Finding, Kind
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.merge import Merging
from manifest_platform.remedies import Action, Remedy

VERIFY = Remedy(Action.VERIFY_PUBLISHED)


def examine(pipeline: Pipeline, now: datetime, grace: timedelta | None) -> Iterator[Finding]:
    """Yields the faults in the output of merging; none if the dataset is not merged. An unreachable system is a finding."""
    if pipeline.dataset.merge is None:
        return
    merging = Merging(pipeline)
    try:
        for one in garbage.find(merging.inventory, merging.output, now, _grace(grace)):
            yield Finding(Kind.SUPERSEDED, _what(one), CLEAN, place=one.location)
    except MergeError as error:
        yield Finding(Kind.UNCHECKED, str(error), EXAMINE, place=merging.output)
    try:
        comments = {key: table.comments for key, table in merging.config.tables.items()}
        for one in differences(merging.inventory, merging.catalog(), PublishSettings(merging.output, comments=comments)):
            cause = f"the catalog says {one.found}, and should say {one.expected}"
            remedy = VERIFY
            if one.lost and one.place.day:
                cause = f"{cause}: the manifest no longer has rows of that version"
                remedy = Remedy(Action.REBUILD, table=one.place.table, day=one.place.day)
            yield Finding(Kind.CATALOG, cause, remedy, place=str(one.place))
    except CatalogError as error:
        yield Finding(Kind.UNCHECKED, str(error), VERIFY, place="catalog")


def clean(pipeline: Pipeline, grace: timedelta | None, found: Sequence[Finding]) -> Iterator[str | Finding]:
    """Removes what nothing needs, after looking again. Yields a line for each removal, or a finding if it failed."""
    if not found:
        return
    merging = Merging(pipeline)
    try:
        for one in garbage.remove(merging.inventory, merging.output, datetime.now(UTC), _grace(grace)):
            yield f"removed from {one.location}: {_what(one)}"
    except (MergeError, LeaseBusy) as error:
        yield Finding(Kind.KEPT, str(error), CLEAN, place=merging.output)


def _grace(grace: timedelta | None) -> timedelta:
    return garbage.GRACE if grace is None else grace


def _what(of: Garbage) -> str:
    files = f"{len(of.objects):,} merged objects and {len(of.manifests):,} manifest files, {of.bytes:,} bytes"
    return f"{files}; {len(of.versions):,} versions in the manifest"
