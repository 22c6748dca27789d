"""A vault whose windows go from landing to warehouse, with real files, a real manifest and a real DuckDB file.

Windows come in two ways. Most tests `land` them: the manifest's own rules register and shred them, and the test writes listing
and Parquet as the shredder would, without a server and without Spark. Or a fake Vault publishes them: `captured` downloads
them, and a drain with Spark does the rest; `differences` compares the warehouse with the vault's own history.

As a program (`python -m manifest_platform_tests.sources.veeva.ward.ward CONFIG COMMAND`), it captures, drains, begins or
cancels in a process of its own, which a test may kill or stop. It prints `ready`, waits for a line, works, and prints the
result as JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from manifest_platform import cli, config, failpoints
from manifest_platform.fake_vault import FakeVault, Simulation
from manifest_platform.listing import LISTING_FILE, Column, Listing, Table
from manifest_platform.manifest import (
    LANDED,
    OUTPUT,
    Application,
    Claim,
    ItemKey,
    Landed,
    Payload,
    Ready,
    Record,
    Standing,
    StepState,
    lease,
)
from manifest_platform.manifest.dataset import judge
from manifest_platform.pipeline import LOAD, SHRED, Budget, DrainReport, Event, Pipeline
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.full import Begun, begin, cancel, full_status
from manifest_platform.pipeline.pipeline import folder_name
from manifest_platform.sources.capture import CaptureReport
from manifest_platform.sources.veeva.layout import FEEDS, item_uri, minute, parse_minute, window_name
from manifest_platform.sources.veeva.settings import VeevaSettings
from manifest_platform.spark import session
from manifest_platform.testing.loads import written
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform_tests.manifest.given import kill
from manifest_platform_tests.pipeline.shop import REPOSITORY, launched, no_spark

NAME, VAULT_ID = "vault", "1001"
INCR, LOG, FULL = "incr", "log", "full"
PASSWORD = "VAULT_PASSWORD"
QUARTER, DAY = timedelta(minutes=15), timedelta(days=1)
BEGAN = datetime(2000, 1, 1, tzinfo=UTC)
TODAY = "0102"
PRODUCT, AUDIT, LEGACY = "product__v", "login_audit_trail__sys", "workflow_legacy__sys"
UNBOUNDED = Budget()

Rows = Mapping[str, Mapping[str, str | None]]
Tables = dict[str, dict[str, str]]


def at(text: str) -> datetime:
    """Returns a time from the form of cases: `0015` on the second day of 2026, or `0101-2330` with month and day."""
    day, _, time = text.rpartition("-")
    return datetime.strptime(f"2026{day or TODAY}{time}", "%Y%m%d%H%M").replace(tzinfo=UTC)


def short(time: datetime) -> str:
    """Returns the text from which `at` makes a time."""
    text = f"{time:%m%d-%H%M}"
    return text.removeprefix(f"{TODAY}-")


# Windows


@dataclass(frozen=True)
class Window:
    """A window of a feed. `rows`: by table and id, the `name__v`; in windows of changes, None for a deleted row.

    `column`: the name and the type of that column in the window, if they changed.
    """

    feed: str
    start: datetime
    stop: datetime
    rows: Rows = field(hash=False)
    column: tuple[str, str] = ("name__v", "string")

    @property
    def name(self) -> str:
        return window_name(next(feed for feed in FEEDS if feed == self.feed), self.stop)


def incr(stop: str, rows: Rows | None = None, start: str | None = None) -> Window:
    """Returns a window of changes; by default with a row of its own, and a row that every window changes, to show order."""
    time = at(stop)
    return Window(INCR, at(start) if start else time - QUARTER, time, rows or {PRODUCT: {"last": stop, stop: "changed"}})


def incrs(first: str, last: str) -> list[Window]:
    """Returns windows of changes without a gap, between two stop times."""
    count = (at(last) - at(first)) // QUARTER
    return [incr(short(at(first) + number * QUARTER)) for number in range(count + 1)]


def log(stop: str, rows: Rows | None = None) -> Window:
    """Returns a day's logs; by default with one row."""
    return Window(LOG, at(stop) - DAY, at(stop), rows or {AUDIT: {f"login {stop}": "ok"}})


def full(stop: str, rows: Rows | None = None) -> Window:
    """Returns a snapshot; by default with the rows that the changes up to its time leave."""
    return Window(FULL, BEGAN, at(stop), rows if rows is not None else {PRODUCT: {"last": f"full {stop}"}})


def replayed(windows: Iterable[Window]) -> Tables:
    """Returns the rows that tables must hold after windows in this order, by the source's rules."""
    tables: Tables = {}
    for window in windows:
        if window.feed == FULL:
            tables = {name: rows if name in (AUDIT, LEGACY) else {} for name, rows in tables.items()}
        for table, rows in window.rows.items():
            held = tables.setdefault(table, {})
            for key, value in rows.items():
                if value is None:
                    held.pop(key, None)
                else:
                    held[key] = value
    return tables


_MODES = {INCR: "merge", LOG: "append", FULL: "replace"}


def _tables(window: Window) -> list[tuple[Table, list[dict[str, Any]]]]:
    """Returns the window's tables as in a listing, with deletes as tables of their own."""
    found: list[tuple[Table, list[dict[str, Any]]]] = []
    for name, rows in window.rows.items():
        mode: Any = "merge" if fnmatchcase(name, "*legacy*__sys") else _MODES[window.feed]
        columns = (Column("id", "string"), Column(*window.column))
        kept = [{"id": key, window.column[0]: value} for key, value in rows.items() if value is not None]
        if kept or len(kept) == len(rows):
            found.append((Table(name, columns, mode, () if mode == "append" else ("id",)), kept))
        if gone := [
            {"id": key, "deleted_date": window.stop.replace(tzinfo=None)} for key, value in rows.items() if value is None
        ]:
            deleted = (Column("id", "string"), Column("deleted_date", "timestamp"))
            found.append((Table(f"{name}_deletes", deleted, "delete", ("id",), name), gone))
    return found


# The ward


@dataclass(frozen=True)
class Seen:
    """The content of the warehouse that a reader finds.

    `tables`: `name__v` by table and id, only tables that `land` writes, without those in preparation. `ledger`: (window,
    epoch), as `incr 0015`, in the order of the commits. `fences`: by feed its token, its epoch, and the stop time of the last
    applied window.
    """

    tables: Tables
    ledger: list[tuple[str, int]]
    fences: dict[str, tuple[int, int, str]]

    @property
    def applied(self) -> list[str]:
        """The windows in the ledger."""
        return [window for window, _ in self.ledger]


NOTHING = Seen({}, [], {})


class Ward:
    """A vault in a directory. `settings`: values of the configuration, on top of small defaults.

    `store_url`: the manifest's store, by default SQLite. `vault`: the fake vault that is captured; None if windows only land.
    `names`: the datasets, each a vault of its own.
    """

    def __init__(
        self,
        home: Path,
        store_url: str | None = None,
        vault: FakeVault | None = None,
        names: Sequence[str] = (NAME,),
        **settings: Any,
    ) -> None:
        self.home, self.vault = home, vault
        self.vault_id = str(vault.settings.vault_id) if vault else VAULT_ID
        by_password = {"kind": "password", "user": vault.settings.user, "password_variable": PASSWORD} if vault else {}
        login = {"url": vault.url, "login": by_password} if vault else {}
        strict = {"bad_rows": {"max_count": 0, "max_share": 0.0}}
        own = {part: settings.pop(part, {}) for part in ("vault", "landing", "archive", "shred", "load")}
        steps = settings.pop("steps", [])
        datasets = {
            name: {
                "source": "veeva",
                "vault": {"id": self.vault_id, **login, **own["vault"]},
                "landing": {"root": str(home / "landing" / folder), **own["landing"]},
                "shred": {"output": str(home / "shredded" / folder), **strict, **own["shred"]},
                "archive": own["archive"],
                "load": own["load"],
                "steps": steps,
            }
            for name, folder in zip(names, names if len(names) > 1 else [""], strict=True)
        }
        whole = {
            "datasets": datasets,
            "manifest": {"store": store_url or "sqlite:///manifest.db"},
            "warehouse": {"path": "warehouse.duckdb"},
            "spark": {"conf": str(REPOSITORY / "spark_conf" / "local.conf")},
            **settings,
        }
        home.mkdir(parents=True, exist_ok=True)
        (home / "landing").mkdir(exist_ok=True)
        self.config_file = home / "manifest_platform.yaml"
        self.config_file.write_text(yaml.safe_dump(whole))

    def open(self, run_id: str | None = None, name: str = NAME) -> Pipeline:
        return Pipeline(config.load(self.config_file), name, run_id)

    def command(self, *arguments: str) -> int:
        """Runs an operator's command in this process; returns its exit code."""
        with patch.dict(os.environ, {config.VARIABLE: str(self.config_file), **self.environment}):
            return cli.main(list(arguments))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a process needs to log in."""
        return {PASSWORD: self.vault.settings.password} if self.vault else {}

    @property
    def seen(self) -> Seen:
        return self.seen_of(NAME)

    def seen_of(self, name: str) -> Seen:
        """Returns what a reader finds of one of several datasets."""
        if not (self.home / "warehouse.duckdb").exists():
            return NOTHING
        warehouse = DuckDB(self.home / "warehouse.duckdb")
        try:
            control = warehouse.qualified("manifest_platform")
            if "ledger" not in warehouse.columns("manifest_platform"):
                return NOTHING
            mine = "WHERE dataset = ?", (name,)
            ledger = warehouse.execute(f"SELECT item, epoch FROM {control}.ledger {mine[0]} ORDER BY applied_at", mine[1])
            fences = warehouse.execute(f"SELECT feed, token, epoch, applied FROM {control}.fence {mine[0]}", mine[1])
            tables = {
                table: _by_id(warehouse.execute(f'SELECT "id", "name__v" FROM {warehouse.qualified(name, table)}'))
                for table, columns in sorted(warehouse.columns(name).items())
                if {"id", "name__v"} <= columns.keys() and "__mp_" not in table
            }
            return Seen(
                tables,
                [(_short_name(item), epoch) for item, epoch in ledger],
                {feed: (token, epoch, short_position(applied)) for feed, token, epoch, applied in fences},
            )
        finally:
            warehouse.close()

    def process(
        self,
        *arguments: str,
        failpoint: str | None = None,
        wait: bool = False,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Starts a process that runs a command up to a failpoint (`load.committed:kill`).

        With `wait`, the command begins at a line on stdin. Commands: `capture`, `drain`, `begin ITEM`, `cancel`; options come
        before them, as `--without-heartbeat`.
        """
        own = {**self.environment, **(environment or {})}
        return launched([__name__, str(self.config_file), *arguments], self.home, own, failpoint, wait)

    def captured(self, pipeline: Pipeline, *feeds: str) -> CaptureReport:
        """Captures what the fake Vault has, by default of all feeds."""
        with patch.dict(os.environ, self.environment):
            *_, report = pipeline.source.capture(pipeline.manifest, pipeline.clock(), feeds or None)
        assert isinstance(report, CaptureReport)
        return report

    def differences(
        self, simulation: Simulation, upto: datetime, snapshots: Sequence[datetime] = (), logs: datetime | None = None
    ) -> dict[str, tuple[list[Any], list[Any]]]:
        """Returns the tables that differ from the vault at a time: the surplus rows, and the missing rows.

        `snapshots`: the stop times of the loaded snapshots. `logs`: the time up to which logs were loaded, from the day before
        the beginning on; by default logs are not compared.
        """
        wanted = {name: list(rows.values()) for name, rows in simulation.tables(upto, snapshots).items()}
        wanted |= simulation.logs(logs) if logs else {}
        warehouse = DuckDB(self.home / "warehouse.duckdb")
        try:
            there = warehouse.columns(NAME)
            found: dict[str, tuple[list[Any], list[Any]]] = {}
            for name, rows in wanted.items():
                columns = sorted({column for row in rows for column in row}) or list(there.get(name, {}))[:1]
                names = ", ".join(f'"{column}"' for column in columns)
                held: list[tuple[Any, ...]] = []
                if name in there:
                    held = warehouse.execute(f"SELECT {names} FROM {warehouse.qualified(NAME, name)}")
                right = [tuple(_stored(row.get(column)) for column in columns) for row in rows]
                much, little = Counter(held) - Counter(right), Counter(right) - Counter(held)
                if much or little:
                    found[name] = list(much.elements()), list(little.elements())
            return found
        finally:
            warehouse.close()


def rows_in(ward: Ward, schema: str, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Returns columns of the rows of a table, by id."""
    warehouse = DuckDB(ward.home / "warehouse.duckdb")
    try:
        names = ", ".join(f'"{column}"' for column in columns)
        return warehouse.execute(f'SELECT {names} FROM {warehouse.qualified(schema, table)} ORDER BY "id"')
    finally:
        warehouse.close()


def _by_id(rows: list[tuple[Any, ...]]) -> dict[str, str]:
    found = dict(rows)
    assert len(found) == len(rows), f"rows that are there twice: {sorted(rows)}"
    return found


def _stored(value: Any) -> Any:
    """Returns a value of the vault in the form of tables: times in UTC without a zone, None for an empty text."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else None if value == "" else value


def _short_name(uri: str) -> str:
    """Returns a short name, as `incr 0015`, for an item's URI."""
    feed, sort = uri.split("/")[-2], uri.rpartition("=")[2]
    time = datetime.strptime(sort.replace("-", "").replace("T", "").ljust(12, "0"), "%Y%m%d%H%M").replace(tzinfo=UTC)
    return f"{feed} {short(time)}"


def short_position(position: str) -> str:
    """Returns the time of a position in the form of cases; empty if there is none."""
    time = parse_minute(position.partition("#")[0])
    return short(time) if time else ""


# Actions


def land(pipeline: Pipeline, *windows: Window, shredded: bool = True) -> list[str]:
    """Lands and shreds windows in this order; returns the outcome of each, as `new` or `quarantined`."""
    outcomes: list[str] = []
    for feed, some in groupby(windows, key=lambda window: window.feed):
        outcomes += [found.outcome for found in pipeline.manifest.discover(feed, [landed(pipeline, one) for one in some])]
    if shredded:
        for feed in {window.feed for window in windows}:
            _shred(pipeline, feed, [window for window in windows if window.feed == feed])
    return outcomes


def landed(pipeline: Pipeline, window: Window, checksum: str = "as-landed") -> Landed:
    """Returns a window as it is registered in the manifest."""
    assert isinstance(pipeline.dataset, VeevaSettings)
    key = ItemKey(window.feed, minute(window.stop), item_uri(pipeline.source.root, pipeline.dataset.vault.id, window.name))
    return Landed(key, len(window.rows), 100, checksum, minute(window.start), minute(window.stop))


def _shred(pipeline: Pipeline, feed: str, windows: Sequence[Window]) -> None:
    items = {window: pipeline.manifest.item(landed(pipeline, window).key) for window in windows}
    todo = {window: item for window, item in items.items() if not item.processed_by(Application(SHRED))}
    if not todo:
        return
    with pipeline.lease(feed, SHRED) as held:
        for window, claim in zip(todo, pipeline.manifest.claim(held, list(todo.values())), strict=True):
            listing = write_listing(pipeline, window, claim.processing.record_id)
            place = f"{pipeline.folder(claim.item.key)}/{claim.processing.record_id}/{LISTING_FILE}"
            tables = sorted(table.name for table in listing.tables if table.mode != "delete")
            data = {"listing": place, "lines": listing.lines, "good": listing.lines, "bad": 0, "bytes": listing.bytes}
            pipeline.manifest.complete(claim, Payload(OUTPUT, {**data, "tables": tables}))


def write_listing(pipeline: Pipeline, window: Window, attempt: str) -> Listing:
    """Writes Parquet and listing of a window where an attempt at shredding would have put them."""
    key = landed(pipeline, window).key
    folder = Path(pipeline.dataset.shred.output) / pipeline.name / folder_name(key)
    listing = dataclasses.replace(written(folder, attempt, _tables(window)), item=key.id, attempt=attempt)
    listing.write(f"{pipeline.folder(key)}/{attempt}/{LISTING_FILE}")
    return listing


def started(pipeline: Pipeline, snapshot: str = "0000", *windows: Window) -> None:
    """Loads the first snapshot, then lands windows that may be loaded."""
    land(pipeline, full(snapshot))
    begun(pipeline, snapshot)
    drained(pipeline)
    land(pipeline, *windows)


def spoil(pipeline: Pipeline, window: str, feed: str = INCR) -> Path:
    """Removes the shredded output of a window, so that loading it fails; returns its place."""
    folder = Path(pipeline.dataset.shred.output) / pipeline.name / folder_name(key_of(pipeline, window, feed))
    [*files] = folder.glob("*/*/*/*.parquet")
    for file in files:
        file.rename(file.with_suffix(".taken"))
    return folder


def mend(folder: Path) -> None:
    """Restores what `spoil` removed."""
    for file in folder.glob("*/*/*/*.taken"):
        file.rename(file.with_suffix(".parquet"))


def left_by_a_dead_worker(ward: Ward, feed: str = INCR) -> Claim:
    """Claims the next item of a feed with a worker that dies, and ends its lease, as someone does who knows of its death."""
    with ward.open(run_id="dead") as worker:
        held = worker.manifest.acquire(feed, LOAD, "a worker", DAY)
        ready = worker.manifest.next(feed, LOAD, holding=True)
        assert isinstance(ready, Ready), ready
        [claim] = worker.manifest.claim(held, [ready.item], ready.state)
        kill(held)
        worker.manifest.end_leases("dead")
    return claim


@contextmanager
def crashing(point: str) -> Generator[None]:
    """Ends the worker at a point of its work, and frees its lease immediately."""
    with patch.dict(os.environ, {failpoints.VARIABLE: f"{point}:raise"}), pytest.raises(failpoints.FailpointReached):
        yield


def drained(
    pipeline: Pipeline, spark: Any = no_spark, budget: Budget = UNBOUNDED, feeds: Sequence[str] | None = None
) -> tuple[list[Event], DrainReport]:
    """Drains; returns the events and the report. `spark`: a session, or a function that returns one."""
    *events, report = drain(pipeline, spark if callable(spark) else lambda: spark, budget, feeds)
    assert isinstance(report, DrainReport)
    return [event for event in events if not isinstance(event, DrainReport)], report


def begun(pipeline: Pipeline, item: str, spark: Any = no_spark) -> Begun:
    """Begins a full load with a snapshot, given by its name or by its stop time in the form of cases."""
    name = item if "/" in item or item == "latest" else full(item).name
    *_, last = begin(pipeline, spark if callable(spark) else lambda: spark, name, "for a test")
    assert isinstance(last, Begun)
    return last


def key_of(pipeline: Pipeline, window: str, feed: str = INCR) -> ItemKey:
    """Returns the key of a window, by its stop time in the form of cases."""
    return pipeline.manifest.find(feed, minute(at(window)))


def state(pipeline: Pipeline) -> StepState:
    return pipeline.manifest.state(Application(LOAD))


def watermark(pipeline: Pipeline, feed: str = INCR) -> str:
    """Returns the stop time up to which a feed is loaded, in the form of cases; empty if nothing is loaded."""
    return short_position(state(pipeline).feed(feed).watermark)


def standings(pipeline: Pipeline, feed: str = INCR) -> dict[str, Standing]:
    """Returns the state of each window of a feed for `load`, by stop time; for those still to be loaded, as in the backlog."""
    step = pipeline.manifest.step(feed, LOAD)
    seen = state(pipeline).seen_by(step, feed)
    every = {short_position(item.key.position): judge(item, step, seen) for item in pipeline.manifest.items(feed)}
    waiting = {short_position(item.key.position): judged for item, judged in pipeline.manifest.backlog(feed, LOAD)}
    return {stop: judged.standing for stop, judged in (every | waiting).items()}


def history(pipeline: Pipeline, window: str, feed: str = INCR) -> list[str]:
    """Returns a window's records, each as `application state kind`; `New` for its registration."""
    return [_words(record) for record in pipeline.manifest.history(key_of(pipeline, window, feed))]


def attempts(pipeline: Pipeline, window: str, feed: str = INCR) -> int:
    """Returns how often a load of a window was begun."""
    return history(pipeline, window, feed).count("load Processing")


def _words(record: Record) -> str:
    if record.payload and record.payload.schema == LANDED:
        return "New"
    kind = record.data.get("kind") or ("automatic" if record.data.get("automatic") else "")
    return " ".join(word for word in (record.application.key, str(record.state), kind) if word)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("command", choices=["capture", "drain", "begin", "cancel"])
    parser.add_argument("item", nargs="?", default="latest", help="of begin: a snapshot's name")
    parser.add_argument("--without-heartbeat", action="store_true")
    arguments = parser.parse_args()
    if arguments.without_heartbeat:
        setattr(lease, "HEARTBEATS_PER_DURATION", 1e-6)  # noqa: B010
    settings = config.load(arguments.config)
    with Pipeline(settings, NAME) as pipeline:
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        if arguments.command == "capture":
            *_, end = pipeline.source.capture(pipeline.manifest, pipeline.clock())
        elif arguments.command == "drain":
            *_, end = drain(pipeline, lambda: session(settings.spark.conf))
        elif arguments.command == "begin":
            *_, end = begin(pipeline, lambda: session(settings.spark.conf), arguments.item, "for a test")
        else:
            cancel(pipeline, "for a test")
            end = full_status(pipeline)
        print(json.dumps(dataclasses.asdict(end), default=str))  # noqa: T201


if __name__ == "__main__":
    main()
