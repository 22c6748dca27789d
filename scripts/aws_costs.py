"""Prints the costs of the platform on AWS in a month: `python scripts/aws_costs.py --runs 10 1000 --mb 10 --prices FILE`.

The quantities are the platform's own accounting: the manifest's units and requests (`docs/reference/manifest.md`), requests to
S3 and seconds of processors (`docs/reference/speed.md`). The prices are parameters: a JSON file with names of `Prices` replaces
them.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

DAYS = 30
HOURS = 24 * DAYS


def _price(dollars: float, source: str, date: str = "2025") -> Any:
    """A list price of us-east-1. `source`: the page that has it; `date`: when it was read there."""
    return field(default=dollars, metadata={"source": source, "date": date})


DYNAMODB, S3 = "Amazon DynamoDB: pricing of on-demand capacity", "Amazon S3: pricing"
EMR = "Amazon EMR: pricing, EMR Serverless"
CLOUDWATCH, KMS = "Amazon CloudWatch: pricing", "AWS Key Management Service: pricing"
FARGATE, REDSHIFT = "AWS Fargate: pricing, Linux on x86", "Amazon Redshift: pricing, Redshift Serverless"


@dataclass(frozen=True)
class Prices:
    """US dollars. The defaults are list prices of us-east-1: `--sources` prints where and when each was read."""

    write_million: float = _price(0.625, DYNAMODB)
    read_million: float = _price(0.125, DYNAMODB)
    stream_reads_million: float = _price(0.2, "Amazon DynamoDB: pricing, DynamoDB Streams")
    put_thousand: float = _price(0.005, S3)
    get_thousand: float = _price(0.0004, S3)
    storage_gb: float = _price(0.023, S3)
    emr_core_hour: float = _price(0.052624, EMR)
    emr_gb_hour: float = _price(0.0057785, EMR)
    fargate_core_hour: float = _price(0.04048, FARGATE, "2025; a guide to the page repeats it on March 10, 2026")
    fargate_gb_hour: float = _price(0.004445, FARGATE, "2025; a guide to the page repeats it on March 10, 2026")
    rpu_hour: float = _price(0.375, REDSHIFT)
    endpoint_hour: float = _price(0.01, "AWS PrivateLink: pricing, interface endpoints")
    database_hour: float = _price(0.129, "Amazon RDS for PostgreSQL: pricing, two zones")
    key_month: float = _price(1.0, KMS)
    key_requests_thousand: float = _price(0.003, KMS)
    alarm_month: float = _price(0.10, CLOUDWATCH)
    metric_month: float = _price(0.30, CLOUDWATCH)
    log_gb: float = _price(0.50, CLOUDWATCH)


@dataclass(frozen=True)
class Run:
    """The quantities of a run, by the platform's own accounting."""

    write_units: float = 22
    """From discovered to applied, in a batch (`docs/reference/manifest.md`)."""
    read_units: float = 8
    """Two units a request at most: rows of some KB, read consistently."""
    puts: float = 4
    """Packed: its Parquet, its description, the listing, the manifest of COPY (`docs/reference/speed.md`)."""
    gets: float = 6
    """The marker and a file that are shredded, and what the load and Redshift read."""
    core_seconds: float = 0.08
    """Seconds of a run of 50 events with 21 entities, in a batch (`docs/reference/speed.md`)."""
    core_seconds_mb: float = 0.028
    """Seconds of a megabyte with full validation (`docs/reference/speed.md`)."""


@dataclass(frozen=True)
class Deployment:
    """The quantities that do not depend on runs, as the stacks have them by default."""

    cores: float = 4 + 4 + 0.5 + 0.5
    gigabytes: float = 16 + 16 + 1 + 2
    endpoints: int = 13 * 3
    lists_minute: float = 3 * (60 / 5 + 60 / 30)
    """Three requests at most for a look of the sensor (`dagster.listing_seconds`) and one of the follower: for one dataset."""
    manifest_requests_minute: float = 3 * 60 / 5 + 22
    """At rest: a look of the sensor, and a minute of the follower (`docs/reference/speed.md`)."""
    read_units_request: float = 2
    """At most. Of the follower's requests, some are heartbeats, which write a unit."""
    stream_reads_second: float = 4
    keys: int = 2
    key_requests_hour: float = 4 * (5 + 1) * 12
    """An estimate: four programs renew the keys of five buckets and of the table every five minutes."""
    alarms: int = 10
    metrics: int = 8 + 4 * (11 + 6)
    """Metrics of Container Insights: of the cluster, of each of four services and of its task."""
    log_gb: float = 2
    """An estimate, without what runs print."""
    log_kb_run: float = 10
    """An estimate."""
    rpus: float = 8
    warehouse_seconds_load: float = 60
    """Redshift Serverless charges a minute at least."""
    loads_day: int = 1440
    """Loads of a minute share it, so more runs cost it nothing."""
    kept_days: int = 90
    parquet_share: float = 0.25


def monthly(runs: int, mb: float, prices: Prices, run: Run, deployment: Deployment) -> dict[str, float]:
    """The dollars of a month by their purpose, for a number of runs a day and the megabytes of each."""
    number, gigabytes = runs * DAYS, runs * mb / 1024
    hours = number * (run.core_seconds + mb * run.core_seconds_mb) / 3600
    minutes = 60 * HOURS
    lists = deployment.lists_minute * minutes
    reads = number * run.read_units + deployment.manifest_requests_minute * deployment.read_units_request * minutes
    logs = deployment.log_gb + number * deployment.log_kb_run / 1024**2
    loads = min(runs, deployment.loads_day) * DAYS
    return {
        "manifest": (number * run.write_units * prices.write_million + reads * prices.read_million) / 1e6
        + deployment.stream_reads_second * 3600 * HOURS * prices.stream_reads_million / 1e6,
        "requests to S3": (number * run.puts + lists) * prices.put_thousand / 1e3
        + number * run.gets * prices.get_thousand / 1e3,
        "storage": gigabytes * deployment.kept_days * (1 + deployment.parquet_share) * prices.storage_gb,
        "Spark": hours * (prices.emr_core_hour + 4 * prices.emr_gb_hour),
        "warehouse": loads * deployment.warehouse_seconds_load / 3600 * deployment.rpus * prices.rpu_hour,
        "services": HOURS * (deployment.cores * prices.fargate_core_hour + deployment.gigabytes * prices.fargate_gb_hour),
        "Dagster's database": HOURS * prices.database_hour,
        "endpoints, keys": HOURS * deployment.endpoints * prices.endpoint_hour
        + deployment.keys * prices.key_month
        + HOURS * deployment.key_requests_hour * prices.key_requests_thousand / 1e3,
        "alarms, metrics, logs": deployment.alarms * prices.alarm_month
        + deployment.metrics * prices.metric_month
        + logs * prices.log_gb,
    }


def table(runs: list[int], mb: float, prices: Prices) -> str:
    """The dollars of a month as a table in Markdown."""
    columns = [monthly(number, mb, prices, Run(), Deployment()) for number in runs]
    lines = [
        "| dollars a month | " + " | ".join(f"{number:,} runs a day" for number in runs) + " |",
        "|---" * (len(runs) + 1) + "|",
    ]
    lines += [f"| {name} | " + " | ".join(f"{one[name]:,.2f}" for one in columns) + " |" for name in columns[0]]
    lines.append("| together | " + " | ".join(f"{sum(one.values()):,.0f}" for one in columns) + " |")
    return "\n".join(lines)


def sources() -> str:
    """The source and the date of each price, a line each."""
    return "\n".join(f"{one.name} {one.default}: {one.metadata['source']}; {one.metadata['date']}" for one in fields(Prices))


def main() -> int:
    """Prints the table, or the sources of the prices. Returns the exit code: 2 if a price is unknown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 1_000, 10_000], help="runs a day")
    parser.add_argument("--mb", type=float, default=10, help="the megabytes of a run")
    parser.add_argument("--prices", type=Path, help="a JSON file with prices")
    parser.add_argument("--sources", action="store_true", help="print where and when each price was read")
    arguments = parser.parse_args()
    if arguments.sources:
        sys.stdout.write(f"{sources()}\n")
        return 0
    given = json.loads(arguments.prices.read_text()) if arguments.prices else {}
    known = [field.name for field in fields(Prices)]
    if unknown := sorted(given.keys() - set(known)):
        sys.stderr.write(f"{arguments.prices}: unknown: {', '.join(unknown)}; allowed: {', '.join(known)}\n")
        return 2
    sys.stdout.write(f"{table(arguments.runs, arguments.mb, Prices(**given))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
