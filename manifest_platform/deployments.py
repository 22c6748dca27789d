"""Derives the places (files, folders, schemas) of another deployment, such as a branch, from those of production.

Each deployment reads the same landing as production and writes only to its own places.
Each place is a sibling of production's place and never inside of it, because cleanup in production considers all files there.
"""

from __future__ import annotations

from pathlib import PurePosixPath

PRODUCTION = "prod"
"""The deployment that uses the places exactly as configured. It is the name of the first deployment in Dagster+."""
PATTERN = r"^([a-z0-9]-?){0,39}[a-z0-9]$"


def file_beside(path: str, deployment: str) -> str:
    """The file of another deployment: `manifest.db` becomes `manifest-pr-7.db`."""
    place = PurePosixPath(path)
    return str(place.with_name(f"{place.stem}-{deployment}{place.suffix}"))


def folder_beside(location: str, deployment: str) -> str:
    """The folder or prefix of another deployment: `s3://bucket/shredded` becomes `s3://bucket/shredded-pr-7`.

    Raises ValueError for a whole bucket or disk, which has no sibling.
    """
    whole = location.rstrip("/")
    scheme, separator, rest = whole.rpartition("://")
    path = rest if scheme in ("", "file") else rest.partition("/")[2]
    if not path.strip("/"):
        raise ValueError(f"{location!r} is a whole bucket or disk; allowed beside {PRODUCTION}: a folder or prefix")
    return f"{scheme}{separator}{rest}-{deployment}"


def identifier(deployment: str) -> str:
    """The deployment as part of a name of letters, digits and underscores; unique for each deployment."""
    return deployment.replace("-", "_")
