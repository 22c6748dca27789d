"""Capturing a vault from Dagster, by job and by partition: what can be captured is, and the rest is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from manifest_platform.fake_vault import FakeVault, Fault
from manifest_platform.sources.veeva.layout import window_name
from manifest_platform_tests.orchestration.code_location import failure, materialized_by, output
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.sources.veeva.ward.ward import FULL, INCR, LOG, PASSWORD, QUARTER, Ward, drained

FEEDS = (LOG, INCR, FULL)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that stores its data in files, as a server's does."""
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        yield instance


@pytest.fixture
def dagster(vault: FakeVault, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> DagsterWard:
    monkeypatch.setenv(PASSWORD, vault.settings.password)
    return DagsterWard(Ward(tmp_path, vault=vault), instance)


def _names(vault: FakeVault, feed: Any) -> list[str]:
    """Returns the names of the windows that the vault has published, in order."""
    return [window_name(feed, window.stop) for window in vault.windows(feed)]


def _ref(vault: FakeVault, number: int) -> str:
    """Returns a window of changes in the form that faults use."""
    return vault.windows("incr")[number].ref


def _registered(dagster: DagsterWard, feed: str = INCR) -> list[str]:
    with dagster.ward.open() as pipeline:
        return [item.key.name for item in pipeline.manifest.items(feed)]


# The job


def test_new_windows_become_partitions_and_materializations(dagster: DagsterWard, vault: FakeVault) -> None:
    result = dagster.capture()
    assert result.success
    for feed in FEEDS:
        assert dagster.partitions(feed) == _names(vault, feed)
        assert materialized_by(result, dagster.key(f"{feed}/windows")) == _names(vault, feed)
    shown = output(result)
    assert (shown["captured"], shown["known"], shown["awaited"], shown["diverged"]) == (9, 0, "", "")
    assert shown["bytes"] > 0 and shown["requests"] > 9
    window = dagster.shown("incr/windows", _names(vault, INCR)[0])
    assert window["files"] > 0 and window["bytes"] > 0
    assert (window["start"], window["stop"]) == ("2026-01-01T00:00Z", "2026-01-01T00:15Z")
    assert window["dagster/uri"].endswith(_names(vault, INCR)[0])


def test_a_known_window_is_reported_once(dagster: DagsterWard, vault: FakeVault) -> None:
    assert dagster.capture().success
    vault.now += QUARTER
    again = dagster.capture()
    assert materialized_by(again, dagster.key("incr/windows")) == _names(vault, INCR)[-1:]
    assert output(again)["captured"] == 1
    assert output(again)["known"] == 9


def test_feeds_are_chosen_by_configuration(dagster: DagsterWard) -> None:
    assert dagster.capture(feeds=[LOG]).success
    assert [len(dagster.partitions(feed)) for feed in FEEDS] == [1, 0, 0]
    assert "feed hourly of dataset vault is not captured; configured are" in failure(dagster.capture(feeds=["hourly"]))


def test_P4_a_window_that_vault_failed_to_publish_is_reported_and_requested_again(
    dagster: DagsterWard, vault: FakeVault
) -> None:
    names = _names(vault, INCR)
    vault.inject(Fault("unpublished", window=_ref(vault, 1), until=vault.now + timedelta(hours=1)))
    result = dagster.capture()
    assert result.success, "it is no failure of ours"
    assert output(result)["awaited"] == vault.windows("incr")[1].name(vault.settings.vault_id)
    assert dagster.partitions() == _registered(dagster) == [names[0], *names[2:]]
    vault.now += timedelta(hours=1)
    healed = dagster.capture()
    assert output(healed)["awaited"] == ""
    assert names[1] in materialized_by(healed, dagster.key("incr/windows"))


def test_P3_a_broken_window_fails_the_run_but_no_other_window(dagster: DagsterWard, vault: FakeVault) -> None:
    names = _names(vault, INCR)
    vault.inject(Fault("wrong_records", window=_ref(vault, 2)))
    result = dagster.capture()
    assert failure(result).startswith(f"{names[2]}: ")
    assert dagster.partitions() == _registered(dagster) == [*names[:2], *names[3:]]
    assert materialized_by(result, dagster.key("incr/windows")) == [*names[:2], *names[3:]]
    [event] = [event for event in result.all_events if event.is_step_failure]
    told = event.step_failure_data.user_failure_data
    assert told is not None and told.metadata["captured"].value == 8
    vault.heal()
    assert output(dagster.capture())["captured"] == 1


def test_P6_other_content_of_a_registered_window_fails_the_run_and_changes_nothing(
    dagster: DagsterWard, vault: FakeVault
) -> None:
    assert dagster.capture().success
    name = _names(vault, INCR)[3]
    before = dagster.shown("incr/windows", name)
    vault.inject(Fault("duplicate_ids", window=_ref(vault, 3)))
    vault.now += QUARTER
    result = dagster.capture()
    assert failure(result).startswith(f"{name}: ")
    assert "The captured content is kept" in failure(result)
    assert f"manifest-platform accept {name} --keep" in failure(result)
    assert materialized_by(result, dagster.key("incr/windows")) == _names(vault, INCR)[-1:], "the others are captured"
    assert dagster.shown("incr/windows", name) == before
    with dagster.ward.open() as pipeline:
        landed = pipeline.manifest.item(pipeline.key(name)).landed
    assert landed is not None and landed.checksum == before["checksum"]


def test_P10_a_session_of_another_vault_is_refused(dagster: DagsterWard, vault: FakeVault) -> None:
    vault.opens_vault = 999
    message = failure(dagster.capture())
    assert "999" in message and str(vault.settings.vault_id) in message
    assert _registered(dagster) == []


def test_a_password_that_is_missing_is_named(dagster: DagsterWard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD)
    assert f"set it in the environment variable {PASSWORD}" in failure(dagster.capture())


def test_a_password_that_is_wrong_is_tried_once(
    dagster: DagsterWard, vault: FakeVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule that retried a wrong password every 15 minutes would lock the user out."""
    monkeypatch.setenv(PASSWORD, "not-the-password-of-anybody")
    assert "USERNAME_OR_PASSWORD_INCORRECT" in failure(dagster.capture())
    assert "no login is tried" in failure(dagster.capture())
    assert vault.count("auth") == 1
    monkeypatch.setenv(PASSWORD, vault.settings.password)
    assert dagster.capture().success


def _let_in(_vault: FakeVault, _environment: pytest.MonkeyPatch) -> str:
    return _vault.settings.password


def _turn_away(_vault: FakeVault, environment: pytest.MonkeyPatch) -> str:
    environment.setenv(PASSWORD, "not-the-password-of-anybody")
    return "not-the-password-of-anybody"


@pytest.mark.parametrize("login", [_let_in, _turn_away])
def test_no_secret_is_kept_anywhere(
    vault: FakeVault,
    tmp_path: Path,
    kept: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    login: Callable[[FakeVault, pytest.MonkeyPatch], str],
) -> None:
    monkeypatch.setenv(PASSWORD, vault.settings.password)
    secret = login(vault, monkeypatch)
    dagster = DagsterWard(Ward(tmp_path / "ward", vault=vault), kept)
    result = dagster.capture()
    assert result.success == (login is _let_in)
    storage = {path: path.read_bytes() for path in (tmp_path / "dagster").rglob("*") if path.is_file()}
    assert any(result.run_id.encode() in content for content in storage.values()), "this is where runs are kept"
    assert [path for path, content in storage.items() if secret.encode() in content] == []
    landed = [path for path in (tmp_path / "ward").rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert landed == []
    assert secret not in "".join(capfd.readouterr())


# Partitions


def test_a_registered_window_is_materialized_without_a_request(dagster: DagsterWard, vault: FakeVault) -> None:
    assert dagster.capture().success
    name, asked = _names(vault, INCR)[0], len(vault.requests)
    result = dagster.run_assets(["incr/windows"], name)
    assert result.success
    assert materialized_by(result, dagster.key("incr/windows")) == [name]
    assert dagster.shown("incr/windows", name)["files"] > 0
    assert len(vault.requests) == asked


def test_only_chosen_windows_are_captured(dagster: DagsterWard, vault: FakeVault) -> None:
    names = _names(vault, INCR)
    dagster.add(INCR, *names)
    assert dagster.run_assets(["incr/windows"], names[4]).success
    assert _registered(dagster) == [names[4]]
    assert dagster.shown("incr/windows", names[4])["stop"] == "2026-01-01T01:15Z"
    assert dagster.run_assets(["incr/windows"], names[0], names[-1]).success
    assert _registered(dagster) == names
    assert dagster.materialized("incr/windows") == set(names)


def test_an_older_snapshot_is_captured_where_it_is_chosen(dagster: DagsterWard, vault: FakeVault) -> None:
    vault.now += timedelta(days=1)
    first, second = _names(vault, FULL)
    assert dagster.capture(feeds=[FULL]).success
    assert dagster.partitions(FULL) == [second]
    dagster.add(FULL, first)
    assert dagster.run_assets(["full/windows"], first).success
    assert _registered(dagster, FULL) == [first, second]


def test_a_window_that_cannot_be_captured_fails_and_the_rest_is_materialized(dagster: DagsterWard, vault: FakeVault) -> None:
    names = _names(vault, INCR)
    dagster.add(INCR, *names)
    vault.inject(Fault("missing_file", window=_ref(vault, 1)), Fault("lost", window=_ref(vault, 2)))
    message = failure(dagster.run_assets(["incr/windows"], names[0], names[3]))
    assert f"{names[1]}: " in message
    assert f"{names[2]}: Vault does not have it, or no longer has it" in message
    assert dagster.materialized("incr/windows") == {names[0], names[3]}
    assert _registered(dagster) == [names[0], names[3]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("log/date=2026-01-01", "log/date=2026-01-01 does not belong to feed incr"),
        ("incr/yesterday", "is neither a window's name"),
    ],
)
def test_a_partition_that_is_not_a_window_of_the_feed_is_refused(
    dagster: DagsterWard, vault: FakeVault, name: str, message: str
) -> None:
    dagster.add(INCR, name)
    assert message in failure(dagster.run_assets(["incr/windows"], name))
    assert not vault.requests


def test_a_range_that_selects_nothing_fails(dagster: DagsterWard, vault: FakeVault) -> None:
    names = _names(vault, INCR)
    dagster.add(INCR, *names)
    assert "must begin with its older end" in failure(dagster.run_assets(["incr/windows"], names[1], names[0]))


def test_captured_windows_are_drained(dagster: DagsterWard, vault: FakeVault, spark: Any) -> None:
    """With Dagster's runs alone, the content of the vault arrives in the warehouse."""
    assert dagster.capture().success
    first = failure(dagster.run_assets(["incr/warehouse"], _names(vault, INCR)[0]))
    assert "shred has not processed it yet" in first
    assert dagster.begin(item="latest").success
    assert dagster.drain().success
    with dagster.ward.open() as pipeline:
        assert drained(pipeline)[1].loaded == 0, "nothing is left"
    simulation = vault.simulation
    stop = vault.windows("incr")[-1].stop
    assert dagster.ward.differences(simulation, stop, [simulation.begin], simulation.begin) == {}
    for feed in FEEDS:
        for asset in ("windows", "shredded", "warehouse"):
            assert dagster.materialized(f"{feed}/{asset}") == set(_names(vault, feed)), asset
    shown = dagster.shown("incr/warehouse", _names(vault, INCR)[-1])
    assert shown["epoch"] == 2 and shown["rows"] > 0 and "events" not in shown
    assert {one.passed for one in dagster.run_checks().values()} == {True}
