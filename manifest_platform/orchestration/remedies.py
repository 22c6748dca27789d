"""Remedies on Dagster's pages: the job to launch or the partition to materialize, and the command to type.

The only place of the orchestration that puts remedies into words. Commands name the dataset if there are several.
"""

from collections.abc import Sequence

from manifest_platform.orchestration.duties import drain_job_name
from manifest_platform.orchestration.keys import Names
from manifest_platform.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy

_COMMANDS = {
    Action.RESOLVE: "resolve {0.item}",
    Action.RESHRED: "reshred {0.item}",
    Action.ACCEPT: "accept {0.item} --reason TEXT",
    Action.KEEP: "accept {0.item} --keep --reason TEXT",
    Action.SKIP: "skip {0.item} --reason TEXT",
    Action.UNSKIP: "unskip {0.item}",
    Action.READ_RECORDS: "history {0.item}",
    Action.RELOAD_MISSING: "reload {0.item} --missing-rows",
    Action.EXPLAIN: "explain {0.item}",
    Action.DISCOVER_ALL: "discover --all",
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
"""The commands of remedies that a run or a check can report. Other remedies occur at a terminal only."""


def command_of(remedy: Remedy, pipeline: Pipeline) -> str:
    """Returns the command of a remedy; its plain words if it has no command here."""
    if remedy.action not in _COMMANDS:
        return str(remedy)
    options = f" --dataset {pipeline.name}" if len(pipeline.config.datasets) > 1 else ""
    if target := remedy.target_of(_first(pipeline)):
        options = f" --target {target}{options}"
    return f"manifest-platform {_COMMANDS[remedy.action].format(remedy.quoted())}{options}"


def _first(pipeline: Pipeline) -> str:
    """Returns the first target of a dataset with several; empty for a dataset with one."""
    return pipeline.targets[0] if len(pipeline.targets) > 1 else ""


def pressed(remedy: Remedy, pipeline: Pipeline, names: Names) -> str:
    """Returns the remedy's action in Dagster (a job to launch, a partition to materialize); empty if Dagster has none."""
    name, target = pipeline.name, remedy.target_of(_first(pipeline))
    snapshot = remedy.item if remedy.action in (Action.LOAD_SNAPSHOT, Action.ALLOW_EMPTY, Action.ALLOW_SHRINK) else ""
    values = {"item": snapshot, "target": target}
    values |= {"allow_empty": "true"} if remedy.action is Action.ALLOW_EMPTY else {}
    values |= {"allow_shrink": "true"} if remedy.action is Action.ALLOW_SHRINK else {}
    given = ", ".join(f"{key}: {value}" for key, value in values.items() if value)
    config = f", with {given}" if given else ""
    drains = _jobs(pipeline, remedy.item)
    match remedy.action:
        case Action.DRAIN if remedy.item and drains:
            stages = _stages(pipeline, names.at(remedy.target or pipeline.targets[0]), remedy.item)
            return f"materialize the partition {remedy.item} of {stages} first, or launch the job {drains}"
        case Action.DRAIN if drains:
            return f"launch the job {drains}"
        case Action.CAPTURE if pipeline.source.captures:
            return f"launch the job {name}_capture"
        case Action.CAPTURE_SNAPSHOT if pipeline.source.captures:
            return f"launch the job {name}_capture, with feeds: [{remedy.feed}]"
        case Action.BEGIN_FULL_LOAD | Action.LOAD_SNAPSHOT | Action.ALLOW_EMPTY | Action.ALLOW_SHRINK:
            return f"launch the job {name}_full_begin{config}"
        case Action.CANCEL_FULL_LOAD:
            return f"launch the job {name}_full_cancel{config}"
    return ""


def _feeds(pipeline: Pipeline, item: str) -> Sequence[str]:
    """Returns the feeds to which an item may belong, by its name; all feeds if the name does not tell."""
    found = [named.feed for named in pipeline.source.named(item)] if item else []
    return found or pipeline.feeds


def _jobs(pipeline: Pipeline, item: str) -> str:
    """Returns the jobs that drain an item's possible feeds."""
    feeds = set(_feeds(pipeline, item))
    return " or ".join(drain_job_name(pipeline.name, one) for one in pipeline.source.drains if feeds & set(one.feeds))


def _stages(pipeline: Pipeline, names: Names, item: str) -> str:
    """Returns the assets that shred and load an item."""
    feed = _feeds(pipeline, item)[0]
    return f"{names.shredded(feed).to_user_string()} and {names.warehouse(feed).to_user_string()}"


def advice(error: Exception, pipeline: Pipeline, names: Names) -> dict[str, str]:
    """Returns the remedy of an error, for the metadata of a failure; empty if the error names none."""
    remedy = getattr(error, "remedy", None)
    if remedy is None:
        return {}
    shown = {"item": remedy.item, "in_dagster": pressed(remedy, pipeline, names), "in_a_terminal": command_of(remedy, pipeline)}
    return {label: text for label, text in shown.items() if text}


def told(error: Exception, pipeline: Pipeline, names: Names) -> str:
    """Returns an error's message, followed by its remedy in Dagster and in a terminal if the error names one."""
    remedy = getattr(error, "remedy", None)
    if remedy is None:
        return str(error)
    sentence, command = str(error).rstrip("."), command_of(remedy, pipeline)
    if remedy.action.only_looks:
        return f"{sentence}. See {command}"
    if press := pressed(remedy, pipeline, names):
        return f"{sentence}. In Dagster: {press}. In a terminal: {command}"
    if remedy.item and (jobs := _jobs(pipeline, remedy.item)):
        then = f"Then, in Dagster: materialize again, or launch the job {jobs}"
        return f"{sentence}. Do this first, in a terminal: {command}. {then}"
    return f"{sentence}. Do this first: {command}"
