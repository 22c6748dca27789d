"""Which tests a change needs, as `scripts/tests_for_change.py` tells and runs them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "tests_for_change.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tests_for_change", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "stores"),
    [
        (["manifest_platform/manifest/lease.py", "README.md"], "all"),
        (["manifest_platform_tests/servers/postgres.py"], "all"),
        (["manifest_platform/merging/plan.py", "manifest_platform/manifests.py"], "embedded"),
        ([], "embedded"),
        (None, "all"),
    ],
)
def test_rules_run_on_all_stores_when_the_manifest_was_changed(
    script: ModuleType, changed: list[str] | None, stores: str
) -> None:
    assert script.stores(changed) == stores


def test_what_lies_nearest_to_the_change_comes_first(script: ModuleType) -> None:
    tests = [
        f"manifest_platform_tests/{name}"
        for name in (
            "a/test_a.py",
            "merging/catalogs/test_glue.py",
            "merging/test_plan.py",
            "merging/test_queue.py",
            "test_z.py",
        )
    ]
    changed = ["docs/how-to/merging.md", "manifest_platform/merging/queue.py"]
    order = script.nearest_first(tests, changed)
    assert [name.rpartition("/")[2] for name in order] == [
        "test_queue.py",
        "test_glue.py",
        "test_plan.py",
        "test_a.py",
        "test_z.py",
    ]
    assert script.nearest_first(reversed(tests), None) == tests


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("manifest_platform/cli/demo.py", "demo/test_run.py"),
        ("manifest_platform/pipeline/drain.py", "demo/test_run.py"),
        ("manifest_platform_veeva.yaml", "demo/test_run.py"),
        ("manifest_platform_tests/pipeline/shop.py", "pipeline/test_drain.py"),
        ("README.md", "cli/test_walk.py"),
    ],
)
def test_the_demo_runs_first_after_any_change_of_the_product(script: ModuleType, changed: str, first: str) -> None:
    tests = [f"manifest_platform_tests/{name}" for name in ("cli/test_walk.py", "demo/test_run.py", "pipeline/test_drain.py")]
    assert script.nearest_first(tests, [changed])[0] == f"manifest_platform_tests/{first}"


def test_environments_of_other_versions_come_last(script: ModuleType) -> None:
    tests = [f"manifest_platform_tests/{name}" for name in ("installed/test_combinations.py", "test_z.py")]
    assert script.nearest_first(tests, [tests[0]]) == tests[::-1]


class Repository:
    """A clone, and the origin that it came from."""

    def __init__(self, folder: Path, commits: int) -> None:
        self.origin, self.clone = folder / "origin", folder / "clone"
        self.git(folder, "init", "-q", "-b", "main", "origin")
        for number in range(commits):
            self.commit(self.origin, f"file {number}")
        self.git(folder, "clone", "-q", "origin", "clone")

    def commit(self, where: Path, name: str) -> None:
        (where / name).touch()
        self.git(where, "add", "-A")
        self.git(where, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", name)

    def git(self, where: Path, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=where, check=True, capture_output=True)


def test_a_branch_is_compared_with_where_it_began(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI_BASE", raising=False)
    repository = Repository(tmp_path, 3)
    repository.commit(repository.clone, "own")
    (repository.clone / "not committed").touch()
    assert script.changed_files(repository.clone) == ["not committed", "own"]
    monkeypatch.setenv("CI_BASE", "HEAD~2")
    assert script.changed_files(repository.clone) == ["file 2", "not committed", "own"]


def test_main_itself_is_compared_with_fifty_commits_ago(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI_BASE", raising=False)
    repository = Repository(tmp_path, 52)
    assert script.changed_files(repository.clone) == sorted(f"file {number}" for number in range(2, 52))


def test_where_it_cannot_be_told_all_is_changed(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI_BASE", raising=False)
    assert script.changed_files(Repository(tmp_path, 3).clone) is None
    assert script.changed_files(tmp_path) is None


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


RAN = python("print('fine')")
FAILED = python("print('FAILED test_x'); raise SystemExit(1)")
HANGS = python("import time; print('waits', flush=True); time.sleep(60)")
HANGS_AFTER_A_FAILURE = python("import time; print('FAILED test_x', flush=True); time.sleep(60)")


@pytest.mark.parametrize(
    ("command", "failed", "unfinished"),
    [(RAN, [], []), (FAILED, ["file"], []), (HANGS, [], ["file"]), (HANGS_AFTER_A_FAILURE, ["file"], ["file"])],
    ids=["passes", "fails", "hangs", "hangs after a failure"],
)
def test_what_failed_and_what_did_not_end_in_time_is_told_apart(
    script: ModuleType, capsys: pytest.CaptureFixture[str], command: list[str], failed: list[str], unfinished: list[str]
) -> None:
    files = script.Files(time.monotonic() + 3)
    files.run("file", command)
    assert (files.failed, files.unfinished) == (failed, unfinished)
    assert capsys.readouterr().out.startswith("== file: ")


def test_nothing_begins_when_the_time_is_up(script: ModuleType) -> None:
    files = script.Files(time.monotonic() - 1)
    files.run("file", RAN)
    assert files.unfinished == ["file"]


@pytest.mark.parametrize(("files", "code"), [(["passing.py"], 0), (["passing.py", "failing.py"], 1)])
def test_a_failed_file_fails_the_run(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], files: list[str], code: int
) -> None:
    monkeypatch.setenv("MANIFEST_PLATFORM_PROOFS", "")
    program = "import sys; sys.exit('failing.py' in sys.argv)"
    monkeypatch.setattr(script, "PYTEST", python(program))
    run: Callable[..., int] = script.run_long
    assert run(None, 2, files) == code
    assert f"{code} of {len(files)} files failed" in capsys.readouterr().out


def test_the_last_line_sums_the_tests_of_all_files(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was cut off before its first test said "no tests ran" last: the run was taken for one without tests."""
    monkeypatch.setenv("MANIFEST_PLATFORM_PROOFS", "")
    ends = (
        "['1 failed, 4 passed, 35 deselected in 2.58s', '3 passed, 2 warnings in 81.03s (0:01:21)', 'no tests ran in 125.22s']"
    )
    program = f"import sys; print('===', {ends}[int(sys.argv[-1])], '===')"
    monkeypatch.setattr(script, "PYTEST", python(program))
    script.run_long(None, 1, ["0", "1", "2"])
    assert capsys.readouterr().out.splitlines()[-1] == "7 passed, 1 failed"
