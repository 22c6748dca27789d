"""`queue`: a dataset as a control table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.manifest import Blocked, Failure, FailureKind, Payload, Ready
from manifest_platform.manifest.item import ItemKey, Landed
from manifest_platform.manifest.records import OUTPUT
from manifest_platform.pipeline import LOAD, SHRED, Pipeline

COLUMNS = {"filetype", "start_time", "stop_time", "status", "attempt_count", "last_error", "epoch", "full_load_started_at"}
DONE = Payload(OUTPUT, {"rows": 1})


class Ward:
    """A vault's dataset with a manifest, and nothing behind it."""

    def __init__(self, home: Path):
        self.file = home / "platform.yaml"
        self.root = home / "landing"
        self.root.mkdir()
        self.file.write_text(
            "datasets:\n  ward:\n    source: veeva\n    vault: {id: '146478'}\n    landing: {root: landing}\n"
            "    shred: {output: shredded}\n"
        )

    def pipeline(self) -> Pipeline:
        return Pipeline(config.load(self.file), "ward")

    def land(self, *names: str) -> None:
        with self.pipeline() as pipeline:
            for name in names:
                [named] = pipeline.source.named(name)
                key = ItemKey(named.feed, named.sort, f"file://{self.root}/vault=146478/{name}")
                start = {"incr": _quarter_before(named.sort), "full": "2000-01-01T00:00Z"}.get(named.feed)
                pipeline.manifest.discover(named.feed, [Landed(key, 1, 10, "sum", start, named.sort)])

    def work(self, feed: str, application: str = LOAD, then: Callable[..., object] | None = None, count: int = 1) -> None:
        with self.pipeline() as pipeline, pipeline.lease(feed, application) as lease:
            for _ in range(count):
                verdict = pipeline.manifest.next(feed, application, holding=True)
                assert isinstance(verdict, Ready), verdict
                [claim] = pipeline.manifest.claim(lease, [verdict.item], verdict.state)
                if then:
                    then(pipeline.manifest, claim)
                else:
                    pipeline.manifest.complete(claim, DONE)


def _quarter_before(stop: str) -> str:
    from datetime import timedelta

    from manifest_platform.sources.veeva.layout import minute, parse_minute

    time = parse_minute(stop)
    assert time is not None
    return minute(time - timedelta(minutes=15))


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ward:
    ward = Ward(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(ward.file))
    return ward


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    def _ask(*arguments: str) -> tuple[int, Any]:
        code = main(["queue", *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return _ask


INCR = [f"incr/stoptime=20260101{stop}" for stop in ("0015", "0030", "0045", "0100")]


def status(answer: dict[str, Any]) -> dict[str, tuple[str, int, int]]:
    return {row["item"]["name"]: (row["status"], row["attempt_count"], row["epoch"]) for row in answer["queue"]}


def test_a_day_by_its_runbook(ward: Ward, ask) -> None:
    ward.land("full/date=2026-01-01", *INCR, "log/date=2026-01-01")
    code, answer = ask("--vault", "146478")
    assert (code, answer["control"]["mode"], answer["control"]["current_epoch"]) == (0, "INCREMENTAL", 1)
    assert all(row.keys() >= COLUMNS for row in answer["queue"])
    assert {row["filetype"] for row in answer["queue"]} == {"FULL", "INCR", "LOG"}
    assert status(answer)["full/date=2026-01-01"] == ("READY", 0, 1)
    assert status(answer)[INCR[0]] == ("NEW", 0, 1)

    ward.work("full", SHRED)
    ward.work("incr", SHRED, count=3)
    with ward.pipeline() as pipeline:
        pipeline.manifest.begin_full_load(pipeline.key("full/date=2026-01-01"), LOAD, "first")
    code, answer = ask()
    assert (answer["control"]["mode"], answer["control"]["current_epoch"]) == ("FULL_LOAD", 2)
    [snapshot] = [row for row in answer["queue"] if row["filetype"] == "FULL"]
    assert answer["control"]["full_load_started_at"] == snapshot["full_load_started_at"] is not None
    assert code == 3, "changes are held"
    assert status(answer)[INCR[0]][0] == "READY"

    ward.work("full")
    ward.work("incr")
    ward.work("incr", then=lambda manifest, claim: manifest.fail(claim, Failure(FailureKind.PERMANENT, "duplicate key")))
    code, answer = ask("--vault")
    assert code == 3
    assert answer["control"]["base_boundary"] == "2026-01-01T00:00Z"
    assert answer["control"]["watermarks"]["incr"] == INCR[0]
    assert answer["control"]["blocked_by"]["incr"].startswith(f"{INCR[1]}: load failed: duplicate key")
    found = status(answer)
    assert [found[name] for name in INCR] == [("APPLIED", 1, 2), ("FAILED", 1, 2), ("READY", 0, 2), ("NEW", 0, 2)]
    [failed] = ask("--status", "FAILED")[1]["queue"]
    assert (failed["last_error"], failed["start_time"], failed["stop_time"]) == (
        "duplicate key",
        "2026-01-01T00:15Z",
        "2026-01-01T00:30Z",
    )

    with ward.pipeline() as pipeline:
        pipeline.manifest.resolve(pipeline.key(INCR[1]), "mended")
    ward.work("incr", then=lambda manifest, claim: manifest.put_back(claim, "the warehouse is down"))
    assert status(ask()[1])[INCR[1]] == ("READY", 1, 2)
    ward.work("incr")
    code, answer = ask("--filetype", "INCR", "--limit", "3")
    assert status(answer)[INCR[1]] == ("APPLIED", 2, 2)
    assert len(answer["queue"]) == 3


def test_a_gap_is_reported_for_the_next_window(ward: Ward, ask) -> None:
    ward.land("full/date=2026-01-01", INCR[1], INCR[2])
    ward.work("full", SHRED)
    ward.work("incr", SHRED, count=2)
    with ward.pipeline() as pipeline:
        pipeline.manifest.begin_full_load(pipeline.key("full/date=2026-01-01"), LOAD, "first")
    ward.work("full")
    with ward.pipeline() as pipeline:
        assert isinstance(pipeline.manifest.next("incr", LOAD), Blocked)
    code, answer = ask()
    details = {row["item"]["name"]: (row["status"], row["detail"]) for row in answer["queue"]}
    assert code == 3
    assert details[INCR[1]][0] == "READY" and details[INCR[1]][1].startswith("gap: it starts at 2026-01-01T00:15Z")
    assert details[INCR[2]] == ("READY", "")


@pytest.mark.parametrize(("arguments", "message"), [(["--vault", "1"], "no such vault"), (["--status", "ODD"], "ODD")])
def test_what_is_asked_wrongly(ward: Ward, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_for_people(ward: Ward, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--vault"]) == 4
    ward.land(*INCR)
    ward.work("incr", SHRED, then=lambda manifest, claim: manifest.fail(claim, Failure(FailureKind.PERMANENT, "no such type")))
    assert main(["queue", "--vault"]) == 3
    said = capsys.readouterr()
    assert "filetype  start_time         stop_time          status  attempt_count  epoch" in said.out
    assert f"{INCR[0]}: no such type" in said.out
    assert "incr is blocked by" in said.err
