"""What every soak shares: time that passes, the result, and the command line."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Told = Callable[[str], object]
"""Takes a line about what happens."""


@dataclass(frozen=True)
class Played:
    """The result: the number of runs that landed, what is wrong, lines about the whole, and what was done to the programs."""

    runs: int
    wrong: list[str]
    lines: list[str]
    faults: Counter[str]


def passing(seconds: float, every: Mapping[str, float], chance: random.Random) -> Iterator[tuple[float, list[str]]]:
    """Lets time pass; yields the seconds that have passed and what is due, about twice a second.

    `every`: the mean seconds from one to the next of each kind. The first of the first kind is due at once.
    """
    began = time.monotonic()
    due = {what: began + (mean if place else 0) for place, (what, mean) in enumerate(every.items())}
    while (now := time.monotonic()) < began + seconds:
        found = [what for what, at in due.items() if at <= now]
        due.update({what: now + every[what] * chance.uniform(0.5, 1.5) for what in found})
        yield now - began, found
        time.sleep(0.5)


def run(name: str, told: str, minutes: float, play: Callable[[Path, float, int, Told], Played]) -> int:
    """Runs a soak as a program; returns its exit code, 1 if anything is wrong. `minutes`: unless the user says otherwise."""
    parser = argparse.ArgumentParser(prog=name, description=told)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--home", type=Path, help="an empty folder that stays; else one that goes")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing lives on
    _say(f"{given.minutes:g} minutes, --seed {given.seed}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        played = play(given.home or Path(folder), given.minutes, given.seed, _say)
    for line in played.lines:
        _say(line)
    for line in played.wrong:
        _say(f"WRONG: {line}")
    _say("all is as it must be" if not played.wrong else f"{len(played.wrong)} things are wrong")
    return int(bool(played.wrong))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
