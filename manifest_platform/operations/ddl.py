"""The statements that would create tables in a warehouse, without the warehouse: nothing is connected to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from manifest_platform import plugins
from manifest_platform.listing import Table
from manifest_platform.warehouse.engines.engine import EngineSettings
from manifest_platform.warehouse.tables import stored_columns


def imaginary(engine: str) -> EngineSettings:
    """Returns the settings of a warehouse that need not exist. Raises UnknownPlugin."""
    kind: type[EngineSettings] = plugins.load(plugins.ENGINES, engine)
    return kind.model_validate({"kind": engine, **kind.imaginary})


def creations(settings: EngineSettings, schema: str, tables: Sequence[Table]) -> list[str]:
    """Returns the statements that create tables as the first load of their rows would create them."""
    with closing(settings.open(read_only=True)) as engine:
        quoted = {table.name: f"{engine.quote(schema)}.{engine.quote(table.name)}" for table in tables}
        return [engine.table_creation(quoted[table.name], stored_columns(table), table) for table in tables]
