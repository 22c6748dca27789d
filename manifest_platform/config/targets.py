"""The targets of datasets: the warehouse, and further places that the same datasets are loaded into.

Belongs here: how targets are named and written in the configuration. The settings of a place are its engine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field, create_model

from manifest_platform import plugins
from manifest_platform.manifest.records import FIRST_TARGET
from manifest_platform.settings import PluginSettings, Settings
from manifest_platform.warehouse.engines.engine import DEFAULT_ENGINE, EngineSettings

BEGINNING, NEWEST_FULL = "beginning", "newest_full"
"""The starts of a target that name no item: the first item, and the newest snapshot."""


@cache
def _target_of(engine: type[Settings]) -> type[Settings]:
    """Returns the model of a further target on an engine: the engine's settings, and where the target starts."""
    start = Field(
        BEGINNING,
        min_length=1,
        description=f"where a target that is added later starts: `{BEGINNING}` loads everything; `{NEWEST_FULL}` begins a full"
        " load with the newest snapshot; the name of an item loads that item and the items after it",
    )
    return create_model(f"Target{engine.__name__}", __base__=engine, __doc__=engine.__doc__, start=(str, start))


class _TargetSettings(PluginSettings):
    """Annotates a target with the settings of its engine, and with `start`."""

    @staticmethod
    def _model_of(plugin: Any) -> type[Settings]:
        return _target_of(PluginSettings._model_of(plugin))


AnyTarget = Annotated[EngineSettings, _TargetSettings(plugins.ENGINES, DEFAULT_ENGINE, short="url")]
"""The settings of a further target, chosen by `kind`."""


def start_of(settings: EngineSettings) -> str:
    """Returns where a target starts. The first target always starts with the first item."""
    return getattr(settings, "start", BEGINNING)


def same_places(engines: Mapping[str, EngineSettings]) -> Iterator[str]:
    """Yields a sentence for each target that is the same place as a target before it. Files are compared with all places."""
    seen: dict[tuple[str, str], str] = {}
    for name, settings in engines.items():
        if settings.file:
            continue
        place = (settings.kind, settings.place)
        if place in seen:
            yield f"{key_of(seen[place])} and {key_of(name)} are the same place, {settings.place}: give each its own"
        seen.setdefault(place, name)


def key_of(target: str) -> str:
    """Returns the key of the configuration that declares a target."""
    return FIRST_TARGET if target == FIRST_TARGET else f"targets.{target}"
