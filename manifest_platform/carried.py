"""Files at the top of the repository that a wheel carries inside the package.

Belongs here: finding such a file. `pyproject.toml` lists the files under `force-include`.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def carried(name: str) -> Path:
    """The path of such a file or folder, for example `spark_conf/local.conf`. It may not exist."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name
