"""The family of each table, kept in the manifest: the source's name for the table's rows, which the first item fixes.

The warehouse keeps the same for what it has loaded (`warehouse.families`). The copy here also protects tables that are only
merged, and makes an item fail when it is shredded, before anybody reads it.
"""

from __future__ import annotations

import uuid

from manifest_platform.faults import Permanent
from manifest_platform.listing import Listing, families, other_family
from manifest_platform.manifest.item import short_name
from manifest_platform.manifest.keys import FAMILIES, family_key
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Changed, ConditionFailed, OutcomeUnknown, Put, optimistically
from manifest_platform.pipeline.pipeline import Pipeline


class TableTaken(Permanent):
    """A table has rows of another family: the source calls its rows by another name."""


def take_tables(pipeline: Pipeline, listing: Listing) -> None:
    """Fixes the families of a listing's tables permanently. Raises TableTaken for a table of another family, StoreError.

    Idempotent. Once this process knows the families, it asks the store nothing.
    """
    mine = families(listing.tables)
    if mine.items() <= pipeline.families.items():
        return
    optimistically(
        lambda: _take(pipeline, listing, mine),
        lambda: Changed(f"the families of tables of dataset {pipeline.name!r} changed on every attempt. Drain again"),
        again_on=(Changed, ConditionFailed, OutcomeUnknown),
    )


def _take(pipeline: Pipeline, listing: Listing, mine: dict[str, str]) -> None:
    store = pipeline.manifest.store
    pipeline.families = {row.data["table"]: row.data["family"] for row in store.query(pipeline.name, FAMILIES)}
    for table, family in sorted(mine.items()):
        if (other := pipeline.families.get(table, family)) != family:
            raise TableTaken(other_family(short_name(listing.item), table, family, other))
    new = sorted(mine.items() - pipeline.families.items())
    writes = [
        Put(family_key(table), {"table": table, "family": family, "item": listing.item}, ABSENT, lasting=True)
        for table, family in new
    ]
    for start in range(0, len(writes), MAX_WRITES):
        store.transact(pipeline.name, writes[start : start + MAX_WRITES], uuid.uuid4().hex)
    pipeline.families.update(mine)
