"""The contract suite of sources for transformed runs, and what a run must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.shred.batch import Options, ShredFailure
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.seal import Seal
from manifest_platform.sources.snowplow.transformed.settings import TransformedSettings
from manifest_platform.sources.snowplow.transformed.shredder import TransformedRun, shred
from manifest_platform.sources.snowplow.transformed.source import SnowplowTransformed
from manifest_platform.sources.source import Source
from manifest_platform.testing.source import SourceContract
from manifest_platform_tests.sources.snowplow.given import CLICK, PAGE, acme_registry
from manifest_platform_tests.sources.snowplow.transformed.given import (
    ATOMIC_FILE,
    CLICK_TSV,
    event,
    folder,
    land,
    land_clicks,
    land_wide,
    row,
    seal,
    wide_seal,
    wide_table,
)

CLICKS = "com_acme_link_click_1"


class TestSnowplowTransformed(SourceContract):
    landings = 0

    @pytest.fixture
    def told(self, tmp_path: Path) -> dict[str, Any]:
        (tmp_path / "transformed").mkdir()
        shred = {"output": str(tmp_path / "shredded"), "schemas": [str(acme_registry(tmp_path))]}
        return {"source": "snowplow_transformed", "landing": {"root": str(tmp_path / "transformed")}, "shred": shred}

    def land(self, source: Source, number: int) -> None:
        self.landings += 1
        land_clicks(storage.local_path(source.root), f"run=2024-03-05-{10 + number:02d}-00-00", 3 + self.landings)

    def test_a_run_is_complete_by_its_seal_only(self, told: dict[str, Any]):
        told["landing"]["complete"] = "settle"
        with pytest.raises(ValueError, match="a run cannot be read without its seal"):
            TransformedSettings.model_validate(told)

    def test_the_rules_of_the_dataset_reach_the_resolver(self, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
        told["shred"] |= {"names": "dotted", "fewer_events": "load"}
        source = SnowplowTransformed("ours", TransformedSettings.model_validate(told))
        monkeypatch.setattr(
            "manifest_platform.sources.snowplow.transformed.shredder.shred", lambda *given: [given[2](), given[4]]
        )
        [resolver, fewer] = source.shred(None, [])  # ty: ignore[invalid-argument-type]
        assert fewer is True
        assert isinstance(resolver, Resolver)
        assert "place.x" in [one.name for one in resolver.table(SchemaKey.parse(CLICK)).table.columns]
        assert source.replays is None


def run_of(path: Path, output: Path) -> TransformedRun:
    files = sorted(one for one in path.rglob("*") if one.is_file() and one.name != "shredding_complete.json")
    listed = tuple((storage.as_uri(one), one.stat().st_size) for one in files)
    place = storage.as_uri(path)
    return TransformedRun(place, listed, storage.as_uri(output), "attempt", root=place.rpartition("/")[0], place=place)


def shred_all(spark: Any, registry: Path, output: Path, *runs: Path, **options: Any) -> Sequence[Listing | ShredFailure]:
    schemas = str(registry)
    batch = [run_of(run, output / run.name) for run in runs]
    return shred(spark, batch, lambda: Resolver([schemas]), Options(**options))


def rows(listing: Listing | ShredFailure, table: str) -> list[dict[str, Any]]:
    assert isinstance(listing, Listing), listing
    return pa.concat_tables([parquet.read_table(storage.local_path(uri)) for uri in listing.uris(table)]).to_pylist()


def test_the_transformers_layouts_become_the_same_tables(spark: Any, tmp_path: Path):
    registry = acme_registry(tmp_path)
    landing = tmp_path / "transformed"
    tsv = land_clicks(landing, "run=2024-03-05-10-00-00", 50)
    exact = land(
        landing / "run=2024-03-05-10-10-00-4a5f2c1e-0000-4000-8000-000000000000",
        {ATOMIC_FILE: [event(0)], folder(CLICK, exact=True): [row(CLICK, CLICK_TSV)]},
        seal(1, [CLICK]),
    )
    wide = land_wide(
        landing, "run=2024-03-05-10-20-00", wide_table({f"contexts_{CLICKS}": pa.array([[{"target_url": "a"}]])}, 1)
    )
    results = shred_all(spark, registry, tmp_path / "out", tsv, exact, wide, split_size=4096)
    assert (
        len({one["root_id"] for one in rows(results[0], CLICKS)} & {one["event_id"] for one in rows(results[0], "events")})
        == 50
    )
    assert [one["target_url"] for one in rows(results[1], CLICKS)] == ["http://acme"]
    assert [one[f"contexts_{CLICKS}"] for one in rows(results[2], "events")] == ['[{"target_url":"a"}]']
    sealed = [Seal.read(f"{storage.as_uri(tmp_path)}/out/{run.name}") for run in (tsv, wide)]
    assert [(one.transformation, one.good, len(one.types)) for one in sealed] == [("SHREDDED", 50, 1), ("WIDEROW", 1, 0)]
    found = [(one.lines, one.good, one.bad) for one in results if isinstance(one, Listing)]
    assert found == [(50, 50, 0), (1, 1, 0), (1, 1, 0)]


GOOD = {ATOMIC_FILE: [event(0)], folder(CLICK): [row(CLICK, CLICK_TSV)]}
JSON = "output=good/vendor=com.acme/name=link_click/format=json/model=1/part-0"


@pytest.mark.parametrize(
    ("files", "sealed", "message"),
    [
        (GOOD, None, "shredding_complete.json is gone"),
        (GOOD, seal(1, [CLICK, PAGE]), "has no file of iglu:com.acme/WebPage/jsonschema/1, which its seal names"),
        (GOOD, seal(1), "has files of iglu:com.acme/link_click/jsonschema/1, which its seal does not name"),
        ({folder(CLICK): []}, seal(1, [CLICK]), "has no file of events, but its seal counts 1"),
        (GOOD, seal(2, [CLICK]), "has 1 events, but its seal counts 2: files are missing, or the transformer has counted a"),
        ({ATOMIC_FILE: [event(0), event(1)]}, seal(1), "has 2 events, but its seal counts 1: files were added"),
        ({ATOMIC_FILE: [event(0)], JSON: ["{}"]}, seal(1, [CLICK]), "as json, and only tsv is read"),
        ({"output=good/part-0.json": ["{}"]}, wide_seal(1, "JSON"), "has wide rows as JSON, and only PARQUET is read"),
        (GOOD, wide_seal(1), "does not belong to a run that its seal calls WIDEROW"),
        ({**GOOD, "other/part-0": ["x"]}, seal(1, [CLICK]), "the file other/part-0 is in no folder of Snowplow's transformer"),
    ],
)
def test_a_run_that_is_not_what_its_seal_says_fails(
    spark: Any, tmp_path: Path, files: dict[str, list[str]], sealed: dict[str, Any] | None, message: str
):
    run = land(tmp_path / "transformed" / "run=2024-03-05-10-00-00", files, sealed)
    [result] = shred_all(spark, acme_registry(tmp_path), tmp_path / "out", run)
    assert isinstance(result, ShredFailure)
    assert message in result.message


def test_a_run_with_fewer_events_than_its_seal_counts_is_read_on_request_and_that_is_told(spark: Any, tmp_path: Path):
    """The transformer counts by accumulators of Spark, to which a repeated task adds its events once more."""
    runs = [
        land(tmp_path / "transformed" / f"run=2024-03-05-1{number}-00-00", GOOD, seal(good, [CLICK]))
        for number, good in enumerate((2, 0))
    ]
    batch = [run_of(run, tmp_path / "out" / run.name) for run in runs]
    registry = str(acme_registry(tmp_path))
    fewer, more = shred(spark, batch, lambda: Resolver([registry]), fewer=True)
    assert isinstance(fewer, Listing) and fewer.good == 1
    assert fewer.remarks == ["table events: 1 events, and the seal of the run counts 2"]
    assert isinstance(more, ShredFailure) and "its seal counts 0: files were added" in more.message


def test_rows_that_do_not_fit_are_set_aside_with_their_place(spark: Any, tmp_path: Path):
    lines = [event(0), event(1, page_urlport="x"), event(2)]
    run = land(tmp_path / "transformed" / "run=2024-03-05-10-00-00", {ATOMIC_FILE: lines}, seal(3))
    [listing] = shred_all(spark, acme_registry(tmp_path), tmp_path / "out", run, max_bad_share=0.5)
    [bad] = rows(listing, "bad")
    assert isinstance(listing, Listing)
    assert (listing.lines, listing.good, listing.bad) == (3, 2, 1)
    assert (bad["line"], bad["file"].endswith(ATOMIC_FILE)) == (2, True)
