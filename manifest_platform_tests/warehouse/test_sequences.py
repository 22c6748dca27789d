"""Random histories of windows and snapshots, against a dictionary."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from manifest_platform import failpoints
from manifest_platform.failpoints import FailpointReached
from manifest_platform.testing.loads import INCR, LOG, PRODUCT, SITE, day, fences, gone, rows_of, snapshot, window
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import Behind, Fenced
from manifest_platform_tests.effort import cases

TABLES = {PRODUCT.name: (PRODUCT, "name__v"), SITE.name: (SITE, "city__c")}
Contents = dict[str, dict[str, str | None]]

ids = st.sampled_from("abcdef")
upserts = st.dictionaries(ids, st.sampled_from(["1", "2", "", None, "x\ny"]), max_size=4)
changes = st.fixed_dictionaries({name: st.tuples(upserts, st.sets(ids, max_size=3)) for name in TABLES})


@dataclass(frozen=True)
class Incr:
    """A window at the source: what it changes in each table."""

    changes: dict[str, tuple[dict[str, str | None], set[str]]]


@dataclass(frozen=True)
class Begin:
    """A full load of the snapshot of `ago` windows ago. `lacks`: it leaves out objects without rows, except products."""

    ago: int
    lacks: bool


@dataclass(frozen=True)
class Crash:
    """The next load ends at this point, and is tried again by another worker."""

    point: str


POINTS = ["before_transaction", "in_transaction", "committed"]
steps = st.one_of(
    changes.map(Incr),
    st.builds(Begin, st.integers(0, 4), st.booleans()),
    st.just("logs"),
    st.just("old worker"),
    st.builds(Crash, st.sampled_from(POINTS)),
)


@dataclass
class History:
    """The source's windows, the contents after each, and what has been applied of them."""

    directory: Path
    windows: list[Incr] = field(default_factory=list)
    after: list[Contents] = field(default_factory=lambda: [{name: {} for name in TABLES}])
    epoch: int = 1
    serving: int = 1
    applied: int = 0
    token: int = 1
    days: int = 0
    crash: str | None = None

    def source(self, wanted: Incr) -> None:
        """The source writes a window."""
        contents = {name: dict(rows) for name, rows in self.after[-1].items()}
        for name, (changed, removed) in wanted.changes.items():
            contents[name] = {id_: row for id_, row in contents[name].items() if id_ not in removed} | changed
        self.windows.append(wanted)
        self.after.append(contents)

    def window(self, number: int, **options: Any) -> Load:
        tables = []
        for name, (changed, removed) in self.windows[number - 1].changes.items():
            table, column = TABLES[name]
            tables += [(table, [{"id": id_, column: value} for id_, value in changed.items()])] if changed else []
            tables += [gone(table, *sorted(removed))] if removed else []
        given: dict[str, Any] = {"epoch": self.epoch, "serving_epoch": self.serving, "token": self.token, **options}
        return window(self.directory, f"{number:04d}", *tables, **given)

    def snapshot(self, number: int, lacks: bool) -> Load:
        tables = []
        for name, rows in self.after[number].items():
            table, column = TABLES[name]
            if rows or not lacks or name == PRODUCT.name:
                tables.append((table, [{"id": id_, column: value} for id_, value in rows.items()]))
        return snapshot(self.directory, f"{number:04d}", *tables, epoch=self.epoch, token=self.token)

    def apply(self, warehouse: Warehouse, wanted: Load) -> None:
        """Applies, if told so with a crash and a second worker who settles and tries again."""
        if self.crash is None:
            assert isinstance(warehouse.apply(wanted), Applied)
            return
        full = wanted.full is not None
        point = f"{'full' if full else 'load'}.{self.crash}".replace("full.before_transaction", "full.shadows_built")
        committed, self.crash, self.token = self.crash == "committed", None, self.token + 1
        # Set as in the environment of a real process, for this load only.
        failpoints.os.environ[failpoints.VARIABLE] = f"{point}:raise"
        try:
            warehouse.apply(wanted)
            raise AssertionError(f"{point} was not reached")
        except FailpointReached:
            del failpoints.os.environ[failpoints.VARIABLE]
        warehouse.raise_fence(wanted.feed, self.token, self.epoch)
        assert (warehouse.ledger_entry(wanted.feed, wanted.item, wanted.serving_epoch) is not None) == committed
        again = warehouse.apply(replace(wanted, token=self.token))
        assert isinstance(again, AlreadyApplied if committed else Applied)


@settings(max_examples=cases(6, 20), deadline=None)
@given(st.lists(steps, min_size=1, max_size=8))
def test_I4_I6_I9_the_tables_are_what_the_source_was_at_the_newest_ledger_row(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "warehouse.duckdb"
        engine = DuckDB(path)
        try:
            _replay(History(Path(directory)), Warehouse(engine, "shop"), engine, history)
        finally:
            engine.close()


def _replay(source: History, warehouse: Warehouse, engine: DuckDB, history: list[Any]) -> None:
    for step in history:
        match step:
            case Incr():
                source.source(step)
                while source.applied < len(source.windows):
                    _catch_up(source, warehouse, engine)
            case Begin(ago, lacks):
                number = max(0, len(source.windows) - ago)
                source.epoch += 1
                source.apply(warehouse, source.snapshot(number, lacks))
                source.serving, source.applied = source.epoch, number
                _check(source, engine)
                while source.applied < len(source.windows):
                    _catch_up(source, warehouse, engine)
            case "logs":
                source.days += 1
                options = {"epoch": source.epoch, "token": source.token}
                source.apply(warehouse, day(source.directory, f"{source.days:04d}", f"log {source.days}", **options))
            case "old worker":
                _try_in_vain(source, warehouse)
            case Crash(point):
                source.crash = point
        _check(source, engine)


def _catch_up(source: History, warehouse: Warehouse, engine: DuckDB) -> None:
    source.apply(warehouse, source.window(source.applied + 1))
    source.applied += 1
    _check(source, engine)
    assert isinstance(warehouse.apply(source.window(source.applied)), AlreadyApplied)


def _try_in_vain(source: History, warehouse: Warehouse) -> None:
    """A worker of an older epoch, and a window that is behind: neither changes anything."""
    if source.epoch > 1 and source.windows:
        try:
            warehouse.apply(source.window(len(source.windows), epoch=source.epoch - 1, token=99))
            raise AssertionError("a worker of an older epoch was let in")
        except Fenced:
            pass
    if source.serving > 1 and source.applied and warehouse.ledger_entry(INCR, "incr-0001", source.serving) is None:
        try:
            warehouse.apply(source.window(1))
            raise AssertionError("a window behind the boundary was let in")
        except Behind:
            pass


def _check(source: History, engine: DuckDB) -> None:
    tables = engine.columns("shop")
    assert not [table for table in tables if "__mp_" in table]
    for name, rows in source.after[source.applied].items():
        assert (dict(rows_of(engine, name)) if name in tables else {}) == rows
    known = fences(engine) if engine.columns("manifest_platform") else {}
    if INCR in known and source.applied:
        assert known[INCR][1:] == (source.epoch, f"{source.applied:04d}")
    if source.days:
        assert known[LOG][2] == f"{source.days:04d}"
        assert len(rows_of(engine, "system_audit_trail__sys")) == source.days
