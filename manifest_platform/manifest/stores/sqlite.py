"""SQLite, the embedded default: the store is a file. SQLAlchemy is loaded when the store is opened, not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from manifest_platform.deployments import file_beside
from manifest_platform.manifest.store import Difference, Store
from manifest_platform.manifest.stores.driver import Driver, Objects
from manifest_platform.notices import Notices
from manifest_platform.remedies import Action, Remedy


class Sqlite(Driver):
    """`sqlite:///path`: the path follows the third slash, so an absolute path begins with a fourth slash."""

    example = "sqlite:///path/to/manifest.db"

    def checked(self, url: str, local_path: Callable[[str], str]) -> str:
        """The URL with an absolute path."""
        rest = url.removeprefix("sqlite://")
        if not rest.startswith("/") or rest == "/":
            raise ValueError(f"allowed: {self.example}")
        return f"sqlite:///{local_path(rest.removeprefix('/'))}"

    def of_deployment(self, url: str, deployment: str) -> str:
        """A file beside this file."""
        return f"sqlite:///{file_beside(url.removeprefix('sqlite:///'), deployment)}"

    def open(self, url: str, overflow: Objects | None) -> Store:
        """The store. Its tables are created on first use; its rows are not limited."""
        from manifest_platform.manifest.stores.sql import SqlStore

        del overflow
        return SqlStore(url)

    def create(self, url: str) -> bool:
        """Creates the file and its tables."""
        from manifest_platform.manifest.stores.sql import create_database

        return create_database(url)

    def check(self, url: str) -> tuple[str, list[Difference]]:
        """The file's path. A file that does not exist is not created."""
        path = _path(url)
        if not path.exists():
            return str(path), [Difference("file", "there", "missing", Remedy(Action.CREATE_STORE))]
        from manifest_platform.manifest.stores.sql import check_database

        return check_database(url)

    def check_memory(self, url: str) -> tuple[str, list[Difference]]:
        """The name and the differences, as `check`. Missing tables are no difference: the first load creates them."""
        name, differences = self.check(url)
        return name, [one for one in differences if one.found != "missing"]

    def file(self, url: str) -> Path:
        """The file."""
        return _path(url)

    def file_identity(self, url: str) -> int:
        """The file's inode."""
        path = _path(url)
        return path.stat().st_ino if path.exists() else 0

    def notices(self, url: str) -> Notices:
        """Notices of writes to the file, which go to its write-ahead log first."""
        from manifest_platform.notices.files import FileNotices

        file = str(_path(url))
        return FileNotices(Path(file).parent, lambda path, _: path in (file, f"{file}-wal"), recursive=False, growing=True)


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
