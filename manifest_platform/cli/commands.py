"""The table of commands: name, module, and the first sentence of the help.

With this table the list of commands imports no command, and a command imports its own module only. A test compares the
sentences with the docstrings of the commands. Commands of plug-ins are found by entry points, in `app`.
"""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """A command or a group of commands. `module`: in this package; `help`: the first sentence of its help."""

    module: str
    help: str


COMMANDS = {
    "preview": Known("preview", "Shows which directories a place holds, and the tables that their rows would become."),
    "init": Known("init", "Writes a project for a landing root: configuration, Dagster definitions, a test and a README."),
    "status": Known("status", "Shows the state of every feed."),
    "next": Known("status", "Shows the next item of each step, or the reason why there is none."),
    "explain": Known("explain", "Explains what happens next with an item, and what prevents it."),
    "history": Known("history", "Shows all records of an item."),
    "query": Known("query", "Lists items by state, newest first."),
    "queue": Known("queue", "Shows a dataset as a control table: every item with its status, attempts, last error and epoch."),
    "types": Known("types", "Lists the types of rows that were shredded, and the items where each was first and last seen."),
    "tables": Known("tables", "Compares the rows of each table in the manifest's log with the warehouse."),
    "schemas": Known("schemas", "Shows the schemas that describe rows, the tables that they make, and their differences."),
    "bad": Known("bad", "Lists, counts, shows and replays bad rows: lines that could not be shredded."),
    "cost": Known("cost", "Shows the rows, bytes and requests that items cost in the manifest's store."),
    "sql": Known("sql", "Runs a read-only query in the warehouse."),
    "capture": Known("capture", "Downloads, verifies and registers the new directories that a dataset's origin has published."),
    "discover": Known("discover", "Registers the complete directories that have landed."),
    "landing": Known("landing", "Compares the landing root with what was loaded."),
    "demo": Known("demo", "Runs a demo in this folder: loads invented data, with a broken and a late directory."),
    "drain": Known("drain", "Registers new directories, shreds them and loads them in order."),
    "full": Known("full", "Loads a snapshot as a new epoch, then the changes after it."),
    "merge": Known("merge", "Merges small objects into well-sized ones, and publishes them."),
    "resolve": Known("decide", "Frees failed items for another attempt."),
    "reshred": Known("decide", "Frees items for shredding again."),
    "reload": Known("reload", "Replaces the rows of loaded items: loads them again from their current output."),
    "accept": Known("decide", "Accepts the new content of a directory that was rewritten on purpose."),
    "skip": Known("skip", "Skips items, or adds rules that skip future items."),
    "unskip": Known("decide", "Frees skipped or quarantined items for loading."),
    "run": Known("run", "Claims an item, runs a program on it, and records the result."),
    "put": Known("run", "Registers, claims and completes items from scripts that do the work of a step."),
    "doctor": Known("doctor", "Examines a dataset for faults: its log, its warehouse and its objects."),
    "archive": Known("archive", "Moves the records of finished items to Parquet files at manifest.archive."),
    "housekeeping": Known(
        "housekeeping", "Removes old files and rows that nothing needs any more, such as those of failed attempts."
    ),
    "gc": Known("gc", "Deletes landed directories, shredded output and bad rows that retention no longer keeps."),
    "completion": Known(
        "completion", "Prints a shell script that completes commands, options, datasets and items with the Tab key."
    ),
    "config": Known("config", "Shows, checks and documents the configuration."),
    "schema": Known("schema", "Prints the JSON Schema of a command's answer with --json."),
    "warehouse": Known("warehouse", "Checks a warehouse, or continues after it was restored or replaced."),
    "store": Known("store", "Creates, checks or upgrades the manifest's store."),
    "spark": Known("spark", "Prepares a cluster that runs the Spark jobs."),
    "dump": Known("dump", "Writes the whole manifest of a dataset to stdout."),
    "cutover": Known(
        "cutover", "Replaces another loader: checks its tables, takes them over, or compares with tables beside them."
    ),
    "import": Known("dump", "Imports a dump into the configured store."),
    "import-snowplow": Known("migrate", "Imports a table of the Snowplow Processing Manifest."),
    "import-snowflake": Known("migrate", "Imports a table of the Snowflake Loader's manifest."),
    "import-moved": Known("moved", "Updates the location of items whose directories were moved."),
    "view": Known("migrate", "Shows a feed in the layout of another manifest."),
}
