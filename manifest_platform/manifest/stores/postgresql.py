"""PostgreSQL: the store is two tables of a database.

SQLAlchemy is loaded even to check a URL, because only it can parse one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from manifest_platform.deployments import identifier
from manifest_platform.manifest.store import Difference, Store
from manifest_platform.manifest.stores.driver import Driver, Objects
from manifest_platform.notices import Notices


class PostgreSql(Driver):
    """`postgresql://user@host:port/database`, with libpq's parameters in the query, except a password."""

    example = "postgresql://user@host:5432/database"

    def checked(self, url: str, local_path: Callable[[str], str]) -> str:
        """The URL, unchanged."""
        from manifest_platform.manifest.stores.sql import check_url

        del local_path
        check_url(url)
        return url

    def of_deployment(self, url: str, deployment: str) -> str:
        """A database on the same server, `database_pr_7`, which must exist."""
        from manifest_platform.manifest.stores.sql import with_database

        return with_database(url, lambda name: f"{name}_{identifier(deployment)}")

    def open(self, url: str, overflow: Objects | None) -> Store:
        """The store. Its tables are created on first use; its rows are not limited."""
        from manifest_platform.manifest.stores.sql import SqlStore

        del overflow
        return SqlStore(url)

    def create(self, url: str) -> bool:
        """Creates the tables; the database must exist."""
        from manifest_platform.manifest.stores.sql import create_database

        return create_database(url)

    def check(self, url: str) -> tuple[str, list[Difference]]:
        """The URL without its password; tables, their columns and collations, and settings that endanger commits."""
        from manifest_platform.manifest.stores.sql import check_database

        return check_database(url)

    def check_memory(self, url: str) -> tuple[str, list[Difference]]:
        """The name and the differences, as `check`. Missing tables are no difference: the first load creates them."""
        name, differences = self.check(url)
        return name, [one for one in differences if one.found != "missing"]

    def notices(self, url: str) -> Notices:
        """The notices that each transaction sends with its commit."""
        return WriteNotices(url)


class WriteNotices(Notices):
    """LISTEN on a connection of its own. Notices that were sent while it was away are lost; a listing covers them."""

    def __init__(self, url: str) -> None:
        from manifest_platform.manifest.stores.sql import listener

        self._opened = listener(url)
        self.place = self._opened.name
        self._ended = threading.Event()

    def watch(self, tell: Callable[[], object]) -> None:
        """Waits for notices until `close`. Raises errors of psycopg and SQLAlchemy."""
        with self._opened.listening() as connection:
            tell()
            while not self._ended.is_set():
                for _ in connection.notifies(timeout=_WAIT_SECONDS, stop_after=1):
                    tell()

    def close(self) -> None:
        """Ends the wait."""
        self._ended.set()


_WAIT_SECONDS = 2.0
"""The longest time until `close` is noticed."""
