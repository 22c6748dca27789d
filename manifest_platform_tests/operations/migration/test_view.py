"""Feeds of ours in the layout of the Snowflake Loader's manifest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from manifest_platform import __version__
from manifest_platform.manifest import (
    OUTPUT,
    Application,
    Failure,
    FailureKind,
    ItemKey,
    Landed,
    Manifest,
    Payload,
    State,
    Store,
)
from manifest_platform.operations.migration import Run, view_as_loader
from manifest_platform.operations.migration.view import as_row
from manifest_platform_tests.manifest.given import FEED, LOAD, SHRED
from manifest_platform_tests.operations.migration.given import (
    LOADER,
    SHREDDER,
    START,
    Row,
    added,
    import_snowflake,
    import_snowplow,
    loaded,
    manifest,
    row,
    run,
    shred_failed,
    shredded,
    snowflake_row,
)
from manifest_platform_tests.operations.migration.test_importing import MINUTE, key, load_next


def view(of: Manifest) -> list[Run]:
    return list(view_as_loader(of, FEED, SHRED, LOAD))


def plain(source: Row) -> dict[str, Any]:
    """A row of the source's table without its type markers."""
    readers = {"N": int, "S": str, "BOOL": bool, "L": lambda entries: [entry["S"] for entry in entries]}
    return {name: readers[kind](value) for name, attribute in source.items() for kind, value in attribute.items()}


def test_the_view_of_an_imported_loader_table_equals_the_table(store: Store) -> None:
    sources = [
        snowflake_row(1, "LOADED"),
        snowflake_row(2, "PROCESSED", but={"ShredTypes": {"L": []}}),
        snowflake_row(3, "PROCESSED", to_skip=True),
        snowflake_row(4, "NEW", to_skip=True),
        snowflake_row(5, "NEW"),
    ]
    here = manifest(store)
    import_snowflake(here, *sources)
    seen = view(here)
    assert [one.state for one in seen] == ["NEW", "NEW", "PROCESSED", "PROCESSED", "LOADED"]
    assert [one.attributes() for one in reversed(seen)] == [plain(source) for source in sources]


def test_the_view_shows_items_imported_from_the_processing_manifest(store: Store) -> None:
    here = manifest(store)
    import_snowplow(here, loaded(1), shredded(2), added(3), [*added(4), row(4, "1", "SKIPPED", "0", LOADER)])
    skipped, new, processed, done = view(here)
    assert (skipped.state, skipped.to_skip, new.state, new.to_skip) == ("NEW", True, "NEW", False)
    assert new.run_id == f"enriched/archive/{run(3)}/"
    assert (processed.state, processed.shred_types) == ("PROCESSED", ("iglu:com.acme/click/jsonschema/1-0-0",))
    assert processed.processed_at == START + timedelta(minutes=2, seconds=ord("2"))
    assert (done.state, done.to_skip) == ("LOADED", False)
    assert done.loaded_by == f"{LOADER.name}:{LOADER.version}:0.1.0"
    assert done.added_by == f"{SHREDDER.name}:{SHREDDER.version}:0.1.0"


def test_failures_are_shown_as_failed_until_they_are_resolved(store: Store) -> None:
    here = manifest(store)
    import_snowplow(here, shred_failed(1), shredded(2))
    here.discover(FEED, [Landed(key(3), 1, 1, "checksum")])
    with here.acquire(FEED, SHRED.key, "worker", MINUTE) as lease:
        [claim] = here.claim(lease, [here.item(key(3))])
        here.fail(claim, Failure(FailureKind.PERMANENT, "no such schema"))
    ours, processed, imported = view(here)
    assert [(one.state, one.failed_by) for one in (ours, processed, imported)] == [
        ("FAILED", "shred"),
        ("PROCESSED", None),
        ("FAILED", SHREDDER.name),
    ]
    assert "FailedBy" not in str(imported.attributes())
    for number in (1, 3):
        here.resolve(key(number), "mended")
    assert [one.state for one in view(here)] == ["NEW", "PROCESSED", "NEW"]


def test_a_failure_of_a_users_own_step_does_not_make_a_run_failed(store: Store) -> None:
    here = manifest(store)
    here.discover(FEED, [Landed(key(1), 1, 1, "checksum")])
    with here.acquire(FEED, SHRED.key, "worker", MINUTE) as lease:
        [claim] = here.claim(lease, [here.item(key(1))])
        here.complete(claim, Payload(OUTPUT, {"types": {"events": {"b": 1, "a": 2}}, "tables": ["events"]}))
    failed = replace(claim.processing, application=Application("dashboard"), state=State.FAILED)
    item = here.item(key(1))
    row = as_row(replace(item, records=(*item.records, failed)), SHRED, LOAD)
    assert (row.state, row.shred_types) == ("PROCESSED", ("a", "b"))


def test_the_view_shows_a_run_as_new_then_processed_then_loaded(store: Store) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    here = Manifest(store, "shop", manifest(store).feeds, "manifest-platform 1", clock=lambda: now)
    here.discover(FEED, [Landed(key(1), 1, 1, "checksum")])
    seconds = int(now.timestamp())
    new = {"RunId": f"enriched/archive/{run(1)}/", "AddedAt": seconds, "AddedBy": f"discover {__version__}", "ToSkip": False}
    assert [(one.state, one.attributes()) for one in view(here)] == [("NEW", new)]
    with here.acquire(FEED, SHRED.key, "worker", MINUTE) as lease:
        [claim] = here.claim(lease, [here.item(key(1))])
        output = {"listing": f"s3://shop/shredded/{run(1)}/1/listing.json", "tables": ["clicks", "events"]}
        here.complete(claim, Payload(OUTPUT, output))
    processed = {
        **new,
        "ProcessedAt": seconds,
        "ShredTypes": ["clicks", "events"],
        "SavedTo": f"s3://shop/shredded/{run(1)}/1/",
    }
    assert [(one.state, one.attributes()) for one in view(here)] == [("PROCESSED", processed)]
    load_next(here)
    done = {**processed, "LoadedAt": seconds, "LoadedBy": "manifest-platform 1"}
    assert [(one.state, one.attributes()) for one in view(here)] == [("LOADED", done)]


def test_an_output_of_a_users_asset_does_not_make_a_run_processed(store: Store) -> None:
    here = manifest(store)
    here.discover(FEED, [Landed(key(1), 1, 1, "checksum")])
    here.commit_output(key(1), Application("dashboard"), Payload(OUTPUT, {}))
    assert [one.state for one in view(here)] == ["NEW"]


def test_the_view_reads_only_the_rows_that_are_taken(store: Store) -> None:
    here = manifest(store)
    keys = [ItemKey(FEED, f"2019-03-{number:04d}", f"s3://shop/run={number}") for number in range(1000)]
    here.discover(FEED, [Landed(one, 1, 1, "checksum") for one in keys])
    before = store.requests
    seen = list(islice(view_as_loader(here, FEED, SHRED, LOAD), 3))
    assert [one.run_id for one in seen] == ["run=999/", "run=998/", "run=997/"]
    assert store.requests - before == 1
    assert [one.run_id for one in view(here)] == [f"run={number}/" for number in reversed(range(1000))]
