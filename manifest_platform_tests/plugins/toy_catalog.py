"""A catalog as another package would bring it: one JSON file a table, below a folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from manifest_platform.merging.catalogs.catalog import (
    Catalog,
    CatalogError,
    CatalogRejected,
    CatalogSettings,
    CatalogTable,
    Entry,
    NotOurs,
)
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import ServedFile
from manifest_platform.settings import LocalPath


class JsonSettings(CatalogSettings):
    """Tables as JSON files."""

    kind: Literal["json_files"] = Field(description="one JSON file a table")
    path: LocalPath = Field(description="the folder of the files")
    read_by = "python"

    def open(self, inventory: Inventory) -> JsonCatalog:
        return JsonCatalog(Path(self.path))


class JsonCatalog(Catalog):
    """`<schema>.<table>.json`: the columns, the location, the current list of each date, and all lists that were written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def known_as(self, table: CatalogTable) -> str:
        return f"{table.schema}.{table.name}"

    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        return {table: self._standing(table) for table in tables}

    def _standing(self, table: CatalogTable) -> Entry:
        found = self._read(self.known_as(table))
        if found is None:
            return "missing"
        return "current" if found["location"] == table.location and found["columns"] == _columns(table) else "outdated"

    def put_table(self, table: CatalogTable) -> None:
        found = self._read(self.known_as(table)) or {"lists": {}, "current": {}, "location": table.location}
        if found["location"] != table.location and table.table.catalog_name != self.known_as(table):
            raise CatalogRejected(f"{self.known_as(table)} lies at {found['location']}: remove it, or give ours another name")
        self._write(self.known_as(table), {**found, "location": table.location, "columns": _columns(table)})

    def remove_table(self, known_as: str, location: str) -> None:
        found = self._read(known_as)
        if found is None:
            return
        if found["location"] != location:
            raise NotOurs(f"{known_as} lies at {found['location']}: it is left alone")
        self._file(known_as).unlink()

    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        found = self._require(table)
        found["lists"][self.location(table, day, served)] = [file.uri for file in files]
        self._write(self.known_as(table), found)

    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        found = self._require(table)
        found["current"] |= {str(day): self.location(table, day, one) for day, one in served.items()}
        self._write(self.known_as(table), found)
        return {}

    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        return f"{day}/{served.generation}/{served.newest}"

    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        found = self._read(self.known_as(table)) or {"current": {}}
        return {date.fromisoformat(day): place for day, place in found["current"].items()}

    def files(self, table: CatalogTable, day: date) -> list[str]:
        """The current list of files of a date, as a reader finds it."""
        return self._require(table)["lists"][self.locations(table)[day]]

    def _require(self, table: CatalogTable) -> dict[str, Any]:
        found = self._read(self.known_as(table))
        if found is None:
            raise CatalogRejected(f"{self.known_as(table)} is not there")
        return found

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        self.requests += 1
        return json.loads(self._file(name).read_text()) if self._file(name).exists() else None

    def _write(self, name: str, entry: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self._file(name).with_suffix(".new")
        beside.write_text(json.dumps(entry))
        beside.replace(self._file(name))  # in one step: readers see the old or the new


def _columns(table: CatalogTable) -> list[list[str]]:
    return [[column.name, column.type] for column in table.columns]
