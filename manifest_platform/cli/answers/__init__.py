"""What each command answers with --json: a type for each document, and from these the JSON Schemas.

A command answers one document; those that work on for long, and tell what happens as it happens, answer a line of JSON for each
event and the summary last: `Lines`. A command that cannot do what it was asked answers a `Failed`, whichever it is. Fields stay
what they are within a major release; new ones may come, so readers pass over what they do not know.

Imported by the command `schema` alone, and by tests, which hold all answers that they meet against these types.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pydantic import TypeAdapter

from manifest_platform.cli.answers import looks, merging, shared, work

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Lines:
    """Several documents, a line each: any of these types."""

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
    "tables": looks.Tables,
    "cost": looks.Costs,
    "sql": shared.Rows,
    "preview": looks.Preview | looks.Roots | looks.NotRecognized,
    "init": looks.Project | looks.NotRecognized,
    "capture": Lines((work.Captured, work.Diverged, work.CaptureFailed, work.Awaited, work.CaptureEnded)),
    "discover": work.Discovered,
    "drain": Lines((work.DrainDiscovered, work.NotDiscovered, work.ShredEvent, work.Loaded, work.Drained)),
    "full begin": Lines((work.ShredEvent, work.Begun)),
    "full status": work.FullStatus,
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
    "config show": dict[str, Any],
    "config check": looks.CheckedConfig,
    "config schema": dict[str, Any],
    "config reference": looks.Page,
    "warehouse reconcile": work.WarehouseReconciled,
    "warehouse accept": work.WarehouseAccepted,
    "store create": looks.Setup,
    "store check": looks.Setup,
    "store upgrade": work.Upgraded,
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
"""The answer of every command, by what is typed after the program's name."""


def schema(command: str) -> dict[str, Any]:
    """The JSON Schema of a command's answer; of what is answered in lines, of each line. Raises KeyError."""
    told = ANSWERS[command]
    types = told.types if isinstance(told, Lines) else (told,)
    found = TypeAdapter(reduce(or_, (*types, shared.Failed))).json_schema()
    lines = " A line for each event, the summary last." if isinstance(told, Lines) else ""
    return {"$schema": DIALECT, "title": f"manifest-platform {command} --json", "description": f"The answer.{lines}", **found}
