"""AWS Glue as a catalog: tables and partitions that Redshift Spectrum reads through manifest files.

Belongs here: the requests to Glue and the meaning of its responses. A partition's location is the URI of a JSON file that
lists its objects with their sizes, in the format of Redshift Spectrum. The list is needed because the objects of a partition
have no common prefix of their own. A manifest file never changes: another version gets another file, and the
partition's location moves to it in one step.

Credentials, region and an endpoint override are found in the way of all AWS tools.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import Field

from manifest_platform import aws, storage
from manifest_platform.deployments import identifier
from manifest_platform.merging import names
from manifest_platform.merging.catalogs import spectrum
from manifest_platform.merging.catalogs.catalog import (
    DATE_COLUMN,
    Catalog,
    CatalogColumn,
    CatalogError,
    CatalogRejected,
    CatalogSettings,
    CatalogTable,
    CatalogUnavailable,
    Entry,
    ExternalSchemas,
    NotOurs,
)
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import ServedFile
from manifest_platform.nested_types import rewritten

if TYPE_CHECKING:
    from manifest_platform.merging.inventory import Inventory

BATCH = 100
"""Largest number of partitions in one request (Glue's limit)."""

_FORMATS = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {
        "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        "Parameters": {"serialization.format": "1"},
    },
}
_PARTITION_KEYS = [{"Name": DATE_COLUMN, "Type": "date"}]
_KEPT = ("Description", "Owner", "Retention")
"""Fields of a table's entry that other people may set. They are copied, because an update would otherwise clear them."""

_HIVE_TYPES = {"integer": "int", "json": "string"}
_COMMENTED = ("string(", "json")
"""Logical types without a Hive type of their own: a column without a comment gets the type as its comment."""
_LONGEST_COMMENT = 255

_TRANSIENT = (
    "ConcurrentModificationException",
    "FederationSourceRetryableException",
    "InternalServiceException",
    "OperationTimeoutException",
    "RequestLimitExceeded",
    "ResourceNotReadyException",
    "Throttling",
    "ThrottlingException",
)
_MISSING, _EXISTS = "EntityNotFoundException", "AlreadyExistsException"


class _NotFound(CatalogRejected):
    """The requested entry does not exist."""


class _Exists(CatalogRejected):
    """The entry to create exists already."""


class GlueSettings(CatalogSettings):
    """AWS Glue's Data Catalog. Credentials and an endpoint override come only from the environment."""

    kind: Literal["glue"] = Field(description="AWS Glue's Data Catalog")
    prefix: str = Field("", pattern=r"^[a-z0-9_]*$", description="text before the dataset's name in the database's name")
    suffix: str = Field("", pattern=r"^[a-z0-9_]*$", description="text after the dataset's name in the database's name")
    region: str | None = Field(None, description="the AWS region, if not set by the environment")
    read_by = "glue"

    def of_deployment(self, deployment: str) -> GlueSettings:
        """The same data catalog, with the deployment appended to the names of databases."""
        return self.model_copy(update={"suffix": f"{self.suffix}_{identifier(deployment)}"})

    def open(self, inventory: Inventory) -> GlueCatalog:
        """Opens Glue; the inventory is not used."""
        return GlueCatalog(self.prefix, self.suffix, self.region)

    def database(self, schema: str) -> str:
        """The database in Glue, preceded by the region if it is configured."""
        return f"{self.region + ' ' if self.region else ''}{self.prefix}{schema}{self.suffix}"


class GlueCatalog(Catalog):
    """Tables in AWS Glue, in databases named `prefix` + schema + `suffix`. Databases are created, but never deleted."""

    def __init__(self, prefix: str = "", suffix: str = "", region: str | None = None):
        self.requests = 0
        self._prefix, self._suffix = prefix, suffix
        self._client = _open_client(region)

    def known_as(self, table: CatalogTable) -> str:
        """Database and table in lower case, the only case that Glue has."""
        return f"{self._database(table.schema)}.{table.name.lower()}"

    def external_schemas(
        self, schemas: Sequence[str], role: str | None, grantees: Sequence[str], name: str | None
    ) -> ExternalSchemas:
        """The SQL that lets Redshift Spectrum read the tables."""
        databases = sorted({self._database(schema) for schema in schemas})
        return spectrum.external_schemas(databases, self._client.meta.region_name, role, grantees, name)

    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        """The state of the entries, with one request for each hundred tables of the database."""
        listed = self._paged("get_tables", "TableList", DatabaseName=self._database(schema))
        found = {entry["Name"]: entry for entry in listed}
        return {table: _entry_state(found.get(table.name.lower()), table) for table in tables}

    def put_table(self, table: CatalogTable) -> None:
        """Creates or updates the table, and its database if it does not exist. Refuses a table that is not ours."""
        database = self._database(table.schema)
        name = table.name.lower()
        wanted = _table_input(table)
        try:
            found = self._call("get_table", DatabaseName=database, Name=name)["Table"]
        except _NotFound:
            self._create_table(database, wanted)
            return
        if _keys(found) != _PARTITION_KEYS:
            raise CatalogRejected(
                f"Glue table {database}.{name} is partitioned by {_keys(found)} instead of {DATE_COLUMN}: remove it or"
                " rename our table; the next publication creates it again with all its partitions"
            )
        if _location(found) != table.location and table.table.catalog_name != self.known_as(table):
            raise CatalogRejected(
                f"Glue table {database}.{name} is not ours: its location is {_location(found)} and not {table.location};"
                " remove it or rename our table, because otherwise readers would see rows of another table"
            )
        kept = {key: found[key] for key in _KEPT if key in found}
        parameters = {**found.get("Parameters", {}), **wanted["Parameters"]}
        self._call("update_table", DatabaseName=database, TableInput={**kept, **wanted, "Parameters": parameters})

    def remove_table(self, known_as: str, location: str) -> None:
        """Removes a table and its partitions. Raises NotOurs if its location is not ours."""
        database, _, name = known_as.partition(".")
        try:
            found = self._call("get_table", DatabaseName=database, Name=name)["Table"]
            if _location(found) != location:
                raise NotOurs(
                    f"Glue table {known_as} was renamed, but its old name now belongs to {_location(found)}: it is not removed"
                )
            self._call("delete_table", DatabaseName=database, Name=name)
        except _NotFound:
            return

    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        """Writes the manifest file. Its files are mandatory: a query fails on a missing file instead of omitting its rows."""
        entries = [{"url": file.uri, "mandatory": True, "meta": {"content_length": file.bytes}} for file in files]
        try:
            storage.write_bytes(
                self.location(table, day, served), orjson.dumps({"entries": entries}, option=orjson.OPT_INDENT_2)
            )
        except OSError as error:
            raise CatalogUnavailable(f"{self.location(table, day, served)} cannot be written: {error}") from error

    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        """Creates or updates the partitions, a hundred in a request. Existing ones are updated, missing ones are created."""
        inputs = {day: self._partition_input(table, day, one) for day, one in sorted(served.items())}
        failed = self._create(table, {day: one for day, one in inputs.items() if day in new})
        failed |= self._update(table, {day: one for day, one in inputs.items() if day not in new})
        existing = {day: inputs[day] for day, error in failed.items() if isinstance(error, _Exists)}
        gone = {day: inputs[day] for day, error in failed.items() if isinstance(error, _NotFound)}
        again = self._update(table, existing) | self._create(table, gone)
        return {day: error for day, error in failed.items() if day not in existing and day not in gone} | again

    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        """The URI of the manifest file."""
        if served.live:
            return names.live_manifest_uri(table.output, table.table, day, served.newest)
        return names.manifest_uri(table.output, table.table, day, served.newest, served.generation)

    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        """The location of each partition in Glue."""
        found = self._paged("get_partitions", "Partitions", **self._at(table), ExcludeColumnSchema=True)
        return {date.fromisoformat(one["Values"][0]): _location(one) for one in found}

    def _database(self, schema: str) -> str:
        return f"{self._prefix}{schema}{self._suffix}".lower()

    def _partition_input(self, table: CatalogTable, day: date, served: Served) -> dict[str, Any]:
        descriptor = {"Columns": [], "Location": self.location(table, day, served), **_FORMATS}
        return {"Values": [day.isoformat()], "StorageDescriptor": descriptor}

    def _create(self, table: CatalogTable, inputs: Mapping[date, Any]) -> dict[date, CatalogError]:
        def create(batch: Sequence[date]) -> Iterator[tuple[list[str], dict[str, str]]]:
            listed = [inputs[day] for day in batch]
            answer = self._call("batch_create_partition", **self._at(table), PartitionInputList=listed)
            return ((one["PartitionValues"], one["ErrorDetail"]) for one in answer.get("Errors", []))

        return self._in_batches(table, list(inputs), create)

    def _update(self, table: CatalogTable, inputs: Mapping[date, Any]) -> dict[date, CatalogError]:
        def update(batch: Sequence[date]) -> Iterator[tuple[list[str], dict[str, str]]]:
            listed = [{"PartitionValueList": inputs[day]["Values"], "PartitionInput": inputs[day]} for day in batch]
            answer = self._call("batch_update_partition", **self._at(table), Entries=listed)
            return ((one["PartitionValueList"], one["ErrorDetail"]) for one in answer.get("Errors", []))

        return self._in_batches(table, list(inputs), update)

    def _in_batches(self, table: CatalogTable, days: Sequence[date], change: _Change) -> dict[date, CatalogError]:
        """Returns the error of each failed partition. A request may fail for some or for all of its partitions."""
        failed: dict[date, CatalogError] = {}
        for start in range(0, len(days), BATCH):
            batch = days[start : start + BATCH]
            try:
                for values, detail in change(batch):
                    name = f"Glue partition {self.known_as(table)} {values[0]}"
                    failed[date.fromisoformat(values[0])] = _error(name, detail["ErrorCode"], detail.get("ErrorMessage", ""))
            except CatalogError as error:
                failed |= dict.fromkeys(batch, error)
        return failed

    def _at(self, table: CatalogTable) -> dict[str, str]:
        return {"DatabaseName": self._database(table.schema), "TableName": table.name.lower()}

    def _paged(self, operation: str, listed: str, **parameters: Any) -> list[dict[str, Any]]:
        """Reads all pages of a listing; empty if the database or table does not exist."""
        found: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            try:
                answer = self._call(operation, **parameters, **token)
            except _NotFound:
                return found
            found += answer[listed]
            if not answer.get("NextToken"):
                return found
            token = {"NextToken": answer["NextToken"]}

    def _create_table(self, database: str, wanted: Mapping[str, Any]) -> None:
        try:
            self._call("create_table", DatabaseName=database, TableInput=wanted)
        except _NotFound:
            with contextlib.suppress(_Exists):  # created concurrently
                self._call("create_database", DatabaseInput={"Name": database})
            self._call("create_table", DatabaseName=database, TableInput=wanted)

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as NoConnection
        from botocore.parsers import ResponseParserError

        self.requests += 1
        name = f"Glue {operation}"
        try:
            return getattr(self._client, operation)(**parameters)
        except ClientError as error:
            details, status = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
            raise _error(name, details["Code"], details["Message"], status >= 500) from error
        except (HTTPClientError, NoConnection, ResponseParserError) as error:
            raise CatalogUnavailable(f"{name}: {error}") from error
        except BotoCoreError as error:
            raise CatalogRejected(f"{name}: {error}; set credentials and region in the way of all AWS tools") from error


def hive_type(logical: str) -> str:
    """The Hive type of a logical type. Hive's strings have no length limit that readers rely on."""
    return rewritten(logical, _hive_scalar, "struct<{}>", "array<{}>", "{name}:{type}")


def _hive_scalar(logical: str) -> str:
    return _HIVE_TYPES.get(logical) or ("string" if logical.startswith("string") else logical)


_Change = Callable[[Sequence[date]], Iterable[tuple[list[str], dict[str, str]]]]


def _open_client(region: str | None) -> Any:
    from botocore.exceptions import BotoCoreError

    try:
        return aws.client("glue", region=region)
    except BotoCoreError as error:
        raise CatalogRejected(f"Glue: {error}; set credentials and region in the way of all AWS tools") from error


def _error(name: str, code: str, message: str, transient: bool = False) -> CatalogError:
    text = f"{name}: {code}: {message}"
    if transient or code in _TRANSIENT:
        return CatalogUnavailable(text)
    return {_MISSING: _NotFound, _EXISTS: _Exists}.get(code, CatalogRejected)(text)


def _entry_state(entry: Mapping[str, Any] | None, table: CatalogTable) -> Entry:
    if entry is None:
        return "missing"
    wanted = _table_input(table)
    same = _descriptor(entry) == _descriptor(wanted) and _keys(entry) == _PARTITION_KEYS
    return "current" if same else "outdated"


def _descriptor(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an entry that decide whether it is current. Other people may change the rest."""
    descriptor = entry.get("StorageDescriptor", {})
    columns = [(one["Name"], one.get("Type"), one.get("Comment", "")) for one in descriptor.get("Columns", [])]
    serde = descriptor.get("SerdeInfo", {})
    return {
        "columns": columns,
        "location": _location(entry),
        "formats": (descriptor.get("InputFormat"), descriptor.get("OutputFormat")),
        "serde": (serde.get("SerializationLibrary"), serde.get("Parameters")),
        "classification": entry.get("Parameters", {}).get("classification"),
    }


def _keys(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"Name": key["Name"], "Type": key.get("Type", "")} for key in entry.get("PartitionKeys", [])]


def _location(entry: Mapping[str, Any]) -> str:
    return entry.get("StorageDescriptor", {}).get("Location", "")


def _table_input(table: CatalogTable) -> dict[str, Any]:
    return {
        "Name": table.name.lower(),
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
        "PartitionKeys": _PARTITION_KEYS,
        "StorageDescriptor": {"Columns": [_column(one) for one in table.columns], "Location": table.location, **_FORMATS},
    }


def _column(column: CatalogColumn) -> dict[str, str]:
    text = column.comment or (column.type if column.type.startswith(_COMMENTED) else "")
    comment = " ".join(text.split())[:_LONGEST_COMMENT]  # Glue allows a single line
    return {"Name": column.name, "Type": hive_type(column.type)} | ({"Comment": comment} if comment else {})
