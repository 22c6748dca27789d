"""Reads a configuration: a YAML file, with values from the environment. Reports all problems together, with their lines.

`${NAME}` and `${NAME:-default}` take values from the environment, and `${file:/path}`, `${secretsmanager:NAME#KEY}` and
`${ssm:NAME}` from stores of secrets. Secrets must come from there: a URL in the file with a password in it (`user:password@`)
is refused. Relative paths are relative to the file. A component file (`component_file`) may also use `{{ env.NAME }}` and
`{{ context.project_root }}`, as Dagster's components do.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ValidationError
from yaml.constructor import ConstructorError

from manifest_platform import aws, masking, secret_references
from manifest_platform.config import component_file
from manifest_platform.config.config import Config, ConfigError
from manifest_platform.settings import PluginSettings, Settings

VARIABLE = "MANIFEST_PLATFORM_CONFIG"
DEFAULT_FILE = "manifest_platform.yaml"

_REFERENCE = re.compile(rf"\$\{{([A-Za-z_][A-Za-z0-9_]*|(?:{'|'.join(secret_references.SCHEMES)}):[^}}]+?)(?::-([^}}]*))?\}}")
_TEMPLATE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ENV = re.compile(r"""env(?:\.([A-Za-z_]\w*)|\(\s*(['"])([A-Za-z_]\w*)\2\s*(?:,\s*(['"])(.*?)\4\s*)?\))""")
_PROJECT_ROOT = ("context.project_root", "project_root")
_SECRET_NAME = re.compile(r"PASSW|PASSPHRASE|SECRET|TOKEN|API_?KEY|CREDENTIAL", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/@:\s]+:[^/@\s]+@")
_USER_INFO = re.compile(r"://.*@", re.DOTALL)  # greedy, because a password may have any character
_PASSWORD_OPTION = re.compile(r"((?:\?|&)[^=&]*password=)[^&'\"]*", re.IGNORECASE)


def file_of(path: str | Path | None = None) -> Path:
    """Returns the path of the configuration file: `path`, else $MANIFEST_PLATFORM_CONFIG, else manifest_platform.yaml here."""
    return Path(path or os.environ.get(VARIABLE) or DEFAULT_FILE).absolute()


class UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """The safe YAML loader, which also refuses duplicate keys: YAML would silently use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Builds a mapping. Raises yaml.YAMLError if a key occurs twice."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            text, line = str(key.value), key.start_mark.line + 1
            if text in lines and text != "<<":  # a merge key may be repeated
                raise ConstructorError(
                    None, None, f"key {text!r} is on line {lines[text]} and again on line {line}; allowed: once"
                )
            lines[text] = line
        return super().construct_mapping(node, deep)


Place = tuple[str | int, ...]
"""The position of a value in a document: keys, and indexes of lists."""


@dataclass(frozen=True)
class Problem:
    """A problem of a configuration: its place and its description."""

    place: Place
    text: str


def load(path: str | Path | None = None) -> Config:
    """Loads a configuration from `path`, else $MANIFEST_PLATFORM_CONFIG, else manifest_platform.yaml in this folder.

    From now on, clients of AWS are as its part `aws` says. Raises ConfigError with all problems of the file, and if this
    process already loaded a configuration with another such part.
    """
    file = file_of(path)
    found = read_text(_text(file), file)
    _use_aws(found, file)
    return found


def _use_aws(config: Config, file: Path) -> None:
    told, used = config.aws.choices, aws.used()
    if told == aws.Choices():
        return
    if used not in (told, aws.Choices()):
        raise ConfigError(
            f"{file}: aws: this process already loaded a configuration with another part `aws`, and its clients are shared:"
            " give all configurations of a code location the same"
        )
    aws.use(told)


def read_text(text: str, file: Path) -> Config:
    """Reads a configuration from the text of a file, which need not exist yet. Raises ConfigError with all problems."""
    try:
        documents = list(yaml.load_all(text, Loader=UniqueKeys))
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {error}") from error
    try:
        found = component_file.read(file, documents)
    except component_file.NotOne as error:
        raise ConfigError(_report(file, [Problem((), str(error))])) from error
    if found is None and len(documents) > 1:
        raise ConfigError(_report(file, [Problem((), f"has {len(documents)} documents; allowed: one")]))
    if found is None:
        return _validated(_Text(file, text), documents[0] if documents else None, file.parent)
    if found.config is None:
        return _validated(_Text(file, text, found.document, found.place, found.base), found.data, found.base)
    return _some_of(file, load(found.config), found.datasets)


def _some_of(file: Path, config: Config, datasets: Sequence[str] | None) -> Config:
    """Returns a configuration with only the given datasets. Raises ConfigError if it lacks one."""
    if datasets is None:
        return config
    if unknown := [name for name in datasets if name not in config.datasets]:
        allowed = ", ".join(sorted(config.datasets))
        raise ConfigError(_report(file, [Problem((), f"attributes.datasets: {unknown[0]!r}: allowed: {allowed}")]))
    return config.model_copy(update={"datasets": {name: config.datasets[name] for name in datasets}})


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError as error:
        raise ConfigError(f"no configuration at {file}; pass --config FILE or set {VARIABLE}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {file}: {reason}; pass a YAML file with --config or in {VARIABLE}") from error


@dataclass(frozen=True)
class _Text:
    """The text of a file. `document`, `below` and `project_root`: where a component file has its configuration."""

    file: Path
    text: str
    document: int = 0
    below: Place = ()
    project_root: Path | None = None

    def line(self, place: Place) -> int | None:
        """Returns the line of a place in the file, or of the nearest part around it; None for the whole file."""
        nodes = [node for number, node in enumerate(yaml.compose_all(self.text, Loader=UniqueKeys)) if number == self.document]
        if not nodes or not place:
            return None
        node, line = nodes[0], None
        for part in (*self.below, *place):
            if isinstance(node, yaml.MappingNode):
                inner = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                inner = (node.value[part], node.value[part])
            else:
                inner = None
            if inner is None:
                break
            line, node = inner[0].start_mark.line + 1, inner[1]
        return line


def _validated(text: _Text, data: Any, base: Path) -> Config:
    problems: list[Problem] = []
    data = _interpolate(data, (), problems, text.project_root)
    if problems:
        raise ConfigError(_report(text.file, problems, text))
    try:
        return Config.model_validate(data, context={"base": base})
    except ValidationError as error:
        raise ConfigError(_report(text.file, list(_explain(error, data)), text)) from error


def _report(file: Path, problems: list[Problem], text: _Text | None = None) -> str:
    lines = ((problem.text, text.line(problem.place) if text else None) for problem in problems)
    return "\n".join([f"{file}:", *(f"  line {line}: {said}" if line else f"  {said}" for said, line in lines)])


def _interpolate(value: Any, place: Place, problems: list[Problem], project_root: Path | None) -> Any:
    if isinstance(value, dict):
        return {name: _interpolate(part, (*place, name), problems, project_root) for name, part in value.items()}
    if isinstance(value, list):
        return [_interpolate(part, (*place, index), problems, project_root) for index, part in enumerate(value)]
    if not isinstance(value, str):
        return value
    key = ".".join(map(str, place))

    def wrong(text: str) -> None:
        problems.append(Problem(place, f"{key}: {text}"))

    if _PASSWORD_IN_URL.search(_REFERENCE.sub("", value)):
        wrong("has a password; take it from the environment with ${NAME}")
        return value

    def taken(name: str, default: str | None, how: str) -> str:
        try:
            found = masking.value_of(secret_references.checked(name))
        except (ValueError, masking.UnusableSecret) as error:
            wrong(f"${{{name}}}: {error}")
            return ""
        if (known := found or default) is None:
            wrong(f"{how} in the environment; set it, or write a default (${{{name}:-default}})")
            return ""
        if _SECRET_NAME.search(name) or (":" in name and not name.startswith("env:")):
            masking.keep(known)
        return known

    def substitute(found: re.Match[str]) -> str:
        name, default = found.groups()
        return taken(name, default, f"${{{name}}} is not set")

    def rendered(found: re.Match[str]) -> str:
        expression = found[1].strip()
        if expression in _PROJECT_ROOT:
            return str(project_root)
        if not (env := _ENV.fullmatch(expression)):
            allowed = (
                "{{ env.NAME }}, {{ env('NAME', 'default') }}, {{ context.project_root }}, which the command line can read too"
            )
            wrong(f"{{{{ {expression} }}}}: allowed: {allowed}")
            return ""
        attribute, _, name, _, default = env.groups()
        return taken(attribute or name, default, f"{{{{ {expression} }}}} is not set")

    if "${" in _REFERENCE.sub("", value):
        wrong(f"{without_secrets(repr(value))}: has a ${{ without a valid name; allowed: ${{NAME}} or ${{NAME:-default}}")
        return value
    whole = _REFERENCE.sub(substitute, _TEMPLATE.sub(rendered, value) if project_root else value)
    masking.keep_passwords_of(whole)
    return whole


def _explain(error: ValidationError, data: Any) -> Iterator[Problem]:
    """Yields each problem as `key: value: what is wrong, what is allowed`."""
    for problem in error.errors():
        location = tuple(part for part in problem["loc"] if part != "[key]")
        key = ".".join(str(part) for part in location) or "file"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            allowed = ", ".join(sorted(_model_at(location[:-1], data).model_fields))
            said = f"{key}: unknown key; allowed here: {allowed}"
        elif problem["type"] == "missing":
            said = f"{key}: is required"
        elif isinstance(problem["input"], (dict, list)) and problem["type"] == "value_error":
            said = f"{key}: {message}" if isinstance(problem["input"], dict) and location else message
        else:
            said = f"{key}: {without_secrets(repr(problem['input']))}: {message}"
        yield Problem(location, said)


def without_secrets(text: str) -> str:
    """Returns the text with `***` in place of the user information and the password parameters of URLs."""
    return _PASSWORD_OPTION.sub(r"\1***", _USER_INFO.sub("://***@", text))


def _model_at(location: Sequence[Any], data: Any) -> type[Settings]:
    """Returns the model of a part of the configuration. For a plug-in's part, `data` says which plug-in."""
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
    """Returns a type and its annotations."""
    if typing.get_origin(annotation) is Annotated:
        found, *metadata = typing.get_args(annotation)
        return found, metadata
    return annotation, ()
