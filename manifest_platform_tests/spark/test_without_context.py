"""What Spark Connect does not have, no code uses on its way: SparkContext, RDDs, and the Java of the driver."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "manifest_platform"
CLASSIC = {"spark/gateway.py"}
"""The module that starts the Java of a driver in this process: no session of Spark Connect comes by."""
LACKING = {"sparkContext", "SparkContext", "_sc", "_jsc", "_jvm", "_jsparkSession", "_jdf", "rdd", "RDD", "parallelize"}


def uses(source: str) -> list[int]:
    """Returns the lines that use what a session of Spark Connect lacks, wherever such a session may come by.

    It does not come by in `A if is_remote() else B` at B, and not in a function of the module that is only called there.
    """
    if not any(name in source for name in LACKING):
        return []
    nodes = list(ast.walk(ast.parse(source)))
    guards = [node for node in nodes if isinstance(node, ast.IfExp) and ast.unparse(node.test) == "is_remote()"]
    classic = {id(node) for guard in guards for node in ast.walk(guard.orelse)}
    for function in [node for node in nodes if isinstance(node, ast.FunctionDef)]:
        calls = [node for node in nodes if isinstance(node, ast.Name) and node.id == function.name]
        if calls and all(id(call) in classic for call in calls):
            classic |= {id(node) for node in ast.walk(function)}
    return sorted({node.lineno for node in _found(nodes) if id(node) not in classic})


def _found(nodes: Sequence[ast.AST]) -> Iterator[ast.Attribute | ast.Name | ast.ImportFrom]:
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in LACKING:
                yield node
            case ast.ImportFrom(names=names) if LACKING & {one.name for one in names}:
                yield node


def test_no_module_on_the_way_of_spark_connect_uses_what_it_lacks() -> None:
    modules = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    assert {place for place, path in modules.items() if uses(path.read_text())} == CLASSIC


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("session.sparkContext.setJobGroup('a', '')", [1]),
        ("from pyspark import SparkContext", [1]),
        ("frame.rdd.map(f)", [1]),
        ("session.addTag(t) if is_remote() else session.sparkContext.addJobTag(t)", []),
        ("session.sparkContext.addJobTag(t) if is_remote() else session.addTag(t)", [1]),
        ("def a(s):\n    s._jvm\nremote() if is_remote() else a(s)", []),
        ("def a(s):\n    s._jvm\nremote() if is_remote() else a(s)\na(s)", [2]),
    ],
)
def test_a_use_is_found_unless_the_session_is_known_to_be_classic(source: str, lines: list[int]) -> None:
    assert uses(source) == lines
