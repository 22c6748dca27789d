"""A shop whose enriched runs go from landing to warehouse: real files, a real SQLite manifest, a real DuckDB file.

As a program (`python -m manifest_platform_tests.pipeline.shop CONFIG`), it drains the shop in a process of its own, which a
test may kill or stop. It prints `ready`, waits for a line, drains, and prints as JSON why it stopped.
"""

from __future__ import annotations

import argparse
import atexit
import copy
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import yaml

from manifest_platform import config, failpoints, storage
from manifest_platform.demo.events import SCHEMAS, WrittenRun, write_run
from manifest_platform.listing import LISTING_FILE
from manifest_platform.manifest import LANDED, Application, ItemKey, Record, lease
from manifest_platform.manifest.transitions import put_state
from manifest_platform.pipeline import LOAD, Budget, DrainReport, Event, Pipeline, catching_up
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.merge import MergeReport, Merging, merge
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.spark import session
from manifest_platform.testing.loads import control
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.tables import LOAD_TIME
from manifest_platform_tests.servers.warehouses import FilePlace, Place

REPOSITORY = Path(__file__).parents[2]
NAME = "shop"
FIRST = datetime(2024, 5, 14, 12, 0, tzinfo=UTC)
STEP = timedelta(minutes=10)
EVENTS = 20
UNBOUNDED = Budget()
_PREPARED: dict[str, Shop] = {}
"""Shops with shredded runs that nobody writes to, by what makes them differ."""


def run_name(number: int) -> str:
    return f"run={FIRST + number * STEP:%Y-%m-%d-%H-%M-%S}"


def run_names(*numbers: int) -> list[str]:
    return [run_name(number) for number in numbers]


def no_spark() -> NoReturn:
    raise AssertionError("Spark was asked for, and nothing was to be shredded")


@functools.cache
def _prepared_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="manifest-platform-shops-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class Seen:
    """The content of the warehouse: rows by table, the ledger in the order of its commits, and the fence."""

    rows: dict[str, int]
    ledger: list[tuple[str, bool]]
    token: int
    applied: str

    @property
    def runs(self) -> list[str]:
        return [name for name, _ in self.ledger]


class Shop:
    """A shop in a directory. `settings`: of its configuration, merged into small defaults.

    `place`: its warehouse; by default a DuckDB file in the directory.
    """

    def __init__(self, home: Path, place: Place | None = None, /, **settings: Any) -> None:
        self.home = home
        self.place = place or FilePlace(home)
        self._settings = copy.deepcopy(settings)
        if place:
            settings["warehouse"] = place.settings
            settings["shred"] = {"output": f"{place.objects}/shredded", **settings.get("shred", {})}
        dataset = {
            "landing": {"root": str(home / "landing"), **settings.pop("landing", {})},
            "shred": {"output": str(home / "shredded"), "schemas": [str(SCHEMAS)], **settings.pop("shred", {})},
            "load": settings.pop("load", {}),
        }
        if "merge" in settings:
            dataset["merge"] = {"output": str(home / "merged"), **settings.pop("merge")}
        whole = {
            "datasets": {NAME: dataset},
            "manifest": {"store": "sqlite:///manifest.db"},
            "warehouse": {"path": "warehouse.duckdb"},
            "spark": {"conf": str(REPOSITORY / "spark_conf" / "local.conf")},
            **settings,
        }
        home.mkdir(parents=True, exist_ok=True)
        (home / "landing").mkdir(exist_ok=True)
        self.ahead = timedelta()  # how far the pipeline's clock is ahead of the real one
        self.config_file = home / "manifest_platform.yaml"
        self.config_file.write_text(yaml.safe_dump(whole))

    def open(self) -> Pipeline:
        return Pipeline(config.load(self.config_file), NAME, clock=lambda: datetime.now(UTC) + self.ahead)

    def write(self, *numbers: int, events: int = EVENTS, **options: Any) -> list[WrittenRun]:
        """Writes runs to the landing, each with its marker."""
        root = config.load(self.config_file).datasets[NAME].landing.root
        return [write_run(root, FIRST + number * STEP, events, seed=1, **options) for number in numbers]

    def directory(self, number: int) -> Path:
        return self.home / "landing" / run_name(number)

    def land(self, pipeline: Pipeline, *numbers: int, **options: Any) -> list[ItemKey]:
        """Writes runs to the landing and discovers them."""
        self.write(*numbers, **options)
        discover(pipeline, everything=True)
        return keys(pipeline, *numbers)

    def shredded(self, spark: Any, count: int, **options: Any) -> None:
        """Lands and shreds the first `count` runs. This is done once in this process for equal shops, which get copies."""
        settings = config.load(self.config_file)
        dataset = settings.datasets[NAME]
        if not self._has_all_at_home(settings.manifest.store, dataset.landing.root, dataset.shred.output):
            return self._shred(spark, count, **options)
        alike = f"{dataset.landing} {dataset.shred} {count} {options}".replace(self.place.objects, "HOME")
        alike = alike.replace(str(self.home), "HOME")
        if alike not in _PREPARED:
            _PREPARED[alike] = prepared = Shop(Path(tempfile.mkdtemp(dir=_prepared_folder())), **self._settings)
            prepared._shred(spark, count, **options)
        return self._copy(_PREPARED[alike])

    def _has_all_at_home(self, store: str, landing: str, output: str) -> bool:
        """True if the shop is empty and keeps all its data in its own directory, or its objects in the place of its own."""
        output = output.replace(self.place.objects, str(self.home))
        places = [store.removeprefix("sqlite:///"), landing.removeprefix("file://"), output.removeprefix("file://")]
        wanted = [self.home / name for name in ("manifest.db", "landing", "shredded")]
        return [Path(place) for place in places] == wanted and not wanted[0].exists()

    def _shred(self, spark: Any, count: int, **options: Any) -> None:
        with self.open() as pipeline:
            list(shred_chosen(pipeline, lambda: spark, self.land(pipeline, *range(count), **options)))

    def _copy(self, other: Shop) -> None:
        """Copies the landed and shredded data of another shop, with its paths replaced by those of this shop."""
        shutil.copytree(other.home / "landing", self.home / "landing", dirs_exist_ok=True)
        (self.home / "shredded").mkdir(exist_ok=True)
        shutil.copy(other.home / "manifest.db", self.home)
        output = storage.as_uri(f"{self.place.objects}/shredded")
        moved = {storage.as_uri(other.home / "shredded"): output, str(other.home): str(self.home)}
        for file in (other.home / "shredded").rglob("*"):
            if file.is_file():
                data = file.read_bytes()
                if file.name == LISTING_FILE:
                    for there, here in moved.items():
                        data = data.replace(there.encode(), here.encode())
                storage.write_bytes(
                    f"{output}/{storage.quote_path(file.relative_to(other.home / 'shredded').as_posix())}", data
                )
        with closing(sqlite3.connect(self.home / "manifest.db")) as store, store:
            for there, here in moved.items():
                store.execute("UPDATE manifest SET sort = replace(sort, ?1, ?2), data = replace(data, ?1, ?2)", (there, here))

    @property
    def seen(self) -> Seen:
        with closing(self.place.open()) as warehouse:
            ledger = warehouse.execute(f"SELECT item, late FROM {control(warehouse, 'ledger')} ORDER BY applied_at")
            [(token, applied)] = warehouse.execute(f"SELECT token, applied FROM {control(warehouse, 'fence')}")
            rows = {
                table: warehouse.execute(f"SELECT count(*) FROM {warehouse.qualified(NAME, table)}")[0][0]
                for table in sorted(warehouse.columns(NAME))
            }
            return Seen(rows, [(item.rpartition("/")[2], late) for item, late in ledger], token, applied.partition("#")[0])

    @property
    def contents(self) -> dict[str, str]:
        """A hash of each table's rows without the time of the load. Of the same runs it is the same on each engine."""
        found = {}
        with closing(self.place.open()) as warehouse:
            for table, types in warehouse.columns(NAME).items():
                names = sorted(types.keys() - {LOAD_TIME.name})
                columns = ", ".join(map(warehouse.quote, names))
                rows = warehouse.execute(f"SELECT {columns} FROM {warehouse.qualified(NAME, table)}")
                texts = sorted(json.dumps([self._plain(value) for value in row]) for row in rows)
                found[table] = hashlib.sha256("\n".join([*names, *texts]).encode()).hexdigest()
        return found

    def _plain(self, value: Any) -> Any:
        """Returns a value in one form for all drivers: JSON with sorted keys, times in UTC, paths below HOME."""
        if isinstance(value, str) and value[:1] in ("{", "["):
            with suppress(ValueError):  # the raw line of a bad row is any text
                value = json.loads(value)
        if isinstance(value, dict | list):
            value = json.dumps(value, sort_keys=True)
        if isinstance(value, datetime):
            value = (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None)
        if isinstance(value, Decimal):
            value = value.normalize()
        plain = value is None or isinstance(value, bool | float | int)
        return value if plain else str(value).replace(self.home.as_posix(), "HOME")

    @property
    def doubled_events(self) -> list[tuple[Any, ...]]:
        """Events that the warehouse has more than once."""
        with closing(self.place.open()) as warehouse:
            events = warehouse.qualified(NAME, "events")
            return warehouse.execute(f"SELECT event_id FROM {events} GROUP BY event_id HAVING count(*) > 1")

    def process(
        self, failpoint: str | None = None, *arguments: str, wait: bool = False, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Starts a process that drains the shop (`--merge`: merges), up to a failpoint. `wait`: for a line on stdin."""
        return launched([__name__, str(self.config_file), *arguments], self.home, environment or {}, failpoint, wait)


def launched(
    module: Sequence[str], home: Path, environment: Mapping[str, str], failpoint: str | None, wait: bool
) -> subprocess.Popen[str]:
    """Starts a process that runs a module with arguments, up to a failpoint. Its errors are in `process.log`."""
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        env={**os.environ, **environment, **({failpoints.VARIABLE: failpoint} if failpoint else {})},
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(home / "process.log").open("a"),
        text=True,
    )
    if not wait and process.stdin:
        process.stdin.write("\n")
        process.stdin.flush()
    return process


def ended(process: subprocess.Popen[str], seconds: float = 250) -> dict[str, Any]:
    """Returns the report of a process that ended normally."""
    output, _ = process.communicate("\n", timeout=seconds)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1])


def keys(pipeline: Pipeline, *numbers: int) -> list[ItemKey]:
    return [pipeline.key(run_name(number)) for number in numbers]


def drained(pipeline: Pipeline, spark: Any = no_spark, budget: Budget = UNBOUNDED) -> tuple[list[Event], DrainReport]:
    """The events of a drain, and its report. `spark`: a session, or a function that returns it."""
    *events, report = drain(pipeline, spark if callable(spark) else lambda: spark, budget)
    assert isinstance(report, DrainReport)
    return [event for event in events if not isinstance(event, DrainReport)], report


def history(pipeline: Pipeline, number: int) -> list[str]:
    """An item's records, each as `application state`; for records of discovery, only the state."""
    return [_words(record) for record in pipeline.manifest.history(keys(pipeline, number)[0])]


def _words(record: Record) -> str:
    if record.payload and record.payload.schema == LANDED:
        return "New"
    kind = record.data.get("kind") or ("automatic" if record.data.get("automatic") else "")
    return " ".join(word for word in (record.application.key, str(record.state), kind) if word)


def loaded_record(pipeline: Pipeline, number: int) -> Record:
    record = pipeline.manifest.item(keys(pipeline, number)[0]).processed_by(Application(LOAD))
    assert record is not None, f"{run_name(number)} is not loaded"
    return record


def watermark(pipeline: Pipeline) -> str:
    return pipeline.manifest.state(Application(LOAD)).feed(FEED).watermark.partition("#")[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--dataset", default=NAME)
    parser.add_argument("--without-heartbeat", action="store_true")
    parser.add_argument("--connects-late", action="store_true")
    parser.add_argument("--discover", action="store_true")
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--then-merge", action="store_true")
    parser.add_argument("--parts", type=int)
    arguments = parser.parse_args()
    if arguments.parts:  # of a batch, as if a transaction of the manifest held no more
        setattr(catching_up, "MAX_WRITES", 3 + 3 * arguments.parts)  # noqa: B010
    if arguments.without_heartbeat:
        setattr(lease, "HEARTBEATS_PER_DURATION", 1e-6)  # noqa: B010
    if arguments.connects_late:  # so that a paused process does not hold the file of an embedded warehouse
        setattr(Warehouse, "reach", lambda _: None)  # noqa: B010
    settings = config.load(arguments.config)
    with Pipeline(settings, arguments.dataset) as pipeline:
        if arguments.discover:
            discover(pipeline)
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        events: list[object] = []
        if not arguments.merge:
            events += drain(pipeline, lambda: session(settings.spark.conf))
        if arguments.merge or arguments.then_merge:
            events += merge(Merging(pipeline), lambda: session(settings.spark.conf))
        report = events[-1]
        assert isinstance(report, DrainReport | MergeReport)
        print(json.dumps(dataclasses.asdict(report), default=str))  # noqa: T201


def move_watermark(pipeline: Pipeline, number: int) -> None:
    """Moves the watermark, as if all runs up to this run had been loaded."""
    [key] = keys(pipeline, number)
    state = pipeline.manifest.state(Application(LOAD))
    moved = state.with_feed("enriched", watermark=key.position, swept=key.position)
    pipeline.manifest.store.transact(NAME, [put_state(Application(LOAD), moved)], f"watermark {number}")


if __name__ == "__main__":
    main()
