"""The part of a source that can have bad lines read again: each line is complete by itself, whatever file it is in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from manifest_platform.manifest import Landed


class Replays(ABC):
    """Bad lines of a source that are read again, as a directory of their own.

    A source that has replays shreds the lines of `Directory.replayed` as bad rows.
    """

    @abstractmethod
    def parses(self, lines: Sequence[bytes]) -> list[bool]:
        """Returns for each line, given without its line end, whether it is good now. Raises the errors of shredding."""

    @abstractmethod
    def name(self, at: datetime, digest: str) -> str:
        """Returns the name of a directory of replayed lines that has a logical time. `digest`: distinguishes their content."""

    @abstractmethod
    def write(self, uri: str, lines: Sequence[bytes]) -> Landed:
        """Writes a complete directory with these lines, and returns it as it will be registered. Repeatable."""

    @abstractmethod
    def read(self, uri: str) -> Landed:
        """Returns a directory that `write` wrote, as it will be registered. Raises OSError if it is gone."""
