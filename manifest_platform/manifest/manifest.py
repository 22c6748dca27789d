"""The manifest of one dataset: what may happen next, who may do it, and what has happened.

Belongs here: the decisions of operators, the start of a target, full loads. What a manifest can do besides is in
the modules that it builds on: `reading`, `choosing`, `registration`, `working`. Each operation reads what it needs, calls
a pure transition, and writes one transaction. The rules are in `dataset` and `transitions`, storage is behind `store`. Programs
that combine several operations are in `pipeline` and `operations`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from manifest_platform.manifest import deletion, transitions
from manifest_platform.manifest.choosing import FIRST_PAGE
from manifest_platform.manifest.dataset import StepState
from manifest_platform.manifest.deletion import Deletion, unchanged
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import Item, ItemKey, Landed, Move
from manifest_platform.manifest.keys import SKIP_RULES
from manifest_platform.manifest.lease import Lease
from manifest_platform.manifest.reading import DISCOVERY, OPERATOR, RETENTION
from manifest_platform.manifest.records import EVERYONE, Application, Record
from manifest_platform.manifest.registration import Discovered, lateness
from manifest_platform.manifest.rows import record_of
from manifest_platform.manifest.store import TRIES, Check, ConditionFailed, Put, Write, optimistically
from manifest_platform.manifest.working import Working
from manifest_platform.remedies import Action, Remedy


def _require_unchanged(item: Item, read: Item | None) -> None:
    """Raises Refused if an item has changed since a decision was based on it."""
    if read and item.sequence != read.sequence:
        what = f"{item.records[-1].application.key} {item.records[-1].state}"
        name = item.key.name
        raise Refused(f"{name} changed while it was looked at ({what}): look again", Remedy(Action.EXPLAIN, name))


class Manifest(Working):
    """The manifest of one dataset over a store. Safe to share between threads.

    - `feeds`: the declared steps of each feed.
    - `author`: the program and its version, written in every record. `run_id`: the program's run; a new id by default.
    - `read_archived`: reads the archived records of an item, so that they appear with its other records.
    - `time_of`: the logical time of a directory, for skip rules with a period.

    Raises InvalidKey for a feed or application that keys cannot hold, ValueError for a step declared twice.
    """

    # Operators

    @contextmanager
    def rehearsing(self) -> Generator[None]:
        """A dry run: inside the block, operators' decisions are checked by all rules and not written."""
        self._rehearsing = True
        try:
            yield
        finally:
            self._rehearsing = False

    @property
    def is_rehearsing(self) -> bool:
        """True if operators' decisions are only checked."""
        return self._rehearsing

    def resolve(self, key: ItemKey, reason: str, of: Application | None = None) -> Record:
        """Frees a failed item for another attempt. Raises Refused if it is not blocked or is being processed.

        `of`: only from the failure of this application, if several have failed.
        """

        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.resolve(item, reason, steps, self._states(key.feed), self._stamp(), of)
        )

    def skip(self, key: ItemKey, reason: str, application: str = EVERYONE) -> Record:
        """Makes an application pass over an item. Raises Refused if the item is done or being processed."""
        who = Application.parse(application)
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.skip(item, who, reason, steps, self._states(key.feed), self._stamp())
        )

    def unskip(self, key: ItemKey, reason: str) -> Record:
        """Lifts every skip of an item, or lets in an item that is set aside.

        Raises Refused if it is neither, or if its place in a strict order has passed and late items are not appended.
        """
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.unskip(item, reason, steps, self._states(key.feed), DISCOVERY, self._stamp())
        )

    def reopen(
        self,
        key: ItemKey,
        applications: Sequence[str],
        reason: str,
        landed: Landed | None = None,
        automatic: bool = False,
        read: Item | None = None,
    ) -> Record:
        """Makes applications, by their keys, do an item again, and resolves their failures.

        `landed`: the directory's current content, if it was rewritten on purpose. `read`: the item on which the decision is
        based. Raises Refused while the item is being processed, and if it has changed since it was read.
        """
        steps = self.steps(key.feed)

        def writes(item: Item) -> list[Write]:
            _require_unchanged(item, read)
            states, stamp, unhindered = self._states(key.feed), self._stamp(), self._check_not_being_deleted(key)
            made = transitions.reopen(item, applications, reason, steps, states, OPERATOR, stamp, landed, automatic)
            return [*made, unhindered]

        return self._operate(key, writes)

    def reload(
        self,
        key: ItemKey,
        application: Application,
        reason: str,
        allows: Sequence[str] = (),
        read: Item | None = None,
    ) -> Record:
        """Makes a strict step replace the rows that it has of an item. The item keeps its place in the order.

        `read`: the item on which the decision is based. Raises Refused for an item that the step has not done, or that waits to
        be reloaded already, while somebody works on it, and if it has changed since it was read.
        """
        steps = self.steps(key.feed)

        def writes(item: Item) -> list[Write]:
            _require_unchanged(item, read)
            states, stamp, unhindered = self._states(key.feed), self._stamp(), self._check_not_being_deleted(key)
            made = transitions.reload(item, application, reason, allows, steps, states, OPERATOR, stamp)
            return [*made, unhindered]

        return self._operate(key, writes)

    def replay(self, landed: Landed, origins: Mapping[ItemKey, tuple[int, int]], file: str, reason: str) -> Discovered:
        """Registers an item that consists of bad lines of other items, and records at each of these that its lines went there.

        `origins`: the number of lines of each item, and the number of its records when these lines were chosen. `file`: names
        the lines. Raises Refused if an item has changed since, as when it was replayed or shredded again: then choose again.
        """
        key, steps = landed.key, self.steps(landed.key.feed)

        def attempt() -> Discovered:
            items: list[tuple[Item, int]] = []
            for origin, (lines, before) in origins.items():
                item = self.item(origin)
                if len(item.records) != before:
                    raise Refused(f"{origin.name} changed meanwhile, as by another replay; try again")
                items.append((item, lines))
            states, rules = self._states_and_skip_rules(key.feed)
            skips = self._skips([landed], rules, steps)
            writes = transitions.replay(landed, items, file, reason, steps, states, OPERATOR, self._stamp(), skips)
            if not self._rehearsing:
                self._write([*writes, Check(SKIP_RULES, rules.version)])
            return Discovered(landed, lateness(key, steps, states))

        return optimistically(
            attempt, lambda: Refused(f"{key.name}: the items that it replays changed {TRIES} times meanwhile; try again")
        )

    def acknowledge(self, key: ItemKey, checksum: str, reason: str, automatic: bool = False) -> Record:
        """Records that other content of an item's directory is known, and will not be loaded.

        Raises Refused if it is known already.
        """
        return self._operate(
            key, lambda item: transitions.acknowledge(item, checksum, reason, OPERATOR, self._stamp(), automatic)
        )

    def note(self, key: ItemKey, reason: str) -> Record:
        """Keeps an operator's decision as a record of an item, with no effect on the item."""
        steps = self.steps(key.feed)
        return self._operate(
            key, lambda item: transitions.reopen(item, [], reason, steps, self._states(key.feed), OPERATOR, self._stamp())
        )

    def move(self, items: Sequence[tuple[Item, Move]], reason: str) -> None:
        """Records the current location of the files of items, at most MAX_WRITES."""

        def moved(item: Item, to: Move) -> Put:
            return transitions.move(item, to, reason, OPERATOR, self._stamp())

        try:
            self._write([moved(item, to) for item, to in items])
        except ConditionFailed:
            for one, to in items:
                if self.item(one.key).move != to:
                    self._operate(one.key, lambda item, to=to: [moved(item, to)])

    # Retention

    def begin_deletions(
        self,
        feed: str,
        decided: Sequence[tuple[Item, Deletion]],
        states: Mapping[str, StepState],
        relied: Sequence[Item],
        reason: str,
    ) -> None:
        """Records that retention deletes data of items of a feed, in one transaction, before anything is deleted.

        `states`: the states of the feed's steps by which the items were judged. `relied`: other items on which the judgement
        relied. Raises ConditionFailed if one of all these has changed since it was read: judge again.
        """
        writes = deletion.begin(decided, reason, self.steps(feed), states, RETENTION, self._stamp())
        deleted = {item.key for item, _ in decided}
        self._write([*writes, *(unchanged(item) for item in relied if item.key not in deleted)])

    def end_deletions(self, done: Sequence[Deletion]) -> None:
        """Forgets deletions whose data is gone. Another process may have done so."""
        for one in done:
            with suppress(ConditionFailed):
                self.store.transact(self.dataset, deletion.end([one]), str(uuid4()))

    # The start of a target

    def start(self, application: Application, key: ItemKey, reason: str) -> None:
        """Lets an ordered step that has done nothing yet start with an item, and pass over the items before it.

        Nothing is written for a step that has begun, and for the first item.
        """
        step = self.step(key.feed, application.key)

        def attempt() -> None:
            state, item = self.state(application), self.item(key)
            before = next(self.items(key.feed, after=key.position, page=FIRST_PAGE, reverse=True), None)
            if before and not state.has_begun:
                self._write(transitions.start(step, state, item, before, reason, OPERATOR, self._stamp()))

        optimistically(
            attempt, lambda: Refused(f"the state of {application.key} changed {TRIES} times while it was begun; try again")
        )

    # Full loads

    def begin_full_load(
        self, key: ItemKey, application: str, reason: str, above: int = 0, allows: Sequence[str] = ()
    ) -> Record:
        """Begins a full load of a snapshot: a new epoch. All other feeds of the application are held until it is loaded.

        `above`: the newest epoch that the sink has seen, if it was asked: a manifest that was set back knows an older epoch.
        One conditional write, whatever the number of items. Raises Refused while another full load is in progress, and for a
        snapshot that is not ready or has no stop time.
        """
        step = self.step(key.feed, application)

        def writes(item: Item) -> list[Write]:
            state = self.state(step.application)
            return transitions.begin_full_load(item, step, state, reason, OPERATOR, self._stamp(), above, allows)

        return self._operate(key, writes)

    def cancel_full_load(self, lease: Lease, reason: str) -> Record:
        """Ends the full load in progress, under the lease of its feed. Earlier work counts again.

        An item of a former holder must be settled with the sink before. Raises Refused if no full load is in progress or the
        snapshot is being processed; LeaseLost.
        """
        step = self.step(lease.feed, lease.application.key)

        def cancel() -> Record:
            state = self.state(step.application)
            item = self._begun(state, lease.feed)
            if item is None:
                raise Refused(f"{step.application.key} is loading nothing in full: there is nothing to cancel")
            writes = transitions.cancel_full_load(item, step, state, reason, OPERATOR, self._stamp())
            lease.transact(writes)
            return record_of(writes[0])

        return optimistically(
            cancel,
            lambda: Refused(
                f"the state of {step.application.key} changed {TRIES} times while the full load was canceled; try again"
            ),
        )
