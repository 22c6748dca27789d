"""Ids and the names of what merging writes."""

import re
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform.merging import names
from manifest_platform.merging.state import MergedTable

TABLE = MergedTable("nanika_log", "test_schema", 3600, 1, create_time=datetime(2020, 6, 20, tzinfo=UTC))
RENAMED = MergedTable(
    "nanika_log",
    "test_schema",
    3600,
    1,
    create_time=datetime(2020, 6, 20, tzinfo=UTC),
    physical_schema="phy_test_schema",
    physical_name="phy_nanika_log",
)
DAY = date(2020, 6, 20)

commits = st.integers(1, 9_223_372_036_853)
ordinals = st.integers(1, 999_999)


@given(commits, ordinals)
def test_an_id_fits_64_bits_and_gives_back_what_it_is_made_of(commit: int, ordinal: int) -> None:
    id_ = names.object_id(commit, ordinal)
    assert id_ < 2**63
    assert divmod(id_, names.OBJECTS_A_COMMIT) == (commit, ordinal)


@given(st.tuples(commits, ordinals), st.tuples(commits, ordinals))
def test_ids_and_their_digits_order_as_commits_do(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (names.object_id(*one) < names.object_id(*other)) == (one < other)
    assert (names.digits(names.object_id(*one)) < names.digits(names.object_id(*other))) == (one < other)


@pytest.mark.parametrize(("commit", "ordinal"), [(0, 1), (1, 0), (1, 1_000_000), (9_223_372_036_854, 1)])
def test_what_no_id_has_room_for_is_refused(commit: int, ordinal: int) -> None:
    with pytest.raises(ValueError, match=r"has no id"):
        names.object_id(commit, ordinal)


def test_E18_a_table_lies_under_the_hash_of_its_physical_name() -> None:
    assert names.table_uri("s3://b/out", TABLE) == "s3://b/out/b601.test_schema.nanika_log"
    assert names.table_uri("s3://b/out", RENAMED) == "s3://b/out/342b.phy_test_schema.phy_nanika_log"


def test_each_try_of_an_attempt_has_a_directory_of_its_own() -> None:
    part = names.part_uri("s3://b/out", TABLE, DAY, "a1", 0, 7)
    tries = [names.try_uri(part).rsplit("/", 2) for _ in range(2)]
    assert [(above, name) for above, _, name in tries] == [(part.rsplit("/", 2)[0], part.rsplit("/", 2)[2])] * 2
    first, second = (folder for _, folder, _ in tries)
    assert re.fullmatch(r"a1\.[0-9a-f]{8}", first) and re.fullmatch(r"a1\.[0-9a-f]{8}", second) and first != second
    assert [names.attempt_of(folder) for folder in (first, second, "a1")] == ["a1"] * 3


def test_E18_names_have_19_digits() -> None:
    base = "file:///o/b601.test_schema.nanika_log"
    assert names.part_uri("file:///o", TABLE, DAY, "a1", 0, 4_000_012) == (
        f"{base}/merged/dt=2020-06-20/a1/part-0000000000000000000-0000000000004000012.parquet"
    )
    assert names.manifest_uri("file:///o", TABLE, DAY, 4_000_012, 3) == (
        f"{base}/merged/dt=2020-06-20/manifest-0000000000004000012-3.json"
    )
    assert names.live_manifest_uri("file:///o", TABLE, DAY, 2**63 - 1) == (
        f"{base}/live/dt=2020-06-20/manifest-live-9223372036854775807.json"
    )


def test_either_physical_name_may_be_set_alone() -> None:
    only_schema = MergedTable("t", "s", 1, 1, create_time=TABLE.create_time, physical_schema="p")
    only_name = MergedTable("t", "s", 1, 1, create_time=TABLE.create_time, physical_name="p")
    assert names.table_uri("o", only_schema).endswith(".p.t")
    assert names.table_uri("o", only_name).endswith(".s.p")
