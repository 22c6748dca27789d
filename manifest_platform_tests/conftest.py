"""Fixtures that several packages' tests share: servers, stores, Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from manifest_platform import aws, masking, spool
from manifest_platform_tests import processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = [
    "manifest_platform_tests.servers.s3",  # first: others import it
    "manifest_platform_tests.servers.dynamodb",
    "manifest_platform_tests.servers.glue",
    "manifest_platform_tests.servers.jobs",
    "manifest_platform_tests.servers.postgres",
    "manifest_platform_tests.servers.redshift",
    "manifest_platform_tests.servers.release_before",
    "manifest_platform_tests.servers.snowflake",
    "manifest_platform_tests.servers.stores",
    "manifest_platform_tests.servers.vault",
    "manifest_platform_tests.servers.warehouses",
]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(processes.plugin(config))


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test session share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def spool_folder(session_folder: Path) -> None:
    """Sets the spool to a folder of this session, so that files of killed processes stay among the test files."""
    place = session_folder / "spool"
    place.mkdir(exist_ok=True)
    os.environ[spool.VARIABLE] = str(place)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark of two cores for the whole test session."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("manifest_platform_tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # A test's query runs once or twice: code compiled quickly saves a third of the JVM's CPU.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def secrets_of_other_modules_are_forgotten() -> None:
    """Clears the masked secrets: a secret `x` of one module masked each `x` in the messages of the next."""
    masking.forget()


@pytest.fixture(autouse=True)
def settings_of_aws_are_forgotten() -> Iterator[None]:
    """Takes back what a test's configuration said of AWS's clients: it holds for the process."""
    yield
    aws.use(aws.Choices())


@pytest.fixture(scope="session", autouse=True)
def models_of_aws_are_read_once() -> Iterator[None]:
    """Keeps botocore's model files in memory: each test's clients read Glue's again, which took more CPU than most tests."""
    from botocore.loaders import JSONFileLoader

    loader = JSONFileLoader()
    read = cache(loader.load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


@pytest.fixture(scope="session", autouse=True)
def answers_are_as_documented() -> Iterator[None]:
    """Holds every answer in JSON that a command of this process gives against what the command is documented to answer."""
    from manifest_platform.cli import output
    from manifest_platform_tests.cli.documented import require_documented

    before = output.print_json_line

    def held(text: str) -> None:
        require_documented(text)
        before(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "print_json_line", held)
        yield
