"""What a library says of its own failures goes out masked, at every border, whichever client it is of."""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import dagster as dg
import pytest

from manifest_platform import config, masking, orchestration, outward
from manifest_platform.cli import main
from manifest_platform.manifest import Application, Failure, FailureKind
from manifest_platform.manifest.store import StoreUnavailable
from manifest_platform.masking import MASK, keep
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.test_commands import RUNS, Shop

CANARY = "canary/7Zq+1"


@pytest.fixture(autouse=True)
def canary() -> Iterator[None]:
    masking.forget()
    keep(CANARY)
    yield
    masking.forget()


def _httpx() -> None:
    import socket

    import httpx

    with socket.create_server(("127.0.0.1", 0)) as server:  # it never reads: the header is refused before it is sent
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        httpx.get(url, headers={"Authorization": f"Bearer {CANARY}\n"}, trust_env=False)


def _urllib3() -> None:
    import urllib3

    urllib3.PoolManager().request("GET", f"http://127.0.0.1:1/?token={CANARY}", retries=1)


def _botocore() -> None:
    import boto3
    from botocore.config import Config

    settings = Config(connect_timeout=1, retries={"max_attempts": 0})
    boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:1/{CANARY}",
        region_name="eu-west-1",
        aws_access_key_id="invented",
        aws_secret_access_key="invented",
        config=settings,
    ).list_buckets()


def _psycopg() -> None:
    from psycopg.conninfo import conninfo_to_dict

    conninfo_to_dict(f"host=127.0.0.1 password = x {CANARY}")


def _sqlalchemy() -> None:
    import sqlalchemy

    with sqlalchemy.create_engine("sqlite://").connect() as connection:
        connection.execute(sqlalchemy.text("no SQL, with :secret"), {"secret": CANARY})


def _duckdb() -> None:
    import duckdb

    duckdb.connect().execute(f"CREATE SECRET (TYPE s3, SECRET '{CANARY}' oops")


def _spark() -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    class Answer:
        """A Java exception, as the gateway hands it over."""

        _target_id = "o1"
        _gateway_client: Any = None

        def toString(self) -> str:
            return f"java.io.IOException: fs.s3a.secret.key={CANARY}"

    class Told(Py4JJavaError):
        def __str__(self) -> str:  # asks the gateway for the text, whatever its arguments are
            return f"An error occurred: {self.java_exception.toString()}"

    try:
        raise Told("An error occurred", Answer())
    except Told as error:
        raise AnalysisException(f"cannot read with {CANARY}") from error


CLIENTS: dict[str, Callable[[], None]] = {
    name.removeprefix("_"): ask
    for name, ask in (
        ("httpx", _httpx),
        ("urllib3", _urllib3),
        ("botocore", _botocore),
        ("psycopg", _psycopg),
        ("SQLAlchemy", _sqlalchemy),
        ("DuckDB", _duckdb),
        ("Spark", _spark),
    )
}


def failed(client: str) -> Exception:
    """The error of a client that tells the canary."""
    try:
        CLIENTS[client]()
    except Exception as error:
        return error
    raise AssertionError(f"{client} did not fail")


def tells(text: str) -> bool:
    return "canary" in text or "7Zq" in text


@pytest.fixture(scope="module")
def errors() -> dict[str, Exception]:
    return {client: failed(client) for client in CLIENTS}


def test_each_client_quotes_what_it_was_given(errors: dict[str, Exception]) -> None:
    said = {client: str(error) + str(error.__cause__) for client, error in errors.items()}
    assert all(map(tells, said.values())), said


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    assert main(["discover"]) == 0
    return shop


@pytest.mark.parametrize("client", CLIENTS)
def test_the_command_line_masks_it(
    client: str,
    errors: dict[str, Exception],
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    error = errors[client]

    def foreseen(*_arguments: Any, **_more: Any) -> NoReturn:
        raise StoreUnavailable(f"the store does not answer: {error}, {error!r}, {error.__cause__}") from error

    monkeypatch.setattr("manifest_platform.cli.status.open_pipeline", foreseen)
    assert main(["status", "--json"]) == main(["status"]) == 1
    told = capfd.readouterr()
    assert MASK in told.out and MASK in told.err
    assert not tells(told.out + told.err)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_traceback_masks_it(client: str, errors: dict[str, Exception], capfd: pytest.CaptureFixture[str]) -> None:
    outward.guard()
    error = errors[client]
    sys.excepthook(type(error), error, error.__traceback__)
    told = capfd.readouterr()
    assert type(error).__name__ in told.err
    assert not tells(told.out + told.err)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_log_line_masks_it(client: str, errors: dict[str, Exception], capfd: pytest.CaptureFixture[str]) -> None:
    outward.guard()
    log, handler = logging.getLogger(f"canary-{uuid4()}"), logging.StreamHandler()
    log.addHandler(handler)
    error = errors[client]
    log.error("of %s: %s", client, error, exc_info=error)
    told = capfd.readouterr().err
    assert type(error).__name__ in told and f"of {client}" in told
    assert not tells(told)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_manifest_keeps_it_masked(client: str, errors: dict[str, Exception], shop: Shop) -> None:
    error = errors[client]
    shop.work("shred", RUNS[0], failure=f"{error} {error.__cause__}")
    with shop.pipeline() as pipeline:
        key = pipeline.key(RUNS[0])
        pipeline.manifest.resolve(key, f"tried again after {error} {error.__cause__}")
        rows = json.dumps([row.data for row in pipeline.manifest.store.query(pipeline.name, "")])
        [failure] = [one for one in pipeline.manifest.history(key) if one.data.get("kind")]
    assert MASK in failure.data["message"]
    assert not tells(rows)
    assert Failure.of(error, f"Traceback: {error}").payload().data["kind"] == str(FailureKind.PERMANENT)
    assert not tells(json.dumps(Failure.of(error, f"Traceback: {error}").payload().data))


def test_dagster_keeps_it_masked(shop: Shop) -> None:
    outward.guard()

    def op_of(client: str) -> dg.OpDefinition:
        @dg.op(name=client)
        def fails(context: dg.OpExecutionContext, manifest: ManifestResource) -> None:
            with manifest.pipeline("acme", context.run_id) as pipeline:
                pipeline.manifest.state(Application("load")).feed(FEED)
                error = failed(client)
                context.log.error(f"{client}: {error}")
                context.log.warning("again", exc_info=error)
                if client == "DuckDB":
                    raise dg.Failure(f"{error}", metadata={"why": f"{error}"}) from error
                raise error

        return fails

    @dg.job(resource_defs={"manifest": ManifestResource(config_file=str(shop.file))}, executor_def=dg.in_process_executor)
    def asks() -> None:
        for client in CLIENTS:
            op_of(client)()

    with dg.DagsterInstance.ephemeral() as instance:
        result = asks.execute_in_process(instance=instance, raise_on_error=False)
        logged = [repr(entry) for entry in instance.all_logs(result.run_id)]
    assert len(result.get_failed_step_keys()) == len(CLIENTS)
    assert MASK in "".join(logged)
    assert [entry for entry in logged if tells(entry)] == []


def test_every_event_of_dagster_is_made_where_its_words_are_cleaned() -> None:
    folder = Path(orchestration.__file__).parent
    own = [path for path in folder.rglob("*.py") if path.name != "events.py"]
    made = re.compile(
        r"dg\.(Failure|AssetCheckResult|AssetMaterialization)\(|(?:Output|MaterializeResult)\(.*metadata=(?!fit\()"
    )
    found = {path.name: match[0] for path in own if (match := made.search(path.read_text()))}
    assert found == {}
    added = re.compile(r"add_(?:asset|output)_metadata\((?!fit\(|\{)")
    found = {path.name: match[0] for path in own if (match := added.search(path.read_text()))}
    clean_already = {"capture.py": "add_asset_metadata(", "partition_runs.py": "add_asset_metadata("}
    assert found == clean_already, "these are of events which are clean already"
