"""The Spark job that merges many ranges of many tables.

Spark only distributes the work: each task runs the kernel for one range and returns the result. Nothing is shuffled, and
a failed range does not affect the others.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import orjson

from manifest_platform import extras, storage
from manifest_platform.faults import Transient
from manifest_platform.merging import names
from manifest_platform.merging.errors import MergeError, MergeMisconfigured

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from manifest_platform.merging.kernel import Merged, MergeOptions, MergeTask


@dataclass(frozen=True)
class MergeFailure:
    """A range that could not be merged. `permanent`: a retry cannot help. No row names the files that it wrote.

    `died`: its Spark job died, which may be the fault of another range of the job, or of the cluster.
    """

    table: str
    date: date
    lower: int
    upper: int
    permanent: bool
    message: str
    died: bool = False


def merge_all(
    spark: SparkSession, tasks: Sequence[MergeTask], options: MergeOptions | None = None
) -> list[Merged | MergeFailure]:
    """Merges ranges in one Spark job, the largest first, and returns the results in the order of the tasks.

    A failed range is returned as MergeFailure, never raised. If the job itself fails, all its ranges are failures. Each try of
    a Spark task writes to its own directory beside the one in the MergeTask; `Merged.uri` names the result. Raises
    MergeMisconfigured if a worker lacks a package, which is the fault of no range.
    """
    try:
        return _run(spark, tasks, options) if tasks else []
    except MergeMisconfigured:
        raise
    except Exception as error:
        message = f"the Spark job failed: {type(error).__name__}: {str(error)[:2000]}; see Spark's log, then retry"
        return [replace(_failure(task, False, message), died=True) for task in tasks]


def _run(spark: SparkSession, tasks: Sequence[MergeTask], options: MergeOptions | None) -> list[Merged | MergeFailure]:
    from manifest_platform.merging.kernel import Merged

    order = ordered(tasks)
    queue = [tasks[number] for number in order]

    here = storage.surroundings()

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        here.adopt()
        for ids in batches:
            for place in ids.column(0).to_pylist():
                result = orjson.dumps(_merge_task(queue[place], options)).decode()
                yield pyarrow.RecordBatch.from_arrays([pyarrow.array([place]), pyarrow.array([result])], ["place", "result"])

    places = spark.range(0, len(queue), 1, len(queue))
    results: dict[int, Merged | MergeFailure] = {}
    for place, result in places.mapInArrow(work, "place bigint, result string").collect():
        task, found = queue[place], orjson.loads(result)
        if lacking := found.get("lacking"):
            raise MergeMisconfigured(lacking)
        merged = found.get("merged")
        results[order[place]] = (
            Merged(**{**merged, "date": task.date}) if merged else _failure(task, found["permanent"], found["message"])
        )
    return [results[number] for number in range(len(tasks))]


def ordered(tasks: Sequence[MergeTask]) -> list[int]:
    """Indexes of the tasks, the largest first. A large task that starts last would run alone at the end."""
    return sorted(range(len(tasks)), key=lambda number: -tasks[number].bytes)


def _merge_task(task: MergeTask, options: MergeOptions | None) -> dict[str, Any]:
    """Runs the kernel for a range and returns its result or error as JSON-compatible data. Each call writes a new object."""
    task = replace(task, output=names.try_uri(task.output))
    try:
        from manifest_platform.merging.kernel import merge

        return {"merged": asdict(merge(task, options))}
    except ImportError as error:
        return {"lacking": extras.told_of_worker(error)}
    except MergeError as error:
        return {"permanent": not isinstance(error, Transient), "message": f"{type(error).__name__}: {error}"}
    except (OSError, MemoryError) as error:  # pyarrow's ArrowMemoryError is a MemoryError
        return {"permanent": False, "message": f"{type(error).__name__} while merging {task}: {error}"}
    except Exception as error:  # a defect must not fail the other ranges of the job
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"(at {last.name}, line {last.lineno} of {last.filename})"
        return {"permanent": True, "message": f"{type(error).__name__} while merging {task}: {error} {where}"}


def _failure(task: MergeTask, permanent: bool, message: str) -> MergeFailure:
    return MergeFailure(task.table, task.date, task.lower, task.upper, permanent, message)
