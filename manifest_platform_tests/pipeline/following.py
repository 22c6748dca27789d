"""A follower as a process of its own: the real command, whose Spark jobs run in the process, so that it starts at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from manifest_platform.cli import main
from manifest_platform.spark.place import Place

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 60.0
"""The seconds within which anything happens, on a machine with much else to do."""


class SessionHere:
    """A Spark session as far as shredding needs it: a job over numbers, which runs in this process."""

    def range(self, begin: int, end: int, _step: int, _parts: int) -> SessionHere:
        self.numbers = list(range(begin, end))
        return self

    def mapInArrow(self, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str) -> SessionHere:
        self.work = work
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        batches = self.work(iter([pa.RecordBatch.from_arrays([pa.array(self.numbers)], ["id"])]))
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def sessions_here() -> None:
    """Lets all Spark sessions of this process be sessions here."""
    setattr(Place, "session", lambda *_: SessionHere())  # noqa: B010


class Following:
    """A process with a follower. Its lines are JSON documents, which `told` waits for."""

    def __init__(self, config_file: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.log = config_file.with_name("follower.log")
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, "--config", str(config_file), "drain", "--follow", "--json", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=self.log.open("a"),
            text=True,
        )
        self.documents: list[dict[str, Any]] = []
        self._change = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._change:
                self.documents.append(json.loads(line) | {"at": time.monotonic()})
                self._change.notify_all()

    def told(self, event: str, **said: Any) -> dict[str, Any]:
        """Waits for a document of an event with these values, and returns it."""

        def found() -> dict[str, Any] | None:
            wanted = {"event": event, **said}
            return next((one for one in self.documents if wanted.items() <= one.items()), None)

        with self._change:
            assert self._change.wait_for(found, PATIENCE), f"no {event} {said} in {self.documents}; {self.log.read_text()}"
            return found() or {}

    def end(self, signal_number: int) -> int:
        """Sends a signal, and returns the exit code."""
        self.process.send_signal(signal_number)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


if __name__ == "__main__":
    sessions_here()
    sys.exit(main(sys.argv[1:]))
