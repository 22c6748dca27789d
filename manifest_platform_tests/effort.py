"""How much a test tries that could try on for ever: a part in `make test`, the whole in `make test-long`.

Two marks go with that. `long`: takes minutes, or many processes; only `make test-long` runs it. `thorough`: `make test` runs it
with a part of its cases, `make test-long` with all; tests of Hypothesis count as thorough without a mark.
"""

from __future__ import annotations

import os

IS_WHOLE = os.environ.get("MANIFEST_PLATFORM_PROOFS") == "whole"
"""True if this run is `make test-long`."""


def cases(part: int, whole: int) -> int:
    """The number of cases that this run tries: `whole` for `make test-long`, otherwise `part`."""
    return whole if IS_WHOLE else part
