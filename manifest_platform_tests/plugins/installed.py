"""A package that brings plug-ins, installed for a test: a folder on sys.path with the metadata that an installer writes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manifest_platform import plugins


@contextmanager
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, **entry_points: str) -> Generator[None]:
    """A package whose entry points of a group are these, by name: `name="module:attribute"`."""
    metadata = folder / "toy-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {place}" for name, place in entry_points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    with monkeypatch.context() as patched:
        patched.syspath_prepend(folder)
        _forget()
        try:
            yield
        finally:
            patched.undo()
            _forget()


def _forget() -> None:
    """Plug-ins are looked up once a process; what a test installs is there for the test alone."""
    for cached in (plugins.load, plugins._installed, plugins._own):
        cached.cache_clear()
