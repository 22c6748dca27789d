"""The code location of a vault: its definitions before anything runs."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml

from manifest_platform.orchestration.build import build_defs
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.pipeline.shop import REPOSITORY
from manifest_platform_tests.sources.veeva.ward.ward import FULL, INCR, LOG, Ward, drained, full, incr, land, log

EXAMPLE = REPOSITORY / "manifest_platform_veeva.yaml"
FEEDS = (FULL, INCR, LOG)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The vault's example configuration, with a home of its own."""
    monkeypatch.setenv("MANIFEST_PLATFORM_DEMO", str(tmp_path))
    return EXAMPLE


def _changed(tmp_path: Path, **dataset: dict) -> Path:
    """Returns the example with changed settings of the dataset's parts; None removes a key."""
    whole = yaml.safe_load(EXAMPLE.read_text())
    for part, settings in dataset.items():
        merged = {**whole["datasets"]["vault"][part], **settings}
        whole["datasets"]["vault"][part] = {name: value for name, value in merged.items() if value is not None}
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(whole))
    (tmp_path / "spark_conf").symlink_to(REPOSITORY / "spark_conf")
    return file


def _schedules(defs: dg.Definitions) -> list[dg.ScheduleDefinition]:
    """Returns the schedules of captures."""
    found = [one for one in defs.schedules or () if isinstance(one, dg.ScheduleDefinition)]
    return [one for one in found if one.name != "housekeeping_schedule"]


def _jobs(defs: dg.Definitions) -> dict[str, dg.JobDefinition]:
    return {job.name: job for job in defs.jobs or () if isinstance(job, dg.JobDefinition)}


def _pools(job: dg.JobDefinition) -> set[str]:
    return {pool for node in job.nodes for pool in node.definition.pools}


def test_the_example_has_the_assets_of_every_feed(example: Path) -> None:
    defs = build_defs(example)
    dg.Definitions.validate_loadable(defs)
    specs = {"/".join(spec.key.path): spec for spec in defs.resolve_all_asset_specs()}
    del specs["vault/overview"]
    assert sorted(specs) == sorted(f"vault/{feed}/{name}" for feed in FEEDS for name in ("windows", "shredded", "warehouse"))
    for feed in FEEDS:
        mine = [spec for name, spec in specs.items() if name.startswith(f"vault/{feed}/")]
        assert {spec.partitions_def for spec in mine} == {dg.DynamicPartitionsDefinition(name=f"vault_{feed}")}
        assert all(spec.group_name == f"vault_{feed}" and spec.owners == ["team:data"] and spec.description for spec in mine)
        deps = sorted(dep.asset_key.to_user_string() for spec in mine for dep in spec.deps)
        assert deps == [f"vault/{feed}/shredded", f"vault/{feed}/windows"]
    assert specs["vault/incr/windows"].kinds == {"veeva", "file"}


def test_the_example_has_its_jobs_schedules_and_sensors(example: Path) -> None:
    defs = build_defs(example)
    assert sorted(_jobs(defs)) == [
        "housekeeping",
        "vault_capture",
        "vault_drain",
        "vault_full_begin",
        "vault_full_cancel",
    ]
    schedules = {one.name: one for one in _schedules(defs)}
    assert {name: one.cron_schedule for name, one in schedules.items()} == {
        "vault_capture_often": "5,20,35,50 * * * *",
        "vault_capture_daily": "20 2 * * *",
    }
    assert {one.execution_timezone for one in schedules.values()} == {"UTC"}
    sensors = {sensor.name for sensor in defs.sensors or ()}
    assert sensors == {
        f"{name}_sensor" for name in ("vault_listing", "manifest_failure", "manifest_cancel", "manifest_lost_run")
    }


@pytest.mark.parametrize("secret", ["s3cret", ""])
def test_schedules_are_on_if_the_secret_is_set(example: Path, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("VAULT_PASSWORD", secret)
    schedules = _schedules(build_defs(example))
    status = dg.DefaultScheduleStatus.RUNNING if secret else dg.DefaultScheduleStatus.STOPPED
    assert [one.default_status for one in schedules] == [status, status]
    assert ["VAULT_PASSWORD was not set" in str(one.description) for one in schedules] == [not secret] * 2
    assert "s3cret" not in str([one.description for one in schedules])


def test_a_schedule_captures_its_feeds(example: Path) -> None:
    defs = build_defs(example)
    for schedule, feeds in (("often", [LOG, INCR]), ("daily", [FULL])):
        definition = defs.resolve_schedule_def(f"vault_capture_{schedule}")
        [request] = definition.evaluate_tick(dg.build_schedule_context()).run_requests or []
        assert request.run_config == {"ops": {"vault_capture_op": {"config": {"feeds": feeds}}}}


def test_a_feed_that_is_not_captured_has_no_schedule_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANIFEST_PLATFORM_DEMO", str(tmp_path))
    monkeypatch.setenv("VAULT_PASSWORD", "s3cret")
    defs = build_defs(_changed(tmp_path, vault={"feeds": ["incr"]}))
    schedules = {one.name: one.default_status for one in _schedules(defs)}
    assert schedules == {
        "vault_capture_often": dg.DefaultScheduleStatus.RUNNING,
        "vault_capture_daily": dg.DefaultScheduleStatus.STOPPED,
    }
    often = defs.resolve_schedule_def("vault_capture_often").evaluate_tick(dg.build_schedule_context())
    assert [request.run_config["ops"]["vault_capture_op"]["config"] for request in often.run_requests or []] == [
        {"feeds": ["incr"]}
    ]


def test_a_vault_without_captures_has_no_capture_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANIFEST_PLATFORM_DEMO", str(tmp_path))
    defs = build_defs(_changed(tmp_path, vault={"url": None, "login": None}))
    assert "vault_capture" not in _jobs(defs)
    assert not _schedules(defs)
    windows = next(spec for spec in defs.resolve_all_asset_specs() if spec.key.path == ["vault", "incr", "windows"])
    assert not defs.resolve_asset_graph().get(windows.key).is_executable


def test_logs_have_their_own_drain_if_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANIFEST_PLATFORM_DEMO", str(tmp_path))
    jobs = _jobs(build_defs(_changed(tmp_path, load={"logs": "own"})))
    assert {"vault_drain", "vault_log_drain"} < jobs.keys()
    assert "(full, incr)" in str(jobs["vault_drain"].description)
    assert "(log)" in str(jobs["vault_log_drain"].description)


def test_jobs_and_assets_share_the_expected_pools(example: Path) -> None:
    jobs = _jobs(build_defs(example))
    pools = {name: _pools(job) for name, job in jobs.items()}
    assert pools == {
        "housekeeping": {"housekeeping"},
        "vault_capture": {"vault_capture"},
        "vault_drain": {"warehouse_writer"},
        "vault_full_begin": {"vault_full"},
        "vault_full_cancel": {"warehouse_writer"},
    }
    assert [{job.tags["manifest_platform/turn"]} for job in jobs.values()] == [pools[name] for name in jobs]
    datasets = {name: job.tags.get("manifest_platform/dataset") for name, job in jobs.items()}
    assert datasets == {name: None if name == "housekeeping" else "vault" for name in jobs}


def test_every_feed_is_checked(example: Path) -> None:
    checks = build_defs(example).resolve_asset_graph().asset_check_keys
    found = {("/".join(key.asset_key.path), key.name) for key in checks}
    everywhere = {"feed_not_blocked", "lag", "nothing_behind_watermark", "counts_agree"}
    wanted = {(f"vault/{feed}/warehouse", name) for feed in FEEDS for name in everywhere}
    wanted |= {
        (f"vault/{feed}/shredded", name)
        for feed in FEEDS
        for name in ("rows_accounted_for", "few_bad_rows", "tables_fit_their_schemas")
    }
    wanted |= {(f"vault/{feed}/windows", "no_window_missing") for feed in (INCR, LOG)}
    wanted |= {("vault/incr/windows", f"what_landed_is_{done}") for done in ("registered", "loaded")}
    assert found == wanted | {("vault/incr/warehouse", "no_full_load_needed")}


def test_tables_appear_once_they_are_written(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    with ward.open() as pipeline:
        land(
            pipeline,
            full("0000", {"3d_model__c": {"1": "a"}}),
            incr("0015", {"product__v": {"1": "a", "2": None}}),
            log("0000"),
        )
    with dg.DagsterInstance.ephemeral() as instance:
        dagster = DagsterWard(ward, instance)
        assert dagster.begin(item="latest").success
        assert dagster.drain().success
        every = build_defs(ward.config_file).resolve_all_asset_specs()
        specs = {spec.key.path[-1]: spec for spec in every if spec.key.path[:-1] == ["vault", "warehouse"]}
        assert specs.keys() == {"3d_model__c", "product__v", "login_audit_trail__sys"}, "the deleted keys are no table"
        assert specs["product__v"].metadata["dagster/table_name"].value == "vault.product__v"
        shown = instance.get_latest_materialization_event(dagster.key("warehouse/3d_model__c"))
        assert shown is not None and shown.asset_materialization is not None
        assert shown.asset_materialization.metadata["rows_loaded"].value == 1
    with ward.open() as pipeline:
        assert drained(pipeline)[1].loaded == 0
