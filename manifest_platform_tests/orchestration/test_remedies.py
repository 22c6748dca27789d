"""Remedies on Dagster's pages."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from manifest_platform.cli import remedies as at_a_terminal
from manifest_platform.manifest import Refused
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of, told
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.pipeline.shop import Shop, run_name


@pytest.mark.parametrize("action", Action)
def test_the_command_is_the_same_as_in_a_terminal(tmp_path: Path, action: Action) -> None:
    remedy = Remedy(action, "run=1", "full", "count", "events", date(2024, 5, 14), "runs")
    with Shop(tmp_path).open() as pipeline:
        expected = str(action) if action is Action.CHECK_CLOCK else at_a_terminal.command_of(remedy)
        assert command_of(remedy, pipeline) == expected


def test_the_command_names_the_dataset_if_there_are_several(tmp_path: Path) -> None:
    with Shop(tmp_path).open() as pipeline:
        pipeline.config.datasets["beta"] = pipeline.dataset
        assert command_of(Remedy(Action.DRAIN), pipeline) == f"manifest-platform drain --dataset {pipeline.name}"


def test_what_helps_is_told_behind_what_is_wrong(tmp_path: Path) -> None:
    with Shop(tmp_path).open() as pipeline:
        names = Names(pipeline.config, pipeline.source)
        assert told(Refused("It waits"), pipeline, names) == "It waits"
        assert told(ValueError("It is wrong"), pipeline, names) == "It is wrong"
        do, look = Refused("It waits", Remedy(Action.DRAIN)), Refused("It is held.", Remedy(Action.SHOW_STATUS))
        lost = Refused("It differs", Remedy(Action.RESHRED, item=run_name(0)))
        assert (
            told(do, pipeline, names)
            == "It waits. In Dagster: launch the job shop_drain. In a terminal: manifest-platform drain"
        )
        assert (
            told(Refused("It is gone", Remedy(Action.EXAMINE)), pipeline, names) == "It is gone. See manifest-platform doctor"
        )
        assert told(Refused("It lags", Remedy(Action.RECONCILE)), pipeline, names) == (
            "It lags. Do this first: manifest-platform warehouse reconcile"
        )
        assert told(lost, pipeline, names) == (
            f"It differs. Do this first, in a terminal: manifest-platform reshred {run_name(0)}. Then, in Dagster: materialize"
            " again, or launch the job shop_drain"
        )
        assert told(look, pipeline, names) == "It is held. See manifest-platform status"
