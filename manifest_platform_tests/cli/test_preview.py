"""`preview`: what a place is, what a sample of it becomes, and that nothing is written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.cli import main
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.fake_vault import WINDOW, Simulation, Window, archive_of
from manifest_platform.testing.source import written_below

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory and home. After each test, checks that nothing was written to them."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / ".cache"))
    monkeypatch.chdir(tmp_path / "here")
    before = {name: written_below(tmp_path / name) for name in ("home", "here")}
    monkeypatch.setattr("tempfile.TemporaryFile", _no_file)  # one without a name leaves no trace that could be found
    yield tmp_path
    assert {name: written_below(tmp_path / name) for name in before} == before


def _no_file(*_: Any, **__: Any) -> None:
    raise AssertionError("a file was written")


@pytest.fixture
def shop(home: Path) -> Path:
    """Six runs with a gap among them, the newest without its marker."""
    root = home / "shop" / "enriched"
    for number in (0, 1, 2, 3, 5, 6):
        write_run(root, FIRST + number * timedelta(minutes=10), 20, seed=number)
    (root / "run=2026-01-01-01-00-00" / "_SUCCESS").unlink()
    return root


def asked(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    code = main(["preview", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main(["preview", *map(str, arguments)])
    out, err = capsys.readouterr()
    return " ".join(f"{out} {err}".split())


def test_a_landing_root_is_told_and_nothing_is_written(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written_below(shop.parent)
    code, document = asked(capsys, shop, "--schemas", SCHEMAS)
    assert code == 0
    assert (document["source"], document["root"], document["marker"]) == ("snowplow_enriched", shop.as_uri(), "_SUCCESS")
    [feed] = document["feeds"]
    assert (feed["directories"], feed["first"], feed["last"]) == (6, "run=2026-01-01-00-00-00", "run=2026-01-01-01-00-00")
    assert feed["every_seconds"] == 600
    assert feed["holes"] == [{"after": "run=2026-01-01-00-30-00", "before": "run=2026-01-01-00-50-00", "missing": 1}]
    assert feed["unmarked"] == ["run=2026-01-01-01-00-00"]
    sample = document["sample"]
    assert (sample["lines"], sample["good"], sample["bad"], sample["missing_schemas"]) == (60, 60, 0, [])
    tables = {one["name"]: one for one in sample["tables"]}
    assert tables["events"]["rows"] == 60
    assert {"name": "word_count", "type": "integer", "nullable": True} in tables["com_acme_page_1"]["columns"]
    text = said(capsys, shop, "--schemas", SCHEMAS)
    assert "missing 1, judging by the usual interval: 1 between run=2026-01-01-00-30-00 and" in text
    assert "by the marker _SUCCESS, in 5 of 6 examined directories; not in run=2026-01-01-01-00-00" in text
    assert f"Next: manifest-platform init --landing {shop} --schemas {SCHEMAS}" in text
    assert written_below(shop.parent) == before


def test_folders_that_sort_before_the_runs_hide_no_run(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Earlier, a single folder `Run=…` hid the source of a landing root, because it sorts first."""
    for name in ("Run=2026-01-01-02-00-00", "archive"):
        (shop / name).mkdir()
    code, document = asked(capsys, shop, "--schemas", SCHEMAS)
    assert (code, document["source"], document["feeds"][0]["directories"]) == (0, "snowplow_enriched", 6)


def test_without_schemas_events_are_shown_and_what_is_missing(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, document = asked(capsys, shop)
    sample = document["sample"]
    assert (sample["lines"], sample["good"], sample["waiting_for_schemas"], sample["bad"]) == (60, 0, 60, 0)
    assert [(one["name"], one["rows"]) for one in sample["tables"]] == [("events", 60)]
    missing = {one["schema"]: one for one in sample["missing_schemas"]}
    assert missing["iglu:com.acme/page/jsonschema/1-0-0"] == {
        "schema": "iglu:com.acme/page/jsonschema/1-0-0",
        "table": "com_acme_page_1",
        "lines": 60,
    }
    assert "name their place: --schemas FOLDER" in said(capsys, shop)


def test_schemas_that_lie_beside_are_taken_and_told(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop.parent / "schemas").symlink_to(SCHEMAS)
    _, document = asked(capsys, shop)
    assert document["schemas"] == [str(shop.parent / "schemas")]
    assert document["sample"]["good"] == 60
    assert "beside it; use --schemas for others" in document["advice"][0]


def test_an_unavailable_registry_is_reported_and_does_not_end_the_preview(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, document = asked(capsys, shop, "--schemas", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9" in document["sample"]["notes"][0]
    assert document["sample"]["waiting_for_schemas"] == 60


def test_bad_lines_are_reported_with_file_and_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shop / "run=2026-01-01-01-00-00"
    (run / "part-00001.tsv").write_text("no event\n\x1b[2Ja\tb\n" + "\t" * 130 + "\n")
    _, document = asked(capsys, run, "--schemas", SCHEMAS)
    [feed] = document["feeds"]
    assert (feed["directories"], document["part"]) == (1, storage.as_uri(run))
    assert document["sample"]["bad"] == 3
    first = document["sample"]["bad_lines"][0]
    assert (first["file"].rpartition("/")[2], first["line"]) == ("part-00001.tsv", 1)
    text = said(capsys, run)
    assert "not_tsv: the line has no tab (first part-00001.tsv, line 1)" in text
    assert "\x1b" not in text


def test_damaged_and_unread_files_are_told_and_others_sampled(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged, unread, linked = (shop / f"run=2026-01-01-00-{minute}-00" for minute in ("00", "30", "10"))
    whole = b"".join(path.read_bytes() for path in damaged.glob("part*"))
    for path in damaged.glob("part*"):
        path.write_bytes(gzip.compress(whole)[:-200])
    for path in unread.glob("part*"):
        path.write_bytes(b"PAR1\x15" + bytes(100))
    (linked / "passwords").symlink_to("/etc/passwd")
    _, document = asked(capsys, shop, "--schemas", SCHEMAS)
    failures = {one["directory"]: one["message"] for one in document["sample"]["failures"]}
    assert "damaged" in failures[damaged.name]
    assert "Parquet" in failures.get(unread.name, "") or document["compressions"].get("not read")
    assert document["sample"]["good"] >= 20


@pytest.mark.parametrize(
    ("make", "words"),
    [
        ([], "holds nothing: no source recognizes it. Sources recognize:"),
        (["notes.txt"], "holds 1 file, 1 B (notes.txt): no source recognizes it"),
        (["Run=2026-01-01-10-00-00/x"], "rename it to run=2026-01-01-10-00-00"),
        (["run_2026_01_01_10_00/x", "run-20260101/x"], "rename it to run=2026-01-01-10-00-00"),
        (["146478-20240213-0000-F.tar.gz.001"], "tar xzf into vault=146478/full/date=2024-02-13"),
        (["manifest.csv"], "like an unpacked Direct Data archive"),
        (["incr/stoptime=202601010015/manifest.csv"], "move it below vault=ID/"),
    ],
)
def test_what_no_source_knows_is_told_with_what_to_do(
    make: list[str], words: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = home / "place"
    place.mkdir()
    for name in make:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x")
    assert words in said(capsys, place)
    code, document = asked(capsys, place)
    assert (code, document["recognized"]) == (4, False)


def test_loose_events_are_known_by_their_lines(shop: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "loose").mkdir()
    [part] = (shop / "run=2026-01-01-00-00-00").glob("part*")
    (home / "loose" / "events.gz").write_bytes(gzip.compress(part.read_bytes()))
    assert "events.gz has lines of 131 tab-separated fields" in said(capsys, home / "loose")


@pytest.mark.parametrize(
    ("folder", "name", "layout", "named"),
    [
        ("year=2026/month=01/day=01/hour=1{}", "a.gz", "year={yyyy}/month={MM}/day={dd}/hour={HH}", "hour=2026-01-01-11"),
        ("2026/01/01/1{}", "a.gz", "{yyyy}/{MM}/{dd}/{HH}", "hour=2026-01-01-11"),
        ("", "2026-01-01-1{}0501-x.gz", "{yyyy}-{MM}-{dd}-{HH}*", "hour=2026-01-01-11"),
    ],
)
def test_windows_of_time_are_known_by_their_layout(
    folder: str, name: str, layout: str, named: str, shop: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [part] = (shop / "run=2026-01-01-00-00-00").glob("part*")
    root = home / "windows" / "good"
    for hour in (0, 1):
        file = root / folder.format(hour) / name.format(hour)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(part.read_bytes()))
    for place in (root, root.parent):
        _, document = asked(capsys, place, "--schemas", SCHEMAS)
        assert (document["root"], document["settings"]["landing"]["layout"]) == (root.as_uri(), layout)
        assert (document["feeds"][0]["directories"], document["feeds"][0]["last"]) == (2, named)
        assert (document["marker"], document["sample"]["good"]) == (None, 40)


def test_several_roots_below_a_folder_are_listed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(shop.parent / "other", FIRST, 1, seed=1)
    code, document = asked(capsys, shop.parents[1] / "shop")
    assert code == 0
    assert [one["root"] for one in document["roots"]] == [shop.as_uri(), (shop.parent / "other").as_uri()]
    assert f"manifest-platform preview {shop} " in said(capsys, shop.parent)


def test_windows_of_a_vault_are_told_by_feed_also_hostile_ones(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    windows = [
        Window("full", datetime(2000, 1, 1, tzinfo=UTC), FIRST),
        *(Window("incr", FIRST + number * WINDOW, FIRST + (number + 1) * WINDOW) for number in range(2)),
    ]
    names = ["full/date=2026-01-01", "incr/stoptime=202601010015", "incr/stoptime=202601010030"]
    for window, name in zip(windows, names, strict=True):
        for path, data in archive_of(Simulation(1, FIRST, rows=10), window).tree().items():
            file = home / "vault" / "vault=146478" / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    hostile = home / "vault" / "vault=146478" / names[2]
    (hostile / "Object" / "product__v.csv").write_bytes(b'"id\x00,\x1b]0;x\x07\n"' + b"=cmd|' /C calc'!A0," * 50)
    code, document = asked(capsys, home / "vault")
    assert (code, document["source"], document["settings"]) == (0, "veeva", {"vault": {"id": "146478"}})
    assert [(one["name"], one["directories"]) for one in document["feeds"]] == [("full", 1), ("incr", 2)]
    assert document["marker"] is None
    tables = {one["name"]: one["mode"] for one in document["sample"]["tables"]}
    assert tables["product__v"] == "replace"
    assert [one["directory"] for one in document["sample"]["failures"]] == [names[2]]
    assert "\x1b" not in said(capsys, home / "vault")
    _, part = asked(capsys, home / "vault" / "vault=146478" / "incr")
    assert [(one["name"], one["directories"]) for one in part["feeds"]] == [("incr", 2)]


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [
        ("nowhere", 2, "nowhere does not exist"),
        ("/dev/null", 2, "neither a folder nor a file"),
        ("gs://bucket/x", 2, "only local paths, file:// and s3://"),
        ("s3://bucket/x", 1, "s3://bucket/x could not be listed"),
    ],
)
def test_what_is_not_there_or_out_of_reach_is_told(
    place: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    assert main(["preview", place]) == code
    assert words in capsys.readouterr().err


def test_schemas_that_are_not_there_are_a_wrong_use(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preview", str(shop), "--schemas", "nowhere"]) == 2
    assert "--schemas nowhere: there is no such folder" in capsys.readouterr().err


def test_thousands_of_directories_are_counted_and_few_looked_into(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = home / "many"
    for number in range(3_000):
        (root / f"run={FIRST + number * timedelta(minutes=5):%Y-%m-%d-%H-%M-%S}").mkdir(parents=True)
    _, document = asked(capsys, root)
    [feed] = document["feeds"]
    assert (feed["directories"], feed["is_all"], feed["looked_into"], feed["holes"]) == (3_000, True, 50, [])
    assert "no sample: the examined directories have no lines" in said(capsys, root)


def test_a_place_in_s3_is_looked_at_as_one_on_a_disk(s3_bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        write_run(f"{s3_bucket}/landing/enriched", FIRST + number * timedelta(minutes=10), 10, seed=number)
    for place in (f"{s3_bucket}/landing/enriched", s3_bucket):
        _, document = asked(capsys, place, "--schemas", SCHEMAS)
        assert (document["root"], document["marker"]) == (f"{s3_bucket}/landing/enriched", "_SUCCESS")
        assert (document["feeds"][0]["directories"], document["sample"]["good"]) == (3, 30)
    run = f"{s3_bucket}/landing/enriched/run=2026-01-01-00-10-00"
    _, document = asked(capsys, f"{run}/part-00000.tsv")
    assert (document["part"], document["feeds"][0]["first"]) == (f"{run}/part-00000.tsv", "run=2026-01-01-00-10-00")
    assert main(["preview", f"{s3_bucket}/nothing"]) == 2
    assert "S3 has no objects below" in capsys.readouterr().err
