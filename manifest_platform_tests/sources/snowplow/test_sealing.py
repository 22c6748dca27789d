"""The seal beside a shredded run, compared with the published schema (here without its texts)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.shred.batch import Cause, Directory, ShredFailure
from manifest_platform.sources.snowplow.recognition import SEAL
from manifest_platform.sources.snowplow.seal import Seal
from manifest_platform.sources.snowplow.sealing import sealed, types_of
from manifest_platform.sources.snowplow.settings import SnowplowSettings
from manifest_platform.sources.snowplow.source import SnowplowEnriched
from manifest_platform_tests.sources.snowplow.given import CLICK, PAGE, acme_registry, contexts, enriched, entity, unstruct

SCHEMA = Path(__file__).parent / "transformed" / "shredding_complete.json"
VALIDATOR = jsonschema_rs.Draft4Validator(orjson.loads(SCHEMA.read_bytes()))
CLICKED = entity(CLICK, {"targetUrl": "/a"})
STARTED = datetime(2024, 3, 5, 11, tzinfo=UTC)


def read(output: str) -> Seal:
    document = orjson.loads(storage.read_bytes(f"{output}/{SEAL}"))
    VALIDATOR.validate(document["data"])
    return Seal.parse(document)


def shred(spark: Any, home: Path, rows: str) -> tuple[Directory, Listing]:
    """Shreds a run in which a type is that of an event and of a context, and another that of a context only."""
    lines = [
        enriched(unstruct_event=unstruct(CLICKED), contexts=contexts(entity(PAGE, {"id": "1"}))),
        enriched(event_id="00000000-0000-4000-8000-000000000002", contexts=contexts(CLICKED)),
        enriched(
            event_id="00000000-0000-4000-8000-000000000003",
            collector_tstamp="2024-03-07 00:00:00",
            unstruct_event=unstruct(CLICKED),
        ),
        b"bad",
    ]
    run = home / "landing" / "run=2024-03-05-10-00-00"
    run.mkdir(parents=True)
    (run / "part").write_bytes(b"\n".join(lines))
    shredding = {"output": str(home / "out"), "schemas": [str(acme_registry(home))], "rows": rows}
    told = {"source": "snowplow_enriched", "landing": {"root": str(home / "landing")}, "shred": shredding}
    source = SnowplowEnriched("shop", SnowplowSettings.model_validate(told))
    file = storage.as_uri(run / "part"), (run / "part").stat().st_size
    directory = Directory(storage.as_uri(run), (file,), storage.as_uri(home / "out" / "attempt"), "attempt")
    [listing] = source.shred(spark, [directory])
    assert isinstance(listing, Listing), listing
    return directory, listing


@pytest.mark.parametrize("rows", ["tables", "events", "lake"])
def test_a_shredded_run_is_sealed_with_what_it_contains(spark: Any, tmp_path: Path, rows: str):
    directory, listing = shred(spark, tmp_path, rows)
    found = read(directory.output)
    assert found.base == f"{directory.output}/"
    assert (found.transformation, found.file_format) == (("SHREDDED", None) if rows == "tables" else ("WIDEROW", "PARQUET"))
    assert {one.format for one in found.types} == {"TSV" if rows == "tables" else None}
    assert [(str(one.key), one.entity) for one in found.types] == [
        (PAGE, "CONTEXT"),
        (CLICK, "SELF_DESCRIBING_EVENT"),
        (CLICK, "CONTEXT"),
    ]
    assert (found.good, found.bad) == (3, 1)
    assert (found.first, found.last) == ("2024-03-05T10:11:12.345000Z", "2024-03-07T00:00:00.000000Z")
    assert found.started <= found.completed
    assert Listing.read(f"{directory.output}/listing.json") == listing
    assert types_of(Listing.read(f"{directory.output}/listing.json")) == [(one.key, one.entity) for one in found.types]


def test_a_run_without_events_has_no_times(tmp_path: Path):
    listing = Listing("run", "attempt", 0, 0, 0, (), ())
    directory = Directory("run", (), storage.as_uri(tmp_path), "attempt")
    assert sealed([directory], [listing], STARTED, "tables") == [listing]
    assert (read(directory.output).first, read(directory.output).types) == (None, ())


def test_a_seal_that_cannot_be_written_is_an_outage_and_a_failure_gets_none(tmp_path: Path):
    (tmp_path / "full").write_bytes(b"a file, where a folder must be")
    listing = Listing("run", "attempt", 0, 0, 0, (), ())
    failure = ShredFailure("other", "attempt", "too many bad lines")
    outputs = [Directory(name, (), storage.as_uri(tmp_path / name), "attempt") for name in ("full", "other")]
    [refused, same] = sealed(outputs, [listing, failure], STARTED, "tables")
    assert isinstance(refused, ShredFailure)
    assert refused.cause is not Cause.ITEM
    assert f"{outputs[0].output}/{SEAL} cannot be written" in refused.message
    assert (same, (tmp_path / "other").exists()) == (failure, False)
