"""A proxy between a client and a server that loses, delays and answers requests as a test asks it to.

Belongs here: what happens on the wire. It knows requests, not what they mean: for HTTP a request is a message with its
body, for PostgreSQL whatever the client sends at once, for it waits for the answer then.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

CHUNK = 1 << 16
_LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
_ATTEMPT = re.compile(rb"\r\namz-sdk-request: attempt=(\d+)", re.IGNORECASE)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Fault(StrEnum):
    """The ways in which the proxy makes a request fail."""

    REQUEST_LOST = "request lost"  # the server never sees it, and the connection is reset
    ANSWER_LOST = "answer lost"  # the server does it, and the connection is reset
    DELAYED = "delayed"  # the server sees it when the test says so
    THROTTLED = "throttled"  # DynamoDB's word for: too many requests
    SLOW_DOWN = "slow down"  # S3's word for: too many requests
    CONFLICT = "conflict"  # DynamoDB's word for: another transaction is at these rows
    DENIED = "denied"  # the word of AWS's services in JSON for: the role may not
    FAILED_AFTERWARDS = "failed afterwards"  # the server does it, and the answer is an internal error


Chooser = Callable[[int, bytes], Fault | None]
"""Chooses the fault of a request by its number, counted from 1, and its bytes; None for no fault."""


def nothing(_number: int, _request: bytes) -> None:
    """No fault."""


def at(number: int, fault: Fault) -> Chooser:
    """The fault meets one request."""
    return lambda count, _request: fault if count == number else None


def from_on(number: int, fault: Fault) -> Chooser:
    """The fault meets one request and all that come after it."""
    return then(number, fault, fault)


def then(number: int, first: Fault, later: Fault) -> Chooser:
    """Applies the fault `first` to the request `number`, and the fault `later` to all requests after it."""
    return lambda count, _request: first if count == number else later if count > number else None


def once_each(fault: Fault) -> Chooser:
    """The fault meets every request when it comes for the first time, by its body."""
    seen: set[bytes] = set()

    def choose(_number: int, request: bytes) -> Fault | None:
        body = request.partition(b"\r\n\r\n")[2]
        first = body not in seen
        seen.add(body)
        return fault if first else None

    return choose


def first_attempts(fault: Fault) -> Chooser:
    """The fault meets every request of an AWS client that is not a repeat."""

    def choose(_number: int, request: bytes) -> Fault | None:
        found = _ATTEMPT.search(request)
        return fault if found and found[1] == b"1" else None

    return choose


@dataclass
class Proxy:
    """A running proxy on `port`. Counted since `choose`: `requests` and the faults that `met` them; `total`: faults ever."""

    connect: Callable[[], socket.socket]
    is_http: bool
    port: int = 0
    met: int = 0
    total: int = 0
    requests: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    _choose: Chooser = nothing
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self, chooser: Chooser) -> None:
        """Sets which requests meet a fault from now on; their count starts again at 0."""
        with self._lock:
            self._choose, self.met, self.requests = chooser, 0, 0
            self.arrived.clear()
            self.go_on.clear()

    def _fault(self, request: bytes) -> Fault | None:
        with self._lock:
            self.requests += 1
            fault = self._choose(self.requests, request)
            if fault is Fault.CONFLICT and not (b".TransactWriteItems\r" in request or b".PutItem\r" in request):
                fault = None  # who only reads meets none
            self.met += fault is not None
            self.total += fault is not None
            return fault

    def serve(self, client: socket.socket) -> None:
        """Passes on what one client sends, until it or the server ends the connection."""
        with contextlib.suppress(OSError), client, self.connect() as server:
            connection = _Connection(client, server)
            answers = threading.Thread(target=connection.pass_answers, daemon=True)
            answers.start()
            try:
                while request := self._read(client):
                    self._pass(connection, request)
            except ConnectionResetError:
                connection.reset_on_close()
            finally:
                connection.close()
                answers.join()

    def _read(self, client: socket.socket) -> bytes:
        request = client.recv(CHUNK)
        if self.is_http:
            while request and len(request) < _length(request):
                request += client.recv(CHUNK)
        return request

    def _pass(self, connection: _Connection, request: bytes) -> None:
        fault = self._fault(request)
        match fault:
            case Fault.REQUEST_LOST:
                raise ConnectionResetError
            case Fault.THROTTLED:
                connection.answer(400, "ProvisionedThroughputExceededException")
                return
            case Fault.DENIED:
                connection.answer(400, "AccessDeniedException")
                return
            case Fault.SLOW_DOWN:
                connection.refuse(b"<Error><Code>SlowDown</Code><Message>by the proxy</Message></Error>")
                return
            case Fault.CONFLICT:
                items = json.loads(request.partition(b"\r\n\r\n")[2]).get("TransactItems", [])
                reasons = [{"Code": "TransactionConflict"}, *[{"Code": "None"}] * (len(items) - 1)]
                error = "TransactionCanceledException" if items else "TransactionConflictException"
                connection.answer(400, error, CancellationReasons=reasons)
                return
            case Fault.DELAYED:
                self.arrived.set()
                self.go_on.wait(30)
            case Fault.ANSWER_LOST | Fault.FAILED_AFTERWARDS:
                connection.swallows = fault
        connection.server.sendall(request)
        if connection.swallows:
            connection.answered.wait(30)
            connection.answered.clear()
            connection.swallows = None
            if fault is Fault.ANSWER_LOST:
                raise ConnectionResetError
            connection.answer(500, "InternalServerError")


@dataclass
class _Connection:
    client: socket.socket
    server: socket.socket
    swallows: Fault | None = None
    answered: threading.Event = field(default_factory=threading.Event)

    def pass_answers(self) -> None:
        swallowed = b""
        with contextlib.suppress(OSError):
            while answer := self.server.recv(CHUNK):
                if self.swallows:
                    swallowed += answer
                    if self.swallows is Fault.ANSWER_LOST or len(swallowed) >= _length(swallowed):
                        swallowed = b""
                        self.answered.set()
                else:
                    self.client.sendall(answer)
        with contextlib.suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)

    def answer(self, status: int, error: str, **more: object) -> None:
        body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{error}", "message": "by the proxy", **more}).encode()
        head = f"HTTP/1.1 {status} Error\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        self.client.sendall(head.encode() + body)

    def refuse(self, error: bytes) -> None:
        """Answers as S3 does when it has too many requests."""
        head = f"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: {len(error)}\r\n\r\n"
        self.client.sendall(head.encode() + error)

    def reset_on_close(self) -> None:
        """Makes the end of the connection a reset for the client."""
        with contextlib.suppress(OSError):
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def close(self) -> None:
        """Ends both sides. The client still gets what the server sent before."""
        with contextlib.suppress(OSError):
            self.client.close()
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)


def _length(request: bytes) -> int:
    """The length of an HTTP request in bytes; more than the bytes received while its head is incomplete."""
    head, end, _ = request.partition(b"\r\n\r\n")
    found = _LENGTH.search(head)
    return len(head) + len(end) + (int(found[1]) if found else 0) if end else len(request) + 1


@contextmanager
def proxied(connect: Callable[[], socket.socket], *, is_http: bool) -> Generator[Proxy]:
    """Runs a proxy to what `connect` connects to, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(connect, is_http, listener.getsockname()[1])

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield proxy
        proxy.go_on.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
