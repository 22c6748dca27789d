"""Folders that processes put aside: those of the dead are told from those of the living."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from manifest_platform import spool

AT_ONCE = timedelta(0)
HOLD = """
import sys
from manifest_platform import spool

with spool.folder("test") as path:
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(spool.VARIABLE, str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_block() -> None:
    with spool.folder("test") as path:
        (path / "file").write_bytes(b"12345")
        assert list(spool.abandoned(AT_ONCE)) == []
    assert not path.exists()


def test_a_folder_of_a_process_is_nobodys_once_that_was_killed_and_not_sooner(place: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    path = Path(process.stdout.readline().strip())
    assert path.parent == place
    (path / "file").write_bytes(b"12345")
    assert list(spool.abandoned(AT_ONCE)) == []
    assert not spool.remove(path, AT_ONCE)
    process.kill()
    process.wait()
    assert list(spool.abandoned(AT_ONCE)) == [spool.Abandoned(path, 5)]
    assert list(spool.abandoned()) == [], "a folder that was just made may not be locked yet"
    assert spool.remove(path, AT_ONCE)
    assert not path.exists()


def test_a_folder_that_was_never_locked_is_nobodys_when_it_is_old(place: Path) -> None:
    path = place / f"{spool.PREFIX}test-1"
    path.mkdir()
    (place / "manifest-platform-of-another").mkdir()
    assert list(spool.abandoned()) == []
    then = time.time() - 7200
    os.utime(path, (then, then))
    assert list(spool.abandoned()) == [spool.Abandoned(path, 0)]
