"""The demo's runs: well-formed where they should be, broken where they should be, and the same for the same seed."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.demo.events import FIELDS, SCHEMAS, WINDOW, WrittenRun, write_run
from manifest_platform.sources.snowplow.source import list_runs

TIME = datetime(2024, 5, 1, 0, 5, tzinfo=UTC)
Event = dict[str, str]


def files_of(run: WrittenRun) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in storage.local_path(run.uri).iterdir()}


def lines_of(run: WrittenRun) -> list[str]:
    parts = [data for name, data in sorted(files_of(run).items()) if name.startswith("part-")]
    return b"".join(parts).decode().removesuffix("\n").split("\n")


def events_of(run: WrittenRun) -> list[Event]:
    return [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in lines_of(run)]


def entities_of(event: Event) -> list[dict[str, Any]]:
    """Every entity of an event, with the wrappers checked."""
    found = []
    for field, wrapper in (("contexts", "contexts"), ("derived_contexts", "contexts"), ("unstruct_event",) * 2):
        if event[field]:
            outer = json.loads(event[field])
            assert outer["schema"] == f"iglu:com.snowplowanalytics.snowplow/{wrapper}/jsonschema/1-0-0"
            found += outer["data"] if wrapper == "contexts" else [outer["data"]]
    return found


def schema_at(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


SCHEMA_FILES = {f"iglu:{path.relative_to(SCHEMAS)}": path for path in SCHEMAS.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> WrittenRun:
    return write_run(tmp_path_factory.mktemp("landing"), TIME, 3_000, seed=1)


@pytest.fixture(scope="module")
def events(run: WrittenRun) -> list[Event]:
    return events_of(run)


def test_an_event_has_131_fields() -> None:
    assert (len(FIELDS), len(set(FIELDS))) == (131, 131)
    assert [FIELDS[at] for at in (0, 3, 6, 52, 58, 122, 130)] == [
        "app_id",
        "collector_tstamp",
        "event_id",
        "contexts",
        "unstruct_event",
        "derived_contexts",
        "true_tstamp",
    ]


def test_a_run_lies_where_it_should_and_has_its_marker(run: WrittenRun) -> None:
    assert storage.local_path(run.uri).name == "run=2024-05-01-00-05-00"
    assert files_of(run).keys() == {"part-00000.tsv", "_SUCCESS"}
    assert (run.good, run.bad) == (3_000, 0)


def test_every_line_is_an_event_with_its_own_id(events: list[Event]) -> None:
    assert len({event["event_id"] for event in events}) == 3_000
    uuid4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(uuid4.fullmatch(event["event_id"]) for event in events)


def test_times_are_the_runs(events: list[Event]) -> None:
    for event in events:
        times = {name: datetime.fromisoformat(f"{event[name]}+00:00") for name in FIELDS if event[name] and "tstamp" in name}
        assert TIME - WINDOW <= times["collector_tstamp"] < TIME < times["etl_tstamp"]
        assert times["dvce_created_tstamp"] < times["dvce_sent_tstamp"]
        waited = times["dvce_sent_tstamp"] - times["dvce_created_tstamp"]
        assert times["derived_tstamp"] == times["collector_tstamp"] - waited
    assert {event["collector_tstamp"][:10] for event in events} == {"2024-04-30", "2024-05-01"}


def test_all_kinds_of_events_occur_and_say_so_alike(events: list[Event]) -> None:
    kinds = Counter((event["event"], event["event_vendor"], event["event_name"]) for event in events)
    assert kinds.keys() == {
        ("page_view", "com.snowplowanalytics.snowplow", "page_view"),
        ("page_ping", "com.snowplowanalytics.snowplow", "page_ping"),
        ("struct", "com.google.analytics", "event"),
        ("unstruct", "com.acme", "link_click"),
        ("unstruct", "com.acme", "add_to_cart"),
    }
    for event in events:
        assert bool(event["unstruct_event"]) == (event["event"] == "unstruct")
        assert bool(event["se_action"]) == (event["event"] == "struct")
        assert bool(event["pp_yoffset_max"]) == (event["event"] == "page_ping")
        if event["event"] == "unstruct":
            key = [event[f"event_{part}"] for part in ("vendor", "name", "format", "version")]
            assert json.loads(event["unstruct_event"])["data"]["schema"] == f"iglu:{'/'.join(key)}"


def test_visitors_return_in_other_runs(events: list[Event], tmp_path: Path) -> None:
    other = events_of(write_run(tmp_path, TIME + WINDOW, 3_000, seed=1))
    assert {event["domain_userid"] for event in events} & {event["domain_userid"] for event in other}
    assert not {event["event_id"] for event in events} & {event["event_id"] for event in other}


def test_every_schema_occurs_and_every_entity_fits_its_own(events: list[Event]) -> None:
    seen = set()
    for event in events:
        for entity in entities_of(event):
            schema = schema_at(SCHEMA_FILES[entity["schema"]])
            assert_fits(entity["data"], schema)
            seen.add(entity["schema"])
    assert seen == SCHEMA_FILES.keys()


def assert_fits(value: Any, schema: dict[str, Any]) -> None:
    """Validates the part of JSON Schema that the demo's schemas use, without bounds of numbers and texts."""
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    kind = "null" if value is None else kinds[type(value)]
    allowed = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    assert kind in allowed or (kind == "integer" and "number" in allowed), (value, schema)
    if kind == "object":
        assert set(schema.get("required", ())) <= value.keys() <= schema["properties"].keys()
        for name, part in value.items():
            assert_fits(part, schema["properties"][name])
    elif kind == "array":
        for part in value:
            assert_fits(part, schema["items"])
    elif kind == "string" and "enum" in schema:
        assert value in schema["enum"]


def test_before_the_schemas_evolved_only_their_first_versions_occur(tmp_path: Path) -> None:
    events = events_of(write_run(tmp_path, TIME, 500, seed=1, evolved=False))
    assert {entity["schema"][-5:] for event in events for entity in entities_of(event)} == {"1-0-0"}


def test_schemas_describe_themselves_and_later_versions_only_add() -> None:
    versions: dict[str, list[str]] = {}
    for key, path in SCHEMA_FILES.items():
        about = schema_at(path)["self"]
        assert key == f"iglu:{about['vendor']}/{about['name']}/{about['format']}/{about['version']}"
        versions.setdefault(about["name"], []).append(key)
    assert len(versions) == 6
    evolved = {name: sorted(keys) for name, keys in versions.items() if len(keys) > 1}
    assert evolved.keys() == {"link_click", "user"}
    for first, second in evolved.values():
        old, new = schema_at(SCHEMA_FILES[first]), schema_at(SCHEMA_FILES[second])
        assert old["properties"].items() < new["properties"].items()
        assert old["required"] == new["required"]


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    def written(place: str, **changed: Any) -> dict[str, bytes]:
        arguments: dict[str, Any] = {"run_time": TIME, "events": 50, "seed": 1, "bad_lines": 5, **changed}
        return files_of(write_run(tmp_path / place, **arguments))

    assert written("a") == written("b")
    assert written("c", gzip=True) == written("d", gzip=True)
    assert written("a") != written("e", seed=2)
    assert written("a") != written("f", run_time=TIME + WINDOW)


def test_gzip_holds_the_same_text(tmp_path: Path) -> None:
    plain = files_of(write_run(tmp_path / "plain", TIME, 20, seed=1))
    packed = files_of(write_run(tmp_path / "packed", TIME, 20, seed=1, gzip=True))
    assert gzip.decompress(packed["part-00000.tsv.gz"]) == plain["part-00000.tsv"]


def test_a_run_can_be_written_to_s3(s3_bucket: str, tmp_path: Path) -> None:
    local = write_run(tmp_path, TIME, 20, seed=1, gzip=True)
    run = write_run(f"{s3_bucket}/enriched", TIME, 20, seed=1, gzip=True)
    (found,) = list_runs(f"{s3_bucket}/enriched").directories
    assert (found.uri, found.marker) == (run.uri, True)
    assert found.bytes == len(files_of(local)["part-00000.tsv.gz"])


def test_parts_share_the_lines(tmp_path: Path) -> None:
    run = write_run(tmp_path, TIME, 10, seed=1, bad_lines=4, parts=3)
    counts = [data.count(b"\n") for name, data in sorted(files_of(run).items()) if name.startswith("part-")]
    assert counts == [4 + 2, 3 + 1, 3 + 1]
    assert (run.good, run.bad) == (10, 4)


def test_duplicates_are_copies_of_events_and_other_events_with_their_ids(tmp_path: Path) -> None:
    run = write_run(tmp_path, TIME, 60, seed=1, parts=2, resent=5, taken_ids=2)
    events = events_of(run)
    assert len(events) == 60 == run.good
    of_id: dict[str, list[Event]] = {}
    for event in events:
        of_id.setdefault(event["event_id"], []).append(event)
    several = [same for same in of_id.values() if len(same) > 1]
    assert [len(same) for same in several] == [2] * 7
    assert sum(first == second for first, second in several) == 5
    assert sum(first["event_fingerprint"] != second["event_fingerprint"] for first, second in several) == 2
    assert events_of(write_run(tmp_path / "again", TIME, 60, seed=1, parts=2, resent=5, taken_ids=2)) == events


def what_is_wrong(line: str) -> str | None:
    if "\t" not in line:
        return "not TSV"
    if line.count("\t") != 130:
        return "field count"
    event = dict(zip(FIELDS, line.split("\t"), strict=True))
    if not event["event_id"]:
        return "no id"
    try:
        datetime.fromisoformat(event["collector_tstamp"])
    except ValueError:
        return "timestamp"
    try:
        entities = entities_of(event)
    except json.JSONDecodeError:
        return "JSON"
    for entity in entities:
        if entity["schema"] not in SCHEMA_FILES:
            return "unknown schema"
        try:
            assert_fits(entity["data"], schema_at(SCHEMA_FILES[entity["schema"]]))
        except AssertionError:
            return "does not fit"
    return None


def test_bad_lines_are_bad_in_every_way(tmp_path: Path) -> None:
    run = write_run(tmp_path, TIME, 60, seed=1, bad_lines=14)
    kinds = Counter(map(what_is_wrong, lines_of(run)))
    assert kinds == {
        None: 60,
        "not TSV": 2,
        "field count": 2,
        "no id": 2,
        "timestamp": 2,
        "JSON": 2,
        "unknown schema": 2,
        "does not fit": 2,
    }
    assert (run.good, run.bad) == (60, 14)


def test_most_of_a_corrupt_run_is_bad(tmp_path: Path) -> None:
    run = write_run(tmp_path, TIME, 200, seed=1, corrupt=True, bad_lines=3)
    bad = sum(what_is_wrong(line) is not None for line in lines_of(run))
    assert (run.good, run.bad) == (20, 183) == (203 - bad, bad)
