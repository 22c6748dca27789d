"""Each duty's policy allows the calls that its programs make: real programs on real servers, whose requests are recorded."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.demo.events import write_run
from manifest_platform.fake_vault import FakeVault, Simulation, VaultSettings
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform_tests.aws.deployment import KINDS, SHOP, VAULT, Deployment
from manifest_platform_tests.aws.policies import Call, Permission, Policy, attached
from manifest_platform_tests.aws.recording import Record, recorded
from manifest_platform_tests.servers.redshift import ROLE, Redshift
from manifest_platform_tests.servers.s3 import S3Server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FIRST = datetime(2024, 5, 14, 12, tzinfo=UTC)
MORNING = datetime(2026, 1, 2, tzinfo=UTC)


def denied(calls: set[Call], policies: list[Policy]) -> list[Call]:
    """The calls that none of the policies allows."""
    return sorted((call for call in calls if not any(one.allowing(call) for one in policies)), key=str)


@pytest.fixture
def deployment(
    tmp_path: Path,
    s3_environment: S3Server,
    dynamodb_server: DynamoDbLocal,
    glue_server: str,
    redshift: Redshift,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Deployment]:
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


@dataclass
class Held:
    """The result of comparing calls with policies: the calls that were denied, and the permissions that allowed a call."""

    deployment: Deployment
    denied: dict[str, list[Call]] = field(default_factory=dict)
    used: set[Permission] = field(default_factory=set)

    def hold(self, role: str, work: Callable[[], object]) -> None:
        """Does some work, and holds its calls against a role; and those of Spark's workers against the role Worker, too."""
        self.deployment.start()
        work()
        calls, of_workers = self.deployment.calls.calls, self.deployment.of_workers.calls
        assert calls, f"{role}: nothing was recorded"
        self._held(role, attached(role), calls | of_workers)
        if of_workers:
            self._held("Worker", attached("Worker"), of_workers)

    def _held(self, role: str, names: list[str], calls: set[Call]) -> None:
        policies = [self.deployment.policies[name] for name in names]
        self.denied.setdefault(role, []).extend(denied(calls, policies))
        self.used |= {permission for call in calls for one in policies for permission in one.allowing(call)}


def test_who_captures_shreds_and_loads_may_do_it(
    deployment: Deployment, redshift: Redshift, capsys: pytest.CaptureFixture[str]
) -> None:
    held, run = Held(deployment), deployment.run
    landing = f"s3://{deployment.bucket('landing')}/enriched"
    write_run(landing, FIRST, 20, seed=1, bad_lines=1)
    write_run(landing, FIRST + timedelta(minutes=10), 20, seed=1, corrupt=True)

    held.hold("Producer", lambda: run("capture", dataset=VAULT))

    def shred() -> None:
        run("discover")
        run("drain", "--no-discover", loads=False, codes=(1, 3))

    held.hold("Shredder", shred)
    assert deployment.of_workers.requests > 0, "the executors' requests are recorded apart"
    held.hold("Loader", lambda: run("drain", "--no-discover", codes=(0, 3)))
    assert redshift.execute(f"SELECT count(*) FROM {SHOP}.events") == [(20,)]

    exercised = {policy for role in held.denied for policy in attached(role)} - {"Driver"}
    unused = {one for name in exercised for one in deployment.policies[name].permissions} - held.used
    with capsys.disabled():
        for one in sorted(unused, key=str):
            sys.stderr.write(f"unused: {one.policy} {one.statement} {one.action}\n")
    assert not any(held.denied.values()), "\n".join(f"{role}: {call}" for role, calls in held.denied.items() for call in calls)
