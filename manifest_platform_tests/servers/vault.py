"""A fake Vault for tests: a real HTTP server in a thread of this process, with little in it, one for each test.

Use the fixture `vault`; where more is wanted of it, `with FakeVault(Simulation(...)) as vault` is as cheap.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from manifest_platform.fake_vault import FakeVault, Simulation, VaultSettings, schema_changes

FIRST_HOURS = timedelta(hours=2)


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    """Two hours after its beginning: a snapshot, a day's logs and seven windows, the archives in parts of 4 KiB.

    Windows 2 to 5 change the schema: a column comes, an object comes, a column goes, an object goes.
    """
    simulation = Simulation(rows=5, changes=(3, 8), script=schema_changes(2, 3, 4, 5))
    with FakeVault(simulation, simulation.begin + FIRST_HOURS, VaultSettings(part_bytes=4096)) as running:
        yield running
