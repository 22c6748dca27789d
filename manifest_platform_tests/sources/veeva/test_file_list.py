"""Faulty entries of Vault's list: none raises, and each affects only itself."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform.manifest.keys import look_key
from manifest_platform.sources.veeva.file_list import read_list

PART = {"name": "146478-20260101-0015-N.001", "filepart": 1, "size": 10, "md5checksum": "ab" * 16}
ENTRY: dict[str, Any] = {
    "name": "146478-20260101-0015-N",
    "extract_type": "incremental_directdata",
    "start_time": "2026-01-01T00:00Z",
    "stop_time": "2026-01-01T00:15Z",
    "record_count": 3,
    "size": 10,
    "fileparts": 1,
    "filepart_details": [PART],
}
GOOD = {**ENTRY, "name": "good", "start_time": "2026-01-01T00:15Z", "stop_time": "2026-01-01T00:30Z"}

ODD: list[Any] = [None, True, 0, -1, 1, 17, 1e308, float("nan"), "", "17", "\ud800", "0001-01-01T00:00+05:00", "𝄞" * 2000]
ODD += [
    {},
    {"a": 1},
    {"message": ["\ud800"], "next_retry": "9999-12-31T23:59-05:00"},
    [],
    [None],
    [17],
    [[]],
    [{}],
    [PART, PART],
]
anything = st.sampled_from(ODD) | st.text(max_size=4) | st.integers()


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """Returns an entry with some of its fields, or its part's, replaced; or a value that is not an entry."""
    if draw(st.integers(0, 9)) == 0:
        return draw(anything)
    entry = copy.deepcopy(ENTRY)
    for key in draw(st.sets(st.sampled_from([*ENTRY, "error", "filename"]), max_size=3)):
        entry[key] = draw(anything)
    if entry["filepart_details"] == [PART]:
        for key in draw(st.sets(st.sampled_from(list(PART)), max_size=2)):
            entry["filepart_details"][0][key] = draw(anything)
    return entry


@given(entry=spoilt())
def test_a_faulty_entry_affects_only_itself(entry: Any) -> None:
    listing = read_list("incr", [entry, GOOD])
    assert sum(file.name == "good" for file in listing.files) == 1
    assert len(listing.files) + len(listing.awaiting) + len(listing.unusable) == 2
    told = [(one.name, one.message) for one in listing.awaiting] + [(one.name, one.reason) for one in listing.unusable]
    json.dumps(told, ensure_ascii=False).encode()  # it can be printed and stored
    assert all(len(text) < 1000 for pair in told for text in pair)
    assert all(len(look_key("vault", one.name).encode()) < 1024 for one in listing.awaiting)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"filepart_details": [17]}, "one of its parts is 17, not an object"),
        ({"filepart_details": PART}, r"its parts (filepart_details) are {'filepart'"),
        (
            {"filepart_details": [{**PART, "name": "\ud800"}]},
            r"one of its parts is named '\ud800', which cannot be the name of a file",
        ),
        ({"filepart_details": [{**PART, "size": -1}]}, "it has size -1, which is not a whole number"),
        ({"stop_time": "0001-01-01T00:00+05:00"}, "it has stop_time '0001-01-01T00:00+05:00', which is not a time"),
        ({"record_count": -1}, "it has record_count -1, which is not a whole number"),
    ],
)
def test_the_fault_of_an_entry_is_reported(changes: dict[str, Any], reason: str) -> None:
    listing = read_list("incr", [{**ENTRY, **changes}, GOOD])
    assert [file.name for file in listing.files] == ["good"]
    [unusable] = listing.unusable
    assert unusable.name == ENTRY["name"]
    assert reason in unusable.reason


@pytest.mark.parametrize("parts", [[PART], []])
def test_a_window_of_no_records_is_empty_whether_it_has_an_archive_or_not(parts: list[Any]) -> None:
    size = sum(part["size"] for part in parts)
    [file] = read_list(
        "incr", [{**ENTRY, "record_count": 0, "size": size, "fileparts": len(parts), "filepart_details": parts}]
    ).files
    assert (file.is_empty, file.size) == (True, size)
