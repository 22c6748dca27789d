import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from manifest_platform.faults import Misconfigured
from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.events.shredder import shred_lines
from manifest_platform.sources.snowplow.schemas import registry
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.registry import Place, RegistryRefused, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.resolver import Resolver, UnknownSchema
from manifest_platform_tests.sources.snowplow.given import (
    CLICK,
    CLICK_SCHEMA,
    PAGE,
    acme_registry,
    contexts,
    enriched,
    entity,
)

KEY = SchemaKey.parse(CLICK)


def key(version: str) -> SchemaKey:
    return SchemaKey.parse(f"iglu:com.acme/link_click/jsonschema/{version}")


class Site:
    """An HTTP server of canned answers by path, which counts the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.missing = 404
        self.asked: Counter[str] = Counter()
        self.authorizations: list[str | None] = []
        self.apikeys: list[str | None] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked[self.path] += 1
                site.authorizations.append(self.headers["Authorization"])
                site.apikeys.append(self.headers["apikey"])
                status, body = site.answers.get(self.path.partition("?")[0], (site.missing, b"none"))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", body.decode())
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any, **__: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def publish(self, version: str) -> None:
        self.answers[f"/schemas/com.acme/link_click/jsonschema/{version}"] = (200, orjson.dumps(CLICK_SCHEMA))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(registry, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(registry, "_HAVE_SERVED", set())
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


def test_versions_from_the_servers_list(site: Site):
    site.publish("1-0-0")
    site.publish("1-0-2")
    listed = [str(key("1-0-2")), str(key("1-0-0")), PAGE, 5, "nonsense"]
    site.answers["/schemas/com.acme/link_click/jsonschema/1"] = (200, orjson.dumps(listed))
    assert Resolver([site.url]).versions(KEY) == [key("1-0-0"), key("1-0-2")]


def test_versions_by_asking_for_successors(site: Site):
    for version in ("1-0-0", "1-0-1", "1-1-0", "1-1-1", "1-2-0", "2-0-0"):
        site.publish(version)
    expected = [key(version) for version in ("1-0-0", "1-0-1", "1-1-0", "1-1-1", "1-2-0")]
    assert Resolver([site.url]).versions(key("1-0-1")) == expected
    assert Resolver([f"{site.url}/"]).versions(key("1-1-1")) == expected


def test_gaps_below_the_schema_itself_are_stepped_over(site: Site):
    for version in ("1-0-0", "1-2-2", "1-2-3"):
        site.publish(version)
    assert Resolver([site.url]).versions(key("1-2-2")) == [key("1-0-0"), key("1-2-2"), key("1-2-3")]


def test_a_version_that_nobody_published_starts_no_search(site: Site):
    with pytest.raises(UnknownSchema):
        Resolver([site.url]).table(key("1-0-999999999"))
    assert sum(site.asked.values()) == 1


@pytest.mark.parametrize("status", [404, 410, 403])
def test_a_missing_schema_is_asked_for_once_and_then_in_the_next_registry(site: Site, tmp_path: Path, status: int):
    site.missing = status
    resolver = Resolver([Place(site.url, forbidden_is_absent=True), str(acme_registry(tmp_path))])
    assert resolver.schema(KEY) == resolver.schema(KEY) == CLICK_SCHEMA
    assert site.asked == {"/schemas/com.acme/link_click/jsonschema/1-0-0": 1}


@pytest.mark.parametrize("status", [500, 503, 429])
def test_server_errors_are_transient_retried_and_not_remembered(site: Site, tmp_path: Path, status: int):
    site.missing = status
    resolver = Resolver([site.url, str(acme_registry(tmp_path))])
    with pytest.raises(RegistryUnavailable, match=str(status)):
        resolver.schema(KEY)
    assert site.asked.total() == registry.ATTEMPTS
    site.publish("1-0-0")
    assert resolver.schema(KEY) == CLICK_SCHEMA


@pytest.mark.parametrize("status", [401, 403])
def test_refused_access_does_not_mean_that_a_schema_is_missing(site: Site, tmp_path: Path, status: int):
    """A key had expired, and a whole backlog went to `bad` for unknown schemas."""
    site.missing = status
    resolver = Resolver([site.url, str(acme_registry(tmp_path))])
    with pytest.raises(RegistryRefused, match=rf"{site.url}/schemas/.*: the registry answers {status}") as refused:
        resolver.schema(KEY)
    assert isinstance(refused.value, Misconfigured)
    assert "shred.registries" in str(refused.value)
    site.publish("1-0-0")
    assert resolver.schema(KEY) == CLICK_SCHEMA, "it is asked again"


def test_403_means_missing_from_a_registry_that_has_given_another_schema(site: Site):
    """Static stores answer 403 for missing files."""
    site.missing = 403
    site.publish("1-0-0")
    resolver = Resolver([site.url])
    assert resolver.table(KEY).table.name == "com_acme_link_click_1"
    with pytest.raises(UnknownSchema):
        resolver.schema(key("3-0-0"))
    with pytest.raises(UnknownSchema):
        Resolver([site.url]).schema(key("3-0-0"))
    site.missing = 401
    with pytest.raises(RegistryRefused):
        resolver.schema(key("4-0-0"))


def test_403_means_missing_once_another_schema_of_the_same_lines_was_given(site: Site):
    """The lines become the same, whichever of the two schemas is asked for first."""
    site.missing = 403
    site.publish("1-0-0")
    unknown = enriched(contexts=contexts(entity(str(key("3-0-0")), {})))
    known = enriched(contexts=contexts(entity(CLICK, {"targetUrl": "/a", "position": 1})))
    shredded = shred_lines(b"".join(line + b"\n" for line in (unknown, known)), Resolver([site.url]))
    assert (shredded.good, shredded.bad.num_rows) == (1, 1)
    assert "unknown_schema" in shredded.bad["reasons"][0].as_py()
    alone = f"http://localhost:{site.server.server_port}"  # another registry, by its name
    with pytest.raises(RegistryRefused):
        shred_lines(unknown + b"\n", Resolver([alone]))


def test_apikey_is_sent_and_appears_nowhere(site: Site):
    place = Place(site.url, "s3cr3t")
    resolver = Resolver([place])
    site.publish("1-0-0")
    site.answers["/moved"] = (200, orjson.dumps(CLICK_SCHEMA))
    site.answers["/schemas/com.acme/link_click/jsonschema/2-0-0"] = (302, f"{site.url}/moved".encode())
    assert resolver.schema(KEY) == resolver.schema(key("2-0-0")) == CLICK_SCHEMA
    assert site.apikeys == ["s3cr3t", "s3cr3t", None], "a redirect does not take it along"
    site.missing = 401
    with pytest.raises(RegistryRefused, match="so the key is wrong") as refused:
        resolver.schema(key("3-0-0"))
    assert "s3cr3t" not in f"{refused.value} {place} {place!r} {resolver._registries}"


def test_a_server_that_does_not_listen_is_a_transient_error(site: Site):
    with pytest.raises(RegistryUnavailable, match="refused"):
        Resolver(["http://127.0.0.1:1"]).schema(KEY)


def test_redirects_are_followed(site: Site):
    path = "/schemas/com.acme/link_click/jsonschema/1-0-0"
    site.answers["/moved"] = (200, orjson.dumps(CLICK_SCHEMA))
    site.answers[path] = (302, f"{site.url}/moved".encode())
    assert Resolver([site.url]).schema(KEY) == CLICK_SCHEMA


def test_user_and_password_are_sent_and_appear_nowhere(site: Site):
    secret = site.url.replace("http://", "http://user:p%40w@")
    resolver = Resolver([secret])
    site.publish("1-0-0")
    assert resolver.schema(KEY) == CLICK_SCHEMA
    assert site.authorizations == ["Basic dXNlcjpwQHc="]
    with pytest.raises(UnknownSchema) as unknown:
        resolver.schema(key("3-0-0"))
    site.answers["/schemas/com.acme/link_click/jsonschema/4-0-0"] = (200, b"{")
    with pytest.raises(SchemaError) as no_json:
        resolver.schema(key("4-0-0"))
    site.missing = 503
    with pytest.raises(RegistryUnavailable) as unavailable:
        resolver.schema(key("5-0-0"))
    messages = [str(error.value) for error in (unknown, no_json, unavailable)]
    assert all(site.url in message for message in messages), messages
    assert not any("user" in message or "p%40w" in message or "dXNl" in message for message in messages), messages


def test_a_redirect_does_not_take_the_password_along(site: Site):
    path = "/schemas/com.acme/link_click/jsonschema/1-0-0"
    site.answers["/moved"] = (200, orjson.dumps(CLICK_SCHEMA))
    site.answers[path] = (302, f"{site.url}/moved".encode())
    assert Resolver([site.url.replace("http://", "http://user:pw@")]).schema(KEY) == CLICK_SCHEMA
    assert site.authorizations == ["Basic dXNlcjpwdw==", None]
