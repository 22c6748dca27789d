"""Archives that are downloaded over HTTP and replayed by a plain reader equal the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest

from manifest_platform.fake_vault import WINDOW, FakeVault, Simulation, VaultSettings, Window, schema_changes
from manifest_platform.fake_vault.archives import FULL_START, archive_of
from manifest_platform_tests.fake_vault.client import Client
from manifest_platform_tests.fake_vault.replay import Replica, rows, unpack, value

SIMULATION = Simulation(seed=7, rows=6, changes=(5, 25), quiet={9}, script=schema_changes(2, 4, 6, 8))
BEGIN = SIMULATION.begin
SNAPSHOT = BEGIN + 5 * WINDOW
OFF_GRID = BEGIN + timedelta(minutes=97, milliseconds=250)
END = SIMULATION.stop(11)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    stops = [BEGIN, SNAPSHOT, OFF_GRID, END]
    with FakeVault(SIMULATION, END + timedelta(hours=1), VaultSettings(full_stops=stops, part_bytes=3000)) as vault:
        yield Client(vault)


def replica_of(client: Client, *windows: Window) -> Replica:
    replica = Replica()
    for window in windows:
        if client.entry(window)["fileparts"]:
            replica.apply(unpack(client.download(window)))
    return replica


def legacy(*snapshots: Window) -> dict:
    return SIMULATION.tables(END, [window.stop for window in snapshots])["workflow_legacy__sys"]


def test_the_first_snapshot_and_increments_replay_to_the_simulated_state_after_each_window(client: Client) -> None:
    [first, *_], increments = client.vault.windows("full"), client.vault.windows("incr")
    replica = replica_of(client, first)
    assert len(increments) >= 12
    for window in increments:
        if client.entry(window)["fileparts"]:
            replica.apply(unpack(client.download(window)))
        assert replica.tables == SIMULATION.tables(window.stop, [BEGIN]), window.ref


@pytest.mark.parametrize("at", [BEGIN, SNAPSHOT, OFF_GRID, END])
def test_a_snapshot_equals_the_simulated_state_at_its_stop_time(client: Client, at) -> None:
    [snapshot] = [window for window in client.vault.windows("full") if window.stop == at]
    assert snapshot.start == FULL_START
    assert replica_of(client, snapshot).tables == SIMULATION.tables(at, [at])


@pytest.mark.parametrize("at", [SNAPSHOT, OFF_GRID])
def test_a_snapshot_and_the_increments_from_its_window_on_replay_to_the_simulated_state(client: Client, at) -> None:
    [snapshot] = [window for window in client.vault.windows("full") if window.stop == at]
    later = [window for window in client.vault.windows("incr") if at < window.stop <= END]
    assert (later[0].start < at) == (at == OFF_GRID)
    assert replica_of(client, snapshot, *later).tables == SIMULATION.tables(END, [at])


def test_the_simulated_state_changes_in_every_window_that_is_not_quiet() -> None:
    states = [SIMULATION.tables(SIMULATION.stop(window)) for window in range(12)]
    changed = [before != after for before, after in pairwise(states)]
    assert changed == [window != 9 for window in range(1, 12)]


def test_daily_logs_hold_every_row_once() -> None:
    simulation = Simulation(rows=2, changes=(1, 3))
    windows = FakeVault(simulation).windows("log")
    days = [window.stop - simulation.begin for window in windows]
    assert days == [timedelta(0), timedelta(days=1)]
    found: dict[str, list] = {table: [] for table in simulation.logs(simulation.begin)}
    for window in windows:
        tree = unpack(archive_of(simulation, window).packed())
        types = {(row["extract"], row["column_name"]): row["type"] for row in rows(tree["metadata_full.csv"])}
        for line in rows(tree["manifest.csv"]):
            assert "type" not in line
            held = rows(tree[line["file"]]) if line["file"] else []
            assert len(held) == int(line["records"])
            found[line["extract"].removeprefix("Log.")] += [
                {column: value(text, types[line["extract"], column]) for column, text in row.items()} for row in held
            ]
    assert found == simulation.logs(windows[-1].stop)
    assert all(found.values())


def test_legacy_workflows_are_in_snapshots_alone_and_only_those_of_a_day(client: Client) -> None:
    first, *_, last = client.vault.windows("full")
    assert legacy(first) != legacy(last) != legacy(first, last)
    assert legacy(first) | legacy(last) == legacy(first, last)
    for window in client.vault.windows("incr"):
        assert not any("legacy" in path for path in archive_of(SIMULATION, window).tree())


def test_added_and_dropped_tables_and_columns_are_named(client: Client) -> None:
    assert SIMULATION.dropped(END) == {("study__v", "phase__c"), ("3d_model__c", None)}
    assert SIMULATION.dropped(SIMULATION.stop(5)) == frozenset()
    window = client.vault.windows("incr")[8]
    tree = unpack(client.download(window))
    gone = rows(tree["Metadata/metadata_deletes.csv"])
    assert {row["extract"] for row in gone} == {"Object.3d_model__c"}
    assert "id" in {row["column_name"] for row in gone}
    assert all(row["deleted_date"] for row in gone)
    came = unpack(client.download(client.vault.windows("incr")[2]))
    [new] = rows(came["Metadata/metadata.csv"])
    assert new["column_name"] == "batch_code__c"
    assert new["modified_date"].startswith("2026-01-01T00:30:")
    assert {row["modified_date"] for row in rows(came["metadata_full.csv"])} == {""}


def test_files_have_the_paths_of_the_reference(client: Client) -> None:
    trees = [archive_of(SIMULATION, window).tree() for window in client.vault.windows("incr")]
    paths = {path for tree in trees for path in tree}
    assert {
        "manifest.csv",
        "metadata_full.csv",
        "Metadata/metadata.csv",
        "Metadata/metadata_deletes.csv",
        "Object/product__v_deletes.csv",
        "Object/user__sys.csv",
        "Document/document_version__sys.csv",
        "Document/document_relationships_deleted__sys.csv",
        "Picklist/picklist__sys_deletes.csv",
        "Workflow/workflow_task_item__sys.csv",
    } <= paths
    for tree in trees:
        named = [line["file"] for line in rows(tree["manifest.csv"]) if line["file"]]
        assert sorted(named) == sorted(path for path in tree if path not in ("manifest.csv", "metadata_full.csv"))
    [full] = [window for window in client.vault.windows("full") if window.stop == BEGIN]
    whole = archive_of(SIMULATION, full).tree()
    assert "metadata_full.csv" not in whole
    assert {"Metadata/metadata.csv", "Metadata/object.csv", "Object/3d_model__c.csv"} <= set(whole)
    assert whole["Document/document_version__sys.csv"].startswith(b'"id",')
    header = whole["Object/product__v.csv"].split(b"\r\n")[0].decode().split(",")
    assert header[:3] == ["id", "modified_date__v", "name__v"]
    assert header[9:] == sorted(header[9:])
