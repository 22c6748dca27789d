"""Checks the CloudFormation stacks of `deploy/aws` with checkov: `python scripts/checkov.py`.

checkov needs other releases of packages than the platform, so it gets an environment of its own: installed once a machine by
the hashes of `scripts/checkov.txt`, and kept in the user's cache. `make checkov-tools` writes that file again.

A rule that is passed over is named at its resource, with the reason. Exits 1 if a rule is broken, 2 if checkov cannot be
installed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from manifest_platform.demo.server import kept

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "scripts" / "checkov.txt"
UV = Path(sys.executable).parent / "uv"


def main() -> int:
    """Checks all stacks. Returns the exit code."""
    try:
        checkov = installed()
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"checkov cannot be installed: {error.stderr}\n")
        return 2
    command = [checkov, "--directory", ROOT / "deploy" / "aws", "--framework", "cloudformation"]
    # What it would download are texts about its rules.
    return subprocess.run([*command, "--compact", "--quiet", "--skip-download"], check=False).returncode


def installed() -> Path:
    """The program, installed on first use. Safe with several processes."""
    digest = hashlib.sha256(TOOLS.read_bytes()).hexdigest()[:12]
    with kept(f"checkov-{digest}") as folder:
        if not folder.exists():
            begun = folder.with_name(f"{folder.name}.begun")
            shutil.rmtree(begun, ignore_errors=True)
            install = [UV, "pip", "install", "--quiet", "--require-hashes", "--python", begun, "--requirements", TOOLS]
            for step in ([UV, "venv", "--quiet", "--relocatable", "--python", sys.executable, begun], install):
                subprocess.run(step, check=True, capture_output=True, text=True)
            begun.rename(folder)
    return folder / "bin" / "checkov"


if __name__ == "__main__":
    sys.exit(main())
