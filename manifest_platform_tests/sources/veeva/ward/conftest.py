from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifest_platform.pipeline import Pipeline
from manifest_platform_tests.sources.veeva.ward.ward import Ward


@pytest.fixture
def ward(tmp_path: Path, store_url: str) -> Ward:
    return Ward(tmp_path, store_url)


@pytest.fixture
def pipeline(ward: Ward) -> Iterator[Pipeline]:
    with ward.open() as opened:
        yield opened


@pytest.fixture
def other(ward: Ward) -> Iterator[Pipeline]:
    """The same vault in the hands of another worker."""
    with ward.open(run_id="other") as opened:
        yield opened
