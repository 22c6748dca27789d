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
from typing import TYPE_CHECKING

from manifest_platform.demo.server import ServerFailed, free_port, kept

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

VERSION = "3.1.0"
REGION = "eu-west-1"

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
    """Runs DynamoDB Local, its tables in memory, until the block ends. Its output goes to `log`. Raises ServerFailed.

    It listens on this machine's loopback address alone. The program has no option for that and takes every address, for whoever
    can reach the machine: so it is not started by its own main class, but by calls into its Java process.
    """
    from py4j.protocol import Py4JError

    port = free_port()
    try:
        with _java_process(log) as java:
            _listen(java, port)
            yield DynamoDbLocal(f"http://127.0.0.1:{port}")
    except Py4JError as error:
        told = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise ServerFailed(f"DynamoDB Local does not start: {error}; {told}") from error


def _listen(java: JavaGateway, port: int) -> None:
    """Starts the server within a Java process."""
    options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    arguments = java.new_array(java.jvm.java.lang.String, len(options))
    for place, option in enumerate(options):
        arguments[place] = option
    runner = java.jvm.software.amazon.dynamodb.services.local.main.ServerRunner
    server = runner.createServerFromCommandLineArgs(arguments)
    field = server.getClass().getDeclaredField("server")
    field.setAccessible(True)
    for connector in field.get(server).getConnectors():
        connector.setHost("127.0.0.1")
    server.start()


@contextmanager
def _java_process(log: Path) -> Generator[JavaGateway]:
    """A Java process with DynamoDB Local's classes, which ends with the block, or with this process."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    folder = jars()
    with log.open("w") as output:
        port, token, process = launch_gateway(
            java_path=_java(),
            jarpath=str(_shipped("py4j")),
            classpath=f"{folder}/*",
            javaopts=[f"-Djava.library.path={folder}"],
            die_on_exit=True,
            redirect_stdout=output,
            redirect_stderr=output,
            enable_auth=True,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            yield gateway
        finally:
            gateway.close()
            process.kill()  # its tables are in memory: there is nothing to end well
            process.wait()


def jars() -> Path:
    """The folder with the program's files, fetched on first use. Safe with several processes at once. Raises ServerFailed."""
    with kept(f"dynamodb-local-{VERSION}") as folder:
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    ivy = _shipped("ivy")
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


def _shipped(name: str) -> Path:
    """A jar that pyspark ships: Ivy fetches DynamoDB Local, and py4j starts it."""
    spark = find_spec("pyspark")
    found = next(Path(spark.origin).parent.glob(f"jars/{name}-[0-9]*.jar"), None) if spark and spark.origin else None
    if found is None:
        raise ServerFailed(f"DynamoDB Local needs the jar of {name} that pyspark ships, and there is none: install pyspark 4")
    return found


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ServerFailed("DynamoDB Local needs Java 17 or newer, and there is no java on the PATH; install a JDK or JRE")
    return java
