"""HTTP answers of servers that nobody here vouches for: each within so many bytes and so many seconds, whatever is sent.

Belongs here: the client that the sources' own clients are made of. It keeps the whole of a call within a deadline, headers and
body included, where a timeout alone starts anew with every byte; it inflates no more than what is allowed; it follows no
redirect by itself; and what is meant for this machine goes to no proxy. What an answer means is the matter of who asked.
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
    """An answer has more bytes than are taken."""


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL, the port told or the scheme's own. Raises ValueError for what is no URL."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(parts.scheme)


@cache
def _authorities() -> ssl.SSLContext:
    """Whose word is taken for who a server is; reading them costs a quarter of a second."""
    return httpx.create_ssl_context()


class Client:
    """Asks servers over HTTP. For one thread. Close it after use.

    What is on this machine is asked without a proxy of the environment. `read` and `connect`: seconds that a server may be
    silent. Cookies are not kept.
    """

    def __init__(self, read: float, connect: float, headers: dict[str, str] | None = None):
        self._timeout = httpx.Timeout(read, connect=connect)
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._opened: dict[tuple[bool, bool], httpx.Client] = {}
        self._until = float("inf")

    def close(self) -> None:
        """Gives the connections back."""
        for opened in self._opened.values():
            opened.close()

    def _to(self, url: str) -> httpx.Client:
        """What asks a server: by the proxies of the environment or without them, and with the authorities where they count."""
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
        """The seconds until the deadline; none where it is over."""
        return self._until - time.monotonic()

    @contextmanager
    def within(self, seconds: float) -> Generator[None]:
        """Ends what is asked in the block after so many seconds, with httpx.TimeoutException."""
        before = self._until
        self._until = min(before, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._until = before

    def ask(self, method: str, url: str, most: int, seconds: float, **request: Any) -> httpx.Response:
        """The whole answer to a call. Raises TooLarge beyond `most` bytes, httpx.TimeoutException after `seconds`.

        Else httpx.RequestError where there is no whole answer.
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
        """An answer whose body is still to be read, and which is to be closed. Raises httpx.RequestError."""
        try:
            client = self._to(url)
            built = client.build_request(method, url, **request)
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise httpx.UnsupportedProtocol(f"{type(error).__name__}: nothing can be sent there") from error
        response = client.send(built, auth=auth, stream=True)
        client.cookies.clear()
        return response


_OF_TRANSFER = (b"content-encoding", b"content-length", b"transfer-encoding")


def body(response: httpx.Response, most: int) -> bytes:
    """The body of an answer that was begun. Raises TooLarge beyond so many bytes, httpx.RequestError where it does not end."""
    return b"".join(_inflated(response, most))


def _inflated(response: httpx.Response, most: int) -> Iterator[bytes]:
    """The bytes of an answer, inflated by the piece: a small answer may hold a thousand times as many."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity", *_INFLATED):
        raise httpx.DecodingError(f"the answer is encoded as {encoding[:40]!r}, and that was not asked for")
    inflate = zlib.decompressobj(wbits=47) if encoding in _INFLATED else None
    size = 0
    for block in response.iter_raw():
        try:
            piece = inflate.decompress(block, most + 1 - size) if inflate else block
        except zlib.error as error:
            raise httpx.DecodingError(f"the answer is no {encoding}: {error}") from error
        size += len(piece)
        if size > most or (inflate and inflate.unconsumed_tail):
            raise TooLarge
        yield piece


# Deadlines


def _keep_time(http: httpx.Client, client: Client) -> None:
    """Puts every read of the client's connections under its deadline: httpx has no place for that, its connections do."""
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
    """The seconds that a step may take. Raises where the deadline is over."""
    left = client.left()
    if left <= 0:
        raise late("the whole of it took longer than is allowed")
    return left if timeout is None else min(timeout, left)
