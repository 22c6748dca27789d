"""`com.acme/order_x` and `com.acme_order/x` make one name of a table: the rows of only one of them are ever in it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import ValidationError

from manifest_platform.listing import Column, Listing, Table
from manifest_platform.manifest import Application, FailureKind
from manifest_platform.manifest.store import OutcomeUnknown, Row, Write
from manifest_platform.pipeline import SHRED, Pipeline, shredding
from manifest_platform.pipeline.events import ItemFailed, Shredded
from manifest_platform.pipeline.families import TableTaken, take_tables
from manifest_platform.shred.batch import SchemaError, TwoFamilies, Written
from manifest_platform.sources.snowplow.events.shredder import shred_lines
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.settings import FEED, SnowplowShredSettings
from manifest_platform.testing.loads import SCHEMA, load, written
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.engines.engine import opened
from manifest_platform.warehouse.errors import Conflict, OtherFamily
from manifest_platform.warehouse.families import Families
from manifest_platform_tests.pipeline.shop import Shop
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, SECOND = "iglu:com.acme/order_x/jsonschema/1", "iglu:com.acme_order/x/jsonschema/1"
TABLE = "com_acme_order_x_1"
SAID = (
    f"table {TABLE} has the rows of {FIRST}, and would get those of {SECOND}: nobody could tell them apart. Give these a "
    f"table of their own in the dataset's configuration, as shred.tables: {{{SECOND}: {TABLE}_2}}"
)


def table(family: str | None, name: str = TABLE) -> Table:
    return Table(name, (Column("id", "string"),), family=family)


def listing(*tables: Table, item: str = "file:///landing/run=1") -> Listing:
    return Listing(item, "1", 1, 1, 0, tables, ())


@pytest.fixture
def drains(tmp_path: Path) -> Iterator[tuple[Pipeline, Pipeline]]:
    """Two drains on one manifest, each a process of its own as far as they know."""
    shop = Shop(tmp_path)
    with shop.open() as first, shop.open() as second:
        yield first, second


@pytest.fixture
def registry(tmp_path: Path) -> str:
    """A registry with both families."""
    for family in (FIRST, SECOND):
        place = tmp_path / "schemas" / family.removeprefix("iglu:").removesuffix("/1") / "1-0-0"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"type": "object", "properties": {"id": {"type": "string"}}}))
    return str(tmp_path)


def test_a_later_drain_shreds_no_other_family_into_a_table(drains: tuple[Pipeline, Pipeline]) -> None:
    first, second = drains
    take_tables(first, listing(table(FIRST)))
    with pytest.raises(TableTaken) as caught:
        take_tables(second, listing(table(SECOND)))
    assert str(caught.value).endswith(SAID)
    with pytest.raises(TableTaken):  # whatever its case, for warehouses match names without it
        take_tables(second, listing(table(SECOND, TABLE.upper())))
    take_tables(second, listing(table(SECOND, f"{TABLE}_2"), table(FIRST), table(None, "events")))


def test_the_item_fails_for_good_and_the_others_go_on(
    drains: tuple[Pipeline, Pipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, _ = drains
    items = [pipeline.manifest.item(key) for key in Shop(tmp_path).land(pipeline, 0, 1, 2, events=1)]
    tables = [table(FIRST), table(SECOND), table(FIRST)]

    def attempt(*_: object) -> list[Listing]:
        return [listing(one, item=item.key.id) for one, item in zip(tables, items, strict=True)]

    monkeypatch.setattr(shredding, "_attempt", attempt)
    with pipeline.lease(FEED, SHRED) as lease:
        done, failed, other = shredding.shred(pipeline, lease, lambda: cast("SparkSession", None), items)
    assert (type(done), type(other)) == (Shredded, Shredded)
    assert isinstance(failed, ItemFailed)
    assert (failed.failure.kind, failed.failure.message.endswith(SAID)) == (FailureKind.PERMANENT, True)
    assert not pipeline.manifest.item(items[1].key).processed_by(Application(SHRED))


def test_of_two_drains_that_take_a_table_at_once_one_gets_it(
    drains: tuple[Pipeline, Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = drains
    others = [SECOND]

    def query(*arguments: Any, **options: Any) -> list[Row]:
        found = asked(*arguments, **options)
        if others:
            take_tables(second, listing(table(others.pop())))
        return found

    asked = first.manifest.store.query
    monkeypatch.setattr(first.manifest.store, "query", query)
    with pytest.raises(TableTaken, match=f"has the rows of {SECOND}"):
        take_tables(first, listing(table(FIRST)))


def test_an_answer_that_is_lost_takes_the_table_all_the_same(
    drains: tuple[Pipeline, Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = drains
    store, transact = first.manifest.store, first.manifest.store.transact

    def lost(partition: str, writes: list[Write], token: str) -> None:
        transact(partition, writes, token)
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(store, "transact", lost)
    take_tables(first, listing(table(FIRST)))
    take_tables(second, listing(table(FIRST)))


def test_a_drain_asks_the_store_once(drains: tuple[Pipeline, Pipeline]) -> None:
    first, _ = drains
    take_tables(first, listing(table(FIRST)))
    before = first.manifest.store.requests
    take_tables(first, listing(table(FIRST), item="file:///landing/run=2"))
    take_tables(first, listing(table(None, "events")))
    assert first.manifest.store.requests == before


def test_the_setting_that_is_named_gives_the_other_one_a_table(registry: str) -> None:
    first, second = (SchemaKey.parse(f"{family}-0-0") for family in (FIRST, SECOND))
    resolver = Resolver([registry])
    assert (resolver.table(first).table.name, resolver.table(first).table.family) == (TABLE, FIRST)
    resolver = Resolver([registry], tables={SECOND: "orders"})
    assert [resolver.table(key).table.name for key in (first, second)] == [TABLE, "orders"]
    assert resolver.table(second).table.family == SECOND


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_lines_of_two_families_tell_the_same_whichever_came_first(registry: str, order: tuple[str, str]) -> None:
    cell = contexts(*(entity(f"{family}-0-0", {"id": "1"}) for family in order))
    both = " and ".join(sorted(order))
    with pytest.raises(TwoFamilies, match=f"{both} both make the table {TABLE}: .*{{{max(order)}: {TABLE}_2}}"):
        shred_lines(enriched(contexts=cell), Resolver([registry]))


def test_two_tasks_of_a_job_do_not_shred_two_families_into_a_table() -> None:
    total = Written()
    total.define(table(FIRST))
    total.define(table(None))
    with pytest.raises(SchemaError, match="both make the table"):
        total.define(table(SECOND))
    assert total.tables[TABLE].family == FIRST


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"com.acme/order_x": "orders"}, "String should match pattern"),
        ({SECOND: "Orders"}, "String should match pattern"),
        ({SECOND: "orders; drop"}, "String should match pattern"),
        ({SECOND: "events"}, "a table of its own for each"),
        ({SECOND: "bad"}, "a table of its own for each"),
        ({SECOND: "orders", FIRST: "orders"}, "a table of its own for each"),
    ],
)
def test_a_wrong_table_is_refused_when_the_configuration_is_read(tables: dict[str, str], said: str) -> None:
    assert SnowplowShredSettings(output="out", schemas=["schemas"], tables={SECOND: "orders"}).tables == {SECOND: "orders"}
    with pytest.raises(ValidationError, match=said):
        SnowplowShredSettings(output="out", schemas=["schemas"], tables=tables)


def test_the_warehouse_refuses_what_another_manifest_let_pass(tmp_path: Path) -> None:
    with closing(DuckDB(tmp_path / "warehouse.duckdb")) as engine:
        shop = Warehouse(engine, SCHEMA)
        shop.apply(load(written(tmp_path, "a", [(table(FIRST), [{"id": "1"}])])))
        with pytest.raises(OtherFamily) as caught:
            wider = dataclasses.replace(table(SECOND), columns=(Column("id", "string"), Column("of", "string")))
            shop.apply(load(written(tmp_path, "b", [(wider, [{"id": "2", "of": "x"}])])))
        assert list(engine.columns(SCHEMA)[TABLE]) == ["id"]
        assert str(caught.value) == f"b: {SAID}"
        assert caught.value.remedy
        assert caught.value.remedy.action.name == "RESHRED"
        assert shop.row_counts() == {TABLE: 1}


def test_of_two_loads_that_give_a_table_its_family_at_once_one_does(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    with closing(DuckDB(path, patience=0.1)) as engine, closing(DuckDB(path, patience=0.1)) as other:
        Warehouse(engine, SCHEMA).prepare("feed")
        mine, theirs = (load(listing(table(family), item="a")) for family in (FIRST, SECOND))
        with opened(engine) as one, opened(other) as two:
            Families(engine, SCHEMA).enter(one, mine)
            Families(other, SCHEMA).enter(two, theirs)
            one.commit()
            with pytest.raises(Conflict):  # and the load is repeated from its start
                two.commit()
        with pytest.raises(OtherFamily):
            Families(other, SCHEMA).check(theirs)


def test_listings_that_are_there_are_read_as_before(tmp_path: Path) -> None:
    data = dataclasses.asdict(listing(table(FIRST)))
    assert Listing.from_dict(data).tables == (table(FIRST),)
    del data["tables"][0]["family"]
    assert Listing.from_dict(data).tables == (table(None),)
