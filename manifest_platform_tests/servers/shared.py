"""A server that all processes of a test session share: started by the first that needs it, ended after the last.

A keeper runs the server, as a process of its own: `python -m manifest_platform_tests.servers.shared MODULE:FUNCTION FOLDER`.
Each test process holds a lock for as long as it uses the server; the keeper ends the server when it gets that lock for itself,
so a server ends however its users ended.
"""

from __future__ import annotations

import argparse
import fcntl
import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

START_S = 600
"""Seconds until a server must answer. The first start on a machine fetches or builds it, minutes beside other work."""

Run = Callable[[Path], AbstractContextManager[str]]
"""Runs a server for as long as a block runs, its files in a folder, and gives its address."""


@contextmanager
def shared(session_folder: Path, run: str) -> Generator[str]:
    """The address of the server that `run` runs, a `Run` by its name: `MODULE:FUNCTION`.

    Raises RuntimeError, with the keeper's output, if it does not start.
    """
    folder = session_folder / f"server-{run.rpartition(':')[2]}"
    folder.mkdir(exist_ok=True)
    with (folder / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / "start").open("a") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            if not (folder / "address").exists():
                _start(run, folder)
        yield (folder / "address").read_text()


def _start(run: str, folder: Path) -> None:
    with (folder / "keeper.log").open("w") as log:
        command = [sys.executable, "-m", __name__, run, str(folder)]
        # A session of its own: Ctrl-C ends the tests, and then the server.
        keeper = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + START_S
    while not (folder / "address").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            keeper.terminate()
            raise RuntimeError(f"{run} does not start: {(folder / 'keeper.log').read_text()[-4000:]}")
        time.sleep(0.02)


def keep(run: Run, folder: Path) -> None:
    """Runs a server until nobody uses it."""
    address = folder / "address"
    with (folder / "users").open("a") as users, run(folder) as told:
        written = folder / "address.new"
        written.write_text(told)
        written.rename(address)
        try:
            fcntl.flock(users, fcntl.LOCK_EX)
        finally:
            address.unlink()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    run: Run = pkgutil.resolve_name(arguments.run)
    keep(run, arguments.folder)


if __name__ == "__main__":
    main()
