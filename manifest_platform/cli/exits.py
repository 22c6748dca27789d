"""The exit codes and their meanings, the same for every command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit code of a command."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    BLOCKED = 3
    NOTHING = 4
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """The meaning of the code, in words."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.DONE: "done; for commands that only look: nothing is wrong",
    Exit.FAILED: "failed, found a fault, or another process is working on it",
    Exit.WRONG_USE: "wrong use: an invalid option, name, time or configuration",
    Exit.BLOCKED: "blocked: an item stops its feed, or a person must decide",
    Exit.NOTHING: "nothing to do, nothing new, or nothing found",
    Exit.INTERRUPTED: "interrupted by Ctrl-C (SIGINT)",
    Exit.TERMINATED: "ended by SIGTERM",
}


def table() -> str:
    """Returns all exit codes with their meanings, a line each."""
    return "\n".join(f"  {code.value:>3}  {code.meaning}" for code in Exit)
