"""The base of all settings models, and the types of their values.

Belongs here: how a value is validated in any model. Each package declares its own settings; `config` composes them into the
one configuration.

Paths and URLs are validated with the context `{"base": folder}`: relative paths are relative to that folder, which is the
folder of the configuration file.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from manifest_platform import plugins, secret_references, storage

_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
YEAR = 366 * 86_400
"""Seconds in a year, the longest duration of a setting."""


class Settings(BaseModel):
    """The base of all settings models: unknown keys are refused, defaults are validated, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class PluginSettings:
    """Annotates a field with the settings of a plug-in, which the value's `key` names, for example `kind: duckdb`.

    `group`: the plug-in's group. `default`: the plug-in if the value lacks the `key`. A plug-in of the group is a Settings
    model, or has such a model as its attribute `model`. `short`: the setting that a text stands for, if it is a URL whose
    scheme is the plug-in's name.
    """

    def __init__(self, group: str, default: str, key: str = "kind", short: str = "") -> None:
        self.group, self.default, self.key, self.short = group, default, key, short

    @classmethod
    def of(cls, field: FieldInfo) -> PluginSettings | None:
        """The annotation of a field; None if it has none."""
        return next((one for one in field.metadata if isinstance(one, cls)), None)

    def settings_of(self, value: Any) -> type[Settings]:
        """The settings model of the plug-in that a value names. Raises UnknownPlugin."""
        value = self._whole(value)
        name = value.get(self.key, self.default) if isinstance(value, dict) else self.default
        return self._model_of(plugins.load(self.group, name if isinstance(name, str) else repr(name)))

    @staticmethod
    def _model_of(plugin: Any) -> type[Settings]:
        return getattr(plugin, "model", plugin)

    def _whole(self, value: Any) -> Any:
        """The value with its keys, for a value that is a URL alone."""
        if not self.short or not isinstance(value, str) or "://" not in value:
            return value
        return {self.key: value.partition("://")[0], self.short: value}

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Validates with the plug-in's model, and reports errors at their own locations."""
        return core_schema.with_info_plain_validator_function(self._validated)

    def _validated(self, value: Any, info: ValidationInfo) -> Settings | None:
        if isinstance(value, Settings):
            return value
        value = self._whole(value)
        if not isinstance(value, dict):
            raise ValueError("allowed: keys and their values")
        try:
            model = self.settings_of(value)
        except plugins.UnknownPlugin as error:
            problem = InitErrorDetails(
                type=PydanticCustomError("unknown_plugin", "{allowed}", {"allowed": str(error)}),
                loc=(self.key,),
                input=value[self.key],
            )
            raise ValidationError.from_exception_data("plug-in", [problem]) from error
        return model.model_validate(value, context=info.context)

    def __get_pydantic_json_schema__(self, _schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of any installed plug-in's settings."""
        models = [self._model_of(plugins.load(self.group, name)) for name in plugins.names(self.group)]
        return {"anyOf": [handler(model.__pydantic_core_schema__) for model in models]}


class KindSettings(PluginSettings):
    """Annotates a field that holds one of several models; the value's `kind` names the model. `optional`: allows None, too."""

    def __init__(self, *models: type[Settings], optional: bool = True) -> None:
        self.optional = optional
        self.models = {get_args(model.model_fields["kind"].annotation)[0]: model for model in models}

    def settings_of(self, value: Any) -> type[Settings]:
        """The model of the `kind` in a value."""
        return self.models[value["kind"]]

    def _validated(self, value: Any, info: ValidationInfo) -> Settings | None:
        if (value is None and self.optional) or isinstance(value, Settings):
            return value
        if not isinstance(value, dict):
            raise ValueError(f"allowed: keys and their values, with kind as one of {', '.join(self.models)}")
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in self.models:
            problem = InitErrorDetails(
                type=PydanticCustomError("unknown_kind", "allowed: {allowed}", {"allowed": ", ".join(self.models)}),
                loc=("kind",),
                input=kind,
            )
            raise ValidationError.from_exception_data("kind", [problem])
        return self.models[kind].model_validate(value, context=info.context)

    def __get_pydantic_json_schema__(self, _schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of any of the models, or null if that is allowed."""
        models = [handler(model.__pydantic_core_schema__) for model in self.models.values()]
        return {"anyOf": [*models, *([{"type": "null"}] if self.optional else [])]}


class OffIsFalse:
    """Annotates a choice of words with `off`, which YAML reads as false unless it is quoted."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Takes false as off."""
        return core_schema.no_info_before_validator_function(lambda one: "off" if one is False else one, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The words, or false."""
        return {"anyOf": [handler(schema), {"const": False}]}


# Places


def local_path(location: str, info: ValidationInfo) -> str:
    """An absolute local path; a relative path is resolved against the base folder of the context."""
    if not location or "://" in location:
        raise ValueError("allowed: a local path")
    base = (info.context or {}).get("base", Path.cwd())
    try:
        return str((base / Path(location).expanduser()).absolute())
    except RuntimeError as error:
        raise ValueError("allowed: a local path, with ~ for a home directory that exists") from error


def _local_folder(location: str, info: ValidationInfo) -> str:
    path = local_path(location, info)
    if not Path(path).is_dir():
        raise ValueError("allowed: a local folder that exists")
    return path


def _storage_location(location: str, info: ValidationInfo) -> str:
    if "://" not in location:
        return local_path(location, info)
    try:
        storage.as_uri(location)
    except storage.UnsupportedLocation as error:
        raise ValueError("allowed: a local path, file:///path or s3://bucket/prefix") from error
    parts = urlsplit(location)
    if parts.scheme == "file" and (parts.netloc or parts.query or parts.fragment or location.endswith(("?", "#"))):
        raise ValueError("allowed: a local path or file:///path, with %23 for '#' and %3F for '?'")
    if parts.scheme == "s3" and not _BUCKET.fullmatch(parts.netloc):
        raise ValueError("allowed: s3://bucket/prefix; credentials come from the environment, for example AWS_ACCESS_KEY_ID")
    if parts.scheme == "s3" and not {".", ".."}.isdisjoint(parts.path.split("/")):
        # S3 treats . and .. as names, and some servers as folders, so nobody could tell whether a place is inside another.
        raise ValueError("allowed: s3://bucket/prefix, without . or .. as a part of the prefix")
    return location


def _readable_location(location: str, info: ValidationInfo) -> str:
    parts = urlsplit(location)
    if parts.scheme in ("http", "https") and parts.hostname:
        return location
    if "://" in location and parts.scheme not in ("file", "s3"):
        raise ValueError("allowed: a local path, file:///path, s3://bucket/prefix, http://host/path or https://host/path")
    return _storage_location(location, info)


LocalPath = Annotated[str, AfterValidator(local_path)]
"""An absolute local path."""
LocalFolder = Annotated[str, AfterValidator(_local_folder)]
"""The absolute path of a local folder that exists."""
StorageLocation = Annotated[str, AfterValidator(_storage_location)]
"""An absolute local path, or a URI that `storage` reads and writes: `file:///path`, `s3://bucket/prefix`."""
ReadableLocation = Annotated[str, AfterValidator(_readable_location)]
"""A StorageLocation, or an http(s):// URL for reading only."""


SecretReference = Annotated[
    str, AfterValidator(secret_references.checked), WithJsonSchema({"type": "string", "format": "secret"})
]
"""The reference to a secret: an environment variable, `file:/path`, `secretsmanager:NAME` or `ssm:NAME`, and `#KEY`."""


# Servers and zones


def is_this_machine(host: str | None) -> bool:
    """True for localhost and loopback addresses, which no other machine can reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    local = is_this_machine(parts.hostname)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and local)
    more = parts.path.strip("/") or any(mark in url for mark in "?#@") or not _is_port(parts)
    if not is_safe or not parts.hostname or more:
        raise ValueError("allowed: https://host, or http://localhost:port for a server on this machine")
    return url.rstrip("/")


def _is_port(parts: SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("allowed: the name of a time zone, such as UTC or Asia/Tokyo") from error
    return name


ServerUrl = Annotated[str, AfterValidator(_http_url)]
"""The URL of a server that receives secrets: https, or http on this machine, with nothing after host and port."""
TimeZone = Annotated[str, AfterValidator(_zone)]
"""The name of a time zone that the system has."""
