"""DynamoDB Local: Amazon's own program for trying out DynamoDB without an account, for the demo and the tests.

Belongs here: fetching it and running it. It is fetched from Maven Central by the Ivy that pyspark ships, once a user (some
49 MB, half a minute or more), and keeps its tables in memory. It lacks point-in-time recovery and encryption settings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from manifest_platform.demo.server import ServerFailed, free_port, kept, running

VERSION = "3.1.0"
REGION = "eu-west-1"

_MAIN = "software.amazon.dynamodb.services.local.main.ServerRunner"
_ONLY_CENTRAL = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True)
class DynamoDbLocal:
    """A running DynamoDB Local: where it listens, and the environment in which AWS clients may talk to it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that AWS clients need here: credentials that are anything, and none of the user's own settings."""
        return {
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }

    def store(self, table: str) -> str:
        """What `manifest.store` is to say for a table of this server."""
        return f"dynamodb://{table}?region={REGION}&endpoint={self.endpoint}"


@contextmanager
def dynamodb_local(log: Path) -> Generator[DynamoDbLocal]:
    """Runs DynamoDB Local, its tables in memory, until the block ends. Its output goes to `log`. Raises ServerFailed."""
    folder, port = jars(), free_port()
    command = [
        _java(),
        f"-Djava.library.path={folder}",
        *("-cp", f"{folder}/*", _MAIN),
        *("-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)),
    ]
    with running(command, port, log, os.environ):
        yield DynamoDbLocal(f"http://127.0.0.1:{port}")


def jars() -> Path:
    """The folder with the program's files, fetched on first use. Safe with several processes at once. Raises ServerFailed."""
    with kept(f"dynamodb-local-{VERSION}") as folder:
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    spark = find_spec("pyspark")
    ivy = next(Path(spark.origin).parent.glob("jars/ivy-*.jar"), None) if spark and spark.origin else None
    if ivy is None:
        raise ServerFailed("DynamoDB Local is fetched by the Ivy that pyspark ships, and there is none: install pyspark 4")
    work = folder.with_name(f"{folder.name}-{uuid.uuid4().hex[:8]}")
    work.mkdir()
    try:
        settings, fetched = work / "ivysettings.xml", work / "jars"
        settings.write_text(_ONLY_CENTRAL.format(cache=work / "cache"))
        dependency = ("-dependency", "software.amazon.dynamodb", "DynamoDBLocal", VERSION)
        retrieve = ("-retrieve", f"{fetched}/[artifact]-[revision](-[classifier]).[ext]")
        command = [_java(), "-jar", str(ivy), "-settings", str(settings), *dependency, "-confs", "default", *retrieve]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not (fetched / f"DynamoDBLocal-{VERSION}.jar").exists():
            raise ServerFailed(f"DynamoDB Local {VERSION} could not be fetched: {(done.stdout + done.stderr)[-2000:]}")
        fetched.rename(folder)
    finally:
        shutil.rmtree(work)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ServerFailed("DynamoDB Local needs Java 17 or newer, and there is no java on the PATH; install a JDK or JRE")
    return java
