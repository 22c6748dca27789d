"""Queries of Redshift's catalog: columns, keys, and what people added to tables.

They read the catalog tables that Redshift has from PostgreSQL, which the leader node answers in milliseconds. Its own views
(SVV_COLUMNS) take seconds in a large database.
"""

from __future__ import annotations

import re

COLUMNS = """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE n.nspname = ? AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum"""
"""The tables of a schema, their columns and the types of these, in the order of the columns. Without views."""

VIEWS = """SELECT c.relname
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = ? AND c.relkind = 'v'
    ORDER BY c.relname"""
"""The views of a schema."""

TEXTS = """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        format_type(a.atttypid, a.atttypmod) LIKE 'character(%'
        OR format_encoding(CAST(a.attencodingtype AS integer)) IN ('bytedict', 'runlength', 'text255', 'text32k')
        OR EXISTS (SELECT 1 FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u', 'f')
            AND a.attnum = ANY (k.conkey))
        OR EXISTS (SELECT 1 FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid
            WHERE d.refobjid = c.oid AND d.refobjsubid = a.attnum)
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE n.nspname = ? AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        AND format_type(a.atttypid, a.atttypmod) LIKE 'character%(%'
    ORDER BY c.relname, a.attnum"""
"""The text columns of a schema, and whether ALTER TABLE refuses to change them: CHAR, and VARCHAR that has one of these
encodings, is part of a key, or is used by a view."""

REQUIRED = """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE n.nspname = ? AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT EXISTS (
        SELECT 1 FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype = 'p' AND a.attnum = ANY (k.conkey))
    ORDER BY c.relname, a.attnum"""
"""The columns of a schema that are NOT NULL, without those of primary keys, and their types."""

SCHEMA_OF = """SELECT n.nspname
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"' = ?"""
"""The schema of a table, by its quoted name."""

KEYS = """SELECT a.attisdistkey, a.attsortkeyord <> 0
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"' = ?
        AND '"' || replace(a.attname, '"', '""') || '"' = ? AND c.relkind = 'r' AND NOT a.attisdropped"""
"""True twice if a table is distributed by a column, and sorted by it. Both names are quoted."""

ATTACHED = """SELECT c.relname, 'comment ' || d.description AS what
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        JOIN pg_description AS d ON d.objoid = c.oid
        WHERE n.nspname = ? AND c.relkind = 'r'
    UNION SELECT c.relname, 'view ' || v.relname
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        JOIN pg_depend AS d ON d.refobjid = c.oid
        JOIN pg_rewrite AS r ON r.oid = d.objid
        JOIN pg_class AS v ON v.oid = r.ev_class
        WHERE n.nspname = ? AND c.relkind = 'r' AND v.oid <> c.oid
    ORDER BY 1, 2"""
"""Comments, and the views that Redshift binds to a table and not to its name, by table."""

_LOGICAL_TYPES = {
    "boolean": "boolean",
    "smallint": "integer",
    "integer": "integer",
    "bigint": "bigint",
    "double precision": "double",
    "timestamp without time zone": "timestamp",
    "date": "date",
    "super": "json",
    "character varying": "string",
}


def logical_type(sql_type: str) -> str:
    """Returns the logical type of one of Redshift's; an unknown type unchanged.

    SMALLINT and CHAR are of tables that another loader made: they hold the values that their schemas allow.
    """
    if decimal := re.fullmatch(r"numeric(\(.+\))", sql_type):
        return f"decimal{decimal[1]}"
    if sized := re.fullmatch(r"character varying\((\d+)\)", sql_type):
        length = int(sized[1])
        return "string" if length == 65_535 else f"string({max(1, length // 4)})"
    if fixed := re.fullmatch(r"character(\(\d+\))", sql_type):  # its characters are single bytes
        return f"string{fixed[1]}"
    return _LOGICAL_TYPES.get(sql_type, sql_type)
