"""A server program of this machine for as long as a block runs: a free local port, start, readiness, end.

Belongs here: what every server that the demo or the tests start has in common, and where what they download is kept.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S = 30
"""How long a server may take until it listens."""
STOP_S = 10
"""How long a server may take to end by itself."""


class ServerFailed(RuntimeError):
    """A server could not be fetched, built or started; the message says why, in the failing program's own words."""


@contextmanager
def kept(name: str) -> Generator[Path]:
    """A place in the user's cache directory, under a lock that other processes of the machine honour, to be filled once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manifest-platform"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache / name


def free_port() -> int:
    """A local port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def running(
    command: Sequence[str | Path], port: int, log: Path, environment: Mapping[str, str], start_s: float = START_S
) -> Generator[None]:
    """Runs a server until the block ends; the block begins when it listens on its port. Its output goes to `log`.

    Raises ServerFailed with the end of that output where it does not listen within so many seconds.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_it_listens(Path(command[0]).name, process, port, log, start_s)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_listens(name: str, process: subprocess.Popen[bytes], port: int, log: Path, start_s: float) -> None:
    deadline = time.monotonic() + start_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    told = log.read_text(errors="replace")[-2000:]
    raise ServerFailed(f"{name} does not listen on port {port}: {told}")
