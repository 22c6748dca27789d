"""The demo: ten runs of the web shop from landing to warehouse and catalog, one of them broken, one of them late.

Belongs here: the story and its stage. What is typed in it (`$ manifest-platform …`) is run as the command line runs it,
within this process, so that one Spark session serves all. The manifest is kept in SQLite, or in DynamoDB Local, which runs as
long as the demo does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer
import yaml

from manifest_platform import cli, config
from manifest_platform.cli import Exit
from manifest_platform.cli.output import WIDTH
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.demo.server import ServerFailed
from manifest_platform.manifest import Blocked
from manifest_platform.pipeline import FEED, LOAD, Pipeline

REPOSITORY = Path(__file__).parents[2]
HOME_VARIABLE = "MANIFEST_PLATFORM_DEMO"
"""Where the demo lives: the variable that the default configuration refers to as well."""
MARKER = "made-by-the-demo"
"""A file that says that a directory is the demo's, and may be removed."""

STORES = ("sqlite", "dynamodb")
TABLE = "manifest-platform-demo"

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


class DemoFailed(RuntimeError):
    """The demo cannot be told, or did not go as it is told."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo from a fresh start, or removes what it left (`--clean`). Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments not in ([], ["--clean"], *(["--store", store] for store in STORES)):
        typer.echo(f"usage: python -m manifest_platform.demo [--store {'|'.join(STORES)} | --clean]", err=True)
        return Exit.WRONG_USE
    try:
        home = _home()
        clean(home)
        if arguments == ["--clean"]:
            typer.echo(f"{home} is removed")
        elif arguments == ["--store", "dynamodb"]:
            _tell_on_dynamodb(home)
        else:
            _tell(home)
    except (DemoFailed, ServerFailed, config.ConfigError) as error:
        typer.echo(f"error: {error}", err=True)
        return Exit.FAILED
    except KeyboardInterrupt:
        typer.echo("interrupted; `make demo` starts afresh", err=True)
        return Exit.FAILED
    return Exit.DONE


def _home() -> Path:
    """The demo's directory. Points the configuration at it. Raises DemoFailed if that reaches beyond it."""
    home = Path(os.environ.get(HOME_VARIABLE) or REPOSITORY / ".demo").absolute()
    os.environ[HOME_VARIABLE] = str(home)
    os.environ[config.VARIABLE] = str(REPOSITORY / config.DEFAULT_FILE)
    settings = config.load()
    manifest = settings.manifest
    places = [settings.warehouse.path, manifest.store.removeprefix("sqlite:///")]
    places += [place for place in (manifest.overflow, manifest.archive) if place]
    for dataset in settings.datasets.values():
        places += [dataset.landing.root, dataset.shred.output, *dataset.shred.schemas]
        places += [dataset.merge.output] if dataset.merge else []
    outside = [place for place in places if not Path(place).is_relative_to(home)]
    if outside or list(settings.datasets) != [DATASET]:
        raise DemoFailed(
            f"{REPOSITORY / config.DEFAULT_FILE} is not the demo's any more (only dataset {DATASET}, everything under {home}):"
            f" it has {', '.join(outside) or ', '.join(settings.datasets)}. The demo touches nobody's data: put the file back,"
            f" and name yours in {config.VARIABLE}"
        )
    return home


def clean(home: Path) -> None:
    """Removes a directory that an earlier demo made. Raises DemoFailed for one that it did not make."""
    if not home.exists():
        return
    strange = [path.name for path in home.iterdir() if not path.name.startswith("manifest.db")]  # `status` makes that one
    if strange and not (home / MARKER).exists():
        raise DemoFailed(f"{home} was not made by the demo (no {MARKER} in it); remove it yourself, or set {HOME_VARIABLE}")
    shutil.rmtree(home)


def _tell(home: Path) -> None:
    with _stage(home):
        _tell_story(home)
    typer.echo("  make ui                          the same in Dagster")
    typer.echo(f'  .venv/bin/manifest-platform sql "{QUESTION}"')
    typer.echo("  .venv/bin/manifest-platform status")
    typer.echo("  .venv/bin/manifest-platform merge explain events 2024-05-14")


def _tell_on_dynamodb(home: Path) -> None:
    with _stage(home):
        typer.echo("Starting DynamoDB Local; the first time, it is fetched from Maven Central.")
        with dynamodb_local(home / "dynamodb.log") as server:
            os.environ.update(server.environment)
            os.environ[config.VARIABLE] = str(_configuration_with(server.store(TABLE), home))
            _say("The manifest is to be in a DynamoDB table, so that has to be made, once.")
            _type("manifest-platform store create")
            _tell_story(home)
    typer.echo(f"  make demo                        the same on SQLite, to look around in (this table, {TABLE}, is gone)")
    typer.echo("  manifest.store: dynamodb://TABLE?region=eu-west-1     in your configuration, for a table of your account")


def _configuration_with(store: str, home: Path) -> Path:
    """The demo's configuration with another store, as a file in its directory."""
    settings = yaml.safe_load((REPOSITORY / config.DEFAULT_FILE).read_text())
    settings["manifest"]["store"] = store
    settings["spark"]["conf"] = str(REPOSITORY / settings["spark"]["conf"])
    file = home / config.DEFAULT_FILE
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file


@contextmanager
def _stage(home: Path) -> Generator[None]:
    """The demo's directory, made for the story; says how long that took."""
    begun = time.monotonic()
    home.mkdir(parents=True)
    (home / MARKER).touch()
    yield
    _say(f"Done in {time.monotonic() - begun:.0f} s. Next, try")


def _tell_story(home: Path) -> None:
    registry, landing = home / "schemas", home / "landing" / "enriched"
    _set_up(registry, landing)

    _say("Discovery looks at the landing directory and registers the runs that are complete.")
    _type("manifest-platform discover")
    _say("A drain shreds what is ready, in one Spark job, and loads it strictly in order.")
    _type("manifest-platform drain", Exit.BLOCKED)
    _say(
        f"{run_name(BROKEN)} cannot be parsed: more than a third of its events carry entities whose schemas no registry has."
        " Nothing behind it is loaded, though it is shredded and ready. What the operator sees, and what the warehouse has:"
    )
    _type("manifest-platform status", Exit.BLOCKED)
    _type(f'manifest-platform sql "{LEDGER}"')

    _say("The operator mends the cause, here by publishing the schemas that are missing, and types the printed command.")
    for schema in NEW_SCHEMAS:
        typer.echo(f"  publishing iglu:{schema}")
        shutil.copy(SCHEMAS / schema, registry / schema)
    _type(_printed_command())
    _type("manifest-platform drain")

    _say(f"Only now does {run_name(LATE)} arrive, behind the watermark. It is not lost: it comes in next, marked as late.")
    _write(landing, LATE)
    _type("manifest-platform discover")
    _type("manifest-platform drain")
    _say("Nothing is left to do. Doing it again does nothing, and says so (exit code 4).")
    _type("manifest-platform drain", Exit.NOTHING)

    _say("The warehouse has these tables,")
    with Pipeline(config.load(), DATASET) as pipeline:
        for table, rows in pipeline.warehouse.row_counts().items():
            typer.echo(f"  {DATASET}.{table:<44}{rows:>8,} rows")
    _say("and its ledger these runs, in the order in which they were applied, each once:")
    _type(f'manifest-platform sql "{LEDGER}"')
    _tell_of_merging()


def _tell_of_merging() -> None:
    _say(
        "Shredding wrote a small file for each table and run. Their day is long over, so one merge run does all there is to do:"
        " it registers them, closes the day, merges its files in one Spark job, and shows readers the merged ones."
    )
    _type("manifest-platform merge run")
    _type("manifest-platform merge status")
    _say("Each merged file stands for the small ones with ids in a range; the ranges of a partition form one chain from 0.")
    _type("manifest-platform merge show ranges --table events")
    _say("Whoever reads the table gets exactly these files.")
    _type(f'manifest-platform merge query "{MERGED}"')


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
    return verdict.command


def _type(command: str, expected: Exit = Exit.DONE) -> None:
    """Shows a command as an operator types it, and runs it."""
    typer.secho(f"\n$ {command}", bold=True)
    code = cli.main(shlex.split(command)[1:])
    if code != expected:
        raise DemoFailed(f"`{command}` ended with {code}, and {int(expected)} was to be expected")


def _say(text: str) -> None:
    typer.secho(f"\n{textwrap.fill(text, WIDTH)}", fg="cyan")
