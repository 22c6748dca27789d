"""The choices for a project: its dataset, the source and landing of the dataset, and where data is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manifest_platform import storage
from manifest_platform.config import Config
from manifest_platform.manifest.stores import DEFAULT_URL
from manifest_platform.operations.preview import Preview
from manifest_platform.settings import PluginSettings

HOME = ".manifest_platform"
"""The folder of a project for the platform's data on this machine."""

_NO_MARKER = (
    "directories here have no marker file, so each is loaded once it has not changed for five minutes"
    " (landing.settle_seconds). In S3, the five minutes begin with the first look"
)

_TOO_COMMON = frozenset(
    (
        *("landing", "landed", "enriched", "archive", "archived", "good", "raw", "data", "input", "inbox", "incoming"),
        *("s3", "tmp", "home", "root", "var", "srv", "mnt", "opt", "work"),
    )
)
"""Folder names that say nothing about their content."""


def default_warehouse() -> str:
    """Returns the file of a warehouse without settings."""
    plugin = PluginSettings.of(Config.model_fields["warehouse"])
    assert plugin
    return plugin.settings_of({}).model_fields["path"].default


@dataclass(frozen=True)
class Wanted:
    """A project, as a person chose or a preview found.

    `told`: further settings of the dataset, as the source guessed them. `landing`: a path or an s3:// URI. `notes`: sentences
    on the source for the user.
    """

    dataset: str
    source: str
    landing: str
    told: Mapping[str, Any] = field(default_factory=dict)
    marker: str | None = "_SUCCESS"
    settle_seconds: float = 300
    schemas: tuple[str, ...] = ()
    store: str = DEFAULT_URL
    warehouse: str = field(default_factory=default_warehouse)
    shredded: str = f"{HOME}/shredded"
    owner: str = "team:data"
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, seen: Preview, **chosen: Any) -> Wanted:
        """Returns the choices that a preview suggests, replaced by those in `chosen` that are not None."""
        landing = str(storage.local_path(seen.root)) if storage.is_local(seen.root) else seen.root
        found: dict[str, Any] = {
            "dataset": name_of(landing, seen.source),
            "source": seen.source,
            "landing": landing,
            "told": seen.told,
            "marker": seen.marker,
            "schemas": seen.schemas,
            "notes": seen.advice if seen.marker else (*seen.advice, _NO_MARKER),
        }
        return cls(**{**found, **{key: value for key, value in chosen.items() if value is not None}})


def name_of(landing: str, otherwise: str) -> str:
    """Returns a name for the dataset of a landing root: the nearest folder with a telling name, else `otherwise`."""
    path = Path(landing.removeprefix("s3:/"))
    for part in reversed(path.parts):
        name = re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_")
        if re.fullmatch(r"[a-z][a-z0-9_]{1,62}", name) and name not in _TOO_COMMON:
            return name
    return re.sub(r"[^a-z0-9]+", "_", otherwise.lower()).strip("_")
