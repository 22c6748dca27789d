"""A user's own assets with epochs and order: superseded inputs are refused, and strict assets are committed in order."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import dagster as dg
import pytest

from manifest_platform.config import ConfigError
from manifest_platform.manifest import Application, Manifest, Ready, Record, State, StoreUnavailable
from manifest_platform.orchestration.build import build_defs, build_resources
from manifest_platform.orchestration.keys import item_partitions
from manifest_platform.orchestration.own_assets import CURRENT, IO_MANAGER
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import outputs
from manifest_platform_tests.orchestration.code_location import QUIET, failure, materialized_by
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.orchestration.parquet_frames import Frame
from manifest_platform_tests.sources.veeva.ward.ward import (
    INCR,
    NAME,
    PRODUCT,
    Ward,
    Window,
    begun,
    drained,
    full,
    incrs,
    key_of,
    land,
    log,
)

pytest_plugins = ["manifest_platform_tests.orchestration.parquet_frames"]
pytestmark = pytest.mark.usefixtures("frames")

SNAPSHOT, LATER = full("0000"), full("0030")
CHANGES = incrs("0015", "0100")
PARTITIONS = item_partitions(NAME, INCR)
STRICT = {"name": "report", "feed": INCR, "upstream": ["load"], "order": "strict"}
Seen = dict[str, Any]


def own(
    name: str, upstream: str, *, metadata: Mapping[str, Any] | None = None, meanwhile: Callable[[], object] | None = None
) -> dg.AssetsDefinition:
    """Returns an asset that returns what it read. `meanwhile`: called between the read and the write."""

    @dg.asset(
        key=dg.AssetKey([NAME, INCR, *name.split("/")]),
        ins={"rows": dg.AssetIn(dg.AssetKey([NAME, INCR, upstream]), metadata={"table": PRODUCT})},
        partitions_def=PARTITIONS,
        metadata=metadata,
        backfill_policy=dg.BackfillPolicy.multi_run(1),
        io_manager_key=IO_MANAGER,
    )
    def asset(rows: Any) -> Any:
        if meanwhile:
            meanwhile()
        return rows

    return asset


def by_partition(seen: list[str] | None = None) -> dg.AssetsDefinition:
    """Returns a strict asset for all partitions of a run, which returns them in the run's order."""

    @dg.asset(
        key=dg.AssetKey([NAME, INCR, "report"]),
        ins={"rows": dg.AssetIn(dg.AssetKey([NAME, INCR, "warehouse"]), metadata={"table": PRODUCT})},
        partitions_def=PARTITIONS,
        metadata={"order": "strict"},
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=IO_MANAGER,
    )
    def report(context: dg.AssetExecutionContext, rows: Any) -> Any:
        if seen is not None:
            seen.extend(context.partition_keys)
        return dict.fromkeys(context.partition_keys, rows)

    return report


class OwnWard(DagsterWard):
    """A ward with a user's own assets, a snapshot and four windows of changes."""

    def load(self, *snapshots: Window) -> None:
        """Loads snapshots with full loads, and then later windows."""
        with self.ward.open() as pipeline:
            for snapshot in snapshots:
                begun(pipeline, snapshot.name)
                drained(pipeline)

    def make(self, asset: str, *windows: Window) -> None:
        for window in windows:
            assert self.run_assets([f"incr/{asset}"], window.name).success

    def refusal(self, asset: str, window: Window) -> str:
        return failure(self.run_assets([f"incr/{asset}"], window.name))

    def commits(self, asset: str) -> list[str]:
        """Returns the partitions with outputs of an asset, in the order of their commits."""
        with self.ward.open() as pipeline:
            found = [
                (record.timestamp, item.key.name)
                for item in pipeline.manifest.items(INCR)
                for record in item.records
                if record.state is State.PROCESSED and record.application.name == asset
            ]
        return [name for _, name in sorted(found)]

    def record(self, asset: str, window: Window) -> Record:
        with self.ward.open() as pipeline:
            record = pipeline.manifest.item(pipeline.key(window.name)).processed_by(Application(asset))
        assert record is not None
        return record

    def check(self, asset: str) -> dg.AssetCheckEvaluation:
        return self.run_checks()[f"incr/{asset}", CURRENT]


Opened = Callable[..., OwnWard]


@pytest.fixture
def opened(tmp_path: Path, instance: dg.DagsterInstance) -> Opened:
    """Makes a ward with assets, whose first snapshot and the four windows after it are loaded."""

    def make(*assets: dg.AssetsDefinition, steps: list[dict[str, Any]] | None = None, **settings: Any) -> OwnWard:
        ward = OwnWard(Ward(tmp_path, steps=steps or [], **settings), instance, assets)
        with ward.ward.open() as pipeline:
            land(pipeline, SNAPSHOT, *CHANGES)
        ward.add(INCR, *(window.name for window in reversed(CHANGES)))
        ward.load(SNAPSHOT)
        return ward

    return make


def names(*windows: Window) -> list[str]:
    return [window.name for window in windows]


# Epochs


def test_outputs_from_the_warehouse_are_superseded_by_a_full_load(opened: Opened) -> None:
    ward = opened(own("views", "warehouse"), own("paths", "views"), own("typed", "shredded"))
    for asset in ("views", "paths", "typed"):
        ward.make(asset, CHANGES[0], CHANGES[3])
    assert (ward.record("views", CHANGES[3]).epoch, ward.record("typed", CHANGES[3]).epoch) == (2, None)
    assert ward.shown("incr/views", CHANGES[3].name)["epoch"] == 2
    assert ward.check("views").passed
    with ward.ward.open() as pipeline:
        land(pipeline, LATER)
    ward.load(LATER)
    assert "what load did of incr/" in ward.refusal("views", CHANGES[0])
    assert "in epoch 2 is superseded: since a full load, epoch 3 serves" in ward.refusal("views", CHANGES[0])
    for window in (CHANGES[0], CHANGES[3]):
        message = ward.refusal("paths", window)
        assert f"what views made of {window.name} is superseded" in message
        assert "in epoch 2, but epoch 3 serves now" in message
    ward.make("typed", CHANGES[0])
    told = ward.check("views")
    assert not told.passed
    assert told.metadata["partitions"].value == ", ".join(names(CHANGES[0], CHANGES[3]))
    assert ward.check("typed").passed
    ward.make("views", CHANGES[3])
    ward.make("paths", CHANGES[3])
    assert ward.record("views", CHANGES[3]).epoch == 3
    told = ward.check("views")
    assert told.passed, "what the snapshot contains cannot be made anew"
    assert (told.metadata["superseded"].value, told.metadata["contained"].value) == (0, 1)


def test_an_output_is_refused_if_a_full_load_came_between_read_and_write(opened: Opened) -> None:
    wards: list[OwnWard] = []

    def load_in_full() -> None:
        with wards[0].ward.open() as pipeline:
            land(pipeline, LATER)
        wards[0].load(LATER)

    wards.append(opened(own("views", "warehouse", meanwhile=load_in_full)))
    message = wards[0].refusal("views", CHANGES[3])
    assert "superseded while this was made: it was made from what load did" in message
    assert "in epoch 2, but epoch 3 serves now" in message
    assert wards[0].commits("views") == []


def test_shredding_again_supersedes_outputs_made_from_it(opened: Opened) -> None:
    ward = opened(own("typed", "shredded"), own("more", "typed"))
    ward.make("typed", CHANGES[0])
    with ward.ward.open() as pipeline:
        pipeline.manifest.reopen(key_of(pipeline, "0015"), ["shred"], "the schema was mended")
    message = ward.refusal("more", CHANGES[0])
    assert "(the schema was mended), and has not yet" in message


def test_an_unread_stage_counts_as_it_was_when_the_step_began(opened: Opened) -> None:
    """This applies to an asset that queries the warehouse with SQL."""
    wards: list[OwnWard] = []
    again: list[bool] = []

    @dg.asset(
        key=dg.AssetKey([NAME, INCR, "asked"]),
        deps=[dg.AssetKey([NAME, INCR, "warehouse"])],
        partitions_def=PARTITIONS,
        io_manager_key=IO_MANAGER,
    )
    def asked() -> Any:
        if again:
            with wards[0].ward.open() as pipeline:
                land(pipeline, LATER)
            wards[0].load(LATER)
        import pyarrow as pa

        return Frame(pa.table({"id": ["1"]}))

    wards.append(opened(asked))
    wards[0].make("asked", CHANGES[3])
    assert wards[0].record("asked", CHANGES[3]).epoch == 2
    again.append(True)
    assert "load processed incr/" in (message := wards[0].refusal("asked", CHANGES[3]))
    assert "again while this output was made" in message


@pytest.mark.stores("dynamodb")
def test_epochs_and_order_also_hold_on_dynamodb(opened: Opened, store_url: str) -> None:
    """This test covers epochs, a full load between read and write, and order: a new DynamoDB table takes long."""
    wards: list[OwnWard] = []
    now: list[bool] = []

    def load_in_full() -> None:
        if now:
            now.clear()
            with wards[0].ward.open() as pipeline:
                land(pipeline, LATER)
            wards[0].load(LATER)

    report = own("report", "warehouse", metadata={"order": "strict"}, meanwhile=load_in_full)
    wards.append(opened(report, steps=[STRICT], store_url=store_url))
    assert f"{CHANGES[0].name} comes first" in wards[0].refusal("report", CHANGES[1])
    wards[0].make("report", *CHANGES[:3])
    now.append(True)
    message = wards[0].refusal("report", CHANGES[3])
    assert f"{CHANGES[3].name} is out of order: {CHANGES[2].name} comes first and is not done by report" in message
    wards[0].make("report", CHANGES[2], CHANGES[3])
    assert wards[0].commits("report") == names(*CHANGES[:3], CHANGES[2], CHANGES[3])


# Staleness in Dagster


def stale(ward: DagsterWard, asset: str, window: Window) -> str:
    from dagster._core.definitions.data_version import CachingStaleStatusResolver
    from dagster._core.loader import LoadingContextForTest

    graph = ward.defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(ward.instance, graph, LoadingContextForTest(ward.instance))
    return resolver.get_status(ward.key(f"incr/{asset}"), window.name).value


def test_dagster_shows_as_stale_what_a_full_load_superseded(opened: Opened) -> None:
    ward = opened(own("views", "warehouse"), own("typed", "shredded"))
    ward.tick()
    ward.make("views", CHANGES[3])
    ward.make("typed", CHANGES[3])
    assert (stale(ward, "views", CHANGES[3]), stale(ward, "typed", CHANGES[3])) == ("FRESH", "FRESH")
    with ward.ward.open() as pipeline:
        land(pipeline, LATER)
        begun(pipeline, LATER.name)
    assert ward.drain().success
    assert (stale(ward, "views", CHANGES[3]), stale(ward, "typed", CHANGES[3])) == ("STALE", "FRESH")
    assert (stale(ward, "shredded", CHANGES[3]), stale(ward, "warehouse", CHANGES[3])) == ("FRESH", "FRESH")
    ward.make("views", CHANGES[3])
    assert stale(ward, "views", CHANGES[3]) == "FRESH"


def test_the_sensor_reports_superseded_outputs_once_after_a_full_load(opened: Opened) -> None:
    ward = opened(own("views", "warehouse"))
    ward.make("views", CHANGES[0], CHANGES[3])

    def told(result: dg.SensorResult) -> list[bool]:
        return [
            one.passed for one in result.asset_events if isinstance(one, dg.AssetCheckEvaluation) and one.check_name == CURRENT
        ]

    first = ward.tick()
    second = ward.tick(first.cursor)
    assert (told(first), told(second)) == ([True], [])
    with ward.ward.open() as pipeline:
        land(pipeline, LATER)
    ward.load(LATER)
    third = ward.tick(second.cursor)
    assert (told(third), told(ward.tick(third.cursor))) == ([False], [])


# Order


def test_a_strict_asset_is_committed_in_the_manifests_order(opened: Opened) -> None:
    ward = opened(own("report", "warehouse", metadata={"order": "strict"}), steps=[STRICT])
    message = ward.refusal("report", CHANGES[2])
    first, third = CHANGES[0].name, CHANGES[2].name
    assert message == f"{third} is out of order: {first} comes first and is not done by report (it is ready)"
    assert ward.commits("report") == []
    ward.make("report", *CHANGES[:3])
    assert ward.commits("report") == names(*CHANGES[:3])
    ward.make("report", CHANGES[0])  # already done: made again
    ward.make("report", CHANGES[3])
    assert ward.commits("report") == names(*CHANGES[:3], CHANGES[0], CHANGES[3])


def test_a_run_that_is_too_early_may_be_retried(opened: Opened) -> None:
    tries: list[str] = []

    @dg.asset(
        key=dg.AssetKey([NAME, INCR, "report"]),
        ins={"rows": dg.AssetIn(dg.AssetKey([NAME, INCR, "warehouse"]), metadata={"table": PRODUCT})},
        partitions_def=PARTITIONS,
        metadata={"order": "strict"},
        retry_policy=dg.RetryPolicy(max_retries=2),
        io_manager_key=IO_MANAGER,
    )
    def report(context: dg.AssetExecutionContext, rows: Any) -> Any:
        tries.append(context.partition_key)
        if len(tries) == 2:  # another run does the first partition
            ward.make("report", CHANGES[0])
        return rows

    ward = opened(report, steps=[STRICT])
    assert ward.run_assets(["incr/report"], CHANGES[1].name).success
    assert tries == names(CHANGES[1], CHANGES[1], CHANGES[0])
    assert ward.commits("report") == names(*CHANGES[:2])


def test_an_output_out_of_turn_writes_nothing(opened: Opened) -> None:
    ward = opened(own("report", "warehouse", metadata={"order": "strict"}), steps=[STRICT])
    ward.refusal("report", CHANGES[2])
    assert list(Path(ward.ward.home).rglob("report-*")) == []


def test_a_single_run_backfill_is_committed_in_the_manifests_order(opened: Opened) -> None:
    """Dagster orders partitions by insertion: here the newest first."""
    seen: list[str] = []
    ward = opened(by_partition(seen), steps=[STRICT])
    assert ward.run_assets(["incr/report"], CHANGES[3].name, CHANGES[0].name).success
    assert seen == names(*reversed(CHANGES))
    assert ward.commits("report") == names(*CHANGES)


def test_a_backfill_with_a_gap_commits_nothing(opened: Opened) -> None:
    ward = opened(by_partition(), steps=[STRICT])
    result = ward.run_assets(["incr/report"], CHANGES[3].name, CHANGES[1].name)
    assert f"{CHANGES[1].name} is out of order: {CHANGES[0].name} comes first" in failure(result)
    assert ward.commits("report") == []


def test_a_strict_asset_begins_again_after_the_boundary_of_a_full_load(opened: Opened) -> None:
    ward = opened(own("report", "warehouse", metadata={"order": "strict"}), steps=[STRICT])
    ward.make("report", *CHANGES)
    with ward.ward.open() as pipeline:
        land(pipeline, LATER)
    ward.load(LATER)
    with ward.ward.open() as pipeline:
        ready = pipeline.manifest.next(INCR, "report")
    assert isinstance(ready, Ready)
    assert ready.item.key.name == CHANGES[2].name, "as `status` shows at once"
    assert f"{CHANGES[2].name} comes first and is not done by report" in ward.refusal("report", CHANGES[3])
    ward.make("report", CHANGES[2], CHANGES[3])
    assert ward.record("report", CHANGES[3]).epoch == 3


def test_skipped_items_are_passed_over(opened: Opened) -> None:
    ward = opened(own("report", "warehouse", metadata={"order": "strict"}), steps=[STRICT])
    with ward.ward.open() as pipeline:
        pipeline.manifest.skip(key_of(pipeline, "0015"), "not wanted", "report")
    assert "is skipped for report: not wanted" in ward.refusal("report", CHANGES[0])
    ward.make("report", CHANGES[1])


@pytest.mark.parametrize("late", ["append", "quarantine"])
def test_late_items_are_appended_or_quarantined_by_the_steps_policy(opened: Opened, late: str) -> None:
    first, second, third, fourth = log("0101-0000"), log("0102-0000"), log("0103-0000"), log("0104-0000")
    key = dg.AssetKey([NAME, "log", "report"])

    @dg.asset(
        key=key,
        ins={"rows": dg.AssetIn(dg.AssetKey([NAME, "log", "shredded"]), metadata={"table": "login_audit_trail__sys"})},
        partitions_def=item_partitions(NAME, "log"),
        metadata={"order": "strict"},
        io_manager_key=IO_MANAGER,
    )
    def report(rows: Any) -> Any:
        return rows

    step = {"name": "report", "feed": "log", "upstream": ["shred"], "order": "strict", "late": late}
    ward = opened(report, steps=[step])

    def run(window: Window) -> dg.ExecuteInProcessResult:
        return ward.run_assets(["log/report"], window.name)

    ward.add("log", *names(first, second, third, fourth))
    with ward.ward.open() as pipeline:
        land(pipeline, first, third)
    assert run(first).success and run(third).success
    with ward.ward.open() as pipeline:
        land(pipeline, second, fourth)
    if late == "quarantine":
        assert f"{second.name} is quarantined: it arrived behind the watermark" in failure(run(second))
        assert run(fourth).success
    else:
        assert f"{second.name} comes first" in failure(run(fourth))
        assert run(second).success and run(fourth).success


def test_the_next_worker_settles_a_commit_of_a_dead_worker(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    ward = opened(own("report", "warehouse", metadata={"order": "strict"}), steps=[STRICT])
    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "complete", lambda *_: (_ for _ in ()).throw(OSError("the lights went out")))
        assert not ward.run_assets(["incr/report"], CHANGES[0].name).success
    ward.make("report", CHANGES[0], CHANGES[1])
    assert ward.commits("report") == names(*CHANGES[:2])


# Declarations


def test_an_unknown_order_is_refused_when_definitions_are_built(opened: Opened) -> None:
    with pytest.raises(ConfigError, match=r"asset vault/incr/report: metadata order is 'ascending'; allowed: 'any', 'strict'"):
        opened(own("report", "warehouse", metadata={"order": "ascending"}))


def test_an_order_that_the_configuration_lacks_is_refused(opened: Opened) -> None:
    strict = own("report", "warehouse", metadata={"order": "strict"})
    with pytest.raises(ConfigError, match=r"there is no step 'report'. Write `\{name: report, upstream: \[shred\], feed: incr"):
        opened(strict)
    with pytest.raises(ConfigError, match=r"declares order: any, but in the configuration step 'report' has order: strict"):
        opened(own("report", "warehouse", metadata={"order": "any"}), steps=[STRICT])


def test_an_asset_with_a_longer_key_cannot_be_a_step(opened: Opened) -> None:
    with pytest.raises(ConfigError, match=r"'reports/paths' cannot be a step. Give it a key with one part"):
        opened(own("reports/paths", "warehouse", metadata={"order": "strict"}))


@pytest.mark.parametrize("step", ["load", "shred"])
def test_an_asset_with_the_name_of_a_platform_step_is_refused(opened: Opened, step: str) -> None:
    ward = opened(own(step, "shredded"), own("behind", step))
    with ward.ward.open() as pipeline:
        before = pipeline.manifest.history(key_of(pipeline, "0100"))
    assert f"no asset may be called '{step}', because a step of the platform has this name" in ward.refusal(step, CHANGES[3])
    assert f"no asset may be called '{step}'" in ward.refusal("behind", CHANGES[3])
    with ward.ward.open() as pipeline:
        assert pipeline.manifest.history(key_of(pipeline, "0100")) == before


def test_commits_of_an_asset_wait_for_each_other(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    ward = opened(own("report", "warehouse", metadata={"order": "strict"}), steps=[STRICT])
    with ward.ward.open() as pipeline:
        held = pipeline.lease(INCR, "report")
        Timer(0.5, held.release).start()
        ward.make("report", CHANGES[0])
        monkeypatch.setattr(outputs, "PATIENCE_SECONDS", 0.0)
        with pipeline.lease(INCR, "report"):
            assert "report on feed incr" in ward.refusal("report", CHANGES[1])


def test_an_outage_is_reported_and_may_be_retried(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_arguments: object) -> None:
        raise StoreUnavailable("the table is throttled")

    ward = opened(own("typed", "shredded"))
    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "commit_output", away)
        result = ward.run_assets(["incr/typed"], CHANGES[0].name)
    assert failure(result) == "the table is throttled"
    assert ward.commits("typed") == []
    ward.make("typed", CHANGES[0])


def test_an_order_is_refused_at_run_time_too(opened: Opened) -> None:
    """For an asset of another code location, nothing is known earlier."""
    ward = opened()
    ward.defs = dg.Definitions.merge(ward.defs, dg.Definitions([own("report", "warehouse", metadata={"order": "strict"})]))
    assert "there is no step 'report'" in ward.refusal("report", CHANGES[0])


def test_a_step_that_would_not_follow_a_full_load_is_refused(opened: Opened) -> None:
    step = {**STRICT, "upstream": ["shred"]}
    ward = opened(own("report", "warehouse", metadata={"order": "strict"}), steps=[step])
    assert "its step does not wait for that: add load to its upstream" in ward.refusal("report", CHANGES[0])


def test_an_asset_of_no_dataset_needs_another_io_manager(opened: Opened) -> None:
    @dg.asset(io_manager_key=IO_MANAGER)
    def elsewhere() -> int:
        return 1

    ward = opened(elsewhere)
    job = ward.defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=ward.instance, asset_selection=[dg.AssetKey("elsewhere")], raise_on_error=False, run_config=QUIET
    )
    assert failure(result).startswith("asset elsewhere belongs to no dataset (vault). Begin its key with a dataset's name")


def test_a_mapping_names_every_partition(opened: Opened) -> None:
    @dg.asset(key=dg.AssetKey([NAME, INCR, "some"]), partitions_def=PARTITIONS, io_manager_key=IO_MANAGER)
    def some() -> Any:
        return {"another": Frame}

    assert "The asset returned DataFrames for another, but this run has" in opened(some).refusal("some", CHANGES[0])


# Two code locations, two datasets


def test_another_code_location_reads_and_commits_through_the_same_manifest(opened: Opened) -> None:
    ward = opened(own("views", "warehouse"), steps=[STRICT])
    ward.make("views", CHANGES[0])
    upstream = [
        dg.AssetSpec(ward.key(f"incr/{name}"), partitions_def=PARTITIONS).with_io_manager_key(IO_MANAGER)
        for name in ("warehouse", "views")
    ]
    elsewhere = dg.Definitions(
        [*upstream, own("report", "warehouse", metadata={"order": "strict"}), own("paths", "views")],
        resources=build_resources(ManifestResource(config_file=str(ward.ward.config_file))),
        executor=dg.in_process_executor,
    )

    def run(asset: str, window: Window) -> dg.ExecuteInProcessResult:
        return elsewhere.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=ward.instance,
            asset_selection=[ward.key(f"incr/{asset}")],
            partition_key=window.name,
            raise_on_error=False,
            run_config=QUIET,
        )

    assert run("paths", CHANGES[0]).success
    assert f"{CHANGES[0].name} comes first" in failure(run("report", CHANGES[1]))
    assert run("report", CHANGES[0]).success
    with ward.ward.open() as pipeline:
        land(pipeline, LATER)
    ward.load(LATER)
    assert "is superseded" in failure(run("paths", CHANGES[0]))
    assert f"{CHANGES[2].name} comes first" in failure(run("report", CHANGES[3]))


def test_two_datasets_of_one_code_location_are_independent(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    ward = Ward(tmp_path, names=("east", "west"))

    @dg.asset(
        key=dg.AssetKey(["west", INCR, "both"]),
        ins={
            name: dg.AssetIn(
                dg.AssetKey([name, INCR, "typed" if name == "east" else "shredded"]),
                metadata={"table": PRODUCT},
                partition_mapping=None if name == "west" else dg.SpecificPartitionsPartitionMapping(names(CHANGES[0])),
            )
            for name in ("east", "west")
        },
        partitions_def=item_partitions("west", INCR),
        io_manager_key=IO_MANAGER,
    )
    def both(east: Any, west: Any) -> Any:
        assert east.count() == west.count()
        return west

    defs = build_defs(ward.config_file, assets=[_of("east"), _of("west"), both])
    for name in ("east", "west"):
        with ward.open(name=name) as pipeline:
            land(pipeline, CHANGES[0])
        instance.add_dynamic_partitions(str(item_partitions(name, INCR).name), names(CHANGES[0]))
    job = defs.resolve_implicit_global_asset_job_def()
    key = dg.AssetKey(["east", INCR, "typed"])
    result = job.execute_in_process(
        instance=instance, asset_selection=[key], partition_key=CHANGES[0].name, raise_on_error=False, run_config=QUIET
    )
    assert materialized_by(result, key) == names(CHANGES[0])
    for name, made in (("east", True), ("west", False)):
        with ward.open(name=name) as pipeline:
            item = pipeline.manifest.item(pipeline.key(CHANGES[0].name))
            assert (item.processed_by(Application("typed")) is not None) is made
    across = dg.AssetKey(["west", INCR, "both"])
    assert job.execute_in_process(
        instance=instance, asset_selection=[across], partition_key=CHANGES[0].name, run_config=QUIET
    ).success
    with ward.open(name="west") as pipeline:
        record = pipeline.manifest.outputs().current(pipeline.key(CHANGES[0].name), Application("both"))
        assert [one["application"] for one in record.data["made_from"]] == ["shred"], "of its own dataset alone"


def _of(dataset: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=dg.AssetKey([dataset, INCR, "typed"]),
        ins={"rows": dg.AssetIn(dg.AssetKey([dataset, INCR, "shredded"]), metadata={"table": PRODUCT})},
        partitions_def=item_partitions(dataset, INCR),
        io_manager_key=IO_MANAGER,
    )
    def typed(rows: Any) -> Iterator:
        yield dg.Output(rows)

    return typed
