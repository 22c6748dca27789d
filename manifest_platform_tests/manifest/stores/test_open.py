"""Opening, creating and checking the configured store, and the operators' commands for that."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from manifest_platform.cli import main
from manifest_platform.config import ManifestConfig, load
from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform.manifest.stores import check_store, create_store, file_identity, memory_of, open_store
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.doctor.findings import Kind
from manifest_platform.pipeline import DrainReport, Pipeline, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.manifest.given import LossyStore


@pytest.fixture(params=["sqlite", "postgresql", "dynamodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/manifest.db"
    if request.param == "postgresql":
        return request.getfixturevalue("postgres")
    local: DynamoDbLocal = request.getfixturevalue("dynamodb")
    return local.store(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def file(tmp_path: Path, url: str) -> Path:
    dataset = "{landing: {root: landing}, shred: {output: out, schemas: [schemas]}}"
    file = tmp_path / "platform.yaml"
    file.write_text(f"datasets:\n  acme: {dataset}\nmanifest: {{store: '{url}'}}\n")
    return file


def test_a_store_is_created_once_then_checked_and_used(url: str) -> None:
    made, again = create_store(url), create_store(url)
    assert (made.made, made.differences, again.made, again.differences) == (True, [], False, [])
    assert check_store(url) == again
    with closing(open_store(url)) as store:
        store.transact("dataset", [Put("a", {}, ABSENT)], "token")
        assert store.get("dataset", "a")


def test_large_data_goes_where_the_configuration_says(dynamodb: DynamoDbLocal, tmp_path: Path) -> None:
    config = ManifestConfig(store=dynamodb.store(f"test-{uuid.uuid4().hex[:12]}"), overflow=str(tmp_path / "big"))
    create_store(config.store)
    with closing(config.open()) as store:
        store.transact("dataset", [Put("a", {"of": "x" * 400_000}, ABSENT)], "token")
    assert len(list((tmp_path / "big").iterdir())) == 1


def test_the_commands_create_and_check_the_store(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", "--config", str(file)]) == 1
    told = capsys.readouterr()
    assert "manifest-platform store create" in told.out + told.err
    assert main(["store", "create", "--config", str(file)]) == 0
    assert ": created, all settings are correct\n" in capsys.readouterr().out
    assert main(["store", "create", "--config", str(file)]) == 0
    assert main(["store", "check", "--config", str(file)]) == 0
    assert capsys.readouterr().out.count(": exists, all settings are correct\n") == 2
    assert main(["store", "check", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []


@pytest.mark.parametrize("url", ["sqlite", "dynamodb"], indirect=True)
def test_the_commands_create_and_check_the_store_of_what_was_loaded(
    file: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace("schemas: [schemas]}}", "schemas: [schemas]}, load: {duplicates: seen}}"))
    memory = memory_of(url)
    if url.startswith("dynamodb"):
        create_store(url)
        assert main(["store", "check", "--config", str(file)]) == 1
        assert "-seen" in capsys.readouterr().err
        with Pipeline(load(file), "acme") as pipeline:
            [found] = [one for one in Doctor(pipeline).examine().findings if one.kind is Kind.MEMORY]
        assert "-seen" in found.cause and found.remedy == Remedy(Action.CREATE_STORE)
    assert main(["store", "create", "--config", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["memory"]["made"], told["memory"]["differences"], "seen" in told["memory"]["name"]) == (True, [], True)
    assert main(["store", "check", "--config", str(file)]) == 0
    assert capsys.readouterr().out.count(": exists, all settings are correct\n") == 2
    assert check_store(memory, memory=True).differences == []
    with Pipeline(load(file), "acme") as pipeline:
        assert not [one for one in Doctor(pipeline).examine().findings if one.kind is Kind.MEMORY]


def test_a_memory_that_the_first_load_creates_is_no_finding(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/manifest.db"
    assert check_store(memory_of(url), memory=True).differences == []
    assert check_store(url).differences
    assert list(tmp_path.iterdir()) == []


def test_a_check_creates_nothing_and_names_missing_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/manifest.db"
    assert [difference.setting for difference in check_store(url).differences] == ["file"]
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(tmp_path / "manifest.db").execute("CREATE TABLE manifest (partition TEXT, sort TEXT)")
    found = check_store(url).differences
    assert [difference.setting for difference in found] == ["columns of manifest", "table manifest_transactions"]


def test_a_file_that_replaces_another_has_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "manifest.db"
    url = f"sqlite:///{path}"
    assert file_identity(url) == 0
    path.touch()
    first = file_identity(url)
    path.rename(tmp_path / "older.db")
    path.touch()
    assert file_identity(url) not in (0, first)
    assert file_identity("postgresql://h/db") == 0


@pytest.mark.parametrize("fault", ["request lost", "vanished"])
def test_a_drain_ends_where_the_store_does_not_answer_and_leaves_the_rest_to_the_next(
    file: Path, tmp_path: Path, fault: str
) -> None:
    run = tmp_path / "landing" / "run=2024-05-14-12-00-00"
    run.mkdir(parents=True)
    (run / "_SUCCESS").touch()
    settings = load(file)
    create_store(settings.manifest.store)
    with Pipeline(settings, "acme") as pipeline:
        assert discover(pipeline).new == (run.name,)
        pipeline.manifest.store = LossyStore(pipeline.manifest.store, fault, at=1)
        [report] = drain(pipeline, lambda: pytest.fail("there is nothing that may be shredded"))
    assert isinstance(report, DrainReport) and report.stop is Stop.UNAVAILABLE


@pytest.mark.parametrize("url", ["sqlite:///m.db", "dynamodb://table"])
def test_reading_a_url_loads_no_library_of_its_driver(url: str) -> None:
    code = (
        "import sys; from manifest_platform.config import ManifestConfig; "
        f"ManifestConfig(store={url!r}); print({{'sqlalchemy', 'boto3'}} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("url", ["no url", "mysql://h/db", "://", "sqlite", "sqlite:/m.db"])
def test_a_url_without_a_driver_is_refused_with_the_allowed_forms(url: str) -> None:
    with pytest.raises(ValueError, match=r"^allowed: dynamodb://.*, postgresql://.*, sqlite:///path/to/manifest.db$"):
        open_store(url)
