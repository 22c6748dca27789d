"""What is built with and what is fetched is what was locked, byte for byte; and what is run can be listed and looked up."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from manifest_platform.spark import jars
from manifest_platform.spark.jars import LISTS, S3A, Jar, JarsRefused, listed, verify

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKED = {one["name"]: one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}


def files(package: str) -> set[str]:
    """The hashes of a locked package's files."""
    one = LOCKED[package]
    return {file["hash"] for file in [*one.get("wheels", ()), *([one["sdist"]] if "sdist" in one else ())]}


def test_the_tools_of_the_build_are_installed_by_the_hashes_of_the_lock() -> None:
    text = (ROOT / "scripts" / "build_tools.txt").read_text()
    tools = re.findall(r"^([\w.-]+)==(\S+).*((?:\n    --hash=\S+(?: \\)?)+)", text, re.MULTILINE)
    assert {"hatchling", "editables", "uv"} <= {name for name, _, _ in tools}
    for name, version, hashes in tools:
        assert version == LOCKED[name]["version"], "make build-tools writes the file anew"
        assert set(re.findall(r"--hash=(\S+)", hashes)) == files(name)


def test_make_installs_nothing_without_a_hash() -> None:
    recipe = (ROOT / "Makefile").read_text()
    assert re.findall(r"pip install (.*)", recipe) == [
        "--quiet --disable-pip-version-check --require-hashes --only-binary :all: -r $<"
    ]
    assert "UV_SYNC := $(BIN)/uv sync --locked" in recipe
    assert "--no-build-isolation-package manifest-platform" in recipe, "else the build fetches its backend anew, by no hash"


def test_the_backend_of_the_build_is_the_locked_one() -> None:
    [backend] = PROJECT["build-system"]["requires"]
    assert backend == f"hatchling=={LOCKED['hatchling']['version']}"


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two jars, as a list has them."""
    contents = {"one-1.jar": b"one", "two-1.jar": b"two"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    known = [Jar(hashlib.sha256(content).hexdigest(), "org", "a", "1", name) for name, content in contents.items()]
    monkeypatch.setattr(jars, "listed", lambda _name: iter(known))
    verify(S3A, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda folder: (folder / "one-1.jar").write_bytes(b"onf"), "different content: one-1.jar"),
        (lambda folder: (folder / "one-1.jar").unlink(), "missing: one-1.jar"),
        (lambda folder: (folder / "three-1.jar").write_bytes(b""), "not in the list: three-1.jar"),
    ],
)
def test_jars_that_are_not_those_of_the_list_are_refused(fetched: Path, change: Any, told: str) -> None:
    change(fetched)
    with pytest.raises(JarsRefused, match=re.escape(told)):
        verify(S3A, fetched)


def test_what_was_fetched_is_used_only_once_it_is_verified(fetched: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def ivy(command: list[str], **_more: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[-1]).parent
        folder.mkdir()
        (folder / "one-1.jar").write_bytes(b"one")
        (folder / "two-1.jar").write_bytes(b"somebody else's")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(jars.subprocess, "run", ivy)
    cache = tmp_path.with_name("cache")
    with pytest.raises(JarsRefused, match=r"different content: two-1\.jar"):
        jars.fetch(S3A, cache / S3A, "java")
    assert list(cache.iterdir()) == []


def test_make_jars_prints_the_line_for_a_folder(
    fetched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["jars", str(fetched)])
    assert jars.main() == 0
    assert capsys.readouterr().out == f"spark.jars  {fetched}/*.jar\n"
    (fetched / "three-1.jar").touch()
    assert jars.main() == 1
    assert "not in the list: three-1.jar" in capsys.readouterr().err


def test_jars_of_another_hadoop_than_sparks_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(jars, "shipped", lambda name: Path(f"{name}-3.3.4.jar"))
    monkeypatch.setattr("sys.argv", ["jars", str(tmp_path)])
    assert jars.main() == 1
    assert "is for Hadoop 3.5.0 of pyspark 4.3, but the installed pyspark brings Hadoop 3.3.4" in capsys.readouterr().err


def test_the_lists_have_what_spark_needs() -> None:
    [hadoop] = [version for _, name, version in LISTS[S3A].direct if name == "hadoop-aws"]
    assert jars.shipped("hadoop-client-api").name == f"hadoop-client-api-{hadoop}.jar"
    for name, wanted in LISTS.items():
        found = list(listed(name))
        assert set(wanted.direct) <= {(jar.group, jar.name, jar.version) for jar in found}
        assert not {(jar.group, jar.name) for jar in found} & set(wanted.without)
        assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in found)


def test_the_bill_of_materials_has_every_package_and_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "scripts" / "sbom.py")
    assert spec and spec.loader
    sbom = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sbom)
    output = tmp_path / "sbom.json"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["sbom", str(output)])
    assert sbom.main() == 0
    document = json.loads(output.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    found = document["components"]
    purls = {one["purl"] for one in found if "purl" in one}
    assert {f"pkg:pypi/{name}@{LOCKED[name]['version']}" for name in ("boto3", "duckdb", "httpx", "pyspark")} <= purls
    assert "pkg:maven/org.apache.hadoop/hadoop-aws@3.5.0" in purls
    assert not [purl for purl in purls if purl.startswith(("pkg:pypi/pytest@", "pkg:pypi/hatchling@"))]
    assert len({one["bom-ref"] for one in found}) == len(found)
    assert len([one for one in found if one["bom-ref"].startswith("pyspark/") and one["hashes"]]) > 200


class _Database(BaseHTTPRequestHandler):
    """An advisory database that knows of nothing, or of one fault in httpx."""

    known = False

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        hit = {"vulns": [{"id": "OSV-0", "modified": "2026-01-01T00:00:00Z"}]}
        names = [query["package"].get("name") or query["package"].get("purl", "") for query in asked]
        self._answer({"results": [hit if self.known and "httpx" in name else {} for name in names]})

    def do_GET(self) -> None:
        package = {"package": {"ecosystem": "PyPI", "name": "httpx"}, "versions": [LOCKED["httpx"]["version"]]}
        self._answer({"id": "OSV-0", "modified": "2026-01-01T00:00:00Z", "summary": "invented", "affected": [package]})

    def _answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base calls it so
        pass


@contextmanager
def database(known: bool) -> Generator[str]:
    server = HTTPServer(("127.0.0.1", 0), type("Database", (_Database,), {"known": known}))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def advisories(url: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UV_HTTP_RETRIES": "0", "NO_PROXY": "127.0.0.1"}
    command = [str(ROOT / "scripts" / "advisories"), "--service-url", url]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("known", "code"), [(False, 0), (True, 1)])
def test_advisories_are_looked_up_for_the_locked_packages(known: bool, code: int) -> None:
    with database(known) as url:
        done = advisories(url)
    assert done.returncode == code, done.stderr
    assert ("OSV-0" in done.stdout) == known


def test_a_database_that_cannot_be_reached_has_an_exit_code_of_its_own() -> None:
    done = advisories("http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("no package was checked")


def test_no_check_of_a_change_needs_the_advisory_database() -> None:
    assert "advisories" not in (ROOT / ".ci" / "run").read_text()


def test_the_policy_says_how_to_report_and_which_versions_get_fixes() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    for heading in ("## How to report a fault", "## Which versions get fixes", "(docs/reference/security.md)"):
        assert heading in policy
