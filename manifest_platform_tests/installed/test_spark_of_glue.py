"""The Spark that Glue 5.1 brings, 3.5.6: shredding and merging with the wheel, in an environment of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manifest_platform_tests.installed.environments import Environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

SPARK = "3.5.6"
CONFIG = """
datasets:
  shop:
    landing: {root: landing}
    shred: {output: shredded, schemas: [%s]}
    merge: {output: merged}
"""
WORK = """
import json
from datetime import UTC, datetime, timedelta
import pyspark
from manifest_platform.cli import main
from manifest_platform.demo.events import SCHEMAS, write_run
from pathlib import Path

Path("manifest_platform.yaml").write_text(%r %% SCHEMAS)
for number in range(2):
    write_run("landing", datetime(2024, 5, 14, 12, 10 * number, tzinfo=UTC), 20, seed=1, bad_lines=number)
codes = [main(command.split()) for command in ("discover", "drain", "merge run", "tables")]
print(json.dumps({"spark": pyspark.__version__, "codes": codes}))
"""


def test_spark_of_glue_shreds_and_merges(wheel: Path, tmp_path: Path) -> None:
    environment = Environment.made(tmp_path / "venv")
    environment.install(f"manifest-platform[duckdb,spark] @ {wheel.as_uri()}", constraints=[f"pyspark=={SPARK}"])
    folder = tmp_path / "shop"
    (folder / "landing").mkdir(parents=True)
    done = environment.run("python", "-c", WORK % CONFIG, folder=folder, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"spark": SPARK, "codes": [0, 0, 0, 0]}, done.stdout + done.stderr
    assert list((folder / "merged").rglob("*.parquet"))
