"""The map of the design names each rule's code and tests, the page on security each promise's; every name is there."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifest_platform_tests.source_names import ROOT, defined

MAP = ROOT / "docs" / "contributing" / "design-map.md"
SECURITY = ROOT / "docs" / "reference" / "security.md"
ENTRY = re.compile(r"`((?:manifest_platform|manifest_platform_tests|deploy)/[\w/]+\.py)::([\w.:]+)`")
LOOKED_FOR = [
    "Late items",
    "Swept stretch",
    "Gap rule",
    "Ambiguous writes",
    "Coupling",
    "Attempt prefixes",
    "Listing as the commit",
    "Bad rows",
    "FULL that empties what a snapshot lacks",
    "Refusal out of order",
    "Duplicates by key",
    "Additive DDL outside",
    "No DDL inside",
    "Fence",
    "Ledger",
    "Counts",
    "Ids of small objects in commit order",
    "Ranges",
    "Close",
    "Switch",
    "Publish",
    "Order of backfills",
]
"""Names under which people look for a rule."""
CRASHES = [
    "while landing",
    "while shredding",
    "after the commit of a shredding, before Dagster's event",
    "while staging or in the transaction",
    "between COMMIT and completion",
    "paused past its lease, then resumed",
    "paused across a full load",
    "while merging",
    "while publishing",
    "an answer of the manifest is lost",
    "the manifest is set back",
    "the manifest is set back to before a full load",
    "the warehouse is set back",
    "shredded output is gone",
    "one item kills its worker again and again",
]


@dataclass(frozen=True)
class Row:
    """A rule, or a promise: its section, its name, and the cells of its code and its tests."""

    section: str
    name: str
    code: str
    tests: str


def rows(page: Path = MAP) -> list[Row]:
    section, found = "", []
    for line in page.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| **"):
            name, _, code, tests = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append(Row(section, name.removeprefix("**").removesuffix("**"), code, tests))
    return found


def problem(file: str, name: str) -> str | None:
    """Describes the fault of an entry and suggests similar names; None if the name is defined."""
    path, dotted = ROOT / file, name.replace("::", ".")
    if path.is_file() and dotted in defined(path):
        return None
    why = (
        f"not defined there; nearest: {difflib.get_close_matches(dotted, defined(path), 3, 0.4)}"
        if path.is_file()
        else "no file"
    )
    others = sorted(ROOT.glob(f"{file.split('/')[0]}/**/*.py"))
    return f"{file}::{name}: {why}; defined in: {[str(one.relative_to(ROOT)) for one in others if dotted in defined(one)]}"


def is_test(name: str) -> bool:
    return name.replace("::", ".").rpartition(".")[2].startswith(("test_", "Test"))


@pytest.mark.parametrize("page", [MAP, SECURITY], ids=["rules", "promises"])
def test_every_name_is_there(page: Path) -> None:
    problems = [
        f"{row.name}: {found}"
        for row in rows(page)
        for entry in ENTRY.findall(row.code + row.tests)
        if (found := problem(*entry))
    ]
    assert not problems, "\n".join([f"docs/{page.name} names what is not there:", *problems])


def test_every_rule_has_code_and_a_test() -> None:
    for row in rows():
        code, tests = ENTRY.findall(row.code), ENTRY.findall(row.tests)
        assert code and not any(is_test(name) for _, name in code), f"{row.section}: {row.name}: what keeps it?"
        assert tests and all(is_test(name) for _, name in tests), f"{row.section}: {row.name}: which test proves it?"
        for cell in (row.code, row.tests):
            assert not ENTRY.sub("", cell).replace("<br>", "").strip(), f"{row.section}: {row.name}: not an entry: {cell}"


def test_every_promise_has_a_test() -> None:
    for row in rows(SECURITY):
        tests = ENTRY.findall(row.tests)
        assert tests and all(is_test(name) for _, name in tests), f"{row.section}: {row.name}: which test proves it?"


def test_every_invariant_and_every_crash_has_a_row() -> None:
    assert [row.name for row in rows() if row.section == "Invariants"] == [str(number) for number in range(1, 12)]
    assert [row.name for row in rows() if row.section == "Crashes"] == CRASHES


@pytest.mark.parametrize("name", LOOKED_FOR)
def test_a_rule_is_found_by_its_name(name: str) -> None:
    assert name in [row.name for row in rows()]


def test_a_name_that_is_not_there_is_told_with_what_may_be_meant() -> None:
    here, other = "manifest_platform_tests/test_design_map.py", "manifest_platform_tests/cli/test_design_map.py"
    assert problem(here, "problem") is None
    assert str(problem(here, "problems")).startswith(f"{here}::problems: not defined there; nearest: ['problem'")
    assert str(problem("manifest_platform_tests/test_docs.py", "is_test")).endswith(f"; defined in: ['{here}']")
    assert problem(other, "is_test") == f"{other}::is_test: no file; defined in: ['{here}']"
