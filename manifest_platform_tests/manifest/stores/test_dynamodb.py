"""The DynamoDB driver beyond the contract: faults between client and server, limits, cost, the table's settings.

The tests use DynamoDB Local, and moto for settings that DynamoDB Local lacks; those tests say so.
"""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError
from moto.server import ThreadedMotoServer

from manifest_platform import aws
from manifest_platform.demo.dynamodb import REGION, DynamoDbLocal
from manifest_platform.manifest import ConditionFailed, OutcomeUnknown, StoreUnavailable
from manifest_platform.manifest.store import ABSENT, Check, Put, RowDamaged, StoreRejected, Units, Write, transact_once
from manifest_platform.manifest.stores.dynamodb import store as driver
from manifest_platform.manifest.stores.dynamodb.client import Address
from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
from manifest_platform.manifest.stores.dynamodb.table import check_table, create_table
from manifest_platform.remedies import Action, Remedy
from manifest_platform.storage import ObjectFolder
from manifest_platform_tests.manifest.given import DONE, FEED, LOAD, SHRED, claim_next, discover, key, lease, manifest

HERE = "partition"


@pytest.fixture
def url(dynamodb: DynamoDbLocal) -> str:
    url = dynamodb.store(f"test-{uuid.uuid4().hex[:12]}")
    create_table(url)
    return url


@pytest.fixture
def store(url: str) -> Iterator[DynamoDbStore]:
    aws.forget()
    with closing(DynamoDbStore(url)) as store:
        aws.forget()  # the client that meets the faults is this store's alone
        yield store


@pytest.fixture
def other(url: str) -> Iterator[DynamoDbStore]:
    """The store of another worker on the same table."""
    with closing(DynamoDbStore(url)) as store:
        yield store


# The location of the table


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("dynamodb://Table", Address("Table")),
        ("dynamodb://a_b.c-1?region=eu-west-1", Address("a_b.c-1", "eu-west-1")),
        (
            "dynamodb://table?region=eu-west-1&endpoint=http://localhost:8000",
            Address("table", "eu-west-1", "http://localhost:8000"),
        ),
        ("dynamodb://table?endpoint=https%3A%2F%2Fhost%2F", Address("table", None, "https://host/")),
    ],
)
def test_a_url_gives_the_location_of_the_table(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamodb://", "allowed: dynamodb://TABLE"),
        ("dynamodb://ab", "allowed: dynamodb://TABLE"),
        ("dynamodb://key:secret@table", "allowed: dynamodb://TABLE"),
        ("dynamodb://table/more", "allowed: dynamodb://TABLE"),
        ("dynamodb:table", "allowed: dynamodb://TABLE"),
        ("dynamodb://table?regoin=eu-west-1", "unknown or repeated regoin"),
        ("dynamodb://table?region=a&region=b", "unknown or repeated parameter"),
        ("dynamodb://table?region=", "region must be a region's name"),
        ("dynamodb://table?region=Frankfurt am Main", "region must be a region's name"),
        ("dynamodb://table?endpoint=localhost:8000", "endpoint must be http"),
        ("dynamodb://table?endpoint=http://key:secret@host", "endpoint must be http"),
        ("dynamodb://table?endpoint=http://host/path", "endpoint must be http"),
        ("dynamodb://table?endpoint=http://host:port", "endpoint must be http"),
    ],
)
def test_an_invalid_url_is_refused_with_the_allowed_forms(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as error:
        Address.parse(url)
    assert "secret" not in str(error.value)


# Errors that only a person can repair


def rejected(url: str, says: str, remedy: Remedy | None = None) -> None:
    with pytest.raises(StoreRejected, match=says) as error, closing(DynamoDbStore(url)) as store:
        store.get(HERE, "a")
    assert error.value.remedy == remedy
    with pytest.raises(StoreRejected, match=says), closing(DynamoDbStore(url)) as store:
        transact_once(store, HERE, [Put("a", {"mark": "mine"}, ABSENT)], "mark")


def test_the_error_for_a_missing_table_names_the_command_that_creates_it(dynamodb: DynamoDbLocal) -> None:
    rejected(dynamodb.store("missing"), "table missing in eu-west-1 at http.*create the table", Remedy(Action.CREATE_STORE))


def test_missing_credentials_are_reported_with_the_remedy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    rejected(url, "Unable to locate credentials: give credentials as for every AWS tool")


def test_a_missing_region_and_an_unknown_profile_are_reported_with_the_remedy(
    dynamodb: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected("dynamodb://table", "You must specify a region: set the region in manifest.store")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    rejected(dynamodb.store("table"), "profile .*nobody.* could not be found: give credentials")


def test_a_region_and_credentials_come_from_a_profile(
    url: str, dynamodb: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    keys = "aws_access_key_id = a\naws_secret_access_key = b"
    profile = f"[profile mine]\n{keys}\nregion = {REGION}\nendpoint_url = {dynamodb.endpoint}\n"
    (tmp_path / "config").write_text(profile)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    with closing(DynamoDbStore(f"dynamodb://{Address.parse(url).table}")) as store:
        assert store.query(HERE, "") == []


def test_a_call_that_dynamodb_finds_invalid_is_rejected(store: DynamoDbStore) -> None:
    with pytest.raises(StoreRejected, match=r"ValidationError: .*range primary key values must be under 1024 bytes"):
        store.transact(HERE, [Put("a" * 1025, {}, ABSENT), Check("b", ABSENT)], "token")
    with pytest.raises(StoreRejected, match="ValidationException"):
        store.get(HERE, "")


# Faults between client and server: the client's connection meets them in its next calls instead of sending


Send = Callable[[Any], AWSResponse]
Fault = Callable[[Send, Any], AWSResponse]


def faults(store: DynamoDbStore, *each: Fault | None, rest: Fault | None = None) -> list[int]:
    """Injects each fault into one attempt, then `rest` into all others; returns a list that grows with the attempts."""
    session, left, attempts = store._client._endpoint.http_session, list(each), []
    send = session.send

    def faulty(request: Any) -> AWSResponse:
        attempts.append(len(attempts))
        fault = left.pop(0) if left else rest
        return fault(send, request) if fault else send(request)

    session.send = faulty
    return attempts


def request_lost(_send: Send, request: Any) -> AWSResponse:
    raise EndpointConnectionError(endpoint_url=request.url)


def answer_lost(send: Send, request: Any) -> AWSResponse:
    send(request)
    raise ConnectionClosedError(endpoint_url=request.url, request=request, error=None)


def vanished(_send: Send, request: Any) -> AWSResponse:
    raise ReadTimeoutError(endpoint_url=request.url, error=None)


class _Body:
    """A body in the form that urllib3 returns."""

    def __init__(self, content: bytes):
        self._content = content

    def stream(self, **_options: Any) -> Iterator[bytes]:
        yield self._content


def answers(status: int, code: str, **more: Any) -> Callable[[Send, Any], AWSResponse]:
    """Makes the server refuse with an error of its own."""
    content = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "said so", **more}).encode()
    return lambda _send, request: AWSResponse(request.url, status, {}, _Body(content))


throttled = answers(400, "ThrottlingException")
broken = answers(500, "InternalServerError")
busy = answers(400, "TransactionInProgressException")
in_conflict = answers(400, "TransactionConflictException")


def cancelled(*reasons: str) -> Callable[[Send, Any], AWSResponse]:
    return answers(400, "TransactionCanceledException", CancellationReasons=[{"Code": reason} for reason in reasons])


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the pauses of the test's thread instead of waiting. Other threads still wait."""
    pauses: list[float] = []
    sleep, mine = time.sleep, threading.get_ident()
    monkeypatch.setattr("time.sleep", lambda seconds: (pauses.append if threading.get_ident() == mine else sleep)(seconds))
    return pauses


PAIR: list[Write] = [Put("a", {"of": "mine"}, ABSENT), Check("b", ABSENT)]
ALONE: list[Write] = [Put("a", {"of": "mine"}, ABSENT, lasting=True)]
ways = pytest.mark.parametrize("writes", [PAIR, ALONE], ids=["transaction", "single put"])


@ways
@pytest.mark.parametrize("fault", [request_lost, answer_lost, vanished, throttled, broken, busy])
def test_a_transient_fault_goes_unnoticed_and_the_row_is_written_once(
    store: DynamoDbStore, no_pause: list[float], writes: list[Write], fault: Callable
) -> None:
    attempts = faults(store, fault)
    store.transact(HERE, writes, "token")
    assert len(attempts) == 2
    row = store.get(HERE, "a")
    assert row and row.version == 1


@ways
@pytest.mark.parametrize(
    ("fault", "kind", "written"),
    [
        (request_lost, StoreUnavailable, False),
        (throttled, StoreUnavailable, False),
        (busy, StoreUnavailable, False),
        (answer_lost, OutcomeUnknown, True),
        (vanished, OutcomeUnknown, False),
        (broken, OutcomeUnknown, False),
    ],
)
def test_the_error_of_a_lasting_fault_says_whether_the_row_may_be_written(
    store: DynamoDbStore,
    other: DynamoDbStore,
    no_pause: list[float],
    writes: list[Write],
    fault: Callable,
    kind: type[Exception],
    written: bool,
) -> None:
    attempts = faults(store, rest=fault)
    with pytest.raises(kind) as error:
        store.transact(HERE, writes, "token")
    assert type(error.value) is kind
    assert len(attempts) == aws.limits_of("dynamodb").attempts
    assert sum(no_pause) <= 7  # seconds
    assert (other.get(HERE, "a") is not None) == written
    with pytest.raises(StoreUnavailable):
        store.get(HERE, "a")
    with pytest.raises(StoreUnavailable):
        store.query(HERE, "")


@ways
@pytest.mark.parametrize("then", [request_lost, throttled, answers(400, "ValidationException"), in_conflict])
def test_later_answers_do_not_make_a_lost_answer_certain(
    store: DynamoDbStore, no_pause: list[float], writes: list[Write], then: Callable
) -> None:
    faults(store, answer_lost, rest=then)
    with pytest.raises(OutcomeUnknown):
        store.transact(HERE, writes, "token")


def test_an_earlier_lost_answer_does_not_make_a_later_call_unclear(store: DynamoDbStore, no_pause: list[float]) -> None:
    faults(store, answer_lost, None, rest=request_lost)
    store.transact(HERE, ALONE, "token")
    with pytest.raises(StoreUnavailable):
        store.transact(HERE, [Put("a", {}, 1, lasting=True)], "another")


def test_a_single_put_that_was_overwritten_before_its_repeat_stays_unknown(
    store: DynamoDbStore, other: DynamoDbStore, no_pause: list[float]
) -> None:
    def overwritten(send: Send, request: Any) -> AWSResponse:
        other.transact(HERE, [Put("a", {"of": "theirs"}, 1, lasting=True)], "theirs")
        return send(request)

    faults(store, answer_lost, overwritten)
    with pytest.raises(OutcomeUnknown, match="the row has changed since"):
        store.transact(HERE, ALONE, "mine")


@pytest.mark.parametrize("conflict", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_transaction_that_met_another_is_tried_again(store: DynamoDbStore, no_pause: list[float], conflict: str) -> None:
    attempts = faults(store, *[cancelled(conflict, "None")] * 3)
    store.transact(HERE, PAIR, "token")
    assert len(attempts) == 4 and len(no_pause) == 3
    faults(store, rest=cancelled(conflict, "None"))
    with pytest.raises(StoreUnavailable, match=f"{driver.CONFLICTS} tries met other transactions"):
        store.transact(HERE, PAIR, "another")
    assert max(no_pause) <= driver.LONGEST_PAUSE_S


def test_a_single_put_that_met_a_transaction_is_tried_again(store: DynamoDbStore, no_pause: list[float]) -> None:
    faults(store, in_conflict, in_conflict)
    store.transact(HERE, ALONE, "token")
    faults(store, rest=in_conflict)
    with pytest.raises(StoreUnavailable):
        store.transact(HERE, [Put("a", {}, 1, lasting=True)], "another")


def test_mixed_cancellation_reasons_report_failed_conditions_and_other_errors(store: DynamoDbStore) -> None:
    faults(
        store, cancelled("TransactionConflict", "ConditionalCheckFailed"), cancelled("None", "ItemCollectionSizeLimitExceeded")
    )
    with pytest.raises(ConditionFailed) as error:
        store.transact(HERE, PAIR, "token")
    assert error.value.failed == (PAIR[1],)
    with pytest.raises(StoreRejected, match="ItemCollectionSizeLimitExceeded"):
        store.transact(HERE, PAIR, "token")


def test_threads_that_write_the_same_rows_all_get_through(store: DynamoDbStore) -> None:
    """Each thread increments a counter and puts a row of its own in one transaction, and repeats until it succeeds."""
    start = threading.Barrier(4)

    def add(who: int) -> None:
        start.wait()
        for number in range(10):
            while True:
                row = store.get(HERE, "counter")
                version = row.version if row else ABSENT
                try:
                    store.transact(
                        HERE, [Put("counter", {}, version), Put(f"{who} {number}", {}, ABSENT)], f"{who} {number} {version}"
                    )
                    break
                except ConditionFailed:
                    continue

    with ThreadPoolExecutor(4) as pool:
        for added in [pool.submit(add, who) for who in range(4)]:
            added.result()
    counter = store.get(HERE, "counter")
    assert counter and counter.version == 40 == len(store.query(HERE, "")) - 1


@pytest.mark.parametrize("operation", ["get", "get_many", "query", "transact"])
def test_a_server_that_never_answers_is_given_up(
    dynamodb: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setitem(aws.LIMITS, "dynamodb", aws.Limits(3, 0.1, 4))
    call: Callable[[DynamoDbStore], object] = {
        "get": lambda store: store.get(HERE, "a"),
        "get_many": lambda store: store.get_many(HERE, ["a"]),
        "query": lambda store: store.query(HERE, ""),
        "transact": lambda store: store.transact(HERE, PAIR, "token"),
    }[operation]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"dynamodb://table?region={REGION}&endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
        with closing(DynamoDbStore(url)) as store, pytest.raises((StoreUnavailable, OutcomeUnknown)) as error:
            call(store)
    assert type(error.value) is (OutcomeUnknown if operation == "transact" else StoreUnavailable)


def test_every_read_is_strongly_consistent(store: DynamoDbStore) -> None:
    asked: list[dict] = []
    store._client.meta.events.register("before-parameter-build.dynamodb", lambda params, **_event: asked.append(params))
    store.get(HERE, "a")
    store.query(HERE, "")
    store.get_many(HERE, ["a", "b"])
    asked[2:] = [keys for params in asked[2:] for keys in params["RequestItems"].values()]
    assert [params["ConsistentRead"] for params in asked] == [True, True, True]


# Large rows


BIG = "x" * 290_000


def test_a_query_continues_beyond_a_megabyte(store: DynamoDbStore) -> None:
    for number in range(9):
        store.transact(HERE, [Put(f"P#{number}", {"of": BIG}, ABSENT)], str(number))
    before = store.requests
    whole = store.query(HERE, "P#")
    assert [row.sort for row in whole] == [f"P#{number}" for number in range(9)]
    assert store.requests - before >= 3
    assert store.query(HERE, "P#", limit=6) == whole[:6]
    assert store.query(HERE, "P#", after="P#1", limit=6) == whole[2:8]
    assert store.query(HERE, "P#", reverse=True) == whole[::-1]


def test_keys_that_do_not_fit_one_answer_are_requested_again(store: DynamoDbStore) -> None:
    """An answer holds at most 16 MB: DynamoDB returns the other keys as unprocessed."""
    wanted = [f"P#{number:02d}" for number in range(60)]
    for start in range(0, 60, 10):
        store.transact(HERE, [Put(sort, {"of": BIG}, ABSENT) for sort in wanted[start : start + 10]], str(start))
    before, units = store.requests, store.units
    found = store.get_many(HERE, wanted)
    assert sorted(found) == wanted and {row.data["of"] for row in found.values()} == {BIG}
    assert store.requests - before == 2
    assert (store.units - units).read >= 60 * 70 and (store.units - units).write == 0


def test_keys_that_are_never_answered_are_given_up(store: DynamoDbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A throttled table can answer with unprocessed keys only."""
    monkeypatch.setattr(driver, "FIRST_PAUSE_S", 0.0)

    def nothing(parsed: dict, **_event: object) -> None:
        keys = [{"partition": {"S": HERE}, "sort": {"S": "a"}}]
        parsed.update(Responses={}, UnprocessedKeys={store._address.table: {"Keys": keys}})

    store._client.meta.events.register("after-call.dynamodb.BatchGetItem", nothing)
    with pytest.raises(StoreUnavailable, match="10 tries answered none of 1 keys"):
        store.get_many(HERE, ["a"])


def outside(url: str) -> list[dict]:
    """The table's references to data that is stored outside."""
    address = Address.parse(url)
    client = boto3.client("dynamodb", region_name=address.region, endpoint_url=address.endpoint)
    pages = client.get_paginator("scan").paginate(TableName=address.table)
    return [item["outside"]["M"] for page in pages for item in page["Items"] if "outside" in item]


def objects(folder: Path) -> list[Path]:
    """The files that hold the large data."""
    return [file for file in folder.rglob("*") if file.is_file()]


@pytest.mark.parametrize("lasting", [False, True])
def test_data_too_large_for_a_row_is_stored_outside_and_read_back(url: str, tmp_path: Path, lasting: bool) -> None:
    data = {"of": "ü" * 100_000}
    with closing(DynamoDbStore(url, ObjectFolder(tmp_path / "overflow"))) as store:
        for _ in range(2):
            store.transact(HERE, [Put("a", data, ABSENT, lasting)], "token")
        row = store.get(HERE, "a")
        assert row and row.data == data
        assert store.get_many(HERE, ["a"]) == {"a": row}
        assert store.query(HERE, "") == [row]
        [pointer] = outside(url)
        [file] = objects(tmp_path / "overflow")
        assert (pointer["path"]["S"], pointer["sha256"]["S"][:32]) == (f"file://{file}", file.name.rpartition("-")[2])
        assert int(pointer["bytes"]["N"]) == file.stat().st_size
        store.transact(HERE, [Put("a", {}, 1, lasting)], "small again")
        assert outside(url) == []


def test_a_transaction_that_is_too_large_stores_its_largest_rows_outside(url: str, tmp_path: Path) -> None:
    writes = [Put(f"{number:02d}", {"of": "x" * (100_000 + number)}, ABSENT) for number in range(40)]
    with closing(DynamoDbStore(url, ObjectFolder(tmp_path))) as store:
        store.transact(HERE, writes, "token")
        assert [row.data for row in store.query(HERE, "")] == [write.data for write in writes]
    assert len(outside(url)) == len(objects(tmp_path)) == 6


def test_large_data_without_an_overflow_place_is_refused_and_the_setting_is_named(store: DynamoDbStore) -> None:
    store.transact(HERE, [Put("a", {"of": "x" * (driver.ROW_LIMIT - 9)}, ABSENT)], "just so")
    with pytest.raises(StoreRejected, match=r"RECORD#b has 307,201 bytes of data.*set manifest.overflow"):
        store.transact(HERE, [Put("RECORD#b", {"of": "x" * (driver.ROW_LIMIT - 8)}, ABSENT)], "too much")
    assert [row.sort for row in store.query(HERE, "")] == ["a"]


@pytest.fixture
def far(url: str, tmp_path: Path) -> Path:
    """The file that holds the data of row `a`."""
    with closing(DynamoDbStore(url, ObjectFolder(tmp_path / "overflow"))) as store:
        store.transact(HERE, [Put("a", {"of": "x" * 400_000}, ABSENT)], "token")
    [file] = objects(tmp_path / "overflow")
    return file


def test_changed_or_lost_large_data_is_reported(url: str, tmp_path: Path, far: Path) -> None:
    with closing(DynamoDbStore(url, ObjectFolder(tmp_path / "overflow"))) as store:
        far.write_bytes(far.read_bytes().replace(b"x", b"y", 1))
        with pytest.raises(RowDamaged, match=rf"the data of a in file://{far} has changed.*backup"):
            store.get(HERE, "a")
        far.unlink()
        with pytest.raises(RowDamaged, match=rf"the data of a is lost: restore file://{far} from"):
            store.query(HERE, "")


def test_reading_large_data_requires_the_overflow_place(url: str, far: Path, store: DynamoDbStore) -> None:
    with pytest.raises(StoreRejected, match=rf"the data of a is in file://{far}: set manifest.overflow"):
        store.get(HERE, "a")


class _Full:
    def put(self, _name: str, _data: bytes, /) -> str:
        raise OSError("no space left")

    def get(self, _path: str, /) -> bytes:
        raise OSError("no route to host")

    def list(self, _folder: str, /) -> NoReturn:
        raise OSError("no route to host")

    def remove(self, _path: str, /) -> NoReturn:
        raise OSError("no route to host")


def test_a_place_that_cannot_be_reached_is_unavailable_and_nothing_is_written(url: str, far: Path) -> None:
    with closing(DynamoDbStore(url, _Full())) as store:
        with pytest.raises(StoreUnavailable, match="no space left"):
            store.transact(HERE, [Put("b", {"of": "x" * 400_000}, ABSENT)], "token")
        with pytest.raises(StoreUnavailable, match="no route to host"):
            store.get(HERE, "a")
        with pytest.raises(StoreUnavailable, match="no route to host"):
            store.unnamed(HERE)
        with pytest.raises(StoreUnavailable, match="no route to host"):
            store.remove_object(f"file://{far}")
        assert store.get(HERE, "b") is None


def test_orphaned_objects_are_found_by_dataset_and_table(url: str, tmp_path: Path) -> None:
    """Two writes of the same content have an object each, so the superseded object has no owner."""
    with closing(DynamoDbStore(url, ObjectFolder(tmp_path))) as store:
        assert store.unnamed(HERE) == []
        for partition in (HERE, f"{HERE}2"):
            store.transact(partition, [Put("a", {"of": "x" * 400_000}, ABSENT)], "first")
        assert store.unnamed(HERE) == []
        store.transact(HERE, [Put("a", {"of": "x" * 400_000}, 1)], "second")
        [left] = store.unnamed(HERE)
        assert left.bytes > 400_000
        store.remove_object(left.path)
        store.remove_object(left.path)
        assert store.unnamed(HERE) == store.unnamed(f"{HERE}2") == []
        assert [store.get(partition, "a") is None for partition in (HERE, f"{HERE}2")] == [False, False]


# Cost


def test_the_units_that_the_server_charges_are_summed(store: DynamoDbStore) -> None:
    assert store.units == Units(0, 0)
    store.transact(HERE, [Put("a", {"of": "x" * 1500}, ABSENT, lasting=True)], "1")
    assert store.units == Units(0, 2)
    store.transact(HERE, [Put("a", {"of": "x" * 2500}, 1)], "2")
    assert store.units == Units(0, 2 + 6)
    store.get(HERE, "a")
    store.query(HERE, "")
    assert store.units == Units(2, 8)


@contextmanager
def charged(store: DynamoDbStore) -> Generator[list[int]]:
    """The write units of a store's calls by DynamoDB's rules, from the size of each item.

    A write costs a unit for each KB of the item that it begins, at least one, and twice that in a transaction. A check in a
    transaction costs the same as a write. DynamoDB Local counts items of equal size in a transaction once, so its sum is too
    low.
    """
    units: list[int] = []

    def size(item: dict[str, dict[str, str]]) -> int:
        return sum(len(name) + len(value) for name, typed in item.items() for value in typed.values())

    def note(params: dict, model: Any, **_event: Any) -> None:
        if model.name == "PutItem":
            units.append(math.ceil(size(params["Item"]) / 1024))
        for item in params.get("TransactItems", ()):
            [write] = item.values()
            units.append(2 * math.ceil(size(write.get("Item", write.get("Key"))) / 1024))

    store._client.meta.events.register("before-parameter-build.dynamodb", note)
    yield units


def test_an_item_costs_few_requests_and_units_from_discovered_to_applied(store: DynamoDbStore) -> None:
    of = manifest(store)
    of.known(FEED, [key(1)])
    with lease(of, SHRED) as shredding, lease(of, LOAD) as loading, charged(store) as units:
        discover(of, 1)
        before = store.requests
        [claim] = of.claim(shredding, of.waiting(FEED, "shred", 10)[0])
        of.complete(claim, DONE)
        of.complete(claim_next(of, loading), DONE)
        assert store.requests - before <= 8
        assert 20 < sum(units) <= 26


def test_boto3_is_loaded_when_a_store_is_opened_and_not_before() -> None:
    code = (
        "import sys, manifest_platform.manifest.stores.dynamodb.store, manifest_platform.config; print('boto3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# The table


def test_a_table_is_created_once_with_the_required_settings(dynamodb: DynamoDbLocal) -> None:
    url = dynamodb.store(f"test-{uuid.uuid4().hex[:12]}")
    assert create_table(url)
    assert check_table(url) == []
    assert not create_table(url)
    assert check_table(url) == []


@pytest.fixture
def imitation(dynamodb: DynamoDbLocal) -> Iterator[Any]:
    """The DynamoDB of moto, because DynamoDB Local has neither point-in-time recovery nor encryption."""
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield boto3.client("dynamodb", region_name=REGION, endpoint_url=f"http://{host}:{port}")
    server.stop()


def test_every_changed_setting_is_reported_with_the_command_that_repairs_it(imitation: Any) -> None:
    table, endpoint = f"test-{uuid.uuid4().hex[:12]}", imitation.meta.endpoint_url
    url = f"dynamodb://{table}?region={REGION}&endpoint={endpoint}"
    with pytest.raises(StoreRejected, match="create the table") as rejected:
        check_table(url)
    assert rejected.value.remedy == Remedy(Action.CREATE_STORE)
    keys = {"partition": "HASH", "sort": "RANGE"}
    imitation.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
    )
    imitation.update_time_to_live(TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"})
    found = {difference.setting: difference for difference in check_table(url)}
    assert list(found) == [
        "billing",
        "encryption",
        "deletion protection",
        "stream",
        "point-in-time recovery",
        "time to live",
    ]
    for difference in found.values():
        assert str(difference.mend).startswith("aws dynamodb update-")
        assert f"--table-name {table} " in str(difference.mend)
        assert str(difference.mend).endswith(f"--region {REGION} --endpoint-url {endpoint}")
    assert "AttributeName=expires_at" in str(found["time to live"].mend)

    # An existing table is not changed, except for the backups, which a crash may have left disabled.
    assert not create_table(url)
    assert {difference.setting for difference in check_table(url)} == found.keys() - {"point-in-time recovery"}


def test_a_new_table_has_every_setting(imitation: Any) -> None:
    url = f"dynamodb://test-{uuid.uuid4().hex[:12]}?region={REGION}&endpoint={imitation.meta.endpoint_url}"
    assert create_table(url)
    assert check_table(url) == []


def test_rows_of_a_memory_expire_and_rows_of_a_manifest_never_do(dynamodb: DynamoDbLocal) -> None:
    """The table expires rows by the attribute that a Put writes. DynamoDB Local has the expiry of rows."""
    memory, url = (dynamodb.store(f"test-{uuid.uuid4().hex[:12]}") for _ in range(2))
    assert create_table(memory, memory=True) and not create_table(memory, memory=True)
    assert check_table(memory, memory=True) == []
    [_, _, expiry] = check_table(memory)
    assert (expiry.setting, expiry.found) == ("time to live", "by expires")
    assert create_table(url)
    [expiry] = check_table(url, memory=True)
    assert str(expiry).startswith("time to live: off, but should be by expires. To repair it: aws dynamodb update-time-to-live")
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=dynamodb.endpoint)
    table = Address.parse(memory).table
    described = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    assert described == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires"}
    with closing(DynamoDbStore(memory)) as store:
        store.transact(HERE, [Put("a", {"x": 1}, ABSENT, expires=4_000_000_000), Put("b", {}, ABSENT)], "token")
        row = store.get(HERE, "a")
        assert row and row.data == {"x": 1}
    stored = {item["sort"]["S"]: item.get("expires") for item in client.scan(TableName=table)["Items"]}
    assert stored == {"a": {"N": "4000000000"}, "b": None}


def test_a_table_of_other_keys_is_reported(dynamodb: DynamoDbLocal) -> None:
    table = f"test-{uuid.uuid4().hex[:12]}"
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=dynamodb.endpoint)
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
        DeletionProtectionEnabled=True,
    )
    keys, stream = check_table(dynamodb.store(table))
    assert str(keys).startswith("keys: id N HASH, but should be partition S HASH, sort S RANGE")
    assert str(stream).startswith("stream: KEYS_ONLY, but should be NEW_AND_OLD_IMAGES")
    assert "StreamEnabled=false" in str(stream.mend) and "then" in str(stream.mend)


def test_waiting_for_a_table_that_never_becomes_active_ends_with_an_error(
    dynamodb: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifest_platform.manifest.stores.dynamodb.table.WAIT_S", 0)
    monkeypatch.setattr("manifest_platform.manifest.stores.dynamodb.table._Table.create", lambda _table: True)
    with pytest.raises(StoreUnavailable, match="not active after 0 s; repeat the command"):
        create_table(dynamodb.store("never"))
