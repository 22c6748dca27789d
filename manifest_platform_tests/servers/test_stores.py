"""Which test runs on which stores."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ALL = ["sqlite", "postgresql", "dynamodb"]

TESTS = """
import pytest

def test_a_rule(store_url): pass

@pytest.mark.every_store
def test_a_race(store_url): pass

@pytest.mark.stores("dynamodb")
def test_a_table(store_url): pass

@pytest.mark.every_store
class TestRaces:
    @pytest.mark.stores("sqlite", "postgresql")
    def test_the_nearest_mark_counts(self, store_url): pass

@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_chosen(store_url): pass
"""


@pytest.mark.parametrize(("arguments", "rules"), [((), ALL[:1]), (("--stores", "all"), ALL)])
def test_rules_run_on_sqlite_alone_unless_all_is_asked_for(
    pytester: pytest.Pytester, arguments: tuple[str, ...], rules: list[str]
) -> None:
    pytester.makeini("[pytest]\nmarkers = every_store\n stores(*names)")
    file = pytester.makepyfile(TESTS)
    plugin = ("-p", "manifest_platform_tests.servers.stores")
    result = pytester.inline_run(*plugin, "--collect-only", *arguments, str(Path(file)))
    [call] = result.getcalls("pytest_collection_finish")
    names = [item.name for item in call.session.items]
    assert names == [
        *(f"test_a_rule[{store}]" for store in rules),
        *(f"test_a_race[{store}]" for store in ALL),
        "test_a_table[dynamodb]",
        *(f"test_the_nearest_mark_counts[{store}]" for store in ALL[:2]),
        "test_chosen[postgresql]",
    ]
