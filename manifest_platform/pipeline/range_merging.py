"""The Spark jobs of a merge: the job that merges ranges, and the job that shows whether the cluster works."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from manifest_platform import storage
from manifest_platform.manifest import Lease, StoreError
from manifest_platform.merging import spark_job
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.kernel import Merged, MergeTask
from manifest_platform.merging.plan import PlannedRange
from manifest_platform.merging.spark_job import MergeFailure
from manifest_platform.pipeline.isolation import End, Work
from manifest_platform.shred.batch import works
from manifest_platform.spark import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Results = Sequence[Merged | MergeFailure]
"""The results of the ranges of a partition."""

_LOOKED_AT = 16
"""The partitions among whose newest merged objects a small one is chosen."""


@dataclass(frozen=True)
class PartitionTasks:
    """A merge job of a partition, by its id, and the ranges that it writes: at least one."""

    job: str
    tasks: Sequence[MergeTask]


class RangeMerging(Work[PartitionTasks, Results]):
    """The merges of partitions. `output`: the location of merged objects."""

    name = "partitions"

    def __init__(self, inventory: Inventory, output: str, lease: Lease, session: SparkSession) -> None:
        self._inventory, self._output, self._lease, self._session = inventory, output, lease, session
        self._sound: MergeTask | None = None

    def run(self, parts: Sequence[PartitionTasks]) -> list[Results]:
        """Merges the ranges of partitions in one job. Raises SparkUnavailable if Spark fails all of them and runs no job."""
        self._lease.check()
        results = spark_job.merge_all(self._session, [task for part in parts for task in part.tasks])
        failures = [one for one in results if isinstance(one, MergeFailure) and not one.permanent]
        if len(failures) == len(results) and not works(self._session):
            self._lease.check()
            raise SparkUnavailable(failures[0].message)
        left = iter(results)
        return [list(itertools.islice(left, len(part.tasks))) for part in parts]

    def end(self, part: PartitionTasks, result: Results) -> tuple[End, str]:
        """Says what the results of a partition mean, and remembers a small range that was merged."""
        for one in result:
            if isinstance(one, MergeFailure) and one.died:
                return End.DIED, one.message
        merged = [task for task, one in zip(part.tasks, result, strict=True) if isinstance(one, Merged)]
        if not merged:
            return End.OTHER, ""
        self._sound = min([*merged, *([self._sound] if self._sound else [])], key=lambda task: task.bytes)
        return End.DONE, ""

    def control(self) -> bool | None:
        """Merges a range again that was merged before. What this writes is named by no row, and is removed."""
        for task in [self._sound] if self._sound else self._merged_before():
            self._lease.check()
            [result] = spark_job.merge_all(self._session, [task])
            if isinstance(result, Merged):
                with contextlib.suppress(OSError):
                    storage.delete_folder(result.uri.rpartition("/")[0])
                return True
            if result.died:
                return False
        return None

    def title(self, part: PartitionTasks) -> str:
        """Returns the table and the date of a partition."""
        return f"{part.tasks[0].table} of {part.tasks[0].date}"

    def _merged_before(self) -> Iterator[MergeTask]:
        """Yields tasks that write merged objects again, the smallest first."""
        with contextlib.suppress(StoreError):
            merged = itertools.islice((one for one in self._inventory.partitions() if one.upper), _LOOKED_AT)
            tails = [found for partition in merged if (found := self._inventory.tail(partition))]
            for tail in sorted(tails, key=lambda found: found.bytes):
                if table := self._inventory.table(tail.table):
                    planned = PlannedRange(tail.lower, tail.upper, (), tail, tail.bytes)
                    yield MergeTask.of(planned, table, tail.date, self._output, str(uuid4()))
