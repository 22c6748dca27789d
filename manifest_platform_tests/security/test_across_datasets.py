"""Two datasets, or a dataset and the platform itself, never have places that lie in one another, nor tables of one name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import config
from manifest_platform.config import ConfigError


def parts(name: str, **changes: Any) -> dict[str, Any]:
    """The settings of a dataset, each place its own."""
    given = {"landing": f"{name}/landing", "shred": f"{name}/shredded", "merge": f"{name}/merged", "tables": {}, "catalog": {}}
    given |= changes
    merge = {"output": given["merge"], "tables": given["tables"]}
    return {
        "landing": {"root": given["landing"]},
        "shred": {"output": given["shred"], "schemas": ["schemas"]},
        "merge": merge | ({"catalog": given["catalog"]} if given["catalog"] else {}),
    }


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Reads a configuration of datasets a and b; returns what is wrong with it, nothing where nothing is."""

    def read(a: dict[str, Any] | None = None, b: dict[str, Any] | None = None, **others: Any) -> str:
        file = tmp_path / "platform.yaml"
        file.write_text(yaml.safe_dump({"datasets": {"a": parts("a", **(a or {})), "b": parts("b", **(b or {}))}, **others}))
        try:
            config.load(file)
        except ConfigError as error:
            return str(error).replace(f"{tmp_path}/", "")
        return ""

    return read


APART: list[dict[str, Any]] = [
    {},
    {"a": {"landing": "landing"}, "b": {"landing": "landing-b"}},
    {"a": {"landing": "s3://bucket/landing"}, "b": {"landing": "s3://bucket/landing-b"}},
    {"a": {"landing": "s3://bucket/landing"}, "b": {"landing": "s3://bucket-b/landing"}},
    {"manifest": {"store": "postgresql://user@host/database", "archive": "archive"}},
    {
        "manifest": {
            "store": "dynamodb://table",
            "overflow": "s3://bucket/overflow",
            "archive": "s3://bucket/old",
        }
    },
    {"a": {"tables": {"log": {"schema_name": "shared"}}}, "b": {"tables": {"log": {"schema_name": "shared"}}}},
    {"a": {"catalog": {"kind": "glue"}}, "b": {"catalog": {"kind": "glue"}}},
    {
        "a": {"catalog": {"kind": "glue"}, "tables": {"log": {"schema_name": "shared"}}},
        "b": {"catalog": {"kind": "glue"}, "tables": {"log": {"schema_name": "shared", "name": "log_of_b"}}},
    },
    {
        "a": {"catalog": {"kind": "glue"}, "tables": {"log": {"schema_name": "shared"}}},
        "b": {"catalog": {"kind": "glue", "region": "eu-west-1"}, "tables": {"log": {"schema_name": "shared"}}},
    },
]
"""Valid configurations of two datasets that share a store, warehouse, bucket, parent folder, or database."""


@pytest.mark.parametrize("given", APART)
def test_what_datasets_may_share(load: Any, given: dict[str, Any]) -> None:
    assert load(**given) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"b": {"landing": "a/landing/b"}},
            "datasets.b.landing.root 'a/landing/b' is inside datasets.a.landing.root 'a/landing': move one of the two",
        ),
        (
            {"a": {"landing": "b/landing/x/y"}},
            "datasets.a.landing.root 'b/landing/x/y' is inside datasets.b.landing.root 'b/landing'",
        ),
        (
            {"b": {"shred": "a/landing/out"}},
            "datasets.b.shred.output 'a/landing/out' is inside datasets.a.landing.root 'a/landing'",
        ),
        (
            {"b": {"merge": "a/shredded/b"}},
            "datasets.b.merge.output 'a/shredded/b' is inside datasets.a.shred.output 'a/shredded'",
        ),
        (
            {"b": {"merge": "a/shredded"}},
            "a.shred.output 'a/shredded' and datasets.b.merge.output 'a/shredded' are the same place",
        ),
        (
            {"a": {"shred": "a/landing/out"}},
            "datasets.a.shred.output 'a/landing/out' is inside datasets.a.landing.root 'a/landing'",
        ),
        (
            {"a": {"merge": "a/shredded/m"}},
            "datasets.a.merge.output 'a/shredded/m' is inside datasets.a.shred.output 'a/shredded'",
        ),
        ({"b": {"landing": "./a/../a//landing/"}}, "are the same place: give each its own"),
        ({"b": {"landing": "link/b"}}, "datasets.b.landing.root 'link/b' is inside datasets.a.landing.root 'a/landing'"),
        (
            {"a": {"landing": "s3://x/l"}, "b": {"landing": "s3://x/l/b/"}},
            "'s3://x/l/b/' is inside datasets.a.landing.root 's3://x/l'",
        ),
        (
            {"a": {"landing": "s3://x"}, "b": {"shred": "s3://x//l"}},
            "datasets.b.shred.output 's3://x//l' is inside datasets.a.landing",
        ),
        (
            {"manifest": {"archive": "a/landing/old"}},
            "manifest.archive 'a/landing/old' is inside datasets.a.landing.root 'a/landing'",
        ),
        ({"manifest": {"overflow": "o", "archive": "o/a"}}, "manifest.archive 'o/a' is inside manifest.overflow 'o'"),
        (
            {"manifest": {"store": "sqlite:///a/landing/m.db"}},
            "manifest.store 'a/landing/m.db' is inside datasets.a.landing.root",
        ),
        ({"warehouse": {"path": "b/merged/w.duckdb"}}, "warehouse.path 'b/merged/w.duckdb' is inside datasets.b.merge.output"),
        (
            {"manifest": {"store": "sqlite:///one"}, "warehouse": {"path": "one"}},
            "manifest.store 'one' and warehouse.path 'one' are the same place",
        ),
        (
            {"a": {"tables": {"log": {"schema_name": "b"}}}},
            "datasets.a.merge.tables.log.schema_name 'b' is the schema of datasets.b, so readers would confuse",
        ),
        (
            {"a": {"catalog": {"kind": "glue", "prefix": "b"}}, "b": {"catalog": {"kind": "glue", "suffix": "a"}}},
            "datasets.b.merge.catalog and datasets.a.merge.catalog both use the database",
        ),
        (
            {
                "a": {"catalog": {"kind": "glue", "prefix": "b"}, "tables": {"log": {"schema_name": "x"}}},
                "b": {"catalog": {"kind": "glue", "suffix": "x"}},
            },
            "datasets.a.merge.tables.log.schema_name 'x' is the schema of datasets.b",
        ),
        (
            {
                "a": {"catalog": {"kind": "glue"}, "tables": {"log": {"schema_name": "shared"}}},
                "b": {"catalog": {"kind": "glue"}, "tables": {"audit": {"schema_name": "shared", "name": "log"}}},
            },
            "datasets.b.merge.tables.audit and datasets.a.merge.tables.log are both named 'log' in 'shared'",
        ),
    ],
)
def test_what_would_lie_in_one_another(load: Any, tmp_path: Path, given: dict[str, Any], said: str) -> None:
    (tmp_path / "a" / "landing").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/landing")
    assert said in load(**given)


def test_the_spool_lies_in_no_dataset(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANIFEST_PLATFORM_SPOOL", str(tmp_path / "a" / "landing" / "spool"))
    assert "$MANIFEST_PLATFORM_SPOOL 'a/landing/spool' is inside datasets.a.landing.root 'a/landing'" in load()
    monkeypatch.setenv("MANIFEST_PLATFORM_SPOOL", str(tmp_path))
    assert load() == ""


def test_all_that_is_wrong_is_told_at_once(load: Any) -> None:
    said = load(a={"landing": "b/landing/a", "tables": {"log": {"schema_name": "b"}}}, b={"merge": "b/landing/out"})
    assert said.count("is inside") == 2
    assert "is the schema of datasets.b" in said


def test_links_that_lead_in_circles_hold_nothing_up(load: Any, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert load(b={"landing": "circle/b"}) == ""
