"""`types`: what was shredded, by type and version, and when each was seen first; and the view with types and versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import __version__, config
from manifest_platform.cli import main
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.test_commands import RUNS, Shop

CLICK, EVENT = "iglu:com.acme/click/jsonschema/", "iglu:com.snowplowanalytics.snowplow/atomic/jsonschema/1-0-0"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Three runs; the first shredded by a release that told no types, the last with a new version."""
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    assert main(["discover"]) == 0
    told: list[dict[str, Any]] = [
        {"tables": ["click_1", "events"]},
        {"types": {"events": {EVENT: 5}, "click_1": {f"{CLICK}1-0-0": 3}}},
        {"types": {"events": {EVENT: 7}, "click_1": {f"{CLICK}1-0-0": 1, f"{CLICK}1-0-1": 2}}},
    ]
    for name, counts in zip(RUNS, told, strict=True):
        shop.work(SHRED, name, **counts)
    shop.work(LOAD, RUNS[0])
    return shop


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_types_are_listed_with_the_first_and_the_last_item(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = asked(capsys, "types")
    assert code == 0
    assert [(one["type"], one["table"], one["items"], one["rows"]) for one in document["types"]] == [
        (f"{CLICK}1-0-1", "click_1", 1, 2),
        (f"{CLICK}1-0-0", "click_1", 2, 4),
        (EVENT, "events", 2, 12),
        ("click_1", "click_1", 1, None),
        ("events", "events", 1, None),
    ]
    first, last = (document["types"][1][name]["item"]["name"] for name in ("first", "last"))
    assert (first, last, document["looked_at"]) == (RUNS[1], RUNS[2], 3)
    assert main(["types"]) == 0
    said = capsys.readouterr().out
    assert f"{CLICK}1-0-1 in click_1\n    first {RUNS[2]} (shredded " in said
    assert said.endswith("5 types in 3 items\n")


def test_since_reads_that_part_of_the_log_alone(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    _, document = asked(capsys, "types", "--since", "2024-05-14T12:20")
    assert {one["type"]: one["items"] for one in document["types"]} == {EVENT: 1, f"{CLICK}1-0-0": 1, f"{CLICK}1-0-1": 1}
    assert document["looked_at"] == 1
    assert asked(capsys, "types", "--since", "2024-05-15", "--feed", FEED)[0] == 4
    assert main(["types", "--since", "lately"]) == 2
    assert main(["types", "--feed", "none"]) == 1


def test_a_listing_that_is_gone_leaves_what_the_record_has(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reshred", RUNS[2], "--reason", "x"]) == 0
    shop.work(SHRED, RUNS[2], types={"events": {EVENT: 7}}, more_types=1, listing="file:///nowhere/listing.json")
    capsys.readouterr()
    assert main(["types"]) == 0
    told = capsys.readouterr()
    assert f"{EVENT} in events" in told.out
    assert "1 listings cannot be read" in told.err


def test_the_view_shows_types_and_who_with_their_versions(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    _, document = asked(capsys, "view")
    newest, _, oldest = document["rows"]
    assert newest["ShredTypes"] == [f"{CLICK}1-0-0", f"{CLICK}1-0-1", EVENT]
    assert (newest["AddedBy"], newest["State"]) == (f"discover {__version__}", "PROCESSED")
    assert (oldest["ShredTypes"], oldest["LoadedBy"]) == (["click_1", "events"], f"load {__version__}")
    assert main(["view", "--limit", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].strip().startswith(f"AddedBy discover {__version__}; ShredTypes {CLICK}1-0-0,")
