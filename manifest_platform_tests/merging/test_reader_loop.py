"""Readers in a loop while partitions are switched and published again and again: the old or the new set, never a mix."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pytest

from manifest_platform import storage
from manifest_platform.manifest import Store
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.readers import NotPublished, Reader
from manifest_platform.merging.state import Version
from manifest_platform_tests.effort import cases
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import pass_the_day, run
from manifest_platform_tests.merging.catalogs.test_embedded import Shop
from manifest_platform_tests.merging.given import DAY, TABLE, arrive

SWITCHES, AT_ONCE = cases(60, 200), 10
READERS = 2
PAUSE_S = 0.003


@contextmanager
def reading(read: Callable[[], None]) -> Generator[None]:
    """Readers that read on and on while the block runs. What a reader finds wrong is raised at the end; each has read."""
    done, wrong, rounds = threading.Event(), [], [0] * READERS

    def loop(number: int) -> None:
        try:
            while not done.is_set() or not rounds[number]:
                read()
                rounds[number] += 1
                time.sleep(PAUSE_S)
        except BaseException as error:
            wrong.append(error)

    readers = [threading.Thread(target=loop, args=[number]) for number in range(READERS)]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        done.set()
        for reader in readers:
            reader.join()
    if wrong:
        raise wrong[0]
    assert min(rounds) > SWITCHES // 10


def assert_whole(found: Version, number: int) -> None:
    """A partition has ids from 1,000 times its number on: of live objects all, of merged ones a chain from 0."""
    first = 1_000 * number
    assert found.files
    if found.version == 0:
        assert [file.upper for file in found.files] == list(range(first, first + len(found.files)))
        assert len(found.files) >= 3
        assert all(file.lower is None for file in found.files)
    else:
        lowers = [file.lower for file in found.files]
        assert lowers == [0, *(file.upper for file in found.files[:-1])]
        assert found.files[-1].upper == found.version
        assert sum(file.rows for file in found.files) == sum(1 + id_ % 10 for id_ in range(first, found.version + 1))


@pytest.mark.thorough
def test_readers_see_old_or_new_files_during_switches(store: Store, reopen: Callable[[], Store]) -> None:
    """Takes the partitions ten at a time through live, closed, merged, switched and published, then adds delayed objects."""
    writer, shared = given.inventory(store), reopen()
    catalog = EmbeddedCatalog(writer)
    current: list[int] = []
    newest: dict[int, int] = {}

    def read() -> None:
        reader = Reader(Inventory(shared, given.DATASET, "reader"))
        for number in current[-AT_ONCE:]:
            least = newest.get(number, 0)
            found = reader.files(TABLE, day_of(number))
            assert_whole(found, number)
            assert found.files[-1].upper >= least, "an older state than one that was seen before"
            newest[number] = max(newest.get(number, 0), found.files[-1].upper)

    with reading(read):
        for start in range(1, SWITCHES + 1, AT_ONCE):
            numbers = range(start, start + AT_ONCE)
            land(writer, numbers, 0, 3)
            run(writer, catalog)
            current += numbers
            land(writer, numbers, 3, 5)
            pass_the_day(writer, day_of(numbers[-1]))
            run(writer, catalog)
            merge_all(writer)
            report = run(writer, catalog)
            assert (len(report.switched), len(report.published)) == (AT_ONCE, AT_ONCE)
            land(writer, numbers, 5, 6)
            merge_all(writer)
            run(writer, catalog)
    shared.close()
    partitions = list(writer.partitions(TABLE))
    assert len(partitions) == SWITCHES
    assert all(one.switched and one.current == one.desired == one.newest for one in partitions)


def day_of(number: int) -> date:
    return DAY + timedelta(days=number)


def land(of: Inventory, numbers: range, start: int, stop: int) -> None:
    """Registers one commit with the objects `start` to `stop` (exclusive) of each partition."""
    objects = {
        (TABLE, day_of(number)): tuple(
            given.small(id_, rows=1 + id_ % 10) for id_ in range(1_000 * number + start, 1_000 * number + stop)
        )
        for number in numbers
    }
    given.deliver(of, objects)


def merge_all(of: Inventory) -> None:
    for due in of.open_partitions():
        of.hasten(due.table, due.date, of.clock())
    with given.slot(of) as held:
        given.merge_all(of, held)


def test_a_duckdb_reader_sees_every_row_once_at_any_time(store: Store, reopen: Callable[[], Store], tmp_path: Path) -> None:
    """Rows of a partition are numbered from 0 on, in the order in which they land."""
    shop = Shop(given.inventory(store), storage.as_uri(tmp_path / "lake"))
    shared = reopen()
    least = [0]

    def read() -> None:
        with duckdb.connect() as connection:
            before = least[0]
            Reader(Inventory(shared, given.DATASET, "reader")).views(connection)
            ids = [id_ for (id_,) in connection.execute(f"SELECT id FROM app.{TABLE} ORDER BY id").fetchall()]
            assert ids == list(range(len(ids)))
            assert len(ids) >= before
            least[0] = max(before, len(ids))

    shop.land(1, [{"id": 0}])
    shop.publish()
    with reading(read):
        for number in range(1, 6):
            shop.land(number + 1, [{"id": number}])
        pass_the_day(shop.inventory)
        for number in range(6, 40):
            shop.publish()
            shop.merge()
            shop.publish()
            shop.land(number + 1, [{"id": number}])
    read()  # the readers may have read last before the last rows landed
    shared.close()
    assert least[0] >= 38


def test_a_reader_of_a_partition_that_is_dropped_is_told_so(store: Store) -> None:
    inventory = given.inventory(store)
    arrive(inventory, 11)
    run(inventory, EmbeddedCatalog(inventory))
    inventory.drop(TABLE)
    with pytest.raises(NotPublished):
        Reader(inventory).files(TABLE, DAY)
