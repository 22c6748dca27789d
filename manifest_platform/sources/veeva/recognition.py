"""Recognition of a vault's windows before anything is configured: by the names of folders and of archives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from manifest_platform.sources.preview import Guess, Place
from manifest_platform.sources.veeva.direct_data import MANIFEST
from manifest_platform.sources.veeva.files import Feed
from manifest_platform.sources.veeva.layout import FEEDS, parse_window_name, window_name

_VAULT = re.compile(r"vault=([0-9]{1,12})")
_ARCHIVE = re.compile(r"([0-9]{1,12})-([0-9]{8}-[0-9]{4})-([FNL])(?:\.tar\.gz|\.tgz)?(?:\.[0-9]{3})?")
_FEED: dict[str, Feed] = {"F": "full", "N": "incr", "L": "log"}
_NOTE = "changes are loaded on top of a snapshot, and a snapshot is loaded when you begin a full load (full begin latest)"


def guesses(place: Place) -> Iterator[Guess]:
    """Recognizes a landing root by a folder for each vault."""
    for folder in place.entries.folders:
        if found := _VAULT.fullmatch(folder):
            layout = f"the windows of vault {found[1]}: incr/stoptime=YYYYMMDDHHMM, log/date=YYYY-MM-DD, full/date=YYYY-MM-DD"
            yield Guess({"vault": {"id": found[1]}}, layout, notes=(_NOTE,))


def hints(place: Place) -> Iterator[str]:
    """Reports packed archives, and windows that are not below a vault's folder."""
    entries = place.entries
    archives = [found for name, _ in entries.files if (found := _ARCHIVE.fullmatch(name))]
    if archives and (target := _target(archives[0])):
        yield (
            f"{archives[0][0]} is a packed Direct Data archive, and only unpacked archives are read. Join its parts, unpack it"
            f" with tar xzf into {target}, and finish it with an empty file _SUCCESS there. Or let the platform capture it:"
            " source: veeva with vault.url"
        )
    if any(name == MANIFEST for name, _ in entries.files) and parse_window_name(place.name) is None:
        yield (
            f"{place.name or place.uri} holds {MANIFEST}, like an unpacked Direct Data archive, but is not named as a window:"
            " move it to vault=ID/incr/stoptime=YYYYMMDDHHMM, vault=ID/log/date=YYYY-MM-DD or vault=ID/full/date=YYYY-MM-DD"
        )
    if not _VAULT.fullmatch(place.name) and (feeds := [one for one in FEEDS if one in entries.folders]):
        names = [f"{feed}/{name}" for feed in feeds for name in place.inside(feed).entries.folders]
        if windows := [name for name in names if parse_window_name(name)]:
            yield f"{windows[0]} is named as a window of Direct Data, but not below a vault's folder: move it below vault=ID/"


def _target(archive: re.Match[str]) -> str | None:
    try:
        stop = datetime.strptime(archive[2], "%Y%m%d-%H%M").replace(tzinfo=UTC)
    except ValueError:
        return None
    return f"vault={archive[1]}/{window_name(_FEED[archive[3]], stop)}"
