"""The archive for workers: what it holds, and a cluster whose workers have a bare Python and nothing of ours."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifest_platform import __version__
from manifest_platform.cli import main
from manifest_platform.spark import package
from manifest_platform_tests.servers.emr_sessions import APPLICATION, ROLE, emr_sessions
from manifest_platform_tests.servers.spark import LITTLE, Cluster, spark_cluster, spark_connect
from manifest_platform_tests.spark.test_emr_sessions import ACCESS

pytestmark = pytest.mark.long

SHREDS_AND_MERGES = (
    "manifest_platform.shred.batch",
    "manifest_platform.merging.kernel",
    "manifest_platform.merging.spark_job",
    "manifest_platform.sources.snowplow.events.shredder",
    "manifest_platform.sources.snowplow.transformed.shredder",
    "manifest_platform.sources.veeva.shredder",
    "manifest_platform.spark.workers",
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("package") / "workers.tar.gz"
    assert main(["spark", "package", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment without any package."""
    folder = tmp_path_factory.mktemp("bare") / "python"
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def test_a_bare_python_imports_all_that_workers_run_and_neither_pyspark_nor_dagster(unpacked: Path, bare: Path) -> None:
    script = f"""
import importlib, sys
for name in {SHREDS_AND_MERGES!r}:
    importlib.import_module(name)
import jsonschema_rs, manifest_platform
print(manifest_platform.__version__, *sorted({{"pyspark", "dagster", "pandas", "boto3"}} & set(sys.modules)))
"""
    environment = {"MANIFEST_PLATFORM_PYTHON": str(bare), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([unpacked / "bin" / "python", "-P", "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == [__version__], done.stderr


def test_a_bare_python_writes_with_a_key_and_as_a_role(unpacked: Path, bare: Path) -> None:
    """All that s3_files does for a KMS key, and aws for a role, up to the request."""
    script = """
from manifest_platform import aws, storage
role = aws.Location(kms_key="alias/lake", role="arn:aws:iam::210987654321:role/writer")
aws.use(aws.Choices(locations={"s3://acme-lake": role}))
system, path = storage.filesystem("s3://acme-lake/a/b")
clients = [aws.s3("s3://acme-lake/a/b"), aws.client("sts", region="eu-west-1")]
put = clients[0].meta.service_model.operation_model("PutObject")
print(system.type_name.removeprefix("py::"), aws._add_headers({"Bucket": "acme-lake", "Key": "a/b"}, put)["SSEKMSKeyId"])
"""
    environment = {"MANIFEST_PLATFORM_PYTHON": str(bare), "PATH": "/usr/bin:/bin", "AWS_DEFAULT_REGION": "eu-west-1"}
    environment |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "not-so-secret"}
    done = subprocess.run([unpacked / "bin" / "python", "-P", "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "s3 through boto3 alias/lake", done.stderr
    assert {one.name for one in (unpacked / "site" / "botocore" / "data").iterdir() if one.is_dir()} == {"s3", "sts"}


def test_a_worker_with_another_python_says_which_it_has_and_what_to_do(unpacked: Path, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MANIFEST_PLATFORM_PYTHON": str(other)}
    starter = tmp_path / "site" / "bin" / "python"
    starter.parent.mkdir(parents=True)
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    starter.write_text((unpacked / "bin" / "python").read_text().replace(f"wanted={wanted}", "wanted=3.99"))
    starter.chmod(0o755)
    done = subprocess.run([starter, "-c", "1"], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "this worker has no Python 3.99, which the archive of spark.package was built for; it has: 3.9" in done.stderr


def test_the_same_environment_gives_the_same_archive(archive: Path, tmp_path: Path) -> None:
    again = package.build(tmp_path / "again.tar.gz")
    assert again.path.read_bytes() == archive.read_bytes()
    assert {"manifest-platform", "boto3", "numpy", "orjson", "pyarrow"} <= set(again.packages)
    assert not {"pyspark", "dagster", "pandas", "sqlalchemy"} & {name.lower() for name in again.packages}


DRAINED = """
import json, sys
from collections.abc import Iterator
from pathlib import Path
from manifest_platform.cli import main
from manifest_platform_tests.pipeline.shop import Shop
shop = Shop(Path(sys.argv[1]), spark=json.loads(sys.argv[2]), merge={})
shop.write(0, 1)
codes = [main(["--config", str(shop.config_file), *command.split()]) for command in ("drain", "merge run --table events")]
print(json.dumps({"codes": codes, "loaded": len(shop.seen.runs) if codes == [0, 0] else 0}))
"""


def drained(
    folder: Path, spark: dict[str, object], python: Path, more: dict[str, str] | None = None
) -> tuple[dict[str, object], str]:
    """Drains a shop of two runs and merges, in a process of its own. Returns what it told, and its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_", "PYSPARK_"))}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python), **(more or {})}
    command = [sys.executable, "-c", DRAINED, str(folder), json.dumps(spark)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(io.StringIO(done.stdout).readlines()[-1]), " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bare: Path) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), python=bare) as cluster:
        yield cluster


@pytest.mark.timeout(1200)
class TestBareWorkers:
    """A cluster whose workers have Python, and no package of ours or of anybody."""

    def conf(self, folder: Path, *lines: str) -> str:
        (folder / "own.conf").write_text("\n".join(lines))
        return str(folder / "own.conf")

    def test_a_classic_driver_sends_them_the_archive(self, cluster: Cluster, tmp_path: Path, archive: Path, bare: Path) -> None:
        little = [f"{name} {value}" for name, value in LITTLE.items()]
        conf = self.conf(tmp_path, "spark.driver.host 127.0.0.1", "spark.ui.enabled false", *little)
        spark: dict[str, object] = {"where": "master", "master": cluster.master, "conf": conf}
        told, said = drained(tmp_path / "without", spark, bare)
        assert told["loaded"] == 0
        assert "have no manifest_platform: write the archive with `spark package`" in said
        assert drained(tmp_path / "with", {**spark, "package": str(archive)}, bare)[0] == {"codes": [0, 0], "loaded": 2}

    def test_a_client_of_connect_sends_them_the_archive(
        self, cluster: Cluster, tmp_path: Path, archive: Path, bare: Path
    ) -> None:
        with spark_connect(tmp_path, cluster.master, LITTLE, python=bare) as remote:
            conf = self.conf(tmp_path, "spark.sql.session.timeZone UTC")
            spark: dict[str, object] = {"where": "connect", "remote": remote, "conf": conf}
            told, said = drained(tmp_path / "without", spark, bare)
            assert told["loaded"] == 0
            assert "have no manifest_platform: write the archive with `spark package`" in said
            assert drained(tmp_path / "with", {**spark, "package": str(archive)}, bare)[0] == {"codes": [0, 0], "loaded": 2}

    def test_a_session_of_emr_serverless_sends_them_the_archive(
        self, cluster: Cluster, tmp_path: Path, archive: Path, bare: Path
    ) -> None:
        with spark_connect(tmp_path, cluster.master, LITTLE, python=bare) as remote, emr_sessions(remote) as service:
            conf = self.conf(tmp_path, "spark.sql.session.timeZone UTC")
            place = {"where": "emr_serverless", "application": APPLICATION, "role": ROLE}
            spark: dict[str, object] = {**place, "conf": conf, "package": str(archive)}
            access = {**ACCESS, "AWS_ENDPOINT_URL_EMR_SERVERLESS": service.url}
            assert drained(tmp_path / "shop", spark, bare, access)[0] == {"codes": [0, 0], "loaded": 2}
