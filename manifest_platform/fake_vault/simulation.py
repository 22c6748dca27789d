"""A small life-science vault whose history follows from a seed: the source of truth about its data at any time.

It knows what is in the vault, when it changed, and what a copy of it must hold (`tables`, `logs`). It does not know files:
values are Python's own, so that readers of the archives can be checked against it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import cast

from manifest_platform.fake_vault.events import (
    DAY,
    WINDOW,
    Changes,
    Deleted,
    Event,
    Key,
    Reshaped,
    Row,
    State,
    Value,
    Wish,
    Written,
    dice,
)
from manifest_platform.fake_vault.extracts import (
    LEGACY,
    LOGINS,
    LOGS,
    METADATA,
    OBJECTS,
    PICKLIST,
    RELATIONSHIP,
    SYSTEM,
    TRICKY_TEXTS,
    USER,
    Extract,
)
from manifest_platform.fake_vault.writer import CONFUSABLE, Writer, record_id


class Simulation:
    """The history of a vault from `begin` (UTC) on, in windows of 15 minutes. Equal arguments give an equal history.

    `rows`: the number of rows of each extract at the beginning. `changes`: the least and the most changes of a window. `quiet`:
    windows without changes. `script`: additional changes. Windows are invented at first use. Threads may share a simulation.
    """

    def __init__(
        self,
        seed: int = 1,
        begin: datetime = datetime(2026, 1, 1, tzinfo=UTC),
        rows: int = 20,
        changes: tuple[int, int] = (20, 100),
        quiet: Iterable[int] = (),
        script: Sequence[Wish] = (),
    ) -> None:
        self.seed = seed
        self.begin = begin
        self.changes_per_window = changes
        self.quiet = frozenset(quiet)
        self.script = tuple(script)
        self._lock = threading.RLock()
        self._writer = Writer(State())
        self._windows: list[list[Event]] = []
        self._initial = self._writer.begin(dice(f"{seed}"), begin, rows)
        self._shaping = [event for event in self._initial if _shapes(event)]

    def stop(self, window: int) -> datetime:
        """Returns the stop time of a window. The first window has number 0."""
        return self.begin + (window + 1) * WINDOW

    def tables(self, at: datetime, snapshots: Iterable[datetime] = ()) -> dict[str, dict[Key, Row]]:
        """Returns the rows that a warehouse must hold at a time, by table and key, typed; an empty value is None.

        The result is the same after a snapshot, or after an older snapshot and increments. It lacks dropped tables and columns,
        which a warehouse may keep. `metadata` lacks `modified_date`, which snapshots do not have. The table of legacy workflows
        holds the rows of the loaded `snapshots`, given by their stop times.
        """
        state = self.state(at)
        found = {extract.table: state.rows[name] for name, extract in state.extracts.items()}
        if times := tuple(snapshots):
            found[LEGACY.table] = {(str(row["id"]),): row for time in times for row in self.legacy(time)}
        return {table: {key: dict(row) for key, row in rows.items()} for table, rows in found.items()}

    def logs(self, upto: datetime, since: datetime | None = None) -> dict[str, list[Row]]:
        """Returns the audit trails after `since` (by default a day before the beginning) up to a time: by table, in order of
        time.
        """
        since = since or self.begin - DAY
        trails: dict[str, list[Row]] = {extract.table: [] for extract in LOGS}
        for window in self._window_numbers(since, upto):
            for table, row in self._audit(window):
                if since < cast(datetime, row["timestamp"]) <= upto:
                    trails[table].append(row)
        return {table: sorted(rows, key=lambda row: (str(row["timestamp"]), str(row["id"]))) for table, rows in trails.items()}

    def dropped(self, at: datetime) -> frozenset[tuple[str, str | None]]:
        """Returns the (table, column) pairs that existed and were dropped; column None stands for the whole table."""
        there, gone = self.state(self.begin), set[tuple[str, str | None]]()
        for event in self._events(self.begin, at):
            if isinstance(event, Reshaped):
                before = there.extracts.get(event.extract)
                gone |= _lost(before, event.shape) if before else set()
                if event.shape:
                    gone -= {(event.shape.table, None), *((event.shape.table, column) for column in event.shape.columns)}
            there.apply(event)
        return frozenset(gone)

    def state(self, at: datetime) -> State:
        """Returns the vault at a time not before its beginning. The caller may keep it, but must not change its rows."""
        if at < self.begin:
            raise ValueError(f"the vault begins at {self.begin:%Y-%m-%dT%H:%MZ}, and has no state at {at:%Y-%m-%dT%H:%MZ}")
        state = State()
        for event in (*self._initial, *self._events(self.begin, at)):
            state.apply(event)
        return state

    def shape(self, at: datetime) -> State:
        """Returns the vault at a time, with the rows of the metadata only."""
        state = State()
        with self._lock:
            self._window(len(self._window_numbers(self.begin, at)))
            for event in self._shaping:
                if event.time <= at:
                    state.apply(event)
        return state

    def changes(self, start: datetime, stop: datetime) -> Changes:
        """Returns the changes after `start` up to `stop`."""
        changes = Changes({}, {})
        for event in self._events(start, stop):
            match event:
                case Written():
                    changes.written.setdefault(event.extract, {})[event.key] = event
                case Deleted():
                    changes.written.get(event.extract, {}).pop(event.key, None)
                    changes.deleted.setdefault(event.extract, {})[event.key] = event
                case Reshaped(shape=None):
                    changes.written.pop(event.extract, None)
                    changes.deleted.pop(event.extract, None)
        return changes

    def legacy(self, at: datetime) -> list[Row]:
        """Returns the legacy workflows that ended on the day before a time."""
        found = [row for window in self._window_numbers(at - DAY, at) for row in self._ended(window)]
        return [row for row in found if at - DAY < cast(datetime, row["completed_date__sys"]) <= at]

    def _window_numbers(self, since: datetime, upto: datetime) -> range:
        return range((since - self.begin) // WINDOW, -((self.begin - upto) // WINDOW))

    def _events(self, since: datetime, upto: datetime) -> Iterator[Event]:
        for window in self._window_numbers(max(since, self.begin), upto):
            yield from (event for event in self._window(window) if since < event.time <= upto)

    def _window(self, window: int) -> list[Event]:
        with self._lock:
            while len(self._windows) <= window:
                made = self._make(len(self._windows))
                self._windows.append(made)
                self._shaping += [event for event in made if _shapes(event)]
            return self._windows[window]

    def _make(self, window: int) -> list[Event]:
        """Invents the events of the next window, with every kind of change that can confuse a reader."""
        wishes = [wish for wish in self.script if wish.window == window]
        rng = dice(f"{self.seed}/{window}")
        busy = window not in self.quiet
        changes = rng.randint(*self.changes_per_window) if busy else 0
        writer = self._writer
        writer.start(rng, self.begin + window * WINDOW, WINDOW / (4 * (changes + 4) + 60 * len(wishes) + 1))
        for wish in wishes:
            writer.grant(wish)
        if busy:
            for _ in range(changes):
                writer.change()
            writer.log_in()
            writer.change_twice()
            if window % 4 == 0:
                writer.delete_and_make_anew()
            if window == 1:
                writer.delete(PICKLIST.name, CONFUSABLE[0])
                writer.delete_any(RELATIONSHIP.name)
        return writer.events

    def _audit(self, window: int) -> Iterator[tuple[str, Row]]:
        rng = dice(f"{self.seed}/log/{window}")
        start, number = self.begin + window * WINDOW, count()

        def entry(time: datetime, action: str, item: str | None, **more: Value) -> Row:
            user = rng.randint(1, 5)
            identity = f"{window + 1_000_000}-{next(number)}"
            told: Row = {"id": identity, "timestamp": time, "user_id": record_id(USER.name, user)}
            return told | {"user_name": f"user{user}@acme.example", "action": action, "item": item} | more

        for _ in range(rng.randint(0, 3)):
            address = f"192.0.2.{rng.randint(1, 254)}"
            yield LOGINS.table, entry(_within(rng, start), "Login", None, source_ip=address, succeeded=rng.random() < 0.9)
        if rng.random() < 0.5:
            old, new = rng.choice(TRICKY_TEXTS), rng.choice(TRICKY_TEXTS)
            yield SYSTEM.table, entry(_within(rng, start), "Edit", "Setting", old_value=old, new_value=new)
        for event in self._window(window) if window >= 0 else ():
            if not isinstance(event, Reshaped) and event.extract.startswith("Object."):
                action = "Save" if isinstance(event, Written) else "Delete"
                name, record = event.extract.removeprefix("Object."), event.key[0]
                yield OBJECTS.table, entry(event.time, action, "Record", object_name=name, record_id=record)

    def _ended(self, window: int) -> Iterator[Row]:
        rng = dice(f"{self.seed}/legacy/{window}")
        if rng.random() < 0.2:
            ended = _within(rng, self.begin + window * WINDOW)
            label = rng.choice(TRICKY_TEXTS)
            yield {
                "id": f"L{window + 1_000_000}",
                "modified_date__v": ended,
                "completed_date__sys": ended,
                "label__sys": label,
                "status__sys": "completed__v",
            }


def _shapes(event: Event) -> bool:
    return isinstance(event, Reshaped) or event.extract == METADATA.name


def _within(rng: Random, start: datetime) -> datetime:
    return start + timedelta(milliseconds=rng.randint(1, WINDOW // timedelta(milliseconds=1)))


def _lost(before: Extract, after: Extract | None) -> set[tuple[str, str | None]]:
    if after is None:
        return {(before.table, None)}
    return {(before.table, column) for column in before.columns if column not in after.columns}
