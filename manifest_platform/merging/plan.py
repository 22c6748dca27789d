"""Plans the next ranges of a partition from the sizes of its objects in the inventory.

Belongs here: the profiles and the planning rules. Pure: nothing is listed or opened, so a plan costs no request.

The profile `strict` fills one range in each job. It extends the last range with small objects, in the order of their ids,
until the range is full. If not even the first object fits, it begins a new range.

The profile `default` aims at merged objects of about the target size. While a partition is open, it writes only ranges that
reach the target. When the partition is closed, it merges everything, in ranges of similar size; the last range may be smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from manifest_platform.merging.state import MergedTable, Partition, Range, SmallObject

_MIB = 1 << 20


@dataclass(frozen=True)
class Profile:
    """The parameters of planning, closing and switching.

    `target_bytes`: the default size of merged objects. `low`, `high`: the acceptable size as factors of the target; a last
    range smaller than `low` is extended. `max_objects`: largest number of small objects in one job. `by_input`: True to limit
    the bytes read (the sum of the small objects), False to aim at the expected bytes written. `early`: True to merge open
    partitions completely. `keeps_schedule`: True to schedule the rest of a job at the job's own time, False to schedule it now,
    behind the jobs that are already due. `interval`: seconds from a partition's first unmerged object to its merge.
    `close_grace`: seconds from a day's end to its close. `two_runs`: True if a catalog run switches partitions before it closes
    others, so that a partition needs two runs.
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
    """A range to be written: its new small objects by id, and the existing range that they extend, if any.

    `expected_bytes`: the expected size of the merged object; under the strict rule, the bytes read.
    """

    lower: int
    upper: int
    objects: tuple[SmallObject, ...]
    extends: Range | None
    expected_bytes: int


@dataclass(frozen=True)
class Plan:
    """The next ranges of a partition, in the order of the chain.

    `leftover`: True if another job must continue immediately. `reason`: an explanation for people.
    """

    ranges: tuple[PlannedRange, ...]
    leftover: bool
    reason: str


def plan(
    partition: Partition, table: MergedTable, tail: Range | None, objects: Sequence[SmallObject], profile: Profile
) -> Plan:
    """Plans which unmerged objects of a partition become which ranges, and explains why the others wait.

    `tail` is the last range of the partition's chain. `objects` are the objects after it by id, all or at least the first
    `max_objects`. The result is deterministic. Raises ValueError if the objects are not after the tail or not in order.
    """
    upper = tail.upper if tail else 0
    _check_order(partition, upper, objects)
    taken = objects[: profile.max_objects]
    if not taken:
        return Plan((), False, "no object waits to be merged")
    if profile.by_input:
        return _fill_one(table.target_bytes, tail, taken, len(taken) == profile.max_objects)
    more = len(objects) > len(taken) or partition.newest > taken[-1].id
    return _fill_all(_Sizes.of(table, profile), tail, taken, partition.closed or profile.early, more)


def _check_order(partition: Partition, upper: int, objects: Sequence[SmallObject]) -> None:
    last = upper
    for found in objects:
        if found.id <= last:
            where = f"{partition.table} of {partition.date}"
            raise ValueError(f"{where}: object {found.id} does not come after {last}; read the partition again")
        last = found.id


def _fill_one(limit: int, tail: Range | None, objects: Sequence[SmallObject], full: bool) -> Plan:
    """Plans one range: the last range extended by all objects that fit, or a new range of at least one object."""
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
        return f"{_objects(count)} fill a range of at most {_size(limit)}; the next job continues after them"
    if full:
        return f"a job takes {_objects(count)}; the next job looks for more"
    return f"all {_objects(count)} are merged"


@dataclass(frozen=True)
class _Sizes:
    """Target, minimum and maximum bytes of a merged object, and the expected ratio of its bytes to those of small objects."""

    target: int
    low: float
    high: float
    ratio: float

    @classmethod
    def of(cls, table: MergedTable, profile: Profile) -> _Sizes:
        return cls(table.target_bytes, profile.low * table.target_bytes, profile.high * table.target_bytes, table.ratio)


def _fill_all(sizes: _Sizes, tail: Range | None, objects: Sequence[SmallObject], whole: bool, more: bool) -> Plan:
    """Plans ranges of about the target size. `whole`: merge everything, unless there are `more` objects than these."""
    extended = tail if tail and tail.bytes < sizes.low else None
    first = 1 if extended else 0  # the index of the first small object in `weights`
    weights = ([extended.bytes] if extended else []) + [round(found.bytes * sizes.ratio) for found in objects]
    cuts = _even_cuts(weights, sizes) if whole and not more else _reaching_cuts(weights, sizes)
    if more and not cuts:  # too few bytes in a full job: without a range, the next job would find the same objects
        cuts = [len(weights)]
    ranges: list[PlannedRange] = []
    placed = 0
    for start, end in itertools.pairwise([0, *cuts]):
        taken = tuple(objects[placed : end - first])
        if not taken:  # only the tail, which stays unchanged
            continue
        onto = extended if start == 0 else None
        lower = onto.lower if onto else objects[placed - 1].id if placed else tail.upper if tail else 0
        ranges.append(PlannedRange(lower, taken[-1].id, taken, onto, sum(weights[start:end])))
        placed += len(taken)
    return Plan(tuple(ranges), more, _why(sizes, placed, objects[placed:], more))


def _reaching_cuts(weights: Sequence[int], sizes: _Sizes) -> list[int]:
    """Cuts the weights into parts that reach the target, and returns the end of each. The rest stays uncut."""
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
    """Cuts all weights into parts of similar size, and returns the end of each."""
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
    """True if one more object brings a part nearer to its goal, within the bounds."""
    return size + weight <= sizes.high and (size < sizes.low or size + weight / 2 <= goal)


def _why(sizes: _Sizes, merged: int, left: Sequence[SmallObject], more: bool) -> str:
    if more:
        return f"a job takes {_objects(merged + len(left))}, of which it merges {merged}; the next job continues after them"
    if not left:
        return f"all {_objects(merged)} are merged"
    expected = round(sum(found.bytes for found in left) * sizes.ratio)
    return (
        f"{_objects(len(left))} wait: about {_size(expected)} are expected from them. While the day is open, only ranges of "
        f"{_size(sizes.target)} are merged; the rest follows after the close"
    )


def _objects(count: int) -> str:
    return f"{count:,} object{'' if count == 1 else 's'}"


def _size(size: int) -> str:
    return f"{size / _MIB:,.1f} MiB" if size >= _MIB else f"{size:,} bytes"
