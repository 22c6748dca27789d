"""Each duty's policy allows the calls that its programs make: real programs on real servers, whose requests are recorded."""

from __future__ import annotations

import json
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.demo.events import write_run
from manifest_platform.fake_vault import FakeVault, Simulation, VaultSettings
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform_tests.aws.deployment import KINDS, SHOP, VAULT, Deployment
from manifest_platform_tests.aws.held import Held
from manifest_platform_tests.aws.recording import Record, recorded
from manifest_platform_tests.aws.stacks import REGION
from manifest_platform_tests.pipeline.following import Following
from manifest_platform_tests.servers.glue import emptied
from manifest_platform_tests.servers.redshift import ROLE, Redshift
from manifest_platform_tests.servers.s3 import S3Server
from manifest_platform_tests.waking import s3_record

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FIRST = datetime(2024, 5, 14, 12, tzinfo=UTC)
MORNING = datetime(2026, 1, 2, tzinfo=UTC)
ROLES = ("Producer", "Shredder", "Loader", "Merger", "Publisher", "Reader", "Operator", "Retention", "Follower")
LOOKED = (0, 1, 3, 4)
"""The exit codes of a command that was understood, whatever it found."""


@pytest.fixture
def deployment(
    tmp_path: Path,
    s3_environment: S3Server,
    dynamodb_server: DynamoDbLocal,
    glue_server: str,
    redshift: Redshift,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Deployment]:
    emptied(glue_server)  # it lives as long as the tests, and its catalog has the tables of those before
    name = f"mp-{uuid.uuid4().hex[:8]}"
    create_table(f"dynamodb://{name}?endpoint={dynamodb_server.endpoint}")
    secrets = boto3.Session().client("secretsmanager", endpoint_url=glue_server)
    secrets.create_secret(Name=f"{name}/warehouse", SecretString='{"username": "postgres", "password": "x"}')
    warehouse = {
        "kind": "redshift",
        "url": f"{redshift.url.replace('postgres@', '')}?sslmode=disable",
        "secret": f"{name}/warehouse",
        "region": "us-east-1",
        "role": ROLE,
    }
    settings = VaultSettings(full_stops=[MORNING], log_stops=[MORNING], full_delay=timedelta(minutes=5), part_bytes=4096)
    simulation = Simulation(seed=5, begin=MORNING, rows=6, changes=(8, 12))
    calls, of_workers = Record(), Record()
    with ExitStack() as stack:
        fake = stack.enter_context(FakeVault(simulation, MORNING + timedelta(minutes=40), settings))
        s3, others, tables = (
            stack.enter_context(recorded(endpoint, calls))
            for endpoint in (s3_environment.endpoint, glue_server, dynamodb_server.endpoint)
        )
        environment = s3_environment.environment | {
            "AWS_ENDPOINT_URL": others,
            "AWS_ENDPOINT_URL_S3": s3,
            "AWS_ENDPOINT_URL_DYNAMODB": tables,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": tables,
            "VAULT_PASSWORD": fake.settings.password,
        }
        for_workers = stack.enter_context(recorded(s3_environment.endpoint, of_workers))
        login = {"kind": "password", "user": fake.settings.user, "password_variable": "VAULT_PASSWORD"}
        made = Deployment(
            tmp_path,
            name,
            environment,
            {"AWS_ENDPOINT_URL_S3": for_workers},
            warehouse,
            {"id": str(fake.settings.vault_id), "url": fake.url, "login": login},
            calls,
            of_workers,
        )
        client = boto3.Session().client("s3")
        for kind in KINDS:
            client.create_bucket(Bucket=made.bucket(kind))
        yield made


@pytest.fixture(scope="module")
def held() -> Held:
    """Comparisons of the tests of this file."""
    return Held()


def land(deployment: Deployment, number: int, **given: Any) -> str:
    """Lands a run, and returns its name."""
    start = FIRST + number * timedelta(minutes=10)
    write_run(f"s3://{deployment.bucket('landing')}/enriched", start, 20, seed=1, **given)
    return f"run={start:%Y-%m-%d-%H-%M-%S}"


def test_who_captures_shreds_and_loads_may_do_it(deployment: Deployment, redshift: Redshift, held: Held) -> None:
    run = deployment.run
    land(deployment, 0, bad_lines=1)
    land(deployment, 1, corrupt=True)

    held.hold(deployment, "Producer", lambda: run("capture", dataset=VAULT))

    def shred() -> None:
        run("discover")
        run("drain", "--no-discover", loads=False, codes=(1, 3))

    # It asks the warehouse once whether another loader filled it, and continues if it may not ask: the load finds out.
    held.hold(deployment, "Shredder", shred, "secretsmanager:GetSecretValue")
    assert deployment.of_workers.requests > 0, "the executors' requests are recorded apart"
    held.hold(deployment, "Loader", lambda: run("drain", "--no-discover", codes=(0, 3)))
    assert redshift.execute(f"SELECT count(*) FROM {SHOP}.events") == [(20,)]


def test_who_loads_packed_runs_may_unpack_them_and_remove_what_was_unpacked(
    deployment: Deployment, redshift: Redshift, held: Held
) -> None:
    run = deployment.run
    land(deployment, 0)
    run("drain", loads=False, packed=True, codes=(0, 1, 3))
    shredded = boto3.Session().client("s3")
    before = shredded.list_objects_v2(Bucket=deployment.bucket("shredded"))["KeyCount"]
    held.hold(deployment, "Loader", lambda: run("drain", "--no-discover", packed=True))
    assert redshift.execute(f"SELECT count(*) FROM {SHOP}.events") == [(20,)]
    actions = {call.action for call in deployment.calls.calls if deployment.bucket("shredded") in call.resource}
    assert actions == {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"}
    assert shredded.list_objects_v2(Bucket=deployment.bucket("shredded"))["KeyCount"] == before


def test_who_merges_publishes_and_reads_may_do_it(deployment: Deployment, held: Held) -> None:
    run, day = deployment.run, f"{FIRST:%Y-%m-%d}"
    names = [land(deployment, number, bad_lines=1) for number in range(2)]
    run("drain")
    held.hold(deployment, "Publisher", lambda: run("merge", "publish"))
    held.hold(deployment, "Merger", lambda: run("merge", "run", codes=(0,)))
    assert deployment.of_workers.requests > 0, "merges are Spark's"
    held.hold(deployment, "Publisher", lambda: run("merge", "publish", "--verify"))

    def look() -> None:
        for command in (("next",), ("history", names[0]), ("explain", names[0]), ("query",), ("queue",), ("types",), ("cost",)):
            run(*command, codes=LOOKED)
        for command in (("status",), ("explain", "events", day), ("log",), ("show", "objects"), ("files", "events", day)):
            run("merge", *command, codes=LOOKED)
        [told] = run("merge", "query", "SELECT count(*) AS rows FROM events")
        assert "40" in json.dumps(told), "it read the published partition"

    # What is asked of the warehouse beside the manifest is left out if it cannot be asked.
    held.hold(deployment, "Reader", look, "secretsmanager:GetSecretValue")


def test_who_operates_and_deletes_may_do_it(deployment: Deployment, redshift: Redshift, held: Held) -> None:
    run = deployment.run
    names = [land(deployment, number, bad_lines=1) for number in range(2)]
    run("drain")
    run("merge", "run", codes=(0,))
    client, bucket = boto3.Session().client("s3"), deployment.bucket("shredded")
    died = f"shredded/{SHOP}/{names[0]}/died/part.parquet"
    client.put_object(Bucket=bucket, Key=died, Body=b"left")

    def operate() -> None:
        for command in (("status",), ("tables",), ("bad", "list"), ("bad", "replay"), ("sql", "SELECT 1"), ("store", "check")):
            run(*command, codes=LOOKED)
        run("reload", names[1], "--reason", "trial")
        run("doctor", "--repair", "--clean", "--grace", "0", codes=LOOKED)
        run("warehouse", "reconcile", "--dry-run")
        run("merge", "gc", "--grace", "1h", later=True, codes=LOOKED)
        run("housekeeping", later=True, codes=LOOKED)

    held.hold(deployment, "Operator", operate)
    assert "Contents" not in client.list_objects_v2(Bucket=bucket, Prefix=died), "the doctor removed it"
    run("drain", "--no-discover")
    held.hold(deployment, "Retention", lambda: run("gc", "--yes", later=True, codes=(0,)))
    assert redshift.execute(f"SELECT count(*) FROM {SHOP}.events") == [(40,)]


def test_a_follower_may_do_what_it_does(deployment: Deployment, held: Held, glue_server: str) -> None:
    client = boto3.Session().client("sqs", region_name=REGION, endpoint_url=glue_server)
    queue = client.create_queue(QueueName=f"{deployment.name}-landed")["QueueUrl"]
    file = deployment.configured(loads=True, notify=f"sqs://{deployment.name}-landed?region={REGION}")

    def follow() -> None:
        with Following(file, "--dataset", SHOP, environment=deployment.environment) as follower:
            follower.told("following")
            name = land(deployment, 0)
            event = s3_record(f"enriched/{name}/_SUCCESS", deployment.bucket("landing"))
            client.send_message(QueueUrl=queue, MessageBody=json.dumps({"Records": [event]}))
            follower.told("loaded", item=name)
            follower.told("ended", loaded=1)
            assert follower.end(signal.SIGTERM) == 143

    held.hold(deployment, "Follower", follow)


def test_every_role_was_compared_and_what_nobody_used_is_printed(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        for policy, actions in held.unused.items():
            sys.stderr.write(f"unused: {policy}: {', '.join(actions)}\n")
    assert held.roles == {*ROLES, "Worker"}, "run this file as a whole"
