"""`make release`: what it makes, and what it refuses, in a clone of this repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manifest_platform import __version__
from manifest_platform_tests.installed.environments import REPOSITORY

pytestmark = pytest.mark.installed
NEXT = "99.0.0"


def git(clone: Path, *arguments: str) -> str:
    own = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    return subprocess.run(["git", *own, *arguments], cwd=clone, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with what is here, committed, and a section of the next version in the changelog."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", REPOSITORY.as_uri(), clone], check=True)
    changed = subprocess.run(
        ["git", "ls-files", "--modified", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for name in changed:
        if (REPOSITORY / name).exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, clone / name)
    changelog = clone / "CHANGELOG.md"
    changelog.write_text(
        changelog.read_text().replace("# Changelog\n", f"# Changelog\n\n## {NEXT} (unreleased)\n\n- All.\n", 1)
    )
    git(clone, "config", "user.name", "Somebody")
    git(clone, "config", "user.email", "somebody@example.org")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "What is here")
    return clone


def release(clone: Path, version: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, clone / "scripts" / "release.py", version], capture_output=True, text=True)


def test_a_release_is_built_tried_committed_and_tagged(clone: Path) -> None:
    done = release(clone, NEXT)
    assert done.returncode == 0, done.stderr
    assert "Nothing was uploaded" in done.stdout
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "describe", "--exact-match").strip() == f"v{NEXT}"
    shown = git(clone, "show", "--unified=0", "HEAD")
    assert f'+__version__ = "{NEXT}"' in shown
    assert re.search(rf"^\+## {re.escape(NEXT)} \(\d{{4}}-\d\d-\d\d\)$", shown, re.MULTILINE)
    folder = clone / "dist" / NEXT
    stem = f"manifest_platform-{NEXT}"
    assert {path.name for path in folder.iterdir()} == {f"{stem}.tar.gz", f"{stem}-py3-none-any.whl", "SHA256SUMS"}
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder).returncode == 0
    again = release(clone, NEXT)
    assert (again.returncode, again.stderr) == (1, f"error: the tag v{NEXT} is there: that version is released\n")


@pytest.mark.parametrize(
    ("version", "change", "told"),
    [
        ("1.0", None, "1.0 is no version"),
        ("98.0.0", None, "CHANGELOG.md tells nothing of 98.0.0"),
        ("0.0.1", None, f"0.0.1 comes before {__version__}"),
        (NEXT, "manifest_platform/new.py", "there is what is not committed"),
        (NEXT, "spark_conf/glue.conf", "spark_conf/glue.conf does not hold"),
    ],
)
def test_what_is_no_release_is_refused_and_leaves_everything_as_it_was(
    clone: Path, version: str, change: str | None, told: str
) -> None:
    if change:
        (clone / change).write_text("# another\n")
    if change == "spark_conf/glue.conf":
        git(clone, "commit", "--quiet", "--all", "--message", "Another")
    before = git(clone, "status", "--porcelain"), git(clone, "log", "--oneline")
    done = release(clone, version)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr
    assert (git(clone, "status", "--porcelain"), git(clone, "log", "--oneline")) == before
    assert not (clone / "dist" / version).exists()
