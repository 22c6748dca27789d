"""Progress of a long command, on stderr.

On a terminal it is one line that changes; in a pipe, a line every `EVERY` seconds. With --json there is none, because a program
that reads JSON gets the events.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from manifest_platform import progress
from manifest_platform.cli.output import live, warn

EVERY = 10.0
"""The seconds between two progress lines in a pipe."""
_REDRAWN = 0.5


@contextmanager
def told_how_far(as_json: bool) -> Generator[None]:
    """Reports the progress of the work within the block."""
    if as_json:
        yield
        return
    if sys.stderr.isatty():
        reporter = progress.Reporter(lambda text: live.draw(f"  {text}"), _REDRAWN, live.erase)
    else:
        reporter = progress.Reporter(lambda text: warn(f"  {text}"), EVERY)
    try:
        with progress.reported_by(reporter):
            yield
    finally:
        live.erase()
