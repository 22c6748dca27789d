"""An open dataset: its source, manifest and warehouse, and the names of its items, folders and leases.

Belongs here: the parts that all work on a dataset shares. Each kind of work is a module of functions on a Pipeline, such as
`discovery`, `shredding` and `loading`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import getpass
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform import __version__, storage
from manifest_platform.config import Config
from manifest_platform.manifest import (
    Application,
    Claim,
    Failure,
    ItemKey,
    Lease,
    Manifest,
    Refused,
    Step,
    Store,
    UnknownItem,
)
from manifest_platform.manifest.item import InvalidKey, check_key_text
from manifest_platform.manifest.payloads import register_folder
from manifest_platform.manifest.records import FIRST_TARGET, run_id_of
from manifest_platform.manifest.stores import memory_of, open_store
from manifest_platform.manifest.takeover import Places, TakenOver
from manifest_platform.pipeline.events import ItemFailed
from manifest_platform.record_files import read_archived
from manifest_platform.sources.source import LOAD, Named, open_source
from manifest_platform.warehouse.repeats import Repeats

if TYPE_CHECKING:
    from manifest_platform.pipeline.looking import Sight
    from manifest_platform.warehouse.apply import LedgerEntry, Warehouse
    from manifest_platform.warehouse.engines.engine import EngineSettings
    from manifest_platform.warehouse.takeover import FormerNotes


UPKEEP = Application("upkeep")
"""The application that holds the lease of a target's upkeep; the place is the target's name."""
_OTHER_WORK = tuple(
    (Application(name), place) for name, place in (("merge", "0"), ("publish", "catalog"), ("upkeep", "objects"))
)
"""The leases of merging by name. They are listed because merging may be disabled, and importing it is expensive."""


class Pipeline:
    """A dataset's source, manifest and warehouse. Close it after use.

    `run_id`: the run that every record and lease names: the orchestrator's, or by default a new id. `author`: the author of
    records, for commands of an operator. `store`: the manifest's, if it is open already; it stays open. `clock`: returns the
    time in UTC, here and for the manifest. `target`: the target to load; by default the dataset's first. Raises InvalidRunId,
    ConfigError for a target that the dataset does not have.

    `load`: the application that loads the target. `targets`: the names of all targets of the dataset.
    """

    def __init__(
        self,
        config: Config,
        dataset: str,
        run_id: str | None = None,
        author: str | None = None,
        store: Store | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        target: str | None = None,
    ):
        self.config, self.name, self.clock = config, dataset, clock
        self.targets = config.targets_of(dataset)
        self.target = target or self.targets[0]
        config.engine_of(dataset, self.target)
        self.load = loads(self.target)
        self._others: dict[str, Pipeline] = {self.target: self}
        self.dataset = config.datasets[dataset]
        for folder in config.manifest.schemas:
            register_folder(Path(folder))
        self._is_taken_over = False
        self.sights: dict[str, Sight] = {}  # by feed, what this process remembers between looks in parts
        self.families: dict[str, str] = {}  # the families of tables, as far as this process has read them
        self._stack = ExitStack()
        if store is None:
            store = config.manifest.open()
            self._stack.callback(store.close)
        author = author or f"manifest-platform {__version__}"
        self.source = open_source(dataset, self.dataset)
        declared = {feed: self._steps(feed) for feed in (*self.source.feeds, *self.source.registered)}
        upkeep = tuple((UPKEEP, target) for target in self.targets)
        places = Places.of(declared, (*_OTHER_WORK, *upkeep))
        taken_over, time_of = TakenOver(store, places, clock), self.source.logical_time
        self.manifest = Manifest(taken_over, dataset, declared, author, run_id_of(run_id), clock, read_archived, time_of)

    def _steps(self, feed: str) -> tuple[Step, ...]:
        attempts = self.config.lease.max_attempts
        own = (step for step in self.dataset.steps if (step.feed or self.source.main) == feed)
        platforms: list[Step] = []
        for step in self.source.steps(feed, attempts):
            if step.application.name == LOAD:
                several = [dataclasses.replace(step, application=loads(target)) for target in self.targets]
            else:
                several = [dataclasses.replace(step, application=dataclasses.replace(step.application, version=__version__))]
            platforms += several
        steps = (
            *platforms,
            *(Step(Application(one.name), one.upstream, one.order, one.late, max_attempts=attempts) for one in own),
        )
        return tuple(dataclasses.replace(step, targeted=LOAD) for step in steps)

    def at(self, target: str) -> Pipeline:
        """Returns the pipeline of another target of the dataset, with the same manifest. Closing any of them closes all."""
        if target not in self._others:
            other = copy.copy(self)
            for own in ("warehouse", "repeats"):
                other.__dict__.pop(own, None)
            other.target, other.load = target, loads(target)
            self._others[target] = other
        return self._others[target]

    def each_target(self) -> Iterator[Pipeline]:
        """Yields the pipeline of each target of the dataset, in the order of a drain."""
        return (self.at(target) for target in self.targets)

    @property
    def engine_settings(self) -> EngineSettings:
        """The settings of the target's engine."""
        return self.config.engines[self.target]

    @property
    def feeds(self) -> tuple[str, ...]:
        """The feeds that the platform shreds and loads, in the order of a drain. The manifest may have more."""
        return self.source.feeds

    def close(self) -> None:
        """Closes the connections."""
        self._stack.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def run_id(self) -> str:
        """The run that every record and lease written here names."""
        return self.manifest.run_id

    @property
    def holder(self) -> str:
        """The holder named in the leases that this process takes."""
        return f"{operator_name()}@{socket.gethostname()}:{os.getpid()}"

    @property
    def schema(self) -> str:
        """The schema of the dataset's tables in the warehouse."""
        return self.dataset.load.schema_name or self.name

    @cached_property
    def warehouse(self) -> Warehouse:
        """The dataset's tables in the warehouse. Connects at first use."""
        from manifest_platform.warehouse.apply import open_warehouse

        view, former = self.source.applied_view, self._former_notes
        warehouse = open_warehouse(self.engine_settings, self.name, self.schema, view=view, former=former)
        self._stack.callback(warehouse.close)
        return warehouse

    @property
    def _former_notes(self) -> FormerNotes | None:
        """The notes of the loader that may have filled the dataset's schema before."""
        from manifest_platform.warehouse.takeover import FormerNotes

        loader = self.source.former_loader
        return FormerNotes(loader.name, loader.table) if loader else None

    def require_taken_over(self) -> None:
        """Raises NotTakenOver if another loader has filled the dataset's tables, and they were not taken over.

        Runs that are shredded before would keep the tables from being taken over. The warehouse is asked once, and not at all
        after the first load. If it cannot be asked, the load finds out.
        """
        from manifest_platform.warehouse.apply import open_warehouse
        from manifest_platform.warehouse.errors import Unavailable

        former = None if self._is_taken_over else self._former_notes
        if former and not self.manifest.state(self.load).feed(self.source.main).believed:
            opened = open_warehouse(self.engine_settings, self.name, self.schema, read_only=True, patience=0.1, former=former)
            with contextlib.closing(opened) as reader, contextlib.suppress(Unavailable):
                (self.warehouse if self.has_warehouse_at_hand else reader).require_taken_over()
                self._is_taken_over = True

    @cached_property
    def repeats(self) -> Repeats | None:
        """The rule by which loads of the target leave out rows that earlier loads brought; None: all rows are loaded."""
        rule = self.source.repeats
        if rule is None or not rule.remembered:
            return Repeats(rule) if rule else None
        from manifest_platform.warehouse.seen import Seen

        def opened() -> Store:
            store = open_store(memory_of(self.config.manifest.store))
            self._stack.callback(store.close)
            return store

        return Repeats(rule, Seen(f"{self.name}~{self.load.key}", rule, opened))

    @property
    def has_warehouse_at_hand(self) -> bool:
        """True if the warehouse was used, and answers without waiting for another process to let go of it."""
        return "warehouse" in self.__dict__ and self.warehouse.is_at_hand

    def let_go(self, idle: bool = True) -> bool:
        """Lets other processes use a warehouse that only a single process can have open, and returns True if it did.

        `idle`: no load follows soon; otherwise only if another process waits for it.
        """
        return "warehouse" in self.__dict__ and self.warehouse.release(idle)

    def newest_epoch(self) -> int:
        """Returns the newest epoch in the warehouse's fence, without waiting for a lock. Raises WarehouseError."""
        from manifest_platform.warehouse.apply import open_warehouse

        if self.has_warehouse_at_hand:
            return self.warehouse.newest_epoch()
        with contextlib.closing(
            open_warehouse(self.engine_settings, self.name, self.schema, read_only=True, patience=0.1)
        ) as reader:
            return reader.newest_epoch()

    def ledger_entry(self, key: ItemKey, since_epoch: int) -> LedgerEntry | None:
        """Returns the ledger's newest entry of an item, without waiting for a lock. Writes nothing. Raises WarehouseError."""
        from manifest_platform.warehouse.apply import open_warehouse

        if self.has_warehouse_at_hand:
            return _entry_of(self.warehouse, key, since_epoch)
        with contextlib.closing(
            open_warehouse(self.engine_settings, self.name, self.schema, read_only=True, patience=0.1)
        ) as reader:
            return _entry_of(reader, key, since_epoch)

    def key(self, item: str) -> ItemKey:
        """Returns the key of an item by its name or URI. Raises Refused for an invalid or ambiguous name, UnknownItem."""
        if known := self.registered_as(item):
            return known
        text = item.rstrip("/")
        meant = self.source.named(text)
        if not meant:
            placed = self.source.placed(text)
            if placed is None:
                raise Refused(f"{item!r} is neither {self.source.words.form} nor a URI that ends in one")
            uri = storage.as_uri(text)
            try:
                return self.manifest.item(ItemKey(placed.feed, placed.sort, uri)).key
            except UnknownItem:
                moved = self.manifest.item(self.manifest.find(placed.feed, placed.sort))
                if moved.move is None or moved.move.place != uri:
                    raise
                return moved.key
        found: list[ItemKey] = []
        for named in meant:
            try:
                found.append(self.manifest.find(named.feed, named.sort))
            except UnknownItem:
                if named == meant[-1] and not found:
                    raise
        if len(found) > 1:
            raise Refused(f"{item!r} may be {' or '.join(key.name for key in found)}. Name its feed too")
        return found[0]

    def registered_as(self, id_: str) -> ItemKey | None:
        """Returns the key of an item that a program registered under an id; None if there is none."""
        with contextlib.suppress(InvalidKey):
            check_key_text("item id", id_)
            found = (self.manifest.registered_as(feed, id_) for feed in self.source.registered)
            return next((key for key in found if key), None)
        return None

    def folder(self, key: ItemKey) -> str:
        """Returns the URI of the folder for the attempts at an item."""
        return f"{self.folder_root}/{folder_name(key)}"

    @property
    def folder_root(self) -> str:
        """The URI of the folder that contains the folders of all items."""
        return f"{storage.as_uri(self.dataset.shred.output)}/{self.name}"

    def meant_by(self, folder: str) -> list[Named]:
        """Returns the items to which a folder of this name may belong."""
        return self.source.named(folder.replace(".", "/", 1))

    def item_of(self, uri: str) -> ItemKey | None:
        """Returns the item whose attempt wrote an object, by the object's URI; None if there is none."""
        folder = uri.removeprefix(f"{self.folder_root}/").partition("/")[0]
        for named in self.meant_by(folder) if uri.startswith(f"{self.folder_root}/") else ():
            with contextlib.suppress(Refused):
                return self.manifest.find(named.feed, named.sort)
        return None

    def lease(self, feed: str, application: str) -> Lease:
        """Returns the lease of a step on a feed. A `with` block keeps it alive. Raises LeaseBusy."""
        return self.manifest.acquire(feed, application, self.holder, timedelta(seconds=self.config.lease.seconds))

    def fail(self, claim: Claim, failure: Failure) -> ItemFailed:
        """Records the failure of an attempt at a claimed item."""
        self.manifest.fail(claim, failure)
        return ItemFailed(claim.item.key, claim.step.application.key, failure)


def loads(target: str) -> Application:
    """Returns the application that loads a target. The first target's has no instance."""
    return Application(LOAD, __version__, None if target == FIRST_TARGET else target, exact=True)


def folder_name(key: ItemKey) -> str:
    """Returns the name of the folder for the attempts at an item. It is one level deep, even if the item's name has two."""
    return key.name.replace("/", ".", 1)


def _entry_of(warehouse: Warehouse, key: ItemKey, since_epoch: int) -> LedgerEntry | None:
    for entry in warehouse.ledger(key.feed, since_epoch, after=key.sort):
        if entry.position >= key.position:
            return entry if entry.position == key.position else None
    return None


def operator_name() -> str:
    """Returns the user of this process; `uid 1001` if the system has no name for the number, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # KeyError up to Python 3.12, OSError from 3.13
        return f"uid {os.getuid()}"
