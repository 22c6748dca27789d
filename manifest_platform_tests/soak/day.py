"""The actors of a day: a producer that lands runs, an operator who repairs failures, and a killer of processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from manifest_platform.demo.events import write_run
from manifest_platform.manifest import Refused, State
from manifest_platform.operations.accept import accept
from manifest_platform_tests.pipeline.shop import FIRST, STEP, Shop, run_name
from manifest_platform_tests.soak.program import passing
from manifest_platform_tests.soak.supervised import Platform

KINDS = ("code server", "webserver", "daemon", "run", "JVM")


@dataclass(frozen=True)
class Pace:
    """The seconds between events of each kind. `burst`: the number of runs that land together."""

    land_s: float = 4
    corrupt_s: float = 120
    burst_s: float = 150
    kill_s: float = 40
    burst: int = 12
    events: tuple[int, int] = (20, 300)


@dataclass
class Day:
    """A day of a platform; what has happened is counted."""

    platform: Platform
    pace: Pace
    chance: random.Random
    landed: dict[str, float] = field(default_factory=dict)
    """When each run's marker was written, by its name; seconds since 1970."""
    corrupt: set[int] = field(default_factory=set)
    mended: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def shop(self) -> Shop:
        """The shop of this day."""
        return self.platform.shop

    def play(self, seconds: float) -> Iterator[float]:
        """Lets the day pass; gives the seconds that have passed, about twice a second."""
        every = {what: getattr(self.pace, f"{what}_s") for what in ("land", "corrupt", "burst", "kill")}
        for passed, due in passing(seconds, every, self.chance):
            for what in due:
                getattr(self, f"_{what}")()
            yield passed

    def _land(self) -> None:
        self._write(corrupt=False)

    def _corrupt(self) -> None:
        self._write(corrupt=True)

    def _burst(self) -> None:
        for _ in range(self.pace.burst):
            self._write(corrupt=False)

    def _write(self, corrupt: bool) -> None:
        number = len(self.landed)
        self.corrupt |= {number} if corrupt else set()
        self._put(number, corrupt)
        self.landed[run_name(number)] = time.time()

    def _put(self, number: int, corrupt: bool) -> None:
        events = random.Random(number).randint(*self.pace.events)
        write_run(self.shop.home / "landing", FIRST + number * STEP, events, seed=1, corrupt=corrupt)

    def _kill(self) -> None:
        """Kills one process of a kind that is there."""
        kind = self.chance.choice(KINDS)
        living = self.platform.living()
        leaders = {"code server": self.platform.code, "webserver": self.platform.webserver, "daemon": self.platform.daemon}
        if kind in leaders:
            found = [leaders[kind].process.pid]
        else:
            found = [one.pid for one in living if one.works_on_a_run and ("java" in one.what.split()[0]) == (kind == "JVM")]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)
                self.kills[kind] += 1

    def mend(self) -> None:
        """The operator lands items with bad rows again and accepts them, and resolves other failures."""
        with self.shop.open() as pipeline:
            for number in sorted(self.corrupt):
                name = run_name(number)
                found = pipeline.manifest.items(pipeline.source.main, archived=False)
                item = next((one for one in found if one.key.name == name), None)
                if item is None or not item.records or item.records[-1].state is not State.FAILED:
                    continue
                self._put(number, corrupt=False)
                with contextlib.suppress(Refused):
                    accept(pipeline, item.key, "landed anew")
                    self.corrupt.discard(number)
                    self.mended.append(name)
