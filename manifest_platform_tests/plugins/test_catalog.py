"""A catalog of another package: found by its entry point, configured, and held to the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import pytest

from manifest_platform import plugins
from manifest_platform.merging.catalogs.catalog import Catalog, CatalogTable, open_catalog
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.settings import MergeSettings
from manifest_platform.testing.catalog import EntriesContract
from manifest_platform_tests.plugins.installed import installed
from manifest_platform_tests.plugins.toy_catalog import JsonCatalog, JsonSettings


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    place = f"{JsonSettings.__module__}:{JsonSettings.__name__}"
    with installed(tmp_path / "site", monkeypatch, plugins.CATALOGS, json_files=place):
        yield


@pytest.mark.usefixtures("toy")
class TestToyCatalog(EntriesContract):
    @pytest.fixture
    def catalog(self, inventory: Inventory, tmp_path: Path) -> Catalog:
        told = {"output": str(tmp_path / "merged"), "catalog": {"kind": "json_files", "path": str(tmp_path / "json")}}
        return open_catalog(MergeSettings.model_validate(told).catalog, inventory)

    def files(self, catalog: Catalog, table: CatalogTable, day: date) -> Sequence[str]:
        assert isinstance(catalog, JsonCatalog)
        return catalog.files(table, day)


@pytest.mark.usefixtures("toy")
def test_what_a_catalog_is_told_wrong_is_said_with_what_is_allowed(tmp_path: Path) -> None:
    told = {"output": str(tmp_path), "catalog": {"kind": "json_file", "path": "x"}}
    with pytest.raises(ValueError, match="allowed: embedded, glue, json_files"):
        MergeSettings.model_validate(told)


def test_without_its_package_a_catalog_is_unknown() -> None:
    with pytest.raises(plugins.UnknownPlugin, match=r"^allowed: embedded, glue$"):
        plugins.load(plugins.CATALOGS, "json_files")
