"""The bell that notices ring: it wakes one waiting thread, and many notices become one call."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from manifest_platform.notices.contract import Notices

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_PATIENCE = 0.2
"""The seconds that `close` waits for a thread: a long poll takes longer, and ends with the process."""


class Bell:
    """Wakes the thread that waits for it. What rings is a text of the caller's, such as a dataset."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._rung: set[str] = set()
        self._watched: list[tuple[Notices, threading.Thread]] = []
        self._hushed: set[Notices] = set()
        self._closed = threading.Event()

    def ring(self, what: str) -> None:
        """Wakes the thread that waits, or that waits next."""
        with self._change:
            self._rung.add(what)
            self._change.notify_all()

    def wait(self, seconds: float) -> frozenset[str]:
        """Waits until something rings, at most so long, and returns what rang since the last call."""
        with self._change:
            if not self._rung and seconds > 0:
                self._change.wait(seconds)
            rung, self._rung = frozenset(self._rung), set()
            return rung

    @property
    def rung(self) -> frozenset[str]:
        """The texts that rang since the last call of `wait`, which still returns them."""
        with self._change:
            return frozenset(self._rung)

    def listen(self, notices: Notices, what: str, warn: Callable[[str], object] = log.warning) -> None:
        """Lets notices ring, from a thread of their own. If they fail, `warn` is told once, and they are tried again."""
        name = f"notices of {notices.place}"
        thread = threading.Thread(target=self._watch, args=(notices, what, warn), name=name, daemon=True)
        self._watched.append((notices, thread))
        thread.start()

    def hush(self, notices: Notices) -> None:
        """Ends some notices."""
        self._watched = [one for one in self._watched if one[0] is not notices]
        self._hushed.add(notices)
        notices.close()

    def _watch(self, notices: Notices, what: str, warn: Callable[[str], object]) -> None:
        pause, told = _FIRST_PAUSE, False
        while not self._closed.is_set() and notices not in self._hushed:
            began = time.monotonic()
            try:
                notices.watch(lambda: self.ring(what))
            except Exception as error:  # any error: without notices, the listings at intervals find everything
                if not told:
                    warn(f"no notices from {notices.place}, so only listings find what is new there: {error}")
                told = True
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause, told = _FIRST_PAUSE, False
            self._closed.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def close(self) -> None:
        """Ends all notices."""
        self._closed.set()
        for notices, _ in self._watched:
            notices.close()
        for _, thread in self._watched:
            thread.join(_PATIENCE)
