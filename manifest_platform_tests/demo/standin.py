"""Runs the demo's story of the web shop on the tests' stand-in for Redshift: `make demo WAREHOUSE=redshift-standin`.

The shredded files are in the tests' S3 server, from where the stand-in copies them. Both servers run only during the story.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import typer

from manifest_platform.demo import run, shop
from manifest_platform.demo.s3 import PROXY_VARIABLES, S3Server
from manifest_platform.demo.stage import stage
from manifest_platform_tests.servers.redshift import ROLE, Redshift, stand_in_of
from manifest_platform_tests.servers.shared import shared

FOLDER = f"{shop.FOLDER}-redshift-standin"
SERVERS = "servers"
"""The folder of the servers' files, in the demo's directory."""
BUCKET = "demo"


@dataclass(frozen=True)
class Servers:
    """The running stand-in, and the S3 server from which it copies."""

    redshift: Redshift
    s3: S3Server


def tell(day: date) -> Path:
    """Removes an earlier demo, then runs the story; returns its directory. Raises an error of `run.EXPECTED`."""
    home = run.begin(shop, FOLDER)
    then = (
        f"The servers have ended. {os.path.relpath(home)} stays until the next story; its {shop.CONFIGURATION} is an example of"
        " a configuration for Redshift, where yours leaves out sslmode=disable."
    )
    with stage(home, then):
        (home / SERVERS).mkdir()
        with servers(home / SERVERS) as found:
            typer.echo(f"A stand-in for Redshift listens on {found.redshift.url}, an S3 server on {found.s3.endpoint}.")
            run.configure(
                shop,
                home,
                warehouse={"kind": "redshift", "url": f"{found.redshift.url}?sslmode=disable", "role": ROLE},
                datasets={shop.DATASET: {"shred": {"output": f"s3://{BUCKET}/shredded"}}},
            )
            shop.tell(home, day)
    return home


@contextmanager
def servers(folder: Path) -> Generator[Servers]:
    """Runs both servers until the block ends, and points every AWS client of this process at the S3 server."""
    import boto3

    with (
        shared(folder, "manifest_platform.demo.s3:s3_at") as endpoint,
        shared(folder, "manifest_platform_tests.servers.redshift:redshift_at") as address,
    ):
        for name in list(os.environ):
            if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
                del os.environ[name]
        s3 = S3Server(endpoint)
        os.environ.update(s3.environment)
        boto3.Session().client("s3").create_bucket(Bucket=BUCKET)
        redshift = stand_in_of(address, "demo")
        redshift.empty()
        yield Servers(redshift, s3)


def main() -> int:
    """Runs the story."""
    parser = argparse.ArgumentParser(description="Runs the demo on a stand-in for Redshift.")
    parser.add_argument("--day", type=date.fromisoformat, default=shop.day_before(datetime.now(UTC)))
    try:
        tell(parser.parse_args().day)
    except (*run.EXPECTED, RuntimeError) as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
