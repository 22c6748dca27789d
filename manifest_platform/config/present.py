"""What a configuration names on this machine's disks, and is not there, or is not what it must be.

What others give must be there: a landing root, folders of schemas, Spark's properties. What the platform makes, it makes with
the folders above: outputs, the file of a store, that of a warehouse. So of these it is asked only whether they can be made.
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
    """A sentence for each place that is not as it must be: its key, what it is, and what to do. Of one dataset, or of all.

    `landing`: whether landing roots are asked for too. Nothing is made, and nothing outside of this machine is asked.
    """
    names = [dataset] if dataset else list(config.datasets)
    return [*_of_all(config), *(problem for name in names for problem in _of_dataset(config, name, landing))]


def _of_all(config: Config) -> Iterator[str]:
    yield from _file("spark.conf", config.spark.conf, "one for each place to run is in spark_conf/; correct the path")
    for number, folder in enumerate(config.manifest.schemas):
        yield from _folder(f"manifest.schemas.{number}", folder)
    yield from _made("manifest.store", local_file(config.manifest.store), is_file=True)
    yield from _made("warehouse.path", config.warehouse.file, is_file=True)
    yield from _made("manifest.overflow", config.manifest.overflow)
    yield from _made("manifest.archive", config.manifest.archive)


def _of_dataset(config: Config, name: str, landing: bool) -> Iterator[str]:
    settings, at = config.datasets[name], f"datasets.{name}"
    if not isinstance(settings, DatasetSettings):
        return  # nothing of it lands
    if landing:
        yield from _folder(f"{at}.landing.root", settings.landing.root)
    for number, folder in enumerate(getattr(settings.shred, "schemas", ())):
        if "://" not in folder or folder.startswith("file://"):
            yield from _folder(f"{at}.shred.schemas.{number}", folder)
    yield from _made(f"{at}.shred.output", settings.shred.output)
    if settings.merge:
        yield from _made(f"{at}.merge.output", settings.merge.output)


def _local(location: str | None) -> Path | None:
    """The path of a place on this machine's disks; None for any other."""
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
        yield f"{key}: {location}: it is no file; {advice}"
    elif not os.access(path, os.R_OK):
        yield f"{key}: {location}: this user may not read it; give it the right"


def _folder(key: str, location: str) -> Iterator[str]:
    path = _local(location)
    if path is None:
        return
    if not path.exists():
        yield f"{key}: {location}: there is no such folder; create it, mount its disk, or correct the path"
    elif not path.is_dir():
        yield f"{key}: {location}: it is no folder; correct the path"
    elif not os.access(path, os.R_OK | os.X_OK):
        yield f"{key}: {location}: this user may not list it; give it the right"


def _made(key: str, location: str | None, is_file: bool = False) -> Iterator[str]:
    """Of what the platform makes: whether it is of the right kind, or can be made where it is not there."""
    path = _local(location)
    if path is None:
        return
    if path.exists():
        if path.is_dir() == is_file:
            kind = "a folder, and no file" if is_file else "a file, and no folder"
            yield f"{key}: {location}: it is {kind}; correct the path"
        elif not os.access(path, os.W_OK if is_file else os.W_OK | os.X_OK):
            yield f"{key}: {location}: this user may not write to it; give it the right, or correct the path"
        return
    above = next(one for one in path.parents if os.path.lexists(one))
    if not above.is_dir():
        yield f"{key}: {location}: {above} is no folder, so nothing can be made in it; correct the path"
    elif not os.access(above, os.W_OK | os.X_OK):
        yield f"{key}: {location}: this user may make nothing in {above}; give it the right, or correct the path"
