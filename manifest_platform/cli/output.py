"""How answers look, whatever they are of: text for people, 96 columns wide, and JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import typer

from manifest_platform import outward
from manifest_platform.masking import masked, masked_within

WIDTH = 96
NAMES_SHOWN = 5
ROWS_SHOWN = 100
CELL_WIDTH = 48


def wrapped(text: str, first: str = "", others: str = "") -> str:
    """The text in lines of the screen's width; URIs stay whole, so that they can be copied."""
    return textwrap.fill(
        outward.clean(text),
        WIDTH,
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
    """A row of a table, its columns as wide as they are told."""
    return "  ".join(f"{outward.line(cell):<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows below their heads, each column as wide as its widest cell; what is too long for the screen is cut at its end."""
    lines = [[outward.line(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in lines) for column in range(len(heads))]
    for row in lines:
        line = aligned(row, widths)
        say(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…")


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
    fitting = _fitting([len(column[0]) for column in columns])
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
    line = outward.line(text)
    return line if len(line) <= CELL_WIDTH else f"{line[: CELL_WIDTH - 1]}…"


def _fitting(widths: Sequence[int]) -> list[int]:
    """The columns that fit side by side, by their numbers: as many of the first and of the last as there is room for."""
    in_turn = [index for pair in zip(range(len(widths)), reversed(range(len(widths))), strict=True) for index in pair]
    taken: list[int] = []
    room = WIDTH + 2
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
    typer.echo(outward.clean(text))


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
    typer.echo(outward.clean(text), err=True)
