"""The statements that a load sends to a server, each of which costs a round trip.

Those of the embedded engine are counted in `test_windows`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from manifest_platform.testing.loads import PRODUCT, SITE, gone, names_of, products, rows_of, window
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform_tests.servers.warehouses import Place

MOST = {"postgresql": 7 + 3 * 2 + 1}
"""For a window with two tables with upserts, one of them with deletes too, when its tables are known."""


class Sent:
    """The statements that an engine runs, the outermost only: `write` may use `execute`."""

    def __init__(self, engine: Engine) -> None:
        self.statements: list[str] = []
        self._within = False
        for name in ("execute", "write"):
            setattr(engine, name, partial(self._told, getattr(engine, name)))

    def _told(self, run: Callable[..., Any], sql: str, *given: Any) -> Any:
        outermost, self._within = not self._within, True
        if outermost:
            self.statements.append(sql)
        try:
            return run(sql, *given)
        finally:
            self._within = not outermost


@pytest.mark.engines(*MOST)
@pytest.mark.everyday(*MOST)
def test_a_window_sends_a_few_statements_a_table(place: Place) -> None:
    engine = place.open()
    sent = Sent(engine)
    warehouse = Warehouse(engine, "shop")
    for stop in ("0015", "0030", "0045"):
        sent.statements.clear()
        tables = [gone(PRODUCT, f"a{stop}"), products(b=stop), (SITE, [{"id": stop}])]
        believed = {"0015": "", "0030": "record-incr-0015", "0045": "record-incr-0030"}[stop]
        warehouse.apply(window(place.objects, stop, *tables, believed=believed))
    warehouse.close()
    copies = 3  # which are no statements of the contract
    assert len(sent.statements) + copies == MOST[place.kind], "\n".join(sent.statements)


@pytest.mark.everyday("postgresql")
@pytest.mark.engines("postgresql", "redshift")
def test_items_together_leave_the_rows_of_one_by_one_with_one_staging_a_table(place: Place) -> None:
    engine = place.open()
    staged: list[str] = []
    stage = engine.stage
    setattr(engine, "stage", lambda table, uris: staged.append(table.name) or stage(table, uris))  # noqa: B010
    warehouse = Warehouse(engine, "shop")
    warehouse.apply(window(place.objects, "0010", products(a="0", b="0", c="0"), (SITE, [{"id": "s"}]), believed=""))
    staged.clear()
    loads = [
        window(place.objects, "0015", gone(PRODUCT, "a"), products(b="1", d="1"), believed="record-incr-0010"),
        window(place.objects, "0030", gone(PRODUCT, "b"), products(a="2"), believed="record-incr-0015"),
        window(place.objects, "0045", gone(PRODUCT, "d"), products(b="3"), (SITE, [{"id": "t"}]), believed="record-incr-0030"),
    ]
    assert [done.entry.item for done in warehouse.apply_all(loads)] == ["incr-0015", "incr-0030", "incr-0045"]
    assert names_of(engine) == {"a": "2", "b": "3", "c": "0"}
    assert [id_ for id_, _ in rows_of(engine, SITE)] == ["s", "t"]
    if place.kind == "postgresql":
        assert staged == [], "each item would cost a table and a COPY of its own"
    warehouse.close()
