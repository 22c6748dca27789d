"""Finds plug-ins: implementations of a contract, by name, through Python entry points.

Each contract (source, manifest store, warehouse engine, merge catalog, command) is in the package that uses it. A package
provides an implementation by an entry point in the contract's group, such as `manifest_platform.engines`. The platform's own
plug-ins are declared the same way, in `pyproject.toml`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any

SOURCES = "manifest_platform.sources"
STORES = "manifest_platform.stores"
ENGINES = "manifest_platform.engines"
CATALOGS = "manifest_platform.catalogs"
COMMANDS = "manifest_platform.commands"
NOTICES = "manifest_platform.notices"
PLACES = "manifest_platform.places"
JOB_SERVICES = "manifest_platform.job_services"


class UnknownPlugin(ValueError):
    """No installed package has a plug-in of this name. The message lists the existing names."""


@cache
def load(group: str, name: str) -> Any:
    """Loads the plug-in with this name. Raises UnknownPlugin, and any error of importing it."""
    found = _own(group).get(name) or _installed(group).get(name)
    if found is None:
        raise UnknownPlugin(f"allowed: {', '.join(names(group))}")
    return found.load()


def names(group: str) -> list[str]:
    """The names of all plug-ins of a group, sorted."""
    return sorted(_own(group) | _installed(group))


@cache
def _own(group: str) -> dict[str, EntryPoint]:
    """The platform's own plug-ins. They are searched first, because reading the metadata of all packages costs 30 ms."""
    try:
        found = distribution("manifest-platform").entry_points
    except PackageNotFoundError as error:
        raise RuntimeError(
            "manifest_platform is not installed, so its plug-ins cannot be found; install it (pip install -e .)"
        ) from error
    return {point.name: point for point in found.select(group=group)}


@cache
def _installed(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}
