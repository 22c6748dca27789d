"""The merge of a range's objects: order, columns, memory, what is copied, and everything that stops it."""

import hashlib
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError, NoCredentialsError, PartialCredentialsError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.fs import FileSelector

from manifest_platform import storage
from manifest_platform.demo.s3 import S3Server
from manifest_platform.merging import fetching, files, kernel, sorting, tally
from manifest_platform.merging.errors import (
    ChangedInput,
    MissingInput,
    PermanentMergeError,
    SchemaConflict,
    TransientMergeError,
    WrongResult,
)
from manifest_platform.merging.inputs import Input
from manifest_platform.merging.kernel import Merged, MergeOptions, MergeTask, merge
from manifest_platform.merging.plan import DEFAULT, plan
from manifest_platform.merging.state import MergedTable, Partition, SmallObject
from manifest_platform_tests.servers.proxy import Fault, from_on, nothing, proxied

DAY = date(2024, 5, 1)
SECOND = 1_000_000
T0 = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp()) * SECOND
MIB = 1 << 20


def iso(time: int) -> str:
    return f"{(datetime(1970, 1, 1) + timedelta(microseconds=time)).isoformat(timespec='microseconds')}Z"


def events(times: Sequence[int | None], first: int = 0) -> pa.Table:
    """Rows with these times, numbered from `first` on."""
    return pa.table({"at": pa.array(times, pa.timestamp("us")), "n": pa.array(range(first, first + len(times)), pa.int64())})


TEXTS = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64()), ("few", pa.string()), ("many", pa.string())])


def put(location: str | Path, name: str, rows: pa.Table, **options: Any) -> Input:
    """Writes a small object; what is known of it is what shredding would say."""
    uri = f"{storage.as_uri(location)}/{name}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", **options)
    storage.write_bytes(uri, sink.getvalue().to_pybytes())
    known: tuple[str | None, str | None] = (None, None)
    if "at" in rows.schema.names and rows.schema.field("at").type == pa.timestamp("us"):
        times = rows["at"].cast(pa.int64()).drop_null().to_pylist()
        known = (iso(min(times)), iso(max(times))) if times else known
    return Input(uri, rows.num_rows, sink.getvalue().size, *known)


def task_of(location: str | Path, found: Sequence[Input], time_column: str | None = "at", name: str = "out") -> MergeTask:
    return MergeTask("log", DAY, 0, 9, tuple(found), f"{storage.as_uri(location)}/merged/{name}.parquet", time_column)


def read(merged: Merged) -> pa.Table:
    return pq.read_table(pa.BufferReader(storage.read_bytes(merged.uri)))


def merged_rows(location: Path, *tables: pa.Table, **changes: Any) -> list[dict[str, Any]]:
    found = [put(location, f"{place}", table) for place, table in enumerate(tables)]
    return read(merge(task_of(location, found, **changes))).to_pylist()


class TestOrder:
    def test_C17_rows_are_ordered_by_time(self, tmp_path: Path) -> None:
        rows = merged_rows(tmp_path, events([2]), events([1], 1), events([3], 2))
        assert [row["n"] for row in rows] == [1, 0, 2]

    def test_C17_rows_of_one_time_keep_the_order_of_the_inputs(self, tmp_path: Path) -> None:
        rows = merged_rows(tmp_path, events([5, 7, 5]), events([5, 1], 3), events([7, 5, 5], 5))
        assert [row["n"] for row in rows] == [4, 0, 2, 3, 6, 7, 1, 5]

    def test_rows_without_a_time_come_last(self, tmp_path: Path) -> None:
        rows = merged_rows(tmp_path, events([None, 2, None]), events([1, None], 3))
        assert [row["n"] for row in rows] == [3, 1, 0, 2, 4]

    def test_C17_so_they_do_by_way_of_the_disk(self, tmp_path: Path) -> None:
        """The second input comes to the disk first, since its first row is the earliest."""
        often = [number // 2 for number in range(2000)]
        one, other = events(often), events([-1, *often], 2000)
        merged = merge(
            task_of(tmp_path, [put(tmp_path, "a", one), put(tmp_path, "b", other)]), MergeOptions(16_384, held_bytes=1)
        )
        assert merged.spilled_bytes > 0
        whole = pa.concat_tables([one, other])
        assert read(merged).equals(whole.take(np.argsort(whole["at"].cast(pa.int64()).to_numpy(), kind="stable")))

    def test_without_a_time_column_inputs_keep_their_order(self, tmp_path: Path) -> None:
        rows = merged_rows(tmp_path, events([3, 1]), events([2], 2), time_column=None)
        assert [row["n"] for row in rows] == [0, 1, 2]

    @pytest.mark.parametrize(
        "kind", [pa.date32(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us", "UTC")], ids=str
    )
    def test_any_kind_of_time_orders(self, tmp_path: Path, kind: pa.DataType) -> None:
        number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        parts = [pa.table({"at": pa.array(times, number).cast(kind), "n": times}) for times in ([3, 1], [2, -4], [2])]
        assert [row["n"] for row in merged_rows(tmp_path, *parts)] == [-4, 1, 2, 2, 3]

    def test_the_result_says_what_was_written(self, tmp_path: Path) -> None:
        found = [put(tmp_path, "a", events([T0 + 1, T0 + 7])), put(tmp_path, "b", events([T0 + 3, None], 2))]
        merged = merge(task_of(tmp_path, found))
        data = storage.read_bytes(merged.uri)
        assert (merged.table, merged.date, merged.lower, merged.upper) == ("log", DAY, 0, 9)
        assert (merged.rows, merged.bytes, merged.sha256) == (4, len(data), hashlib.sha256(data).hexdigest())
        assert (merged.min_time, merged.max_time) == ("2024-05-01T00:00:00.000001Z", "2024-05-01T00:00:00.000007Z")
        assert merged.bytes_in == sum(one.bytes for one in found)

    def test_no_rows_make_an_object_without_rows(self, tmp_path: Path) -> None:
        merged = merge(task_of(tmp_path, [put(tmp_path, "a", events([])), put(tmp_path, "b", events([]))]))
        assert (merged.rows, merged.min_time, merged.max_time) == (0, None, None)
        assert read(merged).equals(events([]))

    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(st.lists(st.none() | st.integers(0, 30), max_size=25), min_size=1, max_size=8),
        st.booleans(),
        st.integers(1, 12),
        st.sampled_from([100, 400, 1 << 20]),
        st.sampled_from([150, 500, 1 << 20]),
        st.sampled_from([1, 1 << 20]),
        st.integers(1, 3),
        st.sampled_from([1, 2_000]),
    )
    def test_every_way_gives_the_rows_that_a_stable_sort_gives(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        times: list[list[int | None]],
        in_order: bool,
        group: int,
        group_bytes: int,
        held: int,
        copied: int,
        threads: int,
        telling: int,
    ) -> None:
        """Covers merges in memory and through the disk, rewritten and copied rows, one to three threads, and dictionaries."""
        monkeypatch.setattr(kernel, "_TELLING_ROWS", telling)
        if in_order:
            times = [sorted(part, key=lambda time: (time is None, time)) for part in times]
        parts, first = [], 0
        for part in times:
            numbers = range(first, first + len(part))
            texts = {"few": [f"text {n % 3}" if n % 5 else None for n in numbers], "many": [f"{n}" for n in numbers]}
            parts.append(pa.table({**dict(zip(["at", "n"], events(part, first).columns, strict=True)), **texts}, TEXTS))
            first += len(part)
        found = [put(tmp_path, f"{place}", part, row_group_size=group) for place, part in enumerate(parts)]
        options = MergeOptions(group_bytes, 1 << 20, held, copied, threads)
        merged = merge(task_of(tmp_path, found), options)
        expected = sorted(
            pa.concat_tables(parts).to_pylist(), key=lambda row: (row["at"] is None, row["at"] or datetime(1970, 1, 1))
        )
        assert read(merged).to_pylist() == expected


class TestColumns:
    def test_what_a_file_lacks_is_null(self, tmp_path: Path) -> None:
        one = pa.table({"at": pa.array([1], pa.timestamp("us")), "old": ["a"]})
        two = pa.table({"new": [7], "at": pa.array([2], pa.timestamp("us"))})
        rows = merged_rows(tmp_path, one, two)
        assert [(row["old"], row["new"]) for row in rows] == [("a", None), (None, 7)]
        assert list(rows[0]) == ["at", "old", "new"]

    @pytest.mark.parametrize(
        ("have", "want", "wide"),
        [
            (pa.array([1], pa.int32()), pa.array([2**40]), pa.int64()),
            (pa.array([1], pa.int32()), pa.array([0.5]), pa.float64()),
            (pa.array([1], pa.int32()), pa.array([Decimal("1.25")], pa.decimal128(5, 2)), pa.decimal128(12, 2)),
            (pa.array([2**40]), pa.array([Decimal("1.25")], pa.decimal128(5, 2)), pa.decimal128(21, 2)),
            (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), pa.array([Decimal("1.25")], pa.decimal128(5, 2)), None),
            (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.string()),
            (pa.nulls(1), pa.array([2**40]), pa.int64()),
            (pa.array([1], pa.int16()), pa.array([2], pa.int32()), pa.int32()),
            (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), pa.string()),
        ],
        ids=lambda value: str(getattr(value, "type", value)),
    )
    def test_types_are_widened_without_loss(
        self, tmp_path: Path, have: pa.Array, want: pa.Array, wide: pa.DataType | None
    ) -> None:
        for place, (left, right) in enumerate([(have, want), (want, have)]):
            parts = [
                pa.table({"at": pa.array([n], pa.timestamp("us")), "value": value}) for n, value in enumerate([left, right])
            ]
            found = [put(tmp_path, f"{place}-{n}", part) for n, part in enumerate(parts)]
            table = read(merge(task_of(tmp_path, found)))
            assert table.schema.field("value").type == (wide or pa.decimal128(5, 2))
            assert table["value"].to_pylist() == [left[0].as_py(), right[0].as_py()]

    def test_a_column_may_be_null_where_it_may_in_any_file(self, tmp_path: Path) -> None:
        never = pa.schema([pa.field("at", pa.timestamp("us"), nullable=False), pa.field("n", pa.int64(), nullable=False)])
        must = events([1, 2]).cast(never)
        found = [put(tmp_path, "a", must), put(tmp_path, "b", must), put(tmp_path, "c", events([3]).select(["at"]))]
        assert not read(merge(task_of(tmp_path, found[:2]))).schema.field("n").nullable
        schema = read(merge(task_of(tmp_path, found, name="three"))).schema
        assert (schema.field("at").nullable, schema.field("n").nullable) == (True, True)

    @pytest.mark.parametrize(
        ("have", "want"),
        [(["a"], [1]), ([1], [0.5]), ([True], [1]), ([datetime(2024, 1, 1)], [date(2024, 1, 1)])],
        ids=["string-bigint", "bigint-double", "boolean-bigint", "timestamp-date"],
    )
    def test_what_does_not_fit_names_the_column_both_types_and_the_files(
        self, tmp_path: Path, have: list[Any], want: list[Any]
    ) -> None:
        parts = [
            pa.table({"at": pa.array([1], pa.timestamp("us")), "value": value})
            for value in (pa.array(have), pa.array(have), pa.array(want))
        ]
        found = [put(tmp_path, f"{place}", part) for place, part in enumerate(parts)]
        with pytest.raises(SchemaConflict) as error:
            merge(task_of(tmp_path, found))
        types = [str(part.schema.field("value").type) for part in parts]
        assert f"table log, column value: it is {types[0]} in {found[0].uri} and {types[2]} in {found[2].uri}" in str(
            error.value
        )

    def test_a_column_that_occurs_twice_is_refused(self, tmp_path: Path) -> None:
        twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
        with pytest.raises(ChangedInput, match=r"has the columns n twice"):
            merge(task_of(tmp_path, [put(tmp_path, "a", twice)], time_column=None))

    def test_names_of_columns_match_without_case(self, tmp_path: Path) -> None:
        """Two columns that differ by case alone made a file that no catalog's reader could open."""
        times = [pa.array([time], pa.timestamp("us")) for time in (3, 1, 2)]
        parts = [pa.table({"at": times[0], "n": [3]}), pa.table({"AT": times[1], "N": [1]}), pa.table({"At": times[2]})]
        assert [row["n"] for row in merged_rows(tmp_path, *parts)] == [1, None, 3]

    def test_columns_of_a_file_that_differ_by_case_alone_are_refused(self, tmp_path: Path) -> None:
        twice = pa.table({"n": [1], "N": [2]})
        with pytest.raises(ChangedInput, match=r"has the columns N, n twice"):
            merge(task_of(tmp_path, [put(tmp_path, "a", twice)], time_column=None))

    def test_nested_columns_are_carried_along(self, tmp_path: Path) -> None:
        parts = [
            pa.table({"tags": [["x", None], None], "at": pa.array([time, 2], pa.timestamp("us")), "s": [{"a": 1}, {"a": time}]})
            for time in (3, 1)
        ]
        rows = merged_rows(tmp_path, *parts)
        assert [row["s"] for row in rows] == [{"a": 1}, {"a": 3}, {"a": 1}, {"a": 1}]
        assert [row["tags"] for row in rows] == [["x", None], None, None, ["x", None]]

    def test_a_time_column_that_no_file_has_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SchemaConflict, match=r"table log: no object has the time column when"):
            merge(task_of(tmp_path, [put(tmp_path, "a", events([1]))], "when"))

    def test_a_time_column_that_is_no_time_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SchemaConflict, match=r"table log, column n: the time column must be a timestamp or a date"):
            merge(task_of(tmp_path, [put(tmp_path, "a", events([1]))], "n"))


def wide_events(rows: int, times: Any, seed: int) -> pa.Table:
    """Some 120 bytes a row."""
    random = np.random.default_rng(seed)
    text = pa.array([f"{number:040x}" for number in random.integers(0, 1 << 62, rows)])
    numbers = {f"n{place}": random.integers(0, 1 << 40, rows) for place in range(8)}
    return pa.table({"at": pa.array(times, pa.timestamp("us")), "text": text, **numbers})


class TestDictionaries:
    def part(self, rows: int, first: int) -> pa.Table:
        numbers = range(first, first + rows)
        texts = [f"https://shop.example.com/{n % 40}" if n % 7 else None for n in numbers]
        return pa.table(
            {"at": pa.array(numbers, pa.timestamp("us")), "n": numbers, "few": texts, "many": [f"{n:032x}" for n in numbers]},
            TEXTS,
        )

    @pytest.mark.parametrize("encoded", [True, False], ids=["with", "without"])
    def test_values_that_repeat_keep_a_dictionary_and_those_that_do_not_have_none(self, tmp_path: Path, encoded: bool) -> None:
        found = [put(tmp_path, f"{place}", self.part(4_000, place * 3_000), use_dictionary=encoded) for place in range(5)]
        found.append(put(tmp_path, "plain", self.part(4_000, 50_000), use_dictionary=False))
        found.append(put(tmp_path, "small", self.part(5, 60_000)))
        merged = merge(task_of(tmp_path, found))
        group = pq.read_metadata(storage.local_path(merged.uri)).row_group(0)
        used = {group.column(place).path_in_schema: group.column(place).has_dictionary_page for place in range(4)}
        assert used == {"at": False, "n": False, "few": True, "many": False}
        assert read(merged).schema.equals(TEXTS)
        whole = pa.concat_tables([pq.read_table(storage.local_path(one.uri)) for one in found])
        assert read(merged).equals(whole.take(np.argsort(whole["at"].cast(pa.int64()).to_numpy(), kind="stable")))

    def test_the_work_on_texts_that_repeat_is_spared(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kinds = []
        rows = sorting.Group.rows

        def seen(group: sorting.Group) -> pa.Table:
            kinds.append({field.name for field in rows(group).schema if isinstance(field.type, pa.DictionaryType)})
            return rows(group)

        monkeypatch.setattr(sorting.Group, "rows", seen)
        merge(task_of(tmp_path, [put(tmp_path, f"{place}", self.part(4_000, place)) for place in range(3)]))
        assert kinds == [{"few"}]


class TestMemory:
    GROUP = MIB

    def peak(self, task: MergeTask) -> tuple[Merged, int]:
        """The most that Arrow held at once during a merge with row groups of a mebibyte."""
        usual = pa.default_memory_pool()
        pool = pa.proxy_memory_pool(usual)
        pa.set_memory_pool(pool)
        try:
            merged = merge(task, MergeOptions(self.GROUP, 1 << 20, 4 * self.GROUP, 1 << 40, threads=2))
        finally:
            pa.set_memory_pool(usual)
        return merged, pool.max_memory()

    def inputs(self, tmp_path: Path, files: int, rows: int, step: int, nulls: int = 0) -> list[Input]:
        found = []
        for number in range(files):
            times = np.sort(np.random.default_rng(number).integers(0, 1_000_000, rows)) + T0 + number * step
            column = pa.array(times, mask=np.arange(rows) >= rows - nulls)
            found.append(put(tmp_path, f"{number:03d}", wide_events(rows, column.cast(pa.timestamp("us")), number)))
        return found

    @pytest.mark.parametrize("step", [1_000_000, 0], ids=["apart", "overlapping"])
    def test_memory_does_not_grow_with_the_inputs(self, tmp_path: Path, step: int) -> None:
        found = self.inputs(tmp_path, 64, 5_000, step)
        merged, peak = self.peak(task_of(tmp_path, found))
        total = read(merged).nbytes
        assert total > 35 * self.GROUP
        assert peak < 16 * self.GROUP
        assert (merged.spilled_bytes > 0) == (step == 0)
        times = read(merged)["at"].cast(pa.int64()).to_numpy()
        assert np.all(times[1:] >= times[:-1])
        groups = pq.read_metadata(storage.local_path(merged.uri))
        assert 20 <= groups.num_row_groups <= 60

    def test_rows_that_wait_do_not_keep_their_neighbours_in_memory(self, tmp_path: Path) -> None:
        found = self.inputs(tmp_path, 64, 5_000, 1_000_000, nulls=2)
        merged, peak = self.peak(task_of(tmp_path, found))
        assert (merged.rows, merged.spilled_bytes) == (64 * 5_000, 0)
        assert peak < 16 * self.GROUP
        assert read(merged)["at"].null_count == 128
        assert read(merged).slice(64 * 5_000 - 128)["at"].null_count == 128

    def test_row_groups_have_no_more_rows_than_asked_for(self, tmp_path: Path) -> None:
        found = [put(tmp_path, f"{place}", events(range(place, 1000, 10))) for place in range(10)]
        merged = merge(task_of(tmp_path, found), MergeOptions(group_rows=90))
        metadata = pq.read_metadata(storage.local_path(merged.uri))
        assert {metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)} <= {83, 84}

    def test_the_disk_is_left_as_it_was(self, tmp_path: Path) -> None:
        spool = tmp_path / "spool"
        spool.mkdir()
        found = [put(tmp_path, f"{place}", events(range(place, 1000, 10))) for place in range(10)]
        merged = merge(task_of(tmp_path, found), MergeOptions(1000, 1 << 20, 1000, spool=str(spool)))
        assert merged.spilled_bytes > 0
        assert list(spool.iterdir()) == []


class TestCopying:
    OPTIONS = MergeOptions(copied_bytes=50_000)

    def base(self, tmp_path: Path) -> Input:
        """A merged object of three row groups, with times 0 to 2, 10 to 12 and 20 to 22 seconds."""
        rows = pa.concat_tables(
            [
                wide_events(2000, np.linspace(T0 + s * SECOND, T0 + (s + 2) * SECOND, 2000).astype("int64"), s)
                for s in (0, 10, 20)
            ]
        )
        return put(tmp_path, "base", rows, row_group_size=2000)

    def late(self, tmp_path: Path, name: str, start: int, end: int) -> Input:
        times = np.linspace(T0 + start * SECOND, T0 + end * SECOND, 50).astype("int64")
        return put(tmp_path, name, wide_events(50, times, 99))

    def chunks(self, uri: str) -> list[bytes]:
        """The bytes of each row group."""
        data, metadata = storage.read_bytes(uri), pq.read_metadata(storage.local_path(uri))
        found = []
        for number in range(metadata.num_row_groups):
            columns = [metadata.row_group(number).column(place) for place in range(metadata.num_columns)]
            starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
            found.append(
                b"".join(
                    data[start : start + column.total_compressed_size] for start, column in zip(starts, columns, strict=True)
                )
            )
        return found

    @pytest.mark.parametrize(
        ("start", "end", "kept"),
        [(30, 31, [0, 1, 2]), (11, 13, [0, 2]), (15, 16, [0, 1, 2]), (1, 21, []), (22, 30, [0, 1, 2])],
        ids=["behind", "into one", "between", "into all", "at the end's last time"],
    )
    def test_an_extension_rewrites_only_what_new_rows_belong_into(
        self, tmp_path: Path, start: int, end: int, kept: list[int]
    ) -> None:
        base, late = self.base(tmp_path), self.late(tmp_path, "late", start, end)
        merged = merge(task_of(tmp_path, [base, late]), self.OPTIONS)
        old, new = self.chunks(base.uri), self.chunks(merged.uri)
        assert [number for number, chunk in enumerate(old) if chunk in new] == kept
        assert merged.copied_rows == 2000 * len(kept)
        whole = pa.concat_tables([pq.read_table(storage.local_path(one.uri)) for one in (base, late)])
        assert read(merged).equals(whole.take(np.argsort(whole["at"].cast(pa.int64()).to_numpy(), kind="stable")))
        assert (merged.rows, merged.min_time) == (6050, iso(T0))

    def test_files_that_follow_each_other_are_copied(self, tmp_path: Path) -> None:
        found = []
        for second in range(4):
            times = np.sort(np.random.default_rng(1).integers(0, SECOND, 2000)) + T0 + second * SECOND
            found.append(put(tmp_path, f"{second}", wide_events(2000, times, second)))
        merged = merge(task_of(tmp_path, found), self.OPTIONS)
        assert merged.copied_rows == merged.rows == 8000
        assert self.chunks(merged.uri) == [chunk for one in found for chunk in self.chunks(one.uri)]
        assert merged.max_time == max(str(one.max_time) for one in found)

    def test_row_groups_that_are_small_are_not_copied(self, tmp_path: Path) -> None:
        merged = merge(task_of(tmp_path, [self.base(tmp_path)]), MergeOptions(copied_bytes=1 << 30))
        assert merged.copied_rows == 0

    def test_row_groups_that_are_out_of_order_are_not_copied(self, tmp_path: Path) -> None:
        times = np.random.default_rng(1).integers(T0, T0 + SECOND, 2000)
        merged = merge(task_of(tmp_path, [put(tmp_path, "a", wide_events(2000, times, 1))]), self.OPTIONS)
        assert merged.copied_rows == 0
        assert read(merged)["at"].cast(pa.int64()).to_pylist() == sorted(times.tolist())

    def test_row_groups_of_other_columns_are_not_copied(self, tmp_path: Path) -> None:
        late = put(tmp_path, "late", events([T0 + 60 * SECOND]))
        merged = merge(task_of(tmp_path, [self.base(tmp_path), late]), self.OPTIONS)
        assert (merged.copied_rows, merged.rows) == (0, 6001)

    def test_without_a_time_column_all_that_is_large_is_copied(self, tmp_path: Path) -> None:
        base = self.base(tmp_path)
        merged = merge(task_of(tmp_path, [base, self.late(tmp_path, "late", 0, 1)], None), self.OPTIONS)
        assert merged.copied_rows == 6000
        assert read(merged).slice(0, 6000).equals(pq.read_table(storage.local_path(base.uri)))

    def test_what_is_written_is_copied_when_it_is_extended(self, tmp_path: Path) -> None:
        """The kernel's own objects can be extended: their row groups have a form that it takes over."""
        first = merge(task_of(tmp_path, [self.base(tmp_path)], name="first"), MergeOptions(copied_bytes=1 << 30))
        again = Input(first.uri, first.rows, first.bytes, first.min_time, first.max_time)
        merged = merge(task_of(tmp_path, [again, self.late(tmp_path, "late", 30, 31)], name="second"), self.OPTIONS)
        assert merged.copied_rows == first.rows
        assert pq.read_metadata(storage.local_path(merged.uri)).row_group(0).sorting_columns


class TestInputs:
    def test_a_missing_input_is_named(self, tmp_path: Path) -> None:
        gone = Input(f"file://{tmp_path}/gone.parquet", 1, 10)
        with pytest.raises(MissingInput, match=rf"{gone.uri} does not exist"):
            merge(task_of(tmp_path, [put(tmp_path, "a", events([1])), gone]))

    def test_another_size_than_known_is_refused(self, tmp_path: Path) -> None:
        one = put(tmp_path, "a", events([1]))
        with pytest.raises(ChangedInput, match=rf"{one.uri} has {one.bytes} bytes instead of the expected {one.bytes + 1}"):
            merge(task_of(tmp_path, [replace(one, bytes=one.bytes + 1)]))

    def test_other_rows_than_known_are_refused(self, tmp_path: Path) -> None:
        one = put(tmp_path, "a", events([1]))
        with pytest.raises(ChangedInput, match=rf"{one.uri} has 1 rows instead of the expected 2"):
            merge(task_of(tmp_path, [replace(one, rows=2)]))

    @pytest.mark.parametrize(("least", "most"), [(T0 + 1, T0 + 9), (T0, T0 + 8)])
    def test_other_times_than_known_are_refused(self, tmp_path: Path, least: int, most: int) -> None:
        one = put(tmp_path, "a", events([T0, T0 + 9]))
        with pytest.raises(
            ChangedInput, match=rf"{one.uri} has times from .*00.000000Z to .*00.000009Z, outside of the expected"
        ):
            merge(task_of(tmp_path, [replace(one, min_time=iso(least), max_time=iso(most))]))

    def test_what_is_no_parquet_is_refused(self, tmp_path: Path) -> None:
        storage.write_bytes(f"file://{tmp_path}/text", b"no Parquet at all")
        with pytest.raises(ChangedInput, match="cannot be read as Parquet"):
            merge(task_of(tmp_path, [Input(f"file://{tmp_path}/text", 1, 17)]))

    def test_damaged_pages_are_refused(self, tmp_path: Path) -> None:
        one = put(tmp_path, "a", wide_events(2000, range(2000), 1))
        path = storage.local_path(one.uri)
        data = bytearray(path.read_bytes())
        data[1000:60_000] = bytes(59_000)
        path.write_bytes(data)
        with pytest.raises(ChangedInput, match=rf"row group 0 of {one.uri} cannot be read"):
            merge(task_of(tmp_path, [one]))

    def test_statistics_that_lie_are_refused(self, tmp_path: Path) -> None:
        one = put(tmp_path, "a", events([T0 + 5, T0 + 7]), compression_level=1, use_dictionary=False)
        path = storage.local_path(one.uri)
        data = path.read_bytes()
        footer = data.rindex(b"zstd") if b"zstd" in data else len(data) // 2
        old, new = (T0 + 5).to_bytes(8, "little"), (T0 + 6).to_bytes(8, "little")
        cut = data.index(old, data.index(b"at", footer // 2))
        path.write_bytes(data[:cut] + data[cut:].replace(old, new))
        with pytest.raises(ChangedInput, match="row group 0 has times outside of the bounds in its footer"):
            merge(task_of(tmp_path, [replace(one, min_time=None, max_time=None)]))

    def test_an_input_that_may_not_be_read_is_transient(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_path: str) -> None:
            raise PermissionError("no")

        one = put(tmp_path, "a", events([1]))
        monkeypatch.setattr(files.pa, "memory_map", refuse)
        with pytest.raises(TransientMergeError, match="cannot be read: no; allow access"):
            merge(task_of(tmp_path, [one]))

    @pytest.mark.parametrize(
        "error",
        [
            NoCredentialsError(),
            CredentialRetrievalError(provider="metadata", error_msg="no answer"),
            *(
                ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")
                for code, status in [
                    ("AccessDenied", 403),
                    ("InvalidAccessKeyId", 403),
                    ("ExpiredToken", 400),
                    ("InvalidToken", 400),
                    ("?", 401),
                ]
            ),
        ],
        ids=str,
    )
    def test_rights_and_credentials_that_lack_are_passing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        """They concern all objects alike: a service that gives no credentials for a while must not set everything aside."""

        def refuse(*_: Any) -> None:
            raise error

        monkeypatch.setattr(fetching, "_client", lambda uri: None)
        monkeypatch.setattr(fetching, "_got", refuse)
        with pytest.raises(TransientMergeError, match=r"s3://bucket/a (could not|cannot) be read"):
            merge(task_of(tmp_path, [Input("s3://bucket/a", 1, 10)]))

    def test_a_client_that_cannot_be_made_is_transient(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY")

        monkeypatch.setattr(fetching.aws, "s3", refuse)
        with pytest.raises(TransientMergeError, match="check the AWS variables"):
            merge(task_of(tmp_path, [Input("s3://bucket/a", 1, 10)]))

    def test_what_was_begun_is_removed_and_the_first_error_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def end(_assembly: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(kernel.Assembly, "finish", end)
        with pytest.raises(KeyboardInterrupt):
            merge(task_of(tmp_path, [put(tmp_path, "a", events([1]))]))
        assert not (tmp_path / "merged").exists()
        monkeypatch.setattr(kernel, "_remove", lambda _uri: 1 / 0)
        with pytest.raises(KeyboardInterrupt):
            merge(task_of(tmp_path, [put(tmp_path, "a", events([1]))]))

    def test_an_output_that_cannot_be_written_is_transient(self, tmp_path: Path) -> None:
        (tmp_path / "merged").write_text("a file where a directory should be")
        with pytest.raises(TransientMergeError, match="could not be written"):
            merge(task_of(tmp_path, [put(tmp_path, "a", events([1]))]))


class TestChecks:
    """Each defect that a check is there for, made on purpose."""

    @pytest.fixture
    def task(self, tmp_path: Path) -> MergeTask:
        parts = [
            pa.table(
                {"at": pa.array(times, pa.timestamp("us")), "text": ["ab", None, "c"], "n": [1, 2, None], "f": [0.5, 1, 2]}
            )
            for times in ([T0, T0 + 2, T0 + 4], [T0 + 1, T0 + 2, T0 + 3])
        ]
        return task_of(tmp_path, [put(tmp_path, f"{place}", part) for place, part in enumerate(parts)])

    def broken(self, monkeypatch: pytest.MonkeyPatch, task: MergeTask, change: Any, match: str) -> None:
        """Merges with rows that were changed on their way into the file, of which nothing must be left."""
        rows = sorting.Group.rows
        monkeypatch.setattr(sorting.Group, "rows", lambda group: change(rows(group)))
        with pytest.raises(WrongResult, match=match):
            merge(task)
        assert not storage.local_path(task.output).exists()

    def test_a_lost_row(self, monkeypatch: pytest.MonkeyPatch, task: MergeTask) -> None:
        self.broken(
            monkeypatch, task, lambda rows: rows.slice(1), "6 rows were expected, 6 read, 5 written, and 5 are in the footer"
        )

    def test_a_row_twice(self, monkeypatch: pytest.MonkeyPatch, task: MergeTask) -> None:
        self.broken(monkeypatch, task, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "6 rows were expected")

    def test_a_row_instead_of_another(self, monkeypatch: pytest.MonkeyPatch, task: MergeTask) -> None:
        self.broken(monkeypatch, task, lambda rows: rows.take([0, 0, 2, 3, 4, 5]), "the nulls or the sum of column at differ")

    @pytest.mark.parametrize(
        ("column", "values"),
        [
            ("text", ["ab", "ab", None, None, "c", "cc"]),
            ("n", [1, 1, 2, 3, None, None]),
            ("n", [1, 1, 2, None, None, None]),
            ("f", [0.5, 0.5, 1, 1, 2, 2.0000001]),
        ],
    )
    def test_a_changed_value(self, monkeypatch: pytest.MonkeyPatch, task: MergeTask, column: str, values: list[Any]) -> None:
        def change(rows: pa.Table) -> pa.Table:
            place = rows.schema.get_field_index(column)
            return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))

        self.broken(monkeypatch, task, change, f"the nulls or the sum of column {column} differ")

    def test_other_times(self, monkeypatch: pytest.MonkeyPatch, task: MergeTask) -> None:
        groups = kernel._Merge._encode

        def encode(merging: Any, group: sorting.Group) -> Any:
            encoded, tally = groups(merging, group)
            tally.least += 1
            return encoded, tally

        monkeypatch.setattr(kernel._Merge, "_encode", encode)
        with pytest.raises(WrongResult, match="the first or the last time differs"):
            merge(task)

    def test_nulls_that_the_encoder_lost(self, monkeypatch: pytest.MonkeyPatch, task: MergeTask) -> None:
        encoded = kernel._encoded

        def encode(rows: pa.Table, time_column: str | None, tried: list[str] | None = None) -> pa.Buffer:
            if rows.num_rows:
                rows = rows.set_column(2, rows.schema.field(2), pa.array([1, 1, 2, 2, 3, 3]))
            return encoded(rows, time_column, tried)

        monkeypatch.setattr(kernel, "_encoded", encode)
        with pytest.raises(WrongResult, match="the null count of a column differs from its footer"):
            merge(task)

    @pytest.mark.parametrize(
        "kind", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(20, 2), pa.decimal256(60, 2)], ids=str
    )
    def test_a_changed_decimal(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: pa.DataType) -> None:
        values = [Decimal("-7.25"), None, Decimal("3.50")]
        rows = events([T0, T0 + 1, T0 + 2]).append_column("price", pa.array(values, kind))
        found = [put(tmp_path, name, rows) for name in ("a", "b")]
        assert read(merge(task_of(tmp_path, found)))["price"].to_pylist() == [value for value in values for _ in range(2)]

        def change(rows: pa.Table) -> pa.Table:
            [least, *others] = rows["price"].to_pylist()
            return rows.set_column(2, "price", pa.array([least + Decimal("0.01"), *others], kind))

        self.broken(monkeypatch, task_of(tmp_path, found, name="wrong"), change, "the nulls or the sum of column price differ")

    def test_decimals_of_any_size_are_summed_exactly(self, tmp_path: Path) -> None:
        """Neither the digits of Python's decimals nor the width of Arrow's bound what is compared."""
        kind = pa.decimal128(38, 9)
        found = []
        for place in range(20):  # each file's sum has more than 28 digits, that of all more than 38
            values = [Decimal(f"{'9' * 29}.{place:09d}"), Decimal(f"0.{place:09d}"), None, Decimal(-place)]
            rows = events(range(place, 80 + place, 20), place * 4).append_column("price", pa.array(values, kind))
            found.append(put(tmp_path, f"{place}", rows))
        merged = merge(task_of(tmp_path, found))
        assert (merged.rows, read(merged)["price"].null_count) == (80, 20)

    @pytest.mark.parametrize(
        "kind", [pa.decimal32(9, 3), pa.decimal64(18, 3), pa.decimal128(38, 3), pa.decimal256(76, 3)], ids=str
    )
    def test_the_sum_of_decimals_is_that_of_their_whole_numbers(self, kind: pa.DataType) -> None:
        most = 10**kind.precision - 1
        numbers = [7, 3, most, -(most // 3), 9, -most, 11, most, -1]
        nulls = (1, 4, 6)  # which have a value too, that must not count
        values = pa.array([Decimal(one).scaleb(-3, Context(prec=80)) for one in numbers], kind)
        valid = pa.array([place not in nulls for place in range(len(numbers))])
        masked = pa.Array.from_buffers(kind, len(numbers), [valid.buffers()[1], values.buffers()[1]])
        cut = pa.chunked_array([masked.slice(1, 1), masked.slice(2, 2), masked.slice(4), masked.slice(0, 0)], kind)
        assert tally.column_sum(cut) == (sum(numbers) - 7 - 3 - 9 - 11) % 2**64

    def test_nothing_is_wrong_without_a_defect(self, task: MergeTask) -> None:
        assert merge(task).rows == 6


def test_a_planned_range_becomes_a_task() -> None:
    table = MergedTable("log", "app", 60, 100, time_column="at", create_time=datetime(2024, 5, 1, tzinfo=UTC), ratio=1.0)
    found = [SmallObject(id_, f"file:///{id_}", id_, 10, iso(T0), iso(T0 + id_)) for id_ in (4, 6)]
    closed = Partition("log", DAY, table.create_time, last_live=6)
    [planned] = plan(closed, table, None, found, DEFAULT).ranges
    task = MergeTask.of(planned, table, DAY, "file:///out", "a1")
    assert (task.lower, task.upper, task.bytes, task.time_column) == (0, 6, 20, "at")
    assert task.inputs == tuple(Input(one.uri, one.rows, one.bytes, one.min_time, one.max_time) for one in found)
    assert task.output.endswith("/app.log/merged/dt=2024-05-01/a1/part-0000000000000000000-0000000000000000006.parquet") or (
        task.output.endswith(".app.log/merged/dt=2024-05-01/a1/part-0000000000000000000-0000000000000000006.parquet")
    )
    assert str(task) == "log of 2024-05-01, range (0, 6]"


class TestS3:
    @pytest.fixture
    def bucket(self, s3_bucket: str) -> str:
        return s3_bucket

    def test_objects_in_s3_are_merged_as_local_ones_are(self, bucket: str, tmp_path: Path) -> None:
        parts = [events(range(place, 300, 3), place * 100) for place in range(3)]
        far = merge(task_of(bucket, [put(bucket, f"{place}", part) for place, part in enumerate(parts)]))
        near = merge(task_of(tmp_path, [put(tmp_path, f"{place}", part) for place, part in enumerate(parts)]))
        assert (far.sha256, far.rows, far.min_time) == (near.sha256, near.rows, near.min_time)
        assert storage.read_bytes(far.uri) == storage.read_bytes(near.uri)

    def test_a_missing_object_is_named(self, bucket: str) -> None:
        one = put(bucket, "a", events([1]))
        with pytest.raises(MissingInput, match=f"{bucket}/gone.parquet does not exist"):
            merge(task_of(bucket, [one, replace(one, uri=f"{bucket}/gone.parquet")]))

    @pytest.mark.parametrize("more", [-1, 1])
    def test_another_size_than_known_is_refused(self, bucket: str, more: int) -> None:
        one = put(bucket, "a", events([1]))
        with pytest.raises(ChangedInput, match=rf"has {one.bytes} bytes instead of the expected {one.bytes + more}"):
            merge(task_of(bucket, [replace(one, bytes=one.bytes + more)]))

    def test_a_merge_that_fails_leaves_no_object(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(merging: Any, _footer: Any) -> None:
            raise merging._wrong("a defect")

        task = task_of(bucket, [put(bucket, "a", events([1]))])
        monkeypatch.setattr(kernel._Merge, "_check_result", refuse)
        with pytest.raises(WrongResult):
            merge(task)
        system, path = storage.filesystem(bucket)
        assert [found.base_name for found in system.get_file_info(FileSelector(path, recursive=True))] == ["a.parquet"]

    def test_a_bucket_that_is_not_there_is_permanent(self, bucket: str) -> None:
        one = put(bucket, "a", events([1]))
        with pytest.raises(PermanentMergeError):
            merge(task_of(bucket, [replace(one, uri="s3://no-such-bucket-anywhere/a.parquet")]))

    def test_an_object_costs_one_request(
        self, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        found = [put(bucket, f"{place}", events(range(place, 500, 7))) for place in range(100)]
        lines: list[bytes] = []
        with self.proxy(s3_server, monkeypatch) as proxy:
            proxy.choose(lambda _number, request: lines.append(request.partition(b"\r\n")[0]))
            merged = merge(task_of(bucket, found))
        assert merged.rows == sum(one.rows for one in found)
        assert len(lines) <= len(found) + 20, lines[-25:]
        assert sum(line.startswith(b"GET") for line in lines) == len(found)
        assert not any(line.startswith(b"HEAD") and b"/0.parquet" in line for line in lines)

    def test_a_large_object_is_fetched_in_pieces(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetching, "PIECE", 1000)
        found = [put(bucket, f"{place}", wide_events(200, range(place, 200 + place), place)) for place in range(3)]
        merged = merge(task_of(bucket, found))
        assert merged.rows == 600

    def test_a_storage_that_does_not_answer_is_transient(
        self, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = put(bucket, "a", events([1]))
        with self.proxy(s3_server, monkeypatch) as proxy:
            proxy.choose(from_on(1, Fault.REQUEST_LOST))
            with pytest.raises(TransientMergeError, match="could not be read"):
                merge(task_of(bucket, [one]))
            proxy.choose(nothing)
            assert merge(task_of(bucket, [one])).rows == 1

    def proxy(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A context manager that routes Arrow's requests through a proxy in front of the server."""
        address = urlsplit(server.endpoint)
        context = proxied(lambda: socket.create_connection((address.hostname, address.port)), is_http=True)

        class Through:
            def __enter__(self) -> Any:
                proxy = context.__enter__()
                monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
                return proxy

            def __exit__(self, *error: Any) -> Any:
                monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
                return context.__exit__(*error)

        return Through()
