"""The types of what was shredded, in the listing and in the record that names it, in those of releases before as well."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.listing import LISTING_FILE, Listing, ShreddedType
from manifest_platform.manifest import OUTPUT, Application, Payload, Record, State
from manifest_platform.pipeline.shredding import TYPES_KEPT, OutputGone, kept_types, shredded_payload, types_of

CLICK = "iglu:com.acme/click/jsonschema/1-0-0"


def listing(*types: ShreddedType) -> Listing:
    return Listing("s3://shop/run=1", "1", 1, 1, 0, (), (), types=types)


def record(data: dict[str, Any]) -> Record:
    return Record(
        "s3://shop/run=1",
        1,
        "1",
        State.PROCESSED,
        Application("shred"),
        "test",
        datetime.now(UTC),
        payload=Payload(OUTPUT, data),
    )


def many(count: int) -> tuple[ShreddedType, ...]:
    return tuple(ShreddedType(f"{CLICK[:-1]}{number}", "click", number) for number in range(count))


def test_a_listing_keeps_its_types_and_an_older_one_has_none(tmp_path: Path) -> None:
    uri = (tmp_path / LISTING_FILE).as_uri()
    listing(*many(2)).write(uri)
    assert Listing.read(uri).types == many(2)
    older = dataclasses.asdict(listing())
    del older["types"]
    assert Listing.from_dict({**older, "objects": [], "tables": []}).types == ()


def test_a_record_has_all_types_by_table_where_there_is_room() -> None:
    types = (*many(2), ShreddedType("Object.visit__c", "visit__c", 7))
    data = shredded_payload(listing(*types), "file:///nowhere").data
    assert data["types"] == {"visit__c": {"Object.visit__c": 7}, "click": {f"{CLICK[:-1]}1": 1, CLICK: 0}}
    assert "more_types" not in data
    assert sorted(types_of(record(data)), key=str) == sorted(types, key=str)
    assert "types" not in shredded_payload(listing(), "file:///nowhere").data


def test_of_many_types_the_record_has_those_with_the_most_rows_and_the_listing_all(tmp_path: Path) -> None:
    types, uri = many(TYPES_KEPT + 3), (tmp_path / LISTING_FILE).as_uri()
    data = shredded_payload(listing(*types), uri).data
    assert (data["more_types"], len(data["types"]["click"]), min(data["types"]["click"].values())) == (3, TYPES_KEPT, 3)
    with pytest.raises(OutputGone):
        types_of(record(data))
    assert len(kept_types(record(data))) == TYPES_KEPT
    listing(*types).write(uri)
    assert sorted(types_of(record(data)), key=str) == sorted(types, key=str)


@pytest.mark.parametrize("said", [None, [], ["a"], {"a": 1}, {"a": {"b": "c"}}, {"a": {"b": None}}])
def test_what_another_program_calls_types_is_not_taken_for_them(said: Any) -> None:
    assert types_of(record({"types": said})) == []
