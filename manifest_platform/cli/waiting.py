"""What a person sees who waits for a command: how far it is, on stderr.

A terminal has one line that changes; a pipe gets a line every `EVERY` seconds; with --json nothing is told, for what reads that
reads events, too.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from manifest_platform import progress
from manifest_platform.cli.output import live, warn

EVERY = 10.0
"""After how many seconds a pipe is told of the same work."""
_REDRAWN = 0.5


@contextmanager
def told_how_far(as_json: bool) -> Generator[None]:
    """Tells of the work within the block, as the place where stderr goes lets it."""
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
