"""The previous release, from the repository's history: its commands, run in processes of their own.

It shares this environment's libraries. Its code is in the user's cache directory, beside a description of its entry points,
by which it finds its own plug-ins.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifest_platform.demo.server import kept

COMMIT = "be340da949e3157194e2ea6477c2ad1d7a3e16b2"
"""The last one of release 0.1.0, which wrote no versions."""
REPOSITORY = Path(__file__).parents[2]
_RUN = """
import contextlib, io, json, sys, traceback
import manifest_platform
from manifest_platform.cli.app import main
assert manifest_platform.__version__ == "0.1.0", manifest_platform.__file__
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = int(main(line))
        except BaseException:
            code = -1
            traceback.print_exc()
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass(frozen=True)
class Answer:
    """The exit code and output of a command; the code is -1 if the command failed with a traceback."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class ReleaseBefore:
    """The release before, in a folder."""

    folder: Path

    def run(self, *lines: Sequence[str], environment: dict[str, str] | None = None) -> list[Answer]:
        """Runs command lines, one after another in one process."""
        done = subprocess.run(
            [sys.executable, "-c", _RUN, json.dumps(lines)],
            cwd=self.folder,  # where -c looks first
            env={**os.environ, "PYTHONPATH": str(self.folder), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        assert len(answers) == len(lines), done.stdout + done.stderr
        return [Answer(*answer) for answer in answers]


@pytest.fixture(scope="session")
def release_before() -> ReleaseBefore:
    """The previous release. Fails if the repository's history lacks it, because the tests could not check anything."""
    with kept(f"release-{COMMIT[:12]}") as folder:
        if not (folder / "complete").exists():
            _extract(folder)
    return ReleaseBefore(folder)


def _extract(folder: Path) -> None:
    command = ["git", "-C", str(REPOSITORY), "archive", COMMIT, "manifest_platform", "spark_conf", "pyproject.toml"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        pytest.fail(
            f"the release before this one, commit {COMMIT[:12]}, is not in this checkout, so nothing is known of two releases"
            f" on one store; get the whole history: git fetch --unshallow ({archive.stderr.decode().strip()})"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *(f"{n} = {of}" for n, of in points.items()))]
    description = folder / "manifest_platform-0.1.0.dist-info"
    description.mkdir(exist_ok=True)
    (description / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (description / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    (folder / "complete").touch()
