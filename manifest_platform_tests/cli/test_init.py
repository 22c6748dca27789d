"""`init`: a project for what has landed, written once, into a folder or into a project of Dagster's."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.operations.project import name_of
from manifest_platform.testing.source import written_below

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DG = """
[project]
name = "mine"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "mine"
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, with a project's folder beside, which is the working directory."""
    monkeypatch.delenv(config.VARIABLE, raising=False)
    for number in range(2):
        write_run(tmp_path / "shop" / "enriched", FIRST + number * timedelta(minutes=10), 5, seed=number)
    (tmp_path / "store_front").mkdir()
    monkeypatch.chdir(tmp_path / "store_front")
    return tmp_path / "shop" / "enriched"


def made(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    code = main(["init", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_what_landed_becomes_a_project_whose_files_are_valid(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = made(capsys, "--landing", shop, "--schemas", SCHEMAS, "--yes")
    here = Path()
    assert (code, document["into"], document["kept"]) == (0, False, [])
    assert sorted(document["written"]) == sorted(str(path) for path in here.rglob("*") if path.is_file())
    loaded = config.load()
    dataset = loaded.datasets["shop"]
    assert (dataset.source, dataset.landing.root, dataset.landing.complete) == ("snowplow_enriched", str(shop), "marker")
    text = Path("manifest_platform.yaml").read_text()
    assert "      # the folder in which directories land: a local path or s3://bucket/prefix\n" in text
    assert max(map(len, text.splitlines())) <= 128
    assert yaml.safe_load(text.replace("# merge:", "merge:").replace("#   output", "  output"))["datasets"]["shop"]["merge"]
    assert Path(".env").stat().st_mode & 0o077 == 0
    assert Path(".env").read_text().count(f"DAGSTER_HOME={Path('.dagster_home').absolute()}") == 1
    assert ".env\n" in Path(".gitignore").read_text()
    for path in here.rglob("*.py"):
        compile(path.read_text(), path, "exec")
    assert yaml.safe_load(Path(".dagster_home/dagster.yaml").read_text())["concurrency"]
    assert "$" not in Path("README.md").read_text()


def test_done_again_nothing_is_written(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(capsys, "--landing", shop, "--yes")
    Path("README.md").write_text("mine")
    Path("tests/test_shop.py").unlink()
    before = written_below(Path())
    code, document = made(capsys, "--landing", shop, "--yes")
    assert (code, document["written"]) == (0, ["tests/test_shop.py"])
    assert Path("README.md").read_text() == "mine"
    Path("tests/test_shop.py").unlink()
    assert written_below(Path()).keys() - before.keys() == set()
    made(capsys, "--landing", shop, "--yes")
    code, document = made(capsys, "--landing", shop, "--yes")
    assert (code, document["written"]) == (4, [])


def test_a_configuration_without_the_dataset_stays_and_nothing_is_written(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("manifest_platform.yaml").write_text("datasets:\n  other: {}\n")
    assert main(["init", "--landing", str(shop), "--yes"]) == 2
    assert "has no dataset shop, so nothing was written. Add this to its datasets" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["manifest_platform.yaml"]


@pytest.mark.parametrize("layout", ["src/mine", "mine"])
def test_a_project_of_dagsters_gets_a_configuration_and_a_definition(
    layout: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(layout) / "defs").mkdir(parents=True)
    Path("pyproject.toml").write_text(DG)
    code, document = made(capsys, "--landing", shop, "--dataset", "web", "--yes")
    assert (code, document["into"]) == (0, True)
    [added] = [name for name in document["written"] if name != "manifest_platform.yaml"]
    assert added.startswith(f"{layout}/defs/web/")
    assert len(document["written"]) == 2
    code, document = made(capsys, "--landing", shop, "--dataset", "web", "--yes")
    assert (code, document["into"], document["written"]) == (4, True, [])


def test_without_a_marker_directories_settle_which_is_told(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for marker in shop.glob("*/_SUCCESS"):
        marker.unlink()
    assert main(["init", "--landing", str(shop), "--yes"]) == 0
    assert "(landing.settle_seconds)" in capsys.readouterr().out
    assert config.load().datasets["shop"].landing.complete == "settle"
    assert "landing.settle_seconds" in Path("README.md").read_text()


def test_a_pyproject_without_dagster_stays_and_what_it_lacks_is_told(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "mine"\n')
    assert main(["init", "--landing", str(shop), "--yes"]) == 0
    assert 'root_module = "store_front"' in capsys.readouterr().out
    assert Path("pyproject.toml").read_text() == '[project]\nname = "mine"\n'


def test_what_is_typed_is_taken_and_defaults_are_what_was_found(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def prompt(question: str, default: str) -> str:
        asked.append(default)
        return {"landing": str(shop), "shop": "web"}.get(default, default)

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main(["init", "--warehouse", "w.duckdb"]) == 0
    store = "sqlite:///.manifest_platform/manifest.db"
    assert asked == ["landing", "shop", "http://iglucentral.com", store]
    assert config.load().warehouse.place == str(Path("w.duckdb").absolute())
    assert "manifest-platform drain" in capsys.readouterr().out


def test_a_place_that_nobody_knows_or_that_is_not_told_writes_nothing(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--yes"]) == 2
    assert "--landing PLACE is missing" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["init", "--landing", str(tmp_path / "empty")]) == 4
    assert main(["init", "--landing", str(tmp_path / "nowhere")]) == 2
    assert main(["init", "--landing", str(shop), "--dataset", "1; drop"]) == 2
    assert main(["init", "--landing", str(shop), "--store", "mysql://x"]) == 2
    assert main(["init", str(shop / "run=2026-01-01-00-00-00" / "_SUCCESS"), "--landing", str(shop)]) == 2
    write_run(tmp_path / "shop" / "other", FIRST, 1, seed=1)
    assert main(["init", "--landing", str(tmp_path / "shop")]) == 2
    assert "holds 2 landing roots" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_an_option_with_a_secret_of_the_environment_is_kept_as_it_is_told(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "state")
    assert main(["init", "--landing", str(shop), "--store", "sqlite:///${PLACE}/m.db", "--yes"]) == 0
    assert "store: sqlite:///${PLACE}/m.db" in Path("manifest_platform.yaml").read_text()


@pytest.mark.parametrize(
    ("landing", "name"),
    [
        ("/data/shop/enriched", "shop"),
        ("s3://acme-lake/enriched/good", "acme_lake"),
        ("/landing", "source"),
        ("/a/My Shop (EU)/landing", "my_shop_eu"),
    ],
)
def test_a_dataset_is_called_as_the_nearest_folder_that_says_something(landing: str, name: str) -> None:
    assert name_of(landing, "source") == name


def test_a_module_is_called_as_no_installed_one(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, module in (("dagster", "dagster_project"), ("2026 shop", "project_2026_shop"), ("tests", "tests_project")):
        _, document = made(capsys, folder, "--landing", shop, "--yes")
        assert f"{module}/definitions.py" in document["written"]
