"""The objects that a message names: S3's own events, alone or within a message of SNS, and those of EventBridge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus


class NoEvent(ValueError):
    """A message is no event of S3. The message says what it is, without its content."""


def objects_of(body: str) -> list[str]:
    """Returns the URIs of the objects that a message names; empty for the message by which S3 tries a queue. Raises NoEvent."""
    try:
        return list(_objects(json.loads(body)))
    except RecursionError as error:
        raise NoEvent("it is nested too deeply") from error
    except NoEvent:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoEvent(f"it is not one of S3's events: {type(error).__name__}") from error


def _objects(told: Any) -> Iterator[str]:
    if told.get("Type") == "Notification" and "Message" in told:
        yield from _objects(json.loads(told["Message"]))
    elif told.get("Event") == "s3:TestEvent":
        return
    elif told.get("source") == "aws.s3":
        yield f"s3://{told['detail']['bucket']['name']}/{told['detail']['object']['key']}"
    else:
        for record in told["Records"]:
            place = record["s3"]
            yield f"s3://{place['bucket']['name']}/{unquote_plus(place['object']['key'])}"
