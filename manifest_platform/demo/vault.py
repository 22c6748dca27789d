"""The story of a vault: a day of windows, one published late, one that fails, and a snapshot of noon, loaded in full.

The Vault is a fake one of this package, a server of this process. At the end the warehouse's tables are held against the
vault's own history, which knows nothing of archives, Parquet and SQL.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from manifest_platform import config
from manifest_platform.cli import Exit
from manifest_platform.demo.stage import DemoFailed, program, say, type_, ui_command
from manifest_platform.fake_vault import FakeVault, Fault, Simulation, VaultSettings, schema_changes
from manifest_platform.pipeline import Pipeline
from manifest_platform.storage import local_path
from manifest_platform.warehouse.engines.engine import Engine

CONFIGURATION, FOLDER = "manifest_platform_veeva.yaml", ".demo-veeva"
DATASET = "vault"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NOON, END = BEGIN + timedelta(hours=12), BEGIN + timedelta(days=1)
LATE, BROKEN = "incr/stoptime=202601010630", "incr/stoptime=202601011745"
LATE_REF = "incr/2026-01-01T06:30Z"
SNAPSHOT = "full/date=2026-01-01T1200"
URL = "MANIFEST_PLATFORM_VAULT"
"""The variable by which the configuration finds the Vault."""

PRODUCTS = 'SELECT "id", "name__v", "modified_date__v" FROM product__v ORDER BY "modified_date__v" DESC LIMIT 5'
LEDGER = (
    "SELECT feed, epoch, count(*) AS windows, min(regexp_extract(item, '=([^=]*)$', 1)) AS first,"
    " max(regexp_extract(item, '=([^=]*)$', 1)) AS last FROM manifest_platform.ledger GROUP BY ALL ORDER BY epoch, feed"
)


def tell(home: Path) -> None:
    """Tells the story in the demo's directory. Raises DemoFailed where it does not go so."""
    simulation = simulated()
    (home / "landing").mkdir()
    clock, delay = BEGIN + timedelta(minutes=75), timedelta(minutes=15)
    with FakeVault(simulation, clock, VaultSettings(full_hour_utc=NOON.hour, log_stops=[END], full_delay=delay)) as vault:
        os.environ[URL], os.environ["VAULT_PASSWORD"] = vault.url, vault.settings.password
        typer.echo(f"A fake Vault listens on {vault.url}; by its clock it is {vault.now:%Y-%m-%d %H:%M} UTC, of its first day.")
        _begin()
        vault.now = END + delay
        vault.inject(Fault("unpublished", window=LATE_REF))
        _go_through_the_day(vault)
        _load_noon_in_full()
        _compare(simulation)


def simulated() -> Simulation:
    """The vault's history: a day with changes of its schema, and a quarter of an hour in which nothing happens."""
    script = schema_changes(add_field=12, add_object=24, drop_field=36, drop_object=60)
    return Simulation(seed=1, begin=BEGIN, rows=200, changes=(20, 100), quiet={7}, script=script)


def tell_what_next() -> None:
    """What one may look at afterwards."""
    typed = program("manifest-platform")
    typer.echo(f"  {ui_command(CONFIGURATION):<32} the same in Dagster")
    typer.echo(f"  export {config.VARIABLE}={CONFIGURATION}")
    typer.echo(f"  {typed} sql '{PRODUCTS}'")
    typer.echo(f"  {typed} status")
    typer.echo(f"  {typed} full status")


def _begin() -> None:
    say("What it has published is captured: downloaded, verified against its checksums and counts, and registered.")
    type_("manifest-platform capture")
    say("Windows of changes mean nothing without a snapshot that they follow. The platform says so, and loads none.")
    type_("manifest-platform full status", Exit.BLOCKED)
    type_('manifest-platform full begin latest --reason "the first load"')
    type_("manifest-platform drain")


def _go_through_the_day(vault: FakeVault) -> None:
    say(f"A day goes by. The Vault fails to publish {LATE}, and goes on behind it; so does the capture.")
    type_("manifest-platform capture")
    say(f"Somebody opens a file of {BROKEN} with a spreadsheet, and saves it.")
    file, original = _spoil(BROKEN)
    say("Nothing is loaded over the window that is missing: what came later would be undone by it when it comes.")
    type_("manifest-platform drain", Exit.BLOCKED)
    say("Hours later the Vault publishes it after all. The day goes on, as far as the spoilt window.")
    vault.heal()
    type_("manifest-platform capture")
    type_("manifest-platform drain", Exit.BLOCKED)
    say("The file is put back, and the printed command typed.")
    file.write_bytes(original)
    type_(f"manifest-platform resolve {BROKEN} --reason 'the file is put back'")
    type_("manifest-platform drain")


def _load_noon_in_full() -> None:
    say("Somebody is not sure of the tables any more: everything is to be loaded anew from the snapshot of noon.")
    type_(f'manifest-platform full begin {SNAPSHOT} --reason "to be sure"')
    say("That was one write; what came after noon is to be loaded again, in a new epoch, and the logs stay as they are.")
    type_("manifest-platform drain")
    type_("manifest-platform full status")
    type_(f'manifest-platform sql "{LEDGER}"')


def _spoil(name: str) -> tuple[Path, bytes]:
    """Changes a landed file of a window, as a spreadsheet would; returns it with what it held."""
    with Pipeline(config.load(), DATASET) as pipeline:
        landed = pipeline.manifest.item(pipeline.key(name)).landed
    if landed is None:
        raise DemoFailed(f"{name} was to have landed")
    file = max((local_path(landed.place) / "Object").glob("*.csv"), key=lambda one: one.stat().st_size)
    original = file.read_bytes()
    file.write_bytes(original.replace(b"true", b"TRUE").replace(b"\r\n", b"\n"))
    return file, original


def _compare(simulation: Simulation) -> None:
    """Says that the warehouse has what the vault has. Raises DemoFailed where it does not."""
    expected: dict[str, dict[Any, dict[str, Any]]] = dict(simulation.tables(END, snapshots=[BEGIN, NOON]))
    for table, rows in simulation.logs(END, since=BEGIN).items():
        expected[table] = {row["id"]: row for row in rows}
    with closing(config.load().warehouse.open(read_only=True)) as warehouse:
        for table, wanted in expected.items():
            _compare_table(warehouse, table, wanted)
    rows = sum(len(wanted) for wanted in expected.values())
    say(f"Held against the vault's own history, value by value: {len(expected)} tables and {rows:,} rows are equal.")


def _compare_table(warehouse: Engine, table: str, wanted: Mapping[Any, Mapping[str, Any]]) -> None:
    columns = sorted({column for row in wanted.values() for column in row}) or ["*"]
    names = ", ".join(column if column == "*" else warehouse.quote(column) for column in columns)
    found = warehouse.execute(f"SELECT {names} FROM {warehouse.qualified(DATASET, table)}")  # noqa: S608 - our own data's names
    expected = Counter(tuple(_plain(row.get(column)) for column in columns) for row in wanted.values())
    if Counter(tuple(map(_plain, row)) for row in found) != expected:
        raise DemoFailed(f"table {table} of the warehouse is not what the vault has: {len(found)} rows, {len(wanted)} expected")


def _plain(value: Any) -> Any:
    """A value as both sides write it: times in UTC without a zone."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value
