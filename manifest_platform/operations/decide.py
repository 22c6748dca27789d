"""Decisions of operators on items: `resolve`, `skip` and `unskip`, for one item or many.

Belongs here: the choice of items by name, pattern or time of failure, the decisions, and their dry run. The effect of a
decision on the records is defined by the manifest; `reshred` and `accept` are modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from manifest_platform.manifest import EVERYONE, Application, Blocked, Item, ItemKey, Record, Refused, Standing, State
from manifest_platform.manifest.dataset import PASSED, blocked, judge
from manifest_platform.manifest.queries import failed_by
from manifest_platform.operations.standing import helping
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.errors import WarehouseError

Candidates = Callable[[Pipeline, str], Iterator[Item]]
"""A function that yields the items of a feed to which a decision can apply."""


@dataclass(frozen=True)
class Decision:
    """The outcome of a decision on an item: its record, or the reason of a refusal with its remedy."""

    key: ItemKey
    record: Record | None = None
    refused: str = ""
    remedy: Remedy | None = None


def decide(pipeline: Pipeline, keys: Sequence[ItemKey], act: Callable[[ItemKey], Record], dry_run: bool) -> Iterator[Decision]:
    """Decides on each item separately: a refusal does not stop the others. `dry_run`: applies all rules and writes nothing."""
    with pipeline.manifest.rehearsing() if dry_run else nullcontext():
        for key in keys:
            try:
                yield Decision(key, act(key))
            except Refused as refused:
                yield Decision(key, refused=str(refused), remedy=refused.remedy)


# Choosing items


def is_pattern(pipeline: Pipeline, name: str) -> bool:
    """True if a name is a pattern such as `run=2024-05-14-*`, and not an item's id: a URL may contain a question mark."""
    return any(sign in name for sign in "*?[") and pipeline.registered_as(name) is None


def chosen(pipeline: Pipeline, names: Sequence[str], among: Candidates, failed_since: datetime | None = None) -> list[ItemKey]:
    """Returns the chosen items in order, without duplicates: by name, URI or pattern; or of these, those failed since a time.

    A pattern selects from the items to which the decision can apply (`among`); without names, all of these are selected.
    Raises Refused if a name is invalid or ambiguous, UnknownItem if there is no such item, ValueError without names and time.
    """
    if not names and failed_since is None:
        raise ValueError("no items were chosen: name them (by name, URI or pattern), or give the time since which they failed")
    meant = {name: is_pattern(pipeline, name) for name in names}
    literal = [pipeline.key(name) for name, pattern in meant.items() if not pattern]
    patterns = [name for name, pattern in meant.items() if pattern] or ([] if names else ["*"])
    found = dict.fromkeys(literal)
    for feed in pipeline.manifest.feeds if patterns else ():
        for item in among(pipeline, feed):
            if any(fnmatchcase(item.key.name, pattern) for pattern in patterns):
                found[item.key] = None
    keys = sorted(found)
    if failed_since is None:
        return keys
    return [key for key in keys if _failed_since(pipeline, key, failed_since)]


def _failed_since(pipeline: Pipeline, key: ItemKey, since: datetime) -> bool:
    serving = pipeline.manifest.serving_epochs(key.feed)
    failed = (one for one in pipeline.manifest.item(key).open_records(serving) if one.state is State.FAILED)
    return any(record.timestamp >= since for record in failed)


def failed(pipeline: Pipeline, feed: str) -> Iterator[Item]:
    """Yields the items of a feed that failed and require a decision."""
    for step in pipeline.manifest.steps(feed):
        yield from failed_by(pipeline.manifest, feed, step.application)


def undone(pipeline: Pipeline, feed: str) -> Iterator[Item]:
    """Yields the items of a feed that at least one step has not done, once for each such step."""
    for step in pipeline.manifest.steps(feed):
        for item, _ in pipeline.manifest.backlog(feed, step.application.key):
            yield item


def loaded(pipeline: Pipeline, feed: str) -> Iterator[Item]:
    """Yields the items of a feed that are loaded into the pipeline's target. Reads all items that are not archived."""
    serving = pipeline.manifest.serving_epochs(feed).get(pipeline.load.key, 1)
    for item in pipeline.manifest.items(feed, archived=False):
        if item.processed_by(pipeline.load, serving):
            yield item


def passed_over(pipeline: Pipeline, feed: str) -> Iterator[Item]:
    """Yields the items of a feed that are skipped or quarantined. Reads all items that are not archived."""
    steps = pipeline.manifest.steps(feed)
    states = {step.application.key: pipeline.manifest.state(step.application) for step in steps if step.ordered}
    for item in pipeline.manifest.items(feed, archived=False):
        if any(
            judge(item, step, states[step.application.key].seen_by(step, feed)).standing in (Standing.SKIPPED, Standing.LATE)
            if step.ordered
            else item.skipped_for(step.application)
            for step in steps
        ):
            yield item


# The decisions


def resolve(pipeline: Pipeline, key: ItemKey, reason: str, only: bool = False) -> Record:
    """Frees a failed item for another attempt. Raises Refused if it is not blocked or is being worked on.

    `only`: only from the failure of the pipeline's target. Without it, an item that failed for several targets is refused.
    """
    if only:
        return pipeline.manifest.resolve(key, reason, pipeline.load)
    if len(pipeline.targets) > 1:
        serving = pipeline.manifest.serving_epochs(key.feed)
        records = pipeline.manifest.item(key).open_records(serving)
        stopped = {one.application.key for one in records if one.state is State.FAILED}
        targets = [one.target for one in pipeline.each_target() if one.load.key in stopped]
        if len(targets) > 1:
            raise Refused(f"{key.name} failed for several targets; name one of them: {', '.join(targets)}")
    return pipeline.manifest.resolve(key, reason)


def skip(pipeline: Pipeline, key: ItemKey, reason: str, application: str = EVERYONE) -> Record:
    """Makes an application pass over an item. Raises Refused if the item is done, in work, or already in the warehouse.

    A manifest that was restored from a backup does not know the items that were loaded since. If such an item were skipped, its
    rows would stay in the warehouse unnoticed. So the ledger is asked first. If it is unreachable, the manifest alone decides.
    """
    who = Application.parse(application)
    item = pipeline.manifest.item(key)
    if any(item.is_reload_asked(one.load) for one in pipeline.each_target() if one.load.is_stopped_by(who)):
        raise Refused(f"{key.name} waits to be reloaded, and its rows are in the warehouse. A skip would leave them there")
    stopped = [one for one in pipeline.each_target() if one.load.is_stopped_by(who)] if key.feed in pipeline.feeds else []
    if applied := next(filter(None, (_applied(one, key) for one in stopped)), None):
        what = (
            f"{key.name} was loaded into the warehouse at {applied:%Y-%m-%d %H:%M:%S %Z}, but the manifest has no record of it."
            " A skip would leave its rows in the warehouse"
        )
        if pipeline.manifest.item(key).processed_by(Application(SHRED)):
            raise Refused(f"{what}. Repair the manifest instead, which records the item as loaded", Remedy(Action.REPAIR))
        raise Refused(
            f"{what}. Let it be shredded again instead, for which its directory must exist. It is then recorded as loaded,"
            " without a second load",
            Remedy(Action.DRAIN),
        )
    return pipeline.manifest.skip(key, reason, application)


def _applied(pipeline: Pipeline, key: ItemKey) -> datetime | None:
    """Returns the time at which the warehouse applied an item that the manifest does not have as loaded.

    None if the warehouse did not apply it, or is unreachable.
    """
    manifest = pipeline.manifest
    step = manifest.step(key.feed, pipeline.load.key)
    state = manifest.state(step.application).seen_by(step, key.feed)
    if judge(manifest.item(key), step, state).standing in PASSED:
        return None
    try:
        entry = pipeline.ledger_entry(key, state.serving_epoch)
    except WarehouseError:
        return None
    return entry.applied_at if entry else None


def unskip(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Lifts all skips of an item, or admits a quarantined one. Raises Refused if it is neither, or its position is passed."""
    return pipeline.manifest.unskip(key, reason)


def comes_next(pipeline: Pipeline, key: ItemKey) -> tuple[str, Remedy]:
    """Returns what an admitted item waits for until it is loaded, and the remedy.

    The state New alone does not say this: the item may have failed before, or another item may block the feed.
    """
    manifest = pipeline.manifest
    item = manifest.item(key)
    for step in manifest.steps(key.feed):
        judged = judge(item, step, manifest.state(step.application).seen_by(step, key.feed))
        if judged.standing in (Standing.FAILED, Standing.CUT_OFF):
            return f"it is still BLOCKED: {judged.reason}", blocked(item, judged).remedy
    if key.feed not in pipeline.feeds:
        return "its steps take it in order", Remedy(Action.SHOW_NEXT)
    verdict = manifest.next(key.feed, pipeline.load.key)
    if not isinstance(verdict, Blocked) or verdict.standing is Standing.WAITING:
        return "the next drain takes it", Remedy(Action.DRAIN)
    own = verdict.item.key == key
    waits = "it waits" if own else f"it waits for {verdict.item.key.name}, which comes first"
    return f"{waits}: {verdict.reason}", helping(manifest.step(key.feed, pipeline.load.key), verdict)
