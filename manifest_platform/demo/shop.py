"""The story of the web shop: ten runs, from landing to warehouse and catalog.

A run is broken, because its events use new versions of schemas; another has duplicates; a third arrives late. Bad rows are
replayed.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import typer

from manifest_platform import config, storage
from manifest_platform.cli import Exit
from manifest_platform.cli.remedies import command_of
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.demo.postgresql import PostgreSQLServer
from manifest_platform.demo.stage import MARKER, DemoFailed, ledger, program, say, sql, type_, ui_command
from manifest_platform.manifest import Blocked
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.snowplow.settings import FEED, SnowplowSettings

CONFIGURATION, FOLDER = config.DEFAULT_FILE, ".demo"
DATASET = "acme"
DAYS_AGO = 2
"""The age of the story's day, in days. The day is over, so that it can be merged, and Dagster still shows it."""
NOON, STEP = time(12, tzinfo=UTC), timedelta(minutes=10)
RUNS, DUPLICATED, LATE, BROKEN, MORE = 10, 1, 3, 5, 3
EVENTS, BAD_LINES = 2_000, 12
RESENT, TAKEN_IDS = 5, 2
"""The numbers of events of the run DUPLICATED that came twice, and of those that have the id of another event."""
LINK_CLICK = "com.acme/link_click/jsonschema/1-0"
NEW_SCHEMAS = ("com.acme/user/jsonschema/1-1-0", f"{LINK_CLICK}-1")
"""The schemas that the newest version of the shop uses, and that are not yet published when its first events land."""

UNHEARD_OF = "com.acme/unheard_of"
"""The schema that some lines of every run name, and that is published last: it has the properties of LIKE."""
LIKE = "com.acme/page"

LEDGER = "SELECT substr(item, strpos(item, 'run=')) AS run, late, applied_at FROM {} ORDER BY applied_at"
MERGED = "SELECT dt, count(*) AS events, count(DISTINCT event_id) AS distinct_ids FROM events GROUP BY ALL ORDER BY ALL"
EVOLVED = (
    "SELECT schema_version, count(*) AS link_clicks, count(element_content) AS with_element_content"
    " FROM com_acme_link_click_1 GROUP BY 1 ORDER BY 1"
)
RENAMED = "SELECT original_event_id, root_id AS event_id FROM com_snowplowanalytics_snowplow_duplicate_1 ORDER BY 1, 2"
QUESTION = "SELECT event_name, count(*) AS events FROM events GROUP BY 1 ORDER BY 1"
"""Queries in words that every engine knows, but MERGED, which is asked where the catalog is. LEDGER lacks the ledger's name."""


def day_before(now: datetime) -> date:
    """Returns the default day of the story."""
    return now.date() - timedelta(days=DAYS_AGO)


def tell(home: Path, day: date) -> None:
    """Runs the story in the demo's directory, with data of `day`. Raises DemoFailed if a command ends in an unexpected way."""
    registry, landing = _registry(), _landing()
    bad, late = run_name(day, BROKEN), run_name(day, LATE)
    set_up(registry, landing, day)

    say(
        "1. Discover. A run is complete when its marker _SUCCESS has landed. Discovery lists the landing root and registers the"
        " complete runs in the manifest, the log of all that happens to them."
    )
    type_("manifest-platform discover")
    say(
        "2. Drain. It shreds all registered runs in one Spark job, which writes typed Parquet files for each table. Then it"
        " loads them into the warehouse: strictly in order, each in one transaction."
    )
    type_("manifest-platform drain", Exit.BLOCKED)
    say(
        f"3. A failure. {bad} failed: more than a third of its events use schemas that are not in the registry. It blocks the"
        " feed: the later runs are shredded, but they are not loaded, because order matters. The status shows the reason and"
        " the command to run next, and the warehouse's ledger shows which runs are loaded."
    )
    type_("manifest-platform status", Exit.BLOCKED)
    _show_ledger()

    say("4. Recovery. The operator publishes the missing schemas, runs the printed command, and drains again.")
    for schema in NEW_SCHEMAS:
        typer.echo(f"  publishing iglu:{schema}")
        _publish(registry, schema, (SCHEMAS / schema).read_text())
    type_(_printed_command(bad))
    type_("manifest-platform drain")
    _tell_of_evolution()

    say(
        f"5. A late run. {late} arrives only now, although later runs are loaded. It is not lost: the next drain loads it, and"
        " marks it as late."
    )
    _write(landing, day, LATE)
    type_("manifest-platform discover")
    type_("manifest-platform drain")
    _tell_of_duplicates(day)
    _tell_of_replay(registry)
    say("8. Drain again. All runs are loaded, so nothing happens: a drain can be repeated at any time. The exit code is 4.")
    type_("manifest-platform drain", Exit.NOTHING)

    say("9. The result. The warehouse has a table for events, one for each type of entity, and one for bad rows:")
    with Pipeline(config.load(), DATASET) as pipeline:
        for table, rows in pipeline.warehouse.row_counts().items():
            typer.echo(f"  {DATASET}.{table:<44}{rows:>8,} rows")
    say("The ledger has each run once, in the order in which they were loaded:")
    _show_ledger()
    _tell_of_merging()


def _tell_of_evolution() -> None:
    say(
        "The new version of link_click adds properties. So its table got columns, just before the first run that has them was"
        " loaded. Rows of earlier runs have NULL there."
    )
    type_(f"manifest-platform schemas diff iglu:{LINK_CLICK}-0 iglu:{LINK_CLICK}-1")
    type_(sql(EVOLVED))


def _tell_of_duplicates(day: date) -> None:
    name = run_name(day, DUPLICATED)
    say(
        f"6. Duplicates. In {name}, {RESENT} events came twice: one copy of each is left out. {TAKEN_IDS} other pairs of events"
        " differ, but have one id: each of these events got a new id, and a row that names the original one."
    )
    type_(f"manifest-platform history {name}")
    type_(sql(RENAMED))


def _tell_of_replay(registry: str) -> None:
    say(
        "7. Replay. Some lines of every run are bad. They do not stop a run, and are kept with the reason. Some name the schema"
        f" iglu:{UNHEARD_OF}/jsonschema/1-0-0, which no registry has:"
    )
    type_("manifest-platform bad count")
    typer.echo(f"\n  publishing iglu:{UNHEARD_OF}/jsonschema/1-0-0")
    publish_unheard_of(registry)
    say("A replay reads these lines again. They are good now, and become an item of their own, which the next drain loads.")
    type_(f"manifest-platform bad replay --about {UNHEARD_OF} --reason 'schema published'")
    type_("manifest-platform drain")
    type_("manifest-platform bad count")


def publish_unheard_of(registry: str) -> None:
    """Writes the schema UNHEARD_OF into a registry."""
    (version,) = (SCHEMAS / LIKE / "jsonschema").iterdir()
    text = version.read_text().replace(f'"name": "{LIKE.rpartition("/")[2]}"', f'"name": "{UNHEARD_OF.rpartition("/")[2]}"')
    _publish(registry, f"{UNHEARD_OF}/jsonschema/{version.name}", text)


def _publish(registry: str, schema: str, text: str) -> None:
    storage.write_bytes(f"{storage.as_uri(registry)}/{schema}", text.encode())


def tell_of_an_outage(home: Path, day: date, server: PostgreSQLServer) -> None:
    """Stops the warehouse's server for a drain: the other target does not wait, and the warehouse catches up afterward."""
    say(
        "11. Two targets, one of them down. All runs are loaded into the warehouse and into the target lab. Each target has its"
        f" own order, ledger and fence. Now the warehouse's server stops, and {run_name(day, RUNS)} lands."
    )
    server.stop()
    _write(_landing(), day, RUNS)
    say("The drain loads the run into lab. For the warehouse nothing fails: the run waits.")
    type_("manifest-platform drain", Exit.FAILED)
    say("The server starts again. The next drain loads what the warehouse lacks, and nothing twice.")
    server.start()
    type_("manifest-platform drain")
    _show_ledger()


def _show_ledger() -> None:
    type_(sql(LEDGER.format(ledger(DATASET))))


def tell_what_next(home: Path, day: date, warehouse: str | None = None) -> None:
    """Prints commands to try next, and lands a few more runs, so that Dagster has something to load.

    `warehouse`: that of the story, if it is another than the usual one.
    """
    now = datetime.now(UTC)
    for number in range(MORE):
        land(home, now - number * STEP)
    typed = program("manifest-platform")
    dagster = ui_command(CONFIGURATION, warehouse)
    typer.echo(f"  {dagster:<31}  shows the same in Dagster, which loads {MORE} runs that have just landed")
    beside = f" --warehouse {warehouse}" if warehouse else ""
    typer.echo(f"  {f'{typed} demo --land{beside}':<31}  lands one more run; watch Dagster load it")
    typer.echo(f"  {sql(QUESTION).replace('manifest-platform', typed, 1)}")
    typer.echo(f"  {typed} status")
    typer.echo(f"  {typed} merge explain events {day}")


def _tell_of_merging() -> None:
    say(
        "10. Merge. Shredding wrote a small Parquet file for each table and run. A merge run replaces them by larger files: the"
        " day is over, so it closes the partition, merges its files in one Spark job, and publishes the result to the catalog."
    )
    type_("manifest-platform merge run")
    type_("manifest-platform merge status")
    say("Each merged file replaces a range of small files. The ranges of a partition form a chain without gaps, from 0.")
    type_("manifest-platform merge show ranges --table events")
    say("Readers of the published table get exactly these files, so each event once:")
    type_(f'manifest-platform merge query "{MERGED}"')


def land(home: Path, now: datetime) -> str:
    """Writes one more run, with the time `now`, and returns its name. Raises DemoFailed if no demo has run here."""
    if not (home / MARKER).exists():
        raise DemoFailed(f"{home} has no demo to land a run for: run {program('manifest-platform')} demo first")
    written = write_run(_landing(), now.replace(microsecond=0), EVENTS, seed=1, bad_lines=BAD_LINES, parts=2)
    return written.uri.rpartition("/")[2]


def _landing() -> str:
    return config.load().datasets[DATASET].landing.root


def _registry() -> str:
    settings = config.load().datasets[DATASET]
    assert isinstance(settings, SnowplowSettings)
    return settings.shred.schemas[0]


def set_up(registry: str, landing: str, day: date) -> None:
    """Publishes the schemas except NEW_SCHEMAS, and lands the runs except LATE, and a directory that is no run."""
    for file in SCHEMAS.rglob("*"):
        name = file.relative_to(SCHEMAS).as_posix()
        if file.is_file() and name not in NEW_SCHEMAS:
            _publish(registry, name, file.read_text())
    for number in range(RUNS):
        if number != LATE:
            _write(landing, day, number)
    storage.write_bytes(f"{storage.as_uri(landing)}/{stray(day)}/part-00000.tsv", b"")
    typer.echo(f"{RUNS - 1} runs with {EVENTS:,} events each, of an invented web shop, have landed in {landing}.")


def _write(landing: str, day: date, number: int) -> None:
    time_ = _time(day, number)
    new_version = number in (LATE, BROKEN)
    resent, taken_ids = (RESENT, TAKEN_IDS) if number == DUPLICATED else (0, 0)
    write_run(
        landing,
        time_,
        EVENTS,
        seed=1,
        bad_lines=BAD_LINES,
        evolved=new_version,
        gzip=number % 2 == 1,
        parts=2,
        resent=resent,
        taken_ids=taken_ids,
    )


def run_name(day: date, number: int) -> str:
    """Returns the name of the n-th run of a day, counted from 0."""
    return f"run={_time(day, number):%Y-%m-%d-%H-%M-%S}"


def stray(day: date) -> str:
    """Returns the name of a directory among the runs that is no run."""
    return f"run={day}-copy-of-yesterday"


def _time(day: date, number: int) -> datetime:
    return datetime.combine(day, NOON) + number * STEP


def _printed_command(bad: str) -> str:
    """Returns the command that the blocked drain and the status have printed."""
    with Pipeline(config.load(), DATASET) as pipeline:
        verdict = pipeline.manifest.next(FEED, pipeline.load.key)
    if not isinstance(verdict, Blocked):
        raise DemoFailed(f"{bad} should block the feed, but does not: {verdict}")
    return command_of(verdict.remedy)
