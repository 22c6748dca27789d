"""How enriched runs are known before anything is configured: by the names of directories, and by how lines look."""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from manifest_platform import storage
from manifest_platform.sources.directories import DirectoryName
from manifest_platform.sources.preview import Guess, Place

CENTRAL = "http://iglucentral.com"
"""The public registry of the schemas that Snowplow itself publishes."""

_NEARLY = re.compile(r"run[=_\- ]?(\d{4})\D?(\d\d)\D?(\d\d)\D?(\d\d)\D?(\d\d)(?:\D?(\d\d))?", re.IGNORECASE)
_TABS = 130
_REGISTRIES = ("schemas", "iglu", "iglu-schemas", "iglu_schemas", "registry", "iglu-central")
_LOOKED_AT = 50  # folders of a vendor


def guesses(place: Place, schemas: Sequence[str], parse: Callable[[str], DirectoryName | None]) -> Iterator[Guess]:
    """A landing root has directories that are called as runs are."""
    if not any(parse(name) for name in place.entries.folders):
        return
    notes: tuple[str, ...] = ()
    found = tuple(schemas)
    if not found and (beside := registry_beside(place)):
        found = (beside,)
        notes = (f"schemas are taken from {beside}, which lies beside; --schemas takes others",)
    told = {"shred": {"schemas": [*(found or (CENTRAL,))]}}
    yield Guess(told, "a directory a run, run=YYYY-MM-DD-HH-MM-SS", found, notes)


def hints(place: Place, parse: Callable[[str], DirectoryName | None]) -> Iterator[str]:
    """Names that are nearly runs', and files that look as enriched events do."""
    nearly = [(name, better) for name in place.entries.folders if not parse(name) and (better := nearest(name))]
    if nearly:
        name, better = nearly[0]
        more = f", and so {len(nearly) - 1:,} more" if len(nearly) > 1 else ""
        yield f"{name} is nearly the name of a run of enriched events: rename it to {better}{more}"
    names = [name for name, size in place.entries.files if size and not name.startswith(("_", "."))]
    if names and (fields := _fields(place, names[0])):
        yield (
            f"{names[0]} has lines of {fields} tab-separated fields, as enriched events have, but lies in no directory that"
            f" tells its time: move the files of each run to run=YYYY-MM-DD-HH-MM-SS/ below {place.name or place.uri}, and let"
            " the writer end it with an empty file _SUCCESS"
        )


def nearest(name: str) -> str | None:
    """The name of a run that a name is nearly; None where it is not."""
    found = _NEARLY.match(name)
    return f"run={'-'.join(part or '00' for part in found.groups())}" if found else None


def _fields(place: Place, name: str) -> int | None:
    """How many fields the first line of a file has, where that is about as many as an enriched event's."""
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
    """The path of a folder of schemas beside a landing root on a disk, or beside the folder that it lies in."""
    if not storage.is_local(place.uri):
        return None
    root = storage.local_path(place.uri)
    for folder in list(root.parents)[:2]:
        for name in _REGISTRIES:
            if is_registry(folder / name):
                return str(folder / name)
    return None


def is_registry(folder: Path) -> bool:
    """Whether a folder has schemas, as `[schemas/]vendor/name/jsonschema/1-0-0`."""
    for top in (folder / "schemas", folder):
        try:
            with os.scandir(top) as vendors:
                for vendor in itertools.islice(vendors, _LOOKED_AT):
                    if vendor.is_dir() and any(Path(vendor.path).glob("*/jsonschema")):
                        return True
        except OSError:
            continue
    return False
