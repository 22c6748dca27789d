"""Texts that are longer than their columns: they are refused, or cut and told. Stages the rows of tables for that.

Belongs here: which texts may be cut, and the lengths that people gave to columns. Engines cut what they copy.
"""

from __future__ import annotations

from manifest_platform.column_names import matched
from manifest_platform.listing import BAD_TABLE, Table
from manifest_platform.warehouse.engines.engine import Cut, Engine, Staging
from manifest_platform.warehouse.errors import ValueRefused
from manifest_platform.warehouse.load import Load
from manifest_platform.warehouse.tables import Tables

_SHOWN = 60


class Texts:
    """Stages the rows of loads, with texts that their columns can hold."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self._engine, self._tables = engine, tables

    def staged(self, load: Load, table: Table, uris: list[str]) -> tuple[Staging, list[str]]:
        """Stages the rows of a table. Returns them, and a message for people for each column whose texts were cut.

        Raises ValueRefused if a text is too long and may not be cut. A bad row is for people, and must stop no load. Two keys
        that differ only at their ends must not become one, so keys are never cut.
        """
        cuts = load.cuts_texts or table.name == BAD_TABLE
        staging = self._copied(table, uris, cuts)
        try:
            long = self._long(table, staging, cuts)
            found = self._engine.shortened(table, uris, staging, long) if long else staging
        except BaseException:
            self._engine.unstage(staging)
            raise
        return found, [_told(table, one) for one in found.cut]

    def _copied(self, table: Table, uris: list[str], cuts: bool) -> Staging:
        try:
            return self._engine.stage(table, uris)
        except ValueRefused:
            if not cuts:
                raise
        return self._engine.stage_cut(table, uris)  # only now, because looking for long texts reads all objects

    def _long(self, table: Table, staging: Staging, cuts: bool) -> dict[str, int]:
        """Returns what the columns hold for which texts must be cut; refuses texts that may not be cut.

        Sends no query unless a column holds less than the listing says.
        """
        short = self._tables.short(table) if self._engine.measures_texts else {}
        if not short:
            return {}
        names = list(short)
        sizes = (
            f"coalesce(sum(CASE WHEN {self._engine.size_of(self._engine.quote(name))} > {short[name]} THEN 1 ELSE 0 END), 0)"
            for name in names
        )
        [counts] = self._engine.execute(f"SELECT {', '.join(sizes)} FROM {staging.sql}", staging.parameters)  # noqa: S608
        long = {name: int(rows) for name, rows in zip(names, counts, strict=True) if rows}
        for name, rows in long.items():
            if not cuts or name in table.key:
                self._refuse_long(table, name, short[name], rows, staging)
        return {name: short[name] for name in long}

    def _refuse_long(self, table: Table, column: str, most: int, rows: int, staging: Staging) -> None:
        name, target = self._engine.quote(column), (table.target if table.mode == "delete" else table.name) or ""
        stored = matched(self._tables.columns_of(target) or {}, self._engine.stored_name(column)) or column
        [(example,)] = self._engine.execute(
            f"SELECT min({name}) FROM {staging.sql} WHERE {self._engine.size_of(name)} > {most}",  # noqa: S608
            staging.parameters,
        )
        raise ValueRefused(
            f"table {self._tables.schema}.{target}, column {stored} holds {most:,} {self._engine.text_unit}"
            f", and {rows:,} rows have more, such as {example[:_SHOWN]!r}. Nothing was loaded. Make the column longer, or set"
            " load.text to cut; then resolve the item"
        )


def _told(table: Table, cut: Cut) -> str:
    texts = "1 text" if cut.values == 1 else f"{cut.values:,} texts"
    return f"table {table.name}, column {cut.column}: {texts} cut to {cut.most}, which is what the column holds"
