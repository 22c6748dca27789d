"""Exit codes: what each says, the same for every command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the exit code says."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    BLOCKED = 3
    NOTHING = 4
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """The code in words."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.DONE: "done; where a command only looks, nothing is wrong",
    Exit.FAILED: "failed, found something wrong, or somebody else is at work",
    Exit.WRONG_USE: "used wrongly: an option, a name, a time or the configuration",
    Exit.BLOCKED: "blocked: an item stops its feed, or a decision of a person is needed",
    Exit.NOTHING: "nothing to do, nothing new, or nothing found",
    Exit.INTERRUPTED: "interrupted by Ctrl-C (SIGINT)",
    Exit.TERMINATED: "ended by SIGTERM",
}


def table() -> str:
    """All exit codes, a line each."""
    return "\n".join(f"  {code.value:>3}  {code.meaning}" for code in Exit)
