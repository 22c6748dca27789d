"""The shop of the warehouse's tests: what a reader finds in it, and processes that load it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manifest_platform import failpoints, storage
from manifest_platform.listing import Listing
from manifest_platform.testing.loads import FEED
from manifest_platform.warehouse.apply import Full, Load, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform_tests.servers.warehouses import Place, opened


class Recording(DuckDB):
    """DuckDB that remembers the statements it ran."""

    def __init__(self, path: Path, patience: float = 1.0) -> None:
        super().__init__(path, patience)
        self.statements: list[str] = []

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        self.statements.append(sql)
        return super().execute(sql, parameters)


def recording(engine: Engine) -> Engine:
    """Makes an engine remember the statements it ran."""
    statements: list[str] = []
    vars(engine)["statements"] = statements

    def told(run: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(sql: str, parameters: Any = ()) -> Any:
            statements.append(sql)
            return run(sql, parameters)

        return remembered

    vars(engine).update(execute=told(engine.execute), write=told(engine.write))
    return engine


def seen(path: Path) -> dict[str, Any]:
    """The state that a reader finds.

    The number of rows of `events`, the fence's (token, epoch, applied) and the ledger's (item, epoch, late).
    """
    engine = DuckDB(path)
    try:
        has_events = "events" in engine.columns("shop")
        return {
            "events": engine.execute(f"SELECT count(*) FROM {engine.qualified('shop', 'events')}")[0][0] if has_events else 0,
            "fence": engine.execute(
                f"SELECT token, epoch, applied FROM {engine.qualified('manifest_platform', 'fence')} WHERE feed = ?", (FEED,)
            )[0],
            "ledger": engine.execute(
                f"SELECT item, epoch, late FROM {engine.qualified('manifest_platform', 'ledger')} ORDER BY applied_at"
            ),
        }
    finally:
        engine.close()


def process(directory: Path, place: Place, wanted: Load, failpoint: str) -> subprocess.Popen[str]:
    """Another process that applies a load and reaches a failpoint on its way.

    It prints the name of the outcome's class, or of the error's.
    """
    wanted.listing.write(storage.as_uri(directory / "listing.json"))
    given: dict[str, Any] = {**asdict(wanted), "listing": storage.as_uri(directory / "listing.json")}
    if wanted.full:
        given["full"]["allows"] = sorted(wanted.full.allows)
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(place.settings), json.dumps(given)],
        env={**os.environ, failpoints.VARIABLE: failpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def main(settings: str, text: str) -> None:
    given: dict[str, Any] = json.loads(text)
    given["listing"] = Listing.read(given["listing"])
    if full := given["full"]:
        given["full"] = Full(full["boundary"], tuple(full["covers"]), tuple(full["feeds"]), tuple(full["keeps"]))
    warehouse = Warehouse(opened(json.loads(settings), patience=5), "shop")
    try:
        print(type(warehouse.apply(Load(**given))).__name__)  # noqa: T201
    except WarehouseError as error:
        print(type(error).__name__)  # noqa: T201
    warehouse.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
