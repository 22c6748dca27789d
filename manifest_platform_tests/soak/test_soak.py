"""A minute of a long day with all its events: real programs, killed and started again."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from manifest_platform_tests.soak import on_cluster
from manifest_platform_tests.soak.__main__ import play
from manifest_platform_tests.soak.day import Pace
from manifest_platform_tests.soak.supervised import Supervised


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_day_of_kills_ends_as_it_must(tmp_path: Path) -> None:
    pace = Pace(land_s=6, corrupt_s=25, burst_s=30, kill_s=20, burst=6)
    played = play(tmp_path, minutes=1, seed=3, pace=pace)
    assert played.wrong == [], "\n".join(played.lines)
    assert played.runs > 8


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_cluster_whose_programs_are_killed_at_random_loads_each_run_once_and_blames_none(
    tmp_path: Path, s3_environment: object
) -> None:
    """`s3_environment`: sets the variables of AWS clients back afterward."""
    played = on_cluster.play(tmp_path / "cluster", minutes=2, seed=4, pace=on_cluster.Pace(fault_s=8))
    assert played.wrong == [], "\n".join(played.lines)
    assert played.faults.keys() == on_cluster.KINDS, "\n".join(played.lines)


def test_a_program_is_started_with_its_signals_whatever_this_process_ignores(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        command = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT), flush=True); signal.pause()"]
        program = Supervised("program", command, dict(os.environ), tmp_path)
        log = tmp_path / "program.log"
        while not log.read_text().endswith("\n"):
            assert program.process.poll() is None
        program.end()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "default_int_handler" in log.read_text()
