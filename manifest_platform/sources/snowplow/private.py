"""The settings of private columns, whose values are dropped or hashed, and the schemas of such properties, rewritten to match.

The module `events.hiding` hides the values.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from manifest_platform import masking
from manifest_platform.faults import Misconfigured
from manifest_platform.settings import SecretReference, Settings

Action = Literal["drop", "hash"]
EVENTS = "events"
_SHORTEST_SALT = 16
_FAMILY = re.compile(r"iglu:[A-Za-z0-9_.-]+/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+/[1-9][0-9]*")
_HASH = {"type": ["string", "null"], "maxLength": 64}


Paths = tuple[tuple[tuple[str, ...], Action], ...]
"""The private paths of a schema, with what is done."""


class PrivateRefused(RuntimeError, Misconfigured):
    """The settings of private columns cannot be followed. No item fails for it."""


class PrivateSettings(Settings):
    """Columns whose values are dropped or hashed before anything is written, bad rows included."""

    salt_variable: SecretReference | None = Field(
        None,
        description="the environment variable with the secret salt of hashes, of at least 16 characters",
    )
    columns: dict[str, dict[str, Action]] = Field(
        {},
        description="by `events` or `iglu:vendor/name/format/model`, what is done with a column: `drop` or `hash`. A property"
        " of an entity is named by its path, as `address.street`; a path leads into the objects of an array too",
    )


@dataclass(frozen=True)
class Private:
    """The private columns. `atomic`: position and action. `entities`: by family, path and action."""

    salt: bytes = field(repr=False)
    atomic: tuple[tuple[int, Action], ...] = ()
    entities: tuple[tuple[str, Paths], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.atomic or self.entities)

    @classmethod
    def of(cls, settings: PrivateSettings) -> Private:
        """Reads the salt and checks the names. Raises PrivateRefused, UnusableSecret."""
        from manifest_platform.sources.snowplow.fields import FIELDS, POSITION

        hashes = any(action == "hash" for columns in settings.columns.values() for action in columns.values())
        salt = masking.secret(settings.salt_variable) if settings.salt_variable else None
        if hashes and len(salt or "") < _SHORTEST_SALT:
            where = f"the variable {settings.salt_variable}" if settings.salt_variable else "a variable, named in salt_variable"
            raise PrivateRefused(
                f"shred.private: a hash needs a salt of at least {_SHORTEST_SALT} characters: put it into {where}"
            )
        atomic: list[tuple[int, Action]] = []
        for name, action in settings.columns.get(EVENTS, {}).items():
            if name not in POSITION or FIELDS[POSITION[name]].is_json:
                raise PrivateRefused(f"shred.private: events have no column {name!r}; correct the name")
            if problem := _unfit(FIELDS[POSITION[name]], action):
                raise PrivateRefused(f"shred.private: {problem}")
            atomic.append((POSITION[name], action))
        for family in settings.columns:
            if family != EVENTS and not _FAMILY.fullmatch(family):
                raise PrivateRefused(
                    f"shred.private: {family!r} is no model of a schema; write iglu:vendor/name/jsonschema/1, without a version"
                )
        entities = tuple(
            (family, tuple((tuple(path.split(".")), action) for path, action in columns.items()))
            for family, columns in settings.columns.items()
            if family != EVENTS
        )
        return cls((salt or "").encode(), tuple(atomic), entities)

    @property
    def names(self) -> frozenset[tuple[str, str]]:
        """Vendor and name of the schemas with private properties, in lower case."""
        return frozenset(_name(family) for family, _ in self.entities)

    def paths(self, schema: str) -> Paths:
        """Returns the private paths of a schema or its model, with what is done."""
        return next((paths for family, paths in self.entities if schema == family or schema.startswith(f"{family}-")), ())

    def schema(self, key: str, document: Any) -> Any:
        """Returns a schema as hidden values follow it: a hash is a text of 64 characters, and nothing dropped is required."""
        paths = self.paths(key)
        if not paths or not isinstance(document, dict):
            return document
        document = copy.deepcopy(document)
        for path, action in paths:
            holder = _declaring(document, path)
            if holder is None:
                continue
            if action == "hash":
                holder["properties"][path[-1]] = dict(_HASH)
                continue
            del holder["properties"][path[-1]]
            if isinstance(holder.get("required"), list):
                holder["required"] = [one for one in holder["required"] if one != path[-1]]
        return document

    def declared(self, key: str, document: Any) -> list[tuple[str, ...]]:
        """Returns the private paths that a schema, as it was published, declares."""
        return [path for path, _ in self.paths(key) if _declaring(document, path)]

    def check(self, family: str, declared: Collection[tuple[str, tuple[str, ...]]]) -> None:
        """Raises PrivateRefused for a path that no version of a model declares. `declared`: families and paths that are."""
        for path, _ in self.paths(family):
            if (family, path) not in declared:
                raise PrivateRefused(
                    f"shred.private: no version of {family} has a property {'.'.join(path)}; correct the path, which has the"
                    " names of properties as the schema writes them"
                )


def _name(family: str) -> tuple[str, str]:
    vendor, name = family.removeprefix("iglu:").lower().split("/")[:2]
    return vendor, name


def _unfit(known: Any, action: Action) -> str:
    if action == "drop":
        return f"{known.name} must not be empty, so it cannot be dropped" if known.required else ""
    if known.required or not known.type.startswith("string"):
        return f"{known.name} is no text that may be another, so it cannot be hashed"
    length = known.type.removeprefix("string(").removesuffix(")")
    return f"{known.name} has {length} characters, too few for a hash; allowed: drop" if int(length) < 64 else ""


def _declaring(schema: Any, path: tuple[str, ...]) -> dict[str, Any] | None:
    """Returns the part of a schema that declares the last property of a path; None if it is not declared there."""
    while isinstance(schema, dict) and isinstance(schema.get("items"), dict):
        schema = schema["items"]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict) or path[0] not in properties:
        return None
    return schema if len(path) == 1 else _declaring(properties[path[0]], path[1:])
