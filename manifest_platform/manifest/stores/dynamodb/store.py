"""The manifest store in a DynamoDB table, by boto3.

Belongs here: the store contract in DynamoDB's calls. `table` creates and checks the table itself. Writes are transactions whose
request token makes a repeat safe; reads are strongly consistent. A row's data is one JSON text: it is read back exactly as
written, numbers included, and it takes the fewest bytes, which DynamoDB charges for. boto3 is loaded when a store is opened,
not before.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from manifest_platform.manifest.store import (
    ABSENT,
    Check,
    ConditionFailed,
    Difference,
    OutcomeUnknown,
    Put,
    Row,
    RowDamaged,
    Store,
    StoreError,
    StoreRejected,
    StoreUnavailable,
    Units,
    Write,
    check_writes,
)
from manifest_platform.manifest.stores.driver import Driver, Objects, StoredObject
from manifest_platform.manifest.stores.dynamodb.client import EXPIRES, Address, failure, open_client
from manifest_platform.notices import Notices

CONFLICTS = 10
"""The most tries of a transaction that conflicts with another in its rows; botocore does not repeat those."""
KEYS_A_CALL = 100
"""The most keys in one BatchGetItem."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0

ROW_LIMIT = 300 * 1024
"""The size, in bytes, beyond which data is stored outside the table: DynamoDB's rows hold 400 KB including their keys."""
TRANSACTION_LIMIT = 3_500_000
"""The most bytes of data that one transaction may put into the table: DynamoDB's limit is 4 MB including the keys."""

_CONDITIONS = ("TransactionCanceledException", "ConditionalCheckFailedException", "TransactionConflictException")
_PASSING_REASONS = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")


class _CallState(threading.local):
    """The state of a thread's call: whether one of its attempts may have been carried out although no answer says so."""

    unclear = False


class _Calling(threading.local):
    """The call that a thread makes now: the state of its store. Stores share a client, whose hook finds it here."""

    state = _CallState()


_calling = _Calling()


class DynamoDb(Driver):
    """`dynamodb://TABLE`, with `?region=` and `&endpoint=` if the environment does not set them."""

    example = "dynamodb://TABLE?region=eu-west-1"

    def checked(self, url: str, local_path: Callable[[str], str]) -> str:
        """The URL, unchanged."""
        del local_path
        Address.parse(url)
        return url

    def of_deployment(self, url: str, deployment: str) -> str:
        """A table beside this table: `TABLE-pr-7`."""
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{parts.netloc}-{deployment}"))

    def open(self, url: str, overflow: Objects | None) -> Store:
        """The store; the table must exist."""
        return DynamoDbStore(url, overflow)

    def create(self, url: str) -> bool:
        """Creates the table with all its settings, and waits until it is active."""
        from manifest_platform.manifest.stores.dynamodb.table import create_table

        return create_table(url)

    def create_memory(self, url: str) -> bool:
        """Creates a table whose rows expire."""
        from manifest_platform.manifest.stores.dynamodb.table import create_table

        return create_table(url, memory=True)

    def check_memory(self, url: str) -> tuple[str, list[Difference]]:
        """The table, and its differences from the required settings of a table whose rows expire."""
        from manifest_platform.manifest.stores.dynamodb.table import check_table

        return str(Address.parse(url)), check_table(url, memory=True)

    def check(self, url: str) -> tuple[str, list[Difference]]:
        """The table's name and place; its keys, billing, encryption, backups, stream and protection."""
        from manifest_platform.manifest.stores.dynamodb.table import check_table

        return str(Address.parse(url)), check_table(url)

    def notices(self, url: str) -> Notices:
        """The table's stream."""
        from manifest_platform.manifest.stores.dynamodb.stream import StreamNotices

        return StreamNotices(Address.parse(url))


class DynamoDbStore:
    """A store in a DynamoDB table. Safe for threads, processes and machines.

    `overflow` takes data that is too large for a row. Credentials, profile and assumed roles are found as boto3 finds them.
    Raises ValueError for any other URL, StoreRejected without a region.
    """

    removes_expired = True

    def __init__(self, url: str, overflow: Objects | None = None):
        self.requests = 0
        self.units = Units()
        self._address = Address.parse(url)
        self._overflow = overflow
        self._lock = threading.Lock()
        self._call_state = _CallState()
        self._client = open_client(self._address)
        # Stores of a process share the client, which calls a function of the module once an attempt.
        self._client.meta.events.register("response-received.dynamodb", _note_attempt, unique_id=__name__)

    def get(self, partition: str, sort: str) -> Row | None:
        """The row with a key, strongly consistent."""
        answer = self._read("get_item", Key=_key(partition, sort))
        return self._row(answer["Item"]) if "Item" in answer else None

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        """The rows with keys, by sort key. Keys without a row are left out."""
        table, rows, unanswered = self._address.table, [], 0
        left = [_key(partition, sort) for sort in dict.fromkeys(sorts)]
        while left:
            asked, left = left[:KEYS_A_CALL], left[KEYS_A_CALL:]
            answer = self._call("batch_get_item", RequestItems={table: {"Keys": asked, "ConsistentRead": True}})
            found = answer["Responses"].get(table, [])
            rows += [self._row(item) for item in found]
            unprocessed = answer["UnprocessedKeys"].get(table, {}).get("Keys", [])  # beyond 16 MB, or throttled
            left = unprocessed + left
            unanswered = unanswered + 1 if len(unprocessed) == len(asked) else 0
            if unanswered == CONFLICTS:
                raise StoreUnavailable(f"{self._address}: {CONFLICTS} tries answered none of {len(asked)} keys; try again")
            if unanswered:
                _pause(unanswered)
        return {row.sort: row for row in rows}

    def query(
        self,
        partition: str,
        prefix: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """The rows whose sort key starts with `prefix` and is beyond `after`, in order."""
        start = None
        if after is not None and after.startswith(prefix) and after:
            start = _key(partition, after)
        elif after is not None and (after <= prefix if reverse else after > prefix):
            return []
        condition, values = "#partition = :partition", {":partition": {"S": partition}}
        if prefix:
            condition, values = f"{condition} AND begins_with(#sort, :prefix)", {**values, ":prefix": {"S": prefix}}
        request = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": {f"#{name}": name for name in ("partition", "sort") if f"#{name}" in condition},
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not reverse,
        }
        rows: list[Row] = []
        while limit is None or len(rows) < limit:
            page = {} if limit is None else {"Limit": limit - len(rows)}
            answer = self._read("query", **request, **page, **({"ExclusiveStartKey": start} if start else {}))
            rows += [self._row(item) for item in answer["Items"]]
            start = answer.get("LastEvaluatedKey")
            if start is None:
                break
        return rows

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        """All writes or none."""
        check_writes(writes)
        token = hashlib.sha256(f"{self._address.table} {partition} {token}".encode()).hexdigest()[
            :36
        ]  # the maximum length of a token
        data = self._data_of(partition, writes, token)
        self._call_state.unclear = False
        for attempt in range(CONFLICTS):
            if attempt:
                _pause(attempt)
            if self._try(partition, writes, data, token):
                return
        kind = OutcomeUnknown if self._call_state.unclear else StoreUnavailable
        raise kind(f"{self._address}: {CONFLICTS} tries met other transactions in their rows, or throttling; try again")

    def unnamed(self, partition: str) -> list[StoredObject]:
        """The objects of a partition that no row names. If there are any objects, it reads all rows of the partition."""
        if self._overflow is None:
            return []
        try:  # listed before the rows: an object that is put meanwhile gets its row later
            found = [StoredObject(*one) for one in self._overflow.list(self._folder(partition))]
        except OSError as error:
            raise StoreUnavailable(f"{self._address}: manifest.overflow cannot be listed now: {error}") from error
        named = self._named(partition) if found else set()
        return [one for one in found if one.path not in named]

    def _named(self, partition: str) -> set[str]:
        """The paths of the objects that a partition's rows name."""
        request = {
            "KeyConditionExpression": "#partition = :partition",
            "FilterExpression": "attribute_exists(#outside)",
            "ProjectionExpression": "#outside",
            "ExpressionAttributeNames": {"#partition": "partition", "#outside": "outside"},
            "ExpressionAttributeValues": {":partition": {"S": partition}},
        }
        named: set[str] = set()
        start: dict | None = {}
        while start is not None:
            answer = self._read("query", **request, **({"ExclusiveStartKey": start} if start else {}))
            named |= {item["outside"]["M"]["path"]["S"] for item in answer["Items"]}
            start = answer.get("LastEvaluatedKey")
        return named

    def remove_object(self, path: str) -> None:
        """Removes an object, if it exists."""
        if self._overflow is None:
            return
        try:
            self._overflow.remove(path)
        except OSError as error:
            raise StoreUnavailable(f"{self._address}: {path} cannot be removed now: {error}") from error

    def close(self) -> None:
        """Does nothing: the process keeps the client, and its connections, for the next store."""

    def _try(self, partition: str, writes: Sequence[Write], data: Sequence[dict], token: str) -> bool:
        """True if the writes succeeded; False if they met another transaction. Raises ConditionFailed."""
        [first, *others] = writes
        if isinstance(first, Put) and first.lasting and not others:
            # Half the units of a transaction. The token identifies a repeat; a lasting row keeps it until it is overwritten.
            answer = self._call(
                "put_item",
                **self._put(partition, first, {**data[0], "token": {"S": token}}),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        else:
            items = [self._item(partition, write, content) for write, content in zip(writes, data, strict=True)]
            answer = self._call("transact_write_items", TransactItems=items, ClientRequestToken=token)
        match answer.get("Error", {}).get("Code"):
            case None:
                return True
            case "TransactionConflictException":
                return False
            case "ConditionalCheckFailedException":
                if answer.get("Item", {}).get("token", {}).get("S") == token:
                    return True
                if self._call_state.unclear:
                    raise OutcomeUnknown(f"{self._address}: {first.sort}: an answer was lost, and the row has changed since")
                raise ConditionFailed([first])
            case _:
                return self._cancelled(writes, answer)

    def _cancelled(self, writes: Sequence[Write], answer: dict) -> bool:
        reasons = [reason.get("Code") for reason in answer["CancellationReasons"]]
        failed = [write for write, reason in zip(writes, reasons, strict=True) if reason == "ConditionalCheckFailed"]
        if failed:
            raise ConditionFailed(failed)
        if any(reason in _PASSING_REASONS for reason in reasons):
            return False
        [(sort, why), *_] = [
            (write.sort, f"{reason['Code']}: {reason.get('Message')}")
            for write, reason in zip(writes, answer["CancellationReasons"], strict=True)
            if reason["Code"] != "None"
        ]
        raise StoreRejected(f"{self._address}: {sort}: {why}")

    # Rows and items

    def _item(self, partition: str, write: Write, data: dict) -> dict:
        if isinstance(write, Put):
            return {"Put": self._put(partition, write, data)}
        condition = _absent() if isinstance(write, Check) and write.expected == ABSENT else _at(write.expected)
        kind = "ConditionCheck" if isinstance(write, Check) else "Delete"
        return {kind: {"TableName": self._address.table, "Key": _key(partition, write.sort), **condition}}

    def _put(self, partition: str, write: Put, data: dict) -> dict:
        item = {**_key(partition, write.sort), "version": {"N": str(write.expected + 1)}, **data}
        if write.expires is not None:
            item[EXPIRES] = {"N": str(write.expires)}
        condition = _absent() if write.expected == ABSENT else _at(write.expected)
        return {"TableName": self._address.table, "Item": item, **condition}

    def _folder(self, partition: str) -> str:
        """The folder of a partition's objects. No other table's or dataset's objects have the same folder."""
        return f"{self._address.table}/{partition}"

    def _data_of(self, partition: str, writes: Sequence[Write], token: str) -> list[dict]:
        """The data attributes of each write. Data that is too large for the table is put outside first, largest first."""
        texts = [json.dumps(write.data, separators=(",", ":")) if isinstance(write, Put) else "" for write in writes]
        outside: set[int] = set()
        left = sum(map(len, texts))  # the text is ASCII
        for at in sorted(range(len(texts)), key=lambda at: -len(texts[at])):
            if len(texts[at]) <= ROW_LIMIT and left <= TRANSACTION_LIMIT:
                break
            outside.add(at)
            left -= len(texts[at])
        return [
            self._put_outside(write, text, f"{self._folder(partition)}/{token}")
            if at in outside
            else {"data": {"S": text}}
            if text
            else {}
            for at, (write, text) in enumerate(zip(writes, texts, strict=True))
        ]

    def _put_outside(self, write: Write, text: str, name: str) -> dict:
        if self._overflow is None:
            raise StoreRejected(
                f"{self._address}: {write.sort} has {len(text):,} bytes of data, more than a row holds: set manifest.overflow"
                " to a place for such data, s3://bucket/prefix or a path"
            )
        content = text.encode()
        checksum = hashlib.sha256(content).hexdigest()
        try:
            # Named by the transaction and the content: a repeat writes the same object, and no other write uses the name.
            path = self._overflow.put(f"{name}-{checksum[:32]}", content)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._address}: data of {write.sort} cannot be put into manifest.overflow: {error}"
            ) from error
        return {"outside": {"M": {"path": {"S": path}, "sha256": {"S": checksum}, "bytes": {"N": str(len(content))}}}}

    def _row(self, item: dict) -> Row:
        sort = item["sort"]["S"]
        text = item["data"]["S"] if "data" in item else self._from_outside(sort, item["outside"]["M"])
        return Row(item["partition"]["S"], sort, int(item["version"]["N"]), json.loads(text))

    def _from_outside(self, sort: str, outside: dict) -> bytes:
        path, checksum, size = outside["path"]["S"], outside["sha256"]["S"], int(outside["bytes"]["N"])
        if self._overflow is None:
            raise StoreRejected(f"{self._address}: the data of {sort} is in {path}: set manifest.overflow to read it")
        try:
            content = self._overflow.get(path)
        except FileNotFoundError as error:
            raise RowDamaged(f"{self._address}: the data of {sort} is lost: restore {path} from a backup") from error
        except OSError as error:
            raise StoreUnavailable(f"{self._address}: the data of {sort} in {path} cannot be read now: {error}") from error
        if hashlib.sha256(content).hexdigest() != checksum:
            raise RowDamaged(
                f"{self._address}: the data of {sort} in {path} has changed: {len(content)} bytes instead of {size} bytes with"
                f" SHA-256 {checksum}. Restore it from a backup"
            )
        return content

    # Calls

    def _read(self, operation: str, **parameters: Any) -> dict:
        self._call_state.unclear = False
        return self._call(operation, TableName=self._address.table, ConsistentRead=True, **parameters)

    def _call(self, operation: str, **parameters: Any) -> dict:
        """Calls DynamoDB. A failed condition is an answer too, under `Error`; any other error is raised."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        with self._lock:
            self.requests += 1
        outer, _calling.state = _calling.state, self._call_state
        try:
            answer = getattr(self._client, operation)(**parameters, ReturnConsumedCapacity="TOTAL")
        except ClientError as error:
            if error.response["Error"]["Code"] in _CONDITIONS:
                return error.response
            raise self._failure(operation, error) from error
        except (BotoCoreError, ResponseParserError) as error:
            raise self._failure(operation, error) from error
        finally:
            _calling.state = outer
        consumed = answer.get("ConsumedCapacity", [])
        for charged in consumed if isinstance(consumed, list) else [consumed]:
            self._charge(operation, charged)
        return answer

    def _charge(self, operation: str, charged: dict) -> None:
        units, read = charged.get("CapacityUnits", 0.0), charged.get("ReadCapacityUnits", 0.0)
        spent = Units(read=units) if operation in ("get_item", "batch_get_item", "query") else Units(read, units - read)
        with self._lock:
            self.units += spent

    def _failure(self, operation: str, error: Exception) -> StoreError:
        if operation in ("put_item", "transact_write_items") and self._call_state.unclear:
            return OutcomeUnknown(f"{self._address}: {error}")
        return failure(self._address, error)


def _note_attempt(exception: Exception | None, response_dict: dict | None, **_event: Any) -> None:
    """Notes if an attempt may have been carried out although no answer says so. botocore calls it after each attempt."""
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError

    never_sent = ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError
    if exception is not None:
        _calling.state.unclear |= not isinstance(exception, never_sent)
    elif response_dict and response_dict["status_code"] >= 500:
        _calling.state.unclear = True


def _pause(attempt: int) -> None:
    time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)))  # noqa: S311


def _key(partition: str, sort: str) -> dict:
    return {"partition": {"S": partition}, "sort": {"S": sort}}


def _absent() -> dict:
    return {"ConditionExpression": "attribute_not_exists(#version)", "ExpressionAttributeNames": {"#version": "version"}}


def _at(version: int) -> dict:
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":version": {"N": str(version)}},
    }
