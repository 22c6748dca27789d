"""A minute of a long day, with everything in it: real programs, killed and started anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifest_platform_tests.soak.__main__ import play
from manifest_platform_tests.soak.day import Pace


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_day_of_kills_ends_as_it_must(tmp_path: Path) -> None:
    pace = Pace(land_s=6, corrupt_s=25, burst_s=30, kill_s=20, burst=6)
    played = play(tmp_path, minutes=1, seed=3, pace=pace)
    assert played.wrong == [], "\n".join(played.lines)
    assert played.runs > 8
