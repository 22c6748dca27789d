"""Duplicates within a run: found in the bytes of lines, marked, and shredded without Spark."""

import random
import uuid
from pathlib import Path

import numpy as np
import orjson
import pytest

from manifest_platform.listing import Duplicates
from manifest_platform.shred.rows import digest_of
from manifest_platform.sources.snowplow.events.duplicates import (
    DUPLICATE,
    FAULTY,
    GOOD,
    LEFT_OUT,
    LOADED,
    NONE,
    RENAMED,
    UNREADABLE,
    Marks,
    decide,
    identities,
    renamed,
    repeated,
)
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, ranks_of, shred_lines
from manifest_platform.sources.snowplow.rules import Kinds, Rules
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow.given import CLICK, acme_registry, contexts, enriched, entity

A, B, C = (str(uuid.UUID(int=number)) for number in (10, 11, 12))
BOTH = Kinds(natural=True, synthetic=True)
EARLY, LATE = "2024-03-05 10:00:00.000", "2024-03-05 10:00:00.001"
OF_DUPLICATES = "com_snowplowanalytics_snowplow_duplicate_1"


def event(id_: str = A, fingerprint: str = "one", etl: str = EARLY, **fields: str) -> bytes:
    return enriched(event_id=id_, event_fingerprint=fingerprint, etl_tstamp=etl, **fields)


def marks(data: bytes, kinds: Kinds = BOTH, ranks: Marks = NONE) -> dict[int, int]:
    """Returns the verdict on each marked line, by its number."""
    found = decide(repeated([identities(data)]), kinds, ranks)
    return {data[:offset].count(b"\n"): verdict for offset, verdict in zip(found.offsets, found.verdicts, strict=True)}


def shredded(data: bytes, registry: Path, kinds: Kinds = BOTH) -> ShreddedEvents:
    found = decide(repeated([identities(data)]), kinds)
    piece = found.of(0)
    marked = piece.within(data, 0, "/run/part") if piece else None
    return shred_lines(data, Resolver([str(registry)]), "part", 1, marked=marked)


def lines(*events: bytes) -> bytes:
    return b"".join(event + b"\n" for event in events)


def test_of_natural_duplicates_the_earliest_stays():
    assert marks(lines(event(etl=LATE), event(etl=EARLY), event(B), event(etl=LATE))) == {0: LEFT_OUT, 3: LEFT_OUT}


def test_the_first_stays_if_times_are_equal():
    assert marks(lines(event(), event(), event())) == {1: LEFT_OUT, 2: LEFT_OUT}


def test_an_event_without_a_time_goes_after_one_with_a_time():
    assert marks(lines(event(etl=""), event(etl=LATE))) == {0: LEFT_OUT}


@pytest.mark.parametrize(
    ("ranks", "left_out"),
    [
        ((GOOD, GOOD, GOOD), {0, 2}),
        ((GOOD, UNREADABLE, GOOD), {1, 2}),
        ((FAULTY, UNREADABLE, GOOD), {0, 1}),
        ((UNREADABLE, UNREADABLE, FAULTY), {0, 1}),
        ((FAULTY, FAULTY, FAULTY), {0, 2}),
        ((GOOD, GOOD, LOADED), {0, 1}),
    ],
)
def test_a_better_copy_goes_before_an_earlier_one(ranks, left_out):
    events = [event(etl=LATE), event(etl=EARLY), event(etl=LATE)]
    places = np.zeros(3, np.int64)
    offsets = np.array([0, len(lines(events[0])), len(lines(*events[:2]))])
    given = Marks(places, offsets, np.array(ranks))
    assert marks(lines(*events, event(B)), ranks=given) == dict.fromkeys(left_out, LEFT_OUT)


def test_the_rank_of_a_line_says_whether_a_schema_can_make_it_good(tmp_path):
    unknown = contexts(entity("iglu:com.acme/nowhere/jsonschema/1-0-0", {}))
    some = [
        event(),
        event(contexts=unknown),
        event(contexts="{"),
        event(etl="0") + b"\r",
        event(user_id="u"),
        event(contexts=unknown),
    ]
    resolver = Resolver([str(acme_registry(tmp_path))])
    replayed = dict.fromkeys(map(digest_of, (event(user_id="u"), some[5])), "run=x")
    assert ranks_of(some[:4], resolver, Rules(), {}) == [GOOD, FAULTY, UNREADABLE, UNREADABLE]
    assert ranks_of(some, resolver, Rules(), replayed) == [GOOD, LOADED, UNREADABLE, UNREADABLE, LOADED, LOADED]


def test_an_event_without_a_fingerprint_is_never_a_natural_duplicate():
    assert marks(lines(event(fingerprint=""), event(fingerprint="")), Kinds(natural=True)) == {}
    assert marks(lines(event(fingerprint=""), event(fingerprint=""))) == {0: RENAMED, 1: RENAMED}


def test_each_synthetic_duplicate_is_renamed_after_the_natural_pass():
    data = lines(event(fingerprint="one"), event(fingerprint="two"), event(fingerprint="one"), event(B))
    assert marks(data) == {0: RENAMED, 1: RENAMED, 2: LEFT_OUT}


def test_each_kind_can_be_off():
    data = lines(event(fingerprint="one"), event(fingerprint="two"), event(fingerprint="one"))
    assert marks(data, Kinds(natural=True)) == {2: LEFT_OUT}
    assert marks(data, Kinds(synthetic=True)) == dict.fromkeys((0, 1, 2), RENAMED)
    assert marks(data, Kinds()) == {}


def test_upper_and_lower_case_are_one_id():
    assert marks(lines(event("ABCDEF00-0000-4000-8000-0000000000AF"), event("abcdef00-0000-4000-8000-0000000000af"))) == {
        1: LEFT_OUT
    }


@pytest.mark.parametrize(
    "broken",
    [
        b"\t".join(event().split(b"\t")[:-1]),
        event("no id"),
        event(A.replace("-", "x")),
        event(A.replace("0", "g")),
        event(A + "0"),
        b"",
        b"\t" * 130,
        A.encode(),
    ],
)
def test_a_line_that_is_no_event_takes_no_part(broken):
    assert marks(lines(broken, event(), broken)) == {}


def test_any_bytes_are_read():
    chance = random.Random(3)
    whole = lines(event(), event(B))
    for _ in range(300):
        start = chance.randrange(len(whole))
        data = bytearray(whole[start : start + chance.randrange(len(whole))])
        for _ in range(chance.randrange(20)):
            if data:
                data[chance.randrange(len(data))] = chance.choice(b"\t\n\r\0\xffA-")
        marks(bytes(data))


def test_the_marks_do_not_depend_on_how_lines_are_divided():
    chance = random.Random(5)
    events = [
        event(chance.choice((A, B, C)), chance.choice(("", "one", "two")), chance.choice((EARLY, LATE))) for _ in range(40)
    ]
    whole = marks(lines(*events))
    for cut in range(1, 40, 7):
        first = lines(*events[:cut])
        found = decide(repeated([identities(lines(*events[cut:]), 1, len(first)), identities(first)]), BOTH)
        by_line = {
            lines(*events)[:offset].count(b"\n"): verdict for offset, verdict in zip(found.offsets, found.verdicts, strict=True)
        }
        assert by_line == whole


def test_a_new_id_depends_on_id_fingerprint_and_place():
    ids = {
        renamed(line, place).split(b"\t")[6]
        for line, place in (
            (event(), "a#0"),
            (event(), "a#1"),
            (event(), "b#0"),
            (event(fingerprint="two"), "a#0"),
            (event(B), "a#0"),
        )
    }
    assert len(ids) == 5
    assert renamed(event(A, app_id="x"), "a#0").split(b"\t")[6] in ids
    assert all(uuid.UUID(one.decode()).version == 5 for one in ids)


@pytest.mark.parametrize(
    ("cell", "others"),
    [
        ("", []),
        (contexts(), []),
        (contexts(entity(CLICK, {"total": 12345678901234567890123})), [{"total": 12345678901234567890123}]),
        ('{ "schema":"iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0", "data": [ ] } ', []),
        ('{"data":[],"schema":"iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0"}', []),
        ('{"data":[{"schema":"a","data":[1]}],"schema":"b\\"]}"}', [[1]]),
        ('{"schema":"a","data":[],"x":[{}]}', []),
    ],
)
def test_the_context_is_added_to_what_is_there(cell, others):
    import json

    found = json.loads(renamed(event(derived_contexts=cell), "a#0").split(b"\t")[122])["data"]
    assert [one["data"] for one in found] == [*others, {"originalEventId": A}]
    assert found[-1]["schema"] == DUPLICATE


@pytest.mark.parametrize("cell", ["no json", "[]", '{"data":{}}', "null", '{"schema":1}'])
def test_a_cell_that_holds_no_contexts_is_left_as_it_is(cell):
    assert renamed(event(derived_contexts=cell), "a#0").split(b"\t")[122].decode() == cell


def test_three_lines_of_one_id(tmp_path):
    """Case (a): two fingerprints and a natural copy give two events with new ids; their entities carry them."""
    registry = acme_registry(tmp_path)
    click = contexts(entity(CLICK, {"targetUrl": "x"}))
    data = lines(event(contexts=click), event(fingerprint="two", contexts=click), event(contexts=click, etl=LATE))
    found = shredded(data, registry)
    ids = found.tables["events"]["event_id"].to_pylist()
    assert len(set(ids)) == 2
    assert A not in ids
    assert found.tables["com_acme_link_click_1"]["root_id"].to_pylist() == ids
    assert found.tables[OF_DUPLICATES]["root_id"].to_pylist() == ids
    assert found.tables[OF_DUPLICATES]["original_event_id"].to_pylist() == [A, A]
    assert (found.lines, found.good, found.bad.num_rows, found.duplicates) == (3, 2, 0, Duplicates(1, 2))
    assert shredded(data, registry).tables["events"].equals(found.tables["events"])


def test_three_lines_with_everything_off(tmp_path):
    """Case (b): three rows with the same id."""
    found = shredded(lines(event(), event(fingerprint="two"), event()), acme_registry(tmp_path), Kinds())
    assert found.tables["events"]["event_id"].to_pylist() == [A, A, A]
    assert (found.lines, found.good, found.duplicates) == (3, 3, Duplicates())


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_keep_their_numbers_and_bad_lines_their_text(tmp_path, end, last):
    bad = event(B, "two", etl="no time")
    events = [event(B), b"no event", event(etl=LATE), event(), bad, event(B), b"no event"]
    data = end.join(events) + (end if last else b"")
    found = shredded(data, acme_registry(tmp_path))
    assert found.bad["line"].to_pylist() == [2, 5, 7]
    assert found.bad["raw"].to_pylist()[1] == bad.decode()
    assert found.duplicates == Duplicates(natural=2, synthetic=1)  # the other synthetic one is a bad line
    assert found.lines == found.good + found.bad.num_rows + found.duplicates.natural == 7


def test_a_last_line_without_an_end_can_be_left_out(tmp_path):
    found = shredded(event() + b"\n" + event(), acme_registry(tmp_path))
    assert (found.lines, found.good, found.bad.num_rows, found.duplicates.natural) == (2, 1, 0, 1)


def test_a_line_that_is_left_out_is_not_bad_whatever_it_holds(tmp_path):
    broken = event(app_id="x").replace(b"x", b"\xff", 1)
    found = shredded(lines(event(), broken), acme_registry(tmp_path))
    assert (found.good, found.bad.num_rows, found.duplicates.natural) == (1, 0, 1)


def test_a_registry_has_priority_over_the_built_in_schema(tmp_path):
    from manifest_platform_tests.sources.snowplow.given import publish

    schema = {"type": "object", "properties": {"originalEventId": {"type": "string"}, "note": {"type": "string"}}}
    publish(tmp_path, DUPLICATE, orjson.dumps(schema))
    found = shredded(lines(event(), event(fingerprint="two")), tmp_path)
    assert found.tables[OF_DUPLICATES].column_names[-2:] == ["note", "original_event_id"]


@pytest.mark.parametrize("depth", [300, 1_000])
def test_a_copy_with_contexts_of_another_form_that_are_nested_too_deeply_is_bad(tmp_path: Path, depth: int):
    cell = contexts(entity(CLICK, {"extra": 0})).replace("0}", "[" * depth + "]" * depth + "}")
    line = renamed(enriched(derived_contexts=cell[:-1] + ',"more":1}'), "place")
    assert shred_lines(line + b"\n", Resolver([str(acme_registry(tmp_path))])).bad.num_rows == 1
