"""The token of the requests to a session: fetched with its endpoint, added to each request, renewed before it expires."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder

from manifest_platform import masking

log = logging.getLogger(__name__)

HEADER = "x-aws-proxy-auth"
_MARGIN = timedelta(minutes=5)
"""A token is renewed this long before it expires, or in the last fifth of its life, if that is shorter."""


@dataclass(frozen=True)
class Token:
    """A token and the time when it is renewed, and when it expires. The text is a secret."""

    text: str = field(repr=False)
    renewed: datetime
    expires: datetime

    @classmethod
    def of(cls, text: str, expires: datetime) -> Token:
        """Returns the token, which is masked in all texts from now on."""
        masking.keep(text)
        left = expires - datetime.now(UTC)
        return cls(text, expires - min(_MARGIN, left / 5), expires)


class Tokens:
    """The newest token of a session. `fetch` returns another; it may be used from any thread."""

    def __init__(self, first: Token, fetch: Callable[[], Token]) -> None:
        self._token, self._fetch, self._lock = first, fetch, threading.Lock()

    def text(self) -> str:
        """Returns a token that has not expired. If it cannot be renewed now, the last token serves as long as it lives."""
        with self._lock:
            now = datetime.now(UTC)
            if now >= self._token.renewed:
                try:
                    self._token = self._fetch()
                except Exception as error:
                    if now >= self._token.expires:
                        raise
                    log.warning("the token of Spark's session is not renewed now: %s", error)
            return self._token.text


class Channels(DefaultChannelBuilder):
    """Makes connections to the endpoint of a session, whose requests carry its token."""

    def __init__(self, remote: str, tokens: Tokens) -> None:
        super().__init__(remote)
        self.add_interceptor(_Signed(tokens))


class _Call(NamedTuple):
    """The details of a request, as gRPC reads them."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Signed(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token to each request."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def _signed(self, call: Any) -> _Call:
        metadata = [*(call.metadata or ()), (HEADER, self._tokens.text())]
        return _Call(call.method, call.timeout, metadata, call.credentials, call.wait_for_ready, call.compression)

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Sends a request with the token."""
        return continuation(self._signed(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Sends a request with the token."""
        return continuation(self._signed(client_call_details), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Sends requests with the token."""
        return continuation(self._signed(client_call_details), request_iterator)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Sends requests with the token."""
        return continuation(self._signed(client_call_details), request_iterator)
