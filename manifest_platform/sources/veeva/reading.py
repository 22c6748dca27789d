"""What a vault or an identity provider tells, read so that nothing in it does harm: JSON of any depth, texts of any length.

Belongs here: values alone. What they mean is the matter of who asked.
"""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any

from manifest_platform import masking

TEXT = 300
"""How many characters of a text are told."""
_DEEPEST = 100
_BEYOND = 1000  # characters that are looked at behind those that are told: a secret may begin among these
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxlist, _BRIEF.maxdict, _BRIEF.maxstring, _BRIEF.maxother = 4, 20, 20, TEXT, TEXT


def parsed(body: bytes) -> dict[str, Any]:
    """The object that a text of JSON is, and an empty one for any other text.

    What lies deeper than anything that is told lies in is null: it costs the entry that it is in, and no others.
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
    """A value as a text that can be printed and stored: no secret that it repeats, no half characters, and not without end."""
    text = value if isinstance(value, str) else _BRIEF.repr(value)
    return masking.masked(_whole(text[: most + _BEYOND]))[:most]


def shown(value: Any) -> str:
    """A value as it stands in a message: a text in quotes, and all else as Python writes it."""
    if not isinstance(value, str):
        return text_of(value)
    text = masking.masked(value[: TEXT + _BEYOND])[:TEXT]
    return repr(text) if text.isprintable() else ascii(text)


def word_of(value: Any) -> str:
    """A value that is to be a number or a time, as the text that says it; not to be told."""
    return _whole(str(value) if isinstance(value, str | int | float) else "")[:TEXT]


def _whole(text: str) -> str:
    """A text without halves of characters, which no encoding has."""
    return text.encode("utf-8", "backslashreplace").decode()


def can_be_sent(secret: Any) -> bool:
    """Whether a session or a token can stand in a header: printable ASCII without spaces, and not without end."""
    return (
        isinstance(secret, str)
        and 0 < len(secret) <= 1 << 14
        and secret.isascii()
        and secret.isprintable()
        and " " not in secret
    )
