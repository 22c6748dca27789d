"""The effect of `resolve` on a failed window: the cases R1 to R5, through the pipeline."""

from __future__ import annotations

import threading

import pytest

from manifest_platform.manifest import Refused, Standing
from manifest_platform.pipeline import LOAD, ItemFailed, Pipeline, Stop
from manifest_platform_tests.sources.veeva.ward.ward import (
    FULL,
    INCR,
    Ward,
    attempts,
    begun,
    drained,
    full,
    history,
    incr,
    incrs,
    key_of,
    land,
    left_by_a_dead_worker,
    mend,
    replayed,
    spoil,
    standings,
    started,
    watermark,
)

EVERY_STORE = pytest.mark.every_store


@pytest.fixture
def failed(pipeline: Pipeline) -> Pipeline:
    """0015 is applied, 0030 failed, 0045 and 0100 are ready."""
    started(pipeline, "0000", *incrs("0015", "0100"))
    spoil(pipeline, "0030")
    assert drained(pipeline)[1].failed == 1
    return pipeline


def mended(pipeline: Pipeline, stop: str) -> None:
    mend(spoil(pipeline, stop))


def resolve(pipeline: Pipeline, stop: str) -> None:
    pipeline.manifest.resolve(key_of(pipeline, stop), "looked at")


def test_R1_a_reset_window_is_applied_and_all_behind_it(ward: Ward, failed: Pipeline) -> None:
    mended(failed, "0030")
    resolve(failed, "0030")
    verdict = failed.manifest.next(INCR, LOAD)  # immediately: nothing has to land first
    assert not isinstance(verdict, Refused)
    assert drained(failed)[1].stop is Stop.IDLE
    assert ward.seen.applied == ["full 0000", "incr 0015", "incr 0030", "incr 0045", "incr 0100"]
    assert (watermark(failed), attempts(failed, "0030")) == ("0100", 2)
    assert ward.seen.tables == replayed([full("0000"), *incrs("0015", "0100")])


def test_R2_a_window_that_is_applied_or_in_processing_is_not_reset(ward: Ward, failed: Pipeline) -> None:
    mended(failed, "0030")
    resolve(failed, "0030")
    left_by_a_dead_worker(ward)
    for stop, words in (("0015", "not blocked"), ("0030", "being processed")):
        before = history(failed, stop)
        with pytest.raises(Refused, match=words):
            resolve(failed, stop)
        assert history(failed, stop) == before


def test_R3_a_window_reset_before_its_cause_is_fixed_fails_again_and_still_blocks(ward: Ward, failed: Pipeline) -> None:
    before = ward.seen
    resolve(failed, "0030")
    events, report = drained(failed)
    assert [event.key.name for event in events if isinstance(event, ItemFailed)] == [incr("0030").name]
    assert (report.stop, report.item, attempts(failed, "0030")) == (Stop.BLOCKED, incr("0030").name, 2)
    assert (ward.seen.tables, ward.seen.ledger, watermark(failed)) == (before.tables, before.ledger, "0015")
    assert drained(failed)[0] == []


@EVERY_STORE
def test_R4_of_two_concurrent_resets_one_succeeds(ward: Ward, failed: Pipeline, other: Pipeline) -> None:
    mended(failed, "0030")
    both, refused = threading.Barrier(2), []

    def operator(pipeline: Pipeline) -> None:
        both.wait()
        try:
            resolve(pipeline, "0030")
        except Refused as error:
            refused.append(str(error))

    threads = [threading.Thread(target=operator, args=(one,)) for one in (failed, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert "not blocked" in refused[0]
    assert history(failed, "0030").count("load Resolved") == 1
    drained(failed)
    assert attempts(failed, "0030") == 2
    assert ward.seen.applied.count("incr 0030") == 1


@EVERY_STORE
@pytest.mark.parametrize("snapshot", ["0015", "0045"])
def test_R5_a_window_that_failed_in_an_older_epoch_is_not_reset(ward: Ward, failed: Pipeline, snapshot: str) -> None:
    """The snapshot contains the window, or is older: then the window is ready again, and needs no reset either."""
    land(failed, full(snapshot))
    begun(failed, snapshot)
    drained(failed, feeds=[FULL])
    contained = snapshot == "0045"
    assert standings(failed)["0030"] is (Standing.SUPERSEDED if contained else Standing.READY)
    before = history(failed, "0030")
    with pytest.raises(Refused, match="a full load has superseded the work of load on it in epoch 2"):
        resolve(failed, "0030")
    assert history(failed, "0030") == before
    mended(failed, "0030")
    assert drained(failed)[1].stop is Stop.IDLE
    assert attempts(failed, "0030") == (1 if contained else 2)
    assert ward.seen.applied.count("incr 0030") == (0 if contained else 1)
