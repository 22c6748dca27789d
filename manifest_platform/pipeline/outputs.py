"""Outputs that assets read and make: one way to read what is committed and current, one way to commit.

Belongs here: what an asset's output consists of, be it a stage of the platform's or an asset of a user's own, and the commit of
the latter, in the manifest's order where a step of the asset's name is declared with one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from manifest_platform.manifest import (
    OUTPUT,
    Application,
    ItemKey,
    Lease,
    LeaseBusy,
    Payload,
    Ready,
    Record,
    Refused,
    Standing,
    Step,
)
from manifest_platform.manifest.dataset import PASSED, Judgement, judge
from manifest_platform.manifest.outputs import Made, Outputs, made_of
from manifest_platform.pipeline.chosen import check_order
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.program import choose
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD, SHRED, Stage

_STAGES = {str(Stage.SHREDDED): (SHRED,), str(Stage.WAREHOUSE): (LOAD, SHRED)}
"""Of each stage, whose work its output is. What was loaded is read as it was shredded."""
PATIENCE_SECONDS = 30.0
"""How long a commit waits for others of its asset: each takes some requests to the manifest, and no more."""


@dataclass(frozen=True)
class Read:
    """What is read of an asset's output for an item: the Parquet files, and the records that name them."""

    uris: tuple[str, ...]
    records: tuple[Made, ...]


def read_output(outputs: Outputs, key: ItemKey, asset: str, table: str) -> Read:
    """The current output of an asset for an item, by its name below dataset and feed: of a stage, that of a table.

    Raises NotCurrent where it is not done or superseded, OutputGone.
    """
    records = current_records(outputs, key, asset)
    uris = listing_of(outputs.item(key)).uris(table) if asset in _STAGES else [records[0].data["prefix"]]
    return Read(tuple(uris), tuple(Made.by(key, record) for record in records))


def current_records(outputs: Outputs, key: ItemKey, asset: str) -> list[Record]:
    """The records that an asset's current output for an item rests on. Raises NotCurrent, Refused for a name that is taken."""
    _refuse_taken(asset)
    return [outputs.current(key, Application(name)) for name in _STAGES.get(asset, (asset,))]


def declared_step(pipeline: Pipeline, feed: str, asset: str) -> Step | None:
    """The step of an asset's name, where the configuration declares one. Raises Refused for a step of the platform's."""
    _refuse_taken(asset)
    return next((step for step in pipeline.manifest.steps(feed) if step.application.key == asset), None)


def _refuse_taken(asset: str) -> None:
    """Raises Refused for an asset that is called as a step of the platform's, whose work it would claim to have done."""
    if asset in (SHRED, LOAD):
        raise Refused(f"no asset may be called {asset!r}: that is a step of the platform's. Give it another key")


def in_turn(pipeline: Pipeline, keys: Collection[ItemKey], asset: str) -> Sequence[ItemKey]:
    """The chosen items in the order in which an asset's outputs are committed.

    Raises OutOfOrder where a strict step is declared for it, and what is not chosen comes before one of them; Refused for one
    that the step passes over.
    """
    feed = next(iter(keys)).feed
    step = declared_step(pipeline, feed, asset)
    if step is None or step.order != "strict":
        return sorted(keys)
    with _lease(pipeline, step, feed) as lease:
        choose(pipeline, lease, None)  # what a worker that died has left is ended
        standings = {key: _standing(pipeline, key, step) for key in sorted(keys)}
        for key, judged in standings.items():
            if judged.standing in PASSED - {Standing.DONE}:
                raise Refused(f"{key.name} is {judged.standing} for {asset}: {judged.reason}")
        done = [key for key, judged in standings.items() if judged.standing is Standing.DONE]
        left = [key for key in standings if key not in done]
        return [*done, *(check_order(pipeline, left, asset) if left else ())]


def commit_output(pipeline: Pipeline, key: ItemKey, asset: str, prefix: str, rows: int, made_from: Iterable[Made]) -> Record:
    """Commits an asset's output for an item: at once; under the lease of the step of the asset's name, where one is declared.

    What the step has done already is made anew in its place. Raises OutOfOrder for an item that is not next for a strict step,
    NotCurrent where something that the output was made from was superseded meanwhile, Refused for a blocked item.
    """
    made = tuple(made_from)
    application, payload = Application(asset), Payload(OUTPUT, {"prefix": prefix, "rows": rows})
    step = declared_step(pipeline, key.feed, asset)
    if step is None:
        return pipeline.manifest.commit_output(key, application, payload, made)
    _check_waits(pipeline, step, made)
    with _lease(pipeline, step, key.feed) as lease:
        verdict = choose(pipeline, lease, None) if step.ordered else None  # what a worker that died has left is ended first
        if _standing(pipeline, key, step).standing is Standing.DONE:
            return pipeline.manifest.commit_output(key, application, payload, made)
        if step.ordered:
            check_order(pipeline, [key], asset)
        verdict = verdict or choose(pipeline, lease, key)
        if not isinstance(verdict, Ready) or verdict.item.key != key:
            raise Refused(f"{key.name} cannot be committed by {asset} now", Remedy(Action.EXPLAIN, item=key.name))
        pipeline.manifest.outputs().require_current(made)
        [claim] = pipeline.manifest.claim(lease, [verdict.item], verdict.state)
        return pipeline.manifest.complete(claim, made_of(key, payload, made))


def _check_waits(pipeline: Pipeline, step: Step, made: Iterable[Made]) -> None:
    """Raises Refused where an output was made from what belongs to an epoch, and its step would not begin anew with that."""
    declared = {one.application.key: one for steps in pipeline.manifest.feeds.values() for one in steps}
    waits, left = set(), list(step.upstream)
    while left:
        waits.add(name := left.pop())
        left += declared[name].upstream if name in declared else ()
    for one in made:
        if one.epoch is not None and not waits & {one.application, LOAD}:
            upstream = one.application if one.application in declared else LOAD
            raise Refused(
                f"{step.application.key} was made from what {one.application} did in epoch {one.epoch}, and its step does not"
                f" wait for that: add {upstream} to its upstream, in the configuration under datasets.{pipeline.name}.steps"
            )


def _standing(pipeline: Pipeline, key: ItemKey, step: Step) -> Judgement:
    state = pipeline.manifest.state(step.application)
    return judge(pipeline.manifest.item(key), step, state.seen_by(step, key.feed))


@contextmanager
def _lease(pipeline: Pipeline, step: Step, feed: str) -> Generator[Lease]:
    """The step's lease; another's is waited for a while. Raises LeaseBusy."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            lease = pipeline.manifest.acquire(
                feed, step.application.key, pipeline.holder, timedelta(seconds=pipeline.config.lease.seconds)
            )
            break
        except LeaseBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    with lease:
        yield lease
