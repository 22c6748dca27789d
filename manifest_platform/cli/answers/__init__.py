"""The types of the JSON documents that commands print with --json, and the JSON Schemas made from them.

A command prints one document. A command that reports events prints `Lines`: a line of JSON for each event, and the summary
last. Any command that fails prints a `Failed`. Within a major release, fields keep their name, type and meaning; new fields may
be added, so readers must ignore unknown ones. The docstrings are the text of docs/reference/json.md.

Imported by the command `schema` only, and by tests, which compare all answers with these types.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pydantic import TypeAdapter

from manifest_platform.cli.answers import cutovers, looks, merging, shared, work

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Lines:
    """An answer of several documents, a line each. `types`: the types of the documents."""

    types: tuple[Any, ...]


_DECIDED = Lines((work.Decided, work.Refused, work.DecisionsEnded))
_CLAIMED = work.Claimed | work.NothingToDo | work.Blocked
_IMPORTED = work.ForeignImport | work.ImportDropped

ANSWERS: dict[str, Any] = {
    "status": looks.Status,
    "next": looks.Next,
    "explain": looks.Explained,
    "history": looks.History | looks.HistoryOfRun,
    "query": looks.Found,
    "queue": looks.Queue,
    "types": looks.Types,
    "tables": looks.Tables | looks.TablesOfTargets,
    "cost": looks.Costs,
    "sql": shared.Rows,
    "bad list": looks.BadRowList,
    "bad count": looks.BadRowCounts,
    "bad show": looks.BadRowsShown,
    "schemas list": looks.SchemaList,
    "schemas show": looks.SchemaShown,
    "schemas diff": looks.SchemaDifferences,
    "schemas ddl": looks.SchemaStatements,
    "schemas fetch": looks.SchemasFetched,
    "preview": looks.Preview | looks.Roots | looks.NotRecognized,
    "init": looks.Project | looks.NotRecognized,
    "capture": Lines((work.Captured, work.Diverged, work.CaptureFailed, work.Awaited, work.CaptureEnded)),
    "discover": work.Discovered,
    "landing check": looks.LandingChecked,
    "drain": Lines(
        (work.DrainDiscovered, work.NotDiscovered, work.ShredEvent, work.Loaded, work.Drained, work.FollowEvent),
    ),
    "full begin": Lines((work.ShredEvent, work.Begun)),
    "full status": work.FullStatus | work.FullStatusOfTargets,
    "full cancel": work.Recorded,
    "merge run": Lines((merging.Registered, merging.MergeStarted, merging.JobFinished, merging.MergeEnded)),
    "merge publish": merging.Publication,
    "merge rebuild": merging.Rebuilt,
    "merge retry": merging.Partition,
    "merge gc": merging.Removed,
    "merge drop": merging.Dropped,
    "merge status": merging.MergeStatus,
    "merge explain": merging.PartitionExplained,
    "merge files": merging.PartitionFiles,
    "merge query": shared.Rows,
    "merge log": merging.MergeLog,
    "merge show": merging.Shown,
    "merge external-schema": merging.ExternalSchema,
    "resolve": _DECIDED,
    "reshred": _DECIDED,
    "bad replay": work.BadReplayed,
    "reload": Lines((*_DECIDED.types, work.Replacing)),
    "accept": _DECIDED,
    "skip items": _DECIDED,
    "skip add": Lines((work.SkipRuleAdded, *_DECIDED.types)),
    "skip list": work.SkipRules | work.SkipRuleChanges,
    "skip remove": work.SkipRuleRemoved,
    "unskip": _DECIDED,
    "run": work.Ran | work.NothingToDo | work.Blocked,
    "put new": work.Put,
    "put claim": _CLAIMED,
    "put complete": work.Ended,
    "put fail": work.Ended,
    "doctor": looks.Diagnosis | looks.DiagnosisFailed,
    "archive": work.Archived,
    "housekeeping": work.Housekept,
    "gc": work.Collected,
    "config show": dict[str, Any],
    "config check": looks.CheckedConfig,
    "config schema": dict[str, Any],
    "config reference": looks.Page,
    "warehouse reconcile": work.WarehouseReconciled,
    "warehouse accept": work.WarehouseAccepted,
    "warehouse check": work.WarehouseChecked,
    "warehouse grants": work.WarehouseGrants,
    "warehouse upkeep": work.WarehouseUpkeep,
    "spark package": looks.WorkerArchive,
    "store create": looks.Setup,
    "store check": looks.Setup,
    "store upgrade": work.Upgraded,
    "cutover check": cutovers.CutoverChecked,
    "cutover adopt": Lines((cutovers.CutoverAdopted, work.ShredEvent, work.Loaded, work.Drained)),
    "cutover compare": cutovers.CutoverCompared,
    "dump": Lines((dict[str, Any],)),
    "import": work.Imported,
    "import-snowplow": _IMPORTED,
    "import-snowflake": _IMPORTED,
    "import-moved": work.Moved,
    "view": looks.View,
    "schema": dict[str, Any],
    "completion": looks.Completion,
    "demo": shared.Failed,
    "fake-vault": looks.FakeVault,
}
"""The type of every command's answer, by the command's name as it is typed."""


def schema(command: str) -> dict[str, Any]:
    """Returns the JSON Schema of a command's answer; for `Lines`, of each line. Raises KeyError if there is no such command."""
    told = ANSWERS[command]
    types = told.types if isinstance(told, Lines) else (told,)
    found = TypeAdapter(reduce(or_, (*types, shared.Failed))).json_schema()
    lines = " One line for each event, the summary last." if isinstance(told, Lines) else ""
    return {"$schema": DIALECT, "title": f"manifest-platform {command} --json", "description": f"The answer.{lines}", **found}
