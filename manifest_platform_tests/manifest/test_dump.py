"""A dump is the same text from every store, and importing it overwrites no row that differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from manifest_platform.manifest import Application, Failure, FailureKind, Item, Manifest, Store, StoreUnavailable
from manifest_platform.manifest.archive import move
from manifest_platform.manifest.dump import Imported, NotImportable, dump, put_dump
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.keys import record_key, records_prefix
from manifest_platform.manifest.store import Delete, Put, Write
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform_tests.manifest import vault
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    assert_kept,
    claim_next,
    discover,
    key,
    land,
    lease,
    load_next,
    manifest,
    shred,
)


@pytest.fixture
def source(tmp_path: Path) -> Store:
    return SqlStore(f"sqlite:///{tmp_path}/source.db")


@pytest.fixture
def target(tmp_path: Path) -> Store:
    """A store of one kind, for tests in which only the text matters."""
    return SqlStore(f"sqlite:///{tmp_path}/target.db")


def busy(store: Store) -> Manifest:
    """Fills a store with rows of every kind, in many versions, with texts and numbers of every kind."""
    shop = manifest(store, late="append")
    land(shop, *range(2, 10))
    for _ in range(3):
        load_next(shop)
    discover(shop, 1)
    shop.skip(key(6), 'schön ☃ \u2028 \\ " \n', "load")
    with lease(shop) as held:
        shop.fail(claim_next_after_late(shop, held), Failure(FailureKind.TRANSIENT, "no", traceback="x" * 9000))
    shop.keep_looks(FEED, {}, {"run=10": {"checksum": "c", "first_seen": "t"}})
    return shop


def claim_next_after_late(shop: Manifest, held):
    shred(shop, 1)
    return claim_next(shop, held)


def text(store: Store, dataset: str = "shop", feed: str | None = None) -> list[str]:
    return list(dump(store, dataset, feed))


@pytest.mark.every_store
def test_a_dump_put_into_an_empty_store_dumps_as_the_same_text(source: Store, store: Store) -> None:
    lines = text(busy(source).store)
    assert {json.loads(line)["kind"] for line in lines} == {
        *("attention", "dump", "lease", "look", "pending", "record", "state", "end"),
    }
    assert put_dump(store, "shop", lambda: lines) == Imported(len(lines) - 2, 0)
    assert text(store) == lines
    shop = manifest(store, late="append")
    assert_kept(shop, "append")
    assert load_next(shop) == 1
    assert load_next(shop) == 5


@pytest.mark.every_store
def test_a_dump_of_every_store_can_be_put_into_another(store: Store, source: Store) -> None:
    lines = text(busy(store).store)
    put_dump(source, "shop", lambda: lines)
    assert text(source) == lines


def test_a_dump_includes_full_loads(store: Store, source: Store) -> None:
    of = vault.vault(source)
    vault.land(of, vault.INCR, 1, 2, 3)
    vault.land(of, vault.FULL, 2)
    vault.load_in_full(of, 2)
    lines = text(source, "vault")
    put_dump(store, "vault", lambda: lines)
    assert text(store, "vault") == lines
    vault.load(vault.vault(store), vault.INCR, 3)


def test_an_interrupted_import_continues(source: Store, store: Store) -> None:
    shop = manifest(source)
    discover(shop, *range(120))
    lines = text(source)
    with pytest.raises(StoreUnavailable):
        put_dump(cast(Store, Broken(store, after=1)), "shop", lambda: lines)
    there = len(store.query("shop", ""))
    assert 0 < there < len(lines) - 2
    assert put_dump(store, "shop", lambda: lines) == Imported(len(lines) - 2 - there, there)
    assert text(store) == lines
    assert put_dump(store, "shop", lambda: lines) == Imported(0, len(lines) - 2)


class Broken:
    """A store that is unavailable after a number of transactions."""

    def __init__(self, store: Store, after: int):
        self.store, self.after = store, after
        self.requests, self.units = 0, None
        self.get, self.query, self.close = store.get, store.query, store.close

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        if not self.after:
            raise StoreUnavailable("no connection")
        self.after -= 1
        self.store.transact(partition, writes, token)


def test_a_differing_row_stops_the_import_and_nothing_is_put(source: Store, store: Store) -> None:
    shop = manifest(source)
    discover(shop, 1, 2)
    lines = text(source)
    put_dump(store, "shop", lambda: lines)
    [first, second] = store.query("shop", records_prefix(FEED))
    store.transact("shop", [Put(second.sort, {**second.data, "author": "else"}, 1), Delete(first.sort, 1)], "meddle")
    with pytest.raises(NotImportable, match=rf"line \d: dataset shop has another {second.sort} already"):
        put_dump(store, "shop", lambda: lines)
    assert store.get("shop", first.sort) is None
    other = store.get("shop", second.sort)
    assert other
    assert other.data["author"] == "else"


@pytest.mark.parametrize("number", [0, 1, 9])
def test_a_store_with_more_rows_than_the_dump_is_left_unchanged(source: Store, target: Store, number: int) -> None:
    discover(manifest(source), 1, 2)
    lines = text(source)
    discover(manifest(target), number)
    with pytest.raises(NotImportable, match=r"already|which the dump lacks"):
        put_dump(target, "shop", lambda: lines)
    assert [row.sort for row in target.query("shop", records_prefix(FEED))] == [
        f"{records_prefix(FEED)}{key(number).position}#000001"
    ]


def test_values_of_different_types_differ_even_if_they_compare_equal(source: Store, target: Store) -> None:
    source.transact("shop", [Put("NOTES#x", {"n": 1}, 0)], "note")
    lines = text(source)
    put_dump(target, "shop", lambda: lines)
    for other in ("1.0", "true"):
        with pytest.raises(NotImportable, match="already"):
            put_dump(target, "shop", lambda other=other: [line.replace('"n":1', f'"n":{other}') for line in lines])


def test_a_concurrent_write_ends_the_import(source: Store, target: Store) -> None:
    discover(manifest(source), 1)
    lines = text(source)

    class Racing(Broken):
        def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
            self.store.transact(partition, writes[:1], "somebody else")
            self.store.transact(partition, writes, token)

    with pytest.raises(NotImportable, match="was written meanwhile"):
        put_dump(cast(Store, Racing(target, 1)), "shop", lambda: lines)


def broken(lines: list[str], at: int, change: Callable[[dict], dict]) -> list[str]:
    return [json.dumps(change(json.loads(line))) if number == at else line for number, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "line 1: not JSON"),
        (lambda lines: lines[1:], "begins with a line of kind 'dump'"),
        (lambda lines: broken(lines, 0, lambda line: {**line, "dataset": "other"}), "the dump's dataset with --dataset"),
        (lambda lines: broken(lines, 0, lambda line: {**line, "format": 2}), "a dump of format 1"),
        (lambda lines: lines[:-1], "without its last line"),
        (lambda lines: [*lines[:-2], lines[-1]], "ends after 7 rows"),
        (lambda lines: [*lines[:3], "{", *lines[3:]], "line 4: not JSON"),
        (lambda lines: [*lines[:3], "[]", *lines[3:]], "line 4: not a JSON object"),
        (lambda lines: [*lines[:3], "{}", *lines[3:]], "line 4: not a row"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], "line 4: .* is not after"),
        (lambda lines: [*lines, lines[1]], "the dump continues after its last line"),
    ],
)
def test_a_damaged_dump_is_refused(source: Store, target: Store, damage: Callable, message: str) -> None:
    shop = manifest(source)
    land(shop, 1)
    load_next(shop)
    lines = damage(text(source))
    with pytest.raises(NotImportable, match=message):
        put_dump(target, "shop", lambda: lines)
    assert target.query("shop", "") == []


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("record", {"previous": "0c5b1c9e-6f2d-4a7e-9a55-2f4e1d3c7b10"}, "must not point at another record"),
        ("record", {"state": "Lost"}, "does not hold a record"),
        ("record", {"sequence": 3}, "holds record 3"),
        ("record", {"item": "s3://bucket/other/"}, "is stored among those of"),
        ("record", {"payload": {"schema": "iglu:com.manifest_platform/landed/jsonschema/1-0-0", "data": {}}}, "required"),
        ("state", {"feeds": 7}, "cannot be read"),
        ("lease", {"expires_at": "soon"}, "cannot be read"),
    ],
)
def test_a_row_that_the_manifest_could_not_have_written_is_refused(
    source: Store, target: Store, kind: str, change: dict, message: str
) -> None:
    shop = manifest(source)
    land(shop, 1)
    load_next(shop)
    lines = text(source)
    at = next(number for number, line in enumerate(lines) if json.loads(line)["kind"] == kind)
    wrong = broken(lines, at, lambda line: {**line, "data": {**line["data"], **change}})
    with pytest.raises(NotImportable, match=message) as error:
        put_dump(target, "shop", lambda: wrong)
    assert str(error.value).startswith(f"line {at + 1}: ")
    assert target.query("shop", "") == []


def test_a_dump_of_one_feed_has_only_its_log(source: Store, target: Store) -> None:
    shop = busy(source)
    lines = text(source, feed=FEED)
    assert {json.loads(line)["kind"] for line in lines[1:-1]} == {"record"}
    put_dump(target, "shop", lambda: lines)
    assert text(target, feed=FEED) == lines
    assert list(manifest(target).items(FEED)) == list(shop.items(FEED))


def test_a_dump_has_each_page_once(source: Store, store: Store) -> None:
    shop = manifest(source)
    discover(shop, *range(300))
    lines = text(source)
    assert len(lines) == 2 + 300 * 2
    assert len(set(lines)) == len(lines)


def test_archived_records_are_dumped_by_their_location(source: Store, target: Store) -> None:
    shop = manifest(source)
    land(shop, 1)
    load_next(shop)
    shop.commit_output(key(1), Application("sessions"), DONE)
    before = shop.item(key(1))
    short = Item(before.key, before.records[:-2])
    source.transact("shop", [Delete(record_key(key(1), one.sequence), 1) for one in before.records[-2:]], "not yet")
    source.transact("shop", move(short, ArchivedRecords("file:///archive/1.parquet", "c", short.sequence)), "archive")
    source.transact("shop", [Put(record_key(key(1), one.sequence), one.to_dict(), 0) for one in before.records[-2:]], "later")
    lines = text(source)
    put_dump(target, "shop", lambda: lines)
    assert text(target) == lines


def test_text_that_utf_8_cannot_hold_is_dumped(source: Store, target: Store) -> None:
    """A store may still hold such text, written before it was refused."""
    source.transact("shop", [Put("NOTES#1", {"text": "\ud800 ☃"}, 0)], "note")
    lines = text(source)
    assert [line.encode("ascii").decode() for line in lines] == lines
    put_dump(target, "shop", lambda: lines)
    assert text(target) == lines


@pytest.mark.every_store
def test_no_transaction_is_larger_than_a_store_takes(source: Store, target: Store) -> None:
    for number in range(20):
        source.transact("shop", [Put(f"NOTES#{number:02d}", {"text": "x" * 250_000}, 0)], f"note {number}")
    lines = text(source)
    sizes: list[int] = []

    class Weighing(Broken):
        def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
            sizes.append(sum(len(json.dumps(write.data)) for write in writes if isinstance(write, Put)))
            self.store.transact(partition, writes, token)

    put_dump(cast(Store, Weighing(target, 1)), "shop", lambda: lines)
    assert len(sizes) == 5
    assert max(sizes) <= 1 << 20
    assert text(target) == lines
