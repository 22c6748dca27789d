"""What `deploy/` gives to Docker and Kubernetes fits their schemas, and agrees with the rest of `deploy/`."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyOptions
from dagster._cli import cli as dagster
from dagster._core.instance.config import dagster_instance_config_schema
from dagster._core.launcher import RunLauncher

from manifest_platform.cli.app import load

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / "values.yaml").read_text())
FOLLOWER: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / "follower.yaml").read_text())
[CODE] = VALUES["dagster-user-deployments"]["deployments"]
[IN_FOLLOWER] = FOLLOWER["spec"]["template"]["spec"]["containers"]


def _fits_compose(text: str) -> list[str]:
    """The services of a Compose file. Raises ValueError if it does not fit the specification."""
    options = PyOptions()
    options.apply_merge = True
    read = options.from_yaml(text)
    read.validate()
    return list(read.service_names())


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_a_compose_file_fits_the_specification(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert set(_fits_compose(text)) == set(yaml.safe_load(text)["services"])
    for right, wrong in (("stop_grace_period", "stop_period"), ("restart: always", "restart: never"), ("60s", "sixty")):
        with pytest.raises(ValueError, match=wrong.rpartition(" ")[2]):
            _fits_compose(text.replace(right, wrong, 1))


def _fits_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.37", strict=True)


def test_the_follower_fits_kubernetes() -> None:
    _fits_kubernetes(FOLLOWER)
    with pytest.raises(kubernetes_validate.ValidationError):
        _fits_kubernetes(FOLLOWER | {"spec": FOLLOWER["spec"] | {"replica": 2}})


@pytest.mark.parametrize("part", ["dagsterWebserver", "dagsterDaemon", "code"])
def test_the_pods_that_the_values_describe_fit_kubernetes(part: str) -> None:
    values = CODE if part == "code" else VALUES[part]
    image = values["image"]
    container = {
        "name": "program",
        "image": f"{image['repository']}:{image['tag']}",
        "imagePullPolicy": image["pullPolicy"],
        "resources": values["resources"],
        "securityContext": values["securityContext"],
        "env": values.get("env", []),
        "envFrom": [{"secretRef": one} for one in values.get("envSecrets", [])],
        "volumeMounts": values.get("volumeMounts", []),
    }
    pod = {"containers": [container], "securityContext": values["podSecurityContext"], "volumes": values.get("volumes", [])}
    _fits_kubernetes({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": pod})
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["allowPrivilegeEscalation"] is False
    assert f"USER {pod['securityContext']['runAsUser']}\n" in (DEPLOY / "Dockerfile").read_text()


def test_the_follower_has_what_the_code_server_has() -> None:
    pod = FOLLOWER["spec"]["template"]["spec"]
    image = CODE["image"]
    assert IN_FOLLOWER["image"] == f"{image['repository']}:{image['tag']}"
    assert (IN_FOLLOWER["env"], IN_FOLLOWER["volumeMounts"]) == (CODE["env"], CODE["volumeMounts"])
    assert [one["secretRef"] for one in IN_FOLLOWER["envFrom"]] == CODE["envSecrets"]
    assert (pod["volumes"], pod["securityContext"]) == (CODE["volumes"], CODE["podSecurityContext"])
    assert pod["serviceAccountName"] == VALUES["global"]["serviceAccountName"] == VALUES["serviceAccount"]["name"]


def test_programs_in_pods_are_known_to_what_is_installed() -> None:
    program, drain, *options = IN_FOLLOWER["command"]
    assert (program, drain) == ("manifest-platform", "drain")
    load("drain").make_context(program, options)
    given = [*CODE["dagsterApiGrpcArgs"], "--host", "0.0.0.0", "--port", str(CODE["port"])]  # the chart adds host and port
    context = dagster.commands["api"].commands["grpc"].make_context("dagster", given)  # type: ignore[attr-defined]
    assert context.params["location_name"] == "manifest_platform"
    launcher = VALUES["runLauncher"]["config"]["customRunLauncher"]
    assert issubclass(getattr(importlib.import_module(launcher["module"]), launcher["class"]), RunLauncher)


def _snake(node: Any) -> Any:
    """The keys of the chart's values, as Dagster's instance has them."""
    match node:
        case dict():
            return {re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", key): _snake(value) for key, value in node.items()}
        case list():
            return [_snake(one) for one in node]
    return node


def test_the_chart_s_instance_is_as_ours() -> None:
    ours = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    daemon = VALUES["dagsterDaemon"]
    queue = _snake(daemon["runCoordinator"]["config"]["queuedRunCoordinator"])
    for one in queue["tag_concurrency_limits"]:
        if isinstance(one.get("value"), dict):
            one["value"] = {"applyLimitPerUniqueValue": one["value"]["apply_limit_per_unique_value"]}
    runs = ours["concurrency"]["runs"]
    assert queue == {**runs, "dequeue_interval_seconds": ours["run_coordinator"]["config"]["dequeue_interval_seconds"]}
    assert VALUES["additionalInstanceConfig"] == {"concurrency": {"pools": ours["concurrency"]["pools"]}}
    for key, given in {
        "run_monitoring": daemon["runMonitoring"],
        "run_retries": daemon["runRetries"],
        "sensors": daemon["sensors"],
        "python_logs": VALUES["pythonLogs"],
        "telemetry": VALUES["telemetry"],
    }.items():
        assert _snake(given) == ours[key], key
    kept = _snake(VALUES["retention"])
    assert kept.pop("enabled") and kept == ours["retention"]
    assert set(VALUES["additionalInstanceConfig"]) <= set(dagster_instance_config_schema())
