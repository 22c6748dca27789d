"""The processes of a vault, step by step: a shredder, a loader, and the sink with the warehouse's part of the protocol."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from manifest_platform.manifest import (
    Abandoned,
    Claim,
    ClaimLost,
    ConditionFailed,
    Failure,
    FailureKind,
    Item,
    Lease,
    LeaseBusy,
    Manifest,
    Ready,
    State,
    Store,
)
from manifest_platform.manifest.dataset import Step
from manifest_platform.manifest.store import Row, Units, Write
from manifest_platform_tests.manifest.given import DONE, kill
from manifest_platform_tests.manifest.vault import FULL, HOUR, INCR, LOAD, LOG, SHRED, state


class Fenced(Exception):
    """The sink has seen a newer token or epoch."""


class Behind(Exception):
    """The sink has already passed the item."""


@dataclass
class Fence:
    token: int = 0
    epoch: int = 1
    applied: str = ""


@dataclass(frozen=True)
class Commit:
    """A commit in the sink: an item of a feed, or a snapshot, with its epoch."""

    feed: str
    position: str
    epoch: int
    late: bool


@dataclass
class Sink:
    """A simulated warehouse: fences, ledger, and all commits in order."""

    fences: dict[str, Fence] = field(default_factory=lambda: {feed: Fence() for feed in (INCR, LOG, FULL)})
    ledger: dict[tuple[str, str], int] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)

    def raise_fence(self, feed: str, token: int, epoch: int) -> None:
        fence = self.fences[feed]
        if fence.token > token or fence.epoch > epoch:
            raise Fenced(f"{feed}: {fence} against token {token}, epoch {epoch}")
        fence.token, fence.epoch = token, epoch

    def apply(self, item: Item, step: Step, token: int, epoch: int, serving: int) -> None:
        """Commits an item, unless the ledger has it in an epoch that still serves."""
        feed, position = item.key.feed, item.key.position
        self.raise_fence(feed, token, epoch)
        if self.ledger.get((feed, position), 0) >= serving:
            return
        late = step.order == "strict" and item.is_late_for(LOAD, serving)
        fence = self.fences[feed]
        if step.order == "strict" and not late and position <= fence.applied:
            raise Behind(f"{position} comes behind {fence.applied}")
        self.ledger[feed, position] = epoch
        self.commits.append(Commit(feed, position, epoch, late))
        fence.applied = max(fence.applied, position)
        if step.order == "full":
            for other in self.fences.values():
                other.epoch = epoch
            for covered in step.covers:
                self.fences[covered].applied = boundary(item.key.sort)


def boundary(sort: str) -> str:
    return f"{sort}#\x7f"


class Loader:
    """A process that loads a feed. At each `yield` other processes may act, or the process may die."""

    def __init__(self, of: Manifest, feed: str, sink: Sink):
        self.of, self.feed, self.sink, self.step = of, feed, sink, of.step(feed, "load")
        self.chance = "commits"
        self.held: Lease | None = None
        self.running = self._run()

    def go_on(self, chance: str) -> bool:
        """Takes one more step; returns False if that was the last."""
        self.chance = chance
        try:
            next(self.running)
        except StopIteration:
            return False
        except (ClaimLost, LeaseBusy, ConditionFailed, Fenced) as error:
            self._is_fenced_rightly(error)
            if self.held:
                self.held.release()
            return False
        return True

    def _is_fenced_rightly(self, error: Exception) -> None:
        """Asserts that the sink's fence never refuses the newest holder in the newest epoch."""
        stored, fence = self.of.lease(LOAD, self.feed), self.sink.fences[self.feed]
        if isinstance(error, Fenced) and self.held and stored and self.held.token == stored.token:
            assert fence.token <= stored.token, error
            assert fence.epoch <= state(self.of).epoch, error

    def die(self) -> None:
        self.running.close()
        if self.held:
            kill(self.held)

    def _run(self) -> Generator[None]:
        self.held = held = self.of.acquire(self.feed, "load", "loader", HOUR)
        yield
        while True:
            verdict = self.of.unsettled(held) or self.of.next(self.feed, "load", holding=True)
            yield
            if isinstance(verdict, Abandoned):
                yield from self.settle(held, verdict)
            elif isinstance(verdict, Ready):
                yield from self._load(held, verdict)
            else:
                held.release()
                return

    def _load(self, held: Lease, ready: Ready) -> Generator[None]:
        [claim] = self.of.claim(held, [ready.item], ready.state)
        yield
        if self.chance in ("fails", "stumbles"):
            self.of.fail(
                claim, Failure(FailureKind.PERMANENT if self.chance == "fails" else FailureKind.TRANSIENT, self.chance)
            )
            yield
            return
        try:
            self._apply(held, claim)
        except Behind as behind:
            self.of.defer(claim, str(behind))
            yield
            return
        yield
        if self.chance == "answer lost":
            yield from self.settle(held, Abandoned(claim.item, claim.processing))
        else:
            self.of.complete(claim, DONE)
            yield

    def _apply(self, held: Lease, claim: Claim) -> None:
        serving = claim.state.seen_by(self.step, self.feed).serving_epoch
        self._raise_token(held, claim.state.epoch)
        self.sink.apply(claim.item, self.step, held.token, claim.state.epoch, serving)

    def _raise_token(self, held: Lease, epoch: int) -> None:
        """Raises the lease's token above a token of the sink that is newer because the manifest was restored from a backup."""
        fence = self.sink.fences[self.feed]
        if fence.token > held.token and fence.epoch <= epoch:
            held.raise_token(fence.token)

    def settle(self, held: Lease, abandoned: Abandoned) -> Generator[None]:
        seen = state(self.of)
        yield
        self._raise_token(held, seen.epoch)
        self.sink.raise_fence(self.feed, held.token, seen.epoch)
        yield
        epoch = self.sink.ledger.get((self.feed, abandoned.item.key.position), 0)
        if epoch >= seen.seen_by(self.step, self.feed).serving_epoch:
            self.of.adopt(held, abandoned, epoch, DONE)
        else:
            self.of.abandon(held, abandoned)
        yield


def shred(of: Manifest, feed: str, most: int, end: str = "done") -> None:
    """Frees the items that a dead shredder left, and shreds those that wait.

    `end`: with `fails` the last item fails; with `dies` the shredder dies while it works on the last item.
    """
    held = of.acquire(feed, "shred", "shredder", HOUR)
    ready, stuck = of.waiting(feed, "shred", most)
    for one in stuck:
        blocker = one.item.blocker()
        if blocker and blocker.state is State.PROCESSING and blocker.application == SHRED:
            of.abandon(held, Abandoned(one.item, blocker))
    claims = of.claim(held, ready) if ready else []
    for claim in claims[:-1]:
        of.complete(claim, DONE)
    for claim in claims[-1:]:
        if end == "dies":
            kill(held)
            return
        if end == "fails":
            of.fail(claim, Failure(FailureKind.TRANSIENT, "no memory"))
        else:
            of.complete(claim, DONE)
    held.release()


class Apart:
    """A store that maps every partition to a partition of the test, so that many manifests share a store."""

    def __init__(self, store: Store, partition: str):
        self.store, self.partition, self.requests = store, partition, 0
        self.units: Units | None = None

    def get(self, partition: str, sort: str) -> Row | None:
        return self.store.get(self.partition, sort)

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        return self.store.get_many(self.partition, sorts)

    def query(self, partition: str, prefix: str, **bounds: Any) -> list[Row]:
        return self.store.query(self.partition, prefix, **bounds)

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        self.store.transact(self.partition, writes, token)

    def close(self) -> None:
        """Does nothing, because other tests share the store."""
