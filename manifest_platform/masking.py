"""Secrets: reads them in one place, and masks them in all texts that leave the process.

A secret that is read with `secret`, or registered with `keep`, becomes `***` in every text that passes `masked`. The places
where text leaves the process call it: the command line, Dagster's events, records of the manifest, and log lines. A secret
is in an environment variable, or in a secret store registered with `provide`. In the latter case it never enters the
environment, which every child process inherits.

A secret is found in each of its forms: plain, percent-encoded, escaped as in JSON, in a Python literal or in HTML, with two
of these encodings combined, and in base64, also within `user:password`. A secret of fewer than `LONG` characters could be part
of a word: it is masked only as a complete value, in quotes or after `=` or `:`.
"""

from __future__ import annotations

import base64
import html
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

from manifest_platform.faults import Misconfigured, Transient

MASK = "***"
LONG = 8
"""Number of characters from which a secret is masked everywhere, not only as a complete value."""
MOST = 500
"""Largest number of secrets kept. A process that runs for months gets many session tokens; the oldest are no longer valid."""

WORDS = frozenset({"message", "reason", "error", "traceback"})
"""Names of the fields of stored rows that contain texts of errors and people."""
READ_BY_LIBRARIES = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "PGPASSWORD",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
)
"""Environment variables with secrets that libraries read themselves."""

PROXIES = tuple(name for kind in ("HTTP", "HTTPS", "ALL") for name in (f"{kind}_PROXY", f"{kind.lower()}_proxy"))
"""Environment variables with URLs that libraries read themselves. Their errors quote the passwords in these URLs."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_HEADER = re.compile(r"[^\x21-\x7e]")
_PASSWORD_IN_URL = re.compile(r"://[^/@:\s]*:(.*)@", re.DOTALL)  # greedy: a password may contain any character
_PASSWORD_OPTION = re.compile(
    r"(?:^|[\s?&;])[\w.-]*(?:password|secret|token|apikey)\s*=\s*('[^']*'|[^\s&;'\"]+)", re.IGNORECASE
)

FETCHED_S = 300
"""Seconds until a secret from a secret store is fetched again, because it may have changed."""

_kept: dict[str, None] = {}
_lock = Lock()
_provided: dict[str, Callable[[], str]] = {}
_schemes: dict[str, Callable[[str], str]] = {}
_fetched: dict[str, tuple[float, str]] = {}


class UnusableSecret(Misconfigured):
    """A secret is invalid. The message names its variable, never its value."""


class SecretOutOfReach(RuntimeError, Transient):
    """The secret store does not answer now. The message names the variable and the store."""


def provide(variable: str, fetch: Callable[[], str]) -> None:
    """Registers a secret store for a variable that the environment may lack. `fetch` is called when the secret is needed.

    `fetch` raises UnusableSecret if there is no such secret, and SecretOutOfReach if a later attempt may succeed.
    """
    with _lock:
        _provided[variable] = fetch
        _fetched.pop(variable, None)


def fetch_by(scheme: str, fetch: Callable[[str], str]) -> None:
    """Registers how references `SCHEME:PLACE` are fetched: `fetch` gets the place, and raises as for `provide`."""
    _schemes[scheme] = fetch


def is_set(variable: str) -> bool:
    """True if the environment has the variable, or a secret store has it, or it is a reference. Nothing is fetched."""
    return bool(os.environ.get(variable)) or variable in _provided or variable.partition(":")[0] in _schemes


def value_of(variable: str) -> str | None:
    """The value of a variable in the environment, or from its secret store (masked from now on); None if neither has it.

    A reference as `file:/path`, by a scheme of `fetch_by`, stands for a variable. Raises UnusableSecret or SecretOutOfReach.
    """
    variable = variable.removeprefix("env:")
    scheme, _, place = variable.partition(":")
    if place and scheme in _schemes and variable not in _provided:
        provide(variable, partial(_schemes[scheme], place))
    if (value := os.environ.get(variable)) or not (fetch := _provided.get(variable)):
        return value
    known = _fetched.get(variable)
    if known is None or time.monotonic() - known[0] >= FETCHED_S:
        known = _fetched[variable] = time.monotonic(), fetch()
    keep(known[1])
    return known[1]


def secret(variable: str, in_header: bool = False) -> str | None:
    """The secret in a variable, without surrounding space; None if the variable is not set or empty.

    It is masked from now on. Raises UnusableSecret if it contains a line end or another control character. With `in_header`, it
    must also be a valid HTTP header: without spaces and non-ASCII characters. Raises SecretOutOfReach if its secret store does
    not answer.
    """
    value = (value_of(variable) or "").strip()
    keep(value)
    if found := _CONTROL.search(value):
        raise UnusableSecret(
            f"{variable}: holds the control character {ascii(found[0])[1:-1]} at place {found.start() + 1:,} of {len(value):,};"
            " a secret is one line of text. Set it again without line ends in it"
        )
    if in_header and (found := _NOT_IN_HEADER.search(value)):
        raise UnusableSecret(
            f"{variable}: holds a character at place {found.start() + 1:,} of {len(value):,} that cannot be sent: a space, or"
            " a character that is not ASCII. Set it again, exactly as it was issued"
        )
    return value or None


def keep(*values: str | None) -> None:
    """Masks these values from now on, for secrets that were not read with `secret`, such as a session token."""
    with _lock:
        for value in filter(None, (each and each.strip() for each in values)):
            _kept.pop(value, None)
            _kept[value] = None
        while len(_kept) > MOST:
            del _kept[next(iter(_kept))]


def keep_passwords_of(text: str) -> None:
    """Masks from now on the passwords in a URL or connection string: `user:password@`, and options named password or token."""
    keep(*_passwords_of(text))


def forget() -> None:
    """Forgets all secrets and secret stores, for tests."""
    with _lock:
        _kept.clear()
        _provided.clear()
        _fetched.clear()


def masked(text: str) -> str:
    """The text with `***` for every known secret, in any of its forms."""
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
    """A JSON document with all texts masked, including the names of keys. Other values are unchanged."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {masked_within(key): masked_within(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked_within(each) for each in value]
    return value


def masked_words(row: Any) -> Any:
    """The data of a row with the texts for people masked (the fields named in `WORDS`). All other fields are unchanged.

    The platform depends on names, locations and checksums: a secret that looks like a part of them must not change them.
    """
    if isinstance(row, dict):
        return {key: masked_within(each) if key in WORDS else masked_words(each) for key, each in row.items()}
    if isinstance(row, list | tuple):
        return [masked_words(each) for each in row]
    return row


def knows_any() -> bool:
    """True if the process knows a secret."""
    return bool(_known())


def _known() -> list[str]:
    """All secrets of the process. Variables that libraries read are looked up each time."""
    by_libraries = [os.environ.get(variable, "").strip() for variable in READ_BY_LIBRARIES]
    by_libraries += [password for variable in PROXIES for password in _passwords_of(os.environ.get(variable, ""))]
    with _lock:
        return [*_kept, *(value for value in by_libraries if value and value not in _kept)]


def _passwords_of(text: str) -> list[str]:
    """The passwords in a URL or a connection string, as written and decoded."""
    told = [found[1] for found in _PASSWORD_IN_URL.finditer(text)]
    told += [found[1].strip("'") for found in _PASSWORD_OPTION.finditer(text)]
    return [*told, *map(unquote, told)]


# Search: each decoded reading of a text is searched, and findings are mapped back to positions in the text


class _Reading:
    """A text or one of its decoded forms: the bytes, and for each byte the position in the text where it came from."""

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
    """The forms of a secret in a decoded text: `+` for a space may remain from a form, and old servers write Latin-1."""
    forms = {value.encode(errors="surrogatepass"), value.replace(" ", "+").encode(errors="surrogatepass")}
    if value.isascii():
        return tuple(forms)
    return (*forms, *((value.encode("latin-1"),) if all(ord(each) < 256 for each in value) else ()))


@lru_cache(MOST)
def _alone(value: str) -> re.Pattern[bytes]:
    """A pattern that matches a short secret only as a complete value."""
    word = re.escape(value.encode(errors="surrogatepass"))
    end = rb"(?=[&;,@)}\]\"'\r\n]|\Z)"
    return re.compile(
        rb"(?<=[\"'])" + word + rb"(?=[\"'])|(?<=[=:])" + word + rb"(?:" + end + rb"|(?=\s))|(?<=[=:] )" + word + end
    )


_BASE64_BEFORE = re.compile(rb"[A-Za-z0-9+/_-]*")
_BASE64_BEHIND = re.compile(rb"[A-Za-z0-9+/_-]*={0,2}")


@lru_cache(MOST)
def _in_base64(value: str) -> tuple[bytes, ...]:
    """The parts of a secret's base64 that do not depend on the bytes around it: three forms, by its offset modulo 3."""
    found = set()
    for form in {value, quote(value, safe="", errors="surrogatepass")}:
        told = form.encode(errors="surrogatepass")
        for before in range(3):
            encoded = base64.b64encode(bytes(before) + told)
            inner = encoded[-(-before * 8 // 6) : (before + len(told)) * 8 // 6]
            found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return tuple(found)


def _runs(said: bytes, needle: bytes) -> Iterator[tuple[int, int]]:
    """Yields the complete runs of base64 that contain the part `needle`."""
    end = 0
    while (start := said.find(needle, end)) >= 0:
        before = _BASE64_BEFORE.match(said[end:start][::-1])  # backward, not into the previous run
        behind = _BASE64_BEHIND.match(said, start)
        end = behind.end() if behind else start + len(needle)
        yield start - (before.end() if before else 0), end


def _readings(text: str) -> Iterator[_Reading]:
    """Yields a text and each distinct decoded form of it, with at most two encodings combined."""
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
    """Returns a function that maps a byte's position to its character's position."""

    @cache
    def starts() -> list[int]:
        return [place for place, byte in enumerate(said) if byte & 0xC0 != 0x80]

    return lambda place: bisect_right(starts(), place) - 1 if place < len(said) else len(starts())


def _decoded(reading: _Reading, pattern: re.Pattern[bytes], decode: Callable[[re.Match[bytes]], bytes]) -> _Reading:
    """Decodes the escapes of a reading."""
    parts: list[bytes] = []
    here: list[int] = []  # the start of each part in the decoded bytes
    there: list[tuple[int, bool]] = []  # the start of each part in the original bytes, and whether it was an escape
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
    """Like `_unescaped`, but `\\xe9` is a character, as `ascii` writes it, and not a byte."""
    return chr(int(found[5], 16)).encode() if found[5] else _unescaped(found)


_ENCODINGS: tuple[tuple[bytes, re.Pattern[bytes], Callable[[re.Match[bytes]], bytes]], ...] = (
    (b"%", _PERCENT, lambda found: bytes([int(found[1], 16)])),
    (b"\\", _BACKSLASH, _unescaped),
    (b"\\x", _BACKSLASH, _unescaped_characters),
    (b"&", _ENTITY, lambda found: html.unescape(found[0].decode()).encode(errors="surrogatepass")),
)
