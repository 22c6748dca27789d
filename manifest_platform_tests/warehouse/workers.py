"""Workers that pause where a test wants them to, beside the test."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from manifest_platform.warehouse.apply import Load, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB


class Pausing(DuckDB):
    """DuckDB that waits once, at the first statement that begins with `at`, until the test sets `go_on`."""

    def __init__(self, path: Path, at: str, patience: float = 5.0) -> None:
        super().__init__(path, patience)
        self.at, self.reached, self.go_on = at, threading.Event(), threading.Event()

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        if sql.startswith(self.at) and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(20)
        return super().execute(sql, parameters)


class Snapshotting(Pausing):
    """Reads the fence in its transaction before it pauses, so that its snapshot is stale."""

    def begin(self) -> None:
        super().begin()
        super().execute(f"SELECT * FROM {self.qualified('manifest_platform', 'fence')}")


class Worker(threading.Thread):
    """Applies a load beside the test; `outcome` is its result or error."""

    def __init__(self, engine: Pausing, wanted: Load) -> None:
        super().__init__(daemon=True)
        self.engine, self.wanted = engine, wanted
        self.outcome: object = None
        self.start()
        assert engine.reached.wait(20)

    def run(self) -> None:
        try:
            self.outcome = Warehouse(self.engine, "shop").apply(self.wanted)
        except Exception as error:
            self.outcome = error
        self.engine.close()

    def finish(self) -> object:
        self.engine.go_on.set()
        self.join(20)
        return self.outcome
