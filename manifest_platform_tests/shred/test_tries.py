"""A try of a Spark task writes files of its own, so that another try of the same task cannot replace what is listed."""

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
