"""PostgreSQL: the store is two tables of a database.

SQLAlchemy is loaded even to check a URL, because only it can parse one.
"""

from __future__ import annotations

from collections.abc import Callable

from manifest_platform.deployments import identifier
from manifest_platform.manifest.store import Difference, Store
from manifest_platform.manifest.stores.driver import Driver, Objects


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
