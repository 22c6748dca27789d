"""A deployment as on AWS, on real servers: a shop and a vault in S3, the manifest in DynamoDB Local, Redshift's stand-in.

Its programs are processes of their own. All that they ask of AWS goes through recording proxies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from manifest_platform.demo.events import SCHEMAS
from manifest_platform_tests.aws.policies import Policy, policies
from manifest_platform_tests.aws.recording import Record
from manifest_platform_tests.aws.stacks import ACCOUNT, REGION

REPOSITORY = Path(__file__).parents[2]
SHOP, VAULT = "shop", "vault"
KINDS = ("landing", "shredded", "merged", "records", "artifacts")
RETAINED = ("landing_days", "shredded_days", "bad_days", "merged_days", "last_copy_days")
ALWAYS = {"cron": "0 0 * * *", "minutes": 1440}
"""A blackout of a whole day, in which drains shred and load nothing."""


@dataclass
class Deployment:
    """The configuration of a deployment, and what its programs asked."""

    home: Path
    name: str
    environment: dict[str, str]
    """Variables of all programs: AWS's servers, behind proxies."""
    workers: dict[str, str]
    """Variables that differ for executors of Spark."""
    warehouse: dict[str, Any]
    vault: dict[str, Any]
    calls: Record = field(default_factory=Record)
    of_workers: Record = field(default_factory=Record)

    def bucket(self, kind: str) -> str:
        """The name of a bucket, as `buckets.yaml` makes it."""
        return f"{self.name}-{kind}-{ACCOUNT}-{REGION}"

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies of this deployment."""
        exports = {kind: self.bucket(kind) for kind in KINDS}
        exports |= {f"{name}-secret": f"{self.name}/{name}" for name in ("warehouse", "salt", "sources", "dagster")}
        exports |= {
            "table": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{self.name}",
            "stream": "STREAM",
            "queue": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.name}-landed",
            "data-key": "DATA-KEY",
            "operations-key": "OPERATIONS-KEY",
            "spark": f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/spark",
        }
        return policies(self.name, exports, (SHOP, VAULT))

    def configured(self, *, loads: bool, packed: bool = False, **landing: str) -> Path:
        """The configuration's file. `loads`: False for programs that only shred. `landing`: more settings of the shop's.

        `packed`: a task's tables in one file, which a load unpacks in S3; then nothing is merged.
        """
        rests: dict[str, Any] = {} if loads else {"load": {"blackout": [ALWAYS]}}
        place = {kind: f"s3://{self.bucket(kind)}" for kind in KINDS}
        merged = {"output": f"{place['merged']}/merged", "catalog": {"kind": "glue", "region": REGION}}
        shop = {
            "landing": {"root": f"{place['landing']}/enriched", "settle_seconds": 1, **landing},
            "shred": {"output": f"{place['shredded']}/shredded", "schemas": [str(SCHEMAS)], "pack_kib": 1024 if packed else 0},
            **(
                {}
                if packed
                else {"merge": {**merged, "close_after_seconds": 0, "interval_seconds": 0, "first_day": "2024-05-01"}}
            ),
            "retention": {name: None if packed and name == "merged_days" else 2 for name in RETAINED},
            **rests,
        }
        vault = {
            "source": "veeva",
            "vault": self.vault,
            "landing": {"root": f"{place['landing']}/vaults"},
            "shred": {"output": f"{place['shredded']}/vaults"},
            **rests,
        }
        conf = self.home / "local.conf"
        executors = "".join(f"spark.executorEnv.{name} {value}\n" for name, value in self.workers.items())
        conf.write_text((REPOSITORY / "spark_conf" / "local.conf").read_text() + executors)
        found = {
            "datasets": {SHOP: shop, VAULT: vault},
            "manifest": {
                "store": f"dynamodb://{self.name}?region={REGION}",
                "overflow": f"{place['records']}/overflow",
                "archive": f"{place['records']}/archive",
            },
            "warehouse": self.warehouse,
            "housekeeping": {"attempts_hours": 1, "merged_hours": 1, "archive_days": 2},
            "spark": {"conf": str(conf)},
        }
        file = self.home / f"{'all' if loads else 'shred'}.yaml"
        file.write_text(yaml.safe_dump(found))
        return file

    def start(self, *denied: str) -> None:
        """Forgets the calls until now. `denied`: actions that are refused from now on."""
        self.calls.start(*denied)
        self.of_workers.start()

    def run(
        self,
        *command: str,
        dataset: str = SHOP,
        loads: bool = True,
        packed: bool = False,
        later: bool = False,
        codes: tuple[int, ...] = (0, 4),
    ) -> list[dict[str, Any]]:
        """Runs a command, some days later if wanted, and returns its answers. Raises AssertionError for another exit code."""
        program = "manifest_platform_tests.aws.later" if later else "manifest_platform"
        options = ["--config", str(self.configured(loads=loads, packed=packed)), "--dataset", dataset, "--json"]
        printed = self.program([sys.executable, "-m", program, *options, *command], codes)
        return [json.loads(one) for one in printed.splitlines() if one.startswith("{")]

    def program(self, line: list[str], codes: tuple[int, ...] = (0,), **more: str) -> str:
        """Runs a program, and returns what it prints. `more`: variables. Raises AssertionError for another exit code."""
        ended = subprocess.run(line, env=self.variables(more), cwd=self.home, capture_output=True, text=True, check=False)
        assert ended.returncode in codes, f"{line}: {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        return ended.stdout

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment of programs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") and name != "PYTHONPATH"}
        return {**kept, **self.environment, "PYTHONPATH": str(REPOSITORY), **more}
