"""References to secrets: each place, errors without the value, what is shown of them, and how long they are kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from manifest_platform import aws, config, masking, secret_references
from manifest_platform.cli import main
from manifest_platform.config import ConfigError
from manifest_platform.masking import SecretOutOfReach, UnusableSecret
from manifest_platform_tests.pipeline.shop import Shop
from manifest_platform_tests.servers.s3 import PROXY_VARIABLES

REGION = "eu-west-1"
SECRET = "correct-horse-battery-7391"
OTHER = "another-staple-5512"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A process without secrets of other tests, and without clients of them."""
    masking.forget()
    aws.forget()
    yield
    masking.forget()
    aws.forget()


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Secrets Manager, as a client, and Parameter Store, with secrets in them."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing-key-of-nobody")
    with mock_aws():
        client = boto3.client("secretsmanager", region_name=REGION)
        client.create_secret(Name="prod/plain", SecretString=SECRET)
        client.create_secret(Name="prod/json", SecretString=json.dumps({"password": SECRET, "port": 5432}))
        client.create_secret(Name="prod/empty", SecretString=" ")
        client.create_secret(Name="prod/binary", SecretBinary=SECRET.encode())
        parameters = boto3.client("ssm", region_name=REGION)
        parameters.put_parameter(Name="/prod/plain", Value=SECRET, Type="SecureString")
        parameters.put_parameter(Name="/prod/json", Value=json.dumps({"password": SECRET}), Type="SecureString")
        yield client


def file_with(folder: Path, text: str) -> str:
    (folder / "secret").write_text(text)
    return f"file:{folder / 'secret'}"


def test_each_place_gives_its_secret(amazon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_SECRET", SECRET)
    arn = amazon.describe_secret(SecretId="prod/plain")["ARN"]
    references = (
        *("THE_SECRET", "env:THE_SECRET"),
        *("secretsmanager:prod/plain", f"secretsmanager:{arn}", "secretsmanager:prod/json#password"),
        *("ssm:/prod/plain", "ssm:/prod/json#password"),
        file_with(tmp_path, f"{SECRET}\n"),
    )
    assert [masking.secret(secret_references.checked(one)) for one in references] == [SECRET] * len(references)
    (tmp_path / "json").write_text(json.dumps({"password": SECRET}))
    assert masking.secret(f"file:{tmp_path}/json#password") == SECRET


def test_an_arn_names_the_region(amazon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arn = amazon.describe_secret(SecretId="prod/plain")["ARN"]
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert masking.secret(f"secretsmanager:{arn}") == SECRET
    with pytest.raises(UnusableSecret):
        masking.secret("secretsmanager:prod/plain")


def test_nothing_is_fetched_before_it_is_needed_and_then_kept_for_a_while(amazon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert masking.is_set("secretsmanager:prod/plain")
    assert not masking.knows_any() or masking.masked(SECRET) == SECRET, "nothing was fetched"
    assert masking.secret("secretsmanager:prod/plain") == SECRET
    amazon.put_secret_value(SecretId="prod/plain", SecretString=OTHER)
    assert masking.secret("secretsmanager:prod/plain") == SECRET
    monkeypatch.setattr(masking, "FETCHED_S", 0)
    assert masking.secret("secretsmanager:prod/plain") == OTHER


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("secretsmanager:prod/none", "secret prod/none cannot be read: .*ResourceNotFound"),
        ("secretsmanager:prod/binary", "secret prod/binary is binary"),
        ("secretsmanager:prod/empty", "secret prod/empty is empty. Store the secret there"),
        ("secretsmanager:prod/json#user", "secret prod/json is not a JSON object with a text under 'user'"),
        ("secretsmanager:prod/json#port", "secret prod/json is not a JSON object with a text under 'port'"),
        ("secretsmanager:prod/plain#password", "secret prod/plain is not a JSON object with a text under 'password'"),
        ("ssm:/prod/none", "parameter /prod/none cannot be read: .*ParameterNotFound"),
        ("ssm:/prod/plain#password", "parameter /prod/plain is not a JSON object"),
        ("file:/nowhere/secret", "the file cannot be read: No such file or directory. Mount it"),
    ],
)
def test_an_error_names_the_reference_and_the_reason_and_not_the_value(amazon: Any, reference: str, told: str) -> None:
    with pytest.raises(UnusableSecret, match=f"^{re.escape(reference)}: {told}") as refused:
        masking.secret(reference)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "is empty"), (b"\xff\xfe", "is not UTF-8 text"), (b"x" * 70_000, "more than 64 KiB")]
)
def test_a_file_that_is_no_secret_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(UnusableSecret, match=told):
        masking.secret(f"file:{tmp_path}/secret")


def test_a_store_of_secrets_that_does_not_answer_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for service in ("SECRETS_MANAGER", "SSM"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", "http://127.0.0.1:9")
    aws.use(aws.Choices(aws.Service(attempts=1)))
    for reference in ("secretsmanager:prod/plain", "ssm:/prod/plain"):
        with pytest.raises(SecretOutOfReach, match=f"{reference}: .* cannot be reached"):
            masking.secret(reference)


def test_a_throttled_store_of_secrets_is_an_outage() -> None:
    response: Any = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}

    class Throttled:
        def get_secret_value(self, **_: Any) -> Any:
            raise ClientError(response, "GetSecretValue")

    with pytest.raises(SecretOutOfReach):
        secret_references.of_secrets_manager("secretsmanager:a", "a", Throttled)


@pytest.mark.parametrize(
    "reference", ["a b", "", "vault:x", "file:relative", "env:a-b", "ssm:", "ssm:#key", "secretsmanager:a#"]
)
def test_a_reference_of_no_known_form_is_refused(tmp_path: Path, reference: str) -> None:
    with pytest.raises(ValueError, match=r"allowed: an environment variable .*file:/path, secretsmanager:NAME or ssm:NAME"):
        secret_references.checked(reference)
    database = {"kind": "postgresql", "url": "postgresql://loader@localhost/warehouse", "password_variable": reference}
    with pytest.raises(ConfigError, match=r"warehouse\.password_variable: .*allowed: an environment variable"):
        config.load(Shop(tmp_path, warehouse=database).config_file)


# In a configuration


def shop_with(home: Path, reference: str) -> Shop:
    database = {
        "kind": "postgresql",
        "url": "postgresql://loader@localhost/warehouse",
        "password_variable": "secretsmanager:prod/json#password",
    }
    return Shop(home, warehouse=database, manifest={"store": f"postgresql://manifest:${{{reference}}}@localhost/manifest"})


@pytest.mark.parametrize("reference", ["secretsmanager:prod/plain", "ssm:/prod/json#password", "file:/secret"])
def test_a_configuration_takes_references_and_shows_no_value(
    amazon: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], reference: str
) -> None:
    reference = file_with(tmp_path, SECRET) if reference.startswith("file") else reference
    shop = shop_with(tmp_path / "shop", reference)
    assert f":{SECRET}@" in config.load(shop.config_file).manifest.store
    for more in ([], ["--json"]):
        assert main(["--config", str(shop.config_file), "config", "show", *more]) == 0
        shown = capsys.readouterr()
        assert SECRET not in shown.out + shown.err
        assert "secretsmanager:prod/json#password" in shown.out
        assert masking.MASK in shown.out


def test_errors_and_events_mask_what_was_fetched(amazon: Any) -> None:
    assert masking.secret("ssm:/prod/json#password") == SECRET
    for text in (f"password {SECRET} is wrong", f"postgresql://loader:{SECRET}@host", json.dumps({"password": SECRET})):
        assert SECRET not in masking.masked(text)


def test_a_configuration_tells_which_reference_failed_and_where(amazon: Any, tmp_path: Path) -> None:
    shop = shop_with(tmp_path, "secretsmanager:prod/none")
    with pytest.raises(ConfigError, match=r"line \d+: manifest\.store: .*secretsmanager:prod/none.*cannot be read"):
        config.load(shop.config_file)
    shop = shop_with(tmp_path, "ssm:#")
    with pytest.raises(ConfigError, match=r"manifest\.store: .*allowed: an environment variable"):
        config.load(shop.config_file)
