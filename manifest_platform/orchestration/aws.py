"""AWS access from a Dagster project's own dagster-aws resources.

This module reads such a resource and passes its settings on. Region, endpoints, profile and access keys go to the process
environment, because storage, stores, catalogs and Spark's workers find AWS there, as every AWS tool does. Secrets never do:
they are fetched when they are needed, and are kept in no variable, configuration or event. This module does not import
dagster-aws, whose import takes two seconds; a project that has a resource of it has already imported it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from manifest_platform import masking, secret_references
from manifest_platform.config import ConfigError

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource
    from dagster_aws.secretsmanager import SecretsManagerResource
    from dagster_aws.ssm import SSMResource

_KEYS = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}
_SHARED = {"region_name": ("AWS_REGION", "AWS_DEFAULT_REGION"), "profile_name": ("AWS_PROFILE",)}

_taken: dict[str, str] = {}
"""The variables that this process has already set."""


def take_access(s3: S3Resource | None, dynamodb: dg.ConfigurableResource | None) -> None:
    """Sets the environment so that this process, and those that it starts, find S3 and DynamoDB as the resources say.

    Raises ConfigError if the two resources differ in a setting of which a process has only one, for a setting that the platform
    does not support, for access keys that are not a `dagster.EnvVar`, and if this process was set differently before.
    """
    environment: dict[str, str] = {}
    given = (("s3", s3, "AWS_ENDPOINT_URL_S3"), ("dynamodb", dynamodb, "AWS_ENDPOINT_URL_DYNAMODB"))
    for name, resource, endpoint in given:
        for variable, value in _environment(name, resource, endpoint).items() if resource else ():
            if environment.setdefault(variable, value) != value:
                raise ConfigError(
                    f"from_aws: s3 and dynamodb differ in {variable}, but a process has only one: give both the same value."
                    " If only the table is in another region, name that in manifest.store: dynamodb://TABLE?region=eu-west-1"
                )
    for variable, value in environment.items():
        if _taken.get(variable, value) != value:
            raise ConfigError(
                f"from_aws: this process already uses another {variable}. Give each code location one AWS account and region"
            )
    if "AWS_PROFILE" in environment or "AWS_ACCESS_KEY_ID" in environment:
        for variable in _KEYS.values():  # values of other credentials: they would override a profile
            if variable not in environment:
                masking.keep(os.environ.pop(variable, None))
    _taken.update(environment)
    os.environ.update(environment)


def take_secrets(resource: SecretsManagerResource, secrets: Mapping[str, str]) -> None:
    """Provides each variable from the named secret: `name`, or `name#key` for a key of its JSON.

    Raises ConfigError for a variable that libraries read from the environment only.
    """
    for variable, place in secrets.items():
        _provide(variable, partial(secret_references.of_secrets_manager, variable, place, partial(_client, resource)))


def take_parameters(resource: SSMResource, parameters: Mapping[str, str]) -> None:
    """Provides each variable from the named parameter, decrypted. Raises ConfigError as `take_secrets` does."""
    for variable, name in parameters.items():
        _provide(variable, partial(secret_references.of_parameter, variable, name, partial(_client, resource)))


def _environment(name: str, resource: dg.ConfigurableResource, endpoint: str) -> dict[str, str]:
    """Returns the environment variables that express a resource's settings. Raises ConfigError for an unsupported setting."""
    for field in ("aws_secret_access_key", "aws_session_token"):
        value = getattr(resource, field, None)
        if value and not isinstance(value, dg.EnvVar):
            masking.keep(value)
            raise ConfigError(
                f"from_aws: {name}.{field} is a secret, and Dagster's pages would show it. Give it as dagster.EnvVar(NAME)"
            )
    told: Any = resource.process_config_and_initialize()  # resolves each EnvVar
    if getattr(told, "use_unsigned_session", False):
        raise ConfigError(
            f"from_aws: {name}.use_unsigned_session is not supported: the platform writes, which requires credentials"
        )
    if told.verify is False:
        raise ConfigError(f"from_aws: {name}.verify=False is not supported. Name your certificate authority in AWS_CA_BUNDLE")
    found = {variable: getattr(told, field) for field, variables in _SHARED.items() for variable in variables}
    found |= {variable: getattr(told, field) for field, variable in _KEYS.items()}
    return {variable: value for variable, value in {**found, endpoint: told.endpoint_url}.items() if value}


def _provide(variable: str, fetch: Callable[[], str]) -> None:
    if variable in masking.READ_BY_LIBRARIES:
        raise ConfigError(
            f"from_aws: only a library reads {variable}, and it reads the environment. Choose another name, and"
            " write it as ${NAME} where the configuration needs it"
        )
    masking.provide(variable, fetch)


def _client(resource: SecretsManagerResource | SSMResource) -> Any:
    return resource.process_config_and_initialize().get_client()
