"""Where code names a plug-in: in an identifier, an import, or a string that is no docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "manifest_platform"

HOMES = {
    "sources/snowplow": ("snowplow",),
    "sources/veeva": ("veeva", "vault"),
    "manifest/stores": ("dynamodb", "sqlite", "postgresql"),
    "warehouse/engines": ("duckdb", "redshift", "snowflake"),
    "merging/catalogs": ("glue", "iceberg"),
    "notices/sqs": ("sqs",),
    "notices/webhook": ("webhook",),
    "orchestration/jobs/services": ("emr",),
    "spark/places": ("emr",),
}
"""The folder of each plug-in, or of the plug-ins of a kind, and the words that name them."""
_WORDS = re.compile("|".join(word for words in HOMES.values() for word in words), re.IGNORECASE)


@dataclass(frozen=True)
class Naming:
    """A line of a module that names a plug-in."""

    module: str
    line: int
    word: str
    text: str


@cache
def namings() -> list[Naming]:
    """All of the package, but those in the homes of the plug-ins."""
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    homes = tuple(f"{home}/" for home in HOMES)
    return [one for name, path in modules.items() if not name.startswith(homes) for one in names_in(name, path.read_text())]


def names_in(module: str, source: str) -> Iterator[Naming]:
    """Yields the plugin names in a module's source, by line."""
    tree, lines = ast.parse(source), source.splitlines()
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found = {
        Naming(module, line, match[0].lower(), lines[line - 1].strip())
        for node in ast.walk(tree)
        if id(node) not in docstrings
        for line, text in _texts(node)
        for match in _WORDS.finditer(text)
    }
    yield from sorted(found, key=lambda one: (one.line, one.word))


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The names and strings that a node itself holds."""
    line = getattr(node, "lineno", 0)
    match node:
        case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text) | ast.alias(name=text):
            yield line, text
        case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text) | ast.ClassDef(name=text):
            yield line, text
        case ast.keyword(arg=str(text)) | ast.ImportFrom(module=str(text)) | ast.Constant(value=str(text)):
            yield line, text
        case _:
            pass
    if isinstance(node, ast.alias) and node.asname:
        yield line, node.asname
