import json
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import boto3
import pytest

from manifest_platform.config import Config
from manifest_platform.orchestration.resources import SparkResource
from manifest_platform.spark import SparkUnavailable, classic, client, gateway, properties, s3_endpoint, session
from manifest_platform.spark.gateway import pass_on
from manifest_platform.spark.places import master

PLACES = Path(__file__).parents[2] / "spark_conf"


def test_properties_are_names_and_values(tmp_path):
    file = tmp_path / "some.conf"
    file.write_text("# comment\n\nspark.master   local[2]\nspark.a=b\n  spark.c : d e=f  \n")
    assert properties(file) == {"spark.master": "local[2]", "spark.a": "b", "spark.c": "d e=f"}


def test_a_line_without_a_value_is_named(tmp_path):
    file = tmp_path / "some.conf"
    file.write_text("spark.a b\nspark.master\n")
    with pytest.raises(SparkUnavailable, match=r"some\.conf, line 2: 'spark\.master' is not a property"):
        properties(file)


def test_a_missing_file_says_what_to_set(tmp_path):
    with pytest.raises(SparkUnavailable, match=r"nowhere\.conf: No such file .*; set spark\.conf"):
        session(tmp_path / "nowhere.conf")


@pytest.mark.parametrize(
    ("settings", "environment", "python"),
    [
        ({"spark.master": "local[*]"}, {}, sys.executable),
        ({"spark.master": "local-cluster[1,1,1024]"}, {"PYSPARK_PYTHON": "/usr/bin/python3"}, sys.executable),
        ({"spark.master": "spark://host:7077"}, {}, sys.executable),
        ({"spark.master": "yarn"}, {"PYSPARK_PYTHON": "/opt/theirs"}, "/opt/theirs"),
        ({"spark.master": "k8s://host", "spark.pyspark.python": "/opt/files"}, {}, "/opt/files"),
        (
            {"spark.master": "k8s://host", "spark.pyspark.python": "/opt/files"},
            {"PYSPARK_PYTHON": "/opt/theirs"},
            "/opt/theirs",
        ),
        ({"spark.app.name": "submitted"}, {}, None),
    ],
)
def test_workers_have_this_interpreter_unless_a_clusters_is_named(settings, environment, python):
    assert classic.workers_python(settings, environment) == python


def test_a_local_spark_without_java_says_so_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkUnavailable, match="Java 17 or newer"):
        session(PLACES / "local.conf")


def test_a_master_that_spark_refuses_is_told_without_a_java_stack_trace(tmp_path):
    conf = tmp_path / "some.conf"
    conf.write_text("spark.master local[x]\nspark.driver.bindAddress 127.0.0.1\n")
    script = f"""
from manifest_platform import spark
try:
    spark.session({str(conf)!r})
except spark.SparkUnavailable as error:
    print(error)
"""  # a process of its own: here, the session that other tests use would be answered
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Spark with {conf} does not start: ")
    assert "Could not parse Master URL: 'local[x]'" in done.stdout
    assert "\tat " not in done.stdout


@pytest.mark.parametrize("file", sorted(PLACES.glob("*.conf")), ids=lambda file: file.name)
def test_every_place_keeps_time_in_utc_and_downloads_nothing_at_run_time(file):
    found = properties(file)
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.execution.arrow.pyspark.enabled"] == "true"
    assert not [name for name in found if name.startswith("spark.jars.")]
    assert all(name.startswith("spark.") for name in found)


@pytest.mark.parametrize("place", ["local", "standalone"])
def test_a_spark_of_ones_own_knows_the_scheme_of_the_manifests_paths(place):
    assert properties(PLACES / f"{place}.conf")["spark.hadoop.fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"


def test_each_place_says_where_spark_is_unless_it_brings_its_own():
    said = {file.stem: properties(file) for file in PLACES.glob("*.conf")}
    assert {name for name, found in said.items() if "spark.master" in found} == {"local", "standalone"}
    assert {name for name, found in said.items() if "spark.remote" in found} == {"connect"}


def test_a_client_of_spark_connect_sets_what_a_session_may_set():
    assert set(properties(PLACES / "connect.conf")) == {"spark.remote"} | {
        name for name in properties(PLACES / "connect.conf") if name.startswith("spark.sql.")
    }


class Made:
    """In place of a session: what it would have been made with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark.sql import SparkSession

        self.settings: dict[str, Any] = {}
        monkeypatch.setattr(SparkSession, "builder", self)

    def appName(self, _name: str) -> "Made":
        return self

    def config(self, name: str, value: Any) -> "Made":
        self.settings[name] = value
        return self

    def getOrCreate(self) -> "Made":
        return self


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(master, "await_workers", lambda *_: None)
    return Made(monkeypatch)


def _conf(tmp_path: Path, *lines: str) -> Path:
    (tmp_path / "some.conf").write_text("\n".join(lines))
    return tmp_path / "some.conf"


def test_a_jvm_that_dies_as_spark_starts_is_no_crash(made, tmp_path, monkeypatch):
    def refused(_):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Made, "getOrCreate", refused)
    with pytest.raises(SparkUnavailable, match=r"does not start: .*Connection refused"):
        session(_conf(tmp_path, "spark.app.name a"))


def test_spark_is_told_of_the_s3_server_of_the_environment(made, tmp_path, monkeypatch):
    conf = _conf(tmp_path, "spark.app.name a")
    assert s3_endpoint() == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:1")
    assert s3_endpoint()["spark.hadoop.fs.s3a.endpoint"] == "http://all:1"
    assert s3_endpoint()["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    session(conf)
    assert made.settings == {
        "spark.app.name": "a",
        "spark.hadoop.fs.s3a.endpoint": "http://s3:2",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    session(_conf(tmp_path, "spark.hadoop.fs.s3a.endpoint http://the.files:3"))
    assert made.settings["spark.hadoop.fs.s3a.endpoint"] == "http://the.files:3"


def test_dagsters_resource_opens_the_same_session_with_what_it_adds(made, tmp_path):
    conf = _conf(tmp_path, "spark.app.name a", "spark.sql.shuffle.partitions 4")
    config = {
        "datasets": {"shop": {"landing": {"root": "in"}, "shred": {"output": "out", "schemas": ["."]}}},
        "spark": {"conf": str(conf)},
    }
    (tmp_path / "platform.yaml").write_text(json.dumps(config))
    resource = SparkResource(
        config_file=str(tmp_path / "platform.yaml"), spark_config={"spark.app.name": "b", "spark": {"ui": {"enabled": False}}}
    )
    assert resource.spark_session is made
    assert made.settings == {"spark.app.name": "b", "spark.sql.shuffle.partitions": "4", "spark.ui.enabled": False}


def test_the_jars_of_a_folder_are_named_one_by_one(made, tmp_path):
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    session(_conf(tmp_path, f"spark.jars {tmp_path}/*.jar, s3://bucket/c.jar"))
    assert made.settings["spark.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar,s3://bucket/c.jar"


def test_a_folder_without_jars_says_how_to_fetch_them(tmp_path):
    with pytest.raises(
        SparkUnavailable, match=r"spark\.jars: .*/nowhere/\*\.jar does not exist; `make jars JARS=FOLDER` fetches"
    ):
        session(_conf(tmp_path, f"spark.jars {tmp_path}/nowhere/*.jar"))


def test_a_connect_server_that_does_not_answer_is_said_in_time(made, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "CONNECT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(SparkUnavailable, match=rf"no Spark Connect server answers at 127\.0\.0\.1:{port} within 0\.2 s"):
            session(_conf(tmp_path, f"spark.remote sc://127.0.0.1:{port}"))
    assert made.settings == {}


@pytest.mark.parametrize(
    ("remote", "told"),
    [
        ("local[2]", "spark.remote is local[2], by the configuration or"),
        ("sc://host:1/path", "spark.remote must be sc://HOST:PORT"),
        ("sc://host:1/;user_id=a;token=abcdefgh", "set SPARK_CONNECT_AUTHENTICATE_TOKEN instead"),
        ("sc://host:1/;TOKEN=abcdefgh", "set SPARK_CONNECT_AUTHENTICATE_TOKEN instead"),
    ],
)
def test_a_wrong_address_of_a_connect_server_is_refused_and_no_token_quoted(made, tmp_path, remote, told):
    with pytest.raises(SparkUnavailable) as refused:
        session(_conf(tmp_path, f"spark.remote {remote}"))
    assert told in str(refused.value)
    assert "abcdefgh" not in str(refused.value)


def test_without_the_client_of_spark_connect_the_extra_is_named(made, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(SparkUnavailable, match=r"pip install 'manifest-platform\[connect\]'"):
        session(_conf(tmp_path, "spark.remote sc://127.0.0.1:1"))


def _commands() -> dict[str, dict[str, Any]]:
    """The commands of AWS that Glue's file tells, by their names: their options as the API names them."""
    told = "\n".join(line.removeprefix("#") for line in (PLACES / "glue.conf").read_text().splitlines() if line.startswith("#"))
    found = {}
    for lines in re.findall(r"^   (aws glue .*(?:\n     .*)*)", told, re.MULTILINE):
        _, _, name, *options = shlex.split(textwrap.dedent(lines).replace("\n", " "))
        found[name] = {
            "".join(part.title() for part in option.removeprefix("--").split("-")): _value(value)
            for option, value in zip(options[::2], options[1::2], strict=True)
        }
    return found


def _value(text: str) -> Any:
    return json.loads(text) if text.isdecimal() or text.startswith("{") else text


@pytest.mark.parametrize("name", ["create-job", "start-job-run"])
def test_glues_commands_are_such_as_the_api_takes(name):
    client = boto3.Session().client("glue", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    operation = client.meta.service_model.operation_model("".join(part.title() for part in name.split("-")))
    command = _commands()[name]
    client._convert_to_request_dict(command, operation, client.meta.endpoint_url)  # raises ParamValidationError


def test_a_glue_job_has_large_workers_and_no_bookmarks_and_is_not_killed_at_work():
    job, full = _commands()["create-job"], _commands()["start-job-run"]
    assert (job["WorkerType"], full["WorkerType"]) == ("G.2X", "G.4X")
    assert full["NumberOfWorkers"] > job["NumberOfWorkers"]
    for arguments in (job["DefaultArguments"], full["Arguments"]):
        assert arguments["--job-bookmark-option"] == "job-bookmark-disable"
    assert job["MaxRetries"] == 0
    limits, budget = Config.model_fields["limits"].default, Config.model_fields["drain"].default
    longest = max(limits.shred_hours, limits.load_hours)
    assert job["Timeout"] * 60 > budget.max_seconds + longest * 3600
    assert full["Timeout"] > limits.full_hours * 60


def test_what_java_says_of_itself_arrives_but_for_the_note_of_its_vector_module():
    lines = b"WARNING: Using incubator modules: jdk.incubator.vector\nWARNING: a real problem\nno end"
    reading, writing = os.pipe()
    os.write(writing, lines)
    os.close(writing)
    told, target = os.pipe()
    pass_on(reading, target)
    os.close(target)
    assert os.read(told, 1000) == b"WARNING: a real problem\nno end"
    os.close(told)


def test_py4j_tells_of_no_interrupt_with_a_traceback(caplog):
    gateway._leave_out_interrupts()
    gateway._leave_out_interrupts()
    assert logging.getLogger().filters.count(gateway._is_no_interrupt) == 1
    logging.getLogger().removeFilter(gateway._is_no_interrupt)


KILLED = """
import sys
from pyspark import SparkContext
from manifest_platform import spark
first = spark.session(sys.argv[1])
java = SparkContext._gateway.proc
java.kill()
java.wait()
second = spark.session(sys.argv[1])
print(second.range(3).count(), first is second)
"""


@pytest.mark.long
def test_a_session_whose_java_has_ended_is_replaced():
    """A process that stays, such as a follower, outlives its Spark."""
    conf = Path(__file__).parents[2] / "spark_conf" / "local.conf"
    told = subprocess.run([sys.executable, "-c", KILLED, str(conf)], capture_output=True, text=True, timeout=240)
    assert told.stdout.split() == ["3", "False"], told.stderr
