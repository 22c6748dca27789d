"""The state of a step in the operators' words: what it may do next, and its counts, as values.

Belongs here: the meaning of the manifest's verdicts and counts for a person. This module decides nothing and prints nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from manifest_platform.manifest import Application, Blocked, Idle, LeaseState, Ready, Record, Standing, State, Step, Verdict
from manifest_platform.manifest.beside import Need
from manifest_platform.manifest.dataset import position_name
from manifest_platform.manifest.reading import Kept
from manifest_platform.operations.bad_rows import GLANCE, BadRows, bad_rows
from manifest_platform.operations.told import Told, told
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.chain import Broken
from manifest_platform.remedies import Action, Remedy

WORDS = {
    Standing.READY: "READY",
    Standing.WAITING: "NEW",
    Standing.PROCESSING: "PROCESSING",
    Standing.FAILED: "FAILED",
    Standing.LATE: "QUARANTINED",
    Standing.SUPERSEDED: "SUPERSEDED",
    Standing.SKIPPED: "SKIPPED",
    Standing.GAP: "GAP",
    Standing.OVERLAP: "OVERLAP",
    Standing.NEEDS_FULL: "NEEDS FULL",
    Standing.CUT_OFF: "CUT OFF",
    Standing.MODE: "HELD",
    Standing.INVALID: "INVALID",
}
"""The operators' words. An item that `load` has done is APPLIED; an item that `shred` has done is PROCESSED."""


class Answer(StrEnum):
    """The kind of thing that a step may do next."""

    READY = "READY"
    WAITING = "WAITING"
    PROCESSING = "PROCESSING"
    BLOCKED = "BLOCKED"
    IDLE = "IDLE"


@dataclass(frozen=True)
class Outlook:
    """The next action of a step: its item; and if it can do nothing, the reason, since when, and the remedy."""

    dataset: str
    feed: str
    step: str
    answer: Answer
    item: str | None = None
    reason: str = ""
    since: datetime | None = None
    remedy: Remedy | None = None


@dataclass(frozen=True)
class Behind:
    """The present delay of a feed, in seconds since the logical time of its watermark, and the delay that is expected at most.

    The age of the oldest waiting item does not show that a producer stopped, because then nothing waits.
    """

    watermark: str
    seconds: float
    expected_seconds: float

    @property
    def stopped(self) -> bool:
        """True if the next directory is overdue."""
        return self.seconds > self.expected_seconds


def behind(pipeline: Pipeline, feed: str, watermark: str | None) -> Behind | None:
    """Returns the delay of a feed by its watermark's name; None if nothing is loaded, or no interval is configured."""
    expected = pipeline.dataset.landing.expected_every_seconds.get(feed)
    time = pipeline.source.covers_upto(watermark) if watermark else None
    if expected is None or watermark is None or time is None:
        return None
    return Behind(watermark, (pipeline.clock() - time).total_seconds(), expected)


@dataclass(frozen=True)
class StepStatus:
    """The state of a step on a feed. `watermark`: for a feed of snapshots, the boundary. `behind`, `told`: only for load.

    `lag_seconds`: since the oldest waiting item was discovered; None if nothing waits. `counts`: by the operators' words.
    `failed`, `retried`, `late`, `reloads`, `quarantined`: names of such items; `remedies`: by these kinds, the remedy of the
    first item. `bad_rows`: only for shred, of the newest items. `told`: notes of the newest loads. `more`: the counts stop.
    """

    outlook: Outlook
    watermark: str | None
    watermark_time: datetime | None
    oldest_waiting: datetime | None
    lag_seconds: float | None
    counts: dict[str, int]
    more: bool
    failed: list[str]
    retried: list[str]
    late: list[str]
    reloads: list[str]
    quarantined: list[str]
    remedies: dict[str, Remedy]
    lease: dict[str, Any] | None
    bad_rows: BadRows | None = None
    behind: Behind | None = None
    told: Told | None = None


def working(application: str) -> Remedy:
    """Returns the remedy that makes a step work."""
    own = Application.parse(application).name not in (SHRED, LOAD)
    return Remedy(Action.RUN_PROGRAM, step=application) if own else Remedy(Action.DRAIN)


def helping(step: Step, verdict: Blocked) -> Remedy:
    """Returns the remedy for a blocked step. If it waits, this makes the preceding step work."""
    if verdict.standing is Standing.WAITING:
        waits_for = (name for name in step.upstream if not verdict.item.processed_by(step.needed(name)))
        return working(next(waits_for, LOAD))
    return verdict.remedy


def outlook(pipeline: Pipeline, feed: str, application: str, verdict: Verdict | None = None) -> Outlook:
    """Returns the next action of a step; of a load, with the end of a blackout, whatever it could do without one.

    `verdict`: the manifest's, which is read if it is not given.
    """
    verdict = verdict or pipeline.manifest.next(feed, application)
    found = _outlook(pipeline, feed, application, verdict)
    why = blackout_reason(pipeline) if Application.parse(application).name == LOAD else ""
    if not why:
        return found
    if isinstance(verdict, Ready):
        return Outlook(pipeline.name, feed, application, Answer.WAITING, found.item, why)
    return dataclasses.replace(found, reason=f"{found.reason}; {why}" if found.reason else why)


def _outlook(pipeline: Pipeline, feed: str, application: str, verdict: Verdict) -> Outlook:
    where = (pipeline.name, feed, application)
    if isinstance(verdict, Idle):
        return Outlook(*where, Answer.IDLE)
    work = working(application)
    name = verdict.item.key.name
    if isinstance(verdict, Ready) and application == SHRED and feed in pipeline.source.on_demand:
        # A snapshot is shredded only on demand. The oldest waiting snapshot is mostly older than the load, and would undo it.
        return Outlook(*where, Answer.IDLE, name, f"{name} is shredded when a full load begins with it")
    if isinstance(verdict, Ready):
        late = verdict.item.is_late_for(Application(application), verdict.state.feed(feed).serving_epoch)
        return Outlook(*where, Answer.READY, name, "late, to be appended" if late else "", remedy=work)
    assert isinstance(verdict, Blocked)  # only the lease's holder gets Abandoned
    helps = helping(pipeline.manifest.step(feed, application), verdict)
    if verdict.standing is Standing.WAITING:
        return Outlook(*where, Answer.WAITING, name, verdict.reason, verdict.since, helps)
    if verdict.standing is Standing.PROCESSING:
        worker = verdict.item.blocker(pipeline.manifest.serving_epochs(feed))
        lease = pipeline.manifest.lease(worker.application, feed) if worker else None
        if lease and lease.is_live(pipeline.clock()):
            return Outlook(*where, Answer.PROCESSING, name, verdict.reason, verdict.since)
        settles = working(worker.application.key) if worker else work
        return Outlook(
            *where, Answer.READY, name, "its worker is gone, and the next drain settles its work", verdict.since, settles
        )
    return Outlook(*where, Answer.BLOCKED, name, verdict.reason, verdict.since, helps)


def over_chain(outlook: Outlook, found: Iterable[Broken]) -> Outlook:
    """Returns the outlook, or a blocked one if the warehouse lacks rows that were loaded: then nothing is loaded at all."""
    for one in found:
        if (outlook.feed, outlook.step) == (one.feed, one.step):
            return dataclasses.replace(
                outlook, answer=Answer.BLOCKED, item=None, reason=one.reason, since=None, remedy=one.remedy
            )
    return outlook


def done_last(pipeline: Pipeline, feed: str) -> list[Record]:
    """Returns the newest Processed records of a feed, in one query."""
    return pipeline.manifest.newest(feed, GLANCE, State.PROCESSED)


def step_status(
    pipeline: Pipeline, feed: str, application: str, kept: Kept | None = None, last: Sequence[Record] | None = None
) -> StepStatus:
    """Returns the state of a step on a feed.

    `kept`: the states and leases of all steps, and `last`: the result of `done_last`, if they were read just now.
    """
    if last is None:
        last = done_last(pipeline, feed) if Application.parse(application).name in (SHRED, LOAD) else ()
    survey = pipeline.manifest.survey(feed, application, kept)
    standing = survey.state.feed(feed)
    now = pipeline.clock()
    named = {
        "failed": [one.key.name for one in survey.needed if one.need is Need.FAILED],
        "retried": [one.key.name for one in survey.needed if one.need is Need.RETRY],
        "late": [key.name for key in survey.late],
        "reloads": [key.name for key in survey.reloads],
        "quarantined": [one.key.name for one in survey.needed if one.need is Need.SET_ASIDE],
    }
    counts = {WORDS[one]: count for one, count in survey.counts.items()}
    if survey.step.order == "strict":
        counts = {"APPLIED": standing.applied, **counts, "SKIPPED": standing.skipped, "QUARANTINED": standing.quarantined}
    full = survey.step.order == "full"
    watermark = survey.state.boundary if full else position_name(feed, standing.watermark) or None
    return StepStatus(
        outlook=outlook(pipeline, feed, application, survey.verdict),
        watermark=watermark,
        watermark_time=pipeline.source.time(watermark) if watermark else None,
        oldest_waiting=survey.oldest_waiting,
        lag_seconds=(now - survey.oldest_waiting).total_seconds() if survey.oldest_waiting else None,
        counts={word: count for word, count in counts.items() if count},
        more=survey.more,
        **named,
        remedies={kind: Remedy(Action.EXPLAIN, item=names[0]) for kind, names in named.items() if names},
        lease=_lease(survey.lease, now),
        bad_rows=bad_rows(feed, last) if application == SHRED else None,
        behind=behind(pipeline, feed, watermark) if Application.parse(application).name == LOAD else None,
        told=told(feed, last) if Application.parse(application).name == LOAD else None,
    )


def _lease(lease: LeaseState | None, now: datetime) -> dict[str, Any] | None:
    """Returns a live lease as a dict for people; None if nobody holds one."""
    if lease is None or not lease.is_live(now):
        return None
    return {"holder": lease.holder, "run": lease.run_id, "until": lease.expires_at, "token": lease.token}
