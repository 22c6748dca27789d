"""Every way in which an item can stand with a step, in the words that a person gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from manifest_platform.cli import main
from manifest_platform.cli.remedies import command_of
from manifest_platform.manifest import OUTPUT, Failure, FailureKind, Item, ItemKey, Landed, Manifest, Payload, Standing, Store
from manifest_platform.manifest.keys import record_key
from manifest_platform.manifest.records import State
from manifest_platform.manifest.store import Put
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.operations.explain import explanation
from manifest_platform_tests.cli.test_commands import RUNS
from manifest_platform_tests.cli.test_commands import Shop as CliShop
from manifest_platform_tests.manifest import vault
from manifest_platform_tests.manifest.given import (
    LOAD,
    SHRED,
    Clock,
    claim_next,
    discover,
    key,
    kill,
    land,
    lease,
    load_next,
    manifest,
    record,
)

REGISTERED = "was registered in feed enriched at 2026-01-01 00:00:00 UTC (1 files, 10 B)."
SHREDDED = "shred processed it at 2026-01-01 00:00:00 UTC."
MINUTE = timedelta(minutes=1)
STRAY = "0c5b1c9e-6f2d-4a7e-9a55-2f4e1d3c7b10"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    yield opened
    opened.close()


def paragraph(of: Manifest, item: ItemKey | int) -> str:
    wanted = key(item) if isinstance(item, int) else item
    return explanation(of, wanted, command_of, of._clock()).text


def standing(of: Manifest, item: ItemKey | int, application: str) -> Standing:
    wanted = key(item) if isinstance(item, int) else item
    [view] = [one for one in explanation(of, wanted, str, of._clock()).views if one.name == application]
    return view.judged.standing


def test_ready_and_waiting(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    assert (standing(shop, 1, "shred"), standing(shop, 1, "load")) == (Standing.READY, Standing.WAITING)
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} shred may take it now: `manifest-platform drain` does so. load waits, because"
        " shred has not processed it yet."
    )


def test_ready_in_order(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1, 2, 3)
    assert standing(shop, 1, "load") is Standing.READY
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} {SHREDDED} load may take it now, because nothing comes before it: `manifest-platform drain` does"
        " so."
    )
    assert paragraph(shop, 3) == (
        f"run=003 {REGISTERED} {SHREDDED} load may take it once it is next. Before it load takes run=001, the first of 2 items"
        " that come first: `manifest-platform drain` takes them in order."
    )
    assert "Before it load takes run=001, the one item that comes first: " in paragraph(shop, 2)


def test_ready_while_another_worker_holds_the_lease(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1)
    with lease(shop, LOAD, "ann@host:7"):
        assert paragraph(shop, 1) == (
            f"run=001 {REGISTERED} {SHREDDED} load may take it now, because nothing comes before it: ann@host:7 holds the lease"
            " until 2026-01-01 01:00:00 UTC and takes it in its turn. If that worker is gone, `manifest-platform drain` takes"
            " it afterward."
        )


def test_done(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1)
    load_next(shop)
    assert standing(shop, 1, "load") is Standing.DONE
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} {SHREDDED} load applied it in epoch 1 at 2026-01-01 00:00:00 UTC: it is done."
    )


def test_done_with_bad_rows(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    with lease(shop, SHRED) as held:
        [claim] = shop.claim(held, [shop.item(key(1))])
        shop.complete(claim, Payload(OUTPUT, {"listing": "s3://x", "lines": 1200, "good": 1197, "bad": 3, "bytes": 1}))
    assert "shred processed it at 2026-01-01 00:00:00 UTC, and set 3 of its 1,200 lines (0.2%) aside as bad." in paragraph(
        shop, 1
    )


def test_late_to_be_appended_and_appended(store: Store) -> None:
    shop = manifest(store, late="append")
    land(shop, 2)
    load_next(shop)
    land(shop, 1)
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} {SHREDDED} load may take it now, because nothing comes before it: `manifest-platform drain` does"
        " so. It is late, and is appended."
    )
    load_next(shop)
    assert paragraph(shop, 1).endswith("load applied it in epoch 1 at 2026-01-01 00:00:00 UTC, late: it is done.")


def test_late_and_set_aside(store: Store) -> None:
    shop = manifest(store, late="quarantine")
    land(shop, 2)
    load_next(shop)
    land(shop, 1)
    assert standing(shop, 1, "load") is Standing.LATE
    aside = (
        f"run=001 {REGISTERED} {SHREDDED} load has quarantined it, because it arrived behind the watermark, which is at"
        " run=002: "
    )
    helps = "It can only come in with a full load, or, in a feed that has none, once load.late is `append`."
    assert paragraph(shop, 1) == f"{aside}its place in the order has passed. {helps}"
    assert paragraph(manifest(store, late="append"), 1) == (
        f"{aside}`manifest-platform unskip run=001` admits it, marked late."
    )


def test_skipped(store: Store) -> None:
    shop = manifest(store, author="ann")
    discover(shop, 1)
    shop.skip(key(1), "test data")
    assert standing(shop, 1, "load") is Standing.SKIPPED
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} shred and load pass over it: ann decided so at 2026-01-01 00:00:00 UTC (test data)."
        " `manifest-platform unskip run=001` admits it again."
    )


def test_skipped_by_one_step(store: Store) -> None:
    shop = manifest(store, author="ann")
    land(shop, 1)
    shop.skip(key(1), "test data", "load")
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} {SHREDDED} load passes over it: ann decided so at 2026-01-01 00:00:00 UTC (test data)."
        " `manifest-platform unskip run=001` admits it again."
    )


def test_cut_off(store: Store) -> None:
    shop = manifest(store, author="ann")
    discover(shop, 1)
    shop.skip(key(1), "broken", "shred")
    assert standing(shop, 1, "load") is Standing.CUT_OFF
    assert paragraph(shop, 1).partition("admits it again. ")[2] == (
        "load never gets it, because it is skipped for shred: `manifest-platform unskip run=001` admits it for all steps,"
        " `manifest-platform skip run=001 --reason TEXT` skips it for all steps."
    )


def test_failed(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    with lease(shop, SHRED) as held:
        shop.fail(claim_next(shop, held), Failure(FailureKind.PERMANENT, "no such schema."))
    assert (standing(shop, 1, "shred"), standing(shop, 1, "load")) == (Standing.FAILED, Standing.FAILED)
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} shred failed on it at 2026-01-01 00:00:00 UTC (permanent): no such schema. It waits"
        " for a person: `manifest-platform resolve run=001` frees it for another attempt once the cause is fixed;"
        " `manifest-platform skip run=001 --reason TEXT` passes over it permanently. load cannot take it before this is"
        " settled."
    )


def test_behind_one_that_failed(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1, 2)
    with lease(shop) as held:
        shop.fail(claim_next(shop, held), Failure(FailureKind.PERMANENT, "no such column"))
    assert paragraph(shop, 2) == (
        f"run=002 {REGISTERED} {SHREDDED} load may take it once it is next. Before it comes run=001, the one"
        " item that load must"
        " do first, and it cannot: load failed: no such column: manifest-platform resolve run=001."
    )


def test_processing(store: Store) -> None:
    clock = Clock()
    shop = manifest(store, clock=clock)
    land(shop, 1)
    held = lease(shop, LOAD, "ann@host:7")
    claim_next(shop, held)
    assert standing(shop, 1, "load") is Standing.PROCESSING
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} {SHREDDED} load has been working on it since 2026-01-01 00:00:00 UTC: ann@host:7 holds the lease"
        " until 2026-01-01 01:00:00 UTC and extends it while the worker lives."
    )
    kill(held)
    clock.turn(61 * MINUTE)
    gone = "load began to work on it at 2026-01-01 00:00:00 UTC, and that worker is gone"
    assert paragraph(shop, 1).endswith(
        f"{gone} (its lease ended at 2026-01-01 01:00:00 UTC). `manifest-platform drain` settles the unfinished work."
    )
    with lease(shop, LOAD, "bob@host:8"):
        assert paragraph(shop, 1).endswith(
            f"{gone} (bob@host:8 holds the lease now). `manifest-platform drain` settles the unfinished work."
        )


def test_processing_by_another_step(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    with lease(shop, SHRED, "ann@host:7") as held:
        claim_next(shop, held)
        assert paragraph(shop, 1) == (
            f"run=001 {REGISTERED} shred has been working on it since 2026-01-01 00:00:00 UTC: ann@host:7 holds the lease until"
            " 2026-01-01 01:00:00 UTC and extends it while the worker lives. load cannot take it before this is settled."
        )


def test_invalid(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    stray = record(State.PROCESSED, STRAY, application=LOAD, item=key(1).id, sequence=2)
    store.transact(shop.dataset, [Put(record_key(key(1), 2), stray.to_dict(), 0)], "by hand")
    assert standing(shop, 1, "load") is Standing.INVALID
    assert paragraph(shop, 1) == (
        f"run=001 {REGISTERED} No step takes it, because its records break the rules: record {STRAY} (Processed) of"
        " s3://bucket/enriched/run=001/ must point at a Processing, but points at nothing. Another program has"
        " changed the log. `manifest-platform history run=001` shows its records; restore them from a backup or a dump."
    )


def test_gap(store: Store) -> None:
    of = vault.vault(store, gap="contiguous")
    vault.land(of, vault.INCR, 1, 3)
    vault.load(of, vault.INCR, 1)
    window = vault.key(vault.INCR, 3)
    assert standing(of, window, "load") is Standing.GAP
    assert paragraph(of, window).partition("00 UTC. ")[2] == (
        "load stops before it (gap: it starts at 0002, but the item before it stopped at 0001): the"
        " windows between have not landed. `manifest-platform capture` fetches them; if another program lands them, it must do"
        " so. If they never come, only a full load closes the gap: `manifest-platform full begin latest`."
    )


def test_what_is_behind_the_next_window_follows_no_gap(store: Store) -> None:
    of = vault.vault(store, gap="contiguous")
    vault.land(of, vault.INCR, 1, 2, 3, 4, 6)
    vault.load(of, vault.INCR, 1)
    window, cut_off = vault.key(vault.INCR, 4), vault.key(vault.INCR, 6)
    assert standing(of, window, "load") is Standing.READY
    assert paragraph(of, window).partition("00 UTC. ")[2] == (
        "load may take it once it is next. Before it load takes stoptime=0002, the first of 2 items that come first:"
        " `manifest-platform drain` takes them in order."
    )
    assert standing(of, cut_off, "load") is Standing.GAP
    assert "(gap: it starts at 0005, but the item before it stopped at 0004)" in paragraph(of, cut_off)


def test_a_snapshot_is_shredded_when_a_full_load_begins_with_it(store: Store) -> None:
    of = vault.vault(store)
    vault.land(of, vault.FULL, 2, shredded=False)
    snapshot = vault.key(vault.FULL, 2)
    assert (standing(of, snapshot, "shred"), standing(of, snapshot, "load")) == (Standing.READY, Standing.WAITING)
    assert paragraph(of, snapshot).partition("(1 files, 10 B). ")[2] == (
        "shred takes it when a full load begins with it: `manifest-platform full begin stoptime=0002`. load waits, because"
        " shred has not processed it yet."
    )


def test_an_overlap(store: Store) -> None:
    of = vault.vault(store, gap="contiguous")
    vault.land(of, vault.INCR, 1, 2)
    vault.load(of, vault.INCR, 1, 2)
    window = vault.key(vault.INCR, 4)
    of.discover(vault.INCR, [Landed(window, 1, 10, "as-landed", "0001", "0004")])
    assert standing(of, window, "load") is Standing.WAITING
    vault.shred(of, vault.INCR, 4)
    assert standing(of, window, "load") is Standing.OVERLAP
    assert paragraph(of, window).partition("00 UTC. ")[2] == (
        "load stops before it (overlap: it starts at 0001, but the item before it stopped only at 0002): part of its content is"
        " already loaded. Check at the source which of the two windows is right. Then"
        " `manifest-platform skip stoptime=0004 --reason TEXT` passes over it, or `manifest-platform full begin latest`"
        " starts again from a snapshot."
    )


def test_the_first_load_needs_a_snapshot(store: Store) -> None:
    of = vault.vault(store, gap="contiguous", needs_full=True)
    vault.land(of, vault.INCR, 1)
    window = vault.key(vault.INCR, 1)
    assert standing(of, window, "load") is Standing.NEEDS_FULL
    assert paragraph(of, window).partition("00 UTC. ")[2] == (
        "load waits, because no snapshot was loaded yet that it could follow: `manifest-platform full begin latest` loads the"
        " newest."
    )


def test_held_by_a_full_load_and_superseded_by_it(store: Store) -> None:
    of = vault.vault(store)
    vault.land(of, vault.INCR, 1, 2, 3)
    vault.land(of, vault.FULL, 2)
    window, snapshot = vault.key(vault.INCR, 2), vault.key(vault.FULL, 2)
    command = f"`manifest-platform full begin {snapshot.name}`"
    assert paragraph(of, snapshot).endswith(f"load takes it once a full load is begun for it: {command}.")
    vault.begin(of, 2)
    for number in (1, 2):
        assert standing(of, vault.key(vault.INCR, number), "load") is Standing.MODE
    assert paragraph(of, window).partition("00 UTC. ")[2] == (
        "load is held: load is loading stoptime=0002 in full: other feeds wait. It continues once that is loaded or canceled."
    )
    assert paragraph(of, snapshot).endswith("load may take it now: `manifest-platform drain` does so.")
    vault.load(of, vault.FULL, 2)
    assert standing(of, window, "load") is Standing.SUPERSEDED
    assert paragraph(of, window).partition("00 UTC. ")[2] == (
        "load passes over it, because the full load of epoch 2 contains it. There is nothing to do."
    )
    assert paragraph(of, snapshot).endswith("load applied it in epoch 2 at 2026-01-01 00:00:00 UTC: it is done.")


def test_the_tests_above_have_words_for_every_standing() -> None:
    told = Path(__file__).read_text()
    assert [one.name for one in Standing if f"Standing.{one.name}" not in told] == []


def test_an_item_that_no_discovery_registered(store: Store) -> None:
    shop = manifest(store)
    first = record(State.NEW, STRAY, item=key(1).id)
    store.transact(shop.dataset, [Put(record_key(key(1), 1), first.to_dict(), 0)], "by hand")
    assert isinstance(shop.item(key(1)), Item)
    assert paragraph(shop, 1).startswith("run=001 was registered in feed enriched at 2026-01-01 00:00:00 UTC. shred ")


def test_the_command_tells_of_an_item_and_names_the_configuration(tmp_path, capsys) -> None:
    shop = CliShop(tmp_path)
    shop.land(*RUNS)
    options = ("--config", str(shop.file))
    assert main(["discover", *options]) == 0
    capsys.readouterr()
    assert main(["explain", RUNS[1], *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["item"]["name"], [step["standing"] for step in told["steps"]]) == (RUNS[1], ["ready", "waiting"])
    assert told["steps"][1]["first"] == RUNS[0]
    assert f"`manifest-platform drain --config {shop.file}` does so." in told["text"]
    assert main(["explain", RUNS[1], *options]) == 0
    out = capsys.readouterr().out
    assert " ".join(out.split()) == told["text"]
    assert max(len(line) for line in out.splitlines()) <= 96 or str(tmp_path) in out
    assert main(["explain", "run=2020-01-01-00-00-00", *options]) == 1
