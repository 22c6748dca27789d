"""The text of a schema as a document, and a document as text, with all digits of whole numbers.

The fast parser reads a whole number beyond 64 bits as a float, so that an `enum` would refuse the number that it lists.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from manifest_platform.sources.snowplow import numbers


def parsed(text: bytes) -> Any:
    """Returns the document. Raises orjson.JSONDecodeError."""
    found = orjson.loads(text)  # refuses what JSON forbids, and the other parser accepts
    try:
        return json.loads(text) if numbers.may_be_long(text) else found
    except RecursionError:
        return found


def written(document: Any) -> bytes:
    """Returns the text of a document. Raises TypeError or RecursionError if it is nested too deeply."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document).encode()
