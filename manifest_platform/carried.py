"""Files that lie at the top of the repository, and within the package in a wheel.

Belongs here: where such a file is. Which ones there are is said by `pyproject.toml`, under `force-include`.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def carried(name: str) -> Path:
    """The path of such a file or folder, as `spark_conf/local.conf`; it need not be there."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name
