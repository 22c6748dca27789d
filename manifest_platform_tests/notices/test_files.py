"""Notices of files: more folders than the operating system watches are told, with the remedy, and listings continue."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest
from watchdog.observers import inotify_c

from manifest_platform.notices import Bell
from manifest_platform.notices.files import FileNotices


@pytest.mark.parametrize(
    ("number", "setting"), [(errno.ENOSPC, "fs.inotify.max_user_watches"), (errno.EMFILE, "fs.inotify.max_user_instances")]
)
def test_a_limit_of_the_operating_system_is_told_with_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, setting: str
) -> None:
    (tmp_path / "run").mkdir()

    def full(*_: object) -> NoReturn:
        raise OSError(number, "inotify limit reached")

    monkeypatch.setattr(inotify_c.Inotify, "_add_watch", full)
    notices = FileNotices(tmp_path, lambda _path, _is_folder: True)
    warned: list[str] = []
    bell = Bell()

    def warn(text: str) -> None:
        warned.append(text)
        bell.ring("warned")

    bell.listen(notices, "landing", warn)
    try:
        assert bell.wait(60) == {"warned"}
    finally:
        bell.close()
    [told] = warned
    assert told.startswith(f"no notices from {tmp_path}, so only listings find what is new there: ")
    assert f"raise sysctl {setting}" in told


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_thousand_folders_are_watched(tmp_path: Path) -> None:
    for number in range(100_000):
        (tmp_path / f"run={number:06}").mkdir()
    bell, warned = Bell(), list[str]()
    bell.listen(FileNotices(tmp_path, lambda path, _: path.endswith("_SUCCESS")), "landing", warned.append)
    try:
        assert bell.wait(250) == {"landing"}, (warned, Path("/proc/sys/fs/inotify/max_user_watches").read_text())
        (tmp_path / "run=050000" / "_SUCCESS").touch()
        assert bell.wait(60) == {"landing"}
    finally:
        bell.close()
    assert warned == []
