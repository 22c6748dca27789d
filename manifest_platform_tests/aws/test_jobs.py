"""The jobs of Glue that `deploy/aws/jobs.yaml` defines are what the driver of a job run, and who starts it, expect."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from manifest_platform.spark.places.glue import Glue
from manifest_platform_tests.aws.moto_templates import read
from manifest_platform_tests.aws.stacks import ACCOUNT, FOLDER, REGION

TEMPLATE: dict[str, Any] = read(FOLDER / "jobs.yaml")
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
PROGRAMS = FOLDER / "programs"
GIVEN = {"Bucket": "bucket", "Programs": "p", "Wheel": "w.whl", "Modules": "dagster-pipes", "Name": "mp"}
"""Values for the parameters of the template."""


def text(node: Any) -> str:
    """The text of a `Fn::Sub` or of a reference to a job."""
    if "Ref" in node:
        return RESOURCES[node["Ref"]]["Properties"]["Name"]["Fn::Sub"]
    found = node["Fn::Sub"]
    values = GIVEN | {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT}
    return re.sub(r"\$\{([\w:]+)\}", lambda name: values[name[1]], found if isinstance(found, str) else found[0])


def place(**settings: Any) -> Glue:
    """The configuration that starts runs of the job."""
    return Glue(where="glue", job=text(RESOURCES["Drain"]["Properties"]["Name"]), messages="s3://bucket/messages", **settings)


@pytest.mark.parametrize("name", ["Drain", "Full"])
def test_a_job_s_program_and_files_are_those_that_the_platform_has(name: str) -> None:
    job = RESOURCES[name]["Properties"]
    *_, program = text(job["Command"]["ScriptLocation"]).split("/")
    assert {"Drain": "job.py", "Full": "full.py"}[name] == program and (PROGRAMS / program).is_file()
    files = {one.rpartition("/")[2] for one in text(job["DefaultArguments"]["--extra-files"]).split(",")}
    settings = place()
    assert files == {settings.config, Path(settings.conf).name}, "the driver finds them beside it"
    wheel, *modules = text(job["DefaultArguments"]["--additional-python-modules"]).split(",")
    assert wheel == "s3://bucket/p/w.whl" and "dagster-pipes" in modules, "a wheel brings none of its extras"


def extra(name: str) -> list[Requirement]:
    """The requirements of an extra of this package."""
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]
    return [Requirement(one) for one in project["optional-dependencies"][name]]


def of_conf() -> str:
    """The modules in the command that the properties file tells."""
    [found] = re.findall(r'"--additional-python-modules": "[^,]*\.whl,(.*)",', Path(place().conf).read_text())
    return found


@pytest.mark.parametrize(
    ("modules", "extras"),
    [(TEMPLATE["Parameters"]["Modules"]["Default"], ["job", "worker", "redshift"]), (of_conf(), ["job", "worker"])],
    ids=["jobs.yaml", "glue.conf"],
)
def test_a_job_installs_what_the_extras_of_its_driver_and_its_workers_need(modules: str, extras: list[str]) -> None:
    """With bounds as narrow as the extra's. A comma divides modules, so none has two bounds."""
    named = {one.name: one.specifier for one in map(Requirement, modules.split(","))}
    for needed in (one for name in extras for one in extra(name)):
        assert needed.name in named, "a task that lacks it shreds nothing"
        [own] = named[needed.name]
        assert own.contains(version(needed.name)), "what the tests use"
        for bound in needed.specifier:
            is_within = not own.contains(bound.version) if bound.operator == "<" else bound.contains(own.version)
            assert is_within, f"{needed.name}{own} allows what {needed} does not"


def test_dagster_s_arguments_do_not_contradict_the_job_s() -> None:
    asked = place(worker_type="G.2X", workers=5, timeout_minutes=300).parameters()
    job = RESOURCES["Drain"]["Properties"]
    assert asked["JobName"] == text(job["Name"]) == "mp-drain"
    shared = asked["Arguments"].keys() & job["DefaultArguments"].keys()
    assert shared == {"--job-bookmark-option"}
    assert all(asked["Arguments"][one] == job["DefaultArguments"][one] for one in shared)
    assert (asked["WorkerType"], asked["NumberOfWorkers"], asked["Timeout"]) == (
        job["WorkerType"],
        job["NumberOfWorkers"],
        job["Timeout"],
    )


def test_who_starts_a_run_and_the_run_itself_may_pass_messages() -> None:
    allowed = {
        (name, one["Sid"]): ([*one["Action"]], text(one["Resource"]) if isinstance(one["Resource"], dict) else one["Resource"])
        for name in ("JobPolicy", "StarterPolicy")
        for one in RESOURCES[name]["Properties"]["PolicyDocument"]["Statement"]
        if one["Sid"] in ("Messages", "Runs")
    }
    where = "arn:aws:s3:::bucket/messages/*"
    assert allowed == {
        ("JobPolicy", "Messages"): (["s3:PutObject"], where),
        ("StarterPolicy", "Messages"): (["s3:GetObject", "s3:DeleteObject"], where),
        ("StarterPolicy", "Runs"): (
            ["glue:StartJobRun", "glue:GetJobRun", "glue:BatchStopJobRun"],
            f"arn:aws:glue:{REGION}:{ACCOUNT}:job/mp-drain",
        ),
    }
    advised = re.findall(r"(?:glue:)?(StartJobRun|GetJobRun|BatchStopJobRun)", place().advice)
    assert [f"glue:{one}" for one in advised] == allowed["StarterPolicy", "Runs"][0]


def test_the_job_s_program_is_the_driver_which_only_dagster_starts(tmp_path: Path) -> None:
    line = [sys.executable, str(PROGRAMS / "job.py"), "--JOB_NAME", "mp-drain", "--config", "manifest_platform.yaml"]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "only Dagster starts this program" in ended.stderr
