"""Every command's answer in JSON is documented; that real answers are so is held by a fixture of all tests."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from manifest_platform.cli import main
from manifest_platform.cli.answers import ANSWERS, schema
from manifest_platform.cli.answers.page import page
from manifest_platform_tests.cli.documented import closed, require_documented
from manifest_platform_tests.cli.every_command import every_command

OTHERS = {"toy"}  # commands of plug-ins that are installed for tests


def test_every_command_has_an_answer():
    from click import Group

    own = {name for name, command in every_command().items() if name and not isinstance(command, Group)}
    assert {name for name in own if name not in ANSWERS} <= OTHERS
    assert set(ANSWERS) <= own


def test_the_page_is_made_of_the_types():
    assert Path("docs/reference/json.md").read_text() == page(), "manifest-platform schema > docs/reference/json.md"


def test_names_of_types_mean_one_thing_on_the_page():
    kinds = {}
    for command in ANSWERS:
        for name, one in schema(command).get("$defs", {}).items():
            assert kinds.setdefault(name, one) == one, name


@pytest.mark.parametrize("command", ["status", "merge run"])
def test_schema_prints_a_schema_and_its_own_answer_is_one(capsys, command):
    assert main(["schema", *command.split()]) == 0
    told = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(told)
    assert main(["schema", *command.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told


def test_schema_knows_what_can_be_asked(capsys):
    assert main(["schema", "merge"]) == 2
    assert "there is no command 'merge'; choose one of merge run, merge publish" in capsys.readouterr().err


def test_an_answer_that_is_not_documented_is_refused(monkeypatch):
    monkeypatch.setattr("manifest_platform_tests.cli.documented._at_work", lambda: "store upgrade")
    require_documented('{"upgraded": []}')
    require_documented('{"error": {"type": "Refused", "message": "no"}}')
    for wrong in ('{"upgraded": [], "more": 1}', "{}", '{"upgraded": {}}', '{"error": {"type": "Refused"}}'):
        with pytest.raises(AssertionError, match="answers what cli/answers does not tell of"):
            require_documented(wrong)


def test_a_published_schema_allows_what_later_releases_add():
    told = schema("status")
    assert Draft202012Validator(told).is_valid({"steps": [], "more": 1})
    assert not Draft202012Validator(closed(told)).is_valid({"steps": [], "more": 1})
