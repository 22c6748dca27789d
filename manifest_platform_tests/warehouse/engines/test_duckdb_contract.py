"""DuckDB passes the contract suite of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifest_platform.testing.engine import EngineContract
from manifest_platform.warehouse.engines.duckdb.settings import DuckDBSettings


class TestDuckDB(EngineContract):
    @pytest.fixture
    def settings(self, tmp_path: Path) -> DuckDBSettings:
        return DuckDBSettings(path=str(tmp_path / "warehouse.duckdb"))

    @pytest.fixture
    def unreachable(self, tmp_path: Path) -> DuckDBSettings:
        (tmp_path / "folder.duckdb").mkdir()
        return DuckDBSettings(path=str(tmp_path / "folder.duckdb"))
