"""Secrets: read in one place, and masked in everything that is said.

Belongs here: which secrets the process knows, and how a text is freed of them. A secret that is read through `secret`, or that
is told to `keep`, becomes `***` in every text that passes `masked`. The borders where text goes out call it: the command line,
Dagster's events, records of the manifest and log lines. A secret is in an environment variable, or under such a name in a
store of secrets that `provide` tells of; then it never enters the environment, which every program that is started would get.

A secret is found however it was written: as it is, percent-encoded, escaped as in JSON, in a Python literal or in HTML, in two
of these ways one upon the other, and in base64, within `user:password` as well. A secret of fewer than `LONG` characters may
also be a part of words: it is masked only where it stands alone as a value, in quotes or behind `=` or `:`.
"""

from __future__ import annotations

import base64
import html
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

from manifest_platform.faults import Misconfigured, Transient

MASK = "***"
LONG = 8
"""Characters from which a secret is masked wherever it stands."""
MOST = 500
"""How many secrets are kept: a process that lives for months gets a session after the other, and the oldest are void."""

WORDS = frozenset({"message", "reason", "error", "traceback"})
"""Names under which rows of the store hold what errors and people said."""
READ_BY_LIBRARIES = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "PGPASSWORD",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
)
"""Environment variables with secrets that libraries read by themselves."""

PROXIES = tuple(name for kind in ("HTTP", "HTTPS", "ALL") for name in (f"{kind}_PROXY", f"{kind.lower()}_proxy"))
"""Those with URLs that libraries read by themselves, and whose passwords their errors quote."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_HEADER = re.compile(r"[^\x21-\x7e]")
_PASSWORD_IN_URL = re.compile(r"://[^/@:\s]*:(.*)@", re.DOTALL)  # greedy: a password may hold any character
_PASSWORD_OPTION = re.compile(
    r"(?:^|[\s?&;])[\w.-]*(?:password|secret|token|apikey)\s*=\s*('[^']*'|[^\s&;'\"]+)", re.IGNORECASE
)

FETCHED_S = 300
"""Seconds that a secret out of a store of secrets is used before it is fetched anew: it may have been changed."""

_kept: dict[str, None] = {}
_lock = Lock()
_provided: dict[str, Callable[[], str]] = {}
_fetched: dict[str, tuple[float, str]] = {}


class UnusableSecret(Misconfigured):
    """A secret that cannot be one; the message names the variable that holds it, and never what it holds."""


class SecretOutOfReach(RuntimeError, Transient):
    """The store of secrets does not answer now; the message names the variable and the store."""


def provide(variable: str, fetch: Callable[[], str]) -> None:
    """Has a variable that the environment lacks taken from a store of secrets: `fetch` gives it when it is needed.

    `fetch` raises UnusableSecret where there is none to be had, and SecretOutOfReach where there may be one later.
    """
    with _lock:
        _provided[variable] = fetch
        _fetched.pop(variable, None)


def is_told(variable: str) -> bool:
    """Whether the environment holds a variable, or a store of secrets is to have it. Nothing is fetched."""
    return bool(os.environ.get(variable)) or variable in _provided


def value_of(variable: str) -> str | None:
    """What the environment holds, else what a store of secrets does, which is masked from now on; None where neither has it.

    Raises UnusableSecret and SecretOutOfReach.
    """
    if (value := os.environ.get(variable)) or not (fetch := _provided.get(variable)):
        return value
    known = _fetched.get(variable)
    if known is None or time.monotonic() - known[0] >= FETCHED_S:
        known = _fetched[variable] = time.monotonic(), fetch()
    keep(known[1])
    return known[1]


def secret(variable: str, in_header: bool = False) -> str | None:
    """The secret that a variable holds, without the space around it; None where it is not set, or empty.

    It is masked from now on. Raises UnusableSecret for one with a line end or another control character in it, and where it
    goes out as a header (`in_header`) for one with a space or a letter that is not ASCII, which no header can have; it raises
    SecretOutOfReach where its store does not answer.
    """
    value = (value_of(variable) or "").strip()
    keep(value)
    if found := _CONTROL.search(value):
        raise UnusableSecret(
            f"{variable}: holds the control character {ascii(found[0])[1:-1]} at place {found.start() + 1:,} of {len(value):,};"
            " a secret is one line of text. Set it anew, without line ends within"
        )
    if in_header and (found := _NOT_IN_HEADER.search(value)):
        raise UnusableSecret(
            f"{variable}: holds a character at place {found.start() + 1:,} of {len(value):,} that cannot be sent: a space, or"
            " a letter that is not ASCII. Set it anew, as it was given out"
        )
    return value or None


def keep(*values: str | None) -> None:
    """Masks these values from now on: a secret that did not come from `secret`, as the session that a login opened."""
    with _lock:
        for value in filter(None, (each and each.strip() for each in values)):
            _kept.pop(value, None)
            _kept[value] = None
        while len(_kept) > MOST:
            del _kept[next(iter(_kept))]


def keep_passwords_of(text: str) -> None:
    """Masks from now on what a URL or a connection string holds: `user:password@`, and options called password or token."""
    keep(*_passwords_of(text))


def forget() -> None:
    """Forgets every secret, and where secrets are, for tests."""
    with _lock:
        _kept.clear()
        _provided.clear()
        _fetched.clear()


def masked(text: str) -> str:
    """The text with `***` for every secret that the process knows, however it is written."""
    known = _known()
    if not known or not text:
        return text
    spans = sorted(_spans(text, known))
    if not spans:
        return text
    parts, end = [], 0
    for start, stop in spans:
        if start >= end:
            parts += [text[end:start], MASK]
        end = max(end, stop)
    return "".join([*parts, text[end:]])


def masked_within(value: Any) -> Any:
    """A JSON document with every text in it masked, names of keys included; numbers and what is no JSON stay."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {masked_within(key): masked_within(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked_within(each) for each in value]
    return value


def masked_words(row: Any) -> Any:
    """The data of a row with what is for people in it masked, which stands under the names of `WORDS`; all else stays.

    Names, places and checksums are what the platform goes by: a secret that looks like a part of one changes none.
    """
    if isinstance(row, dict):
        return {key: masked_within(each) if key in WORDS else masked_words(each) for key, each in row.items()}
    if isinstance(row, list | tuple):
        return [masked_words(each) for each in row]
    return row


def knows_any() -> bool:
    """Whether the process knows a secret."""
    return bool(_known())


def _known() -> list[str]:
    """All secrets of the process. What libraries read is looked at anew: it needs no one that reads it here."""
    by_libraries = [os.environ.get(variable, "").strip() for variable in READ_BY_LIBRARIES]
    by_libraries += [password for variable in PROXIES for password in _passwords_of(os.environ.get(variable, ""))]
    with _lock:
        return [*_kept, *(value for value in by_libraries if value and value not in _kept)]


def _passwords_of(text: str) -> list[str]:
    """What a URL or a connection string holds, as it stands there and decoded."""
    told = [found[1] for found in _PASSWORD_IN_URL.finditer(text)]
    told += [found[1].strip("'") for found in _PASSWORD_OPTION.finditer(text)]
    return [*told, *map(unquote, told)]


# Where secrets stand in a text: looked for in each of its readings, and told by the places of the text itself


class _Reading:
    """A text, or what it says once it is decoded: bytes, and for each the place in the text where it began."""

    def __init__(self, said: bytes, place: Callable[[int], int]) -> None:
        self.said, self.place = said, place


def _spans(text: str, known: list[str]) -> Iterator[tuple[int, int]]:
    readings = list(_readings(text))
    for value in known:
        for reading in readings:
            if len(value) < LONG:
                found = _alone(value).finditer(reading.said)
                yield from ((reading.place(one.start()), reading.place(one.end())) for one in found)
                continue
            for needle in _plain(value):
                for start in _all(reading.said, needle):
                    yield reading.place(start), reading.place(start + len(needle))
            for needle in _in_base64(value):
                for start, end in _runs(reading.said, needle):
                    yield reading.place(start), reading.place(end)


def _all(said: bytes, needle: bytes) -> Iterator[int]:
    start = said.find(needle)
    while start >= 0:
        yield start
        start = said.find(needle, start + len(needle))


@lru_cache(MOST)
def _plain(value: str) -> tuple[bytes, ...]:
    """How a secret stands in a text that is decoded: a form's `+` for a space stays, and an old server writes Latin-1."""
    forms = {value.encode(errors="surrogatepass"), value.replace(" ", "+").encode(errors="surrogatepass")}
    if value.isascii():
        return tuple(forms)
    return (*forms, *((value.encode("latin-1"),) if all(ord(each) < 256 for each in value) else ()))


@lru_cache(MOST)
def _alone(value: str) -> re.Pattern[bytes]:
    """A short secret where it is a whole value."""
    word = re.escape(value.encode(errors="surrogatepass"))
    end = rb"(?=[&;,@)}\]\"'\r\n]|\Z)"
    return re.compile(
        rb"(?<=[\"'])" + word + rb"(?=[\"'])|(?<=[=:])" + word + rb"(?:" + end + rb"|(?=\s))|(?<=[=:] )" + word + end
    )


_BASE64_BEFORE = re.compile(rb"[A-Za-z0-9+/_-]*")
_BASE64_BEHIND = re.compile(rb"[A-Za-z0-9+/_-]*={0,2}")


@lru_cache(MOST)
def _in_base64(value: str) -> tuple[bytes, ...]:
    """What is seen of a secret in base64, whatever stands before and behind it: three ways, by its place among three bytes."""
    found = set()
    for form in {value, quote(value, safe="", errors="surrogatepass")}:
        told = form.encode(errors="surrogatepass")
        for before in range(3):
            encoded = base64.b64encode(bytes(before) + told)
            inner = encoded[-(-before * 8 // 6) : (before + len(told)) * 8 // 6]
            found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return tuple(found)


def _runs(said: bytes, needle: bytes) -> Iterator[tuple[int, int]]:
    """The whole runs of base64 that a part of one is in."""
    end = 0
    while (start := said.find(needle, end)) >= 0:
        before = _BASE64_BEFORE.match(said[end:start][::-1])  # backward, no farther than the run before
        behind = _BASE64_BEHIND.match(said, start)
        end = behind.end() if behind else start + len(needle)
        yield start - (before.end() if before else 0), end


def _readings(text: str) -> Iterator[_Reading]:
    """A text as it stands, and decoded in each way that changes it, twice at most."""
    said = text.encode(errors="surrogatepass")
    first = _Reading(said, (lambda place: place) if text.isascii() else _characters(said))
    yield first
    seen, last = {said}, [first]
    for _ in range(2):
        fresh = []
        for reading in last:
            for mark, pattern, decode in _ENCODINGS:
                if mark in reading.said and (decoded := _decoded(reading, pattern, decode)).said not in seen:
                    seen.add(decoded.said)
                    fresh.append(decoded)
        yield from fresh
        last = fresh


def _characters(said: bytes) -> Callable[[int], int]:
    """For a byte of a text, its character's number."""

    @cache
    def starts() -> list[int]:
        return [place for place, byte in enumerate(said) if byte & 0xC0 != 0x80]

    return lambda place: bisect_right(starts(), place) - 1 if place < len(said) else len(starts())


def _decoded(reading: _Reading, pattern: re.Pattern[bytes], decode: Callable[[re.Match[bytes]], bytes]) -> _Reading:
    """What a reading says once its escapes are decoded."""
    parts: list[bytes] = []
    here: list[int] = []  # where a part begins in what is decoded
    there: list[tuple[int, bool]] = []  # where it began, and whether it was an escape
    length = end = 0

    def take(part: bytes, start: int, escaped: bool) -> None:
        nonlocal length
        if part:
            parts.append(part)
            here.append(length)
            there.append((start, escaped))
            length += len(part)

    for found in pattern.finditer(reading.said):
        take(reading.said[end : found.start()], end, False)
        take(decode(found), found.start(), True)
        end = found.end()
    take(reading.said[end:], end, False)

    def place(byte: int) -> int:
        if byte >= length:
            return reading.place(len(reading.said))
        index = bisect_right(here, byte) - 1
        start, escaped = there[index]
        return reading.place(start if escaped else start + byte - here[index])

    return _Reading(b"".join(parts), place)


_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_BACKSLASH = re.compile(
    rb"\\u([Dd][89ABab][0-9A-Fa-f]{2})\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})"
    rb"|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\x([0-9A-Fa-f]{2})|\\(.)",
    re.DOTALL,
)
_ENTITY = re.compile(rb"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});")
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}


def _unescaped(found: re.Match[bytes]) -> bytes:
    high, low, short, long, byte, letter = found.groups()
    if byte:
        return bytes([int(byte, 16)])
    if high:
        return chr(0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00).encode()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    return chr(min(int(short or long, 16), 0x10FFFF)).encode(errors="surrogatepass")


def _unescaped_characters(found: re.Match[bytes]) -> bytes:
    """The same where `\\xe9` is a character, as `ascii` writes it, and not a byte."""
    return chr(int(found[5], 16)).encode() if found[5] else _unescaped(found)


_ENCODINGS: tuple[tuple[bytes, re.Pattern[bytes], Callable[[re.Match[bytes]], bytes]], ...] = (
    (b"%", _PERCENT, lambda found: bytes([int(found[1], 16)])),
    (b"\\", _BACKSLASH, _unescaped),
    (b"\\x", _BACKSLASH, _unescaped_characters),
    (b"&", _ENTITY, lambda found: html.unescape(found[0].decode()).encode(errors="surrogatepass")),
)
