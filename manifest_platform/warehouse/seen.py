"""A memory of the identities that were loaded into a target, in a store of its own beside the manifest.

A load first claims the identities of its item, many with a request, and only then begins its transaction. A claim names its
item, and counts only if the warehouse has applied that item. So a claim of a load that crashed before COMMIT, of an item that
was skipped, or of a warehouse that was set back, hides no row: the same item claims again, and another item takes over.

A claim expires, and is removed some time after that: by the store itself if it can, else each load looks at about twice as many
claims as it made itself, from a random place on.
"""

from __future__ import annotations

import functools
import secrets
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, ConditionFailed, Delete, Put, Row, Store, StoreError
from manifest_platform.manifest.stores.driver import RemovesExpired
from manifest_platform.warehouse.errors import Unavailable
from manifest_platform.warehouse.repeats import Applied, Rule
from manifest_platform.warehouse.scratch import Scratch

_ROWS = 16_384
"""Rows of an item that are claimed at a time."""
_TRIES = 5
_LOOKED_AT = 500
_COPIES = pa.schema({"id": pa.string(), "content": pa.string()})


class Seen:
    """The memory of one target of a dataset. `place`: their names. `opened`: opens the store, at first use.

    The store has a row for each identity, in 16 partitions, so that no partition of a large store gets all writes.
    """

    def __init__(
        self,
        place: str,
        rule: Rule,
        opened: Callable[[], Store],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._place, self._rule, self._clock = place, rule, clock
        self._opened = opened

    @functools.cached_property
    def _store(self) -> Store:
        return self._opened()

    def copies(self, item: str, listing: Listing, applied: Applied, place: Scratch) -> list[str]:
        """Claims the identities of an item, and returns the URI of the file of those that other items have; empty without any.

        `place`: takes the file. Raises Unavailable if the store cannot be used.
        """
        uris = listing.uris(self._rule.identity.table)
        known = functools.lru_cache(maxsize=None)(applied)
        try:
            return self._written(self._found(item, uris, known), uris, place)
        except StoreError as error:
            raise Unavailable(f"the store of what was loaded cannot be used: {error}") from error

    def _found(self, item: str, uris: Sequence[str], applied: Applied) -> Iterator[pa.RecordBatch]:
        for rows in self._identities(uris):
            by_partition: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
            for pair in rows:
                key = _key(*pair)
                by_partition[key[0]][key] = pair
            copies: list[tuple[str, str]] = []
            made = 0
            for partition, pairs in by_partition.items():
                taken, claimed = self._claimed(item, partition, pairs, applied)
                copies += taken
                made += claimed
            if not isinstance(self._store, RemovesExpired):
                self._forget(made)
            if copies:
                yield pa.RecordBatch.from_pylist([{"id": id_, "content": content} for id_, content in copies], _COPIES)

    def _identities(self, uris: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
        """Yields the ids and contents of the main table's rows that have both."""
        columns = [self._rule.identity.id, self._rule.identity.content]
        for uri in uris:
            system, path = storage.filesystem(uri)
            with system.open_input_file(path) as source, pyarrow.parquet.ParquetFile(source) as file:
                if not set(columns) <= set(file.schema_arrow.names):
                    continue
                for batch in file.iter_batches(_ROWS, columns=columns):
                    ids, contents = (batch.column(name).to_pylist() for name in columns)
                    yield [(id_, content) for id_, content in zip(ids, contents, strict=True) if id_ and content]

    def _written(self, found: Iterator[pa.RecordBatch], uris: Sequence[str], place: Scratch) -> list[str]:
        """Writes the copies to a file of the load."""
        first = next(found, None)
        if first is None:
            return []
        uri = place.uri(uris[0], ".repeated.parquet")
        with storage.open_output(uri) as sink, pyarrow.parquet.ParquetWriter(sink, _COPIES) as writer:
            writer.write_batch(first)
            for batch in found:
                writer.write_batch(batch)
        return [uri]

    # Claims

    def _claimed(
        self, item: str, partition: str, pairs: Mapping[str, tuple[str, str]], applied: Applied
    ) -> tuple[list[tuple[str, str]], int]:
        """Claims identities of one partition. Returns those that others have, and the number of new claims."""
        copies, made, left = [], 0, list(pairs)
        for _ in range(_TRIES):
            rows = self._store.get_many(self._partition(partition), left)
            taken = [key for key in left if key in rows and self._is_taken(rows[key], item, applied)]
            copies += [pairs[key] for key in taken]
            own = {key for key in left if key in rows and rows[key].data["item"] == item and not self._is_over(rows[key])}
            puts = [self._put(key, pairs[key][0], item, rows.get(key)) for key in left if key not in own and key not in taken]
            left = []
            for start in range(0, len(puts), MAX_WRITES):
                some = puts[start : start + MAX_WRITES]
                try:
                    self._store.transact(self._partition(partition), some, uuid.uuid4().hex)
                    made += len(some)
                except ConditionFailed:  # another worker claimed some of them at the same time
                    left += [put.sort for put in some]
            if not left:
                return copies, made
        raise Unavailable("another worker claims the same rows at the same time", soon=True)

    def _is_taken(self, row: Row, item: str, applied: Applied) -> bool:
        return row.data["item"] != item and not self._is_over(row) and applied(row.data["item"])

    def _is_over(self, row: Row) -> bool:
        return row.data["until"] <= self._clock().timestamp()

    def _put(self, key: str, id_: str, item: str, row: Row | None) -> Put:
        until = int((self._clock() + timedelta(days=self._rule.days)).timestamp())
        return Put(key, {"id": id_, "item": item, "until": until}, row.version if row else ABSENT, expires=until)

    def _forget(self, made: int) -> None:
        """Removes expired claims among about twice as many as were made, so that they do not become more and more."""
        for _ in range(-(-2 * made // _LOOKED_AT)):
            start = secrets.token_hex(16)
            partition, first_digit = self._partition(start[0]), start[0]
            rows = self._store.query(partition, first_digit, after=start, limit=_LOOKED_AT)
            if len(rows) < _LOOKED_AT:  # on from the beginning, so that each claim is looked at equally often
                rows += self._store.query(partition, first_digit, limit=_LOOKED_AT - len(rows))
            over = [Delete(row.sort, row.version) for row in {row.sort: row for row in rows}.values() if self._is_over(row)]
            for first in range(0, len(over), MAX_WRITES):
                try:
                    self._store.transact(partition, over[first : first + MAX_WRITES], uuid.uuid4().hex)
                except ConditionFailed:
                    continue  # some were claimed again; a later load removes the others

    def _partition(self, first: str) -> str:
        return f"{self._place}~{first}"


def _key(id_: str, content: str) -> str:
    return blake2b(f"{id_}\n{content}".encode(), digest_size=16).hexdigest()
