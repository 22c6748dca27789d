"""Progress of long work: said by what does it, shown by whoever listens.

Belongs here: the vocabulary, and the thread that looks. What does the work says how much of it there is and counts what is
done, or gives what measures it; without a listener that costs nothing. The terminal and Dagster listen, each in its own way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from manifest_platform.quantities import duration, size_of

BYTES = "bytes"
_T = TypeVar("_T")
_SOUND_SHARE, _SOUND_SECONDS = 0.05, 3.0
"""From when on what is left can be told from what is done."""


@dataclass(eq=False)
class Work:
    """A piece of work: what it is, in words, and how much of it is done, of how much where that is known.

    `measure`: what says how much is done, where nobody counts; it is called from another thread.
    """

    what: str
    total: float | None = None
    unit: str = "items"
    done: float = 0
    measure: Callable[[], float] | None = None
    begun: float = field(default_factory=time.monotonic)

    def advance(self, by: float = 1) -> None:
        """Counts what was done."""
        self.done += by

    def over(self, things: Iterable[_T]) -> Iterator[_T]:
        """The things, each counted once the next one is asked for."""
        for thing in things:
            yield thing
            self.done += 1

    def told(self, now: float | None = None) -> str:
        """What is done, in words: the share and amount, the time it took, the rate, and what is left where that can be told."""
        if self.measure:
            with suppress(Exception):  # whom it asks may be gone by now
                self.done = self.measure()
        seconds = (time.monotonic() if now is None else now) - self.begun
        parts = [*self._amounts(), duration(seconds)]
        if self.done and seconds >= 1:
            parts.append(f"{self._amount(self.done / seconds)}/s")
        if self.total and seconds >= _SOUND_SECONDS and _SOUND_SHARE <= self.done / self.total < 1:
            parts.append(f"about {duration(seconds * (self.total - self.done) / self.done)} left")
        return f"{self.what}: {', '.join(parts)}"

    def _amounts(self) -> list[str]:
        if self.total:
            share = min(1.0, self.done / self.total)
            return [f"{share:.0%}", f"{self._amount(min(self.done, self.total), alone=False)} of {self._amount(self.total)}"]
        return [self._amount(self.done)] if self.done else []

    def _amount(self, number: float, alone: bool = True) -> str:
        if self.unit == BYTES:
            return size_of(number)
        return f"{number:,.0f} {self.unit}" if alone else f"{number:,.0f}"


_listener: ContextVar[Reporter | None] = ContextVar("listener", default=None)


@contextmanager
def work(what: str, total: float | None = None, unit: str = "items") -> Generator[Work]:
    """Says that a piece of work begins, and at the end of the block that it is over."""
    made, listener = Work(what, total, unit), _listener.get()
    if listener is None:
        yield made
        return
    listener.began(made)
    try:
        yield made
    finally:
        listener.ended(made)


def each(things: Iterable[_T], what: str, unit: str = "items") -> Iterator[_T]:
    """The things, whose walk is a piece of work: nobody knows before how many they are."""
    with work(what, unit=unit) as walk:
        yield from walk.over(things)


class Reporter:
    """Tells how far the innermost work is, every so many seconds, from a thread of its own that runs only while there is work.

    `tell`: gets what to say; `over`: is called when no work is left. Neither may take long.
    """

    def __init__(self, tell: Callable[[str], None], every: float, over: Callable[[], None] = lambda: None) -> None:
        self._tell, self._every, self._over = tell, every, over
        self._works: list[Work] = []
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def began(self, begun: Work) -> None:
        """There is work more."""
        with self._change:
            self._works.append(begun)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
                self._thread.start()
            self._change.notify()

    def ended(self, ended: Work) -> None:
        """There is work less."""
        with self._change:
            self._works.remove(ended)
            if not self._works:
                self._over()

    def close(self) -> None:
        """Tells nothing more."""
        with self._change:
            self._closed = True
            self._change.notify()

    def _look(self) -> None:
        while (watched := self._longest()) is not None:
            self._tell(watched.told())  # without the lock: what it asks may hang, and the work goes on
            with self._change:
                if not self._works:
                    self._over()

    def _longest(self) -> Work | None:
        """The work that is still the innermost one after a while; None once nothing more is to be told."""
        with self._change:
            while not self._closed:
                watched = self._works[-1] if self._works else None
                self._change.wait(self._every if watched else None)
                if watched and not self._closed and self._works and self._works[-1] is watched:
                    return watched
            return None


@contextmanager
def told_by(reporter: Reporter) -> Generator[None]:
    """Has a reporter tell of all work within the block."""
    token = _listener.set(reporter)
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator may go on in another context than it began in
            _listener.reset(token)
        reporter.close()


def listened() -> bool:
    """Whether anybody listens: for what costs more than counting."""
    return _listener.get() is not None
