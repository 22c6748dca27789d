"""A webhook that a server of S3 posts its events to, such as versitygw's `--event-webhook-url`.

A server has one webhook for all its buckets, so datasets with the same address share a listener. What was posted while nobody
listened is lost, and found by a listing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import urlsplit

from manifest_platform.notices.contract import LandingNotices
from manifest_platform.notices.s3_events import NoEvent, objects_of

log = logging.getLogger(__name__)

ALLOWED = "http://HOST:PORT, the address where the follower listens, such as http://127.0.0.1:9099"
LARGEST = 1 << 20
"""The largest event that is read, in bytes. S3's are about 1 KB."""
Hearer = Callable[[list[str]], object]


class WebhookNotices(LandingNotices):
    """The notices of `http://HOST:PORT`, where the follower listens."""

    example = "http://127.0.0.1:9099"

    def __init__(self, url: str, counts: Callable[[str], bool]) -> None:
        self._address = _parsed(url)
        self.place = f"the webhook {url}"
        self._counts = counts
        self._ended = threading.Event()

    @classmethod
    def checked(cls, url: str) -> str:
        """Returns the URL. Raises ValueError that says what is allowed."""
        _parsed(url)
        return url

    def watch(self, tell: Callable[[], object]) -> None:
        """Listens until `close`. Raises OSError if it cannot."""

        def hear(uris: list[str]) -> None:
            if [uri for uri in uris if self._counts(uri)]:
                tell()

        with _heard(self._address, hear):
            tell()
            self._ended.wait()

    def close(self) -> None:
        """Ends the listening."""
        self._ended.set()


class _Listener(ThreadingHTTPServer):
    """A listener at an address, and those who hear what is posted there."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.hearers: list[Hearer] = []
        threading.Thread(target=self.serve_forever, name=f"webhook {address[1]}", daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            return self._answer(HTTPStatus.LENGTH_REQUIRED)
        if not 0 <= size <= LARGEST:
            return self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            uris = objects_of(self.rfile.read(size).decode())
        except (NoEvent, UnicodeDecodeError) as error:
            log.warning("a post to the webhook was left out: %s", error if isinstance(error, NoEvent) else "it is no text")
            return self._answer(HTTPStatus.BAD_REQUEST)
        for hear in list(cast(_Listener, self.server).hearers):
            hear(uris)
        return self._answer(HTTPStatus.NO_CONTENT)

    def _answer(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object, **__: object) -> None:
        pass


_listeners: dict[tuple[str, int], _Listener] = {}
_lock = threading.Lock()


@contextmanager
def _heard(address: tuple[str, int], hear: Hearer) -> Generator[None]:
    """Lets a function hear what is posted to an address. The listener begins with the first, and ends with the last."""
    with _lock:
        listener = _listeners.get(address) or _Listener(address)
        _listeners[address] = listener
        listener.hearers.append(hear)
    try:
        yield
    finally:
        with _lock:
            listener.hearers.remove(hear)
            if not listener.hearers:
                del _listeners[address]
                listener.shutdown()
                listener.server_close()


def _parsed(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    others = parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme != "http" or not parts.hostname or not port or others:
        raise ValueError(f"allowed: {ALLOWED}")
    return parts.hostname, port
