"""Checks of a vault's windows, in addition to those that every source has."""

from __future__ import annotations

from itertools import islice, pairwise

from manifest_platform.manifest import Item, Manifest
from manifest_platform.sources.source import LOAD, CheckResult

NEWEST = 2000
"""The number of newest windows that are checked, so that the cost does not grow with the feed."""
TOLD = 5


def missing_windows(manifest: Manifest, feed: str) -> CheckResult:
    """Finds the gaps between the newest windows of a feed that some target's snapshot does not contain."""
    newest = [item for item in islice(manifest.items(feed, reverse=True), NEWEST) if item.landed][::-1]
    loads = [manifest.state(step.application) for step in manifest.steps(feed) if step.application.name == LOAD]
    boundary = min((state.feed(feed).boundary for state in loads if state.has_begun), default="")
    missing = [gap for before, after in pairwise(newest) if (gap := _gap(before, after, boundary))]
    return CheckResult(
        passed=not missing,
        description=f"Missing: {'; '.join(missing[:TOLD])}" if missing else "No window is missing.",
        shown={"windows": len(newest), "missing": "; ".join(missing)},
    )


def _gap(before: Item, after: Item, boundary: str) -> str | None:
    """Returns the gap between two windows, as `start to stop`; None if there is none or a snapshot covers it."""
    stop = before.landed.stop if before.landed else None
    start = after.landed.start if after.landed else None
    return f"{stop} to {start}" if stop and start and stop < start and boundary < start else None
