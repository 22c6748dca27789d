"""`schemas`: the models of the registries, their tables and statements, what versions change, and copies in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform_tests.cli.test_commands import Shop
from manifest_platform_tests.sources.snowplow.given import publish

MODEL = "iglu:com.acme/click/jsonschema/1"
FIRST: dict[str, Any] = {
    "type": "object",
    "properties": {"url": {"type": "string", "maxLength": 10}, "count": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["url"],
}
SECOND: dict[str, Any] = {
    **FIRST,
    "properties": {**FIRST["properties"], "url": {"type": "string", "maxLength": 20}, "place": {"type": "string"}},
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    publish(tmp_path / "schemas", f"{MODEL}-0-0", FIRST)
    publish(tmp_path / "schemas", f"{MODEL}-0-1", SECOND)
    return shop


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(["schemas", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_models_are_listed_with_tables_and_versions(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = asked(capsys, "list")
    assert code == 0
    [model] = document["models"]
    assert (model["name"], model["table"], model["versions"]) == (MODEL, "com_acme_click_1", ["1-0-0", "1-0-1"])
    assert model["place"].endswith("/schemas") and document["unlisted"] == []
    assert main(["schemas", "list", "--seen"]) == 4


@pytest.mark.parametrize("name", [MODEL, f"{MODEL}-0-0", f"{MODEL}-*-*"])
def test_a_model_is_shown_with_its_columns(name: str, shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = asked(capsys, "show", name, "--documents")
    assert code == 0
    [table] = document["tables"]
    assert table["name"] == "com_acme_click_1"
    columns = {one["name"]: one["type"] for one in table["columns"]}
    assert (columns["url"], columns["place"], columns["root_id"]) == ("string(20)", "string", "string(36)")
    assert document["documents"][f"{MODEL}-0-1"] == SECOND
    assert main(["schemas", "show", name]) == 0
    assert "table com_acme_click_1\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["click", "iglu:com.acme/other/jsonschema/1", "iglu:com.acme/click/jsonschema/2-0-0"])
def test_a_name_of_no_schema_is_refused(name: str, shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schemas", "show", name]) == 1
    assert name in capsys.readouterr().err


def test_a_new_version_is_compared_with_the_one_before(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = asked(capsys, "diff", f"{MODEL}-0-0")
    assert (code, document["after"], document["problem"]) == (0, f"{MODEL}-0-1", "")
    assert {"place": "url", "before": "string(10)", "after": "string(20)"} in document["columns"]
    assert {"place": "place", "before": None, "after": "string"} in document["columns"]
    assert {"place": "properties.url.maxLength", "before": 10, "after": 20} in document["schema"]
    assert main(["schemas", "diff", f"{MODEL}-0-0"]) == 0
    assert "+ place: string\n" in capsys.readouterr().out
    assert main(["schemas", "diff", f"{MODEL}-0-1"]) == 4


def test_a_number_in_place_of_money_is_told_as_breaking(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version, total in (("1-1-0", {"multipleOf": 0.01}), ("1-1-1", {})):
        schema = {**SECOND, "properties": {**SECOND["properties"], "total": {"type": "number", **total}}}
        publish(tmp_path / "schemas", f"{MODEL.removesuffix('/1')}/{version}", schema)
    code, document = asked(capsys, "diff", f"{MODEL}-1-0", f"{MODEL}-1-1")
    assert code == 1
    assert "total is decimal(36,2) in 1-1-0 but double in 1-1-1" in document["problem"]


def test_the_statement_of_each_engine_is_printed(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    engines = ("duckdb", "postgresql", "redshift", "snowflake")
    code, document = asked(capsys, "ddl", MODEL, *(text for one in engines for text in ("--engine", one)))
    assert code == 0
    statements = {one["engine"]: one["sql"][0] for one in document["statements"]}
    assert set(statements) == set(engines)
    assert all('CREATE TABLE IF NOT EXISTS "acme"."com_acme_click_1" (' in sql for sql in statements.values())
    assert '"url" VARCHAR(20)' in statements["snowflake"]
    code, document = asked(capsys, "ddl", MODEL)
    assert [one["engine"] for one in document["statements"]] == ["duckdb"]
    assert main(["schemas", "ddl", MODEL, "--engine", "oracle"]) == 2
    assert not (shop.landing.parent / ".manifest_platform" / "warehouse.duckdb").exists()


def test_schemas_are_copied_to_a_folder_that_is_a_registry(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    code, document = asked(capsys, "fetch", str(folder), MODEL, "iglu:com.acme/other/jsonschema/1")
    assert (code, document["written"], document["same"]) == (1, [f"{MODEL}-0-0", f"{MODEL}-0-1"], 0)
    assert document["missing"] == ["iglu:com.acme/other/jsonschema/1"]
    assert asked(capsys, "fetch", str(folder), MODEL)[1]["same"] == 2
    shop.file.write_text(shop.file.read_text().replace("schemas: [schemas]", "schemas: [copy]"))
    assert asked(capsys, "list")[1]["models"][0]["versions"] == ["1-0-0", "1-0-1"]


def test_a_dataset_without_schemas_says_so(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.file.write_text(shop.file.read_text() + "  marks: {source: items, steps: [{name: count}]}\n")
    assert main(["schemas", "list", "--dataset", "marks"]) == 1
    assert "dataset marks has no schemas: its source, items, knows none" in capsys.readouterr().err
