"""The requirements that a PostgreSQL server and its database must meet before the manifest trusts them.

Only a server that proves its identity gets the password. Everything that runs with each write must be the platform's own: a
role that may create in the schema could have created the tables first, with a trigger that runs any code in the platform's
name.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import sqlalchemy as sa

OWNER = "owner"
"""The parameter of the URL that names the role that owns the tables, if it is not the role that connects."""
_VERIFIED = "verify-full"
_USERS_ROOTS = Path("~/.postgresql/root.crt")
_REQUIRED = "authentication method requirement"
"""The text of libpq's error for a server that asks for a password in a way that is not allowed."""


# The server


def connect_settings(url: sa.URL) -> dict[str, str]:
    """The settings of libpq besides a URL, so that only the intended server gets a password.

    For a host that is not this machine: TLS with a certificate of the host's name (`sslmode=verify-full`), from an authority
    that the system trusts. If the URL asks for less, the password is sent neither in clear text nor by MD5; to servers of this
    machine not in clear text.
    """
    settings: dict[str, str] = {}
    mode = _said(url, "sslmode")
    if mode is None and not _is_here(url):
        settings["sslmode"] = mode = _VERIFIED
    is_verified = mode == _VERIFIED
    if (is_verified or mode == "verify-ca") and _said(url, "sslrootcert", "PGSSLROOTCERT") is None:
        settings |= {"sslrootcert": roots} if (roots := _roots()) else {}
    if not is_verified and _said(url, "require_auth", "PGREQUIREAUTH") is None:
        settings["require_auth"] = "!password" if _is_here(url) else "!password,!md5"
    return settings


def plain_mode(url: sa.URL) -> str | None:
    """The `sslmode` of a URL that does not require the server to prove its identity; None if it does."""
    mode = _said(url, "sslmode")
    return None if _is_here(url) or mode in (None, _VERIFIED) else mode


def advice(said: str) -> str | None:
    """The remedy for an error of libpq about TLS or the way to send a password; None for any other error."""
    if _REQUIRED in said:
        return (
            "the server asks for the password in a way that lets others read it. Let the server use SCRAM"
            " (password_encryption, and scram-sha-256 in pg_hba.conf), or allow it in manifest.store by ?require_auth=password"
        )
    if any(word in said for word in ("SSL", "certificate", "root.crt")):
        return (
            "the server must prove its identity by TLS. Give it a certificate of its host's name, name the authority's file in"
            " manifest.store by ?sslrootcert=FILE, or allow less there by ?sslmode=require or ?sslmode=disable"
        )
    return None


def _said(url: sa.URL, name: str, variable: str = "") -> str | None:
    found = url.query.get(name) or os.environ.get(variable)
    return found if isinstance(found, str) or found is None else found[-1]


def _is_here(url: sa.URL) -> bool:
    """True if all hosts of a URL are this machine: a socket, or an address that no other machine receives."""
    if _said(url, "service", "PGSERVICE"):
        return False
    named = [url.host or ""]
    for name, variable in (("host", "PGHOST"), ("hostaddr", "PGHOSTADDR")):
        given = url.query.get(name) or ("" if name == "host" and url.host else os.environ.get(variable, ""))
        named += [given] if isinstance(given, str) else given
    return all(_is_own(host) for several in named for host in several.split(","))


def _is_own(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _roots() -> str | None:
    """The file of the authorities that the system trusts; None if libpq has a file of the user's own.

    libpq's `system` means a folder of the OpenSSL that is bundled with psycopg, and no system has that folder.
    """
    if _USERS_ROOTS.expanduser().exists():
        return None
    return ssl.get_default_verify_paths().cafile or "system"


# The tables


@dataclass(frozen=True)
class Stranger:
    """An object on the manifest's tables that is not the platform's, and its owner."""

    what: str
    owner: str
    mend: str

    def __str__(self) -> str:
        return f"{self.what}, of role {self.owner!r}"


_TRUSTED = """
    SELECT r.oid FROM pg_catalog.pg_roles AS r
    WHERE r.rolname = CURRENT_USER OR r.rolsuper OR r.rolname = 'pg_database_owner' OR r.rolname = CAST(:owner AS text)
    OR r.oid = (SELECT d.datdba FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
"""
"""The roles that are trusted: they could do anything here anyway, or are named.

Members of a role are not trusted, because the owner of a role may make us its member.
"""

_TABLES = """
    SELECT c.oid, c.relname, c.relkind, c.relowner, c.relrowsecurity FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = CAST(:schema AS text) AND c.relname = ANY (CAST(:tables AS text[]))
"""

_STRANGERS = f"""
    WITH trusted AS ({_TRUSTED}), ours AS ({_TABLES})
    SELECT 'schema ' || n.nspname, n.nspowner FROM pg_catalog.pg_namespace AS n
        WHERE n.nspname = CAST(:schema AS text) AND n.nspowner NOT IN (SELECT oid FROM trusted)
    UNION ALL SELECT 'table ' || relname, relowner FROM ours WHERE relowner NOT IN (SELECT oid FROM trusted)
    UNION ALL SELECT 'kind ' || CAST(relkind AS text) || ' of ' || relname || ', which is no ordinary table', relowner FROM ours
        WHERE relkind <> 'r'
    UNION ALL SELECT 'trigger ' || t.tgname || ' on ' || o.relname, p.proowner
        FROM pg_catalog.pg_trigger AS t JOIN ours AS o ON o.oid = t.tgrelid JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
    UNION ALL SELECT 'rule ' || w.rulename || ' on ' || o.relname, o.relowner
        FROM pg_catalog.pg_rewrite AS w JOIN ours AS o ON o.oid = w.ev_class WHERE o.relkind = 'r'
    UNION ALL SELECT 'row-security policy ' || p.polname || ' on ' || o.relname, o.relowner
        FROM pg_catalog.pg_policy AS p JOIN ours AS o ON o.oid = p.polrelid
    UNION ALL SELECT 'row security of ' || relname, relowner FROM ours WHERE relrowsecurity
    UNION ALL SELECT 'inheritance with ' || c.relname, c.relowner
        FROM pg_catalog.pg_inherits AS i JOIN ours AS o ON o.oid IN (i.inhrelid, i.inhparent)
        JOIN pg_catalog.pg_class AS c ON c.oid IN (i.inhrelid, i.inhparent) AND c.oid <> o.oid
    UNION ALL SELECT 'default of ' || o.relname || '.' || a.attname, o.relowner
        FROM pg_catalog.pg_attrdef AS d JOIN ours AS o ON o.oid = d.adrelid
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    UNION ALL SELECT 'type ' || t.typname || ' of ' || o.relname || '.' || a.attname, t.typowner
        FROM pg_catalog.pg_attribute AS a JOIN ours AS o ON o.oid = a.attrelid
        JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
        WHERE a.attnum > 0 AND NOT a.attisdropped AND n.nspname <> 'pg_catalog'
    UNION ALL SELECT 'constraint ' || k.conname || ' of ' || o.relname, o.relowner
        FROM pg_catalog.pg_constraint AS k JOIN ours AS o ON o.oid IN (k.conrelid, k.confrelid)
        WHERE k.contype NOT IN ('p', 'u', 'n')
    UNION ALL SELECT 'index ' || c.relname || ' on ' || o.relname || ', which runs functions', c.relowner
        FROM pg_catalog.pg_index AS i JOIN ours AS o ON o.oid = i.indrelid JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR EXISTS (
            SELECT 1 FROM pg_catalog.pg_opclass AS q JOIN pg_catalog.pg_namespace AS n ON n.oid = q.opcnamespace
            WHERE q.oid = ANY (i.indclass) AND n.nspname <> 'pg_catalog')
"""  # noqa: S608  the text has no input from outside

_PATH = sa.text("SELECT pg_catalog.current_schemas(false)")
_HOLDERS = sa.text(
    "SELECT n.nspname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE c.relname = ANY (CAST(:tables AS text[])) AND n.nspname = ANY (CAST(:path AS text[]))"
)
_WITH_OWNERS = sa.text(
    f"SELECT s.what, r.rolname FROM ({_STRANGERS}) AS s (what, owner) LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.owner"  # noqa: S608
    " ORDER BY 1, 2"
)
CLOSED_PATH = "SET search_path = ''"
"""Empties the search path: names then mean PostgreSQL's own functions and operators, not overloads in other schemas."""


def home(connection: sa.Connection, tables: Sequence[str]) -> str | None:
    """The schema of the search path that has the tables, or else the first schema; None if there is none. Closes the path."""
    path: list[str] = list(connection.execute(_PATH).scalar_one())
    connection.exec_driver_sql(CLOSED_PATH)
    holders = set(connection.execute(_HOLDERS, {"tables": list(tables), "path": path}).scalars())
    return next((schema for schema in path if schema in holders), next(iter(path), None))


def strangers(connection: sa.Connection, schema: str, tables: Sequence[str], owner: str | None) -> Iterator[Stranger]:
    """The objects on the tables, or on their schema, that are not the platform's. Closes the connection's search path."""
    values: Mapping[str, object] = {"schema": schema, "tables": list(tables), "owner": owner}
    for what, role in connection.execute(_WITH_OWNERS, values):
        kind = what.partition(" ")[0]
        if kind in ("schema", "table"):
            mend = (
                f"find out who made it. Then ALTER {kind.upper()} … OWNER TO the role that connects, use a schema of your own"
                f" (?options=-csearch_path%3DSCHEMA), or trust its owner by ?{OWNER}={role} in manifest.store"
            )
        else:
            mend = "find out who made it, and drop it: it runs, or hides rows, in the platform's name"
        yield Stranger(what, str(role), mend)
