"""Any feed of ours as the Snowflake Loader's table would show it: NEW, PROCESSED, LOADED.

Belongs here: what our records mean in that layout, for people and scripts that know it. Nothing is stored: a row is the fold of
an item's records.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from manifest_platform.manifest import Application, Item, Manifest, Record, State
from manifest_platform.operations.migration.importing import is_imported
from manifest_platform.operations.migration.snowflake_loader import Run


def view_as_loader(manifest: Manifest, feed: str, shred: Application, load: Application) -> Iterator[Run]:
    """The rows of a feed, newest run first, read as far as they are taken."""
    for item in manifest.items(feed, reverse=True):
        yield as_row(item, shred, load)


def as_row(item: Item, shred: Application, load: Application) -> Run:
    """The row of an item: NEW until it is shredded, PROCESSED until it is loaded, then LOADED."""
    added = next((record for record in item.records if record.state is State.NEW), item.records[0])
    loaded = item.processed_by(load)
    processed = _processed(item, shred, load)
    run_id = f"{urlsplit(item.key.id).path.strip('/')}/"
    row = (run_id, added.timestamp, added.author, item.skipped_for(load) is not None)
    if processed is None and loaded is None:
        return Run(*row)
    made = processed or loaded
    assert made
    types, saved_to = _output(processed)
    transformed = (made.timestamp, types, saved_to)
    if loaded is None:
        return Run(*row, *transformed)
    return Run(*row, *transformed, loaded.timestamp, loaded.author)


def _processed(item: Item, shred: Application, load: Application) -> Record | None:
    """The newest record of the shredder's work: ours, or that of the system which the item was imported from."""
    for record in reversed(item.records):
        of_a_shredder = shred.is_done_by(record.application) or is_imported(record)
        if record.state is State.PROCESSED and of_a_shredder and not load.is_done_by(record.application):
            return record
    return None


def _output(record: Record | None) -> tuple[tuple[str, ...], str]:
    """The types, or tables, that a shredder's record names, and the folder that it wrote to; empty where it does not say."""
    data = record.data if record else {}
    types = data.get("shredTypes") or data.get("shreddedTypes") or data.get("tables") or ()
    listing = data.get("listing", "")
    return tuple(types), data.get("savedTo") or f"{listing.rpartition('/')[0]}/".lstrip("/")
