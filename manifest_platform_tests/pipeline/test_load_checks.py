"""Checks of a load in a drain: a failed one blocks the feed until a person acts, a warning is reported, a wrong one waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from manifest_platform.operations.explain import explanation
from manifest_platform.pipeline import ItemFailed, Loaded, PutBack, Stop
from manifest_platform.remedies import Action
from manifest_platform_tests.pipeline.shop import EVENTS, NAME, Shop, drained, history, keys, loaded_record, run_name, run_names

FEW: dict[str, Any] = {"name": "few", "table": "events", "kind": "rows", "max": 1}


def change(shop: Shop, *checks: dict[str, Any]) -> None:
    """Changes the checks in the configuration file."""
    whole = yaml.safe_load(shop.config_file.read_text())
    whole["datasets"][NAME]["load"]["checks"] = list(checks)
    shop.config_file.write_text(yaml.safe_dump(whole))


def test_a_failed_check_blocks_the_feed_until_it_is_mended_and_resolved(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, load={"checks": [FEW]})
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        [failed] = [event for event in events if isinstance(event, ItemFailed)]
        assert (failed.key.name, failed.failure.exception) == (run_name(0), "CheckFailed")
        assert f"check few of table events: {EVENTS} rows; allowed: at most 1" in failed.failure.message
        assert (report.stop, report.item) == (Stop.BLOCKED, run_name(0))
        assert report.remedy is not None
        assert report.remedy.action is Action.RESOLVE
        told = explanation(pipeline.manifest, keys(pipeline, 0)[0], str, pipeline.clock())
        assert "check few of table events" in told.text
    change(shop)
    with shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.BLOCKED, "a mended check alone frees nothing: a person does"
        pipeline.manifest.resolve(keys(pipeline, 0)[0], "the check was wrong")
        assert drained(pipeline)[1].loaded == 2
    assert shop.seen.runs == run_names(0, 1)


def test_a_warning_is_loaded_and_told_in_event_and_record(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, load={"checks": [{**FEW, "severity": "warn"}, {**FEW, "name": "most", "max": 1000}]})
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        events, _ = drained(pipeline)
        loaded, _ = [event for event in events if isinstance(event, Loaded)]
        assert loaded.told == (f"check few of table events: {EVENTS} rows; allowed: at most 1",)
        data = loaded_record(pipeline, 0).data
        assert data["told"] == list(loaded.told)
        assert [(one["check"], one["passed"], one["value"]) for one in data["checks"]] == [
            ("few", False, EVENTS),
            ("most", True, EVENTS),
        ]
        told = explanation(pipeline.manifest, keys(pipeline, 0)[0], str, pipeline.clock())
        assert "Note of the load: check few of table events" in told.text


def test_a_wrong_query_waits_without_an_attempt_and_is_told(tmp_path: Path, spark: Any) -> None:
    wrong = {"name": "wrong", "table": "events", "kind": "sql", "query": "SELECT nothing FROM {staged}"}
    shop = Shop(tmp_path, load={"checks": [wrong]})
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        for _ in range(2):
            events, report = drained(pipeline)
            assert not any(isinstance(event, ItemFailed | Loaded | PutBack) for event in events)
            assert report.stop is Stop.UNAVAILABLE
            assert "load.checks: the query of check wrong is wrong, for table events" in report.reason
        assert not any("Failed" in words for words in history(pipeline, 0))
    change(shop, {**wrong, "query": "SELECT * FROM {staged} WHERE event_id IS NULL"})
    with shop.open() as pipeline:
        assert drained(pipeline)[1].loaded == 2


def test_a_check_finds_the_run_at_fault_among_several_in_a_transaction(tmp_path: Path, spark: Any) -> None:
    second = {
        "name": "second",
        "table": "events",
        "kind": "sql",
        "query": "SELECT 1 FROM {staged} WHERE {item} LIKE '%-12-10-00%'",
    }
    few = {**FEW, "severity": "warn"}
    shop = Shop(tmp_path, load={"batch": {"items": 5}, "checks": [second, few]})
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        [failed] = [event for event in events if isinstance(event, ItemFailed)]
        assert (failed.key.name, report.item, report.loaded) == (run_name(1), run_name(1), 1)
    change(shop, few)
    with shop.open() as pipeline:
        pipeline.manifest.resolve(keys(pipeline, 1)[0], "the check was wrong")
        assert drained(pipeline)[1].loaded == 1
    assert shop.seen.runs == run_names(0, 1)
    other = Shop(tmp_path / "other", load={"batch": {"items": 5}, "checks": [few]})
    other.shredded(spark, 2)
    with other.open() as pipeline:
        loaded = [event for event in drained(pipeline)[0] if isinstance(event, Loaded)]
        assert [(one.batch, [check.passed for check in one.checks], len(one.told)) for one in loaded] == [(2, [False], 1)] * 2
        assert [loaded_record(pipeline, number).data["checks"][0]["value"] for number in (0, 1)] == [EVENTS, EVENTS]
