"""A process that runs retention over a shop, days later: `python -m … CONFIG DAYS`. It prints what it deleted, as JSON."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

from manifest_platform import config
from manifest_platform.operations.retention.run import collect
from manifest_platform.pipeline import Pipeline
from manifest_platform_tests.pipeline.shop import NAME


def main(file: str, days: str) -> None:
    """Runs retention once, with a clock that is ahead by some days."""
    with Pipeline(config.load(file), NAME, clock=lambda: datetime.now(UTC) + timedelta(days=float(days))) as pipeline:
        done = collect(pipeline)
    sys.stdout.write(json.dumps({"finished": done.finished, **{kind: one.items for kind, one in done.tallies.items()}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
