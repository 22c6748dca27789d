"""What `deploy/` has a supervisor run: each command and option is known to what is installed; each program comes back."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from dagster._cli import cli as dagster
from dagster._daemon.cli import cli as daemon
from dagster_webserver.cli import dagster_webserver

from manifest_platform.cli.app import load
from manifest_platform.cli.exits import Exit
from manifest_platform.config import load as read_config

ROOT = Path(__file__).parents[1]
DEPLOY, BIN = ROOT / "deploy", Path(sys.executable).parent
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OF_DAGSTER = [unit for unit in UNITS if "instance" not in unit.name and "follower" not in unit.name]
PROGRAMS: dict[str, click.Command] = {
    "dagster": dagster,
    "dagster-daemon": daemon,
    "dagster-webserver": dagster_webserver,
    "manifest-platform": click.Group(commands={"drain": load("drain")}),
}
FILES = {f"/etc/manifest-platform/{name}": path for name, path in (("workspace.yaml", DEPLOY / "workspace.yaml"),)}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
WORKING = [name for name in COMPOSE["services"] if name != "instance"]


class _Unit(configparser.RawConfigParser):
    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, allow_no_value=True)
        self.read(path)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _understood(line: list[str]) -> None:
    """Raises click's UsageError for a command that an installed program does not have, or an option that it does not know."""
    program, *arguments = line
    command: click.Command = PROGRAMS[Path(program).name]
    assert shutil.which(Path(program).name, path=str(BIN)), f"{program} is not installed"
    while isinstance(command, click.Group):
        name = arguments.pop(0)
        command = command.commands[name]
    command.make_context(program, [str(FILES.get(argument, argument)) for argument in arguments])


def _commands(unit: Path) -> list[list[str]]:
    lines = re.findall(r"^Exec\w+=(.*)$", unit.read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_what_is_installed(unit: Path) -> None:
    for line in _commands(unit):
        if line[0].startswith("/bin/"):
            continue
        assert line[0].startswith("/opt/manifest-platform/.venv/bin/")
        _understood(line)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if "instance" not in unit.name], ids=lambda unit: unit.stem)
def test_a_unit_comes_back_however_it_ended(unit: Path) -> None:
    found = _Unit(unit)
    assert (found["Service"]["Restart"], found["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
    assert unit not in OF_DAGSTER or "manifest-platform-instance.service" in found["Unit"]["After"]


def test_a_unit_may_no_more_than_it_needs() -> None:
    for unit in UNITS:
        service = _Unit(unit)["Service"]
        wanted = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "UMask": "0077"}
        assert {key: service[key] for key in wanted} == wanted
        assert service["CapabilityBoundingSet"] == ""
        assert service["User"] == "manifest-platform"


def test_runs_are_told_to_end_with_the_code_server() -> None:
    service = _Unit(DEPLOY / "systemd" / "manifest-platform-code.service")["Service"]
    assert (service["KillMode"], service["OOMPolicy"]) == ("control-group", "continue")
    assert COMPOSE["services"]["code"]["environment"]["TINI_KILL_PROCESS_GROUP"] == "1"


def test_the_target_starts_them_all() -> None:
    wanted = _Unit(DEPLOY / "systemd" / "manifest-platform.target")["Unit"]["Wants"].split()
    assert sorted(wanted) == [unit.name for unit in OF_DAGSTER]


def test_a_follower_that_is_stopped_has_not_failed() -> None:
    service = _Unit(DEPLOY / "systemd" / "manifest-platform-follower.service")["Service"]
    assert (service["KillMode"], service["SuccessExitStatus"]) == ("mixed", str(Exit.TERMINATED.value))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for unit in (DEPLOY / "systemd").iterdir():
        text = unit.read_text().replace("/opt/manifest-platform/.venv/bin", str(BIN))
        (tmp_path / unit.name).write_text(text.replace("User=manifest-platform", "User=root"))
    files = sorted(map(str, tmp_path.iterdir()))
    told = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")


def test_the_image_s_programs_are_not_root_s_and_are_looked_at() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001"]
    [disks] = [line for line in lines if line.startswith("VOLUME")]
    services = (DEPLOY / "aws" / "services.yaml").read_text()
    assert set(re.findall(r"ContainerPath: ([\w/-]+)", services)) == set(re.findall(r'"([^"]+)"', disks))
    [check] = [line for line in lines if line.startswith("HEALTHCHECK")]
    assert check.endswith('CMD ["manifest-platform", "--version"]')
    assert all(re.fullmatch(r"FROM [^:]+:[\w.-]+(@sha256:\w+)?", line) for line in lines if line.startswith("FROM"))


def test_the_cluster_adds_stores_and_spark_to_the_same_services() -> None:
    cluster = yaml.safe_load((DEPLOY / "compose.cluster.yaml").read_text())["services"]
    assert cluster.keys() >= {"postgres", "dynamodb", "s3", "master", "worker", "connect", "follower"}
    assert cluster["worker"]["deploy"] == {"replicas": 2}
    assert not any("ports" in one for one in cluster.values()), "only the webserver's page is published"
    known = {*cluster, *COMPOSE["services"]}
    for name, one in cluster.items():
        assert known >= one.get("depends_on", {}).keys(), name
        image = one.get("image")
        if name in COMPOSE["services"]:
            assert image is None
            assert one["environment"] == {"DAGSTER_PG_HOST": "postgres", "DAGSTER_PG_USERNAME": "dagster"}
        elif name == "stores":
            assert one["restart"] == "on-failure"
        elif image == "manifest-platform":
            program, *_ = shlex.split(one["command"])
            assert shutil.which(program, path=str(BIN)), program
            assert (one["restart"], one["init"], one["read_only"]) == ("always", True, True)
        else:
            assert re.fullmatch(r"[\w/-]+:v?\d[\w.-]*", image), f"{name}: images have versions"
    _understood(shlex.split(cluster["follower"]["command"]))
    assert cluster["dynamodb"]["user"] == "root", "a new volume is root's"


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_native_libraries_may_be_loaded_from_where_spark_unpacks_them(name: str) -> None:
    for service, one in yaml.safe_load((DEPLOY / name).read_text())["services"].items():
        assert all(place.endswith(":exec") for place in one.get("tmpfs", [])), service


def test_the_stores_of_the_cluster_are_made_and_are_those_that_its_page_names(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "running.md").read_text().partition("\n## All on one machine")[2].partition("\n## ")[0]
    [told] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "manifest_platform.yaml").write_text(told)
    config = read_config(tmp_path / "manifest_platform.yaml")
    cluster = yaml.safe_load((DEPLOY / "compose.cluster.yaml").read_text())["services"]
    hosts = set(re.findall(r"(?:sc|https?)://(\w+):|@(\w+)/", told))
    assert {one or other for one, other in hosts} == {"connect", "dynamodb", "s3", "postgres"} <= cluster.keys()
    made = cluster["stores"]["command"][-1]
    assert "create_bucket(Bucket='lake')" in made and made.endswith("&& manifest-platform store create")
    [line] = re.findall(r'python -c "(.*?)"', made)
    compile(line, "stores", "exec")
    assert set(re.findall(r"s3://(\w+)", told)) == {"lake"}
    assert config.manifest.store == "dynamodb://manifest?region=us-east-1&endpoint=http://dynamodb:8000"


@pytest.mark.parametrize("service", WORKING)
def test_a_container_runs_what_is_installed_and_comes_back(service: str) -> None:
    found = COMPOSE["services"][service]
    _understood(shlex.split(found["command"]))
    assert (found["restart"], found["init"], found["read_only"]) == ("always", True, True)
    probe: list[Any] = found["healthcheck"]["test"][1:]
    if probe[0] != "python":
        _understood(probe)
    assert all(port.startswith("127.0.0.1:") for port in found.get("ports", []))


def test_who_looks_for_the_code_server_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    [location] = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    port = location["grpc_server"]["port"]
    [line] = _commands(DEPLOY / "systemd" / "manifest-platform-code.service")
    for command in (line, shlex.split(COMPOSE["services"]["code"]["command"])):
        assert command[command.index("--port") + 1] == str(port)
        assert command[command.index("--location-name") + 1] == location["grpc_server"]["location_name"]
    assert COMPOSE["services"]["code"]["environment"][location["grpc_server"]["host"]["env"]] in COMPOSE["services"]


def test_the_environment_names_what_the_units_use() -> None:
    names = dict(line.split("=", 1) for line in (DEPLOY / "manifest-platform.env").read_text().splitlines() if "=" in line[:40])
    assert {"MANIFEST_PLATFORM_CONFIG", "DAGSTER_HOME", "CODE_SERVER_HOST"} <= set(names)
    [_, copied] = [line for line in _commands(DEPLOY / "systemd" / "manifest-platform-instance.service") if line[0] != "/opt"][
        :2
    ]
    assert Path(copied[-1]).parent == Path(names["DAGSTER_HOME"])
