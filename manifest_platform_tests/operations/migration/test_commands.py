"""The import and view commands on real tables, read page by page from DynamoDB Local."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.demo.dynamodb import REGION, DynamoDbLocal
from manifest_platform.operations.migration import ForeignTable, SourceError, import_items
from manifest_platform.pipeline import SHRED, Loaded, Pipeline
from manifest_platform.pipeline.chosen import load_chosen
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.operations.migration.given import (
    ROOT,
    Application,
    added,
    histories,
    loaded,
    lost_race,
    row,
    run,
    shred_failed,
    shredded,
    snowflake_row,
    source_table,
)
from manifest_platform_tests.operations.migration.test_importing import BreakingStore

Tables = Callable[..., str]
Call = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def table(dynamodb: DynamoDbLocal) -> Tables:
    """Creates a table of rows with a hash key and optionally a range key, and returns its name."""
    return lambda rows, *keys: source_table(dynamodb, rows, *keys)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration whose runs land in the bucket of the tables' runs."""
    file = tmp_path / "platform.yaml"
    file.write_text(f"datasets:\n  shop:\n    landing: {{root: '{ROOT}'}}\n    shred: {{output: out, schemas: [schemas]}}\n")
    monkeypatch.setenv(config.VARIABLE, str(file))
    return file


@pytest.fixture
def call(dynamodb: DynamoDbLocal, file: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs an import against the server with --json, and returns exit code, document and stderr."""

    def _call(*arguments: str) -> tuple[int, dict[str, Any], str]:
        code = main([*arguments, "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out), captured.err

    return _call


@pytest.fixture
def where(dynamodb: DynamoDbLocal) -> list[str]:
    return ["--region", REGION, "--endpoint", dynamodb.endpoint]


def test_a_table_of_several_pages_is_read_completely(dynamodb: DynamoDbLocal, table: Tables) -> None:
    long = {"L": [{"S": "contexts_" + "x" * 900}] * 60}
    name = table([snowflake_row(number, "PROCESSED", but={"ShredTypes": long}) for number in range(40)], "RunId")
    source = ForeignTable(name, REGION, endpoint=dynamodb.endpoint)
    assert sorted(one["RunId"]["S"] for one in source.rows()) == [f"enriched/archive/{run(number)}/" for number in range(40)]


def test_a_processing_manifest_is_imported_and_viewed(table: Tables, call: Call, where: list[str]) -> None:
    rows = [*loaded(1), *shredded(2), *lost_race(3), *shred_failed(4), *added(5), row(6, "0", "NEW", but={"AppVer": None})]
    name = table(rows, "ItemId", "Id")
    code, dry, _ = call("import-snowplow", name, *where, "--dry-run")
    assert code == 1
    code, report, _ = call("import-snowplow", name, *where)
    assert code == 1
    assert report == {**dry, "dry_run": False}
    assert (report["source"], report["rows"], report["added"], report["records"]) == (f"dynamodb://{name}", len(rows), 5, 18)
    assert report["failed"] == [run(3), run(4)]
    assert [repair["item"] for repair in report["repairs"]] == [f"{ROOT}/{run(3)}/"] * 2
    assert [problem["text"].partition(": ")[2] for problem in report["problems"]] == ["AppVer is missing"]
    code, seen, _ = call("view", "--as", "snowflake-loader", "--limit", "4")
    assert code == 0
    assert [(one["State"], one["RunId"][-20:-1]) for one in seen["rows"]] == [
        ("NEW", "2019-03-01-00-05-00"),
        ("FAILED", "2019-03-01-00-04-00"),
        ("FAILED", "2019-03-01-00-03-00"),
        ("PROCESSED", "2019-03-01-00-02-00"),
    ]
    code, outlook, _ = call("next")
    load = next(one for one in outlook["next"] if one["step"] == "load")
    assert (load["item"], load["answer"]) == (run(2), "WAITING")


def test_an_import_without_problems_says_so_by_its_exit_code(table: Tables, call: Call, where: list[str]) -> None:
    name = table([snowflake_row(1, "LOADED"), snowflake_row(2, "NEW")], "RunId")
    assert call("import-snowflake", name, *where)[0] == 0
    code, report, _ = call("import-snowflake", name, *where)
    assert (code, report["unchanged"], report["records"]) == (4, 2, 0)


def test_an_interrupted_import_is_dropped_without_reading_its_table(call: Call, where: list[str], file: Path) -> None:
    with Pipeline(config.load(file), "shop") as pipeline:
        manifest = pipeline.manifest
        manifest.store = BreakingStore(manifest.store, 4)
        with pytest.raises(KeyboardInterrupt):
            import_items(manifest, FEED, histories(loaded(1)), "dynamodb://gone")
    code, told, _ = call("import-snowplow", "gone", *where, "--abort", "--dry-run")
    assert (code, told["items"]) == (0, 1)
    code, told, _ = call("import-snowplow", "gone", *where, "--abort")
    assert (code, told["items"]) == (0, 1)
    assert main(["import-snowplow", "gone", *where, "--abort"]) != 0


def test_the_import_report_names_the_remaining_work(
    table: Tables, file: Path, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        *shredded(1),
        *loaded(2),
        *shred_failed(3),
        *[*added(4), row(4, "1", "PROCESSING", "0")],
        *[*added(5), row(5, "1", "SKIPPED", "0")],
        *lost_race(6),
        row(7, "0", "NEW", root="s3://elsewhere"),
    ]
    name = table(rows, "ItemId", "Id")
    assert main(["import-snowplow", name, *where]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"dynamodb://{name} into dataset shop, feed enriched",
        f"  read       {len(rows)} rows",
        "  items      6 added, 0 with new records, 0 unchanged",
        "  records    21 appended",
        f"  late       1, not done there, and earlier than the item loaded last: {run(1)}",
        f"  open       1, in progress there, or left by a crash; once that system is stopped, add --free-open: {run(4)}",
        f"  failed     2, failed there; resolve or skip them: {run(3)}, {run(6)}",
        f"  undecided  1, skipped there by the shredder only; skip them for all, or unskip them: {run(5)}",
        "  repaired   2 records that lost a race for a lock",
        "  left out   1 problems",
        "  next       once the other system is stopped: manifest-platform drain",
    ]
    assert f"repaired: {ROOT}/{run(6)}/: record" in err
    assert f"left out: s3://elsewhere/{run(7)}/: is not stored in {ROOT}: name the folder of the runs with --source-root" in err
    assert main(["import-snowplow", name, *where, "--free-open", "--dry-run"]) == 1
    out, _ = capsys.readouterr()
    assert "dry run, nothing was written" in out
    assert "records    1 appended" in out
    assert main(["view"]) == 0
    out, _ = capsys.readouterr()
    loaded_line = next(line for line in reversed(out.splitlines()) if line.startswith("LOADED"))
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")].count("FAILED") == 2
    assert loaded_line == (
        f"LOADED    enriched/archive/{run(2)}/  added 2019-03-01 00:02:48 UTC, processed 2019-03-01 00:02:50 UTC,"
        " loaded 2019-03-01 00:02:52 UTC"
    )
    assert "; ToSkip" not in out


def test_targets_and_names_are_chosen_by_options(table: Tables, call: Call, where: list[str]) -> None:
    own, other = Application("our-loader", "1", "target-1"), Application("our-loader", "1", "target-2")
    rows = [*loaded(1, own), *loaded(2, other), *[*added(3), row(3, "1", "SKIPPED", "0", Application("our-shredder", "1"))]]
    name = table(rows, "ItemId", "Id")
    code, failed, _ = call("import-snowplow", name, *where, "--load", "our-loader")
    assert code == 2
    assert "choose one: --load our-loader:TARGET with one of target-1, target-2" in failed["error"]["message"]
    code, report, _ = call("import-snowplow", name, *where, "--load", "our-loader:target-1", "--shred", "our-shredder")
    assert (code, report["undecided"]) == (0, [run(3)])
    _, seen, _ = call("view")
    assert [one["State"] for one in seen["rows"]] == ["NEW", "PROCESSED", "LOADED"]


def test_runs_of_another_folder_are_named_by_an_option(table: Tables, call: Call, where: list[str]) -> None:
    name = table([row(1, "0", "NEW", root="s3n://old/archive"), row(2, "0", "NEW")], "ItemId", "Id")
    code, report, _ = call("import-snowplow", name, *where, "--source-root", "s3://old/archive")
    assert (code, report["added"], len(report["problems"])) == (1, 1, 1)


def test_a_feed_that_was_worked_on_refuses(table: Tables, call: Call, where: list[str], file: Path) -> None:
    name = table([snowflake_row(1, "NEW")], "RunId")
    call("import-snowflake", name, *where)
    with Pipeline(config.load(file), "shop") as pipeline, pipeline.lease(FEED, SHRED) as lease:
        pipeline.manifest.claim(lease, pipeline.manifest.waiting(FEED, SHRED, 1)[0])
    code, failed, err = call("import-snowflake", name, *where)
    assert (code, failed["error"]["type"]) == (1, "WorkedOn")
    assert "Import before the first drain, or into a new dataset" in err


def test_runs_loaded_by_the_other_system_count_as_loaded(table: Tables, call: Call, where: list[str], file: Path) -> None:
    call("import-snowflake", table([snowflake_row(1, "LOADED")], "RunId"), *where)
    with Pipeline(config.load(file), "shop") as pipeline:
        [event] = load_chosen(pipeline, [pipeline.key(run(1))])
    assert isinstance(event, Loaded)
    assert (event.already, event.rows, event.bytes) == (True, {}, 0)


def test_the_doctor_finds_nothing_wrong_with_what_was_imported(table: Tables, call: Call, where: list[str]) -> None:
    rows = [*loaded(1), *shredded(2), *loaded(3), *lost_race(4), *shred_failed(5), *[*added(6), row(6, "1", "PROCESSING", "0")]]
    call("import-snowplow", table(rows, "ItemId", "Id"), *where, "--free-open")
    code, found, _ = call("doctor")
    assert (code, found["findings"]) == (0, [])


def test_a_missing_table_is_reported(call: Call, where: list[str]) -> None:
    code, failed, _ = call("import-snowplow", "no-such-table", *where)
    assert (code, failed["error"]["type"]) == (1, "SourceError")
    assert "there is no such table; check its name and --region" in failed["error"]["message"]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"profile": "none-such"}, "none-such"), ({"region": None}, "region"), ({"endpoint": "no url"}, "no url")],
)
def test_an_unreachable_table_is_reported(dynamodb: DynamoDbLocal, options: dict[str, Any], named: str) -> None:
    source = ForeignTable("x", **{"region": REGION, "endpoint": dynamodb.endpoint, **options})
    with pytest.raises(SourceError, match=named) as caught:
        list(source.rows())
    assert "check --region, --profile and --endpoint" in str(caught.value)


def test_the_imports_are_read_only_to_the_source(dynamodb: DynamoDbLocal, table: Tables, call: Call, where: list[str]) -> None:
    name = table([*loaded(1), *lost_race(2)], "ItemId", "Id")
    before = sorted(ForeignTable(name, REGION, endpoint=dynamodb.endpoint).rows(), key=str)
    call("import-snowplow", name, *where)
    assert sorted(ForeignTable(name, REGION, endpoint=dynamodb.endpoint).rows(), key=str) == before
