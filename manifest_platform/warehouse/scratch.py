"""Files that a load makes of shredded output for its own use, and removes when it ends.

They lie in a folder beside the attempt's, named after it. No record names this folder, so if the process is killed, the doctor
finds it as it finds the output of attempts that died.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from manifest_platform import storage
from manifest_platform.listing import Listing

log = logging.getLogger(__name__)

_OF_LOADS = "-load-"
"""The part that the names of these folders have, so that a role may write and delete in them alone (deploy/aws/roles.yaml)."""


@dataclass
class Scratch:
    """The folder of a load. `uri` names a file in it by the file of the listing that it is made of."""

    listing: Listing
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _made: set[str] = field(default_factory=set)

    def folder(self, of: str) -> str:
        """Returns the URI of the folder for what is made of a file of the listing."""
        head, is_below, _ = of.rpartition(f"/{self.listing.attempt}/")
        folder = (f"{head}/{self.listing.attempt}" if self.listing.attempt and is_below else of) + f"{_OF_LOADS}{self._mark}"
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
        """Removes the folder. What the storage refuses is told, and stays for the doctor."""
        for folder in self._made:
            try:
                storage.delete_folder(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("%s is not removed now: %s. `doctor --clean` removes it", folder, error)


@contextmanager
def scratch(listing: Listing) -> Generator[Scratch]:
    """Yields the folder of a load, and removes it at the end."""
    made = Scratch(listing)
    try:
        yield made
    finally:
        made.remove()
