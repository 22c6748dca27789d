"""Packs: one file for the Parquet files of several small objects, so that a small directory costs one request, not one a table.

A pack is a ZIP file without compression. Each member is a whole Parquet file under the name that it would have beside the pack.
A pack belongs to one task of one attempt, so it is written, named by the listing and removed together with its objects. Readers
of whole files get the members as files: `unpacked` in a folder of the reader, `spread` for as long as the attempt exists.
"""

from __future__ import annotations

import io
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from manifest_platform import storage
from manifest_platform.listing import Listing, ShreddedObject

SUFFIX = ".pack.zip"
_AT_ONCE = 8


class PackDamaged(ValueError):
    """A pack is not as it was written."""


def packed(members: Mapping[str, bytes | memoryview]) -> bytes:
    """Returns a pack of members by name. The same members give the same bytes."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # of 1980, so that no clock is in the bytes
    return sink.getvalue()


def member_of(found: ShreddedObject) -> str:
    """Returns the name of a packed object in its pack."""
    return found.uri.removeprefix(f"{found.pack.rpartition('/')[0]}/")


def read(uri: str, names: Iterable[str]) -> dict[str, bytes]:
    """Reads members of a pack with one request. Raises PackDamaged, FileNotFoundError, OSError."""
    data = storage.read_bytes(uri)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise PackDamaged(f"the pack {uri} is damaged ({error})") from error


def unpacked(listing: Listing, folder: str) -> Listing:
    """Writes packed objects as files below a folder that the caller removes. Returns the listing with these files.

    Raises PackDamaged, FileNotFoundError, OSError.
    """
    return _written(listing, {found: f"{folder}/{member_of(found)}" for found in _packed(listing)}, storage.write_bytes)


def spread(listing: Listing, table: str | None = None) -> Listing:
    """Writes packed objects, or those of a table, as the files that their URIs name. Returns the listing with these files.

    They stay, as a part of the attempt. Repeated, it writes the same bytes. Raises PackDamaged, FileNotFoundError, OSError.
    """
    return _written(listing, {found: found.uri for found in _packed(listing) if table in (None, found.table)}, _put)


def _put(uri: str, data: bytes) -> None:
    folder, _, name = uri.rpartition("/")
    storage.ObjectFolder(folder).put(name, data)


def _packed(listing: Listing) -> list[ShreddedObject]:
    return [found for found in listing.objects if found.pack]


def _written(listing: Listing, places: Mapping[ShreddedObject, str], write: Callable[[str, bytes], None]) -> Listing:
    """Writes packed objects as files at these places, and returns the listing with these files."""
    by_pack: dict[str, list[ShreddedObject]] = defaultdict(list)
    for found in places:
        by_pack[found.pack].append(found)

    def unpack(objects: Sequence[ShreddedObject]) -> None:
        members = read(objects[0].pack, map(member_of, objects))
        for found in objects:
            write(places[found], members[member_of(found)])

    if len(by_pack) > 1:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(unpack, by_pack.values()))
    else:
        for only in by_pack.values():
            unpack(only)
    objects = tuple(replace(one, uri=places[one], pack="") if one in places else one for one in listing.objects)
    left = {one.pack for one in objects if one.pack}
    return replace(listing, objects=objects, packs=tuple(one for one in listing.packs if one.uri in left))
