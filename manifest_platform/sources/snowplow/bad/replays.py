"""Replays of bad events: their lines are read again by the schemas of today, and become a run of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from manifest_platform import storage
from manifest_platform.manifest import Landed
from manifest_platform.sources.directories import Marker, Settle
from manifest_platform.sources.replays import Replays
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.resolver import Resolver

_AT_ONCE = 2_000  # lines that are read together


class EventReplays(Replays):
    """Replays of events. `landed`: reads a run, and returns it as it will be registered."""

    def __init__(
        self,
        resolver: Resolver,
        rules: Rules,
        completeness: Marker | Settle,
        landed: Callable[[str], Landed],
    ):
        self._resolver, self._rules, self._completeness, self._landed = resolver, rules, completeness, landed

    def parses(self, lines: Sequence[bytes]) -> list[bool]:
        """True for each line that is a good event now. Raises RegistryUnavailable, RegistryRefused."""
        from manifest_platform.sources.snowplow.events.shredder import shred_lines

        good: list[bool] = []
        for start in range(0, len(lines), _AT_ONCE):
            some = lines[start : start + _AT_ONCE]
            shredded = shred_lines(b"".join(line + b"\n" for line in some), self._resolver, rules=self._rules)
            bad = set(shredded.bad["line"].to_pylist())
            good += [number not in bad for number in range(1, len(some) + 1)]
        return good

    def name(self, at: datetime, digest: str) -> str:
        """The name of a run, as streaming jobs give it: a time and a suffix."""
        return f"run={at:%Y-%m-%d-%H-%M-%S}-replay-{digest}"

    def write(self, uri: str, lines: Sequence[bytes]) -> Landed:
        """Writes the lines exactly as they were, then the marker, if runs have one.

        Files that have this content already are left alone: the run's checksum depends on when they were written, and the
        warehouse may know it.
        """
        _write(f"{uri}/part-00000.tsv", b"".join(line + b"\n" for line in lines))
        if isinstance(self._completeness, Marker):
            _write(f"{uri}/{self._completeness.name}", b"")
        return self._landed(uri)

    def read(self, uri: str) -> Landed:
        """Reads the run. Raises FileNotFoundError, OSError."""
        return self._landed(uri)


def _write(uri: str, data: bytes) -> None:
    try:
        if storage.read_bytes(uri) == data:
            return
    except FileNotFoundError:
        pass
    storage.write_bytes(uri, data)
