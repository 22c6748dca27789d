"""The tool: explores scopes, with all guards on or some off, and writes the tables of the document."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from multiprocessing import get_context

from manifest_platform_tests.model import document, runs
from manifest_platform_tests.model.checker import Checker, Result
from manifest_platform_tests.model.configurations import CONFIGURATIONS
from manifest_platform_tests.model.guards import GUARDS
from manifest_platform_tests.model.scope import Scope

PROCESSES = 2


def main() -> int:
    """Runs the tool. Returns 1 if an invariant broke, else 0."""
    parser = argparse.ArgumentParser(prog="python -m manifest_platform_tests.model", description=__doc__)
    names, guards = [one.name for one in CONFIGURATIONS], [one.name for one in GUARDS]
    parser.add_argument("--configuration", nargs="+", default=names, choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--off", nargs="+", default=[], choices=guards, metavar="GUARD", help=", ".join(guards))
    parser.add_argument("--states", type=int, help="explore only this number of states of each scope, nearest first")
    parser.add_argument(
        "--write-docs", action="store_true", help="explore everything and write the tables of docs/reference/protocol.md"
    )
    given = parser.parse_args()
    if given.off:
        return _explore_without(given.configuration, given.off, given.states)
    explored = _explore(given.configuration, None if given.write_docs else given.states)
    broken = any(result.violation for result in explored.values())
    if given.write_docs and not broken and len(explored) == len(names):
        with _pool() as pool:
            found = dict(zip(guards, pool.map(runs.without, guards, chunksize=1), strict=True))
        document.write(explored, found)
        _say(f"{document.DOCUMENT} is written")
    return int(broken)


def _explore(names: list[str], limit: int | None) -> dict[str, Result]:
    """Explores several scopes at a time; returns the results in order."""
    found: dict[str, Result] = {}
    with _pool() as pool:
        results = [pool.apply_async(runs.explored, (name, limit)) for name in names]
        for name, result in zip(names, results, strict=True):
            found[name] = result.get()
            _report(name, found[name])
    states = sum(result.states for result in found.values())
    _say(f"{'all':16}{states:>12,} states")
    return found


def _pool():
    """A pool whose processes explore one scope each and then end, which frees their memory."""
    return get_context("spawn").Pool(PROCESSES, maxtasksperchild=1)


def _explore_without(names: list[str], off: list[str], limit: int | None) -> int:
    """Explores scopes one after another, until a scope shows the fault. Returns 1 if the fault was found, else 0."""
    guards = [runs.guard(name) for name in off]
    with ExitStack() as stack:
        for guard in guards:
            stack.enter_context(guard.switched_off())
        for name in names:
            scope = Scope(runs.configuration(name), frozenset().union(*(guard.off for guard in guards)))
            result = Checker(scope).explore(limit)
            if result.violation is None and result.complete and any(guard.rest for guard in guards):
                result = Checker(scope).unrested()
            _report(name, result)
            if result.violation:
                return 1
    return 0


def _report(name: str, result: Result) -> None:
    speed = result.states / max(result.seconds, 0.001)
    cut = "" if result.complete or result.violation else ", cut short"
    _say(f"{name:16}{result.states:>12,} states  depth {result.depth:>3}  {result.seconds:7.1f} s  {speed:>9,.0f}/s{cut}")
    if result.violation:
        _say(f"  {result.violation}", *(f"  {n:>3}  {step}" for n, step in enumerate(result.trace, start=1)))


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
