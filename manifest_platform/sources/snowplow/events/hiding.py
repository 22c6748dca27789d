"""The hiding of private values, before anything of a line is written, its bad row included.

Lines are rewritten before they are cut and checked. A value that is dropped becomes empty, or its property is left out. A hash
is the HMAC-SHA256 of the value in hexadecimal, with a secret salt. What cannot be taken apart is withheld, and its line is bad.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import orjson

from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.events.validation import entity_schema
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION
from manifest_platform.sources.snowplow.private import Action, Paths, Private
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key
from manifest_platform.sources.snowplow.schemas.resolver import Resolver

WITHHELD = "(withheld)"
"""The text in place of what cannot be taken apart, and may hold private values."""

_PARTS = ("schema", "data")  # of an entity, and of the wrapper around entities
_CELLS = tuple(place for place, field in enumerate(FIELDS) if field.is_json)


class Hiding:
    """The hiding of private values in some lines."""

    def __init__(self, private: Private):
        self._private = private
        self._known: dict[str, Paths | None] = {}  # by schema; None if it is no key
        self._names = private.names
        self._written = tuple("/".join(name).encode() for name in self._names)

    def hidden(self, data: bytes) -> bytes:
        """Returns lines without private values. Their number stays."""
        return b"\n".join(self._line(line) for line in data.split(b"\n"))

    def _line(self, line: bytes) -> bytes:
        if not line.strip():
            return line
        end = b"\r" if line.endswith(b"\r") else b""
        fields = line.removesuffix(b"\r").split(b"\t")
        if len(fields) != len(FIELDS):
            return WITHHELD.encode() + b"\t" * (len(fields) - 1) + end
        for place, action in self._private.atomic:
            fields[place] = self._value(fields[place], action)
        for place in _CELLS if self._private.entities else ():
            if fields[place]:
                fields[place] = self._cell(fields[place])
        return b"\t".join(fields) + end

    def _value(self, value: bytes, action: Action) -> bytes:
        return b"" if action == "drop" or not value else self._hash(value).encode()

    def _hash(self, value: bytes) -> str:
        return hmac.new(self._private.salt, value, hashlib.sha256).hexdigest()

    def _cell(self, cell: bytes) -> bytes:
        try:
            if not self._may_name_private(cell) and self._is_open(orjson.loads(cell)):
                return cell
            return numbers.dumps(_with_entities(numbers.loads(cell), self.entity))
        except (ValueError, TypeError, RecursionError):
            return WITHHELD.encode()

    def _may_name_private(self, cell: bytes) -> bool:
        """True if the text may name a private schema, even where the parser sees none, as under a key that comes twice."""
        text = cell.lower()
        return b"\\" in text or any(name in text for name in self._written)

    def _is_open(self, wrapper: Any) -> bool:
        """True if nothing of a cell is hidden."""
        if type(wrapper) is not dict or len(wrapper) != 2 or type(wrapper.get("schema")) is not str:
            return False
        inside = wrapper.get("data")
        return all(self._paths_of(one) == () for one in (inside if type(inside) is list else [inside]))

    def _paths_of(self, entity: Any) -> Paths | None:
        """Returns the private paths of an entity; None if its line is bad in any case."""
        schema = entity.get("schema") if type(entity) is dict else None
        if type(schema) is not str or "data" not in entity:
            return None
        if schema not in self._known:
            self._known[schema] = self._private.paths(schema) if is_key(schema) else None
        return self._known[schema]

    def entity(self, entity: Any) -> Any:
        """Returns an entity without its private values, or its schema alone if its line is bad in any case. May change it."""
        paths = self._paths_of(entity)
        if paths is None:
            return _withheld(entity)
        for path, action in paths:
            for holder in _holders(entity["data"], path[:-1]):
                if path[-1] not in holder:
                    continue
                value = holder.pop(path[-1])
                if action == "hash":
                    holder[path[-1]] = None if value is None else self._hash(_text(value))
        return {name: value for name, value in entity.items() if name in _PARTS} if paths else entity

    def of_bad(self, line: bytes, is_known: Callable[[str], bool]) -> bytes:
        """Returns a bad line, hidden already, without entities that are named as private ones and whose schema nobody knows.

        Nothing says what such an entity holds: its schema may be a version that is not published yet, or another model.
        `is_known`: True for a schema that was found.
        """
        fields = line.split(b"\t")
        if not self._names or len(fields) != len(FIELDS):
            return line
        for place in _CELLS:
            if fields[place]:
                fields[place] = self._known_only(fields[place], is_known)
        return b"\t".join(fields)

    def _known_only(self, cell: bytes, is_known: Callable[[str], bool]) -> bytes:
        withheld = []

        def shown(entity: Any) -> Any:
            schema = entity.get("schema") if isinstance(entity, dict) else None
            if not isinstance(schema, str) or not is_key(schema) or is_known(schema):
                return entity
            key = SchemaKey.parse(schema)
            if (key.vendor.lower(), key.name.lower()) not in self._names:
                return entity
            withheld.append(schema)
            return {"schema": schema, "withheld": True}  # no entity, so that a replay does not take it for one

        try:
            found = _with_entities(numbers.loads(cell), shown)
            return numbers.dumps(found) if withheld else cell
        except (ValueError, TypeError, RecursionError):
            return WITHHELD.encode()


class AsTheyCame:
    """The entities of some lines before their private values were hidden.

    A schema is rewritten to match hidden values, but not every schema can be: a `oneOf` may require the property that is
    dropped. So an entity that breaks the rewritten schema is also checked as it came, by the published one.
    """

    def __init__(self, lines: bytes, private: Private, resolver: Resolver):
        self._text, self._private, self._resolver = lines, private, resolver
        self._parsed: dict[tuple[int, str], list[Any]] = {}  # by line and cell; thousands of one cell may break their schemas

    @cached_property
    def _lines(self) -> list[bytes]:
        return self._text.split(b"\n")

    def is_valid(self, line: int, cell: str, place: int, schema: str) -> bool:
        """True if the entity at a place in a line's cell was valid by its published schema."""
        if not self._private.paths(schema):
            return False
        try:
            if (line, cell) not in self._parsed:
                text = self._lines[line].removesuffix(b"\r").split(b"\t")[POSITION[cell]]
                self._parsed[line, cell] = _entities(text)
            check = entity_schema(self._resolver.published(SchemaKey.parse(schema)), schema)
            came = self._parsed[line, cell][place]
            return came["schema"] == schema and not any(check.breaches(came["data"]))
        except (ValueError, LookupError, TypeError, RecursionError, SchemaError):
            return False


def _entities(cell: bytes) -> list[Any]:
    inside = numbers.loads(cell)["data"]
    return inside if isinstance(inside, list) else [inside]


def _with_entities(wrapper: Any, changed: Callable[[Any], Any]) -> Any:
    """Returns the content of a cell with its entities changed, and without what is beside them and the wrapper's schema."""
    if not isinstance(wrapper, dict):
        return WITHHELD
    found = {}
    for name, inside in wrapper.items():
        if name == "data":
            found[name] = [changed(one) for one in inside] if isinstance(inside, list) else changed(inside)
        elif name == "schema":
            found[name] = inside if isinstance(inside, str) else WITHHELD
    return found


def _withheld(entity: Any) -> Any:
    """Returns what is shown of what is no entity, or names no schema: the name alone."""
    if not isinstance(entity, dict):
        return WITHHELD
    schema = entity.get("schema")
    return {name: schema if name == "schema" and isinstance(schema, str) else WITHHELD for name in _PARTS if name in entity}


def _holders(value: Any, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yields the objects at a path, in arrays too."""
    if isinstance(value, list):
        for one in value:
            yield from _holders(one, path)
    elif isinstance(value, dict) and not path:
        yield value
    elif isinstance(value, dict):
        yield from _holders(value.get(path[0]), path[1:])


def _text(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return text.encode("utf-8", "surrogatepass")
