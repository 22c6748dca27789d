"""Private columns: values that are dropped or hashed before anything of a line is written, its bad row included.

Lines are rewritten before they are cut and checked. A value that is dropped becomes empty, or its property is left out. A hash
is the HMAC-SHA256 of the value in hexadecimal, with a secret salt. The schemas of such properties are rewritten to match.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from manifest_platform import masking
from manifest_platform.faults import Misconfigured
from manifest_platform.settings import SecretReference, Settings
from manifest_platform.sources.snowplow import numbers

Action = Literal["drop", "hash"]
EVENTS = "events"
_WITHHELD = b"(withheld)"
_SHORTEST_SALT = 16
_HASH = {"type": ["string", "null"], "maxLength": 64}


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
    entities: tuple[tuple[str, tuple[tuple[tuple[str, ...], Action], ...]], ...] = ()

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
        entities = tuple(
            (family, tuple((tuple(path.split(".")), action) for path, action in columns.items()))
            for family, columns in settings.columns.items()
            if family != EVENTS
        )
        return cls((salt or "").encode(), tuple(atomic), entities)

    @property
    def hashes(self) -> bool:
        """True if any value is hashed. Only the hash is kept then, in bad rows too."""
        entities = (action for _, paths in self.entities for _, action in paths)
        return "hash" in {*(action for _, action in self.atomic), *entities}

    # Lines

    def hide(self, data: bytes) -> bytes:
        """Rewrites lines. Their number stays; a line or a cell that cannot be taken apart is withheld, and stays bad."""
        return b"\n".join(self._line(line) for line in data.split(b"\n")) if self else data

    def _line(self, line: bytes) -> bytes:
        from manifest_platform.sources.snowplow.fields import FIELDS

        if not line.strip():
            return line
        end = b"\r" if line.endswith(b"\r") else b""
        fields = line.removesuffix(b"\r").split(b"\t")
        if len(fields) != len(FIELDS):
            return _WITHHELD + b"\t" * (len(fields) - 1) + end
        for place, action in self.atomic:
            fields[place] = self._hidden(fields[place], action)
        for place, known in enumerate(FIELDS) if self.entities else ():
            if known.is_json and fields[place]:
                fields[place] = self._cell(fields[place])
        return b"\t".join(fields) + end

    def _hidden(self, value: bytes, action: Action) -> bytes:
        return b"" if action == "drop" or not value else self._hash(value).encode()

    def _hash(self, value: bytes) -> str:
        return hmac.new(self.salt, value, hashlib.sha256).hexdigest()

    def _cell(self, cell: bytes) -> bytes:
        named = any(family.encode() in cell for family, _ in self.entities)
        if not named and b"\\" not in cell:  # a backslash may hide a name
            return cell
        try:
            wrapper = numbers.loads(cell)
            inside = wrapper.get("data")
            for entity in inside if isinstance(inside, list) else [inside]:
                self._entity(entity)
            return numbers.dumps(wrapper)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return _WITHHELD

    def _entity(self, entity: Any) -> None:
        schema = entity.get("schema") if isinstance(entity, dict) else None
        for path, action in self.paths(schema) if isinstance(schema, str) else ():
            for holder in _holders(entity.get("data"), path[:-1]):
                if path[-1] not in holder:
                    continue
                value = holder.pop(path[-1])
                if action == "hash":
                    holder[path[-1]] = None if value is None else self._hash(_text(value))

    # Schemas

    def paths(self, schema: str) -> tuple[tuple[tuple[str, ...], Action], ...]:
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


def _unfit(known: Any, action: Action) -> str:
    if action == "drop":
        return f"{known.name} must not be empty, so it cannot be dropped" if known.required else ""
    if known.required or not known.type.startswith("string"):
        return f"{known.name} is no text that may be another, so it cannot be hashed"
    length = known.type.removeprefix("string(").removesuffix(")")
    return f"{known.name} has {length} characters, too few for a hash; allowed: drop" if int(length) < 64 else ""


def _holders(value: Any, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yields the objects at a path, in arrays too."""
    if isinstance(value, list):
        for one in value:
            yield from _holders(one, path)
    elif isinstance(value, dict) and not path:
        yield value
    elif isinstance(value, dict):
        yield from _holders(value.get(path[0]), path[1:])


def _declaring(schema: Any, path: tuple[str, ...]) -> dict[str, Any] | None:
    """Returns the part of a schema that declares the last property of a path; None if it is not declared there."""
    while isinstance(schema, dict) and isinstance(schema.get("items"), dict):
        schema = schema["items"]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict) or path[0] not in properties:
        return None
    return schema if len(path) == 1 else _declaring(properties[path[0]], path[1:])


def _text(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return text.encode("utf-8", "surrogatepass")
