import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.manifest import OUTPUT, Application, Failure, FailureKind, Idle, Payload, Ready
from manifest_platform.pipeline import LOAD, SHRED, DrainReport, Loaded, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.settings import FEED

RUNS = ["run=2024-05-14-12-00-00", "run=2024-05-14-12-10-00", "run=2024-05-14-12-20-00"]
LATE = "run=2024-05-14-12-05-00"


class Shop:
    """A dataset with a landing directory and a manifest, and no Spark and no warehouse behind it."""

    def __init__(self, home, late: str = "append"):
        self.landing = home / "landing"
        self.landing.mkdir()
        (home / "schemas").mkdir()
        self.file = home / "platform.yaml"
        self.file.write_text(
            textwrap.dedent(f"""
            datasets:
              acme:
                landing: {{root: landing}}
                shred: {{output: shredded, schemas: [schemas]}}
                load: {{late: {late}}}
            """)
        )

    def add(self, dataset: str) -> None:
        """Configures one more dataset."""
        self.landing.with_name(dataset).mkdir()
        text = f"  {dataset}:\n    landing: {{root: {dataset}}}\n    shred: {{output: {dataset}-out, schemas: [schemas]}}\n"
        self.file.write_text(self.file.read_text() + text)

    def land(self, *names: str, content: str = "event") -> None:
        for name in names:
            directory = self.landing / name
            directory.mkdir(exist_ok=True)
            (directory / "part-0").write_text(content)
            (directory / "_SUCCESS").touch()

    def pipeline(self) -> Pipeline:
        return Pipeline(config.load(self.file), "acme")

    def work(self, application: str, name: str, failure: str | None = None, **counts: Any) -> None:
        """Does a step's work on the item that is next, as far as the manifest can tell."""
        with self.pipeline() as pipeline, pipeline.lease(FEED, application) as lease:
            verdict = pipeline.manifest.next(FEED, application, holding=True)
            assert isinstance(verdict, Ready)
            assert verdict.item.key.name == name
            [claim] = pipeline.manifest.claim(lease, [verdict.item], verdict.state)
            if failure:
                pipeline.manifest.fail(claim, Failure(FailureKind.PERMANENT, failure))
            else:
                pipeline.manifest.complete(claim, Payload(OUTPUT, {"rows": {"events": 1}, "bytes": 2_500_000, **counts}))

    def load_all(self, *names: str) -> None:
        for application in (SHRED, LOAD):
            for name in names:
                self.work(application, name)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    return shop


@pytest.fixture
def run(capsys):
    def _run(*arguments: str):
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return _run


@pytest.fixture
def ask(run):
    """Runs a command with --json; its exit code and the one document on stdout."""

    def _ask(*arguments: str):
        code, out, _ = run(*arguments, "--json")
        return code, json.loads(out)

    return _ask


def test_discover_registers_once_and_then_has_nothing_to_do(shop, run):
    shop.land(*RUNS)
    code, out, err = run("discover")
    assert (code, err) == (0, "")
    assert out == f"3 new: {', '.join(RUNS)}\n"
    assert run("discover")[:2] == (4, "nothing new; 3 known\n")


def test_discover_warns_of_what_it_leaves_alone(shop, run):
    shop.land(*RUNS)
    assert run("discover")[0] == 0
    shop.land(RUNS[0], content="another event")
    shop.land("run=2024-05-14-copy")
    (shop.landing / LATE).mkdir()
    code, out, err = run("discover")
    assert code == 4
    assert f"1 not complete yet: {LATE}" in out
    changed, unparseable = err.splitlines()
    assert f"{RUNS[0]} changed after discovery" in changed
    assert "Restore it" in changed
    assert "run=2024-05-14-copy" in unparseable
    assert "left alone" in unparseable


def test_discover_warns_of_runs_from_the_future(shop, run, ask):
    ahead = f"run={datetime.now(UTC) + timedelta(days=3):%Y-%m-%d-%H-%M-%S}"
    shop.land(ahead)
    code, out, err = run("discover")
    assert (code, out) == (4, "nothing new; 0 known\n")
    assert re.fullmatch(rf"warning: {ahead} in .*: dated more than a day in the future, not registered; .*\n", err)
    assert ask("discover")[1]["future"] == [ahead]


def test_discover_warns_of_runs_that_are_known_under_another_uri(shop, run):
    shop.land(*RUNS[:2])
    run("discover")
    shop.landing.rename(shop.landing.with_name("elsewhere"))
    shop.file.write_text(shop.file.read_text().replace("root: landing", "root: elsewhere"))
    code, _, err = run("discover")
    assert code == 4
    assert err.startswith(f"warning: {', '.join(RUNS[:2])} in ")
    assert "known under another URI, not registered; if the landing root was moved, " in err


def test_discover_names_late_runs_and_looks_back_on_demand(shop, ask):
    old = "run=2020-01-01-00-00-00"
    shop.land(*RUNS)
    ask("discover")
    shop.load_all(*RUNS)
    shop.land(LATE, old)
    code, found = ask("discover")
    assert (code, found["late"], found["new"]) == (0, [LATE], [])
    assert ask("discover", "--all")[1]["late"] == [old]


def test_a_landing_root_that_is_not_there_fails_without_a_traceback(shop, run):
    shop.landing.rmdir()
    code, out, err = run("discover")
    assert (code, out) == (1, "")
    assert re.fullmatch(r"error: datasets.acme.landing.root: landing root .* does not exist; .*\n", err)


def test_next_is_idle_then_ready_then_blocked(shop, ask):
    code, answer = ask("next")
    assert (code, [step["answer"] for step in answer["next"]]) == (4, ["IDLE", "IDLE"])
    shop.land(*RUNS)
    ask("discover")
    code, answer = ask("next")
    assert (code, [step["answer"] for step in answer["next"]]) == (0, ["READY", "WAITING"])
    assert answer["next"][0]["item"] == RUNS[0]
    for name in RUNS[:1]:
        shop.work(SHRED, name, failure="no such schema")
    for name in RUNS[1:]:
        shop.work(SHRED, name)
    code, answer = ask("next")
    assert code == 3
    load = answer["next"][1]
    assert (load["answer"], load["item"]) == ("BLOCKED", RUNS[0])
    assert load["reason"] == "shred failed: no such schema"
    assert load["command"] == f"manifest-platform resolve {RUNS[0]}"
    assert load["since"].endswith("Z")


def test_the_printed_command_is_the_one_that_helps(shop, run):
    shop.land(RUNS[0])
    run("discover")
    shop.work(SHRED, RUNS[0], failure="no such schema")
    _, out, _ = run("next")
    commands = re.findall(r"command +manifest-platform (.*)", out)
    assert commands == [f"resolve {RUNS[0]}"] * 2
    assert run(*commands[0].split())[0] == 0
    assert run("next")[0] == 0


def test_the_printed_command_names_the_configuration_that_was_named(shop, ask, monkeypatch):
    monkeypatch.delenv(config.VARIABLE)
    shop.land(RUNS[0])
    ask("discover", "--config", str(shop.file))
    shop.work(SHRED, RUNS[0], failure="no such schema")
    _, answer = ask("--config", str(shop.file), "next")
    assert answer["next"][1]["command"] == f"manifest-platform resolve {RUNS[0]} --config {shop.file}"


@pytest.mark.parametrize("how", ["next", "status", "drain"])
def test_the_printed_command_names_the_dataset_where_there_are_several(shop, run, ask, how):
    shop.add("beta")
    shop.land(*RUNS[:2])
    ask("discover", "--dataset", "acme")
    _, answer = ask("next", "--dataset", "acme")
    assert answer["next"][0]["command"] == "manifest-platform drain --dataset acme"
    shop.work(SHRED, RUNS[0], failure="no such schema")
    shop.work(SHRED, RUNS[1])
    _, out, _ = run(how, "--dataset", "acme") if how != "status" else run("status")
    commands = re.findall(r"(?:command +|next: )manifest-platform (.*)", out)
    assert f"resolve {RUNS[0]} --dataset acme" in commands
    assert all(command.endswith(" --dataset acme") and command.count("--dataset") == 1 for command in commands)
    assert run(*commands[-1].split())[0] == 0


def test_status_of_an_untouched_dataset(shop, run):
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert "watermark   none: nothing is loaded yet" in out
    assert out.count("IDLE") == 2


def test_status_shows_what_an_operator_must_know(shop, run):
    shop.land(*RUNS)
    run("discover")
    shop.work(SHRED, RUNS[0])
    shop.work(SHRED, RUNS[1], failure="no such schema")
    shop.work(SHRED, RUNS[2])
    shop.work(LOAD, RUNS[0])
    code, out, _ = run("status")
    assert code == 3
    shred, load = out.split("load  ")
    assert shred.startswith(f"dataset acme, feed enriched, landing at {shop.landing}\nshred BLOCKED by {RUNS[1]}")
    assert load.startswith(f"BLOCKED by {RUNS[1]}\n")
    assert f"command     manifest-platform resolve {RUNS[1]}" in load
    assert f"watermark   {RUNS[0]} (2024-05-14 12:00:00 UTC)" in load
    assert "items       APPLIED 1, FAILED 1, READY 1" in load
    assert f"failed      {RUNS[1]}" in load
    assert re.search(r"lag         \d+ s; the oldest was discovered at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", load)
    assert re.search(r"since       \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+ s\)", load)
    assert all(len(line) <= 100 for line in out.splitlines()[1:])


def test_status_reports_bad_rows(shop, ask, run):
    shop.land(*RUNS)
    run("discover")
    shop.work(SHRED, RUNS[0], lines=100, good=100, bad=0)
    assert "bad rows" not in run("status")[1]
    shop.work(SHRED, RUNS[1], lines=50, good=46, bad=4)
    shop.work(SHRED, RUNS[2], lines=1000, good=990, bad=10)
    shown = " ".join(run("status")[1].split())
    assert f"bad rows 14 of 1,150 lines of the newest 3 items; most in {RUNS[1]}: 4 of 50 (8.0%) lease" in shown
    shred, load = ask("status")[1]["steps"]
    assert (shred["bad_rows"]["bad"], load["bad_rows"]) == (14, None)
    assert [one["name"] for one in shred["bad_rows"]["found"]] == [RUNS[1], RUNS[2]]


def test_status_says_who_holds_the_lease_until_when(shop, ask, run):
    with shop.pipeline() as pipeline, pipeline.lease(FEED, LOAD):
        _, answer = ask("status")
        lease = answer["steps"][1]["lease"]
        assert lease["holder"].endswith(f":{os.getpid()}")
        assert lease["token"] == 1
        assert lease["until"].endswith("Z")
        assert f"held by {lease['holder']} until " in run("status")[1]
    assert ask("status")[1]["steps"][1]["lease"] is None


@pytest.mark.parametrize("policy", ["append", "quarantine"])
def test_status_names_what_arrived_behind_the_watermark(tmp_path, monkeypatch, ask, policy):
    shop = Shop(tmp_path, late=policy)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    ask("discover")
    shop.load_all(*RUNS)
    shop.land(LATE)
    ask("discover")
    shop.work(SHRED, LATE)
    _, answer = ask("status")
    load = answer["steps"][1]
    if policy == "append":
        assert (load["late"], load["quarantined"]) == ([LATE], [])
        assert (load["outlook"]["answer"], load["outlook"]["item"]) == ("READY", LATE)
    else:
        assert (load["late"], load["quarantined"]) == ([], [LATE])
        assert load["outlook"]["answer"] == "IDLE"
    assert load["watermark"] == RUNS[-1]


def test_an_item_in_work_is_processing_and_after_its_worker_is_gone_ready(shop, ask):
    shop.land(RUNS[0])
    ask("discover")
    shop.work(SHRED, RUNS[0])
    with shop.pipeline() as pipeline:
        lease = pipeline.manifest.acquire(FEED, LOAD, "somebody", timedelta(seconds=60))
        verdict = pipeline.manifest.next(FEED, LOAD)
        assert isinstance(verdict, Ready)
        pipeline.manifest.claim(lease, [verdict.item], verdict.state)
        code, answer = ask("next")
        assert (code, answer["next"][1]["answer"]) == (3, "PROCESSING")
        lease.release()
    code, answer = ask("next")
    assert (code, answer["next"][1]["answer"]) == (0, "READY")
    assert "its worker is gone" in answer["next"][1]["reason"]


def test_history_shows_every_record(shop, run, ask):
    shop.land(RUNS[0])
    run("discover")
    shop.work(SHRED, RUNS[0], failure="no such schema")
    run("resolve", RUNS[0], "--reason", "schema published")
    shop.work(SHRED, RUNS[0])
    shop.work(LOAD, RUNS[0])
    code, out, _ = run("history", RUNS[0])
    assert code == 0
    records = [line.split() for line in out.splitlines() if re.match(r"\d", line)]
    assert [record[3] for record in records] == [
        *("New", "Processing", "Failed", "Resolved", "Processing", "Processed", "Processing", "Processed")
    ]
    assert [record[0] for record in records] == [str(number) for number in range(1, 9)]
    for note in ("1 files, 5 B", "permanent: no such schema", "schema published", "1 rows, 2.5 MB"):
        assert f"\n   {note}" in out
    assert out.splitlines()[-1].strip() == "1 rows, 2.5 MB (APPLIED)"
    assert out.count("APPLIED") == 1
    _, document = ask("history", f"file://{shop.landing / RUNS[0]}")
    with shop.pipeline() as pipeline:
        assert document["records"] == [record.to_dict() for record in pipeline.manifest.history(pipeline.key(RUNS[0]))]


@pytest.mark.parametrize(
    ("data", "note"),
    [
        ({"prefix": "file:///out/sessions-1", "rows": 1234}, "1,234 rows, in file:///out/sessions-1"),
        ({"rows": 3, "bytes": 2000, "late": True}, "3 rows, 2.0 kB"),
        ({"rows": {"a": 7}, "lines": 3, "prefix": "out"}, "in out"),
    ],
)
def test_history_shows_the_output_of_an_asset_that_is_no_step(shop, run, data, note):
    shop.land(RUNS[0])
    run("discover")
    with shop.pipeline() as pipeline:
        pipeline.manifest.commit_output(pipeline.key(RUNS[0]), Application("sessions"), Payload(OUTPUT, data))
    code, out, err = run("history", RUNS[0])
    assert (code, err) == (0, "")
    assert re.search(r"Processed +sessions ", out)
    assert "APPLIED" not in out
    assert out.splitlines()[-1] == f"   {note}"


def test_history_shows_rows_of_a_load_that_counts_them_in_one(shop, run):
    shop.land(RUNS[0])
    run("discover")
    shop.work(SHRED, RUNS[0])
    with shop.pipeline() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        ready = pipeline.manifest.next(FEED, LOAD, holding=True)
        [claim] = pipeline.manifest.claim(lease, [ready.item], ready.state)
        pipeline.manifest.complete(claim, Payload(OUTPUT, {"rows": 1234}))
    assert run("history", RUNS[0])[1].splitlines()[-1] == "   1,234 rows (APPLIED)"


def test_a_user_without_a_name_is_recorded_by_number(shop, run, ask, monkeypatch):
    shop.land(RUNS[0])
    run("discover")
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def getpwuid(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    code, document = ask("skip", RUNS[0], "--reason", "test data")
    assert code == 0
    assert document["record"]["author"].startswith(f"uid {os.getuid()} (manifest-platform ")


def test_an_operators_decisions_are_recorded_with_author_and_reason(shop, run, ask):
    shop.land(RUNS[0])
    run("discover")
    shop.work(SHRED, RUNS[0], failure="no such schema")
    code, out, _ = run("skip", RUNS[0], "--reason", "test data")
    assert code == 0
    assert out.startswith(f"{RUNS[0]}: Skipped by ")
    assert run("next")[0] == 4
    assert run("unskip", RUNS[0], "--reason", "it was not")[0] == 0
    assert run("next")[0] == 3
    _, document = ask("resolve", RUNS[0], "--reason", "mended")
    assert document["record"]["payload"]["data"] == {"reason": "mended"}
    records = ask("history", RUNS[0])[1]["records"]
    assert [(one["state"], one["payload"]["data"].get("reason")) for one in records[3:]] == [
        ("Skipped", "test data"),
        ("New", "it was not"),
        ("Resolved", "mended"),
    ]
    assert all("(manifest-platform " in one["author"] for one in records[3:])


def test_one_application_alone_can_be_told_to_skip(shop, ask):
    shop.land(RUNS[0])
    ask("discover")
    ask("skip", RUNS[0], "--reason", "not needed", "--application", "load")
    _, answer = ask("next")
    assert [step["answer"] for step in answer["next"]] == ["READY", "IDLE"]


def test_what_shred_alone_is_told_to_skip_blocks_the_load_until_unskip(shop, ask):
    shop.land(RUNS[0])
    ask("discover")
    ask("skip", RUNS[0], "--reason", "not needed", "--application", "shred")
    code, answer = ask("status")
    outlook = answer["steps"][1]["outlook"]
    assert (code, outlook["answer"], outlook["command"]) == (3, "BLOCKED", f"manifest-platform unskip {RUNS[0]}")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["resolve", RUNS[0]], 1, "is not blocked"),
        (["unskip", RUNS[0]], 1, "neither skipped nor set aside"),
        (["skip", RUNS[0], "--reason", "x", "--application", "merge"], 1, "no step of feed enriched is called merge"),
        (["history", "run=2029-11-30-23-59-59"], 1, "no item run=2029-11-30-23-59-59; was it discovered?"),
        (["history", RUNS[0][:-1]], 1, f"no item {RUNS[0][:-1]}; did you mean {RUNS[0]}"),
        (["history", RUNS[0].replace("run=", "rum=")], 2, f"did you mean {RUNS[0]}"),
        (["history", "yesterday"], 2, "is neither a run name"),
        (["history", "ftp://host/run=2024-05-14-12-00-00"], 2, "only local paths, file:// and s3://"),
        (["skip", RUNS[0]], 2, "Missing option '--reason'"),
        (["history"], 2, "name an item, or a run"),
        (["repair"], 2, "No such command 'repair'"),
        (["status", "--verbose"], 2, "No such option"),
        (["drain", "--items", "0"], 2, "--items"),
        (["status", "--dataset", "beta"], 2, "'beta' is not configured; configured are: acme"),
        (["status", "--config", "/nowhere.yaml"], 2, "no configuration at /nowhere.yaml"),
        (["sql", "SELECT 1"], 1, "there is no warehouse"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(shop, run, arguments, code, message):
    shop.land(RUNS[0])
    run("discover")
    got, out, err = run(*arguments)
    assert (got, out) == (code, "")
    assert message in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("error: ")
    got, out, _ = run(*arguments, "--json")
    assert got == code
    assert message in json.loads(out)["error"]["message"]


def test_options_may_stand_before_the_command(shop, run):
    assert json.loads(run("--json", "--dataset", "acme", "next")[1])["next"]
    assert run("--dataset", "beta", "next")[0] == 2


def test_no_command_shows_the_commands(run):
    code, out, err = run()
    assert code == 2
    assert "Exit codes:\n" in out + err


def test_a_drain_without_work_starts_no_spark(shop, ask, monkeypatch):
    monkeypatch.setattr("manifest_platform.spark.session", lambda *_: pytest.fail("Spark was started"))
    code, ended = ask("drain", "--no-discover")
    assert (code, ended["event"], ended["stop"]) == (4, "ended", "idle")


@pytest.fixture
def drained(monkeypatch):
    """The feeds that drains were asked for; none of them does anything."""
    asked = []

    def _drain(pipeline, spark, budget, feeds, targets):
        asked.append(pipeline.manifest.next(FEED, SHRED))
        yield DrainReport(shredded=0)

    monkeypatch.setattr("manifest_platform.cli.drain.draining", _drain)
    return asked


def test_a_drain_registers_first_what_has_landed_and_says_what_it_found(shop, run, drained):
    shop.land(*RUNS)
    (shop.landing / LATE).mkdir()
    shop.land("Run=2024-05-14-12-30-00")
    _, out, err = run("drain")
    assert out.startswith(f"3 new: {', '.join(RUNS)}\n1 not complete yet: {LATE}")
    assert "Run=2024-05-14-12-30-00" in err
    assert isinstance(drained[0], Ready), "what was registered is there for the drain"
    out = run("drain")[1]
    assert out.startswith(f"1 not complete yet: {LATE}") and "\nnothing new; 3 known\n" in out


def test_a_drain_may_leave_discovery_to_others(shop, run, drained):
    shop.land(*RUNS)
    code, out, _ = run("drain", "--no-discover")
    assert (code, isinstance(drained[0], Idle)) == (4, True)
    assert "new" not in out


def test_a_drain_says_as_json_what_it_found(shop, run, drained):
    shop.land(*RUNS)
    found, ended = map(json.loads, run("drain", "--json")[1].splitlines())
    assert (found["event"], found["new"], ended["event"]) == ("discovered", RUNS, "ended")


def test_what_is_registered_is_drained_though_the_landing_root_cannot_be_listed(shop, run, drained):
    shop.land(RUNS[0])
    run("discover")
    shop.landing.rename(shop.landing.with_name("unmounted"))
    code, _, err = run("drain")
    assert code == 1, "that nobody looked is not nothing to do"
    assert isinstance(drained[0], Ready)
    assert re.fullmatch(
        r"error: datasets.acme.landing.root: landing root .* does not exist; .*\. The drain works on the items that are"
        r" registered already\n",
        err,
    )
    event, _ = map(json.loads, run("drain", "--json")[1].splitlines())
    assert (event["event"], "does not exist" in event["reason"]) == ("not_discovered", True)


def test_a_drain_that_finds_another_at_work_ends_well_and_says_so(shop, run):
    shop.land(RUNS[0])
    run("discover")
    with shop.pipeline() as pipeline, pipeline.lease(FEED, SHRED):
        code, out, _ = run("drain")
    assert code == 0, "the other one goes on to where this one would come"
    assert re.search(r"stopped: busy\nshred on feed enriched is held by .* until \d{4}-", out)


def test_a_spark_that_does_not_start_fails_no_item(shop, run, ask, tmp_path):
    (tmp_path / "broken.conf").write_text("spark.master\n")
    shop.file.write_text(shop.file.read_text() + "spark: {conf: broken.conf}\n")
    shop.land(RUNS[0])
    run("discover")
    code, out, _ = run("drain")
    assert code == 1
    assert "broken.conf, line 1: 'spark.master' is not a property" in " ".join(out.split())
    assert [record["state"] for record in ask("history", RUNS[0])[1]["records"]] == ["New"]


def test_a_drain_that_a_failed_item_stops_is_blocked_and_says_what_to_do(shop, run, ask):
    shop.land(RUNS[0])
    run("discover")
    shop.work(SHRED, RUNS[0], failure="no such schema")
    code, out, _ = run("drain")
    assert code == 3
    assert f"next: manifest-platform resolve {RUNS[0]}" in out
    assert ask("drain", "--no-discover")[1]["command"] == f"manifest-platform resolve {RUNS[0]}"


def test_sql_reads_and_cannot_write(shop, run, ask):
    import duckdb

    path = Path(config.load(shop.file).warehouse.place)
    path.parent.mkdir(parents=True)
    with duckdb.connect(path) as connection:
        connection.execute("CREATE SCHEMA acme")
        connection.execute("CREATE TABLE acme.events AS SELECT 1 AS n, TIMESTAMP '2024-05-14 12:00:00' AS at")
    assert run("sql", "SELECT * FROM events")[1].splitlines() == [
        "n  at",
        "─  ───────────────────",
        "1  2024-05-14 12:00:00",
        "(1 row)",
    ]
    assert ask("sql", "SELECT * FROM events")[1] == {"rows": [{"n": 1, "at": "2024-05-14 12:00:00"}]}
    for query in ("DELETE FROM events", "DROP TABLE events", f"COPY events TO '{shop.landing}/x.csv'", "SELECT * FROM nothing"):
        code, out, err = run("sql", query)
        assert (code, out) == (1, "")
        assert err.startswith("error: ")
    assert not list(shop.landing.iterdir())


HEAVY = {"dagster", "pyspark", "pyarrow", "pandas", "numpy", "duckdb", "boto3", "botocore", "httpx"}


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["next"], ["discover"], ["history", RUNS[0]], ["resolve", RUNS[0]], ["skip", RUNS[0], "--reason", "x"]],
)
def test_operator_commands_import_nothing_heavy(shop, run, arguments):
    shop.land(RUNS[0])
    run("discover")
    script = f"""
import sys
from manifest_platform.cli import main
main({arguments!r})
print(sorted({HEAVY!r} & {{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


WORKING = [f"manifest_platform.{part}" for part in ("pipeline.drain", "pipeline.loading", "merging.state", "shred.batch")]
WORKING += ["manifest_platform.warehouse.apply", "manifest_platform.warehouse.tables"]


@pytest.mark.parametrize("command", ["status", "next"])
def test_to_ask_how_things_stand_imports_nothing_that_works(shop, command):
    script = f"""
import sys
from manifest_platform.cli import main
main([{command!r}])
print(sorted({{*{WORKING!r}, *{HEAVY!r}, "jsonschema"}} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_no_time_goes_into_garbage_among_what_is_imported(shop):
    script = """
import atexit, gc, sys
before = []
atexit.register(lambda: print([gc.get_stats()[0]["collections"] - before[0], gc.get_freeze_count() > 50_000], file=sys.stderr))
from manifest_platform.cli import main
before.append(gc.get_stats()[0]["collections"])
sys.argv = ["manifest-platform", "status"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] in ("[0, True]", "[1, True]")


def test_a_query_ends_without_a_word_of_what_the_interpreter_leaves(shop):
    """When imported objects were frozen at exit, DuckDB reported a hundred leaks after every answer."""
    import duckdb

    path = Path(config.load(shop.file).warehouse.place)
    path.parent.mkdir(parents=True)
    duckdb.connect(path).close()
    done = subprocess.run(
        [sys.executable, "-m", "manifest_platform", "sql", "SELECT 1 AS n"], capture_output=True, text=True, check=True
    )
    assert (done.stdout.splitlines()[-1], done.stderr) == ("(1 row)", "")


def test_the_module_is_the_command_and_its_exit_code_arrives(shop):
    done = subprocess.run([sys.executable, "-m", "manifest_platform", "next", "--json"], capture_output=True, text=True)
    assert done.returncode == 4
    assert len(json.loads(done.stdout)["next"]) == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_drain_gives_its_lease_back(shop, run, how):
    shop.land(RUNS[0])
    run("discover")
    script = """
import sys, time
from manifest_platform.cli import main
from manifest_platform.spark import Place
def start(*_):
    print("working", flush=True)
    time.sleep(60)
Place.session = start
sys.exit(main(["drain"]))
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stderr
    while "working" not in process.stdout.readline():
        time.sleep(0.01)
    process.send_signal(how)
    assert process.wait(20) == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert "the leases are released" in process.stderr.read()
    with shop.pipeline() as pipeline:
        lease = pipeline.manifest.lease(Application(SHRED), FEED)
        assert lease
        assert lease.expires_at.timestamp() <= time.time()


def test_a_line_for_a_loaded_item_has_rows_size_seconds_and_the_late_mark(shop):
    from manifest_platform.cli.drained import progress

    shop.land(RUNS[0])
    with shop.pipeline() as pipeline:
        discover(pipeline)
        key, words = pipeline.key(RUNS[0]), pipeline.source.words
    line = progress(Loaded(key, {"events": 1200, "bad": 34}, 5_600_000, 1.234, 2.0, 7, late=True), words)
    assert re.fullmatch(rf"✓ {RUNS[0]} +loaded +1,234 rows +5\.6 MB +1\.23 s  late", line)


def test_the_configuration_is_read_once_however_many_datasets_there_are(shop, run, monkeypatch):
    shop.add("other")
    loads = []
    load = config.load
    monkeypatch.setattr(config, "load", lambda path=None: loads.append(path) or load(path))
    assert run("status")[0] == 0
    assert len(loads) == 1


def test_an_interrupted_drain_puts_back_what_was_being_shredded_and_says_where_it_goes_on(shop, run, monkeypatch):
    from manifest_platform.cli.signals import ToldToEnd
    from manifest_platform.sources.snowplow.source import SnowplowEnriched

    def shred(*_arguments: Any) -> None:
        raise ToldToEnd(signal.SIGINT)

    shop.land(*RUNS)
    run("discover")
    shop.load_all(RUNS[0])
    monkeypatch.setattr("manifest_platform.spark.session", lambda *_: object())
    monkeypatch.setattr(SnowplowEnriched, "shred", shred)
    code, _, err = run("drain")
    assert code == 130
    assert "2 directories were being shredded: put back, no attempt is counted" in err
    assert f"{RUNS[0]} is loaded, and the next drain continues with {RUNS[1]}" in err
    with shop.pipeline() as pipeline:
        item = pipeline.manifest.item(pipeline.key(RUNS[1]))
        assert item.blocker() is None
        assert item.records[-1].data["reason"] == "whoever shredded it was told to end"
