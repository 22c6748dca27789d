"""The settings of the embedded warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from manifest_platform.deployments import file_beside
from manifest_platform.settings import LocalPath
from manifest_platform.warehouse.engines.engine import EngineSettings
from manifest_platform.warehouse.upkeep_settings import UpkeepAction

if TYPE_CHECKING:
    from manifest_platform.warehouse.engines.duckdb.engine import DuckDB


class DuckDBSettings(EngineSettings):
    """The settings of the embedded warehouse: a DuckDB file, which one process at a time has open for writing."""

    one_writer: ClassVar[bool] = True
    counts_at_once: ClassVar[bool] = True
    upkeep_actions: ClassVar[tuple[UpkeepAction, ...]] = ("analyze", "vacuum")
    kind: Literal["duckdb"] = Field("duckdb", description="a DuckDB file")
    path: LocalPath = Field(
        ".manifest_platform/warehouse.duckdb",
        description="path of the file, relative to the configuration file; the first load creates it",
    )

    @property
    def place(self) -> str:
        """The file's path."""
        return self.path

    @property
    def file(self) -> str:
        """The file's path."""
        return self.path

    def of_deployment(self, deployment: str) -> DuckDBSettings:
        """Returns the settings of a file beside this file; schemas and tables have the same names."""
        return self.model_copy(update={"path": file_beside(self.path, deployment)})

    def open(self, *, read_only: bool = False, patience: float | None = None) -> DuckDB:
        """Returns the engine for the file."""
        from manifest_platform.warehouse.engines.duckdb.engine import DuckDB

        return DuckDB(self.path, DuckDB.patience if patience is None else patience, read_only)
