"""The stacks of `deploy/aws`, deployed to moto in the order in which the script `deploy` deploys them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manifest_platform_tests.aws.moto_templates import for_moto

FOLDER = Path(__file__).parents[2] / "deploy" / "aws"
TEMPLATES = sorted(FOLDER.glob("*.yaml"))
REGION, ACCOUNT = "eu-west-1", "123456789012"
WOKEN = '[{"job": "acme_drain", "dataset": "acme", "landing": ["s3://landing/enriched/"], "marker": "_SUCCESS"}]'
CALLS = (
    ("base",),
    ("dataset", "acme"),
    ("services", "0.2.0", "people@example.com"),
    ("jobs", "manifest_platform-0.2.0-py3-none-any.whl"),
    ("wake", "programs/wake.zip", WOKEN),
)
"""The calls of the script, as `docs/how-to/aws.md` has them."""

_NOTES = (
    '#!/usr/bin/env python3\nimport json, os, sys\nopen(os.environ["NOTES"], "a").write(json.dumps(sys.argv[1:]) + "\\n")\n'
)


@dataclass(frozen=True)
class Deployed:
    """A stack that the script deploys: its name, its template, and its parameters."""

    name: str
    template: Path
    parameters: dict[str, str]


def ran(call: tuple[str, ...], folder: Path, name: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the script with an `aws` that notes its arguments in `folder / "notes"`."""
    folder.mkdir(exist_ok=True)
    (folder / "aws").write_text(_NOTES)
    (folder / "aws").chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "NOTES": str(folder / "notes")}
    environment |= {"NAME": name} if name else {}
    return subprocess.run([FOLDER / "deploy", *call], env=environment, capture_output=True, text=True, check=False)


def commands(folder: Path, name: str | None = None) -> list[list[str]]:
    """The arguments of `aws` in each command of the script, in order."""
    for call in CALLS:
        ended = ran(call, folder, name)
        assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in (folder / "notes").read_text().splitlines()]


def deployments(folder: Path, name: str | None = None) -> Iterator[Deployed]:
    """The stacks that the script deploys, in order."""
    for arguments in commands(folder, name):
        start = arguments.index("--parameter-overrides") + 1
        yield Deployed(
            arguments[arguments.index("--stack-name") + 1],
            Path(arguments[arguments.index("--template-file") + 1]),
            dict(one.split("=", 1) for one in arguments[start:]),
        )


def deploy(client: Any, folder: Path, name: str | None = None) -> list[Deployed]:
    """Deploys all stacks with a client of CloudFormation, and returns them."""
    found = list(deployments(folder, name))
    for one in found:
        client.create_stack(
            StackName=one.name,
            TemplateBody=for_moto(one.template),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in one.parameters.items()],
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
    return found
