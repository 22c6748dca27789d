"""How many modules a reader must know to follow an item; and that they are counted right."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "way_of_an_item"
MOST, MOST_WITH_WORKERS = 47, 55
"""Modules that the drain of one item may execute, in its own process, and in that and Spark's workers."""
TYPED = "manifest_platform.sources.snowplow.events.atomic"


@pytest.mark.long
def test_one_items_drain_executes_few_modules() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, total = done.stdout.splitlines()
    numbers = re.fullmatch(r"(\d+) modules; (\d+) with what only Spark's workers run; not counted: (\d+)", total)
    assert numbers, total
    own, modules, not_counted = (int(number) for number in numbers.groups())
    assert own <= MOST
    assert modules <= MOST_WITH_WORKERS
    told = {name: rest for _, name, rest in (line.split(maxsplit=2) for line in lines)}
    # What runs is there, in this process and in Spark's workers; what is only imported is not.
    assert "manifest_platform.pipeline.drain" in told
    assert told[TYPED].endswith("in workers")
    assert sum(rest.endswith("in workers") for rest in told.values()) == modules - own
    assert "manifest_platform.config" not in told
    # What is not counted is said with the reason, and is little.
    assert len(lines) == modules + not_counted
    assert [name for name, rest in told.items() if "not counted: " in rest] == [
        "manifest_platform.pipeline.events",
        "manifest_platform.failpoints",
    ]
    layers = [line.split()[0] for line in lines]
    assert "no" not in layers
    assert layers.index("pipeline") < layers.index("manifest") < layers.index("failpoints")
