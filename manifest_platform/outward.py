"""Makes texts fit for terminals, logs and Dagster: without secrets and without characters that control a terminal.

Belongs here: cleaning texts, and catching texts that nobody cleaned: Python's logging, and uncaught errors. Names of
directories, responses of servers, stderr of programs and stored records come from others. Each may contain an escape sequence
that clears a line, a carriage return that overwrites it, or a mark that changes the reading direction. Such a character is
shown as Python escapes it: `\\x1b`. `clean` keeps line ends and tabs, which layouts need; `line` escapes them, too.
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
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, including escape and carriage return, without \t and \n
    r"\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line separators, and marks that change the reading direction
    r"\ufff9-\ufffb\U000e0000-\U000e007f"  # invisible annotations and tags
    r"\ud800-\udfff"  # surrogates for undecodable bytes of a name, which cannot be printed
)
_CONTROLS = re.compile(f"[{_OBEYED}]")
_CONTROLS_AND_LINES = re.compile(f"[{_OBEYED}\t\n]")


def clean(text: str) -> str:
    """The text without secrets, with control characters escaped; line ends and tabs stay."""
    return printable(masked(text))


def line(text: str) -> str:
    """The text as a part of one line: without secrets, with control characters, line ends and tabs escaped."""
    return _CONTROLS_AND_LINES.sub(_escaped, masked(text))


def printable(text: str) -> str:
    """The text with control characters escaped; line ends and tabs stay. Secrets are not masked."""
    return _CONTROLS.sub(_escaped, text)


def in_json(text: str) -> str:
    """A JSON text with control characters escaped in JSON's way. They occur only within strings, so its meaning is the same."""
    return _CONTROLS.sub(_escaped_in_json, text)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _escaped_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", errors="surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# Texts that did not pass `clean`: log records and uncaught errors


def guard() -> None:
    """Installs hooks that clean log lines and uncaught errors of this process. Idempotent."""
    sys.excepthook = _print_uncaught
    threading.excepthook = lambda hook: _print_uncaught(hook.exc_type, hook.exc_value, hook.exc_traceback)
    before = logging.getLogRecordFactory()
    if getattr(before, "is_clean", False):
        return

    def make(*arguments: Any, **more: Any) -> logging.LogRecord:
        return _clean_record(before(*arguments, **more))

    make.is_clean = True  # ty: ignore[missing-attribute]
    logging.setLogRecordFactory(make)


def _clean_record(record: logging.LogRecord) -> logging.LogRecord:
    """Cleans the message of a log record, and replaces its exception by clean text."""
    try:
        record.msg, record.args = clean(record.getMessage()), ()
    except (TypeError, ValueError, KeyError):  # logging reports arguments that do not match the message
        return record
    if record.exc_info and record.exc_info[1]:
        record.exc_text, record.exc_info = clean("".join(traceback.format_exception(record.exc_info[1])).rstrip()), None
    return record


def _print_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if issubclass(kind, SystemExit):
        return
    sys.stderr.write(clean("".join(traceback.format_exception(kind, error, trace))))


class MaskedError(Exception):
    """Replaces an error whose own text would contain secrets; its text is the same with secrets masked."""


def freed(error: BaseException) -> BaseException:
    """Returns the error without secrets in its text and in the errors that caused it.

    The arguments of each error in the chain are masked. An error whose text still contains a secret is replaced by MaskedError.
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
    """An error and all its causes and contexts, also within exception groups."""
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
    """The error or its replacement, with its causes and contexts replaced likewise."""
    seen.add(id(error))
    said = "".join(traceback.format_exception_only(error))
    fit = error if masked(said) == said else MaskedError(masked(said.strip())).with_traceback(error.__traceback__)
    cause, context = error.__cause__, error.__context__
    suppressed = error.__suppress_context__
    fit.__cause__ = _stand_in(cause, seen) if cause and id(cause) not in seen else None
    fit.__context__ = _stand_in(context, seen) if context and id(context) not in seen else None
    fit.__suppress_context__ = suppressed or fit.__cause__ is not None
    return fit
