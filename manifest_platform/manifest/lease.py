"""A held lease: its row in the store, and the thread that keeps it alive.

Belongs here: heartbeats and what a worker learns from them. Safety never rests on them: a claim is conditional on the lease's
row, a commit on the sink's fence.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import uuid4

from manifest_platform.manifest.dataset import LeaseState
from manifest_platform.manifest.errors import LeaseLost
from manifest_platform.manifest.keys import lease_key
from manifest_platform.manifest.records import Application
from manifest_platform.manifest.store import ConditionFailed, OutcomeUnknown, Put, Store, StoreError, Write, transact_once
from manifest_platform.manifest.transitions import expire

log = logging.getLogger(__name__)

HEARTBEATS_PER_DURATION = 3


def write_lease(
    store: Store, partition: str, application: Application, feed: str, lease: LeaseState, writes: Sequence[Write] = ()
) -> LeaseState:
    """Puts a lease's row over the version it was read at, together with other writes; returns it with its new version.

    Raises NewerRelease for a row that a newer release wrote.
    """
    lease.form.require_writable(f"the lease of {application.key} on {feed}")
    own = Put(lease_key(application, feed), lease.to_dict(), lease.version, lasting=True)
    transact_once(store, partition, [own, *writes], mark="nonce")
    return dataclasses.replace(lease, version=lease.version + 1)


class Lease:
    """The right of one worker to work on (application, feed). A context manager: leaving it gives the lease back.

    A heartbeat at a third of the duration extends it, on a thread of its own. `lost` is set as soon as the worker can
    know that it does not hold the lease any more, and what it does under `cancelling` is stopped then; `token` tells this
    grant from every other. `settled`: whether the item that the holder before left behind is known to be ended. `given_back`:
    the lease's row since it was given back.

    Work that hangs under `within` loses the lease at its limit: nothing extends it from then on, so that it runs out.
    """

    def __init__(
        self,
        store: Store,
        partition: str,
        application: Application,
        feed: str,
        state: LeaseState,
        duration: timedelta,
        clock: Callable[[], datetime],
    ):
        self.application, self.feed = application, feed
        self.lost = threading.Event()
        self.settled = state.current is None
        self.given_back: LeaseState | None = None
        self._store, self._partition, self._clock, self._duration = store, partition, clock, duration
        self._state = state
        self._unclear: LeaseState | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._cancels: list[Callable[[], object]] = []
        self._given_up = ""  # for which work, where a limit was reached
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat {application.key} {feed}", daemon=True)
        self._thread.start()

    @property
    def dataset(self) -> str:
        """The dataset whose lease this is."""
        return self._partition

    @property
    def token(self) -> int:
        """The fencing token of this grant."""
        return self._state.token

    @property
    def current(self) -> str | None:
        """The position of the item claimed last under this lease's row, by whichever holder."""
        return self._state.current

    def check(self) -> None:
        """Raises LeaseLost if the lease is known to be lost."""
        if self.lost.is_set():
            raise LeaseLost(self._given_up or f"{self._name} is lost")

    @contextmanager
    def within(self, limit: timedelta, work: str) -> Generator[None]:
        """Gives the lease up where the block takes longer than a limit: what runs under `cancelling` is stopped, and nothing
        extends the lease any more. `work`: what the block does, for the message.

        The heartbeat lives on a thread of its own, so a job or a statement that hung held its feed for ever. The lease's next
        holder settles what was claimed, whether or not the block ever ends. Raises LeaseLost where it is lost already.
        """
        self.check()
        timer = threading.Timer(limit.total_seconds(), self._give_up, [f"{work} took longer than its limit of {limit}"])
        timer.name, timer.daemon = f"limit of {self.application.key} {self.feed}", True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, why: str) -> None:
        self._given_up = f"{self._name} was given up: {why}"
        log.error("%s", self._given_up)
        self._lose()

    @contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Generator[None]:
        """Has `cancel` called, from another thread, once the lease is lost and as long as the block runs. Raises LeaseLost.

        For work that does not look at `lost` by itself: a Spark job, a statement of the warehouse.
        """
        self._cancels.append(cancel)
        try:
            self.check()
            yield
        except LeaseLost:
            raise
        except Exception as error:
            if self.lost.is_set():
                raise LeaseLost(self._given_up or f"{self._name} was lost, so the work was cancelled") from error
            raise
        finally:
            self._cancels.remove(cancel)

    def _lose(self) -> None:
        self.lost.set()
        self._cancel()

    def _cancel(self) -> None:
        for cancel in list(self._cancels):
            try:
                cancel()
            except Exception:
                log.exception("%s was lost, and its work could not be cancelled", self._name)

    @property
    def _name(self) -> str:
        return f"the lease of {self.application.key} on feed {self.feed} (token {self.token})"

    def transact(self, writes: list[Write], current: str | None = None) -> None:
        """Writes under the lease: on condition that its row is still this grant's. `current` becomes the claimed item.

        Raises LeaseLost if it is not, and ConditionFailed for the other writes.
        """
        with self._lock:
            self.check()
            self._read_back()
            changed = dataclasses.replace(self._state, current=current) if current else self._state
            self._write(dataclasses.replace(changed, expires_at=self._clock() + self._duration), writes)

    def heartbeat(self) -> None:
        """Extends the lease by its duration. Raises LeaseLost if somebody else has it."""
        self.transact([])

    def raise_token(self, above: int) -> None:
        """Takes the lease again under a token above `above`, which a sink that knows more than the manifest has seen."""
        with self._lock:
            self.check()
            self._read_back()
            self._write(dataclasses.replace(self._state, token=max(self.token, above) + 1), [])

    def release(self) -> None:
        """Ends the heartbeat and gives the lease back, so that the next worker need not wait. From then on it is lost."""
        self._stopped.set()
        self._thread.join(self._duration.total_seconds())  # what cancels may hang with the work
        with self._lock:
            if self.lost.is_set():
                return
            try:
                self._read_back()
                self._write(expire(self._state), [])
                self.given_back = self._state
            except StoreError as error:
                log.warning("lease of %s not given back, it runs out by itself: %s", self.application.key, error)
            except LeaseLost:
                return
            finally:
                self.lost.set()

    def leave(self) -> None:
        """Ends the heartbeat and lets the lease run out by itself: another process works on under its token."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def _write(self, state: LeaseState, writes: list[Write]) -> None:
        state = dataclasses.replace(state, nonce=str(uuid4()))
        try:
            self._state = write_lease(self._store, self._partition, self.application, self.feed, state, writes)
        except ConditionFailed as error:
            if any(write.sort == lease_key(self.application, self.feed) for write in error.failed):
                self._lose()
                self.check()
            raise
        except OutcomeUnknown:
            self._unclear = state
            raise

    def _read_back(self) -> None:
        """Finds out about a write whose outcome was unknown and could not be read then: the row is still this grant's."""
        if self._unclear:
            row = self._store.get(self._partition, lease_key(self.application, self.feed))
            if row and row.data["nonce"] == self._unclear.nonce:
                self._state = dataclasses.replace(self._unclear, version=row.version)
            self._unclear = None

    def _beat(self) -> None:
        pause = self._duration.total_seconds() / HEARTBEATS_PER_DURATION
        while not self._stopped.wait(pause):
            if self.lost.is_set():
                self._cancel()  # again, for work may have been about to begin when it was cancelled
                continue
            try:
                self.heartbeat()
            except LeaseLost as error:
                log.error("%s", error)
            except Exception as error:  # whatever it is: without heartbeats the lease runs out
                log.warning("heartbeat of %s failed, trying again: %s", self.application.key, error)
                if not self._state.is_live(self._clock()):
                    self._lose()
