"""A toy store, as another package would bring it: rows in memory, for `memory://NAME`, gone with the process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from manifest_platform.manifest.store import (
    ABSENT,
    ConditionFailed,
    Delete,
    Difference,
    Put,
    Row,
    Store,
    StoreRejected,
    Units,
    Write,
    check_writes,
)
from manifest_platform.manifest.stores.driver import Driver, Objects


@dataclass
class Memory:
    """The data shared by all stores of a URL: versions and JSON texts by key, and the writes of each token."""

    rows: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_memories: dict[str, Memory] = {}


class MemoryStore:
    """The store over a memory; whoever holds its lock sees and changes all of it."""

    def __init__(self, memory: Memory):
        self.requests = 0
        self.units: Units | None = None
        self._memory = memory

    def get(self, partition: str, sort: str) -> Row | None:
        """The row of a key."""
        self.requests += 1
        with self._memory.lock:
            return self._row(partition, sort)

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        """The rows of keys, by sort key."""
        wanted = list(sorts)
        self.requests += bool(wanted)
        with self._memory.lock:
            return {sort: row for sort in wanted if (row := self._row(partition, sort))}

    def query(
        self, partition: str, prefix: str, *, after: str | None = None, limit: int | None = None, reverse: bool = False
    ) -> list[Row]:
        """Rows whose sort key starts with `prefix` and lies beyond `after`, in order."""
        self.requests += 1
        with self._memory.lock:
            found = sorted((sort for of, sort in self._memory.rows if of == partition), reverse=reverse)
            wanted = [sort for sort in found if sort.startswith(prefix) and _is_beyond(sort, after, reverse)]
            return [row for sort in wanted[:limit] if (row := self._row(partition, sort))]

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        """All writes or none."""
        check_writes(writes)
        self.requests += 1
        said, rows = repr((partition, list(writes))), self._memory.rows
        with self._memory.lock:
            if token in self._memory.done:
                if self._memory.done[token] != said:
                    raise StoreRejected(f"token {token!r} was used for other writes before")
                return
            versions = {write.sort: rows.get((partition, write.sort), (ABSENT, ""))[0] for write in writes}
            if failed := [write for write in writes if versions[write.sort] != write.expected]:
                raise ConditionFailed(failed)
            for write in writes:
                if isinstance(write, Put):
                    rows[partition, write.sort] = write.expected + 1, json.dumps(write.data)
                elif isinstance(write, Delete):
                    del rows[partition, write.sort]
            self._memory.done[token] = said

    def close(self) -> None:
        """The memory stays for the next who opens it."""

    def _row(self, partition: str, sort: str) -> Row | None:
        found = self._memory.rows.get((partition, sort))
        return Row(partition, sort, found[0], json.loads(found[1])) if found else None


def _is_beyond(sort: str, after: str | None, reverse: bool) -> bool:
    return after is None or (sort < after if reverse else sort > after)


class MemoryDriver(Driver):
    """`memory://NAME`: whoever opens the same name in the same process opens the same store."""

    example = "memory://NAME"

    def checked(self, url: str, local_path: Callable[[str], str]) -> str:
        """The URL as it is."""
        if url == "memory://":
            raise ValueError(f"allowed: {self.example}")
        return url

    def open(self, url: str, overflow: Objects | None) -> Store:
        """The store, made if there is none."""
        return MemoryStore(_memories.setdefault(url, Memory()))

    def create(self, url: str) -> bool:
        """Makes the memory."""
        made = url not in _memories
        _memories.setdefault(url, Memory())
        return made

    def check(self, url: str) -> tuple[str, list[Difference]]:
        """Returns the URL, and a difference if no store was made for it."""
        there = url in _memories
        return url, [] if there else [Difference("memory", "there", "missing", "it is made when it is opened")]
