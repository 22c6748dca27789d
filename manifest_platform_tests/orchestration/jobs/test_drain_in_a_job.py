"""A drain in a job run of Glue or EMR Serverless: Dagster shows what it shows of a drain in its own process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from manifest_platform import failpoints, storage
from manifest_platform.config import ConfigError, load
from manifest_platform.pipeline.discovery import discover
from manifest_platform.spark import SparkUnavailable
from manifest_platform_tests.orchestration.code_location import failure, failure_metadata, output
from manifest_platform_tests.orchestration.conftest import STRICT
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, break_listing, materializations
from manifest_platform_tests.pipeline.following import SessionHere
from manifest_platform_tests.pipeline.shop import NAME, REPOSITORY, Shop, run_name, run_names
from manifest_platform_tests.servers.jobs import JOB, ROLE, JobRuns
from manifest_platform_tests.servers.postgres import Postgres
from manifest_platform_tests.servers.warehouses import DatabasePlace, Place

Settings = Callable[[JobRuns], dict[str, Any]]
LOCAL = str(REPOSITORY / "spark_conf" / "local.conf")


def of_glue(runs: JobRuns) -> dict[str, Any]:
    return {"where": "glue", "job": JOB}


def of_emr(runs: JobRuns) -> dict[str, Any]:
    logs = {"entry_point": "s3://code/job.py", "logs": "s3://logs/emr"}
    return {"where": "emr_serverless_job", "application": runs.application, "role": ROLE, **logs}


@pytest.fixture(params=[of_glue, of_emr], ids=["glue", "emr_serverless_job"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return request.param


def in_a_job(home: Path, runs: JobRuns, bucket: str, settings: Settings, place: Place | None = None, **more: Any) -> Shop:
    """A shop whose Spark is in jobs, with local properties for their drivers."""
    own = {"messages": f"{bucket}/messages", "conf": LOCAL, "config": str(home / "manifest_platform.yaml")}
    return Shop(home, place, spark={**own, **settings(runs)}, **more)


def messages(bucket: str) -> int:
    """The number of objects that are messages of job runs."""
    import boto3

    found = boto3.Session().client("s3").list_objects_v2(Bucket=bucket.removeprefix("s3://"), Prefix="messages/")
    return found["KeyCount"]


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """True if a failpoint has stopped the process."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


@contextmanager
def interrupted_by(interrupt: Callable[[], None]) -> Generator[None]:
    """Runs a function that sends this process SIGINT, on which the work of a Dagster run ends with its own error."""

    def raised(*_: object) -> NoReturn:
        raise DagsterExecutionInterruptedError

    before = signal.signal(signal.SIGINT, raised)  # Spark's handler, in this process of tests
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def landed(
    tmp_path: Path,
    job_runs: JobRuns,
    s3_bucket: str,
    postgres: str,
    postgres_server: Postgres,
    settings: Settings,
    instance: dg.DagsterInstance,
) -> Iterator[DagsterShop]:
    """A shop without a run, whose places a job run reaches: files in S3, manifest and warehouse in PostgreSQL."""
    place = DatabasePlace(postgres_server, tmp_path)
    place.objects = s3_bucket
    places = {"landing": {"root": f"{s3_bucket}/landing"}, "manifest": {"store": postgres}, "shred": STRICT}
    yield DagsterShop(in_a_job(tmp_path, job_runs, s3_bucket, settings, place, **places), instance)
    place.remove()


@pytest.fixture
def shop(landed: DagsterShop) -> DagsterShop:
    """Five shredded runs, none of them loaded, so that a job needs no Spark."""
    landed.shop.shredded(SessionHere(), 5)
    return landed


def test_a_job_drains_and_dagster_shows_it_as_if_it_had_done_it_itself(
    shop: DagsterShop, job_runs: JobRuns, s3_bucket: str
) -> None:
    result = shop.drain(max_items=3)
    assert result.success, job_runs.said()
    assert len(job_runs.processes) == 1
    assert materializations(result, "warehouse") == run_names(0, 1, 2)
    assert shop.shop.seen.runs == run_names(0, 1, 2)
    shown = output(result)
    assert (shown["stop"], shown["loaded"], shown["failed"]) == ("budget of items", 3, 0)
    assert shown["job_run"]
    assert "job_run_page" in shown
    assert shop.metadata("warehouse", 2)["dagster/partition_row_count"] > 0
    assert {one.check_name for one in result.get_asset_check_evaluations()} >= {"feed_not_blocked", "rows_in_warehouse"}
    with shop.shop.open() as pipeline:
        loaded = pipeline.manifest.item(pipeline.key(run_name(0))).records[-1]
    assert loaded.run_id == result.run_id, "the leases of a dead run are found by its id"
    assert messages(s3_bucket) == 0, "messages are deleted"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_job_shreds_what_landed_and_dagster_shows_what_failed_and_why(landed: DagsterShop, job_runs: JobRuns) -> None:
    """The driver's Spark shreds directories in S3; the second of the three is broken."""
    root = load(landed.shop.config_file).datasets[NAME].landing.root
    landed.shop.write(0, 2)
    storage.write_bytes(f"{root}/{run_name(1)}/part-0", b"no event\n")
    storage.write_bytes(f"{root}/{run_name(1)}/_SUCCESS", b"")
    with landed.shop.open() as pipeline:
        discover(pipeline, everything=True)
    landed.add(0, 1, 2)
    result = landed.drain()
    assert materializations(result, "shredded") == run_names(0, 2), job_runs.said()
    assert materializations(result, "warehouse") == landed.shop.seen.runs == run_names(0)
    assert landed.failed("shredded") == {run_name(1)}
    assert "1 of 1 lines of" in failure(result)
    shown = failure_metadata(result)
    assert (shown["stop"], shown["item"], shown["loaded"], shown["shredded"]) == ("blocked", run_name(1), 1, 2)
    checks = {one.check_name: one.passed for one in result.get_asset_check_evaluations()}
    assert checks["rows_in_warehouse"]
    assert checks["feed_not_blocked"] is False
    assert landed.metadata("shredded", 2)["dagster/partition_row_count"] > 0


@pytest.mark.long
def test_an_item_that_fails_in_a_job_fails_the_run_with_its_cause_and_its_partition(
    shop: DagsterShop, job_runs: JobRuns
) -> None:
    shop.add(*range(5))
    break_listing(shop.shop, 1)
    result = shop.drain()
    assert failure(result).startswith(f"Blocked by {run_name(1)}: ")
    assert failure(result).endswith(f" Do: manifest-platform resolve {run_name(1)}")
    assert shop.failed("warehouse") == {run_name(1)}
    shown = failure_metadata(result)
    assert (shown["stop"], shown["item"], shown["loaded"]) == ("blocked", run_name(1), 1)
    assert shown["job_run"]
    assert materializations(result, "warehouse") == run_names(0)
    assert job_runs.processes[0].returncode == 0, "the job run did its work"


@pytest.mark.long
def test_an_error_of_the_driver_fails_the_run_with_the_reason_and_the_logs(shop: DagsterShop, job_runs: JobRuns) -> None:
    job_runs.environment[failpoints.VARIABLE] = "load.committed:raise"
    result = shop.drain()
    told = failure(result)
    assert "failed: FailpointReached: load.committed." in told
    assert "job run logs: " in told
    assert failure_metadata(result)["job_run_logs"]
    assert job_runs.processes[0].returncode == 1
    assert "FailpointReached: load.committed" in job_runs.said(), "the traceback is in the logs of the job run"


@pytest.mark.long
def test_a_driver_that_dies_fails_the_run_and_the_next_one_goes_on(shop: DagsterShop, job_runs: JobRuns) -> None:
    job_runs.environment[failpoints.VARIABLE] = "load.committed:kill"
    result = shop.drain()
    assert re.search(r"ended without a report \(FAILED.*\)\. What it committed counts; the next run completes", failure(result))
    with shop.shop.open() as pipeline:
        assert pipeline.manifest.end_leases(result.run_id) == 1, "as the sensor for dead runs does"
    job_runs.environment.clear()
    assert shop.drain().success
    assert shop.shop.seen.runs == run_names(*range(5))


@pytest.mark.long
def test_an_interrupted_run_cancels_its_job_run(shop: DagsterShop, job_runs: JobRuns) -> None:
    job_runs.environment[failpoints.VARIABLE] = "load.committed:stop"

    def interrupt() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until and not any(map(is_stopped, job_runs.processes)):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    with interrupted_by(interrupt), contextlib.suppress(DagsterExecutionInterruptedError):
        assert not shop.drain().success
    [process] = job_runs.processes
    assert process.wait(30) != 0
    assert job_runs.canceled == {process.pid}


def test_a_service_that_starts_no_run_is_told_with_what_to_check(landed: DagsterShop, job_runs: JobRuns) -> None:
    settings = landed.shop.config_file
    settings.write_text(
        re.sub(r"(job: )drain|(application: )\w+", r"\g<1>\g<2>gone", settings.read_text().replace("job: null", ""))
    )
    told = failure(landed.drain())
    assert "starts no job run: " in told
    assert "Check spark." in told
    assert job_runs.processes == []


def test_without_dagster_a_place_of_jobs_opens_no_session(landed: DagsterShop) -> None:
    with landed.shop.open() as pipeline, pytest.raises(SparkUnavailable, match="in jobs only, which Dagster starts"):
        pipeline.config.spark.session()


def test_places_on_a_disk_of_this_machine_are_refused_by_their_keys_because_a_job_run_lacks_them(
    tmp_path: Path, job_runs: JobRuns, settings: Settings
) -> None:
    shop = in_a_job(tmp_path, job_runs, "s3://acme", settings)
    with pytest.raises(ConfigError) as told:
        load(shop.config_file)
    for key in ("manifest.store", "warehouse.path", "datasets.shop.landing.root", "datasets.shop.shred.output"):
        assert f"{key} '" in str(told.value)
    where = settings(job_runs)["where"]
    assert f"is on a disk of this machine, which job runs of spark.where '{where}' lack; allowed: a place in S3" in str(
        told.value
    )
    assert "allowed: a database that is reached by the network" in str(told.value)
