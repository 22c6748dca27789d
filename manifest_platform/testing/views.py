"""The part of the contract suite of engines that is about the view of loaded items, and the ledger's facts that it shows."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.testing.loads import FEED, SCHEMA, control, events, load
from manifest_platform.warehouse.applied_view import AppliedView, ViewColumn
from manifest_platform.warehouse.apply import Applied, Load, Warehouse, open_warehouse
from manifest_platform.warehouse.engines.engine import Engine, EngineSettings
from manifest_platform.warehouse.errors import ViewRefused
from manifest_platform.warehouse.load import About, Reload

_AT = datetime(2024, 3, 5, 10, 11, 12, 345_000, tzinfo=UTC)
_VIEW = AppliedView(
    "loaded",
    FEED,
    (
        ViewColumn("place", "string", "item", "/"),
        ViewColumn("kinds", "string", "types", is_json=True),
        ViewColumn("began", "timestamp", "shredding_started"),
        ViewColumn("loaded_at", "timestamp", "applied_at"),
        ViewColumn("form", "string", "compression", "'s"),
        ViewColumn("good_rows", "bigint", "good"),
    ),
)
_COLUMNS = ", ".join(f'"{column.name}"' for column in _VIEW.columns)
_OF_RELEASE_0_2 = [
    *("dataset", "feed", "item", "position", "epoch", "token", "record_id", "late", "rows", "checksum", "applied_at"),
    "version",
]
"""The columns of the ledger of release 0.2, in its order."""


class ViewContract:
    """The requirements of the view of loaded items. An engine whose views read only their own schema refuses it."""

    def test_a_view_shows_each_loaded_item_once_and_is_no_table(
        self, settings: EngineSettings, engine: Engine, tmp_path: Path
    ) -> None:
        viewed = Warehouse(engine, SCHEMA, view=_VIEW)
        if not engine.views_span_schemas:
            with pytest.raises(ViewRefused, match="its views read only their own schema"):
                viewed.apply(_described(tmp_path, "1", 3))
            return
        other = Warehouse(engine, "other", view=replace(_VIEW, name="loaded_too"))
        other.apply(_described(tmp_path, "9", 1))
        for item in ("1", "2"):
            viewed.apply(_described(tmp_path, item, 3))
        again = _described(tmp_path, "1", 5, record_id="again", token=2, reload=Reload(frozenset({"again"})))
        done = viewed.apply(again)
        assert isinstance(done, Applied)
        viewed.apply_all([_described(tmp_path, "3", 2, token=2), _described(tmp_path, "4", 2, token=2)])
        shown = _shown(engine)
        assert [(row[0], row[4], row[5]) for row in shown] == [
            ("1/", "it's", 5),
            ("2/", "it's", 3),
            ("3/", "it's", 2),
            ("4/", "it's", 2),
        ]
        naive = _AT.replace(tzinfo=None)
        assert {(str(row[1]).replace("\n", "").replace(" ", ""), row[2]) for row in shown} == {('[{"name":"a"}]', naive)}
        assert shown[0][3] == done.entry.applied_at.replace(tzinfo=None)
        assert viewed.row_counts() == {"events": 12} and viewed.table_names() == ["events"]
        with closing(open_warehouse(settings, SCHEMA, view=_VIEW)) as later:  # which leaves the view alone
            later.apply(load(events(tmp_path, "5", 1), token=2))
        assert _shown(engine)[4][0::5] == ("5/", None)

    def test_a_ledger_of_an_older_release_gets_the_facts_of_a_view_and_serves_that_release_too(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        Warehouse(engine, SCHEMA).apply(_described(tmp_path, "1", 3))
        ledger, columns = control(engine, "ledger"), ", ".join(map(engine.quote, _OF_RELEASE_0_2))
        kept = engine.qualified("manifest_platform", "kept")
        engine.execute(f"CREATE TABLE {kept} AS SELECT {columns} FROM {ledger}")
        engine.execute(f"DROP TABLE {ledger}")
        engine.execute(f"CREATE TABLE {ledger} AS SELECT {columns} FROM {kept}")
        engine.execute(f"DROP TABLE {kept}")
        Warehouse(engine, SCHEMA).apply(_described(tmp_path, "2", 3))
        assert list(_ledger_columns(engine)) == _OF_RELEASE_0_2, "without a view, the table stays as it is"
        if not engine.views_span_schemas:
            return
        viewed = Warehouse(engine, SCHEMA, view=_VIEW)
        viewed.apply(_described(tmp_path, "3", 3))
        values = ", ".join("'4'" if name == "item" else engine.quote(name) for name in _OF_RELEASE_0_2)
        engine.write(f"INSERT INTO {ledger} ({columns}) SELECT {values} FROM {ledger} WHERE {engine.quote('item')} = ?", ("1",))
        assert [(row[0], row[2] is None, row[5]) for row in _shown(engine)] == [
            ("1/", True, None),
            ("2/", True, None),
            ("3/", False, 3),
            ("4/", True, None),
        ]
        assert [entry.item for entry in viewed.ledger(FEED, 0)][:2] == ["1", "2"]

    def test_a_view_takes_the_place_of_nothing(self, engine: Engine, shop: Warehouse, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "1")))
        if not engine.views_span_schemas:
            return
        taken, made = replace(_VIEW, name="events"), replace(_VIEW, name="mine")
        engine.execute(f"CREATE VIEW {engine.qualified(SCHEMA, 'mine')} AS SELECT 1 AS n")
        for view, why in ((taken, "because a table has this name"), (made, "is a view of somebody else")):
            with pytest.raises(ViewRefused, match=f"shop.{view.name} .*{why}.* Nothing was loaded"):
                Warehouse(engine, SCHEMA, view=view).apply(load(events(tmp_path, "2")))
        assert [entry.item for entry in shop.ledger(FEED, 0)] == ["1"]
        assert shop.row_counts() == {"events": 3}


def _described(folder: Path, item: str, count: int, **changes: Any) -> Load:
    listing = events(folder, f"{item}", count)
    about = About(_AT, _AT, "us", "0.3.0", "it", _AT, _AT, count, '[{"name":"a"}]')
    return load(listing, about=about, **changes)


def _shown(engine: Engine) -> list[tuple[object, ...]]:
    return engine.execute(f'SELECT {_COLUMNS} FROM {engine.qualified(SCHEMA, _VIEW.name)} ORDER BY "place"')


def _ledger_columns(engine: Engine) -> dict[str, str]:
    columns = engine.columns("manifest_platform")
    return next(found for name, found in columns.items() if control(engine, "ledger").endswith(engine.quote(name)))
