"""Redshift beyond the contract suite: COPY by groups of files, the layout of tables, its limits, and its errors."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from botocore.exceptions import ClientError
from pydantic import ValidationError
from redshift_connector.error import InterfaceError, ProgrammingError

from manifest_platform import storage
from manifest_platform.listing import BAD_TABLE, Column, Listing, ShreddedObject, Table
from manifest_platform.testing.loads import (
    EVENTS,
    FEED,
    PRODUCT,
    SCHEMA,
    control,
    events,
    load,
    products,
    rows_of,
    snapshot,
    window,
    written,
)
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Warehouse
from manifest_platform.warehouse.engines.engine import Need
from manifest_platform.warehouse.engines.redshift.engine import Redshift
from manifest_platform.warehouse.engines.redshift.errors import translated
from manifest_platform.warehouse.engines.redshift.layout import Layout, attributes, layout_of
from manifest_platform.warehouse.engines.redshift.settings import RedshiftSettings
from manifest_platform.warehouse.errors import CannotLoad, Conflict, LoadFailed, Unavailable, Unclear, ValueRefused
from manifest_platform_tests.servers.proxy import Chooser, Fault, Proxy, proxied
from manifest_platform_tests.servers.redshift import ROLE, ROLE_WITHOUT_S3
from manifest_platform_tests.servers.redshift import Redshift as StandIn


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "of-the-stand-in")


def settings_of(redshift: StandIn, **changes: Any) -> RedshiftSettings:
    return RedshiftSettings.model_validate({"url": f"{redshift.url}?sslmode=disable", "role": ROLE, **changes})


@pytest.fixture
def engine(redshift: StandIn) -> Iterator[Redshift]:
    with closing(settings_of(redshift).open()) as opened:
        yield opened


def in_s3(bucket: str, listing: Listing) -> Listing:
    """Moves the objects of a listing to S3."""
    moved = []
    for found in listing.objects:
        uri = f"{bucket}{storage.local_path(found.uri)}"
        storage.write_bytes(uri, storage.local_path(found.uri).read_bytes())
        moved.append(replace(found, uri=uri))
    return replace(listing, objects=tuple(moved))


def put(bucket: str, table: str, rows: pa.Table) -> ShreddedObject:
    """Writes an object of a table, as shredding does."""
    uri = f"{bucket}/{table}/{uuid.uuid4().hex}.parquet"
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(rows, sink)
    storage.write_bytes(uri, sink.getvalue().to_pybytes())
    return ShreddedObject(table, "2024-05-01", uri, len(rows), sink.tell() if not sink.closed else 1)


def names_in(bucket: str) -> list[str]:
    import boto3

    found = boto3.Session().client("s3").list_objects_v2(Bucket=bucket.removeprefix("s3://"))
    return [one["Key"] for one in found.get("Contents", ())]


# COPY


def test_files_with_other_columns_are_copied_in_groups_and_manifests_are_removed(engine: Redshift, s3_bucket: str) -> None:
    table = Table("t", (Column("a", "bigint"), Column("b", "string(3)"), Column("c", "json")))
    objects = (
        put(s3_bucket, "t", pa.table({"a": pa.array([1], pa.int64()), "b": ["x"], "c": ["1"]})),
        put(s3_bucket, "t", pa.table({"c": ["2"], "b": ["y"], "a": pa.array([2], pa.int64())})),
        put(s3_bucket, "t", pa.table({"b": ["z"], "a": pa.array([3], pa.int32()), "unknown": [1.5]})),
    )
    before = sorted(names_in(s3_bucket))
    Warehouse(engine, SCHEMA).apply(load(Listing("a", "1", 3, 3, 0, (table,), objects)))
    assert rows_of(engine, "t", "a, b, c") == [(1, "x", "1"), (2, "y", "2"), (3, "z", None)]
    assert sorted(names_in(s3_bucket)) == before


@pytest.mark.parametrize(
    ("type_", "values", "why"),
    [
        ("string(2)", ["ok", None, "äöüx€€€"], "row 3, column v: the text has 16 bytes, and its column holds 8"),
        ("string", ["x", "ä" * 32_768], "row 2, column v: the text has 65,536 bytes, and its column holds 65,535"),
        ("string", ["a\0b"], "row 1, column v: the text has a NUL character"),
        ("decimal(6,2)", [Decimal("1.00"), Decimal("12345.67")], r"row 2, column v: the number has more digits than decimal"),
    ],
)
def test_a_value_that_no_column_can_hold_is_named_before_the_transaction(
    engine: Redshift, s3_bucket: str, type_: str, values: list[Any], why: str
) -> None:
    table = Table("t", (Column("v", type_),))
    found = put(s3_bucket, "t", pa.table({"v": pa.array(values, pa.decimal128(20, 2) if "decimal" in type_ else pa.string())}))
    shop = Warehouse(engine, SCHEMA)
    with pytest.raises(ValueRefused, match=why) as raised:
        shop.apply(load(Listing("a", "1", 1, 1, 0, (table,), (found,))))
    assert found.uri in str(raised.value)
    assert rows_of(engine, "t") == []


SCHEMA_OF_RAW = pa.schema({"line": pa.int64(), "raw": pa.string(), "raw_base64": pa.string()})
LONG = "x" + "ä" * 32_767  # 65,535 bytes
RAW = Table(BAD_TABLE, (Column("line", "bigint"), Column("raw", "string"), Column("raw_base64", "string")))


def test_a_bad_line_that_no_column_holds_is_cut_and_does_not_stop_the_load(engine: Redshift, s3_bucket: str) -> None:
    short = {"line": [1], "raw": ["a"], "raw_base64": ["YQ=="]}
    long = {"line": [2, 3, 4], "raw": ["xx" + LONG, LONG, None], "raw_base64": ["YWFh" * 20_000, None, None]}
    objects = tuple(put(s3_bucket, BAD_TABLE, pa.table(rows, schema=SCHEMA_OF_RAW)) for rows in (short, long))
    before = sorted(names_in(s3_bucket))
    applied = Warehouse(engine, SCHEMA).apply(load(Listing("a", "1", 4, 0, 4, (RAW,), objects)))
    rows = rows_of(engine, BAD_TABLE, "line, raw, raw_base64")
    # no half character, and whole groups of base64
    assert rows == [(1, "a", "YQ=="), (2, "xx" + LONG[:-1], "YWFh" * 16_383), (3, LONG, None), (4, None, None)]
    assert isinstance(applied, Applied)
    assert applied.told == (
        "table bad, column raw: 1 text cut to 65,535 bytes, which is what the column holds",
        "table bad, column raw_base64: 1 text cut to 65,532 bytes, which is what the column holds",
    )
    assert sorted(names_in(s3_bucket)) == before


def test_a_long_text_is_cut_only_if_the_dataset_says_so_and_a_key_never(engine: Redshift, s3_bucket: str) -> None:
    table = Table("t", (Column("id", "string"), Column("v", "string"), Column("s", "string(2)")), key=("id",))
    found = put(s3_bucket, "t", pa.table({"id": ["1", "2"], "v": ["a", "x" + LONG], "s": ["123456789", "b"]}))
    shop, wanted = Warehouse(engine, SCHEMA), load(Listing("a", "1", 2, 2, 0, (table,), (found,)))
    with pytest.raises(ValueRefused, match="65,536 bytes"):
        shop.apply(wanted)
    applied = shop.apply(replace(wanted, cuts_texts=True))
    assert rows_of(engine, "t", "id, v, s") == [("1", "a", "12345678"), ("2", "x" + LONG[:-1], "b")]
    assert isinstance(applied, Applied)
    assert len(applied.told) == 2
    keyed = put(s3_bucket, "t", pa.table({"id": ["x" + LONG], "v": ["x" + LONG], "s": ["b"]}))
    with pytest.raises(ValueRefused, match=r"column id: the text has 65,536 bytes") as raised:
        shop.apply(replace(load(Listing("b", "2", 1, 1, 0, (table,), (keyed,))), cuts_texts=True))
    assert keyed.uri in str(raised.value)


def test_a_missing_role_or_stage_is_no_items_fault(redshift: StandIn, s3_bucket: str, tmp_path: Path) -> None:
    wanted = load(in_s3(s3_bucket, events(tmp_path, "a")))
    for changes, advice in (
        ({"role": "arn:aws:iam::210987654321:role/other"}, "GRANT ASSUMEROLE ON"),
        ({"role": ROLE_WITHOUT_S3}, "s3:GetObject and s3:ListBucket"),
        ({"manifests": f"{s3_bucket}-gone/manifests"}, "set warehouse.manifests"),
    ):
        with closing(settings_of(redshift, **changes).open()) as engine, pytest.raises(Unavailable, match=advice):
            Warehouse(engine, SCHEMA).apply(wanted)
    with closing(settings_of(redshift, manifests=f"{s3_bucket}/manifests").open()) as engine:
        with pytest.raises(Unavailable, match=r"Set shred\.output to a prefix in S3"):
            Warehouse(engine, SCHEMA).apply(load(events(tmp_path, "local")))
        assert isinstance(Warehouse(engine, SCHEMA).apply(wanted), Applied)


# Tables


def test_tables_are_laid_out_by_rules_and_by_settings(redshift: StandIn, s3_bucket: str, tmp_path: Path) -> None:
    changes = {"layout": {"small*": {"diststyle": "all", "sortkey": []}, "log": {"encode": {"id": "zstd"}}}}
    with closing(settings_of(redshift, **changes).open()) as engine:
        small, log = replace(PRODUCT, name="small"), Table("log", (Column("id", "string"), Column("at", "timestamp")))
        rows = [{"id": "a"}]
        shop = Warehouse(engine, SCHEMA)
        shop.apply(load(in_s3(s3_bucket, written(tmp_path, "a", [products(a="1"), (small, rows), (log, rows)]))))
        found = engine.execute(
            'SELECT "table", diststyle, sortkey1 FROM svv_table_info WHERE schema = \'shop\' ORDER BY "table"'
        )
    assert found == [("log", "AUTO(EVEN)", "at"), (PRODUCT.name, "KEY(id)", "id"), ("small", "ALL", "AUTO(SORTKEY)")]
    assert redshift.execute("SELECT encodes FROM redshift.attributes WHERE encodes IS NOT NULL") == [(["id zstd"],)]


def test_a_layout_names_only_columns_that_the_table_has() -> None:
    log = Table("log", (Column("Id", "string"), Column("data", "json")))
    chosen = {"*": Layout(None, "id", ("data", "nothing", "ID"))}
    assert attributes(layout_of(log, chosen), str) == " DISTKEY (Id) COMPOUND SORTKEY (Id)"
    assert attributes(layout_of(log, {"*": Layout("key", "gone")}), str) == ""


def test_a_key_column_of_numbers_is_widened(engine: Redshift, s3_bucket: str, tmp_path: Path) -> None:
    """A column by which a table is distributed or sorted cannot be dropped, and only a VARCHAR is widened in place."""
    narrow, wide = (Table("t", (Column("id", type_),), "merge", ("id",)) for type_ in ("integer", "bigint"))
    shop = Warehouse(engine, SCHEMA)
    shop.apply(load(in_s3(s3_bucket, written(tmp_path, "a", [(narrow, [{"id": 1}])]))))
    shop.apply(load(in_s3(s3_bucket, written(tmp_path, "b", [(wide, [{"id": 2**40}])]))))
    assert rows_of(engine, "t") == [(1,), (2**40,)]
    assert engine.columns(SCHEMA)["t"] == {"id": "bigint"}


def test_json_columns_are_super_if_wanted(redshift: StandIn, s3_bucket: str, tmp_path: Path) -> None:
    table = Table("t", (Column("id", "string"), Column("j", "json")), "merge", ("id",))
    rows = [{"id": "a", "j": '{"x": 1}'}, {"id": "b", "j": "no JSON"}, {"id": "c"}]
    with closing(settings_of(redshift, json_columns="super").open()) as engine:
        shop = Warehouse(engine, SCHEMA)
        for item in ("a", "b"):
            shop.apply(load(in_s3(s3_bucket, written(tmp_path, item, [(table, rows)]))))
        assert engine.columns(SCHEMA)["t"] == {"id": "string", "j": "json"}
        assert rows_of(engine, "t", "id, JSON_SERIALIZE(j)") == [("a", '{"x": 1}'), ("b", "no JSON"), ("c", None)]


def test_the_1601st_column_is_refused_for_good(engine: Redshift, s3_bucket: str, tmp_path: Path) -> None:
    full = Table("t", tuple(Column(f"c{n}", "integer") for n in range(1600)))
    more = replace(full, columns=(*full.columns, Column("one_more", "integer")))
    shop = Warehouse(engine, SCHEMA)
    shop.apply(load(in_s3(s3_bucket, written(tmp_path, "a", [(full, [{"c1": 1}])]))))
    with pytest.raises(CannotLoad, match=r"(?s)1600 columns.*\"t\""):
        shop.apply(load(in_s3(s3_bucket, written(tmp_path, "b", [(more, [{"one_more": 1}])]))))


def test_a_users_view_shows_the_rows_of_the_newest_snapshot(engine: Redshift, s3_bucket: str, tmp_path: Path) -> None:
    """A renamed table takes its views, grants and open readers along: they would always show the old rows."""
    shop = Warehouse(engine, SCHEMA)

    def uploaded(wanted: Any) -> Any:
        return replace(wanted, listing=in_s3(s3_bucket, wanted.listing))

    shop.apply(uploaded(window(tmp_path, "0015", products(a="1", b="1"))))
    engine.execute(
        f"CREATE VIEW {engine.qualified(SCHEMA, 'report')} AS SELECT id FROM {engine.qualified(SCHEMA, PRODUCT.name)}"
    )
    shop.apply(uploaded(snapshot(tmp_path, "0015", products(c="1"), token=2)))
    assert rows_of(engine, "report") == [("c",)]


# Transactions


def test_datasets_load_at_the_same_time_without_waiting(redshift: StandIn, s3_bucket: str, tmp_path: Path) -> None:
    """A shared fence made all datasets wait for each other: an UPDATE locks its table until the transaction ends."""
    listing = in_s3(s3_bucket, events(tmp_path, "a"))
    with (
        closing(settings_of(redshift).open()) as busy,
        closing(settings_of(redshift, statement_timeout_seconds=5).open()) as other,
    ):
        Warehouse(busy, SCHEMA).apply(load(listing))
        busy.begin()
        busy.write(f'UPDATE {control(busy, "fence")} SET "token" = 9')
        assert isinstance(Warehouse(other, "second").apply(load(listing)), Applied)
        busy.rollback()


def test_error_1023_repeats_the_whole_transaction(
    redshift: StandIn, engine: Redshift, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Warehouse(engine, SCHEMA)
    shop.apply(load(in_s3(s3_bucket, events(tmp_path, "a"))))
    begin, begun = engine.begin, []

    def overtaken() -> None:
        begin()
        begun.append(True)
        if len(begun) == 1:
            engine.execute(f"SELECT * FROM {control(engine, 'fence')}")  # takes the snapshot
            with closing(settings_of(redshift).open()) as other:
                other.write(f'UPDATE {control(other, "fence")} SET "token" = 1 WHERE "feed" = \'{FEED}\'')

    monkeypatch.setattr(engine, "begin", overtaken)
    assert isinstance(shop.apply(load(in_s3(s3_bucket, events(tmp_path, "b")))), Applied)
    assert len(begun) == 2
    assert shop.row_counts() == {EVENTS.name: 6}


def test_a_statement_that_commits_within_a_transaction_is_noticed(engine: Redshift) -> None:
    """TRUNCATE commits what was written before it: the contract refuses it, and so does the engine."""
    engine.execute("CREATE TABLE t (a INTEGER)")
    engine.begin()
    engine.write("INSERT INTO t VALUES (1)")
    with pytest.raises(LoadFailed, match="the statement ended the transaction"):
        engine.execute("TRUNCATE t")
    with pytest.raises(Conflict):
        engine.commit()


def test_a_connection_that_is_cut_at_commit_is_unclear(engine: Redshift, s3_bucket: str, tmp_path: Path) -> None:
    shop = Warehouse(engine, SCHEMA)
    shop.apply(load(in_s3(s3_bucket, events(tmp_path, "a"))))
    engine.begin()
    engine.write(f'UPDATE {control(engine, "fence")} SET "token" = 2')
    engine.connection()._usock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Unclear, match="raise the fence and ask the ledger"):
        engine.commit()
    assert isinstance(shop.apply(load(in_s3(s3_bucket, events(tmp_path, "a")))), AlreadyApplied)


def test_a_statement_that_takes_too_long_is_stopped_and_no_items_fault(redshift: StandIn) -> None:
    with closing(settings_of(redshift, statement_timeout_seconds=1, query_group="loads'").open()) as engine:
        with pytest.raises(Unavailable, match="statement_timeout_seconds"):
            engine.execute("SELECT pg_sleep(60)")
        assert engine.execute("SHOW query_group") == [("loads'",)]


def test_a_lock_is_waited_for_no_longer_than_the_patience(redshift: StandIn, engine: Redshift) -> None:
    """Redshift has no limit for locks, and a worker that hangs in its transaction would stop its successor for hours."""
    engine.execute("CREATE TABLE t (a INTEGER)")
    engine.begin()
    engine.write("INSERT INTO t VALUES (1)")
    with closing(settings_of(redshift).open(patience=0.2)) as other:
        assert other.execute("SELECT * FROM t") == []
        with pytest.raises(Unavailable, match=r"another transaction held a lock for 0\.2 s"):
            other.write("DELETE FROM t")
        other.execute("SELECT pg_sleep(0.5)")  # long, but no lock is waited for
    engine.rollback()


def test_the_statements_of_a_window_are_as_documented(
    engine: Redshift, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [replace(PRODUCT, name=name) for name in ("one", "two", "three")]
    shop, sent = Warehouse(engine, SCHEMA), []

    def apply(stop: str) -> list[str]:
        listing = written(tmp_path, f"incr-{stop}", [(table, [{"id": stop, "name__v": "x"}]) for table in tables])
        sent.clear()
        shop.apply(load(in_s3(s3_bucket, listing), position=stop))
        return [sql.split()[0] for sql in sent]

    run = engine._run
    monkeypatch.setattr(engine, "_run", lambda sql, values=(): (sent.append(sql), run(sql, values))[1])
    apply("0015")
    apply("0030")
    found = apply("0045")
    inside = found[found.index("BEGIN") : found.index("COMMIT") + 1]
    assert inside == ["BEGIN", "UPDATE", "SELECT", *["DELETE"] * 3, *["INSERT"] * 3, "INSERT", "COMMIT"]
    assert found[: found.index("BEGIN")] == ["DROP", *("CREATE", "COPY") * 3, "SELECT"]


# Cut connections


@pytest.fixture
def proxy(redshift: StandIn) -> Iterator[tuple[Proxy, RedshiftSettings]]:
    """A proxy before the stand-in, and the settings by which it is reached."""
    with proxied(lambda: socket.create_connection((redshift.host, redshift.port)), is_http=False) as running:
        url = f"redshift://postgres@127.0.0.1:{running.port}/{redshift.database}?sslmode=disable"
        yield running, settings_of(redshift, url=url)


def once(words: bytes, fault: Fault, later: int = 0) -> Chooser:
    """The fault meets the first request with these words, or a request that comes `later`: the driver prepares first."""
    first: list[int] = []

    def choose(number: int, request: bytes) -> Fault | None:
        if not first and words in request:
            first.append(number)
        return fault if first and number == first[0] + later else None

    return choose


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"CREATE TEMP", marks=pytest.mark.long),
        pytest.param(b"COPY ", marks=pytest.mark.long),
        pytest.param(b"BEGIN", marks=pytest.mark.long),
        pytest.param(b'UPDATE "manifest_platform"', marks=pytest.mark.long),
        b'INSERT INTO "shop"',
    ],
)
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, pytest.param(Fault.ANSWER_LOST, marks=pytest.mark.long)])
def test_a_connection_that_is_cut_before_commit_is_made_again_and_the_load_repeated(
    proxy: tuple[Proxy, RedshiftSettings], s3_bucket: str, tmp_path: Path, words: bytes, fault: Fault
) -> None:
    running, settings = proxy
    with closing(settings.open()) as engine:
        shop = Warehouse(engine, SCHEMA)
        shop.apply(load(in_s3(s3_bucket, events(tmp_path, "a"))))
        running.choose(once(words, fault, later=1))
        assert isinstance(shop.apply(load(in_s3(s3_bucket, events(tmp_path, "b")))), Applied)
        assert running.met == 1
        assert shop.row_counts() == {EVENTS.name: 6}


@pytest.mark.parametrize(
    ("fault", "later", "kind"),
    [
        pytest.param(Fault.REQUEST_LOST, 0, Applied, marks=pytest.mark.long),
        (Fault.REQUEST_LOST, 1, Applied),
        (Fault.ANSWER_LOST, 1, AlreadyApplied),
    ],
)
def test_after_a_commit_without_an_answer_the_ledger_decides(
    proxy: tuple[Proxy, RedshiftSettings],
    s3_bucket: str,
    tmp_path: Path,
    fault: Fault,
    later: int,
    kind: type[Applied | AlreadyApplied],
) -> None:
    running, settings = proxy
    wanted = in_s3(s3_bucket, events(tmp_path, "b"))
    with closing(settings.open()) as engine:
        shop = Warehouse(engine, SCHEMA)
        shop.apply(load(in_s3(s3_bucket, events(tmp_path, "a"))))
        begin, armed = engine.begin, []

        def begun() -> None:
            begin()
            if not armed:
                armed.append(running.choose(once(b"COMMIT", fault, later)))

        engine.begin = begun
        with pytest.raises(Unclear):
            shop.apply(load(wanted))
        assert running.met == 1
        shop.raise_fence(FEED, token=2, epoch=1)
        assert (shop.ledger_entry(FEED, "b", 1) is not None) == (kind is AlreadyApplied)
        assert isinstance(shop.apply(load(wanted, token=2)), kind)
        assert shop.row_counts() == {EVENTS.name: 6}


# Logins and privileges


def test_a_warehouse_that_wakes_up_slowly_is_unavailable() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"redshift://user@127.0.0.1:{silent.getsockname()[1]}/dev?sslmode=disable"
        with closing(RedshiftSettings(url=url, connect_seconds=1).open()) as engine, pytest.raises(Unavailable, match="dev"):
            engine.execute("SELECT 1")


def test_an_encrypted_connection_is_demanded(redshift: StandIn) -> None:
    settings = settings_of(redshift, url=redshift.url)
    with closing(settings.open()) as engine, pytest.raises(Unavailable, match="refuses SSL"):
        engine.execute("SELECT 1")


def test_the_printed_grants_are_enough(redshift: StandIn, engine: Redshift, s3_bucket: str, tmp_path: Path) -> None:
    user = f"loader_{uuid.uuid4().hex[:8]}"
    redshift.execute(f"CREATE ROLE {user} LOGIN")
    wanted = load(in_s3(s3_bucket, events(tmp_path, "a")))
    url = f"{redshift.url}?sslmode=disable".replace("postgres@", f"{user}@")
    with closing(settings_of(redshift, url=url).open()) as own:
        shop = Warehouse(own, SCHEMA)
        with pytest.raises(Unavailable, match=r"GRANT .*; `warehouse grants` prints all privileges"):
            shop.apply(wanted)
        for statement in engine.grants([SCHEMA], user):
            if not statement.startswith("--"):
                engine.execute(statement)
        assert isinstance(shop.apply(wanted), Applied)
        assert shop.query("SELECT count(*) FROM events")[1] == [(3,)]


def test_the_policy_of_copy_is_printed_as_comments() -> None:
    """Covers the objects of every dataset and the manifests, each once, and nothing outside of S3."""
    settings = RedshiftSettings(url="redshift://me@example.com/dev", role=ROLE, manifests="s3://lake/manifests")
    folders = ["s3://lake/shredded", "s3://lake/shredded", "s3://other", "file:///tmp/x"]
    lines = [line for line in settings.open().grants(["shop"], "loader", folders) if line.startswith("--")]
    assert ROLE in lines[0]
    policy = json.loads("".join(line.removeprefix("--") for line in lines[1:]))
    assert {one["Action"]: one["Resource"] for one in policy["Statement"]} == {
        "s3:GetObject": ["arn:aws:s3:::lake/shredded/*", "arn:aws:s3:::other/*", "arn:aws:s3:::lake/manifests/*"],
        "s3:ListBucket": ["arn:aws:s3:::lake", "arn:aws:s3:::other"],
    }


def test_a_failed_probe_is_told_the_grants_that_help() -> None:
    engine = RedshiftSettings(url="redshift://me@example.com/dev", role=ROLE).open()
    assert {need: engine.grant_for(need) for need in Need} == {
        Need.CONNECT: [],
        Need.CONTROL_TABLES: [
            'GRANT USAGE, CREATE ON SCHEMA "manifest_platform" TO "me"',
            'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "manifest_platform" TO "me"',
        ],
        Need.CREATE_SCHEMA: ['GRANT CREATE ON DATABASE "dev" TO "me"'],
        Need.STAGE: ['GRANT TEMP ON DATABASE "dev" TO "me"', f"GRANT ASSUMEROLE ON '{ROLE}' TO \"me\" FOR COPY"],
    }


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (
            ClientError({"Error": {"Code": "ExpiredToken", "Message": "is expired"}}, "GetCredentials"),
            Unavailable,
            "renew them",
        ),
        (
            ClientError({"Error": {"Code": "AccessDeniedException", "Message": "may not"}}, "GetSecretValue"),
            Unavailable,
            "let this program's role read it: secretsmanager:GetSecretValue",
        ),
        (InterfaceError("BrokenPipe: server socket closed"), Unavailable, "server runs and can be reached"),
        (ProgrammingError({"C": "XX000", "M": "1023", "D": "Serializable isolation violation on table - 1"}), Conflict, "1023"),
        (ProgrammingError({"C": "XX000", "M": "1018", "D": "Relation does not exist"}), Conflict, "1018"),
        (ProgrammingError({"C": "53100", "M": "Disk Full"}), Unavailable, "disk is full"),
        (ProgrammingError({"C": "42501", "M": "permission denied for language c"}), Unavailable, "warehouse grants"),
        (
            ProgrammingError({"C": "42501", "M": "permission denied for relation t"}),
            Unavailable,
            'Run GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "t" TO "loader"; `warehouse grants` prints all privileges',
        ),
        (
            ProgrammingError({"C": "42501", "M": "permission denied for schema shop"}),
            Unavailable,
            'GRANT USAGE, CREATE ON SCHEMA "shop" TO "loader"',
        ),
        (
            ProgrammingError({"C": "42501", "M": 'permission denied to create temporary tables in database "dev"'}),
            Unavailable,
            'GRANT TEMP ON DATABASE "dev" TO "loader"',
        ),
        (ProgrammingError({"C": "42501", "M": "must be owner of relation t"}), Unavailable, 'ALTER TABLE t OWNER TO "loader"'),
        (ProgrammingError({"C": "42P01", "M": 'relation "t" does not exist'}), LoadFailed, "SELECT 1"),
        (ProgrammingError({"C": "XX000", "M": "S3ServiceException:…,Status 404,Error NoSuchKey"}), LoadFailed, "is gone"),
        (ProgrammingError({"C": "57P01", "M": "terminating connection"}), Unavailable, "stopping or paused"),
    ],
)
def test_errors_are_told_apart_by_what_must_be_done(error: Exception, kind: type[Exception], advice: str) -> None:
    found = translated(error, "redshift://host/dev", "SELECT 1", "loader")
    assert type(found) is kind
    assert advice in str(found)


def test_an_interrupted_statement_leaves_the_session_usable(engine: Redshift) -> None:
    engine.execute("SELECT 1")
    timer = threading.Timer(0.3, engine.interrupt)
    timer.start()
    with pytest.raises(Unavailable, match="statement_timeout_seconds"):
        engine.execute("SELECT pg_sleep(60)")
    assert engine.execute("SELECT 1") == [(1,)]


# Settings


def test_settings_show_no_secret_and_need_a_user() -> None:
    settings = RedshiftSettings(url="redshift://me@example.com:5439/dev?sslmode=verify-ca")
    assert settings.place == "redshift://example.com:5439/dev"
    assert settings.of_deployment("pr-7").url == "redshift://me@example.com:5439/dev_pr_7?sslmode=verify-ca"
    for wrong, message in (
        ({"url": "redshift://me:secret@example.com/dev"}, "password_variable"),
        ({"url": "redshift://me@example.com"}, "allowed: redshift://user@host:5439/database"),
        ({"url": "redshift://example.com/dev"}, "url has no user"),
        ({"url": "redshift://me@example.com/dev?sslmode=require"}, "verify-full, verify-ca, disable"),
        ({"url": "redshift://me@example.com/dev", "role": "redshift-copy"}, "role"),
        ({"url": "redshift://me@example.com/dev", "manifests": "/tmp/x"}, "s3://bucket/prefix"),
        ({"url": "redshift://me@example.com/dev", "iam": True, "secret": "s"}, "either iam or secret"),
    ):
        with pytest.raises(ValidationError, match=message) as raised:
            RedshiftSettings.model_validate(wrong)
        assert "secret@" not in str(raised.value.errors(include_input=False))


def test_a_load_reads_the_fence_of_no_other_dataset(engine: Redshift) -> None:
    for dataset in ("shop", "other", "third"):
        Warehouse(engine, dataset).prepare(FEED)
    sent: list[str] = []
    run = engine._run
    setattr(engine, "_run", lambda sql, values=(): sent.append(sql) or run(sql, values))  # noqa: B010
    warehouse = Warehouse(engine, "shop")
    assert warehouse.fence_records() == {FEED: ""}
    assert [sql for sql in sent if "fence__" in sql and "fence__shop" not in sql] == []
    assert warehouse.fence_records_of_all() == {name: {FEED: ""} for name in ("shop", "other", "third")}


def test_a_load_whose_session_ends_after_staging_is_staged_again(engine: Redshift, s3_bucket: str, tmp_path: Path) -> None:
    stage, sessions = engine.stage, 0

    def staged(table: Table, uris: list[str]) -> Any:
        nonlocal sessions
        found, sessions = stage(table, uris), sessions + 1
        if sessions == 1:
            engine.close()
        return found

    setattr(engine, "stage", staged)  # noqa: B010
    assert isinstance(Warehouse(engine, SCHEMA).apply(load(in_s3(s3_bucket, events(tmp_path, "a")))), Applied)
    assert sessions == 2
