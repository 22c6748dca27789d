"""Nested column types: `struct<name:type,...>` and `array<type>`, of the other column types and of themselves.

They are written as Hive and Spark write them, so that a catalog takes the text as it is. A struct has at least one field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

SCALAR = re.compile(r"boolean|integer|bigint|double|timestamp|date|json|string(\([1-9]\d*\))?|decimal\([1-9]\d?,\d\d?\)")
_NAME = re.compile(r"[A-Za-z0-9_]+")


def is_nested(type_: str) -> bool:
    """True for a struct or an array."""
    return type_.endswith(">")


def struct(fields: dict[str, str]) -> str:
    """The struct with these fields."""
    return f"struct<{','.join(f'{name}:{type_}' for name, type_ in fields.items())}>"


def array(item: str) -> str:
    """The array of a type."""
    return f"array<{item}>"


def item_of(type_: str) -> str | None:
    """The type of an array's items; None if a type is no array."""
    return type_[len("array<") : -1] if type_.startswith("array<") and is_nested(type_) else None


@functools.cache
def _fields(type_: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, inner) for name, _, inner in (part.partition(":") for part in _parts(type_[len("struct<") : -1])))


def fields_of(type_: str) -> dict[str, str] | None:
    """The fields of a struct; None if a type is no struct."""
    return dict(_fields(type_)) if type_.startswith("struct<") and is_nested(type_) else None


@functools.lru_cache(4096)
def is_column_type(type_: str) -> bool:
    """True for every type that a column may have."""
    if (item := item_of(type_)) is not None:
        return is_column_type(item)
    if (fields := fields_of(type_)) is not None:
        return bool(fields) and all(_NAME.fullmatch(name) and is_column_type(inner) for name, inner in fields.items())
    return bool(SCALAR.fullmatch(type_))


def widened(have: str, want: str, inner: Callable[[str, str], str | None]) -> str | None:
    """The narrowest nested type that holds the values of both; None if there is none. `inner`: the rule for types inside.

    A struct gets the fields of both, those of the first before those that only the second has.
    """
    items = item_of(have), item_of(want)
    if items[0] is not None and items[1] is not None:
        item = inner(items[0], items[1])
        return array(item) if item else None
    fields, others = fields_of(have), fields_of(want)
    if fields is None or others is None:
        return None
    for name, type_ in others.items():
        wide = inner(fields[name], type_) if name in fields else type_
        if wide is None:
            return None
        fields[name] = wide
    return struct(fields)


def rewritten(type_: str, scalar: Callable[[str], str], of_struct: str, of_array: str, field: str) -> str:
    """The text of a type in another system.

    `scalar`: the text of a type that is not nested. `of_struct`, `of_array`, `field`: the forms, with `{}` for what is inside,
    and `{name}` and `{type}` for a field.
    """
    if (item := item_of(type_)) is not None:
        return of_array.format(rewritten(item, scalar, of_struct, of_array, field))
    if (fields := fields_of(type_)) is not None:
        inside = (
            field.format(name=name, type=rewritten(one, scalar, of_struct, of_array, field)) for name, one in fields.items()
        )
        return of_struct.format(",".join(inside))
    return scalar(type_)


def _parts(text: str) -> Iterator[str]:
    """Divides text at the commas that are in no brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield text[start:place]
            start = place + 1
    yield text[start:]
