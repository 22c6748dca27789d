"""Shredding of Snowplow events of a real shape: 131 fields, 24 entities of 21 schemas, 8 KB a line.

    python benchmarks/snowplow.py [--repeats 3] [--scale 1] [--lines FOLDER --schemas FOLDER] [--what speed,memory,runs]

    speed   MB a second, warm, in one Spark session: entities unchecked, checked by types, checked by schemas, and that
            without natural duplicates; events of one date, and of 18; the Parquet files of 1 GB
    memory  the peak memory of a worker and of the driver after runs of 10 MB, 200 MB and 2 GB
    runs    1,000 runs of 50 events in batches, against a job a run; files, bytes a file, and requests to S3,
            each with a file a table, and packed

Goals are for the clock. Beside the clock's seconds it prints the processor's: those of all processes, JVM and workers included.
They depend less on what else the machine does. Two cores that do nothing else cannot be faster than `by CPU`. The events are
generated, or those of a folder of enriched lines with a registry of their schemas; each copy gets another event id.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pairs import arguments, print_figure
from prepared import REPOSITORY

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.shred.batch import Directory, Options
from manifest_platform.sources.snowplow.events.shredder import shred
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION
from manifest_platform.sources.snowplow.rules import Kinds, Rules
from manifest_platform.sources.snowplow.sealing import sealed
from manifest_platform.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEGABYTES, DATES = 320, 18
SIZES = 10, 200, 2_000
RUNS, EVENTS = 1_000, 50
BATCH = 40
SAMPLE = 20
PACK = 1 << 20
WAYS = {
    "off": (Rules(validate="off"), None),
    "types": (Rules(validate="types"), 70),
    "full": (Rules(), 60),
    "natural": (Rules(duplicates=Kinds(natural=True)), 50),
}
"""The rules of each way, and the goal in MB a second for events of one date."""
OF_MANY_DATES = 0.8  # of the goal for one date
FILES_OF_GIGABYTE = 800
_TICKS = os.sysconf("SC_CLK_TCK")
_WRAPPER = "iglu:com.snowplowanalytics.snowplow/{}/jsonschema/1-0-0"


# Events


def write_schemas(root: Path) -> list[dict[str, Any]]:
    """Writes a registry of 21 schemas, and returns for each its key and the kinds of its properties."""
    rng = random.Random(1)
    kinds = {
        "word": {"type": "string", "maxLength": 255},
        "id": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "count": {"type": ["integer", "null"], "minimum": 0, "maximum": 1_000_000},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    models = []
    for number in range(21):
        own = [rng.choice(list(kinds)) for _ in range(2 + number % 8 * 2)]
        properties = {f"{kind}{place}": kinds[kind] for place, kind in enumerate(own)}
        path = root / f"schemas/com.bench/entity_{number}/jsonschema/1-0-0"
        path.parent.mkdir(parents=True)
        required = sorted(properties)[: number % 3 + 1]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        path.write_bytes(orjson.dumps(schema))
        models.append({"key": f"iglu:com.bench/entity_{number}/jsonschema/1-0-0", "kinds": own})
    return models


def _entity(rng: random.Random, model: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Callable[[], Any]] = {
        "word": lambda: rng.randbytes(rng.randrange(4, 40)).hex(),
        "id": lambda: rng.randbytes(8).hex(),
        "count": lambda: rng.randrange(1_000_000),
        "share": rng.random,
        "flag": lambda: rng.random() < 0.5,
        "at": lambda: f"2024-05-01T{rng.randrange(24):02}:00:00.{rng.randrange(1000):03}Z",
        "tags": lambda: [rng.randbytes(4).hex() for _ in range(3)],
    }
    return {"schema": model["key"], "data": {f"{kind}{place}": made[kind]() for place, kind in enumerate(model["kinds"])}}


def generated(models: Sequence[dict[str, Any]], count: int = 48) -> list[bytes]:
    """Makes lines of events with an entity of each model."""
    rng = random.Random(2)
    lines = []
    for _ in range(count):
        fields = [rng.randbytes(6).hex() if field.type.startswith("string") and rng.random() < 0.4 else "" for field in FIELDS]
        told = {"collector_tstamp": "2024-05-01 10:11:12.345", "etl_tstamp": "2024-05-01 10:12:00.000", "platform": "web"}
        for name in ("geo_country", "geo_region", "tr_currency", "ti_currency", "base_currency"):
            told[name] = "DEU"[: 2 if name == "geo_country" else 3]
        for name in ("br_colordepth", "refr_medium", "page_urlscheme", "refr_urlscheme", "geo_zipcode"):
            told[name] = ""
        told |= {"event_id": str(uuid.UUID(int=rng.getrandbits(128))), "v_collector": "c", "v_etl": "e", "event": "unstruct"}
        entities = [_entity(rng, model) for model in models]
        told["unstruct_event"] = _wrapped("unstruct_event", entities[0])
        told["contexts"], told["derived_contexts"] = _wrapped("contexts", entities), _wrapped("contexts", entities[-2:])
        for name, value in told.items():
            fields[POSITION[name]] = value
        lines.append("\t".join(fields).encode())
    return lines


def _wrapped(wrapper: str, data: Any) -> str:
    return orjson.dumps({"schema": _WRAPPER.format(wrapper), "data": data}).decode()


def given(folder: Path) -> list[bytes]:
    """Returns the lines of a folder that have the right number of fields."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(("_", ".")))
    lines = [line for path in files for line in path.read_bytes().split(b"\n")]
    return [line for line in lines if line.count(b"\t") == len(FIELDS) - 1]


def multiplied(lines: Sequence[bytes], dates: int) -> Iterator[bytes]:
    """Yields copies of the lines without end, each with an id of its own and dates in turn."""
    rng = random.Random(3)
    place, time_ = POSITION["event_id"], POSITION["collector_tstamp"]
    number = 0
    while True:
        for line in lines:
            fields = line.split(b"\t")
            fields[place] = str(uuid.UUID(int=rng.getrandbits(128))).encode()
            fields[time_] = b"2024-05-%02d" % (1 + number % dates) + fields[time_][10:]
            number += 1
            yield b"\t".join(fields)


def write_directory(path: Path, lines: Sequence[bytes], size: float, dates: int = 1, files: int = 4) -> Path:
    """Writes a run of about this many bytes."""
    path.mkdir(parents=True)
    source = multiplied(lines, dates)
    for part in range(files):
        with (path / f"part-{part:05}").open("wb") as file:
            while file.tell() < size / files:
                file.write(next(source) + b"\n")
    (path / "_SUCCESS").touch()
    return path


# Work


def directory_of(path: Path, output: Path) -> Directory:
    files = tuple((storage.as_uri(part), part.stat().st_size) for part in sorted(path.glob("part-*")))
    return Directory(storage.as_uri(path), files, storage.as_uri(output / path.name), uuid.uuid4().hex)


def shredded(
    spark: SparkSession, paths: Sequence[Path], output: Path, schemas: Path, rules: Rules, batch: int, pack: int = 0
) -> list[Listing]:
    """Shreds directories in jobs of `batch` directories."""
    listings = []
    for start in range(0, len(paths), batch):
        some = [directory_of(path, output) for path in paths[start : start + batch]]
        started = datetime.now(UTC)
        results = shred(spark, some, [str(schemas)], Options(max_bad_share=0.2, pack=pack), rules=rules)
        for result in sealed(some, results, started, rules.rows):
            assert isinstance(result, Listing), result
            listings.append(result)
    return listings


def processes() -> dict[int, str]:
    """Returns this process and all below it, by id, with the command of each."""
    below: dict[int, list[int]] = {}
    names = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                names[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                below.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, waiting = {}, [os.getpid()]
    while waiting:
        one = waiting.pop()
        found[one] = names.get(one, "")
        waiting += below.get(one, [])
    return found


def _stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds() -> float:
    """Returns the processor time of this process, of all below it, and of those that ended."""
    ticks = 0
    for process in processes():
        try:
            ticks += sum(map(int, _stat(process)[11:15]))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ticks / _TICKS


def peaks() -> dict[str, int]:
    """Returns the peak memory in MB of the largest worker, of the JVM, and of the driver's Python."""
    found: dict[str, int] = {}
    for process, command in processes().items():
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        kind = "driver" if process == os.getpid() else "jvm" if "java" in command else "worker"
        peak = next((int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
        found[kind] = max(found.get(kind, 0), peak)
    return found


def measured(work: Callable[[Path], Any]) -> tuple[float, float]:
    """Returns the clock's and the processor's seconds of work that writes below a fresh folder."""
    output = Path(tempfile.mkdtemp(prefix="snowplow-bench-"))
    try:
        cpu, began = cpu_seconds(), time.perf_counter()
        work(output)
        return time.perf_counter() - began, cpu_seconds() - cpu
    finally:
        shutil.rmtree(output)


# What is measured


def speed(spark: SparkSession, root: Path, lines: Sequence[bytes], schemas: Path, scale: float, repeats: int) -> None:
    """Prints the speed of each way, for events of one date and of many."""
    for dates in (1, DATES):
        path = write_directory(root / f"run-{dates}", lines, MEGABYTES * 1e6 * scale, dates)
        megabytes = sum(part.stat().st_size for part in path.glob("part-*")) / 1e6
        for way, (rules, goal) in WAYS.items():
            files: list[int] = []

            def work(to: Path, path: Path = path, rules: Rules = rules, files: list[int] = files) -> None:
                shredded(spark, [path], to, schemas, rules, 1)
                files.append(sum(1 for _ in to.rglob("*.parquet")))

            taken = [measured(work) for _ in range(repeats + 1)][1:]
            wall, cpu = min(one[0] for one in taken), min(one[1] for one in taken)
            print(
                f"{way:8} {dates:2} dates {megabytes / wall:6.1f} MB/s   {cpu / megabytes * 1000:6.1f} ms CPU a MB"
                f"   by CPU {2 * megabytes / cpu:6.1f} MB/s",
                flush=True,
            )
            if goal:
                wanted = goal if dates == 1 else goal * OF_MANY_DATES
                print_figure(f"{way}, {dates} dates", megabytes / wall, wanted, " MB/s", at_least=True)
            if dates > 1:
                print_figure(f"{way}, {dates} dates, Parquet files of 1 GB", files[-1] * 1000 / megabytes, FILES_OF_GIGABYTE)
        shutil.rmtree(path)


def memory(spark: SparkSession, root: Path, lines: Sequence[bytes], schemas: Path, scale: float) -> None:
    """Prints the peak memory after small and large runs."""
    for megabytes in sorted({min(size, int(SIZES[-1] * scale)) for size in SIZES}):
        path = write_directory(root / f"run-{megabytes}", lines, megabytes * 1e6, DATES)
        measured(partial(shredded, spark, [path], schemas=schemas, rules=Rules(), batch=1))
        print(f"{megabytes:5} MB: peak memory in MB {peaks()}", flush=True)
        shutil.rmtree(path)


def many_runs(spark: SparkSession, root: Path, lines: Sequence[bytes], schemas: Path, scale: float, log: Path) -> None:
    """Prints what many small runs take in batches, against a job a run. `log`: that of the S3 server."""
    size = EVENTS * sum(map(len, lines)) / len(lines)
    count = max(BATCH, int(RUNS * scale))
    paths = [write_directory(root / f"run-{number:04}", lines, size, files=1) for number in range(count)]
    alone = paths[:SAMPLE]
    measured(lambda to: shredded(spark, alone, to, schemas, Rules(), 1))  # warm
    single, single_cpu = (
        taken / len(alone) * count for taken in measured(lambda to: shredded(spark, alone, to, schemas, Rules(), 1))
    )
    print(f"{count} runs by a job a run, from {len(alone)} of them: {single:6.1f} s, {single_cpu:6.1f} s CPU")
    for way, pack, most in (("a file a table", 0, None), ("packed", PACK, 4 * count)):
        files: list[int] = []

        def batched(to: Path, pack: int = pack, files: list[int] = files) -> None:
            shredded(spark, paths, to, schemas, Rules(), BATCH, pack)
            files.extend(path.stat().st_size for path in to.rglob("*") if path.is_file())

        spark.sparkContext.setJobGroup(way, way)
        wall, cpu = measured(batched)
        jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(way))
        print(
            f"{count} runs in {jobs} Spark jobs, {way}: {wall:6.1f} s, {cpu:6.1f} s CPU; "
            f"{len(files)} files of {sum(files) / len(files):.0f} bytes"
        )
        print_figure(f"{way}, by a job a run", wall / single, 0.25)
        print_figure(f"{way}, CPU by a job a run", cpu / single_cpu, 0.25)
        if most:
            print_figure(f"{way}, files", len(files), most)
        asked = requests(spark, paths[:BATCH], schemas, pack, log)
        told = ", ".join(f"{number / BATCH:.1f} {method}" for method, number in sorted(asked.items()))
        print(f"requests to S3 a run, {way}: {told}, together {asked.total() / BATCH:.1f}", flush=True)
    for path in paths:
        shutil.rmtree(path)


def requests(spark: SparkSession, paths: Sequence[Path], schemas: Path, pack: int, log: Path) -> Counter[str]:
    """Shreds directories in S3 in one job, and returns the number of requests by method. `log`: that of the S3 server."""
    place = f"s3://bench/{uuid.uuid4().hex}"
    directories = []
    for path in paths:
        files = [(f"{place}/landing/{path.name}/{part.name}", part.read_bytes()) for part in sorted(path.glob("part-*"))]
        for uri, data in files:
            storage.write_bytes(uri, data)
        sizes = tuple((uri, len(data)) for uri, data in files)
        directories.append(Directory(f"{place}/landing/{path.name}", sizes, f"{place}/{path.name}/1", "1"))
    before = _asked(log)
    started = datetime.now(UTC)
    results = shred(spark, directories, [str(schemas)], Options(max_bad_share=0.2, pack=pack), rules=Rules())
    for result in sealed(directories, results, started, Rules().rows):
        assert isinstance(result, Listing), result
    return _asked(log) - before


def _asked(log: Path) -> Counter[str]:
    return Counter(re.findall(r"\b(GET|PUT|POST|HEAD|DELETE)\b", log.read_text()))


@contextmanager
def s3_server(home: Path) -> Generator[Path]:
    """Runs the S3 server of the tests with the bucket `bench`, for this process and those it starts. Gives the server's log."""
    sys.path.append(str(REPOSITORY))
    from manifest_platform.demo.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server, versitygw
    from manifest_platform.demo.server import free_port, running

    (home / "data" / "bench").mkdir(parents=True)
    port, log = free_port(), home / "log"
    command = [versitygw(), "--port", f"127.0.0.1:{port}", "--region", REGION, "posix", home / "data"]
    environment = {"PATH": os.defpath, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with running(command, port, log, environment):
        os.environ.update(S3Server(f"http://127.0.0.1:{port}").environment)
        yield log


def main() -> None:
    parser = arguments(__doc__, 3, f"{MEGABYTES} MB, {SIZES[-1]} MB for memory, {RUNS} runs")
    parser.add_argument("--lines", type=Path, help="a folder of enriched lines (generated ones)")
    parser.add_argument("--schemas", type=Path, help="the registry of their schemas")
    parser.add_argument("--what", default="speed,memory,runs", help="what to measure (speed,memory,runs)")
    options = parser.parse_args()
    what = options.what.split(",")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="snowplow-bench-") as folder, ExitStack() as stack:
        root = Path(folder)
        log = stack.enter_context(s3_server(root / "s3")) if "runs" in what else None  # before Spark's processes
        models = write_schemas(root / "registry")
        lines = given(options.lines) if options.lines else generated(models)
        schemas = options.schemas or root / "registry"
        print(f"{len(lines)} different lines of {sum(map(len, lines)) / len(lines):.0f} bytes")
        spark = session(REPOSITORY / "spark_conf" / "local.conf")
        if "memory" in what:  # first, because peaks never fall
            memory(spark, root, lines, schemas, options.scale)
        if "speed" in what:
            speed(spark, root, lines, schemas, options.scale, options.repeats)
        if log:
            many_runs(spark, root, lines, schemas, options.scale, log)
        spark.stop()


if __name__ == "__main__":
    main()
