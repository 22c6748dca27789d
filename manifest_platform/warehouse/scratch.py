"""Files that a load makes of shredded output for its own use, and removes when it ends.

They lie in a folder beside the attempt's, named after it. No record names this folder, so if the process is killed, the doctor
finds it as it finds the output of attempts that died.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from manifest_platform import storage
from manifest_platform.listing import Listing


@dataclass
class Scratch:
    """The folder of a load. `uri` names a file in it by the file of the listing that it is made of."""

    listing: Listing
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _made: set[str] = field(default_factory=set)

    def folder(self, of: str) -> str:
        """Returns the URI of the folder for what is made of a file of the listing."""
        head, is_below, _ = of.rpartition(f"/{self.listing.attempt}/")
        folder = f"{head}/{self.listing.attempt}-{self._mark}" if self.listing.attempt and is_below else f"{of}-{self._mark}"
        self._made.add(folder)
        return folder

    def uri(self, of: str, suffix: str) -> str:
        """Returns the URI of a file that is made of a file of the listing."""
        _, is_below, tail = of.rpartition(f"/{self.listing.attempt}/")
        uri = f"{self.folder(of)}/{tail if is_below else 'file'}{suffix}"
        if storage.is_local(uri):
            storage.local_path(uri).parent.mkdir(parents=True, exist_ok=True)
        return uri

    def remove(self) -> None:
        """Removes the folder, as far as the storage allows it now."""
        for folder in self._made:
            with suppress(OSError):
                system, path = storage.filesystem(folder)
                system.delete_dir(path)


@contextmanager
def scratch(listing: Listing) -> Generator[Scratch]:
    """Yields the folder of a load, and removes it at the end."""
    made = Scratch(listing)
    try:
        yield made
    finally:
        made.remove()
