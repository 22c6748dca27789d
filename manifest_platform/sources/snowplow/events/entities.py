"""The function from the JSON cells of enriched lines to the typed columns of entity tables.

Each cell is parsed once. Entities are grouped by model, and each column of a model is typed in one call. Only a column with a
value that does not fit is checked value by value.

A value fits by the rules of `values`. Null fits every column, and so does a missing property: a null column means the same.
Texts are whole, however long. Properties that no version of the schema names are left out, or go to a column of JSON.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute

from manifest_platform.column_types import arrow_type
from manifest_platform.shred.batch import SchemaError, TwoFamilies
from manifest_platform.shred.rows import LONGEST_QUOTE, Reason, check_years
from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.events.atomic import Lines
from manifest_platform.sources.snowplow.events.hiding import WITHHELD, AsTheyCame
from manifest_platform.sources.snowplow.events.validation import Breach, EntitySchema, entity_schema
from manifest_platform.sources.snowplow.events.values import fit, has_nul, json_text, remainder
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.columns import HIERARCHY, EntityColumn, EntityTable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key
from manifest_platform.sources.snowplow.schemas.registry import RegistryRefused, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.resolver import Resolver, UnknownSchema
from manifest_platform.sources.snowplow.settings import EVENTS_TABLE

pc: Any = pyarrow.compute  # its functions are created at run time, unknown to type checkers

_CELLS = tuple(FIELDS[POSITION[name]] for name in ("unstruct_event", "derived_contexts", "contexts"))
_WRAPPERS = {
    "contexts": re.compile(r"iglu:com\.snowplowanalytics\.snowplow/contexts/jsonschema/1-[0-9]+-[0-9]+"),
    "self-describing": re.compile(r"iglu:com\.snowplowanalytics\.snowplow/unstruct_event/jsonschema/1-[0-9]+-[0-9]+"),
}
_SHOULD_BE = {
    "contexts": "iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-*-* with an array",
    "self-describing": "iglu:com.snowplowanalytics.snowplow/unstruct_event/jsonschema/1-*-* with one entity",
}
_ESCAPE_OF_NUL = re.compile(rb"\\u0000")

_SKIPPED: Reason = {}
"""The verdict on a schema whose entities become no rows."""
_NULL = type(None)
_PYTHON_TYPES: dict[str, frozenset[type]] = {
    "boolean": frozenset((bool, _NULL)),
    "integer": frozenset((int, _NULL)),
    "bigint": frozenset((int, _NULL)),
    "double": frozenset((float, _NULL)),
    "decimal": frozenset((int, float, Decimal, _NULL)),
}
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMES = {"timestamp": rf"^{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?Z?$", "date": f"^{_DAY}$"}
"""The usual way to write a time, which is converted for a whole column at once."""
_TEXTS = frozenset({"string", *_TIMES})
"""The types whose arrays take nothing but texts: of values of another type, Arrow itself makes none."""
_OBJECTS = frozenset((dict, _NULL))
_ARRAYS = frozenset((list, _NULL))

_Doubt = tuple[int, EntitySchema, int]
"""An entity that may break its schema: its place in the bucket, the schema, and its place in its cell."""


@dataclass
class _Bucket:
    """The entities of one model: the row, the version, the data and the cell of each."""

    key: SchemaKey
    table: EntityTable
    rows: list[int] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    data: list[Any] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    doubtful: list[_Doubt] = field(default_factory=list)

    def add(self, row: int, version: str, data: Any, cell: str) -> None:
        """Adds an entity of a row, from a cell."""
        self.rows.append(row)
        self.versions.append(version)
        self.data.append(data)
        self.cells.append(cell)

    def schema(self, version: str) -> str:
        """Returns the schema of a version of the model."""
        return f"{self.key.family}{version.removeprefix(str(self.key.model))}"

    def sort(self) -> None:
        """Sorts the entities by their rows."""
        order = sorted(range(len(self.rows)), key=self.rows.__getitem__)
        places = {old: new for new, old in enumerate(order)}
        found = ((places[place], schema, in_cell) for place, schema, in_cell in self.doubtful)
        self.doubtful = sorted(found, key=operator.itemgetter(0))
        self.rows = [self.rows[place] for place in order]
        self.versions = [self.versions[place] for place in order]
        self.data = [self.data[place] for place in order]
        self.cells = [self.cells[place] for place in order]


_Unnamed = tuple[int, tuple[str, ...], Any]
"""A value that does not fit, of a property that the version of its entity does not name: its place, its path, and itself."""
_Known = tuple[_Bucket, str, EntitySchema | None]
"""The bucket of a schema, its version, and the check of its entities."""


class Budget:
    """The number of missing schemas that a task may ask the registries for.

    Anybody can send lines, and a line may name thousands of invented schemas. A line that names a missing schema is bad in any
    case. So a schema that is not asked for makes rows bad, but loses no data: an operator raises the limit and shreds again.

    Even beyond the limit, the schemas that most lines name are asked for, a few with each chunk. So a sender of invented names
    does not keep other lines from being read. The budget counts what this task met, not what the process knows, so that the
    same bytes always become the same rows.
    """

    RESERVED = 10
    """Schemas asked for with each chunk after the budget is spent."""

    def __init__(self, most: int):
        self.most = most
        self._found: set[str] = set()
        self._missed: set[str] = set()

    def allows(self, schema: str) -> bool:
        """True if a schema may be asked for: the budget is not spent, or the task has asked for it before."""
        return len(self._missed) < self.most or schema in self._found or schema in self._missed

    def has_found(self, schema: str) -> bool:
        """True if the task has asked for a schema and found it."""
        return schema in self._found

    def note(self, schema: str, found: bool) -> None:
        """Counts a schema that was asked for."""
        (self._found if found else self._missed).add(schema)


@dataclass(frozen=True)
class Entities:
    """The entities of one model: its definition, its table, and the row number of the event of each entity.

    `data`, `cells`: the data of each as it was parsed, and the name of the cell that it is from.
    """

    definition: EntityTable
    table: pa.Table
    rows: np.ndarray
    data: list[Any]
    cells: list[str]


def entity_tables(
    lines: Lines, events: pa.Table, resolver: Resolver, budget: Budget, rules: Rules, came: AsTheyCame | None = None
) -> Iterator[Entities]:
    """Yields the typed table of each model that occurs. Rows are in the order of events, and within an event as in its cells.

    A fault of a cell or an entity becomes a reason of its line; the entity's row must not be used. `came`: the entities before
    private values were hidden, if any were. Raises RegistryUnavailable, RegistryRefused.
    """
    nul = _ESCAPE_OF_NUL.search(lines.data) is not None  # half the time of `in`
    for bucket in _gather(lines, resolver, budget, rules):
        _report_breaches(bucket, lines, came)
        columns = _hierarchy(bucket, events) + _Columns(bucket, lines, nul, rules.validate != "off").typed()
        names = [column.name for column in bucket.table.table.columns]
        table = pa.Table.from_arrays(columns, names=names)
        yield Entities(bucket.table, table, np.array(bucket.rows, np.int64), bucket.data, bucket.cells)


def _gather(lines: Lines, resolver: Resolver, budget: Budget, rules: Rules) -> list[_Bucket]:
    buckets: dict[str, _Bucket] = {}
    by_schema: dict[str, _Known | Reason] = {}
    doubts: dict[str, list[tuple[int, str]]] = {}  # schemas that a registry refused, and the entities that name them
    waiting: dict[str, list[tuple[int, str, Any, int]]] = {}  # schemas beyond the budget, and their entities
    wrappers: dict[str, set[str]] = {"contexts": set(), "self-describing": set()}
    long = numbers.any_may_be_long(lines.data)
    hides = rules.private is not None and bool(rules.private.entities)
    cells = [(cell.name, cell.type, wrappers[cell.type], lines.cells(POSITION[cell.name])) for cell in _CELLS]
    for row in range(len(lines.line)):
        for name, type_, known_wrappers, values in cells:
            text = values[row]
            if text is None:
                continue
            try:
                wrapper = numbers.loads(text) if long else orjson.loads(text)
            except orjson.JSONDecodeError as error:
                lines.add(row, _of_field("field", name, text, f"is no JSON: {error}"))
                continue
            schema = wrapper.get("schema") if type(wrapper) is dict else None
            if type(schema) is not str or schema not in known_wrappers:
                if type(schema) is not str or not _WRAPPERS[type_].fullmatch(schema):
                    message = f"its schema is {_quote(schema)}; expected {_SHOULD_BE[type_]}"
                    lines.add(row, _of_field("wrapper_schema", name, WITHHELD.encode() if hides else text, message))
                    continue
                known_wrappers.add(schema)
            inside = wrapper.get("data")
            if type_ == "self-describing":
                inside = [inside]
            elif type(inside) is not list:
                message = f"holds no array; expected {_SHOULD_BE[type_]}"
                lines.add(row, _of_field("wrapper_schema", name, WITHHELD.encode() if hides else text, message))
                continue
            for in_cell, entity in enumerate(inside):
                try:
                    schema, data = entity["schema"], entity["data"]
                    found = by_schema.get(schema)
                except (TypeError, KeyError):
                    lines.add(row, _of_entity(name, entity, "is no entity: an object with schema and data"))
                    if lines.is_done(row):
                        break
                    continue
                if found is None and schema not in doubts:
                    costs = type(schema) is str and is_key(schema)
                    if costs and not budget.allows(schema):
                        waiting.setdefault(schema, []).append((row, name, data, in_cell))
                        continue
                    try:
                        found = by_schema[schema] = _find(schema, resolver, buckets, rules)
                    except RegistryRefused:
                        doubts[schema] = []
                    if costs:
                        budget.note(schema, isinstance(found, tuple) or found is _SKIPPED)
                if isinstance(found, tuple):
                    bucket, version, check = found
                    if check is not None:  # at once, as long as the data is in the processor's cache
                        try:
                            valid = check.is_surely_valid(data)
                        except ValueError:
                            valid = False
                        if not valid:
                            bucket.doubtful.append((len(bucket.rows), check, in_cell))
                    bucket.rows.append(row)
                    bucket.versions.append(version)
                    bucket.data.append(data)
                    bucket.cells.append(name)
                elif found is None:
                    doubts[schema].append((row, name))
                elif found is _SKIPPED:
                    continue
                else:
                    lines.add(row, {**found, "field": name})
                    if lines.is_done(row):
                        break
    if waiting:
        _ask_for_the_most_named(waiting, doubts, lines, resolver, budget, buckets, rules)
    for schema, places in doubts.items():
        _end_doubt(schema, places, lines, resolver)
    return list(buckets.values())


def _ask_for_the_most_named(
    waiting: dict[str, list[tuple[int, str, Any, int]]],
    doubts: dict[str, list[tuple[int, str]]],
    lines: Lines,
    resolver: Resolver,
    budget: Budget,
    buckets: dict[str, _Bucket],
    rules: Rules,
) -> None:
    """Looks up the schemas beyond the budget that most lines name; gives every entity of the others a reason."""
    left = budget.RESERVED
    named = {schema: len({row for row, *_ in entities}) for schema, entities in waiting.items()}
    for schema in sorted(waiting, key=named.__getitem__, reverse=True):
        found: _Known | Reason = {
            "type": "unknown_schema",
            "schema": schema[:LONGEST_QUOTE],
            "message": f"was not looked up: more than {budget.most} other schemas that no registry has came before it;"
            " if the lines can be trusted, publish the schemas, or raise shred.registry_limits.unknown_keys",
        }
        if left:
            try:
                found = _find(schema, resolver, buckets, rules)
            except RegistryRefused:
                doubts[schema] = [(row, name) for row, name, *_ in waiting[schema]]
            if found is _SKIPPED:
                continue
            if not isinstance(found, tuple):
                left -= 1
            else:
                budget.note(schema, found=True)
            if schema in doubts:
                continue
        for row, name, data, in_cell in waiting[schema]:
            if isinstance(found, tuple):
                bucket, version, check = found
                if check is not None:
                    bucket.doubtful.append((len(bucket.rows), check, in_cell))
                bucket.add(row, version, data, name)
            else:
                lines.add(row, {**found, "field": name})
    for bucket in buckets.values():
        bucket.sort()


def _end_doubt(schema: str, places: list[tuple[int, str]], lines: Lines, resolver: Resolver) -> None:
    """Asks again for a schema that a registry refused.

    If the registry has given another schema in the meantime, its refusal means that it lacks this schema. Raises
    RegistryRefused if it still refuses.
    """
    found = _find(schema, resolver, {}, Rules(validate="off"))
    if isinstance(found, tuple):
        raise RegistryUnavailable(f"a registry first refused {schema} and then returned it; retry")
    for row, name in places:
        lines.add(row, {**found, "field": name})


def _find(schema: Any, resolver: Resolver, buckets: dict[str, _Bucket], rules: Rules) -> _Known | Reason:
    try:
        key = SchemaKey.parse(schema)
        if resolver.skips(key):
            return _SKIPPED
        table = resolver.table(key)
        check = entity_schema(resolver.exact(key), str(key)) if rules.validate == "full" else None
    except UnknownSchema as error:
        return {"type": "unknown_schema", "schema": schema, "message": str(error)}
    except SchemaError as error:
        return {"type": "entity", "schema": schema, "message": str(error)}
    except (ValueError, TypeError):
        text = str(schema)[:LONGEST_QUOTE]
        return {"type": "unknown_schema", "schema": text, "message": "is no schema key iglu:vendor/name/jsonschema/1-0-0"}
    bucket = buckets.get(table.table.name)
    if bucket is None:
        bucket = buckets[table.table.name] = _Bucket(key, table)
    if bucket.key.family != key.family:
        raise TwoFamilies(table.table.name, bucket.key.family, key.family)
    bucket.table = table  # a version that the registry's list lacks may have added columns
    return bucket, key.version, check


def _hierarchy(bucket: _Bucket, events: pa.Table) -> list[pa.Array]:
    count = len(bucket.rows)
    rows = pa.array(bucket.rows, pa.int64())
    key = bucket.key
    values: dict[str, pa.Array] = {
        "schema_version": pa.array(bucket.versions, pa.string()),
        "root_id": events["event_id"].combine_chunks().take(rows),
        "root_tstamp": events["collector_tstamp"].combine_chunks().take(rows),
    }
    constants = {
        "schema_vendor": key.vendor,
        "schema_name": key.name,
        "schema_format": key.format,
        "ref_root": EVENTS_TABLE,
        "ref_tree": f'["{EVENTS_TABLE}","{key.name}"]',
        "ref_parent": EVENTS_TABLE,
    }
    return [
        values[column.name] if column.name in values else pa.repeat(pa.scalar(constants[column.name]), count)
        for column in HIERARCHY
    ]


def _report_breaches(bucket: _Bucket, lines: Lines, came: AsTheyCame | None) -> None:
    """Gives the lines of entities that break their schemas a reason for each breach. Those entities lose their data here."""
    for place, schema, in_cell in bucket.doubtful:
        breaches = list(schema.breaches(bucket.data[place]))
        if breaches and came:
            named, line = bucket.schema(bucket.versions[place]), int(lines.line[bucket.rows[place]])
            if came.is_valid(line, bucket.cells[place], in_cell, named):
                continue
        for breach in breaches:
            lines.add(bucket.rows[place], _of_breach(bucket.schema(bucket.versions[place]), breach))
        if breaches:
            bucket.data[place] = {}


def _of_breach(key: str, breach: Breach) -> Reason:
    found = {"path": ".".join(breach.path)[:LONGEST_QUOTE], "keyword": breach.keyword, "value": _quote(breach.value)}
    return {"type": "entity", "schema": key, **found, "message": breach.message}


class _Columns:
    """The values of a model's entities by column, and the reasons why some do not fit.

    No function here refers to itself by its closure: such a circle would keep all that was parsed until the garbage collector
    finds it.
    """

    def __init__(self, bucket: _Bucket, lines: Lines, nul: bool, notes: bool):
        """`nul`: True if a text may have a NUL. `notes`: False to say nothing of values that do not fit."""
        self._bucket, self._lines, self._nul, self._notes = bucket, lines, nul, notes
        self._unnamed: list[_Unnamed] = []
        entities = [{"data": data} for data in bucket.data] if bucket.table.whole else bucket.data
        self._objects: dict[tuple[str, ...], list[dict[str, Any]]] = {(): self._only_objects(entities, ())}

    def typed(self) -> list[pa.Array]:
        """Returns the array of each column. A value that does not fit is null there."""
        columns = self._bucket.table.columns
        arrays = [self._array(column) if column.path else None for column in columns]
        return [self._others() if array is None else array for array in arrays]

    def _array(self, column: EntityColumn) -> pa.Array:
        values = _values(self._objects_at(column.path[:-1]), column.path[-1])
        type_ = column.column.type
        if column.array and not set(map(type, values)) <= _ARRAYS:
            for place, value in enumerate(values):
                if type(value) not in _ARRAYS:
                    self._misfit(place, column, value, "is no array")
                    values[place] = None
        array = all_fit(values, type_, self._nul)
        if array is not None:
            return array
        for place, value in enumerate(values):
            try:
                values[place] = fit(value, type_, column.mixed)
            except (ValueError, OverflowError):
                self._misfit(place, column, value, f"does not fit {type_}")
                values[place] = None
        return pa.array(values, arrow_type(type_))

    def _objects_at(self, path: tuple[str, ...]) -> list[dict[str, Any]]:
        if path not in self._objects:
            self._objects[path] = self._only_objects(_values(self._objects_at(path[:-1]), path[-1]), path)
        return self._objects[path]

    def _only_objects(self, values: list[Any], path: tuple[str, ...]) -> list[dict[str, Any]]:
        """Returns the values at a path, an empty object in place of anything else."""
        if set(map(type, values)) == {dict}:
            return values
        for place, value in enumerate(values):
            if type(value) not in _OBJECTS or (value is None and not path):
                if path and self._bucket.versions[place] not in self._bucket.table.naming(path):
                    self._unnamed.append((place, path, value))
                else:
                    self._note(place, path, value, "is no object")
        return [value if type(value) is dict else {} for value in values]

    def _others(self) -> pa.Array:
        """Returns the properties that no column holds, as JSON objects with them at their places; null without any."""
        names = self._bucket.table.names
        found = [remainder(data, names) if type(data) is dict else {} for data in self._bucket.data]
        for place, path, value in self._unnamed:
            inside = found[place]
            for name in path[:-1]:
                inside = inside.setdefault(name, {})
            inside[path[-1]] = value
        texts: list[str | None] = []
        for place, properties in enumerate(found):
            try:
                texts.append(json_text(properties) if properties else None)
            except ValueError:
                self._note(place, (), properties, "has other properties that do not fit json")
                texts.append(None)
        return pa.array(texts, pa.string())

    def _misfit(self, place: int, column: EntityColumn, value: Any, message: str) -> None:
        """Notes a value that does not fit its column, if the version of its entity names the property."""
        if self._bucket.versions[place] in column.versions:
            self._note(place, column.path, value, message)
        else:
            self._unnamed.append((place, column.path, value))

    def _note(self, place: int, path: tuple[str, ...], value: Any, message: str) -> None:
        if not self._notes:
            return
        bucket = self._bucket
        found = {"path": ".".join(path), "value": _quote(value), "message": message}
        self._lines.add(bucket.rows[place], {"type": "entity", "schema": bucket.schema(bucket.versions[place]), **found})


def _values(objects: list[dict[str, Any]], name: str) -> list[Any]:
    try:
        return list(map(operator.itemgetter(name), objects))  # twice as fast if every object has the property
    except KeyError:
        return [each.get(name) for each in objects]


def all_fit(values: list[Any], type_: str, nul: bool) -> pa.Array | None:
    """Returns the values as an array if all fit, or None if each needs a closer look. An array is as `fit` makes it.

    `nul`: True if one of the texts may have a NUL.
    """
    if type_ == "json":
        return _all_json(values, nul)
    kind = type_.partition("(")[0]
    if kind not in _TEXTS and not set(map(type, values)) <= _PYTHON_TYPES[kind]:
        return None
    try:
        if type_ in _TIMES:
            return _all_times(pa.array(values, pa.string()), type_)
        if type_.startswith("decimal"):
            return pa.array([fit(value, type_) for value in values], arrow_type(type_))
        array = pa.array(values, arrow_type(type_))
    except (ValueError, OverflowError, TypeError):
        return None
    if nul and type_.startswith("string") and pc.any(pc.match_substring(array, "\0")).as_py():
        return None
    return array


def _all_times(texts: pa.Array, type_: str) -> pa.Array | None:
    """Returns times or dates in UTC; None if any is written in another way. Raises pa.ArrowInvalid if a day does not exist."""
    if pc.all(pc.match_substring_regex(texts, _TIMES[type_])).as_py() is False:
        return None
    return check_years(pc.ascii_rtrim(texts, "Z").cast(arrow_type(type_)))


def _all_json(values: list[Any], nul: bool) -> pa.Array | None:
    try:
        texts = [None if value is None else numbers.dumps(value) for value in values]
    except TypeError:
        return None
    if nul and any(text and has_nul(text) for text in texts):
        return None
    return pa.array(texts, pa.string())


def _of_field(type_: str, name: str, text: bytes, message: str) -> Reason:
    return {"type": type_, "field": name, "value": text.decode()[:LONGEST_QUOTE], "message": message}


def _of_entity(name: str, entity: Any, message: str) -> Reason:
    return {"type": "entity", "field": name, "value": _quote(entity), "message": message}


def _quote(value: Any) -> str:
    try:
        text = numbers.dumps(value).decode()
    except TypeError:
        text = _quote_slowly(value)
    return text[:LONGEST_QUOTE]


def _quote_slowly(value: Any) -> str:
    """Quotes a value that may have whole numbers beyond 64 bits."""
    try:
        return numbers.dumps(_printable(value)).decode()
    except (TypeError, RecursionError):
        return "nested too deeply"


def _printable(value: Any) -> Any:
    if type(value) is dict:
        return {name: _printable(inner) for name, inner in value.items()}
    if type(value) is list:
        return [_printable(inner) for inner in value]
    return Decimal(value) if type(value) is int else value
