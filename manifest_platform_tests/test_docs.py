"""What the documentation, the examples of configuration and the docstrings of modules name is there."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from manifest_platform_tests.source_names import ROOT, defined

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON_PAGES = sorted((ROOT / "docs").rglob("*.rst"))
"""Pages that the site fills from docstrings."""
SETTINGS = [
    *sorted(ROOT.glob("manifest_platform*.yaml")),
    ROOT / "workspace.yaml",
    ROOT / "dagster.yaml",
    *sorted((ROOT / "spark_conf").iterdir()),
]
PACKAGES = ("manifest_platform", "manifest_platform_tests", "benchmarks")
OURS = "|".join(PACKAGES)
DOTTED = re.compile(rf"(?<![\w./-])(?:{OURS})(?:\.\w+)+(?![\w/]|\.\w)")
PATH = re.compile(rf"(?<![\w./-])(?:{OURS}|docs|scripts|spark_conf)/[\w./-]*\w(?![\w./-]*::)")
SHORT_PATH = re.compile(r"`((?:\w+/)*\w+\.(?:py|md|yaml|toml|conf))`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PYTHON = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
AUTOMODULE = re.compile(r"^\.\. automodule:: (\S+)$", re.MULTILINE)
COMMAND = re.compile(r"manifest-platform ([a-z][a-z-]*)(?: ([a-z][a-z-]*)(?![\w=/*.-]))?")
TARGET = re.compile(r"`make ([a-z-]+)")
ELSEWHERE = {
    "manifest_platform.ledger": "a table of the warehouse",
    "manifest_platform.fence": "a table of the warehouse",
    "manifest_platform.retired": "a table of the warehouse",
    "manifest_platform.renamed_columns": "a table of the warehouse",
    "manifest_platform.Dataset": "the component, by its type",
    "manifest_platform/dataset": "a tag of Dagster's runs",
    "manifest_platform/duty": "a tag of Dagster's runs",
    "manifest_platform/turn": "a tag of Dagster's runs",
}
"""Names that look like those of modules and files, and what they are."""


def docstrings() -> Iterator[tuple[str, str]]:
    """Yields (path, docstring) of each module."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("**/*.py")):
            if text := ast.get_docstring(ast.parse(path.read_text()), clean=False):
                yield str(path.relative_to(ROOT)), text


@cache
def texts() -> list[tuple[str, str]]:
    """All that names modules and files, by where it stands."""
    files = [*PAGES, *SETTINGS, ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in files] + list(docstrings())


@cache
def groups() -> set[str]:
    """The groups of entry points, which are named as packages are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["entry-points"])


def is_there(dotted: str) -> bool:
    """True if a dotted name is a module, or something that a module defines."""
    if dotted in groups() or dotted in ELSEWHERE or (ROOT / dotted).is_file():
        return True
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        base, rest = ROOT.joinpath(*parts[:length]), ".".join(parts[length:])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return not rest or rest in defined(file)
    return ROOT.joinpath(*parts).is_dir()


def exists(path: str) -> bool:
    return path in ELSEWHERE or (ROOT / path).exists()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text()))
    return {heading.strip().replace(" ", "-") for heading in headings}


def test_every_module_that_is_named_is_there() -> None:
    assert [(where, name) for where, text in texts() for name in DOTTED.findall(text) if not is_there(name)] == []


def test_every_file_that_is_named_is_there() -> None:
    assert [(where, path) for where, text in texts() for path in PATH.findall(text) if not exists(path)] == []


def test_every_file_that_is_named_shortly_is_there() -> None:
    """Short paths are relative to the repository, the package, or the benchmarks."""
    from_where = [ROOT, ROOT / "manifest_platform", ROOT / "benchmarks"]
    missing = [
        (page.name, path)
        for page in PAGES
        for path in SHORT_PATH.findall(page.read_text())
        if not any((start / path).is_file() for start in from_where)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue  # another site's
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.is_file(), f"{page.name}: {link}: no such file"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}: no such heading in {target.name}"


def links(page: Path) -> set[Path]:
    """Returns the files that a page links to."""
    inside = (link.partition("#")[0] for link in LINK.findall(page.read_text()) if not re.match(r"[a-z]+:", link))
    return {(page.parent / link).resolve() for link in inside if link}


def test_every_page_is_reachable_from_the_front_page() -> None:
    """The front page of the site is docs/index.md; the README leads there too."""
    front = ROOT / "docs" / "index.md"
    found, new = {front}, {front}
    while new:
        new = {link for page in new if page.suffix == ".md" for link in links(page)} - found
        found |= new
    assert [str(page.relative_to(ROOT)) for page in [*PAGES, *PYTHON_PAGES] if page not in found] == []
    assert front in links(ROOT / "README.md")


def test_every_module_of_the_reference_exists() -> None:
    named = [(page.name, name) for page in PYTHON_PAGES for name in AUTOMODULE.findall(page.read_text())]
    assert [(page, name) for page, name in named if not is_there(name)] == []
    assert {page for page, _ in named} == {page.name for page in PYTHON_PAGES}


def test_every_example_parses_and_imports_what_is_there() -> None:
    found = 0
    for page in PAGES:
        for _, code in PYTHON.findall(page.read_text()):
            for node in ast.walk(ast.parse(textwrap.dedent(code))):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("manifest_platform"):
                    found += len(node.names)
                    for name in node.names:
                        assert is_there(f"{node.module}.{name.name}"), f"{page.name}: no {name.name} in {node.module}"
    assert found >= 4, "the suites of plug-ins are imported by examples"


def test_every_command_that_is_named_is_there() -> None:
    from click import Group

    from manifest_platform import plugins
    from manifest_platform.cli.app import load
    from manifest_platform.cli.commands import COMMANDS

    known = {*COMMANDS, *plugins.names(plugins.COMMANDS)}
    for page in [*PAGES, *SETTINGS]:
        for name, second in COMMAND.findall(page.read_text()):
            assert name in known, f"{page.name}: manifest-platform {name}: no such command"
            command = load(name)
            if second and isinstance(command, Group):
                assert second in command.commands, f"{page.name}: manifest-platform {name} {second}: no such command"


def test_every_benchmark_is_run_by_make_bench_or_named_with_its_command() -> None:
    scripts = {file.stem for file in (ROOT / "benchmarks").glob("*.py") if "__main__" in file.read_text()} - {"all"}
    [line] = re.findall(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    run = {shlex.split(words)[0] for words in shlex.split(line)}
    page = (ROOT / "docs" / "reference" / "speed.md").read_text()
    named = set(re.findall(r"^\.venv/bin/python benchmarks/(\w+)\.py", page, re.MULTILINE))
    assert run | named == scripts


def test_every_target_that_is_named_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [(page.name, name) for page in PAGES for name in TARGET.findall(page.read_text()) if name not in targets] == []


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("manifest_platform.manifest", True),
        ("manifest_platform.manifest.store", True),
        ("manifest_platform.manifest.store.Store.get", True),
        ("manifest_platform.manifest.store.Store.got", False),
        ("manifest_platform.landing", False),
        ("manifest_platform.stores", True),
        ("manifest_platform.ledger", True),
    ],
)
def test_a_name_is_there_if_a_module_defines_it(name: str, there: bool) -> None:
    assert is_there(name) == there


def test_names_are_found_in_running_text() -> None:
    text = "see `manifest_platform.manifest.store`, manifest_platform/cli/app.py, and manifest_platform.yaml."
    assert DOTTED.findall(text) == ["manifest_platform.manifest.store", "manifest_platform.yaml"]
    assert PATH.findall(text) == ["manifest_platform/cli/app.py"]
