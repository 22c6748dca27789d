"""Deployments: production, and others beside it that read what lands there and write nowhere else than to places of their own.

Belongs here: what the places of another deployment are called. Each is the sibling of production's, never inside of it: who
cleans up production looks at all that lies there.
"""

from __future__ import annotations

from pathlib import PurePosixPath

PRODUCTION = "prod"
"""The deployment whose places are called as the configuration calls them; Dagster+ calls a first deployment so."""
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
        raise ValueError(f"{location!r} is a whole bucket or disk; allowed beside deployment {PRODUCTION}: a folder or prefix")
    return f"{scheme}{separator}{rest}-{deployment}"


def identifier(deployment: str) -> str:
    """The deployment in a name of letters, digits and underscores: no two deployments have the same."""
    return deployment.replace("-", "_")
