"""Remarks on tables of the newest items, such as that on the table of a schema version that breaks its model, by table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from manifest_platform.manifest import ItemKey, Record


@dataclass(frozen=True)
class Remark:
    """A remark on a table. `rows`: those that `items` items wrote to it. `newest`: the name of the newest of them."""

    table: str
    text: str
    rows: int
    items: int
    newest: str


def remarks(feed: str, records: Iterable[Record]) -> list[Remark]:
    """Returns the remarks of a feed's newest items, by table. `records`: their records, newest first."""
    found: dict[tuple[str, str], Remark] = {}
    seen: set[str] = set()
    for record in records:
        if "remarks" not in record.data or record.item in seen:
            continue  # no record of shredding, or of an earlier attempt
        seen.add(record.item)
        for said in record.data["remarks"]:
            table, _, text = said.removeprefix("table ").partition(": ")
            rows = sum(record.data.get("types", {}).get(table, {}).values())
            before = found.get((table, text), Remark(table, text, 0, 0, ItemKey(feed, "-", record.item).name))
            found[table, text] = Remark(table, text, before.rows + rows, before.items + 1, before.newest)
    return sorted(found.values(), key=lambda one: one.table)
