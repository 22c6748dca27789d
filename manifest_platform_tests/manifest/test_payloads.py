from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.manifest import OUTPUT, Application, Failure, FailureKind, Payload, State, Store, payloads
from manifest_platform.manifest.item import lateness
from manifest_platform.manifest.payloads import (
    APPLICATION_ERROR,
    LOCKED,
    PROCESSED_TYPES,
    InvalidPayload,
    InvalidSchema,
    family,
    register,
    register_folder,
    violations,
)
from manifest_platform.manifest.records import FAILURE, LANDED, REASON
from manifest_platform.pipeline import Pipeline
from manifest_platform_tests.manifest.given import (
    SHRED,
    claim_next,
    discover,
    history,
    key,
    land,
    landed,
    lease,
    manifest,
)

GOOD: list[tuple[str, dict[str, Any]]] = [
    (LANDED, landed(1).payload().data),
    (LANDED, landed(1, "sum", "a", "b").payload({"load": 1, "load:x": 2}, ["load"]).data),
    (OUTPUT, {}),
    (OUTPUT, {"rows": 3, "by anybody": ["anything"]}),
    (OUTPUT, {"rows": {"events": 1}, "bytes": 2, "late": False, "applied_at": "2026-01-01T00:00:00+00:00"}),
    (FAILURE, {"kind": "transient", "message": "", "exception": "ValueError", "traceback": "…"}),
    (REASON, {"reason": "", "automatic": True, "keeps_skips": True, "full_load": "begun", **lateness({"load": 3}, ["load"])}),
    (LOCKED, {"recordId": "123e4567-e89b-12d3-a456-426614174000"}),
    (APPLICATION_ERROR, {"programmingLanguage": "SCALA", "message": "m", "causeStackTrace": "c", "lineNumber": None}),
    (PROCESSED_TYPES, {"shreddedTypes": ["iglu:com.acme/a/jsonschema/1-0-0"]}),
]
BAD: list[tuple[str, dict[str, Any], list[str]]] = [
    (LANDED, {"uri": "", "files": -1, "bytes": True, "checksum": "", "start": 1, "stop": None, "more": 0}, ["$", *"bfsu"]),
    (LANDED, {**landed(1).payload().data, "late": ["load"], "set_aside": "load"}, ["late", "set_aside"]),
    (OUTPUT, {"rows": -1, "bytes": 1.5, "applied_at": "2026-01-01T00:00:00"}, ["applied_at", "bytes", "rows"]),
    (OUTPUT, {"rows": {"events": "1"}}, ["rows.events"]),
    (FAILURE, {"kind": "odd", "message": "m" * 2049, "traceback": "t" * 8193}, ["kind", "message", "traceback"]),
    (REASON, {"automatic": "yes", "full_load": "done"}, ["$", "automatic", "full_load"]),
    (LOCKED, {"recordId": "123e4567e89b12d3a456426614174000"}, ["recordId"]),
    (APPLICATION_ERROR, {"lineNumber": -1}, ["$", "$", "lineNumber"]),
    (PROCESSED_TYPES, {"shreddedTypes": ["iglu:a", 1]}, ["shreddedTypes[1]"]),
]


@pytest.fixture(autouse=True)
def only_built_in() -> Iterator[None]:
    """Removes the schemas that a test registered."""
    folders, registered = list(payloads._folders), dict(payloads._registered)
    yield
    payloads._folders[:] = folders
    payloads._registered.clear()
    payloads._registered.update(registered)
    payloads._validator.cache_clear()


@pytest.mark.parametrize(("schema", "data"), GOOD)
def test_payloads_that_fit(schema: str, data: dict[str, Any]) -> None:
    assert violations(Payload(schema, data)) == []


@pytest.mark.parametrize(("schema", "data", "paths"), BAD)
def test_every_violation_is_reported(schema: str, data: dict[str, Any], paths: list[str]) -> None:
    found = [one.path for one in violations(Payload(schema, data))]
    full = {"b": "bytes", "f": "files", "s": "start", "u": "uri"}
    assert found == [path if path == "$" else f"$.{full.get(path, path)}" for path in paths]


def test_a_violation_names_path_value_and_rule() -> None:
    told = violations(Payload(APPLICATION_ERROR, {"programmingLanguage": "COBOL 2002", "message": "m" * 3000}))
    message, language = (str(one) for one in told)
    assert message == f"$.message: '{'m' * 79}… (3,002 characters) breaks maxLength 2048"
    assert language.startswith('$.programmingLanguage: \'COBOL 2002\' breaks enum ["JAVA", "SCALA"')


def test_a_missing_property_is_named() -> None:
    assert [one.rule for one in violations(Payload(FAILURE, {"kind": "transient"}))] == [
        "required: 'message' is a required property"
    ]


@pytest.mark.parametrize("version", range(3))
def test_each_version_of_snowplows_error_has_its_own_properties(version: int) -> None:
    uri = APPLICATION_ERROR.replace("1-0-2", f"1-0-{version}")
    base = {"programmingLanguage": "PYTHON", "message": "m"}
    allowed = [not violations(Payload(uri, {**base, more: None})) for more in ("stackTrace", "fileName", "causeStackTrace")]
    assert allowed == [True, version >= 1, version >= 2]


@pytest.mark.parametrize("data", [{"rows": float("nan")}, {"at": key(1)}, {1: {2}}, {"half": "\ud800"}, {"\udc00": 1}])
def test_a_payload_that_is_not_json_is_refused(data: dict) -> None:
    [told] = violations(Payload(OUTPUT, data))
    assert told.path == "$" and told.rule.startswith("JSON: ")
    str(told).encode()  # a message that can be encoded


def test_every_failure_fits_its_schema_however_long_its_texts_are() -> None:
    for kind in (FailureKind.PERMANENT, FailureKind.TRANSIENT, FailureKind.LEASE_EXPIRED):
        assert violations(Failure(kind, "é" * 100_000, "E" * 5_000, "t" * 100_000).payload()) == []


# Checks on writing


def test_a_completion_that_does_not_fit_is_refused_and_nothing_is_written(store: Store) -> None:
    of = manifest(store)
    discover(of, 1)
    with lease(of, SHRED) as held:
        [claim] = of.claim(held, [of.item(key(1))])
        before = store.query("shop", "")
        with pytest.raises(InvalidPayload, match=r"\$\.bytes: 'many' breaks type \"integer\"; \$\.rows: None breaks type"):
            of.complete(claim, Payload(OUTPUT, {"bytes": "many", "rows": None}))
        assert store.query("shop", "") == before
        of.complete(claim, Payload(OUTPUT, {"bytes": 1}))
    assert history(of, 1) == ["discover New", "shred Processing", "shred Processed"]


def test_an_unknown_schema_is_refused_with_the_way_to_make_it_known(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    payload = Payload("iglu:com.acme/report/jsonschema/1-0-0", {"pages": 1})
    with pytest.raises(InvalidPayload, match=r"com\.acme/report/jsonschema/1-0-0, and name the folder .*manifest\.schemas"):
        of.commit_output(key(1), Application("report"), payload)
    register({payload.schema: {"type": "object", "properties": {"pages": {"minimum": 1}}}})
    assert of.commit_output(key(1), Application("report"), payload).payload == payload
    with pytest.raises(InvalidPayload, match=r"\$\.pages: 0 breaks minimum 1"):
        of.commit_output(key(1), Application("report"), Payload(payload.schema, {"pages": 0}))


def test_a_takeover_checks_what_it_completes(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with lease(of) as held:
        claim_next(of, held)
    with lease(of) as held:
        abandoned = of.unsettled(held)
        assert abandoned
        with pytest.raises(InvalidPayload):
            of.adopt(held, abandoned, 1, Payload(OUTPUT, {"rows": "all"}))
    assert of.history(key(1))[-1].state is State.PROCESSING


# Schemas of users

REPORT = "iglu:com.acme/report/jsonschema/1-0-0"
REPORT_SCHEMA = {"self": {"vendor": "com.acme", "name": "report", "format": "jsonschema", "version": "1-0-0"}, "type": "object"}


def keep(folder: Path, schema: object, uri: str = REPORT) -> Path:
    file = folder / uri.removeprefix("iglu:")
    file.parent.mkdir(parents=True)
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return folder


@pytest.mark.parametrize("below", ["", "schemas"])
def test_a_folder_of_schemas_is_read_when_a_schema_is_needed(tmp_path: Path, below: str) -> None:
    register_folder(tmp_path)
    keep(tmp_path / below, {**REPORT_SCHEMA, "required": ["pages"]})
    assert [one.path for one in violations(Payload(REPORT, {}))] == ["$"]
    assert violations(Payload(REPORT, {"pages": 1})) == []


def test_a_built_in_schema_cannot_be_changed(tmp_path: Path) -> None:
    register_folder(keep(tmp_path, {"not": {}}, FAILURE))
    assert violations(Payload(FAILURE, {"kind": "permanent", "message": "m"})) == []
    with pytest.raises(ValueError, match="is known with other content"):
        register({FAILURE: {"not": {}}})


def test_the_same_schema_may_be_registered_again() -> None:
    register({REPORT: REPORT_SCHEMA})
    register({REPORT: dict(REPORT_SCHEMA)})
    with pytest.raises(ValueError, match="a changed schema needs a new version"):
        register({REPORT: {**REPORT_SCHEMA, "maxProperties": 1}})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "odd"}, r"is not a JSON Schema: \$\.type"),
        ({"self": {**REPORT_SCHEMA["self"], "version": "1-0-1"}}, "must be the schema of iglu:com.acme/report"),
        ([], "it is not an object"),
    ],
)
def test_an_invalid_schema_is_refused(schema: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSchema, match=told):
        register({REPORT: schema})
    register_folder(keep(tmp_path, schema))
    with pytest.raises(InvalidSchema, match=told):
        violations(Payload(REPORT, {}))


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    register_folder(keep(tmp_path, "{"))
    with pytest.raises(InvalidSchema, match="report/jsonschema/1-0-0 is not JSON"):
        violations(Payload(REPORT, {}))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        register_folder(tmp_path / "gone")


@pytest.mark.parametrize(
    "uri", ["", "report", "iglu:com.acme/../jsonschema/1-0-0", "iglu:com.acme/a/jsonschema/0-0-0", "iglu:a/b/c/1-0-0"]
)
def test_a_name_that_is_not_a_schema_uri_is_refused(uri: str) -> None:
    with pytest.raises(InvalidPayload, match="is not a schema URI"):
        violations(Payload(uri, {}))
    with pytest.raises(ValueError, match="is not a schema URI"):
        family(uri)


def test_nothing_is_fetched_for_a_schema(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("{}")
    register({REPORT: {"$ref": other.as_uri()}})
    with pytest.raises(
        InvalidSchema, match=r"refers to file://.*/other: a schema must be self-contained, because nothing is fetched"
    ):
        violations(Payload(REPORT, {}))


CONFIGURATION = """
manifest: {schemas: [own]}
datasets:
  shop:
    landing: {root: landing}
    shred: {output: shredded, schemas: [iglu]}
"""


def test_folders_of_schemas_are_configured(tmp_path: Path) -> None:
    file = tmp_path / "platform.yaml"
    file.write_text(CONFIGURATION)
    with pytest.raises(config.ConfigError, match=r"manifest\.schemas\.0: 'own': allowed: a local folder that exists"):
        config.load(file)
    keep(tmp_path / "own", {**REPORT_SCHEMA, "maxProperties": 1})
    with Pipeline(config.load(file), "shop"):
        assert [one.rule for one in violations(Payload(REPORT, {"a": 1, "b": 2}))] == ["maxProperties 1"]


# Cost


def test_the_validator_is_loaded_only_when_a_payload_is_written() -> None:
    code = "import sys, manifest_platform.manifest; sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_check_costs_less_than_a_millisecond() -> None:
    payload = landed(1).payload()
    violations(payload)
    started = time.process_time()
    for _ in range(100):
        violations(payload)
    assert (time.process_time() - started) / 100 < 0.001
