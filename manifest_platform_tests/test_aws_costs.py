"""The costs on the page of an AWS account are those that the script prints, from quantities that other pages promise."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from manifest_platform.config.config import DagsterConfig, FollowConfig

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "aws_costs.py"
PAGE = (ROOT / "docs" / "how-to" / "aws-account.md").read_text()


@pytest.fixture(scope="module")
def costs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("aws_costs", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["aws_costs"] = module  # data classes look for it
    spec.loader.exec_module(module)
    return module


def printed(*arguments: str) -> str:
    line = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def test_the_page_has_the_table_that_the_script_prints() -> None:
    assert printed() in PAGE


def test_every_price_has_a_source_and_a_date(costs: ModuleType) -> None:
    lines = printed("--sources").splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in fields(costs.Prices)]
    assert all(re.fullmatch(r"\w+ [\d.]+: [\w ]+: pricing.*; .*\b20\d\d\b.*", line) for line in lines), lines


def test_looks_are_counted_as_often_as_the_defaults_have_them(costs: ModuleType) -> None:
    sensor, follower = DagsterConfig().listing_seconds, FollowConfig().listing_seconds
    assert costs.Deployment().lists_minute == 3 * (60 / sensor + 60 / follower)
    speed = (ROOT / "docs" / "reference" / "speed.md").read_text()
    [idle] = re.findall(r"a minute of a follower in which nothing happens \|.*, (\d+) requests", speed)
    assert costs.Deployment().manifest_requests_minute == 3 * 60 / sensor + int(idle)


def test_alarms_and_keys_are_those_of_the_stacks(costs: ModuleType) -> None:
    def number(template: str, type_: str) -> int:
        return (ROOT / "deploy" / "aws" / template).read_text().count(f"Type: {type_}\n")

    assert costs.Deployment().alarms == number("alarms.yaml", "AWS::CloudWatch::Alarm")
    assert costs.Deployment().keys == number("keys.yaml", "AWS::KMS::Key")


def test_the_units_are_those_that_the_manifest_promises(costs: ModuleType) -> None:
    manifest = (ROOT / "docs" / "reference" / "manifest.md").read_text()
    [units] = re.findall(r"^\| DynamoDB write units of the same \| (\d+);", manifest, re.MULTILINE)
    assert costs.Run().write_units == int(units)
