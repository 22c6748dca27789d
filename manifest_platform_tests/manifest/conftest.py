from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manifest_platform.manifest import Store
from manifest_platform.manifest.sql import SqlStore

DRIVERS: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqlStore(f"sqlite:///{folder}/manifest.db"),
}


@pytest.fixture(params=DRIVERS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same store once more, as another process would."""
    return lambda: DRIVERS[request.param](tmp_path)


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Iterator[Store]:
    opened = reopen()
    yield opened
    opened.close()
