"""Texts that are longer than their columns: they are refused, or cut and told. Stages the rows of tables for that.

Belongs here: which texts may be cut, and the lengths that people gave to columns. Engines cut what they copy.
"""

from __future__ import annotations

import re

from manifest_platform.column_names import matched
from manifest_platform.column_types import widened
from manifest_platform.listing import BAD_TABLE, Table
from manifest_platform.warehouse.engines.engine import Cut, Engine, Staging
from manifest_platform.warehouse.errors import ValueRefused
from manifest_platform.warehouse.load import Load
from manifest_platform.warehouse.tables import Tables

_SIZED = re.compile(r"string\((\d+)\)")
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
            found = [*staging.cut, *self._made_short(table, staging, cuts)]
        except BaseException:
            self._engine.unstage(staging)
            raise
        return staging, [_told(table, one) for one in found]

    def _copied(self, table: Table, uris: list[str], cuts: bool) -> Staging:
        try:
            return self._engine.stage(table, uris)
        except ValueRefused:
            if not cuts:
                raise
        return self._engine.stage_cut(table, uris)  # only now, because looking for long texts reads all objects

    def _made_short(self, table: Table, staging: Staging, cuts: bool) -> list[Cut]:
        """Cuts or refuses texts longer than people allowed. Sends no query unless a column has a length."""
        if not self._engine.measures_texts:
            return []
        target = (table.target if table.mode == "delete" else table.name) or ""
        have = self._tables.columns_of(target) or {}
        found = []
        for column in table.columns:
            stored = matched(have, self._engine.stored_name(column.name))
            sized = _SIZED.fullmatch(have[stored]) if stored else None
            if not stored or not sized or widened(column.type, have[stored]) == have[stored]:
                continue
            most = int(sized[1])
            name = self._engine.quote(column.name)
            if cuts and column.name not in table.key:
                shorter = f"UPDATE {staging.sql} SET {name} = left({name}, {most}) WHERE char_length({name}) > {most}"  # noqa: S608
                if values := self._engine.write(shorter, staging.parameters):
                    found.append(Cut(column.name, values, f"{most:,} characters"))
            else:
                self._refuse_long(target, stored, name, most, staging)
        return found

    def _refuse_long(self, target: str, stored: str, name: str, most: int, staging: Staging) -> None:
        [(rows, example)] = self._engine.execute(
            f"SELECT count(*), min({name}) FROM {staging.sql} WHERE char_length({name}) > {most}",  # noqa: S608
            staging.parameters,
        )
        if rows:
            raise ValueRefused(
                f"table {self._tables.schema}.{target}, column {stored} holds {most} characters, and {rows:,} rows have more, "
                f"such as {example[:_SHOWN]!r}. Nothing was loaded. Make the column longer, or set load.text to cut; then"
                " resolve the item"
            )


def _told(table: Table, cut: Cut) -> str:
    texts = "1 text" if cut.values == 1 else f"{cut.values:,} texts"
    return f"table {table.name}, column {cut.column}: {texts} cut to {cut.most}, which is what the column holds"
