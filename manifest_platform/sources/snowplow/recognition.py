"""Recognition of enriched runs before anything is configured: by the names of directories, and by the form of lines."""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from manifest_platform import storage
from manifest_platform.sources.directories import HIDDEN, DirectoryName
from manifest_platform.sources.layouts import recognize
from manifest_platform.sources.preview import Guess, Place

CENTRAL = "http://iglucentral.com"
"""The public registry of the schemas that Snowplow itself publishes."""

SEAL = "shredding_complete.json"
"""The file that Snowplow's transformer writes last into a run."""

_NEARLY = re.compile(r"run[=_\- ]?(\d{4})\D?(\d\d)\D?(\d\d)\D?(\d\d)\D?(\d\d)(?:\D?(\d\d))?", re.IGNORECASE)
_TIMED = re.compile(r"^[a-z]+=[0-9]{4}|^[0-9]{4}(?![0-9])|[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TABS = 130
_FILES, _DEEP, _OPENED = (
    20,
    5,
    3,
)  # in the search for a layout: files looked at in a folder, nested folders, and files opened
_REGISTRIES = ("schemas", "iglu", "iglu-schemas", "iglu_schemas", "registry", "iglu-central")
_LOOKED_AT = 50  # folders of a vendor


def guesses(place: Place, schemas: Sequence[str], parse: Callable[[str], DirectoryName | None]) -> Iterator[Guess]:
    """Recognizes a landing root by directories that are named as runs, or by files of events in a layout by time."""
    landing: dict[str, str] = {}
    layout = "a directory a run, run=YYYY-MM-DD-HH-MM-SS"
    if not any(parse(name) for name in place.entries.folders):
        by_time = _layout_by_time(place)
        if by_time is None:
            return
        landing, layout = {"layout": by_time, "complete": "settle"}, f"windows of time, {by_time}"
    notes: tuple[str, ...] = ()
    found = tuple(schemas)
    if not found and (beside := registry_beside(place)):
        found = (beside,)
        notes = (f"schemas are taken from the folder {beside} beside it; use --schemas for others",)
    told = {"landing": landing, "shred": {"schemas": [*(found or (CENTRAL,))]}}
    yield Guess({key: value for key, value in told.items() if value}, layout, found, notes)


def is_sealed(place: Place) -> bool:
    """True if the newest run of a place has the seal of Snowplow's transformer, so that its files are no enriched events."""
    runs = [name for name in place.entries.folders if nearest(name)]
    return bool(runs) and any(name == SEAL for name, _ in place.inside(max(runs)).entries.files)


def hints(place: Place, parse: Callable[[str], DirectoryName | None]) -> Iterator[str]:
    """Reports names that are almost those of runs, and files of events that are not in a run's directory."""
    nearly = [(name, better) for name in place.entries.folders if not parse(name) and (better := nearest(name))]
    if nearly:
        name, better = nearly[0]
        more = f". {len(nearly) - 1:,} more are like it" if len(nearly) > 1 else ""
        yield f"{name} is almost the name of a run of enriched events: rename it to {better}{more}"
    names = [name for name, size in place.entries.files if size and not name.startswith(("_", "."))]
    if names and (fields := _fields(place, names[0])):
        yield (
            f"{names[0]} has lines of {fields} tab-separated fields, like enriched events, but its directory is not named by a"
            f" time: move the files of each run to run=YYYY-MM-DD-HH-MM-SS/ below {place.name or place.uri}, and let the writer"
            " finish each with an empty file _SUCCESS"
        )


def _layout_by_time(place: Place) -> str | None:
    """Returns the layout of files of enriched events that are placed by time; None if there are none."""
    entries = place.entries
    if not any(_TIMED.search(name) for name in (*entries.folders, *(name for name, _ in entries.files))):
        return None
    files = list(_some_files(place, ""))
    layout = recognize(path for path, _, _ in files)
    seen = layout and any(_fields(folder, name) for _, folder, name in files[:_OPENED])
    return layout if seen else None


def _some_files(place: Place, path: str, depth: int = 0) -> Iterator[tuple[str, Place, str]]:
    """Yields files of a place and of the newest folder at each level below it: the path of each, its folder and its name."""
    entries = place.entries
    for name, size in entries.files[-_FILES:]:
        if size and not name.startswith(HIDDEN):
            yield f"{path}{name}", place, name
    folders = [name for name in entries.folders if not name.startswith(HIDDEN)]
    if depth < _DEEP:
        for name in folders[-1:]:
            yield from _some_files(place.inside(name), f"{path}{name}/", depth + 1)


def nearest(name: str) -> str | None:
    """Returns the run name that a name almost is; None if it is not close to one."""
    found = _NEARLY.match(name)
    return f"run={'-'.join(part or '00' for part in found.groups())}" if found else None


def _fields(place: Place, name: str) -> int | None:
    """Returns the number of fields in the first line of a file if it is close to that of an enriched event, else None."""
    try:
        head = place.head(name, 1 << 16)
    except (OSError, ValueError):
        return None
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(31).decompress(head, 1 << 18)
        except zlib.error:
            return None
    tabs = head.partition(b"\n")[0].count(b"\t")
    return tabs + 1 if abs(tabs - _TABS) <= 5 else None


def registry_beside(place: Place) -> str | None:
    """Returns the path of a folder of schemas beside a local landing root or beside its parent; None if there is none."""
    if not storage.is_local(place.uri):
        return None
    root = storage.local_path(place.uri)
    for folder in list(root.parents)[:2]:
        for name in _REGISTRIES:
            if is_registry(folder / name):
                return str(folder / name)
    return None


def is_registry(folder: Path) -> bool:
    """True if a folder has schemas, as `[schemas/]vendor/name/jsonschema/1-0-0`."""
    for top in (folder / "schemas", folder):
        try:
            with os.scandir(top) as vendors:
                for vendor in itertools.islice(vendors, _LOOKED_AT):
                    if vendor.is_dir() and any(Path(vendor.path).glob("*/jsonschema")):
                        return True
        except OSError:
            continue
    return False
