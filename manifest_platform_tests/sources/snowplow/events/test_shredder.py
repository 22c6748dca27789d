import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from manifest_platform import failpoints, storage
from manifest_platform.listing import Duplicates, Listing
from manifest_platform.shred.batch import Cause, Directory, Options, ShredFailure, Task, Unreachable
from manifest_platform.shred.limits import InputLimits
from manifest_platform.shred.lines import plan
from manifest_platform.shred.rows import digest_of
from manifest_platform.sources.snowplow.events import survey
from manifest_platform.sources.snowplow.events.shredder import BAD_DATE, shred
from manifest_platform.sources.snowplow.events.survey import Survey
from manifest_platform.sources.snowplow.rules import Kinds, Rules
from manifest_platform_tests.sources.snowplow.given import CLICK, PAGE, acme_registry, contexts, enriched, entity, publish

CLICKS = "com_acme_link_click_1"
DAY, NEXT_DAY = "2024-03-05", "2024-03-06"


def event(number: int, day: str = DAY, **fields: str) -> bytes:
    event_id = f"00000000-0000-4000-8000-{number:012d}"
    click = contexts(entity(CLICK, {"targetUrl": "/a", "position": number % 1000}))
    return enriched(**{"event_id": event_id, "collector_tstamp": f"{day} 00:00:00.{number:03d}", "contexts": click, **fields})


@pytest.fixture
def registries(tmp_path: Path) -> list[str]:
    return [str(acme_registry(tmp_path / "registry"))]


@pytest.fixture
def landed(tmp_path: Path) -> Callable[..., Directory]:
    """Creates a directory of files, each given as lines or bytes."""

    def make(name: str, /, **files: list[bytes] | bytes) -> Directory:
        folder = tmp_path / "landed" / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            data = content if isinstance(content, bytes) else b"".join(line + b"\n" for line in content)
            (folder / file.replace("__", ".")).write_bytes(data)
        found = tuple((storage.as_uri(path), path.stat().st_size) for path in sorted(folder.iterdir()))
        return Directory(storage.as_uri(folder), found, storage.as_uri(tmp_path / "shredded" / name / "a1"), "a1")

    return make


def one(results: list[Listing | ShredFailure]) -> Listing:
    (result,) = results
    assert isinstance(result, Listing), result
    return result


def failed(result: Listing | ShredFailure) -> ShredFailure:
    assert isinstance(result, ShredFailure)
    return result


def rows(listing: Listing, table: str) -> list[dict]:
    tables = [pq.read_table(storage.local_path(uri), partitioning=None) for uri in listing.uris(table)]
    return pa.concat_tables(tables).to_pylist() if tables else []


def test_a_directory_becomes_files_and_a_listing(spark: SparkSession, registries: list[str], landed: Callable[..., Directory]):
    directory = landed("run", a=[event(1), event(2, NEXT_DAY), b"bad"], b=[event(3)])
    listing = one(shred(spark, [directory], registries))
    assert (listing.item, listing.attempt) == (directory.item, "a1")
    assert (listing.lines, listing.good, listing.bad) == (4, 3, 1)
    assert [table.name for table in listing.tables] == ["bad", CLICKS, "events"]
    assert [(found.table, found.all_dates, found.rows) for found in listing.objects] == [
        ("bad", (BAD_DATE,), 1),
        (CLICKS, (DAY, NEXT_DAY), 3),
        ("events", (DAY, NEXT_DAY), 3),
    ]
    assert [row["txn_id"] for row in rows(listing, "events")] == [None] * 3
    assert [row["position"] for row in rows(listing, CLICKS)] == [1, 3, 2]
    assert Listing.read(f"{directory.output}/listing.json") == listing
    alone, several = (found for found in listing.objects if found.table in ("bad", "events"))
    for uri, folder in ((alone.uri, f"bad/date={BAD_DATE}"), (several.uri, "events/several-dates")):
        assert re.fullmatch(rf"{re.escape(directory.output)}/{folder}/00000-000-[0-9a-f]{{8}}\.parquet", uri)
    assert (several.min_time, several.max_time) == (f"{DAY}T00:00:00.001000Z", f"{NEXT_DAY}T00:00:00.002000Z")
    assert several.bytes == storage.local_path(several.uri).stat().st_size
    (bad,) = rows(listing, "bad")
    assert (bad["file"], bad["line"], bad["raw"]) == (directory.files[0][0], 3, "bad")
    on_disk = {storage.as_uri(path) for path in storage.local_path(directory.output).rglob("*.parquet")}
    assert on_disk == {found.uri for found in listing.objects}


@pytest.mark.parametrize("split_size", [1, 700, 2000, 1 << 20])
def test_any_split_size_gives_the_same_rows(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], split_size: int
):
    lines = [event(number, (DAY, NEXT_DAY)[number % 2]) if number % 4 else b"bad%d" % number for number in range(12)]
    directory = landed("run", a=lines[:9], b__gz=gzip.compress(b"\n".join(lines[9:])))
    if split_size == 1:  # a task for each byte would take minutes; a byte less than a line cuts everywhere as well
        split_size = len(lines[1]) - 1
    listing = one(shred(spark, [directory], registries, Options(split_size=split_size)))
    assert (listing.lines, listing.good, listing.bad) == (12, 9, 3)
    assert sorted(row["position"] for row in rows(listing, CLICKS)) == [number for number in range(12) if number % 4]
    assert sorted(row["event_id"] for row in rows(listing, "events")) == sorted(row["root_id"] for row in rows(listing, CLICKS))
    assert sorted((row["file"][-1], row["line"], row["raw"]) for row in rows(listing, "bad")) == [
        ("a", 1, "bad0"),
        ("a", 5, "bad4"),
        ("a", 9, "bad8"),
    ]


def test_shredding_is_repeatable(spark: SparkSession, registries: list[str], landed: Callable[..., Directory]):
    directory = landed("run", a=[event(number) for number in range(20)] + [b"bad"])
    again = Directory(directory.item, directory.files, f"{directory.output}-again", "a2")
    first, second = shred(spark, [directory, again], registries, Options(split_size=3000))
    assert isinstance(first, Listing)
    assert isinstance(second, Listing)
    assert len(first.uris("events")) > 1
    for old, new in zip(first.objects, second.objects, strict=True):
        assert storage.local_path(old.uri).read_bytes() == storage.local_path(new.uri).read_bytes()


def test_duplicates_are_found_over_all_tasks_of_a_run_at_any_split_size(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
):
    """The same rows, new ids included, wherever identities are compared; another run's events are no duplicates."""

    def copy(number: int, fingerprint: str, etl: str) -> bytes:
        return event(number, event_fingerprint=fingerprint, etl_tstamp=f"{DAY} 00:00:0{etl}")

    whole = [copy(number, "one", "5") for number in range(8)]
    later = [copy(1, "one", "4"), copy(2, "one", "6"), copy(3, "two", "5"), copy(3, "one", "6"), b"bad"]
    zipped = gzip.compress(b"\n".join([copy(1, "one", "4"), copy(4, "", "5")]))
    directory, other = landed("run", a=whole, b=later, c__gz=zipped), landed("other", a=whole)
    found = []
    for number, (split_size, gathered) in enumerate(((1000, 0), (2500, 1 << 20), (1 << 20, 0))):
        monkeypatch.setattr(survey, "_GATHERED", gathered)
        places = [replace(each, output=f"{each.output}-{number}") for each in (directory, other)]
        kinds = Kinds(natural=True, synthetic=True)
        results = shred(spark, places, registries, Options(split_size=split_size), rules=Rules(duplicates=kinds))
        listing, unlike = one(results[:1]), one(results[1:])
        assert (listing.lines, listing.good, listing.bad) == (15, 10, 1)
        assert listing.duplicates == Duplicates(natural=4, synthetic=4)
        assert (unlike.lines, unlike.good, unlike.duplicates) == (8, 8, Duplicates())
        assert Listing.read(f"{places[0].output}/listing.json") == listing
        events = sorted((row["event_id"], str(row["etl_tstamp"])[-1]) for row in rows(listing, "events"))
        assert sorted(row["root_id"] for row in rows(listing, CLICKS)) == [id_ for id_, _ in events]
        (bad,) = rows(listing, "bad")
        assert bad["line"] == 5
        found.append(events)
    assert found[0] == found[1] == found[2]
    assert {id_[-1]: etl for id_, etl in found[0] if "-4000-" in id_} == {
        "0": "5",
        "1": "4",
        "2": "5",
        "5": "5",
        "6": "5",
        "7": "5",
    }


@pytest.mark.parametrize(("split_size", "gathered"), [(1000, 0), (1000, 1 << 20), (1 << 20, 0)])
def test_a_good_event_is_not_left_out_for_a_bad_copy(
    spark: SparkSession,
    registries: list[str],
    landed: Callable[..., Directory],
    monkeypatch: pytest.MonkeyPatch,
    split_size: int,
    gathered: int,
):
    """Whichever task has the copies: the good one stays; of bad ones, that which a schema can make good."""
    monkeypatch.setattr(survey, "_GATHERED", gathered)
    unknown = contexts(entity("iglu:com.acme/nowhere/jsonschema/1-0-0", {}))
    faults = ({"etl_tstamp": "0"}, {"geo_latitude": "x"}, {"contexts": "{"}, {"contexts": unknown}, {"user_id": "good"})

    def copy(number: int, second: int, **fields: str) -> bytes:
        return event(number, **{"event_fingerprint": "one", "etl_tstamp": f"{DAY} 00:00:0{second}", **fields})

    bad = [copy(number, 1, **fault) for number, fault in enumerate(faults)]
    good = [copy(number, 2) for number in range(len(faults))]
    never = [copy(9, 1, contexts="{"), copy(9, 2, contexts=unknown), copy(9, 3, contexts=unknown)]
    directory = landed("run", a=[*bad, event(20)], b=[*good, *never], c__gz=gzip.compress(copy(0, 3)))
    options, kinds = Options(split_size=split_size, max_bad_share=1), Kinds(natural=True, synthetic=True)
    listing = one(shred(spark, [directory], registries, options, rules=Rules(duplicates=kinds)))
    assert (listing.lines, listing.good, listing.bad, listing.duplicates) == (15, 6, 1, Duplicates(natural=8))
    found = sorted((row["event_id"][-2:], str(row["etl_tstamp"])[-1:], row["user_id"]) for row in rows(listing, "events"))
    assert found == [
        ("00", "2", None),
        ("01", "2", None),
        ("02", "2", None),
        ("03", "2", None),
        ("04", "1", "good"),
        ("20", "e", None),
    ]
    [row] = rows(listing, "bad")
    assert row["raw"].encode() == never[1]


def test_a_copy_that_was_replayed_stays_and_its_event_is_not_loaded_again(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory]
):
    """The copy that was bad is loaded with another item, and good now. Its good copy must stay out."""
    first, second = (event(1, event_fingerprint="one", etl_tstamp=f"{DAY} 00:00:0{second}") for second in (1, 2))
    directory = replace(landed("run", a=[first, second, event(2)]), replayed={digest_of(second): "run=other"})
    listing = one(shred(spark, [directory], registries, rules=Rules(duplicates=Kinds(natural=True))))
    assert [row["event_id"][-1] for row in rows(listing, "events")] == ["2"]
    [row] = rows(listing, "bad")
    assert row["raw"].encode() == second


def test_a_run_of_too_many_duplicates_fails(spark: SparkSession, registries: list[str], landed: Callable[..., Directory]):
    several, single = landed("several", a=[event(1)] * 9), landed("single", a=[event(1)] * 9)
    for directory, split_size in ((several, 1500), (single, 1 << 20)):
        options = Options(split_size=split_size, limits=InputLimits(duplicates=7))
        (result,) = shred(spark, [directory], registries, options, rules=Rules(duplicates=Kinds(synthetic=True)))
        assert failed(result).cause == Cause.ITEM
        assert "9 lines that repeat the event id of another line; shred.limits.duplicates allows 7" in failed(result).message


def test_a_file_that_the_survey_alone_could_not_read_is_an_outage(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory]
):
    directory = landed("run", a=[event(1)], b=[event(2)])
    pieces = plan(directory.files, 500, directory.root)
    assert len(pieces) == 2
    found = Survey(Kinds(natural=True), frozenset([0]), unread={0: "TimeoutError: slow"})
    with pytest.raises(Unreachable, match="TimeoutError: slow"):
        found.require_whole(Task(0, 0, "", (), pieces[0]))
    gone = Directory(directory.item, (*directory.files, (f"{directory.item}/c", 3)), directory.output, "a1")
    (result,) = shred(spark, [gone], registries, Options(split_size=500), rules=Rules(duplicates=Kinds(natural=True)))
    assert failed(result).cause == Cause.ITEM
    assert "/c" in failed(result).message


def test_a_batch_is_one_job_and_its_results_are_in_order(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory]
):
    directories = [landed(f"run{number}", a=[event(each) for each in range(number)]) for number in range(1, 6)]
    spark.sparkContext.setJobGroup("one-job", "counts the jobs of a batch")
    results = shred(spark, directories, registries, Options(split_size=1500))
    spark.sparkContext.setJobGroup("other", "")
    assert [one([result]).lines for result in results] == [1, 2, 3, 4, 5]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("one-job")) == 1


def test_an_empty_directory_needs_no_job(spark: SparkSession, registries: list[str], landed: Callable[..., Directory]):
    directory = landed("run", empty=b"")
    spark.sparkContext.setJobGroup("no-job", "counts the jobs of an empty batch")
    results = shred(spark, [directory, landed("none")], registries)
    spark.sparkContext.setJobGroup("other", "")
    assert [(each.lines, each.objects) for each in (one(results[:1]), one(results[1:]))] == [(0, ()), (0, ())]
    assert Listing.read(f"{directory.output}/listing.json") == results[0]
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("no-job")) == []


def test_too_many_bad_lines_fail_the_directory(spark: SparkSession, registries: list[str], landed: Callable[..., Directory]):
    directory = landed("run", a=[event(1), b"x", event(2), enriched(txn_id="many"), b"z", b"y"])
    bad = failed(shred(spark, [directory], registries, Options(max_bad_share=0.5, max_bad_count=3))[0])
    assert (bad.item, bad.attempt, bad.cause) == (directory.item, "a1", Cause.ITEM)
    assert "4 of 6 lines" in bad.message
    assert "66.7%" in bad.message
    assert "allowed are 50.0%, or 3 lines if at least as many are good" in bad.message
    assert "; for example line 2 of a: not_tsv: the line has no tab. All reasons are in file:" in bad.message
    [bad_object] = storage.local_path(f"{directory.output}/bad").rglob("*.parquet")
    assert storage.as_uri(bad_object) in bad.message
    assert pq.read_table(bad_object, partitioning=None)["line"].to_pylist() == [2, 4, 5, 6]
    assert not storage.local_path(f"{directory.output}/listing.json").exists()


@pytest.mark.parametrize(
    ("line", "example"),
    [
        (enriched(txn_id="many"), "line 1 of a: field txn_id: is no 32-bit integer."),
        (enriched(contexts=contexts(entity("iglu:com.acme/none/jsonschema/1-0-0", {}))),
         "line 1 of a: unknown_schema iglu:com.acme/none/jsonschema/1-0-0: is in none of the registries /"),
    ],
)  # fmt: skip
def test_the_example_of_a_bad_line_names_field_or_schema(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], line: bytes, example: str
):
    bad = failed(shred(spark, [landed("run", a=[line])], registries, Options(max_bad_share=0, max_bad_count=0))[0])
    assert example in bad.message


@pytest.mark.parametrize(("share", "count", "bad"), [(0.5, 0, 3), (0, 3, 3), (0.67, 0, 4), (0, 100, 3)])
def test_few_or_a_small_share_of_bad_lines_pass(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], share: float, count: int, bad: int
):
    directory = landed("run", a=[*(b"bad" for _ in range(bad)), *(event(number) for number in range(6 - bad))])
    listing = one(shred(spark, [directory], registries, Options(max_bad_share=share, max_bad_count=count)))
    assert (listing.bad, listing.lines) == (bad, 6)


@pytest.mark.parametrize(("lines", "bad"), [(1, 1), (100, 100), (6, 4), (199, 100)])
def test_a_directory_that_is_mostly_bad_fails_however_small(lines: int, bad: int):
    """A run of up to a hundred lines was completely bad and counted as applied."""
    assert not Options(max_bad_share=0.05, max_bad_count=100).allows(bad, lines)
    assert not Options(max_bad_share=1, max_bad_count=100).allows(lines, lines), "no line is good"


@pytest.mark.parametrize(("lines", "bad"), [(0, 0), (2, 1), (200, 100), (10_000, 500)])
def test_a_directory_that_is_partly_bad_passes(lines: int, bad: int):
    assert Options(max_bad_share=0.05, max_bad_count=100).allows(bad, lines)


def test_a_directory_that_cannot_be_read_fails_alone(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory]
):
    good = landed("good", a=[event(1)])
    vanished = landed("vanished", a=[event(1)], b=[event(2)])
    storage.local_path(vanished.files[1][0]).unlink()
    grown = landed("grown", a=[event(1)])
    with storage.local_path(grown.files[0][0]).open("ab") as file:
        file.write(b"more")
    corrupt = landed("corrupt", a__gz=gzip.compress(event(1))[:30] + b"no gzip")
    cut = landed("cut", a__gz=gzip.compress(event(1))[:-20])
    snappy = landed("snappy", a=b"\xff\x06\x00\x00sNaPpY" + event(1))
    table = landed("table", a=b"PAR1\x15\x04")
    wrong = [vanished, grown, corrupt, cut, snappy, table]
    results = shred(spark, [*wrong, good], registries)
    assert {failed(result).cause for result in results[:-1]} == {Cause.ITEM}
    parts = ["landed/vanished/b", "registered with", "a.gz is gzip", "a.gz is gzip", "a is snappy", "a is Parquet"]
    for result, part in zip(results, parts, strict=False):
        assert part in failed(result).message
    assert one(results[-1:]).good == 1
    assert not storage.local_path(f"{grown.output}/listing.json").exists()


def test_an_unreachable_registry_is_an_outage(spark: SparkSession, landed: Callable[..., Directory]):
    without_entities = landed("plain", a=[enriched()])
    results = shred(spark, [landed("run", a=[event(1)]), without_entities], ["http://127.0.0.1:1"])
    assert failed(results[0]).cause is Cause.OUTAGE
    assert "127.0.0.1:1" in failed(results[0]).message
    assert one(results[1:]).good == 1


def test_an_output_that_cannot_be_written_is_a_failure(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], tmp_path: Path
):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    directory = landed("run", a=[event(1)])
    blocked = Directory(directory.item, directory.files, (tmp_path / "blocked").as_uri(), "a1")
    empty = Directory(directory.item, (), (tmp_path / "blocked").as_uri(), "a1")
    assert {failed(result).cause for result in shred(spark, [blocked, empty], registries)} == {Cause.OUTAGE}


def test_large_gzip_files_are_written_in_parts(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
):
    lines = [event(number, page_title="x" * 1900) for number in range(3000)]
    directory = landed("run", a__gz=gzip.compress(b"\n".join(lines), 1))
    listing = one(shred(spark, [directory], registries, Options(split_size=100)))
    assert listing.rows("events") == 3000
    assert [uri.rpartition("/")[2][:9] for uri in listing.uris("events")] == ["00000-000", "00000-001"]


def test_a_schema_published_meanwhile_is_seen_by_the_next_batch(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], tmp_path: Path
):
    newer = PAGE.replace("1-0-0", "1-0-1")
    directory = landed("run", a=[event(1), enriched(contexts=contexts(entity(newer, {"id": "1"})))])
    assert one(shred(spark, [directory], registries)).bad == 1
    schema = tmp_path / "registry/schemas/com.acme/WebPage/jsonschema/1-0-1"
    schema.write_text(json.dumps({"properties": {"id": {"type": "string"}}}))
    assert one(shred(spark, [directory], registries)).good == 2


def test_the_listing_is_written_last(
    spark: SparkSession, registries: list[str], landed: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
):
    directory = landed("run", a=[event(1)])
    monkeypatch.setenv(failpoints.VARIABLE, "shred.job_done:raise")
    with pytest.raises(failpoints.FailpointReached):
        shred(spark, [directory], registries)
    output = storage.local_path(directory.output)
    assert list(output.rglob("*.parquet"))
    assert not (output / "listing.json").exists()


def test_two_models_with_one_column_of_structs_fail_their_run_wherever_they_are(
    spark: SparkSession, tmp_path: Path, landed: Callable[..., Directory]
):
    """In files of their own, no task has both."""
    families = [f"iglu:com.acme/{name}/jsonschema/1" for name in ("HTTPHeader", "Httpheader")]
    for family in families:
        publish(tmp_path / "registry", f"{family}-0-0", {"type": "object", "properties": {"a": {"type": "string"}}})
    headers = [contexts(entity(f"{family}-0-0", {"a": "x"})) for family in families]
    apart = landed("apart", a=[event(1, contexts=headers[0])], b=[event(2, contexts=headers[1])])
    together = landed("together", a=[event(1, contexts=headers[0]), event(2, contexts=headers[1])])
    copies = landed("copies", a=[event(1, contexts=header, event_fingerprint="f") for header in headers])
    registries, lake = [str(tmp_path / "registry")], Rules(rows="lake")
    for result in shred(spark, [apart, together], registries, Options(split_size=apart.files[0][1]), rules=lake):
        assert "both make the table com_acme_httpheader_1: give one" in failed(result).message
        assert failed(result).cause is Cause.ITEM
    left = one(shred(spark, [copies], registries, rules=replace(lake, duplicates=Kinds(natural=True))))
    assert (left.good, left.duplicates) == (1, Duplicates(natural=1)), "copies of an event have its first model alone"
    listing = one(shred(spark, [apart], registries, named={families[1]: "com_acme_httpheader_1_2"}, rules=lake))
    names = [column.name for table in listing.tables for column in table.columns if "header" in column.name]
    assert names == ["contexts_com_acme_httpheader_1", "contexts_com_acme_httpheader_1_2"]
