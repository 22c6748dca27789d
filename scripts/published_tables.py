"""Writes the facts that tests compare our tables with: the names and types of columns in tables that Snowplow publishes.

    scripts/published_tables.py IGLU_CENTRAL RDB_LOADER DBT_UNIFIED

All are git repositories. Iglu Central publishes a table for many of its schemas, in `sql/`. RDB Loader 5.6.3 creates the table
of events on Redshift and on Snowflake. Both are under the Apache License 2.0. Only facts are taken: names, types, and the
path of properties that each column comes from. Of Snowplow's package for dbt, only the names of columns, properties and tables
that its queries read are taken.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manifest_platform.sources.snowplow.schemas.columns import HIERARCHY

HOME = Path(__file__).parents[1] / "manifest_platform_tests/sources/snowplow/published_tables.json"
RELEASE = "5.6.3"
_REDSHIFT = "modules/redshift-loader/src/main/scala/com/snowplowanalytics/snowplow/loader/redshift"
EVENTS = {
    "redshift": f"{_REDSHIFT}/RedshiftEventsTable.scala",
    "snowflake": "modules/snowflake-loader/src/main/resources/atomic-def.sql",
}
_HIERARCHY = frozenset(column.name for column in HIERARCHY)
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\S+)\s*\((.*?)\n\s*\)", re.S | re.I)
_COLUMN = re.compile(
    r"""\s*,?\s*(?:"([^"]+)"|([a-z_0-9.]+))\s+
    ((?:character\ varying|double\ precision|timestamp_ntz|[A-Za-z]+)\s*(?:\([\d, ]+\))?)""",
    re.I | re.X,
)
_READ = re.compile(r"((?:contexts|unstruct_event)_[a-z0-9_]+_\d+)(?:\[0\])?:([A-Za-z_]+)")
_FIELD_READ = re.compile(r"\bas [a-z]+__([a-z0-9_]+)")
_TABLE_READ = re.compile(r"^    snowplow__\w+: ((?:com|nl)_\w+_\d+)$", re.M)
_NO_COLUMN = ("FOREIGN", "PRIMARY", "CONSTRAINT")


def main(iglu_central: str, rdb_loader: str, dbt_unified: str) -> None:
    """Reads the repositories, and writes the facts, a table a line."""
    tables = dict(sorted(dict(_tables(iglu_central)).items()))
    events = {engine: _columns(_git(rdb_loader, f"show {RELEASE}:{path}")) for engine, path in EVENTS.items()}
    facts = {
        "source": f"github.com/snowplow/iglu-central, sql/ and schemas/, at {_git(iglu_central, 'rev-parse HEAD').strip()};"
        f" events: github.com/snowplow/snowplow-rdb-loader {RELEASE};"
        f" read: github.com/snowplow/dbt-snowplow-unified at {_git(dbt_unified, 'rev-parse HEAD').strip()}",
        "licence": "Apache-2.0",
        "meaning": "table -> family and its columns: name, type, path of properties."
        " read: what the queries of dbt packages read: column -> family, properties, and columns of its table on Redshift and"
        " PostgreSQL; tables: names",
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
    for name, found in (("events", events), ("tables", tables), ("read", _read(iglu_central, dbt_unified))):
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
        lines.append(f"{json.dumps(name)}: {{\n{rows}\n}}")
    HOME.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _tables(repository: str) -> Iterator[tuple[str, dict[str, Any]]]:
    families = _families(repository)
    for path in _git(repository, "ls-tree -r --name-only HEAD sql").split():
        vendor, _, file = path.removeprefix("sql/").rpartition("/")
        for name, body in [] if file.startswith("migrate") else _TABLE.findall(_git(repository, f"show HEAD:{path}")):
            versions = families.get(_alike(name.removeprefix("atomic."))) or families[_alike(f"{vendor}_{file[:-4]}")]
            paths = _paths(repository, versions)
            columns = [
                (column, type_) for column, type_ in _columns(f"CREATE TABLE x (\n{body}\n)") if column not in _HIERARCHY
            ]
            entry = [[column, type_, *paths.get(_alike(column), [])] for column, type_ in columns]
            yield name.removeprefix("atomic."), {"family": _family(versions[0]), "columns": entry}


def _read(iglu_central: str, dbt_unified: str) -> dict[str, Any]:
    """Returns the columns with the properties that queries on Snowflake read of them, and the tables that others read."""
    families = _families(iglu_central)
    text = _git(dbt_unified, "grep -hE (contexts|unstruct_event)_ HEAD -- macros models")
    found: dict[str, Any] = {}
    for column, name in sorted(set(_READ.findall(text))):
        versions = families[_alike(re.sub("^(contexts|unstruct_event)_", "", column))]
        properties = {path[0][0] for path in _paths(iglu_central, versions).values()}
        entry = found.setdefault(column, {"family": _family(versions[0]), "properties": []})
        if name in properties:  # the package also names the properties in snake case, for tables of the lake's loader
            entry["properties"].append(name)
    for path in _git(dbt_unified, "ls-tree -r --name-only HEAD macros/field_extractions").split():
        said = _git(dbt_unified, f"show HEAD:{path}")
        for column in sorted({column for column, _ in _READ.findall(said)} & {*found}):
            found[column]["fields"] = sorted(set(_FIELD_READ.findall(said)))
    return {**found, "tables": sorted(set(_TABLE_READ.findall(_git(dbt_unified, "show HEAD:dbt_project.yml"))))}


def _families(repository: str) -> dict[str, list[str]]:
    """Returns the paths of the versions of each model, by the letters and digits of its table's name."""
    families: dict[str, list[str]] = {}
    for path in _git(repository, "ls-tree -r --name-only HEAD schemas").split():
        vendor, schema, _, version = path.removeprefix("schemas/").split("/")
        families.setdefault(_alike(f"{vendor}_{schema}_{version.partition('-')[0]}"), []).append(path)
    return families


def _family(path: str) -> str:
    folder, _, version = path.removeprefix("schemas/").rpartition("/")
    return f"iglu:{folder}/{version.partition('-')[0]}"


def _alike(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _columns(text: str) -> list[list[str]]:
    found = []
    for _, body in _TABLE.findall(text.replace("|", "")):
        for line in body.splitlines():
            column = _COLUMN.match(line)
            if column and (column[1] or column[2]).upper() not in _NO_COLUMN:
                found.append([column[1] or column[2], re.sub(r"\s+", "", column[3]).upper().replace("DOUBLEP", "DOUBLE P")])
    return found


def _paths(repository: str, versions: list[str]) -> dict[str, list[list[str]]]:
    """Returns the paths of the properties of a model, by their letters and digits: our rule of names is compared with them."""
    found: dict[str, list[list[str]]] = {}

    def add(schema: Any, path: list[str]) -> None:
        for name, value in (schema.get("properties") or {}).items():
            here = [*path, name]
            found[_alike("".join(here))] = [here]
            if isinstance(value, dict):
                add(value, here)

    for path in versions:
        add(json.loads(_git(repository, f"show HEAD:{path}")), [])
    return found


def _git(repository: str, command: str) -> str:
    return subprocess.run(["git", "-C", repository, *command.split()], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
