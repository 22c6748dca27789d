"""The place where Spark computes: found by `spark.where` or by the properties file, and what does not fit it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from manifest_platform import plugins, spark
from manifest_platform.config import Config
from manifest_platform.spark import Place, SparkUnavailable
from manifest_platform_tests.plugins.installed import installed

CONF = Path(__file__).parents[2] / "spark_conf"


def place(folder: Path, **settings: Any) -> Place:
    shop = {"landing": {"root": "in"}, "shred": {"output": "out", "schemas": ["."]}}
    return Config.model_validate({"datasets": {"shop": shop}, "spark": settings}, context={"base": folder}).spark


def file(folder: Path, *lines: str) -> str:
    (folder / "own.conf").write_text("\n".join(lines))
    return "own.conf"


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("spark.master local[2]", "local"),
        ("spark.master spark://host:7077", "master"),
        ("spark.app.name submitted", "master"),
        ("spark.remote sc://host:15002", "connect"),
    ],
)
def test_a_file_alone_says_where_spark_is(tmp_path: Path, line: str, where: str) -> None:
    assert place(tmp_path, conf=file(tmp_path, line)).where == where


@pytest.mark.parametrize(("where", "name"), [("local", "local"), ("master", "standalone"), ("connect", "connect")])
def test_each_place_has_a_file_of_its_own(tmp_path: Path, where: str, name: str) -> None:
    found = place(tmp_path, where=where)
    assert Path(found.conf) == CONF / f"{name}.conf"
    assert found.problem() == ""


def test_an_address_in_the_configuration_comes_before_the_files(tmp_path: Path) -> None:
    assert place(tmp_path, where="connect", remote="sc://own:1").properties()["spark.remote"] == "sc://own:1"
    assert place(tmp_path, where="master", master="yarn").properties()["spark.master"] == "yarn"


@pytest.mark.parametrize(
    ("settings", "line", "told"),
    [
        ({"where": "connect"}, "spark.app.name a", "spark.remote is missing, by the configuration or .*: sc://HOST:PORT"),
        ({"where": "connect", "remote": "spark://h:7077"}, "", "spark.remote is spark://h:7077, .*: sc://HOST:PORT"),
        ({"where": "connect"}, "spark.remote sc://h:1\nspark.master local[2]", r"spark.master is local\[2\], .*beside"),
        ({"where": "local"}, "spark.remote sc://h:1", "spark.remote is sc://h:1, .*: no spark.remote, or spark.where: connect"),
        ({"where": "local"}, "spark.master spark://h:7077", "spark.master is spark://h:7077, .*or spark.where: master"),
        ({"where": "master"}, "spark.master local[2]", r"spark.master is local\[2\], .*spark://HOST:PORT, .*where: local"),
        (
            {"where": "master"},
            "spark.remote sc://h:1",
            "spark.remote is sc://h:1, .*: no spark.remote, or spark.where: connect",
        ),
    ],
)
def test_what_does_not_fit_the_place_is_refused_before_a_session(
    tmp_path: Path, settings: dict[str, str], line: str, told: str
) -> None:
    found = place(tmp_path, **settings, conf=file(tmp_path, line))
    with pytest.raises(SparkUnavailable, match=f"^spark.where: '{settings['where']}': {told}"):
        found.session()
    assert found.problem(), "`config check` reports it, too"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"where": "mesos"}, "allowed: connect, emr_serverless, emr_serverless_job, glue, local, master"),
        ({"where": "master", "master": "sc://h:1"}, r"\^\(spark://"),
        ({"where": "local", "remote": "sc://h:1"}, "remote"),
    ],
)
def test_settings_that_a_place_does_not_have_are_refused(tmp_path: Path, settings: dict[str, str], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        place(tmp_path, **settings)


class Toy(Place):
    """A place of another package."""

    where: Literal["toy"] = "toy"
    ended: list[str] = []

    def wrong(self, settings: Any) -> str:
        return ""

    def open(self, settings: Any) -> Any:
        return dict(settings)

    def end(self) -> None:
        self.ended.append(self.where)


def test_a_place_of_another_package_opens_the_session_and_ends_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(tmp_path / "site", monkeypatch, plugins.PLACES, toy=f"{Toy.__module__}:Toy"):
        found = place(tmp_path, where="toy", conf=file(tmp_path, "spark.a b"))
        assert isinstance(found, Toy)
        session: Any = found.session({"spark.c": 1})
        assert session == {"spark.a": "b", "spark.c": 1}
        spark.end()
        spark.end()
    assert found.ended == ["toy"]
