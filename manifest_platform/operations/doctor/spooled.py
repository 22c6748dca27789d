"""What processes of this machine put aside and could not remove, for they were killed: folders of inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from manifest_platform import spool
from manifest_platform.operations.doctor.findings import CLEAN, Finding, Kind


def examine() -> Iterator[Finding]:
    """The folders whose process is dead. They hold nothing that is not elsewhere."""
    for one in spool.abandoned():
        yield Finding(Kind.SPOOL, f"its process died, and nobody reads it: {one.bytes:,} bytes", CLEAN, place=str(one.path))


def clean(found: Iterable[Finding]) -> Iterator[str | Finding]:
    """Removes folders that are still nobody's; says what it did, and what is left."""
    for one in found:
        try:
            if spool.remove(Path(one.place)):
                yield f"removed {one.place}"
        except FileNotFoundError:
            continue
        except OSError as error:
            yield Finding(Kind.SPOOL, f"it could not be removed: {error}", CLEAN, place=one.place)
