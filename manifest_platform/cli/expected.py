"""The errors whose message is enough: they say what is wrong, where, and what to do, so no traceback is printed.

Imported only after a command has failed, because these errors come from every part of the platform.
"""

from __future__ import annotations

from manifest_platform import spark
from manifest_platform.config import ConfigError
from manifest_platform.manifest import Refused, StoreError
from manifest_platform.manifest.payloads import InvalidPayload, InvalidSchema
from manifest_platform.manifest.records import InvalidRecord
from manifest_platform.masking import UnusableSecret
from manifest_platform.merging.catalogs.catalog import CatalogError
from manifest_platform.merging.errors import MergeError
from manifest_platform.releases import NewerRelease
from manifest_platform.sources.errors import LandingError
from manifest_platform.warehouse.errors import WarehouseError

__all__ = ["EXPECTED", "ConfigError"]


EXPECTED = (
    Refused,
    InvalidPayload,
    InvalidRecord,
    InvalidSchema,
    LandingError,
    CatalogError,
    MergeError,
    NewerRelease,
    StoreError,
    UnusableSecret,
    WarehouseError,
    spark.SparkUnavailable,
)
"""The errors that end a command with exit code 1. A ConfigError ends it with exit code 2."""
