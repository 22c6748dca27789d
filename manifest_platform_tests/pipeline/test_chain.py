"""A warehouse that is put back to an older copy, emptied or mistaken: nothing is built upon it, and one command goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from manifest_platform.manifest import Application, Lease, Ready, Record, Refused
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.reconcile import accept, reconcile, would_reconcile
from manifest_platform.pipeline import LOAD, Budget, Pipeline, Stop, loading
from manifest_platform.pipeline.chain import Look, broken
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.requests import Apply, Complete, Request
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.spark import session
from manifest_platform.warehouse.errors import Unavailable
from manifest_platform_tests.pipeline.shop import Shop, drained, history, keys, run_name, run_names, watermark

ONE = Budget(items=1)


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """Four runs shredded, two of them loaded; a copy of the warehouse as it was after the first."""
    shop = Shop(tmp_path)
    shop.shredded(spark, 4)
    with shop.open() as pipeline:
        drained(pipeline, budget=ONE)
    shutil.copy(shop.home / "warehouse.duckdb", shop.home / "copy.duckdb")
    with shop.open() as pipeline:
        drained(pipeline, budget=ONE)
    return shop


def set_back(shop: Shop) -> None:
    shutil.copy(shop.home / "copy.duckdb", shop.home / "warehouse.duckdb")


def delete(shop: Shop) -> None:
    (shop.home / "warehouse.duckdb").unlink()


def mistype(shop: Shop) -> None:
    settings = yaml.safe_load(shop.config_file.read_text())
    settings["warehouse"]["path"] = "warehuose.duckdb"
    shop.config_file.write_text(yaml.safe_dump(settings))


def take_anothers(shop: Shop) -> None:
    """Puts the warehouse of another manifest there, which has loads of the same feed."""
    other = Shop(shop.home / "other")
    shutil.copytree(shop.home / "landing", other.home / "landing", dirs_exist_ok=True)
    shutil.copytree(shop.home / "shredded", other.home / "shredded", dirs_exist_ok=True)
    with other.open() as pipeline:
        other.land(pipeline, 0)
        drained(pipeline, lambda: session(pipeline.config.spark.conf))
    shutil.copy(other.home / "warehouse.duckdb", shop.home / "warehouse.duckdb")


@pytest.mark.parametrize(
    ("befalls", "said", "action"),
    [
        (set_back, f"was set back: its newest load of feed enriched is {run_name(0)}", Action.RECONCILE),
        (delete, "has no load of feed enriched", Action.RECONCILE),
        (mistype, "has no load of feed enriched", Action.RECONCILE),
        (take_anothers, "was never made by this manifest", Action.ACCEPT_WAREHOUSE),
    ],
)
def test_nothing_is_loaded_onto_a_warehouse_that_lacks_what_was_loaded(
    shop: Shop, befalls: Callable[[Shop], None], said: str, action: Action
) -> None:
    befalls(shop)
    before = {file.name: file.stat().st_size for file in shop.home.glob("war*.duckdb")}
    with shop.open() as pipeline:
        [told] = broken(pipeline)
        assert said in told.reason
        assert told.remedy.action is action
        events, report = drained(pipeline)
        assert (events, report.stop, report.remedy and report.remedy.action) == ([], Stop.BLOCKED, action)
        assert said in report.reason
        assert run_name(1) in report.reason or action is Action.ACCEPT_WAREHOUSE
        assert history(pipeline, 2)[-1] == "load Resolved automatic", "no item's failure"
        assert watermark(pipeline) == run_name(1).removeprefix("run=")
    assert {file.name: file.stat().st_size for file in shop.home.glob("war*.duckdb")} == before, "nothing is written"


@pytest.mark.parametrize("befalls", [set_back, delete])
def test_reconcile_has_all_loaded_again_that_is_lacking_in_order(shop: Shop, befalls: Callable[[Shop], None]) -> None:
    befalls(shop)
    lacking = [1] if befalls is set_back else [0, 1]
    with shop.open() as pipeline:
        [would] = would_reconcile(pipeline)
        assert [key.name for key in would.freed] == run_names(*lacking)
        assert history(pipeline, 1)[-1] == "load Processed", "a dry run changes nothing"
        assert [broken(pipeline)[0].feed] == [FEED]
        [done] = reconcile(pipeline, "put back from a backup")
        assert done == would
        assert broken(pipeline) == []
        assert pipeline.manifest.state(Application(LOAD)).feed(FEED).applied == 2 - len(lacking)
        _, report = drained(pipeline)
        assert (report.stop, report.loaded) == (Stop.IDLE, 2 + len(lacking))
        assert pipeline.manifest.history(keys(pipeline, 1)[0])[-3].data["reason"] == "put back from a backup"
        assert list(reconcile(pipeline, "again")) == []
    assert shop.seen.runs == run_names(0, 1, 2, 3)
    assert shop.doubled_events == []


def test_a_drain_that_finds_nothing_new_tells_of_it_too(shop: Shop) -> None:
    with shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.IDLE
    delete(shop)
    with shop.open() as pipeline:
        report = drained(pipeline)[1]
        assert (report.stop, report.remedy and report.remedy.action) == (Stop.BLOCKED, Action.RECONCILE)


def test_a_reconcile_that_was_interrupted_is_run_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    delete(shop)
    with shop.open() as pipeline:
        monkeypatch.setattr(pipeline.manifest, "believe_sink", lambda *_: exit())
        with pytest.raises(SystemExit):
            list(reconcile(pipeline, "first"))
    with shop.open() as pipeline:
        _, report = drained(pipeline)
        assert (report.stop, report.loaded) == (Stop.BLOCKED, 0), "all loads are refused until the last write"
        list(reconcile(pipeline, "second"))
        assert drained(pipeline)[1].loaded == 4
    assert shop.seen.runs == run_names(0, 1, 2, 3)


def test_accept_goes_on_with_another_warehouse_and_loads_nothing_again(shop: Shop) -> None:
    delete(shop)
    with shop.open() as pipeline:
        [done] = accept(pipeline, "moved to another server")
        assert done.feed == FEED
        assert (
            "accepted as it is: moved to another server" in pipeline.manifest.history(keys(pipeline, 1)[0])[-1].data["reason"]
        )
        assert drained(pipeline)[1].loaded == 2
        assert list(accept(pipeline, "again")) == []
    assert shop.seen.runs == run_names(2, 3)


def test_what_a_dead_worker_left_is_not_settled_by_a_ledger_that_counts_for_nothing(shop: Shop) -> None:
    """The worker died after its COMMIT, and the warehouse was put back since: the ledger's silence would fail the item."""
    process = shop.process("load.committed")
    process.communicate(timeout=250)
    set_back(shop)
    shop.ahead = timedelta(hours=1)  # its lease has run out
    with shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.BLOCKED
        assert history(pipeline, 2)[-1] == "load Processing", "what became of it is known once the warehouse is"
        list(reconcile(pipeline, "put back"))
        assert drained(pipeline)[1].stop is Stop.IDLE
    assert shop.seen.runs == run_names(0, 1, 2, 3)
    assert shop.doubled_events == []


def begun(pipeline: Pipeline, lease: Lease, until: type[Request]) -> Request:
    """A load of what is next, as far as the request at which its worker pauses."""
    ready = pipeline.manifest.next(FEED, LOAD, holding=True)
    assert isinstance(ready, Ready)
    program = loading.loading(loading.Declared.by(pipeline), ready, listing_of(ready.item))
    request = next(program)
    while not isinstance(request, until):
        request = program.send(request(pipeline, lease))
    return request


def test_a_worker_that_completes_in_the_midst_of_a_reconcile_has_nothing_called_late(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It believed its own record, so reconcile's last write was refused; the next reconcile swept aside what was freed."""
    with shop.open() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        paused = begun(pipeline, lease, Complete)
    delete(shop)
    with shop.open() as pipeline:
        free = pipeline.manifest.free

        def freed_beside_a_completion(*given: Any) -> Record:
            monkeypatch.setattr(pipeline.manifest, "free", free)
            paused(pipeline, lease)
            return free(*given)

        monkeypatch.setattr(pipeline.manifest, "free", freed_beside_a_completion)
        with pytest.raises(Refused, match="believes another record by now"):
            list(reconcile(pipeline, "emptied"))
        [done] = reconcile(pipeline, "again")
        assert [key.name for key in done.freed] == run_names(0, 1, 2)
        assert drained(pipeline)[1].stop is Stop.IDLE
    assert shop.seen.ledger == [(name, False) for name in run_names(0, 1, 2, 3)]


def test_what_a_paused_worker_commits_onto_an_emptied_warehouse_counts_as_applied(tmp_path: Path, spark: Any) -> None:
    """Its attempt had been given up, so the manifest did not have it done: once reconcile had passed it, it was called late."""
    shop = Shop(tmp_path, load={"late": "quarantine"})
    with shop.open() as pipeline:
        list(shred_chosen(pipeline, lambda: spark, shop.land(pipeline, 1)))
        with pipeline.lease(FEED, LOAD) as lease:
            paused = begun(pipeline, lease, Apply)
    with shop.open() as pipeline:
        list(shred_chosen(pipeline, lambda: spark, shop.land(pipeline, 0)))
        drained(pipeline, budget=ONE)
        assert history(pipeline, 1)[-1] == "load Resolved automatic"
    assert shop.seen.runs == run_names(0)
    delete(shop)
    with shop.open() as pipeline:
        assert isinstance(paused, Apply)
        pipeline.warehouse.apply(paused.order)
        list(reconcile(pipeline, "emptied"))
        drained(pipeline)
        assert history(pipeline, 1)[-1] == "load Processed"
    assert run_name(1) in shop.seen.runs
    assert shop.doubled_events == []


def test_a_manifest_that_was_put_back_learns_what_the_fence_names(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path)
    shop.shredded(spark, 3)
    shutil.copy(shop.home / "manifest.db", shop.home / "backup.db")
    with shop.open() as pipeline:
        drained(pipeline)
        believed = pipeline.manifest.state(Application(LOAD)).feed(FEED).believed
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(shop.home / "backup.db", shop.home / "manifest.db")
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        assert report.stop is Stop.IDLE
        assert all(getattr(event, "already", False) for event in events)
        assert pipeline.manifest.state(Application(LOAD)).feed(FEED).believed == believed
    assert shop.seen.runs == run_names(0, 1, 2)


def test_a_run_that_was_rewritten_after_it_was_loaded_is_never_called_applied(tmp_path: Path, spark: Any) -> None:
    """The manifest was put back to before the run, and what has landed is another content under the same name."""
    shop = Shop(tmp_path)
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        drained(pipeline)
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    shutil.rmtree(shop.directory(0))
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=7)
        _, report = drained(pipeline, spark)
        assert report.stop is Stop.BLOCKED
        assert "was rewritten since" in report.reason
        assert history(pipeline, 0)[-1] == "load Failed permanent"
        for _ in range(2):
            doctor = Doctor(pipeline)
            doctor.repair()
            assert "was rewritten since" in " ".join(doctor.done)
            assert history(pipeline, 0)[-1] == "load Failed permanent", "no repair calls it loaded"


def interrupt_a_reconcile(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dies once it has freed what the warehouse lacks, and before the manifest believes the warehouse."""
    with shop.open() as pipeline, pytest.raises(SystemExit):
        monkeypatch.setattr(pipeline.manifest, "believe_sink", lambda *_: exit())
        list(reconcile(pipeline, "interrupted"))


def test_what_a_manifest_that_was_set_back_too_does_not_know_of_is_looked_at_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reopened, loaded again, and reopened once more by the older manifest: the ledger has it, and nobody looked."""
    delete(shop)
    interrupt_a_reconcile(shop, monkeypatch)
    shutil.copy(shop.home / "manifest.db", shop.home / "backup.db")
    with shop.open() as pipeline:
        list(reconcile(pipeline, "to its end"))
        drained(pipeline, budget=ONE)
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(shop.home / "backup.db", shop.home / "manifest.db")
    with shop.open() as pipeline:
        list(reconcile(pipeline, "both were set back"))
        assert drained(pipeline)[1].stop is Stop.IDLE
        assert [history(pipeline, n)[-1] for n in range(4)] == ["load Processed"] * 4
    assert shop.seen.runs == run_names(0, 1, 2, 3)
    assert shop.doubled_events == []


def take_a_strangers(shop: Shop, home: str = "stranger") -> None:
    """Puts a warehouse there whose newest load is of a directory that this manifest has never seen."""
    other = Shop(shop.home / home)
    with other.open() as pipeline:
        other.land(pipeline, 7)
        drained(pipeline, lambda: session(pipeline.config.spark.conf))
    shutil.copy(other.home / "warehouse.duckdb", shop.home / "warehouse.duckdb")


@pytest.mark.parametrize("home", ["stranger", "landing-of-a-stranger"])
def test_a_reconcile_that_cannot_end_frees_nothing(shop: Shop, home: str) -> None:
    """It freed all that another manifest's warehouse lacks, and was refused only then: ten runs were neither done nor next.

    A stranger's landing root whose path merely begins as ours does was taken for ours, and `discover --all` was advised.
    """
    take_a_strangers(shop, home)
    with shop.open() as pipeline:
        for attempt in (would_reconcile(pipeline), reconcile(pipeline, "not ours")):
            with pytest.raises(Refused, match="never made by this manifest") as refused:
                list(attempt)
            assert refused.value.remedy == Remedy(Action.ACCEPT_WAREHOUSE)
        assert [history(pipeline, n)[-1] for n in (0, 1)] == ["load Processed"] * 2
    with shop.open() as pipeline:
        assert {one.remedy.action for one in Doctor(pipeline).examine().findings} == {Action.ACCEPT_WAREHOUSE}


def test_what_an_interrupted_reconcile_freed_is_loaded_though_the_warehouse_is_accepted_then(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted, nobody looked behind the watermark any more: what was freed was passed over, and nothing told so."""
    delete(shop)
    interrupt_a_reconcile(shop, monkeypatch)
    with shop.open() as pipeline:
        [done] = accept(pipeline, "on second thoughts")
        assert [key.name for key in done.freed] == run_names(0, 1)
        assert drained(pipeline)[1].stop is Stop.IDLE
        assert [history(pipeline, n)[-1] for n in range(4)] == ["load Processed"] * 4
    assert shop.seen.runs == run_names(0, 1, 2, 3)


def test_what_an_accepted_warehouse_was_known_to_lack_is_no_fault_and_stays_out(shop: Shop) -> None:
    """The doctor told it for ever, with advice that did nothing; and a reconcile loaded it, onto rows that were moved."""
    delete(shop)
    with shop.open() as pipeline:
        list(accept(pipeline, "its tables were moved"))
        drained(pipeline, budget=ONE)
    with shop.open() as pipeline:
        assert Doctor(pipeline).examine().findings == []
    shutil.copy(shop.home / "warehouse.duckdb", shop.home / "copy.duckdb")
    with shop.open() as pipeline:
        drained(pipeline)
    set_back(shop)
    with shop.open() as pipeline:
        [done] = reconcile(pipeline, "set back")
        assert [key.name for key in done.freed] == run_names(3)
        drained(pipeline)
    with shop.open() as pipeline:
        assert Doctor(pipeline).examine().findings == []
    assert shop.seen.runs == run_names(2, 3)


def test_a_warehouse_that_goes_on_from_a_newer_manifest_is_reconciled_and_not_accepted(shop: Shop) -> None:
    """Set back, reconciled, and one loaded; then the manifest was put back too: to accept it would leave runs out for good."""
    with shop.open() as pipeline:
        drained(pipeline, budget=ONE)
    shutil.copy(shop.home / "manifest.db", shop.home / "later.db")
    delete(shop)
    with shop.open() as pipeline:
        list(reconcile(pipeline, "emptied"))
        drained(pipeline, budget=ONE)
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(shop.home / "later.db", shop.home / "manifest.db")
    with shop.open() as pipeline:
        [told] = broken(pipeline)
        assert "by an attempt that the manifest does not know" in told.reason
        assert told.remedy.action is Action.RECONCILE
        list(reconcile(pipeline, "both were set back"))
        assert drained(pipeline)[1].stop is Stop.IDLE
    assert shop.seen.runs == run_names(0, 1, 2, 3)
    assert shop.doubled_events == []


def test_the_status_of_many_datasets_reads_their_fences_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dataset asked for the tables of the warehouse and for its fence; and each waited for one that a drain had open."""
    with shop.open() as pipeline:
        engine = pipeline.config.warehouse.open(read_only=True, patience=0.1)
        asked: list[str] = []
        columns = engine.columns
        monkeypatch.setattr(engine, "columns", lambda *given: asked.append("columns") or columns(*given))
        look = Look(engine)
        assert [broken(pipeline, look=look) for _ in range(3)] == [[]] * 3
        assert asked == ["columns"]
        engine.close()
        monkeypatch.setattr(engine, "exists", lambda: asked.append("exists") or unavailable())
        look = Look(engine)
        assert [broken(pipeline, look=look) for _ in range(3)] == [[]] * 3
        assert asked == ["columns", "exists"]


def unavailable() -> NoReturn:
    raise Unavailable("a drain has it open")
