"""A follower: real processes that are woken, stopped, killed and replaced."""

from __future__ import annotations

import signal
from pathlib import Path

from manifest_platform_tests.pipeline.following import Following
from manifest_platform_tests.pipeline.shop import Shop, run_name

NEVER = 3600
"""Seconds between listings, so that only notices wake the follower."""


def shop(home: Path, listing_seconds: float = NEVER, **settings: object) -> Shop:
    return Shop(home, follow={"listing_seconds": listing_seconds, "warm_spark": False}, **settings)


def test_a_directory_is_loaded_when_it_is_complete_and_the_follower_ends_well(tmp_path: Path) -> None:
    made = shop(tmp_path)
    with Following(made.config_file) as follower:
        follower.told("following")
        made.write(0)
        follower.told("loaded", item=run_name(0))
        follower.told("ended", loaded=1)
        made.write(1)
        follower.told("loaded", item=run_name(1))
        assert follower.end(signal.SIGTERM) == 143
        assert "the leases are released" in follower.log.read_text()
    assert made.seen.runs == [run_name(0), run_name(1)]
