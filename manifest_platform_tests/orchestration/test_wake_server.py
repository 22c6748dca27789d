"""The Lambda that wakes, against Dagster as users run it: a storm of events is one run, and no event does harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from manifest_platform_tests import waking
from manifest_platform_tests.orchestration.dagster_server import Server
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_name, run_names
from manifest_platform_tests.waking import landed

pytestmark = pytest.mark.long
JOB = f"{NAME}_drain"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop")


@pytest.fixture
def server(shop: Shop, tmp_path: Path) -> Iterator[Server]:
    module = {"module_name": "manifest_platform_tests.orchestration.definitions_here", "location_name": "manifest_platform"}
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    started = Server(shop.config_file, NAME, tmp_path / "dagster", workspace)
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.mark.timeout(900)
def test_a_storm_of_events_is_one_run_which_loads_what_landed(
    server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"job": JOB, "dataset": NAME, "landing": ["s3://b/landing/"], "marker": "_SUCCESS"}
    lost = {"job": "no_such_job", "dataset": "lost", "landing": ["s3://lost/"]}
    url = f"http://127.0.0.1:{server.port}/graphql"
    monkeypatch.setenv("WAKE", json.dumps({"url": url, "jobs": [job, lost]}))
    wake = waking.loaded()
    server.stop_sensor()

    def ended() -> list[str]:
        statuses = [run["status"] for run in server.runs()]
        return statuses if set(statuses) <= {"SUCCESS", "FAILURE", "CANCELED"} else []

    # 10,000 events in 20 batches, none in order, with files that count for nothing. One run loads all that landed.
    shop.write(0, 1)
    keys = [f"landing/{run_name(number % 2)}/{'_SUCCESS' if number % 5 == 0 else f'part-{number}'}" for number in range(10_000)]
    launched = [wake.handler(landed(*reversed(keys[start : start + 500])))["launched"] for start in range(0, 10_000, 500)]
    assert [one for one in launched if one] == [[JOB]]
    server.until("the run", lambda: server.loaded() == run_names(0, 1))
    assert server.until("its end", ended) == ["SUCCESS"]

    # Events that come again, or late, or of what is not there, are a run that finds nothing.
    assert wake.handler(landed(*keys[:100], "landing/nowhere/_SUCCESS"))["launched"] == [JOB]
    assert server.until("its end", ended) == ["SUCCESS"] * 2
    assert shop.seen.runs == run_names(0, 1)
    assert shop.doubled_events == []

    # What Dagster refuses comes again: a job that it does not have.
    with pytest.raises(wake.NotWoken, match="did not start no_such_job: PipelineNotFoundError"):
        wake.handler({"Records": [waking.s3_record("x", "lost")]})

    # Events that are lost: the sensor finds what they told.
    shop.write(2)
    server.start_sensor()
    server.until("the sensor's run", lambda: server.loaded() == run_names(0, 1, 2))
    assert shop.seen.runs == run_names(0, 1, 2)

    # Dagster is gone: the events come again.
    server.stop()
    with pytest.raises(wake.NotWoken, match="gave no answer of Dagster"):
        wake.handler(landed(keys[0]))
