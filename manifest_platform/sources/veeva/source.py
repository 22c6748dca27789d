"""The source of a Veeva vault's Direct Data: windows of changes, days of logs, and snapshots.

Changes are loaded after a snapshot, in strict order and without a gap. Logs are appended, in an order of their own. A snapshot
is loaded when an operator begins a full load with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from manifest_platform import __version__, masking, storage
from manifest_platform.listing import BAD_TABLE
from manifest_platform.manifest import Application, Claim, ItemKey, Landed, Manifest, Refused, Step
from manifest_platform.sources.capture import Attempts, CaptureEvent, CapturePlan, CaptureSchedule
from manifest_platform.sources.directories import DirectoryName, Found, FoundNames, LandedDirectory, Unreadable
from manifest_platform.sources.errors import LandingError, LandingUnavailable
from manifest_platform.sources.preview import Bounds, Guess, Place, Sample
from manifest_platform.sources.source import LOAD, SHRED, Drain, Known, Named, Source, SourceCheck, Stage, Words, rewritten
from manifest_platform.sources.veeva.checks import missing_windows
from manifest_platform.sources.veeva.direct_data import METADATA_TABLE
from manifest_platform.sources.veeva.files import Feed
from manifest_platform.sources.veeva.layout import (
    FEEDS,
    attempt_folders,
    is_missing,
    item_uri,
    list_window_names,
    list_windows,
    parse_minute,
    parse_window_name,
    read_files,
    read_window,
    root_of,
)
from manifest_platform.sources.veeva.settings import (
    FULL,
    INCR,
    LOG,
    Login,
    OAuthLogin,
    PasswordLogin,
    SessionLogin,
    TokenLogin,
    VeevaSettings,
)
from manifest_platform.warehouse.load import Limits, Origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure
    from manifest_platform.sources.veeva.client import Vault
    from manifest_platform.sources.veeva.login import Credentials
    from manifest_platform.sources.veeva.shredder import VeevaOptions

KEPT = timedelta(days=10)
"""The time for which a vault keeps its windows of changes."""


class VeevaDirectData(Source):
    """The windows of one vault, below `vault=<id>/` in a landing root."""

    model = VeevaSettings
    settings: VeevaSettings

    words = Words(
        kind="veeva",
        directories="windows",
        form="a window's name (incr/stoptime=YYYYMMDDHHMM, log/date=YYYY-MM-DD or full/date=YYYY-MM-DD, or YYYYMMDD)",
        rows="rows",
        landed="Direct Data windows of a vault, verified, and registered in the manifest once they are whole.",
        shredded="Typed Parquet of every window: a table for each extract, another for its deleted keys, and the bad rows.",
        loaded={
            INCR: "The changes in the warehouse: strictly in order, without a gap, exactly once.",
            LOG: "The vault's logs in the warehouse: appended, each day exactly once.",
            FULL: "The snapshots in the warehouse: one replaces all that it covers, and begins a new epoch.",
        },
    )
    feeds = (FULL, INCR, LOG)
    main = INCR
    on_demand = frozenset({FULL})
    appends = False
    origins = (Origin("file"),)
    splits_types = frozenset({LOG})
    retention = KEPT

    @property
    def keeps(self) -> tuple[str, ...]:
        """The tables that a snapshot leaves unchanged if it lacks them: bad rows, and partial workflow tables."""
        return (BAD_TABLE, *self.settings.shred.partial_in_full)

    @property
    def limits(self) -> Limits:
        """The number of rows that a snapshot may remove from a table. The metadata table is exempt: it holds no data."""
        shrink = self.settings.load.shrink
        return Limits(shrink.max_share, shrink.max_count, frozenset({METADATA_TABLE}))

    @property
    def origin(self) -> str:
        """The number of the vault."""
        return self.vault_id

    @property
    def vault_id(self) -> str:
        """The number of the vault."""
        return self.settings.vault.id

    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        """Returns shred, and load with the order and the gap rule of the feed."""
        load, shred = Application(LOAD, __version__), Step(Application(SHRED, __version__), max_attempts=attempts)
        if feed == FULL:
            return shred, Step(load, (SHRED,), order="full", covers=(INCR,), max_attempts=attempts)
        if feed == LOG:
            return shred, Step(load, (SHRED,), order="strict", late=self.settings.load.late, max_attempts=attempts)
        return shred, Step(load, (SHRED,), order="strict", gap="contiguous", needs_full=True, max_attempts=attempts)

    def named(self, text: str) -> list[Named]:
        """Returns the window of a name. A date without a feed may be a day of logs and a snapshot."""
        forms = [f"{LOG}/{text}", f"{FULL}/{text}"] if text.startswith("date=") else [text]
        return [Named(parsed.feed, parsed.sort) for form in forms if (parsed := parse_window_name(form))]

    def placed(self, uri: str) -> Named | None:
        """Returns the window that a URI ends in."""
        _, _, name = uri.rpartition(f"/vault={self.vault_id}/")
        return next(iter(self.named(name)), None)

    def time(self, name: str) -> datetime | None:
        """Returns the stop time of the window, or the time of the snapshot."""
        parsed = parse_window_name(name)
        return parsed.time if parsed else parse_minute(name)

    @classmethod
    def began(cls, name: str) -> datetime | None:
        """Returns the start of a window of changes or a day of logs by Vault's schedule, or the time of the snapshot."""
        parsed = parse_window_name(name)
        if parsed is None:
            return None
        return parsed.time if parsed.feed == FULL else parse_minute(parsed.start)

    def logical_time(self, landed: Landed) -> datetime | None:
        """Returns the start of a window of changes or a day of logs, or the time of the snapshot."""
        start = landed.start if landed.key.feed != FULL else None
        return parse_minute(start) if start else self.time(landed.key.name)

    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """Returns the windows that others landed. In a feed that is captured, known windows are not read again.

        Windows have about twenty files each, and were verified before they were registered.
        """
        if self._is_landed_by_others(feed):
            return list_windows(self.root, self.vault_id, after, self.completeness, [_feed(feed)])
        if is_missing(self.root):
            return Found([], [], 0)  # the first capture creates it
        listed = list_window_names(self.root, self.vault_id, _feed(feed), after)
        keys = {one.name: ItemKey(feed, one.sort, item_uri(self.root, self.vault_id, one.name)) for one in listed.names}
        present = known(list(keys.values()))
        landed: list[LandedDirectory] = []
        unreadable = list(listed.unreadable)
        fresh = [one for one in listed.names if keys[one.name] not in present]
        for one in fresh:
            try:
                window = self.read(feed, one)
            except LandingError as error:
                if isinstance(error, LandingUnavailable) and not storage.is_local(self.root):
                    raise
                unreadable.append(Unreadable(one.name, str(error)))
                continue
            landed += [window] if window else []
        requests = listed.requests + len(fresh)
        return Found(landed, listed.unparseable, requests, len(present), listed.now, tuple(unreadable))

    def look_at(self, feed: str, after: datetime | None, most: int) -> Found:
        """Returns a part of the windows that others landed; none of a feed that is captured, because they were verified.

        Logs and snapshots have two forms of names, which do not sort by time, and few windows: a part is all of them.
        """
        if is_missing(self.root) or not self._is_landed_by_others(feed):
            return Found([], [], 0)
        sorts = feed == INCR
        return list_windows(self.root, self.vault_id, after, self.completeness, [_feed(feed)], most if sorts else None)

    def names(self, feed: str, beyond: str, most: int, after: datetime | None = None) -> FoundNames:
        """Returns the names of a part of the windows in the feed's folder; of logs and snapshots, all names."""
        if is_missing(self.root):
            return FoundNames([], [], 0)
        limit = most if feed == INCR else None
        return list_window_names(self.root, self.vault_id, _feed(feed), after, beyond=beyond, most=limit)

    def _is_landed_by_others(self, feed: str) -> bool:
        return self.settings.vault.url is None or feed not in self.settings.vault.feeds

    def read(self, feed: str, name: DirectoryName) -> LandedDirectory | None:
        """Reads a window that others landed; None if it has neither a file nor the marker, as while it is being captured."""
        window = read_window(item_uri(self.root, self.vault_id, name.name), self.completeness)
        return window if window.files or window.marker else None

    def landed(self, feed: str, seen: LandedDirectory) -> Landed:
        """Returns a window that others landed, with the start and stop of its name."""
        window = parse_window_name(seen.name)
        assert window is not None  # listings return windows only
        key = ItemKey(feed, window.sort, seen.uri)
        return Landed(key, len(seen.files), seen.bytes, seen.checksum, window.start, window.stop)

    def reread(self, landed: Landed) -> Landed:
        """Reads a window again, by one listing. For a captured window, number and size of files suffice: shredding compares
        bytes.
        """
        window = read_window(landed.place, self.completeness)
        captured = read_files(landed.place) if landed.content else None
        size = sum(file.size for file in window.files)
        same = captured is not None and (len(window.files), size) == (landed.files, landed.bytes)
        return replace(landed, files=len(window.files), bytes=size, checksum=landed.checksum if same else window.checksum)

    def directory(self, claim: Claim, output: str) -> Directory:
        """Returns the window's files. Those of a captured window are compared with the checksums of the capture."""
        from manifest_platform.sources.veeva.shredder import Window

        key, landed = claim.item.key, claim.item.landed
        attempt = claim.processing.record_id
        if landed is None:
            raise Refused(f"{key.name} was not discovered, so nothing says where its files are")
        files: tuple[tuple[str, int], ...] = ()
        expected = None
        if landed.files:
            window = read_window(landed.place, self.completeness)
            window.check()
            captured = read_files(landed.place) if landed.content else None
            if captured is None and window.checksum != landed.checksum:
                raise rewritten(landed, len(window.files), window.bytes)
            files = tuple((file.uri, file.size) for file in window.files)
            expected = {file.path: file.sha256 for file in captured.files} if captured else None
        return Window(
            item=key.id,
            files=files,
            output=output,
            attempt=attempt,
            feed=_feed(key.feed),
            stop=key.sort,
            place=landed.place,
            expected=expected,
            root=root_of(landed.place),
        )

    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Shreds extracts, typed by the window's own metadata."""
        from manifest_platform.sources.veeva.shredder import Window, shred

        return shred(session, [one for one in directories if isinstance(one, Window)], self._options())

    def _options(self) -> VeevaOptions:
        """Returns the options of shredding from the settings."""
        from manifest_platform.sources.veeva.shredder import VeevaOptions

        settings = self.settings.shred
        return VeevaOptions(
            split_size=settings.split_mib << 20,
            max_bad_count=settings.bad_rows.max_count,
            max_bad_share=settings.bad_rows.max_share,
            types=dict(settings.types),
            partial_in_full=settings.partial_in_full,
            keep_unnamed=self.settings.archive.unnamed == "keep",
            tables=dict(settings.tables),
            limits=settings.limits.of_input(),
            metadata=settings.limits.metadata_mib << 20,
        )

    @classmethod
    def guesses(cls, place: Place, schemas: Sequence[str] = ()) -> Iterator[Guess]:
        """Recognizes a folder for each vault."""
        from manifest_platform.sources.veeva.recognition import guesses

        yield from guesses(place)

    @classmethod
    def hints(cls, place: Place) -> Iterator[str]:
        """Reports packed archives, and windows that are not below a vault's folder."""
        from manifest_platform.sources.veeva.recognition import hints

        yield from hints(place)

    def sample(self, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> Sample:
        """Shreds the beginning of each extract."""
        from manifest_platform.sources.veeva.preview import sample

        return sample(self._options(), directories, bounds)

    @property
    def drains(self) -> tuple[Drain, ...]:
        """A single drain, or a separate drain for the logs."""
        if self.settings.load.logs == "with":
            return super().drains
        return Drain("drain", tuple(feed for feed in self.feeds if feed != LOG)), Drain("log_drain", (LOG,))

    @property
    def checks(self) -> tuple[SourceCheck, ...]:
        """The check that the windows of a feed follow each other."""
        return tuple(
            SourceCheck(
                "no_window_missing",
                feed,
                Stage.LANDED,
                "Every window begins where the one before it stopped, among the newest that no snapshot contains.",
                partial(missing_windows, feed=feed),
            )
            for feed in self.feeds
            if feed not in self.on_demand
        )

    @property
    def captures(self) -> CapturePlan | None:
        """The feeds and schedules of captures; None without a URL, and if another deployment captures the vault.

        Logs are captured often, because the vault keeps them for two days only.
        """
        vault = self.settings.vault
        if vault.url is None or not vault.capture:
            return None
        quarters = ",".join(str(quarter + vault.minutes_after) for quarter in (0, 15, 30, 45))
        schedules = [
            CaptureSchedule("often", f"{quarters} * * * *", tuple(feed for feed in vault.feeds if feed != FULL)),
            CaptureSchedule(
                "daily", f"{15 + vault.minutes_after} 2 * * *", tuple(feed for feed in vault.feeds if feed == FULL)
            ),
        ]
        secret = vault.login.secret if vault.login else ""
        return CapturePlan(vault.feeds, "the vault", secret, tuple(schedules))

    def attempts(self, feed: str) -> Attempts:
        """Returns the `attempt=…` folders of the feed's windows; none if another deployment captures the vault."""
        if self.captures is None or is_missing(self.root):
            return Attempts({})
        listed = list_window_names(self.root, self.vault_id, _feed(feed))
        items = [item_uri(self.root, self.vault_id, one.name) for one in listed.names]
        found = {item: folders for item in items if (folders := attempt_folders(item))}
        return Attempts(found, listed.now)

    def capture(
        self,
        manifest: Manifest,
        now: datetime,
        feeds: Collection[str] | None = None,
        names: Collection[str] | None = None,
        insist: bool = True,
    ) -> Iterator[CaptureEvent]:
        """Captures what the vault has and the manifest does not know, as `producer.capture` does.

        Raises Refused if the vault has no URL in the configuration, for a feed that is not configured, and for a name that is
        not a window's.
        """
        from manifest_platform.sources.veeva import (
            producer,
        )  # imported here: it loads an HTTP client, which no other command needs

        configured = self.settings.vault.feeds
        if strangers := sorted(set(feeds or ()) - set(configured)):
            raise Refused(
                f"feed {strangers[0]} of dataset {self.dataset} is not captured; configured are {', '.join(configured)}"
            )
        for name in names or ():
            window = parse_window_name(name)
            if window and window.feed not in (feeds or configured):
                captured = ", ".join(feeds or configured)
                raise Refused(f"{name} is of feed {window.feed}, which is not captured; captured are {captured}")
        wanted = [feed for feed in configured if feeds is None or feed in feeds]
        with closing(self.vault()) as vault:
            try:
                keep = self.settings.archive.unnamed == "keep"
                root, vault_id = self.root, self.vault_id
                yield from producer.capture(
                    vault, manifest, root, vault_id, wanted, now, names, insist=insist, keep_unnamed=keep
                )
            except ValueError as error:
                raise Refused(str(error)) from error

    def offered_instead(self, manifest: Manifest, landed: Landed) -> str | None:
        """Returns the checksum of the other files that the vault offers for a window, as the last capture found them."""
        from manifest_platform.sources.veeva import producer

        return producer.offered(manifest, landed.key) if self.captures else None

    def capture_again(self, manifest: Manifest, landed: Landed) -> Landed:
        """Captures the window as the vault offers it now."""
        from manifest_platform.sources.veeva import producer

        keep = self.settings.archive.unnamed == "keep"
        with closing(self.vault()) as vault:
            return producer.capture_again(vault, manifest, self.root, self.vault_id, landed.key, keep)

    def vault(self) -> Vault:
        """Returns the client of the configured vault, with secrets from the environment. It logs in at first use.

        Raises Refused if the vault is not configured, or a secret is missing.
        """
        from manifest_platform.sources.veeva.client import Patience, Vault, VaultLogin

        vault = self.settings.vault
        if not vault.capture:
            raise Refused(
                f"dataset {self.dataset} is not captured here: another deployment captures it, and its windows land in"
                f" {self.root}"
            )
        if vault.url is None or vault.login is None:
            raise Refused(
                f"dataset {self.dataset} captures nothing: its vault has no url in the configuration."
                " Land the missing windows, so that discover finds them; or set vault.url to capture them"
            )
        credentials = _credentials(vault.login)
        login = VaultLogin(vault.url, vault.id, credentials, vault.api, vault.client_id)
        return Vault(login, Patience(read=vault.read_seconds), limits=vault.limits)


def _feed(name: str) -> Feed:
    """Returns the name of a feed as a literal type."""
    return next(feed for feed in FEEDS if feed == name)


def _credentials(login: Login) -> Credentials:
    """Returns the credentials, with secrets from the environment. Raises Refused for a missing secret, else UnusableSecret."""
    from manifest_platform.sources.veeva.login import ClientCredentials, OAuth, Password, SessionId

    match login:
        case PasswordLogin():
            return Password(login.user, _secret(login.secret, "password"))
        case SessionLogin():
            return SessionId(_secret(login.secret, "session id", in_header=True))
        case TokenLogin():
            return OAuth(login.profile, login.client, _secret(login.secret, "token", in_header=True), login.url)
        case OAuthLogin():
            secret = _secret(login.secret, "client secret")
            client = ClientCredentials(login.client, secret, login.issuer, login.token_url, login.scope)
            return OAuth(login.profile, login.client, client, login.url)


def _secret(variable: str, what: str, in_header: bool = False) -> str:
    secret = masking.secret(variable, in_header)
    if not secret:
        raise Refused(f"the Vault's {what} is missing: set it in the environment variable {variable}")
    return secret
