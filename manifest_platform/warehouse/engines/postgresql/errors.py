"""The meaning of PostgreSQL's errors for a load, by their SQLSTATE codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, LoadFailed, Unavailable, WarehouseError

if TYPE_CHECKING:
    import psycopg

_CONFLICTS = {
    "40001": "serialization failure",
    "40P01": "deadlock",
    "42P06": "a schema that another session created",
    "42P07": "a table that another session created",
    "42701": "a column that another session added",
    "42710": "an object that another session created",
}
"""Another transaction was first, and this transaction is rolled back. A repeat sees what the other did."""

_ADVICE = {
    "28": "Check the user, the password and its end (VALID UNTIL), and the server's pg_hba.conf",
    "3D000": "Create the database, or correct the URL",
    "53100": "The server's disk is full: make room",
    "53200": "The server is out of memory",
    "53300": "The server has no free connection: end others, or raise max_connections",
    "55P03": "Another session holds a lock: end it, or wait for it",
    "57014": "The statement was canceled, or ran longer than statement_timeout",
    "57P": "The server is starting, stopping or in recovery",
    "25006": "The server only reads: it is a standby, or default_transaction_read_only is set",
}
"""Advice for errors that are no item's fault, by code or its beginning."""

_OUTAGES = ("08", "28", "3D000", "42501", "53", "55P03", "57", "58", "25006", "XX")
_SOON = ("08", "53300", "57P")
"""Outages that may pass within seconds."""
_PRIVATE = '"mp_'
"""The beginning of the names of staged rows. If they are gone, their session is gone."""

_REACHED = "Check that the server runs and can be reached"
_CONNECTING = (
    (r"too many (clients|connections)|remaining connection slots", _ADVICE["53300"], True),
    (r"starting up|shutting down|in recovery|recovery mode", _ADVICE["57P"], True),
    (
        r"certificate for .* does not match|certificate .* not match host",
        "Write the host of the URL as the server's certificate has it; add ?hostaddr= if its address is another",
        False,
    ),
    (
        r"does not support SSL",
        "Turn TLS on at the server, or add ?sslmode=disable to the URL if nobody can listen on the way",
        False,
    ),
    (
        r"certificate|SSL",
        "Name the certificate of the server's authority in the URL, as ?sslrootcert=/path/to/ca.pem",
        False,
    ),
    (r'database ".*" does not exist', _ADVICE["3D000"], False),
    (
        r"permission denied for database",
        "Run GRANT CONNECT ON DATABASE for the user",
        False,
    ),
    (r'authentication|pg_hba\.conf|role "|permission denied', _ADVICE["28"], False),
)
"""Messages about a connection, which have no code: a pattern, the advice, and whether the cause may pass within seconds."""

_DENIED = re.compile(
    r"permission denied for (?P<kind>schema|database|table|view|sequence) (?P<name>\S+)"
    r"|must be (?P<owner>owner) of \S+ (?P<owned>\S+)"
    r"|permission denied to create temporary tables in database \"(?P<temporary>[^\"]+)\""
)


def translated(error: psycopg.Error, place: str, sql: str, role: str = "") -> WarehouseError:
    """Returns the error of the contract for one of PostgreSQL's. `place`: the database, for people. `role`: the user."""
    import psycopg

    code = error.sqlstate or ""
    said = f"{place}: {_said(error)}"
    if not code:
        if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return LoadFailed(said)
        told = ((advice, soon) for pattern, advice, soon in _CONNECTING if re.search(pattern, said))
        advice, soon = next(told, (_REACHED, True))
        return Unavailable(f"{said}. Nothing was changed. {advice}, and try again", soon=soon)
    if code in _CONFLICTS or _is_race(error, code):
        return Conflict(said)
    if code == "42P01" and _PRIVATE in sql:
        return Unavailable(f"{said}: the connection was lost, and the staged rows with it", soon=True)
    if code == "42501":
        return Unavailable(f"{said}. Nothing was changed. {_granting(error, role)}, then try again")
    if code.startswith(_OUTAGES):
        advice = _ADVICE.get(code) or _ADVICE.get(code[:3]) or _ADVICE.get(code[:2]) or "Fix the cause"
        return Unavailable(f"{said}. Nothing was changed. {advice}, and try again", soon=code.startswith(_SOON))
    kind = ConstraintViolated if code.startswith("23") else LoadFailed
    return kind(f"{said}\nin the statement: {sql.strip().splitlines()[0] if sql.strip() else ''}")


def _granting(error: psycopg.Error, role: str) -> str:
    """Returns the statement that gives the privilege that an error misses."""
    to = f'TO "{role}"' if role else "to the user"
    found = _DENIED.search(error.diag.message_primary or "")
    if not found:
        return f"Grant this privilege {to}"
    if found["owner"]:
        return f"Run ALTER TABLE {found['owned']} OWNER {to}, or make the user a member of the owner"
    if found["temporary"] or found["kind"] == "database":
        return f'Run GRANT CONNECT, CREATE, TEMPORARY ON DATABASE "{found["temporary"] or found["name"]}" {to}'
    rights = "USAGE, CREATE ON SCHEMA" if found["kind"] == "schema" else "SELECT, INSERT, UPDATE, DELETE ON TABLE"
    return f'Run GRANT {rights} "{found["name"]}" {to}'


def _is_race(error: psycopg.Error, code: str) -> bool:
    """True if two sessions changed the catalog at the same time, as CREATE … IF NOT EXISTS does too."""
    if code == "23505":
        return error.diag.schema_name == "pg_catalog"
    return code == "XX000" and "concurrently" in str(error)


def _said(error: psycopg.Error) -> str:
    """The server's message with its details on one line."""
    parts = [error.diag.message_primary or str(error).strip(), error.diag.message_detail, error.diag.context]
    return "; ".join(" ".join(part.split()) for part in parts if part)
