"""What a duty must not do is denied, and requests are understood as the calls that IAM is asked about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manifest_platform_tests.aws.deployment import Deployment
from manifest_platform_tests.aws.policies import Call, Policy
from manifest_platform_tests.aws.recording import Record
from manifest_platform_tests.aws.stacks import ACCOUNT, REGION

TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/mp"


def keyed(*names: str) -> tuple[str, tuple[str, ...]]:
    return "dynamodb:LeadingKeys", names


def stored(kind: str, key: str = "") -> str:
    return f"arn:aws:s3:::mp-{kind}-{ACCOUNT}-{REGION}{key}"


@pytest.fixture(scope="module")
def duties() -> dict[str, Policy]:
    return Deployment(Path(), "mp", {}, {}, {}, {}).policies


@pytest.mark.parametrize(
    ("duty", "call", "allowed"),
    [
        ("Shredder", Call("dynamodb:PutItem", TABLE, keyed("shop")), True),
        ("Shredder", Call("dynamodb:PutItem", TABLE, keyed("shop", "others")), False),
        ("Shredder", Call("dynamodb:PutItem", f"{TABLE}-2", keyed("shop")), False),
        ("Shredder", Call("dynamodb:Scan", TABLE, keyed()), False),
        ("Shredder", Call("s3:PutObject", stored("shredded", "/a/b.parquet")), True),
        ("Shredder", Call("s3:PutObject", stored("landing", "/a")), False),
        ("Shredder", Call("s3:DeleteObject", stored("shredded", "/a")), False),
        ("Loader", Call("s3:PutObject", stored("shredded", "/a/1.manifest")), True),
        ("Loader", Call("s3:PutObject", stored("shredded", "/a/1.parquet")), False),
        ("Loader", Call("s3:DeleteObject", stored("shredded", "/a/1.parquet")), False),
        ("Loader", Call("s3:DeleteObject", stored("shredded", "/run/attempt-load-0a1b/events/1.parquet")), True),
        ("Reader", Call("dynamodb:Query", TABLE, keyed("vault")), True),
        ("Reader", Call("dynamodb:PutItem", TABLE, keyed("vault")), False),
        ("Reader", Call("kms:Decrypt", "DATA-KEY", ("kms:ViaService", (f"s3.{REGION}.amazonaws.com",))), True),
        ("Reader", Call("kms:Decrypt", "DATA-KEY", ("kms:ViaService", (f"secretsmanager.{REGION}.amazonaws.com",))), False),
        ("Reader", Call("kms:Decrypt", "DATA-KEY"), False),
        ("Producer", Call("s3:GetObject", stored("shredded", "/a")), False),
        ("Worker", Call("dynamodb:GetItem", TABLE, keyed("shop")), False),
        ("UI", Call("s3:ListBucket", stored("artifacts"), ("s3:prefix", ("dagster/logs/",))), True),
        ("UI", Call("s3:ListBucket", stored("artifacts"), ("s3:prefix", ("programs/",))), False),
        ("UI", Call("s3:GetObject", stored("landing", "/a")), False),
        ("Operator", Call("secretsmanager:GetSecretValue", "mp/warehouse"), True),
        ("Operator", Call("secretsmanager:GetSecretValue", "mp/salt"), False),
    ],
)
def test_a_duty_may_no_more_than_it_needs(duty: str, call: Call, allowed: bool, duties: dict[str, Policy]) -> None:
    assert bool(duties[duty].allowing(call)) == allowed


def asked(method: str, path: str, body: bytes = b"", **headers: str) -> set[tuple[str, str]]:
    """The actions and resources of a request, without those of KMS."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    record = Record()
    record.note(1, f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode() + body)
    return {(call.action, call.resource) for call in record.calls if not call.action.startswith("kms:")}


def dynamodb(operation: str, **body: object) -> set[tuple[str, str]]:
    return asked("POST", "/", json.dumps(body).encode(), X_Amz_Target=f"DynamoDB_20120810.{operation}")


def test_requests_to_s3_are_understood() -> None:
    where = "arn:aws:s3:::b"
    assert asked("GET", "/b/a%20b") == {("s3:GetObject", f"{where}/a b")}
    assert asked("HEAD", "/b/k") == {("s3:GetObject", f"{where}/k")}
    assert asked("GET", "/b?list-type=2&prefix=p%2F") == {("s3:ListBucket", where)}
    assert asked("PUT", "/b/k", x_amz_copy_source="/c/l") == {
        ("s3:GetObject", "arn:aws:s3:::c/l"),
        ("s3:PutObject", f"{where}/k"),
    }
    assert asked("POST", "/b/k?uploads=") == {("s3:PutObject", f"{where}/k")}
    assert asked("DELETE", "/b/k?uploadId=1") == {("s3:AbortMultipartUpload", f"{where}/k")}
    assert asked("DELETE", "/b/k") == {("s3:DeleteObject", f"{where}/k")}
    assert asked("POST", "/b?delete=", b"<Delete><Object><Key>x</Key></Object></Delete>") == {("s3:DeleteObject", f"{where}/x")}
    assert asked("PUT", "/b") == {("s3:CreateBucket", where)}


def test_requests_to_other_services_are_understood() -> None:
    key = {"partition": {"S": "shop"}, "sort": {"S": "ID"}}
    writes = [{"Put": {"TableName": "mp", "Item": key}}, {"ConditionCheck": {"TableName": "mp", "Key": key}}]
    assert dynamodb("TransactWriteItems", TransactItems=writes) == {
        ("dynamodb:PutItem", TABLE),
        ("dynamodb:ConditionCheckItem", TABLE),
    }
    record = Record()
    body = {
        "TableName": "mp",
        "KeyConditionExpression": "#partition = :partition AND #sort > :after",
        "ExpressionAttributeValues": {":partition": {"S": "shop"}, ":after": {"S": "x"}},
    }
    record.note(1, b"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.Query\r\n\r\n" + json.dumps(body).encode())
    assert Call("dynamodb:Query", TABLE, keyed("shop")) in record.calls
    where = f"arn:aws:glue:{REGION}:{ACCOUNT}"
    table = json.dumps({"DatabaseName": "shop", "Name": "events"}).encode()
    assert asked("POST", "/", table, X_Amz_Target="AWSGlue.GetTable") == {
        ("glue:GetTable", f"{where}:{resource}") for resource in ("catalog", "database/shop", "table/shop/events")
    }
