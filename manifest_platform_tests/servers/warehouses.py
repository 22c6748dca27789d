"""The warehouses that tests load: of each engine an empty one, as a configuration names it, that can be copied and set back.

A test that asks for `place` runs on every installed engine: on DuckDB in `make test`, on the others in `make test-long`.
Two marks say otherwise:

- `everyday(*names)` runs on these engines in `make test`, and on the others in `make test-long`;
- `engines(*names)` runs on these engines and on no others: what is about them.

A test that asks for `path` too is about the file of the embedded warehouse, and runs on no other.
"""

from __future__ import annotations

import shutil
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from manifest_platform import plugins, storage
from manifest_platform.warehouse.engines.engine import Engine, EngineSettings
from manifest_platform_tests.servers.proxy import Proxy, proxied

if TYPE_CHECKING:
    import psycopg

    from manifest_platform_tests.servers.postgres import Postgres
    from manifest_platform_tests.servers.redshift import Redshift

EVERYDAY = ("duckdb",)


class Place(ABC):
    """The place of a warehouse: empty at first, and only of one test."""

    kind: str
    objects: str
    """The root for shredded objects, which the engine must be able to read: a directory, or a prefix of a bucket."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The value of `warehouse` in a configuration."""

    def open(self, patience: float | None = None, *, read_only: bool = False) -> Engine:
        """Returns an engine with a connection of its own. Close it."""
        return opened(self.settings, patience, read_only=read_only)

    @abstractmethod
    def save(self, name: str) -> None:
        """Copies the warehouse. Nobody may be connected."""

    @abstractmethod
    def restore(self, name: str) -> None:
        """Sets the warehouse back to a copy, as often as wanted. Nobody may be connected."""

    @abstractmethod
    def empty(self) -> None:
        """Makes the warehouse as if nothing had ever been loaded. Nobody may be connected."""

    def remove(self) -> None:  # noqa: B027
        """Removes the warehouse and its copies. A file goes with the folder of the test."""


def opened(settings: dict[str, Any], patience: float | None = None, *, read_only: bool = False) -> Engine:
    """Returns an engine for the value of `warehouse` in a configuration."""
    return settings_of(settings).open(read_only=read_only, patience=patience)


def settings_of(settings: dict[str, Any]) -> EngineSettings:
    """Returns the typed settings for the value of `warehouse` in a configuration."""
    return cast(type[EngineSettings], plugins.load(plugins.ENGINES, settings["kind"])).model_validate(settings)


class FilePlace(Place):
    """A DuckDB file."""

    kind = "duckdb"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "warehouse.duckdb"
        self.objects = str(folder)

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": str(self.path)}

    def save(self, name: str) -> None:
        if self.path.exists():
            shutil.copy(self.path, self._copy(name))

    def restore(self, name: str) -> None:
        self.empty()
        if self._copy(name).exists():
            shutil.copy(self._copy(name), self.path)

    def empty(self) -> None:
        for file in self.path.parent.glob(f"{self.path.name}*"):  # its log too
            file.unlink()

    def _copy(self, name: str) -> Path:
        return self.path.with_name(f"copy-{name}.duckdb")


class DatabasePlace(Place):
    """A database of its own on the PostgreSQL of the session."""

    kind = "postgresql"

    def __init__(self, server: Postgres, folder: Path) -> None:
        self._server = server
        self.database = f"warehouse_{uuid.uuid4().hex[:12]}"
        self.objects = str(folder)
        self._copies: set[str] = set()
        self._administer("CREATE DATABASE {}", self.database)

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "url": self.url}

    @property
    def url(self) -> str:
        """The URL of the database, by the server's socket."""
        return f"postgresql://postgres@/{self.database}?host={self._server.socket_folder}"

    def connect(self) -> psycopg.Connection[Any]:
        """Returns a connection beside the product's, which commits each statement. Close it."""
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def save(self, name: str) -> None:
        self._drop(self._copy(name))
        self._copies.add(self._copy(name))
        self._administer("CREATE DATABASE {} TEMPLATE {}", self._copy(name), self.database)

    def restore(self, name: str) -> None:
        self._drop(self.database)
        self._administer("CREATE DATABASE {} TEMPLATE {}", self.database, self._copy(name))

    def empty(self) -> None:
        self._drop(self.database)
        self._administer("CREATE DATABASE {}", self.database)

    def remove(self) -> None:
        for database in (self.database, *self._copies):
            self._drop(database)

    def _copy(self, name: str) -> str:
        return f"{self.database}_{name}"

    def _drop(self, database: str) -> None:
        self._administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", database)

    def _administer(self, statement: str, *names: str) -> None:
        import psycopg
        from psycopg.sql import SQL, Identifier

        with closing(psycopg.connect(self._server.url, autocommit=True)) as connection:
            connection.execute(SQL(cast(Any, statement)).format(*map(Identifier, names)))


class ProxiedPlace(DatabasePlace):
    """A database that the drain reaches through a proxy, and tests directly."""

    proxy: Proxy

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "url": f"postgresql://postgres@127.0.0.1:{self.proxy.port}/{self.database}?sslmode=disable"}


@contextmanager
def proxied_place(server: Postgres, folder: Path) -> Generator[ProxiedPlace]:
    """Runs a proxy before a server until the block ends, and yields a database behind it."""

    def connect() -> socket.socket:
        found = socket.socket(socket.AF_UNIX)
        found.connect(str(server.socket_folder / ".s.PGSQL.5432"))
        return found

    place = ProxiedPlace(server, folder)
    with proxied(connect, is_http=False) as place.proxy:
        yield place


class StandInPlace(Place):
    """A database of its own on the stand-in for Redshift. Its objects are in S3, from where COPY reads them."""

    kind = "redshift"

    def __init__(self, redshift: Redshift, bucket: str) -> None:
        self._redshift = redshift
        self.objects = f"{bucket}/shredded"
        self._copies: set[str] = set()

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "url": f"{self._redshift.url}?sslmode=disable", "role": "default"}

    def open(self, patience: float | None = None, *, read_only: bool = False) -> Engine:
        """Returns an engine that finds local objects in S3: within a process, a test may write them where it likes."""
        engine = super().open(patience, read_only=read_only)
        stage = engine.stage
        engine.stage = lambda table, uris: stage(table, [self._in_s3(uri) for uri in uris])
        return engine

    def _in_s3(self, uri: str) -> str:
        if not storage.is_local(uri):
            return uri
        path = storage.local_path(uri)
        if path.exists():
            storage.write_bytes(f"{self.objects}{path}", path.read_bytes())
        return f"{self.objects}{path}"

    def save(self, name: str) -> None:
        self._copies.add(name)
        self._redshift.copy_to(f"{self._redshift.database}_{name}")

    def restore(self, name: str) -> None:
        self._redshift.copy_from(f"{self._redshift.database}_{name}")

    def empty(self) -> None:
        self._redshift.empty()

    def remove(self) -> None:
        for name in self._copies:
            self._redshift.drop(f"{self._redshift.database}_{name}")
        self._redshift.drop(self._redshift.database)


def _file(request: pytest.FixtureRequest) -> Place:
    return FilePlace(request.getfixturevalue("tmp_path"))


def _database(request: pytest.FixtureRequest) -> Place:
    return DatabasePlace(request.getfixturevalue("postgres_server"), request.getfixturevalue("tmp_path"))


def _stand_in(request: pytest.FixtureRequest) -> Place:
    return StandInPlace(request.getfixturevalue("redshift"), request.getfixturevalue("s3_bucket"))


PLACES: dict[str, Callable[[pytest.FixtureRequest], Place]] = {
    "duckdb": _file,
    "postgresql": _database,
    "redshift": _stand_in,
}
"""Every engine that tests can run: each gives an empty warehouse."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs what asks for a place on the engines that the module's docstring says."""
    chosen = any("place" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "place" in metafunc.fixturenames and not chosen and metafunc._arg2fixturedefs["place"][-1].params is None:
        about_a_file = "path" in metafunc.fixturenames  # that of the embedded warehouse
        engines = [FilePlace.kind] if about_a_file else list(_engines_of(metafunc.definition))
        metafunc.parametrize("place", engines, indirect=True)


def _engines_of(test: pytest.Item) -> Iterator[Any]:
    """Yields the engines that a test runs on, with the mark `long` for those that wait for `make test-long`."""
    only, everyday = test.get_closest_marker("engines"), test.get_closest_marker("everyday")
    often = everyday.args if everyday else only.args if only else EVERYDAY
    for name in PLACES:
        if name in plugins.names(plugins.ENGINES) and (not only or name in only.args):
            yield pytest.param(name, marks=() if name in often else pytest.mark.long)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty warehouse."""
    given = PLACES[request.param](request)
    yield given
    given.remove()
