"""The parts of Spark that the IO manager uses, implemented with pyarrow, for tests of commits and reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manifest_platform.orchestration.resources import SparkResource


class Frame:
    """A DataFrame with rows in memory."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def write(self) -> Frame:
        return self

    def parquet(self, path: str) -> None:
        folder = Path(path)
        folder.mkdir(parents=True)
        pq.write_table(self.table, folder / "part-0.parquet")

    def count(self) -> int:
        return self.table.num_rows

    def column(self, name: str) -> list[object]:
        return sorted(self.table.column(name).to_pylist())


class Frames:
    """A Spark session that reads Parquet."""

    @property
    def read(self) -> Frames:
        return self

    def option(self, *_option: str) -> Frames:
        return self

    def parquet(self, *paths: str) -> Frame:
        return Frame(pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths], promote_options="default"))


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Frames]:
    """Replaces the session of every Spark resource."""
    session = Frames()
    monkeypatch.setattr(SparkResource, "spark_session", property(lambda _self: session))
    return lambda: session
