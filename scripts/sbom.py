"""Writes the bill of materials of what the platform runs with, as CycloneDX 1.5: Python packages and jars, with their hashes.

Packages are those of `uv.lock`, without the tools of development and of the build. Jars are those that pyspark brings, and
those that are fetched when they are needed, by the lists of `manifest_platform.spark.jars`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manifest_platform.spark.jars import LISTS, listed

_EXPORT = ("export", "--quiet", "--locked", "--extra", "all", "--no-default-groups", "--format", "cyclonedx1.5")
_NAMED = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)\.jar")


def main() -> int:
    """Writes the file that the command line names, and says what it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, nargs="?", default=Path("dist/sbom.cdx.json"))
    output: Path = parser.parse_args().output
    exported = subprocess.run([Path(sys.executable).with_name("uv"), *_EXPORT], capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(exported.stdout)
    document["metadata"]["component"]["version"] = version("manifest-platform")
    packages, jars = len(document["components"]), [*brought(), *fetched()]
    document["components"] += jars
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.write(f"{output}: {packages} packages, {len(jars)} jars\n")
    return 0


def brought() -> Iterator[dict[str, Any]]:
    """The jars in pyspark's package."""
    spec = find_spec("pyspark")
    assert spec and spec.origin
    for jar in sorted(Path(spec.origin).parent.glob("jars/*.jar")):
        found = _NAMED.fullmatch(jar.name)
        name, release = (found["name"], found["version"]) if found else (jar.stem, "")
        with jar.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        yield _component("pyspark", jar.name, _group(jar, name), name, release, digest)


def fetched() -> Iterator[dict[str, Any]]:
    """The jars that are fetched when they are needed."""
    for name in sorted(LISTS):
        for jar in listed(name):
            yield _component(name, jar.file, jar.group, jar.name, jar.version, jar.sha256)


def _group(jar: Path, name: str) -> str:
    """Maven's group of a jar, as it says itself; empty where it does not."""
    with zipfile.ZipFile(jar) as content:
        poms = [entry.split("/") for entry in content.namelist() if entry.endswith("/pom.properties")]
    return next((parts[2] for parts in poms if len(parts) == 5 and parts[3] == name), "")


def _component(of: str, file: str, group: str, name: str, release: str, digest: str) -> dict[str, Any]:
    known = {"group": group, "purl": f"pkg:maven/{group}/{name}@{release}"} if group and release else {}
    return {
        "type": "library",
        "bom-ref": f"{of}/{file}",
        **known,
        "name": name,
        "version": release,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "properties": [{"name": "manifest-platform:jar", "value": f"{of}: {file}"}],
    }


if __name__ == "__main__":
    sys.exit(main())
