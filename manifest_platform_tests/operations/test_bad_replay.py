"""Replays of bad rows: exact bytes, never twice, safe in a crash, and told by the records of both items."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import failpoints
from manifest_platform.demo.events import SCHEMAS
from manifest_platform.manifest import Refused
from manifest_platform.operations import bad_replay
from manifest_platform.operations.bad_lines import Looked, Wanted, bad_groups, bad_lines
from manifest_platform.operations.bad_replay import Replayed, count_open, open_rows, replay, replays_root, with_bad_rows
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.moved import import_moved
from manifest_platform.operations.reconcile import reconcile
from manifest_platform.operations.reload import reload
from manifest_platform.operations.reshred import reshred
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.bad.replays import EventReplays
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.operations.doctor.test_doctor import back_up, put_back
from manifest_platform_tests.pipeline.shop import Shop, drained, keys, run_name

CART = "com.acme/add_to_cart"
RUNS = 2


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """A shop whose runs are loaded, with events of a schema that is not published yet, and a line that is never an event."""
    shop = without_schema(tmp_path)
    shop.write(*range(RUNS))
    part = shop.directory(0) / "part-00000.tsv"
    part.write_bytes(b"\xff\tnot an event\n" + part.read_bytes())
    with shop.open() as pipeline:
        shop.land(pipeline, RUNS)
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
    return shop


def without_schema(home: Path, **shred: Any) -> Shop:
    """A shop in which a schema of its events is not published yet. `shred`: further settings."""
    shutil.copytree(SCHEMAS, home / "schemas", ignore=shutil.ignore_patterns("add_to_cart"))
    bad = {"max_share": 0.9, "max_count": 1000}
    return Shop(home, shred={"schemas": [str(home / "schemas")], "bad_rows": bad, **shred})


def publish(shop: Shop) -> None:
    shutil.copytree(SCHEMAS / CART, shop.home / "schemas" / CART)


def replayed(pipeline: Pipeline, **options: Any) -> Replayed:
    found = [item.key for item in with_bad_rows(pipeline, FEED)]
    return replay(pipeline, found, "the schema is published", **options)


def test_lines_that_are_good_now_become_the_newest_item_of_the_feed(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        events = pipeline.warehouse.row_counts()["events"]
        bad = sum(count_open(pipeline, item) for item in with_bad_rows(pipeline, FEED))
        assert not replayed(pipeline).items, "the schema is not published"
        publish(shop)
        told = replayed(pipeline, dry_run=True)
        assert (told.items, sum(told.good.values())) == ([], bad - 1)
        assert not Path(replays_root(pipeline).removeprefix("file://")).exists()

        done = replayed(pipeline)
        [name] = done.items
        assert (sum(done.good.values()), sum(done.bad.values()), sum(done.lost.values())) == (bad - 1, 1, 0)
        made = pipeline.manifest.item(pipeline.key(name))
        origins = {key.id for key in keys(pipeline, *range(RUNS + 1))}
        assert set(made.replays) <= origins and made.records[-1].data["reason"] == "the schema is published"
        for id_ in made.replays:
            [origin] = [key for key in keys(pipeline, *range(RUNS + 1)) if key.id == id_]
            [record] = pipeline.manifest.item(origin).replayed
            assert record.data["replayed"]["item"] == made.key.id

        place = Path(made.place.removeprefix("file://"))
        lines = (place / "part-00000.tsv").read_bytes().split(b"\n")
        landed = (shop.directory(number) / "part-00000.tsv" for number in range(RUNS + 1))
        assert lines.pop() == b"" and set(lines) <= {line for file in landed for line in file.read_bytes().split(b"\n")}

        assert not replayed(pipeline).items, "no line is replayed twice"
        report = drained(pipeline, spark)[1]
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)
        assert pipeline.warehouse.row_counts()["events"] == events + bad - 1
        assert pipeline.manifest.state(pipeline.load).feed(FEED).watermark == made.key.position
        [new] = shop.land(pipeline, RUNS + 1)
        assert name.startswith(f"{run_name(RUNS)}-replay-") and new.position > made.key.position, "what lands next is not late"
        assert not replayed(pipeline).items
        assert sum(group.rows for group in bad_groups(bad_lines(pipeline, Wanted(), Looked(), is_open=True))) == 1
        left = [row for item in with_bad_rows(pipeline, FEED) for row in open_rows(pipeline, item)]
        assert [row.data for row in left] == [b"\xff\tnot an event"]
        pipeline.warehouse.close()
        assert Doctor(pipeline).examine().findings == []
    assert shop.doubled_events == []


def test_a_replay_that_is_killed_before_it_is_registered_loads_nothing_twice(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(shop)
    with shop.open() as pipeline, monkeypatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, "replay.written:raise")
        with pytest.raises(failpoints.FailpointReached):
            replayed(pipeline)
        assert drained(pipeline)[1].loaded == 0
    with shop.open() as pipeline:
        [name] = replayed(pipeline).items
        folders = [path for path in Path(replays_root(pipeline).removeprefix("file://")).iterdir() if path.is_dir()]
        assert [path.name for path in folders] == [name]
        drained(pipeline, spark)
        assert not replayed(pipeline).items
    assert shop.doubled_events == []


@pytest.mark.parametrize("repair", [False, True], ids=["another choice of lines", "doctor"])
def test_a_manifest_that_was_set_back_before_a_replay_learns_of_it_again(shop: Shop, spark: Any, repair: bool) -> None:
    """Chosen otherwise, the same lines were another item, so the warehouse had them twice."""
    publish(shop)
    backup = back_up(shop)
    with shop.open() as pipeline:
        [name] = replayed(pipeline).items
        assert drained(pipeline, spark)[1].loaded == 1
    rows = shop.seen.rows
    put_back(shop, backup)
    with shop.open() as pipeline:
        if repair:
            doctor = Doctor(pipeline)
            doctor.repair()
            assert f"registered {name}, a replay that the manifest did not know" in doctor.done
        else:
            [key, *_] = [item.key for item in with_bad_rows(pipeline, FEED)]
            assert replay(pipeline, [key], "only this one").items == [name]
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
        assert Doctor(pipeline).examine().findings == []
        assert not replayed(pipeline).items
        assert len(pipeline.manifest.item(pipeline.key(name)).replays) > 1
    assert (shop.seen.rows, shop.doubled_events) == (rows, [])


def test_a_replay_asks_for_a_repair_if_its_items_were_shredded_again_by_a_manifest_that_was_set_back(
    shop: Shop, spark: Any
) -> None:
    publish(shop)
    backup = back_up(shop)
    with shop.open() as pipeline:
        [name] = replayed(pipeline).items
        drained(pipeline, spark)
    put_back(shop, backup)
    with shop.open() as pipeline:
        origins = keys(pipeline, *range(RUNS + 1))
        for key in origins:
            reshred(pipeline, key, "by the schemas of today")
        drained(pipeline, spark)
        with pytest.raises(Refused, match=f"{name} is loaded, and the manifest does not know this replay") as refused:
            replay(pipeline, origins, "again")
        assert refused.value.remedy == Remedy(Action.REPAIR)
        Doctor(pipeline).repair()
        assert pipeline.manifest.item(pipeline.key(name)).records
        assert not replayed(pipeline).items


def test_an_abandoned_replay_takes_no_lines_that_its_origin_has_as_good_ones(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(shop)
    with shop.open() as pipeline, monkeypatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, "replay.written:raise")
        with pytest.raises(failpoints.FailpointReached):
            replayed(pipeline)
    with shop.open() as pipeline:
        origins = keys(pipeline, *range(RUNS + 1))
        for key in origins:
            reshred(pipeline, key, "by the schemas of today")
        drained(pipeline, spark)
        assert not replayed(pipeline).items
        for key in origins:
            reload(pipeline, key, "its output is new")
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
    assert shop.doubled_events == []


def test_the_lines_of_an_item_are_read_some_at_a_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item may have as many bad rows as memory does not hold. What is chosen does not depend on the portions."""
    publish(shop)
    with shop.open() as pipeline:
        whole = replayed(pipeline, dry_run=True)
        read: list[int] = []
        parses = EventReplays.parses

        def counted(self: EventReplays, lines: Sequence[bytes]) -> list[bool]:
            read.append(len(lines))
            return parses(self, lines)

        monkeypatch.setattr(EventReplays, "parses", counted)
        monkeypatch.setattr(bad_replay, "_AT_ONCE", 2)
        assert replayed(pipeline, dry_run=True) == whole
        assert max(read) == 2 and sum(read) == whole.good.total() + whole.bad.total() > 2 * (RUNS + 1)


def test_a_replay_follows_the_replay_before_it(shop: Shop, spark: Any) -> None:
    publish(shop)
    with shop.open() as pipeline:
        names = [name for key in keys(pipeline, *range(RUNS + 1)) for name in replay(pipeline, [key], "by item").items]
        assert len(names) == RUNS + 1 and names == sorted(names)
        pipeline.manifest.skip(pipeline.key(names[0]), "not this")
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
    assert not any(late for _, late in shop.seen.ledger)


def test_of_two_replays_of_the_same_lines_one_comes_through(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(shop)
    with shop.open() as pipeline, shop.open() as other:
        write = other.manifest.replay

        def late(*given: Any) -> Any:
            monkeypatch.undo()
            assert replayed(pipeline).items
            return write(*given)

        monkeypatch.setattr(other.manifest, "replay", late)
        with pytest.raises(Refused, match="changed meanwhile"):
            replayed(other)


@pytest.mark.long
@pytest.mark.parametrize("again", ["a second target", "the output is lost", "the warehouse is set back", "a reload"])
def test_what_was_replayed_is_not_loaded_again_with_its_origin(shop: Shop, spark: Any, again: str) -> None:
    """Shredded again by the schemas of today, the origins would have the same lines as good ones."""
    publish(shop)
    with shop.open() as pipeline:
        origins = keys(pipeline, *range(RUNS + 1))
        before = [listing_of(pipeline.manifest.item(key)) for key in origins]
        assert replayed(pipeline).items
        drained(pipeline, spark)
        rows = pipeline.warehouse.row_counts()
        lost = again == "the output is lost"
        for key in origins:
            if lost:
                shutil.rmtree(pipeline.folder(key).removeprefix("file://"))
            else:
                reshred(pipeline, key, "by the schemas of today")
        assert lost or drained(pipeline, spark)[1].shredded == len(origins)
        for key in origins if again == "a reload" else ():
            reload(pipeline, key, "its output is new")
    if again == "the warehouse is set back":
        (shop.home / "warehouse.duckdb").unlink()
    if again in ("a second target", "the output is lost"):
        settings = yaml.safe_load(shop.config_file.read_text())
        shop.config_file.write_text(yaml.safe_dump({**settings, "targets": {"lab": {"kind": "duckdb", "path": "lab.duckdb"}}}))
    with shop.open() as pipeline:
        if again == "the warehouse is set back":
            list(reconcile(pipeline, "it was lost"))
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
        for target in pipeline.each_target():
            assert target.warehouse.row_counts() == rows
            target.warehouse.close()
        for key, was in zip(origins, before, strict=True):
            shredded = listing_of(pipeline.manifest.item(key))
            assert (shredded.lines, shredded.good, shredded.bad) == (was.lines, was.good, was.bad)
        assert not replayed(pipeline).items
    assert shop.doubled_events == []


def test_a_replayed_line_is_known_at_another_place(shop: Shop, spark: Any) -> None:
    """Landing moved and the items were shredded again: the lines had new places, and their events were loaded twice."""
    publish(shop)
    with shop.open() as pipeline:
        assert replayed(pipeline).items
        drained(pipeline, spark)
        origins = keys(pipeline, *range(RUNS + 1))
    moved = shop.home / "moved"
    (shop.home / "landing").rename(moved)
    with shop.open() as pipeline:
        import_moved(pipeline, f"{shop.home}/landing", str(moved), "another disk")
    settings = yaml.safe_load(shop.config_file.read_text())
    settings["datasets"]["shop"]["landing"]["root"] = str(moved)
    shop.config_file.write_text(yaml.safe_dump(settings))
    with shop.open() as pipeline:
        for key in origins:
            reshred(pipeline, key, "its output was made before the move")
        assert drained(pipeline, spark)[1].shredded == len(origins)
        items = [pipeline.manifest.item(key) for key in origins]
        still = sum(count_open(pipeline, item) for item in items)
        assert sum(len(list(open_rows(pipeline, item))) for item in items) == still == 1
        assert sum(group.rows for group in bad_groups(bad_lines(pipeline, Wanted(), Looked(), is_open=True))) == still
        assert not replay(pipeline, origins, "once more").items
        drained(pipeline, spark)
    assert shop.doubled_events == []


def test_of_equal_lines_those_that_were_not_replayed_stay_open(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = without_schema(tmp_path, duplicates={"natural": False, "synthetic": False})
    shop.write(0)
    part = shop.directory(0) / "part-00000.tsv"
    part.write_bytes(part.read_bytes() * 2)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        assert drained(pipeline, spark)[1].loaded == 1
        publish(shop)
        [key] = keys(pipeline, 0)
        lines = [row.data or b"" for row in open_rows(pipeline, pipeline.manifest.item(key))]
        once = lines[: len(lines) // 2]
        assert once and lines == once * 2
        monkeypatch.setattr(bad_replay, "MOST_BYTES", sum(map(len, once)))
        register = pipeline.manifest.replay
        with monkeypatch.context() as patch, pytest.raises(InterruptedError):
            calls = iter([register])
            patch.setattr(pipeline.manifest, "replay", lambda *given: next(calls, interrupted)(*given))
            replay(pipeline, [key], "the schema is published")
        assert [row.data for row in open_rows(pipeline, pipeline.manifest.item(key))] == once
        assert count_open(pipeline, pipeline.manifest.item(key)) == len(once)


def interrupted(*_: Any) -> None:
    raise InterruptedError


def test_a_line_is_not_replayed_while_its_item_is_shredded_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shredding that began before the replay does not know of it, and makes good events of the same lines."""
    publish(shop)
    with shop.open() as pipeline, shop.open() as other:
        write = other.manifest.replay

        def late(*given: Any) -> Any:
            reshred(pipeline, keys(pipeline, 0)[0], "at the same time")
            return write(*given)

        monkeypatch.setattr(other.manifest, "replay", late)
        with pytest.raises(Refused, match="changed meanwhile"):
            replayed(other)


def test_only_rows_of_loaded_items_and_of_sources_whose_lines_stand_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(shop)
    with shop.open() as pipeline:
        assert not replayed(pipeline, about="of another cause").good.total()
        [key] = shop.land(pipeline, 9)
        with pytest.raises(Refused, match="is not loaded"):
            replay(pipeline, [key], "too early")
        monkeypatch.setattr(type(pipeline.source), "replays", None)
        with pytest.raises(Refused, match="cannot be replayed"):
            replayed(pipeline)
