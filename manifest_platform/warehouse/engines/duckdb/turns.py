"""The turns of processes at a file that only one of them may have open.

A process that waits for the file announces itself by a ticket: a small file in the folder `<file>.waiting`. The holder looks
there after each load, and closes the file only for somebody who waits: opening it again costs more than most loads. Whoever
opens the file lets earlier tickets go first, so that nobody is passed over for ever.

A worker that has the file open for writing says so in `<file>.worker`, so that those who wait can tell it from a person's
program, which may keep the file open all day.

A ticket counts only while its owner touches it. So a ticket of a killed or stopped process holds up nobody for long, and
without permission to write a ticket, a process waits without one.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

_FRESH_SECONDS = 2.0
"""The age after which an untouched ticket no longer counts."""


class Turns:
    """The tickets at one file, and the own ticket. Every method costs one or two system calls while nobody waits."""

    def __init__(self, path: Path) -> None:
        self._folder = path.with_name(f"{path.name}.waiting")
        self._worker = path.with_name(f"{path.name}.worker")
        self._mine = ""

    def others_wait(self) -> bool:
        """True if another process waits for the file."""
        return any(name != self._mine for name in self._fresh())

    def is_mine(self) -> bool:
        """True if nobody waits who came earlier."""
        return min(self._fresh(), default=self._mine) >= self._mine if self._mine else not self._fresh()

    def wait(self) -> None:
        """Takes a ticket, or touches the own ticket. Ignores errors: the wait then has no place in the order."""
        if not self._mine:
            # Names sort by the time of the first wait.
            self._mine = f"{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            (self._folder / self._mine).touch()

    def leave(self) -> None:
        """Gives the ticket back, and removes the folder if nobody else waits."""
        mine, self._mine = self._mine, ""
        if mine:
            with suppress(OSError):
                (self._folder / mine).unlink()
                self._folder.rmdir()

    def begin(self) -> None:
        """Says that this process has the file open for writing. Ignores errors: those who wait then take it for a program."""
        with suppress(OSError):
            self._worker.write_text(str(os.getpid()))

    def end(self) -> None:
        """Takes `begin` back, after the file was closed, unless the next process has it open already."""
        if self.is_worker(os.getpid()):
            with suppress(OSError):
                self._worker.unlink()

    def is_worker(self, pid: int) -> bool:
        """True if the process with this number said that it has the file open for writing."""
        try:
            return self._worker.read_text() == str(pid)
        except OSError:
            return False

    def _fresh(self) -> list[str]:
        """Returns the tickets that count. Removes no stale ticket: its owner may only be slow, and touches it again."""
        fresh = []
        with suppress(OSError), os.scandir(self._folder) as tickets:
            for ticket in tickets:
                with suppress(OSError):
                    if abs(time.time() - ticket.stat().st_mtime) < _FRESH_SECONDS:
                        fresh.append(ticket.name)
        return fresh
