"""The cost of a query, for any number of items, measured in SQLite's instructions and not in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import event

from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform.manifest.stores.sql import SqlStore

STEP = 50
"""Instructions of SQLite's machine between two counts."""


def counted(store: SqlStore, ask: Callable[[], object]) -> int:
    """The cost of a query, in portions of `STEP` SQLite instructions."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    def watch(connection, _record, _proxy) -> None:
        connection.set_progress_handler(tick, STEP)

    event.listen(store._database.reader, "checkout", watch)
    try:
        ask()
    finally:
        event.remove(store._database.reader, "checkout", watch)
    return count


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    for start in range(0, 3000, 100):
        puts = [Put(f"RECORD#{number:06d}", {}, ABSENT) for number in range(start, start + 100)]
        opened.transact("shop", puts, str(uuid4()))
    yield opened
    opened.close()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("at", [10, 1500, 2990])
def test_the_cost_of_a_query_depends_on_its_result_only(store: SqlStore, reverse: bool, at: int) -> None:
    after = f"RECORD#{at:06d}"
    rows = store.query("shop", "RECORD#", after=after, limit=5, reverse=reverse)
    step = -1 if reverse else 1
    assert [row.sort for row in rows] == [f"RECORD#{at + step * n:06d}" for n in range(1, 6)]
    assert counted(store, lambda: store.query("shop", "RECORD#", after=after, limit=5, reverse=reverse)) <= 5
