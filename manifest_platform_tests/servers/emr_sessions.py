"""EMR Serverless' sessions, for tests: the calls of its API that moto lacks, and a gateway that demands a session's token.

The API is a small HTTP server with the shapes of botocore's model. Each session's endpoint is the gateway, which passes
requests on to a real Spark Connect server if they carry a token of the session that has not expired.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Generator, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

HEADER = "x-aws-proxy-auth"
APPLICATION, ROLE = "00fapplication1", "arn:aws:iam::123456789012:role/session"
_PATH = re.compile(r"/applications/(?P<application>\w+)/sessions(?:/(?P<id>\w+)(?P<endpoint>/endpoint)?)?")


@dataclass
class Sessions:
    """The sessions of an application. A test sets how they behave.

    `states`: the states that `get_session` answers, in turn; the last stays. `refusal`: a status and the name of an error, the
    answer to every call. `token_seconds`: the life of a token. `grace_seconds`: how long it is admitted after that: a busy
    machine delays requests.
    """

    states: list[str] = field(default_factory=lambda: ["STARTING", "STARTED"])
    details: str = ""
    token_seconds: float = 3600
    grace_seconds: float = 0
    refusal: tuple[int, str] | None = None
    endpoint: str = ""
    url: str = ""
    calls: list[str] = field(default_factory=list)
    started: list[dict[str, Any]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    tokens: dict[str, float] = field(default_factory=dict)
    admitted: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
        """Returns the status, the document and the error's name of an answer."""
        found = _PATH.fullmatch(path)
        assert found, path
        place = {"applicationId": found["application"], "sessionId": found["id"]}
        kind = {"POST": "start", "DELETE": "end"}.get(method, "endpoint" if found["endpoint"] else "look")
        self.calls.append(kind)
        if self.refusal:
            return self.refusal[0], {"message": "told by the stand-in"}, self.refusal[1]
        if kind == "start":
            self.started.append(body)
            id_ = uuid.uuid4().hex
            return 200, {**place, "sessionId": id_, "arn": f"arn:aws:emr-serverless:us-east-1:123456789012:/{id_}"}, ""
        if found["id"] in self.ended:
            return 404, {"message": "no such session"}, "ResourceNotFoundException"
        if kind == "end":
            self.ended.append(found["id"])
            return 200, place, ""
        if kind == "look":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return 200, {"session": {**place, "state": state, "stateDetails": self.details}}, ""
        token, expires = f"token-{uuid.uuid4().hex}", time.time() + self.token_seconds
        self.tokens[token] = expires
        return 200, {**place, "endpoint": self.endpoint, "authToken": token, "authTokenExpiresAt": expires}, ""

    def admits(self, token: str) -> bool:
        """True if a request with this token may pass now."""
        is_admitted = time.time() < self.tokens.get(token, 0) + self.grace_seconds
        if is_admitted:
            self.admitted.add(token)
        else:
            self.refused.append(token)
        return is_admitted


@contextmanager
def emr_sessions(connect: str = "") -> Generator[Sessions]:
    """Runs the API, and the gateway to a Connect server (`sc://HOST:PORT`), if one is given."""
    sessions = Sessions()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, document, error = sessions.answer(self.command, self.path, json.loads(self.rfile.read(length) or b"{}"))
            sent = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.send_header("Content-Type", "application/json")
            if error:
                self.send_header("x-amzn-ErrorType", error)
            self.end_headers()
            self.wfile.write(sent)

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_DELETE(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    api = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=api.serve_forever, daemon=True)
    thread.start()
    sessions.url = f"http://127.0.0.1:{api.server_port}"
    try:
        with _gateway(sessions, connect.removeprefix("sc://")) if connect else _nowhere():
            yield sessions
    finally:
        api.shutdown()
        api.server_close()


@contextmanager
def _nowhere() -> Generator[None]:
    yield


@contextmanager
def _gateway(sessions: Sessions, server: str) -> Generator[None]:
    """Passes each request with a token on to the server, byte for byte."""
    with grpc.insecure_channel(server, _OPTIONS) as behind:

        class Passing(grpc.GenericRpcHandler):
            def service(self, handler_call_details: Any) -> Any:
                call = handler_call_details
                metadata = dict(call.invocation_metadata)

                def passed(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
                    if not sessions.admits(metadata.pop(HEADER, "")):
                        context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is unknown or has expired")
                    sent = [(name, value) for name, value in metadata.items() if name != "user-agent"]
                    try:
                        yield from behind.stream_stream(call.method)(requests, metadata=sent)
                    except grpc.RpcError as error:
                        failed: Any = error
                        context.set_trailing_metadata(failed.trailing_metadata() or ())
                        context.abort(failed.code(), failed.details())

                return grpc.stream_stream_rpc_method_handler(passed)

        gateway = grpc.server(futures.ThreadPoolExecutor(32), [Passing()], options=_OPTIONS)
        sessions.endpoint = f"http://127.0.0.1:{gateway.add_insecure_port('127.0.0.1:0')}"
        gateway.start()
        try:
            yield
        finally:
            gateway.stop(None)


_OPTIONS = [("grpc.max_receive_message_length", 128 << 20), ("grpc.max_send_message_length", 128 << 20)]
