"""The meaning of Redshift's errors for a load, by their codes and messages."""

from __future__ import annotations

import re

from manifest_platform.warehouse.errors import Conflict, LoadFailed, Unavailable, WarehouseError

_CONFLICTS = re.compile(
    r"\b1023\b|Serializable isolation violation|\b1018\b|deadlock detected|could not complete because of conflict|"
    r"tuple concurrently updated|concurrent transaction",
    re.IGNORECASE,
)
"""Another transaction was first, and this transaction is rolled back."""
_CREATED = re.compile(r"already exists|duplicate key value violates unique constraint", re.IGNORECASE)

_OUTAGES = (
    (
        r"(AccessDenied|ResourceNotFound)\w*\) when calling the GetSecretValue",
        "check that the secret of `secret` exists, and let this program's role read it: secretsmanager:GetSecretValue",
    ),
    (
        r"not authorized to (assume|get credentials of) (IAM )?role|is not attached|IAM role .* not (found|associated)",
        "attach the role of `role` to the cluster or namespace, and grant it: GRANT ASSUMEROLE ON '<role>' TO <user> FOR COPY",
    ),
    (
        r"ExpiredToken|token (included in the request )?(is|has) expired|credentials? (have |has )?expired",
        "the credentials expired: renew them",
    ),
    (
        r"S3ServiceException|Access ?Denied|Status 403|InvalidAccessKeyId|PermanentRedirect|Status 301|SlowDown|Status 503|"
        r"S3 .*(timed? ?out|unreachable)|Failed to initialize S3",
        "let the role of `role` read the shredded objects: s3:GetObject and s3:ListBucket, in the region of the warehouse",
    ),
    (r"permission denied|must be owner", "give the user this privilege: `warehouse grants` prints all of them"),
    (r"disk full|no space left", "the warehouse's disk is full: make room, or add nodes"),
    (r"out of memory|memory limit", "the warehouse has too little memory for the statement"),
    (
        r"statement timeout|cancel(l?ed|ing)|abort(ed)? (by|because of) .*(rule|timeout|WLM)",
        "it was stopped, or took longer than statement_timeout_seconds or a rule of the warehouse allows",
    ),
    (
        r"too many connections|connection limit|maximum number of .*connections",
        "the warehouse has no free connection: end others",
    ),
    (
        r"password authentication failed|role .* does not exist|user .* does not exist|no pg_hba|28000|28P01",
        "check the user and its credentials",
    ),
    (r"database .* does not exist", "create the database, or correct the url"),
    (
        r"(restart|shut)(ing|ting)? ?down|terminating connection|in recovery|(being|is) (paused|resumed|resized)|not available",
        "the warehouse is starting, stopping or paused",
    ),
)
"""Errors that are no item's fault, as patterns of codes and messages, with advice."""
_MISSING = re.compile(
    r"does not exist \(mandatory\)|NoSuchKey|specified key does not exist|Status 404|mandatory file", re.IGNORECASE
)
_UNSTAGED = re.compile(r'"?mp_staged_\w+"? does not exist')
"""Staged rows that are gone: their session ended, and the driver's next statement opened another."""
_SOON = ("08", "57P")
"""Codes of a connection that was cut, and of a server that starts or stops: a repeat within seconds may succeed."""
_OUTAGE_CODES = ("08", "28", "3D000", "42501", "53", "55P03", "57")


_DENIED = re.compile(r"permission denied for (?P<kind>schema|database|relation|table) (?P<name>\S+)")
_TEMPORARY = re.compile(r"permission denied to create temporary tables in database \"?(?P<name>[^\" ]+)")
_OWNED = re.compile(r"must be owner of (?:relation|table) (?P<name>\S+)")
_RIGHTS = {"schema": "USAGE, CREATE ON SCHEMA", "database": "CREATE, TEMP ON DATABASE"}


def translated(error: Exception, place: str, sql: str, user: str = "") -> WarehouseError:
    """Returns the error of the contract for an error of the driver. `place`: the database, for people. `user`: its user."""
    code, message = _parts(error)
    said = f"{place}: {message}"
    if not code:  # the driver's own: the connection broke, or the driver refuses the value
        if _is_of_connection(error):
            advice = _advice(message)
            told = _sentence(advice or "check that the server runs and can be reached")
            return Unavailable(f"{said}. Nothing was changed. {told}, and try again", soon=advice is None)
        return LoadFailed(f"{said}\nin the statement: {_first_line(sql)}")
    if _CONFLICTS.search(message) or (re.match(r"\s*(CREATE|ALTER)\b", sql, re.IGNORECASE) and _CREATED.search(message)):
        return Conflict(said)
    if _UNSTAGED.search(message):
        return Unavailable(f"{said}: the connection was lost, and the staged rows with it", soon=True)
    if _MISSING.search(message):
        return LoadFailed(f"{said}: an object that the listing names is gone. Shred the item again")
    if grant := _grant(message, user):
        return Unavailable(f"{said}. Nothing was changed. {grant}; `warehouse grants` prints all privileges. Then try again")
    if advice := _advice(f"{message} {code}"):
        is_of_data = re.match(r"(relation|column|schema)\b", message) and "does not exist" in message
        if not is_of_data:
            return Unavailable(f"{said}. Nothing was changed. {_sentence(advice)}, and try again", soon=code.startswith(_SOON))
    if code.startswith(_OUTAGE_CODES):
        return Unavailable(f"{said}. Nothing was changed. Fix the cause, and try again", soon=code.startswith(_SOON))
    return LoadFailed(f"{said}\nin the statement: {_first_line(sql)}")


def _grant(message: str, user: str) -> str:
    """Returns the statement that gives the privilege that a message misses; empty if it names none."""
    to = f'TO "{user}"' if user else "to the user"
    if found := _TEMPORARY.search(message):
        return f'Run GRANT TEMP ON DATABASE "{found["name"]}" {to}'
    if found := _OWNED.search(message):
        return f"Run ALTER TABLE {found['name']} OWNER {to}"
    if found := _DENIED.search(message):
        return f'Run GRANT {_RIGHTS.get(found["kind"], "SELECT, INSERT, UPDATE, DELETE ON TABLE")} "{found["name"]}" {to}'
    return ""


def _parts(error: Exception) -> tuple[str, str]:
    """The server's code, empty for an error of the driver itself, and the message on one line."""
    given = error.args[0] if error.args else ""
    if isinstance(given, dict):
        parts = [str(given[name]) for name in ("M", "D", "H") if given.get(name)]
        return str(given.get("C", "")), "; ".join(" ".join(part.split()) for part in parts)
    return "", " ".join(str(part) for part in error.args) or type(error).__name__


def _is_of_connection(error: Exception) -> bool:
    from redshift_connector.error import DataError, InterfaceError, NotSupportedError, OperationalError

    if isinstance(error, DataError | NotSupportedError):
        return False
    return isinstance(error, InterfaceError | OperationalError | OSError) or not type(error).__module__.startswith("redshift")


def breaks(error: Exception) -> bool:
    """True if the connection is of no more use after an error."""
    code, message = _parts(error)
    return (not code and _is_of_connection(error)) or code.startswith(("08", "57P")) or "terminating connection" in message


def _advice(said: str) -> str | None:
    return next((advice for pattern, advice in _OUTAGES if re.search(pattern, said, re.IGNORECASE)), None)


def _sentence(advice: str) -> str:
    return advice[0].upper() + advice[1:]


def _first_line(sql: str) -> str:
    return sql.strip().partition("\n")[0]
