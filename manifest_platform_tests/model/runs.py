"""What is run: every scope with all guards on, and each guard's scope without it."""

from __future__ import annotations

from manifest_platform_tests.model.checker import Checker, Result
from manifest_platform_tests.model.configurations import CONFIGURATIONS, Configuration
from manifest_platform_tests.model.guards import GUARDS, Guard
from manifest_platform_tests.model.scope import Scope


def configuration(name: str) -> Configuration:
    """The scope of a name."""
    return next(one for one in CONFIGURATIONS if one.name == name)


def guard(name: str) -> Guard:
    """The guard of a name."""
    return next(one for one in GUARDS if one.name == name)


def explored(name: str, limit: int | None = None) -> Result:
    """All of a scope, or its nearest worlds, with every guard on."""
    return Checker(Scope(configuration(name))).explore(limit)


def rested(name: str, helped: bool = False) -> Result:
    """Whether rest can be reached from every world of a scope; `helped`: as far as an operator may begin full loads."""
    return Checker(Scope(configuration(name))).unrested(helped)


def without(name: str, where: str | None = None, limit: int | None = None) -> Result:
    """What happens without a guard, in its own scope or another."""
    off = guard(name)
    with off.switched_off():
        found = Checker(Scope(configuration(where or off.configuration), off.off)).explore(limit)
        if found.violation or not off.rest:
            return found
        return Checker(Scope(configuration(where or off.configuration), off.off)).unrested()
