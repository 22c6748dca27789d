"""Registries behind latency and faults: few requests, none repeated by another process, and no row is bad for an outage."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas import cache, registry
from manifest_platform.sources.snowplow.schemas.cache import Cache
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.registry import Place, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.resolver import Resolver, UnknownSchema
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity

MODELS = 22


def name(number: int, version: str = "1-0-0") -> str:
    return f"iglu:com.acme/thing_{number}/jsonschema/{version}"


def schema(key: str, **properties: Any) -> dict[str, Any]:
    vendor, own, format_, version = key.removeprefix("iglu:").split("/")
    known = {"vendor": vendor, "name": own, "format": format_, "version": version}
    return {"self": known, "type": "object", "properties": properties or {"id": {"type": "string"}}}


LINES = b"\n".join(enriched(contexts=contexts(*(entity(name(n), {"id": "a"}) for n in range(MODELS)))) for _ in range(2))


class Server:
    """A registry with latency, which counts requests. `lists`: it answers with a model's schemas, as Iglu servers do."""

    def __init__(self) -> None:
        self.schemas: dict[str, dict[str, Any]] = {name(n): schema(name(n)) for n in range(MODELS)}
        self.lists, self.seconds = True, 0.0
        self.at_once = self.most = 0
        self.busy = self.began = 0.0  # seconds with a request under way
        self.lock = threading.Lock()
        self.fails = lambda: 0
        self.asked: Counter[str] = Counter()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.partition("?")[0].removeprefix("/schemas/")
                with server.lock:
                    server.asked[path] += 1
                    server.began = server.began if server.at_once else time.monotonic()
                    server.at_once += 1
                    server.most = max(server.most, server.at_once)
                time.sleep(server.seconds)
                with server.lock:
                    server.at_once -= 1
                    server.busy += 0 if server.at_once else time.monotonic() - server.began
                found: Any = server.schemas.get(f"iglu:{path}")
                if found is None and server.lists:
                    found = [one for key, one in server.schemas.items() if key.startswith(f"iglu:{path}-")] or None
                status = server.fails() or (200 if found else 404)
                page = status == 299
                body = b"<html>back soon</html>" if page else orjson.dumps(found)
                if status == -1:
                    self.close_connection = True
                    return
                self.send_response(200 if page else status)
                self.send_header("Content-Type", "text/html" if page else "application/json")
                self.send_header("Content-Length", str(len(body) + (50 if status == 298 else 0)))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = status == 298

            def log_message(self, *_: Any, **__: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def fail_at_random(self, share: float) -> Counter[int]:
        """Lets this share of the answers be errors, cut connections, half answers or web pages. Returns the count of each."""
        chance, faults = random.Random(19), Counter[int]()

        def fails() -> int:
            kind = chance.choice([500, 502, 503, 429, 408, -1, 298, 299]) if chance.random() < share else 0
            faults[kind] += 1
            return kind

        self.fails = fails
        return faults

    def opened(self, folder: Path | None = None, **kept: float) -> Resolver:
        return opened(self.url, folder, **kept)


def opened(url: str, folder: Path | None, **kept: float) -> Resolver:
    return Resolver([Place(url, cache=Cache(str(folder) if folder else None, **kept))])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(registry, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(registry, "_HAVE_SERVED", set())
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


def shredded(resolver: Resolver, lines: bytes = LINES) -> ShreddedEvents:
    try:
        return shred_lines(lines, resolver)
    finally:
        resolver.close()


def in_another_process(server: Server, folder: Path) -> tuple[int, int, int]:
    """Returns the good lines, the bad lines and the tables that a process of its own makes of the lines."""
    program = f"""
from pathlib import Path
from manifest_platform_tests.sources.snowplow.schemas import test_cache
found = test_cache.shredded(test_cache.opened({server.url!r}, Path({str(folder)!r})))
print(found.good, found.bad.num_rows, len(found.tables))
"""
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    good, bad, tables = map(int, done.stdout.split())
    return good, bad, tables


def test_22_tables_behind_latency_cost_24_requests_many_at_once(server: Server, tmp_path: Path) -> None:
    server.seconds = 0.1
    first = shredded(server.opened(tmp_path / "kept"))
    assert server.most >= 4
    assert server.busy < 0.1 * MODELS / 2, "less than half of the time that one request after the other takes"
    assert (first.good, first.bad.num_rows, len(first.tables)) == (2, 0, MODELS + 1)
    assert in_another_process(server, tmp_path / "kept") == (2, 0, MODELS + 1)
    assert server.asked.total() <= MODELS + 2


def test_a_site_without_lists_is_asked_at_once_too(server: Server, tmp_path: Path) -> None:
    server.seconds, server.lists = 0.1, False
    assert shredded(server.opened(tmp_path / "kept")).good == 2
    assert server.most >= 4
    assert server.busy < 0.1 * 3 * MODELS / 2
    assert shredded(server.opened(tmp_path / "kept")).good == 2
    assert server.asked.total() <= 3 * MODELS + 2, "the schema, and the two versions that could follow it, once"


def test_a_schema_that_is_skipped_is_not_asked_for(server: Server) -> None:
    rules = Rules(entities=((name(3, "*-*-*"), "skip"), ("iglu:com.acme/*/jsonschema/2-*-*", "skip")))
    server.schemas[name(4, "2-0-0")] = schema(name(4, "2-0-0"))
    lines = LINES.replace(name(4).encode(), name(4, "2-0-0").encode())
    found = shred_lines(lines, Resolver([Place(server.url)], rules=rules), rules=rules)
    assert (found.good, len(found.tables)) == (2, MODELS - 2 + 1)
    assert not [path for path in server.asked if "thing_3/" in path or "thing_4/" in path]


def test_answers_are_used_for_the_configured_time(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = SchemaKey.parse(name(0))
    server.opened(tmp_path).table(key)
    asked = server.asked.total()
    server.opened(tmp_path).table(key)
    assert server.asked.total() == asked
    server.opened(tmp_path, seconds=0.0).table(key)
    assert server.asked.total() > asked
    asked = server.asked.total()
    now = time.time
    monkeypatch.setattr(cache.time, "time", lambda: now() + 601)
    server.opened(tmp_path).table(key)
    assert server.asked.total() > asked


def test_a_version_that_an_old_list_lacks_brings_a_new_list(server: Server, tmp_path: Path) -> None:
    """The version before it adds a column too, which would otherwise come later and stand behind."""
    server.opened(tmp_path).table(SchemaKey.parse(name(0)))
    server.schemas[name(0, "1-0-1")] = schema(name(0, "1-0-1"), id={"type": "string"}, a={"type": "string"})
    server.schemas[name(0, "1-0-2")] = schema(name(0, "1-0-2"), id={"type": "string"}, b={"type": "string"})
    table = server.opened(tmp_path).table(SchemaKey.parse(name(0, "1-0-2"))).table
    assert [column.name for column in table.columns][-3:] == ["id", "a", "b"]


def test_a_missing_schema_is_asked_for_again_soon(server: Server, tmp_path: Path) -> None:
    key = SchemaKey.parse(name(0, "1-0-1"))
    server.opened(tmp_path).table(SchemaKey.parse(name(0)))
    for kept in (10.0, 10.0, 0.0):
        with pytest.raises(UnknownSchema):
            server.opened(tmp_path, missing_seconds=kept).schema(key)
    asked = server.asked.total()
    server.schemas[str(key)] = schema(str(key))
    with pytest.raises(UnknownSchema):
        server.opened(tmp_path).schema(key)
    assert server.asked.total() == asked, "it was missing a moment ago"
    assert server.opened(tmp_path, missing_seconds=0.0).schema(key)


def test_what_was_found_is_used_while_the_registry_is_down(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shredded(server.opened(tmp_path))
    server.fails = lambda: 503
    now = time.time
    monkeypatch.setattr(cache.time, "time", lambda: now() + 3_600)
    during = shredded(server.opened(tmp_path))
    assert during.tables == before.tables and not during.bad.num_rows
    with pytest.raises(RegistryUnavailable):
        server.opened(tmp_path).schema(SchemaKey.parse(name(0, "1-0-1")))
    with pytest.raises(RegistryUnavailable):
        server.opened(tmp_path, stale_seconds=0.0).schema(SchemaKey.parse(name(0)))
    monkeypatch.setattr(cache.time, "time", lambda: now() + 90_000)
    with pytest.raises(RegistryUnavailable):
        server.opened(tmp_path).schema(SchemaKey.parse(name(0)))


@pytest.mark.parametrize("lists", [True, False])
def test_a_registry_that_fails_at_random_sends_no_row_to_bad(lists: bool, server: Server, tmp_path: Path) -> None:
    """Errors, cut connections, half answers and web pages: a batch either fails as a whole or every line is good."""
    few = b"\n".join(enriched(contexts=contexts(*(entity(name(n), {"id": "a"}) for n in range(5)))) for _ in range(2))
    server.lists, faults = lists, server.fail_at_random(0.3)
    for batch in range(12):
        folder = tmp_path / "kept" if batch % 2 else None
        try:
            found = shredded(server.opened(folder, seconds=0.001), few)
            assert (found.good, found.bad.num_rows) == (2, 0)
        except RegistryUnavailable:
            continue
    assert faults.total() - faults[0] > 20
    server.fails = lambda: 0
    assert shredded(server.opened(tmp_path / "kept"), few).good == 2


@pytest.mark.long
@pytest.mark.parametrize("lists", [True, False])
def test_an_hour_of_faults_sends_no_row_to_bad(
    lists: bool, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run a minute, with the cache's own times. Every few minutes its events have a new type, or a new revision of a type."""
    server.lists, faults = lists, server.fail_at_random(0.7)
    now, begun = time.time, time.time()
    waiting: list[bytes] = []
    outages = 0
    for minute in range(60):
        monkeypatch.setattr(cache.time, "time", lambda at=minute: begun + 60 * at)
        used = [name(number) for number in range(minute // 3 + 1)] + [name(minute // 3, f"1-0-{minute % 3}")]
        for key in used:
            server.schemas.setdefault(key, schema(key))
        waiting.append(b"\n".join(enriched(contexts=contexts(*(entity(key, {"id": "a"}) for key in used))) for _ in range(2)))
        for run in [*waiting]:
            try:
                found = shredded(server.opened(tmp_path / "kept"), run)
            except RegistryUnavailable:
                outages += 1
            else:
                assert (found.good, found.bad.num_rows) == (2, 0), f"minute {minute}"
                waiting.remove(run)
    monkeypatch.setattr(cache.time, "time", now)
    assert outages > 10 and faults.total() - faults[0] > 100
    server.fails = lambda: 0
    assert all(shredded(server.opened(tmp_path / "kept"), run).good == 2 for run in waiting)


def test_a_folder_that_others_can_write_to_is_not_used(server: Server, tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    server.opened(open_to_all).table(SchemaKey.parse(name(0)))
    assert not list(open_to_all.iterdir())


def test_registries_with_other_credentials_share_no_answers_and_name_no_secret(server: Server, tmp_path: Path) -> None:
    kept = Cache(str(tmp_path / "kept"))
    for secret in ("one-apikey", "other-apikey"):
        Resolver([Place(server.url, secret, cache=kept)]).table(SchemaKey.parse(name(0)))
    assert server.asked[name(0).removeprefix("iglu:")] == 2
    texts = [f"{path} {path.read_bytes() if path.is_file() else ''}" for path in (tmp_path / "kept").rglob("*")]
    assert len(texts) > 4 and not any("apikey" in text for text in texts)
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0


def test_damaged_files_of_the_cache_are_asked_for_again(server: Server, tmp_path: Path) -> None:
    server.opened(tmp_path / "kept").table(SchemaKey.parse(name(0)))
    for path in (tmp_path / "kept").rglob("*"):
        if path.is_file() and not path.name.startswith("salt"):
            path.write_bytes(b'{"family": "x"')
    assert server.opened(tmp_path / "kept").table(SchemaKey.parse(name(0))).columns


def test_the_registry_for_a_vendor_is_asked_first_and_alone(server: Server, tmp_path: Path) -> None:
    other = Server()
    thread = threading.Thread(target=other.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        other.schemas = {"iglu:org.else/x/jsonschema/1-0-0": schema("iglu:org.else/x/jsonschema/1-0-0")}
        places = [Place(other.url, priority=5), Place(server.url, prefixes=("com.acme",), priority=9)]
        resolver = Resolver(places)
        assert resolver.table(SchemaKey.parse(name(0))).columns
        assert not other.asked, "the registry of the vendor has the model"
        assert resolver.table(SchemaKey.parse("iglu:org.else/x/jsonschema/1-0-0")).columns
        assert Resolver([Place("/nowhere", priority=2), Place(server.url, priority=1)].copy()).names.startswith(server.url)
    finally:
        other.http.shutdown()
        thread.join()
        other.http.server_close()
