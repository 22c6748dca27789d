"""A stand-in for Redshift in tests: PostgreSQL behind a proxy of the wire protocol that makes true what differs.

Use the fixture `redshift`: the address of a fresh database, and what a client needs to load it.

True here, as Redshift documents it: COPY of Parquet by a manifest (by position; counts and types must match; a mandatory object
that is missing and a role that may not read are refused); snapshot isolation with error 1023, the snapshot being taken at the
first statement; a write locks its table until the transaction ends; TRUNCATE commits; the size of a VARCHAR changes only
upward, outside of transactions, not with every encoding, and no other type changes; one ADD COLUMN a statement; keys are taken
and not enforced; a VARCHAR counts bytes, and texts compare bytewise; names have 127 bytes and no case, unless the session says
so; SUPER; DISTKEY, SORTKEY and ENCODE; no indexes, no ON CONFLICT, no RETURNING, no COLLATE.

Not true here: a name of more than 63 bytes has a short name in PostgreSQL, which the catalog's views translate back, but not
the labels of a result, nor messages of errors; late-binding views, MERGE and ALTER TABLE APPEND are refused; nothing is slow.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import struct
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.s3 import ACCESS_KEY, REGION, SECRET_KEY
from manifest_platform_tests.servers.redshift_sql import CATALOG, Copy, Plan, Refused, translated
from manifest_platform_tests.servers.shared import shared

ROLE = "arn:aws:iam::123456789012:role/redshift-copy"
"""The role that may read every bucket."""
ROLE_WITHOUT_S3 = "arn:aws:iam::123456789012:role/no-s3"
"""A role that the warehouse may assume, and that may read nothing."""
TEMPLATE = "redshift_template"

_SSL_REQUEST, _CANCEL_REQUEST = 80877103, 80877102
_SNAPSHOT_LOST = "40001"


@dataclass(frozen=True)
class Redshift:
    """A fresh database of the stand-in: where it listens, the database's name, and the PostgreSQL behind it."""

    host: str
    port: int
    database: str
    behind: str

    @property
    def url(self) -> str:
        """The address, as the product reads it."""
        return f"redshift://postgres@{self.host}:{self.port}/{self.database}"

    def copy_to(self, name: str) -> None:
        """Copies the database. Nobody may be connected."""
        self.drop(name)
        self._administer(f"CREATE DATABASE {name} TEMPLATE {self.database}")

    def copy_from(self, name: str) -> None:
        """Sets the database back to a copy. Nobody may be connected."""
        self.drop(self.database)
        self._administer(f"CREATE DATABASE {self.database} TEMPLATE {name}")

    def empty(self) -> None:
        """Makes the database as if nothing had ever been loaded. Nobody may be connected."""
        self.copy_from(TEMPLATE)

    def drop(self, name: str) -> None:
        """Drops a database of the stand-in."""
        self._administer(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _administer(self, sql: str) -> None:
        import psycopg

        with closing(psycopg.connect(self.behind, autocommit=True)) as connection:
            connection.execute(sql)  # ty: ignore[no-matching-overload]

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Runs a statement in the PostgreSQL behind the stand-in."""
        import psycopg

        dsn = f"{self.behind}&client_encoding=utf8".replace("/postgres?", f"/{self.database}?")
        with closing(psycopg.connect(dsn, autocommit=True)) as connection:
            cursor = connection.execute(sql)  # ty: ignore[no-matching-overload]
            return cursor.fetchall() if cursor.description else []


class Broken(Exception):
    """A side has closed its connection."""


class _Wire:
    """Messages of the protocol over one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._file = sock.makefile("rb")

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise Broken
        return data

    def message(self) -> tuple[bytes, bytes]:
        code, size = struct.unpack("!ci", self.read(5))
        return code, self.read(size - 4)

    def send(self, *messages: tuple[bytes, bytes]) -> None:
        self.sock.sendall(b"".join(code + struct.pack("!i", len(body) + 4) + body for code, body in messages))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self.sock.close()


class _Failed(Exception):
    """PostgreSQL refused a statement of the proxy's own; the error goes to the client."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        super().__init__(repr(body))


class _Session(socketserver.BaseRequestHandler):
    """A client's session: its statements are translated and run on a session of PostgreSQL."""

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client = _Wire(self.request)
        assert isinstance(self.server, _Server)
        self.proxy = self.server
        try:
            with closing(_Wire(self.proxy.connected())) as self.behind:
                self._start()
                while True:
                    self._batch()
        except (Broken, OSError, ValueError):
            pass
        finally:
            self.client.close()

    # Starting

    def _start(self) -> None:
        while True:
            size, code = struct.unpack("!ii", self.client.read(8))
            if code == _SSL_REQUEST:
                self.client.sock.sendall(b"N")
                continue
            rest = self.client.read(size - 8)
            break
        if code == _CANCEL_REQUEST:
            self.behind.sock.sendall(struct.pack("!ii", size, code) + rest)
            raise Broken
        given = rest.split(b"\0")
        told = dict(zip(given[::2], given[1::2], strict=False))
        self.database = told[b"database"].decode()
        passed = b"".join(
            name + b"\0" + value + b"\0"
            for name, value in {
                b"user": told[b"user"],
                b"database": told[b"database"],
                b"client_encoding": b"SQL_ASCII",
            }.items()
        )
        packet = struct.pack("!i", code) + passed + b"\0"
        self.behind.sock.sendall(struct.pack("!i", len(packet) + 4) + packet)
        self.status = b"I"
        self.case_sensitive = self.snapshot = False
        self.plans: dict[bytes, Plan] = {}
        self.names: dict[bytes, bytes] = {}
        self.parsed = 0
        self._relay()

    # Batches: the client's messages up to a Sync

    def _batch(self) -> None:
        messages = []
        while not messages or messages[-1][0] != b"S":
            code, body = self.client.message()
            if code == b"X":
                raise Broken
            if code != b"H":
                messages.append((code, body))
        try:
            if messages[0][0] == b"P":
                self._parse(messages)
            elif messages[0][0] == b"B":
                self._run(messages)
            else:
                self._forward(messages)
        except Refused as refused:
            self._refuse(refused)
        except _Failed as failed:
            self.client.send((b"E", failed.body), (b"Z", self.status))

    def _parse(self, messages: list[tuple[bytes, bytes]]) -> None:
        name, sql, rest = messages[0][1].split(b"\0", 2)
        plan = self.plans[name] = translated(sql.decode(), self.case_sensitive)
        self.proxy.remember(self.database, plan.long_names)
        self.parsed += 1  # a name each, because a statement of the proxy's own would take the place of an unnamed statement
        self.names[name] = b"parsed_%d" % self.parsed
        parse = (b"P", self.names[name] + b"\0" + plan.sql.encode() + b"\0" + rest)
        self._forward(
            [parse, *((code, b"S" + self.names[name] + b"\0" if code == b"D" else body) for code, body in messages[1:])]
        )

    def _run(self, messages: list[tuple[bytes, bytes]]) -> None:
        portal, name, rest = messages[0][1].split(b"\0", 2)
        plan = self.plans[name]
        messages = [(b"B", portal + b"\0" + self.names[name] + b"\0" + rest), *messages[1:]]
        inside = self.status == b"T"
        if plan.outside and inside:
            raise Refused("25001", plan.outside)
        if plan.kind.startswith("CASE "):
            self.case_sensitive = plan.kind == "CASE ON"
        if plan.kind == "TRUNCATE" and inside:
            self._query("COMMIT")
        if plan.kind == "DROP COLUMN":
            self._refuse_drop(plan)
        if plan.kind == "RESIZE":
            self._refuse_narrower(plan)
        if not plan.target or plan.kind in ("RESIZE", "DROP COLUMN") or self.status == b"E":
            self._forward(messages)
            if plan.after and plan.kind not in ("RESIZE", "DROP COLUMN") and not self.failed:
                self._query(plan.after)
            return
        if not inside:
            self._query("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            # The snapshot is taken first, then the lock: whoever waited for the lock has an old snapshot.
            self._query(f"SELECT pg_advisory_xact_lock(({_literal(plan.target)}::regclass)::oid::bigint)")
            if plan.copy:
                rows = self._copy(plan.copy)
                told = f"Load into table '{plan.target}' completed, {rows} record(s) loaded successfully."
                answers = [(b"2", b""), (b"N", _fields(S="INFO", C="00000", M=told)), (b"C", b"COPY 0\0")]
                self.failed = False
            else:
                answers = self._collected(messages)
            if not inside:
                self._query("ROLLBACK" if self.failed else "COMMIT")
            self.client.send(*answers, (b"Z", self.status))
        except (Refused, _Failed):
            if not inside and self.status != b"I":
                with contextlib.suppress(_Failed):
                    self._query("ROLLBACK")
            raise

    def _forward(self, messages: list[tuple[bytes, bytes]]) -> None:
        self.behind.send(*messages)
        self._relay()

    def _relay(self) -> None:
        """Passes PostgreSQL's answers on, up to the answer that it is ready."""
        self.failed = False
        while True:
            code, body = self.behind.message()
            if code == b"E":
                self.failed, body = True, _as_redshift(body)
            self.client.send((code, body))
            if code == b"Z":
                self.status = body
                return

    def _collected(self, messages: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        self.behind.send(*messages)
        answers, self.failed = [], False
        while True:
            code, body = self.behind.message()
            if code == b"Z":
                self.status = body
                return answers
            if code == b"E":
                self.failed, body = True, _as_redshift(body)
            answers.append((code, body))

    # Statements of the proxy's own

    def _query(self, sql: str) -> list[list[str | None]]:
        """Runs a statement in the client's session of PostgreSQL and gives its rows as texts. Raises _Failed."""
        self.behind.send((b"Q", sql.encode() + b"\0"))
        return self._answered()

    def _answered(self) -> list[list[str | None]]:
        rows, error = [], None
        while True:
            code, body = self.behind.message()
            if code == b"D":
                rows.append(_values(body))
            elif code == b"E":
                error = _as_redshift(body)
            elif code == b"G":
                return rows
            elif code == b"Z":
                self.status = body
                if error:
                    raise _Failed(error)
                return rows

    def _refuse(self, refused: Refused) -> None:
        """Refuses a statement as PostgreSQL would, so that the open transaction fails too."""
        body = f"RAISE EXCEPTION USING ERRCODE = '{refused.state}', MESSAGE = {_literal(str(refused))};"
        try:
            self._query(f"DO $refusal$BEGIN {body} END$refusal$")
        except _Failed as failed:
            self.client.send((b"E", failed.body), (b"Z", self.status))

    def _refuse_drop(self, plan: Plan) -> None:
        found = self._query(
            "SELECT 1 FROM redshift.newest_attributes "
            f"WHERE relation = {_literal(plan.target)}::regclass AND {_literal(plan.after)} = ANY (sortkeys || distkey)"
        )
        if found:
            raise Refused("0A000", f"cannot drop distkey or sortkey column {plan.after}")

    def _refuse_narrower(self, plan: Plan) -> None:
        column, length = plan.after.rsplit(" ", 1)
        [[type_]] = self._query(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            f"WHERE attrelid = {_literal(plan.target)}::regclass AND attname = {_literal(column)}"
        ) or [[""]]
        [[encoding]] = self._query(
            "SELECT redshift.format_encoding(attencodingtype) FROM redshift.pg_attribute "
            f"WHERE attrelid = {_literal(plan.target)}::regclass AND attname = {_literal(column)}"
        ) or [[""]]
        if encoding in ("bytedict", "runlength", "text255", "text32k"):
            raise Refused("0A000", f'cannot alter column "{column}" with {encoding} encoding')
        have = re.fullmatch(r"character varying\((\d+)\)", type_ or "")
        if not have:
            raise Refused("0A000", f'cannot alter column "{column}" of type {type_}')
        if int(length) < int(have[1]):
            raise Refused("0A000", "target column size should be greater or equal to current maximum column size")

    # COPY

    def _copy(self, copy: Copy) -> int:
        from pyarrow import parquet
        from pyarrow.fs import S3FileSystem

        if copy.role not in (ROLE, ROLE_WITHOUT_S3, "default"):
            raise Refused("XX000", f"User arn:aws:redshift:::dbuser is not authorized to assume IAM Role {copy.role}")
        if copy.role == ROLE_WITHOUT_S3:
            raise Refused("XX000", "S3ServiceException:Access Denied,Status 403,Error AccessDenied")
        system = S3FileSystem(
            access_key=ACCESS_KEY, secret_key=SECRET_KEY, region=REGION, endpoint_override=self.proxy.s3_endpoint()
        )

        def opened(uri: str) -> Any:
            return system.open_input_file(uri.removeprefix("s3://"))

        try:
            with opened(copy.manifest) as stream:
                entries = json.loads(stream.read())["entries"]
        except OSError as error:
            raise Refused("XX000", f"Problem reading manifest file - S3ServiceException: {copy.manifest}: {error}") from error
        columns = self._columns(copy)
        total = 0
        for entry in entries:
            if "content_length" not in entry.get("meta", {}):
                raise Refused("XX000", f"Parse error on manifest: missing meta content_length of {entry['url']}")
            try:
                with opened(entry["url"]) as stream:
                    if stream.size() != entry["meta"]["content_length"]:
                        raise Refused("XX000", f"content_length of {entry['url']} in the manifest is not the object's size")
                    rows = parquet.read_table(stream)
            except FileNotFoundError as error:
                if entry.get("mandatory"):
                    raise Refused("XX000", f"The specified S3 object {entry['url']} does not exist (mandatory)") from error
                continue
            _compare(rows.schema, columns, entry["url"])
            self._send_rows(copy, columns, rows)
            total += rows.num_rows
        return total

    def _columns(self, copy: Copy) -> dict[str, str]:
        found = self._query(
            "SELECT quote_ident(attname), redshift.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute "
            f"WHERE attrelid = {_literal(copy.table)}::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return {name or "": type_ or "" for name, type_ in found}

    def _send_rows(self, copy: Copy, columns: dict[str, str], rows: Any) -> None:
        import pyarrow as pa
        from pyarrow import csv

        naive = [pa.field(one.name, pa.timestamp("us") if pa.types.is_timestamp(one.type) else one.type) for one in rows.schema]
        rows = pa.table([rows.column(n).cast(one.type, safe=False) for n, one in enumerate(naive)], schema=pa.schema(naive))
        self._query(f"COPY {copy.table} ({', '.join(columns)}) FROM STDIN (FORMAT csv)")
        sink = pa.BufferOutputStream()
        csv.write_csv(rows, sink, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        data = sink.getvalue().to_pybytes()
        for start in range(0, len(data), 1 << 20):
            self.behind.send((b"d", data[start : start + (1 << 20)]))
        self.behind.send((b"c", b""))
        try:
            self._answered()
        except _Failed as failed:
            text = failed.body.decode(errors="replace")
            if "Value too long" in text:
                raise Refused(
                    "XX000",
                    "Spectrum Scan Error. code: 15001 context: The length of the data column is longer than the length defined "
                    f"in the table. Table: {copy.table}",
                ) from failed
            raise


def _compare(schema: Any, columns: dict[str, str], uri: str) -> None:
    """Raises Refused unless a file's columns fit a table's, one by one."""
    if len(schema) != len(columns):
        raise Refused(
            "XX000",
            "Unmatched number of columns between table and file. "
            f"Table columns: {len(columns)}, Data columns: {len(schema)}, File name: {uri}",
        )
    for found, (name, type_) in zip(schema, columns.items(), strict=True):
        if not re.fullmatch(_fitting(found.type), type_):
            raise Refused(
                "XX000",
                f"Spectrum Scan Error. File '{uri}' has an incompatible Parquet schema for column {name}. "
                f"Column type: {type_.upper()}, Parquet schema: {found.type} {found.name}",
            )


def _fitting(type_: Any) -> str:
    """A pattern of the types of a table that hold the values of a Parquet column."""
    import pyarrow as pa

    if pa.types.is_decimal(type_):
        return rf"numeric\(\d+,{type_.scale}\)"
    if pa.types.is_timestamp(type_):
        return "timestamp without time zone"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return r"character( varying)?\(\d+\)"
    return {
        pa.bool_(): "boolean",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.date32(): "date",
    }.get(type_, "no type")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _fields(**fields: str) -> bytes:
    return b"".join(name.encode() + text.encode() + b"\0" for name, text in fields.items()) + b"\0"


def _values(body: bytes) -> list[str | None]:
    [count] = struct.unpack_from("!h", body)
    at, values = 2, []
    for _ in range(count):
        [size] = struct.unpack_from("!i", body, at)
        at += 4
        values.append(None if size < 0 else body[at : at + size].decode())
        at += max(size, 0)
    return values


def _as_redshift(body: bytes) -> bytes:
    """Gives PostgreSQL's errors the words of Redshift, where the product reads them."""
    fields = {part[:1].decode(): part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    if fields["C"] == _SNAPSHOT_LOST:
        table = "100123, transactions forming the cycle are: 1, 2 (pid: 3)"
        fields |= {"C": "XX000", "M": "1023", "D": f"Serializable isolation violation on table - {table}"}
    elif fields["C"] == "22001":
        fields["M"] = "Value too long for character type"
    elif fields["C"] == "22003":
        fields["M"] = "Numeric data overflow (result precision)"
    return _fields(**{name: fields[name] for name in "SCMDH" if name in fields})


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, behind: Path, servers: Path, held: ExitStack) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self._behind, self._servers, self._held = behind, servers, held
        self._lock = threading.Lock()
        self._endpoint = ""
        self._known: set[tuple[str, str]] = set()

    def connected(self) -> socket.socket:
        """A new connection to the PostgreSQL behind."""
        found = socket.socket(socket.AF_UNIX)
        found.connect(str(self._behind / ".s.PGSQL.5432"))
        return found

    def s3_endpoint(self) -> str:
        """The endpoint of the tests' S3 server, which is started when the first COPY needs it."""
        with self._lock:
            if not self._endpoint:
                self._endpoint = self._held.enter_context(shared(self._servers, "manifest_platform.demo.s3:s3_at"))
        return self._endpoint

    def remember(self, database: str, names: dict[str, str]) -> None:
        """Records long names in a transaction of its own, so that they last whatever becomes of the client's."""
        import psycopg

        new = {short: long for short, long in names.items() if (database, short) not in self._known}
        if not new:
            return
        with closing(psycopg.connect(_dsn(self._behind, database), autocommit=True)) as connection:
            for short, long in new.items():
                connection.execute("INSERT INTO redshift.names VALUES (%s, %s) ON CONFLICT DO NOTHING", (short, long))
        self._known |= {(database, short) for short in new}


def _dsn(socket_folder: Path, database: str) -> str:
    return f"postgresql://postgres@/{database}?host={socket_folder}"


@contextmanager
def redshift_at(folder: Path) -> Generator[str]:
    """Runs the stand-in before the session's PostgreSQL; gives its address and the folder of PostgreSQL's socket."""
    import psycopg

    with ExitStack() as held:
        behind = Path(held.enter_context(shared(folder.parent, "manifest_platform_tests.servers.postgres:postgres_at")))
        with closing(psycopg.connect(_dsn(behind, "postgres"), autocommit=True)) as connection:
            # Without an encoding, a VARCHAR counts bytes.
            connection.execute(
                f"CREATE DATABASE {TEMPLATE} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
            )
        with closing(psycopg.connect(_dsn(behind, TEMPLATE), autocommit=True)) as connection:
            connection.execute(CATALOG)
        server = held.enter_context(_Server(behind, folder.parent, held))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]} {behind}"
        finally:
            server.shutdown()


def stand_in_of(told: str, database: str) -> Redshift:
    """Returns a database of the stand-in whose address `redshift_at` gave. It need not exist."""
    address, behind = told.split(" ", 1)
    host, port = address.split(":")
    return Redshift(host, int(port), database, _dsn(Path(behind), "postgres"))


@pytest.fixture(scope="session")
def redshift_server(session_folder: Path) -> Iterator[str]:
    """The stand-in's address, and the folder of the socket of the PostgreSQL behind it."""
    with shared(session_folder, f"{__name__}:redshift_at") as address:
        yield address


@pytest.fixture
def redshift(redshift_server: str) -> Redshift:
    """A fresh database of the stand-in."""
    created = stand_in_of(redshift_server, f"test_{uuid.uuid4().hex[:12]}")
    created.empty()
    return created
