"""Choices by schema: patterns of schemas as Iglu's criterions, and what becomes of entities whose schema matches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from manifest_platform.settings import Settings

Form = Literal["table", "json", "skip"]
_PART = r"(?:[A-Za-z0-9_-]+|\*)"


class EntitySettings(Settings):
    """A choice of the form of entities, by a pattern of their schemas."""

    schemas: str = Field(
        pattern=rf"^iglu:(?:[A-Za-z0-9_.-]+|\*)/{_PART}/{_PART}/(?:[0-9]+|\*)-(?:[0-9]+|\*)-(?:[0-9]+|\*)$",
        description="a pattern of schemas: each part is a name, a number or `*`, as `iglu:com.acme/*/jsonschema/1-*-*`",
    )
    form: Form = Field(
        alias="as",
        description="`table`: a column for each property. `json`: the data of an entity in one JSON column, `data`. `skip`: no"
        " rows; the schema is not looked up, and the event stays good. All versions of a model share a table, so `table` and"
        " `json` are for whole models: `*` for revision and addition",
    )

    @model_validator(mode="after")
    def _is_for_whole_models(self) -> EntitySettings:
        """Refuses a form of rows for some versions of a model: the columns of its table would depend on what comes first."""
        whole = re.sub(r"-[^-/]+-[^-/]+$", "-*-*", self.schemas)
        if self.form != "skip" and self.schemas != whole:
            raise ValueError(
                f"schemas: {self.schemas} as {self.form} names some versions of a model, and all versions share a table;"
                f" allowed: {whole}, or as: skip"
            )
        return self


def form_of(schema: str, choices: Sequence[tuple[str, Form]]) -> Form:
    """Returns the form that the first matching pattern chooses for a schema's entities."""
    return next((form for pattern, form in choices if _matches(schema, pattern)), "table")


def _matches(schema: str, pattern: str) -> bool:
    wanted, own = _parts(pattern), _parts(schema)
    return len(wanted) == len(own) and all(one in ("*", other) for one, other in zip(wanted, own, strict=True))


def _parts(schema: str) -> list[str]:
    names, _, version = schema.removeprefix("iglu:").rpartition("/")
    return [*names.split("/"), *version.split("-")]
