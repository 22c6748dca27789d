"""Runs benchmarks one after the other, and prints what they found as one table at the end.

python benchmarks/all.py ordered_load 'discovery --scale 0.03' ...
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Runs the scripts of these names, each with its own arguments if it has any; 1 if any failed."""
    failed, minutes = [], {}
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "results"
        found.touch()
        for name in names:
            print(f"== {name}", flush=True)
            began = time.monotonic()
            script, *arguments = shlex.split(name)
            line = [sys.executable, HERE / f"{script}.py", *arguments]
            done = subprocess.run(line, env={**os.environ, results.FILE: str(found)})
            minutes[name] = (time.monotonic() - began) / 60
            if done.returncode:
                failed.append(name)
        print(f"\n{results.table(results.read(found))}\n")
    print(f"{sum(minutes.values()):.1f} minutes: {', '.join(f'{name} {taken:.1f}' for name, taken in minutes.items())}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
