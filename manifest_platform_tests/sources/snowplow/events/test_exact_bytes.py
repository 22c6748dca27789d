"""A bad row keeps its line exactly: its bytes, and its place in the file."""

import base64
import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from manifest_platform.shred.limits import KEPT_OF_LINE, InputLimits
from manifest_platform.shred.lines import Piece, plan
from manifest_platform.shred.rows import BadRow, bad_table, kept_bytes
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines, shred_piece
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow.given import enriched

ODD = enriched(page_title="@@", user_id="@").replace(b"@@", b"caf\xe9 \xff").replace(b"\t@", b"\ta\0b")
_ENDS = st.sampled_from([b"\n", b"\r\n"])
_LINE = st.one_of(
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from([enriched(), ODD, b"caf\xc3\xa9\tbad", b"\r", b""]),
)


@pytest.fixture(scope="module")
def resolver() -> Resolver:
    return Resolver([])


def bad_rows(file: Path, resolver: Resolver, split: int = 1 << 20, line: int = 1 << 20) -> list[dict[str, Any]]:
    """Returns the bad rows of a file, cut into pieces of `split` bytes, in their order."""
    limits = InputLimits(line=line, inflation=10_000)
    pieces = [piece for pieces in plan([(file.as_uri(), file.stat().st_size)], split) for piece in pieces]
    parts = [
        shredded.bad
        for piece in pieces
        for _, shredded in shred_piece(piece, lambda *part: shred_lines(part[0], resolver, *part[1:]), limits, 64)
    ]
    return [row for part in parts for row in part.to_pylist()]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([(ODD, b"\r\n"), (b"\r", b"\n"), (ODD, b"\n")], False, 100)
@given(st.lists(st.tuples(_LINE, _ENDS), max_size=8), st.booleans(), st.integers(40, 2000))
def test_every_bad_line_is_kept_as_it_was(
    tmp_path: Path, resolver: Resolver, lines: list[tuple[bytes, bytes]], is_packed: bool, split: int
) -> None:
    text = b"".join(line + end for line, end in lines)
    file = tmp_path / ("f.gz" if is_packed else "f")
    file.write_bytes(gzip.compress(text) if is_packed else text)
    whole = [line.removesuffix(b"\r") for line in text.split(b"\n")]
    for row in bad_rows(file, resolver, split):
        data = kept_bytes(row)
        assert data is not None and data == whole[row["line"] - 1]
        assert text[row["byte_offset"] :].startswith(data) and row["byte_length"] == len(data)
        assert (row["raw_base64"] is None) == (row["raw"].encode() == data)


def test_text_is_not_kept_twice(tmp_path: Path, resolver: Resolver) -> None:
    (tmp_path / "f").write_bytes("bad é one\nbad\ttwo".encode())
    rows = bad_rows(tmp_path / "f", resolver)
    assert [(row["byte_offset"], row["byte_length"], row["raw_base64"]) for row in rows] == [(0, 10, None), (11, 7, None)]


def test_the_beginning_of_a_line_that_is_too_long_is_kept_and_the_place_of_all_of_it(
    tmp_path: Path, resolver: Resolver
) -> None:
    line = b"\xff" * (KEPT_OF_LINE + 100_000)
    (tmp_path / "f").write_bytes(enriched() + b"\n" + line + b"\n" + enriched())
    (row,) = bad_rows(tmp_path / "f", resolver, line=KEPT_OF_LINE)
    assert (row["byte_offset"], row["byte_length"]) == (len(enriched()) + 1, len(line))
    assert base64.b64decode(row["raw_base64"]) == line[:KEPT_OF_LINE]
    assert kept_bytes(row) is None


def test_rows_of_shredders_that_know_no_places_stay_without_them(tmp_path: Path) -> None:
    """They are in any chunk of a file. Before, a null became NaN in the second chunk, and the row was refused."""
    (tmp_path / "f").write_bytes(b"a\n" * 100)
    piece = Piece((tmp_path / "f").as_uri(), 200, 0, 200)

    def shred(data: bytes, file: str, first_line: int) -> ShreddedEvents:
        count = data.count(b"\n")
        rows = [BadRow(first_line + number, [{"type": "x", "message": "y"}], "a") for number in range(count)]
        return ShreddedEvents({}, {}, bad_table(file, rows), count, 0)

    found = [row for _, part in shred_piece(piece, shred, InputLimits(), 64) for row in part.bad.to_pylist()]
    assert [row["line"] for row in found] == list(range(1, 101))
    assert {row["byte_offset"] for row in found} == {None}


@pytest.mark.parametrize(("raw", "kept"), [("bad é", "bad é".encode()), ("bad \ufffd", None)])
def test_rows_of_older_releases_have_their_bytes_if_nothing_was_altered(raw: str, kept: bytes | None) -> None:
    assert kept_bytes({"file": "f", "line": 1, "reasons": "[]", "raw": raw}) == kept
