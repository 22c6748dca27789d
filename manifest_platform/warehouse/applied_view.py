"""A view of the ledger in the schema of a dataset: one row for each loaded item, under the names of another loader's table.

A source declares its name and its columns (`Source.applied_view`). The view is created before the first load
that asks for it, outside of transactions. Once it exists it is left alone, with the grants that people gave.
"""

from __future__ import annotations

from dataclasses import dataclass

from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.errors import LoadFailed, ViewRefused


@dataclass(frozen=True)
class ViewColumn:
    """A column of the view, with its logical type.

    `of`: the column of the ledger with its value. `ending`: a text that follows the value. `is_json`: the value is JSON text.
    """

    name: str
    type: str
    of: str
    ending: str = ""
    is_json: bool = False


@dataclass(frozen=True)
class AppliedView:
    """The view of the items of a feed whose rows are only ever appended, so that the newest entry of each item counts."""

    name: str
    feed: str
    columns: tuple[ViewColumn, ...]


def create(engine: Engine, schema: str, dataset: str, view: AppliedView, ledger: str) -> None:
    """Creates the view, unless it exists. `ledger`: the ledger's quoted name. Raises ViewRefused, and Conflict."""
    place = f"{schema}.{view.name}"
    if not engine.views_span_schemas:
        raise ViewRefused(f"the warehouse cannot have the view {place}: its views read only their own schema")
    if _has(engine, schema, view):
        _require_columns(engine, schema, view)
        return
    if any(engine.compared(name) == engine.compared(view.name) for name in engine.columns(schema)):
        raise ViewRefused(
            f"the view {place} cannot be created, because a table has this name. Rename the table, such as to"
            f" {view.name}_before, or give the view another name. Nothing was loaded"
        )
    try:
        engine.execute(f"CREATE VIEW {engine.qualified(schema, view.name)} AS {query(engine, dataset, view, ledger)}")
    except LoadFailed as error:
        if not _has(engine, schema, view):  # else another worker has created it meanwhile
            raise ViewRefused(f"the view {place} cannot be created. Nothing was loaded. {error}") from error


def query(engine: Engine, dataset: str, view: AppliedView, ledger: str) -> str:
    """Returns the query of the view: the newest entry of each item."""
    columns = ", ".join(f"{_value(engine, one)} AS {engine.quote(one.name)}" for one in view.columns)
    needed = ", ".join(dict.fromkeys(engine.quote(one.of) for one in view.columns))
    return (
        f'SELECT {columns} FROM (SELECT {needed}, row_number() OVER (PARTITION BY "item" '  # noqa: S608
        f'ORDER BY "epoch" DESC, "applied_at" DESC, "token" DESC) AS "nth" FROM {ledger} '
        f'WHERE "dataset" = {_literal(dataset)} AND "feed" = {_literal(view.feed)}) AS applied WHERE applied."nth" = 1'
    )


def _value(engine: Engine, column: ViewColumn) -> str:
    value = f'applied."{column.of}"' + (f" || {_literal(column.ending)}" if column.ending else "")
    return engine.json_value(value) if column.is_json else f"CAST({value} AS {engine.sql_type(column.type)})"


def _has(engine: Engine, schema: str, view: AppliedView) -> bool:
    return engine.compared(view.name) in map(engine.compared, engine.views(schema))


def _require_columns(engine: Engine, schema: str, view: AppliedView) -> None:
    """Raises ViewRefused if an existing view lacks a column of ours. People may have extended it."""
    columns = ", ".join(engine.quote(one.name) for one in view.columns)
    try:
        engine.execute(f"SELECT {columns} FROM {engine.qualified(schema, view.name)} WHERE 1 = 0")  # noqa: S608
    except LoadFailed as error:
        raise ViewRefused(
            f"{schema}.{view.name} is a view of somebody else, or reads what is gone. Drop it, or give ours another name."
            f" Nothing was loaded. {error}"
        ) from error


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
