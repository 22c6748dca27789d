"""The settings of a dataset of items that programs register."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from manifest_platform.manifest.item import ITEMS
from manifest_platform.sources.settings import DataRetention, DatasetBasics, LoadSettings


class ItemsSettings(DatasetBasics):
    """A dataset of items that programs register with `put new` and work on in the steps declared here."""

    feeds: ClassVar[tuple[str, ...]] = (ITEMS,)
    platform_steps: ClassVar[tuple[str, ...]] = ()
    merge: ClassVar[None] = None
    load: ClassVar[LoadSettings] = LoadSettings()
    retention: ClassVar[DataRetention] = DataRetention()

    source: Literal["items"] = Field("items", description="items that programs register")

    def problems(self) -> Iterator[str]:
        """Requires at least one step."""
        if not self.steps:
            yield "steps: there is no step, so no program could claim an item; allowed: at least one step"
