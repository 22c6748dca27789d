"""Fixtures of the warehouse's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifest_platform.warehouse.apply import Warehouse
from manifest_platform_tests.warehouse.shop import Recording


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "warehouse.duckdb"


@pytest.fixture
def engine(path: Path) -> Iterator[Recording]:
    """The engine beneath `shop`, which tests also look through."""
    opened = Recording(path)
    yield opened
    opened.close()


@pytest.fixture
def shop(engine: Recording) -> Warehouse:
    return Warehouse(engine, "shop")
