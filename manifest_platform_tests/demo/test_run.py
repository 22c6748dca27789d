import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from manifest_platform.demo import run

LANDED = [run.run_name(number) for number in range(run.RUNS)]
IN_TIME = [name for name in LANDED if name != run.run_name(run.LATE)]


@pytest.fixture(autouse=True)
def keep_environment(monkeypatch, tmp_path):
    for name in (run.HOME_VARIABLE, run.config.VARIABLE):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv(run.HOME_VARIABLE, str(tmp_path / "demo"))


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "manifest_platform.demo", *arguments], capture_output=True, text=True)


def ledger(home: Path) -> list[tuple[str, bool]]:
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as connection:
        rows = connection.execute("SELECT item, late FROM manifest_platform.ledger ORDER BY applied_at").fetchall()
    return [(item.rsplit("/", 1)[1], late) for item, late in rows]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_tells_its_story_twice_and_leaves_nothing_after_clean(tmp_path):
    home = tmp_path / "demo"
    for _ in range(2):
        done = demo()
        assert done.returncode == 0, done.stdout + done.stderr
        check_story(done.stdout)
        assert ledger(home) == [*((name, False) for name in IN_TIME), (run.run_name(run.LATE), True)]
        check_tables(home)
    assert f"{run.STRAY} in {home}/landing/enriched: no run's name" in done.stderr
    assert demo("--clean").returncode == 0
    assert not home.exists()


def check_story(told: str) -> None:
    """Nothing behind the bad run is loaded before the printed command was typed; everything is, after it."""
    bad = run.run_name(run.BROKEN)
    resolve = f"$ manifest-platform resolve {bad}\n"
    before, after = told.split(resolve)
    assert f"next: manifest-platform resolve {bad}\n" in before
    first = re.findall(r"✓ (run=\S+)", before)
    assert first == IN_TIME[: IN_TIME.index(bad)]
    assert f"load  BLOCKED by {bad}" in before
    assert re.findall(r"│ (run=\S+) +│", before) == first
    then = re.findall(r"✓ (run=\S+).*?(late)?$", after, re.MULTILINE)
    assert then == [*((name, "") for name in IN_TIME[IN_TIME.index(bad) :]), (run.run_name(run.LATE), "late")]
    assert "0 shredded, 0 loaded (0 rows), 0 failed" in after
    for command in ("make ui", "manifest-platform sql", "manifest-platform status"):
        assert command in after.split("Next, try")[1]


def check_tables(home: Path) -> None:
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'acme'").fetchall()
        count = {name: connection.execute(f"SELECT count(*) FROM acme.{name}").fetchall()[0][0] for (name,) in tables}
        [(distinct,)] = connection.execute("SELECT count(DISTINCT event_id) FROM acme.events").fetchall()
    assert len([name for name in count if name.startswith("com_acme_")]) == 6
    assert count["events"] == distinct
    assert count["events"] + count["bad"] == run.RUNS * (run.EVENTS + run.BAD_LINES)
    assert 0 < count["bad"] <= run.RUNS * run.BAD_LINES
    assert all(count.values())


def test_a_directory_that_the_demo_did_not_make_is_left_alone(tmp_path, capsys):
    home = tmp_path / "demo"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    for arguments in ([], ["--clean"]):
        assert run.main(arguments) == 1
        assert "was not made by the demo" in capsys.readouterr().err
    assert (home / "thesis.txt").read_text() == "years of work"


def test_a_manifest_that_a_command_made_before_the_demo_does_not_stand_in_its_way(tmp_path):
    home = tmp_path / "demo"
    home.mkdir()
    (home / "manifest.db").touch()
    run.clean(home)
    assert not home.exists()


def test_a_configuration_that_is_not_the_demos_is_left_alone(tmp_path, monkeypatch, capsys):
    text = (run.REPOSITORY / run.config.DEFAULT_FILE).read_text()
    monkeypatch.setattr(run, "REPOSITORY", tmp_path)
    theirs = text.replace("${MANIFEST_PLATFORM_DEMO:-.demo}/warehouse.duckdb", "theirs.duckdb")
    (tmp_path / run.config.DEFAULT_FILE).write_text(theirs)
    assert run.main([]) == 1
    assert f"it has {tmp_path}/theirs.duckdb" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_an_unknown_argument_shows_the_usage(capsys):
    assert run.main(["--keep"]) == 2
    assert "usage: " in capsys.readouterr().err
