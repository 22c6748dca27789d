"""The number of steps that the check of an entity may take, counted in its JSON Schema before anything is checked.

A check enters a schema once for each path that leads to it: 24 nested `anyOf` of two references each to the next are entered
16 million times. The number of paths is counted here, each schema once, so that a schema of any such form is counted at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_SCHEMAS = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_OBJECTS = ("dependencies", "dependentSchemas", "patternProperties", "properties")
_LATER = ("unevaluatedItems", "unevaluatedProperties")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def steps(schema: Any, most: int, turns: int) -> int:
    """Returns the number of paths from a schema to the schemas below it, or `most` if there are more.

    A schema may refer to itself: `turns` is the number of times that a path may come back. An entity that is nested n deep
    lets a check come back n times.
    """
    try:
        count = _Count(schema, most)
        count.find_cycles(schema)
        return count.of(schema, turns)
    except RecursionError:
        return most


class _Count:
    def __init__(self, root: Any, most: int) -> None:
        self._root, self._most = root, most
        self._known: dict[tuple[int, int], int] = {}
        self._seen: set[int] = set()
        self._open: set[int] = set()
        self._back: set[tuple[int, int]] = set()

    def find_cycles(self, schema: Any) -> None:
        """Notes the references that lead back to a schema that they are in."""
        if not isinstance(schema, dict) or id(schema) in self._seen:
            return
        self._seen.add(id(schema))
        self._open.add(id(schema))
        for below in self._below(schema):
            if id(below) in self._open:
                self._back.add((id(schema), id(below)))
            else:
                self.find_cycles(below)
        self._open.discard(id(schema))

    def of(self, schema: Any, turns: int) -> int:
        """Returns the number of paths that begin at a schema."""
        if not isinstance(schema, dict):
            return 1
        key = id(schema), turns
        if key not in self._known:
            total = 1
            for below in self._below(schema):
                left = turns - ((id(schema), id(below)) in self._back)
                total += self.of(below, left) if left >= 0 else 1
                if total >= self._most:
                    total = self._most
                    break
            self._known[key] = total
        return self._known[key]

    def _below(self, schema: dict[str, Any]) -> Iterator[Any]:
        for word in (*_SCHEMAS, *_LATER):
            if isinstance(schema.get(word), dict):
                yield schema[word]
        for word in _LISTS:
            if isinstance(schema.get(word), list):
                yield from schema[word]
        for word in _OBJECTS:
            if isinstance(schema.get(word), dict):
                yield from schema[word].values()
        for word in _REFERENCES:
            if isinstance(schema.get(word), str):
                yield self._target(schema[word])

    def _target(self, reference: str) -> Any:
        """Returns the schema that a reference within the document leads to; None if it leads nowhere."""
        place, _, pointer = reference.partition("#")
        found = self._root
        if place or (pointer and not pointer.startswith("/")):
            return None
        for part in pointer.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict):
                found = found.get(name)
            else:
                return None
        return found
