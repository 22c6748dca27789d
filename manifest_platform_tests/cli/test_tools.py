"""The operators' tools on a small shop: query, dump and import, cost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.manifest import OUTPUT, Application, Payload
from manifest_platform.operations.archive import archive
from manifest_platform.operations.search import Search, search
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.test_commands import RUNS, Shop

MORE = [*RUNS, "run=2024-05-14-12-30-00", "run=2024-05-14-12-40-00"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Five items: loaded, failed to load, shredded, failed to shred, new."""
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*MORE)
    assert main(["discover"]) == 0
    for name in MORE[:3]:
        shop.work(SHRED, name)
    shop.work(SHRED, MORE[3], failure="no such schema")
    shop.work(LOAD, MORE[0])
    shop.work(LOAD, MORE[1], failure="no such column")
    return shop


@pytest.fixture
def run(shop: Shop, capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()

    def _run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return _run


@pytest.fixture
def ask(run: Any):
    def _ask(*arguments: str) -> tuple[int, Any]:
        code, out, _ = run(*arguments, "--json")
        return code, json.loads(out)

    return _ask


def names(answer: dict) -> list[str]:
    return [hit["item"]["name"] for hit in answer["items"]]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ([], [4, 3, 2, 1, 0]),
        (["--application", "shred"], [3, 2, 1, 0]),
        (["--application", "load"], [1, 0]),
        (["--state", "failed"], [3, 1]),
        (["--state", "Failed", "--application", "load"], [1]),
        (["--state", "failed", "--application", "shred"], [3]),
        (["--state", "processing"], []),
        (["--state", "processing", "--application", "load"], []),
        (["--state", "processed", "--application", "load"], [0]),
        (["--state", "processed", "--application", "shred"], [2, 1, 0]),
        (["--state", "processed"], [2, 0]),
        (["--state", "new"], [4]),
        (["--state", "new", "--application", "shred"], [4, 3]),
        (["--state", "new", "--application", "load"], [4, 3, 2, 1]),
        (["--state", "skipped"], []),
        (["--since", "1h"], [4, 3, 2, 1, 0]),
        (["--until", "1h"], []),
        (["--since", "2020-01-31", "--until", "2020-01-31T12:00"], []),
        (["--state", "failed", "--since", "2020-01-31T12:00+02:00"], [3, 1]),
        (["--limit", "2"], [4, 3]),
        (["--limit", "1", "--state", "new", "--application", "load"], [4]),
        (["--look", "2", "--state", "processed"], []),
        (["--before", MORE[2]], [1, 0]),
        (["--before", MORE[2], "--state", "new", "--application", "load"], [1]),
        (["--before", MORE[1], "--state", "processed", "--application", "shred"], [0]),
    ],
    ids=lambda part: " ".join(part) if part and isinstance(part[0], str) else "",
)
def test_query_finds_items_by_how_they_stand(ask: Any, arguments: list[str], numbers: list[int]) -> None:
    code, answer = ask("query", *arguments)
    assert names(answer) == [MORE[number] for number in numbers]
    assert code == (0 if numbers else 4)


def test_query_shows_the_record_that_says_so(ask: Any, run: Any) -> None:
    _, answer = ask("query", "--state", "failed")
    first = answer["items"][0]
    assert (first["state"], first["application"], first["note"]) == ("Failed", "shred", "permanent: no such schema")
    _, out, _ = run("query", "--state", "failed")
    head, first, second, last = out.splitlines()
    assert head.split() == ["item", "state", "application", "time", "(UTC)", "author"]
    assert first.split()[:3] == [MORE[3], "Failed", "shred"]
    assert re.search(r"load +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  ", second)
    assert last == "2 found; searched 2 items, these are all"


def test_query_says_how_far_it_looked_and_how_to_go_on(run: Any, ask: Any) -> None:
    assert run("query", "--limit", "2")[1].endswith(f"searched 2 items, there may be more: --before {MORE[3]}\n")
    assert run("query", "--look", "2", "--state", "processed")[1] == (
        f"0 found; searched 2 items, there may be more: --before {MORE[3]}\n"
    )
    assert run("query", "--look", "2", "--state", "failed")[1].endswith("searched 2 items, to search more, use --look\n")
    told, before = [], None
    while True:
        _, answer = ask("query", "--limit", "2", *(["--before", before] if before else []))
        told += names(answer)
        before = answer["before"]
        if before is None:
            break
    assert told == MORE[::-1]
    told, before = [], None
    while True:
        _, answer = ask(
            "query", "--state", "new", "--application", "load", "--limit", "2", *(["--before", before] if before else [])
        )
        told += names(answer)
        before = answer["before"]
        if before is None:
            break
    assert told == MORE[:0:-1]


def test_query_reads_no_more_than_it_must(shop: Shop) -> None:
    from manifest_platform.manifest import Application, State

    with shop.pipeline() as pipeline:
        pipeline.manifest.discover("enriched", [])
        before = pipeline.manifest.store.requests
        search(pipeline.manifest, Search("enriched", State.PROCESSED, Application(LOAD)), 1, 100)
        assert pipeline.manifest.store.requests - before <= 4


def test_a_skip_is_found_for_whom_it_counts(run: Any, ask: Any) -> None:
    run("skip", MORE[4], "--reason", "not needed", "--application", "shred")
    assert names(ask("query", "--state", "skipped", "--application", "shred")[1]) == [MORE[4]]
    assert names(ask("query", "--state", "skipped", "--application", "load")[1]) == []
    assert names(ask("query", "--state", "skipped")[1]) == [MORE[4]]
    assert names(ask("query", "--state", "new", "--application", "shred")[1]) == [MORE[3]]
    assert names(ask("query", "--state", "new", "--application", "sessions")[1]) == MORE[::-1]
    run("skip", MORE[3], "--reason", "not needed")
    assert names(ask("query", "--state", "new", "--application", "sessions")[1]) == [MORE[4], *MORE[2::-1]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["query", "--state", "lost"], 2, "'lost' is not one of"),
        (
            ["query", "--since", "soon"],
            2,
            "--since soon: write a time such as 2026-01-31T12:00 (UTC), or an age such as 30m or 7d",
        ),
        (["query", "--feed", "other"], 1, "declares no feed 'other'"),
        (["dump", "--feed", "other"], 1, "declares no feed 'other'"),
        (["import", "/nowhere"], 2, "cannot read /nowhere: "),
        (["cost", "run=2020-01-01-00-00-00"], 1, "was it discovered?"),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Any, arguments: list[str], code: int, message: str) -> None:
    got, _, err = run(*arguments)
    assert (got, message in err) == (code, True)


def test_a_dump_is_imported_and_dumped_again(shop: Shop, run: Any, ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "acme.jsonl"
    code, out, _ = run("dump")
    assert code == 0
    file.write_text(out)
    lines = [json.loads(line) for line in out.splitlines()]
    assert (lines[0]["kind"], lines[0]["dataset"], lines[-1]["rows"]) == ("dump", "acme", len(lines) - 2)
    shop.file.write_text(shop.file.read_text() + f"manifest: {{store: 'sqlite:///{tmp_path}/other.db'}}\n")
    assert run("import", str(file))[:2] == (0, f"dataset acme: {len(lines) - 2} rows imported, 0 were there already\n")
    assert run("dump")[1] == out
    code, answer = ask("import", str(file))
    assert (code, answer) == (4, {"dataset": "acme", "written": 0, "there": len(lines) - 2})
    assert run("next")[0] == 0
    run("skip", MORE[4], "--reason", "not needed")
    code, _, err = run("import", str(file))
    assert code == 1
    assert "which the dump lacks" in err or "already" in err


def test_a_feeds_log_is_enough_for_the_doctor(shop: Shop, run: Any, ask: Any, tmp_path: Path) -> None:
    status = ask("status")[1]["steps"]
    file = tmp_path / "enriched.jsonl"
    file.write_text(run("dump", "--feed", "enriched")[1])
    shop.file.write_text(shop.file.read_text() + f"manifest: {{store: 'sqlite:///{tmp_path}/other.db'}}\n")
    assert run("import", str(file))[0] == 0
    assert run("doctor", "--no-warehouse")[0] == 1
    assert run("doctor", "--no-warehouse", "--repair")[0] == 0
    assert [step["counts"] for step in ask("status")[1]["steps"]] == [step["counts"] for step in status]
    assert [step["watermark"] for step in ask("status")[1]["steps"]] == [step["watermark"] for step in status]


def test_times_of_a_query_are_utc() -> None:
    from manifest_platform.cli.query import _time

    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert _time("since", "2026-01-31T10:00", now) == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert _time("since", "2026-01-31", now) == datetime(2026, 1, 31, tzinfo=UTC)
    assert _time("since", "30m", now) == now - timedelta(minutes=30)
    assert _time("since", "7d", now) == now - timedelta(days=7)


def test_cost_of_an_item_and_of_the_newest(ask: Any, run: Any) -> None:
    code, answer = ask("cost", MORE[0])
    [item] = answer["items"]
    assert (code, item["records"], item["rows"], item["transactions"]) == (0, 5, 5, 5)
    assert 1500 < item["bytes"] < 4000
    assert 18 <= item["units"]["write"] <= 26
    code, answer = ask("cost", "--last", "4")
    assert [one["item"]["name"] for one in answer["items"]] == MORE[:0:-1]
    assert answer["average"]["records"] == round(sum(one["records"] for one in answer["items"]) / 4, 1)
    head, first, second = run("cost")[1].splitlines()
    assert head.split() == ["records", "rows", "size", "transactions", "write", "units", "read", "units"]
    assert first.startswith("average of 5 ")
    assert second.startswith(f"most: {MORE[0]} ") or second.startswith(f"most: {MORE[1]} ")
    head, row = run("cost", MORE[0])[1].splitlines()
    assert row.startswith(f"{MORE[0]}  5        5     ")


def test_cost_of_an_archived_item_is_of_the_rows_that_are_left(ask: Any, run: Any, shop: Shop) -> None:
    assert run("skip", MORE[1], "--application", LOAD, "--reason", "no")[0] == 0
    shop.work(LOAD, MORE[2])  # the watermark leaves the first behind
    _, before = ask("cost", MORE[0])
    with shop.pipeline() as pipeline:
        archive(pipeline.manifest, FEED, datetime.now(UTC) + timedelta(hours=1), f"{shop.landing}-archive", False)
        manifest = pipeline.manifest
        manifest.commit_output(pipeline.key(MORE[0]), Application("sessions"), Payload(OUTPUT, {}))
        rows = [row for row in manifest.store.query(manifest.dataset, "") if pipeline.key(MORE[0]).position in row.sort]
        left = sum(
            len(manifest.dataset) + len(row.sort) + 25 + len(json.dumps(row.data, separators=(",", ":"))) for row in rows
        )
    _, after = ask("cost", MORE[0])
    [was], [now] = before["items"], after["items"]
    assert (now["records"], now["rows"], now["bytes"]) == (was["records"] + 2, len(rows), left)
    assert len(rows) == 3


def test_nothing_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(config.VARIABLE, str(Shop(tmp_path).file))
    assert main(["cost"]) == 4
    assert main(["query"]) == 4
    assert main(["doctor", "--no-objects"]) == 0
    assert "0 items: nothing is wrong" in capsys.readouterr().out


# Every message names the item, the cause and the command


@pytest.fixture
def stepped(shop: Shop) -> Shop:
    """The shop with a step of its own, for which a run waits."""
    steps = "    steps: [{name: count, upstream: [shred]}, {name: publish, upstream: [count], order: strict}]\n"
    shop.file.write_text(f"{shop.file.read_text().rstrip()}\n{steps}")
    assert main(["doctor", "--repair", "--no-warehouse"]) == 0
    return shop


def test_steps_of_ones_own_have_a_status_and_commands(stepped: Shop, run: Any, ask: Any) -> None:
    stepped.add("beta")
    code, answer = ask("next", "--dataset", "acme", "--config", str(stepped.file))
    assert [step["step"] for step in answer["next"]] == ["shred", "load", "count", "publish"]
    given = f"--dataset acme --config {stepped.file} -- COMMAND"
    assert [step["command"] for step in answer["next"]][2:] == [f"manifest-platform run --application count {given}"] * 2
    assert (code, answer["next"][2]["answer"], answer["next"][3]["answer"]) == (0, "READY", "WAITING")
    assert main(["run", "--application", "count", "--dataset", "acme", "--", "true"]) == 0
    assert main(["run", "--application", "publish", "--dataset", "acme", "--", "true"]) == 0
    out = run("status", "--dataset", "acme")[1]
    assert re.search(r"\ncount READY: ", out)
    assert re.search(rf"\npublish WAITING: {MORE[1]} comes next", out) or re.search(r"\npublish BLOCKED", out)
    assert f"      watermark   {MORE[0]} (2024-05-14 12:00:00 UTC)" in out.partition("\npublish ")[2]


def test_status_names_a_command_for_what_failed_and_what_is_set_aside(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    shop = Shop(tmp_path, late="quarantine")
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    main(["discover"])
    shop.load_all(*RUNS[:2])
    shop.work(SHRED, RUNS[2], failure="no such schema")
    shop.land("run=2024-05-14-12-05-00")
    capsys.readouterr()
    assert main(["discover"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 quarantined: run=2024-05-14-12-05-00",
        "quarantined because they are behind the watermark; to see what to do: manifest-platform explain"
        " run=2024-05-14-12-05-00",
    ]
    assert main(["status"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert f" failed {RUNS[2]}: manifest-platform explain {RUNS[2]} " in out
    assert " quarantined run=2024-05-14-12-05-00: manifest-platform explain run=2024-05-14-12-05-00 " in out


def test_a_changed_directory_is_told_with_its_cause_and_command(shop: Shop, run: Any) -> None:
    shop.land(MORE[4], content="another event")
    _, _, err = run("discover")
    assert f"{MORE[4]} changed after discovery; the first content counts. Restore it, then run manifest-platform" in err
    assert err.endswith(f"If it was rewritten on purpose, run manifest-platform accept {MORE[4]} --reason TEXT\n")


def test_a_worker_that_is_gone_is_told_with_item_cause_and_command(shop: Shop, ask: Any) -> None:
    with shop.pipeline() as pipeline, pipeline.lease(FEED, SHRED) as lease:
        pipeline.manifest.claim(lease, [pipeline.manifest.item(pipeline.key(MORE[4]))])
    told = ask("explain", MORE[4])[1]["text"]
    assert re.search(
        r"shred began to work on it at .*, and that worker is gone \(its lease was given back\)\. `manifest-pl", told
    )
    found = ask("doctor", "--no-warehouse")[1]["findings"]
    assert [(one["kind"], one["key"]["name"], one["command"]) for one in found] == [
        ("dead_claim", MORE[4], "manifest-platform doctor --repair")
    ]


def test_a_lease_that_is_held_is_told_with_what_to_do(shop: Shop, run: Any) -> None:
    with shop.pipeline() as pipeline, pipeline.lease(FEED, SHRED), pipeline.lease(FEED, LOAD):
        pipeline.manifest.skip(pipeline.key(MORE[1]), "it blocks the load")
        out = run("drain")[1]
    assert "and longer while it lives: wait next: manifest-platform status" in " ".join(out.split())


@pytest.mark.parametrize(
    "arguments",
    [["explain", RUNS[0]], ["query", "--state", "failed"], ["cost"], ["dump"], ["doctor", "--no-warehouse", "--no-objects"]],
)
def test_tools_import_nothing_heavy(shop: Shop, arguments: list[str]) -> None:
    heavy = {"dagster", "pyspark", "pyarrow", "pandas", "numpy", "duckdb", "boto3", "botocore", "jsonschema"}
    heavy -= {"jsonschema"} if arguments[0] == "doctor" else set()  # it checks every payload
    script = f"""
import sys
from manifest_platform.cli import main
main({arguments!r})
print(sorted({heavy!r} & {{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
