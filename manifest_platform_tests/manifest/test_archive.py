from __future__ import annotations

import dataclasses
import hashlib
import json
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from manifest_platform import cli, failpoints, record_files, storage
from manifest_platform.failpoints import FailpointReached
from manifest_platform.manifest import (
    Application,
    Failure,
    FailureKind,
    Item,
    Landed,
    Manifest,
    OutcomeUnknown,
    Payload,
    Ready,
    Refused,
    State,
    Step,
    Store,
)
from manifest_platform.manifest.archive import MOST_RECORDS, is_finished, move
from manifest_platform.manifest.dataset import StepState
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.keys import records_prefix
from manifest_platform.manifest.records import REASON
from manifest_platform.manifest.store import MAX_WRITES, RowDamaged
from manifest_platform.operations import archive as archiving
from manifest_platform.operations.archive import Archived, archive
from manifest_platform.record_files import read_archived
from manifest_platform_tests.manifest import given
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    START,
    Clock,
    LossyStore,
    assert_kept,
    claim_next,
    item_of,
    key,
    land,
    landed,
    load_next,
    record,
)
from manifest_platform_tests.manifest.test_snowplow_cases import uid

LATER = START + HOUR
"""All that is written in a test is older than this."""
REPORT = Application("report")


def manifest(store: Store, late: given.Late = "append", **options) -> Manifest:
    return Manifest(store, "shop", {FEED: given.steps(late)}, "test", clock=Clock(), read_archived=read_archived, **options)


def loaded(store: Store, count: int) -> Manifest:
    """A manifest with `count` items that are all loaded, except that the second is skipped for the load."""
    of = manifest(store)
    land(of, *range(1, count + 1))
    of.skip(key(2), "not wanted", "load")
    while isinstance(of.next(FEED, "load"), Ready):
        load_next(of)
    return of


def rows(of: Manifest, number: int | None = None) -> int:
    position = "" if number is None else key(number).position
    return len(of.store.query(of.dataset, records_prefix(FEED, position)))


def archived(of: Manifest, number: int) -> bool:
    return ArchivedRecords.of(of.store.query(of.dataset, records_prefix(FEED, key(number).position))[0]) is not None


def files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.parquet"))


# Archived items behave as if they were still in the store


def test_each_finished_item_leaves_one_row_and_is_read_as_before(store: Store, tmp_path: Path) -> None:
    of = loaded(store, 6)
    before = list(of.items(FEED))
    assert archive(of, FEED, LATER, str(tmp_path)) == Archived(5, 24, 1, files(tmp_path)[0].stat().st_size)
    assert [archived(of, number) for number in range(1, 7)] == [True] * 5 + [False]
    assert [rows(of, number) for number in range(1, 7)] == [1, 1, 1, 1, 1, 5]
    again = manifest(store)
    assert list(again.items(FEED)) == before
    assert list(again.items(FEED, reverse=True)) == before[::-1]
    for item in before:
        assert again.item(item.key) == item and again.history(item.key) == item.records
        assert again.find(FEED, item.key.sort) == item.key
    assert_kept(again)
    assert archive(again, FEED, LATER, str(tmp_path)) == Archived()


def test_the_feed_continues_behind_archived_items(store: Store, tmp_path: Path) -> None:
    of = loaded(store, 4)
    archive(of, FEED, LATER, str(tmp_path))
    land(of, 5)
    assert load_next(of) == 5
    assert archive(of, FEED, LATER, str(tmp_path)).items == 1
    assert [archived(of, number) for number in range(1, 6)] == [True] * 4 + [False]
    assert_kept(of)


def test_an_archived_directory_that_is_discovered_again_is_known_changed_or_moved_and_never_new(
    store: Store, tmp_path: Path
) -> None:
    of = loaded(store, 4)
    archive(of, FEED, LATER, str(tmp_path))
    for file in files(tmp_path):
        file.unlink()  # the store keeps what discovery requires
    before = store.query("shop", "")
    again = manifest(store)
    found = again.discover(FEED, [landed(1), landed(2, "other content"), given.twin(3, "s3://elsewhere/3/")])
    assert [one.outcome for one in found] == ["known", "changed", "moved"]
    assert store.query("shop", "") == before


def test_every_kind_of_record_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    of = manifest(store, run_id="run 7 é")
    land(of, 1, 2, 3)
    with given.lease(of) as held:
        of.fail(claim_next(of, held), Failure(FailureKind.PERMANENT, "ünlucky\n" * 100, "E", "t"))
    of.resolve(key(1), "mended ✓")
    assert [load_next(of) for _ in range(3)] == [1, 2, 3]
    payload = {"rows": 2**40, "share": 0.1, "none": None, "deep": [{"a": [True, "\u0000\U0001f600"]}]}
    of.commit_output(key(1), Application("report", "1.0", "daily"), dataclasses.replace(DONE, data=payload))
    before = of.item(key(1))
    archive(of, FEED, LATER, str(tmp_path))
    assert archived(of, 1) and manifest(store).item(key(1)) == before
    assert before.records[-1].data == payload


# Items that stay


def test_the_newest_item_of_an_unordered_feed_stays(store: Store, tmp_path: Path) -> None:
    of = Manifest(store, "shop", {FEED: [Step(SHRED)]}, "test", clock=Clock(), read_archived=read_archived)
    land(of, 1, 2, 3)
    assert archive(of, FEED, LATER, str(tmp_path)).items == 2
    assert not archived(of, 3)
    assert of.discover(FEED, [landed(3)])[0].outcome == "known"


STANDING = StepState().with_feed(FEED, watermark=key(3).position, swept=key(2).position, applied=3)
NEW = record(State.NEW, "n", application=Application("discover"))
SHREDDED = [record(State.PROCESSING, "p1", "n", SHRED), record(State.PROCESSED, "d1", "p1", SHRED)]
LOADED = [record(State.PROCESSING, "p2", "n", epoch=1), record(State.PROCESSED, "d2", "p2", epoch=1)]
FINISHED = [NEW, *SHREDDED, *LOADED]
MARK = record(State.NEW, "m", payload=Payload(REASON, {"reason": "late", "late": {"load": 1}, "keeps_skips": True}))


def finished(item: Item, before: datetime = LATER, state: StepState = STANDING) -> bool:
    return is_finished(item, given.steps("append"), {"load": state}, before)


def at(number: int, item: Item) -> Item:
    return Item(key(number), tuple(dataclasses.replace(one, item=key(number).id) for one in item.records))


def test_an_item_that_all_steps_have_done_is_finished() -> None:
    assert finished(item_of(*FINISHED))
    assert finished(at(2, item_of(*FINISHED)))
    assert finished(item_of(NEW, *SHREDDED, record(State.SKIPPED, "s")))
    assert finished(item_of(*FINISHED, MARK))


def test_an_item_at_or_beyond_the_watermark_stays() -> None:
    swept = STANDING.with_feed(FEED, swept=key(3).position)
    assert not finished(at(3, item_of(*FINISHED)))
    assert not finished(at(3, item_of(*FINISHED)), state=swept)
    assert finished(at(2, item_of(*FINISHED)), state=swept)
    assert not finished(at(2, item_of(*FINISHED)), state=STANDING.with_feed(FEED, swept=key(1).position))


@pytest.mark.parametrize(
    "records",
    [
        [NEW, *SHREDDED],
        [NEW, *SHREDDED, MARK],
        [NEW, record(State.SKIPPED, "s")],
        [*FINISHED, record(State.PROCESSING, "p3", "n", REPORT)],
        [*FINISHED, record(State.PROCESSING, "p3", "n", REPORT), record(State.FAILED, "f3", "p3", REPORT)],
        [*FINISHED[:4], record(State.FAILED, "f", "p2"), record(State.SKIPPED, "s")],
        [*FINISHED, record(State.PROCESSED, "d3", "gone", REPORT)],
    ],
    ids=["not loaded", "late", "not shredded", "locked", "failed", "failed and skipped", "invalid"],
)
def test_an_item_that_a_step_has_not_done_stays(records: list) -> None:
    assert not finished(item_of(*records))


def test_an_open_claim_of_a_superseded_epoch_also_keeps_an_item() -> None:
    state = STANDING.with_feed(FEED, serving_epoch=2, boundary=key(2).position)
    assert finished(item_of(*FINISHED), state=state)
    assert not finished(item_of(NEW, *SHREDDED, LOADED[0]), state=state)


def test_an_item_stays_until_its_newest_record_is_old_enough() -> None:
    item = item_of(*FINISHED)
    assert not finished(item, before=START) and finished(item, before=START + HOUR / 60)
    touched = item.with_record(dataclasses.replace(record(State.SKIPPED, "s", sequence=6), timestamp=LATER))
    assert not finished(touched)


def test_an_item_of_more_records_than_one_transaction_moves_stays() -> None:
    skips = [record(State.SKIPPED, f"s{number}", application=Application("*")) for number in range(MOST_RECORDS)]
    most = item_of(NEW, *skips[1:])
    assert finished(most) and len(move(most, ArchivedRecords("file", "sum", most.sequence))) == MAX_WRITES
    assert not finished(item_of(NEW, *skips))


def test_a_snapshot_that_is_being_loaded_stays() -> None:
    steps = [Step(SHRED), Step(LOAD, upstream=("shred",), order="full")]
    item = item_of(*FINISHED)
    assert is_finished(item, steps, {"load": StepState()}, LATER)
    assert not is_finished(item, steps, {"load": StepState(full=key(1).position)}, LATER)


# Later records


def test_a_record_that_is_appended_later_takes_the_next_number(store: Store, tmp_path: Path) -> None:
    of = loaded(store, 4)
    archive(of, FEED, LATER, str(tmp_path))
    of.commit_output(key(1), REPORT, DONE)
    item = manifest(store).item(key(1))
    assert [one.sequence for one in item.records] == list(range(1, 8))
    assert item.problems == [] and item.processed_by(REPORT)
    assert rows(of, 1) == 3
    assert archive(of, FEED, LATER, str(tmp_path)).items == 0


def test_an_archived_skipped_item_can_be_unskipped(store: Store, tmp_path: Path) -> None:
    of = loaded(store, 4)
    archive(of, FEED, LATER, str(tmp_path))
    of.unskip(key(2), "wanted after all")
    assert load_next(of) == 2
    assert_kept(of)


def test_items_that_a_full_load_rewinds_are_loaded_again(store: Store, tmp_path: Path) -> None:
    of = loaded(store, 4)
    archive(of, FEED, LATER, str(tmp_path))
    state = of.state(LOAD)
    rewound = {"watermark": "", "swept": "", "serving_epoch": 2, "applied": 0}
    given.set_state(of, dataclasses.replace(state, epoch=2).with_feed(FEED, **rewound))
    again = manifest(store)
    assert [load_next(again) for _ in range(3)] == [1, 3, 4]
    assert again.item(key(1)).problems == [] and len(again.item(key(1)).records) == 7


# Crashes and races


def test_a_run_that_dies_after_writing_its_file_has_moved_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = loaded(store, 6)
    before, items = store.query("shop", ""), list(of.items(FEED))
    monkeypatch.setenv(failpoints.VARIABLE, "archive.written:raise")
    with pytest.raises(FailpointReached):
        archive(of, FEED, LATER, str(tmp_path))
    assert store.query("shop", "") == before and len(files(tmp_path)) == 1
    monkeypatch.delenv(failpoints.VARIABLE)
    assert archive(of, FEED, LATER, str(tmp_path)).items == 5
    assert list(of.items(FEED)) == items


def test_a_run_that_dies_between_two_transactions_is_finished_by_the_next(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = loaded(store, 6)
    items = list(of.items(FEED))
    monkeypatch.setattr(archiving, "_together", lambda found: [[item] for item in found])
    monkeypatch.setenv(failpoints.VARIABLE, "archive.moved:raise")
    with pytest.raises(FailpointReached):
        archive(of, FEED, LATER, str(tmp_path))
    assert [archived(of, number) for number in range(1, 5)] == [True, False, False, False]
    assert list(manifest(store).items(FEED)) == items
    monkeypatch.delenv(failpoints.VARIABLE)
    assert archive(of, FEED, LATER, str(tmp_path)).items == 4
    assert list(manifest(store).items(FEED)) == items
    assert_kept(of)


@pytest.mark.every_store
@pytest.mark.parametrize("fault", ["answer lost", "vanished"])
def test_a_run_whose_answer_was_lost_may_be_repeated(store: Store, tmp_path: Path, fault: str) -> None:
    items = list(loaded(store, 6).items(FEED))
    lossy = LossyStore(store, fault, at=1)
    with pytest.raises(OutcomeUnknown):
        archive(manifest(lossy), FEED, LATER, str(tmp_path))
    archive(manifest(store), FEED, LATER, str(tmp_path))
    assert [archived(manifest(store), number) for number in range(1, 7)] == [True] * 5 + [False]
    assert list(manifest(store).items(FEED)) == items


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Calls `act` once, after a file is written and before its items are moved."""
    acts = [act]

    def reach(point: str) -> None:
        if point == "archive.written" and acts:
            acts.pop()()

    monkeypatch.setattr(archiving.failpoints, "reach", reach)


def test_an_item_that_changes_meanwhile_stays_and_the_others_are_archived(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = loaded(store, 6)
    meanwhile(monkeypatch, lambda: of.commit_output(key(3), REPORT, DONE))
    done = archive(of, FEED, LATER, str(tmp_path))
    assert (done.items, done.left) == (4, 1)
    assert [archived(of, number) for number in range(1, 5)] == [True, True, False, True]
    assert len(of.history(key(3))) == 7
    assert_kept(of)


@pytest.mark.every_store
def test_two_concurrent_runs_move_each_item_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = loaded(store, 6)
    items = list(of.items(FEED))
    other: list[Archived] = []
    meanwhile(monkeypatch, lambda: other.append(archive(manifest(store), FEED, LATER, str(tmp_path / "other"))))
    done = archive(of, FEED, LATER, str(tmp_path / "one"))
    assert ((done.items, done.left), other[0].items) == ((0, 5), 5)
    assert list(manifest(store).items(FEED)) == items


def test_many_items_are_moved_in_few_transactions_and_files_of_bounded_size(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Manifest(store, "shop", {FEED: [Step(SHRED)]}, "test", clock=Clock(), read_archived=read_archived)
    land(of, *range(1, 62))
    items = list(of.items(FEED))
    monkeypatch.setattr(archiving, "BATCH", 40)
    before = store.requests
    assert archive(of, FEED, LATER, str(tmp_path)).files == 2
    assert store.requests - before <= 5  # the walk is one page; 25 items of three records fit a transaction
    assert list(manifest(store).items(FEED)) == items


# Files


def test_a_file_that_does_not_read_back_moves_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = loaded(store, 6)
    before = store.query("shop", "")
    put = storage.ObjectFolder.put
    monkeypatch.setattr(storage.ObjectFolder, "put", lambda self, name, data: put(self, name, data[:-1] + b"?"))
    with pytest.raises(RowDamaged, match="is not what was written"):
        archive(of, FEED, LATER, str(tmp_path))
    assert store.query("shop", "") == before


def test_records_that_do_not_read_back_as_they_were_move_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = loaded(store, 6)
    before = store.query("shop", "")
    as_written = record_files._record
    monkeypatch.setattr(record_files, "_record", lambda row: dataclasses.replace(as_written(row), author="somebody"))
    with pytest.raises(RowDamaged, match="does not read back as it was written: the records of run=001 differ"):
        archive(of, FEED, LATER, str(tmp_path))
    assert store.query("shop", "") == before


def test_a_lost_or_changed_file_is_named_in_the_error(store: Store, tmp_path: Path) -> None:
    of = loaded(store, 6)
    archive(of, FEED, LATER, str(tmp_path))
    [file] = files(tmp_path)
    content = file.read_bytes()
    for damage, told in ((file.unlink, "is gone"), (lambda: file.write_bytes(content[:-1] + b"?"), "is not what was written")):
        record_files.read_records.cache_clear()
        damage()
        with pytest.raises(RowDamaged, match=rf"{file.name}.* {told}.*restore it from a backup"):
            of.item(key(1))
        assert len(of.item(key(6)).records) == 5
        assert isinstance(of.discover(FEED, [landed(7)]), list)
    record_files.read_records.cache_clear()
    file.write_bytes(content)
    assert len(of.item(key(1)).records) == 5


def test_a_file_that_lacks_records_of_an_item_is_named_in_the_error(tmp_path: Path) -> None:
    content = record_files._to_parquet(FEED, [item_of(record(State.NEW, uid("n")))])
    uri = storage.ObjectFolder(tmp_path).put("file.parquet", content)
    checksum = hashlib.sha256(content).hexdigest()
    assert len(read_archived(key(1), ArchivedRecords(uri, checksum, 1))) == 1
    for place, who in ((ArchivedRecords(uri, checksum, 2), key(1)), (ArchivedRecords(uri, checksum, 1), key(2))):
        with pytest.raises(RowDamaged, match="restore it from a backup"):
            read_archived(who, place)


def test_a_program_that_cannot_read_the_archive_raises_an_error_that_says_so(store: Store, tmp_path: Path) -> None:
    archive(loaded(store, 4), FEED, LATER, str(tmp_path))
    with pytest.raises(Refused, match=r"archived in file:///.*\.parquet, and this program was given no way to read them"):
        given.manifest(store).item(key(1))


def test_reading_items_without_archived_ones_reads_no_file(store: Store, tmp_path: Path) -> None:
    of = loaded(store, 6)
    archive(of, FEED, LATER, str(tmp_path))
    files(tmp_path)[0].unlink()
    record_files.read_records.cache_clear()
    assert [given.number_of(item.key) for item in of.items(FEED, archived=False)] == [6]
    assert archive(of, FEED, LATER, str(tmp_path)) == Archived()


def test_the_file_has_a_queryable_row_for_each_record(store: Store, tmp_path: Path) -> None:
    import duckdb

    archive(loaded(store, 4), FEED, LATER, str(tmp_path))
    counted = duckdb.connect().execute(
        f"SELECT state, application, count(*) FROM '{tmp_path}/shop/enriched/*.parquet' GROUP BY ALL ORDER BY ALL"
    )
    assert counted.fetchall() == [
        ("New", "discover", 3),
        ("Processed", "load", 2),
        ("Processed", "shred", 3),
        ("Processing", "load", 2),
        ("Processing", "shred", 3),
        ("Skipped", "load", 1),
    ]


# The command

RUNS = [f"run=2024-05-14-12-{minute}-00" for minute in range(10, 60, 10)]


@pytest.fixture
def shop(tmp_path: Path, store_url: str, store: Store) -> Path:
    """A configuration, and in its manifest five runs that were loaded long ago."""
    file = tmp_path / "platform.yaml"
    text = f"""
        manifest: {{store: "{store_url}", archive: archived}}
        datasets:
          shop:
            landing: {{root: landing}}
            shred: {{output: shredded, schemas: [schemas]}}
        """
    file.write_text(textwrap.dedent(text))
    of = Manifest(store, "shop", {FEED: given.steps("append")}, "test", clock=lambda: datetime(2024, 5, 15, tzinfo=UTC))
    found = [
        Landed(given.ItemKey(FEED, name.removeprefix("run="), f"file://{tmp_path}/landing/{name}"), 1, 1, "as-landed")
        for name in RUNS
    ]
    of.discover(FEED, found)
    with given.lease(of, SHRED) as held:
        for claim in of.claim(held, [of.item(one.key) for one in found]):
            of.complete(claim, Payload(DONE.schema, {"bytes": 1}))
    for _ in RUNS:
        with given.lease(of) as held:
            of.complete(claim_next(of, held), Payload(DONE.schema, {"rows": {"events": 1}}))
    return file


def test_the_command_moves_old_items_and_history_shows_them_as_before(
    shop: Path, capsys: pytest.CaptureFixture[str], store: Store
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        code = cli.main([*arguments, "--config", str(shop)])
        return code, capsys.readouterr().out

    before = run("history", RUNS[0])
    assert run("archive", "--older-than", "9999w")[0] == cli.Exit.NOTHING
    assert run("archive", "--older-than", "90d", "--dry-run") == (
        cli.Exit.DONE,
        f"4 items with 20 records would move to {shop.parent}/archived\n",
    )
    assert len(store.query("shop", records_prefix(FEED))) == 25
    code, out = run("archive", "--older-than", "90d", "--json")
    assert (code, json.loads(out)["items"], json.loads(out)["records"]) == (cli.Exit.DONE, 4, 20)
    assert len(store.query("shop", records_prefix(FEED))) == 9
    assert run("history", RUNS[0]) == before
    assert run("archive", "--older-than", "90d")[0] == cli.Exit.NOTHING


def test_the_command_reports_the_number_of_items_records_and_files(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["archive", "--older-than", "36h", "--config", str(shop)]) == cli.Exit.DONE
    out = capsys.readouterr().out
    assert out.startswith(f"4 items with 20 records moved to {shop.parent}/archived (1 files, ") and out.endswith("kB)\n")


def test_no_item_is_archived_that_a_worker_may_still_work_on(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A worker that shreds an item for longer, and then fails it, would write the failure where an archived record was."""
    assert cli.main(["archive", "--older-than", "24h", "--config", str(shop)]) == cli.Exit.FAILED
    assert "older than the longest step limit, 24 hours (limits.program_hours)" in capsys.readouterr().err
    shop.write_text(shop.read_text() + "limits: {load_hours: 48}\n")
    assert cli.main(["archive", "--older-than", "36h", "--config", str(shop)]) == cli.Exit.FAILED
    assert cli.main(["archive", "--older-than", "49h", "--config", str(shop)]) == cli.Exit.DONE


@pytest.mark.parametrize("age", ["90", "d", "-1d", "0d", "90 d", "1y", "999999d"])
def test_an_invalid_age_is_refused(age: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["archive", f"--older-than={age}"]) == cli.Exit.WRONG_USE
    assert "write a number and h, d or w, such as 90d" in capsys.readouterr().err


def test_without_a_place_the_command_names_the_missing_setting(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text(shop.read_text().replace(", archive: archived", ""))
    assert cli.main(["archive", "--older-than", "90d", "--config", str(shop)]) == cli.Exit.WRONG_USE
    assert "manifest.archive is not set" in capsys.readouterr().err
