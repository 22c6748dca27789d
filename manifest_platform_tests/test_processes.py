"""Which test process gets which files: those that need Spark go to half of the processes."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manifest_platform_tests.processes import TOLD, ByNeed, Processes, Told, modules

FILES = ["plain_1.py", "spark_1.py", "plain_2.py", "spark_2.py", "spark_3.py"]


class Process:
    """A process as the scheduler sees it."""

    shutting_down = False

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.sent += indexes


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A file that the first process wrote after it collected its tests."""
    path = tmp_path / TOLD
    items = [
        SimpleNamespace(nodeid=f"{file}::test_it[a::b]", fixturenames=["tmp_path", *(["spark"] if "spark" in file else [])])
        for file in FILES
    ]
    given = {"workerid": "gw0", TOLD: str(path)}
    Told().pytest_collection_finish(SimpleNamespace(config=SimpleNamespace(workerinput=given), items=items))  # ty: ignore
    return path


def handed_out(told: Path, processes: int) -> list[list[str]]:
    """The files that each process got when all are handed out in turn."""
    scheduler: Any = ByNeed.__new__(ByNeed)
    scheduler._told, scheduler._with_spark = told, None
    scheduler.workqueue = OrderedDict((file, {f"{file}::test_it": False}) for file in FILES)
    nodes = [Process() for _ in range(processes)]
    scheduler.assigned_work = {node: {} for node in nodes}
    scheduler.registered_collections = {node: [f"{file}::test_it" for file in FILES] for node in nodes}
    while scheduler.workqueue:
        for node in nodes[: len(scheduler.workqueue)]:
            scheduler._assign_work_unit(node)
    return [[FILES[index] for index in node.sent] for node in nodes]


def test_the_first_half_gets_what_needs_spark_and_no_file_waits_for_its_half(told: Path) -> None:
    assert handed_out(told, 2) == [["spark_1.py", "spark_2.py", "spark_3.py"], ["plain_1.py", "plain_2.py"]]
    assert handed_out(told, 3) == [["spark_1.py", "spark_3.py"], ["spark_2.py", "plain_2.py"], ["plain_1.py"]]
    assert handed_out(told, 1) == [["spark_1.py", "spark_2.py", "spark_3.py", "plain_1.py", "plain_2.py"]]


def test_without_what_the_first_process_tells_files_keep_their_order(tmp_path: Path) -> None:
    assert handed_out(tmp_path / "nothing", 1) == [FILES]


def test_only_whole_files_are_scheduled_by_need(told: Path) -> None:
    starting = Processes()
    node = SimpleNamespace(workerinput={})
    starting.pytest_configure_node(node)  # ty: ignore
    assert node.workerinput == {TOLD: str(starting.told)}
    lines = SimpleNamespace(getoption=lambda name: "load")
    assert starting.pytest_xdist_make_scheduler(lines, None) is None  # ty: ignore
    starting.pytest_unconfigure()
    assert not starting.told.parent.exists()
    assert json.loads(told.read_text()) == ["spark_1.py", "spark_2.py", "spark_3.py"]


def test_each_process_imports_a_share_of_the_modules_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/test_1.py", "a/b/test_2.py", "a/conftest.py", "test_3.py", "c/test_4.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    chosen = ["a", "a/test_1.py", "test_3.py::test_it[x]", str(tmp_path / "c")]
    assert modules(chosen, tmp_path) == ["a.b.test_2", "a.test_1", "c.test_4", "test_3"]

    imported: list[str] = []
    monkeypatch.setattr("manifest_platform_tests.processes.import_module", imported.append)
    for number in range(3):
        given = {"workerid": f"gw{number}", "workercount": 3}
        config = SimpleNamespace(workerinput=given, args=chosen, rootpath=tmp_path)
        Told().pytest_collection(SimpleNamespace(config=config))  # ty: ignore
    assert imported == ["a.b.test_2", "test_3", "a.test_1", "c.test_4"]
