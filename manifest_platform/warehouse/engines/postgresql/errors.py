"""The meaning of PostgreSQL's errors for a load, by their SQLSTATE codes."""

from __future__ import annotations

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
    "28": "Check the user, the password and the server's pg_hba.conf",
    "3D000": "Create the database, or correct the URL",
    "42501": "Give the role of the URL this privilege, or let it own the object",
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


def translated(error: psycopg.Error, place: str, sql: str) -> WarehouseError:
    """Returns the error of the contract for one of PostgreSQL's. `place`: the database, for people."""
    import psycopg

    code = error.sqlstate or ""
    said = f"{place}: {_said(error)}"
    if not code:
        kind = Unavailable if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) else LoadFailed
        return kind(f"{said}. Nothing was changed. Check that the server runs and can be reached, then try again")
    if code in _CONFLICTS or _is_race(error, code):
        return Conflict(said)
    if code.startswith(_OUTAGES):
        advice = _ADVICE.get(code) or _ADVICE.get(code[:3]) or _ADVICE.get(code[:2]) or "Fix the cause"
        return Unavailable(f"{said}. Nothing was changed. {advice}, and try again")
    kind = ConstraintViolated if code.startswith("23") else LoadFailed
    return kind(f"{said}\nin the statement: {sql.strip().splitlines()[0] if sql.strip() else ''}")


def _is_race(error: psycopg.Error, code: str) -> bool:
    """True if two sessions changed the catalog at the same time, as CREATE … IF NOT EXISTS does too."""
    if code == "23505":
        return error.diag.schema_name == "pg_catalog"
    return code == "XX000" and "concurrently" in str(error)


def _said(error: psycopg.Error) -> str:
    """The server's message with its details on one line."""
    parts = [error.diag.message_primary or str(error).strip(), error.diag.message_detail, error.diag.context]
    return "; ".join(" ".join(part.split()) for part in parts if part)
