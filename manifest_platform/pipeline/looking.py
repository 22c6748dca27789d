"""Looks in parts: which directories a look of a sensor or a follower lists and reads, however many there are.

A look lists the newest names, and one part each of the look-back, of the known directories' files, and of everything. So with
nothing new it sends at most three requests to S3, whatever has landed. It asks for the time after each request that it can do
without. What it has no time for, the next look does.

Belongs here: the choice of parts, and what a process remembers between looks. Registration does not belong here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from manifest_platform import storage
from manifest_platform.pipeline.events import Waiting
from manifest_platform.sources.directories import (
    DirectoryName,
    Found,
    FoundNames,
    LandedDirectory,
    Settle,
    Unreadable,
    whole_minute,
)
from manifest_platform.sources.errors import LandingError, LandingUnavailable
from manifest_platform.sources.source import Source

PART = 1000
"""The maximum number of names, or of files, by which a look continues a listing: what one request to S3 gives."""
READ = 100
"""The maximum number of unknown directories that are read one by one before they are registered."""
FEW = 8
"""The number of unknown directories up to which each is read by itself, and not in one listing with those between them."""
AT_ONCE = PART
"""The number of files of new directories that are read before these are registered."""
OVERLAP = 200
"""The number of newest names that every look lists again, if there were more than a part."""
BEGIN = datetime.min.replace(tzinfo=UTC)
_SHARE, _LONGEST = 20, 3600.0


@dataclass(frozen=True)
class Part:
    """The result of a step of a look: the directories that it read, and the names that it listed.

    `looked`: the names of directories that were read, or are known. `listed`: all names in the period from `begin` to `end`, if
    the part is `of_all`; None means no limit. `is_listing`: True if it is one of the listings of a look, False for
    directories that were found by another. `now`: the time when it began, by the storage's clock.
    """

    directories: tuple[LandedDirectory, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    unparseable: tuple[str, ...] = ()
    looked: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    of_all: bool = False
    is_listing: bool = False
    begin: datetime | None = None
    end: datetime | None = None
    known: int = 0
    requests: int = 0
    now: datetime | None = None

    def drops(self, name: str, time_: datetime | None) -> bool:
        """True if a note on a directory that is not complete is over: this part has read it, or has not found it any more."""
        if name in self.looked:
            return True
        if not self.of_all or name in self.listed or time_ is None:
            return False
        return (self.begin is None or time_ >= self.begin) and (self.end is None or time_ < self.end)


@dataclass
class _Later:
    """A directory that is not complete or cannot be read, and when it is read again by this process's monotonic clock."""

    name: DirectoryName
    due: float
    first_seen: datetime
    waiting: Waiting | None = None


@dataclass
class Sight:
    """The memory of a process of a feed's landing root, between looks. It is lost with the process, and does no harm.

    `around`, `again`: where the next parts of the look-back begin, of names and of files. `later`: unknown directories that are
    not complete, by name. `asked`: those of them that were read again before a new directory, by looks that had no time for the
    others. `has_seen_all`: True once the look-back was listed completely by this process. `goes_on`: True if the
    last look ended before it had registered everything.
    """

    around: datetime | None = None
    again: datetime | None = None
    later: dict[str, _Later] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    has_seen_all: bool = False
    goes_on: bool = False
    _round: int = 0
    _ended: set[str] = field(default_factory=set)
    _unparseable: dict[str, int] = field(default_factory=dict)
    _unreadable: dict[str, tuple[int, Unreadable]] = field(default_factory=dict)

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """The directories that are not complete."""
        return tuple(one.waiting for one in self.later.values() if one.waiting)

    @property
    def unparseable(self) -> tuple[str, ...]:
        """The names that are not the source's."""
        return tuple(sorted(self._unparseable))

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """The directories that could not be listed."""
        return tuple(one for _, (_, one) in sorted(self._unreadable.items()))

    def saw(
        self, part: Part, left: Sequence[tuple[LandedDirectory, Waiting | None]], now: datetime, settle: float | None
    ) -> None:
        """Remembers what a part found. `left`: its directories that are not registered. `settle`: seconds, if they settle."""
        for name in part.looked:
            self._unreadable.pop(name, None)
        self._unparseable.update(dict.fromkeys(part.unparseable, self._round))
        self._unreadable.update((one.name, (self._round, one)) for one in part.unreadable)
        kept = {one.name for one in part.unreadable} | {seen.name for seen, _ in left}
        for name in [name for name, one in self.later.items() if name not in kept and part.drops(name, one.name.time)]:
            del self.later[name]
        for seen, waiting in left:
            name = DirectoryName(seen.name, seen.sort, seen.time)
            self.wait_for(name, waiting, seen.changed, now, settle)

    def wait_for(
        self, name: DirectoryName, waiting: Waiting | None, changed: datetime | None, now: datetime, settle: float | None
    ) -> None:
        """Remembers to read a directory again after a twentieth of the time since its last change, at most an hour."""
        before = self.later.get(name.name)
        first_seen = before.first_seen if before else now
        age = max(0.0, (now - (changed or first_seen)).total_seconds())
        pause = min(age / _SHARE, _LONGEST if settle is None else settle)
        self.later[name.name] = _Later(name, time.monotonic() + pause, first_seen, waiting)

    def ended(self, cycle: str, others: Sequence[str]) -> None:
        """Notes that a cycle through the look-back has ended. After one of each, what was not found again is forgotten."""
        self._ended.add(cycle)
        if self._ended.issuperset(others):
            self._unparseable = {name: one for name, one in self._unparseable.items() if one == self._round}
            self._unreadable = {name: one for name, one in self._unreadable.items() if one[0] == self._round}
            self._ended, self._round, self.has_seen_all = set(), self._round + 1, True


AROUND, AGAIN = "names", "files"


@dataclass
class Look:
    """A look at a feed in parts. Registers each part's directories before it asks for the next.

    `unregistered` returns those sort keys that no item has. `start`: the beginning of the look-back, None for everything.
    `reached`: the time up to which earlier looks have listed everything once. `until`: the end of its time, by the monotonic
    clock.
    """

    source: Source
    feed: str
    sight: Sight
    unregistered: Callable[[Sequence[str]], set[str]]
    start: datetime | None
    reached: datetime | None
    now: datetime
    until: float
    _upto: datetime | None = None
    _clock: datetime | None = None

    def parts(self) -> Iterator[Part]:
        """Yields the parts of a look: directories whose turn it is, the newest names, and a part of those in the look-back.

        Afterward, `reached` is up to date. Raises LandingError.
        """
        self.sight.goes_on = False
        yield from self._newest()
        if not self.sight.goes_on and not self.source.names_list_files and self._has_time:
            yield from self._look_back()

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self.until

    def _due(self) -> Iterator[Part]:
        """Reads unknown directories again whose turn it is, for at most half of the time: others may have come."""
        due = sorted((one.due, name) for name, one in self.sight.later.items() if one.due <= time.monotonic())
        if due:
            now = time.monotonic()
            part, _ = self._read([self.sight.later[name].name for _, name in due[:READ]], now + (self.until - now) / 2)
            for one in part.unreadable:
                del self.sight.later[one.name]  # it may be gone; if it is still there, its name is listed again
            yield replace(part, unreadable=())

    def _waiting_before(self, sort: str) -> Iterator[Part]:
        """Reads the newest directories that wait for their turn and precede a new directory.

        If they are complete by now and were registered after it, they would be late. Sets `goes_on` if time is over before all
        are read; the next look reads the others.
        """
        waiting = sorted((one.name for one in self.sight.later.values() if one.name.sort < sort), key=lambda one: one.sort)
        if names := [one for one in waiting[-READ:] if one.name not in self.sight.asked]:
            part, asked = self._read(names)
            yield part
            if len(asked) < len(names):
                self.sight.asked.update(one.name for one in asked)
                self.sight.goes_on = True
                return
        self.sight.asked.clear()

    def _newest(self) -> Iterator[Part]:
        """Lists the names from where the last look has ended, and reads the unknown ones, oldest first."""
        begin = self.reached or self.start
        begin = min(begin, self.now) if begin else None
        recent: list[datetime] = []
        walked = False
        while True:
            stretch = self._stretch(begin)
            if not walked:
                yield from self._due()
            yield from self._of(stretch)
            if self.sight.goes_on:
                self.reached = _with_overlap([*recent, *stretch.times], self._upto) if self._upto else self.reached
                return
            recent = [*recent, *stretch.times][-OVERLAP:] if not self.source.names_list_files else stretch.times
            if stretch.upto is None:
                break
            walked, begin = True, stretch.upto
            if not self._has_time:
                self.sight.goes_on, self.reached = True, _with_overlap(recent, begin)
                return
        if self.reached is None or walked:
            first = recent[0] if walked and recent else self.reached or self.start
            self.reached = whole_minute(first) if first else self.reached

    def _of(self, stretch: _Stretch) -> Iterator[Part]:
        """Yields a stretch of names as parts. Sets `goes_on` if time is over before all its unknown directories are read."""
        self._upto = stretch.begin
        if stretch.read is not None:
            yield stretch.part(stretch.read, frozenset(one.name for one in stretch.read))
            return
        unknown, known = self._unknown(stretch.names)
        unread = {one.name for one in unknown}
        first = stretch.part((), frozenset(one.name for one in stretch.names if one.name not in unread | set(self.sight.later)))
        yield replace(first, known=known)
        if unknown:
            yield from self._waiting_before(unknown[-1].sort)
        while unknown and not self.sight.goes_on:
            if len(unknown) > FEW and not storage.is_local(self.source.root) and self._are_dense(unknown, stretch):
                found = self.source.look_at(self.feed, unknown[0].time, AT_ONCE)
                seen = {one.name for one in found.directories}
                done = [one for one in unknown if one.name in seen or found.upto is None or one.time < found.upto]
                yield self._part(found, frozenset(seen | {one.name for one in done}))
            else:
                part, done = self._read(unknown[:READ])
                yield part
            read = {one.name for one in done}
            unknown = [one for one in unknown if one.name not in read]
            if unknown and not self._has_time:  # asked after a step, so that each look gets on, however slow the storage
                self._upto, self.sight.goes_on = whole_minute(unknown[0].time), True

    @staticmethod
    def _are_dense(unknown: Sequence[DirectoryName], stretch: _Stretch) -> bool:
        between = sum(unknown[0].time <= one.time <= unknown[-1].time for one in stretch.names)
        return 2 * len(unknown) >= between

    def _look_back(self) -> Iterator[Part]:
        """Lists one part of the names in the look-back."""
        end = self.reached
        if end is None or (self.start and end <= self.start):
            self.sight.ended(AROUND, self._cycles)
            return
        begin = self.sight.around if self.sight.around and self.sight.around < end else self.start
        begin = max(begin, self.start) if begin and self.start else begin
        stretch = self._stretch(begin)
        yield from self._of(stretch)
        if self.sight.goes_on:
            self.sight.around = self._upto
            return
        over = stretch.upto is None or stretch.upto >= end
        self.sight.around = None if over else stretch.upto
        if over:
            self.sight.ended(AROUND, self._cycles)

    def again(self) -> Iterator[Part]:
        """Lists one part of the files in the look-back, for directories that were rewritten after their registration."""
        begin = self.sight.again
        begin = max(begin, self.start) if begin and self.start else begin or self.start
        found = self.source.look_at(self.feed, begin, PART)
        yield self._part(found, frozenset(one.name for one in found.directories), begin)
        self.sight.again = found.upto
        if found.upto is None:
            self.sight.ended(AGAIN, self._cycles)

    @property
    def _cycles(self) -> tuple[str, ...]:
        return (AGAIN,) if self.source.names_list_files else (AROUND, AGAIN)

    def _unknown(self, names: Sequence[DirectoryName]) -> tuple[list[DirectoryName], int]:
        """Returns the directories that have no item and whose turn it is, oldest first, and the number of those with items."""
        asked = [one for one in names if one.name not in self.sight.later]
        without = self.unregistered([one.sort for one in asked])
        unknown = sorted((one for one in asked if one.sort in without), key=lambda one: one.sort)
        return unknown, len(asked) - len(unknown)

    def _stretch(self, begin: datetime | None) -> _Stretch:
        """Lists a part of the names from a time on, complete up to a minute."""
        if self.source.names_list_files:
            found = self.source.look_at(self.feed, begin, PART)
            self._clock = found.now
            return _Stretch.of_files(found, begin)
        names: list[DirectoryName] = []
        listed = FoundNames([], [], 0)
        while True:
            more = self.source.names(self.feed, listed.upto or "", PART, begin)
            names += more.names
            unparseable = listed.unparseable + more.unparseable
            listed = replace(more, unparseable=unparseable, requests=listed.requests + more.requests)
            self._clock = more.now or self._clock
            if listed.upto is None:
                return _Stretch(names, listed, begin, None)
            last = whole_minute(max(one.time for one in names)) if names else BEGIN
            if any(one.time < last for one in names):
                return _Stretch([one for one in names if one.time < last], listed, begin, last)

    def _read(self, names: Sequence[DirectoryName], until: float | None = None) -> tuple[Part, Sequence[DirectoryName]]:
        """Reads directories one by one, until its time or the look's is over. Returns them, and the names that it asked for.

        Those that cannot be read, or in which nothing has landed, have their turn later.
        """
        directories, unreadable, asked = read_each(self.source, self.feed, names, self.until if until is None else until)
        read = frozenset(one.name for one in directories)
        for name in asked:
            if name.name not in read:
                self.sight.wait_for(name, None, None, self._clock or self.now, settle_seconds(self.source))
        requests = 0 if storage.is_local(self.source.root) else len(asked)
        return Part(tuple(directories), tuple(unreadable), looked=read, requests=requests, now=self._clock), asked

    def _part(self, found: Found, looked: frozenset[str], begin: datetime | None = None) -> Part:
        """Returns directories that were listed with their files as a part."""
        return Part(
            tuple(found.directories),
            found.unreadable,
            tuple(found.unparseable),
            looked,
            looked | {one.name for one in found.unreadable},
            begin=begin,
            end=found.upto,
            requests=found.requests,
            now=found.now or self._clock,
        )


@dataclass(frozen=True)
class _Stretch:
    """A part of the names from a time on. `read`: the directories, if listing the names has listed their files."""

    names: Sequence[DirectoryName]
    listed: FoundNames
    begin: datetime | None
    upto: datetime | None
    read: tuple[LandedDirectory, ...] | None = None

    @classmethod
    def of_files(cls, found: Found, begin: datetime | None) -> _Stretch:
        names = [DirectoryName(one.name, one.sort, one.time) for one in found.directories]
        listed = FoundNames(names, found.unparseable, found.requests, None, found.now, found.unreadable)
        return cls(names, listed, begin, found.upto, tuple(found.directories))

    @property
    def times(self) -> list[datetime]:
        return sorted(one.time for one in self.names)

    def part(self, directories: tuple[LandedDirectory, ...], looked: frozenset[str]) -> Part:
        listed = self.listed
        return Part(
            directories,
            listed.unreadable,
            tuple(listed.unparseable),
            looked,
            frozenset(one.name for one in self.names) | {one.name for one in listed.unreadable},
            True,
            True,
            self.begin,
            self.upto,
            0,
            listed.requests,
            listed.now,
        )


def _with_overlap(times: Sequence[datetime], upto: datetime | None) -> datetime | None:
    """Returns the time from which the next look lists again: that of some of the newest names before the end of a look."""
    before = [time for time in times if upto is None or time < upto][-OVERLAP:]
    return whole_minute(before[0]) if before else upto


def settle_seconds(source: Source) -> float | None:
    """Returns the seconds after which a directory without a change is complete; None if directories have markers."""
    return source.completeness.seconds if isinstance(source.completeness, Settle) else None


def read_each(
    source: Source, feed: str, names: Sequence[DirectoryName], until: float = math.inf
) -> tuple[list[LandedDirectory], list[Unreadable], Sequence[DirectoryName]]:
    """Reads directories one by one, at least one, until a time of the monotonic clock.

    Returns them, those that cannot be read, and the names that it asked for. Raises LandingUnavailable for S3.
    """
    directories: list[LandedDirectory] = []
    unreadable: list[Unreadable] = []
    for number, name in enumerate(names):
        if number and time.monotonic() >= until:
            return directories, unreadable, names[:number]
        try:
            seen = source.read(feed, name)
        except LandingError as error:
            if isinstance(error, LandingUnavailable) and not storage.is_local(source.root):
                raise
            unreadable.append(Unreadable(name.name, str(error)))
            continue
        directories += [seen] if seen else []
    return directories, unreadable, names
