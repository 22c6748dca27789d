"""The content of tables according to the log: each item counts once, and none of a superseded epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from manifest_platform.manifest import OUTPUT, Application, Manifest, Payload, Store
from manifest_platform.operations.tables import states_of_tables
from manifest_platform.sources.source import LOAD
from manifest_platform_tests.manifest.vault import FULL, INCR, LOG, acquire, begin, claim, land, vault


def load(of: Manifest, feed: str, rows: Any) -> None:
    with acquire(of, feed) as held:
        of.complete(claim(of, held), Payload(OUTPUT, {"rows": rows}))


def told(of: Manifest) -> dict[str, tuple[int | str | None, ...]]:
    """The rows and items of each table, and its first and last item."""
    source = SimpleNamespace(load_step=lambda feed: of.step(feed, "load"), appends=False)
    pipeline: Any = SimpleNamespace(manifest=of, feeds=(FULL, INCR, LOG), source=source, load=Application(LOAD))
    states = states_of_tables(pipeline, with_warehouse=False)
    ids = {one.table: [key.id if key else None for key in (one.first, one.last)] for one in states.tables}
    return {one.table: (one.rows, one.items, *ids[one.table]) for one in states.tables}


def uri(feed: str, number: int) -> str:
    return f"s3://vault/{feed}/stoptime={number:04d}/"


def test_only_the_newest_snapshot_and_later_windows_count_and_logs_always_count(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2, 3, 4)
    land(of, LOG, 1)
    land(of, FULL, 2, 3)
    load(of, INCR, {"product": 1, "empty": 0})
    load(of, INCR, {"product": 10, "old": 5})
    load(of, LOG, {"audit": 7})
    assert told(of) == {
        "product": (11, 2, uri(INCR, 1), uri(INCR, 2)),
        "old": (5, 1, uri(INCR, 2), uri(INCR, 2)),
        "audit": (7, 1, uri(LOG, 1), uri(LOG, 1)),
    }
    begin(of, 2)
    load(of, FULL, {"product": 100})
    load(of, INCR, {"product": 1000})
    assert told(of) == {
        "product": (1100, 2, uri(FULL, 2), uri(INCR, 3)),
        "audit": (7, 1, uri(LOG, 1), uri(LOG, 1)),
    }
    begin(of, 3)
    load(of, FULL, {"product": 200})
    assert told(of)["product"] == (200, 1, uri(FULL, 3), uri(FULL, 3))
    load(of, INCR, {"product": 4})
    assert told(of)["product"] == (204, 2, uri(FULL, 3), uri(INCR, 4))


def test_loads_without_row_counts_by_table_are_counted_separately(store: Store) -> None:
    of = vault(store)
    land(of, INCR, 1, 2)
    load(of, INCR, 17)
    load(of, INCR, {"product": 1})
    source = SimpleNamespace(load_step=lambda feed: of.step(feed, "load"), appends=False)
    pipeline: Any = SimpleNamespace(manifest=of, feeds=(FULL, INCR, LOG), source=source, load=Application(LOAD))
    states = states_of_tables(pipeline, with_warehouse=False)
    assert (states.items, states.uncounted, [one.rows for one in states.tables]) == (2, 1, [1])
