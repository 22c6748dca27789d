"""The overview of a dataset: progress, blocks and remedies, reported only when its text changes."""

from __future__ import annotations

from typing import Any

import dagster as dg

from manifest_platform.orchestration.overview import _cell, _code
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, break_listing, key, resolve
from manifest_platform_tests.pipeline.shop import drained, run_name


def _overviews(result: dg.SensorResult) -> list[dict[str, Any]]:
    found = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    return [{name: value.value for name, value in one.metadata.items()} for one in found if one.asset_key == key("overview")]


def test_the_overview_shows_progress_and_is_reported_once(shredded: DagsterShop) -> None:
    first = shredded.tick()
    [shown] = _overviews(first)
    assert shown["loaded up to"] == "nothing yet"
    assert not _overviews(shredded.tick(first.cursor))
    assert not _overviews(shredded.tick()), "Dagster shows the same"
    with shredded.shop.open() as pipeline:
        drained(pipeline)
    [shown] = _overviews(shredded.tick(first.cursor))
    assert (shown["loaded up to"], shown["stuck"]) == (run_name(4), "no")
    assert "| enriched | run=" in shown["overview"] and "No action is needed." in shown["overview"]


def test_the_overview_shows_blocks_and_their_remedies(shredded: DagsterShop) -> None:
    break_listing(shredded.shop, 1)
    shredded.drain()
    event = shredded.instance.get_latest_materialization_event(key("overview"))
    assert event and event.asset_materialization
    shown = {name: str(value.value) for name, value in event.asset_materialization.metadata.items()}
    assert shown["loaded up to"] == run_name(0)
    assert shown["stuck"].startswith(f"{run_name(1)}: ")
    assert shown["stuck since"].endswith(" UTC")
    assert shown["in a terminal"] == f"manifest-platform resolve {run_name(1)}"
    assert f"- in a terminal: `manifest-platform resolve {run_name(1)}`" in shown["overview"]
    assert not _overviews(shredded.tick()), "the drain has told it"
    resolve(shredded.shop, 1)
    [after] = _overviews(shredded.tick())
    assert after["stuck"] == "no"


def test_foreign_names_make_no_markup() -> None:
    assert _cell("[run](javascript:x) <b> | #1\n## Done") == r"\[run\](javascript:x) \<b\> \| \#1\\n\#\# Done"
    assert _code("a`b\x1b") == r"`a'b\x1b`"
