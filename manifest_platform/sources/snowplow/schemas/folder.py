"""A registry in a folder, on a disk or in S3."""

from __future__ import annotations

from dataclasses import dataclass

from manifest_platform import storage
from manifest_platform.sources.snowplow.schemas.contract import RegistryRefused, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key, sibling


@dataclass(frozen=True)
class FolderRegistry:
    """A folder that is, or contains, `schemas/`."""

    uri: str

    def close(self) -> None:
        """Does nothing."""

    def read(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema; None if there is no such file."""
        for root in (f"{self.uri}/schemas", self.uri):
            try:
                return storage.read_bytes(f"{root}/{key.path}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _storage_error(f"{root}/{key.path} cannot be read", error) from error
        return None

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns the versions of the key's model, by listing its folder."""
        from pyarrow.fs import FileSelector

        found = []
        for root in (f"{self.uri}/schemas", self.uri):
            system, path = storage.filesystem(f"{root}/{key.vendor}/{key.name}/{key.format}")
            try:
                entries = system.get_file_info(FileSelector(path, allow_not_found=True))
            except OSError as error:
                raise _storage_error(f"{path} cannot be listed", error) from error
            found += [version for entry in entries if (version := sibling(key, entry.base_name))]
        return found

    def keys(self) -> list[SchemaKey]:
        """Returns all schemas in the folder, by listing everything below it."""
        from pyarrow.fs import FileSelector

        for root in (f"{self.uri}/schemas", self.uri):
            system, path = storage.filesystem(root)
            try:
                entries = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
            except OSError as error:
                raise _storage_error(f"{path} cannot be listed", error) from error
            texts = ("iglu:" + "/".join(entry.path.split("/")[-4:]) for entry in entries if entry.is_file)
            if found := [SchemaKey.parse(text) for text in texts if is_key(text)]:
                return found
        return []

    def told(self, key: SchemaKey) -> bytes | None:
        """Returns None: a folder brings only what it is asked for."""
        return None

    def __str__(self) -> str:
        return self.uri


def _storage_error(what: str, error: OSError) -> RegistryUnavailable | RegistryRefused:
    if storage.is_refusal(error):
        return RegistryRefused(f"{what}: {error}; allow it, or correct the registry in shred.schemas")
    return RegistryUnavailable(f"{what}: {error}; check the registry")
