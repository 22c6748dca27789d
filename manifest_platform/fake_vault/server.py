"""The server of Vault's API, as far as Direct Data needs it: sessions, the listing, downloads, limits, and faults.

As in Vault, failures are JSON with HTTP 200. In addition to Vault's calls there are calls below `/fake/`, with which another
process sets the clock and the faults.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from manifest_platform.fake_vault.archives import EXTRACT_TYPES, Feed, Window
from manifest_platform.fake_vault.events import WINDOW
from manifest_platform.fake_vault.faults import Call, Fault, InvalidFault
from manifest_platform.fake_vault.publication import Publisher, Schedule
from manifest_platform.fake_vault.simulation import Simulation

VAULT_ID = 146478
USER = "integration@acme.example"
PASSWORD = "invented-data-only"  # noqa: S105 - it guards nothing
TOKEN = "bearer-for-invented-data"  # noqa: S105
PROFILE = "profile-1"
CLIENT, CLIENT_SECRET = "client-7", "invented-client-secret"
OTHER_VAULT = 999
"""The vault, of the same user, that a login opens if it names a DNS name that is not this vault's."""

BURST_S = 300
SESSION_S = 48 * 3600
WRONG_PASSWORDS = 5
"""The number of wrong passwords that locks a user out."""

_CALLS: tuple[tuple[str, str, Call], ...] = (
    ("POST", r"/api/v\d+\.\d+/auth", "auth"),
    ("POST", r"/auth/oauth/session/(?P<profile>[^/]+)", "auth"),
    ("GET", r"/oauth/\.well-known/openid-configuration", "discovery"),
    ("POST", r"/oauth/token", "token"),
    ("POST", r"/api/v\d+\.\d+/keep-alive", "keep-alive"),
    ("DELETE", r"/api/v\d+\.\d+/session", "session"),
    ("GET", r"/api/v\d+\.\d+/services/directdata/files", "list"),
    ("GET", r"/api/v\d+\.\d+/services/directdata/files/(?P<part>[^/]+)", "download"),
)
_PART = re.compile(r"(?P<archive>.+)\.(?P<number>\d{3})")


class Failure(Exception):
    """A call that fails. Clients act on `kind`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Request:
    """An answered call, without secrets. `outcome`: SUCCESS, the type of the failure, or the status of an HTTP error."""

    call: Call | None
    method: str
    path: str
    query: dict[str, str]
    outcome: str
    execution_id: str
    client_id: str | None
    range: str | None = None


@dataclass(frozen=True)
class Asked:
    """An incoming call. Names of headers are in lower case; `named`: the parameters in its path, by name."""

    method: str
    path: str
    query: dict[str, str]
    form: dict[str, str] = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    named: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """The answer to a call. `cut`: the connection ends in the middle of the body."""

    body: bytes
    outcome: str = "SUCCESS"
    status: int = 200
    type: str = "application/json;charset=UTF-8"
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass
class _Session:
    vault_id: int
    opened: float
    used: float


@dataclass(frozen=True)
class VaultSettings:
    """The settings of a fake vault that do not change while it runs."""

    port: int = 0
    """The port on this machine; 0: a free port."""
    speed: float = 0.0
    """The speed of its clock relative to real time; 0: it stands still."""
    vault_id: int = VAULT_ID
    """The number of the vault, which names its archives."""
    dns: str = "acme.veevavault.com"
    """The vault's DNS name; a login that names another opens another vault."""
    user: str = USER
    """The user that may log in."""
    password: str = field(default=PASSWORD, repr=False)
    """The user's password."""
    token: str = field(default=TOKEN, repr=False)
    """The bearer token with which `profile` logs in."""
    profile: str = PROFILE
    """The OAuth 2.0 profile; its logins need `token`, or a token of the identity provider."""
    client: str = CLIENT
    """The client that gets tokens from the identity provider."""
    client_secret: str = field(default=CLIENT_SECRET, repr=False)
    """The client's secret."""
    full_hour_utc: int = 0
    """The hour of the day, 0 to 23 UTC, at which snapshots and logs stop, unless stop times are given."""
    full_stops: Sequence[datetime] | None = None
    """The stop times of snapshots; None: daily, the first at the simulation's beginning."""
    log_stops: Sequence[datetime] | None = None
    """The stop times of logs; None: daily."""
    incr_delay: timedelta = WINDOW
    """The time from a window's stop to its publication, for changes."""
    full_delay: timedelta = timedelta(hours=1)
    """The time from the stop of a snapshot or a log to its publication."""
    part_bytes: int = 1_000_000_000
    """The most bytes of a part of an archive."""
    md5: bool = True
    """True if the listing has the MD5 of each part."""


class FakeVault:
    """A Vault on a port of this machine, for the duration of a `with` block.

    These may be set at any time:

    - `now`: the server's clock (UTC), which decides what is published and kept; initially an hour after the first day
    - `inject(fault)`, `heal()`: the faults
    - `ranges`: True if the rest of a part can be downloaded (RFC 9110, 14)
    - `opens_vault`: the vault that a login opens, if it should not be the requested one
    - `session_idle_s`, `burst_limit`, `burst_delay_ms`, `wrong_passwords`: limits, in real time
    - `token_seconds`: the lifetime of a token of the identity provider, which is at `/oauth` of the same server
    - `client_tells_in`: how a client sends its secret to the provider: in the `header` (client_secret_basic) or in the `body`

    `settings`: what does not change. `requests`: all answered calls.
    """

    def __init__(self, simulation: Simulation, now: datetime | None = None, settings: VaultSettings = VaultSettings()) -> None:
        delays: dict[Feed, timedelta] = {"incr": settings.incr_delay, "log": settings.full_delay, "full": settings.full_delay}
        schedule = Schedule(settings.full_hour_utc, settings.full_stops, settings.log_stops, delays)
        self.simulation, self.settings = simulation, settings
        self.publisher = Publisher(simulation, settings.vault_id, schedule, settings.part_bytes, settings.md5)
        self.now = now or simulation.begin + timedelta(days=1, hours=1)
        self.session_idle_s = 20 * 60.0
        self.burst_limit, self.burst_delay_ms = 2000, 500
        self.wrong_passwords = WRONG_PASSWORDS
        self.opens_vault: int | None = None
        self.ranges = True
        self.token_seconds, self.client_tells_in = 3600.0, "header"
        self.requests: list[Request] = []
        self._lock = threading.RLock()
        self._faults: list[Fault] = []
        self._sessions: dict[str, _Session] = {}
        self._tokens: dict[str, float] = {}
        self._wrong_in_a_row = 0
        self._burst = (0.0, 0)
        self._orders = itertools.count()
        self._server: _Server | None = None

    def __enter__(self) -> FakeVault:
        self._server = _Server(("127.0.0.1", self.settings.port), self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-vault", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server
        self._server.end()
        self._server = None

    @property
    def url(self) -> str:
        """The server's URL, without a slash at the end."""
        assert self._server, "a fake vault listens inside its `with` block"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def now(self) -> datetime:
        """The server's clock, UTC."""
        return self._set_to + timedelta(seconds=(time.monotonic() - self._set_when) * self.settings.speed)

    @now.setter
    def now(self, now: datetime) -> None:
        if now.tzinfo is None:
            raise ValueError("the clock needs a time zone, as 2026-01-01T00:15Z")
        self._set_to, self._set_when = now.astimezone(UTC), time.monotonic()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The active faults. `times` is the number of times that a fault will still occur."""
        with self._lock:
            now = self.now
            return tuple(fault for fault in self._faults if fault.stands(now) and fault.times != 0)

    def inject(self, *faults: Fault) -> None:
        """Adds faults."""
        with self._lock:
            self._faults += faults

    def heal(self) -> None:
        """Removes all faults."""
        with self._lock:
            self._faults.clear()

    def expire_sessions(self) -> None:
        """Ends all sessions."""
        with self._lock:
            self._sessions.clear()

    def withdraw_tokens(self) -> None:
        """Invalidates the tokens of the identity provider before they expire."""
        with self._lock:
            self._tokens.clear()

    @property
    def issuer(self) -> str:
        """The URL of the identity provider."""
        return f"{self.url}/oauth"

    def unlock(self) -> None:
        """Unlocks a user who was locked out."""
        with self._lock:
            self._wrong_in_a_row = 0

    def windows(self, feed: Feed) -> list[Window]:
        """Returns the windows that are listed now, in order."""
        return self.publisher.windows(feed, self.now, self.faults)

    def count(self, call: Call, outcome: str | None = None) -> int:
        """Returns the number of answered calls of a kind, optionally with an outcome."""
        with self._lock:
            return sum(request.call == call and outcome in (None, request.outcome) for request in self.requests)

    # Calls

    def answer(self, asked: Asked) -> Reply:
        """Answers a call. Calls below `/fake/` are not counted."""
        if asked.path.startswith("/fake/"):
            return self._steer(asked)
        call, asked = _recognized(asked)
        delay = self._use_burst()
        reply = self._answer(call, asked)
        execution = str(uuid.uuid4())
        with self._lock:
            session = self._sessions.get(_session_id(asked))
        vault_id = session.vault_id if session else self.settings.vault_id
        own = {"X-VaultAPI-ExecutionId": execution, "X-VaultAPI-VaultId": str(vault_id)}
        headers = {**own, **delay, **reply.headers}
        if reference := asked.headers.get("x-vaultapi-referenceid"):
            headers["X-VaultAPI-ReferenceId"] = reference
        client = asked.headers.get("x-vaultapi-clientid")
        with self._lock:
            self.requests.append(
                Request(
                    call, asked.method, asked.path, asked.query, reply.outcome, execution, client, asked.headers.get("range")
                )
            )
        return replace(reply, headers=headers)

    def _answer(self, call: Call | None, asked: Asked) -> Reply:
        try:
            if call is None:
                raise Failure("MALFORMED_URL", f"there is no call {asked.method} {asked.path}")
            if fault := self._meet(lambda fault: fault.kind == "slow" and fault.call in (None, call)):
                time.sleep(fault.seconds)
            if fault := self._meet(lambda fault: fault.kind in ("status", "error") and fault.call in (None, call)):
                return _broken(fault)
            return self._ROUTES[call](self, asked)
        except Failure as failure:
            return _failed(failure)
        except InvalidFault as error:
            return _failed(Failure("UNEXPECTED_ERROR", str(error)))

    def _log_in(self, asked: Asked) -> Reply:
        if profile := asked.named.get("profile"):
            self._check_bearer(profile, asked)
        else:
            self._check_password(asked)
        opened = self.opens_vault or self._vault_of(asked.form.get("vaultDNS"))
        session, now = uuid.uuid4().hex.upper() * 2, time.monotonic()
        with self._lock:
            self._sessions[session] = _Session(opened, now, now)
        vaults = [
            {"id": known, "name": f"Vault {known}", "url": f"{self.url}/api"} for known in {self.settings.vault_id, opened}
        ]
        return _succeeded(sessionId=session, userId=12021, vaultIds=vaults, vaultId=opened)

    def _check_password(self, asked: Asked) -> None:
        user, password = (_required(asked.form, name) for name in ("username", "password"))
        with self._lock:
            if self._wrong_in_a_row >= self.wrong_passwords:
                raise Failure("USER_LOCKED_OUT", "the user is locked out")
            if (user, password) != (self.settings.user, self.settings.password):
                self._wrong_in_a_row += user == self.settings.user
                raise Failure("USERNAME_OR_PASSWORD_INCORRECT", "the user name or password is not right")
            self._wrong_in_a_row = 0

    def _check_bearer(self, profile: str, asked: Asked) -> None:
        _required(asked.form, "client_id")
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        with self._lock:
            is_known = token == self.settings.token or time.monotonic() < self._tokens.get(token, 0)
        if profile != self.settings.profile or not is_known:
            raise Failure("USERNAME_OR_PASSWORD_INCORRECT", "the bearer token or the profile is unknown")

    def _vault_of(self, dns: str | None) -> int:
        """Returns the vault that a login opens. Like Vault, it opens another vault of the user, without notice, for an unknown
        DNS name.
        """
        own = urlsplit(self.url)
        names = (None, "", self.settings.dns, own.hostname, own.netloc, "localhost")
        return self.settings.vault_id if dns in names else OTHER_VAULT

    def _tell_metadata(self, _asked: Asked) -> Reply:
        """Answers with the identity provider's metadata (OpenID Connect Discovery)."""
        method = "client_secret_basic" if self.client_tells_in == "header" else "client_secret_post"
        told = {
            "issuer": self.issuer,
            "token_endpoint": f"{self.issuer}/token",
            "grant_types_supported": ["client_credentials"],
        }
        return Reply(json.dumps({**told, "token_endpoint_auth_methods_supported": [method]}).encode())

    def _give_token(self, asked: Asked) -> Reply:
        """Answers a request for a token by client credentials (RFC 6749, 4.4), or the error of 5.2."""
        by_header = base64.b64decode(asked.headers.get("authorization", "").removeprefix("Basic ")).decode().split(":", 1)
        by_body = [asked.form.get("client_id", ""), asked.form.get("client_secret", "")]
        if (by_header if self.client_tells_in == "header" else by_body) != [self.settings.client, self.settings.client_secret]:
            return _no_token("invalid_client", 401)
        if asked.form.get("grant_type") != "client_credentials":
            return _no_token("unsupported_grant_type", 400)
        token = uuid.uuid4().hex
        with self._lock:
            self._tokens[token] = time.monotonic() + self.token_seconds
        told = {"access_token": token, "token_type": "Bearer", "expires_in": int(self.token_seconds)}
        return Reply(json.dumps(told).encode())

    def _keep_alive(self, asked: Asked) -> Reply:
        self._session(asked)
        return _succeeded()

    def _end_session(self, asked: Asked) -> Reply:
        self._session(asked)
        with self._lock:
            del self._sessions[_session_id(asked)]
        return _succeeded()

    def _session(self, asked: Asked) -> _Session:
        now = time.monotonic()
        with self._lock:
            session = self._sessions.get(_session_id(asked))
            if not session or now - session.used > self.session_idle_s or now - session.opened > SESSION_S:
                self._sessions.pop(_session_id(asked), None)
                raise Failure("INVALID_SESSION_ID", "the session is not known, or has ended")
            session.used = now
            return session

    def _list(self, asked: Asked) -> Reply:
        session, now, faults = self._session(asked), self.now, self.faults
        feeds = _feeds(asked.query.get("extract_type"))
        since, until = _time(asked.query, "start_time"), _time(asked.query, "stop_time")
        if not self.publisher.started(now):
            raise Failure("OPERATION_NOT_ALLOWED", "the first Direct Data file of this vault is being generated")
        found = [
            self.publisher.entry(window, now, faults)
            for feed in feeds
            for window in self.publisher.windows(feed, now, faults)
            if (since is None or window.start >= since) and (until is None or window.stop <= until)
        ]
        if session.vault_id != self.settings.vault_id:
            found = []
        Random(next(self._orders)).shuffle(found)  # noqa: S311 - the order is not documented, so it is random
        return _succeeded(responseDetails={"total": len(found)}, data=found)

    def _download(self, asked: Asked) -> Reply:
        name = asked.named["part"]
        split = _PART.fullmatch(name)
        window = self._window_named(split["archive"]) if split else None
        number = int(split["number"]) if split else 0
        if window:
            self._expire(window, number, asked)
        session, faults = self._session(asked), self.faults
        unpublished = {fault.window for fault in faults if fault.kind == "unpublished"}
        parts = ()
        if window and window.ref not in unpublished and session.vault_id == self.settings.vault_id:
            parts = self.publisher.published(window, faults).parts
        if not window or not 1 <= number <= len(parts):
            raise Failure("INVALID_DATA", f"there is no file {name}")
        return self._part_reply(name, parts[number - 1].content, window, number, asked)

    def _part_reply(self, name: str, content: bytes, window: Window, number: int, asked: Asked) -> Reply:
        fault = self._meet_at(window, number, ("bad_md5", "short_part", "cut"))
        if fault and fault.kind == "bad_md5":
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        if fault and fault.kind == "short_part":
            content = content[: len(content) // 2]
        archive, _, suffix = name.rpartition(".")
        attachment = {"Content-Disposition": f'attachment; filename="{archive}.tar.gz.{suffix}"'}
        cut = fault is not None and fault.kind == "cut"
        whole = Reply(content, type="application/octet-stream", headers=attachment, cut=cut)
        return _in_range(whole, asked.headers) if self.ranges else whole

    def _expire(self, window: Window, number: int, asked: Asked) -> None:
        if self._meet_at(window, number, ("expired",)):
            with self._lock:
                self._sessions.pop(_session_id(asked), None)

    def _window_named(self, archive: str) -> Window | None:
        now, faults = self.now, self.faults
        for feed in EXTRACT_TYPES:
            for window in self.publisher.windows(feed, now, faults):
                if window.name(self.settings.vault_id) == archive:
                    return window
        return None

    _ROUTES: Mapping[Call, Callable[[FakeVault, Asked], Reply]] = {
        "auth": _log_in,
        "discovery": _tell_metadata,
        "token": _give_token,
        "keep-alive": _keep_alive,
        "session": _end_session,
        "list": _list,
        "download": _download,
    }

    # Faults and limits

    def _meet_at(self, window: Window, number: int, kinds: Sequence[str]) -> Fault | None:
        return self._meet(
            lambda fault: fault.kind in kinds and fault.window in (None, window.ref) and fault.part in (None, number)
        )

    def _meet(self, meant: Callable[[Fault], bool]) -> Fault | None:
        """Returns the first active fault that matches, and counts it."""
        with self._lock:
            now = self.now
            for at, fault in enumerate(self._faults):
                if fault.stands(now) and fault.times != 0 and meant(fault):
                    if fault.times is not None:
                        self._faults[at] = replace(fault, times=fault.times - 1)
                    return fault
        return None

    def _use_burst(self) -> dict[str, str]:
        """Counts a call against the limit of five minutes, and delays the answer beyond it. Returns the headers that say so."""
        with self._lock:
            began, used = self._burst
            now = time.monotonic()
            began, used = (now, 0) if now - began > BURST_S else (began, used)
            self._burst = began, used + 1
            left = self.burst_limit - used - 1
        headers = {"X-VaultAPI-BurstLimit": str(self.burst_limit), "X-VaultAPI-BurstLimitRemaining": str(max(0, left))}
        if left >= 0:
            return headers
        time.sleep(self.burst_delay_ms / 1000)
        return {**headers, "X-VaultAPI-ResponseDelay": str(self.burst_delay_ms)}

    # Steering by another process

    def _steer(self, asked: Asked) -> Reply:
        try:
            match asked.method, asked.path:
                case "POST", "/fake/faults":
                    given = json.loads(asked.form["json"])
                    self.inject(*(Fault.from_dict(one) for one in (given if isinstance(given, list) else [given])))
                case "DELETE", "/fake/faults":
                    self.heal()
                case "POST", "/fake/clock":
                    self._set_clock(json.loads(asked.form["json"]))
                case "GET", "/fake/faults" | "/fake/clock":
                    pass
                case _:
                    return Reply(b'{"error": "GET, POST or DELETE /fake/faults; GET or POST /fake/clock"}', status=404)
        except (ValueError, KeyError, TypeError) as error:
            return Reply(json.dumps({"error": str(error)}).encode(), status=400)
        told = {"now": self.now.isoformat()} if asked.path == "/fake/clock" else [fault.as_dict() for fault in self.faults]
        return Reply(json.dumps(told).encode())

    def _set_clock(self, told: dict[str, Any]) -> None:
        """Sets the clock by `{"now": "2026-01-01T12:00Z"}`, or advances it by `{"minutes": 15}`."""
        if "minutes" in told:
            self.now += timedelta(minutes=told["minutes"])
        else:
            self.now = datetime.fromisoformat(told["now"])


def _recognized(asked: Asked) -> tuple[Call | None, Asked]:
    for method, pattern, call in _CALLS:
        found = re.fullmatch(pattern, asked.path)
        if found and method == asked.method:
            return call, replace(asked, named=found.groupdict())
    return None, asked


def _session_id(asked: Asked) -> str:
    return asked.headers.get("authorization", "").removeprefix("Bearer ")


def _required(form: Mapping[str, str], name: str) -> str:
    if not form.get(name):
        raise Failure("PARAMETER_REQUIRED", f"the parameter {name} is missing")
    return form[name]


def _feeds(extract_type: str | None) -> list[Feed]:
    if extract_type is None:
        return list(EXTRACT_TYPES)
    found = [feed for feed, name in EXTRACT_TYPES.items() if name == extract_type]
    if not found:
        raise Failure("INVALID_DATA", f"there is no extract_type {extract_type}")
    return found


def _time(query: Mapping[str, str], name: str) -> datetime | None:
    """Parses a time of a query, `YYYY-MM-DDTHH:MM:SSZ` or to the minute only."""
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"):
        with contextlib.suppress(ValueError):
            return datetime.strptime(query[name], form).replace(tzinfo=UTC) if name in query else None
    raise Failure("INVALID_DATA", f"{name} is not a time")


def _succeeded(**told: Any) -> Reply:
    return Reply(json.dumps({"responseStatus": "SUCCESS", **told}).encode())


def _failed(failure: Failure) -> Reply:
    errors = [{"type": failure.kind, "message": str(failure)}]
    return Reply(json.dumps({"responseStatus": "FAILURE", "errors": errors}).encode(), outcome=failure.kind)


def _in_range(whole: Reply, headers: Mapping[str, str]) -> Reply:
    """Returns the requested range of a content: the rest from a byte on, if the content is unchanged."""
    size, etag = len(whole.body), f'"{hashlib.md5(whole.body, usedforsecurity=False).hexdigest()}"'
    told = {**whole.headers, "ETag": etag, "Accept-Ranges": "bytes"}
    found = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
    if not found or headers.get("if-range", etag) != etag:
        return replace(whole, headers=told)
    start = int(found[1])
    if start >= size:
        return replace(whole, body=b"", status=416, headers={**told, "Content-Range": f"bytes */{size}"})
    return replace(
        whole, body=whole.body[start:], status=206, headers={**told, "Content-Range": f"bytes {start}-{size - 1}/{size}"}
    )


def _no_token(error: str, status: int) -> Reply:
    return Reply(json.dumps({"error": error, "error_description": "as RFC 6749 has it"}).encode(), error, status)


def _broken(fault: Fault) -> Reply:
    if fault.kind == "error":
        return _failed(Failure(fault.error, "an injected fault"))
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    return Reply(b"<html>it went wrong</html>", str(fault.status), fault.status, "text/html", headers)


class _Server(ThreadingHTTPServer):
    """Answers each connection on a thread of its own, and closes all connections at the end."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], vault: FakeVault) -> None:
        self.vault = vault
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnected; prints other errors."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        """Stops answering, and closes all connections."""
        self.shutdown()
        self.server_close()
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Passes calls to the vault and its answers back."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        split = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        form = {"json": body} if split.path.startswith("/fake/") else _single(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, split.path, _single(split.query), form, headers)
        reply = cast(_Server, self.server).vault.answer(asked)
        self.send_response(reply.status)
        for name, value in {"Content-Type": reply.type, "Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)
        self.close_connection = self.close_connection or reply.cut

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names are http.server's

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Prints nothing: `requests` has all calls."""


def _single(encoded: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(encoded, keep_blank_values=True).items()}
