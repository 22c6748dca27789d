import csv
import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manifest_platform.listing import Column
from manifest_platform.shred.batch import CHUNK, Unusable
from manifest_platform.shred.csv_kernel import CsvFile

TEXT = Column("text", "string")
NUMBER = Column("number", "decimal(38,10)")
FLAG = Column("flag", "boolean")
DAY = Column("day", "date")
TIME = Column("time", "timestamp")


def shredded(data: bytes, *columns: Column, key: tuple[str, ...] = (), chunk: int = CHUNK) -> tuple[list[tuple], list[dict]]:
    """The good rows as tuples and the bad ones, in the order of the file."""
    good, bad = [], []
    for typed in CsvFile(io.BytesIO(data), "f.csv", chunk).rows(columns, key):
        good += [tuple(row.values()) for row in typed.rows.to_pylist()]
        bad += [{**row, "reasons": json.loads(row["reasons"])} for row in typed.bad.to_pylist()]
    return good, bad


def written(header: list[str], rows: list[list[str]], **options: Any) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, **options)
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().encode()


TRICKY = ["00123", "1.10", "0.10", "NA", "N/A", "null", "NULL", "None", "nan", "true", " blanks ", 'a "quote"', '"', ",", "\n",
          "a\nb", "a\r\nb", "a\rb", "\\N", "\\", "é 東京 🧪", "#N/A", "1e5", "=1+1", "x" * 5000]  # fmt: skip


def test_A17_text_is_kept_as_it_is_and_nothing_is_null():
    data = written(["id", "text"], [[str(number), text] for number, text in enumerate(TRICKY)] + [["empty", ""]])
    good, bad = shredded(data, TEXT)
    assert (good, bad) == ([*((text,) for text in TRICKY), (None,)], [])


def test_an_empty_field_is_null_with_quotes_and_without():
    assert shredded(b'text,number,flag,day,time\n"","","","",""\n,,,,\n', TEXT, NUMBER, FLAG, DAY, TIME) == (
        [(None,) * 5] * 2,
        [],
    )


LAST_FIELDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
INSTANTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))
NUMBERS = st.decimals(min_value=-(10**28) + 1, max_value=10**28 - 1, allow_nan=False, allow_infinity=False, places=10)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(*(st.none() | each for each in (LAST_FIELDS.filter(bool), NUMBERS, st.booleans(), st.dates(), INSTANTS)))
    ),
    st.sampled_from([(csv.QUOTE_ALL, "\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_MINIMAL, "\r\n")]),
    st.booleans(),
)
def test_what_was_written_comes_back(rows: list[tuple], form: tuple[Any, str], bom: bool):
    def text(value: Any) -> str:
        if isinstance(value, datetime):
            return value.isoformat().replace("+00:00", "Z")
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else "" if value is None else f"{value}"

    data = written(
        ["text", "number", "flag", "day", "time"], [[*map(text, row)] for row in rows], quoting=form[0], lineterminator=form[1]
    )
    good, bad = shredded((b"\xef\xbb\xbf" if bom else b"") + data, TEXT, NUMBER, FLAG, DAY, TIME)
    assert good == [(*row[:4], row[4] and row[4].replace(tzinfo=None)) for row in rows]
    assert bad == []


@settings(deadline=None)
@given(
    st.text("0123456789+-.eE_ nainf", min_size=1, max_size=45)
    | st.from_regex(r"[+-]?[0-9]{0,45}(\.[0-9]{0,45})?([eE][+-]?[0-9]{1,3})?", fullmatch=True).filter(bool)
    | st.decimals().map(str)
    | st.floats().map(repr)
)
@example("11E30")
@example("11" + "0" * 28)  # of 40 digits with its scale: became 79...
@example("0e999999999999999999999")
@example("1e-99999999999999999999")
@example("1" + "0" * 60 + "e-60")
def test_a_number_is_exact_or_bad(text: str):
    good, bad = shredded(written(["number"], [[text]]), NUMBER)
    try:
        value = Decimal(text) if "_" not in text and text == text.strip() else Decimal("nan")
    except ArithmeticError:
        value = Decimal("nan")
    if good:
        assert good == [(value,)]
    else:
        [row] = bad
        assert (row["line"], row["raw"]) == (2, text) or '"' in row["raw"]
        with localcontext(prec=1000):
            assert not value.is_finite() or abs(value) >= 10**28 or value.scaleb(10) % 1


FORMS = [
    (FLAG, "true", True), (FLAG, "TRUE", True), (FLAG, "False", False), (FLAG, "0", False), (FLAG, "1", True),
    (FLAG, "yes", "is neither"), (FLAG, "2", "is neither"), (FLAG, " true", "is neither"),
    (NUMBER, "1.10", Decimal("1.1")), (NUMBER, "-0", Decimal(0)), (NUMBER, "+7.", Decimal(7)), (NUMBER, ".5", Decimal("0.5")),
    (NUMBER, "1e5", Decimal(100000)), (NUMBER, "1.100000000000", Decimal("1.1")),
    (NUMBER, "9999999999999999999999999999.9999999999", Decimal("9999999999999999999999999999.9999999999")),
    (NUMBER, "10000000000000000000000000000", "decimal(38,10) can hold"), (NUMBER, "0.00000000001", "decimal(38,10) can hold"),
    (NUMBER, "1,000", "is not a number"), (NUMBER, "NaN", "is not a number"), (NUMBER, "0x1", "is not a number"),
    (NUMBER, " 1", "is not a number"), (NUMBER, "1_0", "is not a number"),
    (NUMBER, " 1e2", "is not a number"), (NUMBER, "1_0e2", "is not a number"), (NUMBER, "\u0661e2", "is not a number"),
    (DAY, "2024-02-29", date(2024, 2, 29)), (DAY, "0001-01-01", date(1, 1, 1)), (DAY, "9999-12-31", date(9999, 12, 31)),
    (DAY, "2023-02-29", "is not a date"), (DAY, "2024-1-5", "is not a date"), (DAY, "20240105", "is not a date"),
    (DAY, "2024-01-05T00:00:00Z", "is not a date"), (DAY, "0000-01-01", "is not a date"),
    (TIME, "2024-01-05T06:07:08.123Z", datetime(2024, 1, 5, 6, 7, 8, 123000)),
    (TIME, "2024-01-05T06:07:08.123456Z", datetime(2024, 1, 5, 6, 7, 8, 123456)),
    (TIME, "2024-01-05T06:07Z", datetime(2024, 1, 5, 6, 7)),
    (TIME, "2024-01-05T01:00:00+02:00", datetime(2024, 1, 4, 23)), (TIME, "2024-01-05T23:30:00-0730", datetime(2024, 1, 6, 7)),
    (TIME, "9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    (TIME, "2024-01-05T06:07:08", "is not a time"), (TIME, "2024-01-05", "is not a time"),
    (TIME, "2024-13-05T06:07:08Z", "is not a time"),
    (TIME, "0001-01-01T00:00:00+01:00", "is not a time"), (TIME, "9999-12-31T23:59:59-01:00", "is not a time"),
    (TIME, "1704434828", "is not a time"), (TIME, "2024-01-05T06:07:08.1234567Z", "is not a time"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "text", "expected"), FORMS, ids=lambda value: getattr(value, "name", str(value)))
def test_the_forms_of_values(column: Column, text: str, expected: Any):
    good, bad = shredded(written([column.name, "id"], [["", "1"], [text, "2"], ["", "3"]]), column, Column("id", "string"))
    if isinstance(expected, str):
        assert good == [(None, "1"), (None, "3")]
        [row] = bad
        [reason] = row["reasons"]
        assert (row["file"], row["line"], reason["type"], reason["field"], reason["value"]) == (
            "f.csv",
            3,
            "field",
            column.name,
            text,
        )
        assert expected in reason["message"]
    else:
        assert good == [(None, "1"), (expected, "2"), (None, "3")]


MIXED = (
    b'id,text,number\r\n1,"a, ""b""\nc",1.5\r\n2\r\n"3",\xc3\xa9,2\r\n\r\n4,x,two\n5,y,5,6\n,z,1\n7,\xff,1\n'
    b'"8","long\r\n\r\nlines",3\r\n9,"",4\r\n10,u,v,w,x\n11,"",\n12'
)
MIXED_GOOD = [
    ("1", 'a, "b"\nc', Decimal("1.5")),
    ("3", "é", Decimal(2)),
    ("8", "long\r\n\r\nlines", Decimal(3)),
    ("9", None, Decimal(4)),
    ("11", None, None),
]
MIXED_BAD = {
    3: ("field_count", "2"),
    5: ("field", "4,x,two"),
    6: ("field_count", "5,y,5,6"),
    7: ("field", ",z,1"),
    8: ("field", "7,\ufffd,1"),
    11: ("field_count", "10,u,v,w,x"),
    13: ("field_count", "12"),
}
ID = Column("id", "string")


@pytest.mark.parametrize("chunk", [*range(26, len(MIXED) + 2), CHUNK])
def test_a_file_is_the_same_in_chunks_of_any_size(chunk: int):
    good, bad = shredded(MIXED, ID, TEXT, NUMBER, key=("id",), chunk=chunk)
    assert good == MIXED_GOOD
    assert {row["line"]: (row["reasons"][0]["type"], row["raw"]) for row in bad} == MIXED_BAD
    assert [row["line"] for row in bad] == sorted(MIXED_BAD)


def test_every_border_between_two_chunks_is_harmless():
    for padding in range(30):  # moves the borders over every byte of the records
        rows = [[str(number), f'a"{number}"\r\n,'] for number in range(9)]
        data = written(["x" * (1 + padding), "text"], rows)
        assert shredded(data, TEXT, chunk=31) == ([(text,) for _, text in rows], [])


@pytest.mark.parametrize("chunk", [16, CHUNK])
def test_what_is_bad_says_why(chunk: int):
    _, bad = shredded(b"id,text,number\n,\xff\xfe,x\n1\n2,a\0b,1\n", ID, TEXT, NUMBER, key=("id",), chunk=chunk)
    assert [(row["line"], [(each.get("field"), each["message"]) for each in row["reasons"]]) for row in bad] == [
        (2, [
            ("id", "must not be empty: it is part of the key"),
            ("text", "is not UTF-8, or contains NUL, which warehouses cannot store in text"),
            ("number", "is not a number that decimal(38,10) can hold exactly"),
        ]),
        (3, [(None, "the record has 1 fields; the header has 3")]),
        (4, [("text", "is not UTF-8, or contains NUL, which warehouses cannot store in text")]),
    ]  # fmt: skip
    assert bad[2]["raw"] == "2,a\ufffdb,1"


def test_columns_are_told_by_the_header_and_may_be_missing():
    assert shredded(b"number,other,id\n1,x,a\n", ID, TEXT, NUMBER) == ([("a", None, Decimal(1))], [])


@pytest.mark.parametrize("data", [b"id,text", b"id,text\n", b"\xef\xbb\xbfid,text\r\n", b"id,text\n\n\n", b'"id","text"'])
def test_a_file_may_hold_no_rows(data: bytes):
    assert CsvFile(io.BytesIO(data), "f.csv").header == ("id", "text")
    assert shredded(data, ID, TEXT) == ([], [])


def test_a_column_may_have_any_name():
    data = written(["a\n,b", 'c"', "select"], [["1", "2", "3"]])
    assert shredded(data, *(Column(name, "string") for name in ("select", 'c"', "a\n,b"))) == ([("3", "2", "1")], [])


def test_an_empty_file_has_no_header():
    assert CsvFile(io.BytesIO(b""), "f.csv").header == ()
    assert shredded(b"", ID) == ([], [])


def test_a_single_column_may_be_empty():
    assert shredded(b'text\na\n""\n\nb\n', TEXT) == ([("a",), (None,), ("b",)], [])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id,text,ID\n1,2,3\n", "has id twice"),
        (b"id,,text\n1,2,3\n", "column without a name"),
        (b"\nid,text\n1,2\n", "column without a name"),
        (b"id,te\xffxt\n1,2\n", "header of f.csv cannot be read"),
        (b'id,"te"xt\n1,2\n', "header of f.csv cannot be read"),
        (b"x" * (6 << 20), "does not end within"),
    ],
)
def test_a_header_that_is_none_is_refused(data: bytes, message: str):
    with pytest.raises(Unusable, match=message):
        CsvFile(io.BytesIO(data), "f.csv")


@pytest.mark.parametrize("end", [b'1,"cut of', b'1,"cut off\n', b'1,"a\n2,b\n', b'"', b'1,x\n2,"'])
@pytest.mark.parametrize("chunk", [16, CHUNK])
def test_a_file_that_ends_within_quotes_is_refused(end: bytes, chunk: int):
    with pytest.raises(Unusable, match=r"f.csv (ends within quotes|cannot be split into records)"):
        shredded(b"id,text\n0,whole\n" + end, ID, TEXT, chunk=chunk)


def test_a_header_that_fits_no_row_is_refused():
    with pytest.raises(Unusable, match=r"header of f.csv fits none of its rows: the record has 3 fields; the header has 2"):
        shredded(b"id,text\n1,x,y\n2,x,y\n", ID, TEXT)


def test_a_record_that_is_too_long_is_refused():
    with pytest.raises(Unusable, match="at most 16 bytes"):
        shredded(b"id,text\n1," + b"x" * 100 + b"\n2,y\n", ID, TEXT, chunk=16)


@pytest.mark.filterwarnings("ignore:Exception ignored")  # what Arrow says of the text that it cannot hand over
def test_a_record_that_is_bad_in_two_ways_at_once_is_refused():
    with pytest.raises(Unusable, match="cannot be split into records"):
        shredded(b"id,text\n1,x\n\xff\n", ID, TEXT)


def test_a_stream_that_breaks_is_an_error_of_its_own():
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            block = super().read(size)
            if not block:
                raise ConnectionResetError("the store hung up")
            return block

    with pytest.raises(ConnectionResetError, match="hung up"):
        list(CsvFile(Broken(b"id,text\n" + b"1,x\n" * 100), "f.csv", 16).rows([ID, TEXT], ()))


def test_times_with_any_offset_are_in_utc():
    zone = timezone(timedelta(hours=5, minutes=45))
    time = datetime(2024, 1, 1, 3, 0, 0, 250000, zone)
    assert shredded(written(["time"], [[time.isoformat()]]), TIME) == ([(time.astimezone(UTC).replace(tzinfo=None),)], [])
