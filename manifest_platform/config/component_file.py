"""A Dagster component's file as a configuration: so the command line and Dagster read the same `defs.yaml`.

    type: manifest_platform.Dataset
    attributes:
      config: ../../manifest_platform.yaml     another file's configuration, relative to this one
      datasets: [acme]                         of its datasets these; without it all
      translation: {…}                         is Dagster's alone

Or the keys of a configuration stand under `attributes` themselves. Relative paths are then relative to the project, the root of
which has a `pyproject.toml` with `[tool.dg]`, or a `dg.toml`; without a project, to the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TYPE = "manifest_platform.Dataset"
DAGSTERS = ("translation",)
"""Attributes that are Dagster's alone."""


class NotOne(ValueError):
    """A file of components has not exactly one that is a configuration; the message says what it has."""


@dataclass(frozen=True)
class ComponentFile:
    """What a component's file says. `config`: the file of the configuration; None where `data` is the configuration.

    `datasets`: those that are taken of the file; None for all. `place`: where `data` stands in the document; `document`: which
    of the file's documents it is.
    """

    config: Path | None
    datasets: tuple[str, ...] | None
    data: dict[str, Any]
    base: Path
    document: int
    place: tuple[str, ...] = ("attributes",)


def read(file: Path, documents: Sequence[Any]) -> ComponentFile | None:
    """What a file says, if it is one of components; None for any other file. Raises NotOne."""
    components = {
        number: one for number, one in enumerate(documents) if isinstance(one, dict) and "type" in one and "attributes" in one
    }
    if not components:
        return None
    ours = {number: one for number, one in components.items() if one["type"] == TYPE} or components
    if len(ours) > 1:
        found = ", ".join(str(one["type"]) for one in ours.values())
        raise NotOne(f"has several components that may be meant ({found}); allowed: one {TYPE} in a file")
    [(number, component)] = ours.items()
    attributes = component["attributes"]
    if not isinstance(attributes, dict):
        raise NotOne("attributes: allowed: keys and their values")
    attributes = {key: value for key, value in attributes.items() if key not in DAGSTERS}
    base = project_root(file) or file.parent
    config = attributes.pop("config", None)
    if config is None:
        return ComponentFile(None, None, attributes, base, number)
    datasets = attributes.pop("datasets", None)
    if attributes:
        raise NotOne(
            f"attributes.config: is given, and so is {', '.join(attributes)}; allowed beside it: datasets, translation"
        )
    if not isinstance(config, str):
        raise NotOne(f"attributes.config: {config!r}: allowed: the path of a configuration file, relative to this one")
    if datasets is not None and not (isinstance(datasets, list) and datasets and all(isinstance(one, str) for one in datasets)):
        raise NotOne(f"attributes.datasets: {datasets!r}: allowed beside config: names of its datasets, as [acme]")
    return ComponentFile(Path(os.path.normpath(file.parent / config)), tuple(datasets) if datasets else None, {}, base, number)


def project_root(file: Path) -> Path | None:
    """The root of the Dagster project that a file is in; None where there is none."""
    return next((folder for folder in file.absolute().parents if _is_project(folder)), None)


def _is_project(folder: Path) -> bool:
    for name, keys in (("dg.toml", ()), ("pyproject.toml", ("tool", "dg"))):
        try:
            found: Any = tomllib.loads((folder / name).read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue
        for key in keys:
            found = found.get(key, {}) if isinstance(found, Mapping) else {}
        if isinstance(found, Mapping) and found.get("directory_type") == "project":
            return True
    return False
