"""A Vault with invented data: a simulation from a seed, its Direct Data archives, and its API as a real HTTP server.

For tests, the demo, and people without a vault. It shares no code with `sources/veeva`, so that each can be checked against the
other.

    simulation   what the vault holds at any time
    events       the types of the events in its history
    writer       the inventor of these events
    extracts     the tables, their columns, and values that careless readers change
    archives     CSV files, tar.gz and parts of a window
    publication  the archives that can be downloaded at a time
    faults       everything that can go wrong, as data
    server       the API over HTTP
"""

from manifest_platform.fake_vault.archives import Archive, Window, archive_of
from manifest_platform.fake_vault.events import (
    WINDOW,
    AddField,
    AddObject,
    Delete,
    DropField,
    DropObject,
    Put,
    schema_changes,
)
from manifest_platform.fake_vault.extracts import Extract, Field
from manifest_platform.fake_vault.faults import Fault, InvalidFault
from manifest_platform.fake_vault.server import FakeVault, Request, VaultSettings
from manifest_platform.fake_vault.simulation import Simulation

__all__ = [
    "WINDOW",
    "AddField",
    "AddObject",
    "Archive",
    "Delete",
    "DropField",
    "DropObject",
    "Extract",
    "FakeVault",
    "Fault",
    "Field",
    "InvalidFault",
    "Put",
    "Request",
    "Simulation",
    "VaultSettings",
    "Window",
    "archive_of",
    "schema_changes",
]
