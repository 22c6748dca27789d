"""The map of the package names every part, as the import contracts do; and nothing outside a plug-in names one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import manifest_platform
from manifest_platform_tests.plugin_names import HOMES, PACKAGE, Naming, names_in, namings

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
ON_DAGSTER = {"definitions", "orchestration"}

ALLOWED = {
    "aws.py": "the services of AWS by their names, for which it makes clients",
    "config/aws.py": "the same, as keys",
    "demo/": "the story chooses what it shows",
    "extras.py": "the packages of the extras, by their names",
    "fake_vault/": "it is a vault",
    "cli/fake_vault.py": "the command that runs one",
    "cli/commands.py": "names of commands",
    "cli/answers/": "names of commands",
    "cli/demo.py": "the story chooses what it shows",
    "cli/queue.py": "the option by which a vault's operators name it",
    "cli/migrate.py": "the manifests of others, which are moved here",
    "operations/migration/": "the manifests of others, which are moved here",
    "operations/doctor/log.py": "the lease of a move that broke off names the table that is moved",
    "manifest/item.py": "the layout `vault=<id>/FEED/NAME`, which short names of items follow; those in use stay as they are",
    "operations/remedy_commands.py": "names of commands",
    "manifest/payloads.py": "names of schemas, which rows that are there keep",
    "spark/jars.py": "the program DynamoDB Local, whose files it fetches",
    "orchestration/aws.py": "the service DynamoDB, whose place a resource of dagster-aws tells",
    "orchestration/resources.py": "the same, as an argument",
    "sources/settings.py": "the source of a dataset that names none",
    "testing/": "a plug-in is tried beside the embedded store and engine",
    "merging/readers.py": "it asks the published files with the library DuckDB, whatever the warehouse is",
    "questions.py": "what confines the library DuckDB, for the warehouse and for the published files",
}
"""Modules and folders that may name a plug-in, and why."""


def parts() -> set[str]:
    """The folders and modules of the package."""
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def drawn() -> list[set[str]]:
    """The layers as the map has them."""
    lines = re.findall(r"^    (\w+(?:, \w+)*) {2,}\S", manifest_platform.__doc__ or "", re.MULTILINE)
    return [set(line.split(", ")) for line in lines]


def contracts() -> dict[str, dict[str, Any]]:
    """The import contracts by name."""
    found = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    return {one["name"]: one for one in found}


def part_of(module: str) -> str:
    return module.removeprefix("manifest_platform.")


def may_name(module: str) -> bool:
    return any(module == place or (place.endswith("/") and module.startswith(place)) for place in ALLOWED)


def test_the_map_has_every_part_once_and_no_other() -> None:
    named = [part for layer in drawn() for part in layer]
    assert sorted(named) == sorted(parts())


def test_the_map_is_the_import_contract() -> None:
    layers = [{part_of(name.strip()) for name in layer.split("|")} for layer in contracts()["Imports go one way"]["layers"]]
    assert drawn() == layers


def test_the_other_contracts_hold_every_part() -> None:
    dagster = {part_of(name) for name in contracts()["Dagster stays in orchestration"]["source_modules"]}
    assert dagster == parts() - ON_DAGSTER
    [vault] = [one for name, one in contracts().items() if name.startswith("The fake vault")]
    assert {part_of(name) for name in vault["forbidden_modules"]} == parts() - {"fake_vault"}


def test_the_contracts_protect_every_plug_in() -> None:
    points = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]
    ours = [found for group, found in points.items() if group.startswith("manifest_platform.")]
    modules = {point.partition(":")[0] for found in ours for point in found.values()}
    protected = [f"{name}." for name in contracts()["Nobody imports a plug-in"]["protected_modules"]]
    assert modules
    assert {one for one in modules if not f"{one}.".startswith(tuple(protected))} == set()
    assert contracts()["Plug-ins do not import each other"]["modules"] == [name.rstrip(".") for name in protected]


def test_nothing_outside_a_plug_in_names_one() -> None:
    found = [one for one in namings() if not may_name(one.module)]
    assert not found, "\n".join(f"{one.module}:{one.line} names {one.word}: {one.text}" for one in found)


@pytest.mark.parametrize("place", ALLOWED)
def test_what_is_allowed_is_needed(place: str) -> None:
    assert any(one.module == place or one.module.startswith(place) for one in namings())


def test_the_homes_are_there_and_name_themselves() -> None:
    for home, words in HOMES.items():
        text = "\n".join(path.read_text().lower() for path in (PACKAGE / home).rglob("*.py"))
        assert text
        assert any(word in text for word in words)


@pytest.mark.parametrize(
    "source",
    [
        "from manifest_platform.sources import veeva",
        "import manifest_platform.sources.veeva.client as client",
        "from manifest_platform.sources.veeva import client",
        "from somewhere import one as veeva_one",
        "if dataset.source == 'veeva': pass",
        "print(f'{name} is of Veeva')",
        "match kind:\n    case 'veeva': pass",
        "def veeva_checks(): pass",
        "class VeevaSettings: pass",
        "def check(veeva): pass",
        "check(veeva=1)",
        "settings.veeva",
    ],
)
def test_a_name_is_found_wherever_code_has_it(source: str) -> None:
    assert {one.word for one in names_in("module.py", source)} == {"veeva"}


def test_words_for_readers_are_none_of_the_code() -> None:
    source = '"""As Veeva has it."""\n\nA = 1  # veeva\n"""Of a vault."""\n\ndef f():\n    """Glue."""\n'
    assert list(names_in("module.py", source)) == []
    assert [Naming("module.py", 1, "glue", 'A = "glue"')] == list(names_in("module.py", 'A = "glue"'))
