"""Outputs of assets: reading the committed and current output, and committing a new output.

Belongs here: the content of an asset's output, for stages of the platform and for users' own assets, and the commit of a user's
asset. The commit follows the manifest's order if a step with the asset's name is declared with an order.
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
from manifest_platform.manifest.records import FIRST_TARGET
from manifest_platform.pipeline.chosen import check_order
from manifest_platform.pipeline.pipeline import Pipeline, loads
from manifest_platform.pipeline.program import choose
from manifest_platform.pipeline.shredding import files_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD, SHRED, Stage


def stage_of(target: str) -> str:
    """Returns the name of the stage of items that are loaded into a target."""
    return str(Stage.WAREHOUSE) if target == FIRST_TARGET else f"{Stage.WAREHOUSE}:{target}"


def _steps_of(asset: str) -> tuple[Application, ...]:
    """Returns the applications whose work is an asset's output. Loaded items are read as they were shredded."""
    stage, _, target = asset.partition(":")
    if stage == Stage.SHREDDED:
        return (Application(SHRED),)
    return (loads(target or FIRST_TARGET), Application(SHRED)) if stage == Stage.WAREHOUSE else (Application(asset),)


def _is_stage(asset: str) -> bool:
    return asset.partition(":")[0] in (Stage.SHREDDED, Stage.WAREHOUSE)


PATIENCE_SECONDS = 30.0
"""The time for which a commit waits for other commits of its asset. Each takes only a few requests to the manifest."""


@dataclass(frozen=True)
class Read:
    """The output of an asset for an item: the Parquet files, and the records that name them."""

    uris: tuple[str, ...]
    records: tuple[Made, ...]


def read_output(outputs: Outputs, key: ItemKey, asset: str, table: str) -> Read:
    """Reads the current output of an asset for an item. `asset`: its name below dataset and feed. `table`: only for a stage.

    Raises NotCurrent if the output is not done or superseded, OutputGone.
    """
    records = current_records(outputs, key, asset)
    uris = files_of(outputs.item(key), table).uris(table) if _is_stage(asset) else [records[0].data["prefix"]]
    return Read(tuple(uris), tuple(Made.by(key, record) for record in records))


def current_records(outputs: Outputs, key: ItemKey, asset: str) -> list[Record]:
    """Returns the records of an asset's current output for an item. Raises NotCurrent, Refused for a reserved name."""
    _refuse_taken(asset)
    return [outputs.current(key, application) for application in _steps_of(asset)]


def declared_step(pipeline: Pipeline, feed: str, asset: str) -> Step | None:
    """Returns the declared step with an asset's name; None if there is none. Raises Refused for a step of the platform."""
    _refuse_taken(asset)
    return next((step for step in pipeline.manifest.steps(feed) if step.application.key == asset), None)


def _refuse_taken(asset: str) -> None:
    """Raises Refused for an asset with the name of a platform step, whose work it would claim to have done."""
    if Application.parse(asset).name in (SHRED, LOAD):
        raise Refused(f"no asset may be called {asset!r}, because a step of the platform has this name. Choose another key")


def in_turn(pipeline: Pipeline, keys: Collection[ItemKey], asset: str) -> Sequence[ItemKey]:
    """Returns the chosen items in the order in which an asset's outputs are committed.

    Raises OutOfOrder if the asset's step is strict and an item that was not chosen precedes a chosen item; Refused for an item
    that the step passes over.
    """
    feed = next(iter(keys)).feed
    step = declared_step(pipeline, feed, asset)
    if step is None or step.order != "strict":
        return sorted(keys)
    with _lease(pipeline, step, feed) as lease:
        choose(pipeline, lease, None)  # ends the claims of dead workers
        standings = {key: _standing(pipeline, key, step) for key in sorted(keys)}
        for key, judged in standings.items():
            if judged.standing in PASSED - {Standing.DONE}:
                raise Refused(f"{key.name} is {judged.standing} for {asset}: {judged.reason}")
        done = [key for key, judged in standings.items() if judged.standing is Standing.DONE]
        left = [key for key in standings if key not in done]
        return [*done, *(check_order(pipeline, left, asset) if left else ())]


def commit_output(pipeline: Pipeline, key: ItemKey, asset: str, prefix: str, rows: int, made_from: Iterable[Made]) -> Record:
    """Commits an asset's output for an item. If a step with the asset's name is declared, this happens under its lease.

    Work that the step has done already is replaced. Raises OutOfOrder for an item that is not next for a strict step,
    NotCurrent if an input of the output was superseded meanwhile, Refused for a blocked item.
    """
    made = tuple(made_from)
    application, payload = Application(asset), Payload(OUTPUT, {"prefix": prefix, "rows": rows})
    step = declared_step(pipeline, key.feed, asset)
    if step is None:
        return pipeline.manifest.commit_output(key, application, payload, made)
    _check_waits(pipeline, step, made)
    with _lease(pipeline, step, key.feed) as lease:
        verdict = choose(pipeline, lease, None) if step.ordered else None  # first ends the claims of dead workers
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
    """Raises Refused if an output depends on the work of an epoch, and its step would not follow a new epoch."""
    declared = {one.application.key: one for steps in pipeline.manifest.feeds.values() for one in steps}
    waits, left = set(), list(step.upstream)
    while left:
        waits.add(name := left.pop())
        left += declared[name].upstream if name in declared else ()
    for one in made:
        if one.epoch is not None and not waits & {one.application, LOAD}:
            upstream = one.application if one.application in declared else LOAD
            raise Refused(
                f"{step.application.key} was made from the output of {one.application} in epoch {one.epoch}, and its step does"
                f" not wait for that: add {upstream} to its upstream in the configuration, under"
                f" datasets.{pipeline.name}.steps"
            )


def _standing(pipeline: Pipeline, key: ItemKey, step: Step) -> Judgement:
    state = pipeline.manifest.state(step.application)
    return judge(pipeline.manifest.item(key), step, state.seen_by(step, key.feed))


@contextmanager
def _lease(pipeline: Pipeline, step: Step, feed: str) -> Generator[Lease]:
    """Yields the step's lease, after waiting a while for another holder. Raises LeaseBusy."""
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
