"""Iglu registries that answer what they like, and lines that name what they like."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterable, Iterator

import orjson
import pytest
from pydantic import ValidationError

from manifest_platform import masking
from manifest_platform.shred.batch import SchemaError
from manifest_platform.shred.limits import REASONS_OF_LINE
from manifest_platform.sources.snowplow.events.entities import Budget
from manifest_platform.sources.snowplow.events.shredder import shred_lines
from manifest_platform.sources.snowplow.schemas import registry
from manifest_platform.sources.snowplow.schemas.columns import entity_columns
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.registry import Place, RegistryRefused, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.resolver import Resolver, UnknownSchema
from manifest_platform.sources.snowplow.settings import RegistryLimits, SnowplowShredSettings
from manifest_platform_tests.security.confined import CANARY, MIB, confined
from manifest_platform_tests.security.hostile import OTHER_HOST, Request, dripped, endless, response, serving
from manifest_platform_tests.sources.snowplow.given import CLICK, CLICK_SCHEMA, contexts, enriched, entity

KEY = SchemaKey.parse(CLICK)
GIVEN = response(body=orjson.dumps(CLICK_SCHEMA))
HONEST = enriched(contexts=contexts(entity(CLICK, {"targetUrl": "/a", "position": 1})))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No registry has served yet, and nobody waits between two tries."""
    monkeypatch.setattr(registry, "_HAVE_SERVED", set())
    monkeypatch.setattr(registry, "PAUSE_SECONDS", 0.001)
    yield
    masking.forget()


def limits(**figures: float) -> RegistryLimits:
    """Limits that a test can reach, lower ones than may be configured too."""
    return RegistryLimits().model_copy(update=figures)


def given(request: Request) -> Iterable[bytes]:
    """A registry with one schema."""
    yield GIVEN if request.target.endswith(f"/{KEY.path}") else response(404)


def test_a_registry_that_answers_200_to_everything_ends_the_search_for_versions():
    with serving(lambda _: [GIVEN]) as server:
        resolver = Resolver([server.url], limits(versions=20))
        with pytest.raises(RegistryRefused, match=r"answers 200 for .*/1-999999999-999999999"):
            resolver.table(KEY)
    assert len(server.asked) <= 25


@pytest.mark.parametrize("listed", [True, False])
def test_a_model_has_no_more_versions_than_the_limit(listed: bool):
    """The registry either lists 50 versions, or serves 50 versions without a list."""
    many = [f"iglu:com.acme/link_click/jsonschema/1-0-{number}" for number in range(50)]

    def answer(request: Request) -> Iterable[bytes]:
        if listed and request.target.endswith("/1"):
            return [response(body=orjson.dumps(many))]
        return [GIVEN if f"iglu:{request.target.removeprefix('/schemas/')}" in many else response(404)]

    with serving(answer) as server:
        resolver = Resolver([server.url], limits(versions=20))
        for _ in range(3):
            with pytest.raises(SchemaError, match=r"raise shred\.registry_limits\.versions"):
                resolver.table(KEY)
    assert len(server.asked) <= 25, "it is not asked again"


def _error(url: str, **figures: float) -> str:
    try:
        Resolver([url], limits(**figures)).table(KEY)
    except (SchemaError, RegistryUnavailable) as error:
        return f"{type(error).__name__}: {error}"
    return "found"


@pytest.mark.parametrize("encoding", ["", "Content-Encoding: gzip"])
def test_an_endless_body_ends_at_the_limit(encoding: str):
    """The body is endless, or inflates from gzip to 256 MiB. The process has 96 MiB and must take less than 48 MiB."""
    bomb = gzip.compress(bytes(256 * MIB), 1) if encoding else b""
    with serving(lambda _: [response(200, bomb, encoding)] if encoding else endless()) as server:
        found = confined(_error, server.url, memory=96 * MIB, seconds=10)
    assert found.is_bounded, found
    assert found.value.startswith("SchemaError") and "has more than 256 KiB" in found.value, found
    assert found.bytes < 48 * MIB


def test_schemas_together_have_no_more_bytes_than_the_limit():
    large = orjson.dumps({"properties": {"a": {"type": "string"}}, "description": "a" * (200 << 10)})
    with serving(lambda request: [response(404 if request.target.endswith("-1") else 200, large)]) as server:
        resolver = Resolver([server.url], limits(total_mib=1))
        keys = [SchemaKey.parse(f"iglu:com.acme/a{number}/jsonschema/1-0-0") for number in range(6)]
        for key in keys[:5]:
            resolver.schema(key)
        with pytest.raises(SchemaError, match=r"raise shred\.registry_limits\.total_mib"):
            resolver.schema(keys[5])


@pytest.mark.parametrize("what", ["headers", "body", "versions"])
def test_a_byte_a_second_does_not_outlive_the_deadline(what: str):
    def answer(request: Request) -> Iterable[bytes]:
        if what == "headers":
            return dripped(b"HTTP/1.1 200 Said\r\n" + b"X-More: 1\r\n" * 1000)
        if what == "body":
            return (piece for part in ([response(length=500)], dripped(b" " * 500)) for piece in part)
        time.sleep(0.05)
        return [GIVEN]

    with serving(answer) as server:
        started = time.monotonic()
        with pytest.raises(RegistryUnavailable, match=r"took longer than shred\.registry_limits\.seconds"):
            Resolver([server.url], limits(seconds=0.2)).table(KEY)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "location",
    [
        f"http://{OTHER_HOST}:%s/schemas/a",
        "http://127.0.0.1:1/schemas/a",
        "https://127.0.0.1:%s/schemas/a",
        f"//{OTHER_HOST}:%s/a",
        "ftp://127.0.0.1:%s/a",
        "file:///etc/hostname",
        "http://[broken",
    ],
)
def test_a_redirect_to_another_origin_is_not_followed(location: str):
    """The redirect makes rows bad if the registry has served another schema before; otherwise the registry is refused."""

    def answer(request: Request) -> Iterable[bytes]:
        there = location.replace("%s", server.port)
        return [GIVEN if request.target.endswith("/1-0-0") else response(302, b"", f"Location: {there}")]

    other = KEY.__class__(KEY.vendor, KEY.name, KEY.format, 7, 0, 1)
    with serving(answer) as server:
        resolver = Resolver([server.url])
        with pytest.raises(RegistryRefused, match="is redirected to another place"):
            resolver.schema(other)
        assert resolver.schema(KEY) == CLICK_SCHEMA
        with pytest.raises(SchemaError, match="is redirected to another place"):
            resolver.schema(other)
    assert len(server.asked) == 3


def test_redirects_in_a_circle_end():
    with (
        serving(lambda request: [response(302, b"", f"Location: {request.target}x")]) as server,
        pytest.raises(RegistryRefused, match="more than 5 redirects"),
    ):
        Resolver([server.url]).schema(KEY)
    assert len(server.asked) == 6


def test_a_key_that_a_redirect_repeats_is_not_told():
    def answer(request: Request) -> Iterable[bytes]:
        return [response(302, b"", f"Location: http://{OTHER_HOST}/?{request.headers['apikey']}")]

    with serving(answer) as server, pytest.raises(RegistryRefused) as refused:
        Resolver([Place(server.url, "s3cr3t-apikey")]).schema(KEY)
    assert "s3cr3t" not in str(refused.value)


def test_a_registry_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch):
    with serving(lambda _: [response(502)]) as proxy, serving(given) as server:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        Resolver([Place(server.url, "s3cr3t-apikey")]).schema(KEY)
    assert not proxy.asked
    assert server.asked[0].headers["apikey"] == "s3cr3t-apikey"


# Lines


def _unknown(number: int) -> str:
    return f"iglu:com.mischief/a{number}/jsonschema/1-0-0"


def test_a_line_with_2000_unknown_keys_makes_no_2000_requests():
    """The line is bad after its first reasons, and the rest of it is not examined."""
    hostile = enriched(contexts=contexts(*(entity(_unknown(number), {}) for number in range(2000))))
    with serving(given) as server:
        found = shred_lines(b"\n".join((hostile, *[HONEST] * 3)), Resolver([server.url]), budget=Budget(500))
        assert (found.good, found.bad.num_rows) == (3, 1)
        assert len(server.asked) <= REASONS_OF_LINE + 5
    reasons = orjson.loads(found.bad["reasons"][0].as_py())
    assert len(reasons) == REASONS_OF_LINE + 1
    assert reasons[-1]["type"] == "more", "no entity is passed over in silence"


def test_lines_with_2000_unknown_keys_make_no_2000_requests():
    """Nor do they keep the other lines from being read, before them and behind them."""
    hostile = [enriched(contexts=contexts(*(entity(_unknown(n + each), {}) for each in range(16)))) for n in range(0, 2000, 16)]
    with serving(given) as server:
        resolver = Resolver([server.url], limits(unknown_keys=50))
        budget = Budget(50)
        first = shred_lines(b"\n".join((*hostile, *[HONEST] * 3)), resolver, budget=budget)
        assert (first.good, first.bad.num_rows) == (3, 125)
        assert first.tables["com_acme_link_click_1"].num_rows == 3
        asked = len(server.asked)
        assert asked <= 50 + Budget.RESERVED + 5
        again = shred_lines(b"\n".join((*hostile, HONEST)), resolver, budget=budget)
        assert (again.good, again.bad.num_rows) == (1, 125)
        assert len(server.asked) <= asked + Budget.RESERVED
    reasons = [orjson.loads(told) for told in first.bad["reasons"].to_pylist()]
    assert {len(found) for found in reasons} == {16}, "no entity is passed over in silence"
    assert "raise shred.registry_limits.unknown_keys" in reasons[-1][-1]["message"]


def test_what_most_lines_name_is_asked_for_though_the_budget_is_spent():
    """Rows keep their order where their schema was asked for late."""
    hostile = [enriched(contexts=contexts(*(entity(_unknown(each), {}) for each in range(n, n + 20)))) for n in (0, 20, 40)]
    late = [
        enriched(
            contexts=contexts(
                entity(CLICK, {"targetUrl": "/a", "position": number}),
                entity(CLICK, {"targetUrl": "/a", "position": number + 1}),
            )
        )
        for number in (5, 7)
    ]
    with serving(given) as server:
        resolver = Resolver([server.url])
        found = shred_lines(b"\n".join((*hostile, *late)), resolver, budget=Budget(20))
    assert (found.good, found.bad.num_rows) == (2, 3)
    assert found.tables["com_acme_link_click_1"]["position"].to_pylist() == [5, 6, 7, 8]


def test_what_is_no_key_costs_nothing_of_the_budget():
    no_keys = enriched(contexts=contexts(*(entity(f"nonsense {number}", {}) for number in range(100))))
    with serving(given) as server:
        found = shred_lines(b"\n".join((no_keys, HONEST)), Resolver([server.url]), budget=Budget(5))
    assert (found.good, found.bad.num_rows) == (1, 1)


# Schemas


@pytest.mark.parametrize(
    "schema",
    [
        b"[" * 200_000,
        b'{"properties":{"a":' * 200_000,
        b'{"properties":{"a":' * 400 + b"{}" + b"}}" * 400,
        b'{"properties":{"%s":{}}}' % (b"A" * 200_000),
        orjson.dumps({"properties": {f"a{number}": {} for number in range(10_000)}}),
        orjson.dumps({"properties": {"a" + "-."[number % 2] * number: {} for number in range(600)}}),
    ],
    ids=["deep", "deep objects", "nested", "long name", "wide", "alike"],
)
def test_a_schema_that_no_table_can_be_made_of_is_refused_at_once(schema: bytes):
    with serving(lambda request: [response(200, schema) if request.target.endswith("/1-0-0") else response(404)]) as server:
        found = confined(_error, server.url, memory=256 * MIB, seconds=5, **{"environment": {}})
    assert found.is_bounded and found.value, found
    assert len(found.value) < 1500
    assert found.seconds < 20


def test_versions_contradict_each_other_in_few_words():
    long = "a" * 900
    with pytest.raises(SchemaError) as raised:
        entity_columns(
            [("1-0-0", {"properties": {long: {"type": "integer"}}}), ("1-0-1", {"properties": {long: {"type": "string"}}})], "x"
        )
    assert len(str(raised.value)) < 500


# Configuration


@pytest.mark.parametrize("url", ["http://user:hush@iglu.example", "http://hush@iglu.example/api"])
def test_credentials_in_a_url_go_over_https_or_to_this_machine(url: str):
    with pytest.raises(ValidationError, match="credentials are sent by https") as refused:
        SnowplowShredSettings(output="/tmp/x", schemas=[url])
    assert "hush" not in "".join(each["msg"] for each in refused.value.errors())
    for safe in (url.replace("http:", "https:"), url.replace("iglu.example", "127.0.0.1:8080")):
        SnowplowShredSettings(output="/tmp/x", schemas=[safe])


def test_a_registrys_key_goes_over_https_or_to_this_machine():
    def settings(url: str) -> SnowplowShredSettings:
        registries = [{"url": url, "apikey_variable": "IGLU_APIKEY"}]
        return SnowplowShredSettings.model_validate({"output": "/tmp/x", "schemas": [url], "registries": registries})

    with pytest.raises(ValidationError, match="credentials are sent by https"):
        settings("http://iglu.example/api")
    settings("https://iglu.example/api")
    settings("http://localhost:8080/api")


def test_no_key_or_password_is_in_what_a_registry_is_called():
    place = Place("https://user:hush@iglu.example/api", CANARY)
    assert "hush" not in f"{place} {place!r} {place.open()!r}"
    assert CANARY not in f"{place} {place!r}"
    with pytest.raises(UnknownSchema, match=r"in none of the registries https://iglu\.example/api;"):
        resolver = Resolver([place])
        resolver._schemas[KEY] = None
        resolver.schema(KEY)
