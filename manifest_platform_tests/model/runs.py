"""The explorations: every scope with all guards on, and each guard's scope without that guard."""

from __future__ import annotations

from manifest_platform_tests.model.checker import Checker, Result
from manifest_platform_tests.model.configurations import CONFIGURATIONS, Configuration
from manifest_platform_tests.model.guards import GUARDS, Guard
from manifest_platform_tests.model.scope import Scope


def configuration(name: str) -> Configuration:
    """The scope with a name."""
    return next(one for one in CONFIGURATIONS if one.name == name)


def guard(name: str) -> Guard:
    """The guard with a name."""
    return next(one for one in GUARDS if one.name == name)


def explored(name: str, limit: int | None = None) -> Result:
    """Explores a scope with every guard on: all worlds, or the nearest `limit` worlds."""
    return Checker(Scope(configuration(name))).explore(limit)


def rested(name: str, helped: bool = False) -> Result:
    """Looks for a world of a scope from which rest cannot be reached. `helped`: operators may begin full loads."""
    return Checker(Scope(configuration(name))).unrested(helped)


def without(name: str, where: str | None = None, limit: int | None = None) -> Result:
    """Explores without a guard, in the guard's own scope or in `where`."""
    off = guard(name)
    with off.switched_off():
        found = Checker(Scope(configuration(where or off.configuration), off.off)).explore(limit)
        if found.violation or not off.rest:
            return found
        return Checker(Scope(configuration(where or off.configuration), off.off)).unrested()
