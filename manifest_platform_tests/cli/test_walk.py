"""Any sequence of commands, with either side put back in between, ends with what has landed: once, and in order."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform_tests.effort import cases
from manifest_platform_tests.pipeline.shop import Shop, run_names

RUNS = 4
COMMANDS = (
    "drain --items 1",
    "drain --items 2",
    "drain",
    "status",
    "next",
    "discover",
    "doctor",
    "doctor --repair",
    "warehouse reconcile --dry-run",
    "warehouse reconcile",
)
COPIES = ("keep manifest", "keep warehouse", "put back manifest", "put back warehouse", "empty warehouse")
FORESEEN = {0, 1, 3, 4}
"""Exit codes; 2 would be a command line that is wrong."""


@pytest.fixture(scope="module")
def prepared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("prepared"))
    shop.shredded(spark, RUNS)
    return shop


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch


class Walk:
    """A shop, with copies of its manifest and its warehouse at moments of the walk."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        for side in ("manifest", "warehouse"):
            self._copy(side, shop.home, self._kept(side))

    def step(self, step: str) -> None:
        verb, _, side = step.rpartition(" ")
        if step not in COPIES:
            assert main(step.split()) in FORESEEN, step
        elif verb == "keep":
            self._copy(side, self.shop.home, self._kept(side))
        elif verb == "put back":
            self._copy(side, self._kept(side), self.shop.home)
        else:
            self._copy(side, self.shop.home / "nothing", self.shop.home)

    def end(self) -> None:
        """A person does what the messages say until nothing is left to do."""
        for _ in range(6):
            code = main(["drain"])
            if code in (0, 4):
                return
            main(["warehouse", "reconcile"])
        pytest.fail("the walk does not come to rest")

    def _kept(self, side: str) -> Path:
        return self.shop.home / f"kept-{side}"

    def _copy(self, side: str, source: Path, to: Path) -> None:
        """Puts the files of a side in place of those that are there; none where the source has none."""
        to.mkdir(exist_ok=True)
        for file in to.glob(f"{side}.d*"):
            file.unlink()
        for file in source.glob(f"{side}.d*"):
            shutil.copy(file, to)


@pytest.mark.timeout(1200)
@settings(
    max_examples=cases(5, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.sampled_from((*COMMANDS, *COPIES)), min_size=3, max_size=12))
def test_any_walk_ends_with_what_has_landed(
    steps: list[str], prepared: Shop, tmp_path_factory: pytest.TempPathFactory, environment: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path_factory.mktemp("walk"))
    shop._copy(prepared)
    environment.setenv(config.VARIABLE, str(shop.config_file))
    walk = Walk(shop)
    for step in steps:
        walk.step(step)
    walk.end()
    assert sorted(shop.seen.runs) == run_names(*range(RUNS)), steps
    assert [name for name, late in shop.seen.ledger if not late] == run_names(*range(RUNS)), steps
    assert shop.doubled_events == [], steps
