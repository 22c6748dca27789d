"""A directory that kills its shredder, and outages: only the item that is the cause fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from manifest_platform.demo.events import SCHEMAS
from manifest_platform.manifest import Item, State
from manifest_platform.merging import spark_job
from manifest_platform.pipeline import ItemFailed, PutBack, Shredded, ShredStarted, Stop, shredding_job
from manifest_platform.pipeline.merge import MergeReport, Merging, merge, register
from manifest_platform.sources.snowplow.events import shredder
from manifest_platform_tests.pipeline.shop import REPOSITORY, Shop, drained, history, keys, run_name, run_names
from manifest_platform_tests.pipeline.test_merge import read, rows_of
from manifest_platform_tests.sources.snowplow.schemas.test_registry import Site, site

__all__ = ["site"]  # a fixture

POISON = 4
RUNS = 6


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the worker that shreds one of the runs die without a message, as if it ran out of memory."""
    shred_batch, name = shredder.shred_batch, run_name(POISON)

    def deadly(spark: Any, directories: Any, tasks: Any, work: Any, options: Any) -> Any:
        def die(task: Any) -> Any:
            if any(name in file for file in task.files):
                os._exit(137)
            return work(task)

        return shred_batch(spark, directories, tasks, die, options)

    monkeypatch.setattr(shredder, "shred_batch", deadly)


@pytest.mark.usefixtures("poison")
def test_a_directory_that_kills_its_worker_fails_alone(tmp_path: Path, spark: Any) -> None:
    """Without this rule, eight deaths caused by one of forty items failed all forty."""
    shop = Shop(tmp_path, lease={"max_attempts": 2})
    with shop.open() as pipeline:
        shop.land(pipeline, *range(RUNS), events=1)
        events, report = drained(pipeline, spark)
        assert [event.items for event in events if isinstance(event, ShredStarted)] == [RUNS]
        others = [number for number in range(RUNS) if number != POISON]
        assert [event.key.name for event in events if isinstance(event, Shredded)] == run_names(*others)
        [failed] = [event for event in events if isinstance(event, ItemFailed)]
        assert (failed.key.name, failed.failure.kind) == (run_name(POISON), "transient")
        assert "shredded alone: the Spark job died" in failed.failure.message
        assert "crashed" in failed.failure.message
        assert (report.stop, report.put_back, report.loaded) == (Stop.UNAVAILABLE, 0, POISON)

        shop.land(pipeline, RUNS, events=1)
        events, report = drained(pipeline, spark)
        assert [event.items for event in events if isinstance(event, ShredStarted)] == [1], "it is tried apart from others"
        assert (report.stop, report.item) == (Stop.BLOCKED, run_name(POISON)), "as often as the policy allows, and no more"
        assert drained(pipeline, spark)[1].shredded == 1, "what is new is shredded behind it"
        for number in others:
            assert "Failed" not in " ".join(history(pipeline, number))


# A dying drain process

PROCESS = """
import os, signal, sys
from manifest_platform import config
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.snowplow.source import SnowplowEnriched
from manifest_platform_tests.pipeline.test_poison import Inline

shred = SnowplowEnriched.shred

def deadly(source, session, directories):
    if any(one.item.endswith(sys.argv[2]) for one in directories):
        os.kill(os.getpid(), signal.SIGKILL)
    return shred(source, session, directories)

SnowplowEnriched.shred = deadly
with Pipeline(config.load(sys.argv[1]), "shop") as pipeline:
    print(*drain(pipeline, Inline))
"""


class Inline:
    """A Spark session that runs its jobs in this process, which starts within a second and dies like any other."""

    def __call__(self) -> Inline:
        return self

    def range(self, start: int, end: int, _step: int, _parts: int) -> Inline:
        self._numbers = range(start, end)
        return self

    def mapInArrow(self, function: Any, schema: str) -> Inline:
        import pyarrow as pa

        ids = (pa.RecordBatch.from_arrays([pa.array([number])], ["id"]) for number in self._numbers)
        self._rows = [tuple(row.values()) for found in function(ids) for row in found.to_pylist()]
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        return self._rows


def dying(shop: Shop) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(shop.config_file), run_name(POISON)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_a_directory_that_kills_the_drain_again_and_again_fails_alone(tmp_path: Path) -> None:
    """The driver is killed for lack of memory. Earlier, each kill cost every item of the batch an attempt."""
    shop = Shop(tmp_path, lease={"seconds": 1, "max_attempts": 2}, shred={"batch": RUNS})
    with shop.open() as pipeline:
        shop.land(pipeline, *range(RUNS), events=1)
        deaths = 0
        for _ in range(12):  # the next drain begins after the lease has run out, or says that it is busy
            process = dying(shop)
            output, _ = process.communicate(timeout=100)
            deaths += process.returncode == -signal.SIGKILL
            if process.returncode == 0 and "Stop.BLOCKED" in output:
                break
        others = [number for number in range(RUNS) if number != POISON]
        for number in others:
            assert history(pipeline, number)[-1] == ("load Processed" if number < POISON else "shred Processed")
        assert history(pipeline, POISON)[-1] == "shred Failed lease_expired", "it is left to a person"
        attempts = [one for one in pipeline.manifest.history(keys(pipeline, POISON)[0]) if one.state is State.PROCESSING]
        assert [one.data.get("batch", 1) for one in attempts] == [6, 3, 1]
        assert deaths == 3


# Outages, and access that is refused


def out_of_reach(shop: Shop, what: str) -> Callable[[], object]:
    """Removes something that shredding needs, and returns a function that restores it."""
    place = {"landing": shop.home / "landing", "output": shop.home / "shredded"}[what]
    if what == "output":
        place.write_text("a file where the output's folder should be")
        return place.unlink
    place.rename(shop.home / "elsewhere")
    return lambda: (shop.home / "elsewhere").rename(place)


@pytest.mark.parametrize("what", ["landing", "output"])
def test_unreachable_storage_is_charged_to_no_item(tmp_path: Path, what: str) -> None:
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1, 2, events=1)
        mend = out_of_reach(shop, what)
        for _ in range(2):
            events, report = drained(pipeline, Inline())
            assert [event.key.name for event in events if isinstance(event, PutBack)] == run_names(0, 1, 2)
            assert (report.stop, report.failed, report.put_back) == (Stop.UNAVAILABLE, 0, 3)
            assert ("landing" if what == "landing" else "shredded") in report.reason
        assert set(history(pipeline, 0)[1:]) == {"shred Processing", "shred Resolved automatic"}
        mend()
        assert drained(pipeline, Inline())[1].stop is Stop.IDLE
    assert shop.seen.runs == run_names(0, 1, 2)


def test_one_directory_that_is_gone_fails_alone_while_the_landing_root_is_there(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1, events=1)
        shop.directory(0).rename(shop.home / "elsewhere")
        events, report = drained(pipeline, Inline())
        assert [event.key.name for event in events if isinstance(event, ItemFailed)] == run_names(0)
        assert (report.stop, report.shredded) == (Stop.BLOCKED, 1)


@pytest.mark.parametrize(
    ("status", "reason"), [(503, "check that the registry is up"), (401, "answers 401"), (403, "answers 403")]
)
def test_a_registry_that_is_down_or_refuses_access_is_charged_to_no_item(
    tmp_path: Path, site: Site, status: int, reason: str
) -> None:
    """An expired key once sent a whole backlog to the table `bad`."""
    site.missing = status
    shop = Shop(tmp_path, lease={"max_attempts": 1}, shred={"schemas": [site.url]})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1, events=2)
        for _ in range(2):
            _, report = drained(pipeline, Inline())
            assert (report.stop, report.failed, report.put_back) == (Stop.UNAVAILABLE, 0, 2)
            assert reason in report.reason
        for schema in SCHEMAS.rglob("jsonschema/*"):
            site.answers[f"/schemas/{schema.relative_to(SCHEMAS)}"] = (200, schema.read_bytes())
        site.missing = 404
        assert drained(pipeline, Inline())[1].stop is Stop.IDLE


def test_a_missing_key_of_a_registry_is_charged_to_no_item(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = {"url": site.url, "apikey_variable": "IGLU_KEY"}
    shop = Shop(tmp_path, shred={"schemas": [site.url], "registries": [registry]})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=1)
        _, report = drained(pipeline, Inline())
        assert (report.stop, report.put_back) == (Stop.UNAVAILABLE, 1)
        assert f"the key of registry {site.url} is not set: put it into the variable IGLU_KEY" in report.reason
        monkeypatch.setenv("IGLU_KEY", "s3cr3t")
        for schema in SCHEMAS.rglob("jsonschema/*"):
            site.answers[f"/schemas/{schema.relative_to(SCHEMAS)}"] = (200, schema.read_bytes())
        assert drained(pipeline, Inline())[1].stop is Stop.IDLE
        assert set(site.apikeys) == {"s3cr3t"}
        stored = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
        assert "s3cr3t" not in stored


class Killed(BaseException):
    """The death of a worker."""


class Sick(Inline):
    """A Spark session whose workers die under any work, and run an empty job."""

    def mapInArrow(self, function: Any, schema: str) -> Inline:
        try:
            return super().mapInArrow(function, schema)
        except Killed:
            raise RuntimeError("ExecutorLostFailure") from None


class Workers:
    """Spark's workers, which die in the first `deaths` jobs of shredding, and in each with one of the `deadly` directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deaths, self.deadly = 0, set[str]()
        self.jobs: list[list[str]] = []
        self._shred_batch = shredder.shred_batch
        monkeypatch.setattr(shredder, "shred_batch", self)

    def __call__(self, spark: Any, directories: Any, tasks: Any, work: Any, options: Any) -> Any:
        names = [directory.item.rpartition("/")[2] for directory in directories]
        self.jobs.append(names)
        dies, self.deaths = self.deaths > 0 or bool(self.deadly.intersection(names)), max(0, self.deaths - 1)

        def killed(_task: Any) -> Any:
            raise Killed

        return self._shred_batch(spark, directories, tasks, killed if dies else work, options)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(monkeypatch)


ALWAYS = 10**9


def test_a_cluster_that_loses_all_its_workers_is_charged_to_no_item(tmp_path: Path, workers: Workers) -> None:
    """An empty job came through between two losses, and two jobs that died failed twelve of twelve items."""
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    workers.deaths = ALWAYS
    with shop.open() as pipeline:
        shop.land(pipeline, *range(12), events=1)
        for _ in range(2):
            _, report = drained(pipeline, Sick())
            assert (report.stop, report.failed, report.put_back) == (Stop.UNAVAILABLE, 0, 12)
            assert "ExecutorLostFailure" in report.reason
            assert "died alone, and no other work shows that the cluster is sound" in report.reason
        workers.deaths = 0
        _, report = drained(pipeline, Sick())
        assert (report.stop, report.failed, report.loaded) == (Stop.IDLE, 0, 12)
    assert shop.seen.runs == run_names(*range(12))
    assert not shop.doubled_events


@pytest.mark.parametrize(("items", "before", "jobs"), [(1, 0, [1, 2, 5]), (1, 1, [1, 2, 5]), (4, 0, [4, 8]), (4, 1, [4, 5])])
def test_a_cluster_that_fails_for_some_jobs_is_charged_to_no_item(
    tmp_path: Path, workers: Workers, items: int, before: int, jobs: list[int]
) -> None:
    """A cluster that was sick for four jobs and then worked failed two of four items."""
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    with shop.open() as pipeline:
        if before:
            shop.land(pipeline, 0, events=1)
            assert drained(pipeline, Sick())[1].loaded == 1
        begin = before
        for deaths in jobs:
            shop.land(pipeline, *range(begin, begin + items), events=1)
            begin += items
            workers.deaths = deaths
            for _ in range(deaths + 1):
                _, report = drained(pipeline, Sick())
                assert report.failed == 0, f"after {deaths} deaths"
                if report.stop is Stop.IDLE:
                    break
            assert report.stop is Stop.IDLE
    assert shop.seen.runs == run_names(*range(begin))
    assert not shop.doubled_events


def test_a_cluster_that_fails_is_noticed_by_a_directory_that_was_shredded_before(tmp_path: Path, workers: Workers) -> None:
    """Otherwise each directory of a large batch costs two jobs that die, in each drain."""
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=1)
        drained(pipeline, Sick())
        shop.land(pipeline, *range(1, 9), events=1)
        workers.deaths = ALWAYS
        workers.jobs.clear()
        _, report = drained(pipeline, Sick())
        assert (report.stop, report.failed, report.put_back) == (Stop.UNAVAILABLE, 0, 8)
        assert "died alone, and then work that was done before: the cluster is at fault" in report.reason
        assert [len(names) for names in workers.jobs] == [8, 4, 2, 1, 1]
        assert workers.jobs[-1] == run_names(0)
        outputs = list((tmp_path / "shredded" / "shop" / run_name(0)).iterdir())
        assert len(outputs) == 1, "what was shredded to see whether Spark works is removed"


def test_a_directory_whose_landing_was_deleted_shows_nothing_of_the_cluster(
    tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention had deleted the smallest, which were tried in vain: a directory that kills its worker was put back for ever."""
    monkeypatch.setattr(shredding_job, "_TRIED", 1)
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    with shop.open() as pipeline:
        [gone] = shop.land(pipeline, 0, events=1)
        shop.land(pipeline, 1, events=9)
        drained(pipeline, Sick())
        known = Item.deletion_of
        monkeypatch.setattr(Item, "deletion_of", lambda one, of: one.records[-1] if one.key == gone else known(one, of))
        shutil.rmtree(shop.directory(0))
        shop.land(pipeline, 2)
        workers.deadly = {run_name(2)}
        _, report = drained(pipeline, Sick())
        assert (report.failed, report.put_back) == (1, 0)


def test_directories_that_kill_their_workers_fail_alone_on_a_cluster_that_works(tmp_path: Path, workers: Workers) -> None:
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    workers.deadly = set(run_names(0, 3))
    with shop.open() as pipeline:
        shop.land(pipeline, *range(4), events=1)
        events, report = drained(pipeline, Sick())
        assert [event.key.name for event in events if isinstance(event, ItemFailed)] == run_names(0, 3)
        assert (report.shredded, report.put_back) == (2, 0)
        assert workers.jobs.count(run_names(0)) == 2, "once more, at the end of the batch"


def test_an_only_directory_that_kills_its_worker_fails_once_another_shows_that_the_cluster_works(
    tmp_path: Path, workers: Workers
) -> None:
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    workers.deadly = set(run_names(0))
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=1)
        for _ in range(4):
            _, report = drained(pipeline, Sick())
            assert (report.stop, report.failed, report.put_back) == (Stop.UNAVAILABLE, 0, 1)
            assert f"{run_name(0)} died alone, and no other work shows that the cluster is sound" in report.reason
        shop.land(pipeline, 1, events=1)
        events, report = drained(pipeline, Sick())
        assert [event.key.name for event in events if isinstance(event, ItemFailed)] == run_names(0)
        assert report.shredded == 1


def test_a_directory_that_kills_its_worker_uses_up_its_attempts_alone(tmp_path: Path, workers: Workers) -> None:
    shop = Shop(tmp_path, lease={"max_attempts": 3})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=1)
        drained(pipeline, Sick())
        workers.deadly = set(run_names(1))
        shop.land(pipeline, 1, events=1)
        stops = [drained(pipeline, Sick())[1].stop for _ in range(3)]
        assert stops == [Stop.UNAVAILABLE, Stop.UNAVAILABLE, Stop.BLOCKED]
        assert history(pipeline, 1)[-1] == "shred Failed transient"


class Flaky(Inline):
    """A Spark session that is lost in each job of shredding, and works again for the next drain."""

    lost = False

    def mapInArrow(self, function: Any, schema: str) -> Inline:
        if self.lost:
            raise RuntimeError("the server is gone")
        try:
            return super().mapInArrow(function, schema)
        except Killed:
            self.lost = True
            raise RuntimeError("the server is gone") from None


def test_an_item_alone_with_a_lost_spark_is_charged_only_if_that_happens_again_and_again(
    tmp_path: Path, workers: Workers
) -> None:
    shop = Shop(tmp_path, lease={"max_attempts": 1})
    workers.deaths = ALWAYS
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=1)
        for _ in range(2):
            _, report = drained(pipeline, Flaky())
            assert (report.stop, report.failed, report.put_back) == (Stop.UNAVAILABLE, 0, 1)
        _, report = drained(pipeline, Flaky())
        assert report.failed == 1, "it takes Spark down each time, and would hold up the feed for ever"
        assert history(pipeline, 0)[-1] == "shred Failed transient"


class Gone:
    """A Spark session whose cluster was lost."""

    def range(self, *_numbers: int) -> None:
        raise RuntimeError("the cluster is gone")


class Merges:
    """Spark's workers, which die in the first `deaths` jobs of merging, and in each with one of the `deadly` tables."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deaths, self.deadly = 0, set[str]()
        self.jobs: list[list[str]] = []
        self._run, self._merge_task = spark_job._run, spark_job._merge_task
        monkeypatch.setattr(spark_job, "_run", self)
        monkeypatch.setattr(spark_job, "_merge_task", self._task)

    def __call__(self, spark: Any, tasks: Any, options: Any) -> Any:
        self.jobs.append([task.table for task in tasks])
        self._dies, self.deaths = self.deaths > 0 or bool(self.deadly.intersection(self.jobs[-1])), max(0, self.deaths - 1)
        return self._run(spark, tasks, options)

    def _task(self, task: Any, options: Any) -> Any:
        if self._dies:
            raise Killed
        return self._merge_task(task, options)


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> Merges:
    return Merges(monkeypatch)


def merged(pipeline: Any) -> MergeReport:
    *_, report = merge(Merging(pipeline), lambda: cast(Any, Sick()))
    assert isinstance(report, MergeReport)
    return report


def test_a_merge_that_kills_its_worker_fails_alone(tmp_path: Path, merges: Merges) -> None:
    shop = Shop(tmp_path, merge={"first_day": "2024-05-01", "max_attempts": 1})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=20)
        drained(pipeline, Inline())
        merges.deaths = ALWAYS
        report = merged(pipeline)
        assert (report.stop, report.failed, report.merged) == (Stop.UNAVAILABLE, 0, 0)
        assert "died alone, and no other work shows that the cluster is sound" in report.reason
        merges.deaths, merges.deadly = 0, {"events"}
        merges.jobs.clear()
        report = merged(pipeline)
        assert report.failed == 1
        assert report.merged > 1, "the others are merged"
        assert merges.jobs.count(["events"]) == 2, "once more, at the end"


def test_a_cluster_that_fails_for_some_jobs_is_charged_to_no_partition(tmp_path: Path, merges: Merges) -> None:
    """A cluster that was sick until some partitions were tried alone, and then worked, set those aside."""
    shop = Shop(tmp_path, merge={"first_day": "2024-05-01", "max_attempts": 1})
    with shop.open() as pipeline:
        days = [day * 144 for day in range(5)]
        for day, deaths, stop in zip(days, (0, 2, 3, 4, ALWAYS), 3 * [Stop.IDLE] + 2 * [Stop.UNAVAILABLE], strict=True):
            shop.land(pipeline, day, events=20)
            drained(pipeline, Inline())
            merges.deaths = deaths
            merges.jobs.clear()
            report = merged(pipeline)
            assert (report.failed, report.stop) == (0, stop), f"{deaths} deaths"
            assert bool(report.merged) == (stop is Stop.IDLE)
            if stop is Stop.UNAVAILABLE:
                assert len(merges.jobs) <= 5, "a range that was merged before shows at once that the cluster is at fault"
                assert "died alone, and then work that was done before: the cluster is at fault" in report.reason
        merges.deaths = 0
        report = merged(pipeline)
        assert (report.failed, report.stop) == (0, Stop.IDLE)
        assert rows_of(pipeline, *days) == read(Merging(pipeline)), "each row once"


def test_an_only_partition_that_kills_its_worker_is_charged_if_one_before_can_be_merged(tmp_path: Path, merges: Merges) -> None:
    shop = Shop(tmp_path, merge={"first_day": "2024-05-01", "max_attempts": 2})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=20)
        drained(pipeline, Inline())
        merged(pipeline)
        folders = len(list((tmp_path / "merged").rglob("*.parquet")))
        shop.land(pipeline, 1, events=20)
        drained(pipeline, Inline())
        merging = Merging(pipeline)
        [*_] = register(merging)
        [day] = {one.date for one in merging.inventory.partitions("events")}
        merges.deadly = {"events"}
        *_, report = merge(merging, lambda: cast(Any, Sick()), asked=[("events", day)])
        assert isinstance(report, MergeReport)
        assert (report.failed, report.merged) == (1, 0)
        assert len(list((tmp_path / "merged").rglob("*.parquet"))) == folders, "what was merged to see that is removed"


def test_a_lost_cluster_is_charged_to_no_partition_of_a_merge(tmp_path: Path) -> None:
    shop = Shop(tmp_path, merge={"first_day": "2024-05-01", "max_attempts": 1})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=5)
        drained(pipeline, Inline())
        for _ in range(2):
            *_, report = merge(Merging(pipeline), lambda: cast(Any, Gone()))
            assert isinstance(report, MergeReport)
            assert (report.stop, report.failed, report.merged) == (Stop.UNAVAILABLE, 0, 0)
            assert "the cluster is gone" in report.reason
        *_, report = merge(Merging(pipeline), lambda: cast(Any, Inline()))
        assert isinstance(report, MergeReport)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
        assert report.merged
