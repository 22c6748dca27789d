"""The place of a program of the product: run again with its arguments and the answers so far, it yields its next request.

Belongs here: the compact form of arguments and answers, and the product's objects that they stand for. `program` decides what
an answer is in a world.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from manifest_platform.listing import Listing
from manifest_platform.manifest import Abandoned, Item, Ready, State, StepState
from manifest_platform.manifest.claims import Claim
from manifest_platform.manifest.records import Record
from manifest_platform.manifest.store import ConditionFailed
from manifest_platform.operations import reconcile
from manifest_platform.operations.reconcile import AskRecord, AskSnapshot, AskStop, FindLacking, Lacking, ReadFence
from manifest_platform.pipeline import catching_up, full, loading
from manifest_platform.pipeline.loading import Declared
from manifest_platform.pipeline.requests import (
    Apply,
    ApplyAll,
    AskLedger,
    ClaimNext,
    ClaimTogether,
    Program,
    ReadState,
    Request,
)
from manifest_platform.pipeline.shredding import OutputGone
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, LedgerEntry, other_content
from manifest_platform.warehouse.errors import (
    Behind,
    CannotLoad,
    EpochInUse,
    Fenced,
    LoadFailed,
    ManifestBehind,
    NotTogether,
    SnapshotAhead,
    Unbelieved,
    Unclear,
)
from manifest_platform.warehouse.rules import Held
from manifest_platform_tests.model.scope import START, Scope

Answer = tuple
"""The answer to a request, as a name and numbers: `("fenced", token, epoch)`."""

DONE: Answer = ("done",)
LOADING, SETTLING, CANCELLING = "load", "settle", "settle to cancel"
LOADING_TOGETHER = "load together"
RECONCILING, ACCEPTING = "reconcile", "accept"
NOTHING = Listing("", "", 0, 0, 0, (), ())
GONE = OutputGone("the listing is gone", "")

ERRORS: dict[str, Callable[..., Exception]] = {
    "fenced": lambda token, epoch: Fenced("", (0, 0), token, epoch),
    "unclear": lambda: Unclear("no answer"),
    "behind": lambda: Behind("", "", ""),
    "in use": lambda: EpochInUse("in use"),
    "unbelieved": lambda: Unbelieved("", "", "", ""),
    "manifest behind": lambda record: ManifestBehind("", record),
    "ahead": lambda: SnapshotAhead("ahead"),
    "unreadable": lambda: LoadFailed("unreadable"),
    "conflict": lambda: ConditionFailed(()),
    "other content": lambda: other_content("", "", None),
    "gone": lambda: GONE,
    "not together": lambda: NotTogether("the fence or the ledger refuse an item"),
}


class Begun(NamedTuple):
    """A program that was begun: with an item as it was read (`log`), and the state that was read, or the open record.

    `life`: the life of the manifest in which it was begun. `gone`: the item's output is lost. `more`: the items that are loaded
    together with it, each with its log.
    """

    name: str
    job: int
    item: int
    log: int
    state: int = 0
    opened: int = 0
    life: int = 0
    answers: tuple[Answer, ...] = ()
    gone: bool = False
    more: tuple[tuple[int, int], ...] = ()

    def answered(self, answer: Answer) -> Begun:
        """The program after one more answer."""
        return self._replace(answers=(*self.answers, answer))


class Place(NamedTuple):
    """The place of a program: its next request, or its end: a result, or an error that it does not handle."""

    request: Request[Any] | None
    result: Any = None
    error: Exception | None = None


class Replay:
    """The programs of a scope."""

    def __init__(self, scope: Scope):
        self._scope = scope
        self._declared = Declared(scope.view.feeds)
        self._places: dict[Begun, Place] = {}

    def place(self, begun: Begun) -> Place:
        """The place of a program."""
        found = self._places.get(begun)
        if found is None:
            found = self._places[begun] = self._replay(begun)
        return found

    def _replay(self, begun: Begun) -> Place:
        try:
            program = self._begin(begun)
            request = next(program)
            for answer in begun.answers:
                if answer[0] in ERRORS:
                    request = program.throw(ERRORS[answer[0]](*answer[1:]))
                else:
                    request = program.send(self._answer(request, answer, begun))
        except StopIteration as end:
            return Place(None, end.value)
        except (Fenced, Unbelieved, ConditionFailed, CannotLoad) as error:
            return Place(None, error=error)
        return Place(request)

    def _begin(self, begun: Begun) -> Program[Any]:
        feed = self._scope.feeds[self._scope.jobs[begun.job].feed]
        if begun.name == RECONCILING:
            return reconcile.reconciling(self._declared, feed, "")
        if begun.name == ACCEPTING:
            return reconcile.accepting(self._declared, feed)
        item = self._scope.item(begun.item, begun.log)
        if begun.name == LOADING:
            return loading.loading(self._declared, Ready(item, self._scope.state(begun.state)), GONE if begun.gone else NOTHING)
        if begun.name == LOADING_TOGETHER:
            items = [item, *(self._scope.item(i, log) for i, log in begun.more)]
            state = self._scope.state(begun.state)
            return catching_up.loading_together(self._declared, items, state, [NOTHING] * len(items), 1)
        abandoned = Abandoned(item, item.records[begun.opened - 1])
        if begun.name == CANCELLING:
            return full.settling_to_cancel(self._declared, abandoned)
        return SETTLE(self._declared, abandoned)

    def _answer(self, request: Request[Any], answer: Answer, begun: Begun) -> object:
        match request:
            case ClaimNext(ready):
                return self._claim(begun, ready.item, ready.state)
            case ClaimTogether(items, state):
                return [self._claim(begun, item, state) for item in items]
            case ApplyAll(orders):
                return [Applied(self._entry(one.item, one.feed, answer[1], one.record_id)) for one in orders]
            case Apply(order):
                entry = self._entry(order.item, order.feed, *answer[1:])
                return AlreadyApplied(entry) if answer[0] == "already" else Applied(entry)
            case AskLedger(item) if answer != DONE:
                return self._entry(item, self._scope.feeds[self._scope.feed_of[begun.item]], *answer[1:])
            case ReadState():
                return self._scope.state(answer[1])
            case AskRecord() if answer != DONE:
                return self._entry("", "", *answer[1:])
            case AskSnapshot() | AskStop():
                return answer[1]
            case FindLacking():
                return [Lacking(self._scope.keys[i], *rest) for i, *rest in answer[1]]
            case ReadFence():
                return Held(*answer[1:])
        return None

    def _claim(self, begun: Begun, item: Item, state: StepState) -> Claim:
        step, sequence = self._scope.jobs[begun.job].step, item.sequence + 1
        name = self._scope.record_id(self._scope.number(item.key), sequence, begun.life)
        opened = Record(
            item.key.id, sequence, name, State.PROCESSING, step.application, "model", START, epoch=state.epoch, token=0
        )
        return Claim(item.with_record(opened), opened, step, state, "model")

    def _entry(self, item: str, feed: str, epoch: int, record: str, checksum: str = "") -> LedgerEntry:
        return LedgerEntry(item, feed, "", epoch, 0, record, False, {}, checksum, START)


SETTLE = loading.settling
"""The original function: a guard that is switched off replaces it only in the module that loads."""
