"""The code location: the definitions before anything runs, and the refusal of a wrong configuration."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from manifest_platform.config import VARIABLE, ConfigError
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.resources import WarehouseResource
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, key, lose_listing
from manifest_platform_tests.pipeline.shop import NAME, REPOSITORY, Shop


@pytest.fixture
def empty(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def _specs(defs: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {"/".join(spec.key.path): spec for spec in defs.resolve_all_asset_specs()}


def _is_complete(spec: dg.AssetSpec, group: str = NAME) -> bool:
    return bool(spec.group_name == group and spec.owners == ["team:data"] and spec.kinds and spec.description)


def test_the_definitions_load(empty: Shop) -> None:
    dg.Definitions.validate_loadable(build_defs(empty.config_file))


def test_assets_have_owners_kinds_and_descriptions(empty: Shop) -> None:
    specs = _specs(build_defs(empty.config_file))
    assert sorted(specs) == ["shop/enriched_runs", "shop/overview", "shop/shredded", "shop/warehouse"]
    assert [name for name, spec in specs.items() if not _is_complete(spec)] == []
    assert specs["shop/enriched_runs"].kinds == {"snowplow", "file"}


def test_assets_of_a_feed_share_one_set_of_partitions(empty: Shop) -> None:
    specs = _specs(build_defs(empty.config_file))
    del specs["shop/overview"]
    deps = {name: [dep.asset_key.to_user_string() for dep in spec.deps] for name, spec in specs.items()}
    assert deps == {"shop/enriched_runs": [], "shop/shredded": ["shop/enriched_runs"], "shop/warehouse": ["shop/shredded"]}
    partitions = {spec.partitions_def for spec in specs.values()}
    assert partitions == {dg.DynamicPartitionsDefinition(name="shop_enriched")}


def test_work_on_a_feed_is_limited_to_one_run(empty: Shop) -> None:
    defs = build_defs(empty.config_file)
    for name in ("shredded", "warehouse"):
        definition = defs.resolve_assets_def(key(name))
        assert definition.op.pool == "warehouse_writer", "the embedded warehouse has one"
        assert definition.backfill_policy == dg.BackfillPolicy.single_run()
    drain = defs.resolve_job_def(f"{NAME}_drain")
    assert [node.definition.pools for node in drain.nodes] == [{"warehouse_writer"}]
    assert drain.tags == {
        "manifest_platform/dataset": NAME,
        "manifest_platform/duty": "drain",
        "manifest_platform/turn": "warehouse_writer",
    }


def test_sensors_run_without_being_switched_on(empty: Shop) -> None:
    sensors = {sensor.name: sensor.default_status for sensor in build_defs(empty.config_file).sensors or ()}
    assert set(sensors) == {
        f"{name}_sensor" for name in ("shop_listing", "manifest_failure", "manifest_cancel", "manifest_lost_run")
    }
    assert set(sensors.values()) == {dg.DefaultSensorStatus.RUNNING}


def test_each_dataset_has_assets_of_its_own(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    whole = yaml.safe_load(shop.config_file.read_text())
    shred = {**whole["datasets"][NAME]["shred"], "output": "s3://shredded"}
    whole["datasets"]["other"] = {"landing": {"root": "s3://landing/other"}, "owner": "otto@acme.example", "shred": shred}
    shop.config_file.write_text(yaml.safe_dump(whole))
    defs = build_defs(shop.config_file)
    specs = _specs(defs)
    assert len(specs) == 8
    assert specs["other/enriched_runs"].kinds == {"snowplow", "s3"}
    assert specs["other/warehouse"].owners == ["otto@acme.example"]
    assert specs["other/warehouse"].partitions_def == dg.DynamicPartitionsDefinition(name="other_enriched")
    assert {job.name for job in defs.jobs or ()} == {"shop_drain", "other_drain", "housekeeping"}


def test_tables_appear_with_their_columns_once_they_are_written(shredded: DagsterShop) -> None:
    shredded.add(0)
    assert shredded.materialize(["warehouse"], 0).success
    tables = {name: spec for name, spec in _specs(build_defs(shredded.shop.config_file)).items() if "/warehouse/" in name}
    loaded = {f"shop/warehouse/{table}" for table in shredded.shop.seen.rows}
    assert loaded == set(tables)
    assert [name for name, spec in tables.items() if not _is_complete(spec, f"{NAME}_tables")] == []
    events = tables["shop/warehouse/events"]
    assert [dep.asset_key for dep in events.deps] == [key("warehouse")]
    assert events.metadata["dagster/table_name"].value == "shop.events"
    columns = {column.name: column for column in events.metadata["dagster/column_schema"].value.columns}
    assert columns["event_id"].type.startswith("string")
    assert not columns["event_id"].constraints.nullable
    assert columns["user_id"].constraints.nullable


def test_missing_shredded_output_hides_only_the_tables(shredded: DagsterShop) -> None:
    for number in range(5):
        lose_listing(shredded.shop, number)
    assert len(_specs(build_defs(shredded.shop.config_file))) == 4


def test_a_load_reports_the_rows_of_each_table(shredded: DagsterShop) -> None:
    shredded.add(0, 1)
    shredded.materialize(["warehouse"], 0, 1)
    event = shredded.instance.get_latest_materialization_event(key("warehouse/events"))
    assert event is not None and event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert metadata["rows_loaded"].value == 40
    assert metadata["dagster/row_count"].value == 40
    schema = metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchemaMetadataValue)
    assert {column.name for column in schema.schema.columns} >= {"event_id", "app_id"}


def test_a_wrong_configuration_names_the_key(empty: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    text = empty.config_file.read_text().replace("output:", "outputs:")
    empty.config_file.write_text(text)
    monkeypatch.setenv(VARIABLE, str(empty.config_file))
    with pytest.raises(ConfigError, match=r"datasets\.shop\.shred\.outputs: unknown key; allowed here: .*output"):
        build_defs()


def test_the_code_location_imports_neither_spark_nor_aws(empty: Shop) -> None:
    """Dagster loads the code location in each of its processes, and every process pays for each import."""
    program = (
        "import sys; from manifest_platform.definitions import defs;"
        "print(sorted('/'.join(spec.key.path) for spec in defs().resolve_all_asset_specs()));"
        "print([name for name in ('dagster_aws', 'boto3', 'duckdb', 'pyarrow') if name in sys.modules])"
    )
    environment = {"PATH": "/usr/bin:/bin", VARIABLE: str(empty.config_file)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["['shop/enriched_runs', 'shop/overview', 'shop/shredded', 'shop/warehouse']", "[]"], (
        done.stderr
    )


def test_the_instance_takes_the_repositorys_settings(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        concurrency = instance.get_concurrency_config()
        assert concurrency.run_queue_config is not None, "what it decides: test_duties"
        assert concurrency.pool_config.default_pool_limit == 1
        assert concurrency.pool_config.pool_granularity is not None
        assert concurrency.pool_config.pool_granularity.value == "run"
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] == 300
        assert not instance.run_retries_enabled
        assert not instance.telemetry_enabled


def test_queries_of_the_warehouse_change_nothing(shredded: DagsterShop) -> None:
    shredded.add(0)
    shredded.materialize(["warehouse"], 0)
    warehouse = WarehouseResource(config_file=str(shredded.shop.config_file))
    assert warehouse.query("SELECT count(*) FROM shop.events") == [(20,)]
    with pytest.raises(WarehouseError, match=r"not one query \(DELETE\)"):
        warehouse.query("DELETE FROM shop.events")
    assert warehouse.query("SELECT count(*) FROM shop.events") == [(20,)]
