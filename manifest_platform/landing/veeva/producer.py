"""The producer: what Vault has published and the manifest does not know is downloaded, verified, written and registered.

Belongs here: one run of it. Nothing is registered before all of it is verified and written, under a folder that is the
attempt's own; what an attempt leaves that was not registered is garbage, and nobody reads it. The producer takes no lease and
looks at nobody's progress: it works while consumers stand still, and any number of producers do no harm to each other.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from manifest_platform import failpoints, storage
from manifest_platform.landing.errors import LandingUnavailable
from manifest_platform.landing.veeva.archive import LIMITS, Limits, unpack
from manifest_platform.landing.veeva.client import Vault
from manifest_platform.landing.veeva.errors import BadArchive, DownloadBroken, LoginRefused, VaultRefused
from manifest_platform.landing.veeva.events import Awaited, Captured, CaptureFailed, CaptureReport, Diverged, Event
from manifest_platform.landing.veeva.files import (
    FINGERPRINT,
    Awaiting,
    DirectDataFile,
    Feed,
    FileListing,
    Sidecar,
    Source,
    UnpackedFile,
)
from manifest_platform.landing.veeva.layout import (
    ATTEMPT,
    SIDECAR,
    item_uri,
    minute,
    parse_window_name,
    window_name,
)
from manifest_platform.manifest import Discovered, ItemKey, Landed, Manifest
from manifest_platform.manifest.records import format_time, parse_time

BY_URGENCY: tuple[Feed, ...] = ("log", "incr", "full")
"""The order in which feeds are captured: logs first, which Vault keeps for two days only."""
AWAITED = "vault"
"""Where the manifest keeps the windows that Vault failed to publish."""


def capture(
    vault: Vault,
    manifest: Manifest,
    root: str | Path,
    vault_id: str,
    feeds: Collection[Feed],
    now: datetime,
    names: Collection[str] | None = None,
    limits: Limits = LIMITS,
) -> Iterator[Event]:
    """Captures what Vault has of some feeds and the manifest does not know; what happened, and at last a CaptureReport.

    Each window is registered by itself, the oldest of a feed first, so that a run that ends early keeps what it has done. Of
    snapshots only the newest is captured. `names`: these windows alone, as `full/date=2026-01-01`, and of snapshots older ones
    too. `now`: the time, UTC.

    Where Vault or the landing place is not available the run ends, and the report says why. Raises LoginRefused for a session
    that cannot be had, ValueError for a name that is no window's, and what the manifest raises.
    """
    run = _Run(vault, manifest, root, vault_id, None if names is None else _window_names(names), limits)
    unavailable: str | None = None
    try:
        for feed in BY_URGENCY:
            if feed in feeds and run.wants(feed):
                for event in run.feed(feed, now):
                    run.events.append(event)
                    yield event
    except LandingUnavailable as error:
        unavailable = str(error)
    yield run.report(unavailable)


@dataclass
class _Run:
    """One run of the producer, while it runs."""

    vault: Vault
    manifest: Manifest
    root: str | Path
    vault_id: str
    names: frozenset[str] | None
    limits: Limits
    events: list[Event] = field(default_factory=list)
    oldest: dict[Feed, str] = field(default_factory=dict)
    known: int = 0

    def wants(self, feed: Feed) -> bool:
        """Whether anything of a feed is to be captured."""
        return self.names is None or any(name.startswith(f"{feed}/") for name in self.names)

    def feed(self, feed: Feed, now: datetime) -> Iterator[Event]:
        """Captures what is new of a feed."""
        try:
            listing = self.vault.files(feed)
        except LoginRefused:
            raise
        except VaultRefused as error:
            yield CaptureFailed(feed, feed, str(error), permanent=True)
            return
        yield from self._keep_awaited(feed, listing.awaiting, now)
        for entry in listing.unusable:
            yield CaptureFailed(feed, entry.name, f"Vault's list says of it: {entry.reason}", permanent=True)
        if listing.files:
            self.oldest[feed] = minute(listing.files[0].stop)
        chosen = self._chosen(feed, listing)
        for name in self._not_there(feed, chosen):
            yield CaptureFailed(feed, name, "Vault does not have it, or not any more", permanent=True)
        keys = {file: self._key(file) for file in chosen}
        known = self.manifest.known(feed, list(keys.values()))
        elsewhere = self.manifest.registered(feed, list(keys.values()))
        for file, key in keys.items():
            if key.id in known:
                yield from self._compare(file, known[key.id])
            elif key.sort in elsewhere:
                yield _moved(file, elsewhere[key.sort])
            else:
                yield from self._capture(file, key)

    def report(self, unavailable: str | None) -> CaptureReport:
        """What all of it came to."""
        captured = [event for event in self.events if isinstance(event, Captured)]
        return CaptureReport(
            captured=tuple(event.name for event in captured),
            empty=tuple(event.name for event in captured if event.is_empty),
            diverged=tuple(event.name for event in self.events if isinstance(event, Diverged)),
            failed=tuple(event for event in self.events if isinstance(event, CaptureFailed)),
            awaited=tuple(event for event in self.events if isinstance(event, Awaited)),
            known=self.known,
            oldest=dict(self.oldest),
            unavailable=unavailable,
            requests=self.vault.requests,
            bytes=self.vault.bytes,
        )

    # What there is

    def _chosen(self, feed: Feed, listing: FileListing) -> Sequence[DirectDataFile]:
        """What is to be captured of what Vault has: an older snapshot only where it is asked for."""
        if self.names is not None:
            return [file for file in listing.files if window_name(feed, file.stop) in self.names]
        return listing.files[-1:] if feed == "full" else listing.files

    def _not_there(self, feed: Feed, chosen: Sequence[DirectDataFile]) -> list[str]:
        there = {window_name(feed, file.stop) for file in chosen}
        return [name for name in self.names or () if name.startswith(f"{feed}/") and name not in there]

    def _key(self, file: DirectDataFile) -> ItemKey:
        name = window_name(file.feed, file.stop)
        return ItemKey(file.feed, minute(file.stop), item_uri(self.root, self.vault_id, name))

    def _keep_awaited(self, feed: Feed, awaiting: Sequence[Awaiting], now: datetime) -> Iterator[Awaited]:
        """Notes the windows of a feed that Vault failed to publish, in place of those that were noted before."""
        before = self.manifest.looks(AWAITED)
        others = {name: look for name, look in before.items() if look["feed"] != feed}
        noted: dict[str, dict[str, str]] = {}
        for one in awaiting:
            first_seen = before.get(one.name, {}).get("first_seen") or format_time(now)
            next_retry = minute(one.next_retry.replace(second=0, microsecond=0)) if one.next_retry else ""
            noted[one.name] = {"feed": feed, "next_retry": next_retry, "message": one.message, "first_seen": first_seen}
            yield Awaited(feed, one.name, one.next_retry, one.message, parse_time(first_seen))
        if others | noted != before:
            self.manifest.keep_looks(AWAITED, others | noted)

    # Windows

    def _capture(self, file: DirectDataFile, key: ItemKey) -> Iterator[Captured | Diverged | CaptureFailed]:
        """Downloads, verifies, writes and registers a window. An empty one has nothing to be written."""
        began = time.monotonic()
        landed = _landed(file, key)
        if file.parts:
            content = f"{key.id}/{ATTEMPT}{uuid.uuid4().hex}"
            try:
                files = self._write(file, content)
            except (BadArchive, DownloadBroken, VaultRefused) as error:
                if isinstance(error, LoginRefused):
                    raise
                yield CaptureFailed(file.feed, key.name, str(error), permanent=not isinstance(error, DownloadBroken))
                return
            size = sum(one.bytes for one in files)
            landed = replace(landed, files=len(files), bytes=size, content=content)
        failpoints.reach("capture.landed")
        [found] = self.manifest.discover(file.feed, [landed])
        failpoints.reach("capture.registered")
        if found.outcome in ("known", "changed", "moved"):
            yield from self._lost_race(found, file)
        else:
            yield Captured(file.feed, key.name, landed, found.outcome, file.size, time.monotonic() - began)

    def _write(self, file: DirectDataFile, content: str) -> tuple[UnpackedFile, ...]:
        """Writes a window's files, and when all are verified the sidecar. What is written of one that fails is removed."""
        try:
            files = unpack(file.parts, self.vault.download, content, self.limits)
            source = Source(file.name, minute(file.start), minute(file.stop), file.record_count, file.parts)
            storage.ObjectFolder(content).put(SIDECAR, Sidecar(source, files).to_bytes())
        except OSError as error:
            _discard(content)
            raise LandingUnavailable(f"{content} could not be written: {error}; make room or give access") from error
        except BaseException:
            _discard(content)
            raise
        return files

    def _lost_race(self, found: Discovered, file: DirectDataFile) -> Iterator[Diverged | CaptureFailed]:
        """Another registered the window while it was captured here: one item it is, and what was written here is garbage."""
        key, content = found.landed.key, found.landed.content
        if found.known_as:
            yield _moved(file, found.known_as)
        else:
            there = self.manifest.item(key).landed
            if there and there.content == content:
                return  # it is our own, after an answer that was lost
            yield from self._compare(file, there.checksum if there else None)
        if content:
            _discard(content)

    def _compare(self, file: DirectDataFile, known: str | None) -> Iterator[Diverged]:
        """What the manifest has of a window stays; that Vault has something else now is told.

        The checksum of one that somebody else landed is of another kind, and says nothing here.
        """
        if known is None or known == file.fingerprint or not known.startswith(FINGERPRINT):
            self.known += 1
        else:
            yield Diverged(file.feed, window_name(file.feed, file.stop), known, file.fingerprint)


def _landed(file: DirectDataFile, key: ItemKey) -> Landed:
    """A window without content."""
    return Landed(key, 0, 0, file.fingerprint, minute(file.start), minute(file.stop))


def _moved(file: DirectDataFile, elsewhere: str) -> CaptureFailed:
    reason = f"it is registered as {elsewhere}: landing.root was another then, and it would be loaded twice"
    return CaptureFailed(file.feed, window_name(file.feed, file.stop), reason, permanent=True)


def _discard(content: str) -> None:
    """Removes what an attempt wrote that nobody reads; what cannot be removed stays, and does no harm."""
    with contextlib.suppress(OSError):
        storage.delete_folder(content)


def _window_names(names: Collection[str]) -> frozenset[str]:
    found = {name: parse_window_name(name) for name in names}
    for name, parsed in found.items():
        if parsed is None:
            raise ValueError(f"{name!r} is no window's name, as incr/stoptime=202601010015 or full/date=2026-01-01")
    return frozenset(parsed.name for parsed in found.values() if parsed)
