"""A queue in SQS that S3 sends its events to: received by long polls, and emptied after the listing that covers them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
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
    """The notices of `sqs://QUEUE`. Datasets of a process with the same URL share the queue: each hears of its own objects.

    A message is deleted once every dataset that it is about has ended a listing that began after the message was received. If a
    listing fails, the message comes again by itself. A message that is no event of S3 would come for ever, so it is deleted
    with a warning; a message about no dataset of this process is deleted, too.
    """

    example = "sqs://QUEUE?region=eu-west-1"

    def __init__(self, url: str, counts: Callable[[str], bool]) -> None:
        self._url, self.counts = url, counts
        self.place = f"queue {_parsed(url)[0]}"
        self.tell: Callable[[], object] = lambda: None
        self._queue: _Queue | None = None
        self._errors: list[Exception] = []
        self._over, self._closed = threading.Event(), threading.Event()

    @classmethod
    def checked(cls, url: str) -> str:
        """Returns the URL. Raises ValueError that says what is allowed."""
        _parsed(url)
        return url

    def watch(self, tell: Callable[[], object]) -> None:
        """Hears the messages of the queue until `close`. Raises an error of boto3."""
        self.tell = tell
        self._over.clear()
        with _heard(self._url, self) as self._queue:
            tell()
            if not self._closed.is_set():
                self._over.wait()
        if self._errors:
            raise self._errors.pop()

    def fail(self, error: Exception) -> None:
        """Ends the watch with an error."""
        self._errors = [error]
        self._over.set()

    def taken(self) -> Callable[[], object]:
        """Returns a function that settles the messages that were received until now."""
        return self._queue.taken_by(self) if self._queue else lambda: None

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()
        self._over.set()


class _Queue:
    """A queue, and those who hear its messages, which a thread receives. `hearers` are changed under the lock of `_queues`."""

    def __init__(self, url: str) -> None:
        self.hearers: tuple[QueueNotices, ...] = ()
        self._key, (self._name, self._options) = url, _parsed(url)
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}  # messages that rang and are not deleted yet, by id
        self._client: Any = None
        self._url = ""
        self._thread = threading.Thread(target=self._run, name=f"queue {self._name}", daemon=True)

    def start(self) -> None:
        """Begins to receive, until the last who hears has left, or an error ends all watches."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._open()
            while self.hearers:
                self.receive()
        except Exception as error:  # any error: it is each watch's, and the next watch begins again
            with _lock:
                if _queues.get(self._key) is self:
                    del _queues[self._key]
            for one in self.hearers:
                one.fail(error)

    def _open(self) -> None:
        region, endpoint, account = (self._options.get(name) for name in ("region", "endpoint", "account"))
        self._client = aws.client("sqs", region=region, endpoint=endpoint)
        owner = {"QueueOwnerAWSAccountId": account} if account else {}
        self._url = self._client.get_queue_url(QueueName=self._name, **owner)["QueueUrl"]

    def receive(self) -> None:
        """Receives messages by one long poll, and tells those whom they are about."""
        asked = {"MaxNumberOfMessages": AT_ONCE, "WaitTimeSeconds": WAIT_SECONDS}
        messages = self._client.receive_message(QueueUrl=self._url, **asked).get("Messages", [])
        if not self.hearers:
            return  # the last has left during the poll: they come again
        others: dict[str, str] = {}
        about: set[QueueNotices] = set()
        for message in messages:
            hearers = self._about(message)
            about |= hearers
            with self._lock:
                if hearers and len(self._held) < _MOST_HELD:
                    self._held[message["MessageId"]] = _Held(message["ReceiptHandle"], hearers)
                else:
                    others[message["MessageId"]] = message["ReceiptHandle"]
        self._delete(others)
        for one in about:
            one.tell()

    def _about(self, message: dict[str, Any]) -> set[QueueNotices]:
        try:
            uris = objects_of(message["Body"])
        except NoEvent as error:
            log.warning("queue %s: message %s was deleted: %s", self._name, message["MessageId"], error)
            return set()
        return {one for one in self.hearers if [uri for uri in uris if one.counts(uri)]}

    def taken_by(self, hearer: QueueNotices) -> Callable[[], object]:
        """Returns a function that settles a hearer's messages received until now: those that nobody else awaits are deleted."""
        with self._lock:
            mine = {id_: one for id_, one in self._held.items() if hearer in one.hearers}

        def settle() -> None:
            over = {id_: one.receipt for id_, one in mine.items() if one.hearers <= {hearer}}
            self._delete(over)
            with self._lock:
                for id_, one in mine.items():
                    one.hearers.discard(hearer)
                    if id_ in over and self._held.get(id_) is one:
                        del self._held[id_]

        return settle

    def forget(self, hearer: QueueNotices) -> None:
        """Forgets the messages that only this hearer awaits: they come again, for whoever lists then."""
        with self._lock:
            for one in self._held.values():
                one.hearers.discard(hearer)
            self._held = {id_: one for id_, one in self._held.items() if one.hearers}

    def _delete(self, receipts: dict[str, str]) -> None:
        ids = list(receipts.items())
        for start in range(0, len(ids), AT_ONCE):
            some = [{"Id": str(n), "ReceiptHandle": receipt} for n, (_, receipt) in enumerate(ids[start : start + AT_ONCE])]
            self._client.delete_message_batch(QueueUrl=self._url, Entries=some)


@dataclass
class _Held:
    """A message: the receipt by which it is deleted, and those who have not ended a listing since."""

    receipt: str
    hearers: set[QueueNotices]


_queues: dict[str, _Queue] = {}
_lock = threading.Lock()


@contextmanager
def _heard(url: str, hearer: QueueNotices) -> Generator[_Queue]:
    """Lets notices hear the messages of a queue, together with the others of its URL. Yields the queue that they share."""
    with _lock:
        queue = _queues.get(url) or _Queue(url)
        queue.hearers += (hearer,)
        if _queues.get(url) is not queue:
            _queues[url] = queue
            queue.start()
    try:
        yield queue
    finally:
        with _lock:
            queue.hearers = tuple(one for one in queue.hearers if one is not hearer)
            if not queue.hearers and _queues.get(url) is queue:
                del _queues[url]
        queue.forget(hearer)


def _parsed(url: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    if parts.scheme != "sqs" or not _NAME.fullmatch(parts.netloc) or parts.path or parts.fragment:
        raise ValueError(f"allowed: {ALLOWED}")
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    if options.keys() - {"region", "endpoint", "account"} or len(options) < len(given) or not all(options.values()):
        raise ValueError(f"unknown, empty or repeated parameter; allowed: {ALLOWED}")
    return parts.netloc, options
