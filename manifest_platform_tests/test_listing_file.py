"""The file of a listing: each object is a line, so that neither writing nor reading copies all of them."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import orjson

from manifest_platform import storage
from manifest_platform.listing import Column, DateRows, Listing, RowGroups, ShreddedObject, Table

DAYS = [f"2024-05-{day:02}" for day in range(1, 19)]
MANY = 500


def of(objects: int) -> Listing:
    """A listing of files of 18 dates."""

    def dates(number: int) -> tuple[DateRows, ...]:
        return tuple(DateRows(day, number, RowGroups(place, 1, number, number + 1, 9, 10)) for place, day in enumerate(DAYS))

    found = tuple(
        ShreddedObject("t", DAYS[0], f"file:///{number}.parquet", number, 10, dates=dates(number)) for number in range(objects)
    )
    return Listing("item", "1", 1, 1, 0, (Table("t", (Column("a", "string"),)),), found)


def test_each_object_is_a_line(tmp_path: Path) -> None:
    uri = storage.as_uri(tmp_path / "listing.json")
    for count in (0, 1, 3):
        of(count).write(uri)
        data = storage.read_bytes(uri)
        assert [line.startswith(b'    {"table":') for line in data.split(b"\n")].count(True) == count
        assert Listing.read(uri) == Listing.from_dict(json.loads(data)) == of(count)


def test_a_listing_of_an_older_release_is_read(tmp_path: Path) -> None:
    """Each value of it is on a line."""
    uri = storage.as_uri(tmp_path / "listing.json")
    storage.write_bytes(uri, orjson.dumps(asdict(of(3)), option=orjson.OPT_INDENT_2))
    assert Listing.read(uri) == of(3)


def test_a_large_listing_is_written_and_read_without_copies_of_its_objects(tmp_path: Path) -> None:
    """All objects as JSON-compatible data would take ten times the bytes of the file."""
    listing, uri = of(MANY), storage.as_uri(tmp_path / "listing.json")
    of(1).write(uri)  # imports are done
    tracemalloc.start()
    try:
        listing.write(uri)
        written = tracemalloc.get_traced_memory()[1]
        size = len(storage.read_bytes(uri))
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        found = Listing.read(uri)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == listing
    assert written < size / 2
    assert peak - before < kept - before + 2 * size
