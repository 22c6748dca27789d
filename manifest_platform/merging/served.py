"""What readers of a partition get: its live small objects, or a merged version, and the files of either.

Belongs here: what the manifest notes of it. How a catalog is told is in `catalogs`, how files are read in `readers`.

Which of the two it is, and which objects belong to it, is said by `Served` alone: to tell a catalog twice tells it the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from manifest_platform.merging.state import LIVE, NEW, Partition, ServedFile

if TYPE_CHECKING:
    from manifest_platform.merging.inventory import Inventory


@dataclass(frozen=True, order=True)
class Served:
    """What readers of a partition get, older before newer: `generation` 0 is its live small objects up to the id `newest`.

    A higher generation is a merged version whose largest id is `newest`.
    """

    generation: int
    newest: int

    @property
    def live(self) -> bool:
        """Whether these are small objects that came before the close."""
        return self.generation == 0

    @classmethod
    def recorded(cls, partition: Partition) -> Served:
        """What the manifest says that readers of the partition get now; of a new partition none do."""
        return cls(partition.published if partition.current > LIVE else 0, partition.published_newest)


def live_files(inventory: Inventory, partition: Partition, newest: int) -> tuple[ServedFile, ...]:
    """The small objects of a partition up to the id of one that came before the close: what came after it has a larger one."""
    found = inventory.small_objects(partition.table, partition.date)
    return tuple(ServedFile.of_small(one) for one in found if one.id <= newest)


def served_files(inventory: Inventory, partition: Partition) -> tuple[ServedFile, ...]:
    """The files that readers of a partition see by what the manifest notes; none of a new one."""
    if partition.current == NEW:
        return ()
    if partition.current == LIVE:
        return live_files(inventory, partition, partition.published_newest)
    version = inventory.shown_version(partition)
    return version.files if version else ()
