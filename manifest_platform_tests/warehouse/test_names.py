"""Names that are too long for an engine, and marks for values."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifest_platform.listing import Column, Table
from manifest_platform.testing.loads import load, written
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.marks import Style, translated
from manifest_platform.warehouse.errors import IncompatibleChange
from manifest_platform.warehouse.names import is_short_form, shortened, with_ending


def test_long_names_get_a_stable_short_form() -> None:
    assert shortened("a" * 63, 63) == "a" * 63
    assert shortened("a" * 64, 63) == f"{'a' * 52}_ffe054fe7a"
    assert shortened("a" * 64, None) == "a" * 64
    assert len({shortened("a" * 70 + end, 63) for end in "xyz"}) == 3
    assert shortened("A" * 70, 63).lower() == shortened("a" * 70, 63)


def test_a_short_form_is_cut_between_characters() -> None:
    for before in range(4):
        name = "x" * before + "東京" * 40
        short = shortened(name, 63)
        assert len(short.encode()) <= 63
        assert is_short_form(short, name)
        assert not is_short_form(name, name)


def test_an_ending_stays_whole() -> None:
    assert with_ending("a" * 60, "__mp_key", 63).endswith("__mp_key")
    assert len(with_ending("a" * 60, "__mp_key", 63)) <= 63
    assert with_ending("short", "__mp_key", 63) == "short__mp_key"


@pytest.mark.parametrize(("style", "marks"), [("dollar", "$1 $2"), ("numeric", ":1 :2"), ("format", "%s %s"), ("qmark", "? ?")])
def test_only_marks_are_translated(style: Style, marks: str) -> None:
    first, second = marks.split()
    kept = """'a ? ''b'' ?' "c ? ""d"" ?" -- e ?\n /* f ? */ $$ g ? $$ $x$ h ? $$ $x$"""
    assert translated(f"? {kept} ?", style) == f"{first} {kept} {second}"
    assert translated("x LIKE '%?'", "format") == "x LIKE '%%?'"


@pytest.mark.engines("duckdb")
@pytest.mark.parametrize("joined", [True, False])
def test_only_where_a_setting_joins_names_a_dot_for_an_underscore_means_the_same_column(
    shop: Warehouse, tmp_path: Path, joined: bool
) -> None:
    """Both are columns of their own where no setting joins names."""
    first, second = (
        load(written(tmp_path, str(n), [(Table("t", (Column(name, "string"),)), [{name: "x"}])]), joins_names=joined)
        for n, name in enumerate(("of_place", "of.place"), start=1)
    )
    shop.apply(first)
    if joined:
        with pytest.raises(IncompatibleChange, match=r"shred\.names was changed"):
            shop.apply(second)
    else:
        shop.apply(second)
        assert shop.row_counts() == {"t": 2}
