"""What a vault's windows are checked for, besides what every source's directories are."""

from __future__ import annotations

from itertools import islice, pairwise

from manifest_platform.manifest import Application, Item, Manifest
from manifest_platform.sources.source import LOAD, CheckResult

NEWEST = 2000
"""How many of the newest windows are looked at: a check that looked at all would cost ever more."""
TOLD = 5


def missing_windows(manifest: Manifest, feed: str) -> CheckResult:
    """Finds the stretches of time that no window of a feed covers, among the newest windows that no snapshot contains."""
    newest = [item for item in islice(manifest.items(feed, reverse=True), NEWEST) if item.landed][::-1]
    boundary = manifest.state(Application(LOAD)).feed(feed).boundary
    missing = [gap for before, after in pairwise(newest) if (gap := _gap(before, after, boundary))]
    return CheckResult(
        passed=not missing,
        description=f"Missing: {'; '.join(missing[:TOLD])}" if missing else "No window is missing.",
        shown={"windows": len(newest), "missing": "; ".join(missing)},
    )


def _gap(before: Item, after: Item, boundary: str) -> str | None:
    """The stretch between two windows that neither covers; none where the snapshot of the boundary does."""
    stop = before.landed.stop if before.landed else None
    start = after.landed.start if after.landed else None
    return f"{stop} to {start}" if stop and start and stop < start and boundary < start else None
