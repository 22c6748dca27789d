"""`bad list`, `bad count`, `bad show`: the bad rows of shredded items, without values unless they are asked for."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path

import pytest

from manifest_platform import config, storage
from manifest_platform.cli import main
from manifest_platform.cli.bad import ORIGINS_SHOWN, _say_replayed
from manifest_platform.listing import Listing
from manifest_platform.operations import bad_lines
from manifest_platform.operations.bad_replay import Replayed
from manifest_platform.pipeline import SHRED
from manifest_platform.shred.batch import Task
from manifest_platform.shred.lines import Piece
from manifest_platform.sources.snowplow.events.shredder import Options, shred_pieces
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.cli.test_commands import RUNS, Shop
from manifest_platform_tests.cli.test_types import asked
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity

NOWHERE = "iglu:com.acme/nowhere/jsonschema/1-0-0"
SECRET = "secret-4711"
RUN_LINES = {
    RUNS[0]: [b"no tab", enriched(txn_id=SECRET)],
    RUNS[1]: [enriched(), enriched(contexts=contexts(entity(NOWHERE, {}))), f"{SECRET}\0\t".encode() + b"\xff"],
    RUNS[2]: [enriched()],
}


def shredded(lines: list[bytes], folder: Path) -> str:
    """Shreds lines without a job; returns the URI of the listing."""
    file = folder / "part-0"
    folder.mkdir(parents=True)
    file.write_bytes(b"\n".join(lines))
    pieces: tuple[Piece, ...] = (Piece(file.as_uri(), file.stat().st_size, 0, file.stat().st_size),)
    done = shred_pieces(Task(0, 0, (folder / "out").as_uri(), (file.as_uri(),), pieces), Resolver([]), Options())
    tables = tuple(done.tables.values())
    listing = Listing("i", "a", done.lines, done.good, done.bad, tables, tuple(done.objects))
    listing.write(f"{storage.as_uri(folder)}/listing.json")
    return f"{storage.as_uri(folder)}/listing.json"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    assert main(["discover"]) == 0
    for name, lines in RUN_LINES.items():
        listing = shredded(lines, tmp_path / "by-hand" / name)
        shop.work(SHRED, name, listing=listing, lines=len(lines), good=1, bad=len(lines) - 1 if name != RUNS[0] else 2)
    return shop


def test_rows_are_listed_without_values(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = asked(capsys, "bad", "list")
    assert code == 0
    assert [(one["item"]["name"], one["line"], one["reasons"][0]["type"]) for one in document["rows"]] == [
        (RUNS[1], 2, "unknown_schema"),
        (RUNS[1], 3, "field_count"),
        (RUNS[0], 1, "not_tsv"),
        (RUNS[0], 2, "field"),
    ]
    assert (document["looked_at"], document["cut"], document["unread"]) == (3, False, [])
    assert document["rows"][1]["byte_length"] == len(RUN_LINES[RUNS[1]][2])
    assert SECRET not in str(document)
    assert main(["bad", "list"]) == 0
    said = capsys.readouterr().out
    assert SECRET not in said and "part-0  2     field txn_id: is no 32-bit integer" in said


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["--reason", "field"], [2]),
        (["--schema", "iglu:com.acme/"], [2]),
        (["--reason", "field", "--schema", NOWHERE], []),
        ([RUNS[0]], [1, 2]),
        (["--since", "2024-05-14T12:10"], [2, 3]),
        (["--limit", "1"], [2]),
        (["--since", "2030-01-01"], []),
    ],
)
def test_rows_are_chosen(shop: Shop, capsys: pytest.CaptureFixture[str], options: list[str], lines: list[int]) -> None:
    code, document = asked(capsys, "bad", "list", *options)
    assert ([one["line"] for one in document["rows"]], code) == (lines, 0 if lines else 4)
    assert document["cut"] is ("--limit" in options)


def test_rows_are_counted(shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, document = asked(capsys, "bad", "count")
    assert code == 0
    assert [
        (one["reason"], one["subject"], one["rows"], one["items"], one["newest"]["name"]) for one in document["groups"]
    ] == [
        ("field", "txn_id", 1, 1, RUNS[0]),
        ("field_count", "", 1, 1, RUNS[1]),
        ("not_tsv", "", 1, 1, RUNS[0]),
        ("unknown_schema", NOWHERE, 1, 1, RUNS[1]),
    ]
    assert main(["bad", "count", "--reason", "too_long"]) == 4
    assert capsys.readouterr().out == "0 bad rows in 3 items\n"
    monkeypatch.setattr(bad_lines, "MOST_GROUPS", 2)
    _, document = asked(capsys, "bad", "count")
    assert [(one["reason"], one["subject"], one["rows"], one["items"]) for one in document["groups"]] == [
        ("more", None, 2, 1),
        ("field_count", "", 1, 1),
        ("unknown_schema", NOWHERE, 1, 1),
    ]


def test_the_line_is_shown_when_it_is_asked_for(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bad", "show", RUNS[0], "2"]) == 0
    assert SECRET not in capsys.readouterr().out
    assert main(["bad", "show", RUNS[0], "2", "--raw"]) == 0
    assert f"value: {SECRET}" in capsys.readouterr().out
    _, document = asked(capsys, "bad", "show", RUNS[1], "3", "--file", "part-0", "--raw")
    (row,) = document["rows"]
    assert base64.b64decode(row["raw_base64"]) == RUN_LINES[RUNS[1]][2]
    assert "raw" not in asked(capsys, "bad", "show", RUNS[1], "3")[1]["rows"][0]
    assert asked(capsys, "bad", "show", RUNS[1], "3", "--file", "other")[0] == 4


def test_files_that_are_gone_are_told(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (tmp_path / "by-hand" / RUNS[1] / "out").rglob("bad/**/*.parquet"):
        file.unlink()
    code, document = asked(capsys, "bad", "list")
    assert (code, len(document["rows"]), len(document["unread"])) == (0, 2, 1)
    assert main(["bad", "list"]) == 0
    assert f"warning: the bad rows of {RUNS[1]}: " in capsys.readouterr().err


def test_many_replayed_items_are_told_by_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"run={number:04}" for number in range(1_000)]
    one = dict.fromkeys(names, 1)
    _say_replayed(Replayed([], Counter(one), Counter(one), Counter({names[-1]: 5})), dry_run=False)
    lines = " ".join(capsys.readouterr().out.split("\n"))
    assert lines.startswith("run=0000: 1 lines are replayed, 1 are still bad ")
    assert lines.count("run=") == ORIGINS_SHOWN
    said = "1,000 items: 1,000 lines are replayed, 1,000 are still bad, 5 cannot be replayed because their bytes were not kept"
    assert " ".join(lines.split()).endswith(said)
