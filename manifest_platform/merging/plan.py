"""What is to be merged into what: the next ranges of a partition, from what the inventory knows of its objects.

Belongs here: the profiles and the rules of planning. Pure: nothing is listed, opened or looked up, so a plan costs no request.

Two rules. By the strict one a job fills one range: it takes small objects in the order of their ids as long as they fit
beside what the last range has, and begins a new one where not even the first fits. By the other one the ranges of a partition
are cut so that merged objects have about the size that they are to have: while the partition is open only ranges that reach
it, once it is closed all there is, in ranges of like size, of which the last may be smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from manifest_platform.merging.state import MergedTable, Partition, Range, SmallObject

_MIB = 1 << 20


@dataclass(frozen=True)
class Profile:
    """A set of habits of merging.

    `target_bytes`: the size of merged objects, where a table has none of its own. `low`, `high`: shares of it between which
    an object is well-sized; a last range below `low` is extended. `max_objects`: small objects that a job takes at most.
    `by_input`: the size that counts is that of the small objects, and the target a limit; else it is the size that is expected
    of what comes out. `early`: open partitions are merged to the last object. `keeps_schedule`: what a job leaves is due when
    the job was, not behind those already due. `interval`: seconds from a partition's first unmerged object to its merge.
    `close_grace`: seconds from a day's end to its close. `two_runs`: a catalog run switches before it closes, so that a
    partition needs two.
    """

    name: str
    target_bytes: int
    max_objects: int
    by_input: bool
    early: bool
    keeps_schedule: bool
    two_runs: bool
    interval: int
    close_grace: int
    low: float = 0.75
    high: float = 1.8


DEFAULT = Profile(
    name="default",
    target_bytes=256 * _MIB,
    max_objects=10_000,
    by_input=False,
    early=False,
    keeps_schedule=False,
    two_runs=False,
    interval=3_600,
    close_grace=900,
)

STRICT = Profile(
    name="strict",
    target_bytes=128 * _MIB,
    max_objects=2_000,
    by_input=True,
    early=True,
    keeps_schedule=True,
    two_runs=True,
    interval=43_200,
    close_grace=0,
)

PROFILES = {profile.name: profile for profile in (DEFAULT, STRICT)}


@dataclass(frozen=True)
class PlannedRange:
    """A range to be written: the small objects, by id, and the range whose object is extended by them, if it is one.

    `expected_bytes`: of what is written; by the strict rule that of what is read.
    """

    lower: int
    upper: int
    objects: tuple[SmallObject, ...]
    extends: Range | None
    expected_bytes: int


@dataclass(frozen=True)
class Plan:
    """The next ranges of a partition, in the order of the chain.

    `leftover`: there is more to merge at once, by another job. `reason`: why something stays unmerged, or what is done.
    """

    ranges: tuple[PlannedRange, ...]
    leftover: bool
    reason: str


def plan(
    partition: Partition, table: MergedTable, tail: Range | None, objects: Sequence[SmallObject], profile: Profile
) -> Plan:
    """Which of a partition's unmerged objects become which ranges, and why the rest waits.

    `tail` is the last range of the partition's chain; `objects` are those behind it, all or the first of them (more than
    `max_objects` are of no use), by id. The same facts give the same plan. Raises ValueError where the objects are not
    behind the tail, or not in order.
    """
    upper = tail.upper if tail else 0
    _hold_order(partition, upper, objects)
    taken = objects[: profile.max_objects]
    if not taken:
        return Plan((), False, "no object waits to be merged")
    if profile.by_input:
        return _fill_one(table.target_bytes, tail, taken, len(taken) == profile.max_objects)
    more = len(objects) > len(taken) or partition.newest > taken[-1].id
    return _fill_all(_Sizes.of(table, profile), tail, taken, partition.closed or profile.early, more)


def _hold_order(partition: Partition, upper: int, objects: Sequence[SmallObject]) -> None:
    last = upper
    for found in objects:
        if found.id <= last:
            where = f"{partition.table} of {partition.date}"
            raise ValueError(f"{where}: object {found.id} does not come after {last}; read the partition again")
        last = found.id


def _fill_one(limit: int, tail: Range | None, objects: Sequence[SmallObject], full: bool) -> Plan:
    """One range: the last one with all that fits beside it, or a new one, which holds one object at least."""
    extended = tail if tail and tail.bytes + objects[0].bytes <= limit else None
    size = extended.bytes if extended else 0
    count = 0
    for found in objects:
        if count and size + found.bytes > limit:
            break
        size += found.bytes
        count += 1
    lower = extended.lower if extended else tail.upper if tail else 0
    planned = PlannedRange(lower, objects[count - 1].id, tuple(objects[:count]), extended, size)
    return Plan((planned,), full or count < len(objects), _filled(count, len(objects), limit, full))


def _filled(count: int, offered: int, limit: int, full: bool) -> str:
    if count < offered:
        return f"{_objects(count)} fill a range of at most {_size(limit)}; the next job goes on behind them"
    if full:
        return f"a job takes {_objects(count)}; the next one looks for more"
    return f"all {_objects(count)} are merged"


@dataclass(frozen=True)
class _Sizes:
    """The bytes that merged objects are to have: about, at least and at most; and the ratio of theirs to small objects'."""

    target: int
    low: float
    high: float
    ratio: float

    @classmethod
    def of(cls, table: MergedTable, profile: Profile) -> _Sizes:
        return cls(table.target_bytes, profile.low * table.target_bytes, profile.high * table.target_bytes, table.ratio)


def _fill_all(sizes: _Sizes, tail: Range | None, objects: Sequence[SmallObject], whole: bool, more: bool) -> Plan:
    """Ranges of about the target's size; `whole`: to the last object, if there are no `more` than these."""
    extended = tail if tail and tail.bytes < sizes.low else None
    first = 1 if extended else 0  # the place of the first small object among what is cut
    weights = ([extended.bytes] if extended else []) + [round(found.bytes * sizes.ratio) for found in objects]
    cuts = _even_cuts(weights, sizes) if whole and not more else _reaching_cuts(weights, sizes)
    if more and not cuts:  # all that a job takes is too little: were nothing done, the next one would find the same
        cuts = [len(weights)]
    ranges: list[PlannedRange] = []
    placed = 0
    for start, end in itertools.pairwise([0, *cuts]):
        taken = tuple(objects[placed : end - first])
        if not taken:  # the tail alone stays as it is
            continue
        onto = extended if start == 0 else None
        lower = onto.lower if onto else objects[placed - 1].id if placed else tail.upper if tail else 0
        ranges.append(PlannedRange(lower, taken[-1].id, taken, onto, sum(weights[start:end])))
        placed += len(taken)
    return Plan(tuple(ranges), more, _why(sizes, placed, objects[placed:], more))


def _reaching_cuts(weights: Sequence[int], sizes: _Sizes) -> list[int]:
    """The ends of the parts that reach the target; what is left at the end stays uncut."""
    cuts: list[int] = []
    start = size = 0
    for index, weight in enumerate(weights):
        if index > start and size + weight > sizes.high:
            cuts.append(index)
            start, size = index, 0
        size += weight
        if size >= sizes.target:
            cuts.append(index + 1)
            start, size = index + 1, 0
    return cuts


def _even_cuts(weights: Sequence[int], sizes: _Sizes) -> list[int]:
    """The ends of parts of like size, of all there is."""
    cuts: list[int] = []
    start, left = 0, sum(weights)
    while start < len(weights):
        parts = max(1, round(left / sizes.target))
        end, size = start, 0
        while end < len(weights) and (parts == 1 or end == start or _belongs(weights[end], size, left / parts, sizes)):
            size += weights[end]
            end += 1
        cuts.append(end)
        start, left = end, left - size
    return cuts


def _belongs(weight: int, size: int, goal: float, sizes: _Sizes) -> bool:
    """Whether a part of this size is to take one more object: as long as that brings it nearer to its goal, within bounds."""
    return size + weight <= sizes.high and (size < sizes.low or size + weight / 2 <= goal)


def _why(sizes: _Sizes, merged: int, left: Sequence[SmallObject], more: bool) -> str:
    if more:
        return f"a job takes {_objects(merged + len(left))}, of which it merges {merged}; the next one goes on behind them"
    if not left:
        return f"all {_objects(merged)} are merged"
    expected = round(sum(found.bytes for found in left) * sizes.ratio)
    return (
        f"{_objects(len(left))} wait: {_size(expected)} are expected of them, and while the day is open only what reaches "
        f"{_size(sizes.target)} is merged; the rest follows when it is closed"
    )


def _objects(count: int) -> str:
    return f"{count:,} object{'' if count == 1 else 's'}"


def _size(size: int) -> str:
    return f"{size / _MIB:,.1f} MiB" if size >= _MIB else f"{size:,} bytes"
