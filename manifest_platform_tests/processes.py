"""Gives the test files that need Spark to half of the test processes: a Spark takes 20 s of CPU to start and to warm up.

Used by pytest-xdist with `--dist loadfile`. The processes collect the tests, so they know the fixtures; the first of them
tells the scheduler, in a file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

TOLD = "files_with_spark"
"""The name of the file's path in what each process is given."""


def needing_spark(items: Iterable[pytest.Item]) -> list[str]:
    """The files with a test that needs the session of Spark, as the scheduler names them."""
    return sorted({item.nodeid.partition("::")[0] for item in items if "spark" in getattr(item, "fixturenames", ())})


def modules(chosen: Iterable[str], root: Path) -> list[str]:
    """The names of the test modules in the chosen folders and files."""
    paths = [root / one.partition("::")[0] for one in chosen]
    files = sorted({file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])})
    return [".".join(file.relative_to(root).with_suffix("").parts) for file in files if file.is_relative_to(root)]


def next_file(waiting: Iterable[str], with_spark: Collection[str], has_spark: bool) -> str:
    """The next file for a process: the first of its kind, else the first. There must be one."""
    files = list(waiting)
    return next((file for file in files if (file in with_spark) == has_spark), files[0])


class ByNeed(LoadFileScheduling):
    """Hands out whole files, those that need Spark first of all to the first half of the processes."""

    def __init__(self, config: pytest.Config, log: Any, told: Path) -> None:
        super().__init__(config, log)
        self._told = told
        self._with_spark: frozenset[str] | None = None

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self._with_spark is None:
            self._with_spark = frozenset(json.loads(self._told.read_text())) if self._told.exists() else frozenset()
        has_spark = node in self.nodes[: (len(self.nodes) + 1) // 2]
        self.workqueue.move_to_end(next_file(self.workqueue, self._with_spark, has_spark), last=False)
        super()._assign_work_unit(node)


class Processes:
    """The plug-in of the process that starts the others."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="manifest-platform-tests-")
        self.told = Path(self._folder.name, TOLD)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput[TOLD] = str(self.told)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByNeed | None:
        return ByNeed(config, log, self.told) if config.getoption("dist") == "loadfile" else None

    def pytest_unconfigure(self) -> None:
        self._folder.cleanup()


class Told:
    """The plug-in of each started process: the first tells which files need Spark."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Imports a share of the test files before all others, so that the processes together compile each file once.

        Each process needs all files. In the same order, all would compile the same file at the same time: after a checkout,
        pytest's changes to assertions took 12 s of CPU in each process.
        """
        given = session.config.workerinput  # ty: ignore[missing-attribute]
        number, count = int(given["workerid"].removeprefix("gw")), given["workercount"]
        for module in modules(session.config.args, session.config.rootpath)[number::count]:
            with suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports what is wrong
                import_module(module)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        given = session.config.workerinput  # ty: ignore[missing-attribute]
        if given["workerid"] == "gw0":
            Path(given[TOLD]).write_text(json.dumps(needing_spark(session.items)))


def plugin(config: pytest.Config) -> Processes | Told:
    """The plug-in that this process needs."""
    return Told() if hasattr(config, "workerinput") else Processes()
