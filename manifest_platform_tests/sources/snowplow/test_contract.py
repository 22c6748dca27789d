"""The contract suite of sources, for Snowplow enriched runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.sources.source import Source
from manifest_platform.testing.source import SourceContract

FIRST = datetime(2024, 5, 14, 12, tzinfo=UTC)


class TestSnowplowEnriched(SourceContract):
    landings = 0

    @pytest.fixture
    def told(self, tmp_path: Path) -> dict[str, Any]:
        (tmp_path / "landing").mkdir()
        shred = {"output": str(tmp_path / "shredded"), "schemas": [str(SCHEMAS)]}
        return {"source": "snowplow_enriched", "landing": {"root": str(tmp_path / "landing")}, "shred": shred}

    def land(self, source: Source, number: int) -> None:
        self.landings += 1
        write_run(source.settings.landing.root, FIRST + number * timedelta(minutes=10), 10 + self.landings, seed=number)
