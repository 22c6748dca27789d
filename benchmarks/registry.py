"""Requests to a registry and seconds, until the schemas of 22 tables are known, behind a latency.

python benchmarks/registry.py [--repeats 3] [--scale 1]

server    an Iglu server, which gives all versions of a model in one answer
site      a static site, which gives no lists: each version is asked for by its name, and so are the two that could follow
later     the next process of the machine, which finds the answers in the shared folder
plain     the site as a resolver asks it that keeps nothing and waits for each answer: for a list, the schema, what could follow
"""

from __future__ import annotations

import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
from pairs import arguments, interleaved, print_figure, print_medians, print_ratio

from manifest_platform.sources.snowplow.schemas.cache import Cache
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.registry import Place
from manifest_platform.sources.snowplow.schemas.resolver import Resolver

MODELS, LATENCY_S = 22, 0.1
SERVER_GOAL, SITE_GOAL, GOAL_S, RATIO_GOAL = 24, 68, 2.0, 0.25
KEYS = [SchemaKey("com.acme", f"thing_{number}", "jsonschema", 1, 0, 0) for number in range(MODELS)]
LINES = b"\n".join(orjson.dumps([{"schema": str(key)} for key in KEYS]) for _ in range(2))


@dataclass
class Registry:
    """A registry on this machine, which counts requests. `lists`: True for an Iglu server."""

    url: str
    asked: int = 0
    lists: bool = False


@contextmanager
def registry(latency: float) -> Generator[Registry]:
    """Yields a registry that waits before each answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.asked += 1
            time.sleep(latency)
            answer = document(self.path.partition("?")[0].removeprefix("/schemas/"), found.lists)
            body = orjson.dumps(answer)
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any, **__: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Registry(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def document(path: str, lists: bool) -> Any:
    """Returns what the registry has at a path; None if it has nothing there."""
    for key in KEYS:
        known = {"vendor": key.vendor, "name": key.name, "format": key.format, "version": key.version}
        schema = {"self": known, "type": "object", "properties": {"id": {"type": "string"}}}
        if path == key.path:
            return schema
        if lists and f"iglu:{path}" == key.family:
            return [schema]
    return None


def ours(found: Registry, folder: str | None) -> float:
    """Learns the tables of all models as a process that shreds does; returns its seconds."""
    began = time.monotonic()
    resolver = Resolver([Place(found.url, cache=Cache(folder))])
    resolver.warm(LINES)
    assert all(resolver.table(key).columns for key in KEYS)
    resolver.close()
    return time.monotonic() - began


def plain(found: Registry) -> float:
    """Asks one question after the other; returns the seconds."""
    began = time.monotonic()
    for key in KEYS:
        model = key.path.rpartition("-")[0].rpartition("-")[0]
        for path in (model, key.path, f"{model}-0-1", f"{model}-1-0"):
            try:
                urllib.request.urlopen(f"{found.url}/schemas/{path}").read()
            except urllib.error.HTTPError as error:
                error.read()
    return time.monotonic() - began


def main() -> None:
    """Measures all ways in turns, and prints requests and seconds."""
    parsed = arguments(__doc__, 3, f"answers {LATENCY_S * 1000:.0f} ms late").parse_args()
    requests: dict[str, int] = {}
    with registry(LATENCY_S * parsed.scale) as found, tempfile.TemporaryDirectory() as folder:

        def measured(way: str) -> float:
            found.asked, found.lists = 0, way == "server"
            seconds = plain(found) if way == "plain" else ours(found, folder if way == "later" else None)
            requests[way] = found.asked
            return seconds

        ways = {way: lambda way=way: measured(way) for way in ("server", "site", "later", "plain")}
        seconds = interleaved(ways, parsed.repeats)
    print_medians(seconds)
    print(f"requests   {', '.join(f'{way} {asked}' for way, asked in requests.items())}")
    print_figure("an Iglu server, requests", requests["server"], SERVER_GOAL)
    print_figure("a static site, requests", requests["site"], SITE_GOAL)
    print_figure("a later process, requests", requests["later"], 0)
    print_figure("an Iglu server", max(seconds["server"]), GOAL_S, " s")
    print_figure("a static site", max(seconds["site"]), GOAL_S, " s")
    print_ratio("a static site", seconds, "site", "plain", RATIO_GOAL)


if __name__ == "__main__":
    main()
