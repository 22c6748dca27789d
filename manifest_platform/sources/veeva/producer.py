"""The producer: a capture downloads, verifies, writes and registers what Vault has published and the manifest does not know.

A window is registered only after all of it is verified and written, in a folder of this attempt. Files of an attempt that was
not registered are orphaned, and never read. The producer takes no lease and does not depend on the progress of other steps: it
works while consumers are stopped, and several producers may run concurrently.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from manifest_platform import failpoints, storage
from manifest_platform.manifest import Discovered, ItemKey, Landed, Manifest, Refused
from manifest_platform.manifest.records import format_time, parse_time
from manifest_platform.manifest.store import Row
from manifest_platform.sources.capture import Awaited, Captured, CaptureEvent, CaptureFailed, CaptureReport, Diverged
from manifest_platform.sources.errors import LandingError, LandingLinked, LandingUnavailable
from manifest_platform.sources.veeva.archive import LIMITS, METADATA, Limits, unpack
from manifest_platform.sources.veeva.client import Vault
from manifest_platform.sources.veeva.errors import (
    BadArchive,
    LoginRefused,
    NoRoom,
    VaultRefused,
    VaultUnavailable,
    VaultUnreachable,
    WrongVault,
)
from manifest_platform.sources.veeva.files import (
    FINGERPRINT,
    Announced,
    Awaiting,
    DirectDataFile,
    Feed,
    FileListing,
    Sidecar,
    UnpackedFile,
    content_of,
)
from manifest_platform.sources.veeva.layout import (
    ATTEMPT,
    SIDECAR,
    check_way,
    item_uri,
    list_attempts,
    minute,
    parse_window_name,
    read_files,
    window_name,
)

BY_URGENCY: tuple[Feed, ...] = ("log", "incr", "full")
"""The order in which feeds are captured. Logs come first, because Vault keeps them for two days only."""
AWAITED = "vault"
"""The name under which the manifest keeps the windows that Vault failed to publish."""
OFFERED = "offered"
"""The name under which the manifest keeps the changed content that Vault now offers for windows already captured."""
LOGIN = "login"
"""The name under which the manifest keeps the login that Vault refused."""
LOGIN_PAUSE = timedelta(hours=24)
"""The time during which schedules do not repeat a refused login: about five wrong passwords lock the user out."""
GARBAGE_AGE = timedelta(days=1)
"""The age at which an attempt that was not registered is removed: until then another producer may be writing it."""
AHEAD = timedelta(days=1)
"""The furthest that a window may stop in the future, because clocks differ."""
TOLD = 1000
"""The largest number of unusable entries of a list that are reported; the same for unpublished entries."""
FAILED_IN_A_ROW = 2
"""The number of consecutive windows that Vault fails to give, after which the rest of the feed is not requested."""
_OF_ONE_WINDOW = (BadArchive, VaultRefused, VaultUnavailable, LandingLinked, NoRoom)
"""Errors that affect a single window, after errors of Vault as a whole were raised."""


def capture(
    vault: Vault,
    manifest: Manifest,
    root: str | Path,
    vault_id: str,
    feeds: Collection[Feed],
    now: datetime,
    names: Collection[str] | None = None,
    limits: Limits = LIMITS,
    insist: bool = True,
    keep_unnamed: bool = False,
) -> Iterator[CaptureEvent]:
    """Captures the windows of some feeds that the manifest does not know. Yields events; the last is a CaptureReport.

    Each window is registered by itself, the oldest of a feed first, so that a capture that ends early keeps its results. Of
    snapshots only the newest is captured. `names`: only these windows, as `full/date=2026-01-01`, older snapshots included.
    `now`: the time, UTC. `insist`: try even a login that Vault refused within the last day; not for schedules, because every
    try brings the user closer to being locked out. `keep_unnamed`: keeps files that an archive's manifest does not name.

    A window or a list that Vault fails to give does not stop the others. After several failures in a row, the feed ends early.
    If Vault or the landing place cannot be reached, the whole capture ends early. The report says why. Raises LoginRefused if
    there is no session, ValueError for a name that is not a window's, and the errors of the manifest.
    """
    run = _Run(vault, manifest, root, vault_id, None if names is None else _window_names(names), limits, keep_unnamed)
    unavailable: str | None = None
    refused = manifest.looks(LOGIN)
    if not insist:
        _check_login(vault, refused, now)
    try:
        for feed in BY_URGENCY:
            if feed in feeds and run.wants(feed):
                for event in run.feed(feed, now):
                    run.events.append(event)
                    yield event
    except LoginRefused as error:
        _keep_refused(vault, manifest, error, now)
        raise
    except LandingUnavailable as error:
        unavailable = str(error)
    if refused and vault.has_session:
        manifest.keep_looks(LOGIN, refused, {})
    yield run.report(unavailable or run.given_up)


def offered(manifest: Manifest, key: ItemKey) -> str | None:
    """Returns the checksum of other content that Vault offered for a window at its last capture; None if there is none."""
    row = manifest.looks(OFFERED).get(key.name)
    return (row.data["content"] or None) if row else None


def capture_again(
    vault: Vault, manifest: Manifest, root: str | Path, vault_id: str, key: ItemKey, keep_unnamed: bool = False
) -> Landed:
    """Downloads and verifies what Vault now offers for a known window, beside what was captured. Registers nothing.

    Raises Refused if Vault no longer has the window or the archive is unusable, and the errors of the client and of landing.
    """
    run = _Run(vault, manifest, root, vault_id, frozenset([key.name]), LIMITS, keep_unnamed)
    feed = next(feed for feed in BY_URGENCY if feed == key.feed)
    file = next((file for file in vault.files(feed).files if window_name(feed, file.stop) == key.name), None)
    if file is None:
        raise Refused(f"{key.name}: Vault no longer has it, so there is nothing to accept")
    try:
        return run.fetch(file, key)
    except BadArchive as error:
        raise Refused(f"{key.name}: what Vault offers cannot be used: {error}") from error


@dataclass
class _Run:
    """A capture in progress."""

    vault: Vault
    manifest: Manifest
    root: str | Path
    vault_id: str
    names: frozenset[str] | None
    limits: Limits
    keep_unnamed: bool
    events: list[CaptureEvent] = field(default_factory=list)
    oldest: dict[Feed, str] = field(default_factory=dict)
    known: int = 0
    failed_in_a_row: int = 0
    given_up: str | None = None
    _offered: dict[str, Row] | None = None

    def wants(self, feed: Feed) -> bool:
        """True if anything of a feed should be captured."""
        return self.names is None or any(name.startswith(f"{feed}/") for name in self.names)

    def feed(self, feed: Feed, now: datetime) -> Iterator[CaptureEvent]:
        """Captures the new windows of a feed."""
        try:
            listing = self.vault.files(feed)
        except (LoginRefused, VaultUnreachable):
            raise
        except (VaultRefused, VaultUnavailable) as error:
            yield self._failed(feed, feed, error)
            return
        self.failed_in_a_row = 0
        yield from self._keep_awaited(feed, listing.awaiting, now)
        for entry in listing.unusable[:TOLD]:
            yield CaptureFailed(feed, entry.name, f"its entry in Vault's list cannot be used: {entry.reason}", permanent=True)
        if more := len(listing.unusable[TOLD:]):
            yield CaptureFailed(feed, feed, f"Vault's list has {more} more entries that cannot be used", permanent=True)
        if listing.files:
            self.oldest[feed] = minute(listing.files[0].stop)
        listing, future = _without_future(listing, now)
        for file in future:
            reason = f"according to Vault's list it stops at {minute(file.stop)}, but it is only {format_time(now)} now"
            yield CaptureFailed(feed, window_name(feed, file.stop), reason, permanent=True)
        chosen = self._chosen(feed, listing)
        for name in self._not_there(feed, chosen):
            yield CaptureFailed(feed, name, "Vault does not have it, or no longer has it", permanent=True)
        keys = {file: self._key(file) for file in chosen}
        known = self.manifest.known(feed, list(keys.values()))
        elsewhere = self.manifest.registered(feed, list(keys.values()))
        for file, key in keys.items():
            if key.id in known:
                yield from self._compare(file, key, known[key.id])
            elif key.sort in elsewhere:
                yield _moved(file, elsewhere[key.sort])
            else:
                yield from self._capture(file, key)
            if self.failed_in_a_row >= FAILED_IN_A_ROW:
                return

    def fetch(self, file: DirectDataFile, key: ItemKey) -> Landed:
        """Downloads, verifies and writes a window to an attempt's folder. An empty window is not downloaded."""
        landed = Landed(key, 0, 0, file.fingerprint, minute(file.start), minute(file.stop))
        if file.is_empty:
            return landed
        content = f"{key.id}/{ATTEMPT}{uuid.uuid4().hex}"
        check_way(content)
        files = self._write(file, content)
        return replace(landed, files=len(files), bytes=sum(one.bytes for one in files), content=content)

    def report(self, unavailable: str | None) -> CaptureReport:
        """Returns the report of the capture."""
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

    # Choice

    def _chosen(self, feed: Feed, listing: FileListing) -> Sequence[DirectDataFile]:
        """Returns the files to capture. An older snapshot is captured only on request."""
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
        """Stores the windows of a feed that Vault failed to publish, in place of those stored before."""
        before = self.manifest.looks(AWAITED)
        others = {name: row.data for name, row in before.items() if row.data["feed"] != feed}
        noted: dict[str, dict[str, str]] = {}
        for one in awaiting[:TOLD]:
            first_seen = before[one.name].data["first_seen"] if one.name in before else format_time(now)
            next_retry = minute(one.next_retry.replace(second=0, microsecond=0)) if one.next_retry else ""
            noted[one.name] = {"feed": feed, "next_retry": next_retry, "message": one.message, "first_seen": first_seen}
            yield Awaited(feed, one.name, one.next_retry, one.message, parse_time(first_seen))
        self.manifest.keep_looks(AWAITED, before, others | noted)

    # Windows

    def _capture(self, file: DirectDataFile, key: ItemKey) -> Iterator[Captured | Diverged | CaptureFailed]:
        """Downloads, verifies, writes and registers a window."""
        began = time.monotonic()
        try:
            landed = self.fetch(file, key)
        except (LoginRefused, VaultUnreachable):
            raise
        except _OF_ONE_WINDOW as error:
            yield self._failed(file.feed, key.name, error)
            return
        if landed.content:
            self.failed_in_a_row = 0
        failpoints.reach("capture.landed")
        [found] = self.manifest.discover(file.feed, [landed])
        failpoints.reach("capture.registered")
        if found.outcome in ("known", "changed", "moved"):
            yield from self._lost_race(found, file)
        else:
            _collect_garbage(key.id, landed.content)
            yield Captured(file.feed, key.name, landed, found.outcome, file.size, time.monotonic() - began)

    def _failed(self, feed: Feed, name: str, error: LandingError) -> CaptureFailed:
        """Returns the failure of a window, or of the list of a feed. Gives up on the feed after several failures in a row."""
        if not isinstance(error, LandingLinked | NoRoom):  # these two are not faults of Vault
            self.failed_in_a_row = self.failed_in_a_row + 1 if isinstance(error, VaultUnavailable) else 0
        if self.failed_in_a_row >= FAILED_IN_A_ROW:
            self.given_up = str(error)
        return CaptureFailed(feed, name, str(error), permanent=not isinstance(error, LandingUnavailable))

    def _write(self, file: DirectDataFile, content: str) -> tuple[UnpackedFile, ...]:
        """Writes a window's files and, after all are verified, its sidecar. After an error, removes what was written."""
        try:
            needed = () if file.feed == "full" else (METADATA,)
            limits = replace(self.limits, part_bytes=self.vault.limits.part_bytes)
            files = unpack(file.parts, self.vault.download, content, limits, needed, self.keep_unnamed)
            source = Announced(file.name, minute(file.start), minute(file.stop), file.record_count, file.parts)
            storage.ObjectFolder(content).put(SIDECAR, Sidecar(source, files).to_bytes())
        except OSError as error:
            _discard(content)
            raise LandingUnavailable(f"{content} could not be written: {error}; make room or give access") from error
        except BaseException:
            _discard(content)
            raise
        return files

    def _lost_race(self, found: Discovered, file: DirectDataFile) -> Iterator[Diverged | CaptureFailed]:
        """Handles a window that another producer registered during this capture: what was written here is discarded."""
        key, content = found.landed.key, found.landed.content
        if found.known_as:
            yield _moved(file, found.known_as)
        else:
            there = self.manifest.item(key).landed
            if there and there.content == content:
                return  # it is our own registration, whose answer was lost
            yield from self._compare(file, key, there.checksum if there else None)
        if content:
            _discard(content)

    def _compare(self, file: DirectDataFile, key: ItemKey, known: str | None) -> Iterator[Diverged | CaptureFailed]:
        """Compares what Vault announces with what was captured. Other content is reported until a person accepts it.

        The checksum of a window that others landed is of another kind and is not compared. If Vault announces MD5s only now,
        the announcement is compared without them. For any other difference the archive is downloaded once, and the files are
        compared: the same files in another compression are no other content.
        """
        announced = file.fingerprint, file.without_md5.fingerprint
        if known is None or known in announced or not known.startswith(FINGERPRINT):
            self.known += 1
            return
        item = self.manifest.item(key)
        if item.landed is None or item.landed.checksum in announced or not item.landed.checksum.startswith(FINGERPRINT):
            self.known += 1  # it was accepted in the meantime
            return
        try:
            content = self._content_of(file, key, item.landed)
        except (LoginRefused, VaultUnreachable):
            raise
        except _OF_ONE_WINDOW as error:
            yield self._failed(file.feed, key.name, error)
            return
        if not content or item.knows(content):
            self.known += 1
        else:
            yield Diverged(file.feed, key.name, item.landed.checksum, content)

    def _content_of(self, file: DirectDataFile, key: ItemKey, landed: Landed) -> str:
        """Returns the checksum of the files that Vault offers for a known window; empty if they are the captured files."""
        noted = self._noted(key.name)
        if noted is not None and (noted["announced"], noted["captured"]) == (file.fingerprint, landed.checksum):
            return noted["content"]
        offered = self._download(file, key)
        captured = read_files(landed.place) if landed.content else None
        own = captured.content if captured else content_of(())
        content = "" if offered == own else offered
        look = {"feed": file.feed, "announced": file.fingerprint, "captured": landed.checksum, "content": content}
        assert self._offered is not None  # read above
        before = {name: row for name, row in self._offered.items() if name == key.name}
        self.manifest.keep_looks(OFFERED, before, {key.name: look})
        return content

    def _noted(self, name: str) -> Mapping[str, str] | None:
        """Returns what an earlier capture stored about a window. Reads the manifest once, at the first difference."""
        if self._offered is None:
            self._offered = self.manifest.looks(OFFERED)
        return self._offered[name].data if name in self._offered else None

    def _download(self, file: DirectDataFile, key: ItemKey) -> str:
        """Downloads and discards an archive; returns the checksum of its files, or of its announcement if it is unusable."""
        try:
            place = self.fetch(file, key).content
        except BadArchive:
            return file.fingerprint
        if place is None:
            return content_of(())
        fetched = read_files(place)
        _discard(place)
        return fetched.content if fetched else file.fingerprint


def _without_future(listing: FileListing, now: datetime) -> tuple[FileListing, list[DirectDataFile]]:
    """Removes the windows that stop in the future from a listing: after one was loaded, all real windows would be late."""
    future = [file for file in listing.files if file.stop > now + AHEAD]
    return replace(listing, files=tuple(file for file in listing.files if file.stop <= now + AHEAD)), future


def _moved(file: DirectDataFile, elsewhere: str) -> CaptureFailed:
    reason = f"it is registered as {elsewhere}, under another landing.root; registered again, it would be loaded twice"
    return CaptureFailed(file.feed, window_name(file.feed, file.stop), reason, permanent=True)


def _discard(content: str) -> None:
    """Removes an attempt that nobody reads. What cannot be removed stays, and is harmless."""
    with contextlib.suppress(OSError):
        storage.delete_folder(content)


def _collect_garbage(item: str, content: str | None) -> None:
    """Removes the old attempts of a registered window, as far as possible."""
    with contextlib.suppress(OSError):
        for attempt, written in list_attempts(item):
            if attempt != content and datetime.now(UTC) - written > GARBAGE_AGE:
                _discard(attempt)


# Refused logins


def _check_login(vault: Vault, refused: Mapping[str, Row], now: datetime) -> None:
    """Raises LoginRefused if Vault refused the same user and secret within the last day."""
    for look in (row.data for row in refused.values()):
        until = parse_time(look["time"]) + LOGIN_PAUSE
        if now < until and look["who"] == _who(vault, look["salt"]):
            raise LoginRefused(
                f"no login is tried: the same login was refused at {look['time']}, and further tries may lock the user out"
                f" ({look['message']}). Correct the user or the secret, or capture by hand. The next try of a schedule is at"
                f" {format_time(until)}",
                look["type"],
            )


def _keep_refused(vault: Vault, manifest: Manifest, error: LoginRefused, now: datetime) -> None:
    """Stores a login that Vault refused, for later captures. Errors that did not come from Vault's own check are not stored."""
    if isinstance(error, WrongVault) or error.type.startswith("HTTP "):
        return
    salt = uuid.uuid4().hex
    look = {"who": _who(vault, salt), "salt": salt, "time": format_time(now), "type": error.type, "message": str(error)}
    manifest.keep_looks(LOGIN, manifest.looks(LOGIN), {"refused": look})


def _who(vault: Vault, salt: str) -> str:
    """Returns a salted hash of the user, the vault and the secret. It is slow to compute, so that guessing is expensive."""
    login = vault.login
    text = repr((login.url, login.vault, login.credentials.identity))
    return hashlib.scrypt(text.encode(), salt=salt.encode(), n=1 << 14, r=8, p=1, dklen=32).hex()


def _window_names(names: Collection[str]) -> frozenset[str]:
    found = {name: parse_window_name(name) for name in names}
    for name, parsed in found.items():
        if parsed is None:
            raise ValueError(
                f"{name!r} is not the name of a window, such as incr/stoptime=202601010015 or full/date=2026-01-01"
            )
    return frozenset(parsed.name for parsed in found.values() if parsed)
