"""Progress of long work, from the code that does the work to listeners that show it.

Belongs here: the interface, and the thread that reports. Work states its total and counts what is done, or provides a function
that measures it. Without a listener, this costs nothing. The terminal and Dagster listen, each in its own way.
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
"""The least share of the work, and the least duration in seconds, after which the remaining time is estimated."""


@dataclass(eq=False)
class Work:
    """A piece of work in progress: its description, the amount done, and the total if it is known.

    `measure`: returns the amount done, if nobody counts. It is called from another thread.
    """

    what: str
    total: float | None = None
    unit: str = "items"
    done: float = 0
    measure: Callable[[], float] | None = None
    begun: float = field(default_factory=time.monotonic)

    def advance(self, by: float = 1) -> None:
        """Adds to the amount done."""
        self.done += by

    def over(self, things: Iterable[_T]) -> Iterator[_T]:
        """Yields the things, and counts each when the next is requested."""
        for thing in things:
            yield thing
            self.done += 1

    def described(self, now: float | None = None) -> str:
        """A line for people: share and amount done, duration, rate, and the estimated remaining time."""
        if self.measure:
            with suppress(Exception):  # its source may be closed by now
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
    """Reports a piece of work to the listener during the block."""
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
    """Yields the things as a piece of work of unknown total."""
    with work(what, unit=unit) as walk:
        yield from walk.over(things)


class Reporter:
    """Reports the innermost work at an interval, from a thread that runs only while there is work.

    `tell` is called with the text; `over` is called when no work is left. Both must return quickly.
    """

    def __init__(self, tell: Callable[[str], None], every: float, over: Callable[[], None] = lambda: None) -> None:
        self._tell, self._every, self._over = tell, every, over
        self._works: list[Work] = []
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def began(self, begun: Work) -> None:
        """Adds a piece of work."""
        with self._change:
            self._works.append(begun)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
                self._thread.start()
            self._change.notify()

    def ended(self, ended: Work) -> None:
        """Removes a piece of work."""
        with self._change:
            self._works.remove(ended)
            if not self._works:
                self._over()

    def close(self) -> None:
        """Stops reporting."""
        with self._change:
            self._closed = True
            self._change.notify()

    def _look(self) -> None:
        while (watched := self._longest()) is not None:
            self._tell(watched.described())  # without the lock, because measuring may hang
            with self._change:
                if not self._works:
                    self._over()

    def _longest(self) -> Work | None:
        """Waits until a piece of work stays innermost for the interval, and returns it; None after `close`."""
        with self._change:
            while not self._closed:
                watched = self._works[-1] if self._works else None
                self._change.wait(self._every if watched else None)
                if watched and not self._closed and self._works and self._works[-1] is watched:
                    return watched
            return None


@contextmanager
def reported_by(reporter: Reporter) -> Generator[None]:
    """Lets a reporter report all work in the block."""
    token = _listener.set(reporter)
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator may continue in another context
            _listener.reset(token)
        reporter.close()


def listened() -> bool:
    """True if a listener exists. For measurements that are expensive."""
    return _listener.get() is not None
