"""The story of a vault, as `make demo PIPELINE=veeva` tells it."""

import os
import re
import subprocess
import sys
from datetime import date

import duckdb
import pytest

from manifest_platform.demo import stage, vault


@pytest.fixture(autouse=True)
def keep_environment(monkeypatch, tmp_path):
    for name in (stage.HOME_VARIABLE, stage.config.VARIABLE, vault.URL, "VAULT_PASSWORD"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv(stage.HOME_VARIABLE, str(tmp_path / "demo"))
    monkeypatch.delenv(vault.URL)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_story_ends_with_the_vaults_own_tables(tmp_path):
    command = [sys.executable, "-m", "manifest_platform", "demo", "--pipeline", "veeva", "--day", "2026-01-01"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout
    assert re.search(r"^93 captured \(1 empty\), 4 known, 1 awaited, 0 failed", told, re.MULTILINE)
    assert "incr: blocked by incr/stoptime=202601010645: gap: it starts at 2026-01-01T06:30Z" in told
    assert "incr: blocked by incr/stoptime=202601011745: shred failed" in told
    assert re.search(r"19 tables with [\d,]+ rows equal the vault's own history", told)
    assert not re.search("invented-data-only", told + done.stderr), "the password"
    with duckdb.connect(tmp_path / "demo" / "warehouse.duckdb") as connection:
        ledger = connection.execute(
            "SELECT feed, epoch, count(*) FROM manifest_platform.ledger GROUP BY ALL ORDER BY epoch, feed"
        ).fetchall()
        assert ledger == [("full", 2, 1), ("incr", 2, 96), ("log", 2, 1), ("full", 3, 1), ("incr", 3, 48)]
        connection.execute('DELETE FROM vault.product__v WHERE "id" = (SELECT min("id") FROM vault.product__v)')
    stage.home_of(vault.CONFIGURATION, vault.FOLDER, vault.DATASET)
    with pytest.raises(stage.DemoFailed, match="table product__v differs from the vault"):
        vault._compare(vault.Day.of(date(2026, 1, 1)))
