"""The cache of a registry's answers: in the memory of a process, and in a folder that all processes of a machine share.

A schema that was found is used for `seconds` without asking again, and longer while its registry does not answer. A schema that
is missing is remembered for the batch that asked, and for `missing_seconds` by later batches: it may just have been published.
Only the processes of one user share a folder. A folder that others could write to is not used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from manifest_platform import spool
from manifest_platform.sources.snowplow.schemas.contract import Registry, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, sibling

_DOWN_SECONDS = 30
"""Seconds for which a registry that did not answer is not asked for what an old answer tells."""


@dataclass(frozen=True)
class Cache:
    """The settings of a cache. `folder`: the folder that processes share; None to share nothing. Times are seconds."""

    folder: str | None = None
    seconds: float = 600
    missing_seconds: float = 10
    stale_seconds: float = 86_400


def shared_folder() -> str:
    """Returns the path of this machine's folder for the caches of this user, where temporary folders are too."""
    return str(Path(os.environ.get(spool.VARIABLE) or tempfile.gettempdir()) / f"manifest-platform-schemas-{os.getuid()}")


@dataclass
class _Model:
    """The answers of a registry about a model. `listed`: when its versions were listed. `schemas`: time and text by version."""

    versions: list[str] = field(default_factory=list)
    listed: float = 0.0
    schemas: dict[str, tuple[float, str | None]] = field(default_factory=dict)


class CachedRegistry:
    """A registry whose answers are kept. Its methods may be called by several threads, each for models of its own."""

    def __init__(self, inner: Registry, cache: Cache, identity: tuple[Any, ...]):
        """Creates the cache of one registry. `identity`: its place and its credentials, which give the cache its name."""
        self._inner, self._cache, self._began = inner, cache, time.time()
        self._models: dict[str, _Model] = {}
        self._down_until = 0.0
        self._folder = _folder_of(cache.folder, identity) if cache.folder and cache.seconds else None

    def __str__(self) -> str:
        return str(self._inner)

    def __repr__(self) -> str:
        return f"CachedRegistry({self._inner!r})"

    def close(self) -> None:
        """Closes the registry."""
        self._inner.close()

    def keys(self) -> list[SchemaKey] | None:
        """Returns all schemas that the registry has; None if it gives no list. It is always asked."""
        return self._inner.keys()

    def read(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema; None if the registry lacks it. Raises RegistryUnavailable, RegistryRefused."""
        model = self._model(key)
        if self._is_fresh(model, key):
            return _bytes(model.schemas[key.version][1])
        with self._turn(key) as model:
            if not self._is_fresh(model, key):
                old = model.schemas.get(key.version)
                try:
                    self._check_up(old is not None and old[1] is not None)
                    text = self._inner.read(key)
                except RegistryUnavailable:
                    if not old or old[1] is None or self._age(old[0]) > self._cache.seconds + self._cache.stale_seconds:
                        raise
                    self._down_until = time.time() + _DOWN_SECONDS
                    return _bytes(old[1])
                model.schemas[key.version] = time.time(), None if text is None else text.decode("utf-8", "surrogateescape")
            return _bytes(model.schemas[key.version][1])

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns the versions of the key's model that the registry has. Raises as `read`.

        An old list that lacks the key is not used: a version in between could add columns.
        """
        model = self._model(key)
        if not self._is_listed(model, key):
            with self._turn(key) as model:
                if not self._is_listed(model, key):
                    self._list(key, model)
        return [version for text in model.versions if (version := sibling(key, text))]

    def _list(self, key: SchemaKey, model: _Model) -> None:
        has_it = key.version in model.versions
        try:
            self._check_up(has_it)
            found = self._inner.versions(key)
        except RegistryUnavailable:
            if not has_it or self._age(model.listed) > self._cache.seconds + self._cache.stale_seconds:
                raise
            self._down_until = time.time() + _DOWN_SECONDS
            return
        model.versions, model.listed = [one.version for one in found], time.time()
        for version in found:
            if not self._is_fresh(model, version) and (text := self._inner.told(version)) is not None:
                model.schemas[version.version] = time.time(), text.decode("utf-8", "surrogateescape")

    def told(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema that an answer brought without being asked for it."""
        return self._inner.told(key)

    # Freshness

    def _age(self, moment: float) -> float:
        return time.time() - moment

    def _is_fresh(self, model: _Model, key: SchemaKey) -> bool:
        asked, text = model.schemas.get(key.version, (0.0, None))
        kept = self._cache.seconds if text is not None else self._cache.missing_seconds
        return asked >= self._began or 0 <= self._age(asked) < kept

    def _is_listed(self, model: _Model, key: SchemaKey) -> bool:
        if model.listed >= self._began:
            return True
        return 0 <= self._age(model.listed) < self._cache.seconds and key.version in model.versions

    def _check_up(self, has_old: bool) -> None:
        """Raises RegistryUnavailable if the registry did not answer a moment ago and an old answer can be used."""
        if has_old and self._cache.stale_seconds and time.time() < self._down_until:
            raise RegistryUnavailable(f"{self} did not answer a moment ago")

    # The folder

    def _model(self, key: SchemaKey) -> _Model:
        if key.family not in self._models:
            self._models[key.family] = self._stored(key) or _Model()
        return self._models[key.family]

    def _path(self, key: SchemaKey) -> Path | None:
        return self._folder / hashlib.blake2b(key.family.encode(), digest_size=16).hexdigest() if self._folder else None

    def _stored(self, key: SchemaKey) -> _Model | None:
        path = self._path(key)
        try:
            known = orjson.loads(path.read_bytes()) if path else None
            if not known or known["family"] != key.family:
                return None
            schemas = {version: (float(asked), text) for version, (asked, text) in known["schemas"].items()}
            return _Model(list(known["versions"]), float(known["listed"]), schemas)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @contextmanager
    def _turn(self, key: SchemaKey) -> Generator[_Model]:
        """Lets one process at a time ask about a model, and takes over what another has learned. Stores what is learned."""
        path = self._path(key)
        with _locked(path):
            model = self._models[key.family] = _merged(self._model(key), self._stored(key))
            yield model
            if path and any(text is not None for _, text in model.schemas.values()):
                _write(path, key.family, model)


def _merged(one: _Model, other: _Model | None) -> _Model:
    if other is None:
        return one
    newer = one if one.listed >= other.listed else other
    schemas = dict(one.schemas)
    for version, known in other.schemas.items():
        if version not in schemas or schemas[version][0] < known[0]:
            schemas[version] = known
    return _Model(newer.versions, newer.listed, schemas)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _write(path: Path, family: str, model: _Model) -> None:
    """Writes the answers about a model. Whatever goes wrong only makes another process ask again."""
    document = {"family": family, "versions": model.versions, "listed": model.listed, "schemas": model.schemas}
    passing = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    with suppress(OSError, TypeError, ValueError):
        passing.write_bytes(orjson.dumps(document))
        passing.replace(path)


@contextmanager
def _locked(path: Path | None) -> Generator[None]:
    if path is None:
        yield
        return
    try:
        lock = path.with_name(f"{path.name}.lock").open("w")
    except OSError:
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _folder_of(root: str, identity: tuple[Any, ...]) -> Path | None:
    """Returns the folder of one registry's cache, by a keyed hash of its place and credentials; None if none is safe."""
    place = Path(root)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = place.lstat()
        if not place.is_dir() or place.is_symlink() or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
            return None
        salt = _salt(place / "salt")
        folder = place / hashlib.blake2b(orjson.dumps(identity), key=salt, digest_size=16).hexdigest()
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder


def _salt(path: Path) -> bytes:
    """Returns the random key of the hashes, which the first process makes."""
    with suppress(FileExistsError):
        passing = path.with_name(f"salt.{os.getpid()}.{threading.get_ident()}")
        passing.write_bytes(os.urandom(32))
        try:
            os.link(passing, path)
        finally:
            passing.unlink()
    return path.read_bytes()
