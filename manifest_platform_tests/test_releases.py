"""Two releases on one store: the previous release, from the repository's history, and the current release."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.cli.app import main
from manifest_platform.manifest import Failure, FailureKind, Ready
from manifest_platform.manifest.stores import open_store
from manifest_platform.manifest.takeover import identity
from manifest_platform.operations.upgrade import upgrade
from manifest_platform.pipeline import Budget, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.releases import FORM, RELEASE, Form
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, history, run_name, run_names
from manifest_platform_tests.servers.release_before import ReleaseBefore

NEEDS = f"needs manifest-platform {RELEASE} or later"


def rows(url: str) -> list[Any]:
    with closing(open_store(url)) as store:
        return store.query(NAME, "")


@pytest.mark.every_store
def test_the_release_before_writes_nothing_into_a_store_of_this_one(
    tmp_path: Path, store_url: str, release_before: ReleaseBefore
) -> None:
    """The previous release checks no version: it would write a row back without the fields that it does not know."""
    stored = {"store": store_url, "archive": str(tmp_path / "archive")}
    shop = Shop(tmp_path, manifest=stored, merge={})
    shop.write(0, 1, 2)
    with shop.open() as pipeline:
        discover(pipeline)
        of, key = pipeline.manifest, next(pipeline.manifest.items("enriched")).key
        with pipeline.lease(key.feed, "shred") as lease:
            [claim] = of.claim(lease, [of.item(key)])
            of.fail(claim, Failure(FailureKind.PERMANENT, "no such schema"))
        of.skip(list(of.items("enriched"))[1].key, "not wanted")  # counted in STATE, which then has a feed
    shop.write(3)
    before = rows(store_url)
    assert [row.sort for row in before if row.sort.startswith("PENDING")]
    name, config = run_name(0), ["--config", str(shop.config_file)]
    refused = [
        ["drain", *config],
        ["discover", *config],
        ["discover", "--all", *config],
        ["resolve", name, "--reason", "x", *config],
        ["skip", name, "--reason", "x", *config],
        ["unskip", name, "--reason", "x", *config],
        ["doctor", "--repair", "--no-warehouse", *config],
        ["archive", "--older-than", "1d", *config],
        ["merge", "gc", *config],
        ["status", *config],
    ]
    others = [["merge", "run", *config], ["merge", "publish", *config], ["history", name, *config]]
    answers = release_before.run(*refused, *others)
    assert rows(store_url) == before
    said = [answer.err.strip().rpartition("\n")[2] for answer in answers]
    assert [(line[:2], text) for line, text in zip(refused, said, strict=False) if NEEDS not in text] == []
    assert "Failed" in answers[-1].out  # an item's records it reads


@pytest.mark.long
@pytest.mark.stores("sqlite")
def test_a_store_of_the_release_before_is_read_as_it_is_and_taken_over_by_the_first_write(
    tmp_path: Path, release_before: ReleaseBefore, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shop, url = Shop(tmp_path, merge={}), f"sqlite:///{tmp_path}/manifest.db"
    config = ["--config", str(shop.config_file)]
    shop.write(0, 1)
    [_, done] = release_before.run(["discover", *config], ["drain", *config])
    assert "2 loaded" in done.out, done.err
    shop.write(2)
    [found] = release_before.run(["discover", *config])
    assert found.code == 0, found.err
    old = rows(url)

    looks = [
        ["status"],
        ["next"],
        ["explain", run_name(2)],
        ["history", run_name(0)],
        ["doctor"],
        ["store", "upgrade", "--dry-run"],
    ]
    assert [main([*look, *config]) for look in looks] == [0] * len(looks)
    assert "version 1 (release 0.1.0); would be of version 2" in capsys.readouterr().out
    assert rows(url) == old

    with shop.open() as pipeline:
        _, report = drained(pipeline, spark)
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)
        found = identity(pipeline.manifest.store, NAME)
        assert found and found.form == Form(FORM, RELEASE)
        assert upgrade(pipeline) is None
    assert shop.seen.runs == run_names(0, 1, 2)
    assert main(["doctor", *config]) == 0
    warehouse = DuckDB(tmp_path / "warehouse.duckdb")
    control = warehouse.qualified("manifest_platform")
    assert warehouse.execute(f"SELECT version, release FROM {control}.fence") == [(FORM, RELEASE)]
    assert warehouse.execute(f"SELECT version FROM {control}.ledger ORDER BY applied_at") == [(None,), (None,), (FORM,)]
    warehouse.close()

    new = rows(url)
    kept = {row.sort: row for row in new}
    records = [row for row in old if row.sort.startswith(("RECORD", "COMMIT"))]
    assert [kept[row.sort] for row in records] == records
    shop.write(3)
    answers = release_before.run(["drain", *config], ["status", *config], ["merge", "run", *config])
    assert [(answer.code, NEEDS in answer.err) for answer in answers[:2]] == [(-1, True)] * 2, answers
    assert answers[2].code == -1, answers  # it reads a number there, so no name can be told
    assert rows(url) == new


@pytest.mark.stores("sqlite")
def test_a_warehouse_that_a_newer_release_has_begun_is_no_items_fault(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path)
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        drained(pipeline, budget=Budget(items=1))
    warehouse = DuckDB(tmp_path / "warehouse.duckdb")
    fence = warehouse.qualified("manifest_platform", "fence")
    warehouse.execute(f"UPDATE {fence} SET version = {FORM + 1}, release = '0.9.0'")
    warehouse.close()
    with shop.open() as pipeline:
        _, report = drained(pipeline)
        assert report.stop is Stop.UNAVAILABLE
        assert report.reason and "use manifest-platform 0.9.0 or later" in report.reason
        assert history(pipeline, 1)[-2:] == ["load Processing", "load Resolved automatic"]
        assert isinstance(pipeline.manifest.next("enriched", "load"), Ready)
