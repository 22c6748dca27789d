"""The wheel in clean environments outside the repository: the core alone, and with all extras.

`make test-installed` runs this. What it checks beside: nothing is taken from the repository, in whose folder it is not run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.extras import BROUGHT
from manifest_platform_tests.installed import walk_file
from manifest_platform_tests.installed.environments import Environment

pytestmark = [pytest.mark.installed, pytest.mark.timeout(300)]

CORE_PACKAGES, CORE_MB = 40, 120
"""The limits of what installing the core brings, with pip: they keep it a matter of seconds. Spark alone has 400 MB."""
NEEDS = re.compile(
    r"error: this needs [\w-]+(, [\w-]+)*, which (is|are) not installed:"
    r" pip install 'manifest-platform\[[\w,]+\]'; \[all\] has everything\n"
)
ITEM = "run=2026-11-01-10-00-00"
WORK_ALONE = {
    "status", "next", "explain", "history", "query", "queue", "types", "tables", "cost", "discover", "skip", "skip add",
    "skip list", "unskip", "config check", "config show", "config schema", "config reference", "store create", "store check",
    "store upgrade", "dump", "merge status", "view",
}  # fmt: skip
"""Commands that the core answers by itself, done or with nothing to do."""
REFUSE_ALONE = {"sql": "duckdb", "import-snowplow": "aws", "import-snowflake": "aws", "merge query": "duckdb", "drain": "spark"}
"""Commands that need an extra, and which."""


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The package without extras, installed by pip as its users do."""
    folder = tmp_path_factory.mktemp("core") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True)
    [home] = folder.glob("lib/*/site-packages")
    assert len([*home.glob("*.dist-info")]) <= CORE_PACKAGES
    assert sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) <= CORE_MB * 10**6
    return Environment(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration and a directory that has landed."""
    landed = tmp_path / "landing" / ITEM
    landed.mkdir(parents=True)
    (landed / "part-00000").write_text("no event\n")
    (landed / "_SUCCESS").touch()
    configure(tmp_path, "sqlite:///manifest.db")
    return tmp_path


def configure(folder: Path, store: str) -> None:
    for given in ("landing", "schemas"):
        (folder / given).mkdir(exist_ok=True)
    (folder / "manifest_platform.yaml").write_text(
        f"""
datasets:
  shop:
    landing: {{root: landing}}
    shred: {{output: shredded, schemas: [schemas]}}
    merge: {{output: merged, first_day: 2026-11-01}}
    steps: [{{name: report, upstream: [shred], order: any}}]
manifest: {{store: "{store}", archive: archive}}
"""
    )


def test_the_wheel_has_all_that_it_needs_and_nothing_of_the_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    wanted = ("py.typed", "dagster.yaml", "manifest_platform.yaml", "spark_conf/local.conf", "spark_conf/log4j2.properties")
    assert {f"manifest_platform/{name}" for name in wanted} <= names
    assert any(name.startswith("manifest_platform/demo/schemas/") for name in names)
    assert any(name.startswith("manifest_platform/manifest/schemas/") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"manifest_platform"}


def test_the_core_brings_no_extra(core: Environment, folder: Path) -> None:
    told = json.loads(core.run("manifest-platform", "--version", "--json", folder=folder).stdout)
    assert told["extras"] == {extra: {} for extra in BROUGHT}
    place = core.run("python", "-c", "import manifest_platform; print(manifest_platform.__file__)", folder=folder).stdout
    assert place.startswith(str(core.folder))


def test_every_command_of_the_core_answers_or_says_which_extra_it_needs(core: Environment, folder: Path) -> None:
    discovered = core.run("manifest-platform", "discover", folder=folder)
    assert (discovered.returncode, discovered.stdout) == (0, f"1 new: {ITEM}\n")
    done = core.run("python", walk_file(), folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert found.keys() >= WORK_ALONE | REFUSE_ALONE.keys()
    for name, one in found.items():
        assert "exception" not in one, f"{name}: {one.get('exception')}"
        if "not installed" in one["err"]:
            assert NEEDS.fullmatch(one["err"]), (name, one["err"])
            assert one["code"] == 1, name
    assert {name: found[name]["code"] for name in WORK_ALONE if found[name]["code"] not in (0, 4)} == {}
    assert {name: re.findall(r"\[(\w+)\]'", found[name]["err"]) for name in REFUSE_ALONE} == {
        name: [extra] for name, extra in REFUSE_ALONE.items()
    }


@pytest.mark.parametrize(
    ("store", "extra"),
    [("dynamodb://manifest?region=eu-west-1", "aws"), ("postgresql://me@127.0.0.1/manifest", "postgresql")],
)
def test_a_store_that_needs_an_extra_says_so(core: Environment, folder: Path, store: str, extra: str) -> None:
    configure(folder, store)
    assert core.run("manifest-platform", "config", "check", folder=folder).returncode == 0
    for command in (["status"], ["store", "create"], ["store", "check"], ["status", "--json"]):
        done = core.run("manifest-platform", *command, folder=folder)
        assert (done.returncode, NEEDS.findall(done.stderr) != []) == (1, True), (command, done.stderr)
        assert f"[{extra}]" in done.stderr
        if "--json" in command:
            assert json.loads(done.stdout)["error"]["type"] == "MissingExtra"


def test_the_demo_of_the_core_says_what_it_needs_and_leaves_nothing(core: Environment, tmp_path: Path) -> None:
    done = core.run("manifest-platform", "demo", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'manifest-platform[spark,duckdb]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_demo_runs_in_an_empty_folder_and_dagster_loads_what_it_wrote(everything: Environment, tmp_path: Path) -> None:
    done = everything.run("manifest-platform", "demo", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {".demo", ".dagster_home", "manifest_platform.yaml"}
    status = everything.run("manifest-platform", "status", "--json", folder=tmp_path)
    assert status.returncode == 0, status.stderr
    assert 'DAGSTER_HOME="$PWD/.dagster_home" dagster dev -m manifest_platform.definitions' in done.stdout
    checked = everything.run("dagster", "definitions", "validate", "-m", "manifest_platform.definitions", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All code locations passed validation" in checked.stdout + checked.stderr
    assert everything.run("manifest-platform", "demo", "--clean", folder=tmp_path).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} <= {".dagster_home"}
