"""Probes of a warehouse: everything that loads need of it, tried on small rows in a schema of the probes' own.

The probes run the apply protocol itself, with its control tables in that schema too. So they show what no stand-in can show of
a person's own warehouse: privileges, the way from the storage to the tables, transactions, and concurrent sessions. Nothing
else in the warehouse is changed, and the schema is dropped at the end.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from manifest_platform import storage
from manifest_platform.listing import Column, Listing, ShreddedObject, Table
from manifest_platform.warehouse.apply import Applied, Full, Load, Warehouse
from manifest_platform.warehouse.control import Fence
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine, EngineSettings, Need, opened
from manifest_platform.warehouse.errors import Fenced, WarehouseError
from manifest_platform.warehouse.rules import lift

SCHEMA_PREFIX = "manifest_platform_check_"
_LARGEST_CLOCK_DIFFERENCE_S = 60
_FEED, _FULL = "probe", "probe_full"
_EVENTS = Table("probe_events", (Column("id", "bigint"), Column("name", "string")))
_THINGS = Table("probe_things", (Column("id", "bigint"), Column("name", "string")), "merge", ("id",))
_GONE = Table("probe_things_gone", (Column("id", "bigint"),), "delete", ("id",), "probe_things")
_LONG = "probe_" + "a_long_name_" * 30
Rows = list[dict[str, Any]]


class Result(StrEnum):
    """The result of a probe. `skipped`: an earlier probe failed, or the engine needs nothing here."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Probed:
    """A probe and its result. `note`: what was found, or the error. `helps`: statements that help, for a failure."""

    probe: str
    result: Result
    seconds: float
    note: str = ""
    helps: tuple[str, ...] = ()


class ProbeFailed(WarehouseError):
    """The warehouse did something else than loads rely on."""


@dataclass(frozen=True)
class _Probe:
    name: str
    run: Callable[[], str]
    need: Need | None = None
    after: str = "schema"


class Probes:
    """The probes of one warehouse. `folder`: the URI of the folder for small objects. `datasets`: those loaded here."""

    def __init__(self, settings: EngineSettings, folder: str, datasets: tuple[str, ...]) -> None:
        self.schema = f"{SCHEMA_PREFIX}{uuid.uuid4().hex[:12]}"
        self._settings, self._datasets = settings, datasets
        self._folder = f"{folder}/{self.schema}"
        self._missing_folders = _missing_folders(folder)
        self._engine = settings.open()
        self._place = self._confined(settings.open())
        self._warehouse = Warehouse(self._place, self.schema)
        self._made_schema = False
        self._number = 0

    def run(self) -> Iterator[Probed]:
        """Runs the probes in order and yields each. Drops the schema at the end, whatever happens."""
        if not self._engine.exists():
            yield Probed("connect", Result.SKIPPED, 0.0, f"nothing is at {self._settings.place} yet; the first load creates it")
            return
        failed: set[str] = set()
        try:
            for probe in self._probes():
                if probe.after in failed or "connect" in failed:
                    failed.add(probe.name)
                    yield Probed(
                        probe.name, Result.SKIPPED, 0.0, f"needs {probe.after if probe.after in failed else 'connect'}"
                    )
                    continue
                done = self._try(probe)
                if done.result is Result.FAILED:
                    failed.add(probe.name)
                yield done
        finally:
            clean = self._try(_Probe("clean up", self._clean))
            self._place.close()
            self._engine.close()
        yield clean

    def _probes(self) -> Iterator[_Probe]:
        yield _Probe("connect", self._connect, Need.CONNECT, "")
        yield _Probe("clock", self._clock, None, "connect")
        yield _Probe("control tables", self._control_tables, Need.CONTROL_TABLES, "connect")
        yield _Probe("schema", self._create_schema, Need.CREATE_SCHEMA, "connect")
        yield _Probe("tables", self._create_tables)
        yield _Probe("stage", self._stage, Need.STAGE, "tables")
        yield _Probe("append", self._append, None, "stage")
        yield _Probe("rollback", self._rollback, None, "append")
        yield _Probe("new column", self._new_column, None, "append")
        yield _Probe("changes by key", self._changes, None, "stage")
        yield _Probe("two sessions", self._two_sessions, None, "append")
        yield _Probe("full load", self._full_load, None, "changes by key")
        yield _Probe("long names", self._long_names, None, "stage")
        yield _Probe("upkeep", self._upkeep, None, "append")

    def _try(self, probe: _Probe) -> Probed:
        begun = time.monotonic()
        try:
            note = probe.run()
        except (WarehouseError, OSError) as error:
            helps = self._engine.grant_for(probe.need) if probe.need else []
            return Probed(probe.name, Result.FAILED, time.monotonic() - begun, str(error), tuple(helps))
        return Probed(probe.name, Result.OK, time.monotonic() - begun, note)

    # The probes. Each returns what it found, or raises.

    def _connect(self) -> str:
        self._engine.execute("SELECT 1")
        about = ", ".join(f"{name} {value}" for name, value in self._engine.facts().items())
        return f"{self._settings.place}{f': {about}' if about else ''}"

    def _clock(self) -> str:
        before = time.time()
        [(theirs,)] = self._engine.execute("SELECT EXTRACT(EPOCH FROM CURRENT_TIMESTAMP)")
        difference = float(theirs) - (before + time.time()) / 2
        told = f"the warehouse's clock differs by {difference:+.1f} s"
        if abs(difference) > _LARGEST_CLOCK_DIFFERENCE_S:
            raise ProbeFailed(f"{told}: set the clock of this machine by a time server")
        return told

    def _control_tables(self) -> str:
        if not Fence(self._engine, self._datasets[0]).may_be_written():
            return "none yet: the first load creates them"
        told = "of this release or an older one, and may be written"
        apart = self._engine.owners_apart(CONTROL_SCHEMA)
        if not apart:
            return told
        table, owner = next(iter(apart.items()))
        return (
            f"{told}. {len(apart)} of them may not be altered by this role, such as {table} of {owner}: loads work until a "
            "later release adds a column. Before that upgrade, make the role their owner, or a member of their owner"
        )

    def _create_schema(self) -> str:
        self._engine.create_schema(self.schema)
        self._made_schema = True
        return self.schema

    def _create_tables(self) -> str:
        self._warehouse.prepare(_FEED)
        return "fence, ledger and the other control tables, in this schema"

    def _stage(self) -> str:
        [found] = self._write(_EVENTS, [{"id": 1, "name": "é"}, {"id": 2, "name": None}])
        staging = self._place.stage(_EVENTS, [found.uri])
        try:
            [(rows,)] = self._place.execute(f"SELECT count(*) FROM {staging.sql}", staging.parameters)  # noqa: S608
        finally:
            self._place.unstage(staging)
        _check(rows, 2, "staged rows")
        return f"rows of {self._folder}"

    def _append(self) -> str:
        self._apply((_EVENTS, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]))
        _check(self._count(_EVENTS), 2, "rows after an append")
        return "2 rows and their entry in the ledger, in one transaction"

    def _rollback(self) -> str:
        before = self._count(_EVENTS)
        table = self._place.qualified(self.schema, _EVENTS.name)
        with opened(self._place) as transaction:
            transaction.write(f'INSERT INTO {table} ("id") VALUES (?)', (99,))  # noqa: S608
        _check(self._count(_EVENTS), before, "rows after a rollback")
        return "a transaction that was rolled back left nothing"

    def _new_column(self) -> str:
        wider = Table(_EVENTS.name, (*_EVENTS.columns, Column("later", "string")))
        self._apply((wider, [{"id": 3, "name": "c", "later": "x"}]))
        return "added before the transaction"

    def _changes(self) -> str:
        self._apply((_THINGS, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]))
        self._apply((_GONE, [{"id": 1}]), (_THINGS, [{"id": 2, "name": "c"}, {"id": 3, "name": "d"}]))
        _check(self._rows_of(_THINGS), [(2, "c"), (3, "d")], "rows after changes by key")
        return "deletes and upserts"

    def _two_sessions(self) -> str:
        """Holds the fence's row in one session while another loads with an older token, which must then be refused."""
        wanted = self._load((_EVENTS, [{"id": 4, "name": "late"}]))
        outcome: list[object] = []

        def load() -> None:
            try:
                with closing(self._confined(self._settings.open())) as engine:
                    outcome.append(Warehouse(engine, self.schema).apply(wanted))
            except Exception as error:  # the thread's outcome, whatever it is
                outcome.append(error)

        before = self._count(_EVENTS)
        other = threading.Thread(target=load, daemon=True)
        with opened(self._place) as transaction:
            moved = Fence(self._place, self.schema).move(transaction, _FEED, lift(2, 1))
            other.start()
            other.join(1.0)
            waited = other.is_alive()
            transaction.commit()
        other.join(60)
        _check(moved, True, "the fence's row moved")
        if not outcome or not isinstance(outcome[0], Fenced):
            raise ProbeFailed(f"a session with an older token was not refused: {outcome[0] if outcome else 'it still waits'}")
        _check(self._count(_EVENTS), before, "rows after a refused load")
        return f"the second session {'waited' if waited else 'was told at once'}, and was refused"

    def _full_load(self) -> str:
        """Replaces the rows while a third session reads them in a transaction."""
        snapshot = Table(_THINGS.name, _THINGS.columns, "replace", _THINGS.key)
        load = self._load((snapshot, [{"id": 7, "name": "new"}]), full=Full("9", (_FEED,), (_FEED, _FULL)))
        with closing(self._confined(self._settings.open())) as reader:
            reader.begin()
            reader.execute(f"SELECT * FROM {reader.qualified(self.schema, _THINGS.name)}")  # noqa: S608
            begun = time.monotonic()
            self._applied(load)
            seconds = time.monotonic() - begun
            reader.rollback()
        _check(self._rows_of(_THINGS), [(7, "new")], "rows after a full load")
        return f"done in {seconds:.1f} s under an open reader"

    def _long_names(self) -> str:
        tables = [Table(f"{_LONG}{end}", (Column("id", "bigint"), Column(f"{_LONG}{end}", "string"))) for end in "xy"]
        self._apply(*((table, [{"id": 1, table.columns[1].name: "a"}]) for table in tables), epoch=2)
        counts = [self._count(table) for table in tables]
        _check(counts, [1, 1], "rows in two tables whose names differ at their end")
        return f"names of {len(_LONG) + 1} bytes"

    def _upkeep(self) -> str:
        for action in self._settings.upkeep_actions:
            self._place.tidy(self._place.qualified(self.schema, _EVENTS.name), action)
        return ", ".join(self._settings.upkeep_actions) or "the engine needs none"

    def _clean(self) -> str:
        with suppress(OSError):
            storage.delete_folder(self._folder)
        for folder in self._missing_folders:
            with suppress(OSError):  # somebody else has written there since
                folder.rmdir()
        self._place.rollback()
        if self._made_schema:
            drop = f"DROP SCHEMA IF EXISTS {self._engine.qualified(self.schema)} CASCADE"
            try:
                self._engine.execute(drop)
            except WarehouseError as error:
                raise ProbeFailed(f"{error}. Run it by hand: {drop}") from error
            return f"schema {self.schema} is dropped"
        return "nothing was made"

    # Small loads

    def _confined(self, engine: Engine) -> Engine:
        """Gives an engine the control tables in the probes' schema, instead of the warehouse's own."""
        qualified, columns, create, mine = engine.qualified, engine.columns, engine.create_schema, self.schema
        own: dict[str, Any] = {
            "qualified": lambda schema, table=None: qualified(mine if schema == CONTROL_SCHEMA else schema, table),
            "columns": lambda schema: columns(mine if schema == CONTROL_SCHEMA else schema),
            # The probes' schema exists. An engine may need a schema for staged rows.
            "create_schema": lambda schema: None if schema in (CONTROL_SCHEMA, mine) else create(schema),
        }
        for name, function in own.items():
            setattr(engine, name, function)
        return engine

    def _write(self, table: Table, rows: Rows) -> list[ShreddedObject]:
        import pyarrow as pa
        import pyarrow.parquet

        from manifest_platform.column_types import arrow_type

        self._number += 1
        uri = f"{self._folder}/{self._number}/{table.name[:40]}/0.parquet"
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])
        content = pa.BufferOutputStream()
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema=schema), content)
        data = content.getvalue().to_pybytes()
        storage.write_bytes(uri, data)
        return [ShreddedObject(table.name, "2026-01-01", uri, len(rows), len(data))]

    def _load(self, *tables: tuple[Table, Rows], full: Full | None = None, epoch: int = 1) -> Load:
        objects = [one for table, rows in tables for one in self._write(table, rows)]
        item = f"probe-{self._number:03d}"
        lines = sum(len(rows) for _, rows in tables)
        listing = Listing(item, "1", lines, lines, 0, tuple(table for table, _ in tables), tuple(objects))
        epoch, feed = (2, _FULL) if full else (epoch, _FEED)
        position = "9" + item if epoch == 2 else item
        # After the probe of two sessions, the feed's fence holds token 2.
        token = 3 if epoch == 2 else 1
        return Load(item, feed, position, epoch, epoch, token, f"record-{item}", "checksum", listing, full=full)

    def _apply(self, *tables: tuple[Table, Rows], epoch: int = 1) -> None:
        self._applied(self._load(*tables, epoch=epoch))

    def _applied(self, load: Load) -> None:
        done = self._warehouse.apply(load)
        if not isinstance(done, Applied):
            raise ProbeFailed(f"a new load was taken for an applied load: {done}")

    def _count(self, table: Table) -> int:
        return self._place.execute(f"SELECT count(*) FROM {self._place.qualified(self.schema, table.name)}")[0][0]  # noqa: S608

    def _rows_of(self, table: Table) -> list[tuple[Any, ...]]:
        columns = ", ".join(self._place.quote(column.name) for column in table.columns)
        return self._place.execute(f"SELECT {columns} FROM {self._place.qualified(self.schema, table.name)} ORDER BY 1")  # noqa: S608


def _missing_folders(uri: str) -> list[Path]:
    """Returns the local folders on the way to a place that do not exist, the innermost first. Empty for S3, which has none."""
    if not storage.is_local(uri):
        return []
    place = storage.local_path(uri)
    return [one for one in (place, *place.parents) if not one.exists()]


def _check(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise ProbeFailed(f"{what}: {found} instead of {expected}")
