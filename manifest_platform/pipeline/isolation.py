"""Finds what kills its Spark job, and tells its deaths from those of a cluster that fails.

A job that died does not tell which of its parts was the cause, or whether the cluster was. So it is repeated by halves until a
part dies alone. This is charged to the part only if it dies alone a second time, at the end, and the same session does other
work after each of the two deaths, which is known to be possible. An empty job proves too little: it comes through on a cluster
that loses workers as fast as it starts them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

Part = TypeVar("Part")
Result = TypeVar("Result")


class End(Enum):
    """The meaning of a result for Spark. DONE: Spark did the part. DIED: its job died. LOST: Spark was lost. OTHER: nothing."""

    DONE = auto()
    DIED = auto()
    LOST = auto()
    OTHER = auto()


@dataclass(frozen=True)
class NotCharged:
    """The reason why a part was not done that is not the part's fault, as far as is known."""

    reason: str


class Work(ABC, Generic[Part, Result]):
    """Work whose parts can be done by one Spark job, or by several."""

    name: str
    """The word for the parts, for the log."""

    @abstractmethod
    def run(self, parts: Sequence[Part]) -> list[Result]:
        """Does parts in one Spark job, and returns a result for each. Tasks of an earlier job may still be at work."""

    @abstractmethod
    def end(self, part: Part, result: Result) -> tuple[End, str]:
        """Returns what the result of a part says about Spark, and the message of a death."""

    @abstractmethod
    def control(self) -> bool | None:
        """Does again what was done before. True if Spark does it, False if it dies; None if there is nothing to do again."""

    @abstractmethod
    def title(self, part: Part) -> str:
        """Returns the name of a part for messages."""


class Isolation(Generic[Part, Result]):
    """Does all parts of a work, and isolates those that kill their job."""

    def __init__(self, work: Work[Part, Result]) -> None:
        self._work = work
        self._works: bool | None = None  # whether Spark has done something since the last death
        self._has_control = True  # as far as is known
        self._died_alone: list[tuple[Part, str]] = []
        self._given_up = ""  # why no further job is run

    def results(self, parts: Sequence[Part]) -> Iterator[tuple[Part, Result | NotCharged]]:
        """Yields the result of each part. A death among them is the part's own fault."""
        yield from self._by_halves(parts)
        for part, message in self._died_alone:
            yield part, self._again(part, message)

    def _by_halves(self, parts: Sequence[Part]) -> Iterator[tuple[Part, Result | NotCharged]]:
        """Does parts in one job. If the job dies, it is repeated in two halves, and so on."""
        if self._given_up:
            yield from ((part, NotCharged(self._given_up)) for part in parts)
            return
        results, death = self._job(parts)
        if death is None:
            yield from zip(parts, results, strict=True)
        elif len(parts) == 1:
            self._ask(parts[0], death)
            self._died_alone.append((parts[0], death))
        else:
            log.warning("a Spark job with %s %s died: it is repeated by halves", len(parts), self._work.name)
            half = len(parts) // 2
            yield from self._by_halves(parts[:half])
            yield from self._by_halves(parts[half:])

    def _again(self, part: Part, message: str) -> Result | NotCharged:
        """Does a part once more that died alone, between two other jobs that show whether the cluster works."""
        worked = self._works or (not self._given_up and self._ask(part, message))
        if not self._given_up:
            log.warning("%s died alone: it is done once more", self._work.title(part))
            [result], death = self._job([part])
            if death is None or (self._ask(part, death) and worked):
                return result
            alone = f"{self._work.title(part)} died alone, and no other work shows that the cluster is sound"
            self._given_up = self._given_up or f"{death}; {alone}"
        return NotCharged(self._given_up)

    def _ask(self, part: Part, message: str) -> bool | None:
        """Asks whether the cluster works, after a death. If not, no further job is run."""
        self._works = self._work.control() if self._has_control else None
        self._has_control = self._works is not None
        if self._works is False:
            alone = f"{self._work.title(part)} died alone, and then work that was done before: the cluster is at fault"
            self._given_up = f"{message}; {alone}"
        return self._works

    def _job(self, parts: Sequence[Part]) -> tuple[list[Result], str | None]:
        """Does parts in one job. Returns the results, and the message of its death."""
        results = self._work.run(parts)
        ends = [self._work.end(part, result) for part, result in zip(parts, results, strict=True)]
        if any(end in (End.DIED, End.LOST) for end, _ in ends):
            self._works = None
        if any(end is End.DONE for end, _ in ends):
            self._works = self._has_control = True
        return results, next((message for end, message in ends if end is End.DIED), None)
