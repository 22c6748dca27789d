"""Queries of PostgreSQL's catalog: columns, and what people added to tables."""

from __future__ import annotations

COLUMNS = """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
    WHERE n.nspname = ? AND c.relkind IN ('r', 'p', 'f') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum"""
"""The tables of a schema, their columns and the types of these, in the order of the columns. Without views."""

VIEWS = """SELECT c.relname
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = ? AND c.relkind IN ('v', 'm')
    ORDER BY c.relname"""
"""The views of a schema."""

REQUIRED = """SELECT c.relname, a.attname
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
    WHERE n.nspname = ? AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped AND NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_constraint AS k
        WHERE k.conrelid = c.oid AND k.contype = 'p' AND a.attnum = ANY (k.conkey))
    ORDER BY c.relname, a.attnum"""
"""The columns of a schema that are NOT NULL, without those of primary keys."""

OWNERS = """SELECT c.relname, pg_catalog.pg_get_userbyid(c.relowner)
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = ? AND c.relkind IN ('r', 'p') AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
    ORDER BY c.relname"""
"""The tables of a schema that the role may not alter, and their owners."""

ATTACHED = """WITH mine AS (
        SELECT c.oid, c.relname, c.relowner, c.relacl, c.relrowsecurity
        FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = ? AND c.relkind IN ('r', 'p')
    )
    SELECT mine.relname, 'index ' || i.relname
        FROM mine JOIN pg_catalog.pg_index AS x ON x.indrelid = mine.oid JOIN pg_catalog.pg_class AS i ON i.oid = x.indexrelid
    UNION SELECT mine.relname, 'constraint ' || k.conname
        FROM mine JOIN pg_catalog.pg_constraint AS k ON k.conrelid = mine.oid
    UNION SELECT mine.relname, 'foreign key ' || k.conname || ' of ' || k.conrelid::pg_catalog.regclass
        FROM mine JOIN pg_catalog.pg_constraint AS k ON k.confrelid = mine.oid
    UNION SELECT mine.relname, CASE v.relkind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END || v.relname
        FROM mine JOIN pg_catalog.pg_depend AS d ON d.refobjid = mine.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
        JOIN pg_catalog.pg_rewrite AS r ON r.oid = d.objid AND d.classid = 'pg_catalog.pg_rewrite'::regclass
        JOIN pg_catalog.pg_class AS v ON v.oid = r.ev_class AND v.oid <> mine.oid
    UNION SELECT mine.relname, 'grant to ' || CASE a.grantee WHEN 0 THEN 'public' ELSE pg_catalog.pg_get_userbyid(a.grantee) END
        FROM mine CROSS JOIN LATERAL pg_catalog.aclexplode(mine.relacl) AS a WHERE a.grantee <> mine.relowner
    UNION SELECT mine.relname, 'comment' || coalesce(' of ' || a.attname, '')
        FROM mine JOIN pg_catalog.pg_description AS d ON d.objoid = mine.oid AND d.classoid = 'pg_catalog.pg_class'::regclass
        LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = mine.oid AND a.attnum = d.objsubid AND d.objsubid > 0
    UNION SELECT mine.relname, 'default of ' || a.attname
        FROM mine JOIN pg_catalog.pg_attribute AS a ON a.attrelid = mine.oid AND a.atthasdef AND NOT a.attisdropped
    UNION SELECT mine.relname, 'not null of ' || a.attname
        FROM mine JOIN pg_catalog.pg_attribute AS a ON a.attrelid = mine.oid AND a.attnum > 0 AND a.attnotnull
            AND NOT a.attisdropped
    UNION SELECT mine.relname, 'trigger ' || t.tgname
        FROM mine JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = mine.oid AND NOT t.tgisinternal
    UNION SELECT mine.relname, 'rule ' || r.rulename
        FROM mine JOIN pg_catalog.pg_rewrite AS r ON r.ev_class = mine.oid
    UNION SELECT mine.relname, 'policy ' || p.polname
        FROM mine JOIN pg_catalog.pg_policy AS p ON p.polrelid = mine.oid
    UNION SELECT mine.relname, 'row security' FROM mine WHERE mine.relrowsecurity
    UNION SELECT mine.relname, 'publication ' || p.pubname
        FROM mine JOIN pg_catalog.pg_publication_rel AS m ON m.prrelid = mine.oid
        JOIN pg_catalog.pg_publication AS p ON p.oid = m.prpubid
    ORDER BY 1, 2"""
"""Everything that depends on the tables of a schema or belongs to them, by table."""

INDEX = """
SELECT 1
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = CAST(CAST(? AS text) AS regclass) AND i.indisvalid AND i.indpred IS NULL
  AND '"' || replace(c.relname, '"', '""') || '"."' || replace(a.attname, '"', '""') || '"' = ?
LIMIT 1
"""
"""An index of a table, by its quoted name, that begins with a column, by the quoted names of both without the schema."""
