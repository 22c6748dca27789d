"""Names as Snowflake stores them: a plain name in upper case, so that people need no quotes around it.

Snowflake reads `select * from orders` as `ORDERS`. A table that was created as `"orders"` would need quotes in every query, in
dbt and in every tool, so plain names (letters, digits, `_` and `$`) are stored in upper case. The platform sees them in lower
case, whatever their spelling is at the source: names match without case. Other names are stored as they are.

Statements are written with quoted names as the platform has them. `folded` translates a whole statement at the border, so that
no statement of the platform is written for Snowflake alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_STORED = re.compile(r"[A-Z_][A-Z0-9_$]*")
_PARTS = re.compile(r"""'(?:[^'\\]|''|\\.)*'|"(?P<name>(?:[^"]|"")+)"|--[^\n]*|/\*.*?\*/""", re.DOTALL)


def platform_name(name: str) -> str:
    """Returns the platform's spelling of a source's name: a plain name in lower case, any other name unchanged."""
    return name.lower() if _PLAIN.fullmatch(name) else name


def read_back(stored: str) -> str | None:
    """Returns the platform's spelling of a stored name; None for a name that no statement of the platform can mean."""
    if _PLAIN.fullmatch(stored):
        return stored.lower() if _STORED.fullmatch(stored) else None
    return stored


@lru_cache(4096)
def folded(sql: str) -> str:
    """Returns a statement in which plain quoted names are in upper case. Texts and comments are unchanged."""
    return _PARTS.sub(lambda found: found[0].upper() if _is_plain(found["name"]) else found[0], sql)


def stored(name: str) -> str:
    """Returns a name as Snowflake stores it."""
    return name.upper() if _is_plain(name) else name


def literal(text: str) -> str:
    """Returns a text as SQL. Snowflake reads a backslash as the begin of an escape."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Returns a name in quotes, as it is stored."""
    return '"' + stored(name).replace('"', '""') + '"'


def _is_plain(name: str | None) -> bool:
    return bool(name and _PLAIN.fullmatch(name))
