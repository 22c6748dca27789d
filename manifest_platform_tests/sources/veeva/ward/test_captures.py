"""Advice that a capture gives, followed: what is told, what is done then, and what has changed."""

from __future__ import annotations

from pathlib import Path

from manifest_platform.fake_vault import FakeVault, Fault
from manifest_platform_tests.sources.veeva.ward.ward import INCR, Ward

SECOND = "2026-01-01T00:30Z"


def test_an_archive_with_a_file_that_its_manifest_does_not_name_is_captured_as_the_message_advises(
    tmp_path: Path, store_url: str, vault: FakeVault
) -> None:
    vault.inject(Fault("extra_file", window=f"incr/{SECOND}"))
    ward = Ward(tmp_path, store_url, vault)
    with ward.open() as pipeline:
        [failed] = ward.captured(pipeline, INCR).failed
    assert "say archive.unnamed: keep in the configuration" in failed.reason

    ward = Ward(tmp_path, store_url, vault, archive={"unnamed": "keep"})
    with ward.open() as pipeline:
        report = ward.captured(pipeline, INCR)
        assert (report.failed, report.captured) == ((), (failed.name,))
        landed = pipeline.manifest.item(pipeline.key(failed.name)).landed
    assert landed is not None
    assert list((tmp_path / "landing").rglob("not_in_the_manifest__c.csv")), "it is kept where the window landed"
