"""Layouts by time: which texts are valid, the window of a file, and the recognition of layouts."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from manifest_platform.sources import directories
from manifest_platform.sources.layouts import LAYOUTS, Template, Window, parse_window_name, recognize
from manifest_platform.sources.windows import list_windows

NOON = datetime(2024, 5, 14, 12, tzinfo=UTC)
HIVE = "year={yyyy}/month={MM}/day={dd}/hour={HH}"
UUID = "0d1b4b4e-6f0e-4d5c-9a43-2f4f5b0a7c11"


@pytest.mark.parametrize(
    ("layout", "path", "name"),
    [
        (HIVE, "year=2024/month=05/day=14/hour=12/part.gz", "hour=2024-05-14-12"),
        (f"{HIVE}/", "year=2024/month=05/day=14/hour=12/sub/part.gz", "hour=2024-05-14-12"),
        ("{yyyy}/{MM}/{dd}/{HH}", "2024/05/14/12/part.gz", "hour=2024-05-14-12"),
        ("date={yyyy}-{MM}-{dd}", "date=2024-05-14/part.gz", "day=2024-05-14"),
        ("date={yyyy}-{MM}-{dd}/time={HH}{mm}{ss}", "date=2024-05-14/time=120501/x.gz", "second=2024-05-14-12-05-01"),
        ("{yyyy}-{MM}-{dd}-{HH}*", f"2024-05-14-120501-{UUID}.gz", "hour=2024-05-14-12"),
        ("pre-{yyyy}-{MM}-{dd}-{HH}{mm}*", f"pre-2024-05-14-120501-{UUID}.gz", "minute=2024-05-14-12-05"),
        ("a/{yyyy}/{MM}-{dd}-{HH}*", "a/2024/05-14-12.gz", "hour=2024-05-14-12"),
    ],
)
def test_the_path_of_a_file_gives_its_window(layout: str, path: str, name: str) -> None:
    window = Template(layout).window(path)
    assert window
    assert window.name.name == name
    assert parse_window_name(name) == window
    assert path.startswith(Template(layout).path(window.start))
    assert Template(layout).named(path.rpartition("/")[0] if not layout.endswith("*") else path)


@pytest.mark.parametrize(
    ("path", "stranger"),
    [
        ("run=2024-05-14-12-00-00/part.gz", "run=2024-05-14-12-00-00"),
        ("year=2024/month=5/day=14/hour=12/x", "year=2024/month=5"),
        ("year=2024/month=13/day=14/hour=12/x", "year=2024/month=13/day=14/hour=12"),
        ("year=2024/month=05/readme", "year=2024/month=05/readme"),
        ("year=2024/month=05/day=14/hour=12", "year=2024/month=05/day=14/hour=12"),
        ("year=2024/month=05/day=14/hour=123/x", "year=2024/month=05/day=14/hour=123"),
    ],
)
def test_a_path_outside_the_layout_is_reported_up_to_where_it_leaves_it(path: str, stranger: str) -> None:
    assert Template(HIVE).window(path) is None
    assert Template(HIVE).stranger(path) == stranger


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("hourly", "allowed: `run`, or {yyyy}, {MM} and {dd}"),
        ("{YYYY}/{MM}/{dd}", "{YYYY}: write {yyyy}"),
        ("date={yy}-{mm}-{dd}", "{yy}: write {yyyy}"),
        ("{dd}/{MM}/{yyyy}", "in this order"),
        ("{yyyy}/{MM}", "{yyyy}, {MM} and {dd}"),
        ("{vendor}/{yyyy}/{MM}/{dd}", "allowed: "),
        ("{yyyy}/{MM}/{dd}/{mm}", "in this order"),
        ("/{yyyy}/{MM}/{dd}", "is empty"),
        ("_raw/{yyyy}/{MM}/{dd}", "marks hidden files"),
        ("{yyyy}/{MM}/{dd}/enriched-*", "behind the last slash"),
        ("{yyyy}/{MM} {dd}", "allowed: "),
    ],
)
def test_an_invalid_layout_is_refused_with_what_is_allowed(layout: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Template(layout)


def test_names_of_windows_sort_by_time_and_late_items_follow_their_window() -> None:
    windows = [Window(NOON, "hour", late) for late in (0, 1, 2, 10)]
    windows += [Window(NOON.replace(hour=13), "hour"), Window(NOON.replace(day=15, hour=0), "day")]
    names = [window.name for window in windows]
    assert [name.name for name in names[1:4]] == [f"hour=2024-05-14-12-late-{number}" for number in (1, 2, 10)]
    assert sorted(name.sort for name in names) == [name.sort for name in names]
    assert [parse_window_name(name.name) for name in names] == windows


@pytest.mark.parametrize(
    "name", ["hour=2024-05-14", "day=2024-05-14-12", "hour=2024-05-14-25", "hour=2024-05-14-12-late-0", "hour=2024-05-14-12-2"]
)
def test_other_names_are_not_windows(name: str) -> None:
    assert parse_window_name(name) is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_that_is_offered_is_recognized(layout: str) -> None:
    path = Template(layout).path(NOON)
    assert recognize([f"{path}/{UUID}.gz", f"{path}/_SUCCESS", "readme.txt"]) == layout


@pytest.mark.parametrize(
    ("paths", "layout"),
    [
        ([f"2024-05-14-120501-{UUID}.gz", f"2024-05-14-130501-{UUID}.gz"], "{yyyy}-{MM}-{dd}-{HH}*"),
        ([f"prod/pre-2024-05-14-120501-{UUID}.gz"], "prod/pre-{yyyy}-{MM}-{dd}-{HH}*"),
        ([f"run=2024-05-14-12-00-0{number}/part-0.gz" for number in range(3)], None),
        ([], None),
        (["a.gz", "b.gz"], None),
    ],
)
def test_the_layout_of_files_is_recognized(paths: list[str], layout: str | None) -> None:
    assert recognize(paths) == layout


def _page(*paths: str, more: bool) -> tuple[dict[str, Any], int]:
    written = datetime(2024, 5, 15, tzinfo=UTC)
    contents = [{"Key": f"root/{path}", "Size": 1, "ETag": '"1"', "LastModified": written} for path in paths]
    answer = {"Contents": contents, "IsTruncated": more, "ResponseMetadata": {}}
    return answer, 1


def test_a_listing_in_parts_continues_behind_a_window_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object named `hour=01/../x` once ended the listing: no later window was found."""
    pages = [
        _page("hour=2024-05-14-00/a", "hour=2024-05-14-01/../x", "hour=2024-05-14-01/a", more=True),
        _page("hour=2024-05-14-01/b", "hour=2024-05-14-02/a", more=False),
    ]
    monkeypatch.setattr(directories, "s3_client", lambda root: None)
    monkeypatch.setattr(directories, "answers", lambda *asked: iter(pages))
    found = list_windows("s3://bucket/root", Template("hour={yyyy}-{MM}-{dd}-{HH}"), most=1)
    assert [one.name for one in found.directories] == ["hour=2024-05-14-00"]
    assert found.upto == "hour=2024-05-14-00/", "the window that goes on behind the page comes with the next part"
