"""What a person can do, as Dagster's page tells it: the command to type, with the dataset where there are several.

Belongs here: the one place of the orchestration that puts remedies into words.
"""

from manifest_platform.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy

_COMMANDS = {
    Action.RESOLVE: "resolve {0.item}",
    Action.RESHRED: "reshred {0.item}",
    Action.ACCEPT: "accept {0.item} --reason TEXT",
    Action.KEEP: "accept {0.item} --keep --reason TEXT",
    Action.UNSKIP: "unskip {0.item}",
    Action.READ_RECORDS: "history {0.item}",
    Action.EXPLAIN: "explain {0.item}",
    Action.CAPTURE: "capture",
    Action.CAPTURE_SNAPSHOT: "capture --feed {0.feed}",
    Action.BEGIN_FULL_LOAD: "full begin latest",
    Action.LOAD_SNAPSHOT: "full begin {0.item}",
    Action.ALLOW_EMPTY: "full begin {0.item} --allow-empty",
    Action.ALLOW_SHRINK: "full begin {0.item} --allow-shrink",
    Action.CANCEL_FULL_LOAD: "full cancel",
    Action.DRAIN: "drain",
    Action.SHOW_STATUS: "status",
    Action.SHOW_NEXT: "next",
    Action.EXAMINE: "doctor",
    Action.REPAIR: "doctor --repair",
    Action.RECONCILE: "warehouse reconcile",
    Action.RECONCILE_IN_FULL: "warehouse reconcile --full",
    Action.ACCEPT_WAREHOUSE: "warehouse accept --reason TEXT",
    Action.CREATE_STORE: "store create",
    Action.RETRY_MERGE: "merge retry {0.table} {0.day}",
}
"""Of what a run or a check can tell; the rest is asked for at a terminal, and told there."""


def command_of(remedy: Remedy, pipeline: Pipeline) -> str:
    """The command that a remedy is; its words where no run or check tells it."""
    if remedy.action not in _COMMANDS:
        return str(remedy)
    options = f" --dataset {pipeline.name}" if len(pipeline.config.datasets) > 1 else ""
    return f"manifest-platform {_COMMANDS[remedy.action].format(remedy.quoted())}{options}"


def told(error: Exception, pipeline: Pipeline) -> str:
    """What went wrong, and behind it what helps, where the error knows it."""
    remedy = getattr(error, "remedy", None)
    if remedy is None:
        return str(error)
    lead = "See" if remedy.action.only_looks else "Do this first:"
    return f"{str(error).rstrip('.')}. {lead} {command_of(remedy, pipeline)}"
