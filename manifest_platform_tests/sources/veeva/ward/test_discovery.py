"""Windows that others land, in a vault that is captured and in another that is not."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.fake_vault import FakeVault
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.pipeline import folder_name
from manifest_platform.sources.errors import LandingMisconfigured
from manifest_platform.sources.veeva import shredder as shred
from manifest_platform.sources.veeva import source
from manifest_platform.sources.veeva.direct_data import MANIFEST, METADATA_FULL
from manifest_platform.sources.veeva.layout import item_uri
from manifest_platform.storage import local_path
from manifest_platform_tests.sources.veeva.ward.ward import INCR, Ward

THEIRS = "incr/stoptime=202512312345"


def landed_by_others(pipeline: Pipeline, ward: Ward, name: str, marker: bool = True) -> None:
    folder = local_path(item_uri(pipeline.source.root, ward.vault_id, name))
    (folder / "Object").mkdir(parents=True)
    (folder / "manifest.csv").write_text("extract,extract_label,type,records,file\n")
    if marker:
        (folder / "_SUCCESS").touch()


def test_what_others_land_is_registered_once_it_is_complete(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    with ward.open() as pipeline:
        landed_by_others(pipeline, ward, THEIRS)
        landed_by_others(pipeline, ward, "incr/stoptime=202601010000", marker=False)
        landed_by_others(pipeline, ward, "log/date=2026-01-01")
        landed_by_others(pipeline, ward, "full/copy")
        report = discover(pipeline)
        landed = pipeline.manifest.item(pipeline.key(THEIRS)).landed
    assert (report.new, report.incomplete) == ((THEIRS, "log/date=2026-01-01"), ("incr/stoptime=202601010000",))
    assert report.unparseable == ("full/copy",)
    assert landed is not None
    assert (landed.start, landed.stop, landed.files) == ("2025-12-31T23:30Z", "2025-12-31T23:45Z", 1)


def test_days_without_hyphens_are_taken_as_they_are_and_no_day_is_taken_twice(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    with ward.open() as pipeline:
        for name in ("log/date=20260101", "full/date=20260101", "full/date=20251231T0800"):
            landed_by_others(pipeline, ward, name)
        report = discover(pipeline)
        assert report.new == ("full/date=20251231T0800", "full/date=20260101", "log/date=20260101")
        for name in ("log/date=2026-01-01", "log/date=20260102", "log/date=2026-01-02", "full/date=2025-12-31T0800"):
            landed_by_others(pipeline, ward, name)
        again = discover(pipeline)
        assert (again.new, again.moved) == (("log/date=2026-01-02",), ())
        assert again.doubled == (
            "full/date=2025-12-31T0800 (full/date=20251231T0800)",
            "log/date=2026-01-01 (log/date=20260101)",
            "log/date=20260102 (log/date=2026-01-02)",
        )
        assert discover(pipeline).doubled == again.doubled
        by_name = [pipeline.key(name) for name in ("log/date=20260101", "log/date=2026-01-01")]
        assert {key.name for key in by_name} == {"log/date=20260101"}
        landed = pipeline.manifest.item(by_name[0]).landed
        assert landed is not None
        assert (landed.start, landed.stop) == ("2025-12-31T00:00Z", "2026-01-01T00:00Z")
        assert pipeline.source.reread(landed) == landed
        assert pipeline.meant_by(f"{folder_name(by_name[0])}") == pipeline.source.named("log/date=2026-01-01")


def test_only_unknown_windows_of_a_captured_feed_are_read(
    tmp_path: Path, vault: FakeVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward = Ward(tmp_path, vault=vault)
    looked_into: list[str] = []

    def look(place: str, *more: Any) -> Any:
        looked_into.append(place)
        return read_window(place, *more)

    read_window = source.read_window
    monkeypatch.setattr(source, "read_window", look)
    with ward.open() as pipeline:
        captured = ward.captured(pipeline).captured
        landed_by_others(pipeline, ward, THEIRS)
        orphan = local_path(item_uri(pipeline.source.root, ward.vault_id, "incr/stoptime=202512312330")) / "attempt=0a"
        orphan.mkdir(parents=True)
        (orphan / "manifest.csv").touch()
        report = discover(pipeline)
    assert report.new == (THEIRS,)
    assert sorted(place.rpartition("=")[2] for place in looked_into) == ["202512312330", "202512312345"]
    assert report.known == len(captured) > 0


def test_captured_windows_are_verified_by_checksum_and_windows_that_others_land_are_not(
    tmp_path: Path, vault: FakeVault
) -> None:
    ward = Ward(tmp_path, vault=vault)
    with ward.open() as pipeline:
        landed_by_others(pipeline, ward, THEIRS)
        discover(pipeline)
        captured = next(name for name in ward.captured(pipeline, INCR).captured)
        with pipeline.lease(INCR, SHRED) as held:
            items = [pipeline.manifest.item(pipeline.key(name)) for name in (captured, THEIRS)]
            directories = [pipeline.source.directory(claim, "out") for claim in pipeline.manifest.claim(held, items)]
    ours, theirs = (one for one in directories if isinstance(one, shred.Window))
    files = {path: local_path(uri) for path, (uri, _) in ours.paths.items()}
    assert {METADATA_FULL, MANIFEST} < files.keys()
    assert ours.expected == {path: sha256(file.read_bytes()).hexdigest() for path, file in files.items()}
    assert theirs.expected is None


def test_a_captured_vault_has_no_root_before_its_first_capture(tmp_path: Path, vault: FakeVault) -> None:
    ward = Ward(tmp_path / "captured", vault=vault)
    (ward.home / "landing").rmdir()
    with ward.open() as pipeline:
        assert discover(pipeline).landed == ()
    other = Ward(tmp_path / "landed")
    (other.home / "landing").rmdir()
    with other.open() as pipeline, pytest.raises(LandingMisconfigured, match="does not exist"):
        discover(pipeline)
