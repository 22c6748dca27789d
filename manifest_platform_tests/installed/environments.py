"""The wheel as users have it: built from here, installed into virtual environments of their own, outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
OURS = ("MANIFEST_PLATFORM_", "DAGSTER_", "PYSPARK_", "SPARK_", "PYTHON", "VIRTUAL_ENV", "UV_PROJECT")
"""Prefixes of variables that a user's shell would not have."""


def built(folder: Path) -> Path:
    """The wheel of this repository, built into a folder by the locked tools."""
    command = [UV, "build", "--wheel", "--quiet", "--no-build-isolation", "--out-dir", folder, REPOSITORY]
    # The tools of the build stand in this environment, and are taken from it.
    subprocess.run(command, env={**os.environ, "VIRTUAL_ENV": sys.prefix}, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @classmethod
    def made(cls, folder: Path, python: str | Path = sys.executable) -> Environment:
        """An empty one."""
        subprocess.run([UV, "venv", "--quiet", "--python", python, folder], check=True)
        return cls(folder)

    def install(self, *requirements: str, constraints: Sequence[str] = ()) -> None:
        """Installs packages, from uv's cache where they are in it."""
        file = self.folder / "constraints.txt"
        file.write_text("\n".join(constraints))
        command = [UV, "pip", "install", "--quiet", "--python", self.program("python"), "--constraints", file, *requirements]
        subprocess.run(command, cwd=self.folder, check=True)

    def program(self, name: str) -> Path:
        """A program of the environment."""
        return self.folder / "bin" / name

    def run(self, name: str, *arguments: str, folder: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Runs one of its programs in a folder, as from a fresh shell."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        environment["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{environment['PATH']}"
        command = [self.program(name), *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
