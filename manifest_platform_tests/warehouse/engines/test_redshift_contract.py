"""Redshift's engine passes the contract suite of engines on the stand-in, with objects in S3."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.listing import Table
from manifest_platform.testing.engine import EngineContract
from manifest_platform.warehouse.engines.engine import Engine, Staging
from manifest_platform.warehouse.engines.redshift.engine import Redshift
from manifest_platform.warehouse.engines.redshift.settings import RedshiftSettings
from manifest_platform_tests.servers.redshift import ROLE
from manifest_platform_tests.servers.redshift import Redshift as StandIn

EVERYDAY = (
    "test_of_two_transactions_that_move_a_row_on_a_condition_one_wins",
    "test_every_type_is_recognized_in_the_catalog",
    "test_columns_are_matched_by_name_in_any_order",
    "test_a_load_moves_rows_ledger_and_fence_together",
    "test_rows_are_merged_and_deleted_by_key",
    "test_a_snapshot_replaces_the_rows_of_its_tables",
    "test_concurrent_workers_create_one_fence_and_apply_an_item_once",
    "test_transactions_contain_only_row_statements_and_snapshot_renames",
)
"""Cases that `make test` runs. All run in `make test-long`."""


class Uploads(RedshiftSettings):
    """Settings of an engine that finds the suite's objects, which are local, in S3."""

    bucket: str

    def open(self, *, read_only: bool = False, patience: float | None = None) -> Redshift:
        engine = super().open(read_only=read_only, patience=patience)
        stage = engine.stage

        def staged(table: Table, uris: list[str]) -> Staging:
            return stage(table, [self._uploaded(uri) for uri in uris])

        engine.stage = staged
        return engine

    def _uploaded(self, uri: str) -> str:
        path = storage.local_path(uri)
        place = f"{self.bucket}{path}"
        if path.exists():
            storage.write_bytes(place, path.read_bytes())
        return place


class TestRedshift(EngineContract):
    endless = "SELECT pg_sleep(600)"
    short_text = "VARCHAR(4) ENCODE TEXT255"

    @pytest.fixture
    def settings(self, redshift: StandIn, s3_bucket: str) -> Uploads:
        return Uploads(url=f"{redshift.url}?sslmode=disable", role=ROLE, bucket=s3_bucket)

    @pytest.fixture
    def unreachable(self) -> RedshiftSettings:
        return RedshiftSettings(url="redshift://nobody@127.0.0.1:1/nothing?sslmode=disable")

    def make_index(self, engine: Engine, table: str, name: str, column: str) -> None:
        engine.execute(f"COMMENT ON TABLE {engine.qualified('shop', table)} IS '{name}'")

    @pytest.fixture(autouse=True)
    def _password(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("WAREHOUSE_PASSWORD", "of-the-stand-in")


def _beside(test: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a test that is the same and has marks of its own."""

    @functools.wraps(test)
    def same(*given: Any, **named: Any) -> Any:
        return test(*given, **named)

    same.__dict__["pytestmark"] = [*test.__dict__.get("pytestmark", ()), pytest.mark.long.mark]
    return same


for _name in dir(EngineContract):
    if _name.startswith("test_") and _name not in EVERYDAY:
        setattr(TestRedshift, _name, _beside(getattr(EngineContract, _name)))
