"""Makes a release of what is committed: sets the version, builds twice, tries the wheel, commits and tags. Uploads nothing.

The changelog must have a section of the version, `## X.Y.Z (unreleased)`, which gets the day's date. The source archive and the
wheel that is built from it must come out the same a second time, byte for byte; they and their hashes lie in `dist/X.Y.Z`.
Nothing that is not committed may lie here, and a step that fails leaves everything as it was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
NAMES = {
    "manifest_platform/__init__.py": '__version__ = "{}"',
    "spark_conf/glue.conf": "manifest_platform-{}-py3-none-any.whl",
}
"""The files that name the version, and how."""
CHANGELOG = "CHANGELOG.md"


class Refused(Exception):
    """No release can be made; the message says why, and what to do."""


def main() -> int:
    """Makes the release of a version, and prints the next steps."""
    parser = argparse.ArgumentParser(prog="make release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", metavar="VERSION", help="as 1.2.3")
    version: str = parser.parse_args().version
    try:
        release(version, datetime.now(UTC).strftime("%Y-%m-%d"))
    except Refused as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(
        f"manifest-platform {version} is committed and tagged v{version}; its files lie in dist/{version}."
        " Nothing was uploaded. Next:\n\n"
        f"  git push origin HEAD v{version}\n  {os.path.relpath(UV)} publish dist/{version}/*.whl dist/{version}/*.tar.gz\n"
    )
    return 0


def release(version: str, day: str) -> None:
    """Makes a release of this day. Raises Refused, and leaves everything as it was."""
    before = _version()
    _check(version, before)
    head = _git("rev-parse", "HEAD")
    try:
        for file, named in NAMES.items():
            _replace(file, named.format(before), named.format(version))
        _replace(CHANGELOG, f"## {version} (unreleased)\n", f"## {version} ({day})\n")
        _build(version)
        _git("commit", "--quiet", "--all", "--message", f"Release {version}")
        _git("tag", "--annotate", f"v{version}", "--message", f"manifest-platform {version}")
    except BaseException:
        _git("reset", "--quiet", "--hard", head)  # it was clean
        shutil.rmtree(ROOT / "dist" / version, ignore_errors=True)
        raise


def _check(version: str, before: str) -> None:
    """Raises Refused unless a release of this version may be made of what lies here."""
    if not VERSION.fullmatch(version):
        raise Refused(f"{version} is no version; write make release VERSION=1.2.3")
    if _git("status", "--porcelain"):
        raise Refused("there is what is not committed (git status): commit it, or put it away")
    if _git("tag", "--list", f"v{version}"):
        raise Refused(f"the tag v{version} is there: that version is released")
    if _number(version) < _number(before):
        raise Refused(f"{version} comes before {before}, which is the version here")
    section = re.search(
        rf"^## {re.escape(version)} \(unreleased\)\n(.*?)(?=^## |\Z)", _text(CHANGELOG), re.MULTILINE | re.DOTALL
    )
    if not section or not section[1].strip():
        raise Refused(f"{CHANGELOG} tells nothing of {version}: write what is new below '## {version} (unreleased)'")


def _build(version: str) -> None:
    """Builds the release's files into their folder, after it has built them twice alike and tried the wheel. Raises Refused."""
    # Times in the archives are those of the commit, so that everybody who builds it gets the same.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct"), "VIRTUAL_ENV": sys.prefix}
    with tempfile.TemporaryDirectory() as work:
        builds = [Path(work, number) for number in ("first", "second")]
        for folder in builds:
            _run(UV, "build", "--quiet", "--no-build-isolation", "--out-dir", folder, ROOT, environment=environment)
            (folder / ".gitignore").unlink(missing_ok=True)
        first, second = ({file.name: file.read_bytes() for file in sorted(folder.iterdir())} for folder in builds)
        if first != second:
            differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
            raise Refused(f"built twice, these are not the same: {', '.join(differing)}")
        [wheel] = builds[0].glob("*.whl")
        _try(wheel, version, Path(work))
        place = ROOT / "dist" / version
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(builds[0], place)
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in first.items()]
    (place / "SHA256SUMS").write_text("".join(sums))


def _try(wheel: Path, version: str, work: Path) -> None:
    """Raises Refused unless the wheel, installed elsewhere without extras, answers as the version."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    _run(UV, "venv", "--quiet", "--python", sys.executable, work / "venv", environment=environment)
    python = work / "venv" / "bin" / "python"
    _run(UV, "pip", "install", "--quiet", "--python", python, wheel, environment=environment)
    told = _run(python, "-m", "manifest_platform", "--version", environment=environment, folder=work)
    if not told.startswith(f"manifest-platform {version}, "):
        raise Refused(f"the wheel says of itself: {told}")
    _run(python, "-m", "manifest_platform", "config", "schema", environment=environment, folder=work)


def _version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', _text("manifest_platform/__init__.py"), re.MULTILINE)
    assert found
    return found[1]


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _text(file: str) -> str:
    return (ROOT / file).read_text()


def _replace(file: str, old: str, new: str) -> None:
    text = _text(file)
    if old not in text:
        raise Refused(f"{file} does not hold {old!r}, which names the version")
    (ROOT / file).write_text(text.replace(old, new))


def _git(*arguments: str) -> str:
    return _run("git", *arguments)


def _run(*command: str | Path, environment: dict[str, str] | None = None, folder: Path = ROOT) -> str:
    """Returns the output of a command. Raises Refused with its message if it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"`{' '.join(map(str, command))}` failed: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
