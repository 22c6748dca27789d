"""Private values are nowhere in what is written, bad rows included; and entities become rows by their schemas, or none."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from manifest_platform import masking
from manifest_platform.manifest import Refused
from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.criteria import form_of
from manifest_platform.sources.snowplow.events.duplicates import decide, identities, repeated
from manifest_platform.sources.snowplow.events.hiding import Hiding
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.private import PrivateRefused
from manifest_platform.sources.snowplow.rules import Kinds, Rules
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.settings import SnowplowSettings, SnowplowShredSettings
from manifest_platform.sources.snowplow.source import SnowplowEnriched
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity, publish, unstruct

SALT = "0123456789abcdef"
USER = "iglu:com.acme/user/jsonschema/1"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "email": {"type": "string", "format": "email", "maxLength": 20},
        "age": {"type": "integer"},
        "homes": {"type": "array", "items": {"type": "object", "properties": {"street": {"type": "string"}}}},
        "plan": {"type": "string"},
    },
    "required": ["email", "age"],
    "additionalProperties": False,
}
DATA = {"email": "jane@example.org", "age": 34, "homes": [{"street": "Elm Street 13"}], "plan": "gold"}
SECRETS = (b"jane", b"Elm Street", b"203.0.113.9", b"secret-id")
COLUMNS = {
    "events": {"user_ipaddress": "hash", "user_id": "drop"},
    USER: {"email": "hash", "age": "drop", "homes.street": "drop"},
}


@pytest.fixture(autouse=True)
def salt(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PRIVATE_SALT", SALT)
    yield
    masking.forget()


def rules(**settings: Any) -> Rules:
    whole = {"output": "/tmp/x", "schemas": ["/registry"], **settings}
    return SnowplowShredSettings.model_validate(whole).rules()


def private(columns: dict[str, dict[str, str]] | None = None) -> Rules:
    return rules(private={"salt_variable": "PRIVATE_SALT", "columns": COLUMNS if columns is None else columns})


def line(**fields: str) -> bytes:
    return enriched(**{"user_ipaddress": "203.0.113.9", "user_id": "secret-id", **fields})


def shredded(tmp_path: Path, lines: bytes, own: Rules) -> ShreddedEvents:
    publish(tmp_path, f"{USER}-0-0", SCHEMA)
    return shred_lines(lines, Resolver([str(tmp_path)], rules=own), rules=own)


def hashed(value: str) -> str:
    return hmac.new(SALT.encode(), value.encode(), hashlib.sha256).hexdigest()


def test_values_are_hashed_or_dropped_in_events_and_entities(tmp_path: Path) -> None:
    """The hash fits, though the schema wants an address of at most 20 characters; and nothing dropped is required."""
    found = shredded(tmp_path, line(contexts=contexts(entity(f"{USER}-0-0", DATA))), private())
    assert (found.good, found.bad.num_rows) == (1, 0), found.bad.to_pylist()
    [event] = found.tables["events"].to_pylist()
    assert (event["user_ipaddress"], event["user_id"]) == (hashed("203.0.113.9"), None)
    [user] = found.tables["com_acme_user_1"].to_pylist()
    assert (user["email"], user["plan"]) == (hashed("jane@example.org"), "gold")
    assert "age" not in user and orjson.loads(user["homes"]) == [{}]


ESCAPED = contexts(entity(f"{USER}-0-0", DATA)).replace("com.acme/user", "com.acme\\/us\\u0065r")


@pytest.mark.parametrize(
    "bad",
    [
        line(contexts=contexts(entity(f"{USER}-0-0", {**DATA, "plan": 5}))),
        line(contexts=ESCAPED, collector_tstamp="never"),
        line(contexts=contexts(entity(f"{USER}-0-0", {**DATA, "email": 7}))[:-3]),
        line(contexts='{"schema": "x", "data": [{"schema": "' + USER + '-0-0", "data": {"email": "jane"}}]}'),
        line(unstruct_event=unstruct(entity(f"{USER}-0-0", {**DATA, "other": 1}))),
        line(contexts=contexts(entity(f"{USER}-0-0", DATA))) + b"\tone more",
        line(contexts=contexts(entity(f"{USER}-0-0", DATA))).replace(b"\t", b" "),
        line(collector_tstamp="never") + b"\r",
        line(contexts=contexts(entity(f"{USER}-0-0", DATA)).replace("gold", "\\u0000")),
    ],
)
def test_a_bad_row_has_no_private_value_and_its_place_in_the_file(bad: bytes, tmp_path: Path) -> None:
    found = shredded(tmp_path, b"\n".join((line(), bad, line())), private())
    assert (found.good, found.bad.num_rows) == (2, 1)
    [row] = found.bad.to_pylist()
    whole = repr(row).encode()
    assert not any(secret in whole for secret in SECRETS), row
    assert (row["line"], row["byte_offset"]) == (2, len(line()) + 1)


@pytest.mark.parametrize(
    "schema",
    [
        f" {USER}-0-0",
        "IGLU:com.acme/user/jsonschema/1-0-0",
        "iglu:com.Acme/User/jsonschema/1-0-0",
        "iglu:com.acme/user/jsonschema/01-0-0",
        "iglu:com.acme/user/jsonschema/1.0.0",
        "iglu:com.acme/user/jsonschema/1-0-7",
        "iglu:com.acme/user/jsonschema/2-0-0",
        "iglu:com.acme/user/avro/1-0-0",
        "user",
        7,
        None,
    ],
)
@pytest.mark.parametrize("validate", ["full", "off"])
def test_of_an_entity_whose_schema_is_unknown_nothing_is_kept_but_its_name(schema: Any, validate: Any, tmp_path: Path) -> None:
    """A private schema's name in another form, or a version that is not published: nothing says what such an entity holds."""
    data, other = {**DATA, "other": "jane"}, entity("iglu:com.acme/absent/jsonschema/1-0-0", {"b": 1})
    for cell in ({"contexts": contexts(entity(schema, data), other)}, {"unstruct_event": unstruct(entity(schema, data))}):
        found = shredded(tmp_path, line(**cell), replace(private(), validate=validate))
        [row] = found.bad.to_pylist()
        assert not any(secret in repr(row).encode() for secret in SECRETS), row
        assert str(schema) in row["raw"] if isinstance(schema, str) else "(withheld)" in row["raw"]
        assert "contexts" not in cell or '"b":1' in row["raw"], "what is not named as a private schema is shown"
        publish(tmp_path, "iglu:com.acme/user/jsonschema/2-0-0", {"type": "object"})
        again = shredded(tmp_path, row["raw"].encode(), replace(private({}), validate=validate))
        assert again.good == 0, "a replay never takes what is left of an entity for the entity"
        (tmp_path / "schemas/com.acme/user/jsonschema/2-0-0").unlink()


@pytest.mark.parametrize(
    "cell",
    [
        '{"schema":"W","data":[{"email":"jane"}]}',
        '{"schema":"W","data":["jane"]}',
        '{"schema":"W","data":"jane"}',
        '{"schema":"W","data":{"schema":"U2","data":{"email":"jane"}}}',
        '{"schema":"U2","data":[{"schema":"U2","data":{"email":"jane"}}]}',
        '{"schema":"W","data":[{"schema":"U1","data":{"email":"x"},"also":"jane"}],"beside":"jane"}',
        '{"schema":"W","data":[{"schema":"U1","email":"jane"}]}',
        '{"schema":"W","data":[{"schema":"U1","data":{"email":"jane"}}],"data":[]}',
        '{"schema":{"email":"jane"},"data":[]}',
        '["jane"]',
        "jane",
    ],
)
def test_a_cell_that_holds_no_entities_shows_nothing_private(cell: str, tmp_path: Path) -> None:
    wrapper = "iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0"
    cell = cell.replace("W", wrapper).replace("U1", f"{USER}-0-0").replace("U2", "iglu:com.acme/user/jsonschema/2-0-0")
    found = shredded(tmp_path, line(contexts=cell, collector_tstamp="never"), private())
    [row] = found.bad.to_pylist()
    assert "jane" not in repr(row)


def test_another_published_model_has_rules_of_its_own(tmp_path: Path) -> None:
    publish(tmp_path, "iglu:com.acme/user/jsonschema/2-0-0", {"type": "object", "properties": {"email": {"type": "string"}}})
    cell = contexts(entity("iglu:com.acme/user/jsonschema/2-0-0", {"email": "x@y"}))
    assert "x@y" in repr(shredded(tmp_path, line(contexts=cell), private()).tables["com_acme_user_2"].to_pylist())
    assert "x@y" in shredded(tmp_path, line(contexts=cell, collector_tstamp="never"), private()).bad["raw"][0].as_py()


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("drop", {"oneOf": [{"required": ["email"]}, {"required": ["phone"]}]}),
        ("drop", {"minProperties": 1}),
        ("hash", {"allOf": [{"properties": {"email": {"pattern": "@"}}}]}),
    ],
)
def test_an_entity_that_was_valid_as_it_came_is_good(action: str, more: dict[str, Any], tmp_path: Path) -> None:
    publish(tmp_path, f"{USER}-0-0", {"type": "object", "properties": {"email": {"type": "string"}}, **more})
    own = private({USER: {"email": action}})

    def of(data: Any) -> ShreddedEvents:
        cell = contexts(entity(f"{USER}-0-0", data))
        return shred_lines(line(contexts=cell), Resolver([str(tmp_path)], rules=own), rules=own)

    found = of({"email": "jane@example.org"})
    assert found.good == 1, found.bad["reasons"].to_pylist()
    assert "jane" not in repr(found.tables["com_acme_user_1"].to_pylist())
    bad = of({"email": "jane"} if action == "hash" else {})
    assert bad.good == 0 and "jane" not in repr(bad.bad.to_pylist())


@pytest.mark.parametrize("email", ["jane", "jane@example.org"])
def test_a_cell_is_parsed_once_for_all_entities_that_break_their_schema(
    email: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each such entity had all others of its cell parsed and hidden again: a long line took minutes."""
    more = {"allOf": [{"properties": {"email": {"pattern": "@"}}}]}
    publish(tmp_path, f"{USER}-0-0", {"type": "object", "properties": {"email": {"type": "string"}}, **more})
    own = private({USER: {"email": "hash"}})
    hidden, parsed = [], []
    hide, parse = Hiding.entity, numbers.loads
    monkeypatch.setattr(Hiding, "entity", lambda self, one: hidden.append(one) or hide(self, one))
    monkeypatch.setattr(numbers, "loads", lambda cell: parsed.append(cell) or parse(cell))
    cell = contexts(*(entity(f"{USER}-0-0", {"email": f"{number}{email}"}) for number in range(100)))
    found = shred_lines(line(contexts=cell), Resolver([str(tmp_path)], rules=own), rules=own)
    assert found.good == ("@" in email)
    assert len(hidden) == 100
    assert sum(b"contexts" in text for text in parsed) <= 3, (
        "to hide, to show a bad row, and to look at the entities as they came"
    )


def test_each_entity_is_looked_at_as_it_came(tmp_path: Path) -> None:
    """Entities that differ in private values alone are the same when they are hidden."""
    publish(tmp_path, f"{USER}-0-0", {"type": "object", "properties": {"email": {"type": "string"}}, "minProperties": 1})
    own = private({USER: {"email": "drop"}})
    one, other = entity(f"{USER}-0-0", {"email": "jane"}), entity(f"{USER}-0-0", {})
    for cell, good in ((contexts(one, one), 1), (contexts(one, other), 0), (contexts(other, one), 0)):
        found = shred_lines(line(contexts=cell), Resolver([str(tmp_path)], rules=own), rules=own)
        assert (found.good, len(found.bad)) == (good, 1 - good)


def test_without_private_columns_a_bad_row_has_its_line(tmp_path: Path) -> None:
    found = shredded(tmp_path, line(collector_tstamp="never"), rules())
    assert "203.0.113.9" in found.bad["raw"][0].as_py()


def test_large_integers_and_any_text_beside_private_values_are_kept(tmp_path: Path) -> None:
    data = {"email": None, "age": 1, "plan": "ünï\t\U0001f600", "homes": [{"n": 2**70}]}
    own = private({USER: {"age": "drop"}})
    open_schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "email": {"type": ["string", "null"]}}}
    publish(tmp_path, f"{USER}-0-0", open_schema)
    found = shred_lines(
        line(contexts=contexts(entity(f"{USER}-0-0", data)).replace("\t", "\\t")),
        Resolver([str(tmp_path)], rules=own),
        rules=own,
    )
    [user] = found.tables["com_acme_user_1"].to_pylist()
    assert user["plan"] == data["plan"] and str(2**70) in user["homes"]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"events": {"user_ip": "hash"}}, "events have no column 'user_ip'"),
        ({"events": {"contexts": "drop"}}, "events have no column 'contexts'"),
        ({"events": {"event_id": "drop"}}, "must not be empty"),
        ({"events": {"collector_tstamp": "hash"}}, "cannot be hashed"),
        ({"events": {"geo_zipcode": "hash"}}, "too few for a hash"),
        ({"events": {"txn_id": "hash"}}, "cannot be hashed"),
    ],
)
def test_a_column_that_cannot_be_hidden_is_refused(columns: dict[str, dict[str, str]], problem: str) -> None:
    with pytest.raises(PrivateRefused, match=problem):
        private(columns)


@pytest.mark.parametrize("family", [f"{USER}-0-0", "IGLU:com.acme/user/jsonschema/1", "com.acme/user", "event"])
def test_a_model_that_no_schema_can_have_is_refused(family: str) -> None:
    with pytest.raises(PrivateRefused, match="is no model of a schema; write iglu:vendor/name/jsonschema/1"):
        private({family: {"email": "hash"}})


@pytest.mark.parametrize("action", ["drop", "hash"])
def test_a_property_that_no_version_has_is_refused(action: str, tmp_path: Path) -> None:
    with pytest.raises(PrivateRefused, match=r"no version of .*/user/jsonschema/1 has a property e_mail"):
        shredded(tmp_path, line(contexts=contexts(entity(f"{USER}-0-0", DATA))), private({USER: {"e_mail": action}}))


@pytest.mark.parametrize("value", ["", "short"])
def test_a_hash_needs_a_long_salt(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATE_SALT", value)
    with pytest.raises(PrivateRefused, match="put it into the variable PRIVATE_SALT") as refused:
        private()
    assert "short" not in str(refused.value)
    with pytest.raises(PrivateRefused, match="named in salt_variable"):
        rules(private={"columns": COLUMNS})


def test_the_salt_is_in_no_message() -> None:
    assert SALT not in repr(private())
    assert masking.masked(f"salt {SALT}") == "salt ***"


# Entities by their schemas


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("iglu:com.acme/user/jsonschema/1-0-0", True),
        ("iglu:com.acme/*/jsonschema/1-*-*", True),
        ("iglu:*/*/*/*-*-*", True),
        ("iglu:com.acme/user/jsonschema/1-1-*", False),
        ("iglu:com.acm/*/jsonschema/1-*-*", False),
    ],
)
def test_patterns_match_as_criterions(pattern: str, matches: bool) -> None:
    assert (form_of(f"{USER}-0-0", [(pattern, "skip")]) == "skip") == matches


def test_an_entity_is_kept_as_json_or_skipped(tmp_path: Path) -> None:
    skipped = entity("iglu:org.unknown/x/jsonschema/1-0-0", {"a": 1})
    own = rules(
        entities=[
            {"schemas": f"{USER}-*-*", "as": "json"},
            {"schemas": "iglu:org.unknown/*/jsonschema/*-*-*", "as": "skip"},
        ]
    )
    found = shredded(tmp_path, line(contexts=contexts(entity(f"{USER}-0-0", DATA), skipped)), own)
    assert (found.good, found.bad.num_rows, set(found.tables)) == (1, 0, {"events", "com_acme_user_1"})
    [user] = found.tables["com_acme_user_1"].to_pylist()
    assert orjson.loads(user["data"]) == DATA and user["schema_version"] == "1-0-0" and "email" not in user


@pytest.mark.parametrize("pattern", ["com.acme/*/jsonschema/1-*-*", "iglu:com.acme/*/jsonschema/1", "iglu:com.acme/*"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError):
        rules(entities=[{"schemas": pattern, "as": "json"}])


@pytest.mark.parametrize("rows", ["events", "lake"])
def test_private_values_are_in_no_layout(tmp_path: Path, rows: Any) -> None:
    entities = contexts(entity(f"{USER}-0-0", DATA)), unstruct(entity(f"{USER}-0-0", DATA))
    found = shredded(tmp_path, line(contexts=entities[0], unstruct_event=entities[1]), replace(private(), rows=rows))
    assert (found.good, list(found.tables)) == (1, ["events"])
    text = repr(found.tables["events"].to_pylist())
    assert not [secret for secret in SECRETS if secret.decode() in text]
    assert text.count(hashed("jane@example.org")) == 2


@pytest.mark.parametrize("rows", ["events", "lake"])
def test_entities_that_stay_json_or_are_skipped_do_so_in_each_layout(tmp_path: Path, rows: Any) -> None:
    for form, columns in (("json", {"contexts_com_acme_user_1"}), ("skip", set())):
        own = rules(entities=[{"schemas": "iglu:com.acme/user/jsonschema/1-*-*", "as": form}], rows=rows)
        found = shredded(tmp_path, line(contexts=contexts(entity(f"{USER}-0-0", DATA))), own)
        assert {name for name in found.tables["events"].column_names if name.startswith("contexts_")} == columns
        if columns:
            [row] = found.tables["events"].to_pylist()
            value = row["contexts_com_acme_user_1"]
            [only] = orjson.loads(value) if rows == "events" else value
            data = only if rows == "events" else orjson.loads(only["data"])
            assert data["homes"] == DATA["homes"]


def test_other_values_of_a_cell_with_private_ones_keep_their_digits() -> None:
    own = private().private
    assert own
    hiding = Hiding(own)
    numbers = b'"a":0.12345678901234567890123,"b":-123456789012345678901234567890,"c":"\xc3\xa9"'
    cell = contexts(entity(f"{USER}-0-0", {"age": 1})).encode()
    line = enriched(contexts="X").replace(b"X", cell.replace(b'"age":1', b'"age":1,' + numbers))
    assert numbers in hiding.hidden(line) and b'"age"' not in hiding.hidden(line)


def test_bad_rows_without_their_private_values_are_not_replayed() -> None:
    def source(columns: dict[str, dict[str, str]]) -> SnowplowEnriched:
        shred = {"output": "/o", "schemas": ["/r"], "private": {"salt_variable": "PRIVATE_SALT", "columns": columns}}
        told = {"source": "snowplow_enriched", "landing": {"root": "/l"}, "shred": shred}
        return SnowplowEnriched("shop", SnowplowSettings.model_validate(told))

    for columns in ({"events": {"user_ipaddress": "hash"}}, {USER: {"email": "hash"}}, {"events": {"user_id": "drop"}}):
        with pytest.raises(Refused, match="are not the lines that landed, because private values are dropped or hashed"):
            _ = source(columns).replays
    assert source({}).replays


def test_a_bad_copy_keeps_its_id_and_has_no_private_value(tmp_path: Path) -> None:
    """Synthetic duplicates get new ids before they are cut; a bad row is the line as it landed but for private values."""
    data = b"".join(enriched(user_id="secret-id", event_fingerprint=one, txn_id=one) + b"\n" for one in ("1", "many"))
    own = private()
    found = decide(repeated([identities(data)]), Kinds(synthetic=True)).of(0)
    marked = found.within(data, 0, "f") if found else None
    result = shred_lines(data, Resolver([str(tmp_path)]), rules=own, marked=marked)
    [row] = result.bad.to_pylist()
    assert own.private and Hiding(own.private).hidden(data).splitlines()[1] == row["raw"].encode()
