"""Layouts by time: landing roots whose files are placed in folders, or named, by the time when they were written.

This module parses and prints the words of a layout, as `year={yyyy}/month={MM}/day={dd}/hour={HH}`, names windows of time, and
recognizes the layout of given paths. It does not list anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from manifest_platform.sources.directories import HIDDEN, DirectoryName

_FIELDS = {"{yyyy}": 4, "{MM}": 2, "{dd}": 2, "{HH}": 2, "{mm}": 2, "{ss}": 2}
"""The placeholders for parts of the time, as in `partitionFormat` of Snowplow's S3 loader, with their numbers of digits."""
_UNITS = {3: ("day", timedelta(days=1)), 4: ("hour", timedelta(hours=1)), 5: ("minute", timedelta(minutes=1))}
_UNITS[6] = ("second", timedelta(seconds=1))
_LENGTHS = dict(_UNITS.values())
_TOKEN = re.compile(r"\{[^{}]*\}")
_LITERAL = re.compile(r"[A-Za-z0-9=_./-]*")
_MISTAKEN = {"{YYYY}": "{yyyy}", "{yy}": "{yyyy}", "{DD}": "{dd}", "{hh}": "{HH}", "{mM}": "{MM}", "{SS}": "{ss}"}
_NAME = re.compile(r"(?P<unit>day|hour|minute|second)=(?P<time>[0-9]{4}(?:-[0-9]{2}){2,5})(?:-late-(?P<late>[1-9][0-9]{0,3}))?")
ALLOWED = (
    "{yyyy}, {MM} and {dd}, then {HH}, {mm}, {ss} for windows of an hour, a minute, a second, each once and in this order, with"
    " letters, digits and = _ . - / between; `*` at the end if the names of files begin so"
)


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time, or the `late`-th late item of it. `unit`: day, hour, minute or second. Times are UTC."""

    start: datetime
    unit: str
    late: int = 0

    @property
    def stop(self) -> datetime:
        """The end of the window: the first moment after it."""
        return self.start + _LENGTHS[self.unit]

    @property
    def name(self) -> DirectoryName:
        """The name of the window, as `hour=2024-05-14-12`, and its sort key. A late item follows its window."""
        parts = self.start.strftime("%Y-%m-%d-%H-%M-%S")
        digits = next(count for count, (unit, _) in _UNITS.items() if unit == self.unit) * 3 + 1
        late = f"-late-{self.late}" if self.late else ""
        sort = f"{parts}-{self.late:04}" if self.late else parts
        return DirectoryName(f"{self.unit}={parts[:digits]}{late}", sort, self.start)


def parse_window_name(name: str) -> Window | None:
    """Parses a name as `hour=2024-05-14-12` or `hour=2024-05-14-12-late-1`; None if the text is not such a name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    parts = [int(part) for part in found["time"].split("-")]
    if _UNITS.get(len(parts), ("", None))[0] != found["unit"]:
        return None
    try:
        return Window(datetime(*parts, tzinfo=UTC), found["unit"], int(found["late"] or 0))
    except ValueError:
        return None


@dataclass(frozen=True)
class Template:
    """A layout by time, which finds the window of a file by its path.

    `year={yyyy}/month={MM}/day={dd}/hour={HH}` has a folder for each window. With `*` at its end, as
    `enriched-{yyyy}-{MM}-{dd}-{HH}*`, it describes how the names of a window's files begin.

    Paths sort in the order of time, so that a listing can begin at any time. Raises ValueError, which names what is allowed, if
    the text is not a layout.
    """

    text: str

    def __post_init__(self) -> None:
        tokens = _TOKEN.findall(self.text)
        for token in tokens:
            if token in _MISTAKEN:
                raise ValueError(f"{token}: write {_MISTAKEN[token]}; allowed: {ALLOWED}")
        if tokens != list(_FIELDS)[: len(tokens)] or len(tokens) not in _UNITS:
            raise ValueError(f"allowed: `run`, or {ALLOWED}")
        if not _LITERAL.fullmatch(_TOKEN.sub("", self._stem)):
            raise ValueError(f"allowed: `run`, or {ALLOWED}")
        if any(not part or part.startswith(HIDDEN) for part in self._stem.split("/")):
            raise ValueError(
                "a part between slashes is empty, or begins with `_` or `.`, which marks hidden files; allowed: folder names"
            )
        if self.of_files and not _TOKEN.search(self._stem.rpartition("/")[2]):
            raise ValueError(
                "the part behind the last slash has no time; allowed: a part of the time there, or a layout without `*`"
            )

    @property
    def of_files(self) -> bool:
        """True if windows are told apart by the names of files, not by folders."""
        return self.text.endswith("*")

    @property
    def _stem(self) -> str:
        return self.text.removesuffix("*").removesuffix("/")

    @property
    def unit(self) -> str:
        """The length of a window: day, hour, minute or second."""
        return _UNITS[len(_TOKEN.findall(self.text))][0]

    @cached_property
    def _segments(self) -> tuple[re.Pattern[str], ...]:
        """The pattern of each part of a path between slashes."""
        patterns = []
        for segment in self._stem.split("/"):
            pattern = "".join(
                f"(?:[0-9]{{{_FIELDS[part]}}})" if part in _FIELDS else re.escape(part)
                for part in re.split(r"(\{[^{}]*\})", segment)
            )
            patterns.append(re.compile(pattern))
        return tuple(patterns)

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        parts = re.split(r"(\{[^{}]*\})", self._stem)
        return re.compile("".join(f"([0-9]{{{_FIELDS[part]}}})" if part in _FIELDS else re.escape(part) for part in parts))

    def path(self, start: datetime) -> str:
        """Returns the path of a window below the root: of its folder, or the beginning of its files' paths."""
        values = dict(zip(_FIELDS, start.astimezone(UTC).strftime("%Y %m %d %H %M %S").split(), strict=True))
        return _TOKEN.sub(lambda token: values[token[0]], self._stem)

    def window(self, path: str) -> Window | None:
        """Returns the window of a file, by its path below the root; None if the path is not in the layout."""
        found = self._whole.match(path)
        if found is None or (path[found.end() : found.end() + 1] != "/" if not self.of_files else "/" in path[found.end() :]):
            return None
        try:
            year, month, day, *clock = map(int, found.groups())
            return Window(datetime(year, month, day, *clock, tzinfo=UTC), self.unit)
        except ValueError:
            return None

    def stranger(self, path: str) -> str:
        """Returns the folder or file at which a path leaves the layout."""
        parts = path.split("/")
        for number, (part, pattern) in enumerate(zip(parts, self._segments, strict=False), start=1):
            last = self.of_files and number == len(self._segments)
            if not (pattern.match(part) if last else pattern.fullmatch(part)):
                return "/".join(parts[:number])
        return "/".join(parts[: len(self._segments)])

    def begins(self, folder: str, depth: int) -> bool:
        """True if a folder of this name may be at a depth of the layout. Depths begin at 0."""
        return depth < len(self._segments) and bool(self._segments[depth].fullmatch(folder))

    @property
    def depth(self) -> int:
        """The number of folders between the root and the files."""
        return len(self._segments) - self.of_files

    def named(self, text: str) -> Window | None:
        """Returns the window that a path of the layout names, as `year=2024/month=05/day=14/hour=12`; None if it names none."""
        return self.window(f"{text.rstrip('/')}/") if not self.of_files else self.window(text)


LAYOUTS = (
    "year={yyyy}/month={MM}/day={dd}/hour={HH}",
    "year={yyyy}/month={MM}/day={dd}",
    "date={yyyy}-{MM}-{dd}/hour={HH}",
    "date={yyyy}-{MM}-{dd}",
    "dt={yyyy}-{MM}-{dd}/hour={HH}",
    "dt={yyyy}-{MM}-{dd}",
    "{yyyy}/{MM}/{dd}/{HH}",
    "{yyyy}/{MM}/{dd}",
    "{yyyy}-{MM}-{dd}/{HH}",
    "{yyyy}-{MM}-{dd}",
)
"""The folder layouts that are recognized, the finer before the coarser."""
_FLAT = re.compile(r"(?P<before>(?:[^/]*/)*[A-Za-z0-9=_.-]*?)(?<![0-9])[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]{6}(?![0-9])[^/]*")


def recognize(paths: Iterable[str]) -> str | None:
    """Recognizes the layout of some files by their paths below a root. Returns it in the form of `landing.layout`, or None.

    It is the layout that most of the files fit; at least half of the files that are not hidden must fit. Files in one folder
    that are named as by Snowplow's S3 loader, `2024-05-14-120501-….gz`, are a layout of files by the hour.
    """
    shown = [path for path in paths if not any(part.startswith(HIDDEN) for part in path.split("/"))]
    fits = {text: sum(Template(text).window(path) is not None for path in shown) for text in LAYOUTS}
    best = max(fits, key=lambda text: fits[text])  # if several fit equally many files, the first: the finest
    if shown and fits[best] * 2 >= len(shown):
        return best
    flat = Counter(found["before"] for path in shown if (found := _FLAT.fullmatch(path)))
    if flat and flat.most_common(1)[0][1] * 2 >= len(shown):
        text = f"{flat.most_common(1)[0][0]}{{yyyy}}-{{MM}}-{{dd}}-{{HH}}*"
        return text if _is_layout(text) else None
    return None


def _is_layout(text: str) -> bool:
    try:
        Template(text)
    except ValueError:
        return False
    return True
