"""Spark's properties: files of them, settings from the environment, and the jars that they name."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from manifest_platform.spark.errors import SparkUnavailable

_PROPERTY = re.compile(r"([^\s=:]+)\s*[\s=:]\s*(.*)")


def properties(conf_file: str | Path) -> dict[str, str]:
    """Reads a file in the format of `spark-defaults.conf`: a name, blanks or `=`, a value; `#` for comments.

    Raises SparkUnavailable if the file does not exist or a line is not a property.
    """
    found: dict[str, str] = {}
    try:
        lines = Path(conf_file).read_text().splitlines()
    except OSError as error:
        raise SparkUnavailable(f"{conf_file}: {error.strerror}; set spark.conf to a properties file") from error
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _PROPERTY.fullmatch(text)
        if match is None:
            raise SparkUnavailable(f"{conf_file}, line {number}: {text!r} is not a property; write `name value`")
        found[match[1]] = match[2]
    return found


def s3_endpoint() -> dict[str, str]:
    """Spark settings for the S3 endpoint in the environment variables of AWS tools; empty if there is none.

    They include the region, by default us-east-1, as for Arrow. Without it, s3a signs for another region, and the server
    answers Bad Request.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": region,
    }


def jars(value: str, conf_file: str | Path) -> str:
    """The files of `spark.jars`. Local patterns are resolved, because Spark resolves them for the driver but not for workers.

    Raises SparkUnavailable if a file does not exist; Spark would continue without it.
    """
    found = []
    for place in filter(None, (one.strip() for one in value.split(","))):
        path = place.removeprefix("file://").removeprefix("file:")
        files = sorted(glob.glob(path)) if path.startswith("/") else [place]
        if not files:
            raise SparkUnavailable(
                f"{conf_file}: spark.jars: {path} does not exist; `make jars JARS=FOLDER` fetches the jars for s3a:// into a"
                " new folder. If no asset reads S3 as a DataFrame, remove the line instead"
            )
        found += files
    return ",".join(found)
