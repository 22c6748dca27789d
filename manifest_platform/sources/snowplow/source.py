"""The source of Snowplow enriched events: runs `run=…`, or windows of time, below one root.

It has one feed, and its tables only append. This module parses the names of runs and declares the source. Listing, completeness
and windows of time are shared by all sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform import __version__, storage
from manifest_platform.manifest import Application, Claim, ItemKey, Landed, Manifest, Refused, Step
from manifest_platform.sources.directories import (
    SUCCESS,
    DirectoryName,
    Found,
    FoundNames,
    LandedDirectory,
    Layout,
    Marker,
    Settle,
    find,
    list_names,
    read,
)
from manifest_platform.sources.errors import LandingMisconfigured
from manifest_platform.sources.layouts import Template, Window, parse_window_name
from manifest_platform.sources.preview import Bounds, Guess, Place, Sample
from manifest_platform.sources.replays import Replays
from manifest_platform.sources.snowplow.settings import EVENTS_TABLE, FEED, RUNS, SnowplowSettings, time_column
from manifest_platform.sources.source import LOAD, SHRED, Known, Named, Source, Words, rewritten
from manifest_platform.sources.windows import FoundWindows, Registered, Stretch, divide, list_windows, read_window
from manifest_platform.warehouse.load import About, Origin
from manifest_platform.warehouse.repeats import Identity, Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure
    from manifest_platform.sources.cutover import FormerLoader
    from manifest_platform.sources.schemas import Schemas
    from manifest_platform.sources.snowplow.schemas.registry import Place as Registry
    from manifest_platform.warehouse.applied_view import AppliedView


# Seconds are two digits and then the end or a suffix; without seconds, the suffix follows the minutes.
_RUN = re.compile(
    r"run=([0-9]{4})-([0-9]{2})-([0-9]{2})-([0-9]{2})-([0-9]{2})"
    r"-(?:(?P<seconds>[0-9]{2})(?:-(?P<suffix>[A-Za-z0-9-]+))?|(?P<after_minutes>(?![0-9]{2}(?:-|$))[A-Za-z0-9-]+))"
)


def parse_run_name(name: str) -> DirectoryName | None:
    """Parses the name of a run; None if the name is not a run's.

    Batch jobs write `run=YYYY-MM-DD-HH-MM-SS`. Streaming jobs write the same with `-<suffix>` after the seconds or, without
    seconds, after the minutes; a suffix is letters, digits and dashes. A name with a date that does not exist is not a run's.
    """
    found = _RUN.fullmatch(name)
    if found is None:
        return None
    try:
        time = datetime(*map(int, found.group(1, 2, 3, 4, 5)), int(found["seconds"] or 0), tzinfo=UTC)
    except ValueError:
        return None
    if found["after_minutes"] is None:
        return DirectoryName(name, name.removeprefix("run="), time)
    # "+" distinguishes it from the same suffix after "-00"; it sorts before every character of a suffix.
    return DirectoryName(name, f"{name[len('run=') : found.start('after_minutes')]}00-{found['after_minutes']}+", time)


_LAYOUT = Layout(parse_run_name)
_REMEMBERED = 10_000
_WINDOWS_LANDED = (
    "Windows of time with Snowplow enriched events, registered in the manifest once they are over and have settled."
)


def list_runs(
    root: str | Path, after: datetime | None = None, completeness: Marker | Settle = SUCCESS, most: int | None = None
) -> Found:
    """Lists the runs at or after a time, with their files, in one pass. Without a time, lists every run.

    The listing begins at the name that a run of that minute would have; names that sort before it are not read. `completeness`
    names the marker file. `most`: the number of files after which the listing ends; None means no limit.

    Names in the root that begin with `_` or `.` are ignored; other names that are not runs' are reported and left alone.
    Folders that exist only as S3's empty folder keys are ignored. An S3 prefix without keys is an empty root.

    Raises LandingMisconfigured if the root does not exist or access is refused, LandingUnavailable if a later try may succeed,
    and ValueError for a time without a zone.
    """
    if after is not None and after.tzinfo is None:
        raise ValueError(f"after={after!r} has no time zone; give a time in UTC")
    found = find(storage.as_uri(root), _LAYOUT, _first_name(after), completeness, most=most)
    return replace(found, directories=[run for run in found.directories if after is None or run.time >= after])


def _first_name(after: datetime | None) -> str:
    """Returns the name that a run of this minute would have; no run of it or later sorts before."""
    return "" if after is None else f"run={re.sub('[T:]', '-', after.astimezone(UTC).isoformat()[:16])}"


def read_run(uri: str, completeness: Marker | Settle = SUCCESS) -> LandedDirectory:
    """Reads the current content of a run, by its URI. Raises LandingDamaged if it is gone, otherwise as `list_runs`."""
    parsed = parse_run_name(uri.rpartition("/")[2])
    if parsed is None:
        raise ValueError(f"{uri} does not end in the name of a run")
    return read(uri, parsed, _LAYOUT, completeness)


def _stretch(landed: Landed) -> Stretch:
    """Returns the interval of an item: the files that were written in this interval belong to the item."""
    after, upto = (datetime.fromisoformat(text) if text else None for text in (landed.after, landed.upto))
    return Stretch(after, upto)


def _registered(manifest: Manifest, feed: str, sort: str) -> list[Registered]:
    """Returns the registered items of a window, late items included, by the sort key of the window."""
    found: list[Registered] = []
    for item in manifest.items(feed, after=f"{sort[:-1]}{chr(ord(sort[-1]) - 1)}"):
        if not item.key.sort.startswith(sort):
            break
        window = parse_window_name(item.key.name)
        if window and item.landed:
            found.append(Registered(window.late, _stretch(item.landed), item.landed.checksum))
    return found


IDENTITY = Identity(EVENTS_TABLE, "event_id", "event_fingerprint", "collector_tstamp", "etl_tstamp", "root_id")


class SnowplowEnriched(Source):
    """The runs of an application, or its windows of time, below one landing root.

    Items that were registered under an earlier layout keep their names. So names of runs and of windows are both known,
    whatever the current layout is.
    """

    model = SnowplowSettings
    settings: SnowplowSettings

    words = Words(
        kind="snowplow",
        directories="enriched_runs",
        form="a run name (run=YYYY-MM-DD-HH-MM-SS)",
        rows="events",
        landed="Run directories of Snowplow enriched events, registered in the manifest as soon as they are complete.",
        shredded="Typed Parquet of every run: the events, a table for each type of entity, and the bad rows.",
        loaded={FEED: "The runs in the warehouse: strictly in order, exactly once."},
    )
    feeds = (FEED,)
    joins_names = True
    splits_types = frozenset({FEED})  # tables of events only grow, so that no later load could resolve another type
    main = FEED
    appends = True
    origins = (Origin("root_id", EVENTS_TABLE, "event_id"), Origin("file"))
    main_table = EVENTS_TABLE

    def __init__(self, dataset: str, settings: SnowplowSettings):
        super().__init__(dataset, settings)
        layout = settings.landing.layout
        self.template = None if layout == RUNS else Template(layout)
        self._divided: dict[tuple[str, str], list[LandedDirectory]] = {}  # by window and checksum: answers of the manifest
        if self.template:
            example = Window(datetime(2024, 5, 14, 12, tzinfo=UTC), self.template.unit).name.name
            form = f"in a window of the layout {layout} (named as {example})"
            self.words = replace(self.words, form=form, landed=_WINDOWS_LANDED)

    @property
    def schemas(self) -> Schemas:
        """The schemas of entities. Raises RegistryRefused if the key of a registry is not set."""
        from manifest_platform.sources.snowplow.events.validation import left_out
        from manifest_platform.sources.snowplow.schemas.catalog import IgluSchemas
        from manifest_platform.sources.snowplow.schemas.resolver import Resolver

        settings = self.settings.shred
        resolver = Resolver(self._registries(), settings.registry_limits, settings.tables, settings.rules())
        return IgluSchemas(resolver, left_out) if settings.validate == "full" else IgluSchemas(resolver)

    @property
    def repeats(self) -> Rule | None:
        """The rule for events of earlier runs: the same id and fingerprint. Entities follow the event that they belong to."""
        load = self.settings.load
        return None if load.duplicates == "off" else Rule(IDENTITY, load.days, load.duplicates == "seen")

    @property
    def applied_view(self) -> AppliedView | None:
        """The view with the columns of the loader's table `manifest`."""
        from manifest_platform.sources.snowplow.manifest_view import manifest_view

        name = self.settings.load.manifest_view
        return manifest_view(name) if name else None

    def about(self, listing: Listing) -> About:
        """Returns the schemas of a run, and who has shredded it, as the loader's table `manifest` has them."""
        from manifest_platform.sources.snowplow.manifest_view import about

        return about(listing)

    @property
    def replays(self) -> Replays | None:
        """Every line is an event by itself. Raises RegistryRefused if the key of a registry is not set.

        Raises Refused for a dataset with private columns: a bad row is not the line that landed. A hashed value would be
        hashed again, and a line without what was dropped is not known again once other columns are dropped.
        """
        from manifest_platform.sources.snowplow.bad.replays import EventReplays
        from manifest_platform.sources.snowplow.schemas.resolver import Resolver

        settings = self.settings.shred
        rules = settings.rules()
        if rules.private:
            raise Refused(
                f"bad rows of dataset {self.dataset} cannot be replayed: they are not the lines that landed, because private"
                " values are dropped or hashed (shred.private). Shred the items again from what landed, then reload them"
            )
        resolver = Resolver(self._registries(), settings.registry_limits, settings.tables, rules)
        complete = self.completeness
        return EventReplays(resolver, rules, complete, lambda uri: self.landed(FEED, read_run(uri, complete)))

    @property
    def former_loader(self) -> FormerLoader:
        """Snowplow's own loader."""
        from manifest_platform.sources.snowplow.cutover import SnowplowLoader

        return SnowplowLoader()

    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        """Returns shred, whose completions are numbered for merging, and load, which is strictly ordered."""
        return (
            Step(Application(SHRED, __version__), max_attempts=attempts, numbered=True),
            Step(
                Application(LOAD, __version__),
                upstream=(SHRED,),
                order="strict",
                late=self.settings.load.late,
                max_attempts=attempts,
            ),
        )

    def named(self, text: str) -> list[Named]:
        """Returns the run or the window of a name, or the window of a folder's path below the root."""
        window = parse_window_name(text) or (self.template.named(text) if self.template else None)
        parsed = window.name if window else parse_run_name(text)
        return [Named(FEED, parsed.sort)] if parsed else []

    def placed(self, uri: str) -> Named | None:
        """Returns the run or window that a URI ends in, or the window of a folder below the root."""
        return next(iter(self.named(uri.rsplit("/", 1)[-1]) or self.named(uri.removeprefix(f"{self.root}/"))), None)

    def time(self, name: str) -> datetime | None:
        """Returns the time in the run's name, or the start of the window."""
        if window := parse_window_name(name):
            return window.start
        parsed = parse_run_name(name)
        return parsed.time if parsed else None

    @classmethod
    def began(cls, name: str) -> datetime | None:
        """Returns the time in the run's name, or the start of the window."""
        parsed = parse_window_name(name)
        run = parse_run_name(name)
        return parsed.start if parsed else run.time if run else None

    def covers_upto(self, name: str) -> datetime | None:
        """Returns the time in the run's name, or the stop of the window."""
        window = parse_window_name(name)
        return window.stop if window else self.time(name)

    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """Returns the runs or windows of the landing root with their files, even known ones: they may have been rewritten."""
        if self.template:
            found = list_windows(self.root, self.template, after).found()
            return replace(found, directories=[one for one in found.directories if after is None or one.time >= after])
        return list_runs(self.root, after, self.completeness)

    @property
    def layout(self) -> str:
        """The landing root and the form of names in it."""
        return f"{self.root} {self.settings.landing.layout}"

    def look_at(self, feed: str, after: datetime | None, most: int) -> Found:
        """Returns a part of the runs or windows with their files. A part of windows has at least one window."""
        if self.template is None:
            return list_runs(self.root, after, self.completeness, most)
        part = list_windows(self.root, self.template, after, "", most)
        last = parse_window_name(part.upto.rstrip("/")) if part.upto else None
        windows = [one for one in part.directories if after is None or one.time >= after]
        return replace(part.found(), directories=windows, upto=last.stop if last else None)

    @property
    def names_list_files(self) -> bool:
        """True for windows, whose files are in folders of several levels, or told apart by their names only."""
        return self.template is not None

    def names(self, feed: str, beyond: str, most: int, after: datetime | None = None) -> FoundNames:
        """Returns the names of a part of the runs or windows of the landing root."""
        if self.template:
            part = list_windows(self.root, self.template, after, beyond, most)
            names = [DirectoryName(one.name, one.sort, one.time) for one in part.directories]
            found = FoundNames(names, part.unparseable, part.requests, part.upto, part.now, part.unreadable)
        else:
            found = list_names(self.root, _LAYOUT, _first_name(after), beyond=beyond, most=most)
        return replace(found, names=[one for one in found.names if after is None or one.time >= after])

    def part(self, feed: str, beyond: str, most: int) -> FoundWindows | None:
        """Lists a part of the windows with their files; None for runs, whose names are listed without files."""
        return list_windows(self.root, self.template, None, beyond, most) if self.template else None

    def read(self, feed: str, name: DirectoryName) -> LandedDirectory:
        """Reads a run or a window of the landing root."""
        window = parse_window_name(name.name)
        if window is None:
            return read(f"{self.root}/{name.name}", name, _LAYOUT, self.completeness)
        return read_window(self.root, self._template_of(window), window)

    def is_over(self, seen: LandedDirectory, now: datetime) -> bool:
        """True if a window is over, by the storage's clock. A run always is."""
        window = parse_window_name(seen.name)
        return window is None or now >= window.stop

    def divided(
        self, manifest: Manifest, feed: str, seen: Sequence[LandedDirectory], known: Mapping[str, str | None]
    ) -> list[LandedDirectory]:
        """Divides windows that differ from what was registered into items. Asks the manifest once per content of a window."""
        if self.template is None:
            return list(seen)
        found: list[LandedDirectory] = []
        for whole in seen:
            if known.get(whole.uri) in (None, whole.checksum):
                found.append(whole)
                continue
            sight = whole.name, whole.checksum
            if sight not in self._divided:
                window = parse_window_name(whole.name)
                items = _registered(manifest, feed, whole.sort)
                self._divided[sight] = divide(whole, window, items, self.root) if window and items else [whole]
            found += self._divided[sight]
        if len(self._divided) > _REMEMBERED:
            self._divided.clear()
        return found

    def _template_of(self, window: Window) -> Template:
        if self.template is None or self.template.unit != window.unit:
            raise LandingMisconfigured(
                f"{window.name.name} was registered under a layout with windows of a {window.unit}, but landing.layout is now"
                f" {self.settings.landing.layout}: restore the old layout until it is loaded, or skip it"
            )
        return self.template

    def meant(self, name: str) -> str | None:
        """Returns the run name that is almost `name`, if runs land here; else None."""
        from manifest_platform.sources.snowplow.recognition import nearest

        better = nearest(name) if self.template is None else None
        return better if better and parse_run_name(better) else None

    def time_column(self, table: str) -> str:
        """Returns the column of the collector's time: that of the event itself, or of the event that an entity belongs to."""
        return time_column(table)

    def landed(self, feed: str, seen: LandedDirectory) -> Landed:
        """Returns a run or window, ordered by its name.

        A window gets no start and stop here. If it had them, an item whose span overlaps another's would be loaded by comparing
        its rows with all loaded rows.
        """
        landed = Landed(ItemKey(feed, seen.sort, seen.uri), len(seen.files), seen.bytes, seen.checksum)
        window = parse_window_name(seen.name)
        if window is None:
            return landed
        newest = max((file.written for file in seen.files if file.written), default=None)
        return replace(
            landed,
            after=seen.after.isoformat() if seen.after else None,
            upto=newest.isoformat() if newest else None,
        )

    def reread(self, landed: Landed) -> Landed:
        """Reads a run or window again, by one listing."""
        run = self._read(landed)
        return replace(landed, files=len(run.files), bytes=run.bytes, checksum=run.checksum)

    def as_it_is(self, manifest: Manifest, landed: Landed) -> Landed:
        """Returns a run, or a window's item, with its current files. A window's newest item includes all later files."""
        window = parse_window_name(landed.key.name)
        if window is None:
            return self.reread(landed)
        whole = read_window(landed.place.rpartition("/")[0], self._template_of(window), replace(window, late=0))
        items = _registered(manifest, landed.key.feed, whole.sort)
        mine = next(one for one in divide(whole, window, items, self.root) if one.name == landed.key.name)
        return replace(self.landed(landed.key.feed, mine), key=landed.key)

    def _read(self, landed: Landed) -> LandedDirectory:
        """Reads a registered run or window; of a window, only the files that belong to the item."""
        window = parse_window_name(landed.key.name)
        if window is None:
            return read_run(landed.place, self.completeness)
        root = landed.place.rpartition("/")[0]
        whole = read_window(root, self._template_of(window), replace(window, late=0))
        own = _stretch(landed).of(whole, window, root)
        copied = root != self.root or own.checksum != landed.checksum
        if copied and not window.late and not own.files and len(whole.files) == landed.files:
            return Stretch(None, None).of(
                whole, window, root
            )  # all files were copied there, so each was written later than those of the original
        return own

    def directory(self, claim: Claim, output: str) -> Directory:
        """Lists the run's or window's files, and compares them with what was registered."""
        from manifest_platform.shred.batch import Directory

        key, landed = claim.item.key, claim.item.landed
        run = self._read(landed) if landed else read_run(claim.item.place, self.completeness)
        run.check()
        if landed and run.checksum != landed.checksum:
            raise rewritten(landed, len(run.files), run.bytes)
        files = tuple((file.uri, file.size) for file in run.files)
        return Directory(key.id, files, output, claim.processing.record_id, root=run.uri.rpartition("/")[0])

    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Shreds events and entities, typed by their schemas. Raises RegistryRefused if the key of a registry is not set."""
        from manifest_platform.shred.batch import Options
        from manifest_platform.sources.snowplow.events.shredder import shred
        from manifest_platform.sources.snowplow.sealing import sealed

        settings = self.settings.shred
        bad = settings.bad_rows
        options = Options(
            settings.split_mib << 20,
            bad.max_share,
            bad.max_count,
            settings.limits.of_input(),
            self.settings.date_files,
            self.settings.pack,
        )
        registries, limits, rules = self._registries(), settings.registry_limits, settings.rules()
        started = datetime.now(UTC)
        results = shred(session, directories, registries, options, limits, settings.tables, rules)
        return sealed(directories, results, started, rules.rows)

    @classmethod
    def guesses(cls, place: Place, schemas: Sequence[str] = ()) -> Iterator[Guess]:
        """Recognizes directories that are named as runs, or files of events that are placed by time."""
        from manifest_platform.sources.snowplow.recognition import guesses, is_sealed

        if not is_sealed(place):
            yield from guesses(place, schemas, parse_run_name)

    @classmethod
    def hints(cls, place: Place) -> Iterator[str]:
        """Reports names that are almost those of runs, and files of events outside of runs."""
        from manifest_platform.sources.snowplow.recognition import hints

        yield from hints(place, parse_run_name)

    def sample(self, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> Sample:
        """Shreds the beginning of each run, its entities typed by the schemas that can be read."""
        from manifest_platform.sources.snowplow.preview import sample

        return sample(self.settings, self.root, directories, bounds)

    def _registries(self) -> list[Registry]:
        """Returns the registries, with their keys from the environment. Raises RegistryRefused, UnusableSecret."""
        from manifest_platform.sources.snowplow.registries import places

        return places(self.settings.shred)
