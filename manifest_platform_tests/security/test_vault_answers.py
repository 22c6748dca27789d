"""A vault that answers what it likes: lists and parts without end, entries that are nothing, secrets that it repeats."""

from __future__ import annotations

import gzip
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from manifest_platform import masking, storage
from manifest_platform.manifest.stores import open_store
from manifest_platform.sources.capture import Captured, CaptureEvent, CaptureFailed, CaptureReport
from manifest_platform.sources.veeva import archive
from manifest_platform.sources.veeva.client import Patience, Vault, VaultLogin
from manifest_platform.sources.veeva.errors import BadArchive, LoginRefused, VaultRefused, VaultUnavailable
from manifest_platform.sources.veeva.files import Part
from manifest_platform.sources.veeva.login import ClientCredentials, OAuth, Password, SessionId
from manifest_platform.sources.veeva.producer import capture
from manifest_platform.sources.veeva.settings import VaultLimits
from manifest_platform_tests.manifest.vault import vault as manifest_of_vault
from manifest_platform_tests.security.confined import CANARY, MIB, confined
from manifest_platform_tests.security.hostile import Hostile, Request, dripped, endless, response, serving
from manifest_platform_tests.sources.veeva.given import TREE, packed, split

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)
ARCHIVE = packed(TREE)
[(PART, _)] = split(ARCHIVE)
SESSION = "S3SS10N-of-the-test"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    masking.forget()


def told(**answer: Any) -> bytes:
    """An answer of Vault's."""
    return response(body=json.dumps(answer).encode())


LOGGED_IN = told(responseStatus="SUCCESS", sessionId=SESSION, vaultId=1)
FAILED = {"responseStatus": "FAILURE", "errors": [{"type": "INVALID_DATA"}]}


def entry(stop: str = "00:15", **changes: Any) -> dict[str, Any]:
    """The entry of a list for a window of changes of the quarter before `stop`, with the archive of the tests."""
    start = f"{int(stop[:2]) * 60 + int(stop[3:]) - 15}"
    start = f"{int(start) // 60:02}:{int(start) % 60:02}"
    part = {"name": PART.name, "filepart": 1, "size": PART.size, "md5checksum": PART.md5}
    return {
        "name": f"1-20260101-{stop.replace(':', '')}-N",
        "extract_type": "incremental_directdata",
        "start_time": f"2026-01-01T{start}Z",
        "stop_time": f"2026-01-01T{stop}Z",
        "record_count": 3,
        "fileparts": 1,
        "filepart_details": [part],
        **changes,
    }


Answering = Callable[[Request], Iterable[bytes]]


def vault_of(listed: Callable[[str], Iterable[bytes]], part: Iterable[bytes] | None = None) -> Answering:
    """A vault that lets everybody in, and gives of each feed what `listed` makes of its name."""

    def answer(request: Request) -> Iterable[bytes]:
        if request.target.endswith("/auth"):
            return [LOGGED_IN]
        if "/directdata/files?" in request.target:
            feed = next(one for one in ("incremental", "log", "full") if f"extract_type={one}" in request.target)
            return listed(feed)
        if "/directdata/files/" in request.target:
            return [response(body=ARCHIVE)] if part is None else part
        return [told(responseStatus="SUCCESS")]

    return answer


def client_of(server: Hostile | str, credentials: Any = None, **limits: Any) -> Vault:
    url = server if isinstance(server, str) else server.url
    login = VaultLogin(url, "1", credentials or Password("user", CANARY))
    figures = VaultLimits().model_copy(update=limits)
    return Vault(login, Patience(attempts=2, first_wait=0.001, longest_wait=0.01), sleep=lambda _: None, limits=figures)


def captured(url: str, folder: str, credentials: Any = None, **limits: Any) -> tuple[list[CaptureEvent], CaptureReport]:
    """The events and the report of a whole run of the producer, with a manifest of its own."""
    store = open_store(f"sqlite:///{folder}/manifest.db")
    with client_of(url, credentials, **limits) as client:
        *events, report = capture(
            client, manifest_of_vault(store), storage.as_uri(f"{folder}/landing"), "1", ("log", "incr"), NOW
        )
    store.close()
    assert isinstance(report, CaptureReport)
    return events, report


def _events(url: str, folder: str, **limits: Any) -> list[tuple[str, str, str]]:
    events, _ = captured(url, folder, **limits)
    return [(type(one).__name__, one.name, getattr(one, "reason", "")) for one in events if not isinstance(one, CaptureReport)]


# Answers without end


@pytest.mark.parametrize("what", ["plain", "gzip", "nested"])
def test_a_list_without_end_costs_its_feed_and_no_memory(tmp_path: Path, what: str):
    """Sent for ever, or inflating to 256 MiB; the process has 128 MiB. The other feed is captured all the same."""
    bomb = gzip.compress(bytes(256 * MIB), 1) if what == "gzip" else b""
    begun = b'{"responseStatus": "SUCCESS", "data": [' + (b"[" * 65_536 if what == "nested" else b" " * 65_536)

    def listed(feed: str) -> Iterable[bytes]:
        if feed == "incremental":
            return [told(responseStatus="SUCCESS", data=[entry()])]
        return [response(200, bomb, "Content-Encoding: gzip")] if bomb else endless(begun)

    with serving(vault_of(listed)) as server:
        found = confined(_events, server.url, str(tmp_path), memory=128 * MIB, seconds=20)
    assert found.is_bounded, found
    assert [(kind, name) for kind, name, _ in found.value] == [
        ("CaptureFailed", "log"),
        ("Captured", "incr/stoptime=202601010015"),
    ]
    assert "raise vault.limits.answer_mib" in found.value[0][2]
    assert not found.says()


@pytest.mark.parametrize("what", ["login", "list", "headers"])
def test_a_vault_that_sends_a_byte_a_second_does_not_outlive_the_deadline(what: str):
    def answer(request: Request) -> Iterable[bytes]:
        if what == "headers":
            return dripped(b"HTTP/1.1 200 Said\r\n" + b"X-More: 1\r\n" * 1000)
        slow = what == "login" or "directdata" in request.target
        return (piece for part in ([response(length=500)], dripped(b" " * 500)) for piece in part) if slow else [LOGGED_IN]

    with serving(answer) as server, client_of(server, answer_seconds=0.15) as client:
        started = time.monotonic()
        with pytest.raises(VaultUnavailable, match=r"longer than is allowed|timed out"):
            client.files("log")
    assert time.monotonic() - started < 2


def test_a_part_that_comes_a_byte_a_second_does_not_outlive_its_deadline():
    """However often it is taken up again: each byte is progress."""
    slow = (piece for part in ([response(length=500)], dripped(b" " * 500)) for piece in part)
    with (
        serving(vault_of(lambda _: [], slow)) as server,
        client_of(server, part_seconds=0.3) as client,
        pytest.raises(VaultUnavailable, match=r"longer than (vault\.limits\.part_seconds|is allowed)"),
    ):
        started = time.monotonic()
        b"".join(client.download(Part("a.001", 1, 500, None)))
    assert time.monotonic() - started < 2


# Parts


def test_a_part_that_announces_a_quintillion_bytes_is_not_asked_for(tmp_path: Path):
    """The window fails, with the setting to raise; the one behind it is captured."""
    part = {"name": "huge.001", "filepart": 1, "size": 10**18, "md5checksum": PART.md5}
    entries = [entry("00:15", filepart_details=[part]), entry("00:30")]
    with serving(
        vault_of(lambda feed: [told(responseStatus="SUCCESS", data=entries if feed == "incremental" else [])])
    ) as server:
        events, _ = captured(server.url, str(tmp_path))
    failed, good = events
    assert isinstance(failed, CaptureFailed) and failed.permanent and "raise vault.limits.part_gib" in failed.reason
    assert isinstance(good, Captured)
    assert not [one.target for one in server.asked if "huge" in one.target]


@pytest.mark.parametrize("where", ["part", "landing"])
def test_free_disk_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str):
    """A window without room on the disk is reported; a window with room is captured."""
    monkeypatch.setattr(archive, "_IN_MEMORY", 1 << 20 if where == "part" else 1 << 60)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=(1 << 30) + (64 << 20)))
    part = {"name": "large.001", "filepart": 1, "size": 2 << 30, "md5checksum": PART.md5}
    entries = [entry("00:15", filepart_details=[part]), entry("00:30")]
    with serving(
        vault_of(lambda feed: [told(responseStatus="SUCCESS", data=entries if feed == "incremental" else [])])
    ) as server:
        failed, good = captured(server.url, str(tmp_path))[0]
    assert isinstance(failed, CaptureFailed) and not failed.permanent and "are free on the disk of" in failed.reason
    assert isinstance(good, Captured)
    assert not [one.target for one in server.asked if "large" in one.target]


def test_what_a_part_sends_beyond_what_it_announced_is_cut(tmp_path: Path):
    sent = 0

    def long() -> Iterator[bytes]:
        nonlocal sent
        yield b"HTTP/1.1 200 Said\r\n\r\n"
        while True:
            sent += 1 << 16
            yield bytes(1 << 16)

    part = Part("a.001", 1, 100, None)
    with serving(vault_of(lambda _: [], long())) as server, client_of(server) as client:
        with pytest.raises(BadArchive, match=r"more than 100 bytes, but Vault announced 100"):
            archive.unpack([part], client.download, storage.as_uri(tmp_path / "out"), archive.Limits(attempts=1))
        assert client.bytes <= 1 << 19
    assert sent < 32 << 20


# Entries


DEEP = json.loads("[" * 90 + "]" * 90)


@pytest.mark.parametrize(
    "odd",
    [
        7,
        None,
        "entry",
        [[]],
        {},
        entry(filepart_details=["a string"]),
        entry(filepart_details=[7]),
        entry(filepart_details="many"),
        entry(filepart_details={"name": 1}),
        entry(start_time="0001-01-01T00:00Z", stop_time="0001-01-01T00:15Z"),
        entry(start_time="0001-01-01T00:00+14:00"),
        entry(start_time="9999-12-31T23:00Z", stop_time="9999-12-31T23:15Z"),
        entry(stop_time="9999-12-31T23:59-14:00"),
        entry(name=DEEP),
        entry(extract_type=DEEP),
        entry(filepart_details=DEEP),
        entry(start_time=DEEP),
        entry(record_count=DEEP),
        entry(error={"message": DEEP, "next_retry": DEEP}, filepart_details=None),
        entry(error=7, filepart_details=0),
        entry(name="\ud800\x1b[2J", record_count=None),
        entry(fileparts=10**400),
        entry(filepart_details=[{"name": "x" * 5000, "filepart": 1, "size": 3}]),
    ],
)
def test_what_is_wrong_with_an_entry_costs_that_entry_alone(tmp_path: Path, odd: Any):
    listed = {"log": [odd], "incremental": [entry("00:15"), odd, entry("00:30")]}
    with serving(vault_of(lambda feed: [told(responseStatus="SUCCESS", data=listed[feed])])) as server:
        events, report = captured(server.url, str(tmp_path))
    assert set(report.captured) >= {"incr/stoptime=202601010015", "incr/stoptime=202601010030"}, events
    assert set(report.captured) <= {f"incr/stoptime=2026010100{minute}" for minute in ("15", "30", "45")}, "no other year"
    assert report.unavailable is None
    assert all(len(one.reason) < 2000 and "\x1b" not in one.reason for one in events if isinstance(one, CaptureFailed))


@pytest.mark.parametrize("name", [".", ".."])
def test_a_part_that_is_called_as_a_folder_is_not_asked_for(tmp_path: Path, name: str):
    """The URL of such a part is that of the list, or of what lies above it."""
    part = {"name": name, "filepart": 1, "size": PART.size, "md5checksum": PART.md5}
    with serving(vault_of(lambda _: [told(responseStatus="SUCCESS", data=[entry(filepart_details=[part])])])) as server:
        events, _ = captured(server.url, str(tmp_path))
    reasons = [one.reason for one in events if isinstance(one, CaptureFailed)]
    assert any(f"named '{name}', which cannot be the name of a file" in reason for reason in reasons), reasons


@pytest.mark.parametrize("place", ["name", "filepart_details", "error", "more"])
def test_an_entry_that_is_200_000_deep_costs_that_entry_alone(tmp_path: Path, place: str):
    deep = json.dumps(entry("00:30", **{place: "DEEP"})).replace('"DEEP"', '{"a":[' * 100_000 + "]}" * 100_000)
    data = f'{{"responseStatus": "SUCCESS", "data": [{json.dumps(entry("00:15"))}, {deep}, {json.dumps(entry("00:45"))}]}}'
    with serving(vault_of(lambda _: [response(body=data.encode())])) as server:
        events, report = captured(server.url, str(tmp_path))
    assert set(report.captured) >= {"incr/stoptime=202601010015", "incr/stoptime=202601010045"}, events


MANY = b"[" + b"1," * 50_000 + b"1]"
"""Entries that are nothing: four million of them, in 8 MiB, took 895 MB and 75 s, for a reason each."""


@pytest.mark.parametrize(
    "data", [b"7", b'"all"', b'{"a": 1}', b"[" * 200_000, b'{"a":' * 200_000, b'"' + b'\\"' * 100_000, MANY]
)
def test_a_list_that_is_none_costs_its_feed_alone(tmp_path: Path, data: bytes):
    good = told(responseStatus="SUCCESS", data=[entry()])
    odd = response(body=b'{"responseStatus": "SUCCESS", "data": ' + data + b"}")
    with serving(vault_of(lambda feed: [odd if feed == "log" else good])) as server:
        events, report = captured(server.url, str(tmp_path))
    assert report.captured == ("incr/stoptime=202601010015",)
    assert [one.name for one in events if isinstance(one, CaptureFailed)] == ["log"]


def test_a_date_without_a_zone_in_retry_after_is_no_end_of_the_capture():
    answers = iter(
        [response(503, b"", "Retry-After: Thu, 01 Jan 2026 00:00:00 -0000"), told(responseStatus="SUCCESS", data=[])]
    )
    with serving(vault_of(lambda _: [next(answers)])) as server, client_of(server) as client:
        assert client.files("log").files == ()


# Secrets


def _echo(secret: str, by: Callable[[str], str]) -> Answering:
    def answer(_: Request) -> Iterable[bytes]:
        errors = [{"type": "USERNAME_OR_PASSWORD_INCORRECT", "message": f"cannot use password={by(secret)}&vaultDNS=x"}]
        return [told(responseStatus="FAILURE", errors=errors)]

    return answer


@pytest.mark.parametrize(
    "by",
    [str, quote, quote_plus, lambda text: quote(text, safe=""), lambda text: json.dumps(text)[1:-1], repr, ascii],
    ids=["plain", "quote", "quote_plus", "quote all", "json", "repr", "ascii"],
)
def test_a_password_that_vault_repeats_reaches_no_manifest_in_any_encoding(tmp_path: Path, by: Callable[[str], str]):
    """The form is percent-encoded, and so is its echo: it stood in the manifest as the reason of a refused login."""
    with serving(_echo(CANARY, by)) as server, pytest.raises(LoginRefused) as refused:
        captured(server.url, str(tmp_path))
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("manifest.db*")).decode("latin-1")
    assert "cannot use password" in stored
    for form in {CANARY, quote(CANARY), quote_plus(CANARY), quote(CANARY, safe=""), json.dumps(CANARY)[1:-1], ascii(CANARY)}:
        assert form not in str(refused.value)
        assert form.encode().decode("latin-1") not in stored


@pytest.mark.parametrize("variable", ["VAULT_TOKEN", "VAULT_PASSWORD", "VAULT_SESSION", "VAULT_CLIENT_SECRET"])
def test_a_secret_with_a_line_end_is_stripped_and_one_within_is_refused_by_its_name(
    variable: str, monkeypatch: pytest.MonkeyPatch
):
    from manifest_platform.sources.veeva.source import _secret

    monkeypatch.setenv(variable, f"{CANARY}\n")
    assert _secret(variable, "secret") == CANARY
    monkeypatch.setenv(variable, f"{CANARY}\n{CANARY}")
    with pytest.raises(masking.UnusableSecret, match=variable) as unusable:
        _secret(variable, "secret")
    assert CANARY not in str(unusable.value)


@pytest.mark.parametrize("bad", ["a\nb", "a\0b", "ünicode-secret", "\x7f"])
@pytest.mark.parametrize("kind", ["session", "token", "password"])
def test_a_secret_that_cannot_be_sent_is_in_no_message_of_the_library(bad: str, kind: str):
    """httpx prints a header's whole value where it cannot be one."""
    secret = f"{bad}-{CANARY}"
    credentials = {
        "session": SessionId(secret),
        "token": OAuth("profile", "client", secret, "http://127.0.0.1:1"),
        "password": Password("user", secret),
    }[kind]
    with serving(lambda _: [told(**FAILED)]) as server:
        found = confined(_files, server.url, credentials, seconds=10)
    assert found.error, found
    assert not found.says() and not found.says(secret), found
    assert CANARY.split("/")[0] not in found.error


def _files(url: str, credentials: Any) -> Any:
    with client_of(url, credentials) as client:
        return client.files("log")


def test_a_session_that_cannot_be_sent_is_refused():
    opened = told(responseStatus="SUCCESS", sessionId="a\r\nX-Injected: 1", vaultId=1)
    with (
        serving(lambda _: [opened]) as server,
        client_of(server) as client,
        pytest.raises(LoginRefused, match="its session id cannot be sent back"),
    ):
        client.files("log")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 200_000,
        b'{"access_token": ' + b"[" * 200_000,
        b"7",
        b'{"access_token": 7}',
        b'{"access_token": "a\\nb"}',
        b'{"access_token": "abc", "expires_in": []}',
        b'{"access_token": "abc", "expires_in": "soon"}',
        b'{"error": ["a"]}',
        b'{"error": {"a": 1}, "error_description": [1]}',
    ],
)
def test_an_identity_providers_odd_answer_is_a_refused_login(answer: bytes):
    with serving(lambda _: [response(body=answer, length=len(answer))]) as provider, serving(lambda _: [LOGGED_IN]) as server:
        token = ClientCredentials("client", CANARY, token_url=f"{provider.url}/token")
        client = client_of(server, OAuth("profile", "client", token, server.url))
        with client, pytest.raises((VaultRefused, VaultUnavailable)) as refused:
            client.files("log")
    assert not server.asked
    assert len(str(refused.value)) < 1000
    assert CANARY not in str(refused.value)


def test_an_identity_provider_without_end_is_refused():
    with serving(lambda _: endless()) as provider:
        token = ClientCredentials("client", CANARY, issuer=provider.url)
        found = confined(_files, "http://127.0.0.1:1", OAuth("profile", "client", token, "http://127.0.0.1:1"), memory=96 * MIB)
    assert found.is_bounded and "raise vault.limits.answer_mib" in found.error, found


# Proxies


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_password_for_this_machine_does_not_go_to_a_proxy(monkeypatch: pytest.MonkeyPatch, host: str):
    """With HTTP_PROXY set, a vault on this machine was logged into through the proxy, in the clear."""
    with serving(lambda _: [response(502)]) as proxy, serving(vault_of(lambda _: [told(responseStatus="SUCCESS")])) as server:
        for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with client_of(f"http://{host}:{server.port}") as client:
            client.files("log")
    assert not proxy.asked
    assert any(quote_plus(CANARY).encode() in one.body for one in server.asked)
