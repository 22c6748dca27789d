"""A command of another package: found by its entry point, shown in the help, and called; a broken one is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from manifest_platform import plugins
from manifest_platform.cli import Exit, main
from manifest_platform_tests.plugins.installed import installed
from manifest_platform_tests.plugins.toy_command import freshness


@pytest.fixture(autouse=True)
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    toys = {
        "freshness": f"{freshness.__module__}:freshness",
        "gone": "no_such_module:command",
        "status": "no_such_module:status",
    }
    with installed(tmp_path / "site", monkeypatch, plugins.COMMANDS, **toys):
        yield


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "platform.yaml"
    dataset = {
        "source": "snowplow_enriched",
        "landing": {"root": "landing"},
        "shred": {"output": "out", "schemas": ["schemas"]},
    }
    for folder in ("schemas", "landing"):
        (tmp_path / folder).mkdir()
    file.write_text(yaml.safe_dump({"datasets": {"acme": dataset}, "manifest": {"store": "sqlite:///manifest.db"}}))
    return str(file)


def test_it_is_called_with_its_own_options_and_those_that_all_take(config, capsys) -> None:
    assert main(["freshness", "--nothing", "never", "--config", config]) == Exit.NOTHING
    assert capsys.readouterr().out.split() == ["enriched", "never"]
    assert main(["freshness", "--json", "--config", config]) == Exit.NOTHING
    assert json.loads(capsys.readouterr().out) == {"enriched": None}


def test_what_it_is_not_given_well_is_told_as_of_any_command(capsys) -> None:
    assert main(["freshness", "--nothin"]) == Exit.WRONG_USE
    assert "Usage: manifest-platform freshness" in capsys.readouterr().err
    assert main(["freshnes"]) == Exit.WRONG_USE
    assert "'freshness'" in capsys.readouterr().err.partition("Did you mean")[2]


def test_the_help_shows_it_and_marks_what_cannot_be_loaded(capsys) -> None:
    assert main(["--help"]) == Exit.DONE
    lines = {line.split()[0]: line for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines() if line.strip()}
    assert lines["freshness"].split(maxsplit=1)[1] == "Says how far each feed is loaded."
    assert lines["gone"].split(maxsplit=1)[1].startswith("cannot load the plug-in's command 'gone'")
    assert lines["status"].split(maxsplit=1)[1] == "Shows the state of every feed."  # the platform's own name is not taken
    assert main(["freshness", "--help"]) == Exit.DONE
    assert "Exit 4 where nothing is." in capsys.readouterr().out


def test_what_cannot_be_loaded_fails_with_its_error_and_nothing_else_does(config, capsys) -> None:
    assert main(["gone"]) == Exit.FAILED
    assert "command 'gone': ModuleNotFoundError: No module named 'no_such_module'" in capsys.readouterr().err
    assert main(["gone", "--json"]) == Exit.FAILED
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "CommandBroken"
    assert main(["status", "--config", config]) == Exit.DONE


def test_known_commands_read_no_metadata_of_other_packages(config) -> None:
    assert main(["status", "--config", config]) == Exit.DONE
    assert plugins._installed.cache_info().currsize == 0
    assert main(["freshness", "--config", config]) == Exit.NOTHING
    assert plugins._installed.cache_info().currsize == 1
