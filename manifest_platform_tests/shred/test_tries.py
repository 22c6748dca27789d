"""A try of a Spark task: files of its own, so that no other try can replace what is listed, and what its failure means."""

from __future__ import annotations

from types import SimpleNamespace

import pyspark
import pytest

from manifest_platform.shred import batch


def tried(monkeypatch: pytest.MonkeyPatch, attempt: int | None, repeated: bool = False) -> str:
    context = None if attempt is None else SimpleNamespace(attemptNumber=lambda: attempt)
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
    return batch._mark(repeated)


def test_the_first_try_has_names_that_can_be_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [tried(monkeypatch, attempt) for attempt in (None, 0)] == ["", ""]


def test_each_further_try_and_each_repeated_job_has_names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = [tried(monkeypatch, 1), tried(monkeypatch, 1), tried(monkeypatch, 0, True), tried(monkeypatch, 0, True)]
    assert len(set(marks)) == 4
    task = batch.Task(0, 3, "out", (), None, marks[0])
    assert batch.Writer(task, 1, lambda _name, _rows: ())._part == f"00003-000{marks[0]}"


def test_a_worker_that_lacks_a_package_is_the_configurations_fault_and_no_items() -> None:
    def lack(_task: batch.Task[None]) -> batch.Written:
        raise ModuleNotFoundError("No module named 'botocore'", name="botocore")

    told = batch._done(batch.Task(0, 0, "out", ("in",), None), lack)
    assert told["cause"] == batch.Cause.CONFIGURATION
    assert (
        "a worker of Spark lacks a package (No module named 'botocore'): write the archive of spark.package again"
        in told["failure"]
    )
