"""The scaffolder: `dg scaffold defs manifest_platform.Dataset` writes a component that loads before anything has landed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from pydantic import BaseModel, Field

from manifest_platform.config.component_file import project_root
from manifest_platform.sources.settings import DEFAULT_SOURCE

SCAFFOLDS = Path(__file__).parent / "scaffolds"
"""The folder of templates, one for each source. `@name@` is a placeholder for a value."""


class DatasetScaffoldParams(BaseModel):
    """The options of `dg scaffold defs` for a dataset."""

    source: str = Field(DEFAULT_SOURCE, description="source plug-in of the landed directories")
    landing: str | None = Field(
        None, description="where directories land: a path from the project's root, or s3://bucket/prefix"
    )
    schemas: str | None = Field(None, description="where JSON Schemas are: a folder or URL of an Iglu registry")
    config: str | None = Field(None, description="a configuration file, from the project's root, instead of the other options")


class DatasetScaffolder(dg.Scaffolder[DatasetScaffoldParams]):
    """Writes a `defs.yaml`, and the folders that it names."""

    @classmethod
    def get_scaffold_params(cls) -> type[DatasetScaffoldParams]:
        """Returns the model of the options."""
        return DatasetScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[DatasetScaffoldParams]) -> None:
        """Writes the file. Raises ValueError for a Python component, because the command line cannot read it."""
        if request.scaffold_format != "yaml" or request.append:
            raise ValueError("manifest_platform.Dataset needs a defs.yaml of its own, because the command line reads it too")
        file = request.target_path / "defs.yaml"
        root = request.project_root or project_root(file) or request.target_path
        request.target_path.mkdir(parents=True, exist_ok=True)
        file.write_text(_text(request.type_name, request.params, root, file))


def _text(kind: str, params: DatasetScaffoldParams, root: Path, file: Path) -> str:
    name = _name(file.parent.name)
    if params.config:
        config = Path(os.path.relpath(root / params.config, file.parent)) if "://" not in params.config else params.config
        return _filled("config", {"type": kind, "config": str(config), "name": name})
    data = f"data/{name}"
    values = {"type": kind, "name": name, "source": params.source, "data": data, "variable": name.upper()}
    values |= {"landing": params.landing or f"{data}/landing", "schemas": params.schemas or f"{data}/schemas"}
    values |= {"output": f"{data}/shredded", "file": str(file.relative_to(root))}
    text = _filled(params.source, values)
    _make_folders(root, [data, *(values[one] for one in ("landing", "schemas") if values[one] in text)])
    return text


def example() -> dict[str, Any]:
    """Returns example attributes, for the docs."""
    values = {"name": "shop", "type": "", "source": DEFAULT_SOURCE, "file": "", "variable": "SHOP", "data": "data/shop"}
    values |= {"landing": "s3://bucket/enriched", "schemas": "data/shop/schemas", "output": "s3://bucket/shredded"}
    return yaml.safe_load(_filled(DEFAULT_SOURCE, values))["attributes"]


def _filled(scaffold: str, values: Mapping[str, str]) -> str:
    """Returns a template with its placeholders filled. Raises ValueError if the source has no template."""
    try:
        text = (SCAFFOLDS / f"{scaffold}.yaml.template").read_text()
    except OSError as error:
        known = sorted(path.name.partition(".")[0] for path in SCAFFOLDS.glob("*.template"))
        allowed = ", ".join(one for one in known if one != "config")
        raise ValueError(f"source: {scaffold!r}: allowed: {allowed}") from error
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _name(folder: str) -> str:
    """Returns the name of a dataset for a folder: lower case letters, digits and underscores."""
    found = re.sub(r"[^a-z0-9_]+", "_", folder.lower()).strip("_")
    return found if found[:1].isalpha() else f"d_{found}".rstrip("_")


def _make_folders(root: Path, places: list[str]) -> None:
    """Creates the project's local folders, and excludes their data from version control."""
    for place in places:
        if "://" in place:
            continue
        (root / place).mkdir(parents=True, exist_ok=True)
    if not (ignored := root / "data/.gitignore").exists():
        ignored.write_text("*\n")
