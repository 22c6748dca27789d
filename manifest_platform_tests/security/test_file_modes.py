"""Files with data are their owner's alone, whoever of the platform writes them and whatever the umask was before."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from manifest_platform import cli, config, spool, storage
from manifest_platform.config import ConfigError
from manifest_platform.listing import Listing
from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform.manifest.stores import open_store
from manifest_platform.merging import spark_job
from manifest_platform.shred import batch, files
from manifest_platform.shred.batch import Task, Written
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform_tests.pipeline.shop import Shop


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    """A process whose files all may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> set[str]:
    """The modes of all that lies below a folder: a letter for what it is, and its permissions."""
    found = {path: path.lstat().st_mode for path in root.rglob("*")}
    return {f"{'d' if stat.S_ISDIR(mode) else 'f'}{stat.S_IMODE(mode):o}" for mode in found.values()}


def store(root: Path) -> None:
    with closing(open_store(f"sqlite:///{root}/deep/manifest.db")) as opened:
        opened.transact("dataset", [Put("sort", {}, ABSENT)], "token")
        assert [path.name for path in root.glob("deep/manifest.db-*")], "its log lies beside it"
        assert modes(root) == {"d700", "f600"}


def warehouse(root: Path) -> None:
    with closing(DuckDB(root / "deep" / "warehouse.duckdb")) as engine:
        engine.execute("CREATE TABLE t AS SELECT 1 AS a")
        assert [path.name for path in root.glob("deep/*.wal")], "its log lies beside it"
        assert modes(root) == {"d700", "f600"}


def shredded(root: Path) -> None:
    uri = storage.as_uri(root / "deep")
    place = f"{uri}/bad/date=1970-01-01/00000-000.parquet"
    _, data = files.encoded("bad", place, [files.Dated("1970-01-01", pa.table({"a": [1]}))])
    files.store(place, data)
    Listing("item", "attempt", 0, 0, 0, (), (), ()).write(f"{uri}/listing.json")


def objects(root: Path) -> None:
    """Overflow, record files, archives, what catalogs publish."""
    storage.ObjectFolder(root / "deep" / "overflow").put("a/b", b"x")
    storage.write_bytes(storage.as_uri(root / "deep" / "manifest.json"), b"{}")


def spooled(root: Path) -> None:
    with spool.folder("test", str(root)) as folder:
        (folder / "rows.parquet").write_bytes(b"x")
        assert modes(root) == {"d700", "f600"}


@pytest.mark.parametrize("write", [store, warehouse, shredded, objects, spooled])
def test_files_and_folders_are_their_owners_alone(tmp_path: Path, write: Callable[[Path], None]) -> None:
    config.load(Shop(tmp_path / "shop").config_file).files.apply()
    root = tmp_path / "data"
    root.mkdir()
    write(root)
    assert modes(root) <= {"d700", "f600"}


@pytest.mark.parametrize(
    ("readable_by", "before", "expected"),
    [
        ("owner", 0o000, {"d700", "f600"}),
        ("group", 0o000, {"d750", "f640"}),
        ("group", 0o077, {"d700", "f600"}),
        ("umask", 0o002, {"d775", "f664"}),
    ],
)
def test_the_configuration_says_who_may_read_and_never_gives_more_than_the_umask(
    tmp_path: Path, readable_by: str, before: int, expected: set[str]
) -> None:
    os.umask(before)
    config.load(Shop(tmp_path / "shop", files={"readable_by": readable_by}).config_file).files.apply()
    root = tmp_path / "data"
    root.mkdir()
    objects(root)
    assert modes(root) == expected


def test_a_wrong_value_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"files\.readable_by"):
        config.load(Shop(tmp_path, files={"readable_by": "all"}).config_file)


def test_files_and_folders_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    (tmp_path / "old" / "file").write_bytes(b"x")
    config.load(Shop(tmp_path / "shop").config_file).files.apply()
    storage.write_bytes(storage.as_uri(tmp_path / "old" / "new"), b"x")
    assert modes(tmp_path / "old") == {"f666", "f600"}
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o755


# --- Entries ---------------------------------------------------------------------------------------------------------


def test_a_command_makes_its_files_for_the_owner_alone(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert cli.main(["--config", str(shop.config_file), "discover"]) in (0, 4)
    assert stat.S_IMODE((tmp_path / "manifest.db").stat().st_mode) == 0o600


def test_a_code_location_makes_its_files_for_the_owner_alone(tmp_path: Path) -> None:
    from manifest_platform.orchestration.build import build_defs

    build_defs(Shop(tmp_path).config_file)
    assert storage.umask() == 0o077


def test_importing_the_platform_changes_no_umask() -> None:
    """A library that is imported has no business with its process's files."""
    program = "import os; os.umask(0); import manifest_platform.cli.app, manifest_platform.pipeline; print(os.umask(0))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "0\n"


class Elsewhere:
    """A Spark whose workers have an umask of their own."""

    def range(self, *_: Any) -> Elsewhere:
        return self

    def mapInArrow(self, work: Callable[..., Any], _: str) -> Elsewhere:
        self._work = work
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        os.umask(0)
        [result] = self._work([pa.RecordBatch.from_arrays([pa.array([0])], ["id"])])
        return [tuple(column[0].as_py() for column in result.columns)]


def test_sparks_workers_withhold_what_the_process_does_that_started_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    os.umask(0o077)
    seen: list[int] = []
    batch._run(Elsewhere(), [Task(0, 0, "", (), None)], lambda _: seen.append(storage.umask()) or Written())  # ty: ignore
    os.umask(0o027)
    monkeypatch.setattr(spark_job, "_merge_task", lambda *_: seen.append(storage.umask()) or {"permanent": True, "message": ""})
    spark_job._run(Elsewhere(), [SimpleNamespace(bytes=1, table="", date="", lower=0, upper=0)], None)  # ty: ignore
    assert seen == [0o077, 0o027]


@pytest.mark.long
def test_nothing_of_a_drain_is_for_others_to_read(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop", merge={}, manifest={"store": "sqlite:///manifest.db", "overflow": "overflow"})
    shop.write(0, 1)
    given = set(tmp_path.rglob("*"))
    for command in (["discover"], ["drain"], ["merge", "run"]):
        subprocess.run([sys.executable, "-m", "manifest_platform", "--config", str(shop.config_file), *command], check=False)
    made = set(tmp_path.rglob("*")) - given
    assert any(path.suffix == ".parquet" for path in made)
    assert any(path.suffix == ".duckdb" for path in made)
    assert [path for path in made if path.lstat().st_mode & 0o077] == []
