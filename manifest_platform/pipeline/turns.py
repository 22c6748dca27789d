"""Turns at a warehouse that only one process at a time can have open: the wait for it, and letting go of it.

A worker lets go of such a warehouse between two loads if another process waits for it, and always before it shreds and at its
end (`Pipeline.let_go`). A worker that waits claims no item meanwhile, so that waiting is no item's failure.
"""

from __future__ import annotations

import re
import socket
import time

from manifest_platform import progress
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.warehouse.errors import Held

_HOLDER = re.compile(r".*@(?P<host>.+):(?P<pid>\d+)")


class HeldByWorker(Held):
    """A worker of this configuration had the warehouse open for longer than a load may take."""


class Turn:
    """A worker's turn at the warehouse. `reach` before each claim, and `release` after each load."""

    def __init__(self, pipeline: Pipeline, feed: str) -> None:
        self._pipeline, self._feed = pipeline, feed
        self._reached = False

    def reach(self) -> None:
        """Connects, before any claim, so that an outage is charged to no item. Waits while another worker loads.

        Raises Held if another program has the warehouse open, HeldByWorker after the time limit of a load, and Unavailable.
        """
        if self._reached:
            return
        limit = self._pipeline.config.limits.of("load").total_seconds()
        begun = time.monotonic()
        try:
            self._pipeline.warehouse.reach()
        except Held as held:
            worker = self._worker(held)
            while worker:
                if time.monotonic() - begun >= limit:
                    raise HeldByWorker(f"{worker}: {held}", held.pid) from held
                with progress.work(f"waiting for the warehouse: {worker}"):
                    try:
                        self._pipeline.warehouse.reach()
                        break
                    except Held as still:
                        held, worker = still, self._worker(still)
            else:
                raise held from None
        self._reached = True

    def release(self) -> None:
        """Lets a process that waits have the warehouse."""
        if self._pipeline.let_go(idle=False):
            self.lost()

    def lost(self) -> None:
        """Makes the next `reach` connect again."""
        self._reached = False

    def _worker(self, held: Held) -> str:
        """Returns the worker that may have the warehouse open, in words; empty if there is none.

        If there is none, another program has it open, such as a person's query. That must not look like a running drain.
        """
        pipeline = self._pipeline
        for name in pipeline.config.datasets:
            with Pipeline(pipeline.config, name) as other:
                for (application, place), lease in other.manifest.kept().leases.items():
                    is_mine = (name, application, place) == (pipeline.name, pipeline.load.key, self._feed)
                    if lease.is_live(pipeline.clock()) and not is_mine and _may_hold(lease.holder or "", held):
                        return f"{application} on feed {place} of {name} is at work, held by {lease.holder}"
        return f"process {held.pid} of another configuration loads" if held.is_worker else ""


def _may_hold(holder: str, held: Held) -> bool:
    """True unless the holder of a lease is known to be another process than that with the open warehouse."""
    found = _HOLDER.fullmatch(holder)
    if held.pid is None or found is None or found["host"] != socket.gethostname():
        return True  # numbers of processes compare only on one machine
    return int(found["pid"]) == held.pid
