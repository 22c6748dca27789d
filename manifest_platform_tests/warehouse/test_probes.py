"""`warehouse check` and `warehouse grants`: the probes pass where loads pass, and the advice of a failed probe helps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from manifest_platform import storage
from manifest_platform.cli import main
from manifest_platform.testing.loads import content, events, ledger, load
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.control import Fence
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.engines.engine import Engine, EngineSettings
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform.warehouse.probes import SCHEMA_PREFIX, Probed, Probes, Result
from manifest_platform_tests.pipeline.shop import Shop
from manifest_platform_tests.servers.warehouses import DatabasePlace, Place, settings_of


def probed(settings: EngineSettings, place: Place) -> dict[str, Probed]:
    return {one.probe: one for one in Probes(settings, f"{storage.as_uri(place.objects)}/probed", ("shop",)).run()}


def schemas(engine: Engine) -> list[str]:
    query = "SELECT schema_name FROM information_schema.schemata ORDER BY 1"
    return [name for (name,) in engine.execute(query) if name.startswith(SCHEMA_PREFIX)]


@pytest.mark.everyday("duckdb", "postgresql")
def test_all_probes_pass_and_leave_nothing(tmp_path: Path, place: Place) -> None:
    with closing(place.open()) as engine:
        Warehouse(engine, "shop").apply(load(events(place.objects, "a")))
        before = content(engine), ledger(engine)
        found = probed(settings_of(place.settings), place)
        assert {name: one.note for name, one in found.items() if one.result is not Result.OK} == {}
        assert list(found)[-1] == "clean up" and len(found) == 15
        assert found["upkeep"].note == ", ".join(settings_of(place.settings).upkeep_actions)
        assert "altered" not in found["control tables"].note
        assert "refused" in found["two sessions"].note and "of this release" in found["control tables"].note
        assert (content(engine), ledger(engine), schemas(engine)) == (*before, [])
        assert not (tmp_path / "probed").exists()


@pytest.mark.engines("duckdb")
def test_a_failed_probe_skips_what_needs_it_and_the_rest_goes_on(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(place.open()) as engine:
        engine.execute("SELECT 1")
        (tmp_path / "probed").write_text("a file stands where the folder belongs")
        found = probed(settings_of(place.settings), place)
        assert found["stage"].result is Result.FAILED
        assert {one.result for name, one in found.items() if name in ("append", "two sessions", "full load")} == {
            Result.SKIPPED
        }
        assert {found[name].result for name in ("connect", "tables", "clean up")} == {Result.OK}
        assert schemas(engine) == []


class Limited:
    """A role of a PostgreSQL database that may do nothing, until a superuser grants it something."""

    def __init__(self, place: DatabasePlace) -> None:
        self.place, self.role = place, f"loader_{place.database}"
        self.settings = settings_of({**place.settings, "url": place.url.replace("postgres@", f"{self.role}@")})
        self.run(f'REVOKE ALL ON DATABASE "{place.database}" FROM PUBLIC', f'CREATE ROLE "{self.role}" LOGIN')

    def run(self, *statements: str) -> None:
        with self.place.connect() as superuser:
            for one in statements:
                superuser.execute(one.encode())

    def remove(self) -> None:
        self.run(f'DROP OWNED BY "{self.role}" CASCADE', f'DROP ROLE "{self.role}"')


@pytest.fixture
def limited(place: Place) -> Iterator[Limited]:
    assert isinstance(place, DatabasePlace)
    made = Limited(place)
    yield made
    made.remove()


@pytest.mark.engines("postgresql")
def test_the_printed_grant_makes_each_probe_pass(tmp_path: Path, place: Place, limited: Limited) -> None:
    """A person gets from a role without any privilege to a role that loads, by nothing but the advice."""
    with closing(place.open()) as owner:
        Warehouse(owner, "shop").apply(load(events(place.objects, "a")))  # another role's control tables
        owner.close()
    stopped_at = []
    for _ in range(6):
        found = probed(limited.settings, place)
        failed = [one for one in found.values() if one.result is Result.FAILED]
        if not failed:
            break
        stopped_at += [one.probe for one in failed]
        for one in failed:
            assert one.helps, one
            limited.run(*one.helps)
            assert one.probe not in stopped_at[: -len(failed)], f"the advice did not help: {one}"
    assert stopped_at == ["connect", "control tables", "schema", "stage"]
    assert {one.result for one in found.values()} == {Result.OK}
    # A GRANT gives no right to add a column, so loads work and a later release would not.
    assert "may not be altered by this role" in found["control tables"].note
    assert "of postgres: loads work until a later release adds a column" in found["control tables"].note
    limited.run(f'GRANT postgres TO "{limited.role}"')
    assert "altered" not in probed(limited.settings, place)["control tables"].note


@pytest.mark.engines("postgresql")
def test_a_role_with_the_printed_grants_loads(tmp_path: Path, place: Place, limited: Limited) -> None:
    with closing(place.open()) as superuser:
        limited.run(*superuser.grants(["shop"], limited.role))
    with closing(limited.settings.open()) as engine:
        shop = Warehouse(engine, "shop")
        shop.apply(load(events(place.objects, "a")))
        shop.apply(load(events(place.objects, "b")))
        assert ledger(engine) == [("a", 1), ("b", 1)]
        shop.close()


def test_the_commands_tell_it_to_people_and_programs(shop_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--config", str(shop_config), "warehouse"]
    assert main([*command, "check"]) == 0
    told = capsys.readouterr().out
    assert "skipped" in told and "nothing could be tried yet" in told, "there is no file yet"
    DuckDB(shop_config.parent / "warehouse.duckdb").execute("SELECT 1")
    assert main([*command, "check"]) == 0
    told = capsys.readouterr().out
    assert "two sessions" in told and "loads find everything that they need" in told
    (shop_config.parent / "shredded").write_text("a file stands where the folder belongs")
    assert main([*command, "check", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [one["result"] for one in answer["probes"] if one["probe"] in ("stage", "append")] == ["failed", "skipped"]
    assert main([*command, "grants", "--role", "loader"]) == 4
    assert "no roles" in capsys.readouterr().out


@pytest.fixture
def shop_config(tmp_path: Path) -> Path:
    return Shop(tmp_path).config_file


@pytest.mark.engines("duckdb")
def test_a_warehouse_without_what_loads_rely_on_is_found(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.open().execute("SELECT 1")

    def keeps(self: DuckDB) -> None:
        with suppress(WarehouseError):
            self.execute("COMMIT")

    broken = {
        "rollback": (DuckDB, "rollback", keeps),
        "two sessions": (Fence, "move", lambda *_: True),
        "clock": (time, "time", lambda: 0.0),
        "upkeep": (DuckDB, "tidy", lambda self, *_: self.execute("SELECT nothing")),
    }
    for probe, (owner, name, instead) in broken.items():
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, instead)
            found = probed(settings_of(place.settings), place)
        assert found[probe].result is Result.FAILED, probe
        assert found["clean up"].result is Result.OK


@pytest.mark.long
def test_all_probes_pass_on_the_stand_in_for_snowflake(snowflake: EngineSettings, tmp_path: Path) -> None:
    found = list(Probes(snowflake, storage.as_uri(tmp_path / "probed"), ("shop",)).run())
    assert {one.probe: one.note for one in found if one.result is not Result.OK} == {}
