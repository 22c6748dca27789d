"""The archive that brings this package to Spark's workers, whose machines need nothing but Python.

Belongs here: what the archive holds and how it is built. It holds the files of this environment, so workers run the versions
that the driver runs. A worker's Python is its own: `bin/python` in the archive starts one of the version that the archive was
built with, and says so if there is none. It runs on machines of the same kind (operating system and processor) as this machine.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from manifest_platform import extras

_OURS = "manifest-platform"
_EXTRA = re.compile(r"""extra\s*==\s*["']worker["']""")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OF_CORE = ("httpx", "orjson", "pydantic")
"""The packages of the core that tasks of Spark import. Those of the extra `worker` come on top."""
_IF_INSTALLED = ("boto3",)
"""The packages of other extras that tasks import for some configurations: for a KMS key, a role, or a requester who pays."""
_LEFT_OUT_FILES = (".pyi", ".pyc", ".pth")
_LEFT_OUT = {"__pycache__", "tests", "include"}
"""Folders of packages that no task of Spark reads."""
_MODELS, _CALLED = ("botocore", "data"), {"s3", "sts"}
"""The folder of botocore's models, a folder for each service, and the services that tasks of Spark call. All would be 29 MB."""

_STARTER = """\
#!/bin/sh
# Starts this worker's Python, of the version that the packages beside this file are for.
wanted={version}
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
for name in "$MANIFEST_PLATFORM_PYTHON" "python$wanted" python3 python; do
  [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 || continue
  found=$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
  if [ "$found" = "$wanted" ]; then
    PYTHONPATH="$here/site${{PYTHONPATH:+:$PYTHONPATH}}" exec "$name" "$@"
  fi
  met="$met $found"
done
told="this worker has no Python $wanted, which the archive of spark.package was built for; it has:${{met:- none}}."
advice="Install Python $wanted there, name it in MANIFEST_PLATFORM_PYTHON, or build the archive with the workers' version"
echo "manifest-platform: $told $advice" >&2
exit 1
"""


@dataclass(frozen=True)
class Packed:
    """An archive for workers. `python`: the version of Python that it is for. `packages`: name and version of each."""

    path: Path
    bytes: int
    python: str
    packages: dict[str, str]


def build(path: Path) -> Packed:
    """Writes the archive, a .tar.gz file. The same environment gives the same bytes. Raises MissingExtra, OSError."""
    extras.need("jsonschema_rs", "numpy", "pyarrow")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {one.metadata["Name"]: one for one in _distributions()}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with (
        part.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        _add(tar, "bin/python", _STARTER.format(version=version).encode(), 0o755)
        for name in sorted(found):
            for inside, source in sorted(_files(found[name])):
                _add(tar, f"site/{inside}", source.read_bytes())
    part.replace(path)
    return Packed(path, path.stat().st_size, version, {name: found[name].version for name in sorted(found)})


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _distributions() -> list[Distribution]:
    """This package, what tasks of Spark import beside it, and what that needs, as they are installed here."""
    ours = distribution(_OURS)
    found: dict[str, Distribution] = {_normal(_OURS): ours}
    for name in (*_OF_CORE, *(_name(one) for one in ours.requires or () if _EXTRA.search(one))):
        found[_normal(name)] = one = distribution(name)
        _follow(one, found)
    _add_installed(_IF_INSTALLED, found)
    return list(found.values())


def _follow(one: Distribution, found: dict[str, Distribution]) -> None:
    """Adds what a package needs. What is not installed is needed elsewhere only, by another system or Python."""
    _add_installed([_name(needed) for needed in one.requires or () if "extra ==" not in needed], found)


def _add_installed(names: Iterable[str], found: dict[str, Distribution]) -> None:
    """Adds the packages that are installed and not yet found, and what they need."""
    for name in names:
        if _normal(name) in found:
            continue
        try:
            found[_normal(name)] = further = distribution(name)
        except PackageNotFoundError:
            continue
        _follow(further, found)


def _name(requirement: str) -> str:
    match = _NAME.match(requirement)
    return match[0] if match else requirement


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(one: Distribution) -> Iterator[tuple[str, Path]]:
    """The files of a package with their places in the archive. This package may be installed as a link to its source."""
    if _normal(one.metadata["Name"]) == _OURS:
        package = Path(__file__).parents[1]
        for file in package.rglob("*"):
            inside = file.relative_to(package.parent)
            if file.is_file() and _is_needed(inside):
                yield inside.as_posix(), file
    for listed in one.files or ():
        place = Path(str(listed.locate()))
        is_info = bool(listed.parts) and listed.parts[0].endswith(".dist-info")
        if (is_info or _normal(one.metadata["Name"]) != _OURS) and _is_needed(Path(*listed.parts)) and place.is_file():
            yield listed.as_posix(), place


def _is_needed(inside: Path) -> bool:
    """True for a file that a worker may import or load."""
    if inside.parts[: len(_MODELS)] == _MODELS and len(inside.parts) > len(_MODELS) + 1:
        return inside.parts[len(_MODELS)] in _CALLED
    return inside.parts[0] != ".." and not _LEFT_OUT.intersection(inside.parts) and inside.suffix not in _LEFT_OUT_FILES
