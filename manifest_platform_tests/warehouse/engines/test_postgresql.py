"""PostgreSQL beyond the contract of engines: its errors, values that it refuses, readers beside loads, cut connections."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest
from pydantic import ValidationError

from manifest_platform import masking, storage
from manifest_platform.listing import Column, Listing, ShreddedObject, Table
from manifest_platform.sources.snowplow.manifest_view import manifest_view
from manifest_platform.testing.loads import (
    FEED,
    PRODUCT,
    SCHEMA,
    SITE,
    day,
    events,
    fences,
    gone,
    ledger,
    load,
    products,
    rows_of,
    snapshot,
    window,
    written,
)
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Warehouse, open_warehouse
from manifest_platform.warehouse.engines.postgresql.engine import PostgreSQL
from manifest_platform.warehouse.engines.postgresql.settings import PostgreSQLSettings
from manifest_platform.warehouse.errors import (
    CannotLoad,
    ConstraintViolated,
    IncompatibleChange,
    LoadFailed,
    Unavailable,
    Unclear,
    ValueRefused,
)
from manifest_platform_tests.servers.postgres import Postgres
from manifest_platform_tests.servers.proxy import Fault, Proxy, proxied

Engines = Iterator[PostgreSQL]
_EXACT = Context(prec=80)


@pytest.fixture
def settings(database: str) -> PostgreSQLSettings:
    return PostgreSQLSettings(url=database)


@pytest.fixture
def engine(settings: PostgreSQLSettings) -> Engines:
    with closing(settings.open(patience=2)) as opened:
        yield opened


@pytest.fixture
def shop(engine: PostgreSQL) -> Warehouse:
    return Warehouse(engine, SCHEMA)


@pytest.fixture
def beside(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a user, which commits each statement."""
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        yield connection


def one(directory: Path, item: str, type_: str, *values: Any) -> Listing:
    """A listing of a table with one column."""
    return written(directory, item, [(Table("t", (Column("v", type_),)), [{"v": value} for value in values])])


def connected(server: Postgres) -> socket.socket:
    """A connection to the server's socket, for who stands between."""
    found = socket.socket(socket.AF_UNIX)
    found.connect(str(server.socket_folder / ".s.PGSQL.5432"))
    return found


# Settings


@pytest.mark.parametrize(
    "url",
    ["mysql://u@h/d", "postgresql://u@h", "postgresql://u:word@h/d", "postgresql://u@h/d?password=word", "postgresql:///"],
)
def test_a_url_without_a_database_or_with_a_password_is_refused(url: str) -> None:
    with pytest.raises(
        ValidationError, match=r"allowed: postgresql://|holds a password; name the environment variable"
    ) as told:
        PostgreSQLSettings(url=url)
    assert "word'" not in str(told.value.errors()[0]["ctx"])


def test_the_place_names_no_user_and_a_deployment_has_a_database_beside() -> None:
    settings = PostgreSQLSettings(url="postgresql://loader@db.example:5433/shop?sslmode=require")
    assert settings.place == "postgresql://db.example:5433/shop"
    assert settings.of_deployment("pr-7").place == "postgresql://db.example:5433/shop_pr_7"
    assert "sslmode=require" in settings.of_deployment("pr-7").model_dump()["url"]


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://u@db.example/d", "verify-full"),
        ("postgresql://u@db.example/d?sslrootcert=/ca.pem", "verify-full"),
        ("postgresql://u@db.example/d?sslmode=require", None),
        ("postgresql://u@/d?host=/run/postgresql", None),
    ],
)
def test_the_certificate_is_verified_unless_the_url_says_otherwise(url: str, mode: str | None) -> None:
    options = PostgreSQLSettings(url=url).open()._options()
    assert options.get("sslmode") == mode
    assert ("sslrootcert" in options) == (mode is not None and "sslrootcert" not in url)
    assert options["application_name"] == "manifest-platform"


def test_a_server_without_tls_is_refused_unless_the_url_allows_it(proxy: tuple[Proxy, PostgreSQLSettings]) -> None:
    _, plain = proxy
    verified = plain.model_copy(update={"url": plain.url.partition("?")[0]})
    with (
        closing(verified.open(patience=30)) as engine,
        pytest.raises(Unavailable, match=r"SSL.*Turn TLS on.*\?sslmode=disable"),
    ):
        Warehouse(engine, SCHEMA).reach()
    with closing(plain.open()) as engine:
        Warehouse(engine, SCHEMA).reach()


class Front:
    """The TLS of a server, which the bundled server was built without: it passes on what it decrypts.

    `received`: everything that a client sent after the handshake.
    """

    def __init__(self, folder: Path, connect: Callable[[], socket.socket]) -> None:
        self.authority, certificate, key = certificates(folder)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._connect = connect
        self.received = b""
        self.asked = threading.Event()

    def run(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            assert client.recv(8) == struct.pack("!ii", 8, 80877103), "the first that is sent is the wish for TLS"
            self.asked.set()
            client.sendall(b"S")
            with self._context.wrap_socket(client, server_side=True) as inner, self._connect() as server:
                threading.Thread(target=self._answer, args=(server, inner), daemon=True).start()
                while data := inner.recv(1 << 16):
                    self.received += data
                    server.sendall(data)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while data := server.recv(1 << 16):
                client.sendall(data)


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Makes a self-signed certificate for `localhost`. Returns it as the authority's, the server's, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "server.pem", folder / "server.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return certificate, certificate, secret


@pytest.mark.parametrize(
    ("host", "is_known", "advice"),
    [
        ("localhost", True, ""),
        ("127.0.0.1", True, "Write the host of the URL as the server's certificate has it"),
        ("localhost", False, "Name the certificate of the server's authority in the URL, as ?sslrootcert="),
    ],
)
def test_a_server_with_another_certificate_gets_no_password(
    postgres_server: Postgres,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    is_known: bool,
    advice: str,
) -> None:
    """The handshake is real, and verified as a URL without `sslmode` says."""
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "not for strangers")
    front = Front(tmp_path, lambda: connected(postgres_server))
    (other := tmp_path / "other").mkdir()
    trusted = front.authority if is_known else certificates(other)[0]
    name = database.partition("?")[0].rpartition("/")[2]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=front.run, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        url = f"postgresql://postgres@{host}:{port}/{name}?sslrootcert={trusted}&gssencmode=disable"
        if host == "localhost":
            url += "&hostaddr=127.0.0.1"
        with closing(PostgreSQLSettings(url=url).open(patience=2)) as engine:
            if not advice:
                assert engine.facts()["encryption"] == "TLS"
                assert front.received
                return
            with pytest.raises(Unavailable) as told:
                engine.execute("SELECT 1")
        assert advice in str(told.value)
        assert front.asked.is_set()
        assert front.received == b"", "nothing is sent to a server that is not the right one"


def test_the_password_comes_from_its_variable_and_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "correct horse battery")
    engine = PostgreSQLSettings(url="postgresql://u@h/d", password_variable="SHOP_PASSWORD").open()
    assert engine._options()["password"] == "correct horse battery"
    assert masking.masked("correct horse battery") == masking.MASK


# Values


def test_decimals_of_every_size_keep_their_digits(shop: Warehouse, engine: PostgreSQL, tmp_path: Path) -> None:
    for precision, scale in ((1, 0), (4, 4), (5, 1), (9, 2), (18, 6), (19, 3), (37, 2), (38, 0), (38, 10), (38, 37), (38, 38)):
        unscaled = [10**precision - 1, 1 - 10**precision, 1, 0, 10_000 % 10**precision]
        words = pa.py_buffer(b"".join(number.to_bytes(16, "little", signed=True) for number in unscaled))
        values = pa.Array.from_buffers(pa.decimal128(precision, scale), len(unscaled), [None, words])
        path = tmp_path / f"{precision}-{scale}.parquet"
        pa.parquet.write_table(pa.table({"v": values}), path)
        table = Table(f"d{precision}_{scale}", (Column("v", f"decimal({precision},{scale})"),))
        found = ShreddedObject(table.name, "2024-05-01", storage.as_uri(path), 5, path.stat().st_size)
        shop.apply(load(Listing(f"{precision:02}-{scale:02}", "1", 5, 5, 0, (table,), (found,))))
        assert {row[0] for row in rows_of(engine, table)} == {Decimal(number).scaleb(-scale, _EXACT) for number in unscaled}


def test_the_statements_of_a_window_are_as_documented(
    shop: Warehouse, engine: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def apply(stop: str) -> list[str]:
        sent.clear()
        shop.apply(window(tmp_path, stop, products(a=stop, b=stop), gone(PRODUCT, "c"), (SITE, [{"id": stop}])))
        return [sql.split()[0] for sql in sent]

    run, copy = engine._run, engine._copy
    monkeypatch.setattr(engine, "_run", lambda sql, values: (sent.append(sql), run(sql, values))[1])
    monkeypatch.setattr(engine, "_copy", lambda table, rows: (sent.append("COPY"), copy(table, rows))[1])
    assert apply("0015").count("CREATE") > 3
    apply("0030")
    moved = ["BEGIN", "UPDATE", "SELECT", "DELETE", "DELETE", "INSERT", "INSERT", "INSERT", "COMMIT"]
    assert apply("0045") == ["COPY", "COPY", "COPY", "SELECT", *moved, "TRUNCATE"]
    assert "= ANY (ARRAY(" in next(sql for sql in sent if sql.startswith("DELETE"))
    engine.execute(f'DROP INDEX "{SCHEMA}"."{PRODUCT.name}__mp_key"')
    engine.close()  # the next session has no staging tables
    assert apply("0060").count("CREATE") == 3
    assert "ANY" not in next(sql for sql in sent if sql.startswith("DELETE")), "a look for each key would take for ever"
    assert rows_of(engine, PRODUCT, "name__v") == [("0060",), ("0060",)]


def test_staging_tables_that_are_gone_are_made_again(shop: Warehouse, engine: PostgreSQL, tmp_path: Path) -> None:
    shop.apply(window(tmp_path, "0015", products(a="1")))
    staging = engine.stage(PRODUCT, [])
    engine.execute(f"DROP TABLE {staging.sql}")
    engine.unstage_all([staging])
    shop.apply(window(tmp_path, "0030", products(a="2")))
    assert rows_of(engine, PRODUCT, "name__v") == [("2",)]


def test_positions_have_the_binary_collation(shop: Warehouse, beside: psycopg.Connection[Any]) -> None:
    shop.prepare(FEED)
    found = beside.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE collation_name = 'C' "
        "AND table_schema = 'manifest_platform' ORDER BY 1"
    ).fetchall()
    assert found == [("fence", "applied"), ("ledger", "position")]


def test_a_text_with_nul_names_its_row_or_loses_the_character_by_option(
    settings: PostgreSQLSettings, shop: Warehouse, engine: PostgreSQL, tmp_path: Path
) -> None:
    listing = one(tmp_path, "a", "string", "fine", "", None, "b\0ad")
    with pytest.raises(ValueRefused, match=r"table t, column v, row 4 of file://.*'b\\x00ad' holds the character NUL"):
        shop.apply(load(listing))
    assert (rows_of(engine, "t"), ledger(engine)) == ([], [])
    removing = settings.model_copy(update={"null_characters": "remove"})
    with closing(open_warehouse(removing, SCHEMA)) as other:
        other.apply(load(listing))
    assert rows_of(engine, "t") == [("",), ("bad",), ("fine",), (None,)]


def test_a_value_that_the_server_refuses_names_its_object_and_row(shop: Warehouse, tmp_path: Path) -> None:
    """The second object's third row is not UTF-8; the first object has two rows."""
    objects = []
    for number, values in enumerate(([b"1", b"2"], [b"3", b"4", b"\xff\xfe"])):
        path = tmp_path / f"{number}.parquet"
        text = pa.array(values, pa.binary()).cast(pa.string(), safe=False)
        pa.parquet.write_table(pa.table({"n": pa.array(range(len(values)), pa.int32()), "v": text}), path)
        objects.append(ShreddedObject("t", "2024-05-01", storage.as_uri(path), len(values), path.stat().st_size))
    table = Table("t", (Column("n", "integer"), Column("v", "string")))
    with pytest.raises(ValueRefused, match=r"table t, column v, row 3 of file://.*/1\.parquet: invalid byte sequence"):
        shop.apply(load(Listing("a", "1", 5, 5, 0, (table,), tuple(objects))))


def test_a_number_beyond_its_column_is_found_before_the_transaction(shop: Warehouse, tmp_path: Path) -> None:
    """Small objects are sent together; the message names the object and the row in it all the same."""
    found = []
    for name, values in (("x", [1, 2, 3]), ("y", [4, 2**40])):
        path = tmp_path / f"{name}.parquet"
        pa.parquet.write_table(pa.table({"v": pa.array(values)}), path)
        found.append(ShreddedObject("t", "2024-05-01", storage.as_uri(path), len(values), path.stat().st_size))
    with pytest.raises(ValueRefused, match=r"table t, column v, row 2 of \S+/y\.parquet: .*1099511627776 not in range"):
        shop.apply(load(Listing("a", "1", 5, 5, 0, (Table("t", (Column("v", "integer"),)),), tuple(found))))


def test_a_text_beyond_a_length_that_a_user_set_is_found_before_the_transaction(
    shop: Warehouse, engine: PostgreSQL, beside: psycopg.Connection[Any], tmp_path: Path
) -> None:
    shop.apply(load(one(tmp_path, "a", "string", "ab")))
    beside.execute("ALTER TABLE shop.t ALTER COLUMN v TYPE varchar(3)")
    with pytest.raises(ValueRefused, match=r"table shop.t, column v holds 3 characters, and 2 rows have more, such as 'abcd'"):
        shop.apply(load(one(tmp_path, "b", "string", "abc", "abcd", "efgh")))
    shop.apply(load(one(tmp_path, "b", "string", "abc", None)))
    assert rows_of(engine, "t") == [("ab",), ("abc",), (None,)]


def test_a_text_beyond_a_length_that_a_user_set_is_cut_if_the_dataset_says_so(
    shop: Warehouse, engine: PostgreSQL, beside: psycopg.Connection[Any], tmp_path: Path
) -> None:
    shop.apply(load(one(tmp_path, "a", "string", "ab")))
    beside.execute("ALTER TABLE shop.t ALTER COLUMN v TYPE varchar(3)")
    applied = shop.apply(replace(load(one(tmp_path, "b", "string", "äöüx", None, "efg")), cuts_texts=True))
    assert rows_of(engine, "t") == [("ab",), ("efg",), ("äöü",), (None,)]
    assert isinstance(applied, Applied)
    assert applied.told == ("table t, column v: 1 text cut to 3 characters, which is what the column holds",)


def test_more_columns_than_a_table_holds_are_refused_before_any_change(
    shop: Warehouse, engine: PostgreSQL, tmp_path: Path
) -> None:
    wide = Table("t", tuple(Column(f"c{n}", "boolean") for n in range(1_601)))
    with pytest.raises(IncompatibleChange, match=r"table shop.t would have 1,601 columns, and the warehouse holds 1,600"):
        shop.apply(load(written(tmp_path, "a", [(wide, [{}])])))
    assert engine.columns(SCHEMA) == {}


def test_a_row_that_is_too_wide_is_refused(shop: Warehouse, tmp_path: Path) -> None:
    wide = Table("t", tuple(Column(f"c{n}", "bigint") for n in range(1_500)))
    rows = [{}, {column.name: n for n, column in enumerate(wide.columns)}]
    with pytest.raises(ValueRefused, match=r"table t, one of its rows: row is too big"):
        shop.apply(load(written(tmp_path, "a", [(wide, rows)])))


# Names


def test_long_names_stay_apart_and_are_recorded(shop: Warehouse, engine: PostgreSQL, tmp_path: Path) -> None:
    """PostgreSQL cuts names after 63 bytes: two tables became one."""
    long = "contexts_com_example_a_schema_with_a_name_that_goes_on_and_on_and_on"
    first, second = (
        Table(
            f"{long}_{n}",
            (Column("id", "string"), Column(f"{long}_x", "integer"), Column(f"{long}_y", "integer")),
            "merge",
            ("id",),
        )
        for n in (1, 2)
    )
    row = {"id": "a", f"{long}_x": 1, f"{long}_y": 2}
    done = shop.apply(window(tmp_path, "1", (first, [row]), (second, [row, {"id": "b"}])))
    assert isinstance(done, Applied)
    assert len([line for line in done.told if "too long" in line]) == 6
    assert shop.row_counts() == {first.name: 1, second.name: 2}
    assert len(engine.columns(SCHEMA)) == 2
    assert all(len(column.encode()) <= 63 for table in engine.columns(SCHEMA).values() for column in table)
    again = shop.apply(window(tmp_path, "2", (first, [{**row, f"{long}_x": 7}]), gone(second, "b")))
    assert isinstance(again, Applied)
    assert again.told == ()
    assert engine.execute(f"SELECT * FROM {engine.qualified(SCHEMA, first.name)}") == [("a", 7, 2)]
    shop.apply(snapshot(tmp_path, "2", (first, [row, {"id": "c"}])))
    assert shop.row_counts() == {first.name: 2, second.name: 0}
    assert {entry.column.stored_as for entry in shop.renamed()} >= set(engine.columns(SCHEMA))


# What people add to tables, and change by hand


def test_what_people_added_to_tables_is_told(
    shop: Warehouse, engine: PostgreSQL, beside: psycopg.Connection[Any], tmp_path: Path
) -> None:
    shop.apply(window(tmp_path, "1", products(a="1")))
    beside.execute("DROP ROLE IF EXISTS reporter_of_shop")
    for statement in (
        "CREATE ROLE reporter_of_shop",
        "CREATE VIEW shop.report AS SELECT * FROM shop.product__v",
        "CREATE MATERIALIZED VIEW shop.stored AS SELECT * FROM shop.product__v",
        "CREATE INDEX by_name ON shop.product__v (name__v)",
        "GRANT SELECT ON shop.product__v TO reporter_of_shop",
        "COMMENT ON COLUMN shop.product__v.id IS 'the key'",
        "ALTER TABLE shop.product__v ALTER COLUMN name__v SET DEFAULT 'none'",
        "ALTER TABLE shop.product__v ADD CONSTRAINT short CHECK (length(name__v) < 9)",
        "CREATE POLICY mine ON shop.product__v USING (true)",
    ):
        beside.execute(statement.encode())
    assert set(engine.attached(SCHEMA)["product__v"]) >= {
        "view report",
        "materialized view stored",
        "index by_name",
        "grant to reporter_of_shop",
        "comment of id",
        "default of name__v",
        "constraint short",
        "policy mine",
    }
    shop.apply(snapshot(tmp_path, "1", products(b="2")))
    assert beside.execute("SELECT * FROM shop.report").fetchall() == [("b", "2")]
    with pytest.raises(ConstraintViolated, match="a constraint that somebody added"):
        shop.apply(window(tmp_path, "2", products(c="more than nine"), epoch=2, serving_epoch=2))
    assert len(engine.attached(SCHEMA)["product__v"]) >= 8
    beside.execute("DROP OWNED BY reporter_of_shop")
    beside.execute("DROP ROLE reporter_of_shop")


def test_a_view_that_keeps_a_column_from_being_widened_is_named(
    shop: Warehouse, engine: PostgreSQL, beside: psycopg.Connection[Any], tmp_path: Path
) -> None:
    shop.apply(load(one(tmp_path, "a", "integer", 1)))
    beside.execute("CREATE VIEW shop.report AS SELECT v FROM shop.t")
    wider = load(one(tmp_path, "b", "bigint", 2**40))
    with pytest.raises(IncompatibleChange, match=r'column "v" must become bigint.*view shop.report depends on column'):
        shop.apply(wider)
    beside.execute("DROP VIEW shop.report")
    assert isinstance(shop.apply(wider), Applied)


def test_a_table_that_was_altered_by_hand_loads_on_or_says_why_not(
    shop: Warehouse, engine: PostgreSQL, beside: psycopg.Connection[Any], tmp_path: Path
) -> None:
    for item in "ab":
        shop.apply(load(events(tmp_path, item, count=1)))
    beside.execute("ALTER TABLE shop.events DROP COLUMN amount")
    assert isinstance(shop.apply(load(events(tmp_path, "c", count=1))), Applied)
    assert sorted(engine.columns(SCHEMA)["events"]) == ["amount", "at", "event_id", "load_tstamp"]
    beside.execute("ALTER TABLE shop.events ALTER COLUMN amount TYPE text")
    shop.close()  # the columns are read again with each lease
    with pytest.raises(IncompatibleChange, match="column amount: the warehouse has string, d has integer"):
        shop.apply(load(events(tmp_path, "d", count=1)))
    beside.execute("ALTER TABLE shop.events RENAME TO former")
    assert isinstance(shop.apply(load(events(tmp_path, "d", count=1))), Applied)
    assert shop.row_counts() == {"events": 1, "former": 3}


# Readers and writers at once


def test_no_reader_is_blocked_by_a_load_and_each_sees_one_state(
    shop: Warehouse, engine: PostgreSQL, database: str, tmp_path: Path
) -> None:
    """A reader has a transaction and a cursor open during an append, changes and a snapshot."""
    shop.apply(window(tmp_path, "1", products(a="1", b="1"), (SITE, [{"id": "s"}])))
    shop.apply(day(tmp_path, "1", "x"))
    with closing(psycopg.connect(database)) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        cursor = reader.cursor(name="open")
        cursor.execute("SELECT id FROM shop.product__v ORDER BY id")
        assert cursor.fetchone() == ("a",)
        for wanted in (
            day(tmp_path, "2", "y"),
            window(tmp_path, "2", products(a="2"), gone(PRODUCT, "b")),
            snapshot(tmp_path, "2", products(z="9")),
        ):
            assert isinstance(shop.apply(wanted), Applied)
            assert reader.execute("SELECT name__v FROM shop.product__v ORDER BY id").fetchall() == [("1",), ("1",)]
        assert cursor.fetchall() == [("b",)]
        reader.commit()
        assert reader.execute("SELECT id, name__v FROM shop.product__v").fetchall() == [("z", "9")]


def test_a_new_column_waits_for_a_reader_without_keeping_others_out(
    shop: Warehouse, database: str, beside: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """ALTER TABLE waits for open readers, and new readers wait behind it: it gives up soon, and is tried again."""
    shop.apply(load(one(tmp_path, "a", "integer", 1)))
    more = Table("t", (Column("v", "integer"), Column("w", "integer")))
    with closing(psycopg.connect(database)) as reader:
        reader.execute("SELECT * FROM shop.t")
        with pytest.raises(Unavailable, match="Another session holds a lock"):
            shop.apply(load(written(tmp_path, "b", [(more, [{}])])))
        beside.execute("SET statement_timeout = 1000")
        assert beside.execute("SELECT v FROM shop.t").fetchall() == [(1,)]
    assert isinstance(shop.apply(load(written(tmp_path, "b", [(more, [{}])]))), Applied)


def test_a_load_waits_for_another_of_its_feed_and_then_knows_that_it_is_behind(
    settings: PostgreSQLSettings,
    shop: Warehouse,
    engine: PostgreSQL,
    beside: psycopg.Connection[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second load's UPDATE of the fence waits on the row's lock, and finds that its condition no longer holds."""
    shop.apply(load(events(tmp_path, "a")))
    commit, outcome = engine.commit, []

    def meanwhile() -> None:
        with closing(open_warehouse(settings, SCHEMA)) as other:
            outcome.append(other.apply(load(events(tmp_path, "b"), record_id="the other")))

    def slow_commit() -> None:
        thread = threading.Thread(target=meanwhile)
        thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE%'"
        while beside.execute(waiting.encode()).fetchall() == [(0,)]:
            assert thread.is_alive()
        commit()
        thread.join(20)

    monkeypatch.setattr(engine, "commit", slow_commit)
    assert isinstance(shop.apply(load(events(tmp_path, "b"))), Applied)
    assert [type(one) for one in outcome] == [AlreadyApplied]
    assert shop.row_counts() == {"events": 6}


# Faults that are no item's


@contextmanager
def role(server: Postgres, database: str, *grants: str) -> Generator[PostgreSQLSettings]:
    """A role with these privileges."""
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        connection.execute("DROP ROLE IF EXISTS loader")
        connection.execute("CREATE ROLE loader LOGIN")
        for grant in grants:
            connection.execute(grant.encode())
        try:
            name = connection.info.dbname
            yield PostgreSQLSettings(url=server.database(name, "loader"))
        finally:
            connection.execute("DROP OWNED BY loader CASCADE")
            connection.execute("DROP ROLE loader")


def test_a_missing_privilege_names_its_grant_and_no_item(
    postgres_server: Postgres, database: str, shop: Warehouse, tmp_path: Path
) -> None:
    with role(postgres_server, database) as settings, closing(open_warehouse(settings, SCHEMA)) as poor:
        with pytest.raises(Unavailable, match=r'GRANT CONNECT, CREATE, TEMPORARY ON DATABASE "warehouse_.*" TO "loader"'):
            poor.apply(load(events(tmp_path, "a")))
        shop.apply(load(events(tmp_path, "a")))
        with pytest.raises(Unavailable, match='GRANT USAGE, CREATE ON SCHEMA "manifest_platform" TO "loader"'):
            poor.apply(load(events(tmp_path, "b")))


def test_a_reader_of_the_view_of_what_is_loaded_needs_nothing_on_the_ledger(
    postgres_server: Postgres, database: str, engine: PostgreSQL, tmp_path: Path
) -> None:
    Warehouse(engine, SCHEMA, view=manifest_view("manifest")).apply(load(events(tmp_path, "a")))
    grants = (f"GRANT USAGE ON SCHEMA {SCHEMA} TO loader", f"GRANT SELECT ON {SCHEMA}.manifest TO loader")
    with role(postgres_server, database, *grants) as settings, closing(settings.open()) as reader:
        assert reader.query("SELECT base FROM manifest", SCHEMA)[1] == [("a/",)]
        with pytest.raises(Unavailable, match="permission denied"):
            reader.query("SELECT * FROM manifest_platform.ledger", SCHEMA)


def test_a_role_with_the_granted_privileges_can_load(
    postgres_server: Postgres, database: str, engine: PostgreSQL, tmp_path: Path
) -> None:
    with (
        role(postgres_server, database, *engine.grants([SCHEMA], "loader")) as settings,
        closing(open_warehouse(settings, SCHEMA)) as warehouse,
    ):
        warehouse.apply(window(tmp_path, "1", products(a="1")))
        warehouse.apply(window(tmp_path, "2", products(b="1"), gone(PRODUCT, "a")))
        warehouse.apply(snapshot(tmp_path, "2", products(c="1")))
        assert warehouse.row_counts() == {PRODUCT.name: 1}


def test_a_connection_that_the_server_refuses_says_why(postgres_server: Postgres, database: str) -> None:
    """Without a code, only the words of the message tell a limit from a wrong login."""
    with role(postgres_server, database) as settings, closing(psycopg.connect(database, autocommit=True)) as owner:
        for statement, undone, advice in (
            ("ALTER ROLE loader CONNECTION LIMIT 0", "ALTER ROLE loader CONNECTION LIMIT -1", "no free connection: end others"),
            ("ALTER ROLE loader NOLOGIN", "ALTER ROLE loader LOGIN", "Check the user, the password"),
        ):
            owner.execute(statement.encode())
            with closing(settings.open(patience=0.2)) as engine, pytest.raises(Unavailable, match=advice):
                Warehouse(engine, SCHEMA).reach()
            owner.execute(undone.encode())


def test_a_wrong_role_or_database_is_not_asked_again(database: str, postgres_server: Postgres) -> None:
    for url in (postgres_server.database("nowhere"), database.replace("postgres@", "stranger@")):
        with closing(PostgreSQLSettings(url=url).open(patience=60)) as engine, pytest.raises(Unavailable) as told:
            Warehouse(engine, SCHEMA).reach()
        assert "does not exist" in str(told.value)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("53100", Unavailable, "disk is full"),
        ("53300", Unavailable, "no free connection"),
        ("57P03", Unavailable, "in recovery"),
        ("25006", Unavailable, "standby"),
        ("XX001", Unavailable, "Fix the cause"),
        ("22012", LoadFailed, "in the statement: SELECT"),
    ],
)
def test_each_error_of_the_server_says_what_to_do(engine: PostgreSQL, code: str, kind: type[Exception], words: str) -> None:
    raising = f"SELECT pg_temp.raising('{code}')"
    engine.execute(
        "CREATE FUNCTION pg_temp.raising(code text) RETURNS integer LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = code; END$$"
    )
    with pytest.raises(kind, match=words):
        engine.execute(raising)
    assert engine.execute("SELECT 1") == [(1,)]


def test_a_deadlock_repeats_the_whole_transaction(
    shop: Warehouse, engine: PostgreSQL, beside: psycopg.Connection[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.apply(load(events(tmp_path, "a")))
    write, raised = engine.write, []

    def deadlocked(sql: str, parameters: Any = ()) -> int:
        if sql.startswith('INSERT INTO "shop"') and not raised:
            raised.append(True)
            engine.execute("DO $$BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END$$")
        return write(sql, parameters)

    monkeypatch.setattr(engine, "write", deadlocked)
    assert isinstance(shop.apply(load(events(tmp_path, "b"))), Applied)
    assert raised
    assert shop.row_counts() == {"events": 6}


def test_a_deferred_constraint_that_refuses_the_commit_fails_the_load(
    shop: Warehouse, engine: PostgreSQL, beside: psycopg.Connection[Any], tmp_path: Path
) -> None:
    shop.apply(load(one(tmp_path, "a", "integer", 1)))
    beside.execute("ALTER TABLE shop.t ADD CONSTRAINT once UNIQUE (v) DEFERRABLE INITIALLY DEFERRED")
    with pytest.raises(CannotLoad, match="duplicate key value violates unique constraint"):
        shop.apply(load(one(tmp_path, "b", "integer", 1)))
    assert fences(engine) == {FEED: (1, 1, "a")}


# Cut connections


@pytest.fixture
def proxy(postgres_server: Postgres, database: str) -> Iterator[tuple[Proxy, PostgreSQLSettings]]:
    """A proxy before the server, and the settings by which it is reached."""
    name = database.partition("?")[0].rpartition("/")[2]
    with proxied(lambda: connected(postgres_server), is_http=False) as running:
        yield running, PostgreSQLSettings(url=f"postgresql://postgres@127.0.0.1:{running.port}/{name}?sslmode=disable")


@pytest.mark.parametrize(
    "words", [b"CREATE TEMPORARY", b"COPY ", b"PGCOPY", b"BEGIN", b'UPDATE "manifest_platform"', b'INSERT INTO "shop"']
)
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, pytest.param(Fault.ANSWER_LOST, marks=pytest.mark.long)])
def test_a_connection_that_is_cut_before_commit_is_made_again_and_the_load_repeated(
    proxy: tuple[Proxy, PostgreSQLSettings], tmp_path: Path, words: bytes, fault: Fault
) -> None:
    running, settings = proxy
    with closing(settings.open()) as earlier:  # its staging tables are not those of the next session
        Warehouse(earlier, SCHEMA).apply(load(events(tmp_path, "a")))
    with closing(settings.open()) as engine:
        shop = Warehouse(engine, SCHEMA)
        running.choose(once(words, fault))
        assert isinstance(shop.apply(load(events(tmp_path, "b"))), Applied)
        assert running.met == 1
        assert (shop.row_counts(), len(ledger(engine))) == ({"events": 6}, 2)


def once(words: bytes, fault: Fault) -> Any:
    """The fault meets the first request with these words."""
    met: list[bool] = []

    def choose(_number: int, request: bytes) -> Fault | None:
        if met or words not in request:
            return None
        met.append(True)
        return fault

    return choose


@pytest.mark.parametrize(("fault", "kind"), [(Fault.REQUEST_LOST, Applied), (Fault.ANSWER_LOST, AlreadyApplied)])
def test_after_a_commit_without_an_answer_the_ledger_decides(
    proxy: tuple[Proxy, PostgreSQLSettings], tmp_path: Path, fault: Fault, kind: type[Applied | AlreadyApplied]
) -> None:
    running, settings = proxy
    with closing(settings.open()) as engine:
        shop = Warehouse(engine, SCHEMA)
        shop.apply(load(events(tmp_path, "a")))
        running.choose(once(b"COMMIT\0", fault))
        with pytest.raises(Unclear):
            shop.apply(load(events(tmp_path, "b")))
        shop.raise_fence(FEED, token=2, epoch=1)
        assert (shop.ledger_entry(FEED, "b", 1) is not None) == (kind is AlreadyApplied)
        assert isinstance(shop.apply(load(events(tmp_path, "b"), token=2)), kind)
        assert (shop.row_counts(), len(ledger(engine))) == ({"events": 6}, 2)


def test_a_server_that_cannot_be_reached_for_a_moment_is_waited_for(
    proxy: tuple[Proxy, PostgreSQLSettings], tmp_path: Path
) -> None:
    running, settings = proxy
    running.choose(lambda number, _request: Fault.REQUEST_LOST if number <= 3 else None)
    with closing(settings.open()) as engine:
        assert isinstance(Warehouse(engine, SCHEMA).apply(load(events(tmp_path, "a"))), Applied)
        assert running.met == 3


def test_a_password_that_cannot_be_used_is_no_items_fault(
    settings: PostgreSQLSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "one\ntwo")
    with (
        closing(settings.open()) as engine,
        pytest.raises(Unavailable, match="WAREHOUSE_PASSWORD: holds the control character"),
    ):
        Warehouse(engine, SCHEMA).apply(load(events(tmp_path, "a")))


# The ledger, which grows with every load


def test_a_load_reads_a_long_ledger_by_its_indexes(engine: PostgreSQL, shop: Warehouse, tmp_path: Path) -> None:
    shop.apply(load(events(tmp_path, "a")))
    engine.execute(
        'INSERT INTO manifest_platform.ledger (dataset, feed, item, "position", epoch, record_id, "rows", applied_at)'
        f" SELECT '{SCHEMA}', '{FEED}', 'item' || n, 'at' || n, 1, 'record' || n, '{{}}', now() "
        "FROM generate_series(1, 5000) AS n"
    )
    engine.execute("ANALYZE manifest_platform.ledger")
    asked: list[tuple[str, Any]] = []
    execute = engine.execute
    setattr(engine, "execute", lambda sql, values=(): asked.append((sql, values)) or execute(sql, values))  # noqa: B010
    shop.apply(load(events(tmp_path, "b"), believed="record-a"))
    shop.ledger_entry(FEED, "b", 1, believed="record-a")
    list(shop.ledger(FEED, 1, after="at99"))
    plans = [execute(f"EXPLAIN {sql}", values) for sql, values in asked if sql.startswith("SELECT") and '"ledger"' in sql]
    assert len(plans) >= 4
    assert not [line for plan in plans for (line,) in plan if "Seq Scan" in line]


# Questions


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO events VALUES (1)",
        "WITH gone AS (DELETE FROM events RETURNING 1) SELECT * FROM gone",
        "SELECT * INTO other FROM events",
        "COPY events TO PROGRAM 'cat'",
        "SET default_transaction_read_only = off",
        "COMMIT",
        "SELECT 1; COMMIT; DELETE FROM events",
        "EXPLAIN ANALYZE DELETE FROM events",
        "SELECT setval('numbers', 9)",
        "DO $$BEGIN DELETE FROM events; END$$",
        "",
    ],
)
def test_only_a_single_query_is_answered(
    settings: PostgreSQLSettings, shop: Warehouse, beside: psycopg.Connection[Any], tmp_path: Path, sql: str
) -> None:
    shop.apply(load(events(tmp_path, "a")))
    beside.execute("CREATE SEQUENCE shop.numbers")
    with closing(open_warehouse(settings, SCHEMA, read_only=True)) as reader:
        with pytest.raises((LoadFailed, Unavailable)):
            reader.query(sql)
        for asked in ("TABLE events", "WITH e AS (SELECT * FROM events) SELECT * FROM e;", "VALUES (1), (2), (3)"):
            assert len(reader.query(asked)[1]) == 3
        assert reader.query("EXPLAIN SELECT * FROM events", most=1)[0] == ["QUERY PLAN"]
        assert reader.query("SHOW server_version")[1]
