"""The checks of a load: assertions on its staged rows, and on the tables as they will be after it.

Belongs here: the settings of `load.checks`, the outcome of a check, and its text for people. `gate` evaluates checks. A failed
check of severity `error` fails the item before anything of it is visible; one of severity `warn` is only reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from manifest_platform.listing import BAD_TABLE, Table
from manifest_platform.settings import KindSettings, Settings

EXAMPLES = 3
"""The number of examples that a failed check shows."""

STAGED, TARGET, ITEM = "staged", "target", "item"
_PLACEHOLDERS = (STAGED, TARGET, ITEM)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SELECT = re.compile(r"\s*(SELECT|WITH)\b", re.IGNORECASE)
_FORBIDDEN = {";": "a semicolon", "--": "a comment", "/*": "a comment", "?": "a question mark"}
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE|COPY|TRUNCATE|CREATE|ALTER|DROP|CALL|INTO)\b", re.IGNORECASE)
_FAILED = re.compile(r"checks? ([a-z0-9_, ]+) failed")


class CheckSettings(Settings):
    """A check of a load. Its `kind` says what it asserts."""

    kind: str
    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,47}$",
        description="name of the check, unique in the dataset; lower case letters, digits, underscore",
    )
    table: str = Field(
        min_length=1,
        description="table whose rows are checked, or a pattern with `*` and `?`. A pattern covers neither bad rows nor rows"
        " that only delete others; the name of such a table does",
    )
    feed: str | None = Field(None, description="the only feed whose items are checked; without it, all feeds of the dataset")
    severity: Literal["error", "warn"] = Field(
        "error",
        description="`error`: a failed check fails the item, before anything of it is visible. `warn`: the item is loaded, and"
        " the failed check is reported",
    )

    def covers(self, table: Table) -> bool:
        """True if the check applies to a table of an item."""
        if table.name == self.table:
            return True
        return table.name != BAD_TABLE and table.mode != "delete" and fnmatchcase(table.name, self.table)

    @property
    def sees_each_item(self) -> bool:
        """True if the check must see the table as it is after each item, so that no other item may be in its transaction."""
        return False

    @property
    def names_one_table(self) -> bool:
        """True if `table` is a name, not a pattern."""
        return not set("*?[") & set(self.table)


def _in_order(low: float | None, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        raise ValueError(f"min {low:g} is above max {high:g}; allowed: min up to max")


class RowsCheck(CheckSettings):
    """A check of the number of staged rows. With neither bound, the number must be that of the shredded rows."""

    kind: Literal["rows"] = Field(description="the number of staged rows")
    min: int | None = Field(None, ge=0, description="least number of rows; an item that lacks the named table has 0 rows of it")
    max: int | None = Field(None, ge=0, description="largest number of rows")

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> RowsCheck:
        _in_order(self.min, self.max)
        return self


class NullsCheck(CheckSettings):
    """A check of the share of staged rows without a value in a column."""

    kind: Literal["nulls"] = Field(description="the share of staged rows without a value in a column")
    column: str = Field(min_length=1, description="the column; items whose table lacks it are not checked")
    max_share: float = Field(0.0, ge=0, le=1, description="largest share of rows whose value is NULL, from 0 to 1")


class UniqueCheck(CheckSettings):
    """A check that values, or combinations of values, occur once. Rows with NULL in one of the columns are not compared."""

    kind: Literal["unique"] = Field(description="values, or combinations of values, occur once")
    columns: tuple[str, ...] = Field(
        min_length=1, description="the columns; items whose table lacks one of them are not checked"
    )
    in_target: bool = Field(
        False,
        description="whether the staged values must also occur once in the table as it will be. That reads the table, inside"
        " the transaction",
    )


class SqlCheck(CheckSettings):
    """A check by a SELECT of your own."""

    kind: Literal["sql"] = Field(description="a SELECT of your own")
    query: str = Field(
        min_length=1,
        description="one SELECT in the warehouse's SQL. `{staged}` stands for the staged rows of the table, `{target}` for the"
        " table as it will be, and `{item}` for the item's id. With `{target}` it runs inside the transaction",
    )
    returns: Literal["rows", "boolean", "number"] = Field(
        "rows",
        description="what the SELECT returns. `rows`: the bad rows; there must be none. `boolean`: a single value, which must"
        " be true. `number`: a single value, which must be from `min` to `max`. A single NULL fails the check",
    )
    min: float | None = Field(None, description="smallest number that passes, if `returns` is `number`")
    max: float | None = Field(None, description="largest number that passes, if `returns` is `number`")

    @field_validator("query")
    @classmethod
    def _is_one_select(cls, query: str) -> str:
        if unknown := [name for name in placeholders(query) if name not in _PLACEHOLDERS]:
            allowed = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS)
            raise ValueError(f"has the placeholder {{{unknown[0]}}}; allowed: {allowed}")
        if not {STAGED, TARGET} & set(placeholders(query)):
            raise ValueError("reads no rows of the load; allowed: a SELECT with {staged} or {target} after FROM")
        bare = _QUOTED.sub("''", query)
        for text, what in _FORBIDDEN.items():
            if text in bare:
                raise ValueError(f"has {what}; allowed: one SELECT without comments, semicolons and question marks")
        if not _SELECT.match(bare):
            raise ValueError("allowed: one SELECT, or WITH and a SELECT")
        if word := _WRITES.search(bare):
            raise ValueError(f"has the word {word[0]}; allowed: one SELECT that writes nothing. Quote a column of that name")
        return query

    @model_validator(mode="after")
    def _has_the_bounds_of_its_result(self) -> SqlCheck:
        bounded = self.min is not None or self.max is not None
        if bounded != (self.returns == "number"):
            raise ValueError("allowed: `min`, `max` or both with `returns: number`, and neither of them otherwise")
        _in_order(self.min, self.max)
        return self

    @property
    def sees_each_item(self) -> bool:
        """True for a SELECT that reads the table as it will be."""
        return self.reads_target

    @property
    def reads_target(self) -> bool:
        """True if the SELECT reads the table as it will be."""
        return TARGET in placeholders(self.query)

    def bound(self, texts: Mapping[str, tuple[str, tuple[Any, ...]]]) -> tuple[str, tuple[Any, ...]]:
        """Returns the SELECT with a SQL text for each placeholder, and the values of these texts in their order."""
        values: list[Any] = []

        def text(found: re.Match[str]) -> str:
            sql, parameters = texts[found[1]]
            values.extend(parameters)
            return sql

        return _PLACEHOLDER.sub(text, self.query), tuple(values)

    def mentions(self, names: Iterable[str]) -> list[str]:
        """Returns the names that the SELECT mentions, compared without case."""
        words = {word.lower() for word in re.findall(r"\w+", _PLACEHOLDER.sub("", self.query))}
        return [name for name in names if name.lower() in words]


AnyCheck = Annotated[CheckSettings, KindSettings(RowsCheck, NullsCheck, UniqueCheck, SqlCheck, optional=False)]
"""The settings of a check of any kind."""


def placeholders(query: str) -> list[str]:
    """Returns the names of the placeholders in a query."""
    return _PLACEHOLDER.findall(query)


def same_names(checks: Collection[CheckSettings]) -> Iterator[str]:
    """Yields a sentence for each name that several checks have."""
    names = [check.name for check in checks]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"the name {name!r} is that of {names.count(name)} checks; allowed: a name for each check"


# Outcomes


@dataclass(frozen=True)
class Checked:
    """The outcome of a check on one table of an item.

    `value`: the number or truth value that was found. `found`, `limit`: what was found, and what is allowed, in words.
    `examples`: some of the rows at fault. `note`: the reason why the check did not apply to the table.
    """

    check: str
    table: str
    severity: str = "error"
    passed: bool = True
    value: float | bool | None = None
    found: str = ""
    limit: str = ""
    examples: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        if self.note:
            return f"check {self.check} of table {self.table} does not apply: {self.note}"
        such = f", such as {'; '.join(self.examples)}" if self.examples else ""
        return f"check {self.check} of table {self.table}: {self.found}; allowed: {self.limit}{such}"

    def document(self) -> dict[str, Any]:
        """Returns the outcome as JSON, without what is empty."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value not in (None, "", ())
        }


def from_document(document: Mapping[str, Any]) -> Checked:
    """Returns the outcome of a document, without keys of other releases."""
    known: dict[str, Any] = {name: value for name, value in document.items() if name in Checked.__dataclass_fields__}
    known["examples"] = tuple(document.get("examples", ()))
    return Checked(**known)


def failed_text(item: str, failed: Collection[Checked]) -> str:
    """Returns the message of an item whose checks failed. Its first line names all of them."""
    names = ", ".join(dict.fromkeys(one.check for one in failed))
    many = "s" if len({one.check for one in failed}) > 1 else ""
    told = "\n".join(str(one) for one in failed)
    return (
        f"{item}: check{many} {names} failed, so nothing was loaded. Correct the data where it comes from, then land and accept"
        f" the item again; or change load.checks, then resolve the item; or skip it\n{told}"
    )


def failed_names(message: str) -> list[str]:
    """Returns the names of the checks that a message of `failed_text` tells about."""
    found = _FAILED.search(message.partition("\n")[0])
    return found[1].split(", ") if found else []
