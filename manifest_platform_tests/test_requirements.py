"""The check that comes before everything else on a fresh machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "requirements"
OLD_PYTHON = '[ "$1" = --version ] && echo Python 3.9.2'


@pytest.fixture
def check(tmp_path):
    """Runs the script where only the given programs are installed."""

    def _check(**programs: str) -> subprocess.CompletedProcess[str]:
        for tool in ("sed", "head", "sh"):
            (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
        for name, script in programs.items():
            program = tmp_path / name.replace("_", "-").replace("3x", "3.")
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        return subprocess.run([SCRIPT], cwd=tmp_path, env={"PATH": str(tmp_path)}, capture_output=True, text=True)

    return _check


def java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-01-01' >&2"


def test_the_newest_python_that_works_is_named(check):
    done = check(python3="exit 0", python3x12="exit 0", python3x13="exit 1", java=java("17.0.15"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("/python3.12\n")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_and_newer_will_do(check, version):
    assert check(python3="exit 0", java=java(version)).returncode == 0


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ({"python3": "exit 0"}, "manifest_platform needs Java 17 or newer (found: no Java)."),
        ({"python3": "exit 0", "java": java("1.8.0_392")}, "needs Java 17 or newer (found: Java 8 at java)."),
        ({"python3": "exit 0", "java": java("11.0.2")}, "needs Java 17 or newer (found: Java 11 at java)."),
        ({"python3": "exit 0", "java": "echo 'Unable to locate a Java Runtime.' >&2; exit 1"}, "(found: no Java)."),
        ({"java": java("17.0.15")}, "needs Python 3.11 or newer with venv (found: no python3)."),
        ({"python3": OLD_PYTHON, "java": java("17.0.15")}, "with venv (found: Python 3.9.2)."),
        ({}, "Python 3.11 or newer with venv (found: no python3), and Java 17 or newer (found: no Java)."),
    ],
)
def test_what_is_missing_is_one_message(check, programs, message):
    done = check(**programs)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("needs") == 1


@pytest.mark.parametrize(("manager", "command"), [("apt-get", "sudo apt-get install"), ("dnf", "sudo dnf"), ("brew", "brew")])
def test_the_command_is_the_machines_own(check, manager, command):
    done = check(**{manager: "exit 0"})
    assert f"{command}" in done.stderr
    assert "python" in done.stderr.split(command)[1]
    assert any(word in done.stderr.split(command)[1] for word in ("jdk", "jre"))
