"""Runs server programs on this machine for the demo and the tests: a free port, start, readiness, end.

Belongs here: what all these servers have in common, and the cache for downloads. Does not belong here: a certain server.
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
"""The most seconds until a server must listen."""
STOP_S = 10
"""The most seconds in which a server must end, before it is killed."""


class ServerFailed(RuntimeError):
    """A server could not be downloaded, built or started. The message quotes the program that failed."""


@contextmanager
def kept(name: str) -> Generator[Path]:
    """Yields a path in the user's cache, under a lock between processes. If nothing exists there, the caller creates it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manifest-platform"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache / name


def free_port() -> int:
    """Returns a local port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def running(
    command: Sequence[str | Path], port: int, log: Path, environment: Mapping[str, str], start_s: float = START_S
) -> Generator[subprocess.Popen[bytes]]:
    """Starts a server, waits until it listens on its port, and ends it with the block. Its output goes to `log`.

    Raises ServerFailed with the end of that output if the server does not listen within `start_s` seconds.
    """
    with started(command, log, environment) as process:
        await_port(process, port, log, start_s)
        yield process


@contextmanager
def started(command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """Starts a server, and ends it with the block. Its output goes to `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_port(process: subprocess.Popen[bytes], port: int, log: Path, start_s: float = START_S) -> None:
    """Returns once a server listens on its port. Raises ServerFailed with the end of `log` if it ends, or after `start_s`."""
    deadline = time.monotonic() + start_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    told = log.read_text(errors="replace")[-2000:]
    assert isinstance(process.args, Sequence)
    name = Path(str(process.args[0])).name
    raise ServerFailed(f"{name} does not listen on port {port}: {told}")
