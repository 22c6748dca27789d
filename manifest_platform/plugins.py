"""Plug-ins: the implementations of a contract, found by name through Python entry points.

Belongs here: finding them. Each contract (source, manifest store, warehouse engine, merge catalog, command) lies with the
package that uses it. A package brings an implementation by an entry point in the contract's group, as
`manifest_platform.engines`; the platform's own are declared the same way, in `pyproject.toml`.
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


class UnknownPlugin(ValueError):
    """No installed package brings a plug-in of that name; the message names those that there are."""


@cache
def load(group: str, name: str) -> Any:
    """Loads the plug-in of a name. Raises UnknownPlugin; whatever importing it raises goes through."""
    found = _own(group).get(name) or _installed(group).get(name)
    if found is None:
        raise UnknownPlugin(f"allowed: {', '.join(names(group))}")
    return found.load()


def names(group: str) -> list[str]:
    """The names of all plug-ins of a group, sorted."""
    return sorted(_own(group) | _installed(group))


@cache
def _own(group: str) -> dict[str, EntryPoint]:
    """The platform's own plug-ins. They are looked up first: to read every installed package's metadata costs 30 ms."""
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
