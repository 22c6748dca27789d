"""A translator changes the specs of assets. Its keys apply wherever Dagster sees an asset."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from manifest_platform.config import ConfigError
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.keys import FeedAsset
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.orchestration.translator import AssetKind, DatasetProps, DatasetTranslator
from manifest_platform.orchestration.wiring import wirings_of
from manifest_platform_tests.pipeline.shop import NAME, Shop
from manifest_platform_tests.sources.veeva.ward.ward import Ward


class Prefixed(DatasetTranslator):
    """Puts all keys below `lake` and changes some other attributes."""

    def get_asset_spec(self, props: DatasetProps) -> dg.AssetSpec:
        spec = super().get_asset_spec(props)
        spec = spec.merge_attributes(tags={"stage": str(props.kind)}, owners=["team:lake"])
        if props.kind is AssetKind.LOADED:
            spec = spec.replace_attributes(group_name="loaded", automation_condition=dg.AutomationCondition.eager())
        return spec.replace_attributes(key=spec.key.with_prefix("lake"))


class Renamed(DatasetTranslator):
    """Gives every asset a key without the parts of the default keys."""

    def get_asset_spec(self, props: DatasetProps) -> dg.AssetSpec:
        name = "_".join(filter(None, ("x", props.kind, props.feed, props.table)))
        return super().get_asset_spec(props).replace_attributes(key=dg.AssetKey(name))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, merge={})


def _keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def test_a_key_prefix_applies_to_assets_dependencies_and_checks(shop: Shop) -> None:
    plain, defs = build_defs(shop.config_file), build_defs(shop.config_file, translator=Prefixed())
    assert _keys(defs) == {f"lake/{key}" for key in _keys(plain)}
    graph, before = defs.resolve_asset_graph(), plain.resolve_asset_graph()
    assert {key.asset_key for key in graph.asset_check_keys} == {
        key.asset_key.with_prefix("lake") for key in before.asset_check_keys
    }
    for node in before.asset_nodes:
        parents = graph.get(node.key.with_prefix("lake")).parent_keys
        assert parents == {key.with_prefix("lake") for key in node.parent_keys}


def test_the_translators_attributes_are_shown(shop: Shop) -> None:
    specs = {spec.key.path[-1]: spec for spec in build_defs(shop.config_file, translator=Prefixed()).resolve_all_asset_specs()}
    warehouse, merged = specs["warehouse"], specs["events_merged"]
    assert (warehouse.group_name, warehouse.tags["stage"]) == ("loaded", "loaded")
    assert warehouse.kinds == {"duckdb", "table"}, "what it does not change stays"
    assert warehouse.automation_condition == dg.AutomationCondition.eager()
    assert merged.owners == ["team:data", "team:lake"] and merged.tags["stage"] == "merged"


def test_default_specs_have_uris_and_freshness_policies(tmp_path: Path) -> None:
    shop = Shop(tmp_path, landing={"expected_every_seconds": {"enriched": 7200}}, merge={})
    specs = {spec.key.path[-1]: spec for spec in build_defs(shop.config_file).resolve_all_asset_specs()}
    places = {"enriched_runs": "landing", "shredded": "shredded", "events_merged": "merged"}
    assert {name: specs[name].metadata["dagster/uri"] for name in places} == {
        name: (tmp_path / folder).as_uri() for name, folder in places.items()
    }
    assert specs["warehouse"].freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=2))
    assert specs["shredded"].freshness_policy is None


@pytest.mark.parametrize("translator", [None, Prefixed(), Renamed()])
def test_keys_are_read_back(tmp_path: Path, translator: DatasetTranslator | None) -> None:
    """The IO manager does this: a key gives the stage of a feed, or a merged table."""
    for config in (Shop(tmp_path / "shop", merge={}).config_file, Ward(tmp_path / "ward").config_file):
        for wiring in wirings_of(ManifestResource(config_file=str(config)), translator).values():
            names = wiring.names
            for feed in names.feeds:
                assert names.place(names.shredded(feed)) == FeedAsset(wiring.dataset, feed, "shredded")
                assert names.place(names.warehouse(feed)) == FeedAsset(wiring.dataset, feed, "warehouse")
                assert names.place(names.own(feed, "report")) == FeedAsset(wiring.dataset, feed, "report")
                assert names.place(dg.AssetKey(["elsewhere", feed])) is None
                assert names.merged_table(names.warehouse(feed)) is None
            assert names.merged_table(names.merged("events")) == "events"


def test_an_own_asset_may_omit_the_datasets_prefix(shop: Shop) -> None:
    names = wirings_of(ManifestResource(config_file=str(shop.config_file)), Prefixed())[NAME].names
    assert names.own("enriched", "report") == dg.AssetKey(["lake", NAME, "report"])
    assert names.place(dg.AssetKey([NAME, "report"])) == names.place(names.own("enriched", "report"))


def test_a_tick_reports_assets_by_the_translators_keys(shop: Shop) -> None:
    with shop.open() as pipeline:
        shop.land(pipeline, 0)
    sensor = build_defs(shop.config_file, translator=Prefixed()).resolve_sensor_def(f"{NAME}_listing_sensor")
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance=instance) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    told = {event.asset_key.to_user_string() for event in result.asset_events}
    assert {key.partition("/")[0] for key in told} == {"lake"}
    assert told >= {f"lake/{NAME}/enriched_runs", f"lake/{NAME}/warehouse"}, "what landed, and a check"


class Partitioned(DatasetTranslator):
    def get_asset_spec(self, props: DatasetProps) -> dg.AssetSpec:
        return super().get_asset_spec(props).replace_attributes(partitions_def=dg.StaticPartitionsDefinition(["a"]))


def test_a_translator_that_sets_partitions_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match=r"shop/enriched_runs: a translator sets partitions_def.*allowed: key, key_prefix"):
        build_defs(shop.config_file, translator=Partitioned())


# The user's own definitions


class Own(dg.ConfigurableResource):
    pass


def test_a_projects_own_resources_are_independent(shop: Shop) -> None:
    """This includes an executor, if `build_defs` leaves it to the user."""
    mine: dict[str, object] = {name: Own() for name in ("manifest", "spark", "warehouse")}
    own = dg.Definitions(resources={"io_manager": dg.mem_io_manager, **mine}, executor=dg.multiprocess_executor)
    defs = dg.Definitions.merge(build_defs(shop.config_file, executor=None), own)
    dg.Definitions.validate_loadable(defs)


def _numbers() -> Iterator[dg.AssetsDefinition]:
    @dg.asset
    def numbers() -> int:
        return 7

    @dg.asset
    def doubled(numbers: int) -> int:
        return 2 * numbers

    return iter((numbers, doubled))


def test_a_projects_own_assets_keep_their_own_io_manager(shop: Shop) -> None:
    own = dg.Definitions(assets=list(_numbers()), resources={"io_manager": dg.mem_io_manager})
    defs = dg.Definitions.merge(build_defs(shop.config_file), own)
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("numbers"), dg.AssetKey("doubled")])
    assert result.output_for_node("doubled") == 14


def test_an_own_asset_without_an_io_manager_is_refused_with_its_name(shop: Shop) -> None:
    @dg.asset(key=[NAME, "report"], partitions_def=dg.DynamicPartitionsDefinition(name=f"{NAME}_enriched"))
    def report() -> int:
        return 1

    with pytest.raises(ConfigError, match=r'shop/report names no IO manager.*io_manager_key="manifest_io_manager"'):
        build_defs(shop.config_file, assets=[report])
