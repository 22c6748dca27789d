"""AWS access from a project's dagster-aws resources: locations, credentials, and secrets that are shown to nobody."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from moto import mock_aws

from manifest_platform import aws as clients
from manifest_platform import masking
from manifest_platform.config import ConfigError, load
from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.demo.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.orchestration import aws
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.orchestration.dagster_shop import PARTITIONS
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_names

SECRET = "canary-of-a-store"


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the environment after a test."""
    masking.forget()
    monkeypatch.setattr(aws, "_taken", {})
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_DYNAMODB", *aws._KEYS.values()):
        monkeypatch.setenv(name, "a value that is put back")
        monkeypatch.delenv(name)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, REGION)
    yield
    masking.forget()


def _pages(defs: dg.Definitions) -> str:
    """Returns everything that Dagster's pages know of a code location, including the configuration of its resources."""
    return dg.serialize_value(RepositorySnap.from_def(defs.get_repository_def()))


def dynamodb_resource(**fields: Any) -> dg.ConfigurableResource:
    """Returns a DynamoDB resource as a project defines it, because dagster-aws has none."""
    from dagster_aws.utils import ResourceWithBoto3Configuration

    class DynamoDBResource(ResourceWithBoto3Configuration):
        pass

    return DynamoDBResource(**fields)


def s3_resource(**fields: Any) -> Any:
    from dagster_aws.s3 import S3Resource

    return S3Resource(**fields)


def secrets_resource(**fields: Any) -> Any:
    from dagster_aws.secretsmanager import SecretsManagerResource

    return SecretsManagerResource(region_name=REGION, **fields)


def ssm_resource(**fields: Any) -> Any:
    from dagster_aws.ssm import SSMResource

    return SSMResource(region_name=REGION, **fields)


def test_the_projects_resources_give_access_to_dynamodb_and_s3(
    tmp_path: Path, dynamodb: DynamoDbLocal, s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"test-{uuid4().hex[:12]}"
    create_table(dynamodb.store(table))
    shop = Shop(tmp_path, manifest={"store": f"dynamodb://{table}"}, landing={"root": f"{s3_bucket}/landing"})
    shop.write(0, 1)
    for name in [name for name in os.environ if name.startswith("AWS_") and "FILE" not in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("THE_PROJECTS_ID", ACCESS_KEY)
    monkeypatch.setenv("THE_PROJECTS_KEY", SECRET_KEY)
    who = {
        "region_name": REGION,
        "aws_access_key_id": dg.EnvVar("THE_PROJECTS_ID"),
        "aws_secret_access_key": dg.EnvVar("THE_PROJECTS_KEY"),
    }
    manifest = ManifestResource.from_aws(
        str(shop.config_file),
        s3=s3_resource(endpoint_url=s3_server.endpoint, **who),
        dynamodb=dynamodb_resource(endpoint_url=dynamodb.endpoint, **who),
    )
    defs = build_defs(manifest=manifest)
    assert SECRET_KEY not in _pages(defs)
    with manifest.pipeline(NAME) as pipeline:
        assert discover(pipeline).new == tuple(run_names(0, 1))
        assert [item.key.name for item in pipeline.manifest.items(FEED)] == run_names(0, 1)
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance=instance, resources={"manifest": manifest}) as context,
    ):
        result = defs.resolve_sensor_def(f"{NAME}_listing_sensor")(context)
    assert isinstance(result, dg.SensorResult)
    assert result.dynamic_partitions_requests
    [added] = result.dynamic_partitions_requests
    assert (added.partitions_def_name, list(added.partition_keys)) == (PARTITIONS, run_names(0, 1))


def test_a_profile_overrides_access_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anothers-key-1234")
    ManifestResource.from_aws(s3=s3_resource(profile_name="prod", region_name="eu-west-1"))
    told = {name: os.environ.get(name) for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID")}
    assert told == {
        "AWS_PROFILE": "prod",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": None,
    }
    assert masking.masked("anothers-key-1234") == masking.MASK


def test_keys_do_not_mix_with_a_session_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "anothers-session-1234")
    monkeypatch.setenv("THE_PROJECTS_KEY", "b-key-of-its-own")
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": dg.EnvVar("THE_PROJECTS_KEY")}
    ManifestResource.from_aws(s3=s3_resource(**keys))
    assert (os.environ["AWS_SECRET_ACCESS_KEY"], os.environ.get("AWS_SESSION_TOKEN")) == ("b-key-of-its-own", None)


def test_resources_must_agree_on_settings_of_the_process() -> None:
    s3, dynamodb = s3_resource(region_name="eu-west-1"), dynamodb_resource(region_name="us-east-1")
    with pytest.raises(ConfigError, match=r"s3 and dynamodb differ in AWS_REGION.*manifest\.store"):
        ManifestResource.from_aws(s3=s3, dynamodb=dynamodb)
    ManifestResource.from_aws(s3=s3)
    ManifestResource.from_aws(s3=s3)
    with pytest.raises(ConfigError, match="this process already uses another AWS_REGION"):
        ManifestResource.from_aws(dynamodb=dynamodb)
    assert os.environ["AWS_REGION"] == "eu-west-1", "what is refused changes nothing"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"aws_secret_access_key": "canary-1234"}, r"s3\.aws_secret_access_key is a secret.*dagster\.EnvVar"),
        ({"aws_session_token": "canary-1234"}, r"s3\.aws_session_token is a secret.*dagster\.EnvVar"),
        ({"use_unsigned_session": True}, r"s3\.use_unsigned_session"),
        ({"verify": False}, r"s3\.verify=False.*AWS_CA_BUNDLE"),
    ],
)
def test_unsupported_aws_settings_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        ManifestResource.from_aws(s3=s3_resource(**fields))
    assert "canary" not in str(refused.value)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Secrets Manager (as a client) and a parameter store, with secrets in them."""
    with mock_aws():
        secrets = boto3.Session().client("secretsmanager", region_name=REGION)
        secrets.create_secret(Name="prod/vault", SecretString=SECRET)
        secrets.create_secret(Name="prod/all", SecretString=json.dumps({"iglu": f"{SECRET}-2", "number": 4}))
        secrets.create_secret(Name="prod/binary", SecretBinary=b"x")
        boto3.Session().client("ssm", region_name=REGION).put_parameter(
            Name="/prod/db", Value=f"{SECRET}-3", Type="SecureString"
        )
        yield secrets


def test_secrets_are_fetched_when_needed_and_stored_nowhere(stores: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path, manifest={"store": "sqlite:///${STORE_NAME}.db"})
    manifest = ManifestResource.from_aws(
        str(shop.config_file),
        secrets_manager=secrets_resource(),
        secrets={"VAULT_PASSWORD": "prod/vault", "IGLU_KEY": "prod/all#iglu"},
        ssm=ssm_resource(),
        parameters={"STORE_NAME": "/prod/db"},
    )
    assert masking.is_set("VAULT_PASSWORD") and masking.masked(SECRET) == SECRET, "nothing was fetched"
    assert masking.secret("VAULT_PASSWORD") == SECRET
    assert masking.secret("IGLU_KEY") == f"{SECRET}-2"
    assert load(shop.config_file).manifest.store.endswith(f"{SECRET}-3.db")
    for value in (SECRET, f"{SECRET}-2", f"{SECRET}-3"):
        assert masking.masked(f"a {value} b") == f"a {masking.MASK} b"
    assert SECRET not in str(dict(os.environ))
    pages = _pages(build_defs(manifest=manifest))
    assert str(shop.config_file) in pages and SECRET not in pages


def test_references_of_a_configuration_show_no_value_on_dagsters_pages(stores: Any, tmp_path: Path) -> None:
    clients.forget()
    shop = Shop(tmp_path, manifest={"store": "sqlite:///${ssm:/prod/db}.db"})
    pages = _pages(build_defs(str(shop.config_file)))
    assert load(shop.config_file).manifest.store.endswith(f"{SECRET}-3.db")
    assert str(shop.config_file) in pages and SECRET not in pages


def test_the_environment_overrides_a_store_of_secrets(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ManifestResource.from_aws(secrets_manager=secrets_resource(), secrets={"VAULT_PASSWORD": "prod/vault"})
    monkeypatch.setenv("VAULT_PASSWORD", "for-today-alone")
    assert masking.secret("VAULT_PASSWORD") == "for-today-alone"


def test_a_changed_secret_is_fetched_again_after_a_while(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ManifestResource.from_aws(secrets_manager=secrets_resource(), secrets={"VAULT_PASSWORD": "prod/vault"})
    assert masking.secret("VAULT_PASSWORD") == SECRET
    stores.put_secret_value(SecretId="prod/vault", SecretString="changed-1234")
    assert masking.secret("VAULT_PASSWORD") == SECRET
    monkeypatch.setattr(masking, "FETCHED_S", 0)
    assert masking.secret("VAULT_PASSWORD") == "changed-1234"


def test_a_missing_secret_is_reported_with_its_variable(stores: Any) -> None:
    cases = {
        "prod/nowhere": "secret prod/nowhere cannot be read.*ResourceNotFound",
        "prod/binary": "secret prod/binary is binary",
        "prod/vault#key": "secret prod/vault is not a JSON object with a text under 'key'",
        "prod/all#nothing": "secret prod/all is not a JSON object with a text under 'nothing'",
        "prod/all#number": "secret prod/all is not a JSON object with a text under 'number'",
    }
    for place, told in cases.items():
        ManifestResource.from_aws(secrets_manager=secrets_resource(), secrets={"VAULT_PASSWORD": place})
        with pytest.raises(masking.UnusableSecret, match=f"VAULT_PASSWORD: {told}") as refused:
            masking.secret("VAULT_PASSWORD")
        assert SECRET not in str(refused.value)


def test_a_store_of_secrets_that_is_out_of_reach_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    nobody = ssm_resource(endpoint_url="http://127.0.0.1:9", max_attempts=1)
    ManifestResource.from_aws(ssm=nobody, parameters={"VAULT_PASSWORD": "/prod/db"})
    with pytest.raises(masking.SecretOutOfReach, match="VAULT_PASSWORD: parameter /prod/db cannot be reached"):
        masking.secret("VAULT_PASSWORD")


def test_secrets_need_the_resource_that_reads_them_and_a_name_that_no_library_reads() -> None:
    with pytest.raises(ConfigError, match="give secrets_manager with secrets"):
        ManifestResource.from_aws(secrets={"VAULT_PASSWORD": "prod/vault"})
    with pytest.raises(ConfigError, match="only a library reads PGPASSWORD"):
        ManifestResource.from_aws(secrets_manager=secrets_resource(), secrets={"PGPASSWORD": "prod/vault"})


def test_two_configurations_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one of the two"):
        build_defs("a.yaml", ManifestResource(config_file="b.yaml"))
