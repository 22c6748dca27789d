"""The file of a Dagster component as a configuration, so that the command line and Dagster read the same `defs.yaml`.

    type: manifest_platform.Dataset
    attributes:
      config: ../../manifest_platform.yaml     a configuration file, relative to this file
      datasets: [acme]                         some of its datasets; default: all
      translation: {…}                         for Dagster only

Instead of `config`, `attributes` may have the keys of a configuration. Relative paths are then relative to the root of the
Dagster project: the folder with a `dg.toml`, or a `pyproject.toml` with `[tool.dg]`. Without a project, they are relative to
the file.
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
"""Attributes that only Dagster uses."""


class NotOne(ValueError):
    """A component file does not have exactly one configuration. The message says what it has."""


@dataclass(frozen=True)
class ComponentFile:
    """The content of a component file. `config`: the configuration file; None if `data` is the configuration.

    `datasets`: the datasets to take from the configuration, None for all. `document`: the index of the YAML document in the
    file; `place`: the keys that lead to `data` in it. `base`: the folder that relative paths are relative to.
    """

    config: Path | None
    datasets: tuple[str, ...] | None
    data: dict[str, Any]
    base: Path
    document: int
    place: tuple[str, ...] = ("attributes",)


def read(file: Path, documents: Sequence[Any]) -> ComponentFile | None:
    """Returns the content of a component file, None for any other file. Raises NotOne unless it has one configuration."""
    components = {
        number: one for number, one in enumerate(documents) if isinstance(one, dict) and "type" in one and "attributes" in one
    }
    if not components:
        return None
    ours = {number: one for number, one in components.items() if one["type"] == TYPE} or components
    if len(ours) > 1:
        found = ", ".join(str(one["type"]) for one in ours.values())
        raise NotOne(f"has several components ({found}); allowed: one {TYPE} in a file")
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
            f"attributes.config: cannot be combined with {', '.join(attributes)}; allowed beside it: datasets, translation"
        )
    if not isinstance(config, str):
        raise NotOne(f"attributes.config: {config!r}: allowed: the path of a configuration file, relative to this file")
    if datasets is not None and not (isinstance(datasets, list) and datasets and all(isinstance(one, str) for one in datasets)):
        raise NotOne(f"attributes.datasets: {datasets!r}: allowed beside config: names of its datasets, such as [acme]")
    return ComponentFile(Path(os.path.normpath(file.parent / config)), tuple(datasets) if datasets else None, {}, base, number)


def project_root(file: Path) -> Path | None:
    """Returns the root of the Dagster project that contains a file; None if there is none."""
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
