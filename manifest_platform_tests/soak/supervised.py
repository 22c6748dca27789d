"""The processes of Dagster, each in its own session and started again when it ends, as under a supervisor."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from manifest_platform.config import VARIABLE
from manifest_platform.demo.server import free_port
from manifest_platform_tests.pipeline.shop import REPOSITORY, Shop

START_S = 90
RESTART_S = 2.0
"""The time between the end of a process and its next start."""

DEFAULT_SIGNALS = ["env", "--default-signal=INT,QUIT"]
"""Resets signals, as for a program that a supervisor starts.

A shell ignores these signals in background programs. Dagster treats SIGTERM as SIGINT, so a code server that was started from a
background shell survived SIGTERM."""


@dataclass(frozen=True)
class Process:
    """A process of the machine: its session, its parent, how much memory it has, what it is."""

    pid: int
    parent: int
    session: int
    bytes: int
    what: str

    @property
    def works_on_a_run(self) -> bool:
        """True for a run's worker, or a JVM that a worker started."""
        return "spawn_main" in self.what or "java" in self.what.split(" ", 1)[0]


def processes() -> list[Process]:
    """All that live, but those that only wait to be reaped."""
    columns = "pid=,ppid=,sid=,rss=,stat=,args="
    lines = subprocess.run(["ps", "-eo", columns], check=True, capture_output=True, text=True).stdout.splitlines()
    found = [line.split(None, 5) for line in lines]
    return [
        Process(int(pid), int(parent), int(session), int(kib) * 1024, what)
        for pid, parent, session, kib, state, what in (one for one in found if len(one) == 6)
        if not state.startswith("Z")
    ]


class Supervised:
    """A program that is started again when it ends, until it is stopped."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], home: Path) -> None:
        self.name, self.sessions, self.starts = name, [], 0
        self._command, self._environment, self._home = command, environment, home
        self._stopped = threading.Event()
        self._start()
        self._thread = threading.Thread(target=self._watch, name=f"supervisor of {name}", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        with (self._home / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*DEFAULT_SIGNALS, *self._command],
                env=self._environment,
                cwd=self._home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.sessions.append(self.process.pid)
        self.starts += 1

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self.process.wait()
            if not self._stopped.wait(RESTART_S):
                self._start()

    def stop(self, patience_s: float = 60) -> float:
        """Tells the whole group to end, as systemd does with a unit's; how many seconds it took until none of it was left."""
        self._stopped.set()
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        while self.living() and time.monotonic() - began < patience_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        return time.monotonic() - began

    def living(self) -> list[Process]:
        """The living processes of this start and of earlier starts."""
        return [one for one in processes() if one.session in self.sessions]

    def end(self) -> None:
        """Nothing of it lives any more."""
        self._stopped.set()
        for one in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Platform:
    """A shop's Dagster: code server, webserver and daemon."""

    shop: Shop
    home: Path
    code: Supervised
    webserver: Supervised
    daemon: Supervised

    @property
    def all(self) -> list[Supervised]:
        """The three."""
        return [self.code, self.webserver, self.daemon]

    def living(self) -> list[Process]:
        """All processes of the three and of what they started."""
        sessions = {session for one in self.all for session in one.sessions}
        return [one for one in processes() if one.session in sessions]


@contextmanager
def platform(shop: Shop) -> Generator[Platform]:
    """Dagster over a shop, by the repository's own files, until the block ends; nothing of it lives then."""
    home = shop.home / "dagster"
    home.mkdir()
    shutil.copy(REPOSITORY / "dagster.yaml", home)
    code_port, web_port = free_port(), free_port()
    location = f"host: 127.0.0.1, port: {code_port}, location_name: manifest_platform"
    (home / "workspace.yaml").write_text(f"load_from:\n  - grpc_server: {{{location}}}\n")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        VARIABLE: str(shop.config_file),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONWARNINGS": "ignore",
    }

    def program(name: str, *arguments: str) -> Supervised:
        return Supervised(name, [sys.executable, "-m", *arguments], environment, home)

    # Two programs that make the instance's databases at one time leave them unusable.
    subprocess.run([sys.executable, "-m", "dagster", "instance", "migrate"], env=environment, check=True, capture_output=True)
    started: list[Supervised] = []
    try:
        listening = ["-h", "127.0.0.1", "-p", str(code_port)]
        started.append(program("code-server", "dagster", "api", "grpc", "-m", "manifest_platform.definitions", *listening))
        started.append(
            program("webserver", "dagster_webserver", "-h", "127.0.0.1", "-p", str(web_port), "-w", "workspace.yaml")
        )
        _until_it_answers(f"http://127.0.0.1:{web_port}/server_info")
        started.append(program("daemon", "dagster._daemon", "run", "-w", "workspace.yaml"))
        yield Platform(shop, home, *started)
    finally:
        for one in reversed(started):
            one.end()


def _until_it_answers(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            opener.open(url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise AssertionError(f"{url} does not answer within {START_S} s")
