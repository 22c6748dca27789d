import subprocess
import sys
from pathlib import Path

import pytest

from manifest_platform.spark import SparkUnavailable, properties, session

PLACES = Path(__file__).parents[2] / "spark_conf"


def test_properties_are_names_and_values(tmp_path):
    file = tmp_path / "some.conf"
    file.write_text("# comment\n\nspark.master   local[2]\nspark.a=b\n  spark.c : d e=f  \n")
    assert properties(file) == {"spark.master": "local[2]", "spark.a": "b", "spark.c": "d e=f"}


def test_a_line_without_a_value_is_named(tmp_path):
    file = tmp_path / "some.conf"
    file.write_text("spark.a b\nspark.master\n")
    with pytest.raises(SparkUnavailable, match=r"some\.conf, line 2: 'spark\.master' is no property"):
        properties(file)


def test_a_missing_file_says_what_to_set(tmp_path):
    with pytest.raises(SparkUnavailable, match=r"nowhere\.conf: No such file .*; set spark\.conf"):
        session(tmp_path / "nowhere.conf")


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
def test_every_place_keeps_time_in_utc_and_leaves_the_large_aws_bundle_out(file):
    found = properties(file)
    assert found["spark.sql.session.timeZone"] == "UTC"
    if "spark.jars.packages" in found:
        assert "software.amazon.awssdk:bundle" in found["spark.jars.excludes"]
        assert ":bundle:" not in found["spark.jars.packages"]


@pytest.mark.parametrize("place", ["local", "standalone"])
def test_a_spark_of_ones_own_knows_the_scheme_of_the_manifests_paths(place):
    assert properties(PLACES / f"{place}.conf")["spark.hadoop.fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"


def test_only_the_places_that_bring_their_own_spark_have_no_master():
    masters = {file.stem: properties(file).get("spark.master") for file in PLACES.glob("*.conf")}
    assert {name for name, master in masters.items() if master is None} == {"emr_serverless", "glue"}
