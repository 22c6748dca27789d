"""A queue in SQS that S3 sends its events to: received by long polls, and emptied after the listing that covers them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from manifest_platform import aws
from manifest_platform.notices.contract import LandingNotices
from manifest_platform.notices.s3_events import NoEvent, objects_of

log = logging.getLogger(__name__)

ALLOWED = "sqs://QUEUE?region=eu-west-1, with &account= for a queue of another account and &endpoint= for another server"
WAIT_SECONDS = 20
"""The seconds of a long poll, the most that SQS allows: three requests a minute while nothing lands."""
AT_ONCE = 10
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_MOST_HELD = 10_000


class QueueNotices(LandingNotices):
    """The notices of `sqs://QUEUE`.

    A message is deleted once a listing is over that began after it was received. If the listing fails, the message comes again
    by itself. A message that is no event of S3 would come for ever, so it is deleted with a warning.
    """

    example = "sqs://QUEUE?region=eu-west-1"

    def __init__(self, url: str, counts: Callable[[str], bool]) -> None:
        self._queue, self._options = _parsed(url)
        self.place = f"queue {self._queue}"
        self._counts = counts
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._held: dict[str, str] = {}  # receipts by the ids of messages that rang and are not deleted yet
        self._client: Any = None
        self._url = ""

    @classmethod
    def checked(cls, url: str) -> str:
        """Returns the URL. Raises ValueError that says what is allowed."""
        _parsed(url)
        return url

    def watch(self, tell: Callable[[], object]) -> None:
        """Receives messages until `close`. Raises an error of boto3."""
        self._open()
        tell()
        while not self._ended.is_set():
            answer = self._client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=AT_ONCE, WaitTimeSeconds=WAIT_SECONDS)
            if self._take(answer.get("Messages", [])):
                tell()

    def _open(self) -> None:
        region, endpoint, account = (self._options.get(name) for name in ("region", "endpoint", "account"))
        self._client = aws.client("sqs", region=region, endpoint=endpoint)
        owner = {"QueueOwnerAWSAccountId": account} if account else {}
        self._url = self._client.get_queue_url(QueueName=self._queue, **owner)["QueueUrl"]

    def _take(self, messages: list[dict[str, Any]]) -> bool:
        """Sorts messages: keeps those that count, and deletes the others at once. True if any counts."""
        others: dict[str, str] = {}
        rang = False
        for message in messages:
            try:
                counts = any(map(self._counts, objects_of(message["Body"])))
            except NoEvent as error:
                log.warning("%s: message %s was deleted: %s", self.place, message["MessageId"], error)
                counts = False
            rang = rang or counts
            with self._lock:
                kept = self._held if counts and len(self._held) < _MOST_HELD else others
                kept[message["MessageId"]] = message["ReceiptHandle"]
        self._delete(others)
        return rang

    def taken(self) -> Callable[[], object]:
        """Returns a function that deletes the messages that were received until now."""
        with self._lock:
            held = dict(self._held)

        def settle() -> None:
            self._delete(held)
            with self._lock:
                for one in held:
                    self._held.pop(one, None)

        return settle

    def _delete(self, receipts: dict[str, str]) -> None:
        ids = list(receipts.items())
        for start in range(0, len(ids), AT_ONCE):
            some = [{"Id": str(n), "ReceiptHandle": receipt} for n, (_, receipt) in enumerate(ids[start : start + AT_ONCE])]
            self._client.delete_message_batch(QueueUrl=self._url, Entries=some)

    def close(self) -> None:
        """Ends the receiving after the poll at hand."""
        self._ended.set()


def _parsed(url: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    if parts.scheme != "sqs" or not _NAME.fullmatch(parts.netloc) or parts.path or parts.fragment:
        raise ValueError(f"allowed: {ALLOWED}")
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    if options.keys() - {"region", "endpoint", "account"} or len(options) < len(given) or not all(options.values()):
        raise ValueError(f"unknown, empty or repeated parameter; allowed: {ALLOWED}")
    return parts.netloc, options
