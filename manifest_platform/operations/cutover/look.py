"""The tables and the notes of a former loader, compared with the landing, our manifest, and what loads need.

Writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from manifest_platform.listing import Table
from manifest_platform.manifest import Refused
from manifest_platform.operations.migration import Elsewhere, Histories, Place, import_items
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.cutover import FormerLoader, FormerRun
from manifest_platform.sources.source import Source
from manifest_platform.warehouse.apply import Standing, Warehouse, open_warehouse
from manifest_platform.warehouse.errors import LoadFailed
from manifest_platform.warehouse.takeover import strange

_PART = 1000
"""The number of names of the landing that are read at a time."""


class NothingToTakeOver(Refused):
    """The schema has no tables of the former loader."""


@dataclass(frozen=True)
class Cutover:
    """The facts that a person must know before the former loader is replaced.

    `runs`: what it has loaded, oldest first, by the name in our landing. `never_loaded`: in the landing, not behind its newest
    run, and not loaded by it. `newer`: in the landing, behind its newest run. `gone`: loaded, and no longer in the landing.
    `twice`: loaded more than once. `adopted`: taken over already. `tables`: each table that both know. `strangers`: tables of
    the schema that no noted type has. `problems`: notes and types that cannot be read, and what this platform did itself.
    `rows`: of the main table; `noted`: the sum of the rows that it noted, None if it did not note all.
    """

    loader: str
    schema: str
    runs: dict[str, FormerRun]
    never_loaded: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    tables: tuple[Standing, ...] = ()
    strangers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    rows: int = 0
    noted: int | None = None

    @property
    def hindrances(self) -> list[str]:
        """Sentences on what keeps the tables from being taken over; empty if nothing does."""
        return [*_hindrances(self)]


def _hindrances(found: Cutover) -> Iterator[str]:
    yield from (f"{one.table}: {one.problem}" for one in found.tables if one.problem)
    yield from found.problems
    if found.twice:
        yield (
            f"{found.loader} notes {found.twice[0]} more than once: delete the rows of all but one of these loads, and their"
            " notes"
        )


def former_loader(source: Source) -> FormerLoader:
    """Returns the loader that a source's tables may come from. Raises Refused if the source knows none."""
    loader = source.former_loader
    if loader is None:
        raise Refused(f"dataset {source.dataset} has no former loader: its source, {source.settings.source}, knows none")
    return loader


def look(pipeline: Pipeline, schema: str | None = None, source_root: str = "") -> Cutover:
    """Reads the former loader's tables, and compares. `schema`: that of its tables; by default the schema that it uses.

    `source_root`: the folder of the runs as it notes them; empty: the landing root. Raises NothingToTakeOver, Refused,
    LandingError and WarehouseError.
    """
    loader = former_loader(pipeline.source)
    schema = schema or loader.schema
    with reading(pipeline, schema) as warehouse:
        noted = read_notes(warehouse, loader)
        seen = _Seen(pipeline, source_root)
        for run in noted.runs:
            seen.add(run)
        tables, unknown = _wanted(pipeline, loader, noted.runs)
        found = warehouse.standings(tables)
        known = {one.table for one in found}
        unknown += _not_altered(warehouse, found)
        strangers = sorted(set(warehouse.table_names()) - known - {loader.table})
        entered = {entry.item: entry for entry in warehouse.ledger(pipeline.source.main, 0)}
    adopted = tuple(name for name, key in seen.keys.items() if key in entered and entered[key].was_taken_over)
    if len(adopted) < len(seen.runs):  # else there is nothing to take over
        unknown += _own_work(pipeline, schema, seen, entered)
    landed = set(_landed(pipeline))
    newest = max(seen.runs, key=seen.sort_of, default="")
    missing = sorted((name for name in landed if name not in seen.runs), key=seen.sort_of)
    rows = [run.rows for run in seen.runs.values()]
    return Cutover(
        loader=loader.name,
        schema=schema,
        runs=seen.runs,
        never_loaded=tuple(name for name in missing if newest and seen.sort_of(name) <= seen.sort_of(newest)),
        newer=tuple(name for name in missing if not newest or seen.sort_of(name) > seen.sort_of(newest)),
        gone=tuple(name for name in seen.runs if name not in landed),
        twice=tuple(seen.twice),
        adopted=adopted,
        tables=tuple(found),
        strangers=tuple(strangers),
        problems=(*noted.problems, *seen.problems, *unknown),
        rows=next((one.rows for one in found if one.table == loader.main_table.name), 0),
        noted=None if None in rows else sum(one for one in rows if one is not None),
    )


@contextmanager
def reading(pipeline: Pipeline, schema: str) -> Generator[Warehouse]:
    """Yields the tables of a schema, to be read: on the pipeline's connection, if it has one."""
    if pipeline.has_warehouse_at_hand:
        yield Warehouse(pipeline.warehouse.engine, pipeline.name, schema)
        return
    with closing(open_warehouse(pipeline.engine_settings, pipeline.name, schema, read_only=True)) as warehouse:
        yield warehouse


@dataclass(frozen=True)
class _Notes:
    runs: tuple[FormerRun, ...]
    problems: tuple[str, ...]


def read_notes(warehouse: Warehouse, loader: FormerLoader) -> _Notes:
    """Returns what the former loader has noted. Raises NothingToTakeOver."""
    try:
        if loader.table not in warehouse.table_names():
            raise LoadFailed(f"there is no table {loader.table}")
        found = loader.runs(*warehouse.content(loader.table, loader.order))
    except (LoadFailed, ValueError) as error:
        raise NothingToTakeOver(
            f"schema {warehouse.schema} has no tables of {loader.name} to take over: {error}. Name their schema with --schema"
        ) from error
    return _Notes(found.runs, tuple(f"{loader.table}, row that cannot be read: {one}" for one in found.problems))


@dataclass
class _Seen:
    """The former loader's runs, and the ids of their items, by their names in our landing."""

    pipeline: Pipeline
    source_root: str
    runs: dict[str, FormerRun] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, run: FormerRun) -> None:
        """Adds a run, unless it is stored elsewhere or was added before."""
        root = self.source_root or run.place.rpartition("/")[0]
        try:
            key = Place(self.pipeline.source, root).key(run.place)
        except Elsewhere as error:
            self.problems.append(f"{run.place} {error}")
            return
        if key.name in self.runs:
            self.twice.append(key.name)
        self.runs[key.name], self.keys[key.name] = run, key.id

    def sort_of(self, name: str) -> str:
        """Returns the sort key of a name."""
        named = self.pipeline.source.named(name)
        return named[0].sort if named else ""


def _not_altered(warehouse: Warehouse, found: Iterable[Standing]) -> Iterator[str]:
    """Yields a sentence for each table that loads must alter, and that belongs to somebody else."""
    owners = warehouse.engine.owners_apart(warehouse.schema)
    for one in found:
        if one.table in owners and (one.adds or one.widens or one.relaxes):
            yield (
                f"{one.table} belongs to {owners[one.table]}, and loads add or change columns: make the loader's user its"
                " owner, or a member of the owner"
            )


def _own_work(pipeline: Pipeline, schema: str, seen: _Seen, entered: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each reason in our configuration, log or ledger that forbids a takeover."""
    if pipeline.schema != schema:
        yield (
            f"dataset {pipeline.name} loads into schema {pipeline.schema}, and the tables are in {schema}: set"
            f" datasets.{pipeline.name}.load.schema_name: {schema}, then take them over"
        )
    try:
        import_items(pipeline.manifest, pipeline.source.main, Histories(), schema, dry_run=True)
    except Refused as error:
        yield str(error)
    if own := strange(entered, seen.keys.values()):
        yield own


def _wanted(pipeline: Pipeline, loader: FormerLoader, runs: Iterable[FormerRun]) -> tuple[list[Table], list[str]]:
    """Returns the tables that this platform would make for the types of the runs, and sentences on types that nobody knows."""
    wanted, problems = {loader.main_table.name: loader.main_table}, []
    schemas = pipeline.source.schemas
    types = sorted({type_ for run in runs for type_ in run.types})
    if schemas is None:
        return [*wanted.values()], problems
    with closing(schemas):
        for type_ in types:
            try:
                tables = schemas.show(type_).tables
            except Refused as error:
                problems.append(f"{type_} was loaded, and its columns are not known: {error}")
                continue
            wanted |= {table.name: table for table in tables}
    return [*wanted.values()], problems


def _landed(pipeline: Pipeline) -> Iterator[str]:
    """Yields the names of all directories of the landing root."""
    beyond: str | None = ""
    while beyond is not None:
        found = pipeline.source.names(pipeline.source.main, beyond, _PART)
        yield from (name.name for name in found.names)
        beyond = found.upto
