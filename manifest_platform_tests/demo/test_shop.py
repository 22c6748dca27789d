"""The lines behind the chapters of the shop's story, shredded without Spark: an evolved schema, duplicates, a replay."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest

from manifest_platform import storage
from manifest_platform.demo import shop
from manifest_platform.demo.events import SCHEMAS
from manifest_platform.listing import Duplicates
from manifest_platform.sources.snowplow.events.duplicates import decide, identities, repeated
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.rules import Kinds
from manifest_platform.sources.snowplow.schemas.resolver import Resolver

DAY = date(2024, 5, 14)
CLICKS = "com_acme_link_click_1"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's directory as the story begins: the newest schemas are not published."""
    home = tmp_path_factory.mktemp("demo")
    shop.set_up(str(home / "schemas"), str(home / "landing"), DAY)
    return home


@pytest.fixture
def registry(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun / "schemas", tmp_path / "schemas"))


def lines_of(home: Path, number: int) -> bytes:
    """The lines of the n-th run."""
    run = home / "landing" / shop.run_name(DAY, number)
    data = b""
    for part in sorted(run.glob("part-*")):
        system, path = storage.filesystem(part.as_uri())
        with system.open_input_stream(path) as stream:
            data += stream.read()
    return data


def shredded(registry: Path, data: bytes) -> ShreddedEvents:
    found = decide(repeated([identities(data)]), Kinds(natural=True, synthetic=True)).of(0)
    marked = found.within(data, 0, "/run/part") if found else None
    return shred_lines(data, Resolver([str(registry)]), marked=marked)


def test_a_run_of_the_new_version_is_bad_until_its_schema_is_published_and_then_brings_columns(
    begun: Path, registry: Path
) -> None:
    before, after = shredded(registry, lines_of(begun, 0)), lines_of(begun, shop.BROKEN)
    assert "element_content" not in before.tables[CLICKS].column_names
    assert shredded(registry, after).bad.num_rows > 100, "more than a run may have"
    for schema in shop.NEW_SCHEMAS:
        (registry / schema).write_bytes((SCHEMAS / schema).read_bytes())
    clicks = shredded(registry, after).tables[CLICKS]
    new = [row["schema_version"] == "1-0-1" for row in clicks.to_pylist()]
    assert any(new) and not all(new)
    assert [value is not None for value in clicks["element_content"].to_pylist()] == new


def test_one_run_has_the_duplicates_that_the_story_tells_of(begun: Path, registry: Path) -> None:
    found = shredded(registry, lines_of(begun, shop.DUPLICATED))
    assert found.duplicates == Duplicates(natural=shop.RESENT, synthetic=2 * shop.TAKEN_IDS)
    assert found.good == shop.EVENTS - shop.RESENT
    renamed = found.tables["com_snowplowanalytics_snowplow_duplicate_1"].to_pylist()
    assert len({row["root_id"] for row in renamed}) == 2 * shop.TAKEN_IDS
    assert len({row["original_event_id"] for row in renamed}) == shop.TAKEN_IDS
    ids = found.tables["events"]["event_id"].to_pylist()
    assert len(set(ids)) == len(ids)
    assert not any(shredded(registry, lines_of(begun, 0)).duplicates.__dict__.values()), "no other run has any"


def test_the_lines_that_the_story_replays_are_good_once_their_schema_is_published(begun: Path, registry: Path) -> None:
    data = lines_of(begun, 0)
    split = data.split(b"\n")
    about = [row for row in shredded(registry, data).bad.to_pylist() if shop.UNHEARD_OF in row["reasons"]]
    assert len(about) == 2
    replayed = b"".join(split[row["line"] - 1] + b"\n" for row in about)
    assert shredded(registry, replayed).good == 0
    shop.publish_unheard_of(str(registry))
    now = shredded(registry, replayed)
    assert (now.good, now.bad.num_rows) == (2, 0)
    assert now.tables["com_acme_unheard_of_1"].num_rows == 2
