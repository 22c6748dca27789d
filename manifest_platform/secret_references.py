"""References to secrets: the environment, a file, AWS Secrets Manager, or a parameter of AWS Systems Manager.

One syntax holds in every key of the configuration that names a secret, and in `${…}`. The value is fetched when it is needed,
kept for `masking.FETCHED_S`, and masked in all that leaves the process. Errors name the reference, never the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manifest_platform import aws, masking
from manifest_platform.masking import SecretOutOfReach, UnusableSecret

ALLOWED = (
    "an environment variable (NAME or env:NAME), file:/path, secretsmanager:NAME or ssm:NAME; with #KEY at the end for a key of"
    " its JSON"
)
SCHEMES = ("env", "file", "secretsmanager", "ssm")
MOST_BYTES = 64 << 10
"""The most bytes of a file with a secret; AWS's secrets have at most as many."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9/_+=.@:-]{1,2048}")
_PASSING = {"ThrottlingException", "RequestLimitExceeded", "InternalServiceError", "InternalServerError", "ServiceUnavailable"}


def checked(reference: str) -> str:
    """Returns the reference. Raises ValueError that says what is allowed. Nothing is fetched."""
    scheme, colon, place = reference.partition(":")
    if not colon:
        scheme, place = "env", reference
    name = place.partition("#")[0]
    is_valid = {
        "env": bool(_VARIABLE.fullmatch(place)),
        "file": name.startswith("/"),
        "secretsmanager": bool(_NAME.fullmatch(name)),
        "ssm": bool(_NAME.fullmatch(name)),
    }
    if not is_valid.get(scheme) or ("#" in place and place.endswith("#")):
        raise ValueError(f"allowed: {ALLOWED}")
    return reference


def of_secrets_manager(called: str, place: str, client: Any) -> str:
    """Returns a secret by `NAME` or `NAME#KEY`. `called`: its name in errors. Raises UnusableSecret, SecretOutOfReach."""
    name, _, key = place.partition("#")
    answer = _asked(called, f"secret {name}", lambda: client().get_secret_value(SecretId=name))
    if (text := answer.get("SecretString")) is None:
        raise UnusableSecret(f"{called}: secret {name} is binary. Store it as text")
    return _key_of(text, key, called, f"secret {name}")


def of_parameter(called: str, place: str, client: Any) -> str:
    """Returns a parameter, decrypted. As `of_secrets_manager`."""
    name, _, key = place.partition("#")
    answer = _asked(called, f"parameter {name}", lambda: client().get_parameter(Name=name, WithDecryption=True))
    return _key_of(answer["Parameter"]["Value"], key, called, f"parameter {name}")


def _of_secrets_manager(place: str) -> str:
    return of_secrets_manager(f"secretsmanager:{place}", place, lambda: aws.client("secretsmanager", region=_region(place)))


def _of_parameter(place: str) -> str:
    return of_parameter(f"ssm:{place}", place, lambda: aws.client("ssm", region=_region(place)))


def _region(name: str) -> str | None:
    """Returns the region of an ARN; None for a name."""
    return name.split(":")[3] if name.startswith("arn:") and name.count(":") >= 5 else None


def _of_file(place: str) -> str:
    path, _, key = place.partition("#")
    called = f"file:{place}"
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode().removesuffix("\n")
    except OSError as error:
        raise UnusableSecret(
            f"{called}: the file cannot be read: {error.strerror}. Mount it, or allow this user to read it"
        ) from error
    except UnicodeDecodeError:
        raise UnusableSecret(f"{called}: the file is not UTF-8 text") from None
    if len(data) > MOST_BYTES:
        raise UnusableSecret(f"{called}: the file has more than {MOST_BYTES >> 10} KiB, so it is no secret. Name another file")
    return _key_of(text, key, called, "the file")


def _key_of(text: str, key: str, called: str, what: str) -> str:
    """Returns the text, or the text under a key of its JSON. Raises UnusableSecret, also if it is empty."""
    masking.keep(text)
    found: Any = text
    if key:
        try:
            found = json.loads(text)[key]
        except (ValueError, KeyError, TypeError):
            found = None
        if not isinstance(found, str):
            raise UnusableSecret(f"{called}: {what} is not a JSON object with a text under {key!r}. Name another key: NAME#KEY")
    if not found.strip():
        raise UnusableSecret(f"{called}: {what} is empty. Store the secret there")
    return found


def _asked(called: str, what: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns AWS's response. Raises SecretOutOfReach for a transient error, UnusableSecret for a permanent one."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnection

    try:
        return ask()
    except ClientError as error:
        status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        kind = SecretOutOfReach if status >= 500 or code in _PASSING else UnusableSecret
        raise kind(f"{called}: {what} cannot be read: {error}") from error
    except (HTTPClientError, NoConnection) as error:
        raise SecretOutOfReach(f"{called}: {what} cannot be reached: {error}") from error
    except BotoCoreError as error:
        raise UnusableSecret(f"{called}: {what} cannot be read: {error}. Give region and credentials") from error


masking.fetch_by("file", _of_file)
masking.fetch_by("secretsmanager", _of_secrets_manager)
masking.fetch_by("ssm", _of_parameter)
