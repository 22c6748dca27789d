"""How a configuration is read: a YAML file, values from the environment, and every problem told at once.

`${NAME}` and `${NAME:-default}` take values from the environment, which is where secrets come from: a URL of the file with a
password in it (`user:password@`) is refused. Relative paths are relative to the file.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ValidationError
from yaml.constructor import ConstructorError

from manifest_platform import masking
from manifest_platform.config.config import Config, ConfigError
from manifest_platform.settings import PluginSettings, Settings

VARIABLE = "MANIFEST_PLATFORM_CONFIG"
DEFAULT_FILE = "manifest_platform.yaml"

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET_NAME = re.compile(r"PASSW|PASSPHRASE|SECRET|TOKEN|API_?KEY|CREDENTIAL", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/@:\s]+:[^/@\s]+@")
_USER_INFO = re.compile(r"://.*@", re.DOTALL)  # greedy: a password may hold any character
_PASSWORD_OPTION = re.compile(r"((?:\?|&)[^=&]*password=)[^&'\"]*", re.IGNORECASE)


def file_of(path: str | Path | None = None) -> Path:
    """The file of a configuration: the given one, else `$MANIFEST_PLATFORM_CONFIG`, else `manifest_platform.yaml` here."""
    return Path(path or os.environ.get(VARIABLE) or DEFAULT_FILE).absolute()


class UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Loads YAML as the safe loader does, and refuses a key that a mapping has twice: YAML takes the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping of keys that each stand once. Raises yaml.YAMLError."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            text, line = str(key.value), key.start_mark.line + 1
            if text in lines and text != "<<":  # a merge may be repeated
                raise ConstructorError(
                    None, None, f"key {text!r} stands on line {lines[text]} and again on line {line}; allowed: once"
                )
            lines[text] = line
        return super().construct_mapping(node, deep)


def load(path: str | Path | None = None) -> Config:
    """The configuration of a file: the one given, else `$MANIFEST_PLATFORM_CONFIG`, else `manifest_platform.yaml` here.

    Raises ConfigError with every problem of the file.
    """
    file = file_of(path)
    try:
        text = file.read_text()
    except FileNotFoundError as error:
        raise ConfigError(f"no configuration at {file}; pass --config FILE or set {VARIABLE}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {file}: {reason}; pass a YAML file with --config or in {VARIABLE}") from error
    return read_text(text, file)


def read_text(text: str, file: Path) -> Config:
    """The configuration of a text that is, or is to be, that of a file. Raises ConfigError with every problem of it."""
    try:
        data = yaml.load(text, Loader=UniqueKeys)  # noqa: S506 - it is a safe loader
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {error}") from error
    problems: list[str] = []
    data = _interpolate(data, "", problems)
    if problems:
        raise ConfigError(_report(file, problems))
    try:
        return Config.model_validate(data, context={"base": file.parent})
    except ValidationError as error:
        raise ConfigError(_report(file, list(_explain(error, data)))) from error


def _report(file: Path, problems: list[str]) -> str:
    return "\n".join([f"{file}:", *(f"  {problem}" for problem in problems)])


def _interpolate(value: Any, key: str, problems: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: _interpolate(part, f"{key}.{name}".lstrip("."), problems) for name, part in value.items()}
    if isinstance(value, list):
        return [_interpolate(part, f"{key}.{index}", problems) for index, part in enumerate(value)]
    if not isinstance(value, str):
        return value
    if _PASSWORD_IN_URL.search(_REFERENCE.sub("", value)):
        problems.append(f"{key}: holds a password; take it from the environment as ${{NAME}}")
        return value

    def substitute(found: re.Match[str]) -> str:
        name, default = found.groups()
        if (known := masking.value_of(name) or default) is None:
            problems.append(f"{key}: ${{{name}}} is not set in the environment, and has no default (${{{name}:-default}})")
            return ""
        if _SECRET_NAME.search(name):
            masking.keep(known)
        return known

    if "${" in _REFERENCE.sub("", value):
        problems.append(
            f"{key}: {without_secrets(repr(value))}: holds a ${{ that names no variable;"
            " allowed: ${NAME} or ${NAME:-default}"
        )
        return value
    whole = _REFERENCE.sub(substitute, value)
    masking.keep_passwords_of(whole)
    return whole


def _explain(error: ValidationError, data: Any) -> Iterator[str]:
    """Each problem as `key: value: what is wrong, what is allowed`."""
    for problem in error.errors():
        location = [part for part in problem["loc"] if part != "[key]"]
        key = ".".join(str(part) for part in location) or "file"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            allowed = ", ".join(sorted(_model_at(location[:-1], data).model_fields))
            yield f"{key}: unknown key; allowed here: {allowed}"
        elif problem["type"] == "missing":
            yield f"{key}: is required"
        elif isinstance(problem["input"], (dict, list)) and problem["type"] == "value_error":
            yield f"{key}: {message}" if isinstance(problem["input"], dict) and location else message
        else:
            yield f"{key}: {without_secrets(repr(problem['input']))}: {message}"


def without_secrets(text: str) -> str:
    """The text with `***` for whatever stands between a URL's scheme and its host, and for passwords behind it."""
    return _PASSWORD_OPTION.sub(r"\1***", _USER_INFO.sub("://***@", text))


def _model_at(location: Sequence[Any], data: Any) -> type[Settings]:
    """The model of the part of the configuration at a place; where a plug-in brings it, the plug-in that the data name."""
    model: type[Settings] = Config
    annotation: Any = Config
    for part in location:
        data = data[part]
        if typing.get_origin(annotation) is dict:
            annotation, metadata = _unpacked(typing.get_args(annotation)[1])
        elif typing.get_origin(annotation) in (list, tuple):
            annotation, metadata = _unpacked(typing.get_args(annotation)[0])
        else:
            annotation, metadata = model.model_fields[part].annotation, model.model_fields[part].metadata
        plugin = next((one for one in metadata if isinstance(one, PluginSettings)), None)
        if plugin:
            annotation = plugin.settings_of(data)
        elif type(None) in typing.get_args(annotation):  # a part that may be left out
            annotation = next(one for one in typing.get_args(annotation) if one is not type(None))
        if isinstance(annotation, type) and issubclass(annotation, Settings):
            model = annotation
    return model


def _unpacked(annotation: Any) -> tuple[Any, Sequence[Any]]:
    """A type and what it is annotated with."""
    if typing.get_origin(annotation) is Annotated:
        found, *metadata = typing.get_args(annotation)
        return found, metadata
    return annotation, ()
