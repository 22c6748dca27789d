"""Runs DynamoDB Local, Amazon's own program to try DynamoDB without an account, for the demo and the tests.

It is downloaded from Maven Central once for each user (about 49 MB), and verified against a list of hashes. It keeps its tables
in memory. It has no point-in-time recovery and no encryption settings.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform.demo.server import ServerFailed, free_port, kept
from manifest_platform.spark.jars import DYNAMODB_LOCAL, JarsRefused, fetch, shipped, verify

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

REGION = "eu-west-1"


@dataclass(frozen=True)
class DynamoDbLocal:
    """A running DynamoDB Local. `endpoint`: its URL."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for AWS clients: dummy credentials, and none of the user's own AWS settings."""
        return {
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }

    def store(self, table: str) -> str:
        """Returns the value of `manifest.store` for a table of this server."""
        return f"dynamodb://{table}?region={REGION}&endpoint={self.endpoint}"


@contextmanager
def dynamodb_local(log: Path) -> Generator[DynamoDbLocal]:
    """Runs DynamoDB Local, its tables in memory, until the block ends. Its output goes to `log`. Raises ServerFailed.

    It listens on the loopback address only. The program's main class has no option for that, and would listen on all addresses
    of the machine. So the server is started by calls into its Java process instead.
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
    """Starts the server in a Java process, on the loopback address."""
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
    """Starts a Java process with DynamoDB Local's classes. It ends with the block, or with this process."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    folder = jars()
    try:
        py4j = shipped("py4j")
    except JarsRefused as error:
        raise ServerFailed(str(error)) from error
    with log.open("w") as output:
        port, token, process = launch_gateway(
            java_path=_java(),
            jarpath=str(py4j),
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
            process.kill()  # its tables are in memory: there is nothing to save
            process.wait()


def jars() -> Path:
    """Returns the folder with the program's files, which are downloaded on the first use and verified on every use.

    Safe for concurrent processes. Raises ServerFailed if the files cannot be downloaded or verified.
    """
    with kept(DYNAMODB_LOCAL) as folder:
        try:
            if folder.exists():
                verify(DYNAMODB_LOCAL, folder)
            else:
                fetch(DYNAMODB_LOCAL, folder, _java())
        except JarsRefused as error:
            raise ServerFailed(str(error)) from error
    return folder


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ServerFailed("DynamoDB Local needs Java 17 or newer, and there is no java on the PATH; install a JDK or JRE")
    return java
