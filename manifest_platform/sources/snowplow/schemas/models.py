"""The tables of a model: one for its versions together, and one for each version that contradicts those before it.

A version that breaks its model must not keep the others from being loaded, whether events name it or only a registry has it.
Its rows go to a table of their own, `<table>_recovered_<version>_<hash>`. The name follows from the schemas alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from manifest_platform.listing import ABOUT_TABLE, Column, Table, description
from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.columns import HIERARCHY, EntityColumn, EntityTable, model_of
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey

NO_RULES = Rules()


@dataclass(frozen=True)
class ModelTables:
    """The tables of a model. `recovered`: by version, the tables of those that break the model. `unusable`: without a table."""

    main: EntityTable
    recovered: Mapping[str, EntityTable] = field(default_factory=dict)
    unusable: Mapping[str, SchemaError] = field(default_factory=dict)

    def table(self, key: SchemaKey) -> EntityTable:
        """Returns the table for rows of a version. Raises SchemaError if the version makes no table."""
        if key.version in self.unusable:
            raise self.unusable[key.version]
        return self.recovered.get(key.version, self.main)


def model_tables(
    key: SchemaKey, name: str, schemas: Sequence[tuple[str, Any]], most: int, rules: Rules = NO_RULES
) -> ModelTables:
    """Returns the tables of a key's model. `name`: that of its main table. The rest as for `model_of`."""
    model = model_of(schemas, key.family, most, rules.names == "dotted", rules.other_properties == "keep")
    recovered = {
        version: _table(key, recovery_name(name, version, one.columns), one.columns, one.reason)
        for version, one in model.breaking.items()
    }
    return ModelTables(_table(key, name, model.columns), recovered, model.unusable)


def recovery_name(name: str, version: str, columns: Sequence[EntityColumn]) -> str:
    """Returns the table name of a version that breaks its model. Another hash means other columns: the version was patched."""
    content = "\n".join(f"{'/'.join(one.path)} {one.column.type}" for one in columns)
    digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{name}_recovered_{version.replace('-', '_')}_{digest}"


def _table(key: SchemaKey, name: str, columns: Sequence[EntityColumn], reason: str = "") -> EntityTable:
    said = {one.column.name: one.description for one in columns if one.description}
    if reason:
        said[ABOUT_TABLE] = description(reason)
    table = Table(name, (*HIERARCHY, *(one.column for one in columns)), load_time=True, family=key.family, descriptions=said)
    return EntityTable(table, tuple(columns), reason)


def whole_table(key: SchemaKey, name: str) -> ModelTables:
    """Returns the table of a model whose entities stay whole: the hierarchy columns, and `data` with the entity's JSON."""
    column = Column("data", "json")
    table = Table(name, (*HIERARCHY, column), load_time=True, family=key.family)
    return ModelTables(EntityTable(table, (EntityColumn(("data",), column),), whole=True))
