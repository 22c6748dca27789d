"""Many ranges of many tables in one Spark job."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from manifest_platform import extras, storage
from manifest_platform.merging import spark_job
from manifest_platform.merging.errors import MergeMisconfigured
from manifest_platform.merging.inputs import Input
from manifest_platform.merging.kernel import Merged, MergeOptions, MergeTask
from manifest_platform.merging.spark_job import MergeFailure, merge_all

DAY = date(2024, 5, 1)


def task(root: Path, table: str, number: int, *parts: list[int]) -> MergeTask:
    """A range of a table: its small objects hold these times."""
    inputs = []
    for place, times in enumerate(parts):
        path = root / f"{table}-{number}-{place}.parquet"
        pq.write_table(pa.table({"at": pa.array(times, pa.timestamp("us"))}), path)
        inputs.append(Input(storage.as_uri(path), len(times), path.stat().st_size))
    output = storage.as_uri(root / "merged" / f"{table}-{number}.parquet")
    return MergeTask(table, DAY, number, number + 1, tuple(inputs), output, "at")


def times(merged: Merged | MergeFailure) -> list[int]:
    assert isinstance(merged, Merged), merged
    return pq.read_table(storage.local_path(merged.uri))["at"].cast(pa.int64()).to_pylist()


def test_a_batch_is_one_job_and_its_results_are_in_order(spark: SparkSession, tmp_path: Path) -> None:
    tasks = [
        task(tmp_path, table, number, list(range(number * 50, 0, -1)), [7])
        for table in ("log", "clicks")
        for number in range(1, 6)
    ]
    spark.sparkContext.setJobGroup("merges", "counts the jobs of a batch")
    results = merge_all(spark, tasks)
    spark.sparkContext.setJobGroup("other", "")
    assert [(result.table, result.lower, result.upper) for result in results] == [
        (one.table, one.lower, one.upper) for one in tasks
    ]
    assert [times(result) for result in results] == [sorted([*range(1, one.lower * 50 + 1), 7]) for one in tasks]
    [job] = spark.sparkContext.statusTracker().getJobIdsForGroup("merges")
    info = spark.sparkContext.statusTracker().getJobInfo(job)
    assert info is not None
    assert len(info.stageIds) == 1, "a second stage would be a shuffle"
    stage = spark.sparkContext.statusTracker().getStageInfo(info.stageIds[0])
    assert stage is not None
    assert stage.numTasks == len(tasks)


def test_nothing_to_do_needs_no_job(spark: SparkSession) -> None:
    spark.sparkContext.setJobGroup("no merges", "")
    assert merge_all(spark, []) == []
    spark.sparkContext.setJobGroup("other", "")
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("no merges")) == []


def test_the_largest_begins_first(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more tasks than cores, a longest task that begins last would delay the end of the whole job."""
    tasks = [task(tmp_path, "log", rows, list(range(rows))) for rows in (10, 30, 20)]
    assert spark_job.ordered(tasks) == [1, 2, 0]
    asked = []

    def backwards(found: Sequence[MergeTask]) -> list[int]:
        asked.append(list(found))
        return list(reversed(range(len(found))))

    monkeypatch.setattr(spark_job, "ordered", backwards)
    assert [len(times(result)) for result in merge_all(spark, tasks)] == [10, 30, 20]
    assert asked == [tasks], "Spark's order is not asked for"


def test_a_range_that_fails_leaves_the_others_alone(spark: SparkSession, tmp_path: Path) -> None:
    good, bad, refused = (task(tmp_path, "log", number, [3, 1]) for number in (1, 2, 3))
    storage.local_path(bad.inputs[0].uri).unlink()
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a directory should be")
    refused = replace(refused, output=storage.as_uri(blocked / "attempt" / "part.parquet"))
    results = merge_all(spark, [bad, good, refused])
    assert times(results[1]) == [1, 3]
    missing, failed = results[0], results[2]
    assert isinstance(missing, MergeFailure)
    assert isinstance(failed, MergeFailure)
    assert (missing.table, missing.date, missing.lower, missing.upper, missing.permanent) == ("log", DAY, 2, 3, True)
    assert missing.message.startswith(f"MissingInput: {bad.inputs[0].uri} does not exist")
    assert not failed.permanent
    assert failed.message.startswith("TransientMergeError: log of 2024-05-01, range (3, 4]: ")


@pytest.mark.parametrize(
    ("error", "permanent"), [(MemoryError("no room"), False), (OSError("gone"), False), (KeyError("x"), True)]
)
def test_what_nobody_foresaw_is_a_failure_of_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, permanent: bool
) -> None:
    def fail(_task: MergeTask, _options: MergeOptions | None) -> Merged:
        raise error

    monkeypatch.setattr("manifest_platform.merging.kernel.merge", fail)
    result = spark_job._merge_task(task(tmp_path, "log", 1, [1]), None)
    assert result["permanent"] is permanent
    assert result["message"].startswith(f"{type(error).__name__} while merging log of 2024-05-01, range (1, 2]: ")


def test_a_worker_that_lacks_a_package_is_the_fault_of_no_range(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(_task: MergeTask, _options: MergeOptions | None) -> Merged:
        raise ModuleNotFoundError("No module named 'botocore'", name="botocore")

    monkeypatch.setattr("manifest_platform.merging.kernel.merge", lack)
    told = spark_job._merge_task(task(tmp_path, "log", 1, [1]), None)
    assert told == {"lacking": extras.told_of_worker(ModuleNotFoundError("No module named 'botocore'"))}
    monkeypatch.setattr(spark_job, "_merge_task", lambda _task, _options: told)
    with pytest.raises(MergeMisconfigured, match=r"a worker of Spark lacks a package .No module named 'botocore'.: write the"):
        merge_all(spark, [task(tmp_path, "log", 1, [1])])


def test_a_task_that_spark_runs_again_does_not_touch_what_the_first_wrote(tmp_path: Path) -> None:
    """A worker that Spark considers lost may continue, even after the commit. No attempt may overwrite the other's object."""
    one = task(tmp_path, "log", 1, [3, 1])
    first, again = (Path(storage.local_path(spark_job._merge_task(one, None)["merged"]["uri"])) for _ in range(2))
    assert first != again
    assert first.read_bytes() == again.read_bytes()
    named = storage.local_path(one.output)
    assert first.name == again.name == named.name
    assert {path.parent.name.partition(".")[0] for path in (first, again)} == {named.parent.name}
    assert not named.exists()


def test_options_reach_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    [merged] = merge_all(spark, [task(tmp_path, "log", 1, list(range(100)))], MergeOptions(group_rows=10))
    assert isinstance(merged, Merged)
    assert pq.read_metadata(storage.local_path(merged.uri)).num_row_groups == 10


def test_a_job_that_fails_is_a_failure_of_all_its_ranges(tmp_path: Path) -> None:
    class Broken:
        def range(self, *_: int) -> None:
            raise RuntimeError("no executors")

    tasks = [task(tmp_path, "log", number, [1]) for number in (1, 2)]
    results = merge_all(Broken(), tasks)  # ty: ignore[invalid-argument-type]
    assert [result.permanent for result in results if isinstance(result, MergeFailure)] == [False, False]
    assert all("no executors" in result.message for result in results if isinstance(result, MergeFailure))
