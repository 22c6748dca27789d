"""The settings of upkeep: what is done with tables that loads changed, and which old rows are removed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from manifest_platform.settings import Settings

UpkeepAction = Literal["analyze", "vacuum", "sort"]
"""Actions of an engine on a table: collect statistics, reclaim the space of deleted rows, restore the order of rows."""


class UpkeepSettings(Settings):
    """Upkeep of the tables of a warehouse after a drain. Without actions, nothing is done."""

    actions: tuple[UpkeepAction, ...] = Field(
        (),
        description="what is done with tables that loads changed. `analyze`: collects statistics for the planner. `vacuum`:"
        " reclaims the space of deleted rows. `sort`: restores the order of rows. Each engine has some of them",
    )
    changed_share: float = Field(
        0.1, gt=0, le=1, description="share of a table's rows that must have changed since it was last done"
    )
    seconds: float = Field(
        300, ge=1, le=86_400, description="seconds that upkeep may take after a drain; the rest waits for the next drain"
    )


class RetentionSettings(Settings):
    """Removal of old rows from appended tables. Tables that are changed by key are never reduced."""

    table: str = Field(min_length=1, description="name of an appended table, or a pattern with `*` and `?`")
    column: str = Field("load_tstamp", min_length=1, description="the column with the time of a row, in UTC")
    days: int = Field(ge=1, le=36_500, description="rows older than this many days are removed")
