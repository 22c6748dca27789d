"""Targets in the configuration: names, places, and short forms."""

from __future__ import annotations

import pytest

from manifest_platform.config import load
from manifest_platform.config.targets import start_of
from manifest_platform_tests.config.test_config import WHOLE, problems, write  # noqa: F401 - a fixture

LAB = "targets: {lab: {path: lab.duckdb}}"


def test_targets_follow_the_warehouse_and_a_dataset_may_name_its_own(write, tmp_path):  # noqa: F811
    settings = load(write(f"{WHOLE}\n{LAB}"))
    assert settings.targets_of("acme") == ("warehouse", "lab")
    assert settings.engine_of("acme", "lab").place == f"{tmp_path}/lab.duckdb"
    assert start_of(settings.engine_of("acme", "lab")) == "beginning"
    limited = load(write(f"{WHOLE}    load: {{targets: [lab]}}\n{LAB}"))
    assert limited.targets_of("acme") == ("lab",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("targets: {lab: {path: .manifest_platform/warehouse.duckdb}}", "are the same place: give each its own"),
        ("targets: {warehouse: {path: lab.duckdb}}", "the key `warehouse` declares the target of this name"),
        ("targets: {lab: {kind: oracle}}", "targets.lab.kind: 'oracle': allowed: "),
        ("targets: {lab: {path: lab.duckdb, begin: now}}", "targets.lab.begin: unknown key; allowed here: kind, path, start"),
        ("targets: {lab: 'oracle://host/database'}", "targets.lab.kind"),
        ("warehouse: {path: x.duckdb, start: beginning}", "warehouse.start: unknown key"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(write, text, said):  # noqa: F811
    assert said in problems(write(f"{WHOLE}\n{text}"))


def test_a_dataset_names_only_targets_that_there_are(write):  # noqa: F811
    message = problems(write(f"{WHOLE}    load: {{targets: [lab]}}\n"))
    assert "datasets.acme.load.targets: 'lab' is not configured; allowed: warehouse" in message


def test_two_servers_are_the_same_place_whatever_their_keys(write):  # noqa: F811
    server = "postgresql://loader@host:5432/sales"
    message = problems(write(f"{WHOLE}\nwarehouse: {server}\ntargets: {{lab: {{kind: postgresql, url: '{server}'}}}}"))
    assert "warehouse and targets.lab are the same place" in message
