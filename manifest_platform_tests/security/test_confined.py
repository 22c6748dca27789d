"""The confinement itself: it notices what it is there to notice."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from manifest_platform_tests.security.confined import CANARY, MIB, SECRETS, confined


def test_what_is_modest_passes_and_comes_back(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.write_text("text")

    ended = confined(lambda: inside.read_text())

    assert (ended.value, ended.error, ended.died, ended.output) == ("text", "", "", "")
    assert ended.is_bounded and not ended.says() and not ended.opened_outside(tmp_path)
    assert str(inside) in ended.opened


def test_memory_is_limited() -> None:
    ended = confined(lambda: len(bytes(600 * MIB)), memory=256 * MIB)

    assert not ended.is_bounded and "MemoryError" in ended.kinds


def test_what_it_took_is_measured() -> None:
    ended = confined(lambda: len(b"x" * (100 * MIB)))

    assert 95 * MIB < ended.bytes < 150 * MIB


def test_the_deadline_ends_it() -> None:
    ended = confined(time.sleep, 60, seconds=0.3)

    assert "deadline" in ended.died and not ended.is_bounded


def test_a_death_is_told() -> None:
    assert confined(os.abort).died == "signal 6"


def test_a_secret_is_seen_in_all_that_comes_back() -> None:
    def raise_it() -> None:
        raise ValueError(os.environ["VAULT_PASSWORD"])

    assert confined(lambda: {"text": os.environ["PGPASSWORD"]}).says()
    assert confined(raise_it).says()
    assert confined(lambda: sys.stderr.write(os.environ["VAULT_TOKEN"])).says()
    assert confined(lambda: "password=canary~7f3c%2F%C3%A4+b%2Be1").says()
    assert set(SECRETS.values()) == {CANARY}


def test_what_is_opened_elsewhere_is_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("text")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)

    assert confined((inside / "link").read_text).opened_outside(inside) == [str(inside / "link")]
    assert confined(os.listdir, str(tmp_path)).opened_outside(inside) == [str(tmp_path)]
