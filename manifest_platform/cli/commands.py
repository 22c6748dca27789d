"""The commands by their names: the module of each, and the line that the help says of it.

So the help imports none of them, and a command only its own module. A module registers its commands with `app`. Commands that
plug-ins bring are found by their entry points, in `app`.
"""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """A command or a group of commands: its module in this package, and the first sentence of its help."""

    module: str
    help: str


COMMANDS = {
    "preview": Known("preview", "Says what lies at a place and what its rows would become."),
    "init": Known("init", "Writes a project for what has landed: configuration, Dagster, a test, a README."),
    "status": Known("status", "Shows how every feed stands."),
    "next": Known("status", "Says what each step may do next."),
    "explain": Known("explain", "Says what would happen next with an item, and why not."),
    "history": Known("history", "Shows all that happened to an item."),
    "query": Known("query", "Lists items by how they stand, newest first."),
    "queue": Known("queue", "Shows a dataset as a control table: every item with its status, attempts, last error and epoch."),
    "types": Known("types", "Lists the types that were shredded, with their versions, and when each was seen first."),
    "tables": Known("tables", "Shows what each table holds by the log, and whether the warehouse agrees."),
    "cost": Known("cost", "Says what items cost the manifest's store."),
    "sql": Known("sql", "Asks the warehouse."),
    "capture": Known("capture", "Captures what a dataset's origin has published: downloads, verifies, registers."),
    "discover": Known("discover", "Registers the complete directories that have landed."),
    "demo": Known("demo", "Loads invented directories, one of them broken, one late, into this folder: about a minute."),
    "drain": Known("drain", "Registers what has landed, shreds it and loads it in order."),
    "full": Known("full", "Loads a snapshot in full, and what came after it anew."),
    "merge": Known("merge", "Merges small objects into well-sized ones, and publishes them."),
    "resolve": Known("decide", "Frees failed items for another attempt."),
    "reshred": Known("decide", "Has items shredded again."),
    "accept": Known("decide", "Accepts a directory that was rewritten on purpose."),
    "skip": Known("skip", "Passes over items, until `unskip`; or, by rules, over items that are still to come."),
    "unskip": Known("decide", "Lets skipped or quarantined items in."),
    "run": Known("run", "Runs a program on an item that it claims, and ends the claim."),
    "put": Known("run", "Registers items and claims them, for scripts that do a step's work by themselves."),
    "doctor": Known("doctor", "Examines a dataset: its log, warehouse and objects."),
    "archive": Known("archive", "Moves the records of finished items to Parquet files at manifest.archive."),
    "housekeeping": Known("housekeeping", "Removes what grows with every run, once it is old enough."),
    "completion": Known(
        "completion", "Prints what makes a shell complete commands, options, datasets and items with the Tab key."
    ),
    "config": Known("config", "Shows, checks and explains the configuration."),
    "schema": Known("schema", "Prints the JSON Schema of what a command answers with --json."),
    "warehouse": Known("warehouse", "Goes on with a warehouse that was set back, or takes another one."),
    "store": Known("store", "Makes the manifest's store, checks it, or takes an older one over."),
    "dump": Known("dump", "Writes the whole manifest of a dataset on stdout."),
    "import": Known("dump", "Puts a dump into the configured store."),
    "import-snowplow": Known("migrate", "Imports a table of the Snowplow Processing Manifest."),
    "import-snowflake": Known("migrate", "Imports a table of the Snowflake Loader's manifest."),
    "import-moved": Known("moved", "Tells the manifest that directories were moved."),
    "view": Known("migrate", "Shows the feed as another manifest would."),
}
