"""Accepting a rewritten directory: with concurrent work on the item, and if it cannot be captured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifest_platform.manifest import Landed, Manifest, Refused
from manifest_platform.operations.accept import accept
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.pipeline.discovery import discover
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.cli.test_commands import RUNS, Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop with a run that is recorded as shredded and was rewritten since."""
    shop = Shop(tmp_path)
    shop.land(RUNS[0])
    with shop.pipeline() as pipeline:
        discover(pipeline)
    shop.work(SHRED, RUNS[0])
    (shop.landing / RUNS[0] / "part-0").write_text("another event")
    return shop


def test_an_accept_is_refused_if_the_item_is_loaded_meanwhile(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this check the item was accepted after its load, and shredded again, with the older rows in the warehouse."""
    with shop.pipeline() as pipeline:
        key, reread = pipeline.key(RUNS[0]), pipeline.source.reread

        def loaded_meanwhile(landed: Landed) -> Landed:
            shop.work(LOAD, RUNS[0])
            return reread(landed)

        monkeypatch.setattr(pipeline.source, "reread", loaded_meanwhile)
        before = pipeline.manifest.item(key).landed
        with pytest.raises(Refused, match="changed while it was looked at") as refused:
            accept(pipeline, key, "the producer mended it")
        assert (pipeline.manifest.item(key).landed, pipeline.manifest.item(key).version) == (before, 1)
        assert refused.value.remedy == Remedy(Action.EXPLAIN, item=RUNS[0])


def test_accept_does_not_capture_a_directory_that_others_landed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source offers other content, and cannot capture it."""

    def offered(_manifest: Manifest, _landed: Landed) -> str:
        return "other"

    with shop.pipeline() as pipeline:
        monkeypatch.setattr(pipeline.source, "offered_instead", offered)
        with pytest.raises(Refused, match="was landed by others") as refused:
            accept(pipeline, pipeline.key(RUNS[0]), "the vault mended it")
        assert refused.value.remedy == Remedy(Action.ACCEPT, item=RUNS[0])
        monkeypatch.undo()
        accept(pipeline, pipeline.key(RUNS[0]), "landed anew")
        assert pipeline.manifest.item(pipeline.key(RUNS[0])).version == 2
