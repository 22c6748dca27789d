"""What is installed beside the core: the extras, what they bring, and that the core imports none of it by itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from manifest_platform import config, extras
from manifest_platform.cli import main
from manifest_platform.cli.commands import COMMANDS
from manifest_platform.manifest import OUTPUT, Payload, Ready
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.test_commands import RUNS, Shop

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
OWN = PROJECT["optional-dependencies"]
DAGSTERS = {"manifest_platform.job_services"}  # only a run of Dagster loads these plug-ins
POINTS = {
    point.partition(":")[0]
    for name, group in PROJECT["entry-points"].items()
    if name not in DAGSTERS
    for point in group.values()
}


def packages(requirements: list[str]) -> set[str]:
    found = {re.split(r"[\[<>=!~;]", one)[0].strip() for one in requirements}
    return found - {PROJECT["name"]}


def test_every_extra_is_told_with_what_it_brings() -> None:
    assert OWN.keys() == {*extras.BROUGHT, "all"}
    for extra, brought in extras.BROUGHT.items():
        assert set(brought) <= packages(OWN[extra]) | ({"grpcio-status"} if extra == "connect" else set())
    told = {package for brought in extras.BROUGHT.values() for package in brought}
    assert {package for extra in extras.BROUGHT for package in packages(OWN[extra])} <= told
    [everything] = [one for one in OWN["all"] if one.startswith(PROJECT["name"])]
    assert everything == f"{PROJECT['name']}[{','.join(sorted(extras.BROUGHT))}]"


def test_the_core_imports_nothing_that_an_extra_brings() -> None:
    """In an interpreter that has none of it: every command's module, every plug-in, every model of the configuration."""
    modules = sorted({f"manifest_platform.cli.{known.module}" for known in COMMANDS.values()} | POINTS)
    program = f"""
import importlib, sys
for module in {sorted(extras._IMPORTED)}:
    sys.modules[module] = None  # importing it fails
from manifest_platform.cli import main
for module in {modules}:
    if "orchestration" not in module:
        importlib.import_module(module)
sys.exit(main(["config", "schema"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_package_that_is_missing_is_one_sentence_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    for module, (package, extra) in extras._IMPORTED.items():
        told = extras.missing(ModuleNotFoundError(name=f"{module}.inner"))
        assert str(told) == (
            f"this needs {package}, which is not installed: pip install 'manifest-platform[{extra}]'; [all] has everything"
        )
    with pytest.raises(extras.MissingExtra, match=r"pyspark, duckdb, which are not .*'manifest-platform\[spark,duckdb\]'"):
        extras.need("pyspark", "py4j", "duckdb")


def test_what_no_extra_brings_and_what_is_there_stays_an_error_of_the_program() -> None:
    assert extras.missing(ModuleNotFoundError(name="somebodys")) is None
    assert extras.missing(ModuleNotFoundError(name="pyarrow.nothing")) is None
    assert extras.missing(ImportError("cannot import name", name="pyarrow")) is None
    assert extras.missing(ImportError("from nowhere")) is None
    extras.need("pyspark", "duckdb")


def test_how_things_stand_is_told_where_the_warehouse_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    assert main(["discover"]) == 0
    shop.work(SHRED, RUNS[0])
    with shop.pipeline() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        verdict = pipeline.manifest.next(FEED, LOAD, holding=True)
        assert isinstance(verdict, Ready)
        [claim] = pipeline.manifest.claim(lease, [verdict.item], verdict.state)
        pipeline.manifest.complete(claim, Payload(OUTPUT, {"rows": {"events": 1}, "bytes": 1}), believed="of its ledger")
    Path(config.load().warehouse.place).touch()
    for module in extras._IMPORTED:
        if module != "google":  # other packages have it too
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    for command in (["status"], ["next"], ["explain", RUNS[0]], ["history", RUNS[0]], ["queue"], ["types"]):
        assert main(command) in (0, 4), command
    capsys.readouterr()
    assert main(["sql", "SELECT 1"]) == 1
    assert capsys.readouterr().err.startswith("error: this needs duckdb, which is not installed: pip install ")


def test_the_version_tells_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    told = capsys.readouterr().out
    assert re.match(r"manifest-platform \d+\.\d+\.\d+, Python 3\.\d+\.\d+\n", told)
    assert re.search(r"^  spark +pyspark \d.*, pyarrow \d", told, re.MULTILINE)
    assert main(["--version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["extras"]) == set(extras.BROUGHT)
    assert main(["--json", "--version"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] in told
