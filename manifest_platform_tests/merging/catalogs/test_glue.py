"""The catalog in AWS Glue, against moto's server: what it is told, in how many requests, and what its answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from manifest_platform import aws, storage
from manifest_platform.listing import Column
from manifest_platform.manifest import Store
from manifest_platform.merging.catalogs.catalog import (
    Catalog,
    CatalogRejected,
    CatalogTable,
    CatalogUnavailable,
    catalog_table,
)
from manifest_platform.merging.catalogs.glue import GlueCatalog, hive_type
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.publish import Failed, PublishReport, PublishSettings, TablePart, differences, publish
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import MergedTable
from manifest_platform.testing.catalog import EntriesContract
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import merge, pass_the_day
from manifest_platform_tests.merging.given import DAY, TABLE, arrive, version_of

HERE = TablePart(TABLE, DAY)
NAME = "nanika_log"


@pytest.fixture
def inventory(store: Store) -> Inventory:
    return given.inventory(store)


@pytest.fixture
def catalog(glue: Any) -> GlueCatalog:
    return GlueCatalog()


@pytest.fixture
def output(tmp_path: Path) -> str:
    return storage.as_uri(tmp_path / "merged")


class TestContract(EntriesContract):
    @pytest.fixture
    def catalog(self, glue: Any) -> Catalog:
        return GlueCatalog()

    def files(self, catalog: Catalog, table: CatalogTable, day: date) -> list[str]:
        return [uri for uri, _ in listed(catalog.locations(table)[day])]


def run(inventory: Inventory, catalog: GlueCatalog, output: str, **options: Any) -> PublishReport:
    report = publish(inventory, catalog, PublishSettings(output, **options), inventory.clock())
    assert report.succeeded, report.failed
    return report


def entry(glue: Any, name: str = TABLE, database: str = "app") -> dict[str, Any]:
    return glue.get_table(DatabaseName=database, Name=name)["Table"]


def locations(glue: Any, name: str = TABLE, database: str = "app") -> dict[str, str]:
    found = glue.get_partitions(DatabaseName=database, TableName=name)["Partitions"]
    return {one["Values"][0]: one["StorageDescriptor"]["Location"] for one in found}


def listed(location: str) -> list[tuple[str, int]]:
    entries = json.loads(storage.read_bytes(location))["entries"]
    assert all(one["mandatory"] is True for one in entries)
    return [(one["url"], one["meta"]["content_length"]) for one in entries]


def some_table(output: str, *columns: Column, **names: Any) -> CatalogTable:
    table = MergedTable(NAME, "test_schema", 1, 1, create_time=given.MORNING, columns=columns, **names)
    return catalog_table(table, output, {})


class Failing:
    """A client of Glue of which one operation fails: as a whole, or for some partitions."""

    def __init__(self, client: Any, operation: str, code: str, partitions: tuple[date, ...] = (), status: int = 400):
        self._client, self._operation, self._code, self._partitions = client, operation, code, partitions
        self._status = status

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._operation else getattr(self._client, name)

    def _fail(self, **parameters: Any) -> dict[str, Any]:
        if not self._partitions:
            told = {"Error": {"Code": self._code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": self._status}}
            raise ClientError(told, self._operation)
        days = {str(day) for day in self._partitions}
        parameters["Entries"] = [one for one in parameters["Entries"] if one["PartitionValueList"][0] not in days]
        getattr(self._client, self._operation)(**parameters)
        detail = {"ErrorCode": self._code, "ErrorMessage": "no"}
        return {"Errors": [{"PartitionValueList": [day], "ErrorDetail": detail} for day in sorted(days)]}


def test_E01_a_new_partition_is_a_list_of_live_objects(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    arrive(inventory, 11, 12, size=30)
    report = run(inventory, catalog, output)
    assert (report.entered, report.shown) == ((TablePart(TABLE),), (HERE,))
    location = f"{output}/1172.app.log/live/dt=2026-03-02/manifest-live-{12:019d}.json"
    assert locations(glue) == {"2026-03-02": location}
    assert listed(location) == [("file:///small/11.parquet", 30), ("file:///small/12.parquet", 30)]


def test_a_table_is_made_with_its_database(inventory: Inventory, glue: Any, output: str) -> None:
    arrive(inventory, 11)
    catalog = GlueCatalog(prefix="Lake_", suffix="_x")
    run(inventory, catalog, output, comments={TABLE: {"at": "when it\nhappened"}})
    made = entry(glue, database="lake_app_x")
    assert made["TableType"] == "EXTERNAL_TABLE"
    assert made["Parameters"]["classification"] == "parquet"
    assert made["PartitionKeys"] == [{"Name": "dt", "Type": "date"}]
    storage_ = made["StorageDescriptor"]
    assert storage_["Location"] == f"{output}/1172.app.log"
    assert storage_["Columns"] == [
        {"Name": "id", "Type": "bigint"},
        {"Name": "at", "Type": "timestamp", "Comment": "when it happened"},
    ]
    assert storage_["InputFormat"] == "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
    assert storage_["OutputFormat"] == "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
    assert storage_["SerdeInfo"]["SerializationLibrary"] == "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
    assert storage_["SerdeInfo"]["Parameters"] == {"serialization.format": "1"}
    [partition] = glue.get_partitions(DatabaseName="lake_app_x", TableName=TABLE)["Partitions"]
    assert partition["StorageDescriptor"]["Columns"] == []
    assert partition["StorageDescriptor"]["InputFormat"] == storage_["InputFormat"]


@pytest.mark.parametrize(
    ("logical", "hive"),
    [
        ("boolean", "boolean"),
        ("integer", "int"),
        ("bigint", "bigint"),
        ("double", "double"),
        ("decimal(20,4)", "decimal(20,4)"),
        ("string", "string"),
        ("string(36)", "string"),
        ("timestamp", "timestamp"),
        ("date", "date"),
        ("json", "string"),
    ],
)
def test_every_column_type_is_a_hive_type(logical: str, hive: str) -> None:
    assert hive_type(logical) == hive


def test_what_hive_has_no_word_for_is_a_comment(catalog: GlueCatalog, glue: Any, output: str) -> None:
    columns = Column("a", "string(36)"), Column("b", "json"), Column("c", "string")
    catalog.put_table(some_table(output, *columns))
    assert [one.get("Comment") for one in entry(glue, NAME, "test_schema")["StorageDescriptor"]["Columns"]] == [
        "string(36)",
        "json",
        None,
    ]


def test_D08_E05_a_switched_partition_is_a_list_of_its_ranges(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    arrive(inventory, 100, size=100)
    run(inventory, catalog, output)
    merge(inventory)
    arrive(inventory, 200, size=20)
    merge(inventory)
    pass_the_day(inventory)
    assert run(inventory, catalog, output).published == ((HERE, 200),)
    location = f"{output}/1172.app.log/merged/dt=2026-03-02/manifest-{200:019d}-2.json"
    assert locations(glue) == {"2026-03-02": location}
    assert [size for _, size in listed(location)] == [100, 20]
    assert [uri.rpartition("/")[2] for uri, _ in listed(location)] == ["part-0-100.parquet", "part-100-200.parquet"]
    assert version_of(inventory) == (200, 200, 200, True)


def test_E02_E03_a_live_partition_is_listed_anew_for_new_objects_only(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    arrive(inventory, 11)
    run(inventory, catalog, output)
    merge(inventory)
    before = locations(glue)
    run(inventory, catalog, output)
    assert locations(glue) == before
    arrive(inventory, 12)
    run(inventory, catalog, output)
    assert [uri for uri, _ in listed(locations(glue)[str(DAY)])] == ["file:///small/11.parquet", "file:///small/12.parquet"]


def test_E04_a_run_without_news_asks_glue_once_a_database(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    for table in ("a", "b", "c"):
        inventory.sync_table(given.settings(table))
        arrive(inventory, 11, table=table)
    run(inventory, catalog, output)
    before = {name: (entry(glue, name), locations(glue, name)) for name in ("a", "b", "c")}
    rows = given.dump(inventory)
    report = run(inventory, catalog, output)
    assert (report.catalog_requests, given.dump(inventory)) == (1, rows)
    assert {name: (entry(glue, name), locations(glue, name)) for name in ("a", "b", "c")} == before


def test_E09_a_new_column_is_one_update_that_leaves_other_peoples_settings(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    arrive(inventory, 11)
    run(inventory, catalog, output)
    made = entry(glue)
    theirs = {key: made[key] for key in ("Name", "TableType", "PartitionKeys", "StorageDescriptor")}
    parameters = {**made["Parameters"], "numRows": "17"}
    glue.update_table(DatabaseName="app", TableInput={**theirs, "Description": "visits", "Parameters": parameters})
    columns = (*given.COLUMNS, Column("page", "string(100)"))
    commit = given.CommittedObjects(2, "s3://bucket/run=002/", {(TABLE, DAY): (given.small(12),)}, {TABLE: columns})
    inventory.register(commit, given.RIDE_ALONG)
    assert run(inventory, catalog, output).entered == (TablePart(TABLE),)
    found = entry(glue)
    assert [one["Name"] for one in found["StorageDescriptor"]["Columns"]] == ["id", "at", "page"]
    assert (found["Description"], found["Parameters"]["numRows"]) == ("visits", "17")
    assert run(inventory, catalog, output).entered == ()
    assert entry(glue)["VersionId"] == found["VersionId"]


@pytest.mark.parametrize("change", ["Location", "InputFormat", "OutputFormat", "SerdeInfo", "Columns"])
def test_an_entry_that_was_changed_by_hand_is_brought_up_to_date(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str, change: str
) -> None:
    arrive(inventory, 11)
    run(inventory, catalog, output)
    made = entry(glue)
    wanted = made["StorageDescriptor"]
    wrong: Mapping[str, Any] = {"SerdeInfo": {"SerializationLibrary": "x"}, "Columns": wanted["Columns"][:1]}
    theirs = {key: made[key] for key in ("Name", "TableType", "PartitionKeys", "Parameters")}
    changed = {**wanted, change: wrong.get(change, "wrong")}
    glue.update_table(DatabaseName="app", TableInput={**theirs, "StorageDescriptor": changed})
    assert run(inventory, catalog, output).entered == (TablePart(TABLE),)
    assert entry(glue)["StorageDescriptor"] == wanted


def test_a_table_that_is_partitioned_otherwise_is_left_alone(catalog: GlueCatalog, glue: Any, output: str) -> None:
    table = some_table(output)
    catalog.put_table(table)
    made = entry(glue, NAME, "test_schema")
    glue.delete_table(DatabaseName="test_schema", Name=NAME)
    theirs = {key: made[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    keys = [{"Name": "region", "Type": "string"}]
    glue.create_table(DatabaseName="test_schema", TableInput={**theirs, "PartitionKeys": keys})
    assert catalog.entries("test_schema", [table]) == {table: "outdated"}
    with pytest.raises(CatalogRejected, match=r"is partitioned by .*region.* instead of dt: remove it"):
        catalog.put_table(table)
    assert entry(glue, NAME, "test_schema")["PartitionKeys"] == keys


def test_E10_E18_names_are_logical_and_places_physical(catalog: GlueCatalog, glue: Any, output: str) -> None:
    table = some_table(output, physical_schema="phy_test_schema", physical_name="phy_nanika_log")
    assert catalog.known_as(table) == "test_schema.nanika_log"
    assert table.location == f"{output}/342b.phy_test_schema.phy_nanika_log"
    assert catalog.location(table, DAY, Served(3, 42)) == (
        f"{table.location}/merged/dt=2026-03-02/manifest-0000000000000000042-3.json"
    )
    assert some_table(output).location == f"{output}/b601.test_schema.nanika_log"


def test_E11_a_renamed_table_has_all_partitions_under_its_new_name(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    days = [DAY + timedelta(days=number) for number in range(30)]
    for number, day in enumerate(days, start=1):
        arrive(inventory, number, day=day)
    given_settings = PublishSettings(output)
    pass_the_day(inventory, days[9])
    run(inventory, catalog, output)
    with given.slot(inventory) as held:
        given.merge_all(inventory, held)
    run(inventory, catalog, output)
    before = locations(glue)
    assert len(before) == 30
    assert len([location for location in before.values() if "/merged/dt=" in location]) == 10
    inventory.sync_table(given.settings("visits", schema="site", physical_name=TABLE, physical_schema="app"))
    report = run(inventory, catalog, output)
    assert locations(glue, "visits", "site") == before
    assert all(listed(location) for location in before.values())
    assert [found["Name"] for found in glue.get_tables(DatabaseName="app")["TableList"]] == []
    assert {found["Name"] for found in glue.get_databases()["DatabaseList"]} == {"app", "site"}
    assert report.catalog_requests < 10
    assert differences(inventory, catalog, given_settings) == []
    assert run(inventory, catalog, output).catalog_requests == 1


def test_E11_an_old_name_that_stands_for_something_else_is_left_alone(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    arrive(inventory, 11)
    run(inventory, catalog, output)
    descriptor = {**entry(glue)["StorageDescriptor"], "Location": "s3://theirs/log"}
    glue.update_table(DatabaseName="app", TableInput={"Name": TABLE, "StorageDescriptor": descriptor})
    inventory.sync_table(given.settings("visits", physical_name=TABLE))
    report = publish(inventory, catalog, PublishSettings(output), inventory.clock())
    [failed] = report.failed
    assert "belongs to s3://theirs/log: it is not removed" in failed.error
    assert entry(glue)["StorageDescriptor"]["Location"] == "s3://theirs/log"
    assert len(locations(glue, "visits")) == 1


def test_E11_a_name_that_a_table_gives_up_can_be_anothers_at_once(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    """The table that takes over the name sorts first by its key, and has no partition of the first day."""
    arrive(inventory, 11)
    run(inventory, catalog, output)
    before = locations(glue)
    inventory.sync_table(given.settings("visits", physical_name=TABLE))
    inventory.sync_table(given.settings(TABLE, physical_name="a_log"))
    arrive(inventory, 12, table="a_log", day=DAY + timedelta(days=1))
    run(inventory, catalog, output)
    assert locations(glue, "visits") == before
    assert list(locations(glue)) == [str(DAY + timedelta(days=1))]
    assert differences(inventory, catalog, PublishSettings(output)) == []


def test_a_table_that_is_not_ours_is_left_alone(inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str) -> None:
    glue.create_database(DatabaseInput={"Name": "app"})
    keys = [{"Name": "dt", "Type": "date"}]
    theirs = {"Name": TABLE, "PartitionKeys": keys, "StorageDescriptor": {"Columns": [], "Location": "s3://theirs/log"}}
    glue.create_table(DatabaseName="app", TableInput=theirs)
    arrive(inventory, 11)
    report = publish(inventory, catalog, PublishSettings(output), inventory.clock())
    [failed] = report.failed
    assert (failed.place, failed.transient) == (TablePart(TABLE), False)
    assert "is not ours: its location is s3://theirs/log" in failed.error
    assert locations(glue) == {}
    assert version_of(inventory)[0] == -1


def test_partitions_are_created_and_moved_a_hundred_a_request(catalog: GlueCatalog, glue: Any, output: str) -> None:
    table = some_table(output)
    catalog.put_table(table)
    days = [DAY + timedelta(days=number) for number in range(301)]
    before = catalog.requests
    assert catalog.point(table, dict.fromkeys(days, Served(0, 1)), days) == {}
    assert catalog.requests - before == 4
    assert catalog.point(table, dict.fromkeys(days, Served(1, 1)), []) == {}
    assert catalog.requests - before == 8
    assert catalog.locations(table) == {day: catalog.location(table, day, Served(1, 1)) for day in days}


def test_E12_partitions_that_fail_in_a_batch_are_told_alone(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    other = DAY + timedelta(days=1)
    arrive(inventory, 11)
    arrive(inventory, 12, day=other)
    run(inventory, catalog, output)
    before = locations(glue)
    arrive(inventory, 21)
    arrive(inventory, 22, day=other)
    catalog._client = Failing(catalog._client, "batch_update_partition", "InternalServiceException", (DAY,))
    report = publish(inventory, catalog, PublishSettings(output), inventory.clock())
    error = "Glue partition app.log 2026-03-02: InternalServiceException: no"
    assert report.failed == (Failed(HERE, error, transient=True),)
    assert report.shown == (TablePart(TABLE, other),)
    assert locations(glue)[str(DAY)] == before[str(DAY)]
    catalog._client = glue
    assert run(inventory, catalog, output).shown == (HERE,)
    assert [uri for uri, _ in listed(locations(glue)[str(DAY)])] == ["file:///small/11.parquet", "file:///small/21.parquet"]


def test_E12_a_batch_that_fails_does_not_stop_the_others(catalog: GlueCatalog, glue: Any, output: str) -> None:
    table = some_table(output)
    catalog.put_table(table)
    days = [DAY + timedelta(days=number) for number in range(250)]
    failing = Failing(glue, "batch_create_partition", "ThrottlingException")

    class Second:
        def batch_create_partition(self, **parameters: Any) -> dict[str, Any]:
            named = [one["Values"][0] for one in parameters["PartitionInputList"]]
            return (failing if str(days[100]) in named else glue).batch_create_partition(**parameters)

    catalog._client = Second()
    errors = catalog.point(table, dict.fromkeys(days, Served(0, 1)), days)
    assert list(errors) == days[100:200]
    assert all(isinstance(error, CatalogUnavailable) for error in errors.values())
    catalog._client = glue
    assert list(catalog.locations(table)) == days[:100] + days[200:]


def test_E12_a_table_that_glue_refuses_does_not_stop_the_others(
    inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str
) -> None:
    inventory.sync_table(given.settings("a", schema="closed"))
    arrive(inventory, 11, table="a")
    arrive(inventory, 11)
    real = catalog._client

    class Closed(Failing):
        def _fail(self, **parameters: Any) -> dict[str, Any]:
            if parameters["DatabaseName"] == "closed":
                return super()._fail()
            return real.create_table(**parameters)

    catalog._client = Closed(real, "create_table", "AccessDeniedException")
    report = publish(inventory, catalog, PublishSettings(output), inventory.clock())
    assert report.failed == (Failed(TablePart("a"), "Glue create_table: AccessDeniedException: no", transient=False),)
    assert report.shown == (HERE,)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ThrottlingException", 400, CatalogUnavailable),
        ("ConcurrentModificationException", 400, CatalogUnavailable),
        ("OperationTimeoutException", 400, CatalogUnavailable),
        ("SomethingNew", 503, CatalogUnavailable),
        ("AccessDeniedException", 400, CatalogRejected),
        ("ResourceNumberLimitExceededException", 400, CatalogRejected),
    ],
)
def test_passing_errors_are_told_from_permanent_ones(
    catalog: GlueCatalog, glue: Any, output: str, code: str, status: int, kind: type[Exception]
) -> None:
    catalog._client = Failing(glue, "get_tables", code, status=status)
    with pytest.raises(kind, match=code):
        catalog.entries("test_schema", [some_table(output)])


def test_a_glue_that_cannot_be_reached_passes(glue: Any, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:9")
    monkeypatch.setitem(aws.LIMITS, "glue", aws.Limits(attempts=1))
    with pytest.raises(CatalogUnavailable, match=r"127\.0\.0\.1:9"):
        GlueCatalog().put_table(some_table(output))


def test_without_a_region_it_is_said_what_is_missing(glue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(CatalogRejected, match="region"):
        GlueCatalog()


def test_a_list_that_cannot_be_written_passes(catalog: GlueCatalog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    table = some_table(storage.as_uri(tmp_path / "file" / "below"))
    with pytest.raises(CatalogUnavailable, match="cannot be written"):
        catalog.write(table, DAY, Served(0, 1), [])


def test_listings_are_read_page_by_page(catalog: GlueCatalog, glue: Any, output: str) -> None:
    """The server under test gives all in one page."""
    pages: dict[str | None, dict[str, Any]] = {
        None: {"Partitions": [partition("2026-03-02")], "NextToken": "more"},
        "more": {"Partitions": [partition("2026-03-03")]},
    }

    class Paged:
        def get_partitions(self, NextToken: str | None = None, **_parameters: Any) -> dict[str, Any]:  # noqa: N803
            return pages[NextToken]

    catalog._client = Paged()
    assert catalog.locations(some_table(output)) == {DAY: "x/2026-03-02", DAY + timedelta(days=1): "x/2026-03-03"}


def partition(day: str) -> dict[str, Any]:
    return {"Values": [day], "StorageDescriptor": {"Location": f"x/{day}"}}


def test_differences_are_found_in_glue(inventory: Inventory, catalog: GlueCatalog, glue: Any, output: str) -> None:
    arrive(inventory, 11)
    run(inventory, catalog, output)
    assert differences(inventory, catalog, PublishSettings(output)) == []
    glue.delete_partition(DatabaseName="app", TableName=TABLE, PartitionValues=[str(DAY)])
    [found] = differences(inventory, catalog, PublishSettings(output))
    assert (found.place, found.found) == (HERE, "missing")
    run(inventory, catalog, output, verify=True)
    assert differences(inventory, catalog, PublishSettings(output)) == []
