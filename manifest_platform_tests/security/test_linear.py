"""What strangers name costs time in proportion to its length, and names have a longest length."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform import column_names, storage
from manifest_platform.column_names import Spellings, matched, spelled, spelled_twice
from manifest_platform.listing import Column
from manifest_platform.merging.registration import widened_columns
from manifest_platform.merging.schemas import unified
from manifest_platform.shred.batch import Unusable
from manifest_platform.shred.csv_kernel import _NUMBER, CsvFile
from manifest_platform.shred.limits import LimitExceeded
from manifest_platform.sources.snowplow.schemas.columns import entity_columns
from manifest_platform.sources.snowplow.schemas.keys import snake_case
from manifest_platform.sources.veeva.direct_data import Contents, read_contents
from manifest_platform.sources.veeva.shredder import VeevaOptions, Window, _contents
from manifest_platform.warehouse.columns import fit

MANY = 20_000
SOON = 2.0
"""Seconds, on a busy machine, for what takes a tenth of one, and took ten and more when it was quadratic."""


def soon(work: Callable[[], object]) -> None:
    begun = time.process_time()
    work()
    assert time.process_time() - begun < SOON


# --- Names -----------------------------------------------------------------------------------------------------------


def test_the_snake_case_of_forty_thousand_capitals_comes_soon() -> None:
    """20 s: each capital was tried with all that follow it."""
    soon(lambda: snake_case("A" * 40_000))
    soon(lambda: snake_case("A1" * 20_000))


@given(st.text(alphabet="aAbB1_é.-", max_size=12))
def test_snake_case_gives_what_it_gave(name: str) -> None:
    spaced = re.sub(r"([A-Z\d]+)([A-Z][a-z])", r"\1_\2", name)
    spaced = re.sub(r"([a-z\d])([A-Z])", r"\1_\2", spaced)
    assert snake_case(name) == re.sub(r"[^a-z0-9_]", "_", spaced.lower())


@given(st.lists(st.sampled_from(["a", "A", "b", "B", "Ab", "aB"])), st.sampled_from(["a", "A", "AB", "ab", "aB", "c"]))
def test_spellings_find_what_a_look_at_all_finds(names: list[str], name: str) -> None:
    assert Spellings(names).find(name) == matched(names, name)


def test_many_names_are_spelled_soon() -> None:
    have = [f"Name{number}" for number in range(MANY)]
    wanted = [name.lower() for name in have]
    soon(lambda: spelled(have, wanted))
    soon(lambda: spelled_twice([*have, *wanted]))
    soon(lambda: fit(dict.fromkeys(have, "string"), dict.fromkeys(wanted, "string"), str.__eq__, False))
    columns = [Column(name, "string") for name in have]
    soon(lambda: widened_columns(columns, [Column(name, "string") for name in wanted]))
    schema = pa.schema([(name, pa.string()) for name in have])
    other = pa.schema([(name, pa.string()) for name in wanted])
    soon(lambda: unified("t", {"a": schema, "b": other}.items()))


def test_the_properties_that_a_schema_requires_are_looked_up_soon() -> None:
    names = [f"p{number}" for number in range(MANY)]
    schema = {"properties": {name: {"type": "string"} for name in names}, "required": names}
    soon(lambda: entity_columns([("1-0-0", schema)], "iglu:a/b/jsonschema/1", most=MANY))


def test_a_number_that_is_none_after_many_digits_is_told_soon() -> None:
    soon(lambda: _NUMBER.fullmatch("1" * 40_000 + "x"))
    for text in ("1", "+1.", "-.5", "1.5e3", "0E-10"):
        assert _NUMBER.fullmatch(text)
    for text in ("", ".", "e3", "1e", "1.5.", "--1"):
        assert not _NUMBER.fullmatch(text)


# --- A CSV header ----------------------------------------------------------------------------------------------------


def header(*names: str) -> CsvFile:
    return CsvFile(io.BytesIO(",".join(names).encode() + b"\n"), "file:///x.csv")


def test_a_header_of_forty_thousand_columns_is_refused_soon() -> None:
    """23 s: each name was counted among all."""

    def read() -> None:
        with pytest.raises(Unusable, match=r"the header of file:///x\.csv has 40,000 columns, and the most are 4,096"):
            header(*(f"c{number}" for number in range(40_000)))

    soon(read)


def test_a_header_of_as_many_columns_as_there_may_be_is_read_with_its_rows_soon() -> None:
    names = [f"c{number}" for number in range(column_names.MOST)]
    data = ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n"
    columns = [Column(name, "string") for name in names]

    def read() -> None:
        [typed] = CsvFile(io.BytesIO(data.encode()), "x").rows(columns, ())
        assert typed.rows.num_columns == len(names)

    soon(read)


def test_a_column_has_a_longest_name() -> None:
    assert header("a" * 255).header == ("a" * 255,)
    with pytest.raises(Unusable, match="has a column whose name has 40,000 characters, and the most are 255: 'aaaa") as told:
        header("a" * 40_000)
    assert len(str(told.value)) < 300
    with pytest.raises(Unusable, match="has a, b, c and 2 more twice"):
        header(*"abcdeABCDE")


# --- A vault's manifest ----------------------------------------------------------------------------------------------


def contents(lines: int, feed: str = "full") -> Contents:
    rows = "".join(f"Object.t{number},1,t{number}.csv\n" for number in range(lines))
    columns = "".join(f"Object.t{number},id,String\n" for number in range(lines))
    files = {
        "manifest.csv": b"extract,records,file\n" + rows.encode(),
        "metadata_full.csv": b"extract,column_name,type\n" + columns.encode(),
    }
    paths = [*files, *(f"t{number}.csv" for number in range(lines))]
    return read_contents(feed, paths, lambda asked: {path: files[path] for path in asked}, {}, ("*legacy*",))  # ty: ignore


def test_a_manifest_of_twenty_thousand_lines_is_read_soon() -> None:
    """11 s: each file was counted among all; and its extract was looked for among all, a file at a time."""
    read: list[Contents] = []
    soon(lambda: read.append(contents(MANY)))
    soon(lambda: [read[0].extract(f"t{number}.csv") for number in range(MANY)])
    soon(lambda: [read[0].table(extract, ["id"]) for extract in read[0].extracts])


def test_columns_that_are_new_or_gone_are_matched_soon() -> None:
    names = [f"c{number}" for number in range(MANY)]
    full = "extract,column_name,type\n" + "".join(f"Object.t,{name},String\n" for name in ["id", *names])
    changed = full.replace("c", "C").replace("extraCt,Column_name", "extract,column_name").replace("ObjeCt", "Object")
    gone = "extract,column_name\n" + "".join(f"Object.t,x{name}\n" for name in names)
    files = {
        "manifest.csv": "extract,records,file\nObject.t,1,t.csv\n"
        "Metadata.metadata,1,m.csv\nMetadata.metadata_deletes,1,d.csv\n",
        "metadata_full.csv": full,
        "m.csv": changed,
        "d.csv": gone,
    }

    def read() -> None:
        found = read_contents("incr", [*files, "t.csv"], lambda asked: {path: files[path].encode() for path in asked}, {}, ())
        assert len(found.columns["t"]) == MANY + 1
        assert len(found.retired) == MANY
        found.table(found.extracts[0], ["id"])

    soon(read)


def test_a_manifest_or_metadata_too_large_to_be_that_is_not_read(tmp_path: Path) -> None:
    """They are read whole, by every worker: 65 MiB, of a file without blocks, stand for many more."""
    place = storage.as_uri(tmp_path)
    (tmp_path / "manifest.csv").touch()
    os.truncate(tmp_path / "manifest.csv", (64 << 20) + 1)
    files = ((f"{place}/manifest.csv", (64 << 20) + 1),)
    window = Window(place, files, "", "a1", place, "incr", "2026-01-01T00:15Z")
    with pytest.raises(
        LimitExceeded, match=r"67,108,865 bytes, and is read into memory; shred.limits.metadata_mib allows 32 MiB"
    ):
        _contents(window, VeevaOptions(), "batch")
