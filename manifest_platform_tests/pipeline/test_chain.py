"""A warehouse that was set back, emptied or mistaken: nothing is loaded into it until one command repairs the chain."""

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
from manifest_platform_tests.servers.warehouses import Place

ONE = Budget(items=1)


@pytest.fixture
def shop(tmp_path: Path, place: Place, spark: Any) -> Shop:
    """A shop with four shredded runs, two of them loaded, and a copy of the warehouse after the first load."""
    shop = Shop(tmp_path, place)
    shop.shredded(spark, 4)
    with shop.open() as pipeline:
        drained(pipeline, budget=ONE)
    place.save("copy")
    with shop.open() as pipeline:
        drained(pipeline, budget=ONE)
    return shop


def set_back(shop: Shop) -> None:
    shop.place.restore("copy")


def delete(shop: Shop) -> None:
    shop.place.empty()


def mistype(shop: Shop) -> None:
    settings = yaml.safe_load(shop.config_file.read_text())
    settings["warehouse"]["path"] = "warehuose.duckdb"
    shop.config_file.write_text(yaml.safe_dump(settings))


def take_anothers(shop: Shop) -> None:
    """Replaces the warehouse by that of another manifest, which has loads of the same feed."""
    other = Shop(shop.home / "other")
    shutil.copytree(shop.home / "landing", other.home / "landing", dirs_exist_ok=True)
    shutil.copytree(shop.home / "shredded", other.home / "shredded", dirs_exist_ok=True)
    with other.open() as pipeline:
        other.land(pipeline, 0)
        drained(pipeline, lambda: session(pipeline.config.spark.conf))
    shutil.copy(other.home / "warehouse.duckdb", shop.home / "warehouse.duckdb")


@pytest.mark.engines("duckdb")
@pytest.mark.parametrize(
    ("befalls", "said", "action"),
    [
        (set_back, f"was set back: its newest load of feed enriched is {run_name(0)}", Action.RECONCILE),
        (delete, "has no load of feed enriched", Action.RECONCILE),
        (mistype, "has no load of feed enriched", Action.RECONCILE),
        (take_anothers, "was never made by this manifest", Action.ACCEPT_WAREHOUSE),
    ],
)
def test_nothing_is_loaded_into_a_warehouse_that_lacks_earlier_loads(
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
def test_reconcile_loads_all_lacking_items_again_in_order(shop: Shop, befalls: Callable[[Shop], None]) -> None:
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


def test_a_drain_without_new_items_reports_a_broken_chain_too(shop: Shop) -> None:
    with shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.IDLE
    delete(shop)
    with shop.open() as pipeline:
        report = drained(pipeline)[1]
        assert (report.stop, report.remedy and report.remedy.action) == (Stop.BLOCKED, Action.RECONCILE)


def test_an_interrupted_reconcile_can_be_repeated(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_accept_continues_with_another_warehouse_and_loads_nothing_again(shop: Shop) -> None:
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


def test_a_dead_claim_is_not_settled_by_the_ledger_of_a_warehouse_that_was_set_back(shop: Shop) -> None:
    """The worker died after its COMMIT, and the warehouse was set back since: an empty ledger would fail the item."""
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
    """Runs a load of the next item up to the request at which its worker pauses."""
    ready = pipeline.manifest.next(FEED, LOAD, holding=True)
    assert isinstance(ready, Ready)
    program = loading.loading(loading.Declared.by(pipeline), ready, listing_of(ready.item))
    request = next(program)
    while not isinstance(request, until):
        request = program.send(request(pipeline, lease))
    return request


def test_a_load_completed_during_a_reconcile_makes_no_freed_item_late(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The load believed its own record, so reconcile's last write was refused. The next reconcile made the freed items late."""
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


def test_a_commit_of_a_paused_worker_to_an_emptied_warehouse_counts_as_applied(tmp_path: Path, spark: Any) -> None:
    """Its attempt had been failed, so the item was not done in the manifest, and became late after reconcile had passed it."""
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


def test_a_restored_manifest_believes_the_record_in_the_fence(tmp_path: Path, spark: Any) -> None:
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


def test_a_run_rewritten_after_its_load_is_never_recorded_as_applied(tmp_path: Path, spark: Any) -> None:
    """The manifest was restored to a time before the run, and other content has landed under the same name."""
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
    """Interrupts a reconcile after it freed the lacking items, and before the manifest believes the warehouse."""
    with shop.open() as pipeline, pytest.raises(SystemExit):
        monkeypatch.setattr(pipeline.manifest, "believe_sink", lambda *_: exit())
        list(reconcile(pipeline, "interrupted"))


def test_items_that_a_restored_manifest_freed_again_are_looked_at_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item was reopened, loaded, and reopened by the restored manifest: the ledger has it, and no step looked at it."""
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
    """Replaces the warehouse by one with a newest load of a directory unknown to this manifest."""
    other = Shop(shop.home / home)
    with other.open() as pipeline:
        other.land(pipeline, 7)
        drained(pipeline, lambda: session(pipeline.config.spark.conf))
    shutil.copy(other.home / "warehouse.duckdb", shop.home / "warehouse.duckdb")


@pytest.mark.engines("duckdb")
@pytest.mark.parametrize("home", ["stranger", "landing-of-a-stranger"])
def test_a_reconcile_that_will_be_refused_frees_nothing(shop: Shop, home: str) -> None:
    """Earlier, it freed everything that another manifest's warehouse lacks, and was refused only then. Ten runs were stuck.

    A foreign landing root whose path only begins like ours was taken for ours, and `discover --all` was advised.
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


def test_items_freed_by_an_interrupted_reconcile_are_loaded_after_an_accept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the accept no step looked behind the watermark, so freed items were passed over without notice."""
    delete(shop)
    interrupt_a_reconcile(shop, monkeypatch)
    with shop.open() as pipeline:
        [done] = accept(pipeline, "on second thoughts")
        assert [key.name for key in done.freed] == run_names(0, 1)
        assert drained(pipeline)[1].stop is Stop.IDLE
        assert [history(pipeline, n)[-1] for n in range(4)] == ["load Processed"] * 4
    assert shop.seen.runs == run_names(0, 1, 2, 3)


def test_items_that_an_accepted_warehouse_lacks_are_no_findings_and_stay_out(shop: Shop) -> None:
    """The doctor reported these items with a remedy that did nothing, and a reconcile loaded them onto moved rows."""
    delete(shop)
    with shop.open() as pipeline:
        list(accept(pipeline, "its tables were moved"))
        drained(pipeline, budget=ONE)
    with shop.open() as pipeline:
        assert Doctor(pipeline).examine().findings == []
    shop.place.save("copy")
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


def test_a_warehouse_loaded_by_a_newer_manifest_is_reconciled_and_not_accepted(shop: Shop) -> None:
    """The warehouse was set back, reconciled and loaded, then the manifest was restored: an accept would lose runs."""
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


@pytest.mark.engines("duckdb")
def test_the_status_of_many_datasets_reads_the_fence_table_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier, each dataset queried the tables and the fence of the warehouse, and each waited for a locked warehouse."""
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
