"""PostgreSQL passes the contract suite of engines."""

from __future__ import annotations

import pytest

from manifest_platform.testing.engine import EngineContract
from manifest_platform.warehouse.engines.postgresql.settings import PostgreSQLSettings


class TestPostgreSQL(EngineContract):
    endless = "SELECT pg_catalog.pg_sleep(600)"
    short_text = "varchar(4)"

    @pytest.fixture
    def settings(self, database: str) -> PostgreSQLSettings:
        return PostgreSQLSettings(url=database)

    @pytest.fixture
    def unreachable(self) -> PostgreSQLSettings:
        return PostgreSQLSettings(url="postgresql://nobody@127.0.0.1:1/nothing?sslmode=disable")
