"""The check of an entity against its JSON Schema.

Schemas of Iglu are of draft 4, as Snowplow reads them, unless `$schema` names a later draft of json-schema.org. Nothing is ever
fetched: a `$ref` to another document makes the schema unusable. A pattern takes time that grows linearly with the text. Only a
pattern with look-around or a back-reference needs another engine, whose steps are limited. A pattern that neither engine reads,
because it is written for another language, is left out; the rest of the schema is checked. Where that could make a
valid entity bad, the schema is unusable.

Three rules are gentler than the schema, because they lose nothing: a text may be longer than `maxLength`, a whole number may be
written as 1.0, and `format` is left to the column of the value.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.events.complexity import steps
from manifest_platform.sources.snowplow.schemas.documents import parsed, written

_LATER_DRAFTS = {
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
_GENTLE = frozenset({"maxLength"})
_STEPS = 100_000  # of a pattern with look-around; a text that needs more does not match
_LONGEST = 300  # characters of a message
_COMPILED = 4_096  # schemas that a process keeps ready
_MOST_STEPS = 1_000_000  # of a check, about 20 ms
_TOLD_STEPS = 2_000  # of a check that also tells the place of an error, about 50 ms
_MOST_LEFT_OUT = 20  # patterns of a schema
_NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_DATA = frozenset({"const", "default", "enum", "examples"})  # they hold no schemas
_TURNING = frozenset({"contains", "if", "not", "oneOf"})  # less to fit within them can make an entity bad
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})  # they depend on keywords in other schemas
_TOO_MANY = "does not fit its schema, which has too many alternatives to tell where"
_TOO_DEEP = "is nested too deeply to be checked against its schema"


@dataclass(frozen=True)
class Breach:
    """A place where an entity breaks its schema: the path of property names, the keyword, the value there, and a message."""

    path: tuple[str, ...]
    keyword: str
    value: Any
    message: str


class EntitySchema:
    """A JSON Schema, ready to check entities."""

    def __init__(self, schema: Any, key: str = ""):
        """`key`: the schema's key, for messages. Raises SchemaError if the schema cannot be used.

        `left_out`: the places of keywords that are not checked, because no engine reads their patterns.
        """
        schema = _whole(schema)  # as entities are, so that 1e21 in an enumeration is the same number in both
        self._validator, self.left_out = _validator(schema, key)
        self._schema = schema
        self._counted: dict[int, int] = {}
        if self._steps(0) >= _MOST_STEPS:
            raise SchemaError(
                f"{key}: no entity can be checked against this schema: its alternatives refer to each other so often that a"
                f" check may take more than {_MOST_STEPS:,} steps; correct it in the registry, or set `validate: types` below"
                " `shred`"
            )

        self.is_surely_valid = self._validator.is_valid
        """True if an entity is valid; if not, `breaches` has the verdict. Raises ValueError if it is nested too deeply."""

    def _steps(self, turns: int) -> int:
        if turns not in self._counted:
            self._counted[turns] = steps(self._schema, _MOST_STEPS, turns)
        return self._counted[turns]

    def breaches(self, entity: Any) -> Iterator[Breach]:
        """Yields the places where an entity breaks the schema.

        To tell the place takes a thousand times as long as to tell that there is one, so a schema of very many alternatives
        gives one breach without a place.
        """
        try:
            if self._steps(0) >= _TOLD_STEPS or self._steps(_depth(entity)) >= _TOLD_STEPS:
                if not self._validator.is_valid(_whole(entity)):
                    yield Breach((), "", None, _TOO_MANY)
                return
            for error in self._validator.iter_errors(_whole(entity)):
                if error.kind.name not in _GENTLE:
                    path = tuple(str(part) for part in error.instance_path)
                    yield Breach(path, error.kind.name, error.instance, error.message[:_LONGEST])
        except (ValueError, RecursionError):
            yield Breach((), "", None, _TOO_DEEP)


def entity_schema(schema: Any, key: str) -> EntitySchema:
    """Returns the schema of a key, ready to check entities. Raises SchemaError if it cannot be used."""
    try:
        found = _compiled(written(schema), key)
    except (TypeError, RecursionError) as error:
        raise SchemaError(f"{key}: no entity can be checked against this schema: it is nested too deeply") from error
    if isinstance(found, SchemaError):
        raise found
    return found


def left_out(schema: Any, key: str) -> tuple[str, ...]:
    """Returns the places in a schema that are not checked, because no engine reads a pattern there."""
    try:
        return entity_schema(schema, key).left_out
    except SchemaError:
        return ()


@functools.lru_cache(maxsize=_COMPILED)
def _compiled(text: bytes, key: str) -> EntitySchema | SchemaError:
    try:
        return EntitySchema(parsed(text), key)
    except SchemaError as error:
        return error


def _validator(schema: Any, key: str) -> tuple[Any, tuple[str, ...]]:
    """Returns the validator of a schema, and the places of keywords that it leaves out."""
    import jsonschema_rs as rs

    declared = schema.get("$schema") if isinstance(schema, dict) else None
    draft = getattr(rs, _LATER_DRAFTS.get(str(declared).rstrip("#"), "Draft4Validator"))
    linear, limited = rs.RegexOptions(), rs.FancyRegexOptions(backtrack_limit=_STEPS)
    left_out: tuple[str, ...] = ()
    problem, place = "", None
    for patterns in itertools.cycle((linear, limited)):
        try:
            return draft(schema, pattern_options=patterns, validate_formats=False, offline=True, mask="the value"), left_out
        except rs.ValidationError as error:
            problem = f"{'.'.join(map(str, error.instance_path))}: {error.message}".removeprefix(": ")
            place = _unread(schema, error)
        except (ValueError, RecursionError, rs.ReferencingError) as error:
            problem, place = "it is nested too deeply" if "ecursion" in str(error) else str(error), None
        if patterns is limited:
            if place is None or len(left_out) == _MOST_LEFT_OUT:
                break
            schema, left_out = _without(schema, place), (*left_out, ".".join(map(str, place)))
            if place[-1] != "pattern" and any(word in _UNEVALUATED for word, _ in _keywords(schema)):
                break
    raise SchemaError(
        f"{key}: no entity can be checked against this schema: {' '.join(problem.split())[:_LONGEST]}; correct it in the"
        " registry, or set `validate: types` below `shred`"
    )


def _unread(schema: Any, error: Any) -> list[str | int] | None:
    """Returns the place of the keyword that can be left out where no engine reads a pattern; None for any other fault.

    It is the pattern, or the first keyword around it within which fewer rules can mean more bad entities.
    """
    path = list(error.instance_path)
    if error.kind.name != "format" or not ("pattern" in path[-1:] or "patternProperties" in path[-2:-1]):
        return None
    turning = (inside for word, inside in _keywords(schema) if word in _TURNING)
    if any(word in _REFERENCES for inside in turning for word, _ in _keywords(inside)):
        return None  # the reference may lead to it
    depth = 0
    while depth < len(path):
        if path[depth] in _TURNING:
            return path[: depth + 1]
        depth += 2 if path[depth] in _NAMED or isinstance(path[min(depth + 1, len(path) - 1)], int) else 1
    return path


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yields each keyword of a schema, or of some, and of the schemas within, with its value. A property's name is none."""
    if isinstance(schema, list):
        for one in schema:
            yield from _keywords(one)
    elif isinstance(schema, dict):
        for word, inside in schema.items():
            yield word, inside
            if word in _NAMED and isinstance(inside, dict):
                yield from _keywords(list(inside.values()))
            elif word not in _DATA:
                yield from _keywords(inside)


def _without(schema: Any, path: list[str | int]) -> Any:
    """Returns a schema without a keyword. Without a pattern of property names, it allows other properties too."""
    schema = copy.deepcopy(schema)
    around, above = schema, schema
    for part in path[:-1]:
        above, around = around, around[part if isinstance(around, list) else str(part)]
    gone = around.pop(path[-1])
    if path[-2:-1] == ["patternProperties"] and not isinstance(gone, str):
        for word in ("additionalProperties", "unevaluatedProperties"):
            above.pop(word, None)
    return schema


def _depth(value: Any) -> int:
    """Returns the number of objects and arrays that lie in each other."""
    below = value.values() if type(value) is dict else value if type(value) is list else ()
    return max(map(_depth, below), default=0) + 1 if type(value) in (dict, list) else 0


def _whole(value: Any) -> Any:
    """Returns the value with its whole numbers as integers: those written as 1.0, and those of more than 64 bits."""
    if type(value) is float:
        return int(value) if value.is_integer() else value
    if type(value) is dict:
        return {name: _whole(inner) for name, inner in value.items()}
    if type(value) is list:
        return [_whole(inner) for inner in value]
    return value
