"""What Dagster costs a drained window: the drain job against the drain alone.

    python benchmarks/drain_overhead.py [--repeats 5] [--scale 1] [--profile]

As many tiny shredded runs (60 at scale 1) are loaded by the drain job in process, on an instance in SQLite files of its own,
and by the drain alone. Definitions and instance are made before, as in a worker that has started. Spark is not started.
`--profile` shows where the job's time goes. Dagster's log, which belongs to its cost, goes to stderr.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import statistics
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
from pairs import arguments, interleaved, print_figure, print_medians, ratio
from prepared import DATASET, register, run_directory, write_config, write_listing

from manifest_platform import config
from manifest_platform.listing import Column, Listing, Table
from manifest_platform.pipeline import DrainReport, Pipeline, Stop
from manifest_platform.pipeline.drain import drain

WINDOWS, ROWS = 60, 5
GOAL_MS = 20
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Dagster tells every step of every window on the terminal else."""
TABLES = [
    Table(name, (Column("event_id", "string"), Column("position", "integer")))
    for name in ("clicks", "pages", "sessions", "users")
]


def make_run(root: Path, number: int) -> Listing:
    """Four tables of five rows."""
    rows = pa.table({"event_id": [f"{number}-{row}" for row in range(ROWS)], "position": pa.array(range(ROWS), pa.int32())})
    return write_listing(run_directory(root, number), [(table, [rows]) for table in TABLES])


def no_spark() -> NoReturn:
    raise AssertionError("everything is shredded")


def fresh(home: Path, runs: list[Listing]) -> Path:
    """A configuration whose manifest has the runs, shredded and not loaded."""
    file = write_config(home)
    with Pipeline(config.load(file), DATASET) as pipeline:
        register(pipeline, runs)
    return file


def drain_alone(runs: list[Listing]) -> float:
    """Seconds of the drain, from the opening of its pipeline to the closing."""
    with tempfile.TemporaryDirectory() as home:
        file = fresh(Path(home), runs)
        began = time.perf_counter()
        with Pipeline(config.load(file), DATASET) as pipeline:
            *_, report = drain(pipeline, no_spark)
        seconds = time.perf_counter() - began
        assert isinstance(report, DrainReport)
        assert (report.stop, report.loaded) == (Stop.IDLE, len(runs)), report
    return seconds


def drain_job(runs: list[Listing], profile: cProfile.Profile | None = None) -> float:
    """Seconds of the job that does the same."""
    import dagster as dg
    from dagster._core.instance.ref import InstanceRef

    from manifest_platform.orchestration.build import build_defs

    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        dagster_home = home / "dagster"
        dagster_home.mkdir()
        os.environ["DAGSTER_HOME"] = str(dagster_home)
        (dagster_home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        job = build_defs(fresh(home, runs)).resolve_job_def(f"{DATASET}_drain")
        with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(dagster_home))) as instance:
            if profile:
                profile.enable()
            began = time.perf_counter()
            result = job.execute_in_process(instance=instance, run_config=QUIET)
            seconds = time.perf_counter() - began
            if profile:
                profile.disable()
            loaded = instance.get_materialized_partitions(dg.AssetKey([DATASET, "warehouse"]))
        assert result.success
        assert len(loaded) == len(runs), f"{len(loaded)} materializations"
    return seconds


def main() -> None:
    parser = arguments(__doc__, 3, f"{WINDOWS} runs")
    parser.add_argument("--profile", action="store_true", help="show the job's profile instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # Dagster's about what it calls beta
    with tempfile.TemporaryDirectory() as root:
        runs = [make_run(Path(root), number) for number in range(int(WINDOWS * options.scale))]
        if options.profile:
            profile = cProfile.Profile()
            drain_job(runs[:1])
            drain_job(runs, profile)
            pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
            return
        print(f"{len(runs)} windows of {len(TABLES)} tables")
        ways = {
            "job": partial(drain_job, runs),
            "alone": partial(drain_alone, runs),
            "job of one": partial(drain_job, runs[:1]),
        }
        seconds = interleaved(ways, options.repeats)
    print_medians(seconds)
    turns = list(zip(seconds["job"], seconds["alone"], strict=True))
    overhead = statistics.median((job - alone) / len(runs) * 1e3 for job, alone in turns)
    print(f"job / alone {ratio(seconds, 'job', 'alone'):8.3f}")
    print(f"of it once a job, by the job of one window: {statistics.median(seconds['job of one']) * 1e3:.0f} ms")
    print_figure("Dagster a window", overhead, GOAL_MS, " ms")


if __name__ == "__main__":
    main()
