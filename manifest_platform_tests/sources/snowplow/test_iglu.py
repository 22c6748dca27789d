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
from manifest_platform.sources.snowplow import iglu
from manifest_platform.sources.snowplow.iglu import (
    Place,
    RegistryRefused,
    RegistryUnavailable,
    Resolver,
    SchemaKey,
    UnknownSchema,
)
from manifest_platform.sources.snowplow.shredder import shred_lines
from manifest_platform_tests.sources.snowplow.events import (
    CLICK,
    CLICK_SCHEMA,
    PAGE,
    acme_registry,
    contexts,
    enriched,
    entity,
    publish,
)

KEY = SchemaKey.parse(CLICK)


def key(version: str) -> SchemaKey:
    return SchemaKey.parse(f"iglu:com.acme/link_click/jsonschema/{version}")


class Site:
    """An HTTP server of canned answers by path; counts what it is asked."""

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
                status, body = site.answers.get(self.path, (site.missing, b"none"))
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
    monkeypatch.setattr(iglu, "HTTP_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(iglu, "_HAVE_SERVED", set())
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


def test_a_key_is_parsed_and_printed():
    found = SchemaKey.parse("iglu:org.w3/PerformanceTiming/jsonschema/1-2-30")
    assert (found.vendor, found.name, found.format) == ("org.w3", "PerformanceTiming", "jsonschema")
    assert (found.model, found.revision, found.addition, found.version) == (1, 2, 30, "1-2-30")
    assert str(found) == "iglu:org.w3/PerformanceTiming/jsonschema/1-2-30"
    assert found.table_name == "org_w3_performance_timing_1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "com.acme/a/jsonschema/1-0-0",
        "iglu:com.acme/a/jsonschema/1-0",
        "iglu:com.acme/a/jsonschema/0-0-0",
        "iglu:com.acme/a/jsonschema/1-0-0\n",
        "iglu:com.acme/a/jsonschema/1-0-01",
        "iglu:../a/jsonschema/1-0-0",
        "iglu:com.acme/../jsonschema/1-0-0",
        f"iglu:com.acme/{'a' * 129}/jsonschema/1-0-0",
        "iglu:com.acme/a/jsonschema/1-0-9999999999",
    ],
)
def test_what_is_no_key(text: str):
    with pytest.raises(ValueError, match="is no schema key"):
        SchemaKey.parse(text)


def test_versions_sort_as_numbers():
    assert key("1-0-9") < key("1-0-10") < key("1-2-0") < key("10-0-0")


@pytest.mark.parametrize("below", ["", "schemas"])
def test_a_folder_may_be_schemas_or_hold_it(tmp_path: Path, below: str):
    acme_registry(tmp_path)
    publish(tmp_path, str(key("1-0-10")), CLICK_SCHEMA)
    publish(tmp_path, str(key("1-0-9")), CLICK_SCHEMA)
    publish(tmp_path, str(key("2-0-5")), CLICK_SCHEMA)
    (tmp_path / "schemas/com.acme/link_click/jsonschema/1-0-0.bak").touch()
    resolver = Resolver([str(tmp_path / below)])
    assert resolver.schema(KEY) == CLICK_SCHEMA
    assert resolver.versions(KEY) == [key("1-0-0"), key("1-0-9"), key("1-0-10")]


def test_the_table_of_a_model_has_the_hierarchy_and_the_columns_of_all_versions(tmp_path: Path):
    acme_registry(tmp_path)
    publish(tmp_path, str(key("1-0-1")), {"properties": {"added": {"type": "boolean"}}})
    table = Resolver([str(tmp_path)]).table(KEY).table
    assert table.name == "com_acme_link_click_1"
    assert [column.name for column in table.columns] == [
        *("schema_vendor", "schema_name", "schema_format", "schema_version"),
        *("root_id", "root_tstamp", "ref_root", "ref_tree", "ref_parent"),
        *("target_url", "at", "day", "element_classes", "place_visible", "place_x", "position", "total", "added"),
    ]
    assert [column.nullable for column in table.columns] == [False] * 9 + [True] * 9


def test_the_first_registry_wins_and_versions_are_those_of_all(tmp_path: Path):
    publish(tmp_path / "a", CLICK, {"properties": {"mine": {"type": "string"}}})
    publish(tmp_path / "b", CLICK, CLICK_SCHEMA)
    publish(tmp_path / "b", str(key("1-0-1")), CLICK_SCHEMA)
    resolver = Resolver([str(tmp_path / "a"), str(tmp_path / "b")])
    assert resolver.schema(KEY) == {"properties": {"mine": {"type": "string"}}}
    assert resolver.versions(KEY) == [key("1-0-0"), key("1-0-1")]


def test_an_unknown_schema_names_where_it_was_looked_for(tmp_path: Path):
    acme_registry(tmp_path)
    resolver = Resolver([str(tmp_path)])
    with pytest.raises(UnknownSchema, match=rf"{key('1-0-5')} is in none of {tmp_path}"):
        resolver.table(key("1-0-5"))


def test_found_and_not_found_are_kept(tmp_path: Path):
    acme_registry(tmp_path)
    resolver = Resolver([str(tmp_path)])
    resolver.table(KEY)
    with pytest.raises(UnknownSchema):
        resolver.schema(key("3-0-0"))
    publish(tmp_path, str(key("3-0-0")), CLICK_SCHEMA)
    publish(tmp_path, CLICK, {})
    with pytest.raises(UnknownSchema):
        resolver.schema(key("3-0-0"))
    assert resolver.schema(KEY) == CLICK_SCHEMA
    assert Resolver([str(tmp_path)]).schema(key("3-0-0")) == CLICK_SCHEMA


def test_a_schema_that_is_no_json_or_contradicts_another_is_permanent(tmp_path: Path):
    publish(tmp_path, CLICK, b"{")
    with pytest.raises(SchemaError, match="is no JSON"):
        Resolver([str(tmp_path)]).table(KEY)
    publish(tmp_path, CLICK, {"properties": {"a": {"type": "integer"}}})
    publish(tmp_path, str(key("1-0-1")), {"properties": {"a": {"type": "string"}}})
    with pytest.raises(SchemaError, match="column a is bigint in 1-0-0 but string in 1-0-1"):
        Resolver([str(tmp_path)]).table(KEY)


def test_two_models_cannot_share_a_table(tmp_path: Path):
    other = "iglu:com.acme/LinkClick/jsonschema/1-0-0"
    publish(tmp_path, other, CLICK_SCHEMA)
    resolver = Resolver([str(acme_registry(tmp_path))])
    resolver.table(KEY)
    with pytest.raises(SchemaError, match="both make the table com_acme_link_click_1"):
        resolver.table(SchemaKey.parse(other))


def test_http_versions_from_the_servers_list(site: Site):
    site.publish("1-0-0")
    site.publish("1-0-2")
    listed = [str(key("1-0-2")), str(key("1-0-0")), PAGE, 5, "nonsense"]
    site.answers["/schemas/com.acme/link_click/jsonschema/1"] = (200, orjson.dumps(listed))
    assert Resolver([site.url]).versions(KEY) == [key("1-0-0"), key("1-0-2")]


def test_http_versions_by_asking_for_successors(site: Site):
    for version in ("1-0-0", "1-0-1", "1-1-0", "1-1-1", "1-2-0", "2-0-0"):
        site.publish(version)
    expected = [key(version) for version in ("1-0-0", "1-0-1", "1-1-0", "1-1-1", "1-2-0")]
    assert Resolver([site.url]).versions(key("1-0-1")) == expected
    assert Resolver([f"{site.url}/"]).versions(key("1-1-1")) == expected


def test_http_gaps_below_the_schema_itself_are_stepped_over(site: Site):
    for version in ("1-0-0", "1-2-2", "1-2-3"):
        site.publish(version)
    assert Resolver([site.url]).versions(key("1-2-2")) == [key("1-0-0"), key("1-2-2"), key("1-2-3")]


def test_http_a_version_that_nobody_published_starts_no_search(site: Site):
    with pytest.raises(UnknownSchema):
        Resolver([site.url]).table(key("1-0-999999999"))
    assert sum(site.asked.values()) == 1


@pytest.mark.parametrize("status", [404, 410, 403])
def test_http_not_found_is_asked_once_and_the_next_registry_then(site: Site, tmp_path: Path, status: int):
    site.missing = status
    resolver = Resolver([Place(site.url, forbidden_is_absent=True), str(acme_registry(tmp_path))])
    assert resolver.schema(KEY) == resolver.schema(KEY) == CLICK_SCHEMA
    assert site.asked == {"/schemas/com.acme/link_click/jsonschema/1-0-0": 1}


@pytest.mark.parametrize("status", [500, 503, 429])
def test_http_server_errors_are_transient_retried_and_never_kept(site: Site, tmp_path: Path, status: int):
    site.missing = status
    resolver = Resolver([site.url, str(acme_registry(tmp_path))])
    with pytest.raises(RegistryUnavailable, match=str(status)):
        resolver.schema(KEY)
    assert site.asked.total() == iglu.HTTP_ATTEMPTS
    site.publish("1-0-0")
    assert resolver.schema(KEY) == CLICK_SCHEMA


@pytest.mark.parametrize("status", [401, 403])
def test_http_refused_access_is_no_schemas_absence(site: Site, tmp_path: Path, status: int):
    """A whole backlog went to `bad` as of unknown schemas while a key had expired."""
    site.missing = status
    resolver = Resolver([site.url, str(acme_registry(tmp_path))])
    with pytest.raises(RegistryRefused, match=rf"{site.url}/schemas/.*: the registry answers {status}") as refused:
        resolver.schema(KEY)
    assert isinstance(refused.value, Misconfigured)
    assert "shred.registries" in str(refused.value)
    site.publish("1-0-0")
    assert resolver.schema(KEY) == CLICK_SCHEMA, "it is asked again"


def test_http_forbidden_is_absent_from_a_registry_that_has_given_another(site: Site):
    """Static stores answer 403 for what they lack."""
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


def test_http_forbidden_is_clear_once_another_schema_of_the_same_lines_is_given(site: Site):
    """Whichever of the two is asked for first, the lines become the same."""
    site.missing = 403
    site.publish("1-0-0")
    unknown = enriched(contexts=contexts(entity(str(key("3-0-0")), {})))
    known = enriched(contexts=contexts(entity(CLICK, {"position": 1})))
    shredded = shred_lines(b"".join(line + b"\n" for line in (unknown, known)), Resolver([site.url]))
    assert (shredded.good, shredded.bad.num_rows) == (1, 1)
    assert "unknown_schema" in shredded.bad["reasons"][0].as_py()
    alone = f"http://localhost:{site.server.server_port}"  # another registry, by its name
    with pytest.raises(RegistryRefused):
        shred_lines(unknown + b"\n", Resolver([alone]))


def test_http_apikey_is_sent_and_appears_nowhere(site: Site):
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


def test_http_nobody_listening_is_transient(site: Site):
    with pytest.raises(RegistryUnavailable, match="refused"):
        Resolver(["http://127.0.0.1:1"]).schema(KEY)


def test_http_redirects_are_followed(site: Site):
    path = "/schemas/com.acme/link_click/jsonschema/1-0-0"
    site.answers["/moved"] = (200, orjson.dumps(CLICK_SCHEMA))
    site.answers[path] = (302, f"{site.url}/moved".encode())
    assert Resolver([site.url]).schema(KEY) == CLICK_SCHEMA


def test_http_user_and_password_are_sent_and_appear_nowhere(site: Site):
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


def test_http_a_redirect_does_not_take_the_password_along(site: Site):
    path = "/schemas/com.acme/link_click/jsonschema/1-0-0"
    site.answers["/moved"] = (200, orjson.dumps(CLICK_SCHEMA))
    site.answers[path] = (302, f"{site.url}/moved".encode())
    assert Resolver([site.url.replace("http://", "http://user:pw@")]).schema(KEY) == CLICK_SCHEMA
    assert site.authorizations == ["Basic dXNlcjpwdw==", None]
