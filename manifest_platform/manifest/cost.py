"""The cost of an item in a manifest: the rows and bytes that it occupies, and the units that its writes and reads took.

Belongs here: estimates from the log alone, as pure functions, in DynamoDB's units. A row that is written or checked in a
transaction costs two write units for each started KB; a strongly consistent read costs one read unit for each started 4 KB. The
estimate treats each item as if it had been worked on alone, so batches cost less. Taking leases and heartbeats are not charged
to items. The units that a store really charged are in its `units`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from manifest_platform.manifest.beside import changes, rows_of
from manifest_platform.manifest.dataset import LeaseState, Step, StepState
from manifest_platform.manifest.item import ArchivedRecords, Item
from manifest_platform.manifest.keys import SKIP_RULES, lease_key, record_key, state_key
from manifest_platform.manifest.records import SKIPPED_BY_RULE, Record, State
from manifest_platform.manifest.store import Units
from manifest_platform.manifest.transitions import counted_as

WRITE_UNIT, READ_UNIT = 1024, 4096
"""Bytes."""
_PER_TRANSACTED = 2
_NAMES = len("partitionsortversiondata") + len("1")
"""The bytes of a row's attribute names and version."""


@dataclass(frozen=True)
class Cost:
    """The cost of one item: its records, its rows with their bytes, the transactions that wrote it, and units (estimated)."""

    records: int
    rows: int
    bytes: int
    transactions: int
    units: Units


def cost_of(
    item: Item,
    dataset: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    leases: Mapping[str, LeaseState],
    place: ArchivedRecords | None = None,
) -> Cost:
    """The cost of an item. `states` and `leases`: the current states and leases of the feed's steps, by application key.

    `place`: the location of its archived records, if any; rows and bytes are then those that remain in the store.
    """
    sizes = [_size(dataset, record_key(item.key, record.sequence), record.to_dict()) for record in item.records]
    kept = [_size(dataset, row, {}) for step in steps for row in rows_of(item, step)]
    units, transactions, written = Units(), 0, 0
    for count, record in enumerate(item.records, start=1):
        before, after = Item(item.key, item.records[: count - 1]), Item(item.key, item.records[:count])
        units += Units(0, _write_units(sizes[count - 1]))
        units += Units(0, sum(map(_write_units, _beside(dataset, before, after, record, steps, states, leases))))
        if record.state is State.PROCESSING:  # choosing it took a reading of its records and of the step's state
            units += Units(_read_units(sum(sizes[: count - 1])) + 1, 0)
        if not _continues(item, count):
            transactions += 1
            followed = changes(Item(item.key, item.records[:written]), after, steps)
            units += Units(0, sum(_write_units(_size(dataset, write.sort, {})) for write in followed))
            written = count
    rows = [*(_left(item, dataset, place) if place else sizes), *kept]
    return Cost(len(item.records), len(rows), sum(rows), transactions, units)


def _continues(item: Item, count: int) -> bool:
    """True if the transaction that wrote an item's record also wrote the next record.

    That is so for a failure that is retried, a claim that is freed because its item is late, and an item that a skip rule skips
    when it is registered.
    """
    record, *others = item.records[count - 1 : count + 1]
    following = others[0] if others else None
    if following is None:
        return False
    resolved = following.data.get("automatic") and following.previous == record.record_id and record.state is State.FAILED
    by_rule = following.payload is not None and following.payload.schema == SKIPPED_BY_RULE
    return bool(resolved or by_rule or (record.data.get("automatic") and following.data.get("late")))


def _left(item: Item, dataset: str, place: ArchivedRecords) -> list[int]:
    """The sizes of the rows after archiving: the first record's row, with the location, and the rows of later records."""
    first, *others = item.records
    rows = [(first, {**first.to_dict(), "archived": asdict(place)})]
    rows += [(record, record.to_dict()) for record in others if record.sequence > place.upto]
    return [_size(dataset, record_key(item.key, record.sequence), data) for record, data in rows]


def _beside(
    dataset: str,
    before: Item,
    after: Item,
    record: Record,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    leases: Mapping[str, LeaseState],
) -> list[int]:
    """The sizes of the states and leases that are put or checked together with a record. Skip rules are counted as empty."""
    sizes: list[int] = []
    for step in steps:
        name = step.application.key
        state, lease = states.get(name, StepState()), leases.get(name)
        own = record.application.key == name
        if own and record.state is State.PROCESSING and lease:
            sizes.append(_size(dataset, lease_key(step.application, after.key.feed), lease.to_dict()))
        claims_or_ends = own and record.state in (State.PROCESSING, State.PROCESSED)
        counts = counted_as(before, step, state) != counted_as(after, step, state)
        registers = step.order == "strict" and not before.records
        if step.ordered and (claims_or_ends or counts or registers):
            sizes.append(_size(dataset, state_key(step.application), state.to_dict()))
    if not before.records:
        sizes.append(_size(dataset, SKIP_RULES, {}))
    return sizes


def _size(dataset: str, sort: str, data: Mapping[str, object]) -> int:
    return len(dataset) + len(sort) + _NAMES + len(json.dumps(data, separators=(",", ":")).encode())


def _write_units(size: int) -> int:
    return _PER_TRANSACTED * -(-size // WRITE_UNIT)


def _read_units(size: int) -> int:
    return max(1, -(-size // READ_UNIT))
