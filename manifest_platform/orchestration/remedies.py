"""Remedies on Dagster's pages: the job to launch or the partition to materialize, and the command to type.

The only place of the orchestration that puts remedies into words. Commands name the dataset if there are several.
"""

from collections.abc import Sequence

from manifest_platform.operations.remedy_commands import COMMANDS
from manifest_platform.orchestration.duties import drain_job_name
from manifest_platform.orchestration.keys import Names
from manifest_platform.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy


def command_of(remedy: Remedy, pipeline: Pipeline) -> str:
    """Returns the command of a remedy; its plain words if it has no command here."""
    if remedy.action not in COMMANDS:
        return str(remedy)
    options = f" --dataset {pipeline.name}" if len(pipeline.config.datasets) > 1 else ""
    if target := remedy.target_of(_first(pipeline)):
        options = f" --target {target}{options}"
    return f"manifest-platform {COMMANDS[remedy.action].format(remedy.quoted())}{options}"


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
