"""The client of Vault's API for Direct Data: sessions, the list of files, the download of their parts.

It makes one HTTP call at a time, with retries, and raises typed errors. Vault answers failures with HTTP 200, so the error type
in the answer counts, never its wording. The producer decides what to capture, and when.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential_jitter

from manifest_platform import masking
from manifest_platform.sources import answers
from manifest_platform.sources.veeva.errors import (
    DownloadBroken,
    LoginRefused,
    NothingPublished,
    VaultRefused,
    VaultUnavailable,
    VaultUnreachable,
    WrongVault,
)
from manifest_platform.sources.veeva.file_list import EXTRACT_TYPES, MOST, read_list
from manifest_platform.sources.veeva.files import Feed, FileListing, Part
from manifest_platform.sources.veeva.layout import VAULT_BEGAN
from manifest_platform.sources.veeva.login import (
    ClientCredentials,
    Credentials,
    IdentityProvider,
    OAuth,
    Password,
    SessionId,
    check_safe,
)
from manifest_platform.sources.veeva.reading import can_be_sent, parsed, text_of
from manifest_platform.sources.veeva.settings import VaultLimits

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_ENDED = "INVALID_SESSION_ID"
_NOTHING_YET = "OPERATION_NOT_ALLOWED"
_TRANSIENT = {"API_LIMIT_EXCEEDED", "UNEXPECTED_ERROR", "CONFIGURATION_MODE_ENABLED"}
_LOCKING = {
    "INSUFFICIENT_ACCESS",
    "USERNAME_OR_PASSWORD_INCORRECT",
    "USER_LOCKED_OUT",
    "PASSWORD_CHANGE_REQUIRED",
    "INACTIVE_USER",
}
_BLOCK = 1 << 18
_CONTENT = (200, 206, 416)  # whole, partial, nothing left
_ERROR_SIZE = 1 << 16  # an error's answer is not longer
_REASON = 1000  # characters of Vault's message that are kept
_LITTLE_LEFT = 0.05  # as a share of the burst limit


@dataclass(frozen=True)
class VaultLogin:
    """A vault, and the credentials to log in with.

    `vault`: the id that every session must be for. `api`: the version of the API, as `v25.2`. Raises ValueError for a URL to
    which a secret would travel unencrypted: allowed are https, and http to this machine.
    """

    url: str
    vault: str
    credentials: Credentials
    api: str = "v25.2"
    client_id: str = "manifest-platform"

    def __post_init__(self) -> None:
        for url in [self.url, self.credentials.url] if isinstance(self.credentials, OAuth) else [self.url]:
            check_safe(url)


@dataclass(frozen=True)
class Patience:
    """Retries and timeouts of calls to Vault, in seconds.

    A call that fails for a transient reason is made up to `attempts` times. The waits double from `first_wait` to
    `longest_wait`, with random jitter. If Vault asks for a longer wait, the call fails immediately. `burst_pause`: the pause
    before each call while little of the burst limit is left. `idle`: a session that was idle for this long is kept alive.
    `session_age`: an older session is replaced, because Vault ends it after 48 hours.
    """

    attempts: int = 5
    first_wait: float = 1
    longest_wait: float = 60
    connect: float = 10
    read: float = 60
    burst_pause: float = 5
    idle: float = 300
    session_age: float = 47 * 3600


PATIENCE = Patience()


class Vault:
    """A session with a vault, opened by the first call. For one thread. Close it after use.

    `requests`, `bytes`: the calls made and the bytes received so far. `sleep` and `clock` (in seconds) are for tests. Every
    call raises VaultUnavailable (VaultUnreachable if no other call would succeed either), VaultRefused and LoginRefused.
    """

    def __init__(
        self,
        login: VaultLogin,
        patience: Patience = PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        limits: VaultLimits | None = None,
    ):
        self.login, self.patience, self.limits = login, patience, limits or VaultLimits()
        masking.keep(*login.credentials.secrets)
        self.requests = self.bytes = 0
        self._sleep, self._clock = sleep, clock
        self._base = f"{login.url.rstrip('/')}/api/{login.api}"
        self._http = answers.Client(
            patience.read, patience.connect, {"X-VaultAPI-ClientID": login.client_id, "Accept": "application/json"}
        )
        who = login.credentials
        grants = isinstance(who, OAuth) and isinstance(who.token, ClientCredentials)
        self._provider = IdentityProvider(who.token, self._http, self.limits, clock) if grants else None
        self._session: str | None = None
        self._opened = self._used = 0.0
        self._pause = 0.0
        self._refused: LoginRefused | None = None

    def close(self) -> None:
        """Closes the connections, but not the session: Vault may give the same session to another program of the user."""
        self._http.close()

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def has_session(self) -> bool:
        """True if Vault has accepted the login."""
        return self._session is not None

    # Calls

    def log_in(self) -> None:
        """Opens a session. Raises LoginRefused, or WrongVault for another vault's. After either, no login is tried again."""
        if self._refused:
            raise self._refused
        self._session = None
        try:
            answer = self._patiently(self._open_session)
        except VaultRefused as error:
            self._refused = LoginRefused(f"no session with vault {self.login.vault}: {error}", error.type)
            raise self._refused from error
        except VaultUnavailable as error:
            raise VaultUnreachable(f"no session with vault {self.login.vault}: {error}", error.wait) from error
        opened = text_of(answer.get("vaultId"))
        if opened != self.login.vault:
            self._refused = WrongVault(
                f"{self.login.url} opened a session with vault {opened}, but vault {self.login.vault} is configured."
                " Nothing was read. Correct the url or the id",
                "WRONG_VAULT",
            )
            raise self._refused
        session = answer.get("sessionId")
        if not can_be_sent(session):
            self._refused = LoginRefused(
                f"{self.login.url} answers that it opened a session, but its session id cannot be sent back", "HTTP 200"
            )
            raise self._refused
        masking.keep(session)
        self._session = session
        self._opened = self._used = self._clock()

    def keep_alive(self) -> None:
        """Keeps the session from ending because it is idle."""
        self._within_session(lambda: self._json("POST", f"{self._base}/keep-alive"))

    def files(self, feed: Feed, start: datetime | None = None, stop: datetime | None = None) -> FileListing:
        """Lists the files of a feed whose windows are between `start` and `stop`; by default all that Vault keeps.

        Vault lists no snapshot unless `start` is as early as the snapshot's own start time, which is the default.
        """
        bounds = {"start_time": start or (VAULT_BEGAN if feed == "full" else None), "stop_time": stop}
        query = {name: f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for name, time in bounds.items() if time}
        query["extract_type"] = EXTRACT_TYPES[feed]
        url = f"{self._base}/services/directdata/files"
        try:
            answer = self._within_session(lambda: self._json("GET", url, params=query))
        except VaultRefused as error:
            if error.type == _NOTHING_YET:
                raise NothingPublished(f"{error}. Until the first snapshot is generated, Vault lists no file") from error
            raise
        entries = answer.get("data") or []
        if not isinstance(entries, list):
            raise VaultRefused(f"{url}: data is of type {type(entries).__name__}, not a list", "NO_LIST")
        if len(entries) > MOST:
            raise VaultRefused(f"{url}: the list has {len(entries):,} entries, but at most {MOST:,} are read", "LONG_LIST")
        return read_list(feed, entries)

    def download(self, part: Part) -> Generator[bytes]:
        """Yields the bytes of a part. After a broken connection it requests only the rest.

        Raises DownloadBroken if it cannot continue, for example because the part has other content now. Then download all of it
        again.
        """
        url = f"{self._base}/services/directdata/files/{quote(part.name, safe='')}"
        rest, failures, ends = _Rest(), 0, time.monotonic() + self.limits.part_seconds
        while True:
            with self._http.within(ends - time.monotonic()):
                response, blocks = self._within_session(lambda: self._begin(url, rest))
            try:
                if rest.position and not rest.is_begun_by(response, part.size):
                    raise DownloadBroken(
                        f"{part.name} has other content now, or cannot be downloaded in pieces; it is downloaded again"
                    )
                rest.etag = response.headers.get("ETag")
                for block in self._by(ends, blocks):
                    self.bytes += len(block)
                    rest.position += len(block)
                    failures = 0
                    yield block
                    if self._clock() - self._used > self.patience.idle:
                        with suppress(VaultUnavailable):  # the download itself may still succeed
                            self.keep_alive()
                return
            except httpx.RequestError as error:
                failures += 1
                if time.monotonic() >= ends:
                    raise VaultUnavailable(
                        f"the download of {part.name} took longer than vault.limits.part_seconds allows,"
                        f" {self.limits.part_seconds:g}: {rest.position} of {part.size} bytes had arrived"
                    ) from error
                if failures >= self.patience.attempts:
                    raise DownloadBroken(masking.masked(f"the download of {part.name} broke off: {error!r}")) from error
                problem = masking.masked(repr(error))
                log.info("%s broke off after %s bytes, and continues from there: %s", part.name, rest.position, problem)
            finally:
                response.close()
            self._sleep(min(self.patience.first_wait * 2 ** (failures - 1), self.patience.longest_wait))

    def _by(self, ends: float, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yields the blocks of a download that arrive before a time."""
        while True:
            with self._http.within(ends - time.monotonic()):
                block = next(blocks, None)
            if block is None:
                return
            yield block

    # Sessions

    def _open_session(self) -> dict[str, Any]:
        who, dns = self.login.credentials, urlsplit(self.login.url).hostname
        if isinstance(who, Password):
            form = {"username": who.user, "password": who.password, "vaultDNS": dns}
            return self._json("POST", f"{self._base}/auth", data=form)
        if isinstance(who, SessionId):
            return self._take_over(who)
        if self._provider is None:
            return self._open_by(str(who.token), who)
        was_kept = self._provider.is_valid
        try:
            return self._open_by(self._provider.token(), who)
        except VaultRefused:
            if not was_kept:
                raise
            self._provider.forget()  # the provider withdrew it before it expired
            return self._open_by(self._provider.token(), who)

    def _open_by(self, token: str, who: OAuth) -> dict[str, Any]:
        url = f"{who.url.rstrip('/')}/auth/oauth/session/{quote(who.profile, safe='')}"
        form = {"vaultDNS": urlsplit(self.login.url).hostname, "client_id": who.client}
        return self._json("POST", url, data=form, headers={"Authorization": f"Bearer {token}"})

    def _take_over(self, who: SessionId) -> dict[str, Any]:
        """Takes over an existing session if it is still valid. A header says which vault it is for."""
        response = self._send("POST", f"{self._base}/keep-alive", self._whole, headers={"Authorization": who.id})
        try:
            self._judge(response, response.content)
        except _SessionEnded as error:
            raise VaultRefused(f"{error}. The session has ended: open another session, and give its id", error.type) from error
        return {"sessionId": who.id, "vaultId": response.headers.get("X-VaultAPI-VaultId", self.login.vault)}

    def _within_session(self, call: Callable[[], Answer]) -> Answer:
        """Makes a call in a session that is not too old. If Vault says that it has ended, repeats the call in a new session."""
        if self._session is None or self._clock() - self._opened > self.patience.session_age:
            self.log_in()
        try:
            return self._patiently(call)
        except _SessionEnded:
            self.log_in()
        try:
            return self._patiently(call)
        except _SessionEnded as again:
            raise VaultRefused(f"{again}, in a session that was just opened", _ENDED) from again

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        patience = self.patience
        own = wait_exponential_jitter(multiplier=patience.first_wait, max=patience.longest_wait, jitter=patience.first_wait)
        return Retrying(
            retry=retry_if_exception_type(VaultUnavailable),
            wait=lambda state: max(own(state), _told_to_wait(state)),
            stop=lambda state: state.attempt_number >= patience.attempts or _told_to_wait(state) > patience.longest_wait,
            sleep=self._sleep,
            reraise=True,
        )(call)

    # HTTP

    def _json(self, method: str, url: str, **request: Any) -> dict[str, Any]:
        """Returns the content of a successful answer."""
        response = self._send(method, url, self._whole, **request)
        return self._judge(response, response.content)

    def _begin(self, url: str, rest: _Rest) -> tuple[httpx.Response, Iterator[bytes]]:
        """Begins a download. Returns the response, which the caller closes, and its bytes. Raises if the answer is an error."""
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", **rest.headers}
        response = self._send("GET", url, self._http.begin, headers=headers)
        try:
            blocks = response.iter_raw(_BLOCK)
            first = next(blocks, b"")
            if response.status_code not in _CONTENT or _is_answer(response, first):
                self._judge(response, first)
                raise VaultRefused(f"{self._what(response)}: Vault sent an answer instead of a file", "NO_FILE")
        except httpx.RequestError as error:
            response.close()
            raise VaultUnavailable(masking.masked(f"{self._what(response)} broke off: {error!r}")) from error
        except BaseException:
            response.close()
            raise
        return response, chain([first], blocks)

    def _whole(self, method: str, url: str, **request: Any) -> httpx.Response:
        return self._http.ask(method, url, self.limits.answer_bytes, self.limits.answer_seconds, **request)

    def _send(
        self,
        method: str,
        url: str,
        ask: Callable[..., httpx.Response],
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> httpx.Response:
        """Sends a request and returns its answer, or the beginning of it. Raises VaultUnavailable if there is none."""
        if self._pause:
            self._sleep(self._pause)
        own = {"Authorization": self._session} if self._session else {}
        self.requests += 1
        try:
            response = ask(method, url, headers={**own, **(headers or {})}, **request)
        except answers.TooLarge:
            raise VaultRefused(
                f"{method} {urlsplit(url).path} of {urlsplit(url).netloc}: {self.limits.too_large}", "TOO_LARGE"
            ) from None
        except httpx.RequestError as error:
            unconnected = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            failure = VaultUnreachable if unconnected else VaultUnavailable
            raise failure(masking.masked(f"{method} {urlsplit(url).path} of {urlsplit(url).netloc}: {error!r}")) from error
        self._used = self._clock()
        self._pause = self._pause_after(response.headers)
        log.debug("%s: HTTP %s", self._what(response), response.status_code)
        return response

    def _pause_after(self, headers: httpx.Headers) -> float:
        """Returns the seconds to pause: as long as Vault delayed its answer, or longer if little of the burst limit is left."""
        delay = _number(headers.get("X-VaultAPI-ResponseDelay")) or 0
        left, limit = (_number(headers.get(f"X-VaultAPI-BurstLimit{name}")) for name in ("Remaining", ""))
        is_low = left is not None and limit is not None and left < limit * _LITTLE_LEFT
        return min(max(delay / 1000, self.patience.burst_pause if is_low else 0), self.patience.longest_wait)

    def _judge(self, response: httpx.Response, body: bytes) -> dict[str, Any]:
        """Returns the content of a successful answer. Raises the error that another answer states."""
        what, status = self._what(response), response.status_code
        if status == 429 or status >= 500:
            downtime = response.headers.get("X-VaultAPI-DowntimeExpectedDurationMinutes")
            expected = f"; Vault expects to be down for {text_of(downtime, 20)} minutes" if downtime else ""
            raise self._unavailable(f"{what}: HTTP {status}{expected}", response)
        answer = parsed(body)
        if status == 200 and answer.get("responseStatus") in ("SUCCESS", "WARNING"):
            return answer
        kind, message = _failure(answer)
        if kind is None:
            raise VaultRefused(f"{what}: HTTP {status} with an answer that is not in Vault's form", f"HTTP {status}")
        said = masking.masked(f"{what}: {kind}: {message}")
        if kind == _ENDED:
            raise _SessionEnded(said, kind)
        if kind in _TRANSIENT or (answer.get("responseStatus") == "EXCEPTION" and kind not in _LOCKING):
            raise self._unavailable(said, response)
        raise VaultRefused(said, kind)

    def _unavailable(self, message: str, response: httpx.Response) -> VaultUnavailable:
        wait = _retry_after(response)
        failure = VaultUnreachable if wait and wait > self.patience.longest_wait else VaultUnavailable
        return failure(message, wait)

    def _what(self, response: httpx.Response) -> str:
        request = response.request
        execution = response.headers.get("X-VaultAPI-ExecutionId", "unknown")
        return masking.masked(
            f"{request.method} {request.url.path} of {request.url.netloc.decode()} (execution {text_of(execution, 100)})"
        )


@dataclass
class _Rest:
    """The rest of a download, from `position` on. `etag` identifies the content."""

    position: int = 0
    etag: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that request the rest, if the content is unchanged (RFC 9110, 13.1.5 and 14.2)."""
        if not self.position:
            return {}
        strong = {"If-Range": self.etag} if self.etag and not self.etag.startswith("W/") else {}
        return {"Range": f"bytes={self.position}-", **strong}

    def is_begun_by(self, response: httpx.Response, size: int) -> bool:
        """True if a response holds the rest of content of the expected size."""
        said = response.headers.get("Content-Range", "")
        return response.status_code == 206 and said == f"bytes {self.position}-{size - 1}/{size}"


class _SessionEnded(VaultRefused):
    """Vault does not know the session any more."""


def _told_to_wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return (error.wait or 0) if isinstance(error, VaultUnavailable) else 0


def _retry_after(response: httpx.Response) -> float | None:
    """Returns the seconds of Retry-After, which holds seconds or a date."""
    said = response.headers.get("Retry-After")
    if said is None or (seconds := _number(said)) is not None:
        return None if said is None else seconds
    with suppress(ValueError, TypeError, OverflowError):  # not a date, or a date without a zone
        return max(0.0, (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
    return None


def _number(text: str | None) -> float | None:
    return float(text) if text and text.strip().isdecimal() else None


def _is_answer(response: httpx.Response, first: bytes) -> bool:
    """True if the body is an answer in Vault's JSON, whatever its content type."""
    return "json" in response.headers.get("Content-Type", "") or (
        len(first) < _ERROR_SIZE and "responseStatus" in parsed(first)
    )


def _failure(answer: Mapping[str, Any]) -> tuple[str | None, str]:
    """Returns the type and the message of a failure. The type is None if the answer is not a failure of Vault's."""
    errors = answer.get("errors") or [{}]
    first = errors[0] if isinstance(errors, list) and isinstance(errors[0], dict) else {}
    kind = first.get("type") or answer.get("errorType")
    if kind is None and answer.get("responseStatus") in ("FAILURE", "EXCEPTION"):
        kind = answer["responseStatus"]
    message = text_of(first.get("message") or answer.get("responseMessage") or "no reason given", _REASON)
    return None if kind is None else text_of(kind), message
