"""A follower: real processes that are woken, stopped, killed and replaced."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import httpx
import pytest
import yaml

from manifest_platform import masking
from manifest_platform.config import load
from manifest_platform.config.config import FollowConfig
from manifest_platform.demo.events import write_run
from manifest_platform.manifest import Refused
from manifest_platform.notices import Bell, Notices
from manifest_platform.notices import bell as bell_module
from manifest_platform.pipeline import Loaded, Pipeline, Stop
from manifest_platform.pipeline import follow as follow_module
from manifest_platform.pipeline.follow import Drained, Follower, Told, follow
from manifest_platform.pipeline.health import Doing, Health, answering
from manifest_platform.pipeline.idle import Idleness
from manifest_platform.pipeline.work import Scope
from manifest_platform.spark import Place, SparkUnavailable
from manifest_platform_tests.pipeline.following import Following, SessionHere
from manifest_platform_tests.pipeline.shop import FIRST, Shop, history, run_name, run_names

NEVER = 3600
"""Seconds between listings, so that only notices wake the follower."""


def shop(home: Path, listing_seconds: float = NEVER, **settings: object) -> Shop:
    return Shop(home, follow={"listing_seconds": listing_seconds, "warm_spark": False}, **settings)


def test_directories_are_loaded_as_they_land_and_a_second_follower_takes_over_at_once(tmp_path: Path) -> None:
    made = shop(tmp_path, lease={"seconds": 3600})
    with Following(made.config_file) as first:
        first.told("following")
        made.write(0)
        first.told("loaded", item=run_name(0))
        first.told("ended", loaded=1)
        with Following(made.config_file) as second:
            second.told("standing_by")
            made.write(1)
            first.told("loaded", item=run_name(1))
            assert first.end(signal.SIGTERM) == 143
            assert "the leases are released" in first.log.read_text()
            second.told("following")
            made.write(2)
            second.told("loaded", item=run_name(2))
            assert second.end(signal.SIGINT) == 130
    assert made.seen.runs == [run_name(number) for number in range(3)]


# In this process


class Clockless:
    """Turns of a follower in this process, whose Spark is `spark`, on some targets and feeds or all."""

    def __init__(
        self,
        made: Shop,
        spark: Callable[[], Any] = SessionHere,
        targets: list[str] | None = None,
        feeds: list[str] | None = None,
        **settings: Any,
    ) -> None:
        self.follower = Follower(made.open, spark, FollowConfig(warm_spark=False, **settings), feeds, targets)

    def turn(self, landing_rang: bool = False) -> list[Told]:
        return list(self.follower.turn(landing_rang))

    def __enter__(self) -> Clockless:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.follower.close()


def kinds(told: list[Told]) -> list[str]:
    return [type(one).__name__ for one in told]


def test_a_blocked_feed_is_told_once_and_waits_for_a_change(tmp_path: Path) -> None:
    made = shop(tmp_path)
    (made.home / "landing" / run_name(0)).mkdir()
    (made.directory(0) / "part-0").write_text("no event\n")
    (made.directory(0) / "_SUCCESS").touch()
    with Clockless(made, listing_seconds=NEVER) as following:
        told = following.turn()
        assert kinds(told) == ["TookOver", "DiscoveryReport", "ShredStarted", "ItemFailed", "Drained"]
        drained = told[-1]
        assert isinstance(drained, Drained)
        assert [(end.stop, end.item) for end in drained.news] == [(Stop.BLOCKED, run_name(0))]
        store = following.follower.pipeline.manifest.store
        for _ in range(3):
            before = store.requests
            assert following.turn() == []
            assert store.requests - before <= 4
            assert following.follower.due - time.monotonic() > NEVER / 2
        assert list(following.follower.health.blocked) == ["enriched"]
        following.follower.pipeline.manifest.skip(following.follower.pipeline.key(run_name(0)), "test data")
        assert following.turn() == []
        assert following.follower.health.blocked == {}


def test_an_outage_is_tried_again_after_growing_pauses_and_charged_to_no_item(tmp_path: Path) -> None:
    made = shop(tmp_path)

    def down() -> NoReturn:
        raise SparkUnavailable("no worker")

    made.write(0)
    with Clockless(made, down, listing_seconds=NEVER) as following:
        told = following.turn()
        assert kinds(told) == ["TookOver", "DiscoveryReport", "ShredStarted", "Drained"]
        pauses = []
        for _ in range(4):
            pauses.append(following.follower.due - time.monotonic())
            assert following.turn() == [], "the same work waits for the pause"
            assert following.follower.due - time.monotonic() < 60
            setattr(following.follower._pause, "until", 0.0001)  # noqa: B010 - the pause is over
            told = following.turn()
            assert [one.news for one in told if isinstance(one, Drained)] == [()], "the outage was told"
        assert pauses[0] <= 1 < pauses[3] <= 8
        assert following.follower.health.doing is Doing.UNAVAILABLE
        assert "no worker" in following.follower.health.unavailable
        assert history(following.follower.pipeline, 0) == ["New"]
        made.write(1)
        assert "DiscoveryReport" in kinds(following.turn(landing_rang=True))


def test_a_listing_finds_what_no_notice_told(tmp_path: Path) -> None:
    made = shop(tmp_path)
    with Clockless(made, listing_seconds=0.1) as following:
        following.turn()
        made.write(0)
        time.sleep(max(0.0, following.follower.due - time.monotonic()))
        assert "Loaded" in kinds(following.turn())


def test_a_directory_that_settles_is_looked_at_when_it_has(tmp_path: Path) -> None:
    made = shop(tmp_path, landing={"complete": "settle", "settle_seconds": 100})
    made.write(0)
    with Clockless(made, listing_seconds=NEVER) as following:
        following.turn()
        assert 50 < following.follower.due - time.monotonic() <= 101


def test_a_follower_whose_lease_is_lost_stands_by(tmp_path: Path) -> None:
    made = shop(tmp_path)
    with Clockless(made) as first, Clockless(made) as second:
        first.turn()
        assert kinds(second.turn()) == ["StandsBy"]
        assert second.turn() == []
        second.follower.due = 0
        assert not second.follower.wants_turn(()), "it would end each drain of another dataset after five seconds"
        lease = first.follower._lease
        assert lease
        lease.release()
        assert kinds(second.turn())[0] == "TookOver"
        assert kinds(first.turn()) == ["StandsBy"]


def test_followers_of_different_targets_work_side_by_side_and_either_shreds(tmp_path: Path) -> None:
    made = shop(tmp_path, targets={"lab": {"kind": "duckdb", "path": "lab.duckdb"}})
    made.write(0)
    with (
        Clockless(made, targets=["lab"]) as lab,
        Clockless(made, targets=["warehouse"]) as warehouse,
        Clockless(made, targets=["lab"], feeds=["enriched"]) as other,
    ):
        told = lab.turn()
        assert kinds(told) == ["TookOver", "DiscoveryReport", "ShredStarted", "Shredded", "Loaded", "Drained"]
        assert [one.target for one in told if isinstance(one, Loaded)] == ["lab"]
        told = warehouse.turn()
        assert kinds(told) == ["TookOver", "DiscoveryReport", "Loaded", "Drained"]
        assert [one.target for one in told if isinstance(one, Loaded)] == ["warehouse"]
        assert kinds(other.turn()) == ["StandsBy"], "all feeds are no other scope than none"


@pytest.mark.parametrize(
    ("targets", "feeds", "place"),
    [
        (None, None, "0"),
        (["warehouse", "lab"], ["enriched"], "0"),
        (["lab"], None, "lab/"),
        (["lab"], ["enriched"], "lab/"),
    ],
)
def test_the_lease_of_a_follower_names_its_targets_and_feeds(
    tmp_path: Path, targets: list[str] | None, feeds: list[str] | None, place: str
) -> None:
    made = shop(tmp_path, targets={"lab": {"kind": "duckdb", "path": "lab.duckdb"}})
    with made.open() as pipeline:
        scope = Scope.of(pipeline, targets, feeds)
    assert (scope.place, Scope.at(place)) == (place, scope)
    assert Scope.at("a,b/c").has("b", "c") and Scope.at("/c").has("x", "c") and Scope.at("0").has("x", "y")
    assert not Scope.at("a,b/c").has("b", "d") and not Scope.at("a/").has("b", "c")


def test_an_idle_session_that_costs_money_is_ended_and_the_next_work_opens_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, happened = shop(tmp_path), list[str]()
    monkeypatch.setattr(Place, "ends_idle_after", property(lambda _: 0.5))

    def opened() -> SessionHere:
        happened.append("opened")
        return SessionHere()

    def ended() -> None:
        happened.append("ended")
        made.write(len([one for one in happened if one == "ended"]))
        bell.ring("landing shop")

    monkeypatch.setattr(follow_module, "Idleness", partial(Idleness, end=ended))
    made.write(0)
    with Clockless(made, opened, listing_seconds=30) as following, closing(Bell()) as bell:
        events = follow([following.follower], bell, print)
        loaded = (told.key.name for _, told in events if isinstance(told, Loaded))
        assert [next(loaded), next(loaded)] == run_names(0, 1)
        assert happened == ["opened", "ended", "opened"]


def test_a_long_backlog_of_one_dataset_does_not_hold_up_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "SHARED_SECONDS", 0.0)
    busy = shop(tmp_path / "busy", shred={"batch": 1}, load={"batch": {"items": 1}})
    whole = yaml.safe_load(busy.config_file.read_text())
    (landing := tmp_path / "other").mkdir()
    shred = {**whole["datasets"]["shop"]["shred"], "output": str(tmp_path / "shredded")}
    whole["datasets"]["other"] = {**whole["datasets"]["shop"], "landing": {"root": str(landing)}, "shred": shred}
    busy.config_file.write_text(yaml.safe_dump(whole))
    settings, spark = load(busy.config_file), cast(Any, SessionHere)
    busy.write(*range(6))
    datasets: list[str] = []
    with ExitStack() as stack:
        bell = stack.enter_context(closing(Bell()))
        followers = [Follower(lambda name=name: Pipeline(settings, name), spark, settings.follow) for name in ("shop", "other")]
        for one in followers:
            stack.callback(one.close)
        events = stack.enter_context(closing(follow(followers, bell, print)))
        while len(datasets) < 7:
            one, told = next(events)
            if isinstance(told, Loaded):
                datasets.append(one.health.dataset)
                if len(datasets) == 1:
                    write_run(str(landing), FIRST, 1, seed=1)
                    bell.ring("landing other")
    assert datasets.index("other") <= 3


def test_a_session_is_kept_where_it_costs_nothing_and_while_there_is_work() -> None:
    ended: list[str] = []
    kept = Idleness(None, lambda: ended.append("kept"))
    kept.worked()
    kept.look()
    busy = Idleness(60, lambda: ended.append("busy"))
    busy.worked()
    busy.look()
    assert ended == []
    assert (kept.due, busy.due > time.monotonic()) == (math.inf, True)


def test_many_notices_are_one_call() -> None:
    bell = Bell()
    for _ in range(3):
        bell.ring("landing a")
    bell.ring("store")
    assert bell.wait(60) == {"landing a", "store"}
    assert bell.wait(0) == frozenset()


class Failing(Notices):
    """Notices that fail at first."""

    place = "a queue"
    times = 0

    def watch(self, tell: Callable[[], object]) -> None:
        self.times += 1
        if self.times < 3:
            raise OSError("no such queue")
        tell()

    def close(self) -> None:
        pass


def test_notices_that_fail_are_told_once_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell_module, "_FIRST_PAUSE", 0.001)
    told: list[str] = []
    bell = Bell()
    bell.listen(Failing(), "store", told.append)
    try:
        assert bell.wait(60) == {"store"}
    finally:
        bell.close()
    assert told == ["no notices from a queue, so only listings find what is new there: no such queue"]


def test_a_turn_that_says_nothing_for_twice_as_long_as_a_step_may_take_is_told_as_unwell(tmp_path: Path) -> None:
    made = shop(tmp_path, limits={"shred_hours": 1, "load_hours": 2, "full_hours": 3})
    with Clockless(made) as following, answering("127.0.0.1:0", lambda: [following.follower.health]) as address:

        def answered() -> tuple[int, float | None]:
            answer = httpx.get(f"http://{address}/healthz", trust_env=False)
            return answer.status_code, answer.json()["datasets"]["shop"]["silent_seconds"]

        assert answered() == (200, None)
        turn = following.follower.turn(False)
        next(turn)
        status, silent = answered()
        assert status == 200 and silent is not None and silent < 60
        assert following.follower.health.heard
        following.follower.health.heard -= 6 * 3600
        status, silent = answered()
        assert status == 503 and silent is not None and silent >= 6 * 3600
        [*_] = turn
        assert answered() == (200, None)


def test_health_is_answered_without_secrets() -> None:
    masking.keep("hunter2secret")
    outage = "postgresql://u:hunter2secret@h/d is down"
    health = Health("shop", Doing.UNAVAILABLE, datetime(2026, 11, 1, tzinfo=UTC), unavailable=outage)
    with answering("127.0.0.1:0", lambda: [health]) as address:
        answer = httpx.get(f"http://{address}/healthz", trust_env=False)
        assert answer.status_code == 200
        [found] = answer.json()["datasets"].values()
        assert (found["doing"], found["looked_at"], found["blocked"]) == ("unavailable", "2026-11-01T00:00:00+00:00", {})
        assert "hunter2secret" not in answer.text
        assert httpx.get(f"http://{address}/", trust_env=False).status_code == 404
        with pytest.raises(Refused, match=f"follow.health: cannot listen on {address}"), answering(address, list):
            pass
