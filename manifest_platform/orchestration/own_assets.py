"""A user's own assets: the order that their metadata declare, and the check that their outputs are current.

This module covers the definitions. The IO manager reads and commits their data at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, Self, cast

import dagster as dg
from dagster._core.definitions.utils import DEFAULT_IO_MANAGER_KEY

from manifest_platform.config import ConfigError
from manifest_platform.manifest import Application, ItemKey, Refused, StepState
from manifest_platform.manifest.outputs import NotCurrent
from manifest_platform.orchestration.events import check_result
from manifest_platform.orchestration.feed_checks import Evaluation, evaluation
from manifest_platform.orchestration.keys import FeedAsset
from manifest_platform.orchestration.translator import IO_MANAGER
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.settings import DatasetSettings

ORDER = "order"
"""The metadata key of an asset for the order in which its partitions are committed."""
CURRENT = "outputs_current"
NEWEST = 1000
"""The number of newest items that the check looks at."""

Order = Literal["any", "strict"]
_ORDERS: tuple[Order, ...] = ("any", "strict")


@dataclass(frozen=True)
class OwnAsset:
    """A user's own asset on the partitions of a feed, and the order that its metadata declares."""

    key: dg.AssetKey
    place: FeedAsset
    order: Order | None

    @classmethod
    def of(cls, key: dg.AssetKey, place: FeedAsset, metadata: Mapping[str, Any] | None) -> Self:
        """Returns the asset with a key and metadata. Raises Refused for an unknown order."""
        order = (metadata or {}).get(ORDER)
        order = order.value if isinstance(order, dg.MetadataValue) else order
        if order is not None and order not in _ORDERS:
            raise Refused(
                f"asset {key.to_user_string()}: metadata {ORDER} is {order!r}; allowed: {', '.join(map(repr, _ORDERS))}"
            )
        return cls(key, place, cast("Order | None", order))

    def check_declared(self, settings: DatasetSettings) -> None:
        """Raises Refused if the dataset's configuration lacks the declared order. The message says what to configure."""
        name, declared = self.place.name, {step.name: step.order for step in settings.steps}
        if self.order is None or self.order == declared.get(name, "any"):
            return
        if "/" in name:
            raise Refused(
                f"asset {self.key.to_user_string()} declares {ORDER}: {self.order}, but {name!r} cannot be a step. Give it"
                " a key with one part after dataset and feed"
            )
        several = f", feed: {self.place.feed}" if len(settings.feeds) > 1 else ""
        found = f"step {name!r} has order: {declared[name]}" if name in declared else f"there is no step {name!r}"
        raise Refused(
            f"asset {self.key.to_user_string()} declares {ORDER}: {self.order}, but in the configuration {found}. Write"
            f" `{{name: {name}, upstream: [shred]{several}, order: {self.order}}}` under datasets.{self.place.dataset}.steps,"
            " with load as upstream if it reads the warehouse"
        )


def own_assets(wirings: Mapping[str, Wiring], assets: Iterable[dg.AssetsDefinition]) -> list[OwnAsset]:
    """Returns the user's own assets whose outputs the manifest keeps. Raises ConfigError that lists every faulty asset."""
    found: list[OwnAsset] = []
    wrong: list[str] = []
    for definition in assets:
        for spec in definition.specs:
            place = next((place for one in wirings.values() if (place := one.names.place(spec.key))), None)
            if place is None or not _on_a_feed(wirings[place.dataset], spec):
                continue
            try:
                _require_io_manager(definition, spec.key)
                own = OwnAsset.of(spec.key, place, spec.metadata)
                own.check_declared(wirings[place.dataset].source.settings)
                found.append(own)
            except Refused as refused:
                wrong.append(str(refused))
    if wrong:
        raise ConfigError("\n".join(wrong))
    return found


def _on_a_feed(wiring: Wiring, spec: dg.AssetSpec) -> bool:
    return any(spec.partitions_def == wiring.names.partitions(feed) for feed in wiring.names.feeds)


def _require_io_manager(definition: dg.AssetsDefinition, key: dg.AssetKey) -> None:
    """Raises Refused if an asset has an output but names no IO manager, and so gets Dagster's default one."""
    output = definition.get_output_name_for_asset_key(key)
    found = definition.op.output_dict[output]
    if found.dagster_type.is_nothing or found.io_manager_key != DEFAULT_IO_MANAGER_KEY:
        return
    raise Refused(
        f"asset {key.to_user_string()} names no IO manager. For the manifest to keep its outputs, write"
        f' `io_manager_key="{IO_MANAGER}"`. To use another IO manager, leave the asset out of `build_defs(assets=…)`'
    )


def build_own_checks(wirings: Mapping[str, Wiring], assets: Iterable[OwnAsset]) -> list[dg.AssetChecksDefinition]:
    """Returns the checks that the newest outputs of the assets are current."""
    return [_check(wirings[asset.place.dataset], asset) for asset in assets]


def _check(wiring: Wiring, asset: OwnAsset) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=asset.key, name=CURRENT, description="The newest outputs are made from current records; none is superseded."
    )
    def outputs_current() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return _current(pipeline, asset.place)

    return outputs_current


def _current(pipeline: Pipeline, place: FeedAsset) -> dg.AssetCheckResult:
    """Evaluates the check: warns of superseded outputs among the newest, with the reason.

    Items that the snapshot of a full load contains cannot be made again. They count until an output exists after the snapshot.
    """
    application, outputs = Application(place.name), pipeline.manifest.outputs()
    boundary = pipeline.manifest.state(pipeline.load).feed(place.feed).boundary
    superseded: dict[ItemKey, str] = {}
    current: list[ItemKey] = []
    for item in islice(pipeline.manifest.items(place.feed, reverse=True), NEWEST):
        if item.processed_by(application) is None:
            continue
        outputs.keep(item)
        try:
            outputs.current(item.key, application)
            current.append(item.key)
        except NotCurrent as error:
            superseded[item.key] = str(error)
    contained = [key for key in superseded if key.position <= boundary]
    if any(key.position > boundary for key in current):
        superseded = {key: why for key, why in superseded.items() if key not in contained}
    made = len(current) + len(superseded.keys() | contained)
    why = next(iter(superseded.values()), "")
    return check_result(
        passed=not superseded,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(superseded):,} of the newest {made:,} outputs are superseded. {why}".strip(),
        metadata={
            "outputs": made,
            "superseded": len(superseded),
            "contained": len(contained),
            "partitions": ", ".join(sorted(key.name for key in superseded)),
        },
    )


def own_evaluations(pipeline: Pipeline, assets: Iterable[OwnAsset], loads: StepState) -> Iterator[Evaluation]:
    """Yields the checks of a dataset's assets; their text changes with a full load. `loads`: the state of loading."""
    for asset in assets:
        if asset.place.dataset == pipeline.name:
            epoch = f"epoch {loads.feed(asset.place.feed).serving_epoch}"
            yield f"{asset.key.to_user_string()} {CURRENT}", epoch, partial(_evaluation, pipeline, asset)


def _evaluation(pipeline: Pipeline, asset: OwnAsset) -> dg.AssetCheckEvaluation:
    """Returns the check of an asset as an event."""
    return evaluation(asset.key, CURRENT, _current(pipeline, asset.place))
