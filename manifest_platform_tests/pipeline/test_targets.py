"""Several targets of one dataset: each with its own order, watermark and lease, none in the way of another."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform.manifest import Application, Failure, FailureKind, Ready, Refused
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.reconcile import reconcile
from manifest_platform.operations.reload import reload_all
from manifest_platform.operations.reshred import reshred
from manifest_platform.pipeline import Budget, DrainReport, Pipeline, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.remedies import Action
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, keys, no_spark, run_name, run_names

LAB = Application("load", instance="lab")


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """A shop with three shredded runs and a second target."""
    found = Shop(tmp_path / "shop", targets={"lab": {"kind": "duckdb", "path": "lab.duckdb"}})
    found.shredded(spark, 3)
    return found


def drained(pipeline: Pipeline, **options: Any) -> DrainReport:
    [*_, report] = drain(pipeline, no_spark, **options)
    assert isinstance(report, DrainReport)
    return report


def runs(pipeline: Pipeline, target: str) -> list[str]:
    """The runs in a target's ledger."""
    of = pipeline.at(target)
    try:
        return [entry.item.rsplit("/", 1)[-1] for entry in of.warehouse.ledger(FEED, 1)]
    finally:
        of.let_go()


def watermark(pipeline: Pipeline, target: str) -> str:
    return pipeline.manifest.state(pipeline.at(target).load).feed(FEED).watermark.partition("#")[0]


def test_a_drain_loads_all_targets_and_shreds_once(shop: Shop) -> None:
    with shop.open() as pipeline:
        report = drained(pipeline)
        assert (report.loaded, report.shredded, report.stop) == (6, 0, Stop.IDLE)
        assert runs(pipeline, "warehouse") == runs(pipeline, "lab") == run_names(0, 1, 2)
        assert drained(pipeline).loaded == 0


def test_a_target_that_is_down_holds_up_no_other_and_catches_up(shop: Shop) -> None:
    (shop.home / "lab.duckdb").mkdir()  # no file can be opened here
    with shop.open() as pipeline:
        report = drained(pipeline)
        assert [(end.target, end.stop) for end in report.ends] == [("warehouse", Stop.IDLE), ("lab", Stop.UNAVAILABLE)]
        assert (report.loaded, report.failed) == (3, 0)
    (shop.home / "lab.duckdb").rmdir()
    with shop.open() as pipeline:
        report = drained(pipeline)
        assert (report.loaded, report.stop) == (3, Stop.IDLE)
        assert runs(pipeline, "lab") == run_names(0, 1, 2)


def test_one_target_may_be_drained_alone_and_a_budget_holds_for_each(shop: Shop) -> None:
    with shop.open() as pipeline:
        assert drained(pipeline, targets=["lab"], budget=Budget(items=2)).loaded == 2
        assert (watermark(pipeline, "warehouse"), watermark(pipeline, "lab")) == ("", run_name(1).removeprefix("run="))
        assert drained(pipeline, budget=Budget(items=2)).loaded == 3
        assert runs(pipeline, "warehouse") == run_names(0, 1)


def test_a_failure_in_one_target_stops_only_that_target(shop: Shop) -> None:
    with shop.open() as pipeline:
        first = keys(pipeline, 0)[0]
        with pipeline.lease(FEED, LAB.key) as lease:
            verdict = next(pipeline.manifest.verdicts(lease))
            assert isinstance(verdict, Ready)
            [claim] = pipeline.manifest.claim(lease, [verdict.item], verdict.state)
            pipeline.manifest.fail(claim, Failure(FailureKind.PERMANENT, "a text beyond its column"))
        report = drained(pipeline)
        assert runs(pipeline, "warehouse") == run_names(0, 1, 2)
        assert [(end.target, end.stop) for end in report.ends] == [("warehouse", Stop.IDLE), ("lab", Stop.BLOCKED)]
        with pytest.raises(Refused, match="is not blocked by load"):
            pipeline.manifest.resolve(first, "wrong target", pipeline.load)
        pipeline.manifest.resolve(first, "longer column", LAB)
        drained(pipeline)
        assert runs(pipeline, "lab") == run_names(0, 1, 2)


@pytest.mark.parametrize(("skipped", "loaded"), [("load:lab", (3, 2)), ("load:warehouse", (2, 3)), ("load", (2, 2))])
def test_a_skip_names_one_target_or_all(shop: Shop, skipped: str, loaded: tuple[int, int]) -> None:
    with shop.open() as pipeline:
        pipeline.manifest.skip(keys(pipeline, 1)[0], "a test run", skipped)
        drained(pipeline)
        assert (len(runs(pipeline, "warehouse")), len(runs(pipeline, "lab"))) == loaded


def test_a_target_added_later_starts_with_the_named_item(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path / "shop")
    shop.shredded(spark, 3)
    with shop.open() as pipeline:
        drained(pipeline)
    add(shop, start=run_name(1))
    with shop.open() as pipeline:
        assert drained(pipeline).loaded == 2
        assert runs(pipeline, "lab") == run_names(1, 2)
        assert "load:lab started with a later item" in str(standing(pipeline, 0))
        noted = [record for record in pipeline.manifest.history(keys(pipeline, 1)[0]) if record.data.get("starts")]
        assert [record.data["reason"] for record in noted] == ["target lab starts here"]
        assert [finding.cause for finding in Doctor(pipeline).examine().findings] == []
        assert drained(pipeline).loaded == 0


def test_a_target_waits_for_an_item_to_start_with_that_is_not_known(shop: Shop) -> None:
    add(shop, start=run_name(7))
    with shop.open() as pipeline:
        report = drained(pipeline)
        assert (report.loaded, report.stop) == (3, Stop.BLOCKED)
        assert report.reason.startswith(f"targets.lab.start: '{run_name(7)}' is not known to the manifest yet")


def test_an_item_may_be_late_for_one_target_and_not_for_another(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        drained(pipeline, targets=["warehouse"])
        shop.write(-1)
        found = discover(pipeline, everything=True)
        assert found.late == (run_name(-1),)
        [*_, report] = drain(pipeline, lambda: spark)
        assert isinstance(report, DrainReport)
        assert runs(pipeline, "lab") == run_names(-1, 0, 1, 2)
        late = {entry.item.rsplit("/", 1)[-1]: entry.late for entry in pipeline.warehouse.ledger(FEED, 1)}
        assert late == {run_name(-1): True, **dict.fromkeys(run_names(0, 1, 2), False)}
        assert not any(entry.late for entry in pipeline.at("lab").warehouse.ledger(FEED, 1))


def test_a_removed_target_leaves_the_others_as_they_are(shop: Shop) -> None:
    with shop.open() as pipeline:
        drained(pipeline, targets=["lab"])
    remove(shop)
    with shop.open() as pipeline:
        assert pipeline.targets == ("warehouse",)
        assert drained(pipeline).loaded == 3  # what the removed target loaded does not count
        assert pipeline.manifest.state(LAB).feed(FEED).applied == 3


def test_one_target_needs_no_further_request_when_idle(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path / "shop")
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        drained(pipeline)
        assert drained(pipeline).requests <= 5


def standing(pipeline: Pipeline, number: int) -> Any:
    from manifest_platform.manifest.dataset import judge

    item = pipeline.manifest.item(keys(pipeline, number)[0])
    return judge(item, pipeline.manifest.step(FEED, LAB.key), pipeline.manifest.state(LAB).feed(FEED))


def add(shop: Shop, **settings: str) -> None:
    whole = yaml.safe_load(shop.config_file.read_text())
    whole["targets"] = {"lab": {"kind": "duckdb", "path": "lab.duckdb", **settings}}
    shop.config_file.write_text(yaml.safe_dump(whole))


def remove(shop: Shop) -> None:
    whole = yaml.safe_load(shop.config_file.read_text())
    del whole["targets"]
    shop.config_file.write_text(yaml.safe_dump(whole))


@pytest.mark.parametrize(("point", "committed"), [("load.in_transaction", False), ("load.committed", True)])
def test_a_worker_killed_in_one_target_leaves_the_other_free(shop: Shop, point: str, committed: bool) -> None:
    process = shop.process(f"{point}:kill")
    process.communicate(timeout=250)
    assert process.returncode == -signal.SIGKILL
    with shop.open() as pipeline:
        pipeline.manifest.end_leases(dead_run(pipeline))
        assert drained(pipeline, targets=["lab"]).stop is Stop.IDLE
        assert runs(pipeline, "lab") == run_names(0, 1, 2)
        assert drained(pipeline).stop is Stop.IDLE
        assert runs(pipeline, "warehouse") == run_names(0, 1, 2)
        words = [str(one.state) for one in pipeline.manifest.history(keys(pipeline, 0)[0]) if one.application.key == "load"]
        again = ["Failed", "Resolved", "Processing", "Processed"]
        assert words == ["Processing", *(["Processed"] if committed else again)]


def test_a_target_that_was_emptied_is_reconciled_alone(shop: Shop) -> None:
    with shop.open() as pipeline:
        drained(pipeline)
    (shop.home / "lab.duckdb").unlink()
    with shop.open() as pipeline:
        report = drained(pipeline)
        assert [(end.target, end.stop) for end in report.ends] == [("warehouse", Stop.IDLE), ("lab", Stop.BLOCKED)]
        assert report.remedy and (report.remedy.action, report.remedy.target) == (Action.RECONCILE, "lab")
        freed = [key for one in reconcile(pipeline.at("lab"), "emptied") for key in one.freed]
        assert len(freed) == 3
        assert drained(pipeline).loaded == 3
        assert runs(pipeline, "lab") == run_names(0, 1, 2)


def test_what_is_shredded_again_is_loaded_into_no_target_twice(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        drained(pipeline, targets=["lab"])
        reshred(pipeline, keys(pipeline, 1)[0], "a schema was mended")
        [*_, report] = drain(pipeline, lambda: spark)
        assert isinstance(report, DrainReport)
        assert (report.shredded, report.loaded) == (1, 3)
        assert runs(pipeline, "warehouse") == runs(pipeline, "lab") == run_names(0, 1, 2)


def dead_run(pipeline: Pipeline) -> str:
    [run] = {one.run_id for one in pipeline.manifest.kept().leases.values() if one.is_live(pipeline.clock())}
    return str(run)


def test_a_reload_is_of_one_target_or_of_all_and_needs_the_rows_to_be_there(shop: Shop) -> None:
    with shop.open() as pipeline:
        [key] = keys(pipeline, 0)
        warehouse, lab = pipeline.at("warehouse"), pipeline.at("lab")
        drained(pipeline, targets=["lab"])
        with pytest.raises(Refused, match="is not loaded by"):  # before anything is written
            reload_all([warehouse, lab], key, "of both, and one has no rows yet")
        assert drained(pipeline).loaded == 3  # the other target's first loads, and no reload
        reload_all([lab], key, "of one alone")
        assert (drained(pipeline).loaded, loads(pipeline, "warehouse"), loads(pipeline, "lab")) == (1, 3, 4)
        reload_all([warehouse], key, "of the other alone")
        assert (drained(pipeline).loaded, loads(pipeline, "warehouse"), loads(pipeline, "lab")) == (1, 4, 4)
        reload_all([warehouse, lab], key, "of both")
        assert (drained(pipeline).loaded, loads(pipeline, "warehouse"), loads(pipeline, "lab")) == (2, 5, 5)
        assert events(pipeline, "warehouse") == events(pipeline, "lab") == (3 * EVENTS, 3 * EVENTS)
        assert drained(pipeline).loaded == 0


def loads(pipeline: Pipeline, target: str) -> int:
    """The number of rows of a target's ledger: reloads add one each."""
    return _asked(pipeline, target, "SELECT count(*) FROM manifest_platform.ledger")[0]


def events(pipeline: Pipeline, target: str) -> tuple[int, ...]:
    """The number of a target's events, and of their ids."""
    return _asked(pipeline, target, "SELECT count(*), count(DISTINCT event_id) FROM shop.events")


def _asked(pipeline: Pipeline, target: str, query: str) -> tuple[int, ...]:
    of = pipeline.at(target)
    try:
        return of.warehouse.engine.execute(query)[0]
    finally:
        of.let_go()
