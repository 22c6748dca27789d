"""The story of a vault: a day of windows, one published late, one that fails, and a snapshot of noon, loaded in full.

The Vault is a fake one of this package, a server of this process. At the end the warehouse's tables are held against the
vault's own history, which knows nothing of archives, Parquet and SQL.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Self

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
DAYS_AGO = 2
"""How long ago the story's day is, where none is told: Dagster's pages show it, and the fake Vault's next day is over too."""
LATE, BROKEN = timedelta(hours=6, minutes=30), timedelta(hours=17, minutes=45)
"""When the windows of changes end that come late and that fail, from midnight."""
URL = "MANIFEST_PLATFORM_VAULT"
"""The variable by which the configuration finds the Vault."""

PRODUCTS = 'SELECT "id", "name__v", "modified_date__v" FROM product__v ORDER BY "modified_date__v" DESC LIMIT 5'
LEDGER = (
    "SELECT feed, epoch, count(*) AS windows, min(regexp_extract(item, '=([^=]*)$', 1)) AS first,"
    " max(regexp_extract(item, '=([^=]*)$', 1)) AS last FROM manifest_platform.ledger GROUP BY ALL ORDER BY epoch, feed"
)


@dataclass(frozen=True)
class Day:
    """The day of the story: a vault's first, from midnight UTC."""

    begin: datetime

    @classmethod
    def of(cls, day: date) -> Self:
        """The story's times on a day."""
        return cls(datetime.combine(day, time(0, tzinfo=UTC)))

    @property
    def noon(self) -> datetime:
        """When the snapshot is made that is loaded at the end."""
        return self.begin + timedelta(hours=12)

    @property
    def end(self) -> datetime:
        """The midnight after it."""
        return self.begin + timedelta(days=1)

    @property
    def snapshot(self) -> str:
        """The snapshot of noon."""
        return f"full/date={self.noon:%Y-%m-%dT%H%M}"

    @property
    def late_file(self) -> str:
        """The file of changes that is published late, as the Vault calls it."""
        return f"incr/{self.begin + LATE:%Y-%m-%dT%H:%MZ}"

    def window(self, end: timedelta) -> str:
        """The window of changes that ends at a time."""
        return f"incr/stoptime={self.begin + end:%Y%m%d%H%M}"

    def simulated(self) -> Simulation:
        """The vault's history: a day with changes of its schema, and a quarter of an hour in which nothing happens."""
        script = schema_changes(add_field=12, add_object=24, drop_field=36, drop_object=60)
        return Simulation(seed=1, begin=self.begin, rows=200, changes=(20, 100), quiet={7}, script=script)


def day_before(now: datetime) -> date:
    """The day of a story that is told now."""
    return now.date() - timedelta(days=DAYS_AGO)


def tell(home: Path, day: date) -> None:
    """Tells the story of a day in the demo's directory. Raises DemoFailed where it does not go so."""
    times = Day.of(day)
    simulation = times.simulated()
    (home / "landing").mkdir()
    clock, delay = times.begin + timedelta(minutes=75), timedelta(minutes=15)
    settings = VaultSettings(full_hour_utc=times.noon.hour, log_stops=[times.end], full_delay=delay)
    with FakeVault(simulation, clock, settings) as vault:
        os.environ[URL], os.environ["VAULT_PASSWORD"] = vault.url, vault.settings.password
        typer.echo(f"A fake Vault listens on {vault.url}; by its clock it is {vault.now:%Y-%m-%d %H:%M} UTC, of its first day.")
        _begin()
        vault.now = times.end + delay
        vault.inject(Fault("unpublished", window=times.late_file))
        _go_through_the_day(vault, times)
        _load_noon_in_full(times)
        _compare(times)


def tell_what_next(_home: Path, _day: date) -> None:
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


def _go_through_the_day(vault: FakeVault, times: Day) -> None:
    late, broken = times.window(LATE), times.window(BROKEN)
    say(f"A day goes by. The Vault fails to publish {late}, and goes on behind it; so does the capture.")
    type_("manifest-platform capture")
    say(f"Somebody opens a file of {broken} with a spreadsheet, and saves it.")
    file, original = _spoil(broken)
    say("Nothing is loaded over the window that is missing: what came later would be undone by it when it comes.")
    type_("manifest-platform drain", Exit.BLOCKED)
    say("Hours later the Vault publishes it after all. The day goes on, as far as the spoilt window.")
    vault.heal()
    type_("manifest-platform capture")
    type_("manifest-platform drain", Exit.BLOCKED)
    say("The file is put back, and the printed command typed.")
    file.write_bytes(original)
    type_(f"manifest-platform resolve {broken} --reason 'the file is put back'")
    type_("manifest-platform drain")


def _load_noon_in_full(times: Day) -> None:
    say("Somebody is not sure of the tables any more: everything is to be loaded anew from the snapshot of noon.")
    type_(f'manifest-platform full begin {times.snapshot} --reason "to be sure"')
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


def _compare(times: Day) -> None:
    """Says that the warehouse has what the vault has. Raises DemoFailed where it does not."""
    simulation = times.simulated()
    expected: dict[str, dict[Any, dict[str, Any]]] = dict(simulation.tables(times.end, snapshots=[times.begin, times.noon]))
    for table, rows in simulation.logs(times.end, since=times.begin).items():
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
