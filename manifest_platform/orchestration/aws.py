"""AWS as a Dagster project has it configured: what the resources of dagster-aws say is taken for the platform as well.

Belongs here: what is read of such a resource, and where it goes. Storage, stores and catalogs find AWS by the environment
of the process, as every AWS tool does, and so do Spark's workers; so region, endpoints, profile and keys go there, once.
Secrets do not: they are fetched when they are needed, and kept in no variable, configuration or event. dagster-aws itself,
whose import takes two seconds, is not imported here: who has a resource of it has done so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from manifest_platform import masking
from manifest_platform.config import ConfigError

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource
    from dagster_aws.secretsmanager import SecretsManagerResource
    from dagster_aws.ssm import SSMResource

_PASSING = {"ThrottlingException", "RequestLimitExceeded", "InternalServiceError", "InternalServerError", "ServiceUnavailable"}
_KEYS = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}
_SHARED = {"region_name": ("AWS_REGION", "AWS_DEFAULT_REGION"), "profile_name": ("AWS_PROFILE",)}

_taken: dict[str, str] = {}
"""What this process was told before."""


def take_access(s3: S3Resource | None, dynamodb: dg.ConfigurableResource | None) -> None:
    """Has this process, and those that it starts, find S3 and DynamoDB as the resources say.

    Raises ConfigError where the two differ in what a process has but once, for what the platform does not do, for keys that
    are no `dagster.EnvVar`, and where the process was told otherwise before.
    """
    environment: dict[str, str] = {}
    given = (("s3", s3, "AWS_ENDPOINT_URL_S3"), ("dynamodb", dynamodb, "AWS_ENDPOINT_URL_DYNAMODB"))
    for name, resource, endpoint in given:
        for variable, value in _environment(name, resource, endpoint).items() if resource else ():
            if environment.setdefault(variable, value) != value:
                raise ConfigError(
                    f"from_aws: s3 and dynamodb differ in what {variable} says, and a process has one: give both the same;"
                    " another region of the table stands in manifest.store, as dynamodb://TABLE?region=eu-west-1"
                )
    for variable, value in environment.items():
        if _taken.get(variable, value) != value:
            raise ConfigError(f"from_aws: this process was told another {variable} before; give each code location one AWS")
    if "AWS_PROFILE" in environment or "AWS_ACCESS_KEY_ID" in environment:
        for variable in _KEYS.values():  # what was there is of another one: it would win over a profile, or mix with keys
            if variable not in environment:
                masking.keep(os.environ.pop(variable, None))
    _taken.update(environment)
    os.environ.update(environment)


def take_secrets(resource: SecretsManagerResource, secrets: Mapping[str, str]) -> None:
    """Has each variable taken from the secret named, as `name`, or `name#key` for a key of its JSON.

    Raises ConfigError for a variable that only the environment can hold.
    """
    for variable, place in secrets.items():
        _provide(variable, partial(_secret, resource, variable, place))


def take_parameters(resource: SSMResource, parameters: Mapping[str, str]) -> None:
    """Has each variable taken from the parameter named, decrypted. Raises ConfigError."""
    for variable, name in parameters.items():
        _provide(variable, partial(_parameter, resource, variable, name))


def _environment(name: str, resource: dg.ConfigurableResource, endpoint: str) -> dict[str, str]:
    """The variables that say what a resource does."""
    for field in ("aws_secret_access_key", "aws_session_token"):
        value = getattr(resource, field, None)
        if value and not isinstance(value, dg.EnvVar):
            masking.keep(value)
            raise ConfigError(
                f"from_aws: {name}.{field} is a secret, which Dagster's pages show: give it as dagster.EnvVar(NAME)"
            )
    told: Any = resource.process_config_and_initialize()  # from here on, each EnvVar is what it stands for
    if getattr(told, "use_unsigned_session", False):
        raise ConfigError(f"from_aws: {name}.use_unsigned_session: the platform writes, and so must say who it is")
    if told.verify is False:
        raise ConfigError(f"from_aws: {name}.verify=False: servers prove who they are; name your authority in AWS_CA_BUNDLE")
    found = {variable: getattr(told, field) for field, variables in _SHARED.items() for variable in variables}
    found |= {variable: getattr(told, field) for field, variable in _KEYS.items()}
    return {variable: value for variable, value in {**found, endpoint: told.endpoint_url}.items() if value}


def _provide(variable: str, fetch: Callable[[], str]) -> None:
    if variable in masking.READ_BY_LIBRARIES:
        raise ConfigError(
            f"from_aws: {variable} is read from the environment by a library, and by no one else: choose another name, and"
            " write it as ${NAME} where the configuration needs it"
        )
    masking.provide(variable, fetch)


def _secret(resource: SecretsManagerResource, variable: str, place: str) -> str:
    name, _, key = place.partition("#")
    answer = _asked(variable, f"secret {name}", lambda: _client(resource).get_secret_value(SecretId=name))
    text = answer.get("SecretString")
    if text is None:
        raise masking.UnusableSecret(f"{variable}: secret {name} is binary; store a text")
    if not key:
        return text
    masking.keep(text)
    try:
        found = json.loads(text)[key]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, str):
        raise masking.UnusableSecret(
            f"{variable}: secret {name} is no JSON object with a text under {key!r}; name another key, as NAME#KEY"
        )
    return found


def _parameter(resource: SSMResource, variable: str, name: str) -> str:
    def ask() -> dict[str, Any]:
        return _client(resource).get_parameter(Name=name, WithDecryption=True)

    answer = _asked(variable, f"parameter {name}", ask)
    return answer["Parameter"]["Value"]


def _client(resource: SecretsManagerResource | SSMResource) -> Any:
    return resource.process_config_and_initialize().get_client()


def _asked(variable: str, what: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An answer of AWS. Raises UnusableSecret, SecretOutOfReach."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnection

    try:
        return ask()
    except ClientError as error:
        status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        kind = masking.SecretOutOfReach if status >= 500 or code in _PASSING else masking.UnusableSecret
        raise kind(f"{variable}: {what} cannot be read: {error}") from error
    except (HTTPClientError, NoConnection) as error:
        raise masking.SecretOutOfReach(f"{variable}: {what} cannot be reached: {error}") from error
    except BotoCoreError as error:
        raise masking.UnusableSecret(f"{variable}: {what} cannot be read: {error}; give region and credentials") from error
