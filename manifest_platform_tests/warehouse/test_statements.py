"""A4: no engine gets a statement between BEGIN and COMMIT at which it, or another one, would commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.listing import Column, Retired, Table
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb import DuckDB
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform_tests.warehouse.vault import (
    PICKLIST,
    PRODUCT,
    SITE,
    day,
    gone,
    more,
    names_of,
    products,
    snapshot,
    window,
)

# How to open each engine; a new engine is traced as soon as it says how.
OPENED: dict[type[Engine], Callable[[type[Any], Path], Any]] = {
    DuckDB: lambda traced, directory: traced(directory / "warehouse.duckdb"),
}
ENGINES = [engine for engine in Engine.__subclasses__() if engine.__module__.startswith("manifest_platform.")]
RENAME = re.compile(r'ALTER TABLE ("[^"]+"\.)*"[^"]+" RENAME TO "[^"]+"')
ROWS = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM|SELECT|COPY|MERGE INTO) [^;]+")
COMMITTING = re.compile(r"\b(TRUNCATE|VACUUM|APPEND|ALTER|CREATE|DROP|ANALYZE|GRANT|COMMENT|TYPE)\b")


def traced(engine: Any) -> type[Any]:
    """The engine, which tells what it is given to do, and whether in a transaction."""

    class Traced(engine):
        trace: list[tuple[bool, str]]
        open = False

        def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
            self.trace.append((self.open, sql))
            return super().execute(sql, parameters)

        def begin(self) -> None:
            super().begin()
            self.open = True

        def commit(self) -> None:
            self.open = False
            super().commit()

        def rollback(self) -> None:
            self.open = False
            super().rollback()

    return Traced


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    opened = OPENED[request.param](traced(request.param), tmp_path)
    opened.trace = []
    yield opened
    opened.close()


def every_load(warehouse: Warehouse, directory: Path) -> Iterator[str]:
    """Loads in every mode: first ones, ones that change columns, ones that fail, a snapshot, a replay; yields their names."""
    number = more(PRODUCT, "size__c")
    narrow = Table(PRODUCT.name, (*PRODUCT.columns, Column("amount__c", "integer")), "merge", ("id",))
    wide = Table(PRODUCT.name, (*PRODUCT.columns, Column("amount__c", "bigint")), "merge", ("id",))
    contradiction = (PRODUCT, [{"id": "a", "name__v": "1"}, {"id": "a", "name__v": "2"}])
    sites = (SITE, [{"id": "s"}])
    again: dict[str, Any] = {"epoch": 2, "serving_epoch": 2}
    loads = [
        ("append", day(directory, "1", "x")),
        ("append again", day(directory, "2", "y")),
        ("merge", window(directory, "0015", products(a="1", b="1"), sites)),
        ("delete and merge", window(directory, "0030", gone(PRODUCT, "a"), products(c="1"), (PICKLIST, []))),
        ("new column", window(directory, "0045", (number, [{"id": "c"}]))),
        ("column made wider", window(directory, "0050", (narrow, [{"id": "c"}]))),
        ("column made wider still", window(directory, "0055", (wide, [{"id": "c"}]))),
        ("retired", window(directory, "0100", retired=[Retired(SITE.name)])),
        ("fails", window(directory, "0115", contradiction)),
        ("empty", window(directory, "0130")),
        ("full", snapshot(directory, "0030", products(b="1"), (SITE, [{"id": "t"}]), (PICKLIST, []), keeps=(SITE.name,))),
        ("behind", window(directory, "0015", products(a="1"), **again)),
        ("replay", window(directory, "0045", products(d="1"), sites, **again)),
        ("fenced", window(directory, "0100", products(a="1"))),
    ]
    for name, load in loads:
        try:
            warehouse.apply(load)
        except WarehouseError as error:
            name = f"{name}: {type(error).__name__}"
        yield name
    warehouse.raise_fence("incr", 5, 5)


def test_A4_only_rows_move_in_a_transaction_and_names_in_that_of_a_snapshot(engine: Any, tmp_path: Path) -> None:
    renames: dict[str, int] = {}
    begun = 0
    loads = every_load(Warehouse(engine, "shop"), tmp_path)
    outside: set[str] = set()
    while True:
        engine.trace.clear()
        name = next(loads, None)
        inside = [sql for within, sql in engine.trace if within and sql not in ("COMMIT", "ROLLBACK")]
        outside.update(sql.split(" ")[0] for within, sql in engine.trace if not within)
        begun += bool(inside)
        for sql in inside:
            bare = re.sub(r'"[^"]*"|\'[^\']*\'', "x", sql)
            if RENAME.fullmatch(sql):
                renames[str(name)] = renames.get(str(name), 0) + 1
            else:
                assert ROWS.fullmatch(bare), sql
                assert not COMMITTING.search(bare), sql
        if name is None:
            break
    # Product and picklist are replaced; the sites, of which it has a part, are merged.
    assert renames == {"full": 4}
    assert begun >= 12
    assert {"CREATE", "ALTER", "DROP"} <= outside
    assert names_of(engine) == {"b": "1", "d": "1"}


def test_A4_every_engine_is_traced() -> None:
    assert DuckDB in ENGINES
    assert set(ENGINES) <= OPENED.keys()
