"""Blackouts of a dataset: what a drain does then, and where their end is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import Refused
from manifest_platform.operations.explain import explanation
from manifest_platform.operations.standing import Answer, outlook, step_status
from manifest_platform.pipeline import LOAD, Stop
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.chosen import load_chosen
from manifest_platform.pipeline.work import work_waiting
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, drained, keys, run_names


def test_nothing_is_loaded_in_a_blackout_and_shredding_goes_on(tmp_path: Path, spark: Any) -> None:
    now = datetime.now(UTC)
    window = {"cron": f"{now.minute} {now.hour} * * *", "minutes": 120}
    shop = Shop(tmp_path, load={"blackout": [window]}, shred={"batch": 1})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1)
        _, report = drained(pipeline, spark)
        assert (report.stop, report.shredded, report.loaded) == (Stop.BLACKOUT, 2, 0)
        until = now.replace(second=0, microsecond=0) + timedelta(hours=2)
        assert report.reason == f"load.blackout: nothing is loaded until {until:%Y-%m-%d %H:%M} UTC"
        seen = outlook(pipeline, FEED, LOAD)
        assert (seen.answer, seen.item, seen.reason) == (Answer.WAITING, run_names(0)[0], report.reason)
        assert outlook(pipeline, FEED, LOAD).reason == step_status(pipeline, FEED, LOAD).outlook.reason == report.reason
        assert work_waiting(pipeline, now) is None
        told = explanation(pipeline.manifest, keys(pipeline, 0)[0], str, now, blackout=blackout_reason(pipeline)).text
        assert report.reason in told
        with pytest.raises(Refused, match="nothing is loaded until"):
            list(load_chosen(pipeline, keys(pipeline, 0)))
        assert not pipeline.warehouse.exists()
    shop.ahead = timedelta(hours=2, minutes=1)
    with shop.open() as pipeline:
        assert drained(pipeline)[1].loaded == 2
    shop.ahead = timedelta()
    with shop.open() as pipeline:
        seen = outlook(pipeline, FEED, LOAD)
        assert (seen.answer, seen.item, seen.reason) == (Answer.IDLE, None, report.reason), "nothing waits, and it is told"
        shop.land(pipeline, 2)
        assert outlook(pipeline, FEED, LOAD).reason.endswith(f"; {report.reason}"), "it waits for its shredding, too"


def test_a_blackout_without_an_end_has_no_invented_one(tmp_path: Path) -> None:
    with Shop(tmp_path, load={"blackout": [{"cron": "* * * * *", "minutes": 60}]}).open() as pipeline:
        assert outlook(pipeline, FEED, LOAD).reason.startswith("load.blackout: nothing is loaded until at least 20")
