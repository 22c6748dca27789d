"""The client of Vault's API: sessions, retries, failures, and unusual answers."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from manifest_platform.fake_vault import FakeVault, Fault, Simulation
from manifest_platform.sources.veeva.client import OAuth, Password, Patience, Vault, VaultLogin
from manifest_platform.sources.veeva.errors import (
    DownloadBroken,
    LoginRefused,
    NothingPublished,
    VaultRefused,
    VaultUnavailable,
    VaultUnreachable,
    WrongVault,
)
from manifest_platform.sources.veeva.files import Awaiting, Part

FIRST = "incr/2026-01-01T00:15Z"
Connect = Callable[..., Vault]


class Waits:
    """A sleep that takes no time, and a clock that it and the test advance."""

    def __init__(self) -> None:
        self.all: list[float] = []
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.all.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def connect(waits: Waits) -> Iterator[Connect]:
    """Returns clients of a fake Vault; `password`, `credentials` and the arguments of Patience may be given."""
    opened: list[Vault] = []

    def connect(fake: FakeVault, *, credentials: Password | OAuth | None = None, **patience: Any) -> Vault:
        login = VaultLogin(
            fake.url, str(fake.settings.vault_id), credentials or Password(fake.settings.user, fake.settings.password)
        )
        opened.append(Vault(login, Patience(**patience), waits.sleep, waits.clock))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


def content(client: Vault, part: Part) -> bytes:
    return b"".join(client.download(part))


# --- sessions --------------------------------------------------------------------------------------------------------


def test_one_session_serves_all_calls(vault: FakeVault, connect: Connect) -> None:
    client = connect(vault)
    [file, *_] = client.files("incr").files
    assert sum(len(content(client, part)) for part in file.parts) == file.size == client.bytes
    assert vault.count("auth") == 1
    assert client.requests == len(vault.requests)
    assert {request.client_id for request in vault.requests} == {"manifest-platform"}
    assert {request.outcome for request in vault.requests} == {"SUCCESS"}


def test_a_login_by_a_token(vault: FakeVault, connect: Connect) -> None:
    client = connect(vault, credentials=OAuth(vault.settings.profile, "client-7", vault.settings.token, vault.url))
    assert client.files("log").files
    assert vault.requests[0].path == f"/auth/oauth/session/{vault.settings.profile}"


def test_P10_a_session_with_another_vault_is_not_used(vault: FakeVault, connect: Connect) -> None:
    vault.opens_vault = 999
    client = connect(vault)
    for _ in range(2):
        with pytest.raises(
            WrongVault, match=f"opened a session with vault 999, but vault {vault.settings.vault_id} is configured"
        ):
            client.files("incr")
    assert [request.call for request in vault.requests] == ["auth"]


def test_a_login_that_is_refused_is_not_tried_again(vault: FakeVault, connect: Connect) -> None:
    """Every further try would bring the user closer to being locked out."""
    client = connect(vault, credentials=Password(vault.settings.user, "wrong"))
    for _ in range(4):
        with pytest.raises(LoginRefused, match="USERNAME_OR_PASSWORD_INCORRECT") as refused:
            client.files("incr")
        assert refused.value.type == "USERNAME_OR_PASSWORD_INCORRECT"
    assert vault.count("auth") == 1


@pytest.mark.parametrize(
    "type_", ["USER_LOCKED_OUT", "PASSWORD_CHANGE_REQUIRED", "INACTIVE_USER", "INSUFFICIENT_ACCESS", "INVALID_SESSION_ID"]
)
def test_what_may_lock_a_user_out_is_asked_once(vault: FakeVault, connect: Connect, type_: str) -> None:
    vault.inject(Fault("error", call="auth", error=type_))
    with pytest.raises(LoginRefused) as refused:
        connect(vault).files("incr")
    assert (refused.value.type, vault.count("auth")) == (type_, 1)


def test_a_session_that_ended_is_opened_again_once(vault: FakeVault, connect: Connect) -> None:
    client = connect(vault)
    client.log_in()
    vault.expire_sessions()
    assert client.files("incr").files
    assert [request.outcome for request in vault.requests] == ["SUCCESS", "INVALID_SESSION_ID", "SUCCESS", "SUCCESS"]


def test_a_session_that_ends_again_immediately_is_an_error(vault: FakeVault, connect: Connect) -> None:
    vault.inject(Fault("error", call="list", error="INVALID_SESSION_ID"))
    with pytest.raises(VaultRefused, match="in a session that was just opened") as refused:
        connect(vault).files("incr")
    assert refused.value.type == "INVALID_SESSION_ID"
    assert (vault.count("auth"), vault.count("list")) == (2, 2)


def test_P12_a_session_that_ends_between_parts_is_opened_again_and_its_answer_is_no_data(
    vault: FakeVault, connect: Connect
) -> None:
    vault.publisher.part_bytes = 1500
    client = connect(vault)
    [full] = client.files("full").files
    assert len(full.parts) > 5
    vault.inject(Fault("expired", window="full/2026-01-01T00:00Z", part=5, times=1))
    assert [len(content(client, part)) for part in full.parts] == [part.size for part in full.parts]
    assert vault.count("auth") == 2
    assert vault.count("download", "INVALID_SESSION_ID") == 1


def test_a_session_is_replaced_before_vault_ends_it(vault: FakeVault, connect: Connect, waits: Waits) -> None:
    client = connect(vault, session_age=47 * 3600)
    client.files("incr")
    waits.now += 47 * 3600 + 1
    client.files("incr")
    assert [request.call for request in vault.requests] == ["auth", "list", "auth", "list"]


def test_a_session_is_kept_alive_on_request_and_during_a_long_download(
    vault: FakeVault, connect: Connect, waits: Waits
) -> None:
    client = connect(vault, idle=300)
    client.keep_alive()
    [file, *_] = client.files("incr").files
    blocks = client.download(file.parts[0])
    next(blocks)
    waits.now += 301
    assert not list(blocks)
    assert [request.call for request in vault.requests] == ["auth", "keep-alive", "list", "download", "keep-alive"]


def test_a_keep_alive_that_fails_ends_no_download(vault: FakeVault, connect: Connect, waits: Waits) -> None:
    client = connect(vault, idle=300, attempts=1)
    [file, *_] = client.files("incr").files
    vault.inject(Fault("status", call="keep-alive", status=503))
    blocks = client.download(file.parts[0])
    size = len(next(blocks))
    waits.now += 301
    assert size + sum(map(len, blocks)) == file.parts[0].size
    assert vault.count("keep-alive") == 1


@pytest.mark.parametrize("url", ["http://acme.veevavault.com", "ftp://localhost", "acme.veevavault.com"])
def test_secrets_are_not_sent_unencrypted(url: str) -> None:
    with pytest.raises(ValueError, match="secrets are sent by https"):
        VaultLogin(url, "1", Password("user", "password"))
    with pytest.raises(ValueError, match="secrets are sent by https"):
        VaultLogin("https://acme.veevavault.com", "1", OAuth("profile", "client", "token", url))


def test_no_secret_is_logged_or_told(vault: FakeVault, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = [vault.settings.password, vault.settings.token]
    clients = [
        connect(vault),
        connect(vault, credentials=OAuth(vault.settings.profile, "client", vault.settings.token, vault.url)),
    ]
    wrong = Password(vault.settings.user, "not-the-password")
    said = []
    for client in [*clients, connect(vault, credentials=wrong, attempts=2)]:
        vault.inject(Fault("status", call="list", status=503, times=1), Fault("cut", window=FIRST, times=1))
        try:
            for file in client.files("incr").files:
                for part in file.parts:
                    with suppress(DownloadBroken):
                        content(client, part)
        except LoginRefused as error:
            said += [str(error), repr(error), repr(error.__cause__)]
        said += [repr(client.login), repr(client), str(client.login)]
        if client._session:
            secrets.append(client._session)
    assert len(secrets) == 4
    text = "\n".join([*said, caplog.text])
    assert "HTTP 503" in text
    assert [secret for secret in [*secrets, wrong.password] if secret in text] == []


# --- patience --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", call="list", status=503, times=3),
        Fault("status", call="list", status=429, times=3),
        Fault("error", call="list", error="UNEXPECTED_ERROR", times=3),
        Fault("error", call="auth", error="API_LIMIT_EXCEEDED", times=3),
        Fault("status", call="auth", status=500, times=3),
    ],
)
def test_transient_failures_are_retried_with_growing_waits(
    vault: FakeVault, connect: Connect, waits: Waits, fault: Fault
) -> None:
    vault.inject(fault)
    assert connect(vault).files("incr").files
    assert [1 <= waits.all[0] <= 2, 2 <= waits.all[1] <= 3, 4 <= waits.all[2] <= 5, len(waits.all)] == [True, True, True, 3]
    assert len(set(waits.all)) == 3
    assert waits.all != [1, 2, 4]


def test_P1_retries_end(vault: FakeVault, connect: Connect, waits: Waits) -> None:
    vault.inject(Fault("status", call="list", status=502))
    client = connect(vault, attempts=4, longest_wait=3)
    with pytest.raises(VaultUnavailable, match=r"GET /api/v25.2/services/directdata/files .*execution .*: HTTP 502"):
        client.files("incr")
    assert (vault.count("list"), len(waits.all), max(waits.all)) == (4, 3, 3)


def test_vault_is_not_called_before_the_time_that_it_asks_for(vault: FakeVault, connect: Connect, waits: Waits) -> None:
    vault.inject(Fault("status", call="list", status=429, retry_after=17, times=1))
    assert connect(vault).files("incr").files
    assert waits.all == [17]


def test_a_call_fails_if_vault_asks_for_too_long_a_wait(vault: FakeVault, connect: Connect, waits: Waits) -> None:
    vault.inject(Fault("status", call="list", status=503, retry_after=3600))
    with pytest.raises(VaultUnavailable) as unavailable:
        connect(vault, longest_wait=60).files("incr")
    assert unavailable.value.wait == 3600
    assert (vault.count("list"), waits.all) == (1, [])


def test_a_vault_that_delays_its_answers_is_left_alone_for_a_while(vault: FakeVault, connect: Connect, waits: Waits) -> None:
    vault.burst_limit, vault.burst_delay_ms = 40, 20
    client = connect(vault, burst_pause=5)
    for _ in range(38):
        client.files("incr")
    assert waits.all == []  # 39 requests of 40 are made, and less than a twentieth is left now
    client.files("incr")
    assert waits.all == [5]
    client.files("incr")
    client.files("incr")
    assert waits.all == [5, 5, 5]


def test_a_server_that_is_silent_or_not_there(vault: FakeVault, connect: Connect, waits: Waits) -> None:
    client = connect(vault, read=0.1, attempts=2)
    client.log_in()
    vault.inject(Fault("slow", call="list", seconds=0.4))
    with pytest.raises(VaultUnavailable, match="ReadTimeout") as silent:
        client.files("incr")
    assert not isinstance(silent.value, VaultUnreachable), "another call may fare better"
    assert len(waits.all) == 1
    nobody = Vault(VaultLogin("http://127.0.0.1:1", "1", Password("u", "p")), Patience(attempts=2), waits.sleep)
    with nobody, pytest.raises(VaultUnreachable, match=r"POST /api/v25.2/auth of 127.0.0.1:1: ConnectError"):
        nobody.files("incr")


def test_a_server_that_goes_away_within_a_session_is_unreachable(vault: FakeVault, connect: Connect) -> None:
    client = connect(vault, attempts=2)
    client.log_in()
    client._base = "http://127.0.0.1:1/api/v25.2"
    with pytest.raises(VaultUnreachable, match="ConnectError"):
        client.files("incr")


def test_a_login_that_fails_for_a_passing_reason_leaves_nothing_to_be_asked(vault: FakeVault, connect: Connect) -> None:
    vault.inject(Fault("status", call="auth", status=503))
    with pytest.raises(VaultUnreachable, match=r"no session with vault 146478: .*HTTP 503"):
        connect(vault, attempts=2).files("incr")
    vault.heal()
    vault.inject(Fault("status", call="list", status=503))
    with pytest.raises(VaultUnavailable) as failed:
        connect(vault, attempts=2).files("incr")
    assert not isinstance(failed.value, VaultUnreachable)


def test_no_further_call_is_made_if_vault_asks_for_a_long_wait(vault: FakeVault, connect: Connect) -> None:
    vault.inject(Fault("status", call="list", status=429, retry_after=3600))
    with pytest.raises(VaultUnreachable):
        connect(vault).files("incr")


def test_a_download_that_breaks_off_before_it_gave_a_byte_is_begun_again(
    vault: FakeVault, connect: Connect, waits: Waits
) -> None:
    client = connect(vault)
    [file, *_] = client.files("incr").files
    vault.inject(Fault("cut", window=FIRST, times=1))
    assert len(content(client, file.parts[0])) == file.parts[0].size
    assert (len(waits.all), vault.count("download")) == (1, 2)


def test_a_file_that_is_gone_is_refused(vault: FakeVault, connect: Connect) -> None:
    with pytest.raises(VaultRefused, match="INVALID_DATA") as refused:
        content(connect(vault), Part("146478-19990101-0000-N.001", 1, 10, None))
    assert refused.value.type == "INVALID_DATA"


# --- the list --------------------------------------------------------------------------------------------------------


def test_files_are_in_order_of_their_stop_and_snapshots_among_them(vault: FakeVault, connect: Connect) -> None:
    client = connect(vault)
    stops = [file.stop for file in client.files("incr").files]
    assert stops == [window.stop for window in vault.windows("incr")]
    [full] = client.files("full").files
    assert (full.name, full.start, full.stop) == (
        "146478-20260101-0000-F",
        datetime(2000, 1, 1, tzinfo=UTC),
        stops[0] - QUARTER,
    )
    assert [file.feed for file in client.files("log").files] == ["log"]


QUARTER = timedelta(minutes=15)


def test_the_list_is_bounded_by_start_and_stop(vault: FakeVault, connect: Connect) -> None:
    stops = [window.stop for window in vault.windows("incr")]
    found = connect(vault).files("incr", start=stops[1], stop=stops[3]).files
    assert [file.stop for file in found] == stops[2:4]


def test_P4_a_window_that_was_not_published_is_awaited(vault: FakeVault, connect: Connect) -> None:
    retry = vault.now + timedelta(hours=1)
    vault.inject(Fault("unpublished", window="incr/2026-01-01T00:30Z", until=retry))
    listing = connect(vault).files("incr")
    [awaiting] = listing.awaiting
    assert (awaiting.name, awaiting.feed, awaiting.next_retry) == ("146478-20260101-0030-N", "incr", retry)
    assert awaiting.message
    assert [file.stop.minute for file in listing.files] == [15, 45, 0, 15, 30, 45]


# --- odd answers -----------------------------------------------------------------------------------------------------

Answer = tuple[int, dict[str, str], bytes]


def says(*, status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> Answer:
    return status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(body).encode()


class Scripted:
    """A server that gives a session, and then sends prepared answers, one after another."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.login = says(responseStatus="SUCCESS", sessionId="S3SS10N-99", vaultId=1)
        self.asked: list[tuple[str, dict[str, str]]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                script.asked.append((self.path, dict(self.headers)))
                status, headers, body = script.login if self.path.endswith("/auth") else script.answers.pop(0)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = "Content-Length" in headers

            do_POST = do_GET  # noqa: N815 - the names are http.server's

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    script = Scripted()
    threading.Thread(target=script.server.serve_forever, args=(0.02,), daemon=True).start()
    yield script
    script.server.shutdown()
    script.server.server_close()


@pytest.fixture
def odd(scripted: Scripted, waits: Waits) -> Iterator[Vault]:
    with Vault(VaultLogin(scripted.url, "1", Password("user", "pa55word")), Patience(), waits.sleep, waits.clock) as client:
        yield client


PART = Part("x.001", 1, 4, None)
OCTETS = {"Content-Type": "application/octet-stream"}


def test_a_download_keeps_its_bytes_whatever_their_content_type(odd: Vault, scripted: Scripted) -> None:
    scripted.answers.append((200, {**OCTETS, "Content-Encoding": "gzip"}, b"\x1f\x8b\x08\x00not to be unpacked"))
    assert content(odd, PART) == b"\x1f\x8b\x08\x00not to be unpacked"
    assert scripted.asked[-1][1]["Accept-Encoding"] == "identity"


LONG = Part("x.001", 1, 400_000, None)
BROKEN = (200, {**OCTETS, "Content-Length": "400000", "ETag": '"a"'}, bytes(300_000))
TAKEN = 1 << 18  # a piece that is not whole does not arrive


def rest(start: int = TAKEN, total: int = 400_000, body: bytes = bytes(400_000 - TAKEN)) -> Answer:
    return 206, {**OCTETS, "Content-Range": f"bytes {start}-{total - 1}/{total}", "ETag": '"a"'}, body


def test_a_download_that_breaks_off_continues_where_it_was(odd: Vault, scripted: Scripted, waits: Waits) -> None:
    scripted.answers += [BROKEN, rest()]
    assert content(odd, LONG) == bytes(400_000)
    assert (odd.bytes, len(waits.all)) == (400_000, 1)
    assert [asked.get("Range") for _, asked in scripted.asked] == [None, None, f"bytes={TAKEN}-"]
    assert scripted.asked[-1][1]["If-Range"] == '"a"'


def test_a_weak_etag_does_not_identify_bytes(odd: Vault, scripted: Scripted) -> None:
    weak = (200, {**OCTETS, "Content-Length": "400000", "ETag": 'W/"a"'}, bytes(300_000))
    scripted.answers += [weak, rest()]
    assert content(odd, LONG) == bytes(400_000)
    assert "If-Range" not in scripted.asked[-1][1]


@pytest.mark.parametrize(
    "answer",
    [
        (200, OCTETS, bytes(400_000)),
        (416, {**OCTETS, "Content-Range": "bytes */200000"}, b""),
        rest(total=400_001),
        rest(start=0),
        (206, OCTETS, bytes(100)),
    ],
)
def test_the_rest_of_other_content_is_not_used(odd: Vault, scripted: Scripted, answer: Answer) -> None:
    scripted.answers += [BROKEN, answer]
    blocks = odd.download(LONG)
    assert next(blocks) == bytes(TAKEN)
    with pytest.raises(DownloadBroken, match=r"x\.001 has other content now, or cannot be downloaded in pieces"):
        list(blocks)


def test_a_download_without_progress_is_given_up(odd: Vault, scripted: Scripted, waits: Waits) -> None:
    scripted.answers += [BROKEN, *[(206, rest()[1] | {"Content-Length": "137856"}, bytes(100))] * 30]
    with pytest.raises(VaultUnavailable):
        content(odd, LONG)
    assert len(scripted.asked) < 10


def test_an_empty_body_is_no_bytes(odd: Vault, scripted: Scripted) -> None:
    scripted.answers.append((200, OCTETS, b""))
    assert content(odd, PART) == b""


@pytest.mark.parametrize("type_", ["application/octet-stream", "application/json;charset=UTF-8", "text/plain"])
def test_a_failure_is_not_taken_for_a_file_whatever_its_content_type(odd: Vault, scripted: Scripted, type_: str) -> None:
    body = json.dumps({"responseStatus": "FAILURE", "errors": [{"type": "INVALID_DATA", "message": "no such file"}]}).encode()
    scripted.answers.append((200, {"Content-Type": type_}, body))
    with pytest.raises(VaultRefused, match="INVALID_DATA: no such file"):
        content(odd, PART)


def test_an_answer_declared_as_json_is_not_taken_for_a_file(odd: Vault, scripted: Scripted) -> None:
    scripted.answers.append((200, {"Content-Type": "application/json"}, b'{"anything": "else"}'))
    with pytest.raises(VaultRefused, match="not in Vault's form"):
        content(odd, PART)


def test_a_success_without_a_file_is_refused(odd: Vault, scripted: Scripted) -> None:
    scripted.answers.append(says(responseStatus="SUCCESS"))
    with pytest.raises(VaultRefused, match="Vault sent an answer instead of a file"):
        content(odd, PART)


def test_a_part_is_asked_for_by_its_name_alone(odd: Vault, scripted: Scripted) -> None:
    scripted.answers.append((200, OCTETS, b"abcd"))
    assert content(odd, Part("a/../b?c.001", 1, 4, None)) == b"abcd"
    path, headers = scripted.asked[-1]
    assert path == "/api/v25.2/services/directdata/files/a%2F..%2Fb%3Fc.001"
    assert headers["Authorization"] == "S3SS10N-99"


def test_a_redirect_is_not_followed_with_the_session(odd: Vault, scripted: Scripted) -> None:
    scripted.answers.append((302, {"Location": f"{scripted.url}/elsewhere"}, b""))
    with pytest.raises(VaultRefused, match="HTTP 302"):
        odd.files("incr")
    assert len(scripted.asked) == 2


def test_a_login_without_a_session_is_refused(odd: Vault, scripted: Scripted) -> None:
    scripted.login = says(responseStatus="SUCCESS", vaultId=1)
    for _ in range(2):
        with pytest.raises(LoginRefused, match="answers that it opened a session, but its session id cannot be sent back"):
            odd.files("incr")
    assert (len(scripted.asked), odd.has_session) == (1, False)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((403, {}, b"<html>forbidden</html>"), "HTTP 403"),
        ((200, {}, b"<html>proxy login</html>"), "HTTP 200"),
        ((200, {}, b"[1, 2]"), "HTTP 200"),
        ((200, {}, b"\xff"), "HTTP 200"),
        (says(status=400, responseStatus="FAILURE", errors=[{"type": "PARAMETER_REQUIRED"}]), "PARAMETER_REQUIRED"),
        (says(responseStatus="FAILURE", errorType="INVALID_DATA"), "INVALID_DATA"),
        (says(responseStatus="FAILURE", errors=[{"type": {"of": 1}}]), "{'of': 1}"),
        (says(responseStatus="SUCCESS", data={"a": 1}), "NO_LIST"),
        (says(responseStatus="SUCCESS", data=17), "NO_LIST"),
        (says(responseStatus="FAILURE"), "FAILURE"),
        (says(responseStatus="FAILURE", errors=[]), "FAILURE"),
        (says(responseStatus="EXCEPTION", errors=[{"type": "USER_LOCKED_OUT"}]), "USER_LOCKED_OUT"),
    ],
)
def test_a_permanent_error_is_not_retried(odd: Vault, scripted: Scripted, answer: Answer, kind: str) -> None:
    scripted.answers.append(answer)
    with pytest.raises(VaultRefused) as refused:
        odd.files("incr")
    assert refused.value.type == kind


def test_a_vault_that_generates_its_first_files_still_is_asked_again_another_time(connect: Connect, waits: Waits) -> None:
    simulation = Simulation(rows=2, changes=(1, 2))
    with FakeVault(simulation, simulation.begin + timedelta(minutes=30)) as fake:
        client = connect(fake)
        with pytest.raises(NothingPublished, match="OPERATION_NOT_ALLOWED: the first Direct Data file of this vault is being"):
            client.files("incr")
        assert (fake.count("list"), waits.all) == (1, [])  # it takes a day, not a minute
        fake.now += timedelta(hours=1)
        assert client.files("incr").files


def test_an_exception_in_vault_is_retried(odd: Vault, scripted: Scripted, waits: Waits) -> None:
    scripted.answers += [
        says(responseStatus="EXCEPTION", errors=[{"type": "NEW_ONE"}]),
        says(responseStatus="WARNING", data=[]),
    ]
    assert odd.files("incr").files == ()
    assert len(waits.all) == 1


def test_a_session_that_ended_with_http_401_is_opened_again(odd: Vault, scripted: Scripted) -> None:
    ended = says(status=401, responseStatus="FAILURE", errors=[{"type": "INVALID_SESSION_ID", "message": "S3SS10N-99"}])
    scripted.answers += [ended, says(responseStatus="SUCCESS", data=[])]
    assert odd.files("incr").files == ()
    assert [path.rpartition("/")[2].partition("?")[0] for path, _ in scripted.asked] == ["auth", "files", "auth", "files"]
    assert ["Authorization" in headers for _, headers in scripted.asked] == [False, True, False, True]


def test_a_secret_that_vault_repeats_is_masked(odd: Vault, scripted: Scripted) -> None:
    errors = [{"type": "INVALID_DATA", "message": "what is pa55word, and what is S3SS10N-99?"}]
    scripted.answers.append(says(responseStatus="FAILURE", errors=errors, headers={"X-VaultAPI-ExecutionId": "e-17"}))
    with pytest.raises(VaultRefused, match=r"\(execution e-17\): INVALID_DATA: what is \*\*\*, and what is \*\*\*\?"):
        odd.files("incr")


def test_retry_after_may_be_a_date(odd: Vault, scripted: Scripted, waits: Waits) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    empty = says(responseStatus="SUCCESS", data=[])
    scripted.answers += [(503, {"Retry-After": date}, b""), empty, (503, {"Retry-After": "soon"}, b""), empty]
    odd.files("incr")
    assert 25 < waits.all[0] <= 30
    odd.files("incr")
    assert waits.all[1] < 3


def test_an_announced_downtime_is_reported(odd: Vault, scripted: Scripted) -> None:
    headers = {"X-VaultAPI-DowntimeExpectedDurationMinutes": "10", "Retry-After": "600"}
    scripted.answers.append((503, headers, b""))
    with pytest.raises(VaultUnavailable, match="expects to be down for 10 minutes"):
        odd.files("incr")


def test_an_answer_that_was_delayed_is_a_reason_to_pause(odd: Vault, scripted: Scripted, waits: Waits) -> None:
    empty = says(responseStatus="SUCCESS", data=[], headers={"X-VaultAPI-ResponseDelay": "500"})
    scripted.answers += [empty, says(responseStatus="SUCCESS", data=[]), says(responseStatus="SUCCESS", data=[])]
    for _ in range(3):
        odd.files("incr")
    assert waits.all == [0.5]


def entry(**changes: Any) -> dict[str, Any]:
    part = {
        "name": "146478-20260101-0015-N.001",
        "filepart": 1,
        "size": 10,
        "md5checksum": "AB" * 16,
        "url": "https://x.invalid",
    }
    whole = {
        "name": "146478-20260101-0015-N",
        "extract_type": "incremental_directdata",
        "start_time": "2026-01-01T00:00Z",
        "stop_time": "2026-01-01T00:15Z",
        "record_count": 3,
        "size": 10,
        "fileparts": 1,
        "filepart_details": [part],
    }
    return {name: value for name, value in {**whole, **changes}.items() if value is not ...}


def listed(odd: Vault, scripted: Scripted, *entries: Any) -> Any:
    scripted.answers.append(says(responseStatus="SUCCESS", data=list(entries)))
    return odd.files("incr")


PART_ENTRY = entry()["filepart_details"][0]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"start_time": "2026-01-01T00:00:00Z", "stop_time": "2026-01-01T00:15:00.000Z"},
        {"stop_time": "2026-01-01T02:15+02:00"},
        {"record_count": ..., "extract_type": ..., "size": ..., "fileparts": ..., "something_new": {"a": 1}},
        {"record_count": "3", "filepart_details": [{**PART_ENTRY, "size": "10", "filepart": "1"}]},
    ],
)
def test_entries_are_read_in_every_form(odd: Vault, scripted: Scripted, changes: dict[str, Any]) -> None:
    [file] = listed(odd, scripted, entry(**changes)).files
    assert (file.start, file.stop) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 15, tzinfo=UTC))
    assert file.parts == (Part("146478-20260101-0015-N.001", 1, 10, "ab" * 16),)
    assert file.record_count == (None if "record_count" in changes and changes["record_count"] is ... else 3)


@pytest.mark.parametrize("size", [{"size": 0}, {"size": "0"}, {"size": None}, {"size": ...}])
@pytest.mark.parametrize("changes", [{"filepart_details": []}, {"filepart_details": None}, {"filepart_details": ...}])
def test_an_entry_without_records_and_parts_is_an_empty_window(
    odd: Vault, scripted: Scripted, changes: dict[str, Any], size: dict[str, Any]
) -> None:
    [file] = listed(odd, scripted, entry(record_count=0, fileparts=0, **changes, **size)).files
    assert (file.parts, file.size, file.record_count) == ((), 0, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stop_time": ...}, "it has stop_time None, which is not a time"),
        ({"start_time": "yesterday"}, "it has start_time 'yesterday', which is not a time"),
        ({"stop_time": "2026-01-01T00:15"}, "it has stop_time '2026-01-01T00:15', which is not a time"),
        ({"stop_time": "2026-01-01T00:15:30Z"}, "which is not a time in whole minutes"),
        ({"stop_time": "2026-01-01T00:00Z"}, "it stops at 2026-01-01T00:00Z, but starts at 2026-01-01T00:00Z"),
        ({"record_count": "many"}, "it has record_count 'many', which is not a whole number"),
        ({"filepart_details": []}, r"it has 1 parts \(fileparts\), but 0 are described"),
        ({"filepart_details": [], "fileparts": 0}, r"it has 3 records \(record_count\), but no parts"),
        ({"filepart_details": ..., "fileparts": ..., "record_count": ...}, "does not say that it has no records"),
        ({"filepart_details": [], "fileparts": 0, "record_count": None}, "does not say that it has no records"),
        ({"filepart_details": [], "fileparts": 0, "record_count": 0, "size": 999}, r"it has 999 bytes \(size\), but no parts"),
        ({"filepart_details": [{**PART_ENTRY, "filepart": 2}]}, r"its parts are numbered \[2\]"),
        ({"filepart_details": [PART_ENTRY, PART_ENTRY], "fileparts": 2}, r"its parts are numbered \[1, 1\]"),
        ({"filepart_details": [{**PART_ENTRY, "size": None}]}, "it has size None, which is not a whole number"),
        ({"filepart_details": [{**PART_ENTRY, "name": ""}]}, "one of its parts has no name"),
        ({"extract_type": "log_directdata"}, "it is of extract_type log_directdata, but incremental_directdata was requested"),
    ],
)
def test_an_incomplete_entry_is_reported_and_stops_no_other(
    odd: Vault, scripted: Scripted, changes: dict[str, Any], reason: str
) -> None:
    other = entry(start_time="2026-01-01T00:15Z", stop_time="2026-01-01T00:30Z", name="other")
    listing = listed(odd, scripted, entry(**changes), other, "no object")
    assert [file.name for file in listing.files] == ["other"]
    [unusable, no_object] = listing.unusable
    assert re.search(reason, unusable.reason)
    assert (unusable.name, unusable.feed) == ("146478-20260101-0015-N", "incr")
    assert no_object.reason == "it is 'no object', not an object"


@pytest.mark.parametrize(
    ("error", "awaited"),
    [
        ({"next_retry": "2026-01-01T00:45Z", "message": "failed"}, (datetime(2026, 1, 1, 0, 45, tzinfo=UTC), "failed")),
        ({"next_retry": "later"}, (None, "")),
        ("it failed", (None, "it failed")),
    ],
)
def test_an_entry_with_an_error_is_awaited_whatever_the_error_says(
    odd: Vault, scripted: Scripted, error: Any, awaited: tuple[datetime | None, str]
) -> None:
    assert listed(odd, scripted, {"name": "146478-20260101-0030-N", "error": error}).awaiting == (
        Awaiting("146478-20260101-0030-N", "incr", *awaited),
    )
