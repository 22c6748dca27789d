"""Fetches jars when they are needed, and verifies them against lists of files with their SHA-256.

Ivy, which pyspark ships, fetches them from Maven Central once for each user. If a file differs, is missing, or is not in the
list, JarsRefused is raised and none of the set is used. As a program (`make jars`), it fetches the jars that Spark needs for
`s3a://` and prints the line for Spark's properties file.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

S3A = "s3a-3.5.0"
DYNAMODB_LOCAL = "dynamodb-local-3.1.0"
_AWS = "software.amazon.awssdk"
_AWS_VERSION = "2.35.4"


@dataclass(frozen=True)
class Wanted:
    """The direct dependencies of a set of jars, as (group, artifact, version), and the excluded (group, artifact)."""

    direct: Sequence[tuple[str, str, str]]
    without: Sequence[tuple[str, str]] = ()


LISTS = {
    S3A: Wanted(
        [
            ("org.apache.hadoop", "hadoop-aws", "3.5.0"),
            *((_AWS, name, _AWS_VERSION) for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")),
        ],
        [(_AWS, "bundle")],
    ),
    DYNAMODB_LOCAL: Wanted([("software.amazon.dynamodb", "DynamoDBLocal", "3.1.0")]),
}
"""The dependencies of each list in `jar_lists`. Spark's properties files name the same versions."""

_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={cache}/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


class JarsRefused(RuntimeError):
    """Jars could not be fetched, or differ from the list. The message names the differences."""


@dataclass(frozen=True)
class Jar:
    """A file in a list."""

    sha256: str
    group: str
    name: str
    version: str
    file: str


def listed(name: str) -> Iterator[Jar]:
    """Yields the files of a list."""
    for line in (Path(__file__).parent / "jar_lists" / f"{name}.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            yield Jar(*line.split())


def shipped(name: str) -> Path:
    """Finds a jar that pyspark ships, such as Ivy. Raises JarsRefused."""
    spark = find_spec("pyspark")
    found = next(Path(spark.origin).parent.glob(f"jars/{name}-[0-9]*.jar"), None) if spark and spark.origin else None
    if found is None:
        raise JarsRefused(f"the jar of {name}, which pyspark ships, does not exist: install pyspark 4")
    return found


def verify(name: str, folder: Path) -> None:
    """Raises JarsRefused unless the folder contains exactly the files of the list with the listed content."""
    known = {jar.file: jar.sha256 for jar in listed(name)}
    found = {path.name: path for path in folder.iterdir()}
    missing, others = sorted(known.keys() - found.keys()), sorted(found.keys() - known.keys())
    wrong = [file for file in sorted(known.keys() & found.keys()) if _digest(found[file]) != known[file]]
    problems = [f"{what}: {', '.join(files)}" for what, files in _problems(missing, others, wrong) if files]
    if problems:
        raise JarsRefused(
            f"{folder} differs from the list {name} ({'; '.join(problems)}), so it is not used. Remove the folder and fetch"
            " it again; if the result is the same, somebody has changed the published files"
        )


def fetch(name: str, folder: Path, java: str) -> None:
    """Fetches and verifies a list's files, and moves them to a new folder. Raises JarsRefused."""
    ivy = shipped("ivy")
    work = folder.with_name(f"{folder.name}-{uuid.uuid4().hex[:8]}")
    work.mkdir(parents=True)
    try:
        settings, module, fetched = work / "ivysettings.xml", work / "ivy.xml", work / "jars"
        settings.write_text(_SETTINGS.format(cache=quoteattr(str(work / "cache"))))
        module.write_text(_module(name, LISTS[name]))
        retrieve = ("-retrieve", f"{fetched}/[artifact]-[revision](-[classifier]).[ext]")
        command = [java, "-jar", str(ivy), "-settings", str(settings), "-ivy", str(module), *retrieve]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not fetched.is_dir():
            raise JarsRefused(f"{name} could not be fetched: {(done.stdout + done.stderr)[-2000:]}")
        verify(name, fetched)
        fetched.rename(folder)
    finally:
        shutil.rmtree(work)


def _fit(name: str) -> None:
    """Raises JarsRefused unless pyspark brings the list's version of Hadoop. Spark does not start with two versions."""
    [wanted] = [version for group, _, version in LISTS[name].direct if group == "org.apache.hadoop"]
    own = shipped("hadoop-client-api").stem.removeprefix("hadoop-client-api-")
    if own != wanted:
        raise JarsRefused(
            f"the list {name} is for Hadoop {wanted} of pyspark 4.3, but the installed pyspark brings Hadoop {own}: install"
            f" pyspark 4.3, or set spark.jars to your own jars for hadoop-aws {own}"
        )


def _problems(missing: list[str], others: list[str], wrong: list[str]) -> Iterator[tuple[str, list[str]]]:
    yield "missing", missing
    yield "not in the list", others
    yield "different content", wrong


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _module(name: str, wanted: Wanted) -> str:
    """The Ivy module file with the dependencies."""
    direct = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="*->default"/>'
        for group, artifact, version in wanted.direct
    )
    without = "".join(f'<exclude org="{group}" module="{artifact}"/>' for group, artifact in wanted.without)
    info = f'<info organisation="manifest-platform" module="{name.rpartition("-")[0]}"/>'
    return f'<ivy-module version="2.0">{info}<dependencies>{direct}{without}</dependencies></ivy-module>'


def main() -> int:
    """Fetches the jars of `s3a://` into a folder (by default in the user's cache), and prints the line for Spark."""
    parser = argparse.ArgumentParser(prog="make jars", description=main.__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a new folder, or a folder that already contains the jars")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manifest-platform" / S3A
    folder = (parser.parse_args().folder or cache).absolute()
    java = shutil.which("java", path=str(Path(os.environ["JAVA_HOME"]) / "bin") if os.environ.get("JAVA_HOME") else None)
    try:
        if java is None:
            raise JarsRefused("fetching jars needs Java 17 or newer, but java was not found; install a JDK or JRE")
        _fit(S3A)
        if folder.exists():
            verify(S3A, folder)
        else:
            fetch(S3A, folder, java)
    except (JarsRefused, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"spark.jars  {folder}/*.jar\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
