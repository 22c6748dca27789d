"""What goes out: text for terminals, logs and Dagster, free of secrets and of characters that a terminal obeys.

Belongs here: how a text is made fit to be read by people, and the nets below the borders: Python's logging, and errors that
nothing catches. Names of directories, the words of servers, stderr of programs and records of the store come from others. Each
may hold an escape sequence that clears a line, a carriage return that overwrites it, or a mark that turns the reading
direction. Such a character is shown as Python escapes it, `\\x1b`. `clean` leaves line ends and tabs, which layouts need;
`line` escapes them too.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

from manifest_platform.masking import masked

_OBEYED = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, of which escape sequences and carriage returns are made; not \t and \n
    r"\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line separators, and what turns the reading direction
    r"\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations and tags, which are not seen
    r"\ud800-\udfff"  # bytes of a name that are no text: nothing can print them
)
_CONTROLS = re.compile(f"[{_OBEYED}]")
_CONTROLS_AND_LINES = re.compile(f"[{_OBEYED}\t\n]")


def clean(text: str) -> str:
    """The text without secrets, and with escapes for what a terminal would obey; line ends and tabs stay."""
    return printable(masked(text))


def line(text: str) -> str:
    """The text as a part of one line: without secrets, and with escapes for line ends and tabs too."""
    return _CONTROLS_AND_LINES.sub(_escaped, masked(text))


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey; line ends and tabs stay."""
    return _CONTROLS.sub(_escaped, text)


def in_json(text: str) -> str:
    """A JSON text with JSON's escapes for what a terminal would obey, which stands within strings alone; it means the same."""
    return _CONTROLS.sub(_escaped_in_json, text)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _escaped_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", errors="surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# Nets below the borders: what nobody wrote down as text of ours


def guard() -> None:
    """Makes clean what Python itself says of this process: log lines, and errors that nothing catches. May be called again."""
    sys.excepthook = _say_uncaught
    threading.excepthook = lambda told: _say_uncaught(told.exc_type, told.exc_value, told.exc_traceback)
    before = logging.getLogRecordFactory()
    if getattr(before, "is_clean", False):
        return

    def make(*arguments: Any, **more: Any) -> logging.LogRecord:
        return _clean_record(before(*arguments, **more))

    make.is_clean = True  # ty: ignore[missing-attribute]
    logging.setLogRecordFactory(make)


def _clean_record(record: logging.LogRecord) -> logging.LogRecord:
    """A log record whose message is clean; where it tells of an error, that is kept as clean text."""
    try:
        record.msg, record.args = clean(record.getMessage()), ()
    except (TypeError, ValueError, KeyError):  # logging tells of arguments that do not fit by itself
        return record
    if record.exc_info and record.exc_info[1]:
        record.exc_text, record.exc_info = clean("".join(traceback.format_exception(record.exc_info[1])).rstrip()), None
    return record


def _say_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if issubclass(kind, SystemExit):
        return
    sys.stderr.write(clean("".join(traceback.format_exception(kind, error, trace))))


class Unsaid(Exception):
    """Stands for an error whose own text cannot be freed of secrets; says the same with them masked."""


def freed(error: BaseException) -> BaseException:
    """The error, for whoever writes down its text and all that led to it: without the secrets that libraries put there.

    The arguments of each error of the chain are masked. One that tells secrets all the same is replaced by an Unsaid.
    """
    if not _tells_secrets(error):
        return error
    for each in _chain(error):
        each.args = tuple(masked(one) if isinstance(one, str) else one for one in each.args)
        if notes := getattr(each, "__notes__", None):
            each.__notes__ = [masked(note) for note in notes]
    return _stand_in(error, set())


def _tells_secrets(error: BaseException) -> bool:
    text = "".join(traceback.format_exception(error))
    return masked(text) != text


def _chain(error: BaseException) -> list[BaseException]:
    """An error and all that led to it, also within groups."""
    found: dict[int, BaseException] = {}
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            within = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            waiting += [one for one in (each.__cause__, each.__context__, *within) if one is not None]
    return list(found.values())


def _stand_in(error: BaseException, seen: set[int]) -> BaseException:
    """The error, or what stands for it, with such causes alone."""
    seen.add(id(error))
    said = "".join(traceback.format_exception_only(error))
    fit = error if masked(said) == said else Unsaid(masked(said.strip())).with_traceback(error.__traceback__)
    cause, context = error.__cause__, error.__context__
    suppressed = error.__suppress_context__
    fit.__cause__ = _stand_in(cause, seen) if cause and id(cause) not in seen else None
    fit.__context__ = _stand_in(context, seen) if context and id(context) not in seen else None
    fit.__suppress_context__ = suppressed or fit.__cause__ is not None
    return fit
