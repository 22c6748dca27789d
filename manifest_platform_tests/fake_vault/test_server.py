"""The fake Vault's API: its answers, publication and retention."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx
import pytest

from manifest_platform.fake_vault import WINDOW, FakeVault, Simulation, VaultSettings
from manifest_platform.fake_vault.server import OTHER_VAULT
from manifest_platform_tests.fake_vault.client import API, FILES, Client
from manifest_platform_tests.fake_vault.replay import rows, unpack

DAY = timedelta(days=1)
SMALL = Simulation(rows=1, changes=(1, 2))
BEGIN = SMALL.begin


@pytest.fixture
def client(vault: FakeVault) -> Iterator[Client]:
    client = Client(vault)
    yield client
    client.http.close()


def stops(vault: FakeVault, feed) -> list[datetime]:
    return [window.stop for window in vault.windows(feed)]


# Sessions


def test_a_login_names_its_vault(client: Client, vault: FakeVault) -> None:
    told = client.log_in()
    assert told["responseStatus"] == "SUCCESS"
    assert told["vaultId"] == vault.settings.vault_id == 146478
    assert [known["id"] for known in told["vaultIds"]] == [vault.settings.vault_id]
    assert client.log_in(vaultDNS=vault.settings.dns)["vaultId"] == vault.settings.vault_id


def test_a_login_for_another_dns_quietly_opens_another_vault_which_has_nothing(client: Client, vault: FakeVault) -> None:
    told = client.log_in(vaultDNS="mistyped.veevavault.com")
    assert told["responseStatus"] == "SUCCESS"
    assert told["vaultId"] == OTHER_VAULT
    files = client.files()
    client.session = told["sessionId"]
    assert client.files() == {}
    assert client.failure(f"{FILES}/{next(iter(files))}.001") == "INVALID_DATA"
    vault.opens_vault = 77
    assert client.log_in()["vaultId"] == 77


def test_wrong_passwords_lock_a_user_out_even_from_the_right_one(client: Client, vault: FakeVault) -> None:
    vault.wrong_passwords = 2
    for _ in range(2):
        assert client.log_in(password="wrong")["errors"][0]["type"] == "USERNAME_OR_PASSWORD_INCORRECT"
    assert client.log_in()["errors"][0]["type"] == "USER_LOCKED_OUT"
    vault.unlock()
    assert client.log_in()["responseStatus"] == "SUCCESS"
    assert client.log_in(username="")["errors"][0]["type"] == "PARAMETER_REQUIRED"


def test_a_bearer_token_opens_a_session(client: Client, vault: FakeVault) -> None:
    def log_in(token: str, profile: str = vault.settings.profile, client_id: str = "me") -> dict:
        headers, form = {"Authorization": f"Bearer {token}"}, {"client_id": client_id, "vaultDNS": vault.settings.dns}
        return client.http.post(f"/auth/oauth/session/{profile}", headers=headers, data=form).json()

    client.session = f"Bearer {log_in(vault.settings.token)['sessionId']}"
    assert client.files()
    assert log_in(vault.settings.token, client_id="")["errors"][0]["type"] == "PARAMETER_REQUIRED"
    assert log_in("another")["responseStatus"] == log_in(vault.settings.token, "another")["responseStatus"] == "FAILURE"


def test_sessions_end_when_they_are_idle_and_are_kept_by_keep_alive(client: Client, vault: FakeVault) -> None:
    session = vault._sessions[client.session]
    for _ in range(3):
        session.used -= vault.session_idle_s - 60
        kept = client.http.post(f"{API}/keep-alive", headers={"Authorization": client.session}).json()
        assert kept["responseStatus"] == "SUCCESS"
    session.used -= vault.session_idle_s + 1
    assert client.failure(FILES) == "INVALID_SESSION_ID"


def test_sessions_end_after_48_hours_however_they_are_used(client: Client, vault: FakeVault) -> None:
    session = vault._sessions[client.session]
    session.opened -= 48 * 3600 - 60
    assert client.files()
    session.opened -= 61
    assert client.failure(FILES) == "INVALID_SESSION_ID"


@pytest.mark.parametrize("how", ["deleted", "expired", "never opened"])
def test_no_call_goes_without_a_session(client: Client, vault: FakeVault, how: str) -> None:
    part = f"{next(iter(client.files()))}.001"
    if how == "deleted":
        assert (
            client.http.delete(f"{API}/session", headers={"Authorization": client.session}).json()["responseStatus"]
            == "SUCCESS"
        )
    elif how == "expired":
        vault.expire_sessions()
    else:
        client.session = ""
    for path in (FILES, f"{FILES}/{part}"):
        assert client.failure(path) == "INVALID_SESSION_ID"
    ended = client.http.post(f"{API}/keep-alive", headers={"Authorization": client.session}).json()
    assert ended["errors"][0]["type"] == "INVALID_SESSION_ID"


# The listing


def test_the_listing_filters_by_type_and_by_both_forms_of_time(client: Client, vault: FakeVault) -> None:
    everything = client.files()
    assert sorted(name[-1] for name in everything) == [*("F" * 1), *("L" * 1), *("N" * 7)]
    incr = client.files(extract_type="incremental_directdata")
    assert {entry["extract_type"] for entry in incr.values()} == {"incremental_directdata"}
    for form in ("2026-01-01T{}Z", "2026-01-01T{}:00Z"):
        some = client.files(start_time=form.format("00:30"), stop_time=form.format("01:15"))
        assert {entry["stop_time"][11:] for entry in some.values()} == {"00:45Z", "01:00Z", "01:15Z"}
    assert client.failure(FILES, extract_type="all") == client.failure(FILES, start_time="yesterday") == "INVALID_DATA"


def test_snapshots_start_in_2000_so_that_a_later_start_finds_none(client: Client) -> None:
    full = client.files(extract_type="full_directdata", start_time="2000-01-01T00:00Z")
    assert [entry["start_time"] for entry in full.values()] == ["2000-01-01T00:00Z"]
    assert client.files(extract_type="full_directdata", start_time="2000-01-01T00:01Z") == {}


def test_the_listing_has_no_fixed_order(client: Client) -> None:
    orders = {tuple(entry["name"] for entry in client.get(FILES).json()["data"]) for _ in range(5)}
    assert len(orders) > 1
    assert len({frozenset(order) for order in orders}) == 1


def test_an_entry_lists_its_parts_and_counts(client: Client, vault: FakeVault) -> None:
    [entry] = client.files(extract_type="full_directdata").values()
    assert entry["name"] == "146478-20260101-0000-F"
    assert entry["fileparts"] == len(entry["filepart_details"]) > 1
    assert entry["size"] == sum(part["size"] for part in entry["filepart_details"])
    assert [part["name"] for part in entry["filepart_details"]][:2] == [f"{entry['name']}.001", f"{entry['name']}.002"]
    assert {part["size"] for part in entry["filepart_details"][:-1]} == {4096}
    listed = rows(unpack(client.download(vault.windows("full")[0]))["manifest.csv"])
    assert entry["record_count"] == sum(int(line["records"]) for line in listed) > 0


def test_the_urls_of_parts_lead_nowhere(client: Client) -> None:
    [entry] = client.files(extract_type="full_directdata").values()
    path = httpx.URL(entry["filepart_details"][0]["url"]).path
    assert client.failure(path) == "MALFORMED_URL"
    assert client.failure(f"{FILES}/{entry['name']}.999") == client.failure(f"{FILES}/nothing") == "INVALID_DATA"


def test_checksums_may_be_left_out() -> None:
    with FakeVault(SMALL, BEGIN + timedelta(hours=1), VaultSettings(md5=False)) as vault:
        client = Client(vault)
        parts = [part for entry in client.files().values() for part in entry["filepart_details"]]
        assert parts
        assert not any("md5checksum" in part for part in parts)


def test_an_empty_window_has_no_parts() -> None:
    simulation = Simulation(rows=1, changes=(1, 2), quiet={1})
    with FakeVault(simulation, BEGIN + timedelta(hours=2)) as vault:
        client = Client(vault)
        entry = client.entry(vault.windows("incr")[1])
        assert (entry["record_count"], entry["fileparts"], entry["filepart_details"], entry["size"]) == (0, 0, [], 0)
        assert client.entry(vault.windows("incr")[0])["fileparts"] == 1


# Publication


def test_nothing_is_listed_before_the_first_snapshot(client: Client, vault: FakeVault) -> None:
    vault.now = BEGIN + timedelta(minutes=59)
    assert client.failure(FILES) == "OPERATION_NOT_ALLOWED"
    vault.now = BEGIN + timedelta(minutes=60)
    assert client.files()


def test_a_window_is_published_a_quarter_of_an_hour_after_its_stop() -> None:
    vault = FakeVault(SMALL, BEGIN + timedelta(hours=2))
    assert stops(vault, "incr")[-1] == BEGIN + 7 * WINDOW
    vault.now += timedelta(minutes=14, seconds=59)
    assert stops(vault, "incr")[-1] == BEGIN + 7 * WINDOW
    vault.now += timedelta(seconds=1)
    assert stops(vault, "incr")[-1] == BEGIN + 8 * WINDOW


def test_retention_is_ten_days_of_increments_and_two_of_the_rest(client: Client, vault: FakeVault) -> None:
    [first, *_] = vault.windows("incr")
    part = client.entry(first)["filepart_details"][0]["name"]
    vault.now = first.stop + 15 * timedelta(minutes=1) + 10 * DAY - timedelta(seconds=1)
    assert stops(vault, "incr")[0] == first.stop
    assert client.get(f"{FILES}/{part}").headers["Content-Type"] == "application/octet-stream"
    assert stops(vault, "full") == stops(vault, "log") == [BEGIN + 8 * DAY, BEGIN + 9 * DAY]
    vault.now += timedelta(seconds=1)
    assert stops(vault, "incr")[0] == first.stop + WINDOW
    assert client.failure(f"{FILES}/{part}") == "INVALID_DATA"


@pytest.mark.parametrize(
    ("hour", "full", "log"),
    [(0, [0, 24], [0, 24]), (8, [0, 8, 32], [8, 32])],
)
def test_snapshots_and_logs_stop_daily_at_an_hour_of_the_vaults_zone(hour: int, full: list[int], log: list[int]) -> None:
    vault = FakeVault(SMALL, BEGIN + timedelta(hours=33), VaultSettings(full_hour_utc=hour))
    assert stops(vault, "full") == [BEGIN + timedelta(hours=at) for at in full]
    assert stops(vault, "log") == [BEGIN + timedelta(hours=at) for at in log]
    assert {window.stop - window.start for window in vault.windows("log")} == {DAY}


def test_a_clock_may_run_and_needs_a_zone() -> None:
    vault = FakeVault(SMALL, BEGIN, VaultSettings(speed=3600))
    time.sleep(0.05)
    assert BEGIN + timedelta(minutes=3) <= vault.now < BEGIN + DAY
    with pytest.raises(ValueError, match="time zone"):
        vault.now = datetime(2026, 1, 1)


# Headers, and what is kept of the calls


def test_answers_have_the_headers_of_vault(client: Client, vault: FakeVault) -> None:
    headers = {"Authorization": client.session, "X-VaultAPI-ReferenceId": "mine", "X-VaultAPI-ClientID": "acme-platform"}
    first, second = (client.http.get(FILES, headers=headers) for _ in range(2))
    assert first.headers["X-VaultAPI-ExecutionId"] != second.headers["X-VaultAPI-ExecutionId"]
    assert first.headers["X-VaultAPI-ReferenceId"] == "mine"
    assert first.headers["X-VaultAPI-VaultId"] == str(vault.settings.vault_id)
    assert int(first.headers["X-VaultAPI-BurstLimitRemaining"]) - int(second.headers["X-VaultAPI-BurstLimitRemaining"]) == 1
    assert vault.requests[-1].execution_id == second.headers["X-VaultAPI-ExecutionId"]
    assert vault.requests[-1].client_id == "acme-platform"


def test_over_the_burst_limit_answers_are_late_not_refused(client: Client, vault: FakeVault) -> None:
    vault.burst_limit, vault.burst_delay_ms = 2, 150
    assert "X-VaultAPI-ResponseDelay" not in client.get(FILES).headers
    began = time.monotonic()
    late = client.get(FILES)
    assert time.monotonic() - began >= 0.15
    assert late.json()["responseStatus"] == "SUCCESS"
    assert late.headers["X-VaultAPI-ResponseDelay"] == "150"
    assert late.headers["X-VaultAPI-BurstLimitRemaining"] == "0"


def test_requests_are_kept_without_secrets(client: Client, vault: FakeVault) -> None:
    client.files(extract_type="full_directdata")
    client.get("/api/v25.3/nothing")
    assert [(request.call, request.outcome) for request in vault.requests] == [
        ("auth", "SUCCESS"),
        ("list", "SUCCESS"),
        (None, "MALFORMED_URL"),
    ]
    assert vault.requests[1].query == {"extract_type": "full_directdata"}
    assert vault.count("list") == vault.count("list", "SUCCESS") == 1
    assert vault.count("list", "INVALID_DATA") == 0
    assert not any(secret in repr(vault.requests) for secret in (vault.settings.password, client.session))


def test_the_server_closes_its_connections_when_it_ends() -> None:
    with FakeVault(SMALL) as vault:
        client = Client(vault)
        address = httpx.URL(vault.url)
    with pytest.raises(httpx.TransportError):
        client.get(FILES)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.host, address.port or 0))
