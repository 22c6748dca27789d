"""What is removed of what merging wrote, and above all what is not: real files, a real manifest."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from manifest_platform import storage
from manifest_platform.manifest import LeaseBusy, LeaseLost, Store
from manifest_platform.merging import names
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.garbage import GRACE, find, remove, unnamed, upkeep
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.readers import Reader
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import FinishedJob, MergedTable, RunningJob
from manifest_platform.merging.stored import stored_files
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import pass_the_day, run
from manifest_platform_tests.merging.given import DAY, TABLE, arrive

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
NO_TIME = timedelta(0)


class Yard:
    """An inventory, and the directory in which its merged objects really lie. What is written is old."""

    def __init__(self, inventory: Inventory, home: Path):
        self.inventory, self.home, self.output = inventory, home, storage.as_uri(home)

    @property
    def table(self) -> MergedTable:
        found = self.inventory.table(TABLE)
        assert found
        return found

    def write(self, uri: str, written: float = LONG_AGO) -> Path:
        path = storage.local_path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rows")
        os.utime(path, (written, written))
        return path

    def part(self, attempt: str, lower: int, upper: int) -> Path:
        return self.write(names.try_uri(names.part_uri(self.output, self.table, DAY, attempt, lower, upper)))

    def merge(self) -> FinishedJob:
        """Whatever waits is merged, into a file."""
        self.inventory.hasten(TABLE, DAY, self.inventory.clock())
        with given.slot(self.inventory) as held:
            return self.made(given.claim_one(self.inventory, held)).commit(self.inventory)

    def made(self, claimed: given.Claimed) -> given.Made:
        """A merge before its commit, its files written."""
        made = given.make(self.inventory, claimed)
        ranges = []
        for one in made.ranges:
            uri = names.try_uri(names.part_uri(self.output, self.table, DAY, made.job.id, one.lower, one.upper))
            self.write(uri)
            ranges.append(dataclasses.replace(one, uri=uri))
        return dataclasses.replace(made, ranges=tuple(ranges))

    def publish(self) -> None:
        run(self.inventory, EmbeddedCatalog(self.inventory))

    def later(self, by: timedelta) -> None:
        self.inventory.clock.turn(by)  # ty: ignore[missing-attribute]

    def clean(self, grace: timedelta = GRACE) -> list[str]:
        """The names of the files that were removed; what would be was said before, and removed nothing."""
        before = self.names()
        told = find(self.inventory, self.output, self.inventory.clock(), grace)
        assert self.names() == before
        removed = list(remove(self.inventory, self.output, self.inventory.clock(), grace))
        assert removed == told
        gone = sorted(set(before) - set(self.names()))
        assert gone == sorted(file.name.rpartition("/")[2] for one in removed for file in (*one.objects, *one.manifests))
        assert not find(self.inventory, self.output, self.inventory.clock(), grace)
        return gone

    def names(self) -> list[str]:
        return sorted(path.name for path in self.home.rglob("*") if path.is_file())

    def read(self) -> list[str]:
        """The files that a reader gets; all of them are there."""
        found = [storage.local_path(file.uri) for file in Reader(self.inventory).files(TABLE, DAY).files]
        assert all(path.exists() for path in found)
        return [path.name for path in found]


@pytest.fixture
def yard(store: Store, tmp_path: Path) -> Yard:
    return Yard(given.inventory(store), tmp_path / "merged")


def part(lower: int, upper: int) -> str:
    return f"part-{lower:019d}-{upper:019d}.parquet"


def extended(yard: Yard) -> None:
    """Makes the parts (0, 100], (0, 150] and (150, 180]. The first part is superseded."""
    for id_, size in ((100, 30), (150, 30), (180, 90)):
        arrive(yard.inventory, id_, size=size)
        yard.merge()
    assert given.bounds(yard.inventory) == [(0, 150), (150, 180)]
    assert yard.names() == [part(0, 100), part(0, 150), part(150, 180)]


def test_E15_what_was_superseded_is_removed_and_nothing_else(yard: Yard) -> None:
    extended(yard)
    pass_the_day(yard.inventory)
    yard.publish()
    yard.later(GRACE)
    assert yard.clean() == [part(0, 100)]
    assert yard.read() == [part(0, 150), part(150, 180)]
    assert len(list(yard.home.glob("*/merged/*/*"))) == 2, "an attempt without files is gone"


def test_E16_of_a_partition_that_is_not_switched_nothing_is_removed(yard: Yard) -> None:
    extended(yard)
    yard.part("died", 180, 190)
    yard.later(GRACE * 9)
    assert yard.clean() == []


def test_what_a_dead_attempt_left_is_removed_and_what_a_running_job_wrote_is_not(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    pass_the_day(yard.inventory)
    yard.merge()
    yard.publish()
    arrive(yard.inventory, 20)
    yard.inventory.hasten(TABLE, DAY, yard.inventory.clock())
    held = given.slot(yard.inventory)
    lost = yard.made(given.claim_one(yard.inventory, held))
    yard.part("died", 10, 20)
    yard.later(GRACE)
    assert yard.clean(NO_TIME) == [part(10, 20)], "of the job that runs nothing"
    given.kill(held)
    assert [job.outcome for job in yard.inventory.requeue(yard.inventory.clock())] == ["died"]
    assert yard.clean(NO_TIME) == [part(0, 20)]
    assert yard.read() == [part(0, 10)]
    assert not given.try_commit(yard.inventory, lost), "nothing names what was removed"


def test_what_is_younger_than_the_grace_is_kept(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    pass_the_day(yard.inventory)
    yard.merge()
    yard.publish()
    path = yard.part("died", 10, 20)
    now = yard.inventory.clock()
    written = (now - GRACE).timestamp() + 1
    os.utime(path, (written, written))
    yard.later(NO_TIME)
    assert yard.clean() == []
    yard.later(timedelta(seconds=1))
    assert yard.clean() == [part(10, 20)]


def test_garbage_in_s3_is_removed_alike(store: Store, s3_bucket: str) -> None:
    inventory = given.inventory(store)
    table = inventory.table(TABLE)
    assert table
    arrive(inventory, 10)
    pass_the_day(inventory)
    inventory.hasten(TABLE, DAY, inventory.clock())
    with given.slot(inventory) as held:
        made = given.make(inventory, given.claim_one(inventory, held))
        uris = [names.part_uri(s3_bucket, table, DAY, attempt, 0, 10) for attempt in ("died", made.job.id)]
        for uri in uris:
            storage.write_bytes(uri, b"rows")
        dataclasses.replace(made, ranges=(dataclasses.replace(made.ranges[0], uri=uris[1]),)).commit(inventory)
    run(inventory, EmbeddedCatalog(inventory))
    assert not list(remove(inventory, s3_bucket, datetime.now(UTC), GRACE)), "it is younger than that"
    [garbage] = remove(inventory, s3_bucket, datetime.now(UTC) + GRACE, GRACE)
    assert [f"{garbage.location}/{one.name}" for one in garbage.objects] == uris[:1]
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(uris[0])
    assert storage.read_bytes(uris[1]) == b"rows"
    found = boto3.Session().client("s3").list_objects_v2(Bucket=s3_bucket.removeprefix("s3://"))["Contents"]
    assert [one["Key"] for one in found] == [uris[1].removeprefix(f"{s3_bucket}/")], "and no trace of a directory"


def test_what_was_superseded_lately_is_kept_however_old_its_file_is(yard: Yard) -> None:
    arrive(yard.inventory, 100)
    yard.merge()
    pass_the_day(yard.inventory)
    yard.later(GRACE)
    arrive(yard.inventory, 150)
    yard.merge()
    yard.publish()
    assert yard.names() == [part(0, 100), part(0, 150)]
    assert yard.clean() == []
    yard.later(GRACE)
    assert yard.clean() == [part(0, 100)]


def test_an_old_version_is_kept_for_the_grace_and_then_goes_with_its_files(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    pass_the_day(yard.inventory)
    yard.merge()
    yard.publish()
    yard.later(GRACE * 9)
    assert yard.clean() == [], "the version that readers see may be as old as it likes"
    arrive(yard.inventory, 20)
    yard.merge()
    yard.later(GRACE)  # the file is superseded for as long, and the version names it still
    yard.publish()
    assert [one.version for one in yard.inventory.versions(TABLE, DAY)] == [10, 20]
    yard.later(GRACE - timedelta(seconds=1))
    assert yard.clean() == []
    yard.later(timedelta(seconds=1))
    assert yard.clean() == [part(0, 10)]
    assert [one.version for one in yard.inventory.versions(TABLE, DAY)] == [20]
    assert yard.read() == [part(0, 20)]


def test_a_merge_that_ends_while_garbage_is_looked_for_keeps_its_objects(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    pass_the_day(yard.inventory)
    yard.merge()
    yard.publish()
    arrive(yard.inventory, 20, size=90)
    yard.inventory.hasten(TABLE, DAY, yard.inventory.clock())
    with given.slot(yard.inventory) as held:
        work = yard.made(given.claim_one(yard.inventory, held))
        racing = Racing(yard.inventory, lambda: work.commit(yard.inventory))
        assert not list(remove(racing, yard.output, yard.inventory.clock(), NO_TIME))
    assert part(10, 20) in yard.names()
    yard.publish()
    assert yard.read() == [part(0, 10), part(10, 20)]


class Racing(Inventory):
    """An inventory beside which a job ends just when the running ones are asked for."""

    def __init__(self, of: Inventory, end: Callable[[], object]):
        super().__init__(of.store, of.dataset, of.owner, of.clock)
        self._end_job: Callable[[], object] | None = end

    def running(self) -> list[RunningJob]:
        if self._end_job:
            self._end_job()
            self._end_job = None
        return super().running()


def test_manifest_files_go_with_their_versions(yard: Yard) -> None:
    table = yard.table

    def told(served: Served) -> str:
        if served.live:
            return names.live_manifest_uri(yard.output, table, DAY, served.newest)
        return names.manifest_uri(yard.output, table, DAY, served.newest, served.generation)

    arrive(yard.inventory, 10)
    live, more_live = yard.write(told(Served(0, 5))), yard.write(told(Served(0, 10)))
    yard.publish()
    yard.later(GRACE)
    assert yard.clean(NO_TIME) == []
    pass_the_day(yard.inventory)
    yard.merge()
    yard.publish()
    first = yard.write(told(Served(1, 10)))
    coming = yard.write(told(Served(2, 20)))  # a publication is about to name it
    assert yard.clean() == []
    yard.later(GRACE)
    assert yard.clean() == [live.name, more_live.name]
    arrive(yard.inventory, 20)
    yard.merge()
    yard.publish()
    assert yard.clean() == []
    yard.later(GRACE)
    assert yard.clean() == [first.name, part(0, 10)]
    assert coming.exists()


def test_files_that_merging_did_not_name_are_left_alone(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    pass_the_day(yard.inventory)
    yard.merge()
    yard.publish()
    location = names.table_uri(yard.output, yard.table)
    for stranger in (
        f"{location}/merged/notes.txt",
        f"{location}/merged/dt={DAY}/notes/part-1-2.parquet",
        f"{location}/small/dt={DAY}/x/{part(0, 5)}",
        f"{yard.output}/other.table/merged/dt={DAY}/x/{part(0, 5)}",
    ):
        yard.write(stranger)
    yard.later(GRACE)
    assert yard.clean() == []


def test_what_a_table_left_that_was_dropped_goes_once_it_is_there_again(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    yard.merge()
    yard.inventory.drop(TABLE)
    assert yard.clean() == [], "a table that is not there is not looked for"
    yard.inventory.sync_table(given.settings())
    assert yard.clean(NO_TIME) == [part(0, 10)]


def test_what_is_named_is_told_from_what_is_not(yard: Yard) -> None:
    """Files that a running job, a range, a kept version or the published live list names are in use. All others are unnamed."""
    arrive(yard.inventory, 10)
    pass_the_day(yard.inventory)
    yard.merge()
    arrive(yard.inventory, 15, day=DAY + timedelta(days=1))
    yard.publish()  # a version names (0, 10]
    seen = yard.write(names.manifest_uri(yard.output, yard.table, DAY, 10, 1))
    gone = yard.write(names.manifest_uri(yard.output, yard.table, DAY, 5, 1))
    arrive(yard.inventory, 20)
    yard.merge()  # a range names (0, 20], and no version
    arrive(yard.inventory, 30)
    yard.inventory.hasten(TABLE, DAY, yard.inventory.clock())
    shown = yard.write(names.live_manifest_uri(yard.output, yard.table, DAY + timedelta(days=1), 15))
    yard.part("died", 0, 25)
    notes = yard.write(f"{names.table_uri(yard.output, yard.table)}/notes.txt")
    location = names.table_uri(yard.output, yard.table)
    with given.slot(yard.inventory) as held:
        made = yard.made(given.claim_one(yard.inventory, held))
        yard.part(f"{made.job.id}.0123abcd", 20, 25)
        files = list(stored_files(location))
        found = unnamed(yard.inventory, location, yard.table, files)
        named = {file.name.rpartition("/")[2] for file in files} - {file.name.rpartition("/")[2] for file in found}
        work = made.ranges[0].uri.rpartition("/")[2]
        assert named == {part(0, 10), part(0, 20), work, part(20, 25), seen.name, shown.name}
        assert {file.name.rpartition("/")[2] for file in found} == {gone.name, notes.name, part(0, 25)}


def test_who_lost_the_lease_of_a_rebuild_commits_nothing(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    yard.merge()
    partition, [old] = yard.inventory.chain(TABLE, DAY)
    assert partition
    anew = dataclasses.replace(old, uri=f"{old.uri}.anew")
    with upkeep(yard.inventory, timedelta(milliseconds=1)) as lost:
        given.kill(lost)
        time.sleep(0.01)
        with upkeep(yard.inventory), pytest.raises(LeaseLost):  # another has it, and may remove what is not committed
            yard.inventory.rebuild(partition, [anew], lost)
    assert yard.inventory.ranges(TABLE, DAY) == [old]
    with upkeep(yard.inventory) as held:
        assert yard.inventory.rebuild(partition, [anew], held).generation == 2
    assert [one.uri for one in yard.inventory.ranges(TABLE, DAY)] == [anew.uri]


def test_nothing_is_removed_while_somebody_writes_what_no_job_stands_for(yard: Yard) -> None:
    arrive(yard.inventory, 10)
    pass_the_day(yard.inventory)
    yard.merge()
    yard.publish()
    yard.part("rebuild", 10, 20)
    with upkeep(yard.inventory), pytest.raises(LeaseBusy):
        list(remove(yard.inventory, yard.output, yard.inventory.clock(), NO_TIME))
    assert len(yard.names()) == 2
    assert yard.clean(NO_TIME) == [part(10, 20)]
