"""Snowflake's engine: its settings, what it sends, and what it makes of errors. A recording connection compares texts."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from manifest_platform.listing import Column, Table
from manifest_platform.warehouse.engines.engine import Need
from manifest_platform.warehouse.engines.snowflake import staging
from manifest_platform.warehouse.engines.snowflake.engine import Snowflake
from manifest_platform.warehouse.engines.snowflake.names import folded, literal, platform_name, read_back
from manifest_platform.warehouse.errors import Conflict, LoadFailed, Unavailable, Unclear, ValueRefused, WarehouseError
from manifest_platform_tests.servers.snowflake import PASSWORD, URL, settings_of

EVENTS = Table("events", (Column("event_id", "string"), Column("payload", "json")))
STAGE_ROWS = (["created_on", "name", "url"], [("now", "SHREDDED", "s3://bucket/shredded/")])
Answer = tuple[list[str], list[tuple[Any, ...]]] | Exception


class Recording:
    """A connection of the driver that records statements. `answers`: what begins with a text gets this answer."""

    def __init__(self, **answers: Answer) -> None:
        self.answers: dict[str, Answer] = {"SHOW STAGES": STAGE_ROWS, **answers}
        self.statements: list[str] = []
        self.given: dict[str, Any] = {}
        self.closed = False
        self.session_id = 7

    def connect(self, **given: Any) -> Recording:
        self.given = given
        return self

    def cursor(self) -> Recording:
        return self

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def execute(self, sql: str, parameters: Any = None, _statement_params: Any = None) -> None:
        self.statements.append(sql)
        self.tag = (_statement_params or {}).get("QUERY_TAG")
        answer = next((answer for begin, answer in self.answers.items() if sql.startswith(begin)), ([], []))
        if isinstance(answer, Exception):
            raise answer
        self._names, self._rows = answer

    @property
    def description(self) -> list[Any]:
        return [type("Column", (), {"name": name}) for name in self._names]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    rowcount = 1


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    import snowflake.connector

    connection = Recording()
    monkeypatch.setenv(PASSWORD, "a-password-for-tests")
    monkeypatch.setattr(snowflake.connector, "connect", connection.connect)
    return connection


@pytest.fixture
def engine(recording: Recording) -> Snowflake:
    return settings_of().open()


def failure(number: int, text: str) -> Exception:
    from snowflake.connector.errors import ProgrammingError

    return ProgrammingError(text, errno=number)


def told(recording: Recording, engine: Snowflake, number: int, text: str, sql: str = "SELECT 1") -> WarehouseError:
    recording.answers = {sql: failure(number, text), **recording.answers}
    with pytest.raises(WarehouseError) as found:
        engine.execute(sql)
    return found.value


# Settings


def test_settings_name_account_database_and_no_secret(recording: Recording) -> None:
    settings = settings_of()
    assert settings.place == "snowflake://fake-account/analytics"
    with closing(settings.open()) as engine:
        engine.execute("SELECT 1")
    assert {name: recording.given[name] for name in ("account", "user", "database", "warehouse", "role", "password")} == {
        "account": "fake-account",
        "user": "loader",
        "database": "analytics",
        "warehouse": "LOADING",
        "role": "LOADER",
        "password": "a-password-for-tests",
    }
    assert settings.of_deployment("pr-7").place == "snowflake://fake-account/analytics_pr_7"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "snowflake://loader:hidden@account/db?warehouse=W"}, "password_variable"),
        ({"url": "snowflake://account/db?warehouse=W"}, "allowed: snowflake://user@account/database"),
        ({"url": "snowflake://loader@account/?warehouse=W"}, "allowed: snowflake://user@account/database"),
        ({"url": "snowflake://loader@account/db"}, "allowed: snowflake://user@account/database"),
        ({"url": f"{URL}&insecure_mode=true"}, "insecure_mode: allowed after the question mark"),
        ({"url": f"{URL}&protocol=http&host=example.com"}, "http for a host on this machine"),
        ({"password_variable": None}, "exactly one of private_key_file"),
        ({"token_variable": "TOKEN"}, "exactly one of private_key_file"),
        ({"passphrase_variable": "PASSPHRASE"}, "allowed with a private key"),
        ({"stage": None}, "either a stage or a storage_integration"),
        ({"storage_integration": "S3"}, "either a stage or a storage_integration"),
        ({"stage": "@SHREDDED"}, "stage"),
        ({"clustering": {"events": []}}, "at least one column"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_what_is_allowed(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings_of(**changes)
    assert words in str(refused.value.errors(include_url=False, include_input=False))


def test_a_private_key_is_read_from_a_file_or_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    locked = forms.BestAvailableEncryption(b"the passphrase")
    pem = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, locked)
    der = key.private_bytes(forms.Encoding.DER, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    (tmp_path / "key.p8").write_bytes(pem)
    monkeypatch.setenv("KEY", pem.decode())
    monkeypatch.setenv("PASSPHRASE", "the passphrase")
    by_file = {"password_variable": None, "private_key_file": str(tmp_path / "key.p8"), "passphrase_variable": "PASSPHRASE"}
    by_variable = {"password_variable": None, "private_key_variable": "KEY", "passphrase_variable": "PASSPHRASE"}
    assert (
        settings_of(**by_file).access.login.credentials()
        == settings_of(**by_variable).access.login.credentials()
        == {"private_key": der}
    )
    monkeypatch.setenv("PASSPHRASE", "wrong")
    with pytest.raises(Unavailable, match="holds no private key that can be read") as refused:
        settings_of(**by_variable).open().execute("SELECT 1")
    assert "PRIVATE KEY" not in str(refused.value)


def test_a_missing_secret_is_named_and_charged_to_no_item(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> None:
    monkeypatch.delenv(PASSWORD)
    with pytest.raises(Unavailable, match=f"{PASSWORD}: is not set"):
        settings_of().open().execute("SELECT 1")
    assert not recording.statements


def test_a_session_does_not_depend_on_the_accounts_defaults(recording: Recording) -> None:
    with closing(settings_of(statement_seconds=60).open(patience=2.5)) as engine:
        engine.execute("SELECT 1")
    assert recording.given["autocommit"] is True
    assert recording.given["paramstyle"] == "qmark"
    parameters = recording.given["session_parameters"]
    assert (parameters["LOCK_TIMEOUT"], parameters["STATEMENT_TIMEOUT_IN_SECONDS"]) == (3, 60)
    assert (parameters["TIMEZONE"], parameters["QUOTED_IDENTIFIERS_IGNORE_CASE"]) == ("UTC", False)


def test_questions_have_a_role_of_their_own(recording: Recording) -> None:
    with closing(settings_of(read_role="ANALYST").open(read_only=True)) as engine:
        engine.execute("SELECT 1")
    assert recording.given["role"] == "ANALYST"


def test_statements_carry_the_dataset_the_item_and_the_attempt(recording: Recording, engine: Snowflake) -> None:
    engine.execute("SELECT 1")
    assert recording.tag == "manifest_platform"
    engine.working_on("shop", "s3://bucket/run=1", "record-1")
    engine.execute("SELECT 1")
    assert json.loads(recording.tag or "") == {
        "application": "manifest_platform",
        "dataset": "shop",
        "attempt": "record-1",
        "item": "s3://bucket/run=1",
    }
    engine.working_on("shop", "x" * 3000, "record-1")
    engine.execute("SELECT 1")
    assert len(recording.tag or "") == 2000


# Names


def test_plain_names_need_no_quotes_and_other_names_are_stored_as_they_are() -> None:
    assert folded("""SELECT "id", 'the "id"', "Name__c", "odd name", "a""b" FROM "shop"."t" -- "x" """) == (
        """SELECT "ID", 'the "id"', "NAME__C", "odd name", "a""b" FROM "SHOP"."T" -- "x" """
    )
    assert folded(r"""SELECT 'it\'s "id"', "id" """) == r"""SELECT 'it\'s "id"', "ID" """
    assert [platform_name(name) for name in ("ID", "Name__c", "Ünit 1")] == ["id", "name__c", "Ünit 1"]
    assert [read_back(name) for name in ("ID", "Ünit 1", "by_hand")] == ["id", "Ünit 1", None]
    assert literal("it's \\") == r"'it''s \\'"


# Staging


def uris(count: int) -> list[str]:
    return [f"s3://bucket/shredded/shop/item/attempt/events/date=2026-01-01/{n}.parquet" for n in range(count)]


def test_exactly_the_listed_objects_are_copied_into_a_table_of_the_attempt(recording: Recording, engine: Snowflake) -> None:
    staged = engine.stage(EVENTS, uris(2))
    [show, *_, create, copy] = recording.statements
    assert show == 'SHOW STAGES LIKE \'SHREDDED\' IN SCHEMA "ANALYTICS"."PUBLIC"'
    assert create == (
        f'CREATE TRANSIENT TABLE {folded(staged.sql)} ("EVENT_ID" VARCHAR, "PAYLOAD" VARCHAR) DATA_RETENTION_TIME_IN_DAYS = 0'
    )
    folder = "shop/item/attempt/events/date=2026-01-01"
    assert copy == (
        f'COPY INTO {folded(staged.sql)} FROM @"ANALYTICS"."PUBLIC"."SHREDDED" '
        f"FILES = ('{folder}/0.parquet', '{folder}/1.parquet') "
        "FILE_FORMAT = (TYPE = PARQUET USE_LOGICAL_TYPE = TRUE) MATCH_BY_COLUMN_NAME = CASE_INSENSITIVE "
        "ON_ERROR = ABORT_STATEMENT"
    )
    engine.unstage(staged)
    engine.unstage(staged)
    assert recording.statements[-1] == f"DROP TABLE IF EXISTS {folded(staged.sql)}"
    assert recording.statements.count(recording.statements[-1]) == 1


def test_the_memory_of_copy_is_of_no_effect_as_each_attempt_has_a_new_table(engine: Snowflake) -> None:
    """Snowflake skips files that a table has loaded within 64 days, and reports success."""
    assert engine.stage(EVENTS, uris(1)).sql != engine.stage(EVENTS, uris(1)).sql


def test_more_than_a_thousand_objects_need_several_copies(recording: Recording, engine: Snowflake) -> None:
    engine.stage(EVENTS, uris(2001))
    copies = [sql for sql in recording.statements if sql.startswith("COPY")]
    assert [sql.count(".parquet'") for sql in copies] == [1000, 1000, 1]
    assert all(f"/{n}.parquet'" in "".join(copies) for n in (0, 999, 1000, 1999, 2000))


def test_an_object_outside_of_the_stage_is_refused_before_anything_is_created(recording: Recording, engine: Snowflake) -> None:
    """A directory outside of the stage once loaded nothing, and was marked as loaded."""
    recording.answers["SHOW STAGES"] = (["name", "url"], [("SHREDDED", "s3://bucket/shredded/sho")])
    with pytest.raises(
        staging.OutsideStage, match=r"is not below s3://bucket/shredded/sho/, the URL of the stage.*warehouse\.stage"
    ):
        engine.stage(EVENTS, uris(1))
    assert len(recording.statements) == 1


@pytest.mark.parametrize("rows", [[], [("SHREDDED", "")], [("SHREDDEX", "s3://bucket/shredded/")]])
def test_a_stage_that_the_role_cannot_use_is_unavailable(
    recording: Recording, engine: Snowflake, rows: list[tuple[str, str]]
) -> None:
    recording.answers["SHOW STAGES"] = (["name", "url"], rows)
    with pytest.raises(Unavailable, match=r"no external stage PUBLIC\.SHREDDED.*GRANT USAGE ON STAGE PUBLIC\.SHREDDED"):
        engine.stage(EVENTS, uris(1))


def test_a_storage_integration_reads_without_a_stage(recording: Recording) -> None:
    settings_of(stage=None, storage_integration="s3_reader").open().stage(EVENTS, uris(1))
    assert "FROM 's3://bucket/' STORAGE_INTEGRATION = S3_READER FILES = ('shredded/shop/" in recording.statements[-1]
    assert not [sql for sql in recording.statements if sql.startswith("SHOW")]


def test_a_skipped_object_fails_the_load_and_leaves_no_table(recording: Recording, engine: Snowflake) -> None:
    recording.answers["COPY"] = (["file", "status", "first_error"], [("x.parquet", "LOAD_SKIPPED", "File was loaded before.")])
    with pytest.raises(LoadFailed, match=r"table events: x\.parquet was not loaded"):
        engine.stage(EVENTS, uris(1))
    assert recording.statements[-1].startswith('DROP TABLE IF EXISTS "MANIFEST_PLATFORM_STAGING"."STAGE_')


def test_tables_of_killed_workers_are_dropped_after_a_day() -> None:
    name = staging.staging_name()
    made = int(name.split("_")[1])
    assert not staging.is_left_over(name, made + staging.KEPT_SECONDS)
    assert staging.is_left_over(name, made + staging.KEPT_SECONDS + 1)
    assert not staging.is_left_over("stage_1_of_somebody", made * 2)


def test_the_objects_of_several_items_are_copied_together(recording: Recording, engine: Snowflake) -> None:
    """A statement costs up to a second for its way, so a batch of items must not cost statements for each."""
    items = {
        nth: [f"s3://bucket/shredded/shop/item-{nth}/attempt/events/date=2026-01-0{day}/1.parquet" for day in (1, 2)]
        for nth in (0, 7)
    }
    staged = engine.stage_items(EVENTS, items)
    assert sum(sql.startswith(("CREATE TRANSIENT", "COPY")) for sql in recording.statements) == 2
    assert recording.statements[-1].endswith('ABORT_STATEMENT INCLUDE_METADATA = ("__MP_FILE" = METADATA$FILENAME)')
    assert recording.statements[-1].count(".parquet'") == 4
    assert staged.sql.startswith(
        """(SELECT CASE WHEN CONTAINS("__mp_file", 'shop/item-0/attempt/events/') THEN 0 """
        """WHEN CONTAINS("__mp_file", 'shop/item-7/attempt/events/') THEN 7 END AS "__mp_nth", "event_id", "payload" FROM """
    )
    engine.unstage(staged)
    assert recording.statements[-1].startswith("DROP TABLE IF EXISTS")


def test_items_whose_folders_do_not_tell_them_apart_are_copied_one_by_one(recording: Recording, engine: Snowflake) -> None:
    folder = "s3://bucket/shredded/shop"
    staged = engine.stage_items(EVENTS, {0: [f"{folder}/a/1.parquet"], 1: [f"{folder}/a/b/1.parquet"]})
    assert sum(sql.startswith("COPY") for sql in recording.statements) == len(staged.parts) == 2


def test_json_columns_are_variants_by_option(recording: Recording) -> None:
    engine = settings_of(json_columns="variant").open()
    assert engine.sql_type("json") == "VARIANT"
    staged = engine.stage(EVENTS, uris(1))
    assert staged.sql.startswith(
        '(SELECT "event_id", COALESCE(TRY_PARSE_JSON("payload"), TO_VARIANT("payload")) AS "payload" FROM '
    )
    engine.unstage(staged)
    assert recording.statements[-1].startswith('DROP TABLE IF EXISTS "MANIFEST_PLATFORM_STAGING"."STAGE_')


# Transactions


def test_rows_are_deleted_by_a_join(engine: Snowflake) -> None:
    assert engine.deletion('"shop"."t"', '"stage_1" AS "s"', [('"s"."id"', '"t"."id"'), ('"s"."n"', '"t"."n"')]) == (
        'DELETE FROM "shop"."t" USING "stage_1" AS "s" WHERE "s"."id" = "t"."id" AND "s"."n" = "t"."n"'
    )


def test_a_failed_statement_leaves_a_transaction_that_is_rolled_back_explicitly(
    recording: Recording, engine: Snowflake
) -> None:
    recording.answers["DELETE"] = failure(100038, "Numeric value 'x' is not recognized")
    engine.begin()
    with pytest.raises(LoadFailed):
        engine.write("DELETE FROM t")
    engine.rollback()
    assert recording.statements == ["BEGIN TRANSACTION", "DELETE FROM t", "ROLLBACK"]


def test_a_session_that_is_lost_in_a_transaction_is_not_replaced_within_it(recording: Recording, engine: Snowflake) -> None:
    """In a new session, each statement would commit by itself."""
    engine.begin()
    recording.answers["UPDATE"] = failure(390112, "Your session has expired.")
    with pytest.raises(Unavailable):
        engine.write("UPDATE t")
    with pytest.raises(Conflict):
        engine.write("INSERT INTO t")
    with pytest.raises(Conflict):
        engine.commit()
    assert recording.statements == ["BEGIN TRANSACTION", "UPDATE t"]


def test_a_commit_without_an_answer_is_unclear(recording: Recording, engine: Snowflake) -> None:
    engine.begin()
    recording.answers["COMMIT"] = failure(250003, "Failed to execute request")
    with pytest.raises(Unclear):
        engine.commit()


def test_a_statement_is_interrupted_through_another_session(recording: Recording, engine: Snowflake) -> None:
    engine.interrupt()
    assert recording.statements == []
    engine.execute("SELECT 1")
    engine.interrupt()
    assert recording.statements == ["SELECT 1", "SELECT SYSTEM$CANCEL_ALL_QUERIES(7)"]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t",
        "SELECT 1; SELECT 2",
        "CREATE TABLE t (a INT)",
        "CALL f()",
        "SELECT SYSTEM$WAIT(1)",
        "SELECT $1 FROM @s",
        "SELECT $1 // '\n FROM @s // '",
        "SELECT $1 FROM '@s/a file'",
        "SELECT * FROM TABLE(INFER_SCHEMA(LOCATION=>'@s', FILE_FORMAT=>'f'))",
    ],
)
def test_a_persons_question_is_a_single_query_of_tables(recording: Recording, sql: str) -> None:
    with pytest.raises(LoadFailed):
        settings_of().open(read_only=True).query(sql)
    assert recording.statements == []


def test_a_row_that_may_exist_once_is_added_under_a_name_that_exists_once(recording: Recording, engine: Snowflake) -> None:
    """Snowflake enforces no key: two first loads would make two rows."""
    with engine.alone('"shop"."fence"'):
        engine.execute("INSERT")
    [create, insert, drop] = recording.statements[-3:]
    name = create.split()[3]
    assert create.startswith(f"CREATE TRANSIENT TABLE {name} AS SELECT ")
    assert (insert, drop) == ("INSERT", f"DROP TABLE IF EXISTS {name}")
    recording.answers["CREATE TRANSIENT"] = failure(2002, "Object already exists.")
    with pytest.raises(Conflict), engine.alone('"shop"."fence"'):
        pytest.fail("another session is at work")
    assert recording.statements[-1].startswith(f"SELECT 1 FROM {name} WHERE made < ?")
    recording.answers["SELECT 1"] = (["1"], [(1,)])
    with pytest.raises(Conflict), engine.alone('"shop"."fence"'):
        pytest.fail("a dead session left its sign, which is dropped for the next try")
    assert recording.statements[-1] == f"DROP TABLE IF EXISTS {name}"


# Errors


@pytest.mark.parametrize(
    ("number", "text", "words"),
    [
        (390114, "Authentication token has expired. The user must authenticate again.", "the next try logs in again"),
        (390144, "JWT token is invalid.", "ALTER USER … SET RSA_PUBLIC_KEY"),
        (390100, "Incorrect username or password was specified.", "password_variable"),
        (390318, "OAuth access token expired.", "token_variable"),
        (606, "No active warehouse selected in the current session.", "GRANT USAGE ON WAREHOUSE"),
        (90073, "Warehouse 'W' cannot be resumed because resource monitor 'M' has exceeded its quota.", "SET CREDIT_QUOTA"),
        (625, "Statement '1' has locked table 'FENCE' in transaction 2 and this lock has not yet been released.", "SHOW LOCKS"),
        (630, "Statement reached its statement or warehouse timeout of 60 second(s) and was canceled.", "statement_seconds"),
        (
            3001,
            "Insufficient privileges to operate on schema 'SHOP'",
            "CREATE TABLE ON SCHEMA SHOP TO ROLE",
        ),
        (
            2003,
            "Stage 'ANALYTICS.PUBLIC.SHREDDED' does not exist or not authorized.",
            "GRANT USAGE ON STAGE ANALYTICS.PUBLIC.SHREDDED",
        ),
        (91003, "Failed to access remote file: access denied. Please check your credentials", "s3:GetObject"),
        (250003, "Failed to execute request: HTTPSConnectionPool", "The next try connects again"),
    ],
)
def test_what_passes_or_an_operator_mends_is_charged_to_no_item(
    recording: Recording, engine: Snowflake, number: int, text: str, words: str
) -> None:
    error = told(recording, engine, number, text)
    assert isinstance(error, Unavailable)
    assert text.split(".")[0].rstrip(".") in str(error)
    assert words in str(error)


def test_the_missing_privilege_is_named_by_its_grant(recording: Recording, engine: Snowflake) -> None:
    for sql, grant in (
        ("CREATE SCHEMA s", "CREATE SCHEMA ON DATABASE"),
        ("CREATE TABLE t", "CREATE TABLE ON SCHEMA"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW ON SCHEMA"),
    ):
        error = told(recording, engine, 3001, "SQL access control error: Insufficient privileges", sql)
        assert isinstance(error, Unavailable)
        assert f"GRANT {grant}" in str(error)
    of_schema = told(
        recording, engine, 3001, "Insufficient privileges to operate on schema 'SHOP'", "CREATE VIEW w AS SELECT 1"
    )
    assert "GRANT CREATE VIEW ON SCHEMA SHOP TO ROLE" in str(of_schema)


@pytest.mark.parametrize(
    ("number", "text", "words"),
    [
        (2003, "Object 'NOWHERE' does not exist or not authorized.", ""),
        (1003, "syntax error line 1 at position 0 unexpected 'SELEKT'.", ""),
        (100078, "String 'abc' is too long and would be truncated", "shred.types"),
        (100074, "User character length limit (7) exceeded by string 'eight ch'", "shred.types"),
        (100039, "Numeric value '1e99' is out of range", "shred.types"),
        (91016, "Remote file 'x' was not found.", "Reshred the item"),
    ],
)
def test_what_no_repeat_mends_fails_the_item(
    recording: Recording, engine: Snowflake, number: int, text: str, words: str
) -> None:
    error = told(recording, engine, number, text)
    assert isinstance(error, LoadFailed | ValueRefused)
    assert words in str(error)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2002, "Object 'FENCE' already exists."),
        (625, "was aborted because the number of waiters for this lock exceeds the 20 statements limit."),
        (640, "Deadlock detected"),
    ],
)
def test_a_race_is_repeated(recording: Recording, engine: Snowflake, number: int, text: str) -> None:
    assert isinstance(told(recording, engine, number, text), Conflict)


# Wider columns

ALTERING = 'ALTER TABLE "SHOP"."ORDERS" ALTER COLUMN'


def widened(recording: Recording, engine: Snowflake, number: int, text: str) -> list[str]:
    """Widens a column that Snowflake does not alter in place, and returns the statements after that."""
    described = (["CLUSTERING_KEY", "COMMENT"], [("LINEAR(DAY, ID)", "what people's \\ orders are")])
    recording.answers = {ALTERING: failure(number, text), "SELECT CLUSTERING_KEY": described, **recording.answers}
    begun = len(recording.statements)
    try:
        engine.widen('"shop"."orders"', '"total"', "FLOAT")
    finally:
        sent = [sql for sql in recording.statements[begun:] if sql.startswith(("CREATE", "ALTER TABLE", "COMMENT"))]
        assert sent[0].startswith(ALTERING)
    return sent[1:]


def test_a_table_is_replaced_only_if_snowflake_does_not_change_the_type_in_place(
    recording: Recording, engine: Snowflake
) -> None:
    text = "SQL compilation error: cannot change column TOTAL from type NUMBER(10,0) to FLOAT"
    assert widened(recording, engine, 2108, text) == [
        'CREATE OR REPLACE TABLE "SHOP"."ORDERS" COPY GRANTS AS SELECT * REPLACE (CAST("TOTAL" AS FLOAT) AS "TOTAL") '
        'FROM "SHOP"."ORDERS"',
        'ALTER TABLE "SHOP"."ORDERS" CLUSTER BY (DAY, ID)',
        "COMMENT ON TABLE \"SHOP\".\"ORDERS\" IS 'what people''s \\\\ orders are'",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2003, "Object 'ORDERS' does not exist or not authorized."),
        (1003, "syntax error line 1 at position 0 unexpected 'ALTER'."),
        (2209, "SQL compilation error: column TOTAL is part of a masking policy"),
    ],
)
def test_no_table_is_replaced_for_another_fault(recording: Recording, engine: Snowflake, number: int, text: str) -> None:
    with pytest.raises(LoadFailed):
        widened(recording, engine, number, text)
    assert not [sql for sql in recording.statements if sql.startswith("CREATE OR REPLACE")]


# Privileges and upkeep


def test_grants_are_the_least_that_loading_needs(engine: Snowflake) -> None:
    assert engine.grants(["shop"], "loader") == [
        'CREATE ROLE IF NOT EXISTS "LOADER"',
        'GRANT ROLE "LOADER" TO USER "LOADER"',
        'GRANT USAGE, MONITOR ON WAREHOUSE "LOADING" TO ROLE "LOADER"',
        'GRANT USAGE, CREATE SCHEMA ON DATABASE "ANALYTICS" TO ROLE "LOADER"',
        'CREATE SCHEMA IF NOT EXISTS "ANALYTICS"."MANIFEST_PLATFORM"',
        'GRANT USAGE, MONITOR, CREATE TABLE ON SCHEMA "ANALYTICS"."MANIFEST_PLATFORM" TO ROLE "LOADER"',
        'CREATE SCHEMA IF NOT EXISTS "ANALYTICS"."SHOP"',
        'GRANT USAGE, MONITOR, CREATE TABLE ON SCHEMA "ANALYTICS"."SHOP" TO ROLE "LOADER"',
        'CREATE SCHEMA IF NOT EXISTS "ANALYTICS"."MANIFEST_PLATFORM_STAGING"',
        'GRANT USAGE, MONITOR, CREATE TABLE ON SCHEMA "ANALYTICS"."MANIFEST_PLATFORM_STAGING" TO ROLE "LOADER"',
        'GRANT USAGE ON SCHEMA "ANALYTICS"."PUBLIC" TO ROLE "LOADER"',
        'GRANT USAGE ON STAGE "ANALYTICS"."PUBLIC"."SHREDDED" TO ROLE "LOADER"',
    ]
    elsewhere = settings_of(stage="lake.PUBLIC.SHREDDED").open()
    assert 'GRANT USAGE ON DATABASE "LAKE" TO ROLE "LOADER"' in elsewhere.grants(["shop"], "loader")
    by_integration = settings_of(stage=None, storage_integration="S3_READER").open()
    assert by_integration.grants([], "loader")[-1] == 'GRANT USAGE ON INTEGRATION "S3_READER" TO ROLE "LOADER"'


def test_a_failed_probe_is_told_the_grants_that_help(engine: Snowflake) -> None:
    grants = {need: engine.grant_for(need) for need in Need}
    assert grants[Need.CREATE_SCHEMA] == ['GRANT USAGE, CREATE SCHEMA ON DATABASE "ANALYTICS" TO ROLE "LOADER"']
    assert 'GRANT USAGE ON STAGE "ANALYTICS"."PUBLIC"."SHREDDED" TO ROLE "LOADER"' in grants[Need.STAGE]
    assert 'GRANT USAGE, MONITOR ON WAREHOUSE "LOADING" TO ROLE "LOADER"' in grants[Need.CONNECT]
    assert grants[Need.CONTROL_TABLES][1] == (
        'GRANT USAGE, MONITOR, CREATE TABLE ON SCHEMA "ANALYTICS"."MANIFEST_PLATFORM" TO ROLE "LOADER"'
    )


def test_clustering_keys_are_set_by_option() -> None:
    engine = settings_of(clustering={"events": ["Event_ID"]}).open()
    columns = {"event_id": "string", "payload": "json"}
    assert engine.table_creation('"shop"."events"', columns, EVENTS).endswith(') CLUSTER BY ("event_id")')
    assert engine.table_creation('"shop"."events"', {"payload": "json"}, EVENTS).endswith('("payload" VARCHAR)')
    assert engine.table_creation('"shop"."passing"', columns, None).endswith('"payload" VARCHAR)')
