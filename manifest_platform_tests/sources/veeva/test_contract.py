"""A vault's Direct Data as a source, its windows landed by somebody else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.fake_vault import WINDOW, Simulation, Window, archive_of
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.full import LATEST, begin
from manifest_platform.sources.source import Source
from manifest_platform.sources.veeva.layout import window_name
from manifest_platform.testing.source import SourceContract

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class TestVeevaDirectData(SourceContract):
    landings = 0

    @pytest.fixture
    def told(self, tmp_path: Path) -> dict[str, Any]:
        (tmp_path / "landing").mkdir()
        landing, shred = {"root": str(tmp_path / "landing")}, {"output": str(tmp_path / "shredded")}
        return {"source": "veeva", "vault": {"id": "1"}, "landing": landing, "shred": shred}

    def land(self, source: Source, number: int) -> None:
        start = BEGIN + number * WINDOW
        self._write(source, Window("incr", start, start + WINDOW))

    def prepare(self, pipeline: Pipeline, spark: Any) -> None:
        self._write(pipeline.source, Window("full", datetime(2000, 1, 1, tzinfo=UTC), BEGIN))
        discover(pipeline, everything=True)
        list(begin(pipeline, lambda: spark, LATEST, "the first"))

    def _write(self, source: Source, window: Window) -> None:
        self.landings += 1
        folder = storage.local_path(source.root) / "vault=1" / window_name(window.feed, window.stop)
        for path, data in archive_of(Simulation(1, BEGIN, rows=20 + self.landings), window).tree().items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        (folder / "_SUCCESS").touch()
