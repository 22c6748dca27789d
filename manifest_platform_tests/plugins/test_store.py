"""A store that another package brings: found by its entry point, named in a configuration, and good by the contract suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from manifest_platform import plugins
from manifest_platform.config import load
from manifest_platform.manifest.stores import open_store
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.testing.store import StoreContract
from manifest_platform_tests.plugins.installed import installed
from manifest_platform_tests.plugins.toy_store import MemoryDriver


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch, plugins.STORES, memory=f"{MemoryDriver.__module__}:MemoryDriver"):
        yield


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store_url(self) -> str:
        return f"memory://{uuid.uuid4()}"


def test_a_pipeline_keeps_its_manifest_in_it(tmp_path: Path) -> None:
    run = tmp_path / "landing" / "run=2024-05-14-12-00-00"
    run.mkdir(parents=True)
    (run / "_SUCCESS").touch()
    file = tmp_path / "platform.yaml"
    dataset = "{landing: {root: landing}, shred: {output: out, schemas: [schemas]}}"
    file.write_text(f"datasets:\n  acme: {dataset}\nmanifest: {{store: 'memory://{uuid.uuid4()}'}}\n")
    settings = load(file)
    with Pipeline(settings, "acme") as pipeline:
        assert discover(pipeline).new == (run.name,)
    with closing(open_store(settings.manifest.store)) as store:
        assert len(store.query("acme", "RECORD#")) == 1


def test_messages_name_it_among_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"allowed: dynamodb://.*, memory://NAME, postgresql://"):
        open_store("redis://h")
