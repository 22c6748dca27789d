"""Retention that is killed, or paused while others decide: the next run finishes, and nothing that is needed is deleted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import Holding, Refused
from manifest_platform.operations.doctor import Doctor, Kind
from manifest_platform.operations.reload import reload
from manifest_platform.operations.reshred import reshred
from manifest_platform.operations.retention.run import collect
from manifest_platform.pipeline.discovery import discover
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, ended, keys, launched, run_name

DAYS = 8
MODULE = "manifest_platform_tests.operations.retention.collecting"


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """A shop with three loaded runs that are old enough, and a fourth that is only shredded."""
    made = Shop(tmp_path / "shop")
    text = made.config_file.read_text()
    made.config_file.write_text(text.replace("    load: {}\n", "    load: {}\n    retention: {landing_days: 7}\n"))
    made.shredded(spark, 4)
    with made.open() as pipeline:
        pipeline.manifest.skip(keys(pipeline, 3)[0], "later", "load")
        drained(pipeline)
    return made


def collecting(shop: Shop, failpoint: str | None) -> subprocess.Popen[str]:
    """Starts a process that runs retention, up to a failpoint."""
    return launched([MODULE, str(shop.config_file), str(DAYS)], shop.home, {}, failpoint, wait=False)


@pytest.mark.parametrize("point", ["judged", "begun", "deleting", "deleted"])
def test_what_a_killed_run_began_is_finished_by_the_next(shop: Shop, point: str) -> None:
    process = collecting(shop, f"retention.{point}:kill")
    assert process.wait(120) == -signal.SIGKILL
    with shop.open() as pipeline:
        begun = list(pipeline.manifest.deletions())
        assert len(begun) == (0 if point == "judged" else 4)
        deleted = [number for number in range(4) if not shop.directory(number).exists()]
        assert deleted == ([0] if point == "deleted" else [])
        for key in [one.key for one in begun]:
            assert pipeline.manifest.item(key).deletion_of(Holding.LANDING), "it is recorded before anything is deleted"
            with pytest.raises(Refused, match="deleted by retention"):
                reshred(pipeline, key, "try")
            if key.name != run_name(3):
                with pytest.raises(Refused, match="retention has begun to delete its data"):
                    reload(pipeline, key, "try")
    shop.ahead = timedelta(days=DAYS, hours=1)  # the lease of the dead process has expired
    with shop.open() as pipeline:
        done = collect(pipeline)
        assert (done.finished, done.tallies["landing"].items) == ((0, 4) if point == "judged" else (4, 0))
        assert list((shop.home / "landing").iterdir()) == []
        assert list(pipeline.manifest.deletions()) == []
        assert [one for one in Doctor(pipeline).examine().findings if one.kind is not Kind.CLOCK] == []
        assert not collect(pipeline)


def test_what_an_operator_asks_for_while_a_run_decides_is_not_deleted(shop: Shop) -> None:
    process = collecting(shop, "retention.judged:stop")
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    with shop.open() as pipeline:
        reload(pipeline, keys(pipeline, 0)[0], "wrong rows")
        reshred(pipeline, keys(pipeline, 1)[0], "wrong types")
    process.send_signal(signal.SIGCONT)
    assert ended(process) == {"finished": 0, "landing": 2}
    assert [shop.directory(number).exists() for number in range(4)] == [True, True, False, False]


def test_a_directory_that_is_rewritten_while_a_run_decides_is_kept(shop: Shop) -> None:
    process = collecting(shop, "retention.judged:stop")
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    (shop.directory(0) / "part-corrected.gz").write_bytes(b"new content")
    process.send_signal(signal.SIGCONT)
    assert ended(process) == {"finished": 0, "landing": 3}
    assert [shop.directory(number).exists() for number in range(4)] == [True, False, False, False]


def test_output_whose_other_copy_is_lost_while_a_run_decides_is_kept(shop: Shop) -> None:
    text = shop.config_file.read_text()
    shop.config_file.write_text(text.replace("landing_days", "shredded_days"))
    process = collecting(shop, "retention.judged:stop")
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    shutil.rmtree(shop.directory(0))
    process.send_signal(signal.SIGCONT)
    assert ended(process) == {"finished": 0, "shredded": 3}
    assert list((shop.home / "shredded" / NAME / run_name(0)).iterdir())


def test_a_directory_that_is_rewritten_after_a_run_was_killed_stays(shop: Shop) -> None:
    process = collecting(shop, "retention.begun:kill")
    assert process.wait(120) == -signal.SIGKILL
    for file in list(shop.directory(0).iterdir())[1:]:
        file.unlink()
    corrected = shop.directory(0) / "part-corrected.gz"
    corrected.write_bytes(b"new content")
    shop.ahead = timedelta(days=DAYS, hours=1)  # the lease of the dead process has expired
    with shop.open() as pipeline:
        done = collect(pipeline)
        [told] = done.failed
        assert run_name(0) in told and "after the decision to delete it" in told
        assert corrected.exists() and [shop.directory(number).exists() for number in range(1, 4)] == [False, False, False]
        assert not list(pipeline.manifest.deletions()), "nobody waits for it"
        assert discover(pipeline, everything=True).changed == (run_name(0),), "a person decides"
        shop.ahead *= 2
        assert not collect(pipeline).failed and corrected.exists()


def test_a_drain_at_work_does_not_hinder_a_run_and_loses_nothing(shop: Shop) -> None:
    process = collecting(shop, "retention.judged:stop")
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    with shop.open() as pipeline:
        before = pipeline.manifest.state(pipeline.load).version
        reload(pipeline, keys(pipeline, 0)[0], "wrong rows")
        assert drained(pipeline)[1].loaded == 1
        assert pipeline.manifest.state(pipeline.load).version > before, "the states by which the run judged are old"
    process.send_signal(signal.SIGCONT)
    assert ended(process) == {"finished": 0, "landing": 3}
    assert [shop.directory(number).exists() for number in range(4)] == [True, False, False, False]


def test_of_two_runs_each_directory_is_deleted_by_one(shop: Shop) -> None:
    first = collecting(shop, "retention.begun:stop")
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
    second = collecting(shop, None)
    assert second.wait(120) != 0, "another run deletes"
    assert "LeaseBusy" in (shop.home / "process.log").read_text()
    first.send_signal(signal.SIGCONT)
    assert ended(first)["landing"] == 4
    with shop.open() as pipeline:
        assert not list(pipeline.manifest.deletions())
        assert not pipeline.manifest.store.query(NAME, "DELETING#")
