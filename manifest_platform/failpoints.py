"""Named points at which a test may kill, stop or fail a real process.

`MANIFEST_PLATFORM_FAILPOINT=load.committed:kill` makes the process SIGKILL itself when it reaches that point; `stop`
sends SIGSTOP (a paused worker); `raise` raises. Without the variable, reaching a point costs one comparison.
"""

import os
import signal

VARIABLE = "MANIFEST_PLATFORM_FAILPOINT"


class FailpointReached(RuntimeError):
    """A failpoint with the action `raise` was reached."""


def reach(point: str) -> None:
    """Performs the action that the environment sets for this point; normally nothing."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    name, _, action = wanted.partition(":")
    if name != point:
        return
    if action == "raise":
        raise FailpointReached(point)
    del os.environ[VARIABLE]  # a resumed process continues
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action])
