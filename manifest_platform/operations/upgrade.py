"""Taking a dataset's rows over from an older release: what would be written, and doing it."""

from __future__ import annotations

from manifest_platform.manifest.takeover import TakenOver, Takeover
from manifest_platform.pipeline import Pipeline


def upgrade(pipeline: Pipeline, dry_run: bool = False) -> Takeover | None:
    """Brings the rows of a dataset to the form of this release, as its first write does; None where they are.

    From then on no release before this one works on them. `dry_run`: says what would be written, and writes nothing. Raises
    NewerRelease where a newer release has begun, Refused while an older one works.
    """
    store = pipeline.manifest.store
    if not isinstance(store, TakenOver):
        raise TypeError(f"a pipeline's store is taken over before its first write, and this is a {type(store).__name__}")
    return store.planned(pipeline.name) if dry_run else store.take_over(pipeline.name)
