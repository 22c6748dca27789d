"""What may run between BEGIN and COMMIT, and the one place through which it does."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.errors import LoadFailed

_IN_TRANSACTION = re.compile(r"\s*(INSERT|UPDATE|DELETE|SELECT|MERGE|COPY)\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = r'"(?:[^"]|"")+"'
_RENAME = re.compile(rf"ALTER TABLE {_NAME}(?:\.{_NAME})* RENAME TO {_NAME}")


class Transaction:
    """One open transaction of an engine: statements that may commit by themselves do not get through."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.committed = False

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one statement that moves rows and returns how many it wrote."""
        refuse_in_transaction(sql)
        return self._engine.write(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one query."""
        refuse_in_transaction(sql)
        return self._engine.execute(sql, parameters)

    def rename(self, sql: str) -> None:
        """Runs the statement of a table's new name, by which a snapshot's tables appear all at once; no other one."""
        refuse_but_rename(sql)
        self._engine.execute(sql)

    def commit(self) -> None:
        """Commits durably. Raises Conflict or Unclear."""
        self._engine.commit()
        self.committed = True


@contextmanager
def opened(engine: Engine) -> Generator[Transaction]:
    """A transaction that is rolled back at its end, unless it was committed."""
    transaction = Transaction(engine)
    engine.begin()
    try:
        yield transaction
    finally:
        if not transaction.committed:
            engine.rollback()


def refuse_in_transaction(sql: str) -> None:
    """Lets pass a single INSERT, UPDATE, DELETE, SELECT, MERGE or COPY; raises LoadFailed for any other statement.

    TRUNCATE, VACUUM or DDL would commit on some engines, and break a load in two that all tests on another engine pass.
    """
    bare = _QUOTED.sub("", sql)
    into_new_table = re.match(r"\s*SELECT\b.*\bINTO\b", bare, re.IGNORECASE | re.DOTALL)
    if not _IN_TRANSACTION.match(bare) or into_new_table or ";" in bare:
        raise LoadFailed(f"not allowed between BEGIN and COMMIT, where some engines would commit at it: {sql}")


def refuse_but_rename(sql: str) -> None:
    """Lets pass exactly `ALTER TABLE x RENAME TO y`, all names quoted; raises LoadFailed for any other statement."""
    if not _RENAME.fullmatch(sql):
        raise LoadFailed(f"not allowed between BEGIN and COMMIT, where only a table's new name is expected: {sql}")
