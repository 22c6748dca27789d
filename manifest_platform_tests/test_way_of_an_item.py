"""How many modules a reader must know to follow an item; and that they are counted right."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "way_of_an_item"
MOST = 49
"""Modules that the drain of one item may execute, Spark's workers included."""
TYPED = "manifest_platform.sources.snowplow.atomic"


def test_one_items_drain_executes_few_modules() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, total = done.stdout.splitlines()
    counted = re.fullmatch(r"(\d+) modules, \d+ functions; without Spark's workers (\d+) modules", total)
    assert counted, total
    modules, own = (int(number) for number in counted.groups())
    assert len(lines) == modules <= MOST
    told = {name: rest for _, name, rest in (line.split(maxsplit=2) for line in lines)}
    # What runs is there, in this process and in Spark's workers; what is only imported is not.
    assert "manifest_platform.pipeline.drain" in told
    assert told[TYPED].endswith("in workers")
    assert sum(rest.endswith("in workers") for rest in told.values()) == modules - own
    assert "manifest_platform.config" not in told
    layers = [line.split()[0] for line in lines]
    assert "no" not in layers
    assert layers.index("pipeline") < layers.index("manifest") < layers.index("failpoints")
