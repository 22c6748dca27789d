"""Handling of Ctrl-C (SIGINT) and SIGTERM.

The first signal raises `ToldToEnd` in the command, so that it releases its leases and puts back the items in progress. The
second signal ends the process immediately, with the same exit code. A signal that the process was started to ignore stays
ignored: a shell ignores SIGINT for background jobs.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType

from manifest_platform.cli.exits import Exit

_CODES = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}
_taken: list[int] = []
"""The signal that was taken. Libraries that look for signals themselves may lose the exception that has its code."""


def _code_of(numbers: Sequence[int]) -> Exit:
    return next((_CODES[signal.Signals(one)] for one in numbers if one in _CODES), Exit.INTERRUPTED)


class ToldToEnd(KeyboardInterrupt):
    """A signal asked the process to end. `code`: the exit code for this signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = _code_of([number])


class Interrupted(Exception):
    """A command ended because of a signal. The message says what it left behind. `code`: the exit code of the process."""

    def __init__(self, message: str, code: Exit = Exit.INTERRUPTED) -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def of(cls, error: BaseException, message: str) -> Interrupted:
        """Wraps an error with a message, and keeps its exit code."""
        return cls(message, getattr(error, "code", _code_of(_taken)))


@contextmanager
def told_to_end() -> Generator[None]:
    """Raises ToldToEnd at the first SIGINT or SIGTERM within the block; the second ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in _CODES if signal.getsignal(number) is not signal.SIG_IGN]
    _taken.clear()

    def take(number: int, _frame: FrameType | None) -> None:
        _taken.append(number)
        for each in heard:
            signal.signal(each, signal.SIG_DFL)  # the system's own handler also ends a process that hangs in a library
        if os.isatty(2):
            os.write(2, b"\nputting back the items in progress; press Ctrl-C again to end immediately\n")
        raise ToldToEnd(number)

    before = {number: signal.signal(number, take) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_well(then: str | Callable[[], str]) -> Generator[None]:
    """Raises Interrupted if a signal ends the block, after the block has released its leases.

    The message has the notes of the error, and `then`: what comes next, as a text or a function that returns it.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        left = "".join(f"{note}; " for note in getattr(error, "__notes__", ()))
        comes = then() if callable(then) else then
        raise Interrupted.of(error, f"interrupted; {left}the leases are released, and {comes}") from error
