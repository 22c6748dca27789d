"""`bad replay`: bad rows of loaded items are read again, and what is good now becomes a new item.

Use it once the cause is gone, as after a schema was published. The lines are written exactly as they were, below the platform's
own prefix, and registered as an item that names its origins. It is shredded and loaded like any other. A record of each origin
names its lines that went there, so that no line is replayed twice. If an origin is shredded again, these lines stay bad rows of
it, so that no target loads them with both items.

The item follows the newest item of its feed. Under the present time it would be newer than directories that land next in a feed
of the past: they came late, and were not even looked for once they were older than the period that discovery lists again.

The files are written before the manifest names them. A crash in between leaves files that nothing names, and a manifest that
was set back forgets what it named. So a replay first registers such files under their own name. Otherwise another choice of the
same lines would be another item, and the warehouse would have them twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from manifest_platform import failpoints, storage
from manifest_platform.listing import BAD_TABLE
from manifest_platform.manifest import Application, Holding, Item, ItemKey, Refused, UnknownItem
from manifest_platform.operations.reload import is_of_former_loader
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.shredding import ReplayedLines, bad_listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.replays import Replays

ORIGINS = 40
"""The most origins of one new item: each adds a record to the transaction that registers it."""
MOST_BYTES = 64 << 20
"""The most bytes of lines in one new item."""
_AT_ONCE = 1000
"""The most lines that are read again together."""
_DIGITS = 12
_COLUMNS = ("file", "line", "reasons", "raw", "byte_length", "raw_base64")

Place = tuple[str, int]
"""A line: its file's URI and its number."""


@dataclass(frozen=True)
class BadLine:
    """An open bad row. `data`: its exact bytes; None if they were not kept."""

    place: Place
    reasons: str
    data: bytes | None


@dataclass
class Replayed:
    """The result for some items. `items`: the new items. Lines by origin: `good`, `bad` (still), `lost` (no exact bytes)."""

    items: list[str] = field(default_factory=list)
    good: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


def replay(pipeline: Pipeline, keys: Sequence[ItemKey], reason: str, about: str = "", dry_run: bool = False) -> Replayed:
    """Replays the open bad rows of loaded items whose reasons contain a text. `dry_run`: reads them again, and writes nothing.

    Raises Refused for a source whose lines cannot be read alone, and for an item that is not loaded, or that a former loader
    has loaded; errors of shredding.
    """
    replays = replays_of(pipeline)
    done = Replayed() if dry_run else Replayed(items=list(_register_written(pipeline, replays, reason)))
    chosen: dict[ItemKey, tuple[int, list[BadLine]]] = {}
    size = 0
    for key in keys:
        item = _loaded(pipeline, key)
        lines = (one for one in open_rows(pipeline, item) if about in one.reasons)
        for some in _portions(_good(replays, key.name, lines, done)):
            portion = sum(len(one.data or b"") for one in some)
            if chosen and (len(chosen) == ORIGINS or size + portion > MOST_BYTES or key in chosen):
                done.items += _register(pipeline, replays, chosen, reason, dry_run)
                chosen, size = {}, 0
                item = pipeline.manifest.item(key)
            chosen[key], size = (len(item.records), some), size + portion
    done.items += _register(pipeline, replays, chosen, reason, dry_run)
    return done


def replays_of(pipeline: Pipeline) -> Replays:
    """Returns the way to read a dataset's bad lines again. Raises Refused if there is none."""
    found = pipeline.source.replays
    if found is None:
        raise Refused(
            f"bad rows of dataset {pipeline.name} cannot be replayed: a line of its source, {pipeline.dataset.source}, means"
            " nothing without its file, and later changes may follow it. Correct the cause and shred the item again; rows that"
            " change by key need a full load"
        )
    return found


def open_rows(pipeline: Pipeline, item: Item) -> Iterator[BadLine]:
    """Yields the bad rows of an item's output that were not replayed. Raises OutputGone, OSError."""
    import pyarrow.parquet as pq

    from manifest_platform.shred.rows import kept_bytes

    listing, replayed = bad_listing_of(item), ReplayedLines(item)
    for uri in listing.uris(BAD_TABLE):
        system, path = storage.filesystem(uri)
        with system.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            columns = [name for name in _COLUMNS if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    data = kept_bytes(row)
                    if not replayed.takes(data):
                        yield BadLine((row["file"], row["line"]), row["reasons"], data)


def count_open(pipeline: Pipeline, item: Item) -> int:
    """Returns the number of an item's bad rows that are there and were not replayed, by its records alone."""
    if item.deletion_of(Holding.BAD):
        return 0
    shredded = item.processed_by(Application(SHRED))
    bad = shredded.data.get("bad", 0) if shredded else 0
    return max(0, bad - sum(record.data["replayed"]["lines"] for record in item.replayed))


def with_bad_rows(pipeline: Pipeline, feed: str, since: datetime | None = None) -> Iterator[Item]:
    """Yields the loaded items of a feed that have open bad rows. Reads all items that are not archived.

    Items that a former loader has loaded are passed over, because `replay` refuses them. `since`: only items whose logical time
    is this time or later.
    """
    for item in pipeline.manifest.items(feed, archived=False):
        time = pipeline.source.time(item.key.name)
        is_wanted = since is None or (time and time >= since)
        if is_wanted and count_open(pipeline, item) and _is_loaded(pipeline, item) and not _is_of_former_loader(pipeline, item):
            yield item


def _loaded(pipeline: Pipeline, key: ItemKey) -> Item:
    item = pipeline.manifest.item(key)
    if not _is_loaded(pipeline, item):
        raise Refused(
            f"{key.name} is not loaded, so nothing of it needs to be replayed: shred it again",
            Remedy(Action.RESHRED, item=key.name),
        )
    if _is_of_former_loader(pipeline, item):
        raise Refused(
            f"{key.name} was loaded by a former loader, so nobody knows which of its bad rows the warehouse has: a replay might"
            " double them"
        )
    return item


def _is_of_former_loader(pipeline: Pipeline, item: Item) -> bool:
    return any(is_of_former_loader(one, item) for one in pipeline.each_target())


def _is_loaded(pipeline: Pipeline, item: Item) -> bool:
    """True if an item is loaded into every target. Until then, shredding it again is enough."""
    serving = pipeline.manifest.serving_epochs(item.key.feed)
    return all(item.processed_by(one.load, serving.get(one.load.key, 1)) for one in pipeline.each_target())


def _good(replays: Replays, name: str, lines: Iterator[BadLine], done: Replayed) -> Iterator[BadLine]:
    """Yields the lines of an item that are good now, and counts all. Some lines are in memory at a time."""
    for counts in (done.good, done.bad, done.lost):
        counts[name] += 0
    while some := list(islice(lines, _AT_ONCE)):
        kept = [one for one in some if one.data is not None]
        good = [one for one, parses in zip(kept, replays.parses([one.data or b"" for one in kept]), strict=True) if parses]
        done.good[name] += len(good)
        done.bad[name] += len(kept) - len(good)
        done.lost[name] += len(some) - len(kept)
        yield from good


def _portions(lines: Iterable[BadLine]) -> Iterator[list[BadLine]]:
    """Yields the lines in portions of at most MOST_BYTES, each of at least one line."""
    some: list[BadLine] = []
    size = 0
    for one in lines:
        if some and size + len(one.data or b"") > MOST_BYTES:
            yield some
            some, size = [], 0
        some.append(one)
        size += len(one.data or b"")
    if some:
        yield some


def _register(
    pipeline: Pipeline,
    replays: Replays,
    chosen: dict[ItemKey, tuple[int, list[BadLine]]],
    reason: str,
    dry_run: bool,
) -> list[str]:
    """Writes the chosen lines and registers them as an item. Returns its name; nothing in a dry run, and without lines."""
    if not chosen or dry_run:
        return []
    from manifest_platform.shred.rows import digest_of

    ordered = sorted(chosen.items(), key=lambda one: one[0].id)  # as the file has them: the same lines are the same bytes again
    lines = [one for _, (_, some) in ordered for one in some]
    named = {key.id: [(*one.place, digest_of(one.data or b"")) for one in some] for key, (_, some) in ordered}
    text = json.dumps({"lines": named}, sort_keys=True)
    digest = hashlib.sha256(b"\n".join([text.encode(), *(one.data or b"" for one in lines)])).hexdigest()[:_DIGITS]
    root = replays_root(pipeline)
    name = _next_name(pipeline, replays, next(iter(chosen)).feed, digest)
    storage.write_bytes(_file(root, name), text.encode())
    landed = replays.write(f"{root}/{name}", [one.data or b"" for one in lines])
    failpoints.reach("replay.written")
    origins = {key: (len(some), before) for key, (before, some) in chosen.items()}
    pipeline.manifest.replay(landed, origins, _file(root, name), reason)
    return [landed.key.name]


def replays_root(pipeline: Pipeline) -> str:
    """Returns the URI of the folder that holds the lines of a dataset's replays."""
    return f"{storage.as_uri(pipeline.dataset.shred.output)}/_replays/{pipeline.name}"


def _next_name(pipeline: Pipeline, replays: Replays, feed: str, digest: str) -> str:
    """Returns the earliest name of lines to replay that follows the newest item of a feed."""
    newest = next(pipeline.manifest.items(feed, reverse=True)).key
    time = pipeline.source.time(newest.name) or pipeline.clock()
    while (sort := _sort(pipeline, name := replays.name(time, digest))) and sort <= newest.sort:
        time += timedelta(seconds=1)
    return name


def _sort(pipeline: Pipeline, name: str) -> str | None:
    placed = pipeline.source.placed(name)
    return placed.sort if placed else None


def is_replay(pipeline: Pipeline, key: ItemKey) -> bool:
    """True if an item consists of replayed lines."""
    return key.id.startswith(f"{replays_root(pipeline)}/")


# Replays that were written, and that the manifest does not name


def unregistered(pipeline: Pipeline) -> list[str]:
    """Returns the names of the replays whose lines were written and that the manifest does not know, the earliest first."""
    from pyarrow.fs import FileSelector

    system, path = storage.filesystem(replays_root(pipeline))
    files: Collection[Any] = system.get_file_info(FileSelector(path, allow_not_found=True))
    names = sorted(one.base_name.removesuffix(".json") for one in files if one.base_name.endswith(".json"))
    return [name for name in names if not _is_registered(pipeline, name)]


def register_loaded(pipeline: Pipeline, name: str, reason: str) -> None:
    """Registers a replay that the warehouse has in a manifest that was set back. Raises UnknownItem for an unknown origin."""
    root = replays_root(pipeline)
    file = _file(root, name)
    origins: dict[ItemKey, tuple[int, int]] = {}
    for id_, lines in json.loads(storage.read_bytes(file))["lines"].items():
        item = pipeline.manifest.item(pipeline.key(id_))
        origins[item.key] = len(lines), len(item.records)
    pipeline.manifest.replay(replays_of(pipeline).read(f"{root}/{name}"), origins, file, reason)


def _register_written(pipeline: Pipeline, replays: Replays, reason: str) -> Iterator[str]:
    """Registers the replays that the manifest does not know, if all their lines are open bad rows. Yields their names.

    If they are not, their origins were shredded again since, and have them as good lines. Raises Refused if the warehouse has
    such a replay: then the manifest was set back.
    """
    from manifest_platform.shred.rows import digest_of

    root = replays_root(pipeline)
    for name in unregistered(pipeline):
        named = json.loads(storage.read_bytes(_file(root, name)))["lines"]
        origins: dict[ItemKey, tuple[int, int]] = {}
        lines: list[bytes | None] = []
        for id_, places in sorted(named.items()):
            item = pipeline.manifest.item(pipeline.key(id_))
            wanted = {digest for _, _, digest in places}
            rows = ((digest_of(one.data), one.data) for one in open_rows(pipeline, item) if one.data is not None)
            there = {digest: data for digest, data in rows if digest in wanted}
            found = [there.get(digest) for _, _, digest in places]
            origins[item.key] = len(found), len(item.records)
            lines += found
        if None not in lines:
            landed = replays.write(f"{root}/{name}", [line or b"" for line in lines])
            pipeline.manifest.replay(landed, origins, _file(root, name), reason)
            yield name
        elif _is_in_a_ledger(pipeline, name):
            raise Refused(
                f"{name} is loaded, and the manifest does not know this replay: it was restored from a backup",
                Remedy(Action.REPAIR),
            )


def _is_registered(pipeline: Pipeline, name: str) -> bool:
    try:
        return bool(pipeline.manifest.item(pipeline.key(name)).records)
    except UnknownItem:
        return False


def _is_in_a_ledger(pipeline: Pipeline, name: str) -> bool:
    uri = f"{replays_root(pipeline)}/{name}"
    placed = pipeline.source.placed(name)
    if placed is None:
        return False
    for target in pipeline.each_target():
        with closing(target.warehouse) as warehouse:
            if any(entry.item == uri for entry in warehouse.ledger(placed.feed, 1)):
                return True
    return False


def _file(root: str, name: str) -> str:
    """Returns the URI of the file that names the lines of a replay."""
    return f"{root}/{name}.json"
