"""The files of a project: which there are to be, what each holds, and writing those that are not there."""

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
"""The folder of Dagster's instance: its configuration, and all that it keeps."""


class Refused(ValueError):
    """A project cannot be written so. The message says what to do."""


@dataclass(frozen=True)
class Written:
    """What writing a project did: files that it made, and those that were there and stay as they are, by their paths in it."""

    made: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A project that is to be: its folder, its files by their paths in it, and sentences on what a person has to do besides.

    `into`: whether it goes into a project of Dagster's that is there, which gets nothing but a dataset.
    """

    folder: Path
    module: str
    files: Mapping[str, str]
    into: bool
    notes: tuple[str, ...] = ()


def plan(folder: Path, wanted: Wanted) -> Plan:
    """The files of a project in a folder, which need not be there. Raises Refused, ConfigError."""
    folder = folder.expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file; name a folder")
    text = configuration(folder, wanted)
    _check(folder, wanted, text)
    there = _project_there(folder)
    into = bool(there) and not _is_ours(folder)
    module = there.get("root_module") or _module_name(folder)
    source = "src/" if (folder / "src").is_dir() else ""  # where Dagster looks, once it is there
    code = f"{source}{module.replace('.', '/')}"
    defs = f"{source}{there.get('defs_module', f'{module}.defs').replace('.', '/')}/{wanted.dataset}/defs.yaml"
    up = "../" * defs.count("/")
    files = {DEFAULT_FILE: text, defs: _filled("defs.yaml", config=f"{up}{DEFAULT_FILE}", dataset=wanted.dataset)}
    names = {"project": folder.name, "module": module, "dataset": wanted.dataset}
    notes = list(wanted.notes)
    if into:
        notes.append("add manifest-platform[all] to the dependencies of pyproject.toml, where it is missing")
        notes.append(f"add {HOME}/ to .gitignore: what the platform makes on this machine lies there")
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
            notes.append(f"pyproject.toml is there and stays as it is: for Dagster, add to it\n\n[tool.dg]{tables}")
    return Plan(folder, module, files, into, tuple(notes))


def write(planned: Plan) -> Written:
    """Writes the files that are not there. Raises OSError."""
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
            path.chmod(0o600)  # for secrets
        made.append(name)
    return Written(tuple(made), tuple(kept))


def configuration(folder: Path, wanted: Wanted) -> str:
    """The configuration of a project, with what each key means."""
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
    """The settings of the dataset, as the configuration has them."""
    told = {key: dict(value) if isinstance(value, Mapping) else value for key, value in wanted.told.items()}
    landing: dict[str, Any] = {"root": _from(folder, wanted.landing)}
    told_landing = told.pop("landing", {})
    if "complete" in told_landing:
        pass  # the layout says it
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
    """A location as a configuration in a folder has it: relative where it lies in there."""
    if "://" in location:
        return location
    path = Path(location).expanduser().absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _check(folder: Path, wanted: Wanted, text: str) -> None:
    """Raises ConfigError for a configuration that is none, and Refused where another one is there, without the dataset."""
    read_text(text, folder / DEFAULT_FILE)
    there = folder / DEFAULT_FILE
    if there.exists():
        found = yaml.safe_load(there.read_text())
        datasets = found.get("datasets") if isinstance(found, dict) else None
        if not isinstance(datasets, dict) or wanted.dataset not in datasets:
            block = _parts(folder, wanted)["dataset"]
            raise Refused(
                f"{there} is there, and has no dataset {wanted.dataset}: nothing was written. Add to its datasets, and do this"
                f" again:\n{block}"
            )


def _project_there(folder: Path) -> dict[str, str]:
    """What the configuration of a project of Dagster's says that is there; nothing where there is none."""
    for name, path in (("pyproject.toml", ("tool", "dg", "project")), ("dg.toml", ("project",))):
        try:
            table: Any = tomllib.loads((folder / name).read_text())
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise Refused(f"{folder / name} cannot be read: {error}; mend it") from error
        for part in path:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(table.get("root_module"), str):
            return {key: value for key, value in table.items() if isinstance(value, str)}
    return {}


def _is_ours(folder: Path) -> bool:
    """Whether an earlier `init` made the project."""
    try:
        return _MADE in (folder / "pyproject.toml").read_text()
    except OSError:
        return False


_MADE = "# Made by manifest-platform init."


def _module_name(folder: Path) -> str:
    """A name for the project's module, of the folder's, that no installed module has."""
    name = re.sub(r"\W+", "_", folder.name.lower(), flags=re.ASCII).strip("_") or "project"
    name = f"project_{name}" if name[0].isdigit() else name
    taken = name in ("tests", "defs") or (not (folder / name).is_dir() and importlib.util.find_spec(name) is not None)
    return f"{name}_project" if taken else name


def _instance() -> str:
    """The configuration of Dagster's instance: the platform's own."""
    return "# Dagster's instance." + "".join(carried("dagster.yaml").read_text().partition("\n")[1:])


def _listed(notes: tuple[str, ...]) -> str:
    return "".join(f"- {note}\n" for note in notes)


def _filled(name: str, **values: str) -> str:
    return string.Template((_TEMPLATES / f"{name}.template").read_text()).substitute(values)
