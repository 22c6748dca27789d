"""Sessions of EMR Serverless: started once, waited for in time, signed with a token that is renewed, and ended."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import aws, masking
from manifest_platform.faults import Misconfigured, Transient
from manifest_platform.spark import client
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.places.emr_serverless import place, sessions
from manifest_platform.spark.places.emr_serverless.place import EmrServerless
from manifest_platform.spark.places.emr_serverless.sessions import Asked, _remote
from manifest_platform.spark.places.emr_serverless.tokens import Token, Tokens
from manifest_platform_tests.pipeline.shop import Shop, run_names
from manifest_platform_tests.servers.emr_sessions import APPLICATION, ROLE, Sessions, emr_sessions
from manifest_platform_tests.servers.spark import spark_connect

ASKED = Asked(APPLICATION, ROLE, "us-east-1", 15, (("spark.executor.memory", "8g"),))
ACCESS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "not-so-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setattr(sessions, "_POLL_S", 0.01)
    with emr_sessions() as service:
        service.endpoint = "https://session.emr-serverless.aws:443"
        for name, value in {**ACCESS, "AWS_ENDPOINT_URL_EMR_SERVERLESS": service.url}.items():
            monkeypatch.setenv(name, value)
        aws.use(aws.Choices(aws.Service(attempts=1)))
        yield service
        service.refusal = None
        sessions.end()
        aws.use(aws.Choices())


def test_a_session_is_started_with_role_properties_and_idle_time_and_waited_for(service: Sessions) -> None:
    service.states = ["SUBMITTED", "STARTING", "STARTED"]
    sessions.started(ASKED, 5)
    [body] = service.started
    assert body["clientToken"]
    assert {name: body[name] for name in ("executionRoleArn", "idleTimeoutMinutes", "configurationOverrides")} == {
        "executionRoleArn": ROLE,
        "idleTimeoutMinutes": 15,
        "configurationOverrides": {
            "runtimeConfiguration": [{"classification": "spark-defaults", "properties": {"spark.executor.memory": "8g"}}]
        },
    }
    assert service.calls == ["start", "look", "look", "look"]


def test_a_session_that_lives_is_used_again_and_one_that_ended_is_replaced(service: Sessions) -> None:
    first = sessions.started(ASKED, 5)
    assert sessions.started(ASKED, 5) is first
    service.states = ["TERMINATED", "STARTED"]
    assert sessions.started(ASKED, 5).id != first.id
    assert len(service.started) == 2


def test_a_session_that_emr_has_forgotten_is_replaced(service: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    first = sessions.started(ASKED, 5)
    service.ended.append(first.id)
    assert sessions.started(ASKED, 5).id != first.id
    assert not caplog.text, "nothing is left to end"


def test_an_application_that_is_gone_is_told(service: Sessions) -> None:
    sessions.started(ASKED, 5)
    service.refusal = (404, "ResourceNotFoundException")
    with pytest.raises(SparkUnavailable, match=r"StartSession is refused: .*check spark.application"):
        sessions.started(ASKED, 5)


def test_a_session_starts_with_all_properties_static_ones_too_and_its_workers_get_the_archive(
    service: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.conf").write_text("spark.executor.memory 8g\nspark.sql.extensions com.acme.Own\n")
    opened: list[tuple[Any, ...]] = []
    monkeypatch.setattr(client, "opened", lambda *given: opened.append(given))
    monkeypatch.setattr(place, "await_workers", lambda *_given: None)
    archive = tmp_path / "workers.tar.gz"
    own = EmrServerless(application=APPLICATION, role=ROLE, conf=str(tmp_path / "own.conf"), package=str(archive))
    with pytest.raises(SparkUnavailable, match=r"spark.package: .*workers.tar.gz does not exist: write it with `spark package"):
        own.session()
    assert service.calls == [], "a session costs money"
    archive.touch()
    own.session()
    [body] = service.started
    assert body["configurationOverrides"]["runtimeConfiguration"][0]["properties"] == {
        "spark.executor.memory": "8g",
        "spark.sql.extensions": "com.acme.Own",
    }
    [(_channels, _server, of_session, _advice, sent)] = opened
    assert (of_session, sent) == ({}, f"{archive}#manifest_platform_worker")


def test_a_session_is_ended_once(service: Sessions) -> None:
    session = sessions.started(ASKED, 5)
    sessions.end()
    sessions.end()
    assert service.ended == [session.id]


def test_a_session_that_cannot_be_ended_is_told_and_raises_nothing(service: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    sessions.started(ASKED, 5)
    service.refusal = (500, "InternalServerException")
    sessions.end()
    assert "EMR ends it after 15 idle minutes" in caplog.text


def test_capacity_that_never_comes_is_told_in_time_and_the_session_is_ended(service: Sessions) -> None:
    service.states, service.details = ["SUBMITTED"], "waiting for capacity"
    with pytest.raises(
        SparkUnavailable, match=r"has not started within .*: SUBMITTED: waiting for capacity. EMR may lack"
    ) as told:
        sessions.started(ASKED, 0.1)
    assert isinstance(told.value, Transient)
    assert len(service.ended) == 1, "what was started costs money"


def test_a_session_that_fails_is_told_with_the_services_own_words(service: Sessions) -> None:
    service.states, service.details = ["STARTING", "FAILED"], "the image cannot be pulled"
    with pytest.raises(
        SparkUnavailable, match=r"does not start: FAILED: the image cannot be pulled; aws emr-serverless get-session"
    ):
        sessions.started(ASKED, 5)


@pytest.mark.parametrize(
    ("status", "error", "kind", "told"),
    [
        (400, "ValidationException", Misconfigured, "StartSession is refused: .*check spark.application, spark.role"),
        (404, "ResourceNotFoundException", Misconfigured, "StartSession is refused"),
        (403, "AccessDeniedException", Misconfigured, "iam:PassRole"),
        (402, "ServiceQuotaExceededException", Transient, "StartSession is refused now: .*; the next drain tries again"),
        (409, "ConflictException", Transient, "refused now"),
        (500, "InternalServerException", Transient, "refused now"),
    ],
)
def test_a_refused_start_is_permanent_or_transient(
    service: Sessions, status: int, error: str, kind: type[Exception], told: str
) -> None:
    service.refusal = (status, error)
    with pytest.raises(SparkUnavailable, match=told) as caught:
        sessions.started(ASKED, 5)
    assert isinstance(caught.value, kind)


def test_a_service_out_of_reach_is_transient(service: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", "http://127.0.0.1:1")
    with pytest.raises(SparkUnavailable, match="StartSession gets no answer") as caught:
        sessions.started(ASKED, 5)
    assert isinstance(caught.value, Transient)


def token(text: str, renewed_in: float, expires_in: float) -> Token:
    now = datetime.now(UTC)
    return Token(text, now + timedelta(seconds=renewed_in), now + timedelta(seconds=expires_in))


def test_a_token_is_renewed_before_it_expires() -> None:
    fetched = iter([token("second", 60, 90), token("third", 60, 90)])
    tokens = Tokens(token("first", -1, 30), lambda: next(fetched))
    assert [tokens.text(), tokens.text()] == ["second", "second"]


def test_a_token_that_cannot_be_renewed_serves_as_long_as_it_lives(caplog: pytest.LogCaptureFixture) -> None:
    def unreachable() -> Token:
        raise SparkUnavailable("no answer")

    assert Tokens(token("first", -1, 30), unreachable).text() == "first"
    assert "is not renewed now: no answer" in caplog.text
    with pytest.raises(SparkUnavailable):
        Tokens(token("first", -60, -1), unreachable).text()


@pytest.mark.parametrize(("life", "renewed_in"), [(3600, 3300), (60, 48)])
def test_a_token_is_renewed_minutes_before_its_end_or_in_its_last_fifth(life: float, renewed_in: float) -> None:
    now = datetime.now(UTC)
    found = Token.of("a-token-of-some-length", now + timedelta(seconds=life))
    assert abs((found.renewed - now).total_seconds() - renewed_in) < 5


def test_a_token_is_masked_everywhere(service: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "manifest_platform")
    session = sessions.started(ASKED, 5)
    signed: Any = session.channels()._interceptors[0]
    tokens = signed._tokens
    [text] = service.tokens
    assert tokens.text() == text
    assert text not in repr(tokens._token)
    assert text not in caplog.text
    assert masking.masked(f"Bearer {text}") == "Bearer ***"


@pytest.mark.parametrize(
    ("endpoint", "remote"),
    [
        ("https://abc.emr-serverless.aws", "sc://abc.emr-serverless.aws:443/;use_ssl=true"),
        ("abc.emr-serverless.aws:8443", "sc://abc.emr-serverless.aws:8443/;use_ssl=true"),
        ("http://abc.emr-serverless.aws", "sc://abc.emr-serverless.aws:443/;use_ssl=true"),
        ("http://127.0.0.1:5", "sc://127.0.0.1:5"),
    ],
)
def test_a_connection_that_carries_a_token_is_encrypted_but_within_the_machine(endpoint: str, remote: str) -> None:
    assert _remote(endpoint) == remote


DRAIN = """
import sys
from manifest_platform.cli import main
sys.exit(main(["--config", sys.argv[1], "--json", "drain"]))
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_drain_works_through_a_session_whose_token_expires_and_ends_it(tmp_path: Path) -> None:
    with spark_connect(tmp_path) as server, emr_sessions(server) as service:
        service.token_seconds, service.grace_seconds = 2, 10
        (tmp_path / "own.conf").write_text("spark.executor.memory 8g\nspark.sql.shuffle.partitions 3\n")
        spark = {"where": "emr_serverless", "application": APPLICATION, "role": ROLE, "conf": str(tmp_path / "own.conf")}
        shop = Shop(tmp_path / "shop", spark=spark)
        shop.write(0, 1)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {**ACCESS, "AWS_ENDPOINT_URL_EMR_SERVERLESS": service.url}
        command = [sys.executable, "-c", DRAIN, str(shop.config_file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1])
    assert shop.seen.runs == run_names(0, 1)
    assert [one["configurationOverrides"]["runtimeConfiguration"][0]["properties"] for one in service.started] == [
        {"spark.executor.memory": "8g", "spark.sql.shuffle.partitions": "3"}
    ]
    assert len(service.ended) == 1
    assert len(service.admitted) > 1, "renewed"
    assert service.refused == [], "no request with an expired token"
    assert not [text for text in service.tokens if text in done.stdout + done.stderr]


def test_the_part_spark_of_a_configuration_names_the_session(tmp_path: Path) -> None:
    spark = {"where": "emr_serverless", "application": APPLICATION, "role": ROLE}
    shop = Shop(tmp_path, spark=spark)
    assert yaml.safe_load(shop.config_file.read_text())["spark"] == spark
    with shop.open() as pipeline:
        assert pipeline.config.spark.start_timeout_seconds == 600
        assert pipeline.config.spark.ends_idle_after == 900
        assert pipeline.config.spark.problem() == ""
