"""A feed of ours in the layout of the Snowflake Loader's table: NEW, PROCESSED, LOADED; and FAILED, a state that it lacks.

Belongs here: the meaning of our records in that layout, for people and scripts that know it. Nothing is stored: each row is
derived from an item's records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from urllib.parse import urlsplit

from manifest_platform.manifest import Application, Item, Manifest, Record, State
from manifest_platform.operations.migration.importing import is_imported
from manifest_platform.operations.migration.snowflake_loader import Run
from manifest_platform.pipeline.shredding import OutputGone, kept_types, types_of
from manifest_platform.warehouse.errors import Unavailable


def view_as_loader(manifest: Manifest, feed: str, shred: Application, load: Application) -> Iterator[Run]:
    """Yields the rows of a feed, newest run first. Reads only as far as the caller iterates."""
    serving = cache(lambda: manifest.serving_epochs(feed))
    for item in manifest.items(feed, reverse=True):
        yield as_row(item, shred, load, serving)


def as_row(item: Item, shred: Application, load: Application, serving: Callable[[], Mapping[str, int]] = dict) -> Run:
    """Returns the row of an item: NEW until it is shredded, PROCESSED until it is loaded, then LOADED.

    FAILED if an attempt failed and is not resolved. `serving`: a function for the feed's serving epochs, called only if
    something failed.
    """
    added = next((record for record in item.records if record.state is State.NEW), item.records[0])
    loaded = item.processed_by(load)
    processed = _processed(item, shred, load)
    run_id = f"{urlsplit(item.key.id).path.strip('/')}/"
    row = (run_id, added.timestamp, _by(added), item.skipped_for(load) is not None)
    failed = None if loaded else _failed(item, shred, load, serving)
    if processed is None and loaded is None:
        return Run(*row, failed_by=failed)
    made = processed or loaded
    assert made
    types, saved_to = _output(processed)
    transformed = (made.timestamp, types, saved_to)
    if loaded is None:
        return Run(*row, *transformed, failed_by=failed)
    return Run(*row, *transformed, loaded.timestamp, _by(loaded))


def _by(record: Record) -> str:
    """Returns the application and version of a record; its author if no version is known."""
    application = record.application
    if is_imported(record) or not application.version:
        return record.author  # Snowplow's manifest puts name and version there, the Snowflake Loader's the version alone
    return f"{application.name} {application.version}"


def _failed(item: Item, shred: Application, load: Application, serving: Callable[[], Mapping[str, int]]) -> str | None:
    """Returns the application whose failure is open: our shred or load, or an application of the source."""
    if not any(record.state is State.FAILED for record in item.records):
        return None
    for record in item.open_records(serving()):
        ours = shred.is_done_by(record.application) or load.is_done_by(record.application)
        if record.state is State.FAILED and (ours or is_imported(record)):
            return record.application.key
    return None


def _processed(item: Item, shred: Application, load: Application) -> Record | None:
    """Returns the newest record of shredding: ours, or that of the system from which the item was imported."""
    for record in reversed(item.records):
        of_a_shredder = shred.is_done_by(record.application) or is_imported(record)
        if record.state is State.PROCESSED and of_a_shredder and not load.is_done_by(record.application):
            return record
    return None


def _output(record: Record | None) -> tuple[tuple[str, ...], str]:
    """Returns the types, or tables, of a shredder's record, and its output folder; empty if the record lacks them."""
    if record is None:
        return (), ""
    listing = record.data.get("listing", "")
    return tuple(shredded_types(record)), record.data.get("savedTo") or f"{listing.rpartition('/')[0]}/".lstrip("/")


def shredded_types(record: Record) -> Sequence[str]:
    """Returns the types in a shredder's record, ours or another system's; its tables if it has no types."""
    data = record.data
    try:
        types = types_of(record)
    except (OutputGone, Unavailable):
        types = kept_types(record)
    if types:
        return sorted({one.type for one in types})
    return data.get("shredTypes") or data.get("shreddedTypes") or data.get("tables") or ()
