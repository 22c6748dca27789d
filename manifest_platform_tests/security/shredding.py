"""Shredding a landed directory as the Spark job does, without Spark: in a process that may not take much."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.shred.batch import Directory, Options, ShredFailure, Task, _conclude, _result
from manifest_platform.shred.lines import plan
from manifest_platform.sources.snowplow.events.shredder import _most_good, shred_pieces
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.veeva.shredder import VeevaOptions, Window, _contents, _plan, shred_files


def write(folder: Path, files: Mapping[str, bytes]) -> tuple[tuple[str, int], ...]:
    """Writes files below a folder; each as (URI, size)."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return tuple((storage.as_uri(path), path.stat().st_size) for path in sorted(folder.rglob("*")) if path.is_file())


def run_of(root: Path, files: Mapping[str, bytes]) -> Directory:
    """A run of these files that lies in `landing`, and whose output goes to `out`."""
    folder = root / "landing" / "run"
    found = write(folder, files)
    return Directory(storage.as_uri(folder), found, storage.as_uri(root / "out"), "a1")


def window_of(root: Path, files: Mapping[str, bytes], feed: Any = "incr") -> Window:
    """A window of these files that lies in `landing`, and whose output goes to `out`."""
    folder = root / "landing" / "window"
    found = write(folder / "attempt=1", files)
    place, output = storage.as_uri(folder / "attempt=1"), storage.as_uri(root / "out")
    return Window(storage.as_uri(folder), found, output, "a1", place, feed, "2026-01-01T00:15Z")


def shred_run(directory: Directory, registry: str, options: Options) -> Listing | ShredFailure:
    """Shreds a run as the Spark job does, without Spark."""
    most_bad = options.most_bad(_most_good(directory, options.limits))
    resolver = Resolver([registry])
    tasks = [
        Task(0, number, directory.output, tuple(piece.uri for piece in pieces), pieces)
        for number, pieces in enumerate(plan(directory.files, options.split_size))
    ]
    results = [_result(task, lambda one: shred_pieces(one, resolver, options, most_bad)) for task in tasks]
    return _conclude(directory, results, options)


def shred_window(window: Window, options: VeevaOptions) -> Listing | ShredFailure:
    """Shreds a window as the Spark job does, without Spark."""
    tasks = [
        Task(0, number, window.output, tuple(window.paths[path][0] for path in part.paths), part)
        for number, part in enumerate(_plan(window, options.split_size, {}))
    ]
    results = [_result(task, lambda one: shred_files(one, window, _contents(window, options, ""), options)) for task in tasks]
    return _conclude(window, results, options)


def bad_rows(listing: Listing) -> list[dict[str, Any]]:
    """The rows of the `bad` table."""
    tables = [parquet.read_table(storage.local_path(uri), partitioning=None) for uri in listing.uris("bad")]
    return pa.concat_tables(tables).to_pylist() if tables else []
