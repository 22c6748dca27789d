"""A client of Spark Connect whose server has gone: it waits for seconds, once, and ends without waiting."""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.retries import Retrying

from manifest_platform.spark import SparkUnavailable, client
from manifest_platform.spark.patience import Patience


class Gone(grpc.RpcError):
    """The error of a request that meets no server."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def trailing_metadata(self) -> tuple[Any, ...]:
        return ()

    def details(self) -> str:
        return "connection refused"


def requested(patience: Patience, failures: int) -> list[float]:
    """Returns the pauses of a request that fails at first. Raises Gone."""
    pauses: list[float] = []
    left = failures
    with warnings.catch_warnings(action="ignore"):
        for attempt in Retrying([patience], sleep=pauses.append):
            with attempt:
                if left:
                    left -= 1
                    raise Gone
                return pauses
    raise AssertionError("neither answered nor given up")


def test_a_request_to_a_server_that_has_gone_is_repeated_for_seconds_and_the_next_one_not_at_all() -> None:
    patience = Patience()
    assert sum(requested(patience, 4)) > 5, "a server that is started again is waited for"
    assert not patience.in_vain
    with pytest.raises(Gone):
        requested(patience, 100)
    assert patience.in_vain
    with pytest.raises(Gone):
        requested(patience, 1)


def test_the_wait_for_a_server_that_has_gone_is_short() -> None:
    pauses: list[float] = []
    with warnings.catch_warnings(action="ignore"), pytest.raises(Gone):
        for attempt in Retrying([Patience()], sleep=pauses.append):
            with attempt:
                raise Gone
    assert 5 < sum(pauses) <= 15


class Session:
    """In place of a session of a Connect server, which may have lost it."""

    def __init__(self, is_lost: bool = False) -> None:
        self.is_lost = is_lost
        self.policies: list[Any] = []
        self.client = SimpleNamespace(set_retry_policies=self.policies.extend)
        self.conf = SimpleNamespace(get=self.get, set=self.get)
        self.stopped: list[bool] = []

    def get(self, *_: object) -> str:
        if self.is_lost:
            raise PySparkException("[INVALID_HANDLE.SESSION_NOT_FOUND]")
        return "UTC"

    def stop(self) -> None:
        self.stopped.append(True)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The session of the client's process, at a server that answers."""
    found: list[Any] = []
    monkeypatch.setattr(client, "_opened", found)
    monkeypatch.setattr(client, "_answers", lambda *_: True)
    return found


def test_a_session_that_its_server_lost_is_replaced_and_nothing_is_told_of_its_properties(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost, another = Session(is_lost=True), Session()
    channels: Any = None
    opened.append(client._Opened("server", lost, channels))
    monkeypatch.setattr(client, "_made", lambda *_: another)
    found: Any = client.opened(channels, "server", {"spark.sql.session.timeZone": "UTC"}, "")
    assert found is another
    assert lost.stopped == [True]
    assert caplog.text == ""


def test_a_session_whose_server_is_back_gets_its_patience_back(opened: list[Any]) -> None:
    kept, channels = Session(), None
    opened.append(client._Opened("server", kept, channels))  # ty: ignore[invalid-argument-type]
    found: Any = client.opened(channels, "server", {}, "")  # ty: ignore[invalid-argument-type]
    assert found is kept
    assert [type(one) for one in kept.policies] == [Patience]
    assert not kept.policies[0].in_vain


@pytest.mark.parametrize("before", [None, "1"])
def test_a_session_that_has_ended_leaves_no_trace_by_which_pyspark_takes_the_next_for_one_of_a_server(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """A local session of the same process then failed with CONNECT_URL_NOT_SET."""
    from pyspark.sql.connect.session import SparkSession

    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", before or "")
    if before is None:
        monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")
    made = Session()

    def create() -> Session:
        assert os.environ["SPARK_CONNECT_MODE_ENABLED"] == "1"
        if made.is_lost:
            raise PySparkException("[CONNECT_URL_NOT_SET]")
        return made

    builder = SimpleNamespace(channelBuilder=lambda _: SimpleNamespace(create=create))
    monkeypatch.setattr(SparkSession, "builder", builder)
    channels: Any = None
    client.opened(channels, "server", {}, "")
    client.end()
    assert made.stopped == [True]
    assert os.environ.get("SPARK_CONNECT_MODE_ENABLED") == before
    made.is_lost = True
    with pytest.raises(SparkUnavailable, match="opens no session"):
        client.opened(channels, "server", {}, "")
    assert os.environ.get("SPARK_CONNECT_MODE_ENABLED") == before
