"""The story of a vault: a day of windows, of which one is published late and one fails, and a full load of a snapshot.

The Vault is the package's own fake Vault, a server in this process. At the end, the story compares the warehouse's tables with
the vault's own history, which is computed without archives, Parquet and SQL.
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
from manifest_platform.demo.stage import DemoFailed, ledger, program, say, sql, target_options, type_, ui_command
from manifest_platform.fake_vault import FakeVault, Fault, Simulation, VaultSettings, schema_changes
from manifest_platform.pipeline import Pipeline
from manifest_platform.storage import local_path
from manifest_platform.warehouse.engines.engine import Engine

CONFIGURATION, FOLDER = "manifest_platform_veeva.yaml", ".demo-veeva"
DATASET = "vault"
DAYS_AGO = 2
"""The age of the story's day, in days. Dagster still shows that day, and the day after it is over too."""
LATE, BROKEN = timedelta(hours=6, minutes=30), timedelta(hours=17, minutes=45)
"""The stop times, from midnight, of the window that is late and of the window that fails."""
URL = "MANIFEST_PLATFORM_VAULT"
"""The environment variable with the Vault's address, which the configuration uses."""

PRODUCTS = 'SELECT "id", "name__v", "modified_date__v" FROM product__v ORDER BY "modified_date__v" DESC LIMIT 5'
LEDGER = (
    "SELECT feed, epoch, count(*) AS windows, min(right(item, strpos(reverse(item), '=') - 1)) AS first,"
    " max(right(item, strpos(reverse(item), '=') - 1)) AS last FROM {}"
    " GROUP BY feed, epoch ORDER BY epoch, feed"
)
"""Lacks the ledger's name."""


@dataclass(frozen=True)
class Day:
    """The day of the story: the vault's first day, from midnight UTC."""

    begin: datetime

    @classmethod
    def of(cls, day: date) -> Self:
        """Returns the day that begins at midnight UTC of a date."""
        return cls(datetime.combine(day, time(0, tzinfo=UTC)))

    @property
    def noon(self) -> datetime:
        """The time of the snapshot that is loaded in full at the end of the story."""
        return self.begin + timedelta(hours=12)

    @property
    def end(self) -> datetime:
        """The midnight at the end of the day."""
        return self.begin + timedelta(days=1)

    @property
    def snapshot(self) -> str:
        """The name of the snapshot of noon."""
        return f"full/date={self.noon:%Y-%m-%dT%H%M}"

    @property
    def late_file(self) -> str:
        """The Vault's name of the file of changes that is published late."""
        return f"incr/{self.begin + LATE:%Y-%m-%dT%H:%MZ}"

    def window(self, end: timedelta) -> str:
        """Returns the name of the window of changes that ends at a time of the day."""
        return f"incr/stoptime={self.begin + end:%Y%m%d%H%M}"

    def simulated(self) -> Simulation:
        """Returns the vault's history: a day with schema changes, and one quarter of an hour without any change."""
        script = schema_changes(add_field=12, add_object=24, drop_field=36, drop_object=60)
        return Simulation(seed=1, begin=self.begin, rows=200, changes=(20, 100), quiet={7}, script=script)


def day_before(now: datetime) -> date:
    """Returns the default day of the story."""
    return now.date() - timedelta(days=DAYS_AGO)


def tell(home: Path, day: date) -> None:
    """Runs the story in the demo's directory, with data of `day`. Raises DemoFailed if a command ends in an unexpected way."""
    times = Day.of(day)
    simulation = times.simulated()
    (home / "landing").mkdir()
    clock, delay = times.begin + timedelta(minutes=75), timedelta(minutes=15)
    settings = VaultSettings(full_hour_utc=times.noon.hour, log_stops=[times.end], full_delay=delay)
    with FakeVault(simulation, clock, settings) as vault:
        os.environ[URL], os.environ["VAULT_PASSWORD"] = vault.url, vault.settings.password
        typer.echo(f"A fake Vault listens on {vault.url}. Its clock shows {vault.now:%Y-%m-%d %H:%M} UTC, on its first day.")
        _begin()
        vault.now = times.end + delay
        vault.inject(Fault("unpublished", window=times.late_file))
        _go_through_the_day(vault, times)
        _load_noon_in_full(times)
        _compare(times)


def tell_what_next(_home: Path, _day: date, warehouse: str | None = None) -> None:
    """Prints commands to try next. `warehouse`: that of the story, if it is another than the usual one."""
    typed = program("manifest-platform")
    typer.echo(f"  {ui_command(CONFIGURATION, warehouse):<31}  shows the same in Dagster")
    if not warehouse:
        typer.echo(f"  export {config.VARIABLE}={CONFIGURATION}")
    typer.echo(f"  {sql(PRODUCTS).replace('manifest-platform', typed, 1)}")
    typer.echo(f"  {typed} status")
    typer.echo(f"  {typed} full status")


def _begin() -> None:
    say("1. Capture. It downloads the published files, verifies their checksums and counts, and registers them.")
    type_("manifest-platform capture")
    say("2. The first load. Changes can only be loaded after a snapshot, so the platform asks for a full load first.")
    type_("manifest-platform full status", Exit.BLOCKED)
    for target in target_options():
        type_(f'manifest-platform full begin latest{target} --reason "the first load"')
    type_("manifest-platform drain")


def _go_through_the_day(vault: FakeVault, times: Day) -> None:
    late, broken = times.window(LATE), times.window(BROKEN)
    say(f"3. A gap. A day passes. The Vault fails to publish {late}, but publishes all later windows, which are captured.")
    type_("manifest-platform capture")
    say(f"Meanwhile, a person opens a file of {broken} with a spreadsheet program, and saves it.")
    file, original = _spoil(broken)
    say(
        "The drain stops at the missing window. If it loaded later windows first, the missing window would overwrite newer rows"
        " when it arrives."
    )
    type_("manifest-platform drain", Exit.BLOCKED)
    say("4. A damaged file. The Vault publishes the missing window. The drain continues, up to the damaged window.")
    vault.heal()
    type_("manifest-platform capture")
    type_("manifest-platform drain", Exit.BLOCKED)
    say("5. Recovery. The operator restores the file, runs the printed command, and drains again.")
    file.write_bytes(original)
    type_(f"manifest-platform resolve {broken} --reason 'the file is restored'")
    type_("manifest-platform drain")


def _load_noon_in_full(times: Day) -> None:
    say("6. A full load. The operator doubts the tables, and loads everything again, from the snapshot of noon.")
    for target in target_options():
        type_(f'manifest-platform full begin {times.snapshot}{target} --reason "to be sure"')
    say("The drain loads the snapshot as a new epoch, then all changes after noon again. Logs are not affected.")
    type_("manifest-platform drain")
    type_("manifest-platform full status")
    type_(sql(LEDGER.format(ledger(DATASET))))


def _spoil(name: str) -> tuple[Path, bytes]:
    """Changes a landed file of a window as a spreadsheet program would. Returns the file and its original content."""
    with Pipeline(config.load(), DATASET) as pipeline:
        landed = pipeline.manifest.item(pipeline.key(name)).landed
    if landed is None:
        raise DemoFailed(f"{name} should have landed, but has not")
    file = max((local_path(landed.place) / "Object").glob("*.csv"), key=lambda one: one.stat().st_size)
    original = file.read_bytes()
    file.write_bytes(original.replace(b"true", b"TRUE").replace(b"\r\n", b"\n"))
    return file, original


def _compare(times: Day) -> None:
    """Compares the tables of every target with the vault. Raises DemoFailed if they differ."""
    simulation = times.simulated()
    expected: dict[str, dict[Any, dict[str, Any]]] = dict(simulation.tables(times.end, snapshots=[times.begin, times.noon]))
    for table, rows in simulation.logs(times.end, since=times.begin).items():
        expected[table] = {row["id"]: row for row in rows}
    engines = config.load().engines
    for engine in engines.values():
        with closing(engine.open(read_only=True)) as warehouse:
            for table, wanted in expected.items():
                _compare_table(warehouse, table, wanted)
    rows = sum(len(wanted) for wanted in expected.values())
    where = f", in {' and in '.join(engines)}" if len(engines) > 1 else ""
    say(f"7. The result. {len(expected)} tables with {rows:,} rows equal the vault's own history, value by value{where}.")


def _compare_table(warehouse: Engine, table: str, wanted: Mapping[Any, Mapping[str, Any]]) -> None:
    columns = sorted({column for row in wanted.values() for column in row}) or ["*"]
    names = ", ".join(column if column == "*" else warehouse.quote(column) for column in columns)
    found = warehouse.execute(f"SELECT {names} FROM {warehouse.qualified(DATASET, table)}")  # noqa: S608 - our own data's names
    expected = Counter(tuple(_plain(row.get(column)) for column in columns) for row in wanted.values())
    if Counter(tuple(map(_plain, row)) for row in found) != expected:
        raise DemoFailed(f"table {table} differs from the vault: the warehouse has {len(found)} rows, the vault {len(wanted)}")


def _plain(value: Any) -> Any:
    """Returns a value in the form that both sides share: times in UTC without a zone."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value
