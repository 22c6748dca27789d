"""Deployments: a setting gives a deployment beside production its own places for all that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.config import ConfigError, load
from manifest_platform.deployments import PATTERN, file_beside, folder_beside, identifier
from manifest_platform.sources.source import open_source
from manifest_platform_tests.pipeline.shop import Shop

NAMES = st.from_regex(PATTERN, fullmatch=True)
SHOP: dict[str, Any] = {
    "landing": {"root": "landing"},
    "shred": {"output": "s3://lake/shredded", "schemas": ["https://schemas.example/"]},
    "merge": {"output": "s3://lake/merged/", "first_day": "2024-05-01", "catalog": {"kind": "glue", "prefix": "lake_"}},
}
VAULT: dict[str, Any] = {
    "source": "veeva",
    "landing": {"root": "windows"},
    "shred": {"output": "out"},
    "vault": {"id": "1", "url": "https://vault.example", "login": {"kind": "session", "session_variable": "VAULT_SESSION"}},
}


def configured(tmp_path: Path, deployment: str | None, **changes: Any) -> Any:
    file = tmp_path / "manifest_platform.yaml"
    whole: dict[str, Any] = {
        "datasets": {"shop": SHOP},
        "manifest": {"store": "sqlite:///manifest.db", "overflow": "overflow", "archive": "s3://lake/archive"},
        "warehouse": {"path": "warehouse.duckdb"},
        **changes,
    }
    if deployment is not None:
        whole["deployment"] = deployment
    file.write_text(yaml.safe_dump(whole))
    return load(file)


@pytest.mark.parametrize("deployment", [None, "", "prod"])
def test_production_keeps_all_names(tmp_path: Path, deployment: str | None) -> None:
    config = configured(tmp_path, deployment)
    assert config.manifest.store == f"sqlite:///{tmp_path}/manifest.db"
    assert config.warehouse.path == f"{tmp_path}/warehouse.duckdb"
    assert config.datasets["shop"].shred.output == "s3://lake/shredded"


def test_another_deployment_has_all_that_it_writes_beside_production(tmp_path: Path) -> None:
    config = configured(tmp_path, "pr-7")
    shop = config.datasets["shop"]
    assert config.manifest.store == f"sqlite:///{tmp_path}/manifest-pr-7.db"
    assert config.manifest.overflow == f"{tmp_path}/overflow-pr-7"
    assert config.manifest.archive == "s3://lake/archive-pr-7"
    assert config.warehouse.path == f"{tmp_path}/warehouse-pr-7.duckdb"
    assert shop.shred.output == "s3://lake/shredded-pr-7"
    assert shop.merge.output == "s3://lake/merged-pr-7"
    assert shop.merge.catalog.database("shop") == "lake_shop_pr_7"
    assert shop.landing.root == f"{tmp_path}/landing", "what lands is production's, and is read alone"


@pytest.mark.parametrize(
    ("store", "beside"),
    [
        ("dynamodb://manifest?region=eu-west-1", "dynamodb://manifest-pr-7?region=eu-west-1"),
        ("postgresql://loader@host:5432/manifest", "postgresql://loader@host:5432/manifest_pr_7"),
        ("postgresql://loader@host/manifest?owner=data", "postgresql://loader@host/manifest_pr_7?owner=data"),
    ],
)
def test_a_table_or_a_database_of_its_own(tmp_path: Path, store: str, beside: str) -> None:
    assert configured(tmp_path, "pr-7", manifest={"store": store}).manifest.store == beside


def test_another_deployment_has_each_target_beside_productions(tmp_path: Path) -> None:
    file = Shop(tmp_path, deployment="pr-7", targets={"lab": {"kind": "duckdb", "path": "lab.duckdb"}}).config_file
    places = {name: Path(engine.place).name for name, engine in load(file).engines.items()}
    assert places == {"warehouse": "warehouse-pr-7.duckdb", "lab": "lab-pr-7.duckdb"}


def test_a_vault_is_captured_by_production_alone(tmp_path: Path) -> None:
    sources = [
        open_source("vault", configured(tmp_path, name, datasets={"vault": VAULT}).datasets["vault"]) for name in (None, "pr-7")
    ]
    assert [source.captures is not None for source in sources] == [True, False]
    assert not sources[1].attempts("incr").by_item, "what captures left is production's to remove"


@pytest.mark.parametrize("wrong", ["Feature/1", "a--b", "-a", "a-", "a_b", "x" * 41, "prod "])
def test_a_name_that_two_deployments_could_share_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match="deployment: "):
        configured(tmp_path, wrong)


def test_what_has_no_place_beside_it_is_told_with_its_key(tmp_path: Path) -> None:
    shop = SHOP | {"shred": SHOP["shred"] | {"output": "s3://lake"}}
    with pytest.raises(ConfigError, match=r"datasets\.shop: 's3://lake' is a whole bucket or disk; allowed .*: a folder"):
        configured(tmp_path, "pr-7", datasets={"shop": shop})


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(one=NAMES, other=NAMES)
def test_no_two_deployments_share_a_place_nor_lies_one_in_another(one: str, other: str) -> None:
    if one != other:
        assert identifier(one) != identifier(other)
        assert file_beside("/data/manifest.db", one) != file_beside("/data/manifest.db", other)
        for location in ("/data/out", "s3://lake/out/", "file:///data/out"):
            mine, other_one = folder_beside(location, one), folder_beside(location, other)
            assert mine != other_one
            assert not f"{mine}/".startswith(f"{other_one}/")
            assert not f"{mine}/".startswith(f"{location.rstrip('/')}/")
