"""Bad rows in the form that Snowplow publishes, compared with the published schemas (here without their texts)."""

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.shred.batch import Task, Written
from manifest_platform.shred.lines import Piece
from manifest_platform.shred.rows import BadRow, bad_table
from manifest_platform.sources.snowplow.events.published import VENDOR, VERSIONS, bad_row, published
from manifest_platform.sources.snowplow.events.shredder import Options, shred_lines, shred_pieces
from manifest_platform.sources.snowplow.fields import FIELDS
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow.given import (
    CLICK,
    PAGE,
    acme_registry,
    contexts,
    enriched,
    entity,
    publish,
    unstruct,
)

SCHEMAS = Path(__file__).with_name("published")
VALIDATORS = {name: jsonschema_rs.Draft4Validator(orjson.loads((SCHEMAS / f"{name}.json").read_bytes())) for name in VERSIONS}
NOWHERE = "iglu:com.acme/nowhere/jsonschema/1-0-0"
BROKEN = "iglu:com.acme/broken/jsonschema/1-0-0"
OLDEST = Rules(oldest=datetime(2021, 1, 1, tzinfo=UTC))


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Resolver:
    registry = acme_registry(tmp_path_factory.mktemp("iglu"))
    publish(registry, BROKEN, b"[")
    return Resolver([str(registry)])


def only(line: bytes, resolver: Resolver, rules: Rules | None = None) -> tuple[str, Any]:
    """Returns the kind and the data of a bad line, as any reader of JSON gets them; they fit their schema."""
    bad = shred_lines(line, resolver, "f", rules=rules).bad
    (beside,) = published(bad)
    (text,) = beside.lines.splitlines()
    whole = orjson.loads(text)
    name = whole["schema"].split("/")[1]
    assert whole["schema"] == f"iglu:{VENDOR}/{name}/jsonschema/{VERSIONS[name]}"
    assert beside.folder == f"vendor={VENDOR}/name={name}/format=json/model={VERSIONS[name][0]}"
    VALIDATORS[name].validate(whole["data"])
    assert whole["data"]["processor"]["artifact"] == "manifest-platform"
    return name, whole["data"]


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        (b"no tab", {"type": "NotTSV"}),
        (b"a\tb", {"type": "FieldNumberMismatch", "fieldCount": 2}),
        (b"\t" * 5000, {"type": "FieldNumberMismatch", "fieldCount": 1024}),
        (
            enriched(txn_id="x"),
            {
                "type": "RowDecodingError",
                "errors": [{"type": "InvalidValue", "key": "txn_id", "value": "x", "message": "is no 32-bit integer"}],
            },
        ),
    ],
)
def test_a_line_that_is_no_event(resolver: Resolver, line: bytes, failure: Any) -> None:
    assert only(line, resolver) == (
        "loader_parsing_error",
        {
            "processor": {"artifact": "manifest-platform", "version": "0.2.0"},
            "failure": failure,
            "payload": line.decode(),
        },
    )


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"contexts": "{"}, "contexts"),
        ({"unstruct_event": contexts()}, "unstruct_event"),
        ({"contexts": contexts("no entity")}, "contexts"),
        ({"contexts": contexts(entity("no key", {}))}, "contexts"),
    ],
)
def test_entities_that_are_none(resolver: Resolver, fields: dict[str, str], key: str) -> None:
    name, data = only(enriched(**fields), resolver)
    assert (name, [error["key"] for error in data["failure"]["errors"]]) == ("loader_parsing_error", [key])


def test_the_payload_is_the_line_and_says_where_it_was_no_text(resolver: Resolver) -> None:
    _, data = only(b"caf\xe9 a\0b", resolver)
    assert data["payload"] == "caf\ufffd a\0b"


def test_schemas_that_are_missing_broken_or_violated(resolver: Resolver) -> None:
    entities = contexts(
        entity(NOWHERE, {}), entity(NOWHERE, {}), entity(BROKEN, {}), entity(CLICK, {"position": "x", "place": {"x": "y"}})
    )
    name, data = only(enriched(contexts=entities, page_title="a"), resolver)
    assert name == "loader_iglu_error"
    missing, broken, violated = sorted(data["failure"], key=lambda one: one["error"]["error"] + one["schemaKey"])
    assert missing["schemaKey"] == NOWHERE and missing["error"]["lookupHistory"][0]["errors"][0]["error"] == "NotFound"
    assert missing["error"]["lookupHistory"][0]["lastAttempt"] == "2024-03-05T10:11:12.345Z"
    assert broken["schemaKey"] == BROKEN and broken["error"]["schemaIssues"][0]["path"] == "$"
    assert violated["schemaKey"] == CLICK
    assert {"$.position", "$.place.x"} <= {report["path"] for report in violated["error"]["dataReports"]}


def test_the_payload_of_an_event_has_every_field(resolver: Resolver) -> None:
    """The schemas of bad rows allow shorter texts than the events table, and any digits are kept."""
    data = only(
        enriched(
            contexts=contexts(entity(NOWHERE, {"n": 12345678901234567890123})),
            unstruct_event=unstruct(entity(PAGE, {"id": "a\tb"})),
            se_label="x" * 4096,
            page_title="é" * 3000,
            se_value="1.10",
            br_cookies="1",
            txn_id="7",
        ),
        resolver,
    )[1]["payload"]
    assert list(data) == [field.name for field in FIELDS]
    assert (len(data["se_label"]), data["page_title"]) == (1000, "é" * 2000)
    assert (data["se_value"], data["br_cookies"], data["txn_id"], data["app_id"]) == (1.1, True, 7, "shop")
    assert data["collector_tstamp"] == "2024-03-05T10:11:12.345Z" and data["true_tstamp"] is None
    assert data["unstruct_event"]["data"]["data"] == {"id": "a\tb"}


MANY = contexts(*(entity(f"iglu:com.acme/nowhere{number}/jsonschema/1-0-0", {}) for number in range(30)))


@pytest.mark.parametrize("cell", ["{", '{"a": NaN}', '1}, "evil": {"x":1', '{"a":"\\ud800"}', "[" * 1022 + "]" * 1022])
def test_a_cell_that_was_not_checked_is_published_only_if_it_is_json(resolver: Resolver, cell: str) -> None:
    """Reasons end after 20, and what follows is not checked. A sender must not write keys of a bad row."""
    name, data = only(enriched(derived_contexts=MANY, contexts=cell), resolver)
    assert name == "loader_parsing_error"
    assert [(error["key"], error["value"]) for error in data["failure"]["errors"]] == [("contexts", cell[:1000])]
    assert data["payload"] == enriched(derived_contexts=MANY, contexts=cell).decode()


def test_a_cell_with_a_carriage_return_between_its_values_stays_on_its_line(resolver: Resolver) -> None:
    name, data = only(enriched(contexts=contexts(entity(NOWHERE, {})).replace('":', '":\r')), resolver)
    assert (name, data["payload"]["contexts"]["data"]) == ("loader_iglu_error", [entity(NOWHERE, {})])


@pytest.mark.parametrize("field", ["etl_tstamp", "true_tstamp", "refr_dvce_tstamp"])
@pytest.mark.parametrize(
    "time", ["2020-12-31 23:59:59.999", "0001-01-01 00:00:00", "0000-01-01 09:06:35.493256951", "-2006-10-15 09:06:35"]
)
def test_times_before_the_oldest(resolver: Resolver, field: str, time: str) -> None:
    name, data = only(enriched(**{field: time}), resolver, OLDEST)
    message = f"{field} is before 2021-01-01T00:00:00+00:00, the oldest time that `shred.oldest` allows"
    assert (name, data["failure"]) == ("generic_error", {"timestamp": "2024-03-05T10:11:12.345Z", "errors": [message]})


def test_without_an_oldest_time_all_times_of_the_calendar_are_good(resolver: Resolver) -> None:
    times = {"etl_tstamp": "0001-01-01 00:00:00", "true_tstamp": "2004-01-01 00:00:00"}
    assert shred_lines(enriched(**times), resolver).good == 1
    assert shred_lines(enriched(etl_tstamp="2021-01-01 00:00:00"), resolver, rules=OLDEST).good == 1
    assert only(enriched(etl_tstamp="-2006-10-15 09:06:35"), resolver)[0] == "loader_parsing_error"


@pytest.mark.parametrize(("line", "name"), [(enriched(), "loader_runtime_error"), (b"a\tb", "generic_error")])
def test_reasons_of_later_releases(line: bytes, name: str) -> None:
    bad = bad_table("f", [BadRow.of_bytes(1, [{"type": "new", "message": "broke"}], line)])
    found, data = bad_row(bad.to_pylist()[0])
    assert found == name
    VALIDATORS[name].validate(orjson.loads(orjson.dumps(data)))


_TEXT = st.text(st.characters(exclude_characters="\n\t\r", exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=60),
        st.dictionaries(st.sampled_from([field.name for field in FIELDS]), _TEXT, min_size=1).map(
            lambda fields: enriched(**fields)
        ),
    )
)
def test_any_bad_line_fits_its_schema(resolver: Resolver, line: bytes) -> None:
    line = line.replace(b"\n", b"")
    if shred_lines(line + b"\n", resolver, rules=OLDEST).bad.num_rows:
        only(line + b"\n", resolver, OLDEST)


def shredded(file: Path, output: Path, resolver: Resolver) -> Written:
    piece = Piece(file.as_uri(), file.stat().st_size, 0, file.stat().st_size)
    pieces: tuple[Piece, ...] = (piece,)
    return shred_pieces(Task(0, 0, output.as_uri(), (piece.uri,), pieces), resolver, Options())


def test_a_run_lists_its_files(tmp_path: Path, resolver: Resolver) -> None:
    """Files: one a kind and task; the same bytes when it is shredded again; the table is there without a bad row, too."""
    landed = tmp_path / "f"
    landed.write_bytes(
        b"\n".join([enriched(), b"no tab", enriched(contexts=contexts(entity(NOWHERE, {}))), b"a\tb", enriched()])
    )
    found = []
    for attempt in ("a", "b"):
        written = shredded(landed, tmp_path / attempt, resolver)
        assert [(one.rows, one.uri.split("/")[-4]) for one in written.bad_rows] == [
            (1, "name=loader_iglu_error"),
            (2, "name=loader_parsing_error"),
        ]
        found.append([gzip.decompress(Path(one.uri.removeprefix("file://")).read_bytes()) for one in written.bad_rows])
        assert [one.checksum for one in written.bad_rows]
    assert found[0] == found[1]
    assert sum(lines.count(b"\n") for lines in found[0]) == 3
    landed.write_bytes(enriched())
    written = shredded(landed, tmp_path / "c", resolver)
    assert (written.bad_rows, "bad" in written.tables) == ([], True)
