"""The story of the web shop: ten runs from landing to warehouse and catalog, one of them broken, one of them late."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import typer

from manifest_platform import config
from manifest_platform.cli import Exit
from manifest_platform.cli.remedies import command_of
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.demo.stage import MARKER, DemoFailed, program, say, type_, ui_command
from manifest_platform.manifest import Blocked
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.sources.snowplow.settings import FEED

CONFIGURATION, FOLDER = config.DEFAULT_FILE, ".demo"
DATASET = "acme"
DAYS_AGO = 2
"""How long ago the story's day is, where none is told: it is long over, and Dagster's pages show it."""
NOON, STEP = time(12, tzinfo=UTC), timedelta(minutes=10)
RUNS, LATE, BROKEN, MORE = 10, 3, 5, 3
EVENTS, BAD_LINES = 2_000, 12
NEW_SCHEMAS = ("com.acme/user/jsonschema/1-1-0", "com.acme/link_click/jsonschema/1-0-1")
"""What the shop's newest version sends, and nobody has published when its first events land."""

LEDGER = "SELECT regexp_extract(item, 'run=.*') AS run, late, applied_at FROM manifest_platform.ledger ORDER BY applied_at"
MERGED = "SELECT dt, count(*) AS events, count(DISTINCT event_id) AS different FROM events GROUP BY ALL ORDER BY ALL"
QUESTION = "SELECT event_name, count(*) AS events FROM events GROUP BY ALL ORDER BY ALL"


def day_before(now: datetime) -> date:
    """The day of a story that is told now."""
    return now.date() - timedelta(days=DAYS_AGO)


def tell(home: Path, day: date) -> None:
    """Tells the story of a day in the demo's directory. Raises DemoFailed where it does not go so."""
    registry, landing = home / "schemas", _landing(home)
    bad, late = run_name(day, BROKEN), run_name(day, LATE)
    _set_up(registry, landing, day)

    say("Discovery looks at the landing directory and registers the runs that are complete.")
    type_("manifest-platform discover")
    say("A drain shreds what is ready, in one Spark job, and loads it strictly in order.")
    type_("manifest-platform drain", Exit.BLOCKED)
    say(
        f"{bad} cannot be parsed: more than a third of its events carry entities whose schemas no registry has."
        " Nothing behind it is loaded, though it is shredded and ready. What the operator sees, and what the warehouse has:"
    )
    type_("manifest-platform status", Exit.BLOCKED)
    type_(f'manifest-platform sql "{LEDGER}"')

    say("The operator mends the cause, here by publishing the schemas that are missing, and types the printed command.")
    for schema in NEW_SCHEMAS:
        typer.echo(f"  publishing iglu:{schema}")
        shutil.copy(SCHEMAS / schema, registry / schema)
    type_(_printed_command(bad))
    type_("manifest-platform drain")

    say(f"Only now does {late} arrive, behind the watermark. It is not lost: it comes in next, marked as late.")
    _write(landing, day, LATE)
    type_("manifest-platform discover")
    type_("manifest-platform drain")
    say("Nothing is left to do. Doing it again does nothing, and says so (exit code 4).")
    type_("manifest-platform drain", Exit.NOTHING)

    say("The warehouse has these tables,")
    with Pipeline(config.load(), DATASET) as pipeline:
        for table, rows in pipeline.warehouse.row_counts().items():
            typer.echo(f"  {DATASET}.{table:<44}{rows:>8,} rows")
    say("and its ledger these runs, in the order in which they were applied, each once:")
    type_(f'manifest-platform sql "{LEDGER}"')
    _tell_of_merging()


def tell_what_next(home: Path, day: date) -> None:
    """What one may look at afterwards; some of it has only just landed, so that there is something to see in Dagster."""
    now = datetime.now(UTC)
    for number in range(MORE):
        land(home, now - number * STEP)
    typed = program("manifest-platform")
    typer.echo(f"  {ui_command(CONFIGURATION):<32} the same in Dagster, which loads {MORE} runs that landed just now")
    typer.echo(f"  {f'{typed} demo --land':<32} lands one more, to be seen loading there")
    typer.echo(f'  {typed} sql "{QUESTION}"')
    typer.echo(f"  {typed} status")
    typer.echo(f"  {typed} merge explain events {day}")


def _tell_of_merging() -> None:
    say(
        "Shredding wrote a small file for each table and run. Their day is long over, so one merge run does all there is to do:"
        " it registers them, closes the day, merges its files in one Spark job, and shows readers the merged ones."
    )
    type_("manifest-platform merge run")
    type_("manifest-platform merge status")
    say("Each merged file stands for the small ones with ids in a range; the ranges of a partition form one chain from 0.")
    type_("manifest-platform merge show ranges --table events")
    say("Whoever reads the table gets exactly these files.")
    type_(f'manifest-platform merge query "{MERGED}"')


def land(home: Path, now: datetime) -> str:
    """Lands one more run, of this moment; its name. Raises DemoFailed where no demo was told."""
    if not (home / MARKER).exists():
        raise DemoFailed(f"{home} has no demo to land a run of: tell it first, as {program('manifest-platform')} demo")
    written = write_run(_landing(home), now.replace(microsecond=0), EVENTS, seed=1, bad_lines=BAD_LINES, parts=2)
    return written.uri.rpartition("/")[2]


def _landing(home: Path) -> Path:
    return home / "landing" / "enriched"


def _set_up(registry: Path, landing: Path, day: date) -> None:
    shutil.copytree(SCHEMAS, registry)
    for schema in NEW_SCHEMAS:
        (registry / schema).unlink()
    for number in range(RUNS):
        if number != LATE:
            _write(landing, day, number)
    (landing / stray(day)).mkdir()
    typer.echo(f"{RUNS - 1} runs of {EVENTS:,} events of a web shop have landed in {landing}.")


def _write(landing: Path, day: date, number: int) -> None:
    time_ = _time(day, number)
    new_version = number in (LATE, BROKEN)
    write_run(landing, time_, EVENTS, seed=1, bad_lines=BAD_LINES, evolved=new_version, gzip=number % 2 == 1, parts=2)


def run_name(day: date, number: int) -> str:
    """The name of a day's n-th run, from 0."""
    return f"run={_time(day, number):%Y-%m-%d-%H-%M-%S}"


def stray(day: date) -> str:
    """A directory beside the runs that is none."""
    return f"run={day}-copy-of-yesterday"


def _time(day: date, number: int) -> datetime:
    return datetime.combine(day, NOON) + number * STEP


def _printed_command(bad: str) -> str:
    """The command that the blocked drain and the status have printed."""
    with Pipeline(config.load(), DATASET) as pipeline:
        verdict = pipeline.manifest.next(FEED, LOAD)
    if not isinstance(verdict, Blocked):
        raise DemoFailed(f"the load was to be blocked by {bad}, and is not: {verdict}")
    return command_of(verdict.remedy)
