"""The files of a project: their paths, their content, and writing those that do not exist yet."""

from __future__ import annotations

import importlib.util
import re
import shlex
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from manifest_platform import plugins
from manifest_platform.carried import carried
from manifest_platform.config.config import Config
from manifest_platform.config.reading import DEFAULT_FILE, read_text
from manifest_platform.operations.project.commented import commented
from manifest_platform.operations.project.wanted import HOME, Wanted

_TEMPLATES = Path(__file__).parent / "templates"
_INSTANCE = ".dagster_home"
"""The folder of Dagster's instance: its configuration and its data."""


class Refused(ValueError):
    """The project cannot be written here. The message says what to do."""


@dataclass(frozen=True)
class Written:
    """The result of writing a project: paths of new files, and of existing files that were kept unchanged."""

    made: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A project to write: its folder, its files by relative path, and sentences on what a person must do besides.

    `into`: true if it goes into an existing Dagster project, to which only a dataset is added.
    """

    folder: Path
    module: str
    files: Mapping[str, str]
    into: bool
    notes: tuple[str, ...] = ()


def plan(folder: Path, wanted: Wanted) -> Plan:
    """Plans the files of a project in a folder, which may not exist yet. Raises Refused, ConfigError."""
    folder = folder.expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file; name a folder")
    text = configuration(folder, wanted)
    _check(folder, wanted, text)
    there = _project_there(folder)
    into = bool(there) and not _is_ours(folder)
    module = there.get("root_module") or _module_name(folder)
    source = "src/" if (folder / "src").is_dir() else ""  # Dagster looks there if it exists
    code = f"{source}{module.replace('.', '/')}"
    defs = f"{source}{there.get('defs_module', f'{module}.defs').replace('.', '/')}/{wanted.dataset}/defs.yaml"
    up = "../" * defs.count("/")
    files = {DEFAULT_FILE: text, defs: _filled("defs.yaml", config=f"{up}{DEFAULT_FILE}", dataset=wanted.dataset)}
    names = {"project": folder.name, "module": module, "dataset": wanted.dataset}
    notes = list(wanted.notes)
    if into:
        notes.append("add manifest-platform[all] to the dependencies in pyproject.toml if it is missing")
        notes.append(f"add {HOME}/ to .gitignore: the platform keeps its data on this machine there")
    else:
        files |= {
            "pyproject.toml": _filled("pyproject.toml", **names),
            f"{code}/__init__.py": "",
            f"{code}/definitions.py": _filled("definitions.py", **names),
            f"{code}/defs/__init__.py": "",
            f"{_INSTANCE}/dagster.yaml": _instance(),
            ".env.example": _filled("env", home=f"${{PWD}}/{_INSTANCE}"),
            ".env": _filled("env", home=shlex.quote(str(folder / _INSTANCE))),
            ".gitignore": _filled("gitignore", home=HOME),
            "README.md": _filled("README.md", **names, landing=wanted.landing, notes=_listed(wanted.notes)),
            f"tests/test_{wanted.dataset}.py": _filled("test.py", **names),
        }
        if (folder / "pyproject.toml").exists() and not there:
            tables = files["pyproject.toml"].partition("[tool.dg]")[2]
            notes.append(f"pyproject.toml exists and was not changed. For Dagster, add this to it:\n\n[tool.dg]{tables}")
    return Plan(folder, module, files, into, tuple(notes))


def write(planned: Plan) -> Written:
    """Writes the files that do not exist yet. Raises OSError."""
    made, kept = [], []
    planned.folder.mkdir(parents=True, exist_ok=True)
    for name, text in planned.files.items():
        path = planned.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            kept.append(name)
            continue
        if name == ".env":
            path.chmod(0o600)  # it is for secrets
        made.append(name)
    return Written(tuple(made), tuple(kept))


def configuration(folder: Path, wanted: Wanted) -> str:
    """Returns the configuration of a project, with a comment on each key."""
    parts = _parts(folder, wanted)
    return _filled(DEFAULT_FILE, **parts).rstrip() + "\n"


def _parts(folder: Path, wanted: Wanted) -> dict[str, str]:
    source = plugins.load(plugins.SOURCES, wanted.source)
    dataset = dataset_settings(folder, wanted)
    return {
        "dataset": commented({wanted.dataset: dataset}, Config, {wanted.dataset: source.model}, depth=1),
        "manifest": commented({"manifest": {"store": wanted.store}}, Config, {}),
        "warehouse": commented({"warehouse": {"path": wanted.warehouse}}, Config, {}),
        "merge": _filled("merge.yaml", home=HOME) if source.appends else "",
    }


def dataset_settings(folder: Path, wanted: Wanted) -> dict[str, Any]:
    """Returns the settings of the dataset, as the configuration has them."""
    told = {key: dict(value) if isinstance(value, Mapping) else value for key, value in wanted.told.items()}
    landing: dict[str, Any] = {"root": _from(folder, wanted.landing)}
    told_landing = told.pop("landing", {})
    if "complete" in told_landing:
        pass  # the source's guess decides
    elif wanted.marker:
        landing |= {"complete": "marker", "marker": wanted.marker}
    else:
        landing |= {"complete": "settle", "settle_seconds": wanted.settle_seconds}
    shred = {"output": wanted.shredded, **told.pop("shred", {})}
    if wanted.schemas and "schemas" in shred:
        shred["schemas"] = [_from(folder, one) for one in wanted.schemas]
    landing |= told_landing
    return {"source": wanted.source, "owner": wanted.owner, **told, "landing": landing, "shred": shred}


def _from(folder: Path, location: str) -> str:
    """Returns a location for a configuration file in a folder: relative if it is inside the folder."""
    if "://" in location:
        return location
    path = Path(location).expanduser().absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _check(folder: Path, wanted: Wanted, text: str) -> None:
    """Raises ConfigError for an invalid configuration, and Refused if a configuration without the dataset exists."""
    read_text(text, folder / DEFAULT_FILE)
    there = folder / DEFAULT_FILE
    if there.exists():
        found = yaml.safe_load(there.read_text())
        datasets = found.get("datasets") if isinstance(found, dict) else None
        if not isinstance(datasets, dict) or wanted.dataset not in datasets:
            block = _parts(folder, wanted)["dataset"]
            raise Refused(
                f"{there} exists and has no dataset {wanted.dataset}, so nothing was written. Add this to its datasets, and run"
                f" the command again:\n{block}"
            )


def _project_there(folder: Path) -> dict[str, str]:
    """Returns the settings of the Dagster project in a folder; empty if there is none."""
    for name, path in (("pyproject.toml", ("tool", "dg", "project")), ("dg.toml", ("project",))):
        try:
            table: Any = tomllib.loads((folder / name).read_text())
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise Refused(f"{folder / name} cannot be read: {error}. Correct it first") from error
        for part in path:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(table.get("root_module"), str):
            return {key: value for key, value in table.items() if isinstance(value, str)}
    return {}


def _is_ours(folder: Path) -> bool:
    """True if an earlier `init` made the project."""
    try:
        return _MADE in (folder / "pyproject.toml").read_text()
    except OSError:
        return False


_MADE = "# Made by manifest-platform init."


def _module_name(folder: Path) -> str:
    """Returns a name for the project's module, made from the folder's name, that no installed module has."""
    name = re.sub(r"\W+", "_", folder.name.lower(), flags=re.ASCII).strip("_") or "project"
    name = f"project_{name}" if name[0].isdigit() else name
    taken = name in ("tests", "defs") or (not (folder / name).is_dir() and importlib.util.find_spec(name) is not None)
    return f"{name}_project" if taken else name


def _instance() -> str:
    """Returns the configuration of Dagster's instance, which is the platform's own."""
    return "# Dagster's instance." + "".join(carried("dagster.yaml").read_text().partition("\n")[1:])


def _listed(notes: tuple[str, ...]) -> str:
    return "".join(f"- {note}\n" for note in notes)


def _filled(name: str, **values: str) -> str:
    return string.Template((_TEMPLATES / f"{name}.template").read_text()).substitute(values)
