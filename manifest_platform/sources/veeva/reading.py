"""Safe reading of untrusted answers of a vault or an identity provider: JSON of any depth, texts of any length.

The caller interprets the values.
"""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any

from manifest_platform import masking

TEXT = 300
"""The most characters of a text that are shown."""
_DEEPEST = 100
_BEYOND = 1000  # further characters that are searched for secrets, because a secret may be cut at the end
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxlist, _BRIEF.maxdict, _BRIEF.maxstring, _BRIEF.maxother = 4, 20, 20, TEXT, TEXT


def parsed(body: bytes) -> dict[str, Any]:
    """Parses a JSON object; returns an empty one for any other text.

    Values that are nested too deeply become null, so that only the entry that holds them is lost.
    """
    try:
        try:
            answer = json.loads(body)
        except RecursionError:
            answer = json.loads(_flattened(body))
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _flattened(body: bytes) -> bytes:
    parts, depth, start = [], 0, 0
    for found in _TOKEN.finditer(body):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == _DEEPEST + 1:
                parts.append(body[start : found.start()])
        elif found[0] in (b"]", b"}"):
            if depth == _DEEPEST + 1:
                parts.append(b"null")
                start = found.end()
            depth -= 1
    return b"".join([*parts, body[start:] if depth <= _DEEPEST else b""])


def text_of(value: Any, most: int = TEXT) -> str:
    """Returns a value as a text to print and store: masked, of at most `most` characters, without broken characters."""
    text = value if isinstance(value, str) else _BRIEF.repr(value)
    return masking.masked(_whole(text[: most + _BEYOND]))[:most]


def shown(value: Any) -> str:
    """Returns a value as it appears in a message: a text in quotes, anything else as Python writes it."""
    if not isinstance(value, str):
        return text_of(value)
    text = masking.masked(value[: TEXT + _BEYOND])[:TEXT]
    return repr(text) if text.isprintable() else ascii(text)


def word_of(value: Any) -> str:
    """Returns the text of a value that should be a number or a time. It is not masked, so do not show it."""
    return _whole(str(value) if isinstance(value, str | int | float) else "")[:TEXT]


def _whole(text: str) -> str:
    """Replaces lone surrogates, which no encoding holds."""
    return text.encode("utf-8", "backslashreplace").decode()


def can_be_sent(secret: Any) -> bool:
    """True if a session or a token fits in a header: printable ASCII without spaces, of limited length."""
    return (
        isinstance(secret, str)
        and 0 < len(secret) <= 1 << 14
        and secret.isascii()
        and secret.isprintable()
        and " " not in secret
    )
