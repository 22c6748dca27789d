"""The cost of items in requests to the manifest's store."""

from __future__ import annotations

from collections.abc import Sequence

from manifest_platform.manifest import Item, Manifest
from manifest_platform.manifest.cost import Cost, cost_of
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.keys import record_key


def costs_of(manifest: Manifest, feed: str, items: Sequence[Item]) -> list[tuple[Item, Cost]]:
    """Returns the cost of each item, as if it had been worked on alone. Raises Refused if there is no such feed."""
    steps = manifest.steps(feed)
    states = {step.application.key: manifest.state(step.application) for step in steps}
    leases = {step.application.key: manifest.lease(step.application, feed) for step in steps}
    held = {name: lease for name, lease in leases.items() if lease}
    return [(item, cost_of(item, manifest.dataset, steps, states, held, _place(manifest, item))) for item in items]


def _place(manifest: Manifest, item: Item) -> ArchivedRecords | None:
    row = manifest.store.get(manifest.dataset, record_key(item.key, item.records[0].sequence))
    return ArchivedRecords.of(row) if row else None
