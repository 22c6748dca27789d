"""The statements of Redshift, translated for the PostgreSQL behind the stand-in, or refused as Redshift refuses them.

Belongs here: texts of statements. What a session does with them is in `redshift`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

LONGEST_NAME = 127
"""Bytes of a name in Redshift, which cuts longer ones."""
LONGEST_BEHIND = 63
"""Bytes of a name in PostgreSQL: a longer one gets a short name there, which the views of `CATALOG` translate back."""
LONGEST_VARCHAR = 65_535

CATALOG = """
CREATE SCHEMA redshift;
GRANT USAGE ON SCHEMA redshift TO PUBLIC;
CREATE TABLE redshift.names (short name PRIMARY KEY, long text NOT NULL);
CREATE TABLE redshift.attributes (id bigserial, relation oid, diststyle text, distkey text, sortkeys text[], encodes text[]);
GRANT ALL ON ALL TABLES IN SCHEMA redshift TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA redshift TO PUBLIC;
CREATE FUNCTION redshift.long(name) RETURNS text LANGUAGE sql STABLE
    AS 'SELECT coalesce((SELECT long FROM redshift.names WHERE short = $1), $1::text)';
CREATE DOMAIN redshift.super AS text;
CREATE FUNCTION redshift.json_parse(text) RETURNS redshift.super LANGUAGE sql IMMUTABLE STRICT
    AS 'SELECT ($1::json)::text::redshift.super';
CREATE FUNCTION redshift.can_json_parse(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT
    AS 'BEGIN PERFORM $1::json; RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END';
CREATE FUNCTION redshift.json_serialize(redshift.super) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::text';
CREATE FUNCTION redshift.getdate() RETURNS timestamp LANGUAGE sql STABLE AS 'SELECT now()::timestamp(0)';
CREATE FUNCTION redshift.format_type(oid, integer) RETURNS text LANGUAGE sql STABLE AS
    'SELECT CASE WHEN $1 = ''redshift.super''::regtype THEN ''super'' ELSE pg_catalog.format_type($1, $2) END';
CREATE FUNCTION redshift.encodings() RETURNS text[] LANGUAGE sql IMMUTABLE
    AS 'SELECT ARRAY[''none'', ''raw'', ''bytedict'', ''runlength'', ''text255'', ''text32k'', ''lzo'', ''zstd'', ''az64'']';
CREATE FUNCTION redshift.format_encoding(integer) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT (redshift.encodings())[$1]';
CREATE FUNCTION redshift.encoding_of(text[], name) RETURNS integer LANGUAGE sql IMMUTABLE AS
    'SELECT coalesce((SELECT array_position(redshift.encodings(), split_part(one, '' '', 2)) FROM unnest($1) AS one
        WHERE split_part(one, '' '', 1) = $2), 1)';
CREATE VIEW redshift.newest_attributes AS SELECT DISTINCT ON (relation) * FROM redshift.attributes ORDER BY relation, id DESC;
CREATE VIEW redshift.pg_namespace AS SELECT oid, redshift.long(nspname) AS nspname, nspowner FROM pg_catalog.pg_namespace;
CREATE VIEW redshift.pg_class AS
    SELECT c.oid, redshift.long(c.relname) AS relname, c.relnamespace, c.relkind, c.relowner, c.relacl,
        CASE WHEN upper(a.diststyle) = 'ALL' THEN 8 WHEN a.distkey IS NOT NULL THEN 1
            WHEN upper(a.diststyle) = 'EVEN' THEN 0 ELSE 9 END AS reldiststyle
    FROM pg_catalog.pg_class AS c LEFT JOIN redshift.newest_attributes AS a ON a.relation = c.oid;
CREATE VIEW redshift.pg_attribute AS
    SELECT c.attrelid, redshift.long(c.attname) AS attname, c.atttypid, c.atttypmod, c.attnum, c.attisdropped, c.attnotnull,
        coalesce(a.distkey = c.attname, false) AS attisdistkey,
        coalesce(array_position(a.sortkeys, c.attname::text), 0) AS attsortkeyord,
        redshift.encoding_of(a.encodes, c.attname) AS attencodingtype
    FROM pg_catalog.pg_attribute AS c LEFT JOIN redshift.newest_attributes AS a ON a.relation = c.attrelid;
CREATE VIEW redshift.svv_table_info AS
    SELECT current_database()::text AS database, n.nspname AS schema, c.oid AS table_id, c.relname AS "table",
        CASE c.reldiststyle WHEN 8 THEN 'ALL' WHEN 0 THEN 'EVEN' WHEN 9 THEN 'AUTO(EVEN)'
            ELSE 'KEY(' || redshift.long(a.distkey::name) || ')' END AS diststyle,
        coalesce(redshift.long(a.sortkeys[1]::name), 'AUTO(SORTKEY)') AS sortkey1,
        coalesce(array_length(a.sortkeys, 1), 0) AS sortkey_num
    FROM redshift.pg_class AS c JOIN redshift.pg_namespace AS n ON n.oid = c.relnamespace
        LEFT JOIN redshift.newest_attributes AS a ON a.relation = c.oid
    WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'redshift');
CREATE VIEW redshift.svv_columns AS
    SELECT current_database()::text AS table_catalog, redshift.long(table_schema::name) AS table_schema,
        redshift.long(table_name::name) AS table_name, redshift.long(column_name::name) AS column_name, ordinal_position::int,
        column_default::text, is_nullable::text, data_type::text, character_maximum_length::int, numeric_precision::int,
        numeric_scale::int
    FROM information_schema.columns WHERE table_schema <> 'redshift';
CREATE VIEW redshift.svv_transactions AS
    SELECT transactionid::text::bigint AS xid, pid, mode AS lock_mode, locktype AS lockable_object_type, relation, granted
    FROM pg_locks;
CREATE VIEW redshift.pg_table_def AS
    SELECT n.nspname AS schemaname, c.relname AS tablename, a.attname AS "column",
        redshift.format_type(a.atttypid, a.atttypmod) AS type, 'none'::text AS encoding, a.attisdistkey AS distkey,
        a.attsortkeyord AS sortkey, a.attnotnull AS "notnull"
    FROM redshift.pg_class AS c JOIN redshift.pg_namespace AS n ON n.oid = c.relnamespace
        JOIN redshift.pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        AND n.nspname = ANY (SELECT redshift.long(s) FROM unnest(current_schemas(false)) AS s);
GRANT SELECT ON ALL TABLES IN SCHEMA redshift TO PUBLIC;
"""
"""Parts of Redshift's catalog that PostgreSQL lacks, as far as the product reads them."""

_OWN = frozenset(
    {
        "svv_table_info",
        "svv_columns",
        "svv_transactions",
        "pg_table_def",
        "pg_class",
        "pg_attribute",
        "pg_namespace",
        "json_parse",
    }
    | {"can_json_parse", "json_serialize", "getdate", "format_type", "format_encoding", "super"}
)
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)|(?P<string>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")|(?P<word>[A-Za-z_\x80-\U0010ffff][\w$]*)"""
    r"""|(?P<mark>\$\d+)|(?P<number>\d+(?:\.\d+)?)|(?P<other>::|[<>=!|~]+|.)""",
    re.DOTALL,
)


class Refused(Exception):
    """Redshift refuses the statement: its state and its message."""

    def __init__(self, state: str, message: str) -> None:
        self.state = state
        super().__init__(message)


@dataclass(frozen=True)
class Copy:
    """A COPY of Parquet by a manifest."""

    table: str
    manifest: str
    role: str


@dataclass
class Plan:
    """The work for a statement of Redshift: the text for PostgreSQL, and what goes along with it."""

    sql: str
    kind: str = ""
    target: str = ""  # of a write, as PostgreSQL knows it
    after: str = ""  # a statement that records what PostgreSQL has no place for
    copy: Copy | None = None
    long_names: dict[str, str] = field(default_factory=dict)
    outside: str = ""  # why it is refused in a transaction block


@dataclass
class Token:
    """A token of a statement: its kind, and its text."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        """The text of an unquoted word or a sign in upper case; empty for quoted names and texts."""
        return self.text.upper() if self.kind in ("word", "other") else ""


def short_name(name: str) -> str:
    """The name that a long name has in PostgreSQL."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return name.encode()[:40].decode(errors="ignore") + "~" + digest


def tokens(sql: str) -> list[Token]:
    """The tokens of a statement, without white space and comments."""
    found = (Token(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(sql))
    return [token for token in found if token.kind != "space"]


def _text(found: Sequence[Token]) -> str:
    out: list[str] = []
    for place, token in enumerate(found):
        if place and "." not in (token.text, found[place - 1].text):
            out.append(" ")
        out.append(token.text)
    return "".join(out)


def translated(sql: str, case_sensitive: bool) -> Plan:
    """Translates a statement. Raises Refused."""
    plan = Plan("")
    found = tokens(sql.strip().rstrip(";"))
    if any(token.text == ";" for token in found):
        raise Refused("42601", "cannot insert multiple commands into a prepared statement")
    for token in found:
        _name(token, case_sensitive, plan)
    first = found[0].word if found else ""
    plan.kind = first
    _STATEMENTS.get(first, _anything)(found, plan)
    return plan


def _name(token: Token, case_sensitive: bool, plan: Plan) -> None:
    """Makes a name what it is in PostgreSQL: without case unless the session says so, cut, and short."""
    if token.kind not in ("quoted", "word"):
        return
    quoted = token.kind == "quoted"
    name = token.text[1:-1].replace('""', '"') if quoted else token.text
    if quoted and not case_sensitive:
        name = name.lower()
    name = name.encode()[:LONGEST_NAME].decode(errors="ignore")
    if len(name.encode()) > LONGEST_BEHIND:
        name = name if quoted else name.lower()
        plan.long_names[short_name(name)] = name
        token.kind, name, quoted = "quoted", short_name(name), True
    token.text = '"' + name.replace('"', '""') + '"' if quoted else name


def _own(found: list[Token]) -> list[Token]:
    """Gives the stand-in's own views, functions and types their schema, and text and varchar their length."""
    out: list[Token] = []
    for place, token in enumerate(found):
        before = found[place - 1] if place else None
        after = found[place + 1].text if place + 1 < len(found) else ""
        qualified = before is not None and before.text == "."
        if qualified and before and out[-2].word == "PG_CATALOG" and token.text.lower() in _OWN:
            out[-2:] = []
            qualified = False
        if token.kind == "word" and token.text.lower() in _OWN and not qualified and after != ".":
            out.append(Token("word", f"redshift.{token.text.lower()}"))
        elif token.word in ("TEXT", "VARCHAR") and before is not None and (before.word in ("AS", "::")) and after != "(":
            out.append(Token("word", "varchar(256)"))
        else:
            out.append(token)
    return out


def _anything(found: list[Token], plan: Plan) -> None:
    words = [token.word for token in found]
    for place, word in enumerate(words):
        if word == "RETURNING" or (word == "CONFLICT" and words[place - 1] == "ON"):
            raise Refused("42601", f'syntax error at or near "{word}"')
        if word == "COLLATE":
            raise Refused("0A000", 'COLLATE clause is not supported with collation "C"')
        if word == "FOR" and words[place + 1 : place + 2] == ["UPDATE"]:
            raise Refused("0A000", "SELECT FOR UPDATE is not supported")
    plan.sql = _text(_unpivoted(_own(found)))


def _unpivoted(found: list[Token]) -> list[Token]:
    """Translates `UNPIVOT json AS value AT key`, which Redshift has for the entries of a SUPER object."""
    words = [token.word for token in found]
    if "UNPIVOT" not in words:
        return found
    at = words.index("UNPIVOT")
    as_ = words.index("AS", at)
    value, key = found[as_ + 1].text, found[as_ + 3].text
    each = f"LATERAL json_each_text(({_text(found[at + 1 : as_])})::json) AS unpivoted({key}, {value})"
    return [*found[:at], Token("word", each), *found[as_ + 4 :]]


def _table(found: list[Token], place: int) -> tuple[str, int]:
    """The name of a table that begins at a place, and the place after it."""
    end = place + 1
    while end + 1 < len(found) and found[end].text == ".":
        end += 2
    return _text(found[place:end]), end


def _write(found: list[Token], plan: Plan) -> None:
    at = 1 if found[0].word == "UPDATE" else 2
    plan.target, _ = _table(found, at)
    _anything(found, plan)


def _begin(_found: list[Token], plan: Plan) -> None:
    plan.sql = "BEGIN ISOLATION LEVEL REPEATABLE READ"


def _setting(found: list[Token], plan: Plan) -> None:
    at = 1
    name = found[at].text.lower()
    if name in ("query_group", "enable_case_sensitive_identifier"):
        found[at] = Token("word", f"redshift.{name}")
    if name == "enable_case_sensitive_identifier" and found[0].word == "SET":
        plan.kind = "CASE ON" if found[-1].text.strip("'").lower() in ("true", "on", "1") else "CASE OFF"
    plan.sql = _text(found)


def _truncate(found: list[Token], plan: Plan) -> None:
    plan.sql = _text(found)


def _vacuum(found: list[Token], plan: Plan) -> None:
    kept = [token for token in found if token.word not in ("FULL", "SORT", "ONLY", "DELETE", "REINDEX", "RECLUSTER", "BOOST")]
    plan.sql, plan.outside = _text(kept), "VACUUM cannot run inside a transaction block"


def _grant(found: list[Token], plan: Plan) -> None:
    if found[1].word == "ASSUMEROLE":
        plan.sql = "SET redshift.granted = 'assumerole'"
    else:
        plan.sql = _text(found)


def _merge(_found: list[Token], _plan: Plan) -> None:
    raise Refused("0A000", "the stand-in does not know MERGE")


def _copy(found: list[Token], plan: Plan) -> None:
    table, at = _table(found, 1)
    if found[at].text == "(":
        raise Refused("0A000", "Column mapping option argument is not supported for PARQUET based COPY")
    words = [token.word for token in found[at:]]
    source, role = found[at + 1], found[at + 3]
    given = role.text.strip("'") if role.kind == "string" else role.text.lower()
    if words[0] != "FROM" or source.kind != "string" or words[2] != "IAM_ROLE":
        raise Refused("42601", "syntax error: the stand-in knows COPY table FROM 's3://…' IAM_ROLE … FORMAT PARQUET MANIFEST")
    options = [word for word in words[4:] if word != "AS"]
    if sorted(options) != ["FORMAT", "MANIFEST", "PARQUET"] or options.index("FORMAT") + 1 != options.index("PARQUET"):
        raise Refused("0A000", f"{' '.join(words[4:])} is not supported for PARQUET by the stand-in")
    plan.target = table
    plan.copy = Copy(table, source.text[1:-1].replace("''", "'"), given)
    plan.sql = "SET redshift.copy = 'none'"  # parsed and described, but never run


def _closing(found: Sequence[Token], at: int) -> int:
    """The place of the parenthesis that closes the one at a place."""
    depth = 0
    for place in range(at, len(found)):
        depth += {"(": 1, ")": -1}.get(found[place].text, 0)
        if depth == 0:
            return place
    raise Refused("42601", "syntax error at end of input")


def _parts(found: Sequence[Token]) -> Iterator[list[Token]]:
    """The parts of a list that commas separate."""
    depth, part = 0, []
    for token in found:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.text == "," and depth == 0:
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _create(found: list[Token], plan: Plan) -> None:
    words = [token.word for token in found]
    if "UNLOGGED" in words[:3] or words[1] in ("INDEX", "UNIQUE"):
        what = "CREATE INDEX is not supported" if "INDEX" in words[:3] else 'syntax error at or near "UNLOGGED"'
        raise Refused("0A000", what)
    if "VIEW" in words[:5] and words[-4:] == ["WITH", "NO", "SCHEMA", "BINDING"]:
        raise Refused("0A000", "the stand-in does not know late-binding views")
    if "TABLE" not in words[:4]:
        _anything(found, plan)
        return
    at = words.index("TABLE") + 1
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    name, at = _table(found, at)
    if found[at].text != "(":
        _anything(found, plan)
        return
    end = _closing(found, at)
    layout = _Layout()
    columns = [column for part in _parts(found[at + 1 : end]) if (column := _column(part, layout))]
    rest = _table_attributes(found[end + 1 :], layout)
    if layout.distkey and layout.diststyle.upper() not in ("", "KEY"):
        raise Refused("42601", f"Cannot specify DISTKEY with DISTSTYLE {layout.diststyle.upper()}")
    plan.sql = f"{_text(found[:at])} ({', '.join(columns)}) {_text(rest)}"
    plan.after = layout.recorded(name)


@dataclass
class _Layout:
    """The layout of a table, for which PostgreSQL has no place."""

    diststyle: str = ""
    distkey: str = ""
    sortkeys: list[str] = field(default_factory=list)
    encodes: list[str] = field(default_factory=list)

    def recorded(self, name: str) -> str:
        """The statement that records it."""

        def text(value: str) -> str:
            return "'" + value.replace("'", "''") + "'" if value else "NULL"

        def array(values: list[str]) -> str:
            return f"ARRAY[{', '.join(map(text, values))}]::text[]" if values else "NULL"

        values = f"{text(self.diststyle)}, {text(self.distkey)}, {array(self.sortkeys)}, {array(self.encodes)}"
        return (
            "INSERT INTO redshift.attributes (relation, diststyle, distkey, sortkeys, encodes) "
            f"VALUES ({text(name)}::regclass, {values})"
        )


def _bare(token: Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text.lower()


def _column(part: list[Token], layout: _Layout) -> str:
    """The definition of a column for PostgreSQL; empty for a key, which Redshift takes and does not enforce."""
    if part[0].word in ("PRIMARY", "UNIQUE", "FOREIGN", "CONSTRAINT"):
        return ""
    if part[0].word == "CHECK":
        raise Refused("0A000", "CHECK constraints are not supported")
    name, kept, at = part[0], [], 1
    type_, at = _type(part, at)
    while at < len(part):
        word = part[at].word
        if word == "DISTKEY":
            layout.distkey, at = _bare(name), at + 1
        elif word == "SORTKEY":
            layout.sortkeys, at = [*layout.sortkeys, _bare(name)], at + 1
        elif word == "ENCODE":
            layout.encodes, at = [*layout.encodes, f"{_bare(name)} {part[at + 1].text.lower()}"], at + 2
        elif word in ("PRIMARY", "UNIQUE"):
            at += 2 if word == "PRIMARY" else 1
        elif word == "COLLATE":
            raise Refused("0A000", "COLLATE clause is not supported")
        else:
            kept.append(part[at])
            at += 1
    return f"{name.text} {type_} {_text(kept)}"


def _type(part: list[Token], at: int) -> tuple[str, int]:
    """The type that begins at a place, for PostgreSQL, and the place after it."""
    word = part[at].word
    arguments = ""
    after = at + 1
    if after < len(part) and part[after].text == "(":
        end = _closing(part, after)
        arguments, after = _text(part[after + 1 : end]), end + 1
    if word in ("TEXT", "VARCHAR", "NVARCHAR"):
        length = str(LONGEST_VARCHAR) if arguments.upper() == "MAX" else arguments or "256"
        if int(length) > LONGEST_VARCHAR:
            raise Refused("22023", f"length for type character varying cannot exceed {LONGEST_VARCHAR}")
        return f"varchar({length})", after
    if word in ("JSON", "JSONB", "UUID", "BYTEA", "SERIAL", "BIGSERIAL", "MONEY", "XML"):
        raise Refused("0A000", f"unsupported type {word.lower()}")
    if word == "SUPER":
        return "redshift.super", after
    if word == "DOUBLE":
        return "double precision", after + 1
    if word in ("DECIMAL", "NUMERIC"):
        return f"numeric({arguments or '18, 0'})", after
    return part[at].text + (f"({arguments})" if arguments else ""), after


def _table_attributes(found: list[Token], layout: _Layout) -> list[Token]:
    """Takes the attributes of a table out of what follows its columns."""
    at, rest = 0, []
    while at < len(found):
        word = found[at].word
        if word == "DISTSTYLE":
            layout.diststyle, at = found[at + 1].text, at + 2
        elif word == "DISTKEY":
            layout.distkey, at = _bare(found[at + 2]), at + 4
        elif word in ("COMPOUND", "INTERLEAVED"):
            at += 1
        elif word == "SORTKEY" and found[at + 1].word == "AUTO":
            at += 2
        elif word == "SORTKEY":
            end = _closing(found, at + 1)
            layout.sortkeys, at = [_bare(token) for token in found[at + 2 : end] if token.text != ","], end + 1
        elif word in ("ENCODE", "BACKUP"):
            at += 2
        else:
            rest.append(found[at])
            at += 1
    return rest


def _alter(found: list[Token], plan: Plan) -> None:
    words = [token.word for token in found]
    if words[1] != "TABLE":
        _anything(found, plan)
        return
    name, at = _table(found, 2)
    parts = list(_parts(found[at:]))
    if len(parts) > 1:
        raise Refused("0A000", "only one ADD COLUMN or ALTER clause is supported in one ALTER TABLE statement")
    action = words[at : at + 2]
    if action == ["ADD", "COLUMN"] and words[at + 2 : at + 5] == ["IF", "NOT", "EXISTS"]:
        raise Refused("42601", 'syntax error at or near "NOT"')
    if action == ["ADD", "COLUMN"]:
        layout = _Layout()
        column = _column(found[at + 2 :], layout)
        if layout.distkey or layout.sortkeys:
            raise Refused("0A000", "a column with DISTKEY or SORTKEY cannot be added")
        plan.sql = f"ALTER TABLE {name} ADD COLUMN {column}"
    elif action == ["ALTER", "COLUMN"]:
        _alter_type(found, words, name, at, plan)
    elif action[0] == "ALTER" and action[1] in ("SORTKEY", "DISTSTYLE", "DISTKEY", "COMPOUND"):
        layout = _Layout()
        _table_attributes([Token("word", ""), *found[at + 1 :]], layout)
        plan.sql, plan.after = "SET redshift.altered = 'layout'", layout.recorded(name)
    elif action == ["APPEND", "FROM"]:
        raise Refused("0A000", "the stand-in does not know ALTER TABLE APPEND, which commits")
    elif action == ["DROP", "COLUMN"]:
        plan.sql, plan.kind = _text(found), "DROP COLUMN"
        plan.target = name
        plan.after = _bare(found[at + 2])
    else:
        _anything(found, plan)


def _alter_type(found: list[Token], words: list[str], name: str, at: int, plan: Plan) -> None:
    if words[at + 3] != "TYPE":
        raise Refused("42601", f'syntax error at or near "{words[at + 3]}"')
    type_, _ = _type(found, at + 4)
    if not type_.startswith("varchar"):
        raise Refused("0A000", "ALTER COLUMN TYPE is not supported with this data type: only the size of VARCHAR can change")
    plan.outside = "ALTER TABLE ALTER COLUMN cannot run inside a transaction block"
    plan.kind, plan.target = "RESIZE", name
    plan.after = f"{_bare(found[at + 2])} {type_[len('varchar(') : -1]}"
    plan.sql = f"ALTER TABLE {name} ALTER COLUMN {found[at + 2].text} TYPE {type_}"


_STATEMENTS: dict[str, Callable[[list[Token], Plan], None]] = {
    "BEGIN": _begin,
    "START": _begin,
    "INSERT": _write,
    "UPDATE": _write,
    "DELETE": _write,
    "COPY": _copy,
    "CREATE": _create,
    "ALTER": _alter,
    "SET": _setting,
    "SHOW": _setting,
    "TRUNCATE": _truncate,
    "VACUUM": _vacuum,
    "GRANT": _grant,
    "MERGE": _merge,
}
