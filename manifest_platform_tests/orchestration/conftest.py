"""Fixtures: a fresh shop, and a shop whose runs are shredded. The latter is made once and its manifest is copied."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from manifest_platform.config import load
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop
from manifest_platform_tests.pipeline.shop import NAME, Shop
from manifest_platform_tests.servers.stores import copied

STRICT = {"bad_rows": {"max_count": 0, "max_share": 0.5}}


@pytest.fixture(scope="session")
def prepared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Five runs, landed and shredded. Read-only: tests copy its manifest."""
    shop = Shop(tmp_path_factory.mktemp("prepared"), shred=STRICT)
    shop.shredded(spark, 5)
    return shop


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def fresh(spark: Any, tmp_path: Path, instance: dg.DagsterInstance, store_url: str) -> DagsterShop:
    """A shop without landed runs."""
    return DagsterShop(Shop(tmp_path, manifest={"store": store_url}, shred=STRICT), instance)


@pytest.fixture
def shredded(prepared: Shop, tmp_path: Path, instance: dg.DagsterInstance, store_url: str) -> DagsterShop:
    """A shop with five shredded runs, 0 to 4, none of them loaded. Its files are shared and must not be changed."""
    shred = {"output": str(prepared.home / "shredded"), **STRICT}
    landing = {"root": str(prepared.home / "landing")}
    shop = Shop(tmp_path, manifest={"store": store_url}, landing=landing, shred=shred)
    if store_url.startswith("sqlite"):
        shutil.copy(prepared.home / "manifest.db", tmp_path)
    else:
        copied(load(prepared.config_file).manifest.store, store_url, NAME)
    return DagsterShop(shop, instance)
