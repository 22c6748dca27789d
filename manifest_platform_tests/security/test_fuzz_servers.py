"""Any answer of a registry or a vault, to the clients that ask them: none exhausts memory or time, and none gets a secret told.

Each case runs the whole way in a confined process with secrets in its environment: lines shredded by schemas of a registry,
a vault captured into a manifest. What comes back is searched for the secrets, and so are the manifest and the landing place.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from manifest_platform.sources.capture import CaptureFailed, CaptureReport
from manifest_platform.sources.snowplow.events.shredder import shred_lines
from manifest_platform.sources.snowplow.schemas import registry
from manifest_platform.sources.snowplow.schemas.registry import Place
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.settings import RegistryLimits
from manifest_platform.sources.veeva.login import ClientCredentials, OAuth, Password
from manifest_platform_tests.effort import cases
from manifest_platform_tests.security.confined import CANARY, MIB, Confined, confined
from manifest_platform_tests.security.hostile import OTHER_HOST, Request, dripped, endless, response, serving
from manifest_platform_tests.security.test_vault_answers import ARCHIVE, LOGGED_IN, captured, entry
from manifest_platform_tests.sources.snowplow.given import CLICK, CLICK_SCHEMA, PAGE, contexts, enriched, entity

MEMORY, SECONDS = 192 * MIB, 45
FORMS = {
    CANARY,
    quote(CANARY),
    quote_plus(CANARY),
    quote(CANARY, safe=""),
    json.dumps(CANARY)[1:-1],
    repr(CANARY.encode())[2:-1],
}
MODEST = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # a case takes a process: what fails is told as it is
)

_texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "\ud800", "\x1b[2Jall is well", "a" * 5000, CANARY, quote_plus(CANARY)])
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    _texts,
    st.sampled_from([10**400, 10**18]),
)
_values = st.recursive(
    _scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)), max_leaves=12
)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


_deep = st.sampled_from(
    [b"[" * 200_000, b'{"properties":{"a":' * 100_000, b"[" * 5000 + b"]" * 5000, b'{"data":' * 3000 + b"7" + b"}" * 3000]
)
_bodies = st.one_of(
    _values.map(_json), _deep, st.binary(max_size=200), st.sampled_from([b"<html>", b"", b"\xef\xbb\xbf{}", b"NaN"])
)
_headers = st.sampled_from(
    [
        "Retry-After: Thu, 01 Jan 2026 00:00:00 -0000",
        "Retry-After: 9" + "9" * 400,
        "Content-Type: application/json",
        "Content-Encoding: gzip",
        "Content-Encoding: br",
        "Set-Cookie: a=b; Domain=.example",
        "X-VaultAPI-ExecutionId: \x1b[2J",
        "X-VaultAPI-ResponseDelay: 99999999999999999999",
        "X-VaultAPI-BurstLimitRemaining: 0",
        "X-VaultAPI-VaultId: 7",
        'ETag: W/"a"',
        "Content-Range: bytes 5-1/1",
        "X-Long: " + "a" * 90_000,
        f"Location: http://{OTHER_HOST}:1/",
        "Location: ftp://127.0.0.1/",
        "Location: /schemas/loop",
        "Location: http://[",
        f"Location: /{quote(CANARY)}",
    ]
)


@st.composite
def _responses(draw: st.DrawFn, bodies: st.SearchStrategy[bytes] = _bodies) -> tuple[str, bytes]:
    """The way in which a response is sent, and its bytes."""
    how = draw(st.sampled_from(["whole"] * 12 + ["raw", "cut", "endless", "slow", "bomb"]))
    if how == "raw":
        return how, draw(
            st.one_of(st.binary(max_size=100), st.sampled_from([b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/9"]))
        )
    if how == "bomb":
        return "whole", response(200, gzip.compress(bytes(32 * MIB), 1), "Content-Encoding: gzip")
    status = draw(st.sampled_from([200] * 6 + [204, 206, 301, 302, 307, 400, 401, 403, 404, 416, 429, 500, 503]))
    body = draw(bodies)
    length = draw(st.sampled_from([None, None, None, len(body) + 5, 10**18]))
    return how, response(status, body, *draw(st.lists(_headers, max_size=3)), length=length)


def _sent(answer: tuple[str, bytes]) -> Iterable[bytes]:
    how, data = answer
    if how == "endless":
        return endless(data[-1000:] or b" ")
    if how == "slow":
        return dripped(data[:1000], 0.005)
    return [data[: len(data) // 2] if how == "cut" else data, b""]


def _check(found: Confined) -> None:
    assert found.is_bounded, found
    assert not found.says(), found
    assert found.bytes < MEMORY


# Registries


def _shred(url: str) -> tuple[int, int, str]:
    """Shreds lines with known and unknown schemas; returns the good count, the bad count and the reasons."""
    registry.SILENCE_SECONDS, registry.PAUSE_SECONDS = 0.3, 0.0
    limits = RegistryLimits().model_copy(
        update={"schema_kib": 64, "total_mib": 1, "seconds": 0.6, "versions": 8, "unknown_keys": 6}
    )
    unknown = (f"iglu:com.mischief/a{number}/jsonschema/1-0-0" for number in range(12))
    lines = [
        enriched(contexts=contexts(entity(CLICK, {"targetUrl": "/a", "position": 1}), entity(PAGE, {"id": "a"}))),
        enriched(contexts=contexts(*(entity(each, {}) for each in unknown))),
        enriched(),
    ]
    found = shred_lines(
        b"\n".join(lines), Resolver([Place(url.replace("//", f"//user:{quote(CANARY, safe='')}@"), CANARY)], limits)
    )
    return found.good, found.bad.num_rows, str(found.bad["reasons"].to_pylist())


_properties = st.dictionaries(
    st.one_of(_texts, st.sampled_from(["position", "id", "fooBar", "foo_bar"])),
    st.one_of(
        _values,
        st.fixed_dictionaries({"type": _values, "maxLength": _values, "enum": _values, "minimum": _values, "maximum": _values}),
        st.fixed_dictionaries({"type": st.sampled_from(["object", ["object", "null"]]), "properties": _values}),
    ),
    max_size=5,
)
_schemas = st.fixed_dictionaries({"type": _values, "properties": _properties, "required": _values})
_registry_answers = st.one_of(
    _responses(),
    _responses(st.one_of(_schemas, _properties).map(_json)),
    st.just(("whole", response(body=orjson.dumps(CLICK_SCHEMA)))),
)


@settings(MODEST, max_examples=cases(3, 70))
@given(st.lists(_registry_answers, min_size=1, max_size=5))
def test_whatever_a_registry_answers_the_line_without_a_schema_is_good_or_nothing_is_said_to_be_done(
    answers: list[tuple[str, bytes]],
) -> None:
    each = itertools.cycle(answers)
    with serving(lambda _: _sent(next(each))) as server:
        found = confined(_shred, server.url, memory=MEMORY, seconds=SECONDS)
    _check(found)
    if found.error:
        assert {"Transient", "Misconfigured"} & set(found.kinds), found
    else:
        good, bad, _ = found.value
        assert good + bad == 3 and good >= 1, found


# Vaults


def _capture(url: str, folder: str, by_token: bool) -> tuple[list[str], list[str]]:
    """The windows that a run captures of a vault, and what it says of the others."""
    figures = {"answer_mib": 1, "answer_seconds": 0.5, "part_seconds": 1.0}
    token = ClientCredentials("client", CANARY, token_url=f"{url}/token")
    who = OAuth("profile", "client", token, url) if by_token else Password("user", CANARY)
    events, report = captured(url, folder, who, **figures)
    assert isinstance(report, CaptureReport)
    told = [one.reason for one in events if isinstance(one, CaptureFailed)] + [repr(events), repr(report)]
    return list(report.captured), told


_entries = st.dictionaries(
    st.sampled_from(
        [
            "name",
            "filename",
            "extract_type",
            "start_time",
            "stop_time",
            "record_count",
            "fileparts",
            "filepart_details",
            "error",
            "size",
        ]
    ),
    st.one_of(
        _values,
        st.sampled_from(["0001-01-01T00:00Z", "9999-12-31T23:59Z", "2026-01-01T00:15+14:00", "2026-01-01T00:10:30Z"]),
        st.lists(
            st.fixed_dictionaries({"name": _values, "filepart": _values, "size": _values, "md5checksum": _values}), max_size=2
        ),
    ),
    max_size=4,
).map(lambda changes: entry("00:45", **changes))


@settings(MODEST, max_examples=cases(3, 70))
@given(
    listed=st.lists(st.one_of(_entries, _values), max_size=4),
    more=st.one_of(
        st.none(), _responses(), _responses(st.fixed_dictionaries({"responseStatus": _values, "errors": _values}).map(_json))
    ),
    where=st.sampled_from(["auth", "log", "part", "token", "nowhere"]),
    by_token=st.booleans(),
)
def test_whatever_a_vault_answers_the_rest_is_captured_and_no_secret_is_kept(
    listed: list[Any], more: tuple[str, bytes] | None, where: str, by_token: bool
) -> None:
    """`more` is answered to one kind of call; the list has one entry that is in order among others that are not."""
    odd = where if more else "nowhere"

    def answer(request: Request) -> Iterable[bytes]:
        kind = (
            "token" if request.target.endswith("/token")
            else "auth" if "/auth" in request.target
            else "log" if "log_directdata" in request.target
            else "list" if "/files?" in request.target
            else "part" if "/files/" in request.target
            else "other"
        )  # fmt: skip
        if kind == odd and more:
            return _sent(more)
        body = {
            "token": _json({"access_token": "t0ken-of-the-provider", "expires_in": 3600}),
            "log": _json({"responseStatus": "SUCCESS", "data": listed}),
            "list": _json({"responseStatus": "SUCCESS", "data": [*listed, entry("00:15")]}),
            "part": ARCHIVE,
        }
        return [LOGGED_IN] if kind == "auth" else [response(body=body.get(kind, _json({"responseStatus": "SUCCESS"})))]

    with TemporaryDirectory() as folder:
        with serving(answer) as server:
            found = confined(_capture, server.url, folder, by_token, memory=MEMORY, seconds=SECONDS)
        kept = b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()).decode("latin-1")
    _check(found)
    assert not [form for form in FORMS if form.encode().decode("latin-1") in kept]
    if found.error:
        assert "LoginRefused" in found.kinds, found
    elif odd in ("nowhere", "log"):
        assert "incr/stoptime=202601010015" in found.value[0], found
