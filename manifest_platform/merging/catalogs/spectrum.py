"""The SQL that lets Redshift Spectrum read databases of AWS Glue: an external schema for each database, and grants.

Source of the syntax: Amazon Redshift's pages on CREATE EXTERNAL SCHEMA and GRANT. Redshift has no grants on external tables:
whoever may use the schema may read all its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from manifest_platform.merging.catalogs.catalog import CatalogRejected, ExternalSchemas

DEFAULT_ROLE = "default"
_ARN = r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=.@/-]{1,576}"
_ROLE = re.compile(f"{_ARN}(,{_ARN})*")
_KINDS = {"role:": "ROLE ", "group:": "GROUP ", "user:": ""}
_NEEDED = ("glue:GetDatabase", "glue:GetTable", "glue:GetTables", "glue:GetPartition", "glue:GetPartitions")


def external_schemas(
    databases: Sequence[str], region: str, role: str | None, grantees: Sequence[str], name: str | None
) -> ExternalSchemas:
    """Returns an external schema for each database. `role`: ARNs, joined by commas for a chain; None for the cluster's default.

    `grantees`: users, `role:NAME`, `group:NAME`, or `public`. `name`: the schema's name, if it differs from the database's.
    Raises CatalogRejected for an invalid role or grantee, and for a single name with several databases.
    """
    if role and role != DEFAULT_ROLE and not _ROLE.fullmatch(role):
        raise CatalogRejected(
            f"role {role!r} is not valid: give its ARN, for example arn:aws:iam::123456789012:role/spectrum, or `default`"
        )
    if name and len(databases) > 1:
        raise CatalogRejected(f"the tables are in {len(databases)} databases, {', '.join(databases)}: omit the name")
    taken = f"'{role}'" if role and role != DEFAULT_ROLE else DEFAULT_ROLE
    whom = [_grantee(one) for one in grantees]
    return ExternalSchemas(
        tuple(one for database in databases for one in _statements(database, name or database, region, taken, whom)), _NEEDED
    )


def _statements(database: str, name: str, region: str, role: str, whom: Sequence[str]) -> Iterator[str]:
    schema = _quoted(name)
    yield (
        f"CREATE EXTERNAL SCHEMA IF NOT EXISTS {schema}\nFROM DATA CATALOG DATABASE '{database}' REGION '{region}'\n"
        f"IAM_ROLE {role}"
    )
    yield from (f"GRANT USAGE ON SCHEMA {schema} TO {one}" for one in whom)


def _grantee(text: str) -> str:
    """The grantee as SQL. A user may be called `IAM:name`, which is Redshift's name for users that log in by IAM."""
    if text.lower() == "public":
        return "PUBLIC"
    kind = next((kind for kind in _KINDS if text.startswith(kind)), "user:")
    try:
        return f"{_KINDS[kind]}{_quoted(text.removeprefix(kind))}"
    except CatalogRejected as refused:
        raise CatalogRejected(
            f"{text!r} is not a valid grantee: give a user, or write role:NAME, group:NAME or public ({refused})"
        ) from refused


def _quoted(identifier: str) -> str:
    """A delimited identifier: 127 bytes, any characters but double quotes and control characters."""
    if not identifier or len(identifier.encode()) > 127 or re.search(r'["\x00-\x1f]', identifier):
        raise CatalogRejected(f"{identifier!r} is not a valid name in Redshift: use 1 to 127 bytes without double quotes")
    return f'"{identifier}"'
