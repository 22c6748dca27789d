"""The Lambda that wakes Dagster: what counts, what becomes one request, and what comes again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws

from manifest_platform.manifest import Application, Record, State
from manifest_platform_tests import waking
from manifest_platform_tests.waking import landed, s3_record, sqs, stream

RUN = "landing/run=2024-05-14-12-00-00"
JOBS = [
    {"job": "shop_drain", "dataset": "shop", "landing": ["s3://b/landing/"], "marker": "_SUCCESS"},
    {"job": "ward_drain", "dataset": "ward", "landing": ["s3://b/ward/", "s3://c/"], "feeds": ["incr", "full"]},
    {"job": "ward_logs", "dataset": "ward", "feeds": ["log"]},
]


class Dagster:
    """A server that answers like Dagster's GraphQL. `waiting`: the jobs whose runs wait; `answer`: what it says instead."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.waiting: set[str] = set()
        self.answer: tuple[int, bytes] | None = None
        dagster = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                dagster.asked.append(asked)
                dagster.headers.append(dict(self.headers))
                status, said = dagster.answer or (200, json.dumps({"data": dagster.said(asked)}).encode())
                self.send_response(status)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: Any, **__: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/graphql"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def said(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "filter" in asked["variables"]:
            found = [{"jobName": job} for job in sorted(self.waiting)]
            return {"runsOrError": {"__typename": "Runs", "results": found}}
        runs = asked["variables"]["runs"]
        self.waiting |= {one["selector"]["jobName"] for one in runs}
        made = [{"__typename": "LaunchRunSuccess", "run": {"runId": "1"}} for _ in runs]
        return {"launchMultipleRuns": {"__typename": "LaunchMultipleRunsResult", "launchMultipleRunsResult": made}}

    @property
    def launches(self) -> list[list[str]]:
        return [
            [one["selector"]["jobName"] for one in asked["variables"]["runs"]]
            for asked in self.asked
            if "runs" in asked["variables"]
        ]


@pytest.fixture
def dagster() -> Iterator[Dagster]:
    made = Dagster()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def wake(dagster: Dagster, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("WAKE", json.dumps({"url": dagster.url, "jobs": JOBS}))
    return waking.loaded()


def row(state: State, application: str, author: str = "kim, manifest-platform 0.2.0", feed: str = "enriched") -> dict[str, Any]:
    """A record's row, as the store in DynamoDB writes it."""
    record = Record("s3://b/landing/x", 2, "id", state, Application(application), author, datetime(2024, 5, 14, 12, tzinfo=UTC))
    sort = f"RECORD#{feed}#2024-05-14T12:00:00.000000Z#s3://b/landing/x#000002"
    return {
        "partition": {"S": "shop"},
        "sort": {"S": sort},
        "version": {"N": "1"},
        "data": {"S": json.dumps(record.to_dict())},
    }


MARKER = f"{RUN}/_SUCCESS"
BODY = {"Records": [s3_record(MARKER)]}
OF_EVENTBRIDGE = {
    "version": "0",
    "detail-type": "Object Created",
    "source": "aws.s3",
    "detail": {"version": "0", "bucket": {"name": "b"}, "object": {"key": MARKER, "size": 0}, "reason": "PutObject"},
}
OF_SNS = {"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:1:t", "Message": json.dumps(BODY)}


@pytest.mark.parametrize(
    "event",
    [
        sqs(json.dumps(BODY)),
        BODY,
        sqs(json.dumps(OF_SNS)),
        {"Records": [{"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": OF_SNS}]},
        OF_EVENTBRIDGE,
        sqs(json.dumps(OF_EVENTBRIDGE)),
    ],
    ids=["queue", "direct", "topic and queue", "topic", "bridge", "bridge and queue"],
)
def test_a_marker_wakes_its_job_in_every_form_of_s3s_events(wake: ModuleType, dagster: Dagster, event: dict[str, Any]) -> None:
    assert "run%3D2024" in json.dumps(BODY), "S3 encodes the keys"
    assert wake.handler(event)["launched"] == ["shop_drain"]
    assert dagster.launches == [["shop_drain"]]


@pytest.mark.parametrize(
    "event",
    [
        landed(f"{RUN}/part-00000.gz", "other/run=1/_SUCCESS", "landing-of-another/_SUCCESS", f"{MARKER}.tmp"),
        sqs(json.dumps({"Records": [s3_record(MARKER, "another-bucket")]})),
        sqs(json.dumps({"Records": [s3_record(MARKER, name="ObjectRemoved:Delete")]})),
        sqs(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})),
        sqs("poison", "[]", "{}", '{"Records": [{}]}', '{"Records": 1}', "[" * 100_000, "null"),
        stream({"partition": {"S": "shop"}, "sort": {"S": "STATE#load"}, "version": {"N": "7"}, "data": {"S": "{}"}}),
        stream({"partition": {"S": "shop"}, "sort": {"S": "RECORD#enriched"}, "version": {"N": "7"}, "data": {"S": "no"}}),
    ],
    ids=["other objects", "another bucket", "a removal", "a trial", "poison", "other rows", "no record"],
)
def test_what_is_not_a_feeds_asks_dagster_for_nothing(wake: ModuleType, dagster: Dagster, event: dict[str, Any]) -> None:
    assert wake.handler(event) == {"about": [], "launched": []}
    assert dagster.asked == []


@pytest.mark.parametrize(
    ("image", "wakes"),
    [
        (row(State.NEW, "discover"), True),
        (row(State.RESOLVED, "load"), True),
        (row(State.SKIPPED, "load"), True),
        (row(State.PROCESSED, "shred"), True),
        (row(State.PROCESSED, "load"), False),
        (row(State.PROCESSING, "load"), False),
        (row(State.FAILED, "load"), False),
        (row(State.NEW, "discover", author="dagster sensor"), False),
        (row(State.PROCESSED, "shred", author="dagster"), False),
    ],
    ids=lambda one: one if isinstance(one, bool) else "",
)
def test_a_record_wakes_if_others_than_dagster_made_work(
    wake: ModuleType, dagster: Dagster, image: dict[str, Any], wakes: bool
) -> None:
    assert wake.handler(stream(image))["launched"] == (["shop_drain"] if wakes else [])


def test_jobs_of_a_dataset_are_told_apart_by_their_feeds(wake: ModuleType) -> None:
    of_logs = row(State.NEW, "discover", feed="log") | {"partition": {"S": "ward"}}
    assert wake.handler(stream(of_logs))["launched"] == ["ward_logs"]


def test_a_storm_is_one_launch_for_each_job_and_one_call(wake: ModuleType, dagster: Dagster) -> None:
    keys = [f"landing/run={number}/_SUCCESS" for number in range(9_000)] + [f"ward/{number}.csv" for number in range(1_000)]
    for start in range(0, 10_000, 500):
        some = [*keys[start : start + 500], *keys[:3]]  # some come twice, and the last of all come first
        wake.handler(landed(*reversed(some)))
    wake.handler(landed(keys[0], keys[-1]))
    assert dagster.launches == [["shop_drain"], ["ward_drain"]]
    dagster.waiting.clear()  # their runs have begun, and may have looked already
    wake.handler(landed(keys[0], keys[-1]))
    assert dagster.launches[2:] == [["shop_drain", "ward_drain"]]
    of_statuses = next(one["variables"]["filter"] for one in dagster.asked if "filter" in one["variables"])
    assert of_statuses == {"statuses": ["QUEUED", "STARTING"], "tags": [{"key": wake.WOKEN, "value": "true"}]}


REFUSED = {
    "__typename": "LaunchMultipleRunsResult",
    "launchMultipleRunsResult": [{"__typename": "PipelineNotFoundError", "message": "no"}],
}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, b""), "answered 500"),
        ((302, b""), "answered 302"),
        ((200, b"<html>"), "no answer of Dagster"),
        ((200, b"{}"), "no answer of Dagster"),
        ((200, json.dumps({"errors": [{"message": "unknown field"}]}).encode()), "unknown field"),
        ((200, json.dumps({"data": {"runsOrError": {"__typename": "PythonError", "message": "locked"}}}).encode()), "locked"),
    ],
)
def test_an_answer_without_a_run_lets_the_events_come_again(
    wake: ModuleType, dagster: Dagster, answer: tuple[int, bytes], message: str
) -> None:
    dagster.answer = answer
    with pytest.raises(wake.NotWoken, match=message):
        wake.handler(landed(MARKER))
    dagster.answer = None
    assert wake.handler(landed(MARKER))["launched"] == ["shop_drain"]


def test_a_job_that_dagster_refuses_lets_the_events_come_again(
    wake: ModuleType, dagster: Dagster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "_ask", lambda _wake, query, **_: {"results": []} if query is wake.WAITING else REFUSED)
    with pytest.raises(wake.NotWoken, match="did not start shop_drain: PipelineNotFoundError no"):
        wake.handler(landed(MARKER))


def test_a_server_that_is_gone_lets_the_events_come_again(wake: ModuleType, dagster: Dagster) -> None:
    dagster.server.shutdown()
    dagster.server.server_close()
    with pytest.raises(wake.NotWoken, match="gave no answer of Dagster: ConnectionRefusedError"):
        wake.handler(landed(MARKER))


@pytest.mark.parametrize("reference", ["secretsmanager:prod/dagster", "secretsmanager:prod/all#dagster", "ssm:/prod/dagster"])
def test_the_header_is_a_secret_by_reference_that_nothing_shows(
    dagster: Dagster, monkeypatch: pytest.MonkeyPatch, reference: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    said = {"url": dagster.url, "jobs": JOBS, "header": "Authorization", "secret": reference}
    monkeypatch.setenv("WAKE", json.dumps(said))
    wake = waking.loaded()
    with mock_aws():
        with pytest.raises(wake.NotWoken, match=f"the secret {reference} could not be read"):
            wake.handler(landed(MARKER))
        boto3.client("secretsmanager").create_secret(Name="prod/dagster", SecretString="Bearer hunter2")
        boto3.client("secretsmanager").create_secret(Name="prod/all", SecretString='{"dagster": "Bearer hunter2"}')
        boto3.client("ssm").put_parameter(Name="/prod/dagster", Value="Bearer hunter2", Type="SecureString")
        wake.handler(landed(MARKER))
        assert {one["Authorization"] for one in dagster.headers} == {"Bearer hunter2"}
        boto3.client("secretsmanager").put_secret_value(SecretId="prod/dagster", SecretString="Bearer new")
        boto3.client("secretsmanager").put_secret_value(SecretId="prod/all", SecretString='{"dagster": "Bearer new"}')
        boto3.client("ssm").put_parameter(Name="/prod/dagster", Value="Bearer new", Type="SecureString", Overwrite=True)
        dagster.answer = (403, b"")
        with pytest.raises(wake.NotWoken) as refused:
            wake.handler(landed(MARKER))
        assert dagster.headers[-1]["Authorization"] == "Bearer hunter2", "it is kept for some minutes"
        dagster.answer = None
        wake.handler(landed(MARKER))
        assert dagster.headers[-1]["Authorization"] == "Bearer new", "it is read again after a refusal"
    assert "hunter2" not in caplog.text + str(refused.value) + repr(wake.configured())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("{", "WAKE is not a configuration"),
        ('{"url": "http://d/graphql"}', "KeyError: 'jobs'"),
        ('{"url": "http://d/graphql", "jobs": [{"job": "j", "datset": "d"}]}', "datset"),
        ('{"url": "http://d/graphql", "jobs": [{"job": "j", "dataset": "d", "landing": ["s3://b/landing"]}]}', "end with /"),
        ('{"url": "dagster:3000", "jobs": []}', "url must be"),
        ('{"url": "http://u:hunter2@d/graphql", "jobs": []}', "without a password"),
        ('{"url": "http://d/graphql", "jobs": [], "header": "Authorization", "secret": "hunter2"}', "secret must be"),
    ],
)
def test_a_wrong_configuration_is_refused(monkeypatch: pytest.MonkeyPatch, said: str, message: str) -> None:
    monkeypatch.setenv("WAKE", said)
    with pytest.raises(ValueError, match=message) as refused:
        waking.loaded().handler(landed(MARKER))
    assert "hunter2" not in str(refused.value)


def test_the_file_needs_the_standard_library_alone() -> None:
    line = f"import sys; sys.path.insert(0, {str(waking.FILE.parent)!r}); import wake; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", line], capture_output=True, text=True, check=True)
    others = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert others == {"__main__", "wake"}
