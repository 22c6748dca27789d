"""A try of a Spark task: files of its own, so that no other try can replace what is listed, and what its failure means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from manifest_platform import storage
from manifest_platform.listing import Column, Listing, Table
from manifest_platform.shred import batch
from manifest_platform.shred.batch import Dated, Directory, Options, Task, Writer, Written, shred_batch
from manifest_platform_tests.pipeline.test_poison import Inline


def test_each_try_of_a_task_has_names_of_its_own_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    """A stage or a job that Spark repeats begins with a first attempt again, while the other may still write."""
    output = storage.as_uri(tmp_path)
    directory = Directory("file:///landing/run", (("file:///landing/run/part", 1),), output, "attempt")

    def work(task: Task[None]) -> Written:
        writer = Writer(task, 1, lambda _name, rows: [Dated("2026-01-01", rows)])
        writer.add(Table("t", (Column("id", "bigint"),)), pa.table({"id": [task.number]}))
        return writer.close()

    def objects() -> list[str]:
        spark: Any = Inline()
        tasks = [Task(0, number, output, (), None) for number in range(2)]
        [listing] = shred_batch(spark, [directory], tasks, work, Options())
        assert isinstance(listing, Listing)
        assert sum(one.rows for one in listing.objects) == 2
        return [one.uri.rpartition("/")[2] for one in listing.objects]

    first, second = objects(), objects()
    assert not set(first) & set(second)
    for names in (first, second):
        assert [name[:9] for name in names] == ["00000-000", "00001-000"]
    assert len(list(tmp_path.rglob("*.parquet"))) == 4


def test_a_worker_that_lacks_a_package_is_the_configurations_fault_and_no_items() -> None:
    def lack(_task: Task[None]) -> Written:
        raise ModuleNotFoundError("No module named 'botocore'", name="botocore")

    told = batch._done(Task(0, 0, "out", ("in",), None), lack)
    assert told["cause"] == batch.Cause.CONFIGURATION
    assert (
        "a worker of Spark lacks a package (No module named 'botocore'): write the archive of spark.package again"
        in told["failure"]
    )
