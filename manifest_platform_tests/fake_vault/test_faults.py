"""Faults have their described effect, heal as described, and change nothing else."""

from __future__ import annotations

import csv
import hashlib
import io
import tarfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from manifest_platform.fake_vault import FakeVault, Fault, InvalidFault, Window
from manifest_platform.fake_vault.faults import CONTENT
from manifest_platform_tests.fake_vault.client import FILES, Client
from manifest_platform_tests.fake_vault.replay import rows, unpack

HEALED = timedelta(minutes=20)


@pytest.fixture
def client(vault: FakeVault) -> Iterator[Client]:
    client = Client(vault)
    yield client
    client.http.close()


@pytest.fixture
def window(vault: FakeVault) -> Window:
    """The window with the fault: neither the first nor the last."""
    return vault.windows("incr")[3]


def part_name(client: Client, window: Window, number: int = 1) -> str:
    return client.entry(window)["filepart_details"][number - 1]["name"]


# Publication


def test_a_failed_publication_has_a_name_and_an_error_until_it_heals(client: Client, vault: FakeVault, window: Window) -> None:
    part = part_name(client, window)
    until = vault.now + HEALED
    vault.inject(Fault("unpublished", window.ref, until=until))
    entry = client.entry(window)
    assert set(entry) == {"name", "error"}
    assert set(entry["error"]) == {"next_retry", "message"}
    assert entry["error"]["next_retry"] == f"{until:%Y-%m-%dT%H:%MZ}"
    assert client.failure(f"{FILES}/{part}") == "INVALID_DATA"
    assert sum("error" in other for other in client.files().values()) == 1
    vault.now = until
    assert client.download(window)
    assert vault.faults == ()


@pytest.mark.parametrize("kind", ["late", "lost"])
def test_a_window_may_be_missing_though_later_ones_are_there(
    client: Client, vault: FakeVault, window: Window, kind: str
) -> None:
    part, before = part_name(client, window), client.files()
    vault.inject(Fault(kind, window.ref, until=vault.now + HEALED if kind == "late" else None))
    assert before.keys() - client.files().keys() == {window.name(vault.settings.vault_id)}
    assert client.failure(f"{FILES}/{part}") == "INVALID_DATA"
    vault.now += HEALED
    assert (window in vault.windows("incr")) == (kind == "late")


def test_a_window_may_be_emptied(client: Client, vault: FakeVault, window: Window) -> None:
    vault.inject(Fault("emptied", window.ref))
    entry = client.entry(window)
    assert (entry["record_count"], entry["filepart_details"]) == (0, [])
    vault.heal()
    assert client.entry(window)["record_count"]


# Downloads


def test_a_part_may_have_another_byte_for_a_while(client: Client, vault: FakeVault) -> None:
    [full] = vault.windows("full")
    parts = client.entry(full)["filepart_details"]
    vault.inject(Fault("bad_md5", full.ref, part=2, times=2))
    client.part(parts[0])
    for _ in range(2):
        found = client.get(f"{FILES}/{parts[1]['name']}").content
        assert len(found) == parts[1]["size"]
        assert hashlib.md5(found, usedforsecurity=False).hexdigest() != parts[1]["md5checksum"]
    assert vault.faults == ()
    client.part(parts[1])


def test_a_part_may_be_short(client: Client, vault: FakeVault) -> None:
    [full] = vault.windows("full")
    part = client.entry(full)["filepart_details"][0]
    vault.inject(Fault("short_part", times=1))
    assert len(client.get(f"{FILES}/{part['name']}").content) == part["size"] // 2
    client.part(part)


def test_a_connection_may_break_in_a_part(client: Client, vault: FakeVault) -> None:
    [full] = vault.windows("full")
    part = client.entry(full)["filepart_details"][0]
    vault.inject(Fault("cut", full.ref, part=1, times=1))
    with pytest.raises(httpx.RemoteProtocolError, match="peer closed connection"):
        client.get(f"{FILES}/{part['name']}")
    client.part(part)


def test_a_session_may_end_at_a_part(client: Client, vault: FakeVault) -> None:
    [full] = vault.windows("full")
    first, second, *_ = client.entry(full)["filepart_details"]
    vault.inject(Fault("expired", full.ref, part=2, times=1))
    client.part(first)
    assert client.failure(f"{FILES}/{second['name']}") == client.failure(FILES) == "INVALID_SESSION_ID"
    client.session = client.log_in()["sessionId"]
    client.part(second)


# Answers


def test_an_http_status_may_come_instead_of_an_answer(client: Client, vault: FakeVault) -> None:
    vault.inject(Fault("status", call="list", status=429, retry_after=7, times=1), Fault("status", call="list", times=1))
    limited, broken = client.get(FILES), client.get(FILES)
    assert (limited.status_code, limited.headers["Retry-After"]) == (429, "7")
    assert broken.status_code == 500
    assert "Retry-After" not in broken.headers
    assert client.log_in()["responseStatus"] == "SUCCESS"
    assert client.files()
    assert [request.outcome for request in vault.requests if request.call == "list"] == ["429", "500", "SUCCESS"]


@pytest.mark.parametrize("call", ["auth", "list", "download", "keep-alive", None])
def test_a_failure_of_any_type_may_come_with_http_200(client: Client, vault: FakeVault, call) -> None:
    part = part_name(client, vault.windows("incr")[0])
    vault.inject(Fault("error", call=call, error="API_LIMIT_EXCEEDED"))
    client.log_in()
    client.get(FILES)
    client.get(f"{FILES}/{part}")
    client.http.post("/api/v25.3/keep-alive", headers={"Authorization": client.session})
    outcomes = {request.call: request.outcome for request in vault.requests[-4:]}
    assert {met for met, outcome in outcomes.items() if outcome == "API_LIMIT_EXCEEDED"} == ({call} if call else set(outcomes))
    assert all(outcome in ("SUCCESS", "API_LIMIT_EXCEEDED") for outcome in outcomes.values())
    vault.heal()
    assert client.files()


def test_a_fault_of_answers_may_heal_by_the_clock(client: Client, vault: FakeVault) -> None:
    vault.inject(Fault("status", call="list", status=503, until=vault.now + HEALED))
    assert [client.get(FILES).status_code for _ in range(2)] == [503, 503]
    vault.now += HEALED
    assert client.files()


def test_an_answer_may_be_slow(client: Client, vault: FakeVault) -> None:
    vault.inject(Fault("slow", call="list", seconds=0.2, times=1))
    began = time.monotonic()
    assert client.files()
    assert time.monotonic() - began >= 0.2


# Archives


@pytest.mark.parametrize(
    ("feed", "kind"),
    [*(("incr", kind) for kind in CONTENT), ("full", "unknown_type"), ("full", "duplicate_ids"), ("log", "wrong_records")],
)
def test_a_fault_of_an_archive_changes_nothing_else_in_it(client: Client, vault: FakeVault, feed, kind: str) -> None:
    window = vault.windows(feed)[-1]
    right = client.download(window)
    vault.inject(Fault(kind, window.ref, until=vault.now + HEALED))
    spoilt = client.download(window)  # its parts are as listed
    assert spoilt != right
    assert len(vault.faults) == 1
    CHECKS[kind](right, spoilt)
    assert unpack(client.download(vault.windows("incr")[0]))
    vault.now += HEALED
    assert client.download(window) == right


def counts(packed: bytes) -> tuple[int, int]:
    """Returns the number of records in the manifest, and in the files."""
    tree = unpack(packed)
    lines = [line for line in rows(tree["manifest.csv"]) if line["file"]]
    return sum(int(line["records"]) for line in lines), sum(len(records(tree[line["file"]])) - 1 for line in lines)


def records(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))


def changed(right: bytes, spoilt: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the contents of the files that differ, without the manifest."""
    before, after = unpack(right), unpack(spoilt)
    assert list(before) == list(after)
    return [(before[path], after[path]) for path in before if before[path] != after[path] and path != "manifest.csv"]


def check_wrong_records(right: bytes, spoilt: bytes) -> None:
    assert changed(right, spoilt) == []
    told, there = counts(spoilt)
    assert told == there + 1


def check_missing_file(right: bytes, spoilt: bytes) -> None:
    [lost] = set(unpack(right)) - set(unpack(spoilt))
    assert lost in {line["file"] for line in rows(unpack(spoilt)["manifest.csv"])}


def check_extra_file(right: bytes, spoilt: bytes) -> None:
    [more] = set(unpack(spoilt)) - set(unpack(right))
    assert more not in {line["file"] for line in rows(unpack(spoilt)["manifest.csv"])}


def check_duplicate_ids(right: bytes, spoilt: bytes) -> None:
    [(before, after)] = changed(right, spoilt)
    identities = [row["id"] for row in rows(after)]
    assert len(identities) == len(set(identities)) + 1
    assert len({tuple(row) for row in records(after)}) == len(records(before)) + 1
    assert counts(spoilt)[0] == counts(spoilt)[1]


def check_non_utf8(right: bytes, spoilt: bytes) -> None:
    [(_, after)] = changed(right, spoilt)
    with pytest.raises(UnicodeDecodeError):
        after.decode()
    assert len(after.decode("latin-1").split("Zürich")) == 2


def check_header_mismatch(right: bytes, spoilt: bytes) -> None:
    [(_, after)] = changed(right, spoilt)
    header, *others = records(after)
    assert {len(row) for row in others} == {len(header) + 1}


def check_duplicate_column(right: bytes, spoilt: bytes) -> None:
    [(_, after)] = changed(right, spoilt)
    header = records(after)[0]
    assert len(set(header)) == len(header) - 1


def check_unknown_type(right: bytes, spoilt: bytes) -> None:
    found = changed(right, spoilt)
    assert found
    for before, after in found:
        assert "Hologram" not in {row["type"] for row in rows(before)}
        assert "Hologram" in {row["type"] for row in rows(after)}


def check_truncated(right: bytes, spoilt: bytes) -> None:
    assert right.startswith(spoilt)
    with pytest.raises((EOFError, tarfile.ReadError)):
        unpack(spoilt)


def check_repacked(right: bytes, spoilt: bytes) -> None:
    assert unpack(right) == unpack(spoilt)


CHECKS = {kind: globals()[f"check_{kind}"] for kind in CONTENT}


def test_content_faults_may_name_the_extract_that_they_spoil(client: Client, vault: FakeVault) -> None:
    [full] = vault.windows("full")
    vault.inject(Fault("missing_file", full.ref, extract="Picklist.picklist__sys"))
    assert "Picklist/picklist__sys.csv" not in unpack(client.download(full))
    vault.heal()
    vault.inject(Fault("missing_file", full.ref, extract="Object.nothing__c"))
    response = client.get(FILES).json()
    assert response["errors"][0]["type"] == "UNEXPECTED_ERROR"
    assert "no rows of Object.nothing__c" in response["errors"][0]["message"]


# Faults as data


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "nonsense"}, "there is no fault 'nonsense'; there are: unpublished, late"),
        ({"kind": "late"}, "'late' needs a window, as incr/2026-01-01T00:15Z"),
        ({"kind": "truncated", "window": "incr/2026-01-01T00:15Z", "times": 1}, "lasts until a time"),
        ({"kind": "slow", "until": datetime(2026, 1, 1)}, "needs a time zone"),
    ],
)
def test_an_invalid_fault_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(InvalidFault, match=said):
        Fault(**wrong)


def test_faults_come_over_http_from_other_processes(client: Client, vault: FakeVault, window: Window) -> None:
    fault = Fault("unpublished", window.ref, until=datetime(2026, 1, 1, 3, tzinfo=UTC))
    sent = client.http.post(
        "/fake/faults", json=[fault.as_dict(), {"kind": "slow", "seconds": 0.01, "call": "list", "times": 2}]
    )
    assert sent.json() == client.http.get("/fake/faults").json()
    assert vault.faults == (fault, Fault("slow", seconds=0.01, call="list", times=2))
    assert "error" in client.entry(window)
    assert client.http.delete("/fake/faults").json() == []
    assert vault.faults == ()
    for wrong in ({"kind": "nonsense"}, {"kind": "slow", "how": 1}, {"kind": "slow", "times": "often"}, "slow", 3):
        refused = client.http.post("/fake/faults", json=wrong)
        assert refused.status_code == 400
        assert refused.json()["error"]
    assert client.http.post("/fake/faults", content="{").status_code == 400
    assert client.http.get("/fake/nothing").status_code == 404
    assert {request.call for request in vault.requests} == {"auth", "list"}


def test_the_clock_is_set_over_http(client: Client, vault: FakeVault) -> None:
    told = client.http.post("/fake/clock", json={"now": "2026-01-01T12:00Z"}).json()
    assert datetime.fromisoformat(told["now"]) == vault.now == datetime(2026, 1, 1, 12, tzinfo=UTC)
    client.http.post("/fake/clock", json={"minutes": 15})
    assert client.http.get("/fake/clock").json() == {"now": "2026-01-01T12:15:00+00:00"}
    for wrong in ({}, {"now": "noon"}, {"now": "2026-01-01T12:00"}, {"minutes": "x"}, []):
        assert client.http.post("/fake/clock", json=wrong).status_code == 400
