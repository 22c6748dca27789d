"""The order of the pages in the side bar of the site.

A page that is not named here comes after the named pages of its section, by name. So a new page needs no change of this file.
"""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PYTHON = ("manifest", "dagster", "sources", "stores", "engines", "catalogs", "testing", "errors")
SECTIONS = {
    "Start": ("start/", ["start/demo", "start/own-data"]),
    "Concepts": ("concepts/", []),
    "How to": ("how-to/", ["how-to/running", "how-to/landing", "how-to/recover", "how-to/restore", "how-to/replay"]),
    "Choose": ("", ["when-to-use", "comparison", "how-to/coming-from"]),
    "Look up": ("", ["troubleshooting", "faq", "glossary"]),
    "Warehouses": ("reference/warehouses/", ["reference/warehouses/index", "reference/warehouses/duckdb"]),
    "Reference": ("reference/", ["reference/command-line", "reference/commands", "reference/configuration", "reference/json"]),
    "Python": ("reference/python/", [f"reference/python/{page}" for page in PYTHON]),
    "Contribute": ("contributing/", ["contributing/index"]),
}
"""Sections of the side bar: the folder whose pages they hold (none: only the named pages), and the pages that come first."""


def pages() -> set[str]:
    """The names of all pages but the front page: paths below docs/ without their suffix."""
    found = (path for path in DOCS.rglob("*") if path.suffix in {".md", ".rst"})
    return {path.relative_to(DOCS).with_suffix("").as_posix() for path in found} - {"index"}


def sections() -> dict[str, list[str]]:
    """The pages of each section, in order. Each page is in one section; pages without a section are under "More"."""
    left = pages()
    filled: dict[str, list[str]] = {}
    named = {title: [page for page in first if page in left] for title, (_, first) in SECTIONS.items()}
    left -= {page for first in named.values() for page in first}
    for title, (folder, _) in SECTIONS.items():
        others = sorted(page for page in left if folder and page.startswith(folder))
        left -= set(others)
        filled[title] = named[title] + others
    return {title: found for title, found in {**filled, "More": sorted(left)}.items() if found}
