import re
from pathlib import Path

import pytest
import yaml

from manifest_platform import config
from manifest_platform.config import Config, ConfigError, load
from manifest_platform.config.reading import UniqueKeys
from manifest_platform.manifest.item import check_key_text
from manifest_platform.sources.snowplow.settings import SnowplowSettings
from manifest_platform.sources.veeva.settings import PasswordLogin, VeevaSettings
from manifest_platform.storage import as_uri
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA

REPOSITORY = Path(__file__).parents[2]

WHOLE = """
datasets:
  acme:
    landing: {root: landing}
    shred: {output: shredded, schemas: [schemas, "https://schemas.example/"]}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.delenv(config.VARIABLE, raising=False)

    def _write(text: str) -> Path:
        file = tmp_path / "platform.yaml"
        file.write_text(text)
        return file

    return _write


def problems(file: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        load(file)
    message = str(raised.value)
    assert str(file) in message
    return message


def shop(settings: Config) -> SnowplowSettings:
    """The dataset `acme`."""
    found = settings.datasets["acme"]
    assert isinstance(found, SnowplowSettings)
    return found


def test_defaults_fill_what_a_dataset_does_not_say(write, tmp_path):
    settings = load(write(WHOLE))
    acme = settings.datasets["acme"]
    assert (acme.landing.complete, acme.landing.marker, acme.load.late) == ("marker", "_SUCCESS", "append")
    assert settings.manifest.store == f"sqlite:///{tmp_path}/.manifest_platform/manifest.db"


def test_relative_paths_are_relative_to_the_file_and_others_stay(write, tmp_path):
    settings = load(write(WHOLE))
    acme = shop(settings)
    assert acme.landing.root == f"{tmp_path}/landing"
    assert acme.shred.schemas == [f"{tmp_path}/schemas", "https://schemas.example/"]
    assert load(write(f"{WHOLE}\nspark: {{conf: own.conf}}")).spark.conf == f"{tmp_path}/own.conf"
    remote = load(write(WHOLE.replace("root: landing", "root: s3://bucket/enriched")))
    assert remote.datasets["acme"].landing.root == "s3://bucket/enriched"


def test_sparks_properties_are_the_packages_where_none_lie_beside_the_file(write, tmp_path):
    own = tmp_path / "spark_conf" / "connect.conf"
    named = f"{WHOLE}\nspark: {{conf: spark_conf/connect.conf}}"
    assert load(write(WHOLE)).spark.conf == str(REPOSITORY / "spark_conf" / "local.conf")
    assert load(write(named)).spark.conf == str(REPOSITORY / "spark_conf" / "connect.conf")
    own.parent.mkdir()
    own.touch()
    assert load(write(named)).spark.conf == str(own)
    for absent in ("spark_conf/absent.conf", "spark_conf/../README.md", "elsewhere/local.conf"):
        assert load(write(f"{WHOLE}\nspark: {{conf: {absent}}}")).spark.conf == str(tmp_path / absent)


def test_the_repositorys_file_loads_and_keeps_all_that_the_demo_makes_in_one_place(monkeypatch, tmp_path):
    monkeypatch.setenv("MANIFEST_PLATFORM_DEMO", str(tmp_path))
    settings = load(REPOSITORY / config.DEFAULT_FILE)
    acme = shop(settings)
    assert settings.dataset(None) == "acme"
    assert Path(settings.spark.conf).is_file()
    for place in (acme.landing.root, acme.shred.output, *acme.shred.schemas, settings.warehouse.place):
        assert Path(place).is_relative_to(tmp_path)
    assert settings.manifest.store == f"sqlite:///{tmp_path}/manifest.db"
    assert Path(settings.manifest.overflow or "").is_relative_to(tmp_path)


def test_the_repositorys_files_name_every_key_of_their_sources():
    named, known = set(), set()
    for file in (config.DEFAULT_FILE, "manifest_platform_veeva.yaml"):
        data = yaml.safe_load((REPOSITORY / file).read_text())
        loaded = load(REPOSITORY / file).model_dump()
        assert keys(data) <= keys(loaded)
        named |= {key.partition(".")[2].partition(".")[2] if key.startswith("datasets.") else key for key in keys(data)}
        known |= {key.partition(".")[2].partition(".")[2] if key.startswith("datasets.") else key for key in keys(loaded)}
    assert named == known


def keys(data: dict, prefix: str = "") -> set[str]:
    return {f"{prefix}{name}" for name in data}.union(
        *(keys(part, f"{prefix}{name}.") for name, part in data.items() if isinstance(part, dict))
    )


def test_the_environment_names_the_file_and_an_argument_beats_it(write, monkeypatch, tmp_path):
    named = write(WHOLE)
    monkeypatch.setenv(config.VARIABLE, str(named))
    assert "acme" in load().datasets
    other = tmp_path / "other.yaml"
    other.write_text(WHOLE.replace("acme", "other"))
    assert "other" in load(other).datasets


def test_a_missing_file_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.delenv(config.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"no configuration at .*{config.DEFAULT_FILE}; pass --config FILE or set"):
        load()


def test_what_cannot_be_read_as_a_file_is_no_configuration(tmp_path):
    (tmp_path / "latin").write_bytes(b"datasets: \xe9")
    for file, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "latin" / "x", "Not a directory"),
        (tmp_path / "latin", "it is not UTF-8 text"),
    ):
        assert f"cannot read {file}: {reason}; pass a YAML file" in problems(file)


def test_every_problem_is_reported_at_once(write):
    message = problems(
        write(
            """
datasets:
  acme:
    landing: {root: landing, look_back: 3}
    shred: {output: shredded, schemas: none, batch: 0}
    load: {late: ignore}
  other:
    source: kafka
lease: {seconds: soon}
"""
        )
    )
    assert (
        "\n  line 8: datasets.other.source: 'kafka': allowed: items, snowplow_enriched, snowplow_transformed, veeva" in message
    )
    for key in (
        "datasets.acme.landing.look_back",
        "datasets.acme.shred.schemas",
        "datasets.acme.shred.batch",
        "datasets.acme.load.late",
        "lease.seconds",
    ):
        assert f" {key}:" in message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("root: landing", "root: landing, marker: a/b"), "datasets.acme.landing.marker: 'a/b'"),
        (("root: landing", "root: landing, complete: never"), "datasets.acme.landing.complete: 'never'"),
        (("root: landing", "root: landing, settle_seconds: 0"), "datasets.acme.landing.settle_seconds: 0"),
        (("root: landing", "look_back_days: 3"), "datasets.acme.landing.root: is required"),
        (("output: shredded", "output: shredded, batch: 91"), "datasets.acme.shred.batch: 91"),
        (("output: shredded", "output: shredded, bad_rows: {max_share: 2}"), "datasets.acme.shred.bad_rows.max_share: 2"),
        (("  acme:", "  Acme:"), "datasets.Acme"),
        (("  acme:", "  acme:\n    owner: nobody"), "datasets.acme.owner: 'nobody'"),
        (
            ("datasets:", "manifest: {store: 'mysql://h/db'}\ndatasets:"),
            "allowed: dynamodb://TABLE?region=eu-west-1, postgresql://user@host:5432/database, sqlite:///path",
        ),
        (("datasets:", "manifest: {store: 'sqlite://'}\ndatasets:"), "'sqlite://': allowed: sqlite:///path/to/manifest.db"),
        (("datasets:", "manifest: {store: 'postgresql://h'}\ndatasets:"), "manifest.store: 'postgresql://h': allowed: "),
        (
            ("datasets:", "manifest: {store: 'postgresql://h/db?password=x'}\ndatasets:"),
            "the query holds a password; give it by PGPASSWORD, PGPASSFILE or",
        ),
        (("datasets:", "manifest: {store: 'dynamodb://'}\ndatasets:"), "'dynamodb://': allowed: dynamodb://TABLE?region="),
        (
            ("datasets:", "manifest: {store: 'dynamodb://table?rgion=eu-west-1'}\ndatasets:"),
            "unknown or repeated rgion; allowed: dynamodb://TABLE?region=",
        ),
        (("datasets:", "manifest: {overflow: 'gs://b/x'}\ndatasets:"), "manifest.overflow: 'gs://b/x': allowed: a local path"),
        (("datasets:", "manifest: {store: 'sqlite:///s3://b/m.db'}\ndatasets:"), "manifest.store: 'sqlite:///s3://b/m.db'"),
        (
            ("datasets:", "warehouse: {path: 's3://b/x.duckdb'}\ndatasets:"),
            "warehouse.path: 's3://b/x.duckdb': allowed: a local",
        ),
        (("datasets:", "warehouse: {path: ''}\ndatasets:"), "warehouse.path: '': allowed: a local path"),
        (
            ("datasets:", "spark: {conf: 's3://b/some.conf'}\ndatasets:"),
            "spark.conf: 's3://b/some.conf': allowed: a local path",
        ),
        (("root: landing", "root: 'gs://b/x'"), "datasets.acme.landing.root: 'gs://b/x': allowed: a local path, file:///path"),
        (("root: landing", "root: 's3:///x'"), "datasets.acme.landing.root: 's3:///x': allowed: a local path, file:///path"),
        (("root: landing", "root: ~nobody-here/x"), "landing.root: '~nobody-here/x': allowed: a local path, with ~ for a home"),
        (("root: landing", "root: ''"), "datasets.acme.landing.root: '': allowed: a local path"),
        (("root: landing", "root: 's3://b/a b'"), "landing.root: 's3://b/a b': allowed in an s3:// URI: printable ASCII"),
        (("root: landing", "root: 's3://b/a#b'"), "landing.root: 's3://b/a#b': allowed in an s3:// URI: printable ASCII"),
        (("root: landing", "root: 's3://b/é'"), "landing.root: 's3://b/é': allowed in an s3:// URI: printable ASCII"),
        (
            ("root: landing", "root: s3://b/y/../l/x"),
            "landing.root: 's3://b/y/../l/x': allowed: s3://bucket/prefix, without . or",
        ),
        (("root: landing", "root: s3://b/./l"), "landing.root: 's3://b/./l': allowed: s3://bucket/prefix, without . or"),
        (
            ("root: landing", "root: 's3://key@b/x'"),
            "landing.root: 's3://***@b/x': allowed: s3://bucket/prefix; credentials come",
        ),
        (("root: landing", "root: 'file:///a#b'"), "landing.root: 'file:///a#b': allowed: a local path or file:///path, with"),
        (("root: landing", "root: 'file:///a?'"), "landing.root: 'file:///a?': allowed: a local path or file:///path, with"),
        (("root: landing", "root: 'file://host/a'"), "landing.root: 'file://host/a': allowed: a local path or file:///path"),
        (("output: shredded", "output: 'gs://b/x'"), "datasets.acme.shred.output: 'gs://b/x': allowed: a local path"),
        (("https://schemas.example/", "ftp://h/x"), "datasets.acme.shred.schemas.1: 'ftp://h/x': allowed: a local path"),
        (("https://schemas.example/", "https:///x"), "datasets.acme.shred.schemas.1: 'https:///x': allowed: a local path"),
        (
            ("  acme:", "  manifest_platform:"),
            "datasets.manifest_platform: 'manifest_platform': is a reserved schema of the warehouse",
        ),
        (("  acme:", "  information_schema:"), "datasets.information_schema: 'information_schema': is a reserved schema"),
        (("datasets:", "warehouse: {kind: oracle}\ndatasets:"), "warehouse.kind: 'oracle'"),
        (("datasets:", "drain: {max_items: 0}\ndatasets:"), "drain.max_items: 0"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(write, change, expected):
    assert expected in problems(write(WHOLE.replace(*change)))


@pytest.mark.parametrize(
    "root", ["s3://bucket/enriched", "s3://bucket", "file:///a%23b", "/a b#c/é", "with space", "s3://bucket/run@x/y?z"]
)
def test_what_the_manifests_keys_hold_is_taken(write, root):
    settings = load(write(WHOLE.replace("root: landing", f"root: '{root}'")))
    check_key_text("landing root", as_uri(settings.datasets["acme"].landing.root))


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://user@host:5432/database",
        "postgresql://user@/database?host=/var/run/postgresql",
        "dynamodb://Table-1?region=eu-west-1&endpoint=http://localhost:8000",
    ],
)
def test_every_kind_of_store_is_one_line(write, tmp_path, store):
    settings = load(write(f"manifest: {{store: '{store}', overflow: big}}\n{WHOLE}")).manifest
    assert (settings.store, settings.overflow) == (store, f"{tmp_path}/big")
    assert load(write(WHOLE)).manifest.overflow is None


def test_the_ledgers_schema_is_no_datasets_name(write):
    assert f"datasets.{CONTROL_SCHEMA}" in problems(write(WHOLE.replace("acme", CONTROL_SCHEMA)))


def test_an_unknown_key_is_reported_with_those_that_are_allowed(write):
    message = problems(write(WHOLE.replace("root: landing", "root: landing, path: x")))
    allowed = "complete, expected_every_seconds, full_listing_hours, layout, look_back_days, marker, notify, root"
    assert f"datasets.acme.landing.path: unknown key; allowed here: {allowed}" in message
    assert (
        "allowed here: aws, dagster, datasets, deployment, drain, files, follow, housekeeping, lease, limits, manifest, spark,"
        " targets, warehouse" in problems(write(f"spork: {{}}\n{WHOLE}"))
    )


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("dagster_days", "0", "greater than or equal to 1"),
        ("merge_rows_days", "1", "greater than or equal to 2"),
        ("attempts_hours", "0.5", "greater than or equal to 1"),
        ("schedule", "daily", "housekeeping.schedule: 'daily'"),
    ],
)
def test_an_age_at_which_somebody_may_still_look_is_refused(write, key, value, allowed):
    message = problems(write(f"{WHOLE}housekeeping: {{{key}: {value}}}\n"))
    assert f"housekeeping.{key}" in message
    assert allowed in message


def test_nothing_is_archived_that_a_step_may_still_work_on(write):
    ages = "manifest: {archive: old}\nlimits: {program_hours: 72}\nhousekeeping: {archive_days: DAYS}\n"
    message = problems(write(WHOLE + ages.replace("DAYS", "3")))
    assert "housekeeping.archive_days: 3: allowed: more than 3 days, which limits.program_hours allows" in message
    assert load(write(WHOLE + ages.replace("DAYS", "4"))).housekeeping.archive_days == 4
    assert load(write(WHOLE + ages.replace("DAYS", "null"))).housekeeping.archive_days is None


@pytest.mark.parametrize("text", ["", "datasets: {}", "[]", "- a"])
def test_a_file_without_datasets_is_refused(write, text):
    problems(write(text))


def test_a_file_that_is_no_yaml_is_refused(write):
    assert "is not YAML" in problems(write("datasets: [unclosed"))


def test_two_datasets_cannot_share_a_place(write, tmp_path):
    second = "\n  beta:\n    landing: {root: landing/}\n    shred: {output: elsewhere, schemas: [schemas]}\n"
    message = problems(write(WHOLE.rstrip() + second))
    shared = "datasets.acme.landing.root '{0}/landing' and datasets.beta.landing.root '{1}/landing' are the same place"
    assert shared.format(tmp_path, tmp_path) in message
    named_otherwise = second.replace("landing/", f"'file://{tmp_path}/landing'")
    assert shared.format(tmp_path, f"file://{tmp_path}") in problems(write(WHOLE.rstrip() + named_otherwise))
    shared_output = second.replace("landing/", "other").replace("elsewhere", "shredded")
    assert "datasets.beta.shred.output" in problems(write(WHOLE.rstrip() + shared_output))


def test_the_environment_fills_references_and_defaults_stand_in(write, monkeypatch):
    text = WHOLE.replace("root: landing", 'root: "${ROOT:-s3://default/x}/enriched"')
    monkeypatch.delenv("ROOT", raising=False)
    assert load(write(text)).datasets["acme"].landing.root == "s3://default/x/enriched"
    monkeypatch.setenv("ROOT", "s3://mine")
    assert load(write(text)).datasets["acme"].landing.root == "s3://mine/enriched"


def test_a_reference_without_value_or_default_is_reported(write, monkeypatch):
    monkeypatch.delenv("ROOT", raising=False)
    assert "datasets.acme.landing.root: ${ROOT} is not set" in problems(
        write(WHOLE.replace("root: landing", 'root: "${ROOT}"'))
    )


def test_a_password_in_the_file_is_refused_and_not_repeated(write):
    message = problems(write(WHOLE.replace("https://schemas", "https://me:hunter2@schemas")))
    assert "datasets.acme.shred.schemas.1: has a password" in message
    assert "hunter2" not in message


def test_a_password_from_the_environment_is_taken(write, monkeypatch):
    monkeypatch.setenv("PASSWORD", "hunter2")
    settings = load(write(WHOLE.replace("https://schemas", "https://me:${PASSWORD}@schemas")))
    assert shop(settings).shred.schemas[1] == "https://me:hunter2@schemas.example/"


@pytest.mark.parametrize("password", ["hunter2", "hun@ter2", "hun/ter2", "hun ter2", "hun'ter2"])
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (("datasets:", 'manifest: {store: "mysql://u:${PASSWORD}@h/db"}\ndatasets:'), "manifest.store: "),
        (("datasets:", 'manifest: {store: "postgresql://u:${PASSWORD}@h/db?password=x"}\ndatasets:'), "manifest.store: "),
        (("root: landing", 'root: "s3://u:${PASSWORD}@h/db"'), "datasets.acme.landing.root: "),
        (("https://schemas.example/", "ftp://u:${PASSWORD}@h/db"), "datasets.acme.shred.schemas.1: "),
        (("datasets:", 'lease: ["ftp://u:${PASSWORD}@h/db"]\ndatasets:'), "lease: "),
    ],
)
def test_a_password_from_the_environment_is_never_shown(write, monkeypatch, change, shown, password):
    monkeypatch.setenv("PASSWORD", password)
    message = problems(write(WHOLE.replace(*change)))
    assert shown in message
    assert "://***@h/db" in message
    assert "ter2" not in message


def test_which_dataset_is_meant(write):
    settings = load(write(WHOLE))
    assert settings.dataset(None) == settings.dataset("acme") == "acme"
    with pytest.raises(ConfigError, match="'beta' is not configured; configured are: acme"):
        settings.dataset("beta")
    second = "\n  beta:\n    landing: {root: b}\n    shred: {output: c, schemas: [schemas]}\n"
    with pytest.raises(ConfigError, match="name one: acme, beta"):
        load(write(WHOLE.rstrip() + second)).dataset(None)


@pytest.mark.parametrize("option", ["password", "sslpassword"])
def test_a_password_in_the_query_of_a_url_is_refused_and_not_shown(write, option):
    with pytest.raises(ConfigError) as error:
        load(write(WHOLE.replace("datasets:", f"manifest: {{store: 'postgresql://u@h/db?x=1&{option}=s3cret'}}\ndatasets:", 1)))
    assert f"{option}=***" in str(error.value) and "s3cret" not in str(error.value)


MERGED = (
    WHOLE.rstrip()
    + """
    merge:
      output: merged
      tables:
        events: {name: web_events, target_mib: 64, zone: Asia/Tokyo}
      catalog: {kind: glue, prefix: lake_}
"""
)


def test_merging_is_configured_by_dataset_and_table(write, tmp_path):
    assert load(write(WHOLE)).datasets["acme"].merge is None
    merge = load(write(MERGED)).datasets["acme"].merge
    assert merge and (merge.output, merge.profile, merge.zone) == (str(tmp_path / "merged"), "default", "UTC")
    assert (merge.tables["events"].name, merge.tables["events"].target_mib) == ("web_events", 64)
    assert (merge.catalog.kind, merge.workers) == ("glue", 2)


@pytest.mark.parametrize(("configuration", "apart"), [("WHOLE", False), ("MERGED", True), ("EMBEDDED", False)])
def test_each_date_gets_files_of_its_own_where_readers_of_the_catalog_read_whole_files(
    write, monkeypatch: pytest.MonkeyPatch, configuration: str, apart: bool
):
    from manifest_platform.shred.batch import Options
    from manifest_platform.sources.snowplow.events import shredder
    from manifest_platform.sources.source import open_source

    written = {"WHOLE": WHOLE, "MERGED": MERGED, "EMBEDDED": MERGED.replace("kind: glue, prefix: lake_", "kind: embedded")}
    dataset = load(write(written[configuration])).datasets["acme"]
    told: list[bool] = []
    monkeypatch.setattr(
        shredder,
        "shred",
        lambda *arguments, **_: told.append(next(one for one in arguments if isinstance(one, Options)).date_files) or [],
    )
    open_source("acme", dataset).shred(None, [])  # ty: ignore
    assert (dataset.date_files, told) == (apart, [apart])


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("zone: Asia/Tokyo", "zone: Tokyo", "merge.tables.events.zone: 'Tokyo': allowed: the name of a time zone"),
        ("output: merged", "output: ftp://x", "merge.output: 'ftp://x': allowed: a local path"),
        ("output: merged", "output: merged\n      profle: strict", "merge.profle: unknown key; allowed here: catalog,"),
        ("target_mib: 64", "target_mb: 64", "merge.tables.events.target_mb: unknown key; allowed here: comments, enabled"),
        ("kind: glue", "kind: hive", "merge.catalog.kind: 'hive': allowed: embedded, glue"),
        ("prefix: lake_", "prefx: lake_", "merge.catalog.prefx: unknown key; allowed here: kind, prefix"),
        ("output: merged", "profile: strict", "merge.output: is required"),
        ("events: {name: web_events", "page: {name: web}\n        events: {name: web", "are both called 'web'"),
    ],
)
def test_a_wrong_value_of_merging_is_reported_with_the_allowed_values(write, right, wrong, told):
    with pytest.raises(ConfigError) as error:
        load(write(MERGED.replace(right, wrong)))
    assert told in str(error.value)


def test_datasets_merge_into_places_of_their_own(write):
    second = "\n  beta:\n    landing: {root: b}\n    shred: {output: c, schemas: [schemas]}\n    merge: {output: merged}\n"
    with pytest.raises(
        ConfigError, match=r"datasets.acme.merge.output .* and datasets.beta.merge.output .* are the same place"
    ):
        load(write(MERGED.rstrip() + second))


@pytest.mark.parametrize("text", ["${HOME/landing", "${}/x", "${HOME-x}/y", "a${b c}"])
def test_a_reference_that_is_malformed_is_no_text(write, text):
    message = problems(write(WHOLE.replace("root: landing", f'root: "{text}"')))
    assert "datasets.acme.landing.root: " in message
    assert "has a ${ without a valid name; allowed: ${NAME} or ${NAME:-default}" in message


def test_a_duplicate_key_is_refused_with_both_lines(write):
    message = problems(write(WHOLE + "lease: {seconds: 60}\nlease: {seconds: 90}\n"))
    line = len(WHOLE.splitlines()) + 1
    assert f"key 'lease' is on line {line} and again on line {line + 1}; allowed: once" in message


def test_a_mapping_may_take_over_what_another_says(write):
    text = "{beat: &beat {seconds: 90}, lease: {<<: *beat, seconds: 30}}"
    assert yaml.load(text, Loader=UniqueKeys)["lease"] == {"seconds": 30}


# Veeva's own

LOGIN = "{kind: password, user: me}"
VAULT = f"""
datasets:
  vault:
    source: veeva
    vault: {{id: "1001", url: "http://localhost:8787", login: {LOGIN}}}
    landing: {{root: landing}}
    shred: {{output: shredded}}
"""


def test_a_vault_has_its_address_and_login(write):
    settings = load(write(VAULT)).datasets["vault"]
    assert isinstance(settings, VeevaSettings)
    vault = settings.vault
    assert (vault.id, vault.url) == ("1001", "http://localhost:8787")
    assert vault.login == PasswordLogin(kind="password", user="me", password_variable="VAULT_PASSWORD")


@pytest.mark.parametrize(
    ("now", "then", "told"),
    [
        (f'    vault: {{id: "1001", url: "http://localhost:8787", login: {LOGIN}}}\n', "", "vault.vault: is required"),
        ('"1001"', "abc", "datasets.vault.vault.id: 'abc': "),
        (f", login: {LOGIN}", "", "datasets.vault.vault: it has a url but no login; allowed with a url: a login"),
        (LOGIN, "{user: me}", "vault.login.kind: None: allowed: password, session, token, oauth"),
        (LOGIN, "{kind: saml}", "vault.login.kind: 'saml': allowed: password, session, token, oauth"),
        (LOGIN, "{kind: password}", "vault.login.user: is required"),
        (LOGIN, "{kind: session, user: me}", "vault.login.user: unknown key; allowed here: kind, session_variable"),
        (LOGIN, "{kind: session, session_variable: a-b}", "vault.login.session_variable: 'a-b': allowed: an environment"),
        (LOGIN, "{kind: oauth, profile: a, client: b}", "vault.login: allowed: either an issuer or a token_url"),
        (
            LOGIN,
            "{kind: oauth, profile: a, client: b, issuer: 'http://host'}",
            "vault.login.issuer: 'http://host': allowed: https://host/path, or http://localhost:port/path",
        ),
        (LOGIN, f"{LOGIN}, client_id: a b", "vault.client_id: 'a b': String should match"),
        ("http://localhost:8787", "ftp://localhost", "datasets.vault.vault.url: 'ftp://localhost': allowed: https://host, or"),
        ("http://localhost:8787", "https://host/api", "vault.vault.url: 'https://host/api': allowed: https://host, or"),
        (": shredded}", ": shredded, types: {a.b: Text}}", "vault.shred.types.a.b: 'Text': Input should be 'String'"),
        ("{output: shredded}", "{output: shredded, schemas: [x]}", "vault.shred.schemas: unknown key; allowed here: ahead,"),
        ("http://localhost:8787", "https://:geheim@host", "'https://***@host': allowed: https://host, or"),
        ("http://localhost:8787", "https://host#part", "allowed: https://host, or"),
        ("http://localhost:8787", "http://localhost:port", "allowed: https://host, or"),
        (": shredded}", ": shredded}\n    steps: [{name: out, feed: full, order: strict}]", "'out' would stop at"),
        (
            ": shredded}",
            ": shredded}\n    steps: [{name: a, feed: log}, {name: b, upstream: [a]}]",
            "step 'b' of feed incr waits for 'a', which is of feed log",
        ),
        (": shredded}", ": shredded}\n    merge: {output: merged}", "merge is for tables that only append"),
    ],
)  # fmt: skip
def test_a_wrong_vault_is_reported_with_the_allowed_values(write, now, then, told):
    assert now in VAULT
    assert told in problems(write(VAULT.replace(now, then)))


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ('vault: {id: "1"}', "shop.vault: unknown key; allowed here: landing,"),
        ("load: {logs: own}", "shop.load.logs: unknown key; allowed here: batch, blackout, checks, duplicates,"),
        ("steps: [{name: report, feed: incr}]", "step 'report' is of feed 'incr'; allowed: enriched"),
    ],
)
def test_what_is_veevas_is_refused_of_a_shop(write, part, told):
    message = problems(
        write(f"datasets:\n  shop:\n    landing: {{root: l}}\n    shred: {{output: s, schemas: [i]}}\n    {part}\n")
    )
    assert told in message


@pytest.mark.parametrize(
    ("registry", "problem"),
    [
        ("{url: 'https://other.example/'}", "registries: allowed are the places of `schemas`, each once"),
        ("{url: schemas, apikey_variable: KEY}", "is not asked over HTTP; allowed there: prefixes, priority"),
        ("{url: 'https://schemas.example/', apikey: secret}", "unknown key; allowed here: absent, apikey_variable, prefixes,"),
        ("{url: 'https://schemas.example/', absent: [500]}", "absent.0: 500"),
    ],
)
def test_registries_are_those_of_the_schemas(write, registry: str, problem: str) -> None:
    right = "{url: 'https://schemas.example/', apikey_variable: IGLU_KEY, absent: [403, 404]}"
    whole = WHOLE.replace('"https://schemas.example/"]}', f'"https://schemas.example/"], registries: [{right}]}}')
    [own] = shop(load(write(whole))).shred.registries
    assert (own.apikey_variable, own.absent) == ("IGLU_KEY", (403, 404))
    assert problem in problems(write(whole.replace(right, registry)))


def test_an_unknown_key_of_a_step_is_reported(write) -> None:
    """This raised a KeyError before."""
    file = write(WHOLE.replace("    shred: {output", "    steps: [{name: audit, command: x}]\n    shred: {output"))
    assert "datasets.acme.steps.0.command: unknown key; allowed here:" in problems(file)


# Checks of loads


def with_check(text: str) -> str:
    return f"{WHOLE}    load:\n      checks:\n        - {{{text}}}\n"


def test_checks_of_a_load_are_read_by_their_kind(write):
    text = with_check("name: few, table: events, kind: nulls, column: user_id, max_share: 0.1, severity: warn")
    [check] = load(write(text)).datasets["acme"].load.checks
    assert check.model_dump() == {
        "name": "few",
        "table": "events",
        "kind": "nulls",
        "column": "user_id",
        "max_share": 0.1,
        "severity": "warn",
        "feed": None,
    }


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("name: a, table: t, kind: row", "checks.0.kind: 'row': allowed: rows, nulls, unique, sql"),
        ("name: a, table: t", "checks.0.kind: None: allowed: rows, nulls, unique, sql"),
        ("name: a, table: t, kind: nulls", "checks.0.column: is required"),
        ("name: a, table: t, kind: nulls, columns: [b]", "checks.0.columns: unknown key; allowed here: column, feed, kind"),
        ("name: a, table: t, kind: unique, columns: []", r"checks.0.columns: \[\]: .*at least 1"),
        ("name: A b, table: t, kind: rows", "checks.0.name: 'A b'"),
        ("name: a, kind: rows", "checks.0.table: is required"),
        ("name: a, table: t, kind: rows, min: 2, max: 1", "min 2 is above max 1; allowed: min up to max"),
        ("name: a, table: t, kind: rows, severity: fatal", "checks.0.severity: 'fatal'.*'error' or 'warn'"),
        ("name: a, table: t, kind: rows, feed: other", "load.checks: a is of feed 'other'; allowed: enriched"),
        ("name: a, table: t, kind: rows}, {name: a, table: u, kind: rows", "the name 'a' is that of 2 checks; allowed: a name"),
        ('name: a, table: t, kind: sql, query: "SELECT 1"', "reads no rows of the load; allowed: a SELECT with {staged} or"),
        (
            'name: a, table: t, kind: sql, query: "SELECT 1 FROM {stage}"',
            "has the placeholder {stage}; allowed: {staged}, {target}, {item}",
        ),
        ('name: a, table: t, kind: sql, query: "DELETE FROM {target}"', "allowed: one SELECT, or WITH and a SELECT"),
        (
            'name: a, table: t, kind: sql, query: "WITH d AS (DELETE FROM {target} RETURNING 1) SELECT * FROM d"',
            "has the word DELETE; allowed: one SELECT that writes nothing",
        ),
        ('name: a, table: t, kind: sql, query: "SELECT 1 FROM {staged}; SELECT 2"', "has a semicolon; allowed: one SELECT"),
        ('name: a, table: t, kind: sql, query: "SELECT 1 -- {staged}"', "has a comment; allowed: one SELECT"),
        (
            'name: a, table: t, kind: sql, query: "SELECT 1 FROM {staged}", returns: number',
            "allowed: `min`, `max` or both with `returns: number`",
        ),
        ('name: a, table: t, kind: sql, query: "SELECT 1 FROM {staged}", min: 1', "allowed: `min`, `max` or both with"),
    ],
)
def test_a_wrong_check_of_a_load_is_refused_with_what_is_allowed(write, check, said):
    text = problems(write(with_check(check).replace("}, {", "}\n        - {")))
    assert re.search(said if ".*" in said else re.escape(said), text), text


def test_an_empty_check_is_no_check(write):
    assert "checks.0: None: allowed: keys and their values, with kind as one of rows" in problems(
        write(f"{WHOLE}    load: {{checks: [null]}}\n")
    )


def test_two_datasets_cannot_share_a_schema(write):
    dataset = "{landing: {root: %s}, shred: {output: %s-out, schemas: [s]}, load: {schema_name: %s}}"
    text = "datasets:\n  shop: " + dataset % ("a", "a", "atomic") + "\n  app: " + dataset % ("b", "b", "atomic") + "\n"
    assert "its tables would be in schema 'atomic', which has those of dataset shop" in problems(write(text))


def test_a_dataset_stays_out_of_reserved_schemas(write):
    text = "datasets:\n  shop: {landing: {root: a}, shred: {output: b, schemas: [s]}, load: {schema_name: manifest_platform}}\n"
    assert "datasets.shop.load.schema_name: 'manifest_platform': is a reserved schema" in problems(write(text))
