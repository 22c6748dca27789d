"""Snowflake's errors, translated: which of them a repeat may cure, which a person must, and how.

Snowflake tells errors apart by number. Many a number covers several causes, so the words of the message decide then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from manifest_platform.warehouse.errors import (
    Conflict,
    ConstraintViolated,
    LoadFailed,
    Unavailable,
    ValueRefused,
    WarehouseError,
)

if TYPE_CHECKING:
    from snowflake.connector.errors import Error

_LOGIN = {
    390100: "the user or the password is wrong: correct the URL's user, or the secret that password_variable names",
    390111: "the session was closed by the server: the next try opens another",
    390112: "the session has expired: the next try opens another",
    390114: "the session's token has expired: the next try logs in again",
    390144: "the key is not the user's: ALTER USER … SET RSA_PUBLIC_KEY = '…' with the public key that belongs to it",
    390303: "the OAuth token is not valid: renew the secret that token_variable names",
    390318: "the OAuth token has expired: renew the secret that token_variable names",
    390422: "a network policy refuses this machine's address: ask for its address in the policy",
    390432: "a network policy refuses this machine's address: ask for its address in the policy",
}
"""Advice on refused logins, by number."""

_WAREHOUSE = 606, 90109, 90073
_WAREHOUSE_WORDS = ("No active warehouse", "resource monitor", "cannot be resumed", "is suspended")
_CANCELED, _LOCKED, _TIMED_OUT, _DEADLOCK = 604, 625, 630, 640
_INSUFFICIENT = 3001
_ABSENT = 2003, 2043, 2001
_EXISTS = 2002
_SYNTAX = 1003
_TOO_LONG = 100074, 100078, 100082
_NUMBERS = 100038, 100039, 100132
_GONE, _CONSTRAINT = 91016, 100072
_OTHER_TYPE = re.compile(r"cannot change column .+ from type .+ to ")  # of 002108
_TOO_MANY_WAITERS = "number of waiters"
_OPERATED_ON = re.compile(r"privileges to operate on (\w+) '?\"?([\w.$]+)", re.IGNORECASE)
_RIGHTS = {
    "SCHEMA": "USAGE, MONITOR, CREATE TABLE",
    "DATABASE": "USAGE, CREATE SCHEMA",
    "TABLE": "SELECT, INSERT, UPDATE, DELETE",
    "WAREHOUSE": "USAGE, MONITOR",
    "STAGE": "USAGE",
    "INTEGRATION": "USAGE",
}
"""The privileges that loads need on an object, by its kind."""
_ABSENT_KIND = re.compile(r"(Database|Schema|Stage|Integration|Warehouse|Role) '?\"?([^'\"\n]+)", re.IGNORECASE)

_Told = tuple[type[WarehouseError], str]


def translated(error: Error, place: str, sql: str = "", role: str = "") -> WarehouseError:
    """Returns the error to raise for an error of the driver. `sql`: the statement that failed, if there was one.

    `role`: the role of the session, if it is known; messages name it in the GRANT.
    """
    number, text = abs(error.errno or 0), str(error.msg or error)
    kind, advice = _told(error, number, text, sql)
    said = f"{place}: {' '.join(text.split())}"
    if role:
        advice = advice.replace("TO ROLE …", f"TO ROLE {role}")
    what = f". {advice[0].upper()}{advice[1:]}" if advice else ""
    return kind(f"{said}{what}" + (f"\nin the statement: {_first_line(sql)}" if issubclass(kind, LoadFailed) and sql else ""))


def _told(error: Error, number: int, text: str, sql: str) -> _Told:
    for tells in (_of_login, _of_warehouse, _of_locks, _of_privileges, _of_data):
        if found := tells(number, text, sql):
            return found
    return _of_network(error, number)


def _of_login(number: int, text: str, _sql: str) -> _Told | None:
    if number in _LOGIN:
        return Unavailable, _LOGIN[number]
    if "JWT token is invalid" in text:
        return Unavailable, _LOGIN[390144]
    if 390000 <= number < 391000 or number == 250001:
        return Unavailable, "nothing was loaded. Correct the URL, the user or its credentials"
    return None


def _of_warehouse(number: int, text: str, _sql: str) -> _Told | None:
    if "resource monitor" in text:
        return Unavailable, (
            "the quota of the resource monitor is used up: raise it with ALTER RESOURCE MONITOR … SET CREDIT_QUOTA = …, or "
            "wait for its next interval. Nothing was loaded"
        )
    if number in _WAREHOUSE or any(words in text for words in _WAREHOUSE_WORDS):
        return Unavailable, (
            "the virtual warehouse does not run: ALTER WAREHOUSE … RESUME, better ALTER WAREHOUSE … SET AUTO_RESUME = TRUE; "
            "the role needs GRANT USAGE ON WAREHOUSE … TO ROLE …. Nothing was loaded"
        )
    return None


def _of_locks(number: int, text: str, _sql: str) -> _Told | None:
    if number == _DEADLOCK or "deadlock" in text.lower() or _TOO_MANY_WAITERS in text:
        return Conflict, ""
    if number == _LOCKED or "has locked table" in text:
        return Unavailable, (
            "another transaction holds the table. SHOW LOCKS IN ACCOUNT names it; SELECT SYSTEM$ABORT_TRANSACTION(…) ends one "
            "whose program has died, which Snowflake does by itself after 5 minutes"
        )
    if number == _TIMED_OUT:
        return Unavailable, "raise statement_seconds, or the virtual warehouse's size. Nothing was loaded"
    if number == _CANCELED:
        return Unavailable, "somebody or this program canceled the statement. Nothing was loaded"
    return None


def _of_privileges(number: int, text: str, sql: str) -> _Told | None:
    if number == _INSUFFICIENT or "Insufficient privileges" in text:
        return Unavailable, f"the role lacks a privilege: {_grant(sql, text)}. `warehouse grants` prints all"
    if number in _ABSENT and (found := _ABSENT_KIND.search(text)):
        what, name = found[1].upper(), found[2].strip()
        return Unavailable, f"create it, or GRANT USAGE ON {what} {name} TO ROLE …. `warehouse grants` prints all privileges"
    if number == _EXISTS:
        # IF NOT EXISTS looks before it creates, so two sessions that create one name meet here.
        return Conflict, ""
    if any(words in text for words in ("Failed to access remote file", "Access Denied", "access denied", "AccessDenied")):
        return Unavailable, (
            "Snowflake cannot read the objects: the stage's or integration's role needs s3:GetObject and s3:GetObjectVersion "
            "on them, and s3:ListBucket on the bucket. Nothing was loaded"
        )
    return None


def _grant(sql: str, text: str) -> str:
    """Returns the GRANT that a statement needs. The message names the schema or table, or else the statement tells its kind."""
    upper = sql.upper()
    if found := _OPERATED_ON.search(text):
        kind, name = found[1].upper(), found[2]
        if kind == "TABLE" and upper.lstrip().startswith("ALTER"):
            return f"GRANT OWNERSHIP ON TABLE {name} TO ROLE … COPY CURRENT GRANTS"
        if kind == "SCHEMA" and upper.lstrip().startswith("CREATE VIEW"):
            return f"GRANT CREATE VIEW ON SCHEMA {name} TO ROLE …"
        if kind in _RIGHTS:
            return f"GRANT {_RIGHTS[kind]} ON {kind} {name} TO ROLE …"
    for begin, grant in (
        ("CREATE SCHEMA", "GRANT CREATE SCHEMA ON DATABASE … TO ROLE …"),
        ("CREATE TRANSIENT SCHEMA", "GRANT CREATE SCHEMA ON DATABASE … TO ROLE …"),
        ("CREATE VIEW", "GRANT CREATE VIEW ON SCHEMA … TO ROLE …"),
        ("CREATE", "GRANT CREATE TABLE ON SCHEMA … TO ROLE …"),
        ("ALTER", "GRANT OWNERSHIP ON TABLE … TO ROLE … COPY CURRENT GRANTS"),
        ("COPY", "GRANT USAGE ON STAGE … TO ROLE …, or GRANT USAGE ON INTEGRATION … TO ROLE …"),
        ("USE WAREHOUSE", "GRANT USAGE ON WAREHOUSE … TO ROLE …"),
    ):
        if upper.lstrip().startswith(begin):
            return grant
    if found := re.search(r"on (\w+) '?\"?([\w.$]+)", text):
        return f"GRANT … ON {found[1].upper()} {found[2]} TO ROLE …"
    return "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE … TO ROLE …"


def _of_data(number: int, text: str, _sql: str) -> _Told | None:
    if number in _TOO_LONG or "is too long and would be truncated" in text or "length limit" in text:
        return ValueRefused, (
            "a text is longer than its column, or than the 16 MB that Snowflake holds in one. Set load.text to cut, and "
            "resolve the item; or make it shorter where the item is shredded (shred.types), and reshred the item"
        )
    if number in _NUMBERS or "out of representable range" in text:
        return LoadFailed, "a number does not fit its column. Give the column a wider type (shred.types), then reshred the item"
    if number == _GONE or "was not found. If you are running a copy command" in text:
        return LoadFailed, "an object that the listing names is gone. Reshred the item"
    if number == _CONSTRAINT:
        return ConstraintViolated, ""
    if number == _SYNTAX:
        return LoadFailed, ""
    return None


def _of_network(error: Error, number: int) -> _Told:
    from snowflake.connector import errors

    if 250000 <= number < 260000 or isinstance(error, errors.OperationalError | errors.InterfaceError | errors.HttpError):
        return Unavailable, "nothing was loaded. The next try connects again"
    if isinstance(error, errors.InternalError) or number in (603, 300002) or "Processing aborted by error" in str(error):
        return Unavailable, "an error within Snowflake; a later try may succeed"
    return LoadFailed, ""


def is_of_type_change(error: WarehouseError) -> bool:
    """True if a translated error says that Snowflake does not change a column's type in place, and nothing else is wrong."""
    return _OTHER_TYPE.search(str(error)) is not None


def lost(error: Error) -> bool:
    """True if the connection is of no more use after an error."""
    number = abs(error.errno or 0)
    return 250000 <= number < 260000 or 390100 <= number < 390400


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]
