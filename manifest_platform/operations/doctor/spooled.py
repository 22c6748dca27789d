"""Folders of inputs and outputs that processes of this machine could not remove because they were killed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from manifest_platform import spool
from manifest_platform.operations.doctor.findings import CLEAN, Finding, Kind


def examine() -> Iterator[Finding]:
    """Yields the folders whose process is dead. Their content also exists elsewhere."""
    for one in spool.abandoned():
        yield Finding(Kind.SPOOL, f"its process died, and nobody reads it: {one.bytes:,} bytes", CLEAN, place=str(one.path))


def clean(found: Iterable[Finding]) -> Iterator[str | Finding]:
    """Removes folders that still have no owner. Yields a line for each, or a finding if it failed."""
    for one in found:
        try:
            if spool.remove(Path(one.place)):
                yield f"removed {one.place}"
        except FileNotFoundError:
            continue
        except OSError as error:
            yield Finding(Kind.SPOOL, f"it could not be removed: {error}", CLEAN, place=one.place)
