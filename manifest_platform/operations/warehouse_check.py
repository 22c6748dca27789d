"""The check of a target's warehouse, and the privileges that its role needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from manifest_platform import storage
from manifest_platform.config import Config
from manifest_platform.warehouse.probes import Probed, Probes


def check(config: Config, dataset: str, target: str) -> Iterator[Probed]:
    """Tries everything that loads of a dataset need of a target, and yields each probe. The manifest is not opened.

    A small object is written beside the shredded output, and removed.
    """
    folder = f"{storage.as_uri(config.datasets[dataset].shred.output)}/{dataset}"
    yield from Probes(config.engine_of(dataset, target), folder, (dataset, *_others(config, dataset, target))).run()


def grants(config: Config, dataset: str, target: str, role: str) -> list[str]:
    """Returns the statements that give a role what loading needs, for all datasets of the target. Empty without roles."""
    with closing(config.engine_of(dataset, target).open()) as engine:
        datasets = [dataset, *_others(config, dataset, target)]
        return engine.grants(datasets, role, [storage.as_uri(config.datasets[name].shred.output) for name in datasets])


def _others(config: Config, dataset: str, target: str) -> list[str]:
    return [name for name in config.datasets if name != dataset and target in config.targets_of(name)]
