"""The commands of merging: on a real shop whose runs Spark has shredded, and on an inventory made by hand."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config, failpoints, storage
from manifest_platform.cli import main
from manifest_platform.cli.output import WIDTH
from manifest_platform.demo.events import write_run
from manifest_platform.demo.s3 import REGION
from manifest_platform.manifest import Store
from manifest_platform.merging import names
from manifest_platform.merging.garbage import upkeep
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.names import object_id
from manifest_platform.merging.plan import STRICT
from manifest_platform.merging.publish import PLACE, PUBLISH
from manifest_platform.merging.registration import DateWindow, Rules
from manifest_platform.merging.state import version_key
from manifest_platform.operations.merge_standing import BUSY_JOBS
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline import rebuild as rebuilding
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.merge import Merging
from manifest_platform_tests.merging import given
from manifest_platform_tests.pipeline.shop import EVENTS, NAME, REPOSITORY, Shop

RUNS, TABLES = 3, 7
DAY = "2024-05-14"
EVENT_ROWS = RUNS * EVENTS
RANGES_OF_LOG = "manifest-platform merge show ranges --table log"

Run = Callable[..., tuple[int, str, str]]
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def home(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop of three runs of one day, all shredded."""
    home = tmp_path_factory.mktemp("merge") / "shop"
    Shop(home, merge={}).shredded(spark, RUNS)
    return home


@pytest.fixture(scope="module")
def merged(home: Path) -> Path:
    """The same, merged by one run whose lines are in `run.txt`."""
    with (home / "run.txt").open("w") as told, redirect_stdout(told):
        assert main(["merge", "run", "--config", str(home / "manifest_platform.yaml")]) == 0
    return home


@pytest.fixture
def shop(merged: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The merged shop, to look at."""
    monkeypatch.setenv(config.VARIABLE, str(merged / "manifest_platform.yaml"))
    return Shop(merged, merge={})


@pytest.fixture
def own(merged: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A copy of the merged shop, to work on. It lies at the same place, for files are known by their URIs."""
    aside = merged.with_name("aside")
    shutil.copytree(merged, aside)
    monkeypatch.setenv(config.VARIABLE, str(merged / "manifest_platform.yaml"))
    try:
        yield Shop(merged, merge={})
    finally:
        shutil.rmtree(merged)
        aside.rename(merged)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def _run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["merge", *arguments])
        captured = capsys.readouterr()
        if "--json" not in arguments:
            assert all(len(line) <= WIDTH for line in captured.out.splitlines() if "/" not in line)
        return code, captured.out, captured.err

    return _run


@pytest.fixture
def ask(run: Run) -> Ask:
    def _ask(*arguments: str) -> tuple[int, Any]:
        code, out, _ = run(*arguments, "--json")
        *_, last = out.splitlines()
        return code, json.loads(last)

    return _ask


def words(text: str) -> str:
    return " ".join(text.split())


def rows(ask: Ask, sql: str = "SELECT count(*) AS n FROM events") -> int:
    code, found = ask("query", sql)
    assert code == 0
    return found["rows"][0]["n"]


# A run


def test_one_run_registers_merges_closes_switches_and_publishes(shop: Shop, ask: Ask) -> None:
    told = (shop.home / "run.txt").read_text()
    assert len(re.findall(r"^· commit \d  registered  7 objects of 7 partitions$", told, re.MULTILINE)) == RUNS
    assert "  merging 7 ranges of 7 partitions, 21 objects, " in told
    assert told.count("merged  1 range  ") == told.count("published as version 30000") == TABLES
    assert re.search(rf"✓ events {DAY}  merged  1 range  {EVENT_ROWS} rows  [\d.]+ kB in, [\d.]+ kB out", told)
    assert re.search(
        r"3 commits registered, 7 closed, 7 partitions merged, 7 switched, 7 published in .*stopped: idle", words(told)
    )
    code, report = ask("run")
    assert code == 4
    assert (report["commits"], report["merged"], report["published"]["published"]) == (0, 0, [])


def test_a_day_that_is_not_over_is_read_as_it_comes_and_merged_when_the_clock_says_so(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, ask: Ask
) -> None:
    shop = Shop(tmp_path / "shop", merge={})
    monkeypatch.setenv(config.VARIABLE, str(shop.config_file))
    now = datetime.now(UTC).replace(microsecond=0)
    write_run(shop.home / "landing", now, EVENTS, seed=1)
    with shop.open() as pipeline:
        landed = discover(pipeline).landed
        list(shred_chosen(pipeline, lambda: spark, [one.key for one in landed]))
    assert run("explain", "events", str(now.date()))[0] == 1
    assert run("run")[0] == 0
    _, status = ask("status")
    assert {table["open"] > 0 for table in status["tables"]} == {True}
    assert rows(ask) == EVENTS
    today = max(one["date"] for table in status["tables"] if table["table"] == "events" for one in table["partitions"])
    told = words(run("explain", "events", today)[1])
    assert "It is open: its day ends in UTC, and it is closed by the first run after" in told
    assert "A merge now would write nothing" in told
    assert "Readers see its small objects." in told

    # Asked for, it is merged though it is open; nobody reads that yet, not even after a rebuild.
    code, report = ask("run", "--table", "events", "--date", today)
    assert (code, report["merged"]) == (0, 1)
    assert "the partition is not switched yet: readers read its small objects" in words(run("rebuild", "events", today)[1])
    assert ask("files", "events", today)[1]["version"] == 0

    code, out, err = run("run", "--clock", f"{now + timedelta(days=2):%Y-%m-%dT%H:%M}")
    assert code == 0
    assert "the time of this run, and of everything that it records" in err
    assert f"✓ events {today}  published as version 1000" in out
    assert ask("files", "events", today)[1]["generation"] == 2
    assert rows(ask) == EVENTS


def test_what_is_asked_for_is_merged_and_nothing_else(own: Shop, spark: Any, run: Run, ask: Ask) -> None:
    come_later(own, spark)
    assert "registered 3 commits; the next run registers 1 more" in words(run("status")[1])
    told = words(run("explain", "events", DAY)[1])
    assert told.endswith("Objects of 1 commit are not registered yet and may belong to it: the next run registers them.")
    code, out, _ = run("run", "--table", "events", "--date", DAY)
    assert code == 0
    assert "· commit 4  registered  7 objects of 7 partitions" in out
    assert "1 commit registered, 1 partition merged, 1 published" in out
    assert rows(ask) == EVENT_ROWS + EVENTS
    assert rows(ask, "SELECT count(*) AS n FROM com_acme_session_1") == EVENT_ROWS
    told = words(run("explain", "com_acme_session_1", DAY)[1])
    assert "has 4 small objects" in told
    assert "of which 1 delayed. 3 of these are in 1 merged object" in told
    assert "Readers see version 3000005, generation 1, without the waiting objects. Its merge is due at" in told
    status = words(run("status")[1])
    assert f"{DAY} switched, version 3000005; 1 object" in status
    assert "1 of 7 tables at rest" in status
    assert ask("run", "--date", "2024-05-13")[0] == 4
    code, report = ask("run", "--month", "2024-05")
    assert (code, report["merged"]) == (0, TABLES - 1)
    code, found = ask("show", "ranges", "--table", "events")
    assert [(one["lower_bound"], one["upper_bound"]) for one in found["ranges"]] == [(None, 0), (0, 4000007)]
    assert found["ranges"][1]["create_time"] < found["ranges"][1]["update_time"]


def come_later(shop: Shop, spark: Any) -> None:
    """Shreds another run of the closed day."""
    with shop.open() as pipeline:
        list(shred_chosen(pipeline, lambda: spark, shop.land(pipeline, RUNS)))


def test_a_run_that_finds_all_workers_busy_says_so(own: Shop, spark: Any, run: Run) -> None:
    come_later(own, spark)
    with own.open() as pipeline:
        merging = Merging(pipeline)
        held = [given.slot(merging.inventory, str(slot)) for slot in range(merging.config.workers)]
        code, out, _ = run("run", "--table", "events")
        for lease in held:
            lease.release()
    assert code == 0
    assert "stopped: busy" in out


# Looking


def test_the_ledger_is_shown_under_prisms_columns(shop: Shop, ask: Ask, run: Run) -> None:
    _, found = ask("show", "ranges", "--table", "events", "--date", DAY)
    sentinel, one = found["ranges"]
    assert (sentinel["lower_bound"], sentinel["upper_bound"], sentinel["content_length"]) == (None, 0, 0)
    assert (one["lower_bound"], one["upper_bound"]) == (0, 3000007)
    _, found = ask("show", "partitions", "--date", DAY)
    assert len(found["partitions"]) == TABLES
    assert {
        (one["current_manifest_version"] == one["desired_manifest_version"] == one["last_live_object_id"], one["switched"])
        for one in found["partitions"]
    } == {(True, True)}
    assert len(ask("show", "objects")[1]["objects"]) == RUNS * TABLES
    assert [one["prism_table_id"] for one in ask("show", "tables", "--table", "events")[1]["tables"]] == ["events"]
    assert run("show", "jobs")[:2] == (4, "nothing to show\n")
    code, out, _ = run("show", "objects", "--table", "events")
    assert (code, out.splitlines()[0]) == (0, f"events {DAY}")
    assert re.search(r"1000007\s+run=2024-05-14-12-00-00\s+false", out)
    assert ask("show", "partitions", "--date", "2024-05-13")[0] == 4


def test_the_files_of_a_partition_are_those_that_readers_get(shop: Shop, ask: Ask, run: Run) -> None:
    code, found = ask("files", "events", DAY)
    assert (code, found["version"], found["generation"]) == (0, 3000007, 1)
    [file] = found["files"]
    assert storage.local_path(file["uri"]).is_file()
    out = run("files", "events", DAY)[1]
    assert file["uri"] in out
    assert f"events {DAY}: version 3000007, generation 1; 1 file, {EVENT_ROWS} rows" in out


def test_a_query_reads_what_is_published(shop: Shop, ask: Ask, run: Run) -> None:
    assert rows(ask) == EVENT_ROWS
    assert rows(ask, f"SELECT count(*) AS n FROM shop.events WHERE dt = DATE '{DAY}'") == EVENT_ROWS
    assert str(EVENT_ROWS) in run("query", "SELECT count(*) FROM events")[1]
    code, _, err = run("query", "SELECT nothing FROM events")
    assert code == 1
    assert "nothing" in err


def test_the_log_keeps_what_was_merged(shop: Shop, ask: Ask, run: Run) -> None:
    _, found = ask("log", "--table", "events")
    [job] = found["jobs"]
    assert (job["outcome"], job["rows"], job["ranges"]) == ("merged", EVENT_ROWS, [[0, 3000007]])
    assert len(run("log", "--limit", "2")[1].splitlines()) == 3


def test_a_partition_at_rest_is_explained(shop: Shop, run: Run) -> None:
    code, out, _ = run("explain", "events", DAY)
    assert code == 0
    assert re.fullmatch(
        rf"events of {DAY} has 3 small objects \({EVENT_ROWS} rows, .* kB\). These are in 1 merged object of .* kB\. It is"
        r" closed: objects up to id 3000007 came in time\. It is switched: readers see merged objects\. Readers see version"
        r" 3000007, generation 1\. Nothing is left to do until another object arrives\.",
        words(out),
    )


# Rebuilding and removing


def test_a_rebuild_writes_new_files_of_the_same_rows_and_gc_removes_the_old_ones(own: Shop, ask: Ask, run: Run) -> None:
    before = ask("files", "events", DAY)[1]
    content = ask("query", "SELECT * EXCLUDE (dt) FROM events ORDER BY ALL")[1]
    code, done = ask("rebuild", "events", DAY)
    assert (code, done["generation"], done["rows"], done["objects"]) == (0, 2, EVENT_ROWS, RUNS)
    assert done["published"]["published"] == [{"partition": f"events of {DAY}", "version": 3000007}]
    after = ask("files", "events", DAY)[1]
    assert (after["version"], after["generation"]) == (3000007, 2)
    assert after["files"][0]["uri"] != before["files"][0]["uri"]
    assert ask("query", "SELECT * EXCLUDE (dt) FROM events ORDER BY ALL")[1] == content

    old, small = storage.local_path(before["files"][0]["uri"]), files_of(own.home / "shredded")
    assert run("gc")[:2] == (4, "nothing to remove: everything was needed or written within 7d\n")
    code, found = ask("gc", "--dry-run", "--grace", "0d")
    assert (code, [file["uri"] for file in found["tables"][0]["files"]]) == (0, [before["files"][0]["uri"]])
    assert old.exists()
    code, out, _ = run("gc", "--grace", "0d")
    assert code == 0
    assert re.search(r"events +1 +0 +1 +[\d.]+ kB\n[\d.]+ kB were removed", out)
    assert not old.exists()
    assert files_of(own.home / "shredded") == small
    assert ask("gc", "--grace", "0d")[0] == 4
    assert rows(ask) == EVENT_ROWS


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_rebuild_that_cannot_read_what_it_needs_changes_nothing(own: Shop, ask: Ask, run: Run) -> None:
    before = ask("files", "events", DAY)[1]
    gone = next(path for path in files_of(own.home / "shredded") if "events" in str(path) and path.suffix == ".parquet")
    gone.unlink()
    code, _, err = run("rebuild", "events", DAY)
    assert code == 1
    assert "nothing was changed" in err
    assert gone.name in err
    assert ask("files", "events", DAY)[1] == before
    assert run("rebuild", "events", "2024-05-13")[0] == 1


def test_what_a_rebuild_has_written_is_not_removed_before_it_commits(
    own: Shop, run: Run, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, str]] = []

    def reach(point: str) -> None:
        if point == "rebuild.written":
            code, _, err = run("gc", "--grace", "0d")
            seen.append((code, err))

    monkeypatch.setattr(failpoints, "reach", reach)
    assert run("rebuild", "events", DAY)[0] == 0
    [(code, err)] = seen
    assert (code, "upkeep" in err) == (1, True)
    assert rows(ask) == EVENT_ROWS


def test_one_rebuilds_or_removes_at_a_time(own: Shop, run: Run) -> None:
    with own.open() as pipeline, upkeep(Merging(pipeline).inventory):
        for arguments in (("rebuild", "events", DAY), ("gc", "--grace", "0d"), ("drop", "events", "--yes")):
            code, _, err = run(*arguments)
            assert code == 1
            assert "upkeep" in err
    assert run("files", "events", DAY)[0] == 0


def test_what_a_rebuild_left_that_was_stopped_is_garbage(
    own: Shop, ask: Ask, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ask("files", "events", DAY)[1]
    monkeypatch.setenv(failpoints.VARIABLE, "rebuild.written:raise")
    with pytest.raises(failpoints.FailpointReached):
        main(["merge", "rebuild", "events", DAY])
    monkeypatch.delenv(failpoints.VARIABLE)
    assert ask("files", "events", DAY)[1] == before
    _, found = ask("gc", "--grace", "0d")
    assert [(one["table"], one["objects"], one["versions"]) for one in found["tables"]] == [("events", 1, 0)]
    assert rows(ask) == EVENT_ROWS


def test_the_doctor_removes_the_same_and_tells_where_the_catalog_is_wrong(
    own: Shop, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    def doctor(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(["doctor", "--no-warehouse", "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    assert ask("rebuild", "events", DAY)[0] == 0
    assert doctor()[0] == 0
    code, found = doctor("--grace", "0")
    assert (code, [one["kind"] for one in found["findings"]]) == (1, ["superseded"])
    code, found = doctor("--grace", "0", "--clean")
    assert (code, found["findings"]) == (0, [])
    [done] = found["done"]
    assert "1 merged objects and 0 manifest files" in done
    assert ask("gc", "--grace", "0d")[0] == 4
    with own.open() as pipeline:
        inventory = Merging(pipeline).inventory
        [version] = inventory.versions("events", date.fromisoformat(DAY))
        remove_row(inventory, version_key(version))
    code, found = doctor()
    assert (code, [one["kind"] for one in found["findings"]]) == (1, ["catalog"])
    assert found["findings"][0]["command"].startswith(f"manifest-platform merge rebuild events {DAY}")


def remove_row(inventory: Inventory, sort: str) -> None:
    from manifest_platform.manifest.store import Delete

    row = inventory.store.get(inventory.dataset, sort)
    assert row
    inventory.store.transact(inventory.dataset, [Delete(sort, row.version)], "remove")


def test_a_table_is_dropped_with_everything_after_a_question(
    own: Shop, spark: Any, ask: Ask, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    [location] = own.home.glob("merged/*.events")
    small = files_of(own.home / "shredded")
    monkeypatch.setattr("typer.confirm", lambda _: False)
    code, out, _ = run("drop", "events")
    assert (code, location.exists()) == (4, True)
    assert f"1, with 3 small objects of {EVENT_ROWS} rows" in out
    assert "nothing was removed" in out
    monkeypatch.setattr("typer.confirm", lambda _: True)
    with own.open() as pipeline, pipeline.manifest.hold(PUBLISH, PLACE, "a publisher", timedelta(seconds=60)):
        code, _, err = run("drop", "events")
    assert (code, location.exists(), rows(ask)) == (1, True, EVENT_ROWS)
    assert "a publisher" in err
    monkeypatch.setenv(failpoints.VARIABLE, "drop.dropped:raise")
    with pytest.raises(failpoints.FailpointReached):
        main(["merge", "drop", "events"])
    monkeypatch.delenv(failpoints.VARIABLE)
    assert location.exists()
    assert run("drop", "events")[0] == 0  # continues where it was stopped
    assert not location.exists()
    assert len(list(own.home.glob("merged/*"))) == TABLES - 1
    assert files_of(own.home / "shredded") == small
    assert run("explain", "events", DAY)[0] == 1
    assert run("drop", "events", "--yes")[0] == 1
    assert rows(ask, "SELECT count(*) AS n FROM com_acme_session_1") == EVENT_ROWS
    with own.open() as pipeline:
        inventory = Merging(pipeline).inventory
        kinds = {row.sort.partition("#")[0] for row in inventory.store.query(NAME, "M") if "#events" in row.sort}
        assert kinds == {"MTABLE"}
    come_later(own, spark)
    assert run("run")[0] == 0
    assert rows(ask) == EVENTS


# An inventory by hand


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inventory]:
    """A shop's inventory with objects that only the inventory knows; by the inventory's own clock, which is put to now."""
    shop = Shop(tmp_path / "shop", merge={"max_attempts": 3})
    monkeypatch.setenv(config.VARIABLE, str(shop.config_file))
    store: Store = config.load(shop.config_file).manifest.open()
    yield given.inventory(store, given.clock_at(datetime.now(UTC) - timedelta(minutes=1)), max_attempts=3)
    store.close()


ROLE = "arn:aws:iam::123456789012:role/spectrum"


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, glue: Any) -> Shop:
    """A shop whose tables `log`, and `paid` of a schema of its own, are published to Glue."""
    tables = {"paid": {"schema_name": "finance"}}
    shop = Shop(tmp_path / "shop", merge={"catalog": {"kind": "glue", "prefix": "lake_"}, "tables": tables})
    monkeypatch.setenv(config.VARIABLE, str(shop.config_file))
    with shop.open() as pipeline:
        merging = Merging(pipeline)
        for table in ("paid", given.TABLE):
            merging.inventory.sync_table(merging.table(table))
            given.arrive(merging.inventory, merging.inventory.cursor() + 1, day=datetime.now(UTC).date(), table=table)
    assert run("publish")[0] == 0
    return shop


def test_the_external_schemas_are_of_the_databases_that_were_published(published: Shop, run: Run, glue: Any) -> None:
    databases = sorted(database["Name"] for database in glue.get_databases()["DatabaseList"])
    code, out, _ = run(
        "external-schema", "--role", ROLE, "--to", "group:analysts", "--to", "role:bi", "--to", "public", "--to", "o'neil"
    )
    assert code == 0
    comments = [line for line in out.splitlines() if line.startswith("--")]
    assert words(out.partition("CREATE")[2]).split("; ") == words(
        f"""EXTERNAL SCHEMA IF NOT EXISTS "{databases[0]}" FROM DATA CATALOG DATABASE '{databases[0]}' REGION '{REGION}'
        IAM_ROLE '{ROLE}'; GRANT USAGE ON SCHEMA "{databases[0]}" TO GROUP "analysts";
        GRANT USAGE ON SCHEMA "{databases[0]}" TO ROLE "bi"; GRANT USAGE ON SCHEMA "{databases[0]}" TO PUBLIC;
        GRANT USAGE ON SCHEMA "{databases[0]}" TO "o'neil";
        CREATE EXTERNAL SCHEMA IF NOT EXISTS "{databases[1]}" FROM DATA CATALOG DATABASE '{databases[1]}' REGION '{REGION}'
        IAM_ROLE '{ROLE}'; GRANT USAGE ON SCHEMA "{databases[1]}" TO GROUP "analysts";
        GRANT USAGE ON SCHEMA "{databases[1]}" TO ROLE "bi"; GRANT USAGE ON SCHEMA "{databases[1]}" TO PUBLIC;
        GRANT USAGE ON SCHEMA "{databases[1]}" TO "o'neil";"""
    ).split("; ")
    assert databases == ["lake_finance", f"lake_{NAME}"]
    assert "glue:GetPartitions" in " ".join(comments[:2])
    assert comments[-2].endswith("shop/merged/*") and comments[-1].endswith("shop/shredded/*")


def test_the_role_of_the_cluster_is_taken_where_none_is_named(published: Shop, ask: Ask) -> None:
    code, found = ask("external-schema")
    assert code == 0
    assert [one.splitlines()[0].split()[-1] for one in found["statements"]] == ['"lake_finance"', f'"lake_{NAME}"']
    assert all(one.endswith("IAM_ROLE default") for one in found["statements"])
    assert found["needed"][-1].startswith("s3:GetObject on file:///")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--role", "spectrum"], "give its ARN"),
        (["--role", f"{ROLE}'; DROP"], "give its ARN"),
        (["--to", 'a" ; DROP SCHEMA x; --'], "is not a valid grantee"),
        (["--to", "group:"], "is not a valid grantee"),
        (["--to", "x" * 128], "is not a valid grantee"),
        (["--name", "lake"], "2 databases, lake_finance"),
    ],
)
def test_what_would_make_other_sql_is_refused(published: Shop, run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run("external-schema", *arguments)
    assert (code, out) == (1, "")
    assert message in words(err)


def test_no_warehouse_reads_the_embedded_catalog(bare: Inventory, run: Run) -> None:
    code, _, err = run("external-schema")
    assert code == 1
    assert "no warehouse reads this kind of catalog" in words(err)


def test_a_dropped_table_is_gone_from_glue_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, glue: Any
) -> None:
    shop = Shop(tmp_path / "shop", merge={"catalog": {"kind": "glue", "prefix": "lake_"}})
    monkeypatch.setenv(config.VARIABLE, str(shop.config_file))
    day = datetime.now(UTC).date()
    with shop.open() as pipeline:
        for table in ("kept", given.TABLE):
            inventory = Merging(pipeline).inventory
            inventory.sync_table(given.settings(table))
            given.arrive(inventory, inventory.cursor() + 1, day=day, table=table)
    code, out, _ = run("publish")
    assert (code, "2 shown" in out) == (0, True)
    assert len(files_of(shop.home / "merged")) == 2
    assert [one["Name"] for one in glue.get_tables(DatabaseName="lake_shop")["TableList"]] == ["kept", given.TABLE]
    code, out, _ = run("drop", given.TABLE, "--yes")
    assert (code, "lake_shop.log" in out) == (0, True)
    assert [one["Name"] for one in glue.get_tables(DatabaseName="lake_shop")["TableList"]] == ["kept"]
    assert len(files_of(shop.home / "merged")) == 1
    assert run("publish")[0] == 4


@pytest.mark.parametrize("theirs", [False, True])
def test_an_entry_in_glue_is_dropped_though_its_name_was_never_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, glue: Any, theirs: bool
) -> None:
    shop = Shop(tmp_path / "shop", merge={"catalog": {"kind": "glue", "prefix": "lake_"}})
    monkeypatch.setenv(config.VARIABLE, str(shop.config_file))
    with shop.open() as pipeline:
        inventory = Merging(pipeline).inventory
        inventory.sync_table(given.settings())
        given.arrive(inventory, 1, day=datetime.now(UTC).date())
    monkeypatch.setenv(failpoints.VARIABLE, "publish.entered:raise")
    with pytest.raises(failpoints.FailpointReached):
        main(["merge", "publish"])
    monkeypatch.delenv(failpoints.VARIABLE)
    [entry] = glue.get_tables(DatabaseName="lake_shop")["TableList"]
    if theirs:
        descriptor = {**entry["StorageDescriptor"], "Location": "s3://theirs/log"}
        glue.update_table(DatabaseName="lake_shop", TableInput={"Name": given.TABLE, "StorageDescriptor": descriptor})
    assert run("drop", given.TABLE, "--yes")[0] == 0
    left = [one["StorageDescriptor"]["Location"] for one in glue.get_tables(DatabaseName="lake_shop")["TableList"]]
    assert left == (["s3://theirs/log"] if theirs else [])


def test_a_drop_removes_no_file_of_the_table_that_came_again(bare: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is made again while it is dropped. Its new objects and all that it names are kept, whatever their age."""
    drop = Inventory.drop
    with Pipeline(config.load(), NAME) as pipeline:
        merging = Merging(pipeline)

        def write(attempt: str, upper: int) -> Path:
            table = bare.table(given.TABLE)
            assert table
            uri = names.part_uri(merging.output, table, given.DAY, attempt, 0, upper)
            storage.write_bytes(uri, b"rows")
            return storage.local_path(uri)

        old, named = write("old", 10), write("named", 20)

        def drop_and_come_again(inventory: Inventory, table: str) -> None:
            drop(inventory, table)
            bare.sync_table(given.settings())
            given.arrive(bare, 20)
            bare.hasten(given.TABLE, given.DAY, bare.clock())
            with given.slot(bare) as held:
                made = given.make(bare, given.claim_one(bare, held))
                dataclasses.replace(made, ranges=(dataclasses.replace(made.ranges[0], uri=storage.as_uri(named)),)).commit(bare)
            write("new", 20)

        given.arrive(bare, 10)
        monkeypatch.setattr(Inventory, "drop", drop_and_come_again)
        assert rebuilding.drop(merging, given.TABLE).files == 2
        assert [path.parent.name for path in files_of(storage.local_path(merging.output))] == ["named", "new"]
        assert not old.exists()


def test_a_drop_means_the_table_that_shredding_calls_so(bare: Inventory, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.sync_table(given.settings("events", physical_name="a"))
    bare.sync_table(given.settings("raw", physical_name="events"))
    given.arrive(bare, 1, table="a")
    given.arrive(bare, 2, table="events")
    with Pipeline(config.load(), NAME) as pipeline:
        table = bare.table("events")
        assert table
        storage.write_bytes(names.part_uri(Merging(pipeline).output, table, given.DAY, "x", 0, 2), b"rows")
    monkeypatch.setenv(failpoints.VARIABLE, "drop.dropped:raise")
    with pytest.raises(failpoints.FailpointReached):
        main(["merge", "drop", "events", "--yes"])
    monkeypatch.delenv(failpoints.VARIABLE)
    assert [one.key for one in bare.tables()] == ["a", given.TABLE]
    assert run("drop", "events", "--yes")[0] == 0
    code, _, err = run("drop", "events", "--yes")
    assert (code, "was dropped already" in err) == (1, True)
    assert [one.key for one in bare.tables()] == ["a", given.TABLE]


def test_a_name_of_several_tables_is_refused(bare: Inventory, run: Run) -> None:
    for key, schema in (("a", "app"), ("b", "web")):
        bare.sync_table(given.settings("visits", schema=schema, physical_name=key))
    for arguments in (("drop", "visits", "--yes"), ("explain", "visits", DAY)):
        code, _, err = run(*arguments)
        assert (code, "use the name that shredding uses, a and b" in words(err)) == (1, True)
    assert run("drop", "b", "--yes")[0] == 0
    assert run("drop", "visits", "--yes")[0] == 0
    assert [one.key for one in bare.tables()] == [given.TABLE]


@pytest.fixture
def today() -> date:
    return datetime.now(UTC).date()


def place(day: date) -> tuple[str, str]:
    return given.TABLE, str(day)


def test_a_partition_that_was_set_aside_blocks_the_status_until_it_is_retried(
    bare: Inventory, today: date, run: Run, ask: Ask
) -> None:
    given.arrive(bare, 1, 2, day=today)
    bare.hasten(given.TABLE, today, bare.clock())
    with given.slot(bare) as held:
        bare.fail(given.claim_one(bare, held).job, "s3://bucket/2.parquet is not there", permanent=True)
    code, out, _ = run("status")
    assert code == 3
    assert "set aside at" in out
    assert "after 1 attempt: s3://bucket/2.parquet is not there" in words(out)
    assert f"manifest-platform merge retry {given.TABLE} {today}" in words(out)
    assert "Set aside at" in words(run("explain", *place(today))[1])
    code, _, err = run("run", "--date", str(today))
    assert code == 4
    assert f"merge retry {given.TABLE} {today}" in words(err)
    assert run("retry", *place(today))[0] == 0
    code, found = ask("status")
    assert code == 0
    [one] = [one for table in found["tables"] for one in table["partitions"]]
    assert not one["set_aside"]
    assert one["waits_for"].startswith("its merge has been due since")
    assert one["command"] == "manifest-platform merge run"
    assert run("retry", *place(today))[0] == 1


def test_the_status_says_who_merges_and_whose_worker_is_gone(bare: Inventory, today: date, run: Run, ask: Ask) -> None:
    given.arrive(bare, 1, day=today)
    bare.hasten(given.TABLE, today, bare.clock())
    held = given.slot(bare)
    given.claim_one(bare, held)
    assert "being merged by test since" in words(run("status")[1])
    [job] = ask("show", "jobs")[1]["jobs"]
    assert job["ongoing_mark"] == job["prism_merge_job_id"]
    held.release()
    assert "and is gone; the next run takes the job back" in words(run("status")[1])


def test_a_partition_that_many_jobs_work_on_is_shown_as_what_it_is(bare: Inventory, today: date, run: Run, ask: Ask) -> None:
    with given.slot(bare) as held:
        for number in range(1, BUSY_JOBS + 1):
            _, found = ask("status")
            assert found["busy"] == []
            given.arrive(bare, number, day=today)
            bare.hasten(given.TABLE, today, bare.clock())
            given.merge(bare, held)
    _, found = ask("status")
    assert found["busy"] == [{"table": given.TABLE, "date": str(today), "jobs": 5, "bytes": 150, "failed": 0}]
    told = words(run("status")[1])
    assert "is merged very often: 5 jobs within a day, 150 B of small objects. Each job merged" in told


def test_the_status_asks_nothing_about_partitions_at_rest(bare: Inventory, today: date, ask: Ask) -> None:
    given.arrive(bare, 1, day=today)
    before = ask("status")[1]["requests"]
    for number in range(2, 12):
        day = today - timedelta(days=number)
        given.arrive(bare, number, day=day)
        bare.hasten(given.TABLE, day, bare.clock())
        with given.slot(bare) as held:
            given.merge_all(bare, held)
        closed = bare.close(given.partition(bare, day), bare.clock())
        assert closed.closed
        bare.switch(closed)
    assert ask("publish")[0] == 0
    _, found = ask("status")
    [table] = found["tables"]
    assert [one["date"] for one in table["partitions"]] == [str(today)]
    assert found["requests"] == before <= 8


def test_the_range_table_of_the_documentation_is_what_comes_of_such_a_day(bare: Inventory, run: Run) -> None:
    """Merges by the strict profile: an extension, a full range, and a leftover range that was extended later."""
    begin = datetime(2026, 3, 2, 1, tzinfo=UTC)
    inventory = Inventory(bare.store, NAME, "test", given.clock_at(begin))
    inventory.sync_table(given.settings(target_bytes=STRICT.target_bytes, interval=STRICT.interval))
    commit = 0
    for megabytes in ((40, 40, 40), (20, 20), (60, 60, 60), (20,)):
        for size in megabytes:
            commit += 1
            given.arrive(inventory, object_id(commit, 1), size=size * 1_000_000)
        inventory.clock.turn(timedelta(seconds=STRICT.interval))  # ty: ignore[missing-attribute]
        with given.slot(inventory) as held:
            while claimed := given.claim(inventory, held):
                for one in claimed:
                    given.make(inventory, one, STRICT, ratio=0.77).commit(inventory)
    code, out, _ = run("show", "ranges", "--table", given.TABLE)
    assert code == 0
    _, _, documented = (REPOSITORY / "docs" / "how-to" / "merging.md").read_text().partition(f"$ {RANGES_OF_LOG}\n")
    assert documented.partition("```")[0] == out
    _, _, sentinel, *ranges = (line.split() for line in out.splitlines())
    assert sentinel[:3] == ["null", "0", "0"]
    assert [one[0] for one in ranges] == ["0", *(one[1] for one in ranges[:-1])], "no gaps"
    changed = [one[3:5] < one[5:7] for one in ranges]
    assert changed == [True, False, True], "extended, new, extended"


def test_a_partition_of_the_calendars_last_day_stops_nothing(bare: Inventory, run: Run, ask: Ask) -> None:
    assert run("run", "--month", "9999-12")[0] == 4
    given.arrive(bare, 1, day=date.max, rules=Rules(merged=DateWindow(timedelta(), timedelta())))
    assert run("publish")[0] == 0
    code, status = ask("status")
    assert code == 0
    assert "it is never closed" in status["tables"][0]["partitions"][0]["waits_for"]
    assert "It is open and stays open: its day is the calendar's last." in words(run("explain", *place(date.max))[1])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "--date", "yesterday"], 2, "write a date such as 2026-01-31"),
        (["run", "--month", "2024-13"], 2, "a month such as 2026-01"),
        (["run", "--month", "2024-05", "--date", DAY], 2, "give one of them"),
        (["run", "--clock", "noon"], 2, "a time such as 2026-01-31T12:00"),
        (["run", "--clock", "2020-01-01T00:00"], 2, "is in the past"),
        (["run", "--table", "nothing"], 1, "it has log"),
        (["explain", "nothing", DAY], 1, "it has log"),
        (
            ["explain", given.TABLE, DAY],
            1,
            "a merge run registers shredded objects. Do this first: manifest-platform merge run",
        ),
        (["files", given.TABLE, DAY], 1, "is not published yet"),
        (["gc", "--grace", "soon"], 2, "as 7d"),
        (["drop", given.TABLE, "--json"], 2, "add --yes"),
        (["drop", "nothing", "--yes"], 1, "has no table 'nothing'"),
        (["show", "nonsense"], 2, "nonsense"),
    ],
)
def test_what_cannot_be_meant_is_refused(bare: Inventory, run: Run, arguments: list[str], code: int, message: str) -> None:
    found, _, err = run(*arguments)
    assert found == code
    assert message in words(err)


def test_a_dataset_that_is_not_merged_says_how_to_have_it_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv(config.VARIABLE, str(Shop(tmp_path / "shop").config_file))
    code, _, err = run("status")
    assert code == 1
    assert "add `merge` with an `output`" in err


def test_looking_imports_nothing_heavy(bare: Inventory, today: date) -> None:
    given.arrive(bare, 1, day=today)
    commands = [["status"], ["log"], ["show", "ranges"], ["publish"], ["explain", *place(today)], ["files", *place(today)]]
    heavy = {"dagster", "pyspark", "pyarrow", "pandas", "numpy", "duckdb", "boto3", "botocore"}
    script = f"""
import sys
from manifest_platform.cli import main
for command in {commands!r}:
    main(["merge", *command])
print(sorted({heavy!r} & {{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
