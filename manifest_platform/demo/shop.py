"""The story of the web shop: ten runs from landing to warehouse and catalog, one of them broken, one of them late."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer

from manifest_platform import config
from manifest_platform.cli import Exit
from manifest_platform.cli.remedies import command_of
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.demo.stage import DemoFailed, program, say, type_, ui_command
from manifest_platform.manifest import Blocked
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.sources.snowplow.settings import FEED

CONFIGURATION, FOLDER = config.DEFAULT_FILE, ".demo"
DATASET = "acme"
FIRST = datetime(2024, 5, 14, 12, 0, tzinfo=UTC)
STEP = timedelta(minutes=10)
RUNS, LATE, BROKEN = 10, 3, 5
EVENTS, BAD_LINES = 2_000, 12
NEW_SCHEMAS = ("com.acme/user/jsonschema/1-1-0", "com.acme/link_click/jsonschema/1-0-1")
"""What the shop's newest version sends, and nobody has published when its first events land."""
STRAY = "run=2024-05-14-copy-of-yesterday"

LEDGER = "SELECT regexp_extract(item, 'run=.*') AS run, late, applied_at FROM manifest_platform.ledger ORDER BY applied_at"
MERGED = "SELECT dt, count(*) AS events, count(DISTINCT event_id) AS different FROM events GROUP BY ALL ORDER BY ALL"
QUESTION = "SELECT event_name, count(*) AS events FROM events GROUP BY ALL ORDER BY ALL"


def tell(home: Path) -> None:
    """Tells the story in the demo's directory. Raises DemoFailed where it does not go so."""
    registry, landing = home / "schemas", home / "landing" / "enriched"
    _set_up(registry, landing)

    say("Discovery looks at the landing directory and registers the runs that are complete.")
    type_("manifest-platform discover")
    say("A drain shreds what is ready, in one Spark job, and loads it strictly in order.")
    type_("manifest-platform drain", Exit.BLOCKED)
    say(
        f"{run_name(BROKEN)} cannot be parsed: more than a third of its events carry entities whose schemas no registry has."
        " Nothing behind it is loaded, though it is shredded and ready. What the operator sees, and what the warehouse has:"
    )
    type_("manifest-platform status", Exit.BLOCKED)
    type_(f'manifest-platform sql "{LEDGER}"')

    say("The operator mends the cause, here by publishing the schemas that are missing, and types the printed command.")
    for schema in NEW_SCHEMAS:
        typer.echo(f"  publishing iglu:{schema}")
        shutil.copy(SCHEMAS / schema, registry / schema)
    type_(_printed_command())
    type_("manifest-platform drain")

    say(f"Only now does {run_name(LATE)} arrive, behind the watermark. It is not lost: it comes in next, marked as late.")
    _write(landing, LATE)
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


def tell_what_next() -> None:
    """What one may look at afterwards."""
    typed = program("manifest-platform")
    typer.echo(f"  {ui_command(CONFIGURATION):<32} the same in Dagster")
    typer.echo(f'  {typed} sql "{QUESTION}"')
    typer.echo(f"  {typed} status")
    typer.echo(f"  {typed} merge explain events 2024-05-14")


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


def _set_up(registry: Path, landing: Path) -> None:
    shutil.copytree(SCHEMAS, registry)
    for schema in NEW_SCHEMAS:
        (registry / schema).unlink()
    for number in range(RUNS):
        if number != LATE:
            _write(landing, number)
    (landing / STRAY).mkdir()
    typer.echo(f"{RUNS - 1} runs of {EVENTS:,} events of a web shop have landed in {landing}.")


def _write(landing: Path, number: int) -> None:
    time_ = FIRST + number * STEP
    new_version = number in (LATE, BROKEN)
    write_run(landing, time_, EVENTS, seed=1, bad_lines=BAD_LINES, evolved=new_version, gzip=number % 2 == 1, parts=2)


def run_name(number: int) -> str:
    """The name of the demo's n-th run, from 0."""
    return f"run={FIRST + number * STEP:%Y-%m-%d-%H-%M-%S}"


def _printed_command() -> str:
    """The command that the blocked drain and the status have printed."""
    with Pipeline(config.load(), DATASET) as pipeline:
        verdict = pipeline.manifest.next(FEED, LOAD)
    if not isinstance(verdict, Blocked):
        raise DemoFailed(f"the load was to be blocked by {run_name(BROKEN)}, and is not: {verdict}")
    return command_of(verdict.remedy)
