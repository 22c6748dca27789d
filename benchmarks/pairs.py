"""Two or more ways to do the same, measured in turns, and compared by the median of the ratios within the turns.

Within a turn the ways run directly after each other, in alternating order, so that what else the machine does meets all of
them alike.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence

from results import Result, tell

Seconds = Mapping[str, Sequence[float]]


def arguments(description: str | None, repeats: int, scale: str) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes; `scale` says what `--scale 1` is."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help=f"turns ({repeats})")
    parser.add_argument("--scale", type=float, default=1.0, help=f"how much is worked on; 1: {scale}")
    return parser


def interleaved(ways: Mapping[str, Callable[[], float]], repeats: int) -> Seconds:
    """The seconds that each way says it took, turn by turn; a first turn, to warm up, does not count."""
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats):
        for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            seconds[name].append(ways[name]())
    return seconds


def ratio(seconds: Seconds, one: str, other: str) -> float:
    """The median over the turns of one way's seconds by the other's."""
    return statistics.median(mine / theirs for mine, theirs in zip(seconds[one], seconds[other], strict=True))


def print_medians(seconds: Seconds) -> None:
    """A line for each way: its median, and the seconds of every turn."""
    for way, taken in seconds.items():
        print(f"{way:10} median {statistics.median(taken):8.3f} s   ({', '.join(f'{one:.3f}' for one in taken)})")


def print_ratio(what: str, seconds: Seconds, ours: str, peer: str, goal: float, *, throughput: bool = False) -> None:
    """Tells our seconds by the peer's; with `throughput` the inverse, ours by the peer's of what a second brings."""
    mine, theirs = (f"{statistics.median(seconds[way]):.3g} s" for way in (ours, peer))
    value = ratio(seconds, peer, ours) if throughput else ratio(seconds, ours, peer)
    reached = _reached(value, goal, throughput)
    tell(Result(what, mine, f"{peer} {theirs}", f"{value:.3f}", _goal(goal, "", throughput), reached))


def print_figure(what: str, value: float, goal: float, unit: str = "", *, at_least: bool = False) -> None:
    """Tells a figure that has a goal and no peer."""
    tell(Result(what, f"{value:.3f}{unit}", "", "", _goal(goal, unit, at_least), _reached(value, goal, at_least)))


def _goal(goal: float, unit: str, at_least: bool) -> str:
    return f"{'at least' if at_least else 'at most'} {goal:g}{unit}"


def _reached(value: float, goal: float, at_least: bool) -> bool:
    return value >= goal if at_least else value <= goal
