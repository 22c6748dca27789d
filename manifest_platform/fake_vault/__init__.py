"""A Vault for people without one: its data by seed, its Direct Data archives, and its API as a real HTTP server."""

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
