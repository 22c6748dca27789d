"""The files that readers of a partition get: its live small objects or a merged version.

Belongs here: what the manifest records about it. `catalogs` announce it to readers, and `readers` read the files.

`Served` alone identifies the set of files, so that announcing the same value to a catalog again has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from manifest_platform.merging.state import LIVE, NEW, Partition, ServedFile

if TYPE_CHECKING:
    from manifest_platform.merging.inventory import Inventory


@dataclass(frozen=True, order=True)
class Served:
    """The state of a partition that readers get; older states sort before newer states.

    `generation` 0: the live small objects up to the id `newest`. Above 0: the merged version whose largest id is `newest`.
    """

    generation: int
    newest: int

    @property
    def live(self) -> bool:
        """True if readers get live small objects."""
        return self.generation == 0

    @classmethod
    def recorded(cls, partition: Partition) -> Served:
        """The state that the manifest records for a partition. Nobody reads a new partition."""
        return cls(partition.published if partition.current > LIVE else 0, partition.published_newest)


def live_files(inventory: Inventory, partition: Partition, newest: int) -> tuple[ServedFile, ...]:
    """The live small objects of a partition up to an id. Delayed objects have larger ids."""
    found = inventory.small_objects(partition.table, partition.date)
    return tuple(ServedFile.of_small(one) for one in found if one.id <= newest)


def served_files(inventory: Inventory, partition: Partition) -> tuple[ServedFile, ...]:
    """The files that readers see according to the manifest; none for a new partition."""
    if partition.current == NEW:
        return ()
    if partition.current == LIVE:
        return live_files(inventory, partition, partition.published_newest)
    version = inventory.shown_version(partition)
    return version.files if version else ()
