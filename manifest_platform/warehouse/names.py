"""Names in the warehouse: those that are too long for an engine, and those of the control tables.

PostgreSQL cuts a name after 63 bytes without an error, so two tables or columns could silently become one. Such a name is
stored in a shorter form instead, which depends on nothing but the name: it is the same in every load and every release.
"""

from __future__ import annotations

import hashlib
from functools import cache

_DIGITS = 10


@cache
def shortened(name: str, longest: int | None) -> str:
    """Returns a name with at most `longest` bytes in UTF-8; None for no limit. A name that fits is unchanged.

    The end of a longer name is replaced by a hash. Two names that differ only by case get the same hash, because names match
    without case.
    """
    encoded = name.encode(errors="surrogatepass")
    if longest is None or len(encoded) <= longest:
        return name
    digest = hashlib.sha256(name.lower().encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{encoded[: longest - _DIGITS - 1].decode(errors='ignore')}_{digest}"


def with_ending(name: str, ending: str, longest: int | None) -> str:
    """Returns a name with an ending that stays whole: the name before it is shortened if necessary."""
    return f"{shortened(name, None if longest is None else longest - len(ending.encode()))}{ending}"


def is_short_form(stored: str, name: str) -> bool:
    """True if a stored name is the shorter form of a name."""
    length = len(stored.encode(errors="surrogatepass"))
    return stored != name and shortened(name, length).lower() == stored.lower()
