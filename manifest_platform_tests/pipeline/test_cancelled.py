"""A worker that loses its lease stops immediately, within a Spark job or within a statement of the warehouse."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from manifest_platform import config
from manifest_platform.manifest import ClaimLost, Manifest, Ready
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.loading import load
from manifest_platform.pipeline.shredding import shred
from manifest_platform.shred.batch import Cause
from manifest_platform.sources.snowplow.events import shredder as snowplow
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import NAME, Shop, history

FAR_TOO_LONG = 120


def take_over(shop: Shop, application: str) -> None:
    """Makes another worker, whose clock says that the lease has expired, acquire it."""
    with Pipeline(config.load(shop.config_file), NAME) as rival:
        ahead = Manifest(
            rival.manifest.store, NAME, rival.manifest.feeds, "rival", clock=lambda: datetime.now(UTC) + timedelta(hours=1)
        )
        ahead.acquire(FEED, application, "rival", timedelta(hours=1))._stopped.set()


def test_losing_the_lease_cancels_the_spark_job(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, lease={"seconds": 1})
    began = threading.Event()

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(FAR_TOO_LONG)
        yield from batches

    def shred_slowly(session: Any, directories: Any, *_: object) -> list[snowplow.ShredFailure]:
        began.set()
        try:
            session.range(1).mapInArrow(slowly, "id bigint").collect()
        except Exception as error:
            return [snowplow.ShredFailure(one.item, one.attempt, str(error), Cause.LOST) for one in directories]
        raise AssertionError("the job came to its end")

    monkeypatch.setattr(snowplow, "shred", shred_slowly)
    rival = threading.Thread(target=lambda: began.wait(60) and take_over(shop, SHRED))
    rival.start()
    started = time.monotonic()
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, 0)
        with pytest.raises(ClaimLost), pipeline.lease(FEED, SHRED) as lease:
            shred(pipeline, lease, lambda: spark, [pipeline.manifest.item(key)])
        assert history(pipeline, 0) == ["New", "shred Processing"]  # the lease's new holder settles it
    rival.join()
    assert time.monotonic() - started < FAR_TOO_LONG / 2


def test_losing_the_lease_interrupts_the_load(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, lease={"seconds": 1})
    shop.shredded(spark, 1)
    began = threading.Event()
    with shop.open() as pipeline:

        def apply(_load: object) -> None:
            began.set()
            pipeline.warehouse._engine.execute(
                "SELECT count(*) FROM range(1000000) a, range(100000000) b WHERE a.range = -b.range"
            )
            raise AssertionError("the statement came to its end")

        monkeypatch.setattr(pipeline.warehouse, "apply", apply)
        rival = threading.Thread(target=lambda: began.wait(60) and take_over(shop, LOAD))
        rival.start()
        started = time.monotonic()
        verdict = pipeline.manifest.next(FEED, LOAD)
        assert isinstance(verdict, Ready)
        with pytest.raises(ClaimLost, match="was lost, so the work was canceled"), pipeline.lease(FEED, LOAD) as lease:
            load(pipeline, lease, verdict)
        rival.join()
        assert time.monotonic() - started < FAR_TOO_LONG / 2
