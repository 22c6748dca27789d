"""Items that programs register: URLs, files, spans of time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.config import ConfigError
from manifest_platform.manifest import ItemKey, Landed, Manifest, Refused, Step, Store
from manifest_platform.manifest.records import Application
from manifest_platform.manifest.skip_rules import SkipRule
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.program import new
from manifest_platform_tests.manifest.given import Clock, LossyStore
from manifest_platform_tests.source_names import ROOT

PAGE = (ROOT / "docs" / "how-to" / "items.md").read_text()
CONFIGURATION = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
URL = "https://example.com/report?day=1&full"
SPAN = "span:2026-01-01T00:00Z/2026-01-02T00:00Z"
FETCH = Application("fetch")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "manifest_platform.yaml").write_text(CONFIGURATION)
    monkeypatch.setenv(config.VARIABLE, str(tmp_path / "manifest_platform.yaml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    def _ask(*arguments: str) -> tuple[int, Any]:
        code = main(["--json", *arguments])
        out = capsys.readouterr().out
        return code, json.loads(out.splitlines()[-1]) if out else None

    return _ask


def opened(home: Path) -> Pipeline:
    return Pipeline(config.load(home / "manifest_platform.yaml"), "reports")


def manifest(store: Store) -> Manifest:
    return Manifest(store, "reports", {"items": [Step(FETCH)]}, "test", clock=Clock())


def landed(checksum: str = "", sort: str = "2026-01-01") -> Landed:
    return Landed(ItemKey("items", sort, URL), 0, 0, checksum)


# --- the manifest ----------------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_an_id_is_registered_once_and_later_calls_change_nothing(store: Store) -> None:
    of = manifest(store)
    given = [landed("a"), landed("a"), landed(), landed("a", "another"), landed("b")]
    assert [of.register(one).outcome for one in given] == ["new", "known", "known", "known", "changed"]
    assert of.register(landed("a", "another")).landed.key.sort == "2026-01-01"
    assert [item.key for item in of.items("items")] == [landed().key]
    assert of.registered_as("items", URL) == landed().key
    assert of.registered_as("items", SPAN) is None


@pytest.mark.parametrize("fault", ["answer lost", "repeat refused"])
def test_a_registration_whose_answer_was_lost_happened_once(store: Store, fault: str) -> None:
    assert manifest(LossyStore(store, fault, at=1)).register(landed("a")).outcome == "new"
    assert [len(item.records) for item in manifest(store).items("items")] == [1]


@pytest.mark.parametrize("sorts", [("same", "same"), ("one", "other")])
def test_of_concurrent_registrations_of_an_id_one_succeeds(store: Store, sorts: tuple[str, str]) -> None:
    start = threading.Barrier(4)

    def register(number: int) -> str:
        start.wait()
        return manifest(store).register(landed("a", sorts[number % 2])).outcome

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(register, range(4))) == ["known", "known", "known", "new"]
    assert len(list(manifest(store).items("items"))) == 1


# --- the commands ----------------------------------------------------------------------------------------------------


def test_an_item_from_its_registration_to_its_end(home: Path, ask) -> None:
    assert ask("put", "new", "--item", URL, "--stop", "2026-01-02T00:00Z", "--checksum", "a", "--size", "7") == (
        0,
        {"item": URL, "sort": "2026-01-02T00:00:00.000000Z", "outcome": "new", "skipped_by": []},
    )
    assert ask("put", "new", "--item", URL, "--checksum", "a")[1]["outcome"] == "known"
    code, refused = ask("put", "new", "--item", URL, "--checksum", "b")
    assert (code, "another checksum" in refused["error"]["message"]) == (1, True)
    ask("put", "new", "--item", SPAN, "--start", "2026-01-02T00:00Z", "--stop", "2026-01-03T00:00Z")
    assert [step["outlook"]["answer"] for step in ask("status")[1]["steps"]] == ["READY", "WAITING"]
    claimed = ask("put", "claim", "--application", "fetch")[1]
    assert claimed["item"] == URL
    ended = ask("put", "fail", "--application", "fetch", "--item", URL, "--record", claimed["record"], "--message", "404")
    assert (ended[0], ended[1]["record"]["state"]) == (0, "Failed")
    code, told = ask("next")
    assert told["next"][0]["item"] == SPAN, "an unordered step goes on"
    assert (code, told["next"][1]["command"]) == (0, f"manifest-platform resolve '{URL}'")
    assert ask("resolve", URL, "--reason", "it is there")[0] == 0
    assert main(["run", "--application", "fetch", "--item", URL, "--", "true"]) == 0
    assert main(["run", "--application", "publish", "--", "true"]) == 0
    assert [one["application"]["name"] for one in ask("history", URL)[1]["records"]][-2:] == ["publish", "publish"]
    assert ask("skip", "2026-01-03T00:00:00.000000Z", "--reason", "by its sort key")[0] == 0
    assert [one["state"] for one in ask("history", SPAN)[1]["records"]] == ["New", "Skipped"]
    assert ask("explain", URL)[0] == 0
    assert len(ask("query")[1]["items"]) == 2
    assert ask("doctor")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["put", "new", "--item", "no-uri"], 1, "an id must be a URI"),
        (["put", "new", "--item", "https://a b"], 1, "an id must be a URI"),
        (["put", "new", "--item", "https://a#b"], 2, "printable ASCII"),
        (["put", "new", "--item", "https://" + "a" * 700], 1, "at most 700"),
        (["put", "new", "--item", URL, "--sort", "a" * 101], 1, "at most 100"),
        (["put", "new", "--item", URL, "--sort", "a b"], 2, "printable ASCII"),
        (["put", "new", "--item", URL, "--stop", "soon"], 1, "stop 'soon' is not a time"),
        (["put", "new", "--item", URL, "--start", "2026-01-02", "--stop", "2026-01-01"], 1, "before it starts at"),
        (["discover"], 1, "with `put new`"),
        (["capture"], 1, "captures nothing"),
        (["full", "status"], 1, "no snapshots"),
        (["history", URL], 1, "has no item"),
    ],
)
def test_what_is_refused(ask, arguments: list[str], code: int, message: str) -> None:
    found, document = ask(*arguments)
    assert (found, message in document["error"]["message"]) == (code, True)


def test_the_longest_names_fit_every_stores_keys(home: Path) -> None:
    with opened(home) as pipeline:
        new(pipeline, "https://" + "a" * 692, "s" * 100)
        assert max(len(row.sort) for row in pipeline.manifest.store.query("reports", "")) < 1000


def test_spans_in_any_form_and_zone_are_in_the_order_of_time(home: Path) -> None:
    stops = ["2026-01-01", "2026-01-01T00:00:30Z", "2026-01-01T02:01+02:00", "2026-01-01T00:01:00.5Z", "2026-01-01T00:02Z"]
    with opened(home) as pipeline:
        for number, stop in sorted(enumerate(stops), reverse=True):
            new(pipeline, f"https://example.com/{number}", stop=stop)
        assert [item.key.id[-1] for item in pipeline.manifest.items("items")] == ["0", "1", "2", "3", "4"]


def test_a_directory_that_lands_is_not_registered_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "platform.yaml"
    file.write_text("datasets:\n  acme:\n    landing: {root: landing}\n    shred: {output: out, schemas: [schemas]}\n")
    with Pipeline(config.load(file), "acme") as pipeline, pytest.raises(Refused, match="`discover` registers them"):
        new(pipeline, URL)


def test_put_new_reports_late_items_and_items_that_a_rule_skips(home: Path, ask) -> None:
    ask("put", "new", "--item", URL, "--sort", "2")
    for step in ("fetch", "publish"):
        assert main(["run", "--application", step, "--", "true"]) == 0
    assert ask("put", "new", "--item", SPAN, "--sort", "1")[1]["outcome"] == "quarantined"
    with opened(home) as pipeline:
        pipeline.manifest.add_skip_rule(SkipRule("tests", "https://test.*"))
    assert ask("put", "new", "--item", "https://test.example.com/")[1]["skipped_by"] == ["r1"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{source: items}", "at least one step"),
        ("{source: items, steps: [{name: a, upstream: [shred]}]}", "waits for shred"),
        ("{source: items, steps: [{name: load}]}", "of a step is taken"),
        ("{source: items, steps: [{name: a}], landing: {root: x}}", "landing"),
    ],
)
def test_invalid_configurations_are_refused(tmp_path: Path, wrong: str, message: str) -> None:
    (tmp_path / "platform.yaml").write_text(f"datasets:\n  reports: {wrong}\n")
    with pytest.raises(ConfigError, match=message):
        config.load(tmp_path / "platform.yaml")


def test_dagster_shows_the_datasets_beside_others(tmp_path: Path) -> None:
    from manifest_platform.orchestration.build import build_defs

    file = tmp_path / "platform.yaml"
    beside = "  acme:\n    landing: {root: landing}\n    shred: {output: out, schemas: [schemas]}\n"
    for text in (CONFIGURATION, CONFIGURATION + beside):
        file.write_text(text)
        keys = {key.path[0] for key in build_defs(file).resolve_asset_graph().get_all_asset_keys()}
        assert keys == ({"acme"} if text.endswith(beside) else set())


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_example_in_python_does_what_it_says(home: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/how-to/items.md", "exec"), {})
    with opened(home) as pipeline:
        items = list(pipeline.manifest.items("items"))
        assert [item.key.sort for item in items] == [f"2026-01-0{day}T00:00:00.000000Z" for day in (1, 2, 3)]
        assert all(item.processed_by(FETCH) for item in items)


@pytest.mark.long
def test_the_example_in_a_shell_does_what_it_says(home: Path) -> None:
    [script] = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with opened(home) as pipeline:
        made = {item.key.id: item.processed_by(FETCH) for item in pipeline.manifest.items("items")}
    assert made.keys() == {"https://example.com/day/1", "span:2026-01-02T00:00Z/2026-01-03T00:00Z"}
    payloads = [record.data for record in made.values() if record]
    assert payloads == [{"item": "https://example.com/day/1"}, {"rows": 17}]
