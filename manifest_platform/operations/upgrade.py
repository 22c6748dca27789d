"""The upgrade of a dataset's rows from an older release: as a dry run, or for real."""

from __future__ import annotations

from manifest_platform.manifest.takeover import TakenOver, Takeover
from manifest_platform.pipeline import Pipeline


def upgrade(pipeline: Pipeline, dry_run: bool = False) -> Takeover | None:
    """Brings the rows of a dataset to the form of this release, as its first write does; None if nothing is left to do.

    Afterward no earlier release works on them. `dry_run`: reports what would be written, and writes nothing. Raises
    NewerRelease if a newer release has upgraded them, Refused while an older release works.
    """
    store = pipeline.manifest.store
    if not isinstance(store, TakenOver):
        raise TypeError(f"the store of a pipeline must be wrapped in TakenOver, and this is a {type(store).__name__}")
    return store.planned(pipeline.name) if dry_run else store.take_over(pipeline.name)
