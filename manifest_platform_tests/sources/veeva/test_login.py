"""Logins without a password: tokens of an identity provider, and sessions that were opened elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform.fake_vault import FakeVault, Fault
from manifest_platform.manifest import Refused
from manifest_platform.sources.veeva.client import Patience, Vault, VaultLogin
from manifest_platform.sources.veeva.errors import LoginRefused, VaultUnreachable, WrongVault
from manifest_platform.sources.veeva.login import ClientCredentials, Credentials, OAuth, SessionId
from manifest_platform_tests.sources.veeva.ward.ward import INCR, Ward

Connect = Callable[[Credentials], Vault]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connect(vault: FakeVault, clock: Clock) -> Iterator[Connect]:
    opened: list[Vault] = []

    def connect(credentials: Credentials) -> Vault:
        login = VaultLogin(vault.url, str(vault.settings.vault_id), credentials)
        opened.append(Vault(login, Patience(attempts=2), lambda _: None, clock))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


def by_client(vault: FakeVault, secret: str | None = None, **changes: Any) -> OAuth:
    where = {"issuer": vault.issuer, **changes}
    client = ClientCredentials(vault.settings.client, secret or vault.settings.client_secret, **where)
    return OAuth(vault.settings.profile, vault.settings.client, client, vault.url)


def calls(vault: FakeVault) -> list[str | None]:
    return [request.call for request in vault.requests]


@pytest.mark.parametrize("tells_in", ["header", "body"])
def test_a_token_is_obtained_at_the_endpoint_in_the_providers_metadata(
    vault: FakeVault, connect: Connect, tells_in: str
) -> None:
    vault.client_tells_in = tells_in
    assert connect(by_client(vault)).files("incr").files
    assert calls(vault) == ["discovery", "token", "auth", "list"]


def test_a_provider_without_metadata_is_asked_at_its_endpoint(vault: FakeVault, connect: Connect) -> None:
    assert connect(by_client(vault, issuer=None, token_url=f"{vault.issuer}/token")).files("incr").files
    assert calls(vault) == ["token", "auth", "list"]


def test_a_token_is_renewed_before_it_expires_and_not_sooner(vault: FakeVault, connect: Connect, clock: Clock) -> None:
    vault.token_seconds = 600
    client = connect(by_client(vault))
    client.files("incr")
    clock.now += 500
    vault.expire_sessions()
    client.files("incr")
    assert calls(vault).count("token") == 1
    clock.now += 50  # fewer than 60 seconds are left
    vault.expire_sessions()
    client.files("incr")
    assert (calls(vault).count("token"), calls(vault).count("discovery")) == (2, 1)


def test_a_token_that_was_withdrawn_is_replaced_once(vault: FakeVault, connect: Connect) -> None:
    client = connect(by_client(vault))
    client.files("incr")
    vault.withdraw_tokens()
    vault.expire_sessions()
    assert client.files("incr").files
    assert calls(vault)[4:] == ["list", "auth", "token", "auth", "list"]
    vault.inject(Fault("error", call="auth", error="USERNAME_OR_PASSWORD_INCORRECT"))
    vault.expire_sessions()
    with pytest.raises(LoginRefused):
        client.files("incr")
    assert calls(vault)[9:] == ["list", "auth", "token", "auth"]


def test_a_client_that_the_provider_refuses_is_not_tried_again(vault: FakeVault, connect: Connect) -> None:
    client = connect(by_client(vault, "wrong"))
    for _ in range(3):
        with pytest.raises(LoginRefused, match=r"/oauth/token gives no token: invalid_client") as refused:
            client.files("incr")
        assert refused.value.type == "invalid_client"
    assert calls(vault) == ["discovery", "token"]


@pytest.mark.parametrize("call", ["discovery", "token"])
def test_a_provider_that_is_down_is_asked_again_and_then_another_time(vault: FakeVault, connect: Connect, call: Any) -> None:
    vault.inject(Fault("status", call=call, status=503, times=1))
    assert connect(by_client(vault)).files("incr").files
    vault.inject(Fault("status", call=call, status=503))
    with pytest.raises(VaultUnreachable, match="HTTP 503"):
        connect(by_client(vault)).files("incr")


@pytest.mark.parametrize(
    ("path", "told"),
    [("/oauth/other", "has no metadata at"), ("/oauth/../oauth", "is of issuer")],
)
def test_missing_or_foreign_metadata_is_refused(vault: FakeVault, connect: Connect, path: str, told: str) -> None:
    with pytest.raises(LoginRefused, match=told):
        connect(by_client(vault, issuer=f"{vault.url}{path}")).files("incr")
    assert "token" not in calls(vault)


def test_a_secret_is_not_sent_to_an_unencrypted_endpoint(vault: FakeVault) -> None:
    for where in ({"issuer": "http://acme.example"}, {"issuer": None, "token_url": "http://acme.example/token"}):
        with pytest.raises(ValueError, match="secrets are sent by https"):
            by_client(vault, **where)
    with pytest.raises(ValueError, match="an issuer or a token_url"):
        by_client(vault, token_url=f"{vault.url}/token")


def test_no_secret_of_a_client_is_logged_or_told(vault: FakeVault, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client, wrong = connect(by_client(vault)), connect(by_client(vault, "wr0ng-secret"))
    client.files("incr")
    with pytest.raises(LoginRefused) as refused:
        wrong.files("incr")
    assert client._provider
    secrets = [vault.settings.client_secret, "wr0ng-secret", str(client._provider._token)]
    assert len(secrets) == 3
    said = [str(refused.value), repr(refused.value.__cause__), repr(client.login), repr(wrong.login), caplog.text]
    assert [secret for secret in secrets if secret in "\n".join(said)] == []


# --- sessions of somebody else ---------------------------------------------------------------------------------------


def opened_by_another(vault: FakeVault, connect: Connect) -> str:
    other = connect(by_client(vault))
    other.log_in()
    vault.requests.clear()
    assert other._session
    return other._session


def test_a_session_that_somebody_else_opened_is_used_as_long_as_it_lives(vault: FakeVault, connect: Connect) -> None:
    client = connect(SessionId(opened_by_another(vault, connect)))
    assert client.files("incr").files
    assert client.files("log").files
    assert calls(vault) == ["keep-alive", "list", "list"]
    vault.expire_sessions()
    for _ in range(2):
        with pytest.raises(LoginRefused, match="The session has ended: open another session, and give its id"):
            client.files("incr")
    assert calls(vault)[3:] == ["list", "keep-alive"]


def test_a_session_of_another_vault_is_not_used(vault: FakeVault, connect: Connect) -> None:
    vault.opens_vault = 999
    with pytest.raises(WrongVault):
        opened_by_another(vault, connect)
    [session] = vault._sessions
    with pytest.raises(WrongVault, match="opened a session with vault 999"):
        connect(SessionId(session)).files("incr")
    assert "list" not in calls(vault)


# --- configuration ---------------------------------------------------------------------------------------------------


def test_each_kind_of_login_captures_by_its_configuration(
    tmp_path: Path, vault: FakeVault, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {"profile": vault.settings.profile, "client": vault.settings.client, "url": vault.url}
    logins = {
        "VAULT_SESSION": ({"kind": "session"}, opened_by_another(vault, connect)),
        "VAULT_TOKEN": ({"kind": "token", **shown}, vault.settings.token),
        "VAULT_CLIENT_SECRET": ({"kind": "oauth", **shown, "issuer": vault.issuer}, vault.settings.client_secret),
    }
    for variable, (login, secret) in logins.items():
        ward = Ward(tmp_path / variable, None, vault)
        written = yaml.safe_load(ward.config_file.read_text())
        written["datasets"]["vault"]["vault"] |= {"login": login, "client_id": "acme-loader"}
        ward.config_file.write_text(yaml.safe_dump(written))
        with ward.open() as pipeline, pytest.raises(Refused, match=f"set it in the environment variable {variable}"):
            ward.captured(pipeline, INCR)
        monkeypatch.setenv(variable, secret)
        vault.requests.clear()
        with ward.open() as pipeline:
            assert len(ward.captured(pipeline, INCR).captured) == 7
            plan = pipeline.source.captures
        assert plan is not None
        assert plan.secret == variable
        assert {request.client_id for request in vault.requests} == {"acme-loader"}
