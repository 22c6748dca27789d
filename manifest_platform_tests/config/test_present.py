"""What a configuration names and is not there: told with its key and what to do, before anything waits for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.config.present import problems


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, Any]:
    """A configuration whose every place is as it must be, below a folder."""
    for folder in ("landing", "schemas", "payloads"):
        (tmp_path / folder).mkdir()
    (tmp_path / "spark.conf").touch()
    return {
        "datasets": {
            "acme": {
                "landing": {"root": "landing"},
                "shred": {"output": "new/shredded", "schemas": ["schemas", "http://iglucentral.com"]},
                "merge": {"output": "new/merged"},
            }
        },
        "manifest": {"store": "sqlite:///new/manifest.db", "schemas": ["payloads"], "archive": "new/archive"},
        "warehouse": {"path": "new/warehouse.duckdb"},
        "spark": {"conf": "spark.conf"},
    }


def found(tmp_path: Path, whole: dict[str, Any], **options: Any) -> list[str]:
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(whole))
    return [one.replace(f"{tmp_path}/", "") for one in problems(config.load(tmp_path / "platform.yaml"), **options)]


def test_what_is_there_or_can_be_made_is_right(
    tmp_path: Path, whole: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert found(tmp_path, whole) == []
    assert main(["config", "check", "--config", str(tmp_path / "platform.yaml")]) == 0
    assert "valid; datasets: acme" in capsys.readouterr().out
    assert not (tmp_path / "new").exists(), "a check makes nothing"


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("spark.conf", "spark.conf"),
        ("landing", "datasets.acme.landing.root"),
        ("schemas", "datasets.acme.shred.schemas.0"),
    ],
)
def test_what_others_give_must_be_there(
    path: str, key: str, tmp_path: Path, whole: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / path).rename(tmp_path / "elsewhere")
    [problem] = found(tmp_path, whole)
    assert re.match(rf"{key}: {path}: there is no such (file|folder); ", problem)
    assert main(["config", "check", "--config", str(tmp_path / "platform.yaml")]) == 2
    assert key in capsys.readouterr().err
    assert found(tmp_path, whole, dataset="acme", landing=False) == ([problem] if path != "landing" else [])


@pytest.mark.parametrize("path", ["landing", "schemas"])
def test_a_file_is_no_folder(path: str, tmp_path: Path, whole: dict[str, Any]) -> None:
    (tmp_path / path).rmdir()
    (tmp_path / path).touch()
    [problem] = found(tmp_path, whole)
    assert f"{path}: it is not a folder" in problem


def test_nothing_can_be_made_below_a_file(tmp_path: Path, whole: dict[str, Any]) -> None:
    (tmp_path / "new").touch()
    keys = ["manifest.store", "warehouse.path", "manifest.archive", "datasets.acme.shred.output", "datasets.acme.merge.output"]
    told = found(tmp_path, whole)
    assert [problem.partition(":")[0] for problem in told] == keys
    assert all("new is not a folder, so nothing can be created in it" in problem for problem in told)


def test_an_output_that_is_a_file_and_a_store_that_is_a_folder_are_told(tmp_path: Path, whole: dict[str, Any]) -> None:
    (tmp_path / "new" / "manifest.db").mkdir(parents=True)
    (tmp_path / "new" / "shredded").touch()
    store, output = found(tmp_path, whole)
    assert store.endswith("new/manifest.db: it is a folder, not a file; correct the path")
    assert output.endswith("new/shredded: it is a file, not a folder; correct the path")


def test_a_place_that_this_user_may_not_write_to_is_told(
    tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new" / "shredded").mkdir(parents=True)
    monkeypatch.setattr("os.access", lambda path, mode: not mode & 2)  # whoever runs this may be root
    told = found(tmp_path, whole)
    assert len(told) == 5
    assert any("new/shredded: this user may not write to it" in problem for problem in told)
    assert any("new/warehouse.duckdb: this user may not create files in new" in problem for problem in told)
