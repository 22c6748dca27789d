"""The `bad` table: what could not be shredded, where it stood, and why.

Belongs here: what every shredder shares of it. Which rows are bad does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from manifest_platform.listing import BAD_TABLE, Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

Reason = dict[str, Any]
"""Why a row is bad: its `type`, a `message`, and what the type needs, such as `field`."""

BAD = Table(
    BAD_TABLE,
    (
        Column("file", "string", nullable=False),
        Column("line", "bigint", nullable=False),
        Column("reasons", "json", nullable=False),
        Column("raw", "string", nullable=False),
    ),
)

LONGEST_QUOTE = 1000  # characters of a value quoted in a reason; the raw line has it whole
_LONGEST_REASON = 300  # characters of an example's reason in a message


@dataclass(frozen=True)
class BadRow:
    """A bad row: the number of its line in its file, the reasons, and its text."""

    line: int
    reasons: list[Reason]
    raw: str


def bad_table(file: str, rows: Iterable[BadRow]) -> pa.Table:
    """The rows of the `bad` table for bad rows of one file."""
    import pyarrow as pa

    from manifest_platform.shred.parquet import arrow_schema

    rows, schema = list(rows), arrow_schema(BAD.columns)
    columns = [
        [file] * len(rows),
        [row.line for row in rows],
        [orjson.dumps(row.reasons).decode() for row in rows],
        [row.raw for row in rows],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def example(bad: pa.Table) -> str:
    """The first bad line in words, without values of the event, which messages are not to spread."""
    [row] = bad.slice(0, 1).to_pylist()
    reason = orjson.loads(row["reasons"])[0]
    subject = reason.get("schema") or reason.get("field") or ""
    text = f"{reason['type']} {subject}".strip() + f": {reason['message'].removeprefix(f'{subject} ')}"
    return f"line {row['line']} of {row['file'].rpartition('/')[2]}: {' '.join(text.split())[:_LONGEST_REASON]}"
