"""Files of several dates: what is written, registered, merged and read of each date."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from manifest_platform import storage
from manifest_platform.listing import Listing, Table
from manifest_platform.manifest import Store
from manifest_platform.merging import fetching
from manifest_platform.merging.catalogs.catalog import Catalog
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.errors import ChangedInput
from manifest_platform.merging.inputs import Input
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.kernel import MergeTask, merge
from manifest_platform.merging.publish import PublishReport
from manifest_platform.merging.readers import Reader
from manifest_platform.merging.registration import CommittedObjects
from manifest_platform.merging.state import LIVE, NEW, Range
from manifest_platform.shred.batch import Dated, Task, Writer
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import pass_the_day, run
from manifest_platform_tests.merging.given import COLUMNS, DAY, TABLE

DAYS = [DAY - timedelta(days=1), DAY, DAY + timedelta(days=1)]
ROWS = 9
RIDE_ALONG = given.RIDE_ALONG


def dated(_table: str, rows: pa.Table) -> Iterable[Dated]:
    """Rows by the date of `at`, as a source divides them."""
    ordered = sorted(rows.to_pylist(), key=lambda row: (row["at"].date(), row["id"]))
    for day, found in groupby(ordered, lambda row: row["at"].date()):
        mine = list(found)
        times = sorted(f"{row['at'].isoformat(timespec='microseconds')}Z" for row in mine)
        yield Dated(str(day), pa.Table.from_pylist(mine, rows.schema), times[0], times[-1])


def at(number: int) -> datetime:
    """The time of a row: one on each of the three days by turns, the first at midnight."""
    return datetime.combine(DAYS[number % 3], datetime.min.time()) + timedelta(minutes=number // 3)


def written(place: str | Path, first: int = 0, rows: int = ROWS, date_files: bool = False, task: int = 0) -> Listing:
    """The listing of a task whose rows are of three days."""
    output = f"{storage.as_uri(place)}/attempt-{first}"
    writer = Writer(Task(0, task, output, ("a",), None), 1 << 20, dated, date_files=date_files)
    numbers = range(first, first + rows)
    values = {"id": pa.array(numbers, pa.int64()), "at": pa.array(map(at, numbers), pa.timestamp("us"))}
    writer.add(Table(TABLE, COLUMNS), pa.table(values))
    found = writer.close()
    return Listing(f"item-{first}", "a", rows, rows, 0, tuple(found.tables.values()), tuple(found.objects))


def ids_of(day: date, rows: int = ROWS) -> list[int]:
    return [number for number in range(rows) if at(number).date() == day]


def test_a_table_of_several_dates_is_a_file_whose_row_groups_are_listed(tmp_path: Path) -> None:
    [found] = written(tmp_path).objects
    assert found.uri.endswith(f"/attempt-0/{TABLE}/several-dates/00000-000.parquet")
    assert (found.date, found.all_dates, found.rows) == (str(DAYS[0]), tuple(map(str, DAYS)), ROWS)
    assert found.bytes == storage.local_path(found.uri).stat().st_size
    file = pq.ParquetFile(storage.local_path(found.uri))
    for day, part in zip(DAYS, found.dates, strict=True):
        groups = part.groups
        numbers = range(groups.first, groups.first + groups.count)
        assert file.read_row_groups(list(numbers))["id"].to_pylist() == ids_of(day)
        assert (part.date, part.rows, part.min_time) == (str(day), 3, f"{day}T00:00:00.000000Z")
        chunks = [file.metadata.row_group(number).column(place) for number in numbers for place in range(2)]
        starts = [min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset) for chunk in chunks]
        ends = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]
        assert (groups.start, groups.end, groups.size) == (min(starts), max(ends), found.bytes)
    data = storage.read_bytes(found.uri)
    assert found.dates[0].groups.footer == found.bytes - 8 - int.from_bytes(data[-8:-4], "little")


def test_a_listing_has_the_key_of_several_dates_only_where_there_are_several(tmp_path: Path) -> None:
    """Release 0.2 refuses an object with a key that it does not know."""
    several, apart = written(tmp_path / "one"), written(tmp_path / "two", date_files=True)
    for listing in (several, apart):
        listing.write(uri := f"{storage.as_uri(tmp_path)}/listing.json")
        assert Listing.read(uri) == listing
        told = json.loads(storage.read_bytes(uri))["objects"]
        assert all(("dates" in one) == bool(found.dates) for one, found in zip(told, listing.objects, strict=True))
    assert [found.all_dates for found in apart.objects] == [(str(day),) for day in DAYS]
    assert all(f"/date={found.date}/" in found.uri for found in apart.objects)


@pytest.fixture
def inventory(store: Store) -> Inventory:
    made = given.inventory(store)
    made.sync_table(given.settings(time_column="at"))
    return made


def register(inventory: Inventory, listing: Listing) -> None:
    inventory.register(CommittedObjects.of(inventory.cursor() + 1, listing), RIDE_ALONG)


def test_each_date_is_a_small_object_with_the_bytes_of_its_row_groups(inventory: Inventory, tmp_path: Path) -> None:
    listing = written(tmp_path)
    register(inventory, listing)
    [file] = listing.objects
    found = [one for day in DAYS for one in inventory.small_objects(TABLE, day)]
    assert [one.id % 1_000_000 for one in found] == [1, 2, 3]
    assert [(one.rows, one.bytes) for one in found] == [(3, part.groups.end - part.groups.start) for part in file.dates]
    assert {(one.uri, one.file_bytes) for one in found} == {(file.uri, file.bytes)}
    assert sum(one.bytes for one in found) < file.bytes
    register(inventory, written(tmp_path, first=99, date_files=True))
    rows = inventory.store.query(given.DATASET, f"MSMALL#{TABLE}#")
    assert [["groups" in one for one in row.data["objects"]] for row in rows] == [[True], [False]] * 3


def test_what_is_shredded_again_replaces_files_of_a_date_by_row_groups(inventory: Inventory, tmp_path: Path) -> None:
    """The first task lacks the first day, so that its file comes second in the new listing, and first in the old one."""

    def listing(date_files: bool) -> Listing:
        place = tmp_path / str(date_files)
        tasks = [written(place, 1, 2, date_files), written(place, 3, 8, date_files, task=1)]
        objects = sorted((one for task in tasks for one in task.objects), key=lambda one: (one.table, one.date, one.uri))
        return dataclasses.replace(tasks[0], item="item", objects=tuple(objects))

    register(inventory, listing(date_files=True))
    before = {day: inventory.small_objects(TABLE, day) for day in DAYS}
    again = inventory.take_over(CommittedObjects.of(inventory.cursor() + 1, listing(date_files=False)))
    assert again.objects == {}
    for day, old in before.items():
        new = inventory.small_objects(TABLE, day)
        assert [(one.id, one.rows, one.min_time) for one in new] == [(one.id, one.rows, one.min_time) for one in old]
        assert all(one.groups for one in new)
        assert len(new) == (1 if day == DAYS[0] else 2)


def inputs(listing: Listing, day: date) -> list[Input]:
    commit = CommittedObjects.of(1, listing)
    return [Input(one.uri, one.rows, one.bytes, one.min_time, one.max_time, one.groups) for one in commit.objects[TABLE, day]]


def merged_ids(place: str | Path, found: Sequence[Input], day: date) -> list[int]:
    task = MergeTask(TABLE, day, 0, 9, tuple(found), f"{storage.as_uri(place)}/merged/{day}.parquet", "at")
    return pq.read_table(pa.BufferReader(storage.read_bytes(merge(task).uri)))["id"].to_pylist()


def test_a_merge_reads_only_the_row_groups_of_its_date(tmp_path: Path) -> None:
    listings = [written(tmp_path), written(tmp_path, first=9)]
    for day in DAYS:
        found = [one for listing in listings for one in inputs(listing, day)]
        assert sorted(merged_ids(tmp_path, found, day)) == ids_of(day, 2 * ROWS)


@pytest.mark.parametrize("fault", ["rows", "groups", "size"])
def test_a_file_that_is_not_as_it_was_registered_is_refused(tmp_path: Path, fault: str) -> None:
    [one] = inputs(written(tmp_path), DAY)
    assert one.groups is not None
    changed = {
        "rows": dataclasses.replace(one, rows=4),
        "groups": dataclasses.replace(one, groups=dataclasses.replace(one.groups, first=3)),
        "size": dataclasses.replace(one, groups=dataclasses.replace(one.groups, size=one.groups.size + 1)),
    }[fault]
    with pytest.raises(ChangedInput, match="instead of the expected"):
        merged_ids(tmp_path, [changed], DAY)


def test_of_a_file_in_s3_only_the_row_groups_and_the_footer_are_fetched(
    s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing, got = written(s3_bucket), []
    asked = fetching._got

    def count(client: object, input_: Input, offset: int, size: int) -> tuple[bytes, int]:
        got.append((offset, offset + size))
        return asked(client, input_, offset, size)

    monkeypatch.setattr(fetching, "_got", count)
    assert merged_ids(s3_bucket, inputs(listing, DAY), DAY) == ids_of(DAY)
    assert got == [(0, listing.bytes)], "a small file is read at once"
    monkeypatch.setattr(fetching, "SMALL", 0)
    for number, day in enumerate(DAYS):
        got.clear()
        assert merged_ids(s3_bucket, inputs(listing, day), day) == ids_of(day)
        groups = listing.objects[0].dates[number].groups
        ends = [(groups.start, groups.end), (groups.footer, groups.size)]
        assert sorted(got) == (ends if day != DAYS[-1] else [(groups.start, groups.size)])


def land(inventory: Inventory, place: Path) -> Reader:
    for first in (0, 99):
        register(inventory, written(place, first, ROWS))
    run(inventory, EmbeddedCatalog(inventory))
    return Reader(inventory)


@pytest.mark.parametrize("through_arrow", [False, True])
def test_a_view_shows_each_row_once_on_its_day(inventory: Inventory, tmp_path: Path, through_arrow: bool) -> None:
    import duckdb

    reader = land(inventory, tmp_path)
    with duckdb.connect() as connection:
        [view] = reader.views(connection, through_arrow=through_arrow)
        found = connection.execute(f'SELECT id, "at", dt FROM {view} ORDER BY id').fetchall()
    numbers = [*range(ROWS), *range(99, 99 + ROWS)]
    assert found == [(number, at(number), at(number).date()) for number in numbers]


def test_a_dataframe_of_a_day_has_the_rows_of_the_day(spark: SparkSession, inventory: Inventory, tmp_path: Path) -> None:
    reader = land(inventory, tmp_path)
    rows = reader.read(spark, TABLE, [DAY]).collect()
    assert sorted((row["id"], row["dt"]) for row in rows) == [(number, DAY) for number in [1, 4, 7, 100, 103, 106]]
    assert reader.read(spark, TABLE).count() == 2 * ROWS


def test_merged_rows_replace_those_of_the_day_alone(inventory: Inventory, tmp_path: Path) -> None:
    reader = land(inventory, tmp_path)
    pass_the_day(inventory, DAY)
    inventory.hasten(TABLE, DAY, inventory.clock())
    with given.slot(inventory) as held:
        for claimed in given.claim(inventory, held, limit=10):
            job = claimed.job
            small = inventory.small_objects(TABLE, job.date)
            uri = f"{storage.as_uri(tmp_path)}/merged/{job.date}.parquet"
            found = tuple(Input(one.uri, one.rows, one.bytes, one.min_time, one.max_time, one.groups) for one in small)
            made = merge(MergeTask(TABLE, job.date, 0, small[-1].id, found, uri, "at"))
            now = inventory.clock()
            rows = Range(TABLE, job.date, 0, small[-1].id, uri, made.rows, made.bytes, len(small), job.id, now, now)
            inventory.commit(job, [rows], bytes_in=made.bytes_in)
    run(inventory, EmbeddedCatalog(inventory))
    assert [file.groups for file in reader.files(TABLE, DAY).files] == [None]
    assert reader.query(f"SELECT count(*), count(DISTINCT id) FROM {TABLE}")[1] == [(2 * ROWS, 2 * ROWS)]


class WholeFiles(EmbeddedCatalog):
    """A catalog whose readers read whole files, as those of a manifest file do."""

    shows_live = False
    reads_row_groups = False


@pytest.mark.parametrize(("catalog", "shown"), [(WholeFiles, NEW), (EmbeddedCatalog, LIVE)])
def test_readers_of_whole_files_wait_for_the_merge(
    inventory: Inventory, tmp_path: Path, catalog: Callable[[Inventory], Catalog], shown: int
) -> None:
    register(inventory, written(tmp_path))
    report: PublishReport = run(inventory, catalog(inventory))
    assert [one.current for one in inventory.partitions(TABLE)] == [shown] * 3
    assert sum("hold other dates" in why for _, why in report.waiting) == (3 if shown == NEW else 0)
