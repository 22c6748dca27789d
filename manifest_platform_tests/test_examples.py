"""The examples of `examples/`, run as a user would: what they need is installed beside what the platform has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.config import VARIABLE
from manifest_platform_tests.pipeline.shop import REPOSITORY, Shop, drained

DOWNSTREAM = REPOSITORY / "examples" / "downstream"
FOLLOWED = """
import json, sys
import dagster as dg
import duckdb
import os
sys.path.insert(0, sys.argv[1])
from definitions import defs
LOADED, MODEL = dg.AssetKey(["shop", "warehouse"]), dg.AssetKey("page_views")
events = dg.AssetKey(["shop", "warehouse", "events"])
graph = defs.resolve_asset_graph()
with dg.DagsterInstance.ephemeral() as instance:
    names = json.loads(sys.argv[2])
    instance.add_dynamic_partitions("shop_enriched", names)
    first = dg.evaluate_automation_conditions(defs=defs, instance=instance)
    for name in names:
        instance.report_runless_asset_event(dg.AssetMaterialization(LOADED, partition=name))
    instance.report_runless_asset_event(dg.AssetMaterialization(events))
    asked = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=first.cursor)
    made = {}
    for key in (MODEL, dg.AssetKey(["shop", "events_a_day"])):
        days = sorted(asked.get_requested_partitions(key))
        job = defs.resolve_implicit_global_asset_job_def()
        runs = [job.execute_in_process(instance=instance, asset_selection=[key], partition_key=day) for day in days]
        made["/".join(key.path)] = [days, [run.success for run in runs]]
    counted = instance.get_latest_materialization_event(dg.AssetKey(["shop", "events_a_day"])).asset_materialization.metadata
    marts = duckdb.connect(os.environ["SHOP_MARTS"], read_only=True)
    print(json.dumps({
        "parents": sorted("/".join(key.path) for key in graph.get(MODEL).parent_keys),
        "made": made,
        "counted": counted["dagster/partition_row_count"].value,
        "views": marts.execute("SELECT day::VARCHAR, sum(views)::INT FROM page_views GROUP BY day").fetchall(),
    }))
"""


def test_the_page_shows_what_the_example_has() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "downstream.md").read_text()
    blocks = re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)
    example = [(DOWNSTREAM / name).read_text() for name in ("definitions.py", "models/sources.yml")]
    assert [block in text for block, text in zip(blocks, example, strict=True)] == [True, True]


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_daily_asset_and_a_dbt_model_follow_what_is_loaded(tmp_path: Path, spark: Any) -> None:
    site = tmp_path / "site"
    uv = Path(sys.executable).parent / "uv"
    wanted = ["--target", str(site), "-r", str(DOWNSTREAM / "requirements.txt")]
    subprocess.run([uv, "pip", "install", "-q", "--python", sys.executable, *wanted], check=True)
    shop = Shop(tmp_path / "shop")
    with shop.open() as pipeline:
        keys = shop.land(pipeline, 0, 1)
        drained(pipeline, spark)
    environment = {
        **os.environ,
        VARIABLE: str(shop.config_file),
        "PYTHONPATH": os.pathsep.join([str(site), str(REPOSITORY)]),
        "PATH": os.pathsep.join([str(site / "bin"), os.environ["PATH"]]),
        "SHOP_MARTS": str(tmp_path / "marts.duckdb"),
        "DBT_TARGET_PATH": str(tmp_path / "target"),
        "DAGSTER_IS_DEV_CLI": "1",  # as `dagster dev` does: dbt's manifest is made
    }
    names = json.dumps([key.name for key in keys])
    program = [sys.executable, "-c", FOLLOWED, str(DOWNSTREAM), names]
    done = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["parents"] == ["shop/warehouse", "shop/warehouse/events"]
    assert found["made"] == {"page_views": [["2024-05-14"], [True]], "shop/events_a_day": [["2024-05-14"], [True]]}
    events = shop.seen.rows["events"]
    assert (found["counted"], found["views"]) == (events, [["2024-05-14", events]])
