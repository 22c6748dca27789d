"""The properties files against the Spark that they are for: a Spark Connect server and a standalone cluster, both real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.s3 import S3Server
from manifest_platform_tests.servers.spark import CONF, s3a_jars, spark_connect, spark_standalone

pytestmark = pytest.mark.long


def _told(script: str, *arguments: str | Path, aws: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Runs a script in a process of its own, because a process has one Spark session. Returns its last output line, as JSON."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_"))}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **(aws or {})}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


IN_S3 = """
import json, sys
from manifest_platform.spark import session
spark = session(sys.argv[1])
spark.range(7).write.parquet(sys.argv[2])
print(json.dumps({"rows": spark.read.parquet(sys.argv[2]).count()}))
"""


@pytest.mark.timeout(240)
def test_a_local_spark_reads_and_writes_an_s3_server_by_the_line_of_make_jars(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    conf = tmp_path / "local.conf"
    conf.write_text(re.sub(r"# (spark\.jars +)\S+", rf"\1{s3a_jars()}/*.jar", (CONF / "local.conf").read_text()))
    assert _told(IN_S3, conf, f"{s3_bucket}/seven", aws=s3_server.environment) == {"rows": 7}


CLUSTER = """
import json, sys
from manifest_platform.shred.batch import works
from manifest_platform.spark import session
little = {"spark.executor.memory": "512m", "spark.executor.cores": 1, "spark.cores.max": 1, "spark.driver.host": "127.0.0.1"}
spark = session(sys.argv[1], {"spark.master": sys.argv[2], "spark.ui.enabled": False, **little})
jars = spark.sparkContext._jsc.sc().listJars()

def key(batches):
    import os
    import pyarrow
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"key": [os.environ.get("AWS_ACCESS_KEY_ID", "")]})

[row] = spark.range(0, 1, 1, 1).mapInArrow(key, "key string").collect()
print(json.dumps({"works": works(spark), "jars": [jars.apply(each) for each in range(jars.size())], "key": row.key}))
"""


@pytest.mark.timeout(240)
def test_a_standalone_cluster_is_given_the_jars_of_a_folder_and_the_variables_of_executors(tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("one.jar", "two.jar"):
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    conf = tmp_path / "standalone.conf"
    text = (CONF / "standalone.conf").read_text().replace("/opt/manifest-platform/s3a", str(folder))
    conf.write_text(f"{text}\nspark.executorEnv.AWS_ACCESS_KEY_ID of-executors\n")
    with spark_standalone(tmp_path) as master:
        told = _told(CLUSTER, conf, master)
    assert told["works"]
    assert told["key"] == "of-executors"
    assert sorted(jar.rpartition("/")[2] for jar in told["jars"]) == ["one.jar", "two.jar"]


ALONE = """
import json, sys
from manifest_platform.spark import SparkUnavailable, session
try:
    session(sys.argv[1], {"spark.master": sys.argv[2], "spark.driver.host": "127.0.0.1", "spark.executor.memory": "64g"}, 3)
except SparkUnavailable as error:
    print(json.dumps({"told": str(error)}))
"""


@pytest.mark.timeout(240)
def test_a_cluster_whose_workers_are_too_small_is_told_of_in_time(tmp_path: Path) -> None:
    with spark_standalone(tmp_path) as master:
        told = _told(ALONE, CONF / "local.conf", master)["told"]
    assert told.startswith("no worker has run a task within 3 s")
    assert f"with spark.master {master}, spark.executor.memory 64g: start workers" in told


CONNECTED = """
import json, sys
from pathlib import Path
import dagster as dg
from manifest_platform.cli import main
from manifest_platform.orchestration.resources import SparkResource
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, key
from manifest_platform_tests.orchestration.test_io_manager import PARTITIONS, page_views, paths
from manifest_platform_tests.pipeline.shop import Shop, run_name
kinds = set()

@dg.asset(key=key("own"), partitions_def=PARTITIONS, io_manager_key="manifest_io_manager")
def own(manifest_spark: SparkResource):
    kinds.add(type(manifest_spark.spark_session).__module__)
    return manifest_spark.spark_session.range(7)

shop = Shop(Path(sys.argv[1]), spark={"conf": sys.argv[2]}, merge={})
with dg.DagsterInstance.ephemeral() as instance:
    location = DagsterShop(shop, instance, [page_views, paths, own])
    with shop.open() as pipeline:
        shop.land(pipeline, 0)
    location.add(0)
    result = location.materialize(["shredded", "warehouse", "page_views", "reports/paths", "own"], 0)
    own_assets = ("page_views", "reports/paths", "own")
    rows = {asset: location.metadata(asset, 0)["dagster/partition_row_count"] for asset in own_assets}
shop.write(1)
at = ["--config", str(shop.config_file)]
codes = [main([*at, *command.split()]) for command in ("discover", "drain", "merge run --table events", "merge status")]
print(json.dumps({"kinds": sorted(kinds), "success": result.success, "rows": rows, "codes": codes, "runs": shop.seen.runs}))
"""


@pytest.mark.timeout(240)
def test_the_platform_and_an_asset_of_ones_own_work_by_spark_connect(tmp_path: Path) -> None:
    conf = tmp_path / "connect.conf"
    with spark_connect(tmp_path) as remote:
        conf.write_text((CONF / "connect.conf").read_text().replace("sc://spark-connect:15002", remote))
        told = _told(CONNECTED, tmp_path / "shop", conf)
    assert told["kinds"] == ["pyspark.sql.connect.session"]
    assert told["success"]
    assert 0 < told["rows"]["page_views"] >= told["rows"]["reports/paths"] > 0
    assert told["rows"]["own"] == 7
    assert told["codes"] == [0] * 4, "the command line opens the same session, to shred and to merge"
    assert len(told["runs"]) == 2
