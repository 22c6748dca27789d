"""Pictures drawn from code: a ```mermaid fence becomes a picture that needs no server, and is checked by the build.

The script that draws is an npm package with a pinned hash (package-lock.json); `make docs` fetches it and the site carries it.
Without JavaScript a reader sees the picture's source, which reads as text.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parent
SCRIPT = HERE / "node_modules" / "@mermaid-js" / "tiny" / "dist" / "mermaid.tiny.js"
LOG = logging.getLogger(__name__)


class Picture(nodes.General, nodes.Element):
    """A picture in the document: its source is the attribute `code`."""


class Mermaid(SphinxDirective):
    """The fence: its content is the source of a picture."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Returns the picture, with its place for the messages of the check."""
        picture = Picture(code="\n".join(self.content))
        self.set_source_info(picture)
        return [picture]


def _html(translator: Any, picture: Picture) -> None:
    translator.body.append(f'<pre class="mermaid">{translator.encode(picture["code"])}</pre>\n')
    raise nodes.SkipNode


def _text(translator: Any, picture: Picture) -> None:
    raise nodes.SkipNode


def _check(app: Sphinx, _env: Any) -> None:
    """Warns of each picture that the script cannot parse. One run of Node for all of them."""
    pictures = [picture for page in sorted(app.env.found_docs) for picture in app.env.get_doctree(page).findall(Picture)]
    if not pictures:
        return
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or "node"
    answer = subprocess.run(
        [node, HERE / "check_pictures.cjs", SCRIPT],
        input=json.dumps([picture["code"] for picture in pictures]),
        capture_output=True,
        text=True,
        check=True,
    )
    for picture, error in zip(pictures, json.loads(answer.stdout), strict=True):
        if error:
            LOG.warning("this picture cannot be drawn: %s", error, location=picture, type="picture")


def _scripts(app: Sphinx, _page: str, _template: str, _context: Any, doctree: nodes.document | None) -> None:
    """Adds the script to the pages that have pictures, and to no others: it is 3 MB."""
    if doctree and next(doctree.findall(Picture), None):
        app.add_js_file("mermaid.tiny.js")
        app.add_js_file("pictures.js")


def _copy(app: Sphinx, error: Exception | None) -> None:
    if not error and app.builder.format == "html":
        shutil.copy(SCRIPT, Path(app.outdir) / "_static" / SCRIPT.name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Adds the fence, its check and its script."""
    app.add_node(Picture, html=(_html, None), text=(_text, None))
    app.add_directive("mermaid", Mermaid)
    app.connect("env-updated", _check)
    app.connect("html-page-context", _scripts)
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
