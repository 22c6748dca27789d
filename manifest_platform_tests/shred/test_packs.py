"""The small objects of a task in one file, and their way back to files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import orjson
import pyarrow as pa
import pytest

from manifest_platform import packs, storage
from manifest_platform.demo.s3 import S3Server
from manifest_platform.listing import BAD_TABLE, Column, Listing, Table
from manifest_platform.pipeline.shredding import check_objects
from manifest_platform.shred.batch import Dated, Task, Writer
from manifest_platform.shred.rows import BAD
from manifest_platform.warehouse.readable import readable
from manifest_platform_tests.servers.s3 import requests_of

TABLES = ("clicks", "events", "visits")
ROOM = 1 << 20


def dated(_table: str, rows: pa.Table) -> Iterator[Dated]:
    for day in sorted(set(rows["day"].to_pylist())):
        yield Dated(day, rows.filter(pa.array([one == day for one in rows["day"].to_pylist()])))


def written(place: str | Path, pack: int, rows: int = 2, bad: bool = False) -> Listing:
    """The listing of a task that wrote rows of two days into three tables."""
    writer = Writer(Task(0, 0, f"{storage.as_uri(place)}/attempt", ("a",), None), 1 << 30, dated, pack=pack)
    days = [f"2024-05-0{1 + number % 2}" for number in range(rows)]
    for name in TABLES:
        writer.add(Table(name, (Column("of", "string"), Column("day", "string"))), pa.table({"of": [name] * rows, "day": days}))
    if bad:
        writer.add(BAD, pa.table({"day": ["1970-01-01"]}))
    found = writer.close()
    objects = tuple(sorted(found.objects, key=lambda one: one.uri))
    return Listing("item", "attempt", rows, rows, 0, tuple(found.tables.values()), objects, packs=tuple(found.packs))


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def test_the_small_objects_of_a_task_are_one_file_and_come_back_as_they_would_have_been(tmp_path: Path) -> None:
    apart, together = written(tmp_path / "apart", 0), written(tmp_path / "together", ROOM)
    assert list(files(tmp_path / "together")) == ["attempt/00000-000.pack.zip"]
    assert {one.table for one in together.objects} == set(TABLES)
    check_objects(together, content=True)
    for _ in range(2):
        assert packs.spread(together).packs == ()
    left = files(tmp_path / "together")
    with zipfile.ZipFile(tmp_path / "together/attempt/00000-000.pack.zip") as archive:
        names = archive.namelist()
    del left["attempt/00000-000.pack.zip"]
    assert left == files(tmp_path / "apart")
    assert [f"attempt/{name}" for name in names] == sorted(left)
    check_objects(packs.spread(together), content=True)
    here = [replace(one, uri=one.uri.replace("/together/", "/apart/")) for one in packs.spread(together).objects]
    assert tuple(here) == apart.objects


def test_one_table_can_be_made_files(tmp_path: Path) -> None:
    together = written(tmp_path, ROOM)
    made = packs.spread(together, "clicks")
    assert [path for path in files(tmp_path) if path.endswith(".parquet")] == ["attempt/clicks/several-dates/00000-000.parquet"]
    assert [bool(one.pack) for one in made.objects] == [False, True, True]
    assert made.packs == together.packs


def test_what_is_too_large_and_bad_rows_are_files_by_themselves(tmp_path: Path) -> None:
    large, bad = written(tmp_path / "large", 1_000), written(tmp_path / "bad", ROOM, bad=True)
    assert large.packs == ()
    assert all(path.endswith(".parquet") for path in files(tmp_path / "large"))
    assert list(files(tmp_path / "bad")) == ["attempt/00000-000.pack.zip", "attempt/bad/date=1970-01-01/00000-000.parquet"]
    [uri] = bad.uris(BAD_TABLE)
    assert storage.read_bytes(uri)


@pytest.mark.parametrize("is_shared", [True, False])
def test_files_of_a_pack_are_there_for_a_load(tmp_path: Path, is_shared: bool) -> None:
    together, before = written(tmp_path, ROOM), files(tmp_path)
    engine = SimpleNamespace(reads_storage=is_shared)
    with readable(together, engine) as first, readable(together, engine) as second:  # ty: ignore
        assert all(one.uri.startswith(f"{storage.as_uri(tmp_path)}/attempt-") == is_shared for one in first.objects)
        check_objects(first, content=True)
        uris = {one.uri for one in first.objects}
        assert uris.isdisjoint(one.uri for one in second.objects)
    assert not [uri for uri in uris if storage.local_path(uri).exists()]
    assert files(tmp_path) == before


def test_a_listing_without_packs_is_as_release_0_2_reads_it(tmp_path: Path) -> None:
    for pack in (0, ROOM):
        listing = written(tmp_path / str(pack), pack)
        listing.write(uri := f"{storage.as_uri(tmp_path)}/listing.json")
        assert Listing.read(uri) == listing
        told = orjson.loads(storage.read_bytes(uri))
        assert ("packs" in told, *("pack" in one for one in told["objects"])) == (bool(pack),) * 4


def test_a_small_task_writes_with_one_request(s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with requests_of(s3_server, monkeypatch) as requests:
        together = written(s3_bucket, ROOM)
    assert [request.partition(" HTTP/")[0].split("/")[-1] for request in requests] == ["00000-000.pack.zip"]
    check_objects(packs.unpacked(together, f"{s3_bucket}/unpacked"), content=True)
