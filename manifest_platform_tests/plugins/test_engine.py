"""Somebody else's package brings an engine: found through its entry point, configured, and as good as the contract asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from manifest_platform import config, plugins
from manifest_platform.testing.engine import EngineContract
from manifest_platform.testing.loads import SCHEMA, events, load
from manifest_platform.warehouse.apply import open_warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform_tests.plugins.installed import installed
from manifest_platform_tests.plugins.toy_engine import ToySettings


class TestToy(EngineContract):
    drops_not_null = False

    @pytest.fixture
    def settings(self, tmp_path: Path) -> ToySettings:
        return ToySettings(folder=str(tmp_path / "toy"))

    @pytest.fixture
    def unreachable(self, tmp_path: Path) -> ToySettings:
        (tmp_path / "file").touch()
        return ToySettings(folder=str(tmp_path / "file" / "toy"))

    def make_index(self, engine: Engine, table: str, name: str, column: str) -> None:
        of = f"{engine.quote(table)} ({engine.quote(column)})"  # of the schema that the index is in
        engine.execute(f"CREATE INDEX {engine.qualified(SCHEMA, name)} ON {of}")

    def make_view(self, engine: Engine, table: str, name: str) -> None:
        engine.execute(f"CREATE VIEW {engine.qualified(SCHEMA, name)} AS SELECT * FROM {engine.quote(table)}")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    place = f"{ToySettings.__module__}:{ToySettings.__name__}"
    with installed(tmp_path / "site", monkeypatch, plugins.ENGINES, toy=place):
        yield


CONFIGURATION = """
datasets:
  DATASET:
    landing: {root: landing}
    shred: {output: shredded, schemas: [schemas]}
warehouse: {kind: toy, folder: somewhere/else}
"""


@pytest.mark.usefixtures("toy")
def test_the_configuration_names_it_and_its_rows_are_loaded_and_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "manifest_platform.yaml"
    file.write_text(CONFIGURATION.replace("DATASET", "shop"))
    settings = config.load(file)
    assert settings.warehouse == ToySettings(folder=str(tmp_path / "somewhere" / "else"))
    with closing(open_warehouse(settings.warehouse, "shop")) as warehouse:
        warehouse.apply(load(events(tmp_path, "a", count=2)))
    with closing(open_warehouse(settings.warehouse, "shop", read_only=True)) as reader:
        assert reader.query("SELECT sum(amount) AS total FROM events") == (["total"], [(1,)])


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            "DATASET",
            "temp",
            "datasets.temp: 'temp': is a reserved schema of the warehouse; allowed: any name but main, manifest_",
        ),
        ("folder", "path", "warehouse.path: unknown key; allowed here: folder, kind"),
        ("kind: toy", "kind: doll", "warehouse.kind: 'doll': allowed: duckdb"),
    ],
)
def test_the_configuration_is_checked_by_what_it_declares(tmp_path: Path, before: str, after: str, problem: str) -> None:
    file = tmp_path / "manifest_platform.yaml"
    file.write_text(CONFIGURATION.replace(before, after).replace("DATASET", "shop"))
    with pytest.raises(config.ConfigError, match=re.escape(problem)):
        config.load(file)
