"""What shredding has written, as the manifest's records name it: listings of objects, and their tables."""

from __future__ import annotations

import contextlib

from manifest_platform.listing import Listing, Table
from manifest_platform.manifest import Application, Item, Refused
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.source import SHRED
from manifest_platform.warehouse.errors import Unavailable


class OutputGone(Refused):
    """What the manifest names as committed is not there any more."""


def shredded_bytes(item: Item) -> int:
    """How much Parquet the completed shredding of an item wrote, by its record."""
    record = item.processed_by(Application(SHRED))
    return record.data["bytes"] if record else 0


def recent_tables(pipeline: Pipeline, records: int) -> list[Table]:
    """The tables of the newest items that were shredded, by name: of those that the newest records of each feed tell of.

    An item whose listing is gone is passed over.
    """
    tables: dict[str, Table] = {}
    for record in (record for feed in pipeline.feeds for record in pipeline.manifest.newest(feed, records)):
        listing = record.data.get("listing")
        named = set(record.data.get("tables", ())) if record.application.name == SHRED else set()
        if listing and named - tables.keys():
            with contextlib.suppress(OutputGone):
                tables = {table.name: table for table in _read_listing(listing).tables} | tables
    return [tables[name] for name in sorted(tables) if tables[name].mode != "delete"]


def listing_of(item: Item) -> Listing:
    """What the completed shredding of an item wrote. Raises Refused if it is not shredded, OutputGone, Unavailable."""
    record = item.processed_by(Application(SHRED))
    if record is None:
        raise Refused(f"{item.key.name} is not shredded yet")
    return _read_listing(record.data["listing"])


def _read_listing(uri: str) -> Listing:
    try:
        return Listing.read(uri)
    except FileNotFoundError as error:
        raise OutputGone(f"the listing {uri} is gone, though the manifest names it; put it back from a backup") from error
    except (ValueError, KeyError, TypeError) as error:
        raise OutputGone(f"the listing {uri} is damaged ({error}); put it back from a backup") from error
    except OSError as error:
        raise Unavailable(f"the listing {uri} cannot be read now: {error}") from error
