"""The directories of a feed as a sequence in time: count, first, last, usual distance, and places of missing directories."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from manifest_platform.sources.directories import DirectoryName

_REGULAR = 0.7
"""The share of equal distances from which a sequence counts as regular."""
_LEAST = 4  # distances needed to tell how often directories land


@dataclass(frozen=True)
class Hole:
    """A place with missing directories in a regular sequence: the names around it, and the number missing."""

    after: str
    before: str
    missing: int


@dataclass(frozen=True)
class Sequence:
    """A sequence of directories. `is_all`: true if all were listed. `every`: the usual distance; None if there is none."""

    count: int
    is_all: bool
    first: DirectoryName | None
    last: DirectoryName | None
    every: timedelta | None
    holes: tuple[Hole, ...]

    @classmethod
    def of(cls, names: list[DirectoryName], is_all: bool) -> Sequence:
        """Returns the sequence of names, in their order."""
        if not names:
            return cls(0, is_all, None, None, None, ())
        distances = [later.time - earlier.time for earlier, later in itertools.pairwise(names)]
        every = _usual([one for one in distances if one > timedelta(0)])
        holes = []
        if every:
            for distance, (earlier, later) in zip(distances, itertools.pairwise(names), strict=True):
                if distance >= 2 * every:
                    holes.append(Hole(earlier.name, later.name, round(distance / every) - 1))
        return cls(len(names), is_all, names[0], names[-1], every, tuple(holes))


def _usual(distances: list[timedelta]) -> timedelta | None:
    if len(distances) < _LEAST:
        return None
    [(usual, count)] = Counter(distances).most_common(1)
    return usual if count >= _REGULAR * len(distances) else None
