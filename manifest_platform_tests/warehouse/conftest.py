"""Fixtures of the warehouse's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform_tests.servers.warehouses import Place
from manifest_platform_tests.warehouse.shop import Recording, recording


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the embedded warehouse: a test that asks for it runs on no other."""
    return tmp_path / "warehouse.duckdb"


@pytest.fixture
def engine(place: Place, tmp_path: Path) -> Iterator[Engine]:
    """The engine beneath `shop`, which tests also look through. It remembers its statements."""
    opened = Recording(tmp_path / "warehouse.duckdb") if place.kind == "duckdb" else recording(place.open(1.0))
    yield opened
    opened.close()


@pytest.fixture
def shop(engine: Engine) -> Warehouse:
    return Warehouse(engine, "shop")
