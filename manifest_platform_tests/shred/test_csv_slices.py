"""Cutting CSV into slices of whole records, against Python's own parser."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifest_platform.shred import csv_slices
from manifest_platform.shred.csv_slices import NotCut, Slice, scan, slices

FIELDS = st.text(st.sampled_from('ab,"\n\r é'), max_size=6)


def cut(data: bytes, chunk: int) -> list[Slice]:
    starts = range(0, len(data), chunk)
    scans = [
        scan(
            io.BytesIO(data[start : start + chunk]),
            chunk,
            data[max(0, start - 2) : start],
            data[start + chunk : start + chunk + 1],
        )
        for start in starts
    ]
    return slices(scans, starts, len(data), data.endswith(b"\n"))


def rows(text: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text.decode(), newline="")))


@given(
    st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(2, 40),
    st.integers(1, 7),
)
@settings(deadline=None, max_examples=60)
def test_slices_have_the_records_of_the_file_whatever_the_fields_and_the_chunks(
    records: list[tuple[str, str, str]], newline: str, quotes_all: bool, chunk: int, block: int
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=newline, quoting=csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL)
    plain = [tuple(text if quotes_all else text.replace("\r", "") for text in row) for row in records]  # it quotes no CR
    writer.writerows([("x", "y", "z"), *plain])
    for data in (out.getvalue().encode(), out.getvalue().removesuffix(newline).encode()):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(csv_slices, "CHUNK", block)
            found = cut(data, chunk)
        assert found, "a file that Python's writer made can be cut"
        assert [one.start for one in found] == [found[0].header, *(one.end for one in found[:-1])]
        assert found[-1].end == len(data)
        parts = [rows(data[one.start : one.end]) for one in found]
        assert [len(part) for part in parts] == [one.records for one in found]
        assert [one.before for one in found] == [sum(map(len, parts[:place])) for place in range(len(parts))]
        assert [row for part in parts for row in part] == rows(data)[1:]
        assert {one.total for one in found} == {len(records)}
        assert rows(data[: found[0].header]) == rows(data)[:1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'x,y\n1,5" pipe\n2,b\n3,6" pipe\n', "it has a quote that neither begins a field"),
        (b'x,y\n1,"a" b\n2,c\n', "it has a quote that neither begins a field"),
        (b'x,y\n1,"open\n2,c\n', "its last quote is not closed"),
        (b"x,y\n1,a\n\n2,b\n", "it has an empty line"),
        (b"x,y\r\n1,a\r\n\r\n2,b\r\n", "it has an empty line"),
        (b"x,y\r1,a\r2,b\r", "or a carriage return alone"),
        (b"\nx,y\n1,a\n", "it has an empty line"),
        (b"x,y", "no line ends in it"),
        (b"", "no line ends in it"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 5, 1000])
def test_a_file_is_not_cut_where_quotes_and_lines_are_not_plain(text: bytes, why: str, chunk: int) -> None:
    with pytest.raises(NotCut, match=why):
        cut(text, chunk)
