"""The contract of a store, and `transact_once`, on each of our stores. A new driver is added to `servers.stores.DRIVERS`."""

from __future__ import annotations

import pytest

from manifest_platform.manifest import ConditionFailed, OutcomeUnknown, Store, StoreUnavailable
from manifest_platform.manifest.store import ABSENT, Put, StoreRejected, Write, transact_once
from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.testing.store import HERE, SharedStoreContract, sorts
from manifest_platform_tests.manifest.given import LossyStore

pytestmark = pytest.mark.every_store


class TestEveryStore(SharedStoreContract):
    """On SQLite, PostgreSQL and DynamoDB."""


# A write whose answer is lost


def own(mark: str = "mine", expected: int = ABSENT) -> list[Write]:
    return [Put("a", {"mark": mark}, expected), Put("b", {}, ABSENT)]


@pytest.mark.parametrize("fault", ["answer lost", "repeat refused"])
def test_an_own_write_is_recognized_after_a_lost_answer(store: Store, fault: str) -> None:
    transact_once(LossyStore(store, fault, at=1), HERE, own(), "mark")
    assert sorts(store) == ["a", "b"]


def test_a_lost_request_is_no_success(store: Store) -> None:
    with pytest.raises(StoreUnavailable):
        transact_once(LossyStore(store, "request lost", at=1), HERE, own(), "mark")
    assert sorts(store) == []


def test_another_process_write_is_not_taken_for_our_own(store: Store) -> None:
    transact_once(store, HERE, own("theirs"), "mark")
    with pytest.raises(ConditionFailed):
        transact_once(store, HERE, own("mine"), "mark")


def test_the_outcome_of_a_write_without_answer_or_read_back_stays_unknown(store: Store) -> None:
    with pytest.raises(OutcomeUnknown, match="no answer and could not be read back"):
        transact_once(LossyStore(store, "deaf", at=1), HERE, own(), "mark")
    assert sorts(store) == ["a", "b"]


def test_a_missing_table_is_a_permanent_error(store: Store) -> None:
    if isinstance(store, SqlStore):
        with store._database.engine.begin() as connection:
            schema = store._database.schema
            connection.exec_driver_sql(f"DROP TABLE {f'{schema}.' if schema else ''}manifest")
    else:
        assert isinstance(store, DynamoDbStore)
        store._client.update_table(TableName=store._address.table, DeletionProtectionEnabled=False)
        store._client.delete_table(TableName=store._address.table)
    with pytest.raises(StoreRejected):
        store.get("p", "a")
    with pytest.raises(StoreRejected):
        store.transact("p", [Put("a", {}, 0)], "token")
