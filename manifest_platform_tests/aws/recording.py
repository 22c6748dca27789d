"""Records the calls of AWS that programs make: proxies before the servers read each request, whoever sends it.

Botocore's events would miss Arrow's requests, and those of Spark's workers and of other processes.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from manifest_platform_tests.aws.policies import Call
from manifest_platform_tests.aws.stacks import ACCOUNT, REGION
from manifest_platform_tests.servers.proxy import Fault, proxied

_START = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.1\r\n")
_TARGET = re.compile(rb"\r\nx-amz-target: *([\w.]+)", re.IGNORECASE)
_COPIED = re.compile(rb"\r\nx-amz-copy-source: *(\S+)", re.IGNORECASE)
_PARTITION = re.compile(r'"partition": ?\{"S": ?"([^"]*)"')


@dataclass
class Record:
    """The calls since `start`. `denied`: the actions that are answered with AWS's refusal, and are not recorded."""

    calls: set[Call] = field(default_factory=set)
    requests: int = 0
    denied: frozenset[str] = frozenset()

    def start(self, *denied: str) -> None:
        """Forgets what was recorded. `denied`: actions, of services that speak JSON, that are refused from now on."""
        self.calls, self.requests, self.denied = set(), 0, frozenset(denied)

    def note(self, _number: int, request: bytes) -> Fault | None:
        """Notes the calls of a request. For a proxy, as a chooser."""
        if found := _START.match(request):
            self.requests += 1
            head, _, body = request.partition(b"\r\n\r\n")
            target = _TARGET.search(head)
            method, address = found[1].decode(), found[2].decode()
            calls = _by_target(target[1].decode(), body) if target else _of_s3(method, address, head, body)
            asked = set(calls)
            if any(call.action in self.denied for call in asked):
                return Fault.DENIED
            self.calls |= asked
        return None


@contextmanager
def recorded(endpoint: str, record: Record) -> Generator[str]:
    """Runs a proxy before a server, and gives its endpoint."""
    address = urlsplit(endpoint)
    with proxied(lambda: socket.create_connection((address.hostname, address.port)), is_http=True) as proxy:
        proxy.choose(record.note)
        yield f"http://127.0.0.1:{proxy.port}"


def _with_key(call: Call, service: str, *actions: str) -> Iterator[Call]:
    """A call, and the calls of KMS that the service makes for it in the caller's name."""
    yield call
    for action in actions:
        yield Call(f"kms:{action}", "DATA-KEY", ("kms:ViaService", (f"{service}.{REGION}.amazonaws.com",)))


def _of_s3(method: str, address: str, head: bytes, body: bytes) -> Iterator[Call]:
    parts = urlsplit(address)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    where = f"arn:aws:s3:::{bucket}"
    if not key:
        yield from _of_bucket(method, where, query, body)
    elif method in ("GET", "HEAD"):
        yield from _with_key(Call("s3:GetObject", f"{where}/{key}"), "s3", "Decrypt")
    elif method == "DELETE":
        yield Call("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", f"{where}/{key}")
    elif method in ("PUT", "POST"):
        if copied := _COPIED.search(head):
            source = unquote(copied[1].decode()).lstrip("/")
            yield from _with_key(Call("s3:GetObject", f"arn:aws:s3:::{source}"), "s3", "Decrypt")
        # The parts of an upload are decrypted when it is completed.
        more = ("Decrypt",) if {"uploads", "uploadId"} & query.keys() else ()
        yield from _with_key(Call("s3:PutObject", f"{where}/{key}"), "s3", "GenerateDataKey", *more)
    else:
        raise NotImplementedError(f"{method} {address}")


def _of_bucket(method: str, where: str, query: dict[str, list[str]], body: bytes) -> Iterator[Call]:
    if method == "POST" and "delete" in query:
        for key in re.findall(rb"<Key>([^<]*)</Key>", body):
            yield Call("s3:DeleteObject", f"{where}/{key.decode()}")
    elif method in ("GET", "HEAD"):
        known = {"location": "s3:GetBucketLocation", "versioning": "s3:GetBucketVersioning"}
        action = next((action for name, action in known.items() if name in query), "s3:ListBucket")
        yield Call(action, where, ("s3:prefix", tuple(query.get("prefix", [""]))))
    else:
        yield Call({"PUT": "s3:CreateBucket", "DELETE": "s3:DeleteBucket"}[method], where)


def _by_target(target: str, body: bytes) -> Iterator[Call]:
    service, _, operation = target.rpartition(".")
    asked: dict[str, Any] = json.loads(body or b"{}")
    match service.partition("_")[0]:
        case "DynamoDB":
            yield from _of_dynamodb(operation, asked)
        case "DynamoDBStreams":
            yield from _with_key(Call(f"dynamodb:{operation}", "STREAM"), "dynamodb", "Decrypt")
        case "secretsmanager":
            yield from _with_key(Call(f"secretsmanager:{operation}", asked["SecretId"]), "secretsmanager", "Decrypt")
        case "AmazonSQS":
            name = asked.get("QueueName") or asked["QueueUrl"].rpartition("/")[2]
            yield Call(f"sqs:{operation.removesuffix('Batch')}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
        case "AWSGlue":
            yield from _of_glue(operation, asked)
        case _:
            raise NotImplementedError(target)


_WRITES = {"Put": "PutItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem", "Update": "UpdateItem"}


def _of_dynamodb(operation: str, asked: dict[str, Any]) -> Iterator[Call]:
    def on(action: str, table: str, about: Any) -> Iterator[Call]:
        keys = tuple(sorted(set(_PARTITION.findall(json.dumps(about)))))
        where = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}"
        yield from _with_key(Call(f"dynamodb:{action}", where, ("dynamodb:LeadingKeys", keys)), "dynamodb", "Decrypt")

    match operation:
        case "TransactWriteItems":
            for item in asked["TransactItems"]:
                [(kind, about)] = item.items()
                yield from on(_WRITES[kind], about["TableName"], about)
        case "BatchGetItem":
            for table, about in asked["RequestItems"].items():
                yield from on(operation, table, about)
        case "Query":
            values = asked["ExpressionAttributeValues"]
            first = asked["KeyConditionExpression"].split()[2]
            yield from on(operation, asked["TableName"], {"partition": values[first]})
        case _:
            yield from on(operation, asked["TableName"], asked)


def _of_glue(operation: str, asked: dict[str, Any]) -> Iterator[Call]:
    """The call on each resource that IAM asks about: the catalog, the database, and the table."""
    where = f"arn:aws:glue:{REGION}:{ACCOUNT}"
    database = asked.get("DatabaseName") or asked.get("DatabaseInput", {}).get("Name") or asked.get("Name")
    table = asked.get("TableName") or asked.get("TableInput", {}).get("Name")
    if "DatabaseName" in asked:
        table = table or asked.get("Name")
    yield Call(f"glue:{operation}", f"{where}:catalog")
    yield Call(f"glue:{operation}", f"{where}:database/{database}")
    if table:
        yield Call(f"glue:{operation}", f"{where}:table/{database}/{table}")
