"""What benchmarks found, in one form: told by each script as it comes, and by `make bench` as one table at its end."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = "BENCHMARK_RESULTS"
"""Names the file that results are added to, as lines of JSON."""
HEADER = ("benchmark", "what", "ours", "peer", "ratio", "goal", "")


@dataclass(frozen=True)
class Result:
    """A figure with a goal, as it is shown; where there is a peer, the goal is about the ratio."""

    what: str
    ours: str
    peer: str
    ratio: str
    goal: str
    reached: bool
    benchmark: str = dataclasses.field(default_factory=lambda: Path(sys.argv[0]).stem)

    @property
    def cells(self) -> tuple[str, ...]:
        """Returns a row of the table."""
        return (self.benchmark, self.what, self.ours, self.peer, self.ratio, self.goal, "reached" if self.reached else "missed")


def tell(result: Result) -> None:
    """Prints a result, and keeps it for the table."""
    against = f"ours {result.ours}, {result.peer}, ratio {result.ratio}" if result.peer else result.ours
    print(f"{result.what:32} {against}   goal: {result.goal}   {result.cells[-1]}", flush=True)
    if os.environ.get(FILE):
        with Path(os.environ[FILE]).open("a") as file:
            file.write(json.dumps(dataclasses.asdict(result)) + "\n")


def read(file: Path) -> list[Result]:
    """The results that were added to a file."""
    return [Result(**json.loads(line)) for line in file.read_text().splitlines()]


def table(results: Sequence[Result]) -> str:
    """The results as text, a line each."""
    rows = [HEADER, *(result.cells for result in results)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADER))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
