"""What the source says of columns: in the listing beside the tables, cleaned and cut, as Dagster shows it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from manifest_platform.cli.drained import event_document, progress
from manifest_platform.listing import ABOUT_TABLE, LISTING_FILE, LONGEST_DESCRIPTION, Column, Listing, Table, description
from manifest_platform.manifest import ItemKey
from manifest_platform.orchestration.translator import table_metadata
from manifest_platform.pipeline.events import Shredded
from manifest_platform.shred.batch import Written
from manifest_platform.sources.snowplow.schemas.columns import entity_columns
from manifest_platform.sources.snowplow.source import SnowplowEnriched

CLICK = Table("click", (Column("id", "string"), Column("target_url", "string")), descriptions={"target_url": "Where it led."})


def written(folder: Path, *tables: Table) -> tuple[str, dict[str, Any]]:
    uri = (folder / LISTING_FILE).as_uri()
    Listing("s3://shop/run=1", "1", 1, 1, 0, tables, ()).write(uri)
    return uri, orjson.loads((folder / LISTING_FILE).read_bytes())


def test_descriptions_stand_beside_the_tables_which_are_as_they_were(tmp_path: Path) -> None:
    uri, data = written(tmp_path, CLICK, Table("plain", (Column("id", "string"),)))
    assert data["descriptions"] == {"click": {"target_url": "Where it led."}}
    assert [sorted(table) for table in data["tables"]] == [
        ["columns", "family", "key", "load_time", "mode", "name", "target"]
    ] * 2
    assert [sorted(column) for table in data["tables"] for column in table["columns"]] == [["name", "nullable", "type"]] * 3
    assert [dict(table.descriptions) for table in Listing.read(uri).tables] == [CLICK.descriptions, {}]


def test_a_listing_without_descriptions_is_as_before_and_keys_of_a_newer_release_are_passed_over(tmp_path: Path) -> None:
    _, data = written(tmp_path, Table("plain", (Column("id", "string"),)))
    assert "descriptions" not in data
    assert Listing.from_dict({**data, "of_a_newer_release": 1}) == Listing.from_dict(data)


def test_a_description_is_one_clean_line_of_bounded_length() -> None:
    assert description("Where\n  it\tled.\x1b[2J\u202e") == "Where it led.\\x1b[2J\\u202e"
    assert (description(None), description(7), description({"$ref": "x"}), description(" \n")) == ("", "", "", "")
    cut = description("many words " * 1_000_000)
    assert len(cut) <= LONGEST_DESCRIPTION
    assert cut.endswith("…")


def test_the_newest_version_that_says_anything_describes_a_column_and_a_nested_one_has_its_own() -> None:
    first = {"properties": {"a": {"description": "old"}, "b": {"description": "kept"}, "c": {"type": "string"}}}
    inner = {"type": "object", "description": "of the object", "properties": {"leaf": {"description": "of the leaf"}}}
    second = {"properties": {"a": {"description": "new"}, "b": {"description": ["no text"]}, "d": inner}}
    found = entity_columns([("1-0-0", first), ("1-0-1", second)], "iglu:com.acme/a/jsonschema/1")
    assert {one.column.name: one.description for one in found} == {"a": "new", "b": "kept", "c": "", "d_leaf": "of the leaf"}


def test_tasks_that_met_different_versions_keep_what_each_says() -> None:
    total = Written()
    total.define(Table.from_dict(asdict(CLICK)))  # as it comes from a task
    total.define(Table("click", (*CLICK.columns, Column("new", "string")), descriptions={"new": "Came later."}))
    assert total.tables["click"].descriptions == {"target_url": "Where it led.", "new": "Came later."}


def test_dagster_shows_them_in_the_column_schema() -> None:
    [_, schema] = table_metadata("shop", CLICK).values()
    assert [(one.name, one.description) for one in schema.value.columns] == [("id", None), ("target_url", "Where it led.")]  # ty: ignore


def test_what_people_should_know_about_a_table_is_told_where_it_is_shredded():
    table = Table("orders_recovered", (Column("id", "string"),), descriptions={ABOUT_TABLE: "breaks its model"})
    listing = Listing("item", "attempt", 1, 1, 0, (table,), ())
    event = Shredded(ItemKey("enriched", "1", "s3://shop/run=1"), listing, 10, 1.0, 1, 3)
    said = "table orders_recovered: breaks its model"
    assert said in progress(event, SnowplowEnriched.words)
    assert event_document(event)["remarks"] == [said]
    assert "remarks" not in event_document(replace(event, listing=replace(listing, tables=())))
