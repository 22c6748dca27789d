"""The contract of a registry: what it is asked for, and the errors of a registry that cannot be used now or at all."""

from __future__ import annotations

from typing import Protocol

from manifest_platform.faults import Misconfigured
from manifest_platform.shred.batch import Unreachable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey


class RegistryRefused(RuntimeError, Misconfigured):
    """A registry refuses access. Permanent until a person fixes the registry or the configuration. No item fails for it."""


class RegistryUnavailable(Unreachable):
    """A registry did not answer, or answered with a server error. Transient: the same lookup may succeed later."""


class Registry(Protocol):
    """A place that may have schemas."""

    def close(self) -> None:
        """Closes open connections."""

    def read(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema; None if the registry lacks it. Raises RegistryUnavailable, RegistryRefused."""

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns the versions of the key's model that the registry has, in any order. Raises as `read`."""

    def keys(self) -> list[SchemaKey] | None:
        """Returns all schemas that the registry has; None if it gives no list. Raises as `read`."""

    def told(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema that an earlier answer brought, once; None if there was none."""
