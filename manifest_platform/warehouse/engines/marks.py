"""Translates the marks for values in a statement, `?`, to those of a driver."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count
from typing import Literal

Style = Literal["qmark", "numeric", "dollar", "format"]
"""The marks of drivers: `?`; `:1`; `$1`; and `%s`, where a percent sign that is no mark is written twice."""

_PARTS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|(?P<mark>\?)""", re.DOTALL
)


@lru_cache(4096)
def translated(sql: str, style: Style) -> str:
    """Returns a statement with a driver's marks. Question marks in quotes, names and comments are no marks."""
    if style == "qmark":
        return sql
    if style == "format":
        sql = sql.replace("%", "%%")
    numbers = count(1)
    marks = {"numeric": lambda: f":{next(numbers)}", "dollar": lambda: f"${next(numbers)}", "format": lambda: "%s"}
    return _PARTS.sub(lambda found: marks[style]() if found["mark"] else found[0], sql)
