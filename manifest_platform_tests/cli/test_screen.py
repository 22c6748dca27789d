"""What a terminal gets, and a pipe: widths, colors, and how far work is."""

import io
import os
import time

import pytest

from manifest_platform import progress
from manifest_platform.cli import output, waiting
from manifest_platform.cli.output import colored, print_table, say, wrapped


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch):
    """Makes stdout and stderr a terminal of the given columns, and returns its output."""

    def make(columns: int) -> Terminal:
        terminal = Terminal()
        for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        return terminal

    return make


ROW = ("run=2026-01-31-12-00-00", "Failed", "x" * 70, "a note that is long " * 4)
HEADS = ("item", "state", "application", "")


@pytest.mark.parametrize("columns", [60, 100, 200])
def test_a_table_fits_its_terminal_and_cuts_the_widest_columns(screen, columns):
    terminal = screen(columns)
    os.environ["NO_COLOR"] = "1"
    print_table(HEADS, [ROW])
    head, row = terminal.getvalue().splitlines()
    assert max(len(head), len(row)) <= columns
    assert row.startswith("run=2026-01-31-12-00-00  Failed  x")
    assert ("…" in row) == (columns < 200)


def test_a_table_in_a_pipe_is_not_cut_and_has_no_colors(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    print_table(HEADS, [ROW])
    assert capsys.readouterr().out.splitlines()[1] == f"run=2026-01-31-12-00-00  Failed  {'x' * 70}  {ROW[3].strip()}"


@pytest.mark.parametrize(("columns", "width"), [(20, 40), (60, 60), (200, 120)])
def test_running_text_is_as_wide_as_the_terminal_within_reason(screen, columns, width):
    screen(columns)
    lines = wrapped("word " * 100).splitlines()
    assert width - 5 < max(map(len, lines)) <= width


def test_running_text_in_a_pipe_has_one_width(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, wrapped("word " * 100).splitlines())) in range(90, 97)


@pytest.mark.parametrize(
    ("environment", "in_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"CLICOLOR": "0"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_the_environment_says_whether_there_are_colors(screen, monkeypatch, environment, in_terminal, in_pipe):
    terminal = screen(80)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colored(terminal) is in_terminal
    assert colored(io.StringIO()) is in_pipe


def test_words_that_say_how_something_stands_have_their_color(screen):
    terminal = screen(80)
    say("load  BLOCKED by run=1")
    say("✓ run=1  loaded")
    print_table(("item", "state"), [("Failed", "Failed")])
    assert terminal.getvalue().splitlines() == [
        "load  \x1b[31mBLOCKED\x1b[0m by run=1",
        "\x1b[32m✓\x1b[0m run=1  loaded",
        "item    state",
        "Failed  \x1b[31mFailed\x1b[0m",  # the first is a name
    ]


def test_what_others_wrote_gets_no_escape_of_its_own_through(screen):
    terminal = screen(80)
    say("FAILED \x1b[2J")
    assert terminal.getvalue() == "\x1b[31mFAILED\x1b[0m \\x1b[2J\n"


def _works(seconds: float) -> None:
    with progress.work("shredding", 4, "rows") as work:
        work.advance(1)
        time.sleep(seconds)
        say("said meanwhile")


def test_a_terminal_has_one_line_that_goes_when_something_is_said(screen, monkeypatch):
    terminal = screen(30)
    monkeypatch.setattr(waiting, "_REDRAWN", 0.01)
    with waiting.told_how_far(as_json=False):
        _works(0.1)
    told = terminal.getvalue()
    assert told.startswith("\r\x1b[K  shredding: 25%, 1 of 4 row…")  # one column less than there are: the cursor's
    assert "\r\x1b[Ksaid meanwhile\n" in told
    assert told.endswith("\n") or told.endswith("\r\x1b[K")


def test_a_pipe_has_a_line_now_and_then_and_json_none(capsys, monkeypatch):
    monkeypatch.setattr(waiting, "EVERY", 0.01)
    with waiting.told_how_far(as_json=False):
        _works(0.1)
    captured = capsys.readouterr()
    assert captured.out == "said meanwhile\n"
    assert captured.err.splitlines()[0] == "  shredding: 25%, 1 of 4 rows, 0 s"
    with waiting.told_how_far(as_json=True):
        _works(0.05)
    assert capsys.readouterr().err == ""
    assert output.screen() is None
