"""A manifest restored to a time before full loads: nothing is loaded onto a snapshot unknown to it, and there is a remedy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from manifest_platform.manifest import Standing
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform.pipeline.full import cancel
from manifest_platform_tests.sources.veeva.ward.ward import (
    FULL,
    PRODUCT,
    Ward,
    begun,
    drained,
    full,
    incr,
    incrs,
    land,
    replayed,
    standings,
    started,
    watermark,
)

FIRST, DAY = full("0000"), incrs("0015", "0145")
SECOND = full("0030", {PRODUCT: {"last": "0030", "0015": "changed", "0030": "changed"}})
THIRD = full("0100", {PRODUCT: {"last": "0100", "0015": "changed", "0030": "changed", "0045": "changed", "0100": "changed"}})


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    """Returns a vault whose manifest was restored to before a full load; the warehouse has it, and nothing is loaded twice."""
    ward = Ward(tmp_path)
    with ward.open() as pipeline:
        started(pipeline, "0000", *DAY)
        drained(pipeline)
        land(pipeline, SECOND)
    _copy(tmp_path, "manifest.db*", tmp_path / "backup")
    with ward.open() as pipeline:
        begun(pipeline, "0030")
        drained(pipeline, feeds=[FULL])
    _put_back(ward)
    return ward


def _copy(folder: Path, pattern: str, to: Path) -> None:
    to.mkdir(exist_ok=True)
    for file in folder.glob(pattern):
        shutil.copy(file, to)


def _put_back(ward: Ward) -> None:
    for file in ward.home.glob("manifest.db*"):
        file.unlink()
    _copy(ward.home / "backup", "manifest.db*", ward.home)


def _loaded_anew(ward: Ward, pipeline: Pipeline, *snapshots_and_windows) -> None:
    drained(pipeline)
    assert ward.seen.tables == replayed(snapshots_and_windows)
    assert watermark(pipeline) == "0200"


def test_nothing_is_loaded_onto_a_snapshot_unknown_to_the_manifest(ward: Ward) -> None:
    """A full load that is begun and canceled raises the epoch above the fence's: the ledger still decides."""
    with ward.open() as pipeline:
        land(pipeline, incr("0200"))
        assert drained(pipeline)[1].stop is Stop.FENCED
        begun(pipeline, "0030")
        cancel(pipeline, "second thoughts")
        _, report = drained(pipeline)
        assert report.stop is Stop.BLOCKED
        assert "holds the snapshot" in report.reason and "Begin a full load again" in report.reason
        assert standings(pipeline)["0200"] is Standing.FAILED
        assert ward.seen.tables == replayed([SECOND]), "nothing was changed"

        begun(pipeline, "0030")
        _loaded_anew(ward, pipeline, SECOND, *DAY[2:], incr("0200"))


def test_a_manifest_restored_to_before_two_full_loads_continues_with_the_next(tmp_path: Path, ward: Ward) -> None:
    with ward.open() as pipeline:
        land(pipeline, THIRD)
        begun(pipeline, "0100")
        drained(pipeline)
        newest = pipeline.newest_epoch()
    _put_back(ward)
    with ward.open() as pipeline:
        land(pipeline, incr("0200"), THIRD)
        assert begun(pipeline, "latest").epoch == newest + 1, "beyond all that the warehouse has seen"
        _loaded_anew(ward, pipeline, THIRD, *DAY[4:], incr("0200"))


def test_a_full_load_that_the_fence_refuses_can_be_given_up(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full load began while the warehouse could not be reached, so in an epoch that the warehouse has seen."""
    with ward.open() as pipeline:
        begun(pipeline, "0030")
        drained(pipeline)
        land(pipeline, THIRD)
        begun(pipeline, "0100")
        drained(pipeline)
    _put_back(ward)
    monkeypatch.setattr(Pipeline, "newest_epoch", lambda pipeline: 0)
    with ward.open() as pipeline:
        land(pipeline, incr("0200"))
        begun(pipeline, "0030")
        assert drained(pipeline)[1].stop is Stop.FENCED
        cancel(pipeline, "it can be committed no more")
    monkeypatch.undo()
    with ward.open() as pipeline:
        begun(pipeline, "0030")
        _loaded_anew(ward, pipeline, SECOND, *DAY[2:], incr("0200"))
