"""The rule of retention: whether an item's data may be deleted, or why it is kept.

Belongs here: one pure function from facts to a verdict. `facts` reads the facts, `run` acts on the verdicts. Each guard
protects what a later operation needs; for each, a test fails without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from manifest_platform.manifest import Holding, Item, Mode, Standing, Step, StepState
from manifest_platform.manifest.dataset import BEYOND_IDS, PASSED, judge
from manifest_platform.sources.settings import DataRetention


class Why(StrEnum):
    """The reason why data is kept."""

    YOUNG = "not old enough"
    UNFINISHED = "a step or a target is not done with it"
    FULL_LOAD = "a full load is in progress"
    NEWEST_FULL = "a full load of the newest snapshot needs it"
    MERGING = "merging, or readers of merged tables, need it"
    LAST_COPY = "it is the last copy"
    BOUND = "it cannot be deleted by itself"
    REWRITTEN = "it was rewritten, and nobody accepted it"
    UNREADABLE = "its state is not known"


@dataclass(frozen=True)
class Verdict:
    """The verdict on an item's data. `why`: the reason why it is kept; None if it may be deleted. `detail`: in words."""

    why: Why | None = None
    detail: str = ""

    @property
    def may_delete(self) -> bool:
        """True if the data may be deleted."""
        return self.why is None


MAY_DELETE = Verdict()


@dataclass(frozen=True)
class Base:
    """The snapshot with which a full load would begin now, and its boundary in the feeds that it covers."""

    snapshot: Item
    boundary: str

    @classmethod
    def of(cls, snapshot: Item) -> Base | None:
        """The base that a snapshot is; None if it does not say when it was taken."""
        stop = snapshot.landed.stop if snapshot.landed else None
        return cls(snapshot, f"{stop}#{BEYOND_IDS}") if stop else None


@dataclass(frozen=True)
class Facts:
    """The facts about an item. Empty texts mean that nothing hinders.

    - `steps`, `states`: all steps of its feed, and the states of the ordered steps by application key.
    - `rewound`: a full load covers the feed, or loads its items. `base`: the newest snapshot that can be loaded in full.
    - `bound`: by data, why it cannot be deleted by itself.
    - `merging`: why merging or its readers need the shredded output.
    - `copies`: by data, what is wrong with the other copy: of the landed directory with the shredded output, and the reverse.
    - `rewritten`: how the landed directory differs from what was registered.
    - `unreadable`: why the state of the data is not known.
    """

    item: Item
    steps: Sequence[Step]
    states: Mapping[str, StepState]
    rewound: bool = False
    base: Base | None = None
    bound: Mapping[Holding, str] | None = None
    merging: str = ""
    copies: Mapping[Holding, str] | None = None
    rewritten: str = ""
    unreadable: str = ""


def idle_since(item: Item) -> datetime:
    """Returns the time of the newest record of an item, apart from those of retention itself."""
    return max(record.timestamp for record in item.records if not record.data.get("deletes"))


def judged(holding: Holding, facts: Facts, settings: DataRetention, now: datetime) -> Verdict:
    """Returns whether data of an item may be deleted. The item has the data: retention has not deleted it before."""
    return next(_reasons(holding, facts, settings, now), MAY_DELETE)


def _reasons(holding: Holding, facts: Facts, settings: DataRetention, now: datetime) -> Iterator[Verdict]:
    """Yields the reasons why data is kept, those that cost least to know first."""
    days, idle = settings.days(holding), now - idle_since(facts.item)
    if days is None or idle < timedelta(days=days):
        yield Verdict(Why.YOUNG)
    if facts.rewound:
        yield from _needed_by_full_loads(facts)
    yield from _unfinished(facts)
    if bound := (facts.bound or {}).get(holding):
        yield Verdict(Why.BOUND, bound)
    if facts.unreadable:
        yield Verdict(Why.UNREADABLE, facts.unreadable)
    if holding is Holding.LANDING:
        yield from _rewritten(facts)
    if holding is Holding.SHREDDED and facts.merging:
        yield Verdict(Why.MERGING, facts.merging)
    last_copies = settings.last_copy_days
    if (lost := (facts.copies or {}).get(holding)) and (last_copies is None or idle < timedelta(days=last_copies)):
        yield Verdict(Why.LAST_COPY, lost)


def _needed_by_full_loads(facts: Facts) -> Iterator[Verdict]:
    """Yields why a full load needs an item: it is in progress and may be canceled, or a person may begin it."""
    loading = next((key for key, state in facts.states.items() if state.mode is not Mode.INCREMENTAL), None)
    if loading:
        yield Verdict(Why.FULL_LOAD, f"{loading} loads a snapshot in full")
    position = facts.item.key.position
    if facts.base is None:
        yield Verdict(Why.NEWEST_FULL, "no snapshot was shredded yet")
    elif _is_snapshot(facts) and position >= facts.base.snapshot.key.position:
        yield Verdict(Why.NEWEST_FULL, "it is the newest snapshot, or landed after it")
    elif not _is_snapshot(facts) and position > facts.base.boundary:
        yield Verdict(Why.NEWEST_FULL, "a full load of the newest snapshot loads it again")


def _rewritten(facts: Facts) -> Iterator[Verdict]:
    """Yields that a landed directory has content that is in no table: whoever wrote it may want it loaded."""
    if facts.rewritten:
        yield Verdict(Why.REWRITTEN, facts.rewritten)


def _is_snapshot(facts: Facts) -> bool:
    return any(step.order == "full" for step in facts.steps)


def _unfinished(facts: Facts) -> Iterator[Verdict]:
    """Yields the steps that are not done with an item, and do not pass over it."""
    for step in facts.steps:
        state = facts.states.get(step.application.key, StepState())  # unordered steps keep none
        found = judge(facts.item, step, state.seen_by(step, facts.item.key.feed))
        passed_over = step.order == "full" and found.standing is Standing.READY  # an older snapshot: never loaded again
        if found.standing not in PASSED and not passed_over:
            yield Verdict(Why.UNFINISHED, f"{found.standing} for {step.application.key}")
