"""The contract suite of engines on fakesnow, and what of it only a real Snowflake can show.

Three sets, which docs/reference/warehouses/snowflake.md lists too:

1. Cases that run on fakesnow: all of the suite, except those named in NOT_ON_FAKESNOW.
2. Cases that are checked as text, with a recording connection: `test_snowflake.py`.
3. Cases that only `warehouse check` shows on a user's own account: see the docstring of `servers/snowflake.py`.

A case of NOT_ON_FAKESNOW that begins to pass fails here, so that the list stays true.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from manifest_platform.listing import Column, Table
from manifest_platform.testing.engine import EngineContract
from manifest_platform.testing.loads import SCHEMA, SITE, events, gone, load, products, rows_of, snapshot, window, written
from manifest_platform.warehouse.apply import Applied, Load, Warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.engines.snowflake.settings import SnowflakeSettings
from manifest_platform_tests.servers.snowflake import Sessions, settings_of

NOT_ON_FAKESNOW = {
    "test_any_text_can_be_a_name": "fakesnow cannot create a schema with a quote in its name; "
    "here: test_any_text_can_be_the_name_of_a_table",
    "test_names_of_columns_match_without_case": "the suite expects the first spelling, Snowflake's plain names have none; "
    "here: test_plain_names_have_no_spelling",
    "test_indexes_and_views_of_users_survive_a_snapshot": "Snowflake's tables have no indexes",
}
"""The cases of the suite that cannot pass on fakesnow, and why."""

EVERY_DAY = (
    "test_a_transaction_is_visible_to_others_only_after_its_commit",
    "test_rows_are_merged_and_deleted_by_key",
)
"""The cases that `make test` runs; `make test-long` runs all."""


class _Fixtures:
    """The settings of the suite."""

    short_text = "VARCHAR(4)"

    @pytest.fixture
    def settings(self, snowflake: SnowflakeSettings) -> SnowflakeSettings:
        return snowflake

    @pytest.fixture
    def unreachable(self, monkeypatch: pytest.MonkeyPatch) -> SnowflakeSettings:
        import snowflake.connector
        from snowflake.connector.errors import OperationalError

        def refused(**_: object) -> None:
            raise OperationalError("250001: Could not connect to Snowflake backend", errno=250001)

        monkeypatch.setattr(snowflake.connector, "connect", refused)
        return settings_of()


def _expected_to_fail(name: str, reason: str) -> Callable[..., None]:
    case = getattr(EngineContract, name)

    @functools.wraps(case)
    def expected(*given: object, **named: object) -> None:
        case(*given, **named)

    return pytest.mark.xfail(reason=reason, strict=True)(expected)


@pytest.mark.long
class TestSnowflake(_Fixtures, EngineContract):
    """All cases."""


for _name, _reason in NOT_ON_FAKESNOW.items():
    setattr(TestSnowflake, _name, _expected_to_fail(_name, _reason))


class TestEveryDay(_Fixtures):
    """Some cases, for `make test`."""

    engine, other, shop, counter = EngineContract.engine, EngineContract.other, EngineContract.shop, EngineContract.counter


for _name in EVERY_DAY:
    setattr(TestEveryDay, _name, getattr(EngineContract, _name))


@pytest.mark.long
class TestInPlaceOfTheSuite(_Fixtures):
    """The cases that NOT_ON_FAKESNOW leaves out, as far as fakesnow allows them."""

    engine, shop = EngineContract.engine, EngineContract.shop

    def test_any_text_can_be_the_name_of_a_table(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        odd = Table('sel"ect', (Column('or"der', "string"), Column("from", "integer"), Column("Ünit 1", "string")))
        shop.apply(load(written(tmp_path, "it'em", [(odd, [{'or"der': "x", "from": 1, "Ünit 1": "u"}])])))
        assert shop.row_counts() == {'sel"ect': 1}
        assert list(engine.columns(SCHEMA)['sel"ect']) == ['or"der', "from", "Ünit 1"]

    def test_plain_names_have_no_spelling(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """People write `select id, name__c from orders` without quotes, whatever the spelling of the source is."""
        upper, lower = (
            Table(name, (Column(id_, "string"), Column(value, "string")), "merge", (id_,))
            for name, id_, value in (("Orders", "ID", "Name__c"), ("orders", "id", "name__c"))
        )
        done = shop.apply(window(tmp_path, "0015", (upper, [{"ID": "a", "Name__c": "1"}, {"ID": "b", "Name__c": "1"}])))
        assert isinstance(done, Applied)
        assert any("table Orders is stored as orders: names are matched without case" in line for line in done.told)
        assert any("column Name__c is stored as name__c" in line for line in done.told)
        again = shop.apply(window(tmp_path, "0030", (lower, [{"id": "a", "name__c": "2"}]), gone(lower, "b")))
        assert isinstance(again, Applied)
        assert again.told == (), "a known name is reported once"
        assert engine.query("SELECT ID, name__c FROM Orders", SCHEMA) == (["id", "name__c"], [("a", "2")])
        shop.apply(snapshot(tmp_path, "0030", (upper, [{"ID": "a", "Name__c": "3"}])))
        assert engine.columns(SCHEMA) == {"orders": {"id": "string", "name__c": "string"}}
        assert rows_of(engine, "orders") == [("a", "3")]


@pytest.mark.long
def test_the_stand_in_skips_what_a_table_has_loaded_as_snowflake_does(
    snowflake: SnowflakeSettings, snowflake_sessions: Sessions, tmp_path: Path
) -> None:
    """An item that is loaded again brings all its rows again, because its staging table is new."""
    table = Table("t", (Column("id", "string"),))
    listing = written(tmp_path, "a", [(table, [{"id": "1"}])])
    engine = snowflake.open()
    for _ in range(2):
        staged = engine.stage(table, listing.uris("t"))
        assert engine.execute(f"SELECT count(*) FROM {staged.sql}") == [(1,)]
    copy = next(sql for sql in reversed(snowflake_sessions.statements) if sql.startswith("COPY"))
    assert engine.execute(copy)[0][1] == "LOAD_SKIPPED"
    engine.close()


@pytest.mark.long
@pytest.mark.parametrize("json_columns", ["varchar", "variant"])
def test_a_batch_leaves_the_same_rows_as_its_items(
    snowflake: SnowflakeSettings, snowflake_sessions: Sessions, tmp_path: Path, json_columns: str
) -> None:
    table = Table("t", (Column("id", "string"), Column("v", "json")), "merge", ("id",))
    rows = [{"a": '{"n": 1}', "b": "[1]"}, {"b": "null", "c": None}, {"a": '"x"'}]
    contents = []
    for place, together in (("together", True), ("alone", False)):
        engine = settings_of(json_columns=json_columns).open()
        shop = Warehouse(engine, place)
        loads = [
            window(tmp_path / place, f"00{nth}5", (table, [{"id": id_, "v": v} for id_, v in some.items()]), token=nth + 1)
            for nth, some in enumerate(rows)
        ]
        loads = [replace(one, token=1) for one in loads]
        snowflake_sessions.statements.clear()
        done = shop.apply_all(loads) if together else [shop.apply(one) for one in loads]
        assert all(isinstance(one, Applied) for one in done)
        copies = [sql for sql in snowflake_sessions.statements if sql.startswith("COPY")]
        assert len(copies) == (1 if together else 3)
        contents.append(sorted(map(repr, engine.execute(f"SELECT id, v FROM {engine.qualified(place, 't')}"))))
        assert list(shop.row_counts().values()) == [3]
        engine.close()
    assert contents[0] == contents[1]


@pytest.mark.long
def test_the_statements_of_a_load_are_those_that_the_documentation_counts(
    snowflake: SnowflakeSettings, snowflake_sessions: Sessions, tmp_path: Path
) -> None:
    def sent(wanted: Load) -> int:
        snowflake_sessions.statements.clear()
        assert isinstance(shop.apply(wanted), Applied)
        return len(snowflake_sessions.statements)

    shop = Warehouse(snowflake.open(), SCHEMA)
    products_, sites = products(a="1"), (SITE, [{"id": "s"}])
    shop.apply(load(events(tmp_path, "a")))
    shop.apply(window(tmp_path, "0015", products_, sites))
    shop.apply(load(events(tmp_path, "b")))  # the first load after another feed's reads the known tables again
    assert sent(load(events(tmp_path, "c"))) <= 6 + 4
    assert sent(window(tmp_path, "0030", products_)) <= 7 + 6
    assert sent(window(tmp_path, "0045", products_, sites)) <= 7 + 2 * 6
    shop.close()
