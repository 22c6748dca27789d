"""How answers look, whatever they are of: text for people, as wide as their screen, and JSON.

A terminal gets its own width, and colors for words that say how something stands. What is not read by a person, a pipe or a
file, gets plain text: tables are not cut there, and running text is 96 columns wide. `NO_COLOR` keeps colors away everywhere,
`FORCE_COLOR` or `CLICOLOR_FORCE` puts them into a pipe too, `CLICOLOR=0` and `TERM=dumb` are obeyed.
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
"""How wide running text is where there is no screen."""
_NARROWEST, _WIDEST_TEXT, _NARROWEST_CELL = 40, 120, 12
NAMES_SHOWN = 5
ROWS_SHOWN = 100
CELL_WIDTH = 48


# The screen


def screen() -> int | None:
    """How many columns the terminal has that stdout is; None where it is none, and nothing is to be cut."""
    return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else None


def text_width() -> int:
    """How wide running text is: as the screen, but no wider than is read well."""
    return min(screen() or WIDTH, _WIDEST_TEXT)


def colored(stream: Any) -> bool:
    """Whether what is written to a stream may have colors."""
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
"""What says how something stands, and its color; words are such in capitals, or alone in a cell of a table."""
_STANDINGS = re.compile(
    r"^(?:✓|✗|↺|…|error:|warning:)"
    r"|\b(?:READY|APPLIED|PROCESSED|LOADED|WAITING|PROCESSING|QUARANTINED|BLOCKED|FAILED)\b"
    r"|(?<=  )(?:Processed|Processing|Resolved|Failed|late)(?=  |$)",
    re.MULTILINE,
)


def _paint(text: str) -> str:
    return f"\x1b[{_COLORS[text]}m{text}\x1b[0m"


class Live:
    """The last line of a terminal, which tells how far work is. What is said goes above it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._drawn = False

    def draw(self, text: str) -> None:
        """Puts the text in the place of the one before, on stderr, as much of it as fits."""
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        with self.lock:
            sys.stderr.write(f"\r\x1b[K{_cut(text, columns - 1)}")
            sys.stderr.flush()
            self._drawn = True

    def erase(self) -> None:
        """Leaves the line empty."""
        with self.lock:
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._drawn = False


live = Live()


def _echo(text: str, stream: Any, err: bool = False) -> None:
    """Writes clean text, with colors where the stream may have them."""
    told = outward.clean(text)
    if colors := colored(stream):
        told = _STANDINGS.sub(lambda found: _paint(found[0]), told)
    with live.lock:
        live.erase()
        typer.echo(told, err=err, color=colors)


# Text


def wrapped(text: str, first: str = "", others: str = "") -> str:
    """The text in lines of the screen's width; URIs stay whole, so that they can be copied."""
    return textwrap.fill(
        outward.clean(text),
        text_width(),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )


def print_lines(lines: dict[str, str]) -> None:
    """Labelled lines below a heading; empty ones are left out."""
    for label, text in lines.items():
        if text:
            say(wrapped(text, f"      {label:<12}", " " * 18))


def aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A row of a table, its columns as wide as they are told; what is longer is cut at its end."""
    return "  ".join(f"{_cut(cell, width):<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cut(text: str, width: int) -> str:
    line = outward.line(text)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows below their heads, each column as wide as its widest cell.

    On a screen that is narrower, the widest columns are cut until the row fits; names of items and tables stand in the first
    column, which is cut last.
    """
    lines = [[outward.line(cell) for cell in row] for row in (heads, *rows)]
    widths = _narrowed([max(len(row[column]) for row in lines) for column in range(len(heads))], screen())
    for row in lines:
        say(aligned(row, widths))


def _narrowed(widths: list[int], room: int | None) -> list[int]:
    """The widths of columns, the widest ones but the first cut until they fit side by side."""
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
    """Prints what a query finds: all of it as JSON, or what a screen holds.

    `ask`: the names of its columns, and its rows, the first so many or all.
    """
    columns, rows = ask(None if as_json else ROWS_SHOWN + 1)
    if as_json:
        print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif columns:
        _print_rows(columns, rows)


def _print_rows(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """The first rows below their heads, numbers to the right; columns that the screen has no room for are left out."""
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
    """A column's lines, all equally wide: its head, a rule and its cells."""
    cells = ["NULL" if value is None else _cell(str(value)) for value in values]
    width = max(map(len, (_cell(head), *cells)))
    side = ">" if all(isinstance(value, int | float | Decimal) for value in values if value is not None) else "<"
    return [f"{_cell(head):{side}{width}}", "─" * width, *(f"{cell:{side}{width}}" for cell in cells)]


def _cell(text: str) -> str:
    return _cut(text, CELL_WIDTH) if screen() else outward.line(text)


def _fitting(widths: Sequence[int], room: int | None) -> list[int]:
    """The columns that fit side by side, by their numbers: as many of the first and of the last as there is room for."""
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
    """The first few names."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(outward.line(name) for name in names[:NAMES_SHOWN]) + more


def say(text: str) -> None:
    """A line of the answer, on stdout."""
    _echo(text, sys.stdout)


def print_json(document: Any) -> None:
    """A document on stdout, on one line; secrets in its texts are masked."""
    text = json.dumps(document, default=_plain, ensure_ascii=False)
    if masked(text) != text:  # within its strings alone: a number that is a secret's digits stays a number
        text = json.dumps(masked_within(json.loads(text)), ensure_ascii=False)
    print_json_line(text)


def print_json_line(text: str) -> None:
    """A line of JSON on stdout as it is, but for characters that a terminal would obey."""
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
    """A line on stderr."""
    _echo(text, sys.stderr, err=True)
