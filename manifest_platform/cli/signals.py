"""How a command ends that is told to end: by Ctrl-C, or by SIGTERM.

The first signal raises `ToldToEnd` where the command is at work, so that leases are given back and what was begun is put back;
the second one ends the process at once, for a shell with the same exit code. A signal that the process was started to ignore,
as a shell does with SIGINT for what runs in the background, stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from manifest_platform.cli.exits import Exit

_CODES = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}


class ToldToEnd(KeyboardInterrupt):
    """The process was told to end by a signal. `code`: what it is to exit with."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = _CODES.get(signal.Signals(number), Exit.INTERRUPTED)


class Interrupted(Exception):
    """A command was told to end, and has ended. The message says what it left; `code`: what the process exits with."""

    def __init__(self, message: str, code: Exit = Exit.INTERRUPTED) -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def of(cls, error: BaseException, message: str) -> Interrupted:
        """The same with a message."""
        return cls(message, getattr(error, "code", Exit.INTERRUPTED))


@contextmanager
def told_to_end() -> Generator[None]:
    """Raises ToldToEnd at the first SIGINT or SIGTERM within the block; the second ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in _CODES if signal.getsignal(number) is not signal.SIG_IGN]

    def take(number: int, _frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_DFL)  # the system's own: it ends a process that hangs in a library, too
        if os.isatty(2):
            os.write(2, b"\ngiving back what is in work; once more ends at once\n")
        raise ToldToEnd(number)

    before = {number: signal.signal(number, take) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_well(then: str | Callable[[], str]) -> Generator[None]:
    """Raises Interrupted where the block is told to end, once it has given its leases back.

    The message has what is noted on the error by whoever was at work, and `then`, what comes next, or what finds that out.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        left = "".join(f"{note}; " for note in getattr(error, "__notes__", ()))
        comes = then() if callable(then) else then
        raise Interrupted.of(error, f"interrupted; {left}the leases are given back, and {comes}") from error
