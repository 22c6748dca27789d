"""The seal that is written beside a shredded run, `shredding_complete.json`, for monitors and scripts that read such files.

Nothing of this platform reads it: a run is shredded once the manifest says so. It is written after the listing, from what the
listing says, and no record is made before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson

from manifest_platform import __version__, storage
from manifest_platform.shred.batch import ShredFailure, cause_of
from manifest_platform.sources.snowplow.events.shredder import SELF_DESCRIBING
from manifest_platform.sources.snowplow.recognition import SEAL
from manifest_platform.sources.snowplow.rules import Rows
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key
from manifest_platform.sources.snowplow.seal import Entity, Seal, SealedType
from manifest_platform.sources.snowplow.settings import ARTIFACT, ATOMIC, EVENTS_TABLE

if TYPE_CHECKING:
    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory

_LONGEST_VERSION = 16  # the schema allows no longer version
_WRITERS = 8  # concurrent writes, because each write to an object store takes round trips

Types = Sequence[tuple[SchemaKey, Entity]]
"""The schemas of a run. A schema may be of events and of contexts."""


def sealed(
    directories: Sequence[Directory], results: Sequence[Listing | ShredFailure], started: datetime, rows: Rows
) -> list[Listing | ShredFailure]:
    """Writes the seal of each shredded run. Returns the results, with a failure in place of a listing without a seal.

    `started`: when the job began. `rows`: the layout.
    """

    def seal(directory: Directory, result: Listing | ShredFailure) -> Listing | ShredFailure:
        failed = isinstance(result, ShredFailure)
        return result if failed else write_seal(directory, result, started, rows, types_of(result))

    with ThreadPoolExecutor(_WRITERS) as pool:
        return list(pool.map(seal, directories, results))


def write_seal(directory: Directory, listing: Listing, started: datetime, rows: Rows, types: Types) -> Listing | ShredFailure:
    """Writes the seal of a shredded run into its output; returns the listing, or a failure if the seal cannot be written."""
    document = seal_of(listing, directory.output, started, rows, types).document()
    uri = f"{directory.output}/{SEAL}"
    try:
        storage.write_bytes(uri, orjson.dumps(document, option=orjson.OPT_INDENT_2))
    except OSError as error:
        return ShredFailure(directory.item, directory.attempt, f"{uri} cannot be written: {error}", cause_of(error))
    return listing


def seal_of(listing: Listing, output: str, started: datetime, rows: Rows, types: Types) -> Seal:
    """Returns the seal of a run by its listing.

    The published schema has no word for shredded Parquet: its types get the format TSV.
    """
    events = [one for one in listing.objects if one.table == EVENTS_TABLE]
    wide = rows != "tables"
    return Seal(
        base=f"{output}/",
        transformation="WIDEROW" if wide else "SHREDDED",
        types=tuple(SealedType(key, None if wide else "TSV", entity) for key, entity in types),
        started=_iso(started),
        completed=_iso(datetime.now(UTC)),
        first=min((one.min_time for one in events if one.min_time), default=None),
        last=max((one.max_time for one in events if one.max_time), default=None),
        processor=(ARTIFACT, __version__[:_LONGEST_VERSION]),
        file_format="PARQUET" if wide else None,
        good=listing.good,
        bad=listing.bad,
    )


def types_of(listing: Listing) -> Types:
    """Returns the schemas that a listing of shredded events counts, without that of the events themselves."""
    own = {
        name.removeprefix(SELF_DESCRIBING): rows for name, rows in listing.counts.items() if name.startswith(SELF_DESCRIBING)
    }
    rows: dict[str, int] = {}
    for one in listing.types:
        if is_key(one.type) and not one.type.startswith(ATOMIC):
            rows[one.type] = rows.get(one.type, 0) + one.rows
    found: list[tuple[SchemaKey, Entity]] = []
    for schema, count in sorted(rows.items()):
        key, events = SchemaKey.parse(schema), own.get(schema, 0)
        found += [(key, "SELF_DESCRIBING_EVENT")] if events else []
        found += [(key, "CONTEXT")] if count > events else []
    return found


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
