"""The contract of a source, as tests: everything that the pipeline requires of it.

    class TestOurs(SourceContract):
        @pytest.fixture
        def told(self, tmp_path: Path) -> dict[str, Any]:
            return {"source": "ours", "landing": {"root": ...}, "shred": {"output": ...}}  # as in the configuration

        def land(self, source: Source, number: int) -> None: ...

Define a session fixture `spark` too: an open SparkSession.

The suite tests what every source must do. Test anything beyond that in a module of your own.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml

from manifest_platform import config, plugins, storage
from manifest_platform.listing import BAD_TABLE, Listing, RowGroups
from manifest_platform.manifest import Application, ItemKey, Refused, UnknownItem
from manifest_platform.operations.preview import preview, recognize
from manifest_platform.pipeline import DrainReport, ItemFailed, Loaded, Pipeline, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.shredding import shred
from manifest_platform.shred.batch import ShredFailure
from manifest_platform.sources.preview import Bounds, Place
from manifest_platform.sources.source import LOAD, SHRED, Source
from manifest_platform.warehouse.apply import open_warehouse

DATASET = "ours"


class SourceContract:
    """A source's declarations, the names and the discovery of its directories, and their shredding.

    A subclass defines the fixture `told` and the method `land`. The suite works on the source's main feed. `writes_bad_rows`:
    False for a source that has no table of bad rows.
    """

    writes_bad_rows = True

    @pytest.fixture
    def told(self, tmp_path: Path) -> dict[str, Any]:
        """The dataset's configuration: the source's name, the landing root, and the folder for output."""
        raise NotImplementedError("define a fixture `told`: the configuration of the dataset")

    @abstractmethod
    def land(self, source: Source, number: int) -> None:
        """Lands the directory with a number from 0 to 3: complete, with at least one good row, and later than lower numbers.

        When it is landed again, its content is different.
        """

    def prepare(self, pipeline: Pipeline, spark: Any) -> None:
        """Does what is required before the main feed can be loaded, such as the full load of a snapshot; nothing by default."""

    @pytest.fixture
    def opened(self, told: dict[str, Any], tmp_path: Path) -> Iterator[Pipeline]:
        """The dataset with a SQLite manifest and an embedded warehouse."""
        file = tmp_path / "platform.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "datasets": {DATASET: told},
                    "manifest": {"store": f"sqlite:///{tmp_path}/manifest.db"},
                    "warehouse": {"path": str(tmp_path / "warehouse.duckdb")},
                    "spark": {"conf": str(tmp_path / "no.conf")},
                }
            )
        )
        with Pipeline(config.load(file), DATASET) as pipeline:
            yield pipeline

    @pytest.fixture
    def source(self, opened: Pipeline) -> Source:
        """The open source."""
        return opened.source

    def keys(self, pipeline: Pipeline, *numbers: int) -> list[ItemKey]:
        """Lands and discovers directories, and returns their items."""
        for number in numbers:
            self.land(pipeline.source, number)
        discover(pipeline, everything=True)
        return [item.key for item in pipeline.manifest.items(pipeline.source.main)]

    # Declarations

    def test_the_entry_point_loads_the_configured_source(self, source: Source, told: dict[str, Any]) -> None:
        assert plugins.load(plugins.SOURCES, told["source"]) is type(source)
        assert source.settings.source == told["source"]
        assert sorted(source.model.feeds) == sorted(source.feeds)

    def test_feeds_steps_and_drains_fit_together(self, source: Source) -> None:
        assert source.main in source.feeds
        assert source.on_demand <= set(source.feeds)
        for feed in source.feeds:
            steps = {step.application.name: step for step in source.steps(feed, attempts=3)}
            assert steps.keys() >= {SHRED, LOAD}
            assert steps[LOAD].upstream == (SHRED,)
            assert steps[LOAD].order in ("strict", "full")
            assert {step.max_attempts for step in steps.values()} == {3}
        drained = [feed for one in source.drains for feed in one.feeds]
        assert sorted(drained) == sorted(source.feeds)

    def test_the_words_of_the_source_are_complete(self, source: Source) -> None:
        words = source.words
        assert all((words.kind, words.directories, words.form, words.rows, words.landed, words.shredded))
        assert words.loaded.keys() == set(source.feeds)

    def test_checks_and_captures_belong_to_its_feeds(self, source: Source) -> None:
        names = [(check.feed, check.name) for check in source.checks]
        assert len(set(names)) == len(names)
        assert {feed for feed, _ in names} <= set(source.feeds)
        if source.captures:
            assert set(source.captures.feeds) <= set(source.feeds)
            assert {feed for one in source.captures.schedules for feed in one.feeds} <= set(source.captures.feeds)

    def test_a_source_without_captures_refuses_to_capture(self, opened: Pipeline) -> None:
        if opened.source.captures is None:
            with pytest.raises(Refused, match=DATASET):
                list(opened.source.capture(opened.manifest, datetime.now(UTC)))

    # Names and directories

    def test_a_name_or_a_uri_identifies_the_item(self, opened: Pipeline) -> None:
        source = opened.source
        for key in self.keys(opened, 0, 1):
            assert [(one.feed, one.sort) for one in source.named(key.name)] == [(key.feed, key.sort)]
            placed = source.placed(key.id)
            assert placed is not None
            assert (placed.feed, placed.sort) == (key.feed, key.sort)
            assert opened.key(key.name) == opened.key(key.id) == key
            time = source.time(key.name)
            assert time is not None
            assert time.tzinfo is not None

    def test_names_can_be_selected_as_partitions_on_dagsters_pages(self, opened: Pipeline) -> None:
        """Dagster's pages select ranges as `[a...b]`, lists with commas, and use `*` for any text."""
        for key in self.keys(opened, 0, 1):
            assert re.fullmatch(r"[A-Za-z0-9=_:@%+./-]+", key.name), (
                f"{key.name!r}: only letters, digits and =_:@%+./- are allowed"
            )
            assert "..." not in key.name

    def test_an_invalid_name_is_refused(self, opened: Pipeline) -> None:
        for text in ("", "no such name", "../../etc", "run=", "date=2026-13-45"):
            assert opened.source.named(text) == []
            assert opened.source.time(text) is None
        with pytest.raises((Refused, UnknownItem)):
            opened.key("no such name")

    def test_items_are_ordered_by_time(self, opened: Pipeline) -> None:
        keys = self.keys(opened, 2, 0, 1)
        times = [opened.source.time(key.name) for key in keys]
        assert len(keys) == 3
        assert times == sorted(times, key=str)
        assert len({key.sort for key in keys}) == 3

    def test_a_look_finds_each_complete_directory(self, opened: Pipeline) -> None:
        source = opened.source
        self.keys(opened, 0, 1)
        found = source.look(source.main, None, lambda keys: set())
        assert len(found.directories) == 2
        assert [seen.sort for seen in found.directories] == sorted(seen.sort for seen in found.directories)
        landed = [source.landed(source.main, seen) for seen in found.directories]
        assert all(one.key.feed == source.main and one.files > 0 and one.bytes > 0 and one.checksum for one in landed)
        later = source.look(source.main, found.directories[1].time, lambda keys: set())
        assert [seen.name for seen in later.directories] == [found.directories[1].name]

    def test_a_rewritten_directory_is_reported_and_not_shredded(self, opened: Pipeline, spark: Any) -> None:
        [key] = self.keys(opened, 0)
        self.land(opened.source, 0)
        assert discover(opened, everything=True).changed == (key.name,)
        with opened.lease(key.feed, SHRED) as lease:
            [outcome] = shred(opened, lease, lambda: spark, [opened.manifest.item(key)])
        assert isinstance(outcome, ItemFailed)
        assert "was rewritten after its discovery" in outcome.failure.message

    # Previews without a configuration

    def test_the_source_is_recognized_by_landed_directories(self, source: Source, told: dict[str, Any]) -> None:
        assert list(source.guesses(Place(source.root))) == []
        assert list(source.hints(Place(source.root))) == []
        self.land(source, 0)
        self.land(source, 1)
        before = written_below(storage.local_path(source.root).parent)
        for place in (source.root, storage.as_uri(storage.local_path(source.root).parent)):
            found = recognize(place)
            assert isinstance(found, list)
            assert [(one.plugin, one.uri, one.part) for one in found] == [(told["source"], source.root, None)]
        seen = preview(found[0])
        assert [(feed.name, feed.sequence.count) for feed in seen.feeds if feed.sequence.count] == [(source.main, 2)]
        assert written_below(storage.local_path(source.root).parent) == before

    def test_a_single_directory_or_file_can_be_previewed(self, source: Source) -> None:
        self.land(source, 0)
        self.land(source, 1)
        name = source.names(source.main, "", 10).names[0]
        directory = source.read(source.main, name)
        assert directory is not None
        for part in (directory.uri, directory.files[0].uri):
            found = recognize(part)
            assert isinstance(found, list)
            [feed] = [one for one in preview(found[0]).feeds if one.sequence.count]
            assert (feed.sequence.count, feed.sequence.first) == (1, name)

    def test_names_begin_at_a_time(self, source: Source) -> None:
        self.land(source, 0)
        self.land(source, 1)
        first, second = source.names(source.main, "", 10).names
        assert source.names(source.main, "", 10, first.time).names == [first, second]
        assert source.names(source.main, "", 10, second.time).names == [second]
        assert source.names(source.main, "", 10, second.time + timedelta(days=1)).names == []

    def test_a_sample_accounts_for_every_line_and_names_the_tables(self, source: Source) -> None:
        self.land(source, 0)
        seen = [source.read(source.main, name) for name in source.names(source.main, "", 10).names]
        taken = source.sample([(source.main, one) for one in seen if one], Bounds(seconds=60))
        if taken is not None:
            assert taken.failures == ()
            assert taken.is_all
            assert taken.lines == taken.good + taken.bad + taken.waiting
            assert taken.good + taken.waiting > 0
            assert sum(taken.reasons.values()) == taken.bad
            assert taken.tables
            assert all(one.table.columns for one in taken.tables)

    # Shredding and loading

    def test_shredding_accounts_for_every_line_and_may_be_repeated(self, opened: Pipeline, spark: Any) -> None:
        keys, source = self.keys(opened, 0, 1), opened.source
        with opened.lease(source.main, SHRED) as lease:
            claims = opened.manifest.claim(lease, [opened.manifest.item(key) for key in keys])
            attempts = [source.directory(one, f"{opened.folder(one.item.key)}/attempt") for one in claims]
            listings = listed(source.shred(spark, attempts))
            again = listed(source.shred(spark, [replace(one, output=f"{one.output}-again") for one in attempts]))
        assert [listing.item for listing in listings] == [key.id for key in keys]
        for listing, attempt in zip(listings, attempts, strict=True):
            assert listing.lines == listing.good + listing.bad + listing.duplicates.natural
            assert listing.good > 0
            assert all(written.uri.startswith(f"{attempt.output}/") for written in listing.objects)
            for table in {one.table for one in listing.types}:
                assert sum(one.rows for one in listing.types if one.table == table) == listing.rows(table)
            for table in listing.tables:
                column = source.time_column(table.name)
                assert table.name == BAD_TABLE or column is None or column in {one.name for one in table.columns}
            for written in listing.objects:
                column = source.time_column(written.table)
                for part in written.dates:
                    assert dates(written.uri, part.groups, str(column)) == {part.date}
        assert contents(listings) == contents(again)

    def test_directories_are_loaded_in_order_exactly_once(self, opened: Pipeline, spark: Any) -> None:
        keys, main = self.keys(opened, 0, 1, 2), opened.source.main
        self.prepare(opened, spark)
        *events, report = drain(opened, lambda: spark)
        assert [one.key for one in events if isinstance(one, Loaded) and one.key.feed == main] == keys
        *events, again = drain(opened, lambda: spark)
        assert events == []
        assert isinstance(report, DrainReport)
        assert isinstance(again, DrainReport)
        assert (report.stop, again.stop) == (Stop.IDLE, Stop.IDLE)
        loads = [opened.manifest.item(key).processed_by(Application(LOAD)) for key in keys]
        expected: dict[str, int] = {}
        for one in loads:
            assert one is not None
            for table, rows in one.data["rows"].items():
                expected[table] = expected.get(table, 0) + rows
        opened.close()
        with closing(open_warehouse(opened.config.warehouse, DATASET, read_only=True)) as reader:
            counts = reader.row_counts()
        assert (BAD_TABLE in counts) is self.writes_bad_rows, "people look for the table before the first bad row"
        if opened.source.appends:
            assert counts == expected


def written_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Returns the time of modification, in nanoseconds, and the size of each file and folder below a folder."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in [folder, *folder.rglob("*")]}


def dates(uri: str, groups: RowGroups, column: str) -> set[str]:
    """Returns the dates of the rows of some row groups, by their time column, as readers of a day choose them."""
    system, path = storage.filesystem(uri)
    with pyarrow.parquet.ParquetFile(path, filesystem=system) as file:
        rows = file.read_row_groups(list(range(groups.first, groups.first + groups.count)), columns=[column])
    return {str(value.date()) for value in rows[column].to_pylist()}


def listed(results: Sequence[Listing | ShredFailure]) -> list[Listing]:
    """Returns the listings of directories that were all shredded."""
    failures = [one.message for one in results if isinstance(one, ShredFailure)]
    assert failures == []
    return [one for one in results if isinstance(one, Listing)]


def contents(listings: Sequence[Listing]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Returns the shredded rows, by item, table and date."""
    rows: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for listing in listings:
        for written in listing.objects:
            system, path = storage.filesystem(written.uri)
            found = pyarrow.parquet.read_table(path, filesystem=system).to_pylist()
            rows.setdefault((listing.item, written.table, written.date), []).extend(found)
    return rows
