"""A source of another package: found by its entry point, configured, shown in Dagster, and held to the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import plugins, storage
from manifest_platform.orchestration.build import build_defs
from manifest_platform.sources.source import Source
from manifest_platform.testing.source import SourceContract
from manifest_platform_tests.plugins.installed import installed
from manifest_platform_tests.plugins.toy_source import Notes


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch, plugins.SOURCES, notes=f"{Notes.__module__}:{Notes.__name__}"):
        yield


def dataset(home: Path) -> dict[str, Any]:
    (home / "landing").mkdir(exist_ok=True)
    return {
        "source": "notes",
        "landing": {"root": str(home / "landing")},
        "shred": {"output": str(home / "shredded")},
        "merge": {"output": str(home / "merged")},
    }


@pytest.mark.usefixtures("toy")
class TestNotes(SourceContract):
    landings = 0

    @pytest.fixture
    def told(self, tmp_path: Path) -> dict[str, Any]:
        return dataset(tmp_path)

    def land(self, source: Source, number: int) -> None:
        self.landings += 1
        folder = storage.local_path(source.root) / f"day=2026-03-{number + 1:02d}"
        folder.mkdir(exist_ok=True)
        lines = [json.dumps({"id": index, "text": f"note {index} of {self.landings}"}) for index in range(5)]
        (folder / "notes.jsonl").write_text("\n".join([*lines, "no note"]))
        (folder / "_SUCCESS").touch()


@pytest.mark.usefixtures("toy")
def test_dagster_shows_what_the_source_declares(tmp_path: Path) -> None:
    file = tmp_path / "platform.yaml"
    whole = {"datasets": {"diary": dataset(tmp_path)}, "manifest": {"store": f"sqlite:///{tmp_path}/manifest.db"}}
    file.write_text(yaml.safe_dump(whole))
    definitions = build_defs(file)
    keys = {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}
    assert keys >= {"diary/days", "diary/shredded", "diary/warehouse", "diary/merged/notes_merged", "diary/published"}
    assert {job.name for job in definitions.jobs or ()} >= {"diary_drain", "diary_merge"}


def test_without_its_package_a_source_is_unknown() -> None:
    with pytest.raises(plugins.UnknownPlugin, match=r"^allowed: items, snowplow_enriched, snowplow_transformed, veeva$"):
        plugins.load(plugins.SOURCES, "notes")
