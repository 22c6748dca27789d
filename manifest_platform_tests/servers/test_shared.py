"""A server that several processes share starts once, and ends after the last of them, however that ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from manifest_platform_tests.servers.shared import shared

CONTEXT = multiprocessing.get_context("spawn")


@contextmanager
def counting(folder: Path) -> Generator[str]:
    """A server whose address is how often it was started; it leaves a file when it ends."""
    number = len(list(folder.glob("started*"))) + 1
    (folder / f"started {number}").touch()
    yield str(number)
    (folder / f"ended {number}").touch()


@contextmanager
def broken(_folder: Path) -> Generator[str]:
    raise ValueError("no such server")
    yield


def use(folder: Path, told: Connection) -> None:
    with shared(folder, f"{__name__}:counting") as address:
        told.send(address)
        told.recv()


class User:
    """A process that uses the server until it is told to leave, or is killed."""

    def __init__(self, folder: Path) -> None:
        self.told, other = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=use, args=(folder, other))
        self.process.start()
        self.address = self.told.recv()

    def leave(self) -> None:
        self.told.send("leave")
        self.process.join()

    def kill(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGKILL)
        self.process.join()


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("ends", [User.leave, User.kill])
def test_it_runs_as_long_as_anybody_uses_it(tmp_path: Path, ends: Callable[[User], None]) -> None:
    folder = tmp_path / "server-counting"
    first, second = User(tmp_path), User(tmp_path)
    assert (first.address, second.address) == ("1", "1")
    ends(first)
    third = User(tmp_path)
    assert third.address == "1"
    assert not (folder / "ended 1").exists()
    ends(second)
    ends(third)
    assert eventually((folder / "ended 1").exists)


def test_who_comes_after_its_end_starts_it_anew(tmp_path: Path) -> None:
    first = User(tmp_path)
    first.leave()
    second = User(tmp_path)
    second.leave()
    folder = tmp_path / "server-counting"
    assert eventually((folder / f"ended {second.address}").exists)
    assert len(list(folder.glob("started*"))) == len(list(folder.glob("ended*"))) == int(second.address)


def test_why_it_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no such server"), shared(tmp_path, f"{__name__}:broken"):
        pass
