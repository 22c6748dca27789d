"""What operators decide on items, one or many: which items are meant, and each decision with what came of it.

Belongs here: `resolve`, `skip` and `unskip`, how items are chosen, and the rehearsal. What a decision does to the records is
the manifest's; `reshred` and `accept` are modules of their own.
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
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.errors import WarehouseError

Candidates = Callable[[Pipeline, str], Iterator[Item]]
"""The items of a feed that a decision can be about."""


@dataclass(frozen=True)
class Decision:
    """What became of a decision on an item: the record that says so, or why it was refused and what helps instead."""

    key: ItemKey
    record: Record | None = None
    refused: str = ""
    remedy: Remedy | None = None


def decide(pipeline: Pipeline, keys: Sequence[ItemKey], act: Callable[[ItemKey], Record], dry_run: bool) -> Iterator[Decision]:
    """Decides on each item by itself; one that is refused holds no other up. `dry_run`: by all rules, nothing is written."""
    with pipeline.manifest.rehearsing() if dry_run else nullcontext():
        for key in keys:
            try:
                yield Decision(key, act(key))
            except Refused as refused:
                yield Decision(key, refused=str(refused), remedy=refused.remedy)


# Which items


def is_pattern(pipeline: Pipeline, name: str) -> bool:
    """Whether a name is a pattern for names, as `run=2024-05-14-*`, and no item's id: a URL may have a question mark."""
    return any(sign in name for sign in "*?[") and pipeline.registered_as(name) is None


def chosen(pipeline: Pipeline, names: Sequence[str], among: Candidates, failed_since: datetime | None = None) -> list[ItemKey]:
    """The items that are meant, in order, each once: by name, URI or pattern, and of these only what failed since a time.

    A pattern means those that the decision can be about (`among`); without a name all of them. Raises Refused for a name that
    is none or of several, UnknownItem, ValueError where nothing is named and no time given.
    """
    if not names and failed_since is None:
        raise ValueError("name the items, by name, URI or pattern, or say since when they failed")
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
    """The items of a feed that failed and wait for a person."""
    for step in pipeline.manifest.steps(feed):
        yield from failed_by(pipeline.manifest, feed, step.application)


def undone(pipeline: Pipeline, feed: str) -> Iterator[Item]:
    """The items of a feed that some step has not done."""
    for step in pipeline.manifest.steps(feed):
        for item, _ in pipeline.manifest.backlog(feed, step.application.key):
            yield item


def passed_over(pipeline: Pipeline, feed: str) -> Iterator[Item]:
    """The items of a feed that are skipped or set aside: they lie anywhere, so all that are not archived are looked at."""
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


def resolve(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Frees a failed item for another attempt. Raises Refused if it is not blocked or is being worked on."""
    return pipeline.manifest.resolve(key, reason)


def skip(pipeline: Pipeline, key: ItemKey, reason: str, application: str = EVERYONE) -> Record:
    """Tells an application to pass over an item, unless the warehouse has it. Raises Refused if it is done or worked on.

    A manifest that was put back from a backup does not know what was loaded since: skipped, the rows would stay, and nobody
    would know of them. The ledger is asked where the warehouse can be; where it cannot, the manifest alone decides.
    """
    loads = key.feed in pipeline.feeds and Application(LOAD).is_stopped_by(Application.parse(application))
    if loads and (applied := _applied(pipeline, key)):
        what = f"{key.name} is in the warehouse since {applied:%Y-%m-%d %H:%M:%S %Z}, and no record says so: skipped, its rows"
        if pipeline.manifest.item(key).processed_by(Application(SHRED)):
            raise Refused(f"{what} would stay. To repair records it as loaded", Remedy(Action.REPAIR))
        raise Refused(
            f"{what} would stay. It is recorded as loaded, and not loaded again, once it is shredded, for which its directory"
            " must be there",
            Remedy(Action.DRAIN),
        )
    return pipeline.manifest.skip(key, reason, application)


def _applied(pipeline: Pipeline, key: ItemKey) -> datetime | None:
    """When the warehouse applied an item that no record calls loaded; None where it did not, or cannot be asked."""
    manifest = pipeline.manifest
    step = manifest.step(key.feed, LOAD)
    state = manifest.state(step.application).seen_by(step, key.feed)
    if judge(manifest.item(key), step, state).standing in PASSED:
        return None
    try:
        return pipeline.applied_at(key, state.serving_epoch)
    except WarehouseError:
        return None


def unskip(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Lifts every skip of an item, or lets in one that is set aside. Raises Refused if it is neither, or its place is gone."""
    return pipeline.manifest.unskip(key, reason)


def comes_next(pipeline: Pipeline, key: ItemKey) -> tuple[str, Remedy]:
    """What an item that was let in waits for until it is loaded, and what helps on.

    That it is New says nothing where it failed before, or where another item blocks the feed.
    """
    manifest = pipeline.manifest
    item = manifest.item(key)
    for step in manifest.steps(key.feed):
        judged = judge(item, step, manifest.state(step.application).seen_by(step, key.feed))
        if judged.standing in (Standing.FAILED, Standing.CUT_OFF):
            return f"it is BLOCKED still: {judged.reason}", blocked(item, judged).remedy
    if key.feed not in pipeline.feeds:
        return "its steps take it when its turn comes", Remedy(Action.SHOW_NEXT)
    verdict = manifest.next(key.feed, LOAD)
    if not isinstance(verdict, Blocked) or verdict.standing is Standing.WAITING:
        return "the next drain takes it", Remedy(Action.DRAIN)
    own = verdict.item.key == key
    waits = "it waits" if own else f"it waits for {verdict.item.key.name}, which comes first"
    return f"{waits}: {verdict.reason}", helping(manifest.step(key.feed, LOAD), verdict)
