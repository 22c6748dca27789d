"""The kernel of shredding: bytes of enriched lines to typed tables. Knows neither Spark nor storage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manifest_platform.listing import Table
from manifest_platform.shred.bad import BadRow, bad_table
from manifest_platform.shred.parquet import arrow_schema
from manifest_platform.sources.snowplow.atomic import Lines, cut, event_columns
from manifest_platform.sources.snowplow.enriched import EVENTS, EVENTS_TABLE
from manifest_platform.sources.snowplow.entities import entity_tables
from manifest_platform.sources.snowplow.iglu import Resolver


@dataclass(frozen=True)
class Shredded:
    """Typed tables by name, what each is, and how many lines they come from; lines = good + rows of `bad`."""

    tables: dict[str, pa.Table]
    definitions: dict[str, Table]
    bad: pa.Table
    lines: int
    good: int


def shred_lines(data: bytes, resolver: Resolver, file: str = "", first_line: int = 1) -> Shredded:
    """Shreds whole lines; a line is good, and then in every table, or bad, and then in no other than `bad`.

    `first_line` is the number of the first line in its file, for the bad table. Any bytes are accepted. Raises
    RegistryUnavailable where a schema could not be asked for.
    """
    with _without_garbage_collection():
        lines = cut(data)
        events = event_columns(lines)
        found = list(entity_tables(lines, events, resolver))
        keep = ~np.isin(lines.line, np.fromiter(lines.reasons, np.int64, len(lines.reasons)))
        tables = {}
        definitions = {}
        for definition, table, kept in (
            (EVENTS, events, keep),
            *((each.definition.table, each.table, keep[each.rows]) for each in found),
        ):
            table = table if kept.all() else table.filter(pa.array(kept))
            if table.num_rows:
                tables[definition.name] = table.cast(arrow_schema(definition.columns))
                definitions[definition.name] = definition
    good = tables[EVENTS_TABLE].num_rows if EVENTS_TABLE in tables else 0
    return Shredded(tables, definitions, _bad(lines, file, first_line), lines.count, good)


def _bad(lines: Lines, file: str, first_line: int) -> pa.Table:
    rows = (BadRow(first_line + number, reasons, lines.raw(number)) for number, reasons in sorted(lines.reasons.items()))
    return bad_table(file, rows)


@contextlib.contextmanager
def _without_garbage_collection() -> Generator[None]:
    """Parsed JSON is a great many objects without cycles: looking for cycles among them costs as much as the parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
