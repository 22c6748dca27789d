"""A malicious HTTP server on a real socket: its responses may be invalid, endless, or slow."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

OTHER_HOST = "127.0.0.2"
"""A stand-in for every other host: this machine's too, and another origin."""


@dataclass
class Request:
    """A received request: the target of the request line, the headers by lower-case name, and the body."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Hostile:
    """A server at work: where it is, and what it was asked."""

    url: str
    asked: list[Request] = field(default_factory=list)

    @property
    def port(self) -> str:
        """Its port."""
        return self.url.rpartition(":")[2]


Answer = Callable[[Request], Iterable[bytes]]


def response(status: int = 200, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    """A whole HTTP response; `length` replaces the true length in its Content-Length header."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body) if length is None else length}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def endless(block: bytes = bytes(1 << 16), *headers: str) -> Iterator[bytes]:
    """An answer without an end."""
    yield "\r\n".join(["HTTP/1.1 200 Said", *headers, "", ""]).encode()
    while True:
        yield block


def dripped(data: bytes, seconds: float = 0.02) -> Iterator[bytes]:
    """A byte at a time, with a pause before each: never silent for long."""
    for byte in data:
        time.sleep(seconds)
        yield bytes([byte])


@contextmanager
def serving(answer: Answer, host: str = "127.0.0.1") -> Generator[Hostile]:
    """A server within the block: what `answer` gives for a request is sent, until the client has enough."""
    listener = socket.create_server((host, 0))
    server = Hostile(f"http://{host}:{listener.getsockname()[1]}")
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            connection.settimeout(5)
            reader = connection.makefile("rb")
            while request := _read(reader):
                server.asked.append(request)
                for piece in answer(request):
                    if ended.is_set():
                        return
                    connection.sendall(piece)
                    if piece.startswith(b"HTTP/1.1") and b"ontent-" not in piece:
                        request = None  # it ends with the connection
                if request is None:
                    return

    def listen() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
                threads[-1].start()

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    try:
        yield server
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        listening.join(5)


def _read(reader: BinaryIO) -> Request | None:
    lines: list[str] = []
    while (line := reader.readline(1 << 16)) not in (b"\r\n", b""):
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    if not lines:
        return None
    method, target, _ = lines[0].split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    body = reader.read(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)
