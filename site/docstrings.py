"""The reference from docstrings: turns their plain text into reStructuredText, which Sphinx reads.

Docstrings have paragraphs, code in single backticks, lists with "- ", and indented blocks of code. All other signs stand for
themselves.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import typing
from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import typing as sphinx_typing

CODE = re.compile(r"(?P<before>\w?)`(?P<code>[^`\n]+(?:\n[^`\n]+)?)`(?P<after>\w?)")
SIGNS = re.compile(r"[\\*|]|(?<=\w)_(?!\w)")
HIDDEN = {"__new__", "__init__", "model_config", "model_post_init"}
"""Members that say nothing to a reader: the signature of a class has the arguments."""


def restructured(text: str) -> str:
    """Returns the text of a docstring as reStructuredText."""
    blocks: list[tuple[bool, list[str]]] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        is_code = paragraph.startswith("    ")
        if is_code and blocks and blocks[-1][0]:
            blocks[-1][1].append(paragraph)
        else:
            blocks.append((is_code, [paragraph]))
    return "\n\n".join((_code if is_code else _running)("\n\n".join(paragraphs)) for is_code, paragraphs in blocks)


def _code(block: str) -> str:
    try:
        ast.parse(textwrap.dedent(block))
    except SyntaxError:
        return f".. code-block:: text\n\n{block}"
    return f".. code-block:: python\n\n{block}"


def _running(paragraph: str) -> str:
    made, end = [], 0
    for found in CODE.finditer(paragraph):
        made.append(SIGNS.sub(r"\\\g<0>", paragraph[end : found.start()]))
        code = " ".join(found["code"].split())
        before, after = (found[side] and escape for side, escape in (("before", f"{found['before']}\\ "), ("after", "\\ ")))
        made.append(f"{before}``{code}``{after}")
        end = found.end() - len(found["after"])
    return "".join([*made, SIGNS.sub(r"\\\g<0>", paragraph[end:])])


def _process(_app: Sphinx, _kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = [*restructured("\n".join(lines)).split("\n"), ""]


def _skip(_app: Sphinx, _kind: str, name: str, _object: Any, _skipped: bool, _options: Any) -> bool | None:
    return True if name in HIDDEN else None


def _bases(_app: Sphinx, _name: str, _object: Any, _options: Any, bases: list[Any]) -> None:
    bases[:] = [base for base in bases if base is not object]


def _without_empty_bases(_app: Sphinx, _domain: str, _kind: str, content: nodes.Element) -> None:
    for paragraph in [child for child in content.children if child.astext().strip() == "Bases:"]:
        content.remove(paragraph)


def _without_metadata(written: Callable[..., str]) -> Callable[..., str]:
    """Writes `Annotated[X, …]` as X: what is added is for a validator, and its text is no type."""

    def write(annotation: Any, /, *arguments: Any, **options: Any) -> str:
        while typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        return written(annotation, *arguments, **options)

    return write


def _shorten_types() -> None:
    for name in ("stringify_annotation", "restify"):
        before = getattr(sphinx_typing, name)
        after = _without_metadata(before)
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("sphinx") and getattr(module, name, None) is before:
                setattr(module, name, after)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects the steps to autodoc."""
    app.setup_extension("sphinx.ext.autodoc")
    _shorten_types()
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-bases", _bases)
    app.connect("object-description-transform", _without_empty_bases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
