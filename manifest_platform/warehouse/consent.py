"""The two effects of a snapshot that require an operator's consent: emptying the warehouse, or shrinking a table by much.

A source that exports too little, by an error or because it lacks rights, delivers a snapshot that looks like any other. Loading
it would delete rows that nobody meant to delete. `pipeline.full` records who gave consent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from manifest_platform.listing import Listing
from manifest_platform.warehouse.errors import EmptySnapshot, ShrinkingSnapshot
from manifest_platform.warehouse.load import EMPTY, SHRINK, Full, Limits, Load

if TYPE_CHECKING:
    from manifest_platform.warehouse.control import KnownTables
    from manifest_platform.warehouse.tables import Tables

_SHOWN = 3


def rows_of(listing: Listing, limits: Limits | None) -> int:
    """Returns the number of a snapshot's rows, except the rows of the tables that `limits.describing` names."""
    describing = limits.describing if limits else frozenset()
    return sum(found.rows for found in listing.objects if found.table not in describing)


def refuse_empty(item: str, listing: Listing, full: Full) -> None:
    """Raises EmptySnapshot for a snapshot without tables or without rows, unless the operator allowed it."""
    if EMPTY in full.allows or (listing.tables and (full.limits is None or rows_of(listing, full.limits))):
        return
    what = "no rows" if listing.tables else "not a single table"
    raise EmptySnapshot(
        f"{item} has {what}, and would empty every table that it covers. Nothing was changed. Check what the source "
        "delivered; then load another snapshot, or allow it"
    )


def refuse_shrinking(load: Load, full: Full, tables: Tables, known: KnownTables) -> None:
    """Raises ShrinkingSnapshot if a table would lose more rows than the limits allow, unless the operator allowed it."""
    if full.limits is None or SHRINK in full.allows or EMPTY in full.allows:
        return
    replaced = [table.name for table in load.listing.tables if table.mode == "replace"]
    wanted = {name: load.listing.rows(name) for name in (*replaced, *known.emptied_by(full, load.feed, load.listing))}
    have = tables.counts(sorted(wanted.keys() & tables.columns().keys()))
    shrinking = {name: rows for name, rows in have.items() if _is_much(rows - wanted[name], rows, full.limits)}
    if shrinking:
        first = sorted(shrinking, key=lambda name: wanted[name] - shrinking[name])
        shown = ", ".join(f"{name} from {shrinking[name]:,} to {wanted[name]:,} rows" for name in first[:_SHOWN])
        more = f" and {len(first) - _SHOWN} more tables" if len(first) > _SHOWN else ""
        raise ShrinkingSnapshot(
            f"{load.item} would shrink {shown}{more}. Nothing was changed. Check what the source delivered; then load another "
            "snapshot, or allow it"
        )


def _is_much(lost: int, rows: int, limits: Limits) -> bool:
    return lost > limits.max_count and lost > limits.max_share * rows
