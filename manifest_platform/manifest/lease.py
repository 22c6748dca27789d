"""A held lease: its row in the store, and the thread that extends it.

Belongs here: heartbeats, and how a worker learns that it lost its lease. Safety does not depend on heartbeats: a claim is
conditional on the lease's row, and a commit on the sink's fence.
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
from manifest_platform.manifest.errors import LeaseLost, WorkEnded
from manifest_platform.manifest.keys import lease_key
from manifest_platform.manifest.records import Application
from manifest_platform.manifest.store import ConditionFailed, OutcomeUnknown, Put, Store, StoreError, Write, transact_once
from manifest_platform.manifest.transitions import expire

log = logging.getLogger(__name__)

HEARTBEATS_PER_DURATION = 3


def write_lease(
    store: Store, partition: str, application: Application, feed: str, lease: LeaseState, writes: Sequence[Write] = ()
) -> LeaseState:
    """Puts a lease's row over the version that was read, together with other writes; returns the lease with its new version.

    Raises NewerRelease for a row that a newer release wrote.
    """
    lease.form.require_writable(f"the lease of {application.key} on {feed}")
    own = Put(lease_key(application, feed), lease.to_dict(), lease.version, lasting=True)
    transact_once(store, partition, [own, *writes], mark="nonce")
    return dataclasses.replace(lease, version=lease.version + 1)


class Lease:
    """The right of one worker to work on (application, feed). A context manager that gives the lease back on exit.

    A heartbeat thread extends the lease after each third of its duration.

    - `lost`: an event that is set as soon as the worker can know that it has lost the lease. Work under `canceling` is then
      canceled.
    - `token`: the number of this grant, which no other grant has.
    - `settled`: True if the item that the former holder left is known to be ended.
    - `given_back`: the lease's row after it was given back.

    If work under `within` takes longer than its limit, the lease is not extended any more and expires.
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
        self._given_up = ""  # the message, once a limit was reached
        self._told_to_end = threading.Event()
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
        """The position of the item claimed last under this lease's row, by any holder."""
        return self._state.current

    @property
    def through(self) -> str | None:
        """The position of the last item that was claimed together with `current`; None if that was claimed alone."""
        return self._state.through

    def check(self) -> None:
        """Raises LeaseLost if the lease is known to be lost, WorkEnded if the work under it was told to end."""
        self._require_held()
        if self._told_to_end.is_set():
            raise WorkEnded(self._ended)

    def _require_held(self) -> None:
        if self.lost.is_set():
            raise LeaseLost(self._given_up or f"{self._name} is lost")

    def end_work(self) -> None:
        """Makes work in another thread end: work under `canceling` is canceled, and `check` raises WorkEnded.

        The lease stays held. Work that began a moment ago may not be canceled yet, so this may be called again.
        """
        self._told_to_end.set()
        self._cancel()

    @contextmanager
    def within(self, limit: timedelta, work: str) -> Generator[None]:
        """Gives the lease up if the block takes longer than `limit`. `work` describes the block, for the message.

        Work under `canceling` is then canceled, and the lease is not extended any more. The heartbeat has a thread of its own,
        so without a limit a job or statement that hangs would hold its feed forever. The lease's next holder settles what was
        claimed, whether or not the block ever ends. Raises LeaseLost if the lease is lost already.
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
    def canceling(self, cancel: Callable[[], object]) -> Generator[None]:
        """Calls `cancel` from another thread if the lease is lost while the block runs. Raises LeaseLost, WorkEnded.

        For work that does not check `lost` itself: a Spark job, a statement of the warehouse.
        """
        self._cancels.append(cancel)
        try:
            self.check()
            yield
        except LeaseLost:
            raise
        except Exception as error:
            if self.lost.is_set():
                raise LeaseLost(self._given_up or f"{self._name} was lost, so the work was canceled") from error
            if self._told_to_end.is_set():
                raise WorkEnded(self._ended) from error
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
                log.exception("the work under %s could not be canceled", self._name)

    @property
    def _ended(self) -> str:
        return f"the work under {self._name} was told to end"

    @property
    def _name(self) -> str:
        return f"the lease of {self.application.key} on feed {self.feed} (token {self.token})"

    def transact(self, writes: list[Write], current: str | None = None, through: str | None = None) -> None:
        """Writes under the lease, on condition that its row is still this grant's.

        `current` becomes the claimed item, and `through` the last of the items that are claimed together with it.

        Raises LeaseLost if the row is another grant's, and ConditionFailed for the other writes.
        """
        with self._lock:
            self._require_held()
            self._read_back()
            changed = dataclasses.replace(self._state, current=current, through=through) if current else self._state
            self._write(dataclasses.replace(changed, expires_at=self._clock() + self._duration), writes)

    def heartbeat(self) -> None:
        """Extends the lease by its duration. Raises LeaseLost if another worker has it."""
        self.transact([])

    def raise_token(self, above: int) -> None:
        """Takes the lease again under a token above `above`, the token of a sink whose state is newer than the manifest's."""
        with self._lock:
            self._require_held()
            self._read_back()
            self._write(dataclasses.replace(self._state, token=max(self.token, above) + 1), [])

    def release(self) -> None:
        """Ends the heartbeat and gives the lease back, so that the next worker need not wait. It counts as lost afterward.

        A signal that interrupts this does not keep the lease from the next worker: it is given back first.
        """
        try:
            self._give_back()
        except KeyboardInterrupt:
            self._give_back()
            raise

    def _give_back(self) -> None:
        self._stopped.set()
        self._thread.join(self._duration.total_seconds())  # the cancel function may hang with the work
        with self._lock:
            if self.lost.is_set():
                return
            try:
                self._read_back()
                self._write(expire(self._state), [])
                self.given_back = self._state
            except StoreError as error:
                log.warning("the lease of %s could not be given back and will expire: %s", self.application.key, error)
            except LeaseLost:
                return
            self.lost.set()

    def leave(self) -> None:
        """Ends the heartbeat and lets the lease expire: another process continues to work under its token."""
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
                self._require_held()
            raise
        except (OutcomeUnknown, KeyboardInterrupt):
            self._unclear = state
            raise

    def _read_back(self) -> None:
        """Settles a write with an unknown outcome that could not be read back then: checks if the row is still this grant's."""
        if self._unclear:
            row = self._store.get(self._partition, lease_key(self.application, self.feed))
            if row and row.data["nonce"] == self._unclear.nonce:
                self._state = dataclasses.replace(self._unclear, version=row.version)
            self._unclear = None

    def _beat(self) -> None:
        pause = self._duration.total_seconds() / HEARTBEATS_PER_DURATION
        while not self._stopped.wait(pause):
            if self.lost.is_set():
                self._cancel()  # again, because work may have begun after the first call
                continue
            try:
                self.heartbeat()
            except LeaseLost as error:
                log.error("%s", error)
            except Exception as error:  # any error: without heartbeats the lease expires
                log.warning("a heartbeat of %s failed and will be tried again: %s", self.application.key, error)
                if not self._state.is_live(self._clock()):
                    self._lose()
