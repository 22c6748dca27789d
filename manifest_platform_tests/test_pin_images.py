"""Images are pinned by the digests that a registry gives; here a registry that this test runs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "pin_images.py"
ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
FILE = f"""# FROM a:1 is a comment
FROM python:3.13-slim
services:
  a:
    image: ghcr.io/some/tool:v2@{TWO}
  b:
    image: built
"""


class Registry(ThreadingHTTPServer):
    """A registry: digests by repository and tag, given for a token only."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.digests = {"/v2/library/python/manifests/3.13-slim": ONE, "/v2/some/tool/manifests/v2": TWO}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    @property
    def _registry(self) -> Registry:
        assert isinstance(self.server, Registry)
        return self.server

    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") != "Bearer reader":
            self._answer(401, {"WWW-Authenticate": f'Bearer realm="{self._registry.url}/token",service="here",scope="pull"'})
        elif digest := self._registry.digests.get(self.path):
            assert "image.index" in self.headers["Accept"], "else the digest is that of a single machine's image"
            self._answer(200, {"Docker-Content-Digest": digest})
        else:
            self._answer(404, {})

    def do_GET(self) -> None:
        assert self.path == "/token?service=here&scope=pull"
        self._answer(200, {"Content-Type": "application/json"}, b'{"token": "reader"}')

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any, **__: Any) -> None: ...


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pin_images", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Registry() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "compose.yaml"
    found.write_text(FILE)
    return found


def test_images_with_a_tag_get_the_digest_of_now(script: ModuleType, registry: Registry, file: Path) -> None:
    options = ["--registry", registry.url]
    assert script.main(["--check", *options, str(file)]) == 1
    assert file.read_text() == FILE, "a check writes nothing"
    assert script.main([*options, str(file)]) == 0
    assert file.read_text() == FILE.replace("FROM python:3.13-slim", f"FROM python:3.13-slim@{ONE}")
    assert script.main(["--check", *options, str(file)]) == 0
    registry.digests["/v2/some/tool/manifests/v2"] = ONE
    assert script.main(["--check", *options, str(file)]) == 1, "the tag moved"


def test_a_tag_that_the_registry_lacks_is_named(
    script: ModuleType, registry: Registry, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.digests.clear()
    assert script.main(["--registry", registry.url, str(file)]) == 1
    assert "python:3.13-slim" in capsys.readouterr().err
    assert file.read_text() == FILE


def test_a_registry_out_of_reach_is_not_a_wrong_image(script: ModuleType, file: Path) -> None:
    assert script.main(["--registry", "http://127.0.0.1:1", str(file)]) == script.UNREACHABLE == 75


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("python", ("https://registry-1.docker.io", "library/python")),
        ("apache/spark", ("https://registry-1.docker.io", "apache/spark")),
        ("ghcr.io/some/tool", ("https://ghcr.io", "some/tool")),
        ("localhost:5000/tool", ("https://localhost:5000", "tool")),
    ],
)
def test_an_image_s_name_says_where_it_is(script: ModuleType, name: str, place: tuple[str, str]) -> None:
    assert script.place(name, None) == place
