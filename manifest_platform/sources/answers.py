"""An HTTP client for servers that are not trusted: it bounds the bytes and the seconds of each answer.

The sources' own clients use it. It keeps a whole call, headers and body included, within a deadline: a plain timeout starts
again with every byte. It inflates no more than the allowed size, follows no redirect by itself, and uses no proxy for this
machine. The caller interprets the answers.
"""

from __future__ import annotations

import ssl
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from manifest_platform.settings import is_this_machine

_INFLATED = ("gzip", "x-gzip", "deflate")


class TooLarge(Exception):
    """An answer is larger than allowed."""


def origin(url: str) -> tuple[str, str, int | None]:
    """Returns scheme, host and port of a URL; the port defaults to the scheme's. Raises ValueError if the text is not a URL."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(parts.scheme)


@cache
def _authorities() -> ssl.SSLContext:
    """The trusted certificate authorities, read once: reading them takes a quarter of a second."""
    return httpx.create_ssl_context()


class Client:
    """An HTTP client, for one thread. Close it after use.

    Servers on this machine are called without the environment's proxies. `read` and `connect`: seconds that a server may be
    silent. Cookies are not kept.
    """

    def __init__(self, read: float, connect: float, headers: dict[str, str] | None = None):
        self._timeout = httpx.Timeout(read, connect=connect)
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._opened: dict[tuple[bool, bool], httpx.Client] = {}
        self._until = float("inf")

    def close(self) -> None:
        """Closes the connections."""
        for opened in self._opened.values():
            opened.close()

    def _to(self, url: str) -> httpx.Client:
        """Returns the client for a URL: with or without the environment's proxies and the certificate authorities."""
        parts = urlsplit(url)
        here, tls = is_this_machine(parts.hostname), parts.scheme != "http"
        if (here, tls) not in self._opened:
            trusted = _authorities() if tls or not here else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            opened = httpx.Client(
                timeout=self._timeout, headers=self._headers, trust_env=not here, verify=trusted, follow_redirects=False
            )
            _keep_time(opened, self)
            self._opened[here, tls] = opened
        return self._opened[here, tls]

    def left(self) -> float:
        """Returns the seconds until the deadline; negative if it has passed."""
        return self._until - time.monotonic()

    @contextmanager
    def within(self, seconds: float) -> Generator[None]:
        """Limits the calls in the block to a number of seconds in all. After that they raise httpx.TimeoutException."""
        before = self._until
        self._until = min(before, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._until = before

    def ask(self, method: str, url: str, most: int, seconds: float, **request: Any) -> httpx.Response:
        """Calls a server and returns the whole answer.

        Raises TooLarge if the body exceeds `most` bytes, httpx.TimeoutException after `seconds`, and another httpx.RequestError
        if the answer does not arrive completely.
        """
        with self.within(seconds):
            response = self.begin(method, url, **request)
            try:
                content = body(response, most)
            finally:
                response.close()
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_TRANSFER]
        return httpx.Response(response.status_code, headers=headers, content=content, request=response.request)

    def begin(self, method: str, url: str, auth: httpx.Auth | None = None, **request: Any) -> httpx.Response:
        """Returns an answer whose body is not read yet. The caller closes it. Raises httpx.RequestError."""
        try:
            client = self._to(url)
            built = client.build_request(method, url, **request)
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise httpx.UnsupportedProtocol(f"{type(error).__name__}: the URL cannot be called") from error
        response = client.send(built, auth=auth, stream=True)
        client.cookies.clear()
        return response


_OF_TRANSFER = (b"content-encoding", b"content-length", b"transfer-encoding")


def body(response: httpx.Response, most: int) -> bytes:
    """Reads the body of an answer.

    Raises TooLarge if it exceeds `most` bytes, httpx.RequestError if it does not arrive completely.
    """
    return b"".join(_inflated(response, most))


def _inflated(response: httpx.Response, most: int) -> Iterator[bytes]:
    """Yields the inflated bytes in pieces, so that a small answer that inflates a thousandfold is noticed early."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity", *_INFLATED):
        raise httpx.DecodingError(f"the answer is encoded as {encoding[:40]!r}, which was not requested")
    inflate = zlib.decompressobj(wbits=47) if encoding in _INFLATED else None
    size = 0
    for block in response.iter_raw():
        try:
            piece = inflate.decompress(block, most + 1 - size) if inflate else block
        except zlib.error as error:
            raise httpx.DecodingError(f"the answer is not valid {encoding}: {error}") from error
        size += len(piece)
        if size > most or (inflate and inflate.unconsumed_tail):
            raise TooLarge
        yield piece


# Deadlines


def _keep_time(http: httpx.Client, client: Client) -> None:
    """Applies the deadline to every read of the client's connections. httpx has no hook for that, but its connections do."""
    transports: list[Any] = [http._transport, *http._mounts.values()]
    for transport in transports:
        if transport is not None:
            transport._pool._network_backend = _Network(transport._pool._network_backend, client)


class _Network(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend, client: Client):
        self._inner, self._client = inner, client

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *options: Any, **more: Any) -> _Stream:
        left = _left(self._client, timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, left, *options, **more), self._client)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, client: Client):
        self._inner, self._client = inner, client

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(self._client, timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(self._client, timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        left = _left(self._client, timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._client)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(client: Client, timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    """Returns the seconds that a step may take. Raises `late` if the deadline has passed."""
    left = client.left()
    if left <= 0:
        raise late("the whole call took longer than is allowed")
    return left if timeout is None else min(timeout, left)
