"""A Veeva vault's Direct Data as a source: windows of changes, days of logs, snapshots.

Changes are loaded in strict order without a gap, after a snapshot; logs are appended, in an order of their own; a snapshot is
loaded when somebody begins a full load with it.
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
from manifest_platform.warehouse.load import Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure
    from manifest_platform.sources.veeva.client import Vault
    from manifest_platform.sources.veeva.login import Credentials
    from manifest_platform.sources.veeva.shredder import VeevaOptions

KEPT = timedelta(days=10)
"""How long a vault keeps its windows of changes."""


class VeevaDirectData(Source):
    """The windows of one vault, below `vault=<id>/` of one landing root."""

    model = VeevaSettings
    settings: VeevaSettings

    words = Words(
        kind="veeva",
        directories="windows",
        form="a window's name (incr/stoptime=YYYYMMDDHHMM, log/date=YYYY-MM-DD or full/date=YYYY-MM-DD, or YYYYMMDD)",
        rows="rows",
        landed="Direct Data windows of a vault, verified, and registered in the manifest once they are whole.",
        shredded="Typed Parquet of every window: one table an extract, the deleted keys beside, and the bad rows.",
        loaded={
            INCR: "The changes in the warehouse: strictly in order, without a gap, exactly once, one transaction a window.",
            LOG: "The vault's logs in the warehouse: appended, each day exactly once.",
            FULL: "The snapshots in the warehouse: one replaces all that it covers, and begins a new epoch.",
        },
    )
    feeds = (FULL, INCR, LOG)
    main = INCR
    on_demand = frozenset({FULL})
    appends = False
    splits_types = frozenset({LOG})
    retention = KEPT

    @property
    def keeps(self) -> tuple[str, ...]:
        """What a snapshot leaves as it is where it lacks it: bad rows, and workflows of which it holds only a part."""
        return (BAD_TABLE, *self.settings.shred.partial_in_full)

    @property
    def limits(self) -> Limits:
        """How much a snapshot may shrink a table; of its tables, the metadata alone are no data."""
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
        """Shred, and load as the feed demands."""
        load, shred = Application(LOAD, __version__), Step(Application(SHRED, __version__), max_attempts=attempts)
        if feed == FULL:
            return shred, Step(load, (SHRED,), order="full", covers=(INCR,), max_attempts=attempts)
        if feed == LOG:
            return shred, Step(load, (SHRED,), order="strict", late=self.settings.load.late, max_attempts=attempts)
        return shred, Step(load, (SHRED,), order="strict", gap="contiguous", needs_full=True, max_attempts=attempts)

    def named(self, text: str) -> list[Named]:
        """The window of a name; a date alone may be a day of logs and a snapshot."""
        forms = [f"{LOG}/{text}", f"{FULL}/{text}"] if text.startswith("date=") else [text]
        return [Named(parsed.feed, parsed.sort) for form in forms if (parsed := parse_window_name(form))]

    def placed(self, uri: str) -> Named | None:
        """The window that a URI ends in."""
        _, _, name = uri.rpartition(f"/vault={self.vault_id}/")
        return next(iter(self.named(name)), None)

    def time(self, name: str) -> datetime | None:
        """When the window stops, or the snapshot was taken."""
        parsed = parse_window_name(name)
        return parsed.time if parsed else parse_minute(name)

    @classmethod
    def began(cls, name: str) -> datetime | None:
        """When a window of changes or a day of logs starts by the vault's schedule; when a snapshot was taken."""
        parsed = parse_window_name(name)
        if parsed is None:
            return None
        return parsed.time if parsed.feed == FULL else parse_minute(parsed.start)

    def logical_time(self, landed: Landed) -> datetime | None:
        """When a window of changes or a day of logs starts; when a snapshot was taken."""
        start = landed.start if landed.key.feed != FULL else None
        return parse_minute(start) if start else self.time(landed.key.name)

    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """The windows that somebody else landed. Of a feed that is captured, those that are known are not looked into.

        They have some twenty files each, and were verified before they were registered.
        """
        if self.settings.vault.url is None or feed not in self.settings.vault.feeds:
            return list_windows(self.root, self.vault_id, after, self.completeness, [_feed(feed)])
        if is_missing(self.root):
            return Found([], [], 0)  # the first capture makes it
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

    def names(self, feed: str, beyond: str, most: int) -> FoundNames:
        """The windows of the feed's folder, a part of them."""
        if is_missing(self.root):
            return FoundNames([], [], 0)
        return list_window_names(self.root, self.vault_id, _feed(feed), beyond=beyond, most=most)

    def read(self, feed: str, name: DirectoryName) -> LandedDirectory | None:
        """A window that somebody else landed; None for one with neither a file nor the marker, as while it is captured."""
        window = read_window(item_uri(self.root, self.vault_id, name.name), self.completeness)
        return window if window.files or window.marker else None

    def landed(self, feed: str, seen: LandedDirectory) -> Landed:
        """A window that somebody else landed: its times are those of its name."""
        window = parse_window_name(seen.name)
        assert window is not None  # a sweep gives no others
        key = ItemKey(feed, window.sort, seen.uri)
        return Landed(key, len(seen.files), seen.bytes, seen.checksum, window.start, window.stop)

    def reread(self, landed: Landed) -> Landed:
        """A window, by one listing. Shredding compares the bytes of what was captured: here its number and size are enough."""
        window = read_window(landed.place, self.completeness)
        captured = read_files(landed.place) if landed.content else None
        size = sum(file.size for file in window.files)
        same = captured is not None and (len(window.files), size) == (landed.files, landed.bytes)
        return replace(landed, files=len(window.files), bytes=size, checksum=landed.checksum if same else window.checksum)

    def directory(self, claim: Claim, output: str) -> Directory:
        """The window's files; what was captured is held against the checksums that were taken then."""
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
        """Extracts, typed by the window's own metadata."""
        from manifest_platform.sources.veeva.shredder import Window, shred

        return shred(session, [one for one in directories if isinstance(one, Window)], self._options())

    def _options(self) -> VeevaOptions:
        """How windows are shredded."""
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
        """A folder a vault."""
        from manifest_platform.sources.veeva.recognition import guesses

        yield from guesses(place)

    @classmethod
    def hints(cls, place: Place) -> Iterator[str]:
        """Archives that are not unpacked, windows below no vault's folder."""
        from manifest_platform.sources.veeva.recognition import hints

        yield from hints(place)

    def sample(self, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> Sample:
        """The beginning of each extract."""
        from manifest_platform.sources.veeva.preview import sample

        return sample(self._options(), directories, bounds)

    @property
    def drains(self) -> tuple[Drain, ...]:
        """One drain, or one for the logs beside."""
        if self.settings.load.logs == "with":
            return super().drains
        return Drain("drain", tuple(feed for feed in self.feeds if feed != LOG)), Drain("log_drain", (LOG,))

    @property
    def checks(self) -> tuple[SourceCheck, ...]:
        """That the windows of a feed follow each other."""
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
        """What is captured of the vault; None without its URL, and where another deployment captures it.

        Logs are asked for often: the vault keeps them for two days.
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
        """The `attempt=…` folders of the feed's windows; none of a vault that is not captured here: they are not ours."""
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

        Raises Refused where the vault has no URL in the configuration, for a feed that is not configured and a name that is no
        window's.
        """
        from manifest_platform.sources.veeva import producer  # loads an HTTP client, which no other command needs

        configured = self.settings.vault.feeds
        if strangers := sorted(set(feeds or ()) - set(configured)):
            raise Refused(
                f"feed {strangers[0]} of dataset {self.dataset} is not captured; configured are {', '.join(configured)}"
            )
        for name in names or ():
            window = parse_window_name(name)
            if window and window.feed not in (feeds or configured):
                captured = ", ".join(feeds or configured)
                raise Refused(f"{name} is of feed {window.feed}, which is not to be captured: {captured} are")
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
        """The checksum of the files that the vault offers for a window, as the last capture found them."""
        from manifest_platform.sources.veeva import producer

        return producer.offered(manifest, landed.key) if self.captures else None

    def capture_again(self, manifest: Manifest, landed: Landed) -> Landed:
        """The window as the vault offers it now."""
        from manifest_platform.sources.veeva import producer

        keep = self.settings.archive.unnamed == "keep"
        with closing(self.vault()) as vault:
            return producer.capture_again(vault, manifest, self.root, self.vault_id, landed.key, keep)

    def vault(self) -> Vault:
        """The Vault that is captured, by the configuration and the secrets of the environment; logs in at first use.

        Raises Refused where it is not configured, or a secret is missing.
        """
        from manifest_platform.sources.veeva.client import Patience, Vault, VaultLogin

        vault = self.settings.vault
        if not vault.capture:
            raise Refused(
                f"dataset {self.dataset} is not captured here: another deployment does it, and its windows land in {self.root}"
            )
        if vault.url is None or vault.login is None:
            raise Refused(
                f"nothing is captured of dataset {self.dataset}: its vault has no url in the configuration."
                " Whoever lands its windows is to land what is needed, and discover finds it; or give vault.url"
            )
        credentials = _credentials(vault.login)
        login = VaultLogin(vault.url, vault.id, credentials, vault.api, vault.client_id)
        return Vault(login, Patience(read=vault.read_seconds), limits=vault.limits)


def _feed(name: str) -> Feed:
    """A feed's name as one of the three."""
    return next(feed for feed in FEEDS if feed == name)


def _credentials(login: Login) -> Credentials:
    """Who logs in, with the secret of the environment. Raises Refused where it is missing, UnusableSecret where it is none."""
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
        raise Refused(f"the Vault's {what} is to be in the environment, as {variable}, and is not")
    return secret
