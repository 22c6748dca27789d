"""The least privileges of the role that loads, as DDL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from manifest_platform.warehouse.engines.snowflake.access import Access
from manifest_platform.warehouse.engines.snowflake.names import identifier
from manifest_platform.warehouse.engines.snowflake.staging import STAGING_SCHEMA


def grants(access: Access, schemas: Sequence[str], role: str) -> Iterator[str]:
    """Yields the statements that give a role what loading these schemas needs, and no more.

    The role owns the tables that it creates, so it needs no privilege on them. Schemas are created first, because nothing can
    be granted on a schema that does not exist.
    """
    to = f"TO ROLE {identifier(role)}"
    database, warehouse = identifier(access.database), identifier(access.warehouse)
    yield f"CREATE ROLE IF NOT EXISTS {identifier(role)}"
    yield f"GRANT ROLE {identifier(role)} TO USER {identifier(access.user)}"
    yield f"GRANT USAGE, MONITOR ON WAREHOUSE {warehouse} {to}"
    yield f"GRANT USAGE, CREATE SCHEMA ON DATABASE {database} {to}"
    for schema in (*schemas, STAGING_SCHEMA):
        place = f"{database}.{identifier(schema)}"
        yield f"CREATE SCHEMA IF NOT EXISTS {place}"
        yield f"GRANT USAGE, MONITOR, CREATE TABLE ON SCHEMA {place} {to}"
    if access.stage:
        *before, name = access.stage.split(".")
        parts = [access.database, *before] if len(before) == 1 else before
        place = ".".join(map(identifier, parts))
        if identifier(parts[0]) != database:
            yield f"GRANT USAGE ON DATABASE {identifier(parts[0])} {to}"
        yield f"GRANT USAGE ON SCHEMA {place} {to}"
        yield f"GRANT USAGE ON STAGE {place}.{identifier(name)} {to}"
    if access.storage_integration:
        yield f"GRANT USAGE ON INTEGRATION {identifier(access.storage_integration)} {to}"
