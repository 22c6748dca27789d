"""Plain Markdown pages as pages of the site: the side bar, links to files outside of docs/, terms of the glossary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import navigation
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

LOG = logging.getLogger(__name__)
SIDE_BAR = """
```{{toctree}}
:hidden:
:caption: {title}

{pages}
```
"""
OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")
WEB = re.compile(
    r"https?://(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?(?:[/?#]\S*)?|http://(?:localhost|127\.0\.0\.1)(?::\d+)?(?:/\S*)?"
)


def _side_bar(app: Sphinx, page: str, source: list[str]) -> None:
    """Appends the side bar to the front page, whose Markdown has links only."""
    if page == app.config.root_doc:
        for title, pages in navigation.sections().items():
            source[0] += SIDE_BAR.format(title=title, pages="\n".join(f"/{name}" for name in pages))


def _files(app: Sphinx, page: str, source: list[str]) -> None:
    """Points each link that leaves docs/ to a copy of the file, because the site has no page for it."""
    folder = (Path(app.srcdir) / page).parent

    def copied(link: re.Match[str]) -> str:
        file = (folder / link[1]).resolve()
        inside = file.is_relative_to(app.srcdir) or not file.is_file()
        return link[0] if inside else f"](path:{link[1]})"

    source[0] = OUTSIDE.sub(copied, source[0])


class Terms(SphinxTransform):
    """Gives each term of the glossary an anchor: `glossary.md#watermark` is the row of the watermark."""

    default_priority = 300

    def apply(self, **_: Any) -> None:
        """Marks the first cells of the tables whose first column is headed "word"."""
        if self.env.docname != "glossary":
            return
        slugs = dict(self.env.metadata["glossary"].get("myst_slugs", {}))
        for table in self.document.findall(nodes.table):
            if next(table.findall(nodes.entry)).astext() != "word":
                continue
            for row in next(table.findall(nodes.tbody)).findall(nodes.row):
                for term in row.children[0].astext().split(","):
                    name = term.strip().lower().replace(" ", "-")
                    if name in slugs:
                        LOG.warning("a second term or heading %r", term.strip(), location=row, type="glossary")
                    row["ids"].append(name)
                    slugs[name] = (row.line, name, term.strip())
        self.env.metadata["glossary"]["myst_slugs"] = slugs
        self.document.myst_slugs = slugs


class Addresses(SphinxTransform):
    """Warns of an address of the web that cannot be one. Whether it answers is asked by `make docs-links`."""

    default_priority = 900

    def apply(self, **_: Any) -> None:
        """Looks at the form of each address that is linked."""
        for link in self.document.findall(nodes.reference):
            address = link.get("refuri", "")
            if re.match(r"[a-z]+:", address) and not address.startswith("mailto:") and not WEB.fullmatch(address):
                LOG.warning("this address is malformed: %s", address, location=link, type="address")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects the steps."""
    app.connect("source-read", _files)
    app.connect("source-read", _side_bar)
    app.add_transform(Terms)
    app.add_transform(Addresses)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
