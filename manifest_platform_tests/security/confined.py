"""A function in a process of its own that may not do much: what it returned, and what it took, said and opened.

Each call is a fork of a small server that has the heavy imports, so that it costs some 20 ms. The process has a limit of its
address space, a deadline, secrets in its environment, and an audit hook that notes what Python opens. The hook does not see
files that C++ opens (Arrow's own file systems). For these a test writes a canary into a file that nothing should read, and
searches the result for it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark import cloudpickle

MIB = 1 << 20
CANARY = "canary~7f3c/ä b+e1"
"""The secret that a confined process has in its environment; not plain ASCII, so that each encoding of it looks different."""

SECRETS = dict.fromkeys(
    (
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "IGLU_APIKEY",
        "PGPASSWORD",
        "REDSHIFT_PASSWORD",
        "SNOWFLAKE_PASSWORD",
        "VAULT_CLIENT_SECRET",
        "VAULT_PASSWORD",
        "VAULT_SESSION",
        "VAULT_TOKEN",
    ),
    CANARY,
)
"""The environment variables that hold it."""

_PRELOADED = ["pyarrow", "pyarrow.compute", "pyarrow.csv", "pyarrow.fs", "numpy", "orjson", "httpx", "pyspark.cloudpickle"]
_OPENING = frozenset({"open", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir"})


@dataclass(frozen=True)
class Confined:
    """The outcome of a confined call.

    `value` is what it returned; `error` what it raised, as `Type: message`, with the types of its bases in `kinds`; `died` why
    it did neither: the deadline, or a signal. `output`: what it wrote to stdout and stderr. `opened`: the paths that Python
    opened, listed or changed. `bytes`: by how much its resident memory rose at most. `seconds`: how long it took.
    """

    value: Any
    error: str
    kinds: tuple[str, ...]
    died: str
    output: str
    opened: frozenset[str]
    bytes: int
    seconds: float

    @property
    def is_bounded(self) -> bool:
        """True if the call ended by itself and reports no lack of memory, even in an error that other code caught."""
        told = f"{self.error} {self.value!r} {self.output}"
        return not self.died and "MemoryError" not in self.kinds and not any(sign in told for sign in _EXHAUSTED)

    def says(self, secret: str = CANARY) -> bool:
        """True if the value, the error or the output contains the text, plain or encoded as in a URL, form or literal."""
        told = "\n".join((repr(self.value), str(self.value), self.error, self.output))
        forms = {
            secret,
            quote(secret),
            quote(secret, safe=""),
            repr(secret)[1:-1],
            ascii(secret)[1:-1],
            str(secret.encode())[2:-1],
        }
        forms |= {form.replace("%20", "+") for form in forms}
        return any(form in told for form in forms)

    def opened_outside(self, *folders: str | os.PathLike[str]) -> list[str]:
        """The opened paths outside the folders, Python's installation, the project, `/proc` and `/dev`."""
        allowed = [os.path.realpath(folder) for folder in (*folders, sys.prefix, sys.base_prefix, _PROJECT, "/proc", "/dev")]
        found = {path: os.path.realpath(path) for path in self.opened}
        return sorted(path for path, real in found.items() if not any(_within(real, folder) for folder in allowed))


_EXHAUSTED = ("MemoryError", "malloc of size", "realloc of size", "std::bad_alloc", "Cannot allocate memory", "out of memory")
_PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def confined(
    function: Callable[..., Any],
    *arguments: Any,
    memory: int = 1024 * MIB,
    seconds: float = 20,
    environment: Mapping[str, str] = SECRETS,
) -> Confined:
    """Calls a function in a process of its own, which may take `memory` more bytes of address space and `seconds` seconds.

    Function, arguments and what it returns travel pickled; a function may be a closure.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        ours, theirs = _server().Pipe()
        call = cloudpickle.dumps((function, arguments))
        process = _server().Process(
            target=_call, args=(theirs, call, memory, seconds, dict(environment), _Sent(output.fileno())), daemon=True
        )
        process.start()
        theirs.close()
        told: dict[str, Any] = {}
        died = ""
        with ours, contextlib.suppress(EOFError, ConnectionError):
            if ours.poll(seconds):
                told = pickle.loads(ours.recv_bytes())
            else:
                died = f"the deadline of {seconds:g} s"
        if died:
            process.kill()
        process.join()
        if not told and not died:
            died = f"signal {-process.exitcode}" if (process.exitcode or 0) < 0 else f"exit status {process.exitcode}"
        process.close()
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    value = pickle.loads(told["value"]) if "value" in told else None
    error, kinds, opened = told.get("error", ""), told.get("kinds", ()), told.get("opened", frozenset())
    return Confined(value, error, kinds, died, said, opened, told.get("bytes", 0), time.monotonic() - started)


class _Sent:
    """A file descriptor on its way to another process."""

    def __init__(self, descriptor: int):
        from multiprocessing.reduction import DupFd

        self._make, self._descriptor, self._sent = DupFd, descriptor, None

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self._make(self._descriptor),)


def _received(sent: Any) -> int:
    return sent.detach()


def _server() -> Any:
    """The processes' maker: a server without threads, which forks at once what a fresh interpreter imports in a second."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOADED, __name__])
    return context


def _call(answer: Connection, call: bytes, memory: int, seconds: float, environment: dict[str, str], output: int) -> None:
    """Runs the pickled call in the forked process, under its limits."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    opened: set[str] = set()
    watching = [True]

    def note(event: str, values: tuple[Any, ...]) -> None:
        if watching and event in _OPENING and values and isinstance(values[0], str | bytes | os.PathLike):
            opened.add(os.path.abspath(os.fsdecode(values[0])))

    told: dict[str, Any] = {}
    function, arguments = pickle.loads(call)  # imports what the function needs: neither watched nor limited
    sys.addaudithook(note)
    opened.clear()
    before = _resident("VmRSS")
    with contextlib.suppress(OSError), Path("/proc/self/clear_refs").open("w") as peak:
        peak.write("5")  # resets the peak of resident memory
    _limit(memory, seconds)
    try:
        value = function(*arguments)
        told["value"] = cloudpickle.dumps(value)
    except BaseException as error:
        told["error"] = f"{type(error).__name__}: {error}"
        told["kinds"] = tuple(kind.__name__ for kind in type(error).__mro__)
    finally:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    watching.clear()
    told |= {"opened": frozenset(opened), "bytes": max(0, _resident("VmHWM") - before)}
    sys.stdout.flush()
    sys.stderr.flush()
    answer.send_bytes(pickle.dumps(told))
    answer.close()


def _limit(memory: int, seconds: float) -> None:
    """Limits this process: its address space, its processor's time, its core files."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_resident("VmSize") + memory, hard))
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + seconds) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _resident(what: str) -> int:
    """A figure of this process's memory, bytes: VmSize, VmRSS or VmHWM, the peak of that."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{what}:"))
