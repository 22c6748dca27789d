"""The check that no rows needed a table of their own, as those of a schema version that breaks its model do."""

from __future__ import annotations

import dagster as dg

from manifest_platform.manifest import State
from manifest_platform.operations.bad_rows import NEWEST
from manifest_platform.operations.remarks import Remark, remarks
from manifest_platform.orchestration.events import check_result
from manifest_platform.pipeline import Pipeline

FIT = "tables_fit_their_schemas"
FIT_WORDS = "None of the newest directories wrote rows to a table of their own, as of a schema version that breaks its model."
TOLD = 3
"""The number of tables that the sentence is about; the metadata have all."""


def tables_fit(pipeline: Pipeline, feed: str, _newest: int) -> dg.AssetCheckResult:
    """Evaluates the check of a feed: a warning names the tables, their rows, the reason, and what to do."""
    found = remarks(feed, pipeline.manifest.newest(feed, NEWEST, State.PROCESSED))
    more = f"; and {len(found) - TOLD:,} more tables" if len(found) > TOLD else ""
    return check_result(
        passed=not found,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{'; '.join(map(_told, found[:TOLD]))}{more}" if found else FIT_WORDS,
        metadata={"tables": len(found), "rows": sum(one.rows for one in found), "remarks": _table(found)},
    )


def _told(one: Remark) -> str:
    return f"{one.rows:,} rows are in {one.table} (newest directory: {one.newest}), because {one.text}"


def _table(found: list[Remark]) -> dg.MetadataValue:
    """Returns the remarks as a table. The schema is explicit, for a table without lines."""
    lines = [
        dg.TableRecord({"table": one.table, "rows": one.rows, "directories": one.items, "remark": one.text}) for one in found
    ]
    columns = [
        dg.TableColumn(name, "int" if name in ("rows", "directories") else "string")
        for name in ("table", "rows", "directories", "remark")
    ]
    return dg.MetadataValue.table(lines, dg.TableSchema(columns))
