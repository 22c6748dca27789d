"""Wakes Dagster's drains as soon as something lands or is decided: an AWS Lambda for those without a follower.

Events of S3 come through SQS, SNS, EventBridge or by themselves; what is written to the manifest comes by DynamoDB's stream.
The function asks Dagster for a run of each drain job that the events are about, all of them in one call of GraphQL. If a run
waits already, it will find what is new, so no second run is asked for. Events are hints. Dagster's sensor finds what was lost;
what comes twice or in any order does no harm. If Dagster cannot be asked, the function fails, and the events come again.
This file needs the standard library, and boto3 (of the Lambda's runtime) only to read a secret.

The configuration is JSON, in the variable WAKE, or in the file wake.json beside this file:

    {"url": "http://dagster.internal:3000/graphql",
     "jobs": [{"job": "shop_drain", "dataset": "shop", "landing": ["s3://bucket/landing/"], "marker": "_SUCCESS"}],
     "header": "Authorization", "secret": "secretsmanager:prod/dagster#token", "location": "manifest_platform"}

jobs      `landing`: prefixes of objects that count; `marker`: the name of the file that completes a directory, if there is one;
          `feeds`: those of the job, if the dataset has several jobs
header    optional: the name of a header that Dagster's proxy wants; `secret` says where its value is: `secretsmanager:ID`,
          `secretsmanager:ID#KEY` for a key of its JSON, or `ssm:NAME`
location  the name of Dagster's code location
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlsplit

log = logging.getLogger()
log.setLevel(logging.INFO)

TIMEOUT_S = 10.0
SECRET_S = 300.0
"""The seconds for which a secret is kept."""
WOKEN = "manifest_platform/woken"
"""The tag of the runs that are asked for here."""

WAITING = """query($filter: RunsFilter!) { runsOrError(filter: $filter, limit: 1000) { __typename
  ... on Runs { results { jobName } } ... on PythonError { message } ... on InvalidPipelineRunsFilterError { message } } }"""
LAUNCH = """mutation($runs: [ExecutionParams!]!) { launchMultipleRuns(executionParamsList: $runs) { __typename
  ... on PythonError { message } ... on LaunchMultipleRunsResult { launchMultipleRunsResult { __typename
  ... on LaunchRunSuccess { run { runId } } ... on Error { message } } } } }"""
# A waiting run begins to look later than now. A run that has begun may have looked already, so one more waits for its end.
NOT_BEGUN = ["QUEUED", "STARTING"]
DECISIONS = ("New", "Resolved", "Skipped")


class NotWoken(Exception):
    """Dagster did not take the request: the events must come again."""


@dataclass(frozen=True)
class Job:
    """A drain job, and the events that are about it."""

    job: str
    dataset: str
    landing: tuple[str, ...] = ()
    marker: str = ""
    feeds: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Job:
        """Returns the job of a JSON object."""
        lists: dict[str, Any] = {name: tuple(told.get(name, ())) for name in ("landing", "feeds")}
        job = cls(**told | lists)
        if not all(place.startswith("s3://") and place.endswith("/") for place in job.landing):
            raise ValueError(f"landing of {job.job} must be a list of s3:// prefixes that end with /")
        return job

    def wants_object(self, uri: str) -> bool:
        """True for an object that may complete a directory below the landing roots."""
        return uri.startswith(self.landing) and (not self.marker or uri.endswith(f"/{self.marker}"))

    def wants_record(self, dataset: str, feed: str) -> bool:
        """True for a record of an item of the job's feeds."""
        return dataset == self.dataset and (not self.feeds or feed in self.feeds)


@dataclass(frozen=True)
class Wake:
    """The configuration. Raises ValueError for a wrong configuration."""

    url: str
    jobs: tuple[Job, ...]
    header: str = ""
    secret: str = field(default="", repr=False)
    location: str = "manifest_platform"
    repository: str = "__repository__"

    @classmethod
    def from_json(cls, text: str) -> Wake:
        """Returns the configuration of a text."""
        try:
            told: dict[str, Any] = json.loads(text)
            told["jobs"] = tuple(map(Job.from_dict, told["jobs"]))
            made = cls(**told)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"WAKE is not a configuration: {type(error).__name__}: {error}") from error
        if urlsplit(made.url).scheme not in ("http", "https") or "@" in urlsplit(made.url).netloc:
            raise ValueError("WAKE: url must be http://HOST/graphql or https://HOST/graphql, without a password")
        if made.header and not made.secret.startswith(("secretsmanager:", "ssm:")):
            raise ValueError("WAKE: secret must be secretsmanager:ID, secretsmanager:ID#KEY or ssm:NAME")
        return made


def handler(event: dict[str, Any], _context: object = None) -> dict[str, Any]:
    """Asks for a run of each drain job that the events are about. Raises NotWoken, so that the events come again."""
    wake = configured()
    about = _about(wake, event)
    launched = _launch(wake, about) if about else []
    log.info("woke %s of %s", launched, sorted(about))
    return {"about": sorted(about), "launched": launched}


_configured: dict[str, Wake] = {}


def configured() -> Wake:
    """Returns the configuration; read once, for as long as its text is the same."""
    text = os.environ.get("WAKE") or Path(__file__).with_name("wake.json").read_text()
    if text not in _configured:
        _configured[text] = Wake.from_json(text)
    return _configured[text]


# Events


def _about(wake: Wake, event: dict[str, Any]) -> dict[str, str]:
    """Returns the jobs that the events are about, and what woke each. What is no event of S3 or of the manifest is left out."""
    about: dict[str, str] = {}
    for record in event.get("Records", [event]):
        if record.get("eventSource") == "aws:dynamodb":
            found = _written(record["dynamodb"].get("NewImage"))
            about |= {one.job: "manifest" for one in wake.jobs if found and one.wants_record(*found)}
            continue
        try:
            uris = list(_objects(record))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("left out: it is not one of S3's events: %s", type(error).__name__)
            continue
        about |= {one.job: "landing" for one in wake.jobs if any(map(one.wants_object, uris))}
    return about


def _objects(told: Any) -> Iterator[str]:
    """Yields the objects of an event, which may lie within messages of SQS and SNS."""
    if "body" in told:  # SQS
        yield from _objects(json.loads(told["body"]))
    elif "Sns" in told:
        yield from _objects(json.loads(told["Sns"]["Message"]))
    elif told.get("Type") == "Notification":  # SNS within SQS
        yield from _objects(json.loads(told["Message"]))
    elif told.get("source") == "aws.s3":  # EventBridge, whose keys are as they are
        yield f"s3://{told['detail']['bucket']['name']}/{told['detail']['object']['key']}"
    elif "Records" in told:
        for record in told["Records"]:
            yield from _objects(record)
    elif told.get("Event") != "s3:TestEvent" and "ObjectRemoved" not in told["eventName"]:
        yield f"s3://{told['s3']['bucket']['name']}/{unquote_plus(told['s3']['object']['key'])}"


def _written(image: dict[str, Any] | None) -> tuple[str, str] | None:
    """Returns the dataset and the feed of a new record that may be work; None for any other row.

    What Dagster's own runs and sensors write is no news to Dagster.
    """
    try:
        if not image or not (sort := image["sort"]["S"]).startswith("RECORD#"):
            return None
        data = json.loads(image["data"]["S"]) if "data" in image else {}  # data of a large row is elsewhere
        shredded = data.get("state") == "Processed" and data["application"]["name"] == "shred"
        if (shredded or data.get("state") in DECISIONS) and not data["author"].startswith("dagster"):
            return image["partition"]["S"], sort.split("#")[1]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("left out: it is not a row of the manifest: %s", type(error).__name__)
    return None


# Dagster


def _launch(wake: Wake, about: dict[str, str]) -> list[str]:
    """Asks for a run of each job that has none waiting. Returns these jobs."""
    filtered = {"statuses": NOT_BEGUN, "tags": [{"key": WOKEN, "value": "true"}]}
    waiting = {one["jobName"] for one in _ask(wake, WAITING, filter=filtered)["results"]}
    if not (jobs := sorted(about.keys() - waiting)):
        return []
    answers = _ask(wake, LAUNCH, runs=[_run(wake, job, about[job]) for job in jobs])["launchMultipleRunsResult"]
    refused = {job: one for job, one in zip(jobs, answers, strict=True) if one["__typename"] != "LaunchRunSuccess"}
    if refused:
        said = "; ".join(f"{job}: {one['__typename']} {one.get('message', '')}" for job, one in refused.items())
        raise NotWoken(f"{wake.url} did not start {said}")
    return jobs


def _run(wake: Wake, job: str, by: str) -> dict[str, Any]:
    selector = {"repositoryLocationName": wake.location, "repositoryName": wake.repository, "jobName": job}
    tags = [{"key": WOKEN, "value": "true"}, {"key": f"{WOKEN}_by", "value": by}]
    return {"selector": selector, "runConfigData": {}, "executionMetadata": {"tags": tags}}


def _ask(wake: Wake, query: str, **variables: Any) -> dict[str, Any]:
    """Returns the only field of an answer. Raises NotWoken, without the header, if there is none."""
    headers = {"Content-Type": "application/json"}
    if wake.header:
        headers[wake.header] = _secret(wake.secret)
    body = json.dumps({"query": query, "variables": variables})
    parts = urlsplit(wake.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(parts.netloc, timeout=TIMEOUT_S)) as connection:
            connection.request("POST", parts.path, body, headers)
            response = connection.getresponse()
            text = response.read()
        if response.status != 200:
            if response.status in (401, 403):
                _secrets.pop(wake.secret, None)  # it may have been changed
            raise NotWoken(f"{wake.url} answered {response.status} {response.reason}")
        answer = json.loads(text)
        if "errors" in answer:
            raise NotWoken(f"{wake.url}: {answer['errors'][0]['message']}")
        [found] = answer["data"].values()
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotWoken(f"{wake.url} gave no answer of Dagster: {type(error).__name__}: {error}") from error
    if "results" not in found and "launchMultipleRunsResult" not in found:
        raise NotWoken(f"{wake.url}: {found.get('__typename')} {found.get('message', '')}")
    return found


_secrets: dict[str, tuple[float, str]] = {}


def _secret(reference: str) -> str:
    """Returns the secret of a reference; read again after some minutes. Raises NotWoken."""
    read_at, value = _secrets.get(reference, (0.0, ""))
    if not read_at or time.monotonic() - read_at > SECRET_S:
        try:
            value = _read(reference)
        except Exception as error:  # any error of boto3, whose text may quote an answer
            raise NotWoken(f"the secret {reference} could not be read: {type(error).__name__}") from None
        _secrets[reference] = (time.monotonic(), value)
    return value


def _read(reference: str) -> str:
    import boto3

    kind, _, name = reference.partition(":")
    if kind == "ssm":
        return boto3.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
    name, _, key = name.partition("#")
    text = boto3.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"]
    return json.loads(text)[key] if key else text
