"""The Lambda of `deploy/aws/lambda`, loaded as AWS loads it, and events in the forms that AWS documents."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote_plus

FILE = Path(__file__).parents[1] / "deploy" / "aws" / "lambda" / "wake.py"
NOW = "2026-11-23T12:00:00.000Z"


def loaded() -> ModuleType:
    """A new instance of the function: its module, as a cold start loads it."""
    spec = importlib.util.spec_from_file_location("wake", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["wake"] = module  # data classes look for it
    spec.loader.exec_module(module)
    return module


def s3_record(key: str, bucket: str = "b", name: str = "ObjectCreated:Put") -> dict[str, Any]:
    """A record of S3's event notification, version 2.1. Its key is encoded as that of a form."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-west-1",
        "eventTime": NOW,
        "eventName": name,
        "userIdentity": {"principalId": "AWS:AIDAEXAMPLE"},
        "requestParameters": {"sourceIPAddress": "10.0.0.1"},
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "landed",
            "bucket": {"name": bucket, "ownerIdentity": {"principalId": "A3NL1"}, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": quote_plus(key, safe="/"), "size": 0, "eTag": "d41d8cd9", "sequencer": "0055AED6DCD90281E5"},
        },
    }


def sqs(*bodies: str) -> dict[str, Any]:
    """A batch of a queue's messages, as Lambda gets it."""
    return {
        "Records": [
            {
                "messageId": f"059f36b4-87a3-44ab-83d2-{number:012}",
                "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
                "body": body,
                "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1545082649183"},
                "messageAttributes": {},
                "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:landed",
                "awsRegion": "eu-west-1",
            }
            for number, body in enumerate(bodies)
        ]
    }


def landed(*keys: str) -> dict[str, Any]:
    """S3's events of some objects, a message of a queue for each."""
    return sqs(*(json.dumps({"Records": [s3_record(key)]}) for key in keys))


def stream(*images: dict[str, Any]) -> dict[str, Any]:
    """A batch of records of DynamoDB's stream with new images."""
    return {
        "Records": [
            {
                "eventID": f"{number:032x}",
                "eventName": "INSERT",
                "eventVersion": "1.1",
                "eventSource": "aws:dynamodb",
                "awsRegion": "eu-west-1",
                "dynamodb": {
                    "ApproximateCreationDateTime": 1545084650,
                    "Keys": {name: image[name] for name in ("partition", "sort")},
                    "NewImage": image,
                    "SequenceNumber": str(number),
                    "SizeBytes": 26,
                    "StreamViewType": "NEW_AND_OLD_IMAGES",
                },
                "eventSourceARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/manifest/stream/2026-11-23T00:00:00.000",
            }
            for number, image in enumerate(images)
        ]
    }
