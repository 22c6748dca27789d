"""Good events have the values that Snowplow's own SDK gives, field by field, whatever is in them; none is lost or misplaced.

`make oracle` compares the events of a folder in the same way.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.sources.snowplow.fields import FIELDS, Field
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity, publish, unstruct
from manifest_platform_tests.sources.snowplow.oracle import main, require_equal

THING = "iglu:com.acme/thing/jsonschema/1-0-0"
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "number": {"type": "number"},
        "is_new": {"type": ["boolean", "null"]},
        "list": {"type": "array"},
        "place": {"type": "object", "properties": {"x": {"type": "number"}, "name": {"type": ["string", "null"]}}},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "price": {"type": "number", "multipleOf": 0.01},
    },
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Resolver:
    registry = tmp_path_factory.mktemp("iglu")
    publish(registry, THING, SCHEMA)
    return Resolver([str(registry)])


_CELL_TEXT = st.text(st.characters(exclude_characters="\t\n\0", exclude_categories=["Cs"]), max_size=30)
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
_TIME = st.builds(
    lambda time, digits: f"{time:%H:%M:%S}{f'.{digits}' if digits else ''}", st.times(), st.text("0123456789", max_size=9)
)
_STAMP = st.builds(lambda day, time: f"{day.isoformat()} {time}", st.dates(), _TIME)
_NUMBER = st.one_of(_FLOAT.map(repr), st.sampled_from(["1E5", "-0.0", "0007", "1e-7", "5.", "12345678901234567890"]))
_CENTS = st.integers(-(10**14), 10**14).map(lambda cents: f"{cents / 100:.2f}")


def _values(field: Field) -> st.SearchStrategy[str]:
    if field.type.startswith("decimal"):
        return _CENTS
    typed = {
        "timestamp": _STAMP,
        "integer": st.integers(-(2**31), 2**31 - 1).map(str),
        "double": _NUMBER,
        "boolean": st.sampled_from("01"),
        "uuid": st.uuids().map(str),
    }
    return typed.get(field.type, _CELL_TEXT)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _FLOAT | _TEXT,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_TEXT, inside, max_size=3),
    max_leaves=6,
)
_THING = st.fixed_dictionaries(
    {},
    optional={
        "text": _TEXT,
        "count": st.integers(-(2**63), 2**63 - 1),
        "number": _FLOAT,
        "is_new": st.none() | st.booleans(),
        "list": st.lists(_JSON, max_size=3),
        "place": st.fixed_dictionaries({}, optional={"x": _FLOAT, "name": st.none() | _TEXT}),
        "at": st.builds(lambda day, time: f"{day.isoformat()}T{time}Z", st.dates(), _TIME),
        "day": st.dates().map(str),
        "price": st.integers(-(10**9), 10**9).map(lambda cents: cents / 100),
    },
)
_FIELDS = {field.name: _values(field) for field in FIELDS if not field.is_json}


@st.composite
def _events(draw: st.DrawFn) -> bytes:
    names = draw(st.lists(st.sampled_from(sorted(_FIELDS)), max_size=12, unique=True))
    fields = {name: draw(_FIELDS[name]) for name in names}
    required = {field.name for field in FIELDS if field.required}
    fields = {name: value for name, value in fields.items() if value or name not in required}
    for name in ("contexts", "derived_contexts"):
        if things := draw(st.lists(_THING, max_size=3)):
            fields[name] = contexts(*(entity(THING, thing) for thing in things))
    if draw(st.booleans()):
        fields["unstruct_event"] = unstruct(entity(THING, draw(_THING)))
    return enriched(**fields)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(_events(), min_size=1, max_size=4))
def test_no_value_is_lost_or_misplaced(resolver: Resolver, lines: list[bytes]) -> None:
    good, compared = require_equal(lines, resolver)
    assert good == len(lines) and compared >= 128 * good


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.one_of(_events(), st.binary(max_size=30).map(lambda data: data.replace(b"\n", b""))), max_size=5), st.data())
def test_bad_lines_between_good_ones_move_no_value(resolver: Resolver, lines: list[bytes], data: st.DataObject) -> None:
    """Some cells are swapped for others, as a fault of a sender would do."""
    for place, line in enumerate(lines):
        cells = line.split(b"\t")
        first, second = (data.draw(st.integers(0, len(cells) - 1)) for _ in range(2))
        if data.draw(st.booleans()):
            cells[first], cells[second] = cells[second], cells[first]
        lines[place] = b"\t".join(cells)
    require_equal(lines, resolver)


def _thing(**values: Any) -> str:
    return contexts(entity(THING, values))


def test_odd_events_are_good_and_have_their_values(resolver: Resolver) -> None:
    """Long, rare and awkward values, each of which must be good."""
    long = 'tab\t, newline\n, quote", backslash\\ and \U0001f600 ' * 20_000
    lines = [
        enriched(contexts=_thing(text=long, list=[long])),
        enriched(
            contexts=json.dumps({"schema": json.loads(contexts())["schema"], "data": [entity(THING, {"text": "a\tb\n"})]})
        ),
        enriched(se_value="1e308", geo_latitude="-0.0", tr_total="12345678.905", ti_price="1e3"),
        enriched(etl_tstamp="0001-01-01 00:00:00", true_tstamp="9999-12-31 23:59:59.999999999"),
        enriched(user_id="\\N", page_title='"quoted', app_id="a\rb", page_url="\u2028\ufeff"),
    ]
    assert require_equal(lines, resolver)[0] == len(lines)


def test_the_events_of_a_folder_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path / "iglu", THING, SCHEMA)
    run = tmp_path / "events" / "run=1"
    run.mkdir(parents=True)
    (run / "part-0").write_bytes(enriched(contexts=_thing(text="a")) + b"\r\nno event\n")
    (run / "part-1.gz").write_bytes(gzip.compress(enriched(app_id="a\rb")))
    (run / "part-2").write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["oracle", str(tmp_path / "events"), str(tmp_path / "iglu")])
        main()
    assert capsys.readouterr().out.startswith("2 good of 3 lines; 2")
