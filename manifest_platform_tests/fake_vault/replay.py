"""A reader of Direct Data archives that uses only the standard library: it replays archives by their own metadata.

It knows nothing of the simulation, so that each can be checked against the other.
"""

from __future__ import annotations

import csv
import io
import tarfile
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

PICKLIST_KEY = ("object", "object_field", "picklist_value_name")
METADATA_KEY = ("extract", "column_name")


def unpack(packed: bytes) -> dict[str, bytes]:
    """Returns the files of a tar.gz by path."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content, f"{member.name} is no file"
            files[member.name] = content.read()
    return files


def rows(content: bytes) -> list[dict[str, str]]:
    """Returns the rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True))


class Replica:
    """The tables of a vault, replayed from its archives in order."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {}

    def apply(self, tree: dict[str, bytes]) -> None:
        """Applies deletes, then updates, then dropped tables and columns."""
        types = {
            (row["extract"], row["column_name"]): row["type"]
            for row in rows(tree.get("metadata_full.csv") or tree["Metadata/metadata.csv"])
        }
        lines = [line for line in rows(tree["manifest.csv"]) if line["extract"] not in ("Metadata.object", "Metadata.document")]
        for line in sorted(lines, key=lambda line: line.get("type") != "deletes"):
            found = rows(tree[line["file"]]) if line["file"] else []
            assert len(found) == int(line["records"])
            extract = line["extract"].removesuffix("_deletes").replace("_deleted__sys", "__sys")
            self._apply(extract, line.get("type") == "deletes", found, types)
        self._reshape()

    def _apply(self, extract: str, deletes: bool, found: list[dict[str, str]], types: dict[tuple[str, str], str]) -> None:
        name = extract.partition(".")[2].lower()
        key = {"picklist__sys": PICKLIST_KEY, "metadata": METADATA_KEY}.get(name, ("id",))
        table = self.tables.setdefault(name, {})
        for row in found:
            identity = tuple(row[column] for column in key)
            if deletes:
                assert set(row) == {*key, "deleted_date"}
                table.pop(identity, None)
            else:
                table[identity] = {column: value(text, types.get((extract, column), "String")) for column, text in row.items()}

    def _reshape(self) -> None:
        """Gives every table the columns that the metadata names now, and drops all other tables."""
        columns: dict[str, list[str]] = {"metadata": []}
        for extract, column in self.tables["metadata"]:
            columns.setdefault(extract.partition(".")[2].lower(), []).append(column)
        for row in self.tables["metadata"].values():
            row.pop("modified_date", None)
        self.tables = {
            name: {
                key: row if name == "metadata" else {column: row.get(column) for column in wanted} for key, row in old.items()
            }
            for name, wanted in columns.items()
            for old in [self.tables.get(name, {})]
            if "audit" not in name
        }


def value(text: str, kind: str) -> Any:
    """Returns a typed value; None for an empty text. A text that is not of its type stays text."""
    if not text:
        return None
    match kind:
        case "Number" if not text.startswith("VV-"):
            return Decimal(text)
        case "Boolean":
            return {"true": True, "false": False}[text]
        case "Date":
            return date.fromisoformat(text)
        case "DateTime":
            return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return text
