"""`manifest-platform fake-vault` runs as a process of its own, without a configuration."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from manifest_platform.cli import Exit, main
from manifest_platform.fake_vault import FakeVault, Simulation
from manifest_platform_tests.fake_vault.client import API, FILES


def test_the_command_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "manifest_platform",
        "fake-vault",
        "--port",
        "0",
        "--rows",
        "1",
        "--full-hour",
        "8",
        "--json",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        with httpx.Client(base_url=told["url"], trust_env=False, verify=False) as client:
            login = {"username": told["user"], "password": told["password"]}
            session = client.post(f"{API}/auth", data=login).json()
            assert session["vaultId"] == told["vault"]
            query = {"extract_type": "full_directdata"}
            listed = client.get(FILES, params=query, headers={"Authorization": session["sessionId"]}).json()
            assert {entry["stop_time"] for entry in listed["data"]} == {
                f"2026-01-0{at}Z" for at in ("1T00:00", "1T08:00", "2T08:00")
            }
            assert client.post("/fake/clock", json={"minutes": 15}).json() == {"now": "2026-01-02T09:15:00+00:00"}
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == Exit.DONE
        assert process.stderr
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_its_url_and_the_calls_that_control_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("manifest_platform.cli.fake_vault._wait", interrupt)
    assert main(["fake-vault", "--port", "0", "--days", "3"]) == Exit.DONE
    out = capsys.readouterr().out
    for word in ("http://127.0.0.1:", "146478", "integration@acme.example", "2026-01-04T01:00Z", "/fake/clock", "/fake/faults"):
        assert word in out


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeVault(Simulation(rows=1)) as vault:
        assert main(["fake-vault", "--port", vault.url.rpartition(":")[2]]) == Exit.WRONG_USE
    assert "choose another with --port" in capsys.readouterr().err
