#!/usr/bin/env python
"""Selects the tests that a change needs: the stores for the tests of rules, and the long tests, nearest to the change first.

    scripts/tests_for_change.py stores              prints `all` where the manifest was changed, else `embedded`
    scripts/tests_for_change.py long --minutes 15   runs long tests, file by file, until the time is up

A change is the difference from the commit in CI_BASE. Without CI_BASE, it is the difference from the commit where this branch
left origin's main branch, or from 50 commits ago if it did not. If none of these exists, everything counts as changed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Lock

ROOT = Path(__file__).parents[1]
PRODUCT, TESTS = "manifest_platform", "manifest_platform_tests"
FAR_ENOUGH = "HEAD~50"
"""Further back than any change that is checked at once."""
DEMONSTRATED = ("Makefile", "manifest_platform.yaml", "manifest_platform_veeva.yaml", "spark_conf/")
"""Files outside the package that the demo runs with."""
LONG = "long or thorough or hypothesis"
"""The tests that `make test` leaves out, or runs with a part of their cases; effort.py tells what the marks mean."""
PYTEST = [sys.executable, "-m", "pytest"]
FAILED = re.compile(r"^(FAILED|ERROR) ", re.MULTILINE)
"""The line in which an interrupted pytest reports tests that failed before."""
COUNTED = re.compile(r"^=+ (?:.*, )?\d+ \w+ in [\d.]+s.*=+$", re.MULTILINE)
"""The line with which a pytest ends that ran tests, interrupted or not: how many passed, how many failed."""
STOP_S = 30
"""The time that an interrupted pytest may take to end its servers."""


def git(*arguments: str, root: Path = ROOT) -> str | None:
    """Returns the output of git, or nothing if git fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def changed_files(root: Path = ROOT) -> list[str] | None:
    """The files that the change touches, those not committed yet included; None where that cannot be told."""
    base = change_base(root)
    differing = git("diff", "--name-only", base, root=root)
    new = git("ls-files", "--others", "--exclude-standard", root=root)
    return None if differing is None or new is None else sorted({*differing.splitlines(), *new.splitlines()})


def change_base(root: Path = ROOT) -> str:
    """The commit that the change is the difference from."""
    return os.environ.get("CI_BASE") or _parting(root) or FAR_ENOUGH


def _parting(root: Path) -> str | None:
    """The commit where HEAD left origin's main branch, or nothing if it did not."""
    base = git("merge-base", "HEAD", "origin/main", root=root)
    return base if base != git("rev-parse", "HEAD", root=root) else None


def stores(changed: Iterable[str] | None) -> str:
    """The stores that rules above their contract run on."""
    folders = (f"{PRODUCT}/manifest/", f"{TESTS}/manifest/", f"{TESTS}/servers/")
    return "all" if changed is None or any(file.startswith(folders) for file in changed) else "embedded"


def nearest_first(tests: Iterable[str], changed: Iterable[str] | None) -> list[str]:
    """Test files in the order in which their folders lie near to a changed file: tests mirror the package.

    The demo runs all parts, so a change of any part lies nearest to it. Environments of other versions come last: each takes
    longer than a bounded run has.
    """
    files = list(changed or ())
    touched = [_place(file) for file in files]
    product = any(file.startswith((f"{PRODUCT}/", *DEMONSTRATED)) for file in files)

    def distance(test: str) -> tuple[bool, bool, int, str]:
        place = _place(test)
        near = max((_shared(place, other) for other in touched), default=0)
        return place[:1] == ("installed",), not (product and place[:1] == ("demo",)), -near, test

    return sorted(tests, key=distance)


def _place(file: str) -> tuple[str, ...]:
    """The path of a file below the product or its tests. A test has the path of its subject."""
    top, *inner = PurePosixPath(file).parts
    if top not in (PRODUCT, TESTS) or not inner:
        return ()
    return (*inner[:-1], inner[-1].removeprefix("test_"))


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def long_test_files() -> list[str]:
    """The files that have long tests. Raises SystemExit, with pytest's words, where they cannot be collected."""
    done = subprocess.run([*PYTEST, "--collect-only", "-q", "-m", LONG], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return sorted({line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line})


@dataclass
class Files:
    """Runs commands, several at once, until a time is up; notes the files that failed and those that were not ended in time.

    `counts`: tests that passed and that failed.
    """

    deadline: float | None
    failed: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _printing: Lock = field(default_factory=Lock)

    def run(self, file: str, command: Sequence[str]) -> None:
        """Runs a file's tests and prints what they print, at once."""
        began = time.monotonic()
        left = None if self.deadline is None else self.deadline - began
        if left is not None and left <= 0:
            self.unfinished.append(file)
            return
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            output, _ = process.communicate(timeout=left)
            failed = process.returncode != 0
        except subprocess.TimeoutExpired:
            output = _interrupted(process)
            failed = bool(FAILED.search(output))
            self.unfinished.append(file)
        if failed:
            self.failed.append(file)
        with self._printing:
            for line in COUNTED.findall(output):
                self.counts.update({word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", line)})
            print(f"== {file}: {time.monotonic() - began:.0f} s\n{output}", flush=True)  # noqa: T201


def _interrupted(process: subprocess.Popen[str]) -> str:
    """Ends a pytest as Ctrl-C does, so that it ends what it started."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=STOP_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def run_long(minutes: float | None, workers: int, chosen: Sequence[str]) -> int:
    """Runs the long tests of the chosen files, or of all; the exit code."""
    files = Files(time.monotonic() + 60 * minutes if minutes else None)
    os.environ["MANIFEST_PLATFORM_PROOFS"] = "whole"
    changed = changed_files()
    # With the same base, a run by hand takes the files in the same order as CI does.
    known = "everything counts as changed" if changed is None else f"{len(changed)} files changed"
    print(f"Since CI_BASE={change_base()}: {known}", flush=True)  # noqa: T201
    ordered = nearest_first(chosen or long_test_files(), changed)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda file: files.run(file, [*PYTEST, "-m", LONG, file]), ordered))
    for title, some in (("failed", files.failed), ("not run to their end, for the time was up", files.unfinished)):
        print(f"{len(some)} of {len(ordered)} files {title}: {' '.join(some)}".rstrip(": "))  # noqa: T201
    # The last file that the time cut off may say that it ran no test: the sum is what a reader of the end must find.
    print(f"{files.counts['passed']} passed, {files.counts['failed']} failed")  # noqa: T201
    return 1 if files.failed else 0


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("stores")
    long = commands.add_parser("long")
    long.add_argument("--minutes", type=float, help="stop after so many; without it, run all")
    long.add_argument("--workers", type=int, default=2, help="files at once")
    long.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    if arguments.command == "stores":
        print(stores(changed_files()))  # noqa: T201
        return 0
    return run_long(arguments.minutes, arguments.workers, arguments.files)


if __name__ == "__main__":
    sys.exit(main())
