"""A PostgreSQL server that is not who it says gets no password, and a database where others were first is not written to."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
import traceback
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from manifest_platform.manifest.store import ABSENT, Put, StoreRejected, StoreUnavailable
from manifest_platform.manifest.stores import check_store, create_store, open_store
from manifest_platform.manifest.stores.postgresql_trust import connect_settings, plain_mode
from manifest_platform.manifest.stores.sql import SqlStore

CANARY = "canary-7Zq-pässword"
ROOTS = "/roots.pem"
_TLS_PLEASE = struct.pack("!I", 80877103)


class Impostor:
    """A server that refuses TLS, unless it has a certificate, asks for the password in clear text, and remembers all."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.heard, self.tls = b"", tls
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            for _ in range(20):
                connection, _ = self._server.accept()
                with connection, suppress(OSError):
                    connection.settimeout(2)
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        for _ in range(5):
            data = connection.recv(4096)
            self.heard += data
            if not data:
                return
            if len(data) != 8:
                connection.sendall(b"R\0\0\0\x08\0\0\0\x03")
            elif self.tls and data.endswith(_TLS_PLEASE):
                connection.sendall(b"S")
                connection = self.tls.wrap_socket(connection, server_side=True)
            else:
                connection.sendall(b"N")

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def impostor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Impostor]:
    monkeypatch.setenv("PGPASSWORD", CANARY)
    for name in ("PGSSLMODE", "PGREQUIREAUTH", "PGSSLROOTCERT", "PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    with closing(Impostor()) as server:
        yield server


@pytest.mark.parametrize(
    ("host", "more", "said"),
    [
        (
            "db.example",
            "",
            "name the authority's file in manifest.store by .sslrootcert=FILE, or allow less there by .sslmode=",
        ),
        ("db.example", "&sslmode=require", "the server must prove its identity by TLS"),
        ("db.example", "&sslmode=prefer", "in a way that lets others read it"),
        ("db.example", "&sslmode=disable", "allow it in manifest.store by .require_auth=password"),
        ("127.0.0.1", "", "in a way that lets others read it"),
        ("localhost", "&sslmode=disable", "in a way that lets others read it"),
    ],
)
def test_a_server_that_refuses_tls_and_asks_for_clear_text_gets_no_password(
    impostor: Impostor, host: str, more: str, said: str
) -> None:
    with pytest.raises(StoreUnavailable, match=said) as caught:
        open_store(f"postgresql://me@{host}:{impostor.port}/db?hostaddr=127.0.0.1{more}")
    assert CANARY.encode() not in impostor.heard
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_password_in_the_url_is_kept_alike(impostor: Impostor) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store(f"postgresql://me:{CANARY}@db.example:{impostor.port}/db?hostaddr=127.0.0.1")
    assert CANARY.encode() not in impostor.heard
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_clear_text_is_given_where_the_operator_says_so(impostor: Impostor) -> None:
    url = f"postgresql://me@db.example:{impostor.port}/db?hostaddr=127.0.0.1&sslmode=disable&require_auth=password"
    with pytest.raises(StoreUnavailable) as caught:
        open_store(url)
    assert CANARY.encode() in impostor.heard
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "settings", "plain"),
    [
        ("postgresql://u@db.example/d", {"sslmode": "verify-full", "sslrootcert": ROOTS}, None),
        ("postgresql://u@10.0.0.1/d", {"sslmode": "verify-full", "sslrootcert": ROOTS}, None),
        ("postgresql://u@localhost,db.example/d", None, None),
        ("postgresql://u@/d?host=localhost,db.example", {"sslmode": "verify-full", "sslrootcert": ROOTS}, None),
        ("postgresql://u@localhost/d?hostaddr=10.0.0.1", {"sslmode": "verify-full", "sslrootcert": ROOTS}, None),
        ("postgresql://u@/d?service=prod", {"sslmode": "verify-full", "sslrootcert": ROOTS}, None),
        ("postgresql://u@db.example/d?sslmode=verify-full&sslrootcert=/own", {}, None),
        (
            "postgresql://u@db.example/d?sslmode=verify-ca",
            {"sslrootcert": ROOTS, "require_auth": "!password,!md5"},
            "verify-ca",
        ),
        ("postgresql://u@db.example/d?sslmode=require", {"require_auth": "!password,!md5"}, "require"),
        ("postgresql://u@db.example/d?sslmode=disable", {"require_auth": "!password,!md5"}, "disable"),
        ("postgresql://u@db.example/d?sslmode=disable&require_auth=md5", {}, "disable"),
        ("postgresql://u@localhost/d", {"require_auth": "!password"}, None),
        ("postgresql://u@127.0.0.1/d?sslmode=disable", {"require_auth": "!password"}, None),
        ("postgresql://u@[::1]/d", {"require_auth": "!password"}, None),
        ("postgresql://u@/d", {"require_auth": "!password"}, None),
        ("postgresql://u@/d?host=/run/postgresql", {"require_auth": "!password"}, None),
    ],
)
def test_what_a_server_must_prove(
    url: str, settings: dict[str, str] | None, plain: str | None, impostor: Impostor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifest_platform.manifest.stores.postgresql_trust._roots", lambda: ROOTS)
    if settings is not None:
        assert connect_settings(sa.make_url(url)) == settings
    assert plain_mode(sa.make_url(url)) == plain


@pytest.mark.parametrize(("host", "more", "is_given"), [
    ("db.example", "", True),
    ("other.example", "", False),
    ("db.example", "&sslrootcert=/etc/ssl/certs/ca-certificates.crt", False),
])  # fmt: skip
def test_a_server_that_proves_who_it_is_gets_the_password(
    impostor: Impostor, host: str, more: str, is_given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's trusted authorities verify the server if the URL names no others."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=db.example"
    made += f" -addext subjectAltName=DNS:db.example -keyout {key} -out {certificate}"
    subprocess.run(made.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    impostor.tls = context
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreUnavailable):
        open_store(f"postgresql://me@{host}:{impostor.port}/db?hostaddr=127.0.0.1&gssencmode=disable{more}")
    assert (CANARY.encode() in impostor.heard) == is_given


def test_the_environment_says_where_but_not_to_ask_for_less(impostor: Impostor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "disable")
    monkeypatch.setenv("PGHOST", "db.example")
    assert connect_settings(sa.make_url("postgresql://u@/d"))["sslmode"] == "verify-full"


# The tables


@pytest.fixture
def mallory(postgres: str) -> Iterator[str]:
    """A role that may create in the schema of the test, and knows nothing else."""
    name = f"mallory_{uuid.uuid4().hex[:8]}"
    _run(postgres, f"CREATE ROLE {name}", f"GRANT CREATE, USAGE ON SCHEMA {_schema(postgres)} TO {name}")
    yield name
    _run(postgres, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def _schema(url: str) -> str:
    return url.rpartition("%3D")[2]


def _run(url: str, *statements: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        for statement in statements:
            found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


_FUNCTION = """CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO taken SELECT current_user::text; RETURN NEW; END $$"""
_TABLE = """CREATE TABLE manifest (partition text COLLATE "C", sort text COLLATE "C", version bigint NOT NULL,
    data text NOT NULL, PRIMARY KEY (partition, sort))"""


def test_a_table_that_another_role_made_beforehand_is_not_written_to(postgres: str, mallory: str) -> None:
    """Its trigger would run as the platform."""
    trap = "CREATE TRIGGER trap BEFORE INSERT ON manifest FOR EACH ROW EXECUTE FUNCTION take()"
    _run(postgres, f"SET ROLE {mallory}", "CREATE TABLE taken (who text)", _FUNCTION, _TABLE, trap)
    for attempt in (open_store, create_store):
        with pytest.raises(StoreRejected) as caught:
            attempt(postgres)
        assert f"table manifest, of role '{mallory}'; trigger trap on manifest, of role '{mallory}'" in str(caught.value)
        assert f"or trust its owner by ?owner={mallory} in manifest.store" in str(caught.value)
    assert _run(postgres, "SELECT * FROM taken") == []


MADE = {
    "trigger trap on manifest": (
        "CREATE TRIGGER trap BEFORE INSERT ON manifest FOR EACH ROW EXECUTE FUNCTION take()",
        "DROP TRIGGER trap ON manifest",
    ),
    "rule trap on manifest": ("CREATE RULE trap AS ON UPDATE TO manifest DO ALSO NOTHING", "DROP RULE trap ON manifest"),
    "row-security policy trap on manifest": ("CREATE POLICY trap ON manifest USING (true)", "DROP POLICY trap ON manifest"),
    "row security of manifest": (
        "ALTER TABLE manifest ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE manifest DISABLE ROW LEVEL SECURITY",
    ),
    "inheritance with heir": ("CREATE TABLE heir () INHERITS (manifest)", "DROP TABLE heir"),
    "default of manifest.data": (
        "ALTER TABLE manifest ALTER data SET DEFAULT upper('x')",
        "ALTER TABLE manifest ALTER data DROP DEFAULT",
    ),
    "type trap of manifest_transactions.trapped": (
        "CREATE DOMAIN trap AS text CHECK (length(VALUE) < 9);ALTER TABLE manifest_transactions ADD trapped trap",
        "DROP DOMAIN trap CASCADE",
    ),
    "constraint trap of manifest": (
        "ALTER TABLE manifest ADD CONSTRAINT trap CHECK (version > 0)",
        "ALTER TABLE manifest DROP CONSTRAINT trap",
    ),
    "index trap on manifest, which runs functions": ("CREATE INDEX trap ON manifest (lower(data))", "DROP INDEX trap"),
    "table manifest": ("ALTER TABLE manifest OWNER TO {mallory}", "ALTER TABLE manifest OWNER TO CURRENT_USER"),
    "schema {schema}": ("ALTER SCHEMA {schema} OWNER TO {mallory}", "ALTER SCHEMA {schema} OWNER TO CURRENT_USER"),
}
"""Objects that may run with the platform's writes or hide rows from it, with the SQL that makes and removes each."""


def test_nothing_of_others_runs_with_the_platforms_writes(postgres: str, mallory: str) -> None:
    open_store(postgres).close()
    _run(postgres, _FUNCTION)
    for named, (making, removing) in MADE.items():
        what, made, gone = (text.format(mallory=mallory, schema=_schema(postgres)) for text in (named, making, removing))
        _run(postgres, made)
        with pytest.raises(StoreRejected, match=f"not the platform's own in schema .*{what}, of role '"):
            open_store(postgres)
        assert what in [difference.setting for difference in check_store(postgres).differences]
        _run(postgres, gone)
        assert check_store(postgres).differences == []
    open_store(postgres).close()


def test_a_role_that_is_named_may_own_the_tables(postgres: str, mallory: str) -> None:
    open_store(postgres).close()
    for table in ("manifest", "manifest_transactions"):
        _run(postgres, f"ALTER TABLE {table} OWNER TO {mallory}")
    named = f"{postgres}&owner={mallory}"
    open_store(named).close()
    assert check_store(named).differences == []
    assert {one.setting for one in check_store(f"{postgres}&owner=other").differences} == {
        "table manifest", "table manifest_transactions"
    }  # fmt: skip


def test_names_mean_what_they_meant_whatever_others_make_in_the_schema(postgres: str, mallory: str) -> None:
    """A function that fits a call better than PostgreSQL's own, and a table in a schema that comes first in the path."""
    first = f"first_{uuid.uuid4().hex[:8]}"
    _run(postgres, f"CREATE SCHEMA {first}", f"GRANT ALL ON SCHEMA {first} TO {mallory}")
    url = postgres.replace(f"%3D{_schema(postgres)}", f"%3D{first},{_schema(postgres)}")
    open_store(postgres).close()
    overload = """CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'taken by %', current_user; END $$"""
    with closing(open_store(url)) as store:
        _run(postgres, f"SET ROLE {mallory}", overload)
        _run(postgres, f"SET ROLE {mallory}", f"SET search_path = {first}", _TABLE)
        assert isinstance(store, SqlStore)
        store.transact("p", [Put("a", {}, ABSENT)], "token")
        with store._database.reader.connect():  # so that the next transaction opens a new connection
            store.transact("p", [Put("b", {}, ABSENT)], "another")
            assert len(store.query("p", "")) == 2
    assert len(_run(postgres, "SELECT * FROM manifest")) == 2
    with pytest.raises(StoreRejected, match=f"schema '{first}'.*table manifest, of role '{mallory}'"):
        open_store(url)
    _run(postgres, f"DROP SCHEMA {first} CASCADE")


def test_a_mode_that_asks_for_less_is_told_by_the_check(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(postgres).close()
    monkeypatch.setattr("manifest_platform.manifest.stores.postgresql_trust._is_here", lambda _: False)
    (found,) = check_store(f"{postgres}&sslmode=disable").differences
    assert (found.setting, found.found, found.mend) == (
        "sslmode", "disable, as manifest.store says", "remove sslmode from manifest.store"
    )  # fmt: skip
