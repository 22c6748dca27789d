"""Output of all commands: text for people, tables, and JSON.

On a terminal, text is as wide as the terminal, and states are colored. In a pipe or a file, text is plain and 96 columns wide,
and tables are not cut. `NO_COLOR` disables colors everywhere; `FORCE_COLOR` or `CLICOLOR_FORCE` enables them in a pipe too;
`CLICOLOR=0` and `TERM=dumb` disable them on a terminal.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import typer

from manifest_platform import outward
from manifest_platform.masking import masked, masked_within

WIDTH = 96
"""The width of running text without a terminal, in columns."""
_NARROWEST, _WIDEST_TEXT, _NARROWEST_CELL = 40, 120, 12
NAMES_SHOWN = 5
ROWS_SHOWN = 100
CELL_WIDTH = 48


# The screen


def screen() -> int | None:
    """Returns the number of columns of the terminal; None if stdout is no terminal, so that nothing is cut."""
    return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else None


def text_width() -> int:
    """Returns the width of running text: that of the terminal, at most 120 columns."""
    return min(screen() or WIDTH, _WIDEST_TEXT)


def colored(stream: Any) -> bool:
    """Returns True if text on this stream may be colored."""
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb" and os.environ.get("CLICOLOR") != "0"


_GREEN, _YELLOW, _RED = 32, 33, 31
_COLORS = {
    **dict.fromkeys(("✓", "READY", "APPLIED", "PROCESSED", "LOADED", "Processed"), _GREEN),
    **dict.fromkeys(("↺", "…", "warning:", "WAITING", "PROCESSING", "Processing", "QUARANTINED", "Resolved", "late"), _YELLOW),
    **dict.fromkeys(("✗", "error:", "BLOCKED", "FAILED", "Failed"), _RED),
}
"""The colors of signs and states. A state is colored if it is written in capitals or fills a cell of a table."""
_STANDINGS = re.compile(
    r"^(?:✓|✗|↺|…|error:|warning:)"
    r"|\b(?:READY|APPLIED|PROCESSED|LOADED|WAITING|PROCESSING|QUARANTINED|BLOCKED|FAILED)\b"
    r"|(?<=  )(?:Processed|Processing|Resolved|Failed|late)(?=  |$)",
    re.MULTILINE,
)


def _paint(text: str) -> str:
    return f"\x1b[{_COLORS[text]}m{text}\x1b[0m"


class Live:
    """The progress line: the last line of a terminal, redrawn in place. Other output appears above it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._drawn = False

    def draw(self, text: str) -> None:
        """Replaces the line on stderr with the text, cut to the width of the terminal."""
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        with self.lock:
            sys.stderr.write(f"\r\x1b[K{_cut(text, columns - 1)}")
            sys.stderr.flush()
            self._drawn = True

    def erase(self) -> None:
        """Clears the line."""
        with self.lock:
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._drawn = False


live = Live()


def _echo(text: str, stream: Any, err: bool = False) -> None:
    """Writes text without control characters, colored if the stream allows it."""
    told = outward.clean(text)
    if colors := colored(stream):
        told = _STANDINGS.sub(lambda found: _paint(found[0]), told)
    with live.lock:
        live.erase()
        typer.echo(told, err=err, color=colors)


# Text


def wrapped(text: str, first: str = "", others: str = "") -> str:
    """Wraps text to the width of the screen. URIs are not broken, so that they can be copied."""
    return textwrap.fill(
        outward.clean(text),
        text_width(),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )


def print_lines(lines: dict[str, str]) -> None:
    """Prints lines with labels below a heading; those with empty text are left out."""
    for label, text in lines.items():
        if text:
            say(wrapped(text, f"      {label:<12}", " " * 18))


def aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Returns a row of a table with columns of the given widths; longer cells are cut at their end."""
    return "  ".join(f"{_cut(cell, width):<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cut(text: str, width: int) -> str:
    line = outward.line(text)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows below their heads, each column as wide as its widest cell.

    On a narrower screen, the widest columns are cut until the row fits. The first column is cut last, because it has the names
    of items or tables.
    """
    lines = [[outward.line(cell) for cell in row] for row in (heads, *rows)]
    widths = _narrowed([max(len(row[column]) for row in lines) for column in range(len(heads))], screen())
    for row in lines:
        say(aligned(row, widths))


def _narrowed(widths: list[int], room: int | None) -> list[int]:
    """Reduces the widths of columns until they fit into `room`: the widest columns first, the first column last."""
    if room is None:
        return widths
    left = list(widths)
    while (excess := sum(left) + 2 * (len(left) - 1) - room) > 0:
        others = [column for column in range(1, len(left)) if left[column] > _NARROWEST_CELL]
        column = max(others, key=lambda one: left[one]) if others else 0
        if left[column] <= _NARROWEST_CELL:
            break
        second = max((left[one] for one in others if one != column), default=_NARROWEST_CELL)
        left[column] -= min(excess, max(1, left[column] - max(second, _NARROWEST_CELL)))
    return left


def print_answer(ask: Callable[[int | None], tuple[Sequence[str], Sequence[Sequence[Any]]]], as_json: bool) -> None:
    """Prints the rows of a query: all rows as JSON, or the first rows as a table.

    `ask`: takes the number of rows to fetch, None for all; returns the column names and the rows.
    """
    columns, rows = ask(None if as_json else ROWS_SHOWN + 1)
    if as_json:
        print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif columns:
        _print_rows(columns, rows)


def _print_rows(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints the first rows below their heads, numbers aligned right. Columns that do not fit on the screen are left out."""
    shown = rows[:ROWS_SHOWN]
    columns = [_column(head, [row[index] for row in shown]) for index, head in enumerate(heads)]
    fitting = _fitting([len(column[0]) for column in columns], screen())
    for line in zip(*(columns[index] for index in fitting), strict=True):
        say("  ".join(line).rstrip())
    said = [f"the first {ROWS_SHOWN} rows" if len(rows) > ROWS_SHOWN else f"{len(rows)} row{'' if len(rows) == 1 else 's'}"]
    if len(fitting) < len(columns):
        said.append(f"{len(fitting)} of {len(columns)} columns")
    is_all = len(rows) <= ROWS_SHOWN and len(fitting) == len(columns)
    say(f"({', '.join(said)}{'' if is_all else '; --json has all'})")


def _column(head: str, values: Sequence[Any]) -> list[str]:
    """Returns the lines of a column, all equally wide: its head, a rule and its cells."""
    cells = ["NULL" if value is None else _cell(str(value)) for value in values]
    width = max(map(len, (_cell(head), *cells)))
    side = ">" if all(isinstance(value, int | float | Decimal) for value in values if value is not None) else "<"
    return [f"{_cell(head):{side}{width}}", "─" * width, *(f"{cell:{side}{width}}" for cell in cells)]


def _cell(text: str) -> str:
    return _cut(text, CELL_WIDTH) if screen() else outward.line(text)


def _fitting(widths: Sequence[int], room: int | None) -> list[int]:
    """Returns the indexes of the columns that fit side by side, chosen in turn from the first and from the last."""
    if room is None:
        return list(range(len(widths)))
    in_turn = [index for pair in zip(range(len(widths)), reversed(range(len(widths))), strict=True) for index in pair]
    taken: list[int] = []
    room += 2
    for index in dict.fromkeys(in_turn):
        room -= widths[index] + 2
        if room < 0:
            break
        taken.append(index)
    return sorted(taken)


def some(names: Sequence[str]) -> str:
    """Returns the first five names, and the number of the others."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(outward.line(name) for name in names[:NAMES_SHOWN]) + more


def say(text: str) -> None:
    """Prints a line of the answer on stdout."""
    _echo(text, sys.stdout)


def print_json(document: Any) -> None:
    """Prints a JSON document on stdout, on one line. Secrets in its strings are masked."""
    text = json.dumps(document, default=_plain, ensure_ascii=False)
    if masked(text) != text:  # only within strings: a number with the digits of a secret must stay a number
        text = json.dumps(masked_within(json.loads(text)), ensure_ascii=False)
    print_json_line(text)


def print_json_line(text: str) -> None:
    """Prints a line of JSON on stdout, with terminal control characters escaped."""
    typer.echo(outward.in_json(text))


def _plain(value: Any) -> Any:
    from manifest_platform.manifest import ItemKey
    from manifest_platform.manifest.records import format_time

    if isinstance(value, ItemKey):
        return {"feed": value.feed, "name": value.name, "uri": value.id}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, datetime) and value.tzinfo:
        return format_time(value)
    return str(value)


def warn(text: str) -> None:
    """Prints a line on stderr."""
    _echo(text, sys.stderr, err=True)
