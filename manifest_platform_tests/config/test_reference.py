"""The reference page and the JSON Schema: made from the models, and true of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.config.reference import reference, schema, sections

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = ("manifest_platform.yaml", "manifest_platform_veeva.yaml")


def test_the_page_in_the_docs_is_made_from_the_models() -> None:
    page = (REPOSITORY / "docs" / "reference" / "configuration.md").read_text()
    assert page == reference(), "run: manifest-platform config reference > docs/reference/configuration.md"


def test_every_key_has_a_meaning() -> None:
    assert [f"{section.name}: {key.name}" for section in sections() for key in section.keys if not key.meaning] == []
    assert [section.name for section in sections() if not section.meaning] == []


def example(file: str) -> dict[str, Any]:
    """A file of the repository as an editor sees it: a date is a text."""
    return json.loads(json.dumps(yaml.safe_load((REPOSITORY / file).read_text()), default=str))


@pytest.mark.parametrize("file", EXAMPLES)
def test_the_schema_takes_the_repositorys_files(file: str) -> None:
    jsonschema.validate(example(file), schema())


OFFS = [("shred", "validate"), ("load", "duplicates")]


@pytest.mark.parametrize(("part", "key"), OFFS)
def test_off_need_not_be_quoted(tmp_path: Path, part: str, key: str) -> None:
    """YAML reads the word as false."""
    shop: dict[str, Any] = {
        "source": "snowplow_enriched",
        "landing": {"root": "landing"},
        "shred": {"output": "shredded", "schemas": ["schemas"]},
        "load": {},
    }
    shop[part][key] = yaml.safe_load("off")
    whole = {
        "datasets": {"shop": shop},
        "manifest": {"store": "sqlite:///manifest.db"},
        "warehouse": {"path": "shop.duckdb"},
        "spark": {"conf": str(REPOSITORY / "spark_conf" / "local.conf")},
    }
    jsonschema.validate(whole, schema())
    file = tmp_path / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump(whole))
    assert getattr(getattr(config.load(file).datasets["shop"], part), key) == "off"
    shop[part][key] = True
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(whole, schema())
    file.write_text(yaml.safe_dump(whole))
    with pytest.raises(config.ConfigError, match=key):
        config.load(file)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease": {"seconds": "soon"}},
        {"lease": {"secnods": 60}},
        {"datasets": {}},
        {"warehouse": {"kind": "sheet"}},
        {"datasets": {"acme": {"source": "kafka"}}},
    ],
)
def test_the_schema_refuses_what_is_wrong(wrong: dict[str, Any]) -> None:
    right = example(EXAMPLES[0])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(right | wrong, schema())


def test_a_number_may_come_from_the_environment() -> None:
    right = example(EXAMPLES[0])
    jsonschema.validate(right | {"lease": {"seconds": "${LEASE_SECONDS:-60}"}}, schema())


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PGSECRET", "hunter2")
    for folder in ("landing", "x"):
        (tmp_path / folder).mkdir()
    file = tmp_path / "platform.yaml"
    file.write_text(
        "datasets: {acme: {landing: {root: landing}, shred: {output: out, schemas: [x]}}}\n"
        "manifest: {store: 'postgresql://me:${PGSECRET}@db.example/manifest'}\n"
    )
    monkeypatch.setenv(config.VARIABLE, str(file))
    return file


def test_show_prints_defaults_and_absolute_paths_and_no_password(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    text = capsys.readouterr().out
    told = yaml.safe_load(text)
    assert told["datasets"]["acme"]["landing"]["root"] == str(file.parent / "landing")
    assert told["datasets"]["acme"]["source"] == "snowplow_enriched"
    assert (told["lease"]["seconds"], told["warehouse"]["kind"]) == (60, "duckdb")
    assert told["manifest"]["store"] == "postgresql://***@db.example/manifest"
    assert main(["config", "show", "--json"]) == 0
    assert "hunter2" not in text + capsys.readouterr().out


def test_check_says_that_a_file_is_valid_or_every_problem(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0
    assert capsys.readouterr().out == f"{file}: valid; datasets: acme\n"
    file.write_text(file.read_text() + "lease: {seconds: soon, attempts: 3}\n")
    assert main(["config", "check"]) == 2
    told = capsys.readouterr().err
    assert "lease.seconds: 'soon'" in told
    assert "lease.attempts: unknown key; allowed here: max_attempts, seconds" in told


def test_schema_and_reference_need_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(config.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Config"
    assert main(["config", "reference"]) == 0
    assert capsys.readouterr().out.startswith("# Configuration\n")
