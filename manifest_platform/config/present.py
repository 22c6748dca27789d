"""Checks that the files and folders of a configuration exist on this machine's disks, or can be created.

Inputs must exist: a landing root, folders of schemas, Spark's properties. The platform creates its outputs, with their parent
folders: files of shredding and merging, a store, a warehouse. For these, the check is only that they can be created.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from manifest_platform import storage
from manifest_platform.config.config import Config
from manifest_platform.manifest.stores import local_file
from manifest_platform.sources.settings import DatasetSettings


def problems(config: Config, dataset: str | None = None, landing: bool = True) -> list[str]:
    """Returns a sentence for each unusable place: its key, what is wrong, and what to do.

    `dataset`: checks the places of this dataset only; None for all datasets. `landing`: also checks landing roots. The check
    creates nothing, and does not access the network.
    """
    names = [dataset] if dataset else list(config.datasets)
    return [*_of_all(config), *(problem for name in names for problem in _of_dataset(config, name, landing))]


def _of_all(config: Config) -> Iterator[str]:
    yield from _file("spark.conf", config.spark.conf, "one for each place to run is in spark_conf/; correct the path")
    if wrong := config.spark.problem():
        yield wrong
    for number, folder in enumerate(config.manifest.schemas):
        yield from _folder(f"manifest.schemas.{number}", folder)
    yield from _made("manifest.store", local_file(config.manifest.store), is_file=True)
    yield from _made("warehouse.path", config.warehouse.file, is_file=True)
    yield from _made("manifest.overflow", config.manifest.overflow)
    yield from _made("manifest.archive", config.manifest.archive)


def _of_dataset(config: Config, name: str, landing: bool) -> Iterator[str]:
    settings, at = config.datasets[name], f"datasets.{name}"
    if not isinstance(settings, DatasetSettings):
        return  # it has no landing root
    if landing:
        yield from _folder(f"{at}.landing.root", settings.landing.root)
    for number, folder in enumerate(getattr(settings.shred, "schemas", ())):
        if "://" not in folder or folder.startswith("file://"):
            yield from _folder(f"{at}.shred.schemas.{number}", folder)
    yield from _made(f"{at}.shred.output", settings.shred.output)
    if settings.merge:
        yield from _made(f"{at}.merge.output", settings.merge.output)


def _local(location: str | None) -> Path | None:
    """Returns the path of a place on this machine's disks; None for any other place."""
    if location is None:
        return None
    uri = storage.as_uri(location)
    return storage.local_path(uri) if storage.is_local(uri) else None


def _file(key: str, location: str, advice: str) -> Iterator[str]:
    path = _local(location)
    if path is None:
        return
    if not path.exists():
        yield f"{key}: {location}: there is no such file; {advice}"
    elif not path.is_file():
        yield f"{key}: {location}: it is not a file; {advice}"
    elif not os.access(path, os.R_OK):
        yield f"{key}: {location}: this user may not read it; grant the permission"


def _folder(key: str, location: str) -> Iterator[str]:
    path = _local(location)
    if path is None:
        return
    if not path.exists():
        yield f"{key}: {location}: there is no such folder; create it, mount its disk, or correct the path"
    elif not path.is_dir():
        yield f"{key}: {location}: it is not a folder; correct the path"
    elif not os.access(path, os.R_OK | os.X_OK):
        yield f"{key}: {location}: this user may not list it; grant the permission"


def _made(key: str, location: str | None, is_file: bool = False) -> Iterator[str]:
    """Yields the problems of a place that the platform writes to: wrong kind, no permission, or not creatable."""
    path = _local(location)
    if path is None:
        return
    if path.exists():
        if path.is_dir() == is_file:
            kind = "a folder, not a file" if is_file else "a file, not a folder"
            yield f"{key}: {location}: it is {kind}; correct the path"
        elif not os.access(path, os.W_OK if is_file else os.W_OK | os.X_OK):
            yield f"{key}: {location}: this user may not write to it; grant the permission, or correct the path"
        return
    above = next(one for one in path.parents if os.path.lexists(one))
    if not above.is_dir():
        yield f"{key}: {location}: {above} is not a folder, so nothing can be created in it; correct the path"
    elif not os.access(above, os.W_OK | os.X_OK):
        yield f"{key}: {location}: this user may not create files in {above}; grant the permission, or correct the path"
