"""The command line as a process some days later, so that what retention and housekeeping delete by age is old at once."""

from __future__ import annotations

import functools
import sys
from datetime import UTC, datetime, timedelta

from manifest_platform.cli import main
from manifest_platform.pipeline import Pipeline

DAYS = 5


def _then() -> datetime:
    return datetime.now(UTC) + timedelta(days=DAYS)


if __name__ == "__main__":
    setattr(Pipeline, "__init__", functools.partialmethod(Pipeline.__init__, clock=_then))  # noqa: B010
    sys.exit(main(sys.argv[1:]))
