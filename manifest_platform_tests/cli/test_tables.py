"""`tables`: what the tables hold by the log, the same in the warehouse, and what is told where it is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform_tests.pipeline.shop import Shop, drained, run_name

TYPE = "iglu:com.snowplowanalytics.snowplow/atomic/jsonschema/1-0-0"


@pytest.fixture(scope="module")
def loaded(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("loaded"))
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        drained(pipeline)
    return shop


@pytest.fixture
def shop(loaded: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Two loaded runs; what a test does to the warehouse is put back."""
    monkeypatch.setenv(config.VARIABLE, str(loaded.config_file))
    shutil.copy(loaded.home / "warehouse.duckdb", tmp_path / "kept")
    yield loaded
    shutil.copy(tmp_path / "kept", loaded.home / "warehouse.duckdb")


def asked(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(["tables", *options, "--json"])
    return code, json.loads(capsys.readouterr().out)


def told(document: Any) -> list[tuple[str | None, str | None]]:
    return [(one["table"], one["command"]) for one in document["differences"]]


def test_tables_are_told_by_the_log_and_the_warehouse_agrees(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = asked(capsys)
    assert (code, document["differences"], document["items"], document["uncounted"]) == (0, [], 2, 0)
    rows = {one["table"]: one["rows"] for one in document["tables"]}
    assert rows == {table: count for table, count in shop.seen.rows.items() if table != "bad"}  # it is there, and empty
    for one in document["tables"]:
        assert one["rows"] == one["ledger"] == one["warehouse"]
    [events] = [one for one in document["tables"] if one["table"] == "events"]
    assert (events["first"]["name"], events["last"]["name"], events["items"]) == (run_name(0), run_name(1), 2)
    assert events["types"] == [TYPE]
    code, alone = asked(capsys, "--no-warehouse")
    assert (code, {one["table"]: one["rows"] for one in alone["tables"]}) == (0, rows)
    assert {one["ledger"] for one in alone["tables"]} == {None}
    assert main(["tables"]) == 0
    said = capsys.readouterr().out
    assert f"events: {run_name(0)} to {run_name(1)};\n    {TYPE}\n" in said
    assert f"{len(rows)} tables, 2 loaded items" in said


def test_deleted_rows_are_reported(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(str(shop.home / "warehouse.duckdb")) as warehouse:
        warehouse.execute("DELETE FROM shop.events WHERE event_id = (SELECT min(event_id) FROM shop.events)")
    code, document = asked(capsys)
    assert (code, told(document)) == (1, [("events", None)])
    assert "Another program added or deleted rows" in document["differences"][0]["difference"]


def test_a_ledger_that_tells_something_else_is_told_with_the_first_item(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(str(shop.home / "warehouse.duckdb")) as warehouse:
        where = f"WHERE position LIKE '{run_name(0)[4:]}%'"
        warehouse.execute(f'UPDATE manifest_platform.ledger SET "rows" = \'{{"events": 1}}\' {where}')
    code, document = asked(capsys)
    assert (code, told(document)[0]) == (1, (None, f"manifest-platform history {run_name(0)}"))
    assert ("events", None) in told(document)
    with duckdb.connect(str(shop.home / "warehouse.duckdb")) as warehouse:
        warehouse.execute(f"DELETE FROM manifest_platform.ledger {where}")
    assert told(asked(capsys)[1])[0] == (None, "manifest-platform doctor")
    assert main(["doctor"]) == 1
    assert run_name(0) in capsys.readouterr().out


def test_a_missing_warehouse_is_reported_once_with_the_remedy(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    (shop.home / "warehouse.duckdb").unlink()
    code, document = asked(capsys)
    commands = {command for _, command in told(document) if command}
    assert (code, commands) == (1, {"manifest-platform warehouse reconcile"})
    assert not (shop.home / "warehouse.duckdb").exists()


def test_where_nothing_is_loaded_there_are_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.config_file))
    assert main(["tables"]) == 4
